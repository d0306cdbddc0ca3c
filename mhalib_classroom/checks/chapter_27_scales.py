"""Chapter 27: the scale of a loss, and gradients that come with it."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import torch
from torch import Tensor

from ._exercise import Case
from ._inputs import apart, draw, own_sizes
from ._markdown import exercises_of

exercise = exercises_of(globals())


Told = tuple[float, int]  # a scale, and how many good steps in a row it has had


@own_sizes("states of one training: one interval")
def _states(rng: random.Random) -> Iterator[Case]:
    """An overflow with good steps behind it, a step as always, the last before a rise, one after it should have been,
    and an overflow when a rise was due."""
    yield {"scale": 8.0, "good_steps": 2, "is_finite": False, "interval": 5}
    interval = rng.randint(6, 12)
    scale = 2.0 ** rng.randint(5, 16)
    for good_steps, is_finite in ((rng.randint(1, 3), True), (interval - 1, True), (interval - 2, True)):
        yield {"scale": scale, "good_steps": good_steps, "is_finite": is_finite, "interval": interval}
    yield {"scale": 1.0, "good_steps": interval - 1, "is_finite": False, "interval": interval}


def _next(scale: float, good_steps: int, is_finite: bool, interval: int) -> Told:
    if not is_finite:
        return scale / 2, 0
    if good_steps + 1 == interval:
        return scale * 2, 0
    return scale, good_steps + 1


def _never_lowered(scale: float, good_steps: int, is_finite: bool, interval: int) -> Told:
    return _next(scale, good_steps, True, interval) if is_finite else (scale, 0)


def _goes_on_counting(scale: float, good_steps: int, is_finite: bool, interval: int) -> Told:
    return _next(scale, good_steps, True, interval) if is_finite else (scale / 2, good_steps)


def _keeps_count_when_raised(scale: float, good_steps: int, is_finite: bool, interval: int) -> Told:
    found, count = _next(scale, good_steps, is_finite, interval)
    return (found, good_steps + 1) if is_finite else (found, count)


next_scale = exercise(
    "next_scale",
    reference=_next,
    cases=_states,
)


def _scaled(rng: random.Random) -> Iterator[Case]:
    """A small one that is larger than max_norm when scaled, a large one, a tiny one, and one that overflowed."""
    yield {"scaled": torch.tensor([1.5, 2.0]), "scale": 8.0, "max_norm": 1.0}
    norms_and_exponents = [(rng.uniform(0.2, 0.8), 10), (rng.uniform(3.0, 6.0), 4), (rng.uniform(0.1, 0.2), 2)]
    *drawn, last = apart(rng, 2, 4)
    for (norm, exponent), shape in zip(norms_and_exponents, drawn, strict=True):
        gradient = draw(rng, *shape)
        scale = 2.0**exponent
        yield {"scaled": gradient * norm / gradient.norm() * scale, "scale": scale, "max_norm": 1.0}
    broken = draw(rng, *last)
    broken[1, 1] = rng.choice((math.inf, -math.inf))
    yield {"scaled": broken, "scale": 64.0, "max_norm": 1.0}


def _clip(gradient: Tensor, max_norm: float) -> Tensor:
    return gradient * min(1.0, max_norm / float(gradient.norm()))


def _or_zero(gradient: Tensor, changed: Tensor) -> Tensor:
    """What becomes of a gradient, and zeros for one that overflowed."""
    return changed if gradient.isfinite().all() else torch.zeros_like(gradient)


mended_update = exercise(
    "mended_update",
    reference=lambda scaled, scale, max_norm: _or_zero(scaled, _clip(scaled / scale, max_norm)),
    cases=_scaled,
)
