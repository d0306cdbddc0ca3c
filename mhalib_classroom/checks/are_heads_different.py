"""How alike two heads are."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import torch
from torch import Tensor

from ._exercise import Case
from ._inputs import apart, draw, own_sizes
from ._markdown import exercises_of

exercise = exercises_of(globals())


def _heads_of_one(rng: random.Random) -> Iterator[Case]:
    yield {"weights": torch.tensor([[[0.6, 0.2, 0.2]], [[0.1, 0.3, 0.6]]])}
    for num_heads, num_queries, num_kvpairs in apart(rng, 3, smallest=3):
        yield {"weights": (2 * draw(rng, num_heads, num_queries, num_kvpairs)).softmax(-1)}


def _products(flat: Tensor) -> Tensor:
    return flat @ flat.mT


def _cosines(flat: Tensor) -> Tensor:
    return _products(flat / flat.norm(dim=-1, keepdim=True))


def _half_normalised(weights: Tensor, side: int) -> Tensor:
    flat = weights.flatten(1)
    products = flat / flat.norm(dim=-1, keepdim=True) @ flat.mT
    return products.mT if side else products


head_cosines = exercise(
    "head_cosines",
    reference=lambda weights: _cosines(weights.flatten(1)),
    cases=_heads_of_one,
)


@own_sizes("three pairs of rows whose divergence is known come first, all of three keys", "p.0")
def _two_rows(rng: random.Random) -> Iterator[Case]:
    yield {"p": torch.tensor([1.0, 0.0, 0.0]), "q": torch.tensor([0.5, 0.5, 0.0])}
    yield {"p": torch.tensor([1.0, 0.0, 0.0]), "q": torch.tensor([0.0, 0.5, 0.5])}
    yield {"p": torch.tensor([0.5, 0.5, 0.0]), "q": torch.tensor([0.5, 0.5, 0.0])}
    for (num_kvpairs,) in apart(rng, 1, 4, smallest=4):
        yield {
            "p": (2 * draw(rng, num_kvpairs)).softmax(-1),
            "q": (2 * draw(rng, num_kvpairs)).softmax(-1),
        }


def _kl(p: Tensor, q: Tensor) -> Tensor:
    return (torch.special.xlogy(p, p) - torch.special.xlogy(p, q)).sum()


def _js(p: Tensor, q: Tensor) -> Tensor:
    middle = (p + q) / 2
    return (_kl(p, middle) + _kl(q, middle)) / 2


def _of_p_alone(p: Tensor, q: Tensor, factor: float) -> Tensor:
    return factor * _kl(p, (p + q) / 2)


js_divergence = exercise(
    "js_divergence",
    reference=_js,
    cases=_two_rows,
)
