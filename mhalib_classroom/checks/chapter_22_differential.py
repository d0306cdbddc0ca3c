"""Chapter 22: the difference of two maps, and the number by which the second is multiplied."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor

from ._exercise import Case
from ._inputs import apart, draw
from ._markdown import exercises_of

exercise = exercises_of(globals())


def _two_maps(rng: random.Random) -> Iterator[Case]:
    yield {"scores": torch.tensor([[[1.0, 2.0, 0.0]], [[0.0, 0.0, 1.0]]]), "second": 0.5}
    for num_heads, num_queries, num_kvpairs in apart(rng, 3, largest=9, of=lambda h, Q, K: [2 * h, Q, K]):
        yield {"scores": 2 * draw(rng, 2 * num_heads, num_queries, num_kvpairs), "second": rng.uniform(0.2, 0.8)}


def _maps(scores: Tensor) -> tuple[Tensor, Tensor]:
    weights = scores.softmax(-1)
    return weights[0::2], weights[1::2]


def _difference(scores: Tensor, second: float) -> Tensor:
    first, other = _maps(scores)
    return first - second * other


differential_weights = exercise(
    "differential_weights",
    reference=_difference,
    cases=_two_maps,
)


def _vectors(rng: random.Random) -> Iterator[Case]:
    yield {
        "q1": torch.tensor([1.0, 0.0]),
        "k1": torch.tensor([0.5, 2.0]),
        "q2": torch.tensor([0.0, 1.0]),
        "k2": torch.tensor([1.0, -0.5]),
        "start": 0.2,
    }
    for (head_dim,) in apart(rng, 1, smallest=3, largest=8):
        q1, k1, q2, k2 = (draw(rng, head_dim) / 2 for _ in range(4))
        yield {"q1": q1, "k1": k1, "q2": q2, "k2": k2, "start": rng.uniform(0.2, 0.8)}


second_weight = exercise(
    "second_weight",
    reference=lambda q1, k1, q2, k2, start: (q1 @ k1).exp() - (q2 @ k2).exp() + start,
    cases=_vectors,
)
