"""Chapter 17: how alike two heads are."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from ._exercise import Case, Exercise, Mistake
from ._inputs import apart, draw, own_sizes


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


head_cosines = Exercise(
    "head_cosines",
    chapter=17,
    title="cosine between the patterns of heads",
    reference=lambda weights: _cosines(weights.flatten(1)),
    cases=_heads_of_one,
    verified="four layers; a symmetric matrix with ones on its diagonal.",
    points=2,
    mistakes=[
        Mistake(
            "not normalised",
            "these are products, not cosines: divide each pattern by its length first. The diagonal must be 1.",
            lambda weights: _products(weights.flatten(1)),
        ),
        Mistake(
            "normalised over the heads",
            "you normalised over the wrong axis: across the heads. Divide each head's pattern, a row, by its own "
            "length: dim=-1. The diagonal must be 1.",
            lambda weights: _products(torch.nn.functional.normalize(weights.flatten(1), dim=0)),
        ),
        *(
            Mistake(
                f"{which} side normalised",
                "you normalised one of the two patterns only: the matrix is not symmetric. Divide by the lengths of "
                "both.",
                partial(_half_normalised, side=side),
            )
            for side, which in enumerate(("left", "right"))
        ),
        Mistake(
            "correlation",
            "you subtracted the mean first: that is a correlation. Two patterns of weights always have a cosine of at "
            "least 0.",
            lambda weights: _cosines(weights.flatten(1) - weights.flatten(1).mean(-1, keepdim=True)),
        ),
        Mistake(
            "mean of the rows' cosines",
            "you took the cosine row by row and averaged. The exercise asks for one cosine of the flattened patterns, "
            "in which sharp rows count more.",
            lambda weights: torch.nn.functional.cosine_similarity(weights[:, None], weights[None], dim=-1).mean(-1),
        ),
        Mistake(
            "average over the queries",
            "you averaged each head over its queries first, so heads that look at the same keys in another order seem "
            "equal.",
            lambda weights: _cosines(weights.mean(1)),
        ),
    ],
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


js_divergence = Exercise(
    "js_divergence",
    chapter=17,
    title="Jensen-Shannon divergence of two rows",
    reference=_js,
    cases=_two_rows,
    verified="seven pairs of rows; symmetric, 0 for equal rows, ln 2 for rows that share no key.",
    points=2,
    mistakes=[
        Mistake(
            "Kullback-Leibler",
            "this is the Kullback-Leibler divergence of p from q: not symmetric, and infinite where q is 0. Compare "
            "both rows with their middle.",
            _kl,
        ),
        *(
            Mistake(
                f"p alone{name}",
                "you compared p alone with the middle. Do the same with q, and average the two.",
                partial(_of_p_alone, factor=factor),
            )
            for name, factor in (("", 1.0), (", halved", 0.5))
        ),
        Mistake(
            "middle not halved",
            "your middle is p + q, which sums to 2. It is half of that.",
            lambda p, q: (_kl(p, p + q) + _kl(q, p + q)) / 2,
        ),
        Mistake(
            "reversed Kullback-Leibler",
            "you took the divergences of the middle from p and from q: infinite where one of them is 0. Take those of "
            "p and of q from the middle.",
            lambda p, q: (_kl((p + q) / 2, p) + _kl((p + q) / 2, q)) / 2,
        ),
        Mistake(
            "symmetrised Kullback-Leibler",
            "you averaged the divergences of p from q and of q from p. Take those of p and of q from their middle.",
            lambda p, q: (_kl(p, q) + _kl(q, p)) / 2,
        ),
        Mistake(
            "not halved",
            "twice as large as it should be: average the two divergences, do not add them.",
            lambda p, q: 2 * _js(p, q),
        ),
        Mistake(
            "square root",
            "this is its square root, the Jensen-Shannon distance. The exercise asks for the divergence.",
            lambda p, q: _js(p, q).sqrt(),
        ),
        Mistake(
            "in bits",
            "this is in bits. The exercise asks for natural logarithms.",
            lambda p, q: _js(p, q) / math.log(2),
        ),
        Mistake(
            "NaN at a weight of 0",
            "0 times the logarithm of 0 is NaN for a computer. Its limit is 0: torch.special.xlogy knows that.",
            lambda p, q: ((p * (2 * p / (p + q)).log()).sum() + (q * (2 * q / (p + q)).log()).sum()) / 2,
        ),
    ],
)
