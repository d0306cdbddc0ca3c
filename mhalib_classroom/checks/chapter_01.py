"""Chapter 1: weighted averages, and scores."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import torch
from torch import Tensor

from ._exercise import Case, Exercise, Mistake
from ._inputs import apart, draw


def _weights_and_values(rng: random.Random) -> Iterator[Case]:
    yield {"weights": torch.tensor([[0.25, 0.75]]), "values": torch.tensor([[4.0, 0.0, 8.0], [0.0, 4.0, 8.0]])}
    for num_queries, num_kvpairs, width in apart(rng, 3):
        yield {"weights": draw(rng, num_queries, num_kvpairs).softmax(-1), "values": draw(rng, num_kvpairs, width)}


weighted_average = Exercise(
    "weighted_average",
    chapter=1,
    title="the average of values that a head returns",
    reference=lambda weights, values: weights @ values,
    cases=_weights_and_values,
    verified="four inputs in which the numbers of queries, of keys and the width differ.",
    mistakes=[
        Mistake(
            "divided by the number of values",
            "you divided by the number of values. The weights sum to 1 already, so the weighted sum is the average.",
            lambda weights, values: weights @ values / len(values),
        ),
        Mistake(
            "plain mean",
            "this is the mean of all values, the same for every query: the weights have no effect.",
            lambda weights, values: values.mean(0).expand(len(weights), -1),
        ),
        Mistake(
            "the value of the largest weight",
            "you take the value with the largest weight. Attention is soft: all values count, each by its weight.",
            lambda weights, values: values[weights.argmax(-1)],
        ),
        Mistake(
            "transposed",
            "your result has a column for each query; it should have a row.",
            lambda weights, values: (weights @ values).mT,
        ),
    ],
)


def _queries_and_keys(rng: random.Random) -> Iterator[Case]:
    yield {"q": draw(rng, 1, 1, 2, 4), "k": draw(rng, 1, 1, 3, 4)}
    for batch_size, num_heads, num_queries, num_kvpairs, head_dim in apart(rng, 5):
        lead = (batch_size, num_heads)
        yield {"q": draw(rng, *lead, num_queries, head_dim), "k": draw(rng, *lead, num_kvpairs, head_dim)}


def _products(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.mT


scores = Exercise(
    "scores",
    chapter=1,
    title="scaled scores of every query and every key",
    reference=lambda q, k: _products(q, k) / math.sqrt(q.shape[-1]),
    cases=_queries_and_keys,
    verified="four random inputs in which Q, K and d all differ.",
    mistakes=[
        Mistake(
            "no scale",
            "these are the bare products. Divide by the square root of d, or the scores grow with the width of a head "
            "and the softmax starts out saturated.",
            _products,
        ),
        Mistake(
            "divided by d",
            "you divided by d, not by its square root. A sum of d independent products grows like the root of d.",
            lambda q, k: _products(q, k) / q.shape[-1],
        ),
        Mistake(
            "divided by the root of the number of keys",
            "you took the square root of the number of keys (an axis of the result), not of the width of a head, d = "
            "q.shape[-1].",
            lambda q, k: _products(q, k) / math.sqrt(k.shape[-2]),
        ),
        Mistake(
            "divided by the root of the number of queries",
            "you took the square root of the number of queries, not of the width of a head, d = q.shape[-1].",
            lambda q, k: _products(q, k) / math.sqrt(q.shape[-2]),
        ),
        *(
            Mistake(
                f"divided by the root of h times {what}",
                "you counted the heads in. A score is a sum of d products, within one head: d = q.shape[-1].",
                lambda q, k, power=power: _products(q, k) / math.sqrt(q.shape[-1] ** power * q.shape[1]),
            )
            for what, power in (("d", 1), ("1", 0))
        ),
        Mistake(
            "scale multiplied",
            "you multiplied by the square root of d instead of dividing by it.",
            lambda q, k: _products(q, k) * math.sqrt(q.shape[-1]),
        ),
        Mistake(
            "keys by queries",
            "your rows are keys and your columns queries. In this book, as in every library, rows are queries.",
            lambda q, k: _products(k, q) / math.sqrt(q.shape[-1]),
        ),
    ],
)
