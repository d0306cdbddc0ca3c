"""Chapter 23: what seeds tell: an interval of paired differences, and learning rates that other seeds choose."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ._exercise import Case, Exercise, Mistake
from ._inputs import apart, draw

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


paired_interval = Exercise(
    "paired_interval",
    chapter=23,
    title="an interval of paired differences",
    reference=_interval,
    cases=_pairs,
    verified="four pairs of layers; seed by seed, and the spread is that of the differences.",
    parts=("the mean difference", "half the width of the interval"),
    points=2,
    mistakes=[
        Mistake(
            "unpaired",
            "you added the variances of both layers, as if their seeds had nothing in common. What a seed does to both "
            "layers cancels in their difference: subtract seed by seed first, then take the standard deviation.",
            lambda ours, theirs, quantile: _with(ours, theirs, quantile, (ours.var() + theirs.var()).sqrt()),
        ),
        Mistake(
            "spread of ours",
            "you took the standard deviation of `ours`. Take that of the differences.",
            lambda ours, theirs, quantile: _with(ours, theirs, quantile, ours.std()),
        ),
        Mistake(
            "spread of theirs",
            "you took the standard deviation of `theirs`. Take that of the differences.",
            lambda ours, theirs, quantile: _with(ours, theirs, quantile, theirs.std()),
        ),
        Mistake(
            "difference of the deviations",
            "you subtracted the standard deviations. Subtract seed by seed, then take one standard deviation.",
            lambda ours, theirs, quantile: _with(ours, theirs, quantile, (ours.std() - theirs.std()).abs()),
        ),
        Mistake(
            "population",
            "your standard deviation divides by n. The mean is made of the same n numbers, so divide by n - 1.",
            lambda ours, theirs, quantile: _with(ours, theirs, quantile, (ours - theirs).std(correction=0)),
        ),
        Mistake(
            "root of n - 1",
            "you divided by the root of n - 1. The n - 1 belongs in the standard deviation; the mean of n "
            "differences has the root of n.",
            lambda ours, theirs, quantile: _times(ours, theirs, quantile, math.sqrt(len(ours) / (len(ours) - 1))),
        ),
        Mistake(
            "variance",
            "you took the variance, whose unit is a square. Take its root, the standard deviation.",
            lambda ours, theirs, quantile: _with(ours, theirs, quantile, (ours - theirs).var()),
        ),
        Mistake(
            "not divided by the root of n",
            "this is how far single differences spread. Their mean spreads less: divide by the root of n.",
            lambda ours, theirs, quantile: _times(ours, theirs, quantile, math.sqrt(len(ours))),
        ),
        Mistake(
            "divided by n",
            "you divided the standard deviation by n. Divide by the root of n.",
            lambda ours, theirs, quantile: _times(ours, theirs, quantile, 1 / math.sqrt(len(ours))),
        ),
        Mistake(
            "quantile forgotten",
            "this is the standard error of the mean. Multiply it by `quantile`.",
            lambda ours, theirs, quantile: _interval(ours, theirs, 1.0),
        ),
        Mistake(
            "sign",
            "you subtracted ours from theirs. The difference is ours minus theirs: positive where ours is better.",
            lambda ours, theirs, quantile: _interval(theirs, ours, quantile),
        ),
        Mistake(
            "absolute differences",
            "you took absolute values of the differences, so that no layer can ever be worse. Keep the signs.",
            _of_absolute,
        ),
        Mistake(
            "median for mean",
            "you returned the median of the differences. The interval is that of their mean.",
            lambda ours, theirs, quantile: (
                float((ours - theirs).median()),
                _interval(ours, theirs, quantile)[1],
            ),
        ),
        Mistake(
            "whole width",
            "you returned the whole width of the interval. Return half of it: how far it reaches to each side.",
            lambda ours, theirs, quantile: _times(ours, theirs, quantile, 2.0),
        ),
        Mistake(
            "ends of the interval",
            "you returned the two ends. Return the mean, and how far the interval reaches to each side.",
            _ends,
        ),
    ],
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


choose_rates = Exercise(
    "choose_rates",
    chapter=23,
    given="own seed's best",
    title="repair a choice of learning rates",
    reference=_by_others,
    cases=_qualities,
    verified="four layers; no seed has a say in its own rate.",
    points=2,
    mistakes=[
        Mistake(
            "own seed's best",
            "each seed has the rate that is best for this very seed. So every number that you report is the luckiest "
            "of several, and looks better than the layer is. Choose by the other seeds.",
            lambda quality: quality.argmax(0),
        ),
        Mistake(
            "one rate for all",
            "all seeds have one rate, the best on the mean of all. So each seed has a say in its own rate. Leave it "
            "out of the mean.",
            _by_all,
        ),
        Mistake(
            "largest of the others",
            "you compared the largest quality of the other seeds, which one lucky run decides. Compare their means.",
            _by_largest,
        ),
        Mistake(
            "smallest of the others",
            "you compared the smallest quality of the other seeds, which one unlucky run decides. Compare their means.",
            _by_smallest,
        ),
        Mistake(
            "worst rate",
            "these are the worst rates on the other seeds. More quality is better: take the largest mean.",
            _worst,
        ),
        Mistake(
            "qualities",
            "you returned what each seed reaches at its rate. Return the rate's index.",
            lambda quality: quality.gather(0, _by_others(quality)[None])[0],
        ),
        Mistake(
            "means",
            "you returned the mean of the other seeds at the chosen rate. Return the rate's index.",
            lambda quality: _without_each(quality).mean(-1).amax(1),
        ),
        Mistake(
            "axes exchanged",
            "you chose a seed for each rate. Rates are rows and seeds are columns: choose a row for each column.",
            lambda quality: _by_others(quality.T),
        ),
    ],
)
