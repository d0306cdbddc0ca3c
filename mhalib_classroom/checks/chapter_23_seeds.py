"""Chapter 23: what seeds tell: an interval of paired differences, and learning rates that other seeds choose."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ._exercise import Case
from ._inputs import apart, draw
from ._markdown import exercises_of

exercise = exercises_of(globals())


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
