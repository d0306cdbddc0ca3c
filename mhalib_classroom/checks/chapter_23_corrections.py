"""Chapter 23: what remains of many comparisons after a correction for their number."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor

from ._exercise import Case, Exercise, Mistake
from ._inputs import apart


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


holm = Exercise(
    "holm",
    chapter=23,
    title="correct for many comparisons",
    reference=_holm,
    cases=_p_values,
    verified="four sets of comparisons, in no order; from the first that fails on, none remains.",
    points=2,
    mistakes=[
        Mistake(
            "no correction",
            "you compared every p-value with `level`. Of 20 comparisons of equal layers, one falls below 0.05 on "
            "average. Divide the level.",
            lambda p_values, level: p_values <= level,
        ),
        Mistake(
            "Bonferroni",
            "you compared all with level / n. That is Bonferroni's correction, and stricter than it must be: once the "
            "smallest has passed, n - 1 are left, and the next needs level / (n - 1).",
            lambda p_values, level: p_values <= level / len(p_values),
        ),
        Mistake(
            "does not stop",
            "you went on after a comparison that failed. From the first that fails on, none remains, even one that is "
            "below the threshold of its own place.",
            lambda p_values, level: _back(p_values, _passing(p_values, _stepped(p_values, level))),
        ),
        Mistake(
            "from the largest down",
            "you looked for the last that passes, and kept all that are smaller. That is Hochberg's procedure. Holm's "
            "begins with the smallest and stops at the first that fails.",
            lambda p_values, level: _back(p_values, _up_to_the_last(_passing(p_values, _stepped(p_values, level)))),
        ),
        Mistake(
            "sorted order",
            "your answers are in ascending order of the p-values. Bring them back to the order in which "
            "they were given.",
            lambda p_values, level: _up_to_the_first(_passing(p_values, _stepped(p_values, level))),
        ),
        Mistake(
            "Benjamini-Hochberg",
            "you compared with level * (i + 1) / n, as Benjamini and Hochberg do. They hold down the share of false "
            "findings among all findings; Holm holds down the chance of a single one. Use level / (n - i).",
            _false_discoveries,
        ),
        Mistake(
            "counted the wrong way round",
            "you compared with level / (i + 1), so that the smallest meets the mildest threshold. It meets the "
            "strictest: level / n, then level / (n - 1), and so on.",
            lambda p_values, level: _back(
                p_values, _up_to_the_first(_passing(p_values, level / (_places(p_values) + 1)))
            ),
        ),
        Mistake(
            "one place late",
            "your thresholds are those of the next place: the smallest met level / (n - 1). Count from 0.",
            lambda p_values, level: _holm(p_values, level, 1),
        ),
        Mistake(
            "one place early",
            "your thresholds are those of the place before: the smallest met level / (n + 1). Where i begins at 0, the "
            "threshold is level / (n - i).",
            lambda p_values, level: _holm(p_values, level, -1),
        ),
        Mistake(
            "first failure kept",
            "you kept the first that fails, too. Stop before it.",
            _with_the_first_failure,
        ),
        Mistake(
            "opposite",
            "`True` marks those that fall in your answer. Mark those that remain.",
            lambda p_values, level: ~_holm(p_values, level),
        ),
    ],
)
