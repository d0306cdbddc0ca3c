"""Weighted averages, and scores."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import torch
from torch import Tensor

from ._exercise import Case
from ._inputs import apart, draw
from ._markdown import exercises_of

exercise = exercises_of(globals())


def _weights_and_values(rng: random.Random) -> Iterator[Case]:
    yield {"weights": torch.tensor([[0.25, 0.75]]), "values": torch.tensor([[4.0, 0.0, 8.0], [0.0, 4.0, 8.0]])}
    for num_queries, num_kvpairs, width in apart(rng, 3):
        yield {"weights": draw(rng, num_queries, num_kvpairs).softmax(-1), "values": draw(rng, num_kvpairs, width)}


weighted_average = exercise(
    "weighted_average",
    reference=lambda weights, values: weights @ values,
    cases=_weights_and_values,
)


def _queries_and_keys(rng: random.Random) -> Iterator[Case]:
    yield {"q": draw(rng, 2, 4), "k": draw(rng, 3, 4)}
    for batch_size, num_queries, num_kvpairs, width in apart(rng, 4):
        yield {"q": draw(rng, batch_size, num_queries, width), "k": draw(rng, batch_size, num_kvpairs, width)}


def _reversed(x: Tensor) -> Tensor:
    """What `.T` makes of it; of more than two axes, torch warns of that."""
    return x.permute(*reversed(range(x.ndim)))


def _products(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.mT


scores = exercise(
    "scores",
    reference=lambda q, k: _products(q, k) / math.sqrt(q.shape[-1]),
    cases=_queries_and_keys,
)
