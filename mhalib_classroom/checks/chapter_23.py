"""Chapter 23: layers of equal weights, and those that no other layer beats in quality and cost."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import accumulate

import torch
from torch import Tensor

from ._exercise import Case
from ._inputs import apart
from ._markdown import exercises_of

exercise = exercises_of(globals())


Counted = tuple[int, int]  # a width, and the number of weights of the model with this width


def _widths(rng: random.Random) -> Iterator[Case]:
    """Goals that are no whole width, but clearly nearer to one: above it and below it by turns. In the last case, a
    unit of width adds no whole number of weights."""
    yield {"goal": 51, "narrow": (2, 22), "wide": (5, 40)}
    fractions = (0.2, 0.7, rng.choice((0.3, 0.8)))
    widths = apart(rng, 3, smallest=11, largest=39, of=lambda a, b, c: [min(a, b), max(a, b), c])
    growths = [float(rng.randint(2, 4) * (2 * rng.randint(8, 20) + 1)) for _ in range(2)] + [2.5]
    for fraction, growth, drawn in zip(fractions, growths, widths, strict=True):
        fixed = rng.randint(1_000, 3_000)
        narrow, wide, right = (
            width * (6 if growth == 2.5 else 1) for width in (min(drawn[:2]), max(drawn[:2]), drawn[2])
        )
        yield {
            "goal": fixed + round((right + fraction) * growth),
            "narrow": (narrow, fixed + round(growth * narrow)),
            "wide": (wide, fixed + round(growth * wide)),
        }


def _growth(narrow: Counted, wide: Counted) -> float:
    return (wide[1] - narrow[1]) / (wide[0] - narrow[0])


def _fixed(narrow: Counted, wide: Counted) -> float:
    return narrow[1] - _growth(narrow, wide) * narrow[0]


def _share(goal: int, narrow: Counted, wide: Counted) -> float:
    return (goal - _fixed(narrow, wide)) / _growth(narrow, wide)


def _width(goal: int, narrow: Counted, wide: Counted) -> int:
    return round(_share(goal, narrow, wide))


equal_width = exercise(
    "equal_width",
    reference=_width,
    cases=_widths,
)


RANKS = [(1, 0), (1, 0), (4, 2), (5, 5), (4, 3), (3, 2), (3, 3), (0, 0), (3, 6), (2, 4)]
"""(quality, cost) of layers, as ranks: two that are equal, and two others that stay. The third beats one in cost alone,
one in quality alone, and one in both. Then one as cheap as the cheapest, the dearest, and one that nobody beats but in
both."""


def _layers(rng: random.Random) -> Iterator[Case]:
    yield {
        "quality": torch.tensor([80.0, 70.0, 90.0, 80.0, 70.0]),
        "cost": torch.tensor([30.0, 10.0, 40.0, 20.0, 10.0]),
    }
    for (num_more,) in apart(rng, 1, smallest=0, largest=3):
        ranks = RANKS + [(rng.randint(0, 1), rng.randint(1, 3)) for _ in range(num_more)]
        rng.shuffle(ranks)
        quality = list(accumulate([rng.randint(50, 60), *(rng.randint(1, 8) for _ in range(5))]))
        cost = list(accumulate([rng.randint(2, 4), *(rng.randint(2, 5) for _ in range(6))]))
        yield {
            "quality": torch.tensor([float(quality[one]) for one, _ in ranks]),
            "cost": torch.tensor([float(cost[one]) for _, one in ranks]),
        }


def _better(quality: Tensor) -> Tensor:
    """[i, j]: layer j has more of it than layer i."""
    return quality > quality[:, None]


def _as_good(quality: Tensor) -> Tensor:
    return quality >= quality[:, None]


def _beaten(quality: Tensor, cost: Tensor) -> Tensor:
    """[i, j]: layer j beats layer i."""
    return _as_good(quality) & _as_good(-cost) & (_better(quality) | _better(-cost))


def _stay(beaten: Tensor) -> Tensor:
    return ~beaten.any(1)


def _equal(quality: Tensor, cost: Tensor) -> Tensor:
    """[i, j]: both layers are equal in both."""
    return (quality == quality[:, None]) & (cost == cost[:, None])


not_dominated = exercise(
    "not_dominated",
    reference=lambda quality, cost: _stay(_beaten(quality, cost)),
    cases=_layers,
)
