"""Chapter 19: two changes to trained weights: average the heads of a group, and reorder the rows of each head."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor

from ._exercise import Case
from ._inputs import apart, draw
from ._markdown import exercises_of

exercise = exercises_of(globals())


def _projections(rng: random.Random) -> Iterator[Case]:
    """Of 4 to 42 heads; but for the first, columns too can be cut into as many parts as a group has heads."""
    rows = [[1.0], [2.0], [3.0], [5.0], [7.0], [6.0], [4.0], [9.0]]
    yield {"weight": torch.tensor(rows), "num_heads": 4, "num_groups": 2}
    drawn = apart(
        rng, 4, of=lambda g, shared, d, pieces: [g, shared, d, pieces, g * shared, g * shared * d, shared * pieces]
    )
    for num_groups, shared, head_dim, pieces in drawn:
        yield {
            "weight": draw(rng, num_groups * shared * head_dim, shared * pieces),
            "num_heads": num_groups * shared,
            "num_groups": num_groups,
        }


def _in_groups(weight: Tensor, num_heads: int, num_groups: int) -> Tensor:
    """(g, h/g, d, D_in)."""
    return weight.reshape(num_groups, num_heads // num_groups, -1, weight.shape[1])


def _pooled(weight: Tensor, num_heads: int, num_groups: int) -> Tensor:
    return _in_groups(weight, num_heads, num_groups).mean(1).flatten(0, 1)


pooled = exercise(
    "pooled",
    reference=_pooled,
    cases=_projections,
)


def _rotary_rows(rng: random.Random) -> Iterator[Case]:
    yield {"weight": torch.arange(12.0)[:, None], "num_heads": 2}
    drawn = apart(rng, 3, smallest=3, of=lambda h, half, width: [h, width, 2 * half, 2 * half * h])
    for num_heads, half, width in drawn:
        yield {"weight": draw(rng, num_heads * 2 * half, width), "num_heads": num_heads}


def _two_halves(x: Tensor, dim: int) -> Tensor:
    """The even indices of an axis, then the odd ones."""
    even, odd = (torch.arange(first, x.shape[dim], 2) for first in (0, 1))
    return x.index_select(dim, torch.cat([even, odd]))


def _to_halves(weight: Tensor, num_heads: int) -> Tensor:
    return _two_halves(weight.unflatten(0, (num_heads, -1)), 1).flatten(0, 1)


to_halves = exercise(
    "to_halves",
    reference=_to_halves,
    cases=_rotary_rows,
)
