"""Layers of equal weights, and those that no other layer beats in quality and cost.

What remains of many comparisons after a correction for their number. What seeds tell: an interval of paired
differences, and learning rates that other seeds choose.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from itertools import accumulate

import torch
from torch import Tensor

from ._exercise import Case
from ._inputs import apart, draw
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


def _p_values(rng: random.Random) -> Iterator[Case]:
    """Two pass, and neither by much. The third is too large for its place, and the fourth would pass at its own. The
    others fail at theirs, and the last would fail without a correction. In the first case, the smallest is its bound.
    """
    yield {"p_values": torch.tensor([0.07, 0.03125, 0.2, 0.04]), "level": 0.125}
    for (n,) in rng.sample([[6], *apart(rng, 1, 2, smallest=7, largest=9)], 3):
        level = rng.choice((0.05, 0.1))
        steps = [level / (n - i) for i in range(-1, 4)]
        ranked = [
            steps[0] + rng.uniform(0.3, 0.7) * (steps[1] - steps[0]),
            steps[1] + rng.uniform(0.3, 0.7) * (steps[2] - steps[1]),
            steps[3] + rng.uniform(0.2, 0.4) * (steps[4] - steps[3]),
            steps[3] + rng.uniform(0.6, 0.8) * (steps[4] - steps[3]),
            *((i + rng.uniform(1.2, 1.8)) * level / n for i in range(4, n - 1)),
            rng.uniform(1.5, 8) * level,
        ]
        order = rng.sample(range(n), n)
        while order[0] < 2:  # so that those that remain are not the first
            order = rng.sample(range(n), n)
        yield {"p_values": torch.tensor([ranked[place] for place in order]), "level": level}


def _back(p_values: Tensor, remain: Tensor) -> Tensor:
    """Answers in ascending order -> in the order of `p_values`."""
    return torch.zeros(len(remain), dtype=torch.bool).scatter(0, p_values.argsort(), remain)


def _passing(p_values: Tensor, thresholds: Tensor) -> Tensor:
    """In ascending order, whether each is at most its threshold."""
    return p_values.sort().values <= thresholds


def _up_to_the_first(passing: Tensor) -> Tensor:
    return passing.long().cumprod(0).bool()


def _up_to_the_last(passing: Tensor) -> Tensor:
    return passing.flip(0).long().cummax(0).values.flip(0).bool()


def _places(p_values: Tensor) -> Tensor:
    return torch.arange(len(p_values))


def _stepped(p_values: Tensor, level: float, shift: int = 0) -> Tensor:
    """The thresholds of Holm, in ascending order; `shift` makes them those of a later place."""
    return level / (len(p_values) - _places(p_values) - shift)


def _holm(p_values: Tensor, level: float, shift: int = 0) -> Tensor:
    return _back(p_values, _up_to_the_first(_passing(p_values, _stepped(p_values, level, shift))))


def _false_discoveries(p_values: Tensor, level: float) -> Tensor:
    thresholds = level * (_places(p_values) + 1) / len(p_values)
    return _back(p_values, _up_to_the_last(_passing(p_values, thresholds)))


def _with_the_first_failure(p_values: Tensor, level: float) -> Tensor:
    passing = _up_to_the_first(_passing(p_values, _stepped(p_values, level)))
    return _back(p_values, torch.cat([torch.ones(1, dtype=torch.bool), passing[:-1]]))


holm = exercise(
    "holm",
    reference=_holm,
    cases=_p_values,
)


QUANTILES = {5: 2.776, 7: 2.447, 9: 2.306, 11: 2.228}  # of Student's distribution, 97.5 %, by the number of seeds


def _pairs(rng: random.Random) -> Iterator[Case]:
    """What a seed does to one layer, it does to the other, too."""
    yield {"ours": torch.tensor([80.0, 84.0, 91.0]), "theirs": torch.tensor([79.0, 82.0, 85.0]), "quantile": 4.303}
    for (half,) in apart(rng, 1, smallest=2, largest=5):
        num_seeds = 2 * half + 1
        seed = 80 + 4 * draw(rng, num_seeds)
        yield {
            "ours": seed + 2 * draw(rng, num_seeds) + rng.choice((-1.5, 1.5)),
            "theirs": seed + 1.5 * draw(rng, num_seeds),
            "quantile": QUANTILES[num_seeds],
        }


Interval = tuple[float, float]


def _interval(ours: Tensor, theirs: Tensor, quantile: float) -> Interval:
    differences = ours - theirs
    return float(differences.mean()), quantile * float(differences.std()) / math.sqrt(len(ours))


def _with(ours: Tensor, theirs: Tensor, quantile: float, spread: Tensor) -> Interval:
    """Another spread in place of that of the differences."""
    return float((ours - theirs).mean()), quantile * float(spread) / math.sqrt(len(ours))


def _times(ours: Tensor, theirs: Tensor, quantile: float, factor: float) -> Interval:
    mean, half = _interval(ours, theirs, quantile)
    return mean, factor * half


def _ends(ours: Tensor, theirs: Tensor, quantile: float) -> Interval:
    mean, half = _interval(ours, theirs, quantile)
    return mean - half, mean + half


def _of_absolute(ours: Tensor, theirs: Tensor, quantile: float) -> Interval:
    return _interval((ours - theirs).abs(), torch.zeros_like(ours), quantile)


paired_interval = exercise(
    "paired_interval",
    reference=_interval,
    cases=_pairs,
)


def _by_others(quality: Tensor) -> Tensor:
    """The sums over the other seeds have their largest at the same rate as the means."""
    return (quality.sum(1, keepdim=True) - quality).argmax(0)


def _by_all(quality: Tensor) -> Tensor:
    return quality.mean(1).argmax().expand(quality.shape[1])


def _without_each(quality: Tensor) -> Tensor:
    """(rates, seeds) -> (seeds, rates, seeds - 1): for each seed, the qualities of the others."""
    kept = ~torch.eye(quality.shape[1], dtype=torch.bool)
    return torch.stack([quality[:, one] for one in kept])


def _by_largest(quality: Tensor) -> Tensor:
    return _without_each(quality).amax(-1).argmax(1)


def _by_smallest(quality: Tensor) -> Tensor:
    return _without_each(quality).amin(-1).argmax(1)


def _worst(quality: Tensor) -> Tensor:
    return (quality.sum(1, keepdim=True) - quality).argmin(0)


def _qualities(rng: random.Random) -> Iterator[Case]:
    """Drawn until each way to choose chooses differently."""
    yield {"quality": torch.tensor([[90.0, 70.0, 80.0], [60.0, 95.0, 81.0]])}
    ways: tuple[Callable[[Tensor], Tensor], ...] = (_by_others, _by_all, _by_largest, _by_smallest, _worst)
    for num_rates, num_seeds in apart(rng, 2, smallest=3, largest=8):
        chosen: set[tuple[int, ...]] = set()
        while len(chosen) < len(ways) + 1:
            quality = 80 + 5 * draw(rng, num_rates, num_seeds)
            chosen = {tuple(way(quality).tolist()) for way in (*ways, lambda quality: quality.argmax(0))}
        yield {"quality": quality}


choose_rates = exercise(
    "choose_rates",
    reference=_by_others,
    cases=_qualities,
)
