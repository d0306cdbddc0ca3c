"""Chapter 3: two heads side by side."""

from __future__ import annotations

import random
from collections.abc import Iterator

from torch import Tensor

from ._exercise import Case, Exercise, Mistake
from ._inputs import apart, draw, own_sizes


@own_sizes("there are two heads, as the exercise says", "weights.0")
def _two_heads(rng: random.Random) -> Iterator[Case]:
    for num_queries, num_kvpairs, head_dim in ([1, 2, 2], *apart(rng, 3, 2, smallest=3)):
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
            "heads swapped",
            "head 1 stands before head 0. Columns 0 to d belong to head 0.",
            lambda weights, values: _side_by_side(weights.flip(0), values.flip(0)),
        ),
        Mistake(
            "averaged weights",
            "you averaged the weights of the heads before using them; each head has weights and values of its own.",
            lambda weights, values: (weights.mean(0) @ values).transpose(0, 1).flatten(1),
        ),
    ],
)
