"""How sharp a head is, how far it looks, and a softmax over the wrong axis."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ._exercise import Case
from ._inputs import apart, draw, square_weights
from ._markdown import exercises_of

exercise = exercises_of(globals())


def _rows(weights: Tensor) -> Tensor:
    return -torch.special.xlogy(weights, weights).sum(-1)


def _not_square(rng: random.Random) -> Iterator[Case]:
    yield next(square_weights(rng))
    for batch_size, num_heads, num_queries, num_kvpairs in apart(rng, 4, 4, largest=8):
        yield {"weights": (2 * draw(rng, batch_size, num_heads, num_queries, num_kvpairs)).softmax(-1)}


head_entropy = exercise(
    "head_entropy",
    reference=lambda weights: _rows(weights).mean((0, 2)),
    cases=_not_square,
)


def _offsets(rng: random.Random) -> Iterator[Case]:
    for offset, case in zip((-1, -1, 2, 0), square_weights(rng), strict=True):
        yield {**case, "offset": offset}


def _at_offset(weights: Tensor, offset: int) -> Tensor:
    return weights.diagonal(offset, -2, -1).mean((0, 2))


def _from_every_query(weights: Tensor, offset: int, place: Callable[[int, int], int]) -> Tensor:
    n = weights.shape[-1]
    return torch.stack([weights[:, :, t, place(t + offset, n)] for t in range(n)], -1).mean((0, 2))


def _stopping_at_the_end(weights: Tensor, offset: int) -> Tensor:
    """Each query whose neighbour is not beyond the last key; an index below 0 counts from the end."""
    queries = [t for t in range(weights.shape[-1]) if t + offset < weights.shape[-1]]
    return torch.stack([weights[:, :, t, t + offset] for t in queries], -1).mean((0, 2))


offset_weight = exercise(
    "offset_weight",
    reference=_at_offset,
    cases=_offsets,
)


def _heads_beside_channels(rng: random.Random) -> Iterator[Case]:
    for batch_size, num_heads, head_dim, num_queries, num_kvpairs in ([1, 2, 2, 1, 2], *apart(rng, 5, 2)):
        lengths = {"q": num_queries, "k": num_kvpairs, "v": num_kvpairs}
        yield {name: 2 * draw(rng, batch_size, length, num_heads, head_dim) for name, length in lengths.items()}


def _over_axis(q: Tensor, k: Tensor, v: Tensor, *, axis: int = 2) -> Tensor:
    scores = torch.einsum("bqhd,bkhd->bqkh", q, k) / math.sqrt(q.shape[-1])
    return torch.einsum("bqkh,bkhd->bqhd", scores.softmax(axis), v)


mended_axis = exercise(
    "mended_axis",
    reference=_over_axis,
    cases=_heads_beside_channels,
    switches=_over_axis,
)
