"""Three ways to tell a layer where a token stands."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ._validate import require_count, require_tensor
from .attention import MultiHeadAttention
from .cache import KeyValueCache


def sinusoidal_positions(num_tokens: int, num_hiddens: int, start: int = 0) -> Tensor:
    """(N, D): sines in the even columns, cosines in the odd ones; 2i and 2i + 1 turn by 10000^(-2i/D) per token.

    Raises:
        TypeError, ValueError: a size is not a positive integer, `num_hiddens` is odd, `start` is negative.

    Source: Vaswani et al. 2017, section 3.5.
    """
    require_count("num_tokens", num_tokens, minimum=0)
    require_count("start", start, minimum=0)
    angles = _angles(num_tokens, num_hiddens, start)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1).float()


def rotate(x: Tensor, start: int = 0) -> Tensor:
    """Rotary positions: turn each pair of channels (2i, 2i + 1) of token n by the angle (start + n) * 10000^(-2i/d).

    The product of a rotated query and a rotated key depends on the distance of their tokens only.

    Args:
        x: (..., N, d), d even: queries or keys of a head.
        start: position of the first token.

    Raises:
        TypeError, ValueError: `x` is no tensor of two axes or more, d is odd, `start` is negative.

    Source: Su et al. 2021, RoFormer, section 3.
    """
    require_tensor("x", x)
    if x.dim() < 2:
        raise ValueError(f"x needs at least 2 axes, got shape {tuple(x.shape)}")
    require_count("start", start, minimum=0)
    angles = _angles(x.shape[-2], x.shape[-1], start)
    cos, sin = (part.to(x.dtype).to(x.device) for part in (angles.cos(), angles.sin()))
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)


def _angles(num_tokens: int, width: int, start: int) -> Tensor:
    """(N, width / 2), in float64: the angles of late places are large, and their sines need the digits."""
    require_count("width", width)
    if width % 2:
        raise ValueError(f"positions by angles need an even width, got {width}")
    rates = 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    places = torch.arange(start, start + num_tokens, dtype=torch.float64)
    return places[:, None] * rates


class RotaryAttention(MultiHeadAttention):
    """`MultiHeadAttention` whose queries and keys are turned by their positions, after their projections.

    For self-attention: query t and key t are one token. With a cache, the new tokens follow those in the cache.
    """

    def _project(
        self, queries: Tensor, keys: Tensor, values: Tensor, cache: KeyValueCache | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        if queries.shape[1] != keys.shape[1]:
            raise ValueError(
                f"rotary positions are for self-attention: {queries.shape[1]} queries, but {keys.shape[1]} keys"
            )
        start = 0 if cache is None else len(cache)
        q, k, v = super()._project(queries, keys, values, None)
        q, k = rotate(q, start), rotate(k, start)
        return (q, k, v) if cache is None else (q, *cache.extend(k, v))


class LearnedPositions(nn.Module):
    """Adds to each token a vector that belongs to its place and is learned, like a word's.

    Args:
        max_tokens: how many places there are.
        num_hiddens: D.
    """

    def __init__(self, max_tokens: int, num_hiddens: int) -> None:
        super().__init__()
        require_count("max_tokens", max_tokens)
        require_count("num_hiddens", num_hiddens)
        self.table = nn.Parameter(torch.randn(max_tokens, num_hiddens) * 0.3)

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """(B, N, D) -> (B, N, D); the first token stands at `start`.

        Raises:
            ValueError: there are more tokens than places.
        """
        stop = start + x.shape[1]
        if stop > len(self.table):
            raise ValueError(f"{stop} tokens, but the model has only max_tokens={len(self.table)} positions")
        return x + self.table[start:stop]


class SinusoidalPositions(nn.Module):
    """Adds `sinusoidal_positions`: nothing is learned, and no text is too long."""

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """(B, N, D) -> (B, N, D); the first token stands at `start`."""
        return x + sinusoidal_positions(x.shape[1], x.shape[2], start).to(x)
