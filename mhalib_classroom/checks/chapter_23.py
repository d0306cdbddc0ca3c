"""Chapter 23: layers of equal weights, and those that no other layer beats in quality and cost."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import accumulate

import torch
from torch import Tensor

from ._exercise import Case, Exercise, Mistake
from ._inputs import apart

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


equal_width = Exercise(
    "equal_width",
    chapter=23,
    title="find the width that makes two models equal",
    reference=_width,
    cases=_widths,
    verified="four models; no whole width is nearer to the goal.",
    mistakes=[
        Mistake(
            "rounded down",
            "you rounded down. The next width may be nearer to the goal: round to the nearest.",
            lambda goal, narrow, wide: int(_share(goal, narrow, wide)),
        ),
        Mistake(
            "rounded up",
            "you rounded up. The width below may be nearer to the goal: round to the nearest.",
            lambda goal, narrow, wide: int(_share(goal, narrow, wide)) + 1,
        ),
        Mistake(
            "not rounded",
            "your width is not whole, and no layer can be that wide. Round to the nearest.",
            _share,
        ),
        Mistake(
            "fixed part forgotten",
            "you divided the goal by what one unit of width adds. But part of the weights, the attention layers' among "
            "them, are there at every width: subtract them first.",
            lambda goal, narrow, wide: round(goal / _growth(narrow, wide)),
        ),
        Mistake(
            "in proportion to the narrow model",
            "you scaled the narrow model's width in proportion. Part of the weights do not depend on the width, so "
            "twice the weights need more than twice the width. Find out what one unit of width adds.",
            lambda goal, narrow, wide: round(goal * narrow[0] / narrow[1]),
        ),
        Mistake(
            "in proportion to the wide model",
            "you scaled the wide model's width in proportion. Part of the weights do not depend on the width, so "
            "twice the weights need more than twice the width. Find out what one unit of width adds.",
            lambda goal, narrow, wide: round(goal * wide[0] / wide[1]),
        ),
        Mistake(
            "what the narrow model lacks",
            "this is by how much the narrow model must become wider. Add its own width.",
            lambda goal, narrow, wide: _width(goal, narrow, wide) - narrow[0],
        ),
        Mistake(
            "not divided by the widths",
            "you took the difference between the two models for what one unit of width adds. Divide it by the "
            "difference of their widths.",
            lambda goal, narrow, wide: round(narrow[0] + (goal - narrow[1]) / (wide[1] - narrow[1])),
        ),
        Mistake(
            "not divided by the growth",
            "this is how many weights must depend on the width. Divide by what one unit of width adds.",
            lambda goal, narrow, wide: goal - _fixed(narrow, wide),
        ),
        Mistake(
            "one too few",
            "your width is one too small.",
            lambda goal, narrow, wide: _width(goal, narrow, wide) - 1,
        ),
        Mistake(
            "one too many",
            "your width is one too large.",
            lambda goal, narrow, wide: _width(goal, narrow, wide) + 1,
        ),
        Mistake(
            "weights for width",
            "you returned the number of weights. Return the width that gives it.",
            lambda goal, narrow, wide: _fixed(narrow, wide) + _growth(narrow, wide) * _width(goal, narrow, wide),
        ),
    ],
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


not_dominated = Exercise(
    "not_dominated",
    chapter=23,
    title="the layers that no other layer beats",
    reference=lambda quality, cost: _stay(_beaten(quality, cost)),
    cases=_layers,
    verified="four sets of layers, with ties in quality, in cost and in both.",
    points=2,
    mistakes=[
        Mistake(
            "equal layers rule each other out",
            "two layers with the same quality at the same cost rule each other out. One of both must be strictly "
            "better.",
            lambda quality, cost: _stay(
                _beaten(quality, cost) | (_equal(quality, cost) & ~torch.eye(len(cost), dtype=torch.bool))
            ),
        ),
        Mistake(
            "itself",
            "no layer stays. Does each rule itself out, with its own quality at its own cost? One of both must be "
            "strictly better, and the other at least as good.",
            lambda quality, cost: _stay(_as_good(quality) & _as_good(-cost)),
        ),
        Mistake(
            "one of equal layers",
            "of equal layers only the first stays. None of them is better than the others: all stay.",
            lambda quality, cost: _stay(_beaten(quality, cost) | _equal(quality, cost).tril(-1)),
        ),
        Mistake(
            "more cost is better",
            "you counted cost as if more of it were better.",
            lambda quality, cost: _stay(_beaten(quality, -cost)),
        ),
        Mistake(
            "less quality is better",
            "you counted quality as if less of it were better.",
            lambda quality, cost: _stay(_beaten(-quality, cost)),
        ),
        Mistake(
            "better in both",
            "in your code a layer rules another out only if it is better in quality and in cost. As good in one and "
            "better in the other is enough.",
            lambda quality, cost: _stay(_better(quality) & _better(-cost)),
        ),
        Mistake(
            "better in quality",
            "in your code a layer rules another out only if its quality is higher. The same quality at less cost is "
            "enough, too.",
            lambda quality, cost: _stay(_better(quality) & _as_good(-cost)),
        ),
        Mistake(
            "better in cost",
            "in your code a layer rules another out only if it is cheaper. More quality at the same cost "
            "is enough, too.",
            lambda quality, cost: _stay(_as_good(quality) & _better(-cost)),
        ),
        Mistake(
            "only the best",
            "only the layer with the most quality stays. A cheaper one stays, too, if nothing as cheap is as good.",
            lambda quality, cost: quality == quality.max(),
        ),
        Mistake(
            "only the cheapest",
            "only the cheapest stay. A dearer layer stays, too, if nothing as cheap is as good.",
            lambda quality, cost: cost == cost.min(),
        ),
        Mistake(
            "most quality for its cost",
            "you kept the largest quality divided by cost. That is one exchange rate of many: compare "
            "both, one by one.",
            lambda quality, cost: quality / cost == (quality / cost).max(),
        ),
        Mistake(
            "opposite",
            "`True` marks those that are ruled out in your answer. Mark those that stay.",
            lambda quality, cost: ~_stay(_beaten(quality, cost)),
        ),
    ],
)
