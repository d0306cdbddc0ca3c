"""Two heads side by side."""

from __future__ import annotations

import random
from collections.abc import Iterator

from torch import Tensor

from ._exercise import Case
from ._inputs import apart, draw, own_sizes
from ._markdown import exercises_of

exercise = exercises_of(globals())


@own_sizes("there are two heads, as the exercise says", "weights.0")
def _two_heads(rng: random.Random) -> Iterator[Case]:
    for num_queries, num_kvpairs, head_dim in ([1, 2, 2], *apart(rng, 3, 2, smallest=3)):
        yield {
            "weights": draw(rng, 2, num_queries, num_kvpairs).softmax(-1),
            "values": draw(rng, 2, num_kvpairs, head_dim),
        }


def _side_by_side(weights: Tensor, values: Tensor) -> Tensor:
    return (weights @ values).transpose(0, 1).flatten(1)


two_heads = exercise(
    "two_heads",
    reference=_side_by_side,
    cases=_two_heads,
)
