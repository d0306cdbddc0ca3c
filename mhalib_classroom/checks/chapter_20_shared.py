"""Chapter 20: heads that share queries and keys, and heads that see channels of their neighbours."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from ._exercise import Case
from ._inputs import apart, draw, own_sizes
from ._markdown import exercises_of

exercise = exercises_of(globals())


def _shared(rng: random.Random) -> Iterator[Case]:
    """The width of the shared channels is never head_dim, nor h * head_dim, so that every wrong scale shows."""
    yield {
        "q": torch.tensor([[1.0, 2.0, 3.0]]),
        "k": torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 2.0], [0.0, 0.0, 1.0], [2.0, 0.0, 1.0]]),
        "mixing": torch.tensor([[1.0, 0.0, 2.0], [0.0, 3.0, 1.0]]),
        "head_dim": 16,
    }
    drawn = apart(rng, 5, largest=9, of=lambda h, Q, K, width, d: [h, Q, K, width, d, h * d])
    for num_heads, num_queries, num_kvpairs, shared_size, head_dim in drawn:
        yield {
            "q": draw(rng, num_queries, shared_size),
            "k": draw(rng, num_kvpairs, shared_size),
            "mixing": draw(rng, num_heads, shared_size),
            "head_dim": head_dim,
        }


def _raw(q: Tensor, k: Tensor, mixing: Tensor) -> Tensor:
    """(h, Q, K), without a scale."""
    return q * mixing[:, None] @ k.T


def _shared_scores(q: Tensor, k: Tensor, mixing: Tensor, head_dim: int) -> Tensor:
    return _raw(q, k, mixing) / math.sqrt(head_dim)


shared_scores = exercise(
    "shared_scores",
    reference=_shared_scores,
    cases=_shared,
)


@own_sizes("an overlap is more than one channel and less than a head: 2 or 3", "overlap")
def _channels(rng: random.Random) -> Iterator[Case]:
    yield {"x": torch.tensor([[[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]]]), "num_heads": 3, "overlap": 1}
    drawn = apart(rng, 4, smallest=4, largest=8, of=lambda h, d, B, N: [h, d, B, N, h * d])
    for num_heads, head_dim, batch_size, num_tokens in drawn:
        x = draw(rng, batch_size, num_tokens, num_heads * head_dim)
        yield {"x": x, "num_heads": num_heads, "overlap": rng.choice((2, 3))}


def _windows(x: Tensor, num_heads: int, left: int, right: int, mode: str = "constant") -> Tensor:
    """Head i gets the channels i*d - left to (i+1)*d + right."""
    head_dim = x.shape[-1] // num_heads
    return F.pad(x, (left, right), mode).unfold(-1, left + head_dim + right, head_dim).transpose(1, 2)


def _widened(x: Tensor, num_heads: int, overlap: int) -> Tensor:
    return _windows(x, num_heads, overlap, overlap)


def _parts(x: Tensor, num_heads: int, overlap: int) -> tuple[Tensor, Tensor, Tensor]:
    """A window in three: the channels on its left, its own, those on its right."""
    windows = _widened(x, num_heads, overlap)
    return windows[..., :overlap], windows[..., overlap:-overlap], windows[..., -overlap:]


def _far_ends(x: Tensor, num_heads: int, overlap: int) -> Tensor:
    """The first channels of the left neighbour and the last of the right one: those that are not next to the head."""
    own = _windows(x, num_heads, 0, 0)
    left, right = F.pad(own, (0, 0, 0, 0, 1, 0))[:, :-1], F.pad(own, (0, 0, 0, 0, 0, 1))[:, 1:]
    return torch.cat([left[..., :overlap], own, right[..., -overlap:]], -1)


widened = exercise(
    "widened",
    reference=_widened,
    cases=_channels,
)
