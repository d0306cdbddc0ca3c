"""How tokens know where they stand. Each way is a `Positions`, chosen by its name.

A way acts in one of two places: on the tokens' vectors, before the first layer, or on the queries and keys of each
head, inside every layer. So any layer takes any of them.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .._validate import require_choice, require_count, require_positive, require_tensor

PAIRS = ("interleaved", "halves")
"""How channels are paired for rotary positions, see `rotate`."""


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


def rotate(x: Tensor, start: int = 0, *, pairs: str = "interleaved", base: float = 10000.0) -> Tensor:
    """Rotary positions: turn pair i of the channels of token n by the angle (start + n) * base^(-2i/d).

    The product of a rotated query and a rotated key depends on the distance of their tokens only.

    Args:
        x: (..., N, d), floating-point, d even: queries or keys of a head.
        start: position of the first token.
        pairs: which channels are pair i: 2i and 2i + 1, "interleaved", as in RoFormer and Meta's LLaMA; or i and
            i + d/2, "halves", as in GPT-NeoX and Hugging Face's LLaMA. `mhalib.variants.exchange_pairs` takes a layer
            from one to the other.
        base: how slowly the last pair turns; LLaMA 3 has 500,000.

    Raises:
        TypeError, ValueError: `x` is no tensor of two axes or more and of real numbers, d is odd, `start` is negative,
            `pairs` is unknown, `base` is not a positive number.

    Source: Su et al. 2021, RoFormer, section 3.
    """
    require_tensor("x", x)
    if not x.is_floating_point():
        raise TypeError(f"x must hold floating-point numbers, got {x.dtype}")
    if x.dim() < 2:
        raise ValueError(f"x needs at least 2 axes, got shape {tuple(x.shape)}")
    require_count("start", start, minimum=0)
    require_choice("pairs", pairs, PAIRS)
    require_positive("base", base)
    angles = _angles(x.shape[-2], x.shape[-1], start, base)
    cos, sin = (part.to(x.dtype).to(x.device) for part in (angles.cos(), angles.sin()))
    if pairs == "halves":
        first, second = x.chunk(2, -1)
        return torch.cat([first * cos - second * sin, first * sin + second * cos], -1)
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)


def _angles(num_tokens: int, width: int, start: int, base: float = 10000.0) -> Tensor:
    """(N, width / 2), in float64: the angles of late places are large, and their sines need the digits."""
    require_count("width", width)
    if width % 2:
        raise ValueError(f"positions by angles need an even width, got {width}")
    rates = base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    places = torch.arange(start, start + num_tokens, dtype=torch.float64)
    return places[:, None] * rates


class Positions(nn.Module):
    """A way to tell tokens where they stand. This one tells them nothing.

    acts_in_heads: whether it is the layers that apply it, with `turn`.
    max_tokens: how many places there are; `None` means without end.
    """

    acts_in_heads = False
    max_tokens: int | None = None

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """Vectors of tokens, (B, N, D) -> (B, N, D); the first token stands at `start`."""
        return x

    def turn(self, x: Tensor, start: int = 0) -> Tensor:
        """Queries or keys of each head, (B, h, N, d) -> (B, h, N, d); the first token stands at `start`."""
        return x


class LearnedPositions(Positions):
    """Adds to each token a vector that belongs to its place and is learned, like a word's.

    Args:
        max_tokens: how many places there are.
        num_hiddens: D.
    """

    max_tokens: int

    def __init__(self, max_tokens: int, num_hiddens: int) -> None:
        super().__init__()
        require_count("max_tokens", max_tokens)
        require_count("num_hiddens", num_hiddens)
        self.max_tokens = int(max_tokens)
        self.table = nn.Parameter(torch.randn(max_tokens, num_hiddens) * 0.3)

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """(B, N, D) -> (B, N, D); the first token stands at `start`.

        Raises:
            ValueError: there are more tokens than places.
        """
        _require_vectors(x, start)
        if x.shape[-1] != self.table.shape[1]:
            raise ValueError(f"x has width {x.shape[-1]}, but positions have {self.table.shape[1]}")
        stop = start + x.shape[1]
        if stop > len(self.table):
            raise ValueError(f"{stop} tokens, but the model has only max_tokens={len(self.table)} positions")
        return x + self.table[start:stop]


class SinusoidalPositions(Positions):
    """Adds `sinusoidal_positions`: nothing is learned, and no text is too long."""

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """(B, N, D) -> (B, N, D); the first token stands at `start`."""
        _require_vectors(x, start)
        return x + sinusoidal_positions(x.shape[1], x.shape[2], start).to(x)


class RotaryPositions(Positions):
    """Turns queries and keys of each head by their positions, see `rotate`. For self-attention: one token asks and is
    asked under one position.

    Args:
        pairs, base: as in `rotate`.
    """

    acts_in_heads = True

    def __init__(self, pairs: str = "interleaved", base: float = 10000.0) -> None:
        super().__init__()
        require_choice("pairs", pairs, PAIRS)
        require_positive("base", base)
        self.pairs, self.base = pairs, float(base)

    def turn(self, x: Tensor, start: int = 0) -> Tensor:
        """(B, h, N, d) -> (B, h, N, d), d even; the first token stands at `start`."""
        return rotate(x, start, pairs=self.pairs, base=self.base)


def _require_vectors(x: Tensor, start: int) -> None:
    """Raise unless `x` is (B, N, D) and `start` a place."""
    require_tensor("x", x, rank=3)
    require_count("start", start, minimum=0)


ROTARY = ("rotary", "rotary-halves")
"""The names of rotary positions: with interleaved pairs, and with halves."""
POSITIONS = ("none", "learned", "sinusoidal", *ROTARY)
"""The names that `make_positions` and the models know."""


def rotary_positions(name: str, base: float = 10000.0) -> RotaryPositions:
    """The rotary positions of a name in `ROTARY`."""
    return RotaryPositions("halves" if name == "rotary-halves" else "interleaved", base)


def make_positions(name: str, max_tokens: int, num_hiddens: int) -> Positions:
    """The way of that name.

    Args:
        name: one of `POSITIONS`.
        max_tokens: how many places, for learned ones.
        num_hiddens: D, for learned ones.

    Raises:
        ValueError: there is no such way.
    """
    require_choice("positions", name, POSITIONS)
    if name == "learned":
        return LearnedPositions(max_tokens, num_hiddens)
    if name in ROTARY:
        return rotary_positions(name)
    return {"none": Positions, "sinusoidal": SinusoidalPositions}[name]()
