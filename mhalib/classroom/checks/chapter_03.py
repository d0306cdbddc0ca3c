"""Chapter 3: weighted averages, and two heads side by side."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor

from ._exercise import Case, Exercise, Mistake
from ._inputs import draw, sizes


def _weights_and_values(rng: random.Random) -> Iterator[Case]:
    yield {"weights": torch.tensor([[0.25, 0.75]]), "values": torch.tensor([[4.0, 0.0, 8.0], [0.0, 4.0, 8.0]])}
    for _ in range(3):
        num_queries, num_kvpairs, width = sizes(rng, 3)
        yield {"weights": draw(rng, num_queries, num_kvpairs).softmax(-1), "values": draw(rng, num_kvpairs, width)}


weighted_average = Exercise(
    "weighted_average",
    chapter=3,
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


def _two_heads(rng: random.Random) -> Iterator[Case]:
    for sizes_of_case in ((1, 2, 2), tuple(sizes(rng, 3)), tuple(sizes(rng, 3))):
        num_queries, num_kvpairs, head_dim = sizes_of_case
        yield {
            "weights": draw(rng, 2, num_queries, num_kvpairs).softmax(-1),
            "values": draw(rng, 2, num_kvpairs, head_dim),
        }


def _side_by_side(weights: Tensor, values: Tensor) -> Tensor:
    return (weights @ values).transpose(0, 1).flatten(1)


two_heads = Exercise(
    "two_heads",
    chapter=3,
    title="what two heads found, side by side",
    reference=_side_by_side,
    cases=_two_heads,
    verified="three inputs; columns 0 to d are head 0's, columns d to 2d head 1's.",
    mistakes=[
        Mistake(
            "added",
            "you added what the two heads found. Then nobody can tell any more which head found what; put them side by "
            "side.",
            lambda weights, values: (weights @ values).sum(0),
        ),
        Mistake(
            "averaged",
            "you averaged the two heads, which gives one average again: just what a second head was for.",
            lambda weights, values: (weights @ values).mean(0),
        ),
        Mistake(
            "one below the other",
            "you put the heads one below the other: twice as many rows. A query keeps one row, with both in it.",
            lambda weights, values: (weights @ values).flatten(0, 1),
        ),
        Mistake(
            "reshaped straight",
            "the shape is right, but you reshaped (2, Q, d) straight to (Q, 2d): a row holds two queries of one head. "
            "Swap the axes of heads and queries first.",
            lambda weights, values: (weights @ values).reshape(weights.shape[1], -1),
        ),
        Mistake(
            "averaged weights",
            "you averaged the weights of the heads before using them; each head has weights and values of its own.",
            lambda weights, values: (weights.mean(0) @ values).transpose(0, 1).flatten(1),
        ),
    ],
)
