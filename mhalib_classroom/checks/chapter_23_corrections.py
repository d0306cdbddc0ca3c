"""Chapter 23: what remains of many comparisons after a correction for their number."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor

from ._exercise import Case
from ._inputs import apart
from ._markdown import exercises_of

exercise = exercises_of(globals())


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
