"""Chapter 27: the scale of a loss, and gradients that come with it."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import torch
from torch import Tensor

from ._exercise import Case, Exercise, Mistake
from ._inputs import apart, draw, own_sizes

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


next_scale = Exercise(
    "next_scale",
    chapter=27,
    title="lower and raise the scale of the loss",
    reference=_next,
    cases=_states,
    verified="five steps, with and without an overflow: the scale halves at once, and doubles after a row of good "
    "steps.",
    parts=("the scale", "good_steps"),
    points=2,
    mistakes=[
        Mistake(
            "never lowered",
            "your scale stays as it is when a gradient overflows. The next step overflows again, and so do all after "
            "it: every step is skipped, and no error says so. Halve it.",
            _never_lowered,
        ),
        Mistake(
            "overflows ignored",
            "an overflow changes nothing in your code: the step even counts as a good one. Halve the scale, and begin "
            "to count anew.",
            lambda scale, good_steps, is_finite, interval: _next(scale, good_steps, True, interval),
        ),
        Mistake(
            "goes on counting",
            "after an overflow you went on with the old count. Only good steps in a row count: begin anew with 0.",
            _goes_on_counting,
        ),
        Mistake(
            "counts on after a rise",
            "you doubled the scale and did not begin to count anew, so it doubles once and never again, or at every "
            "step that follows.",
            _keeps_count_when_raised,
        ),
        Mistake(
            "one step late",
            "your scale doubles one step late, or never. It doubles after interval good steps in a row, this one "
            "included.",
            lambda scale, good_steps, is_finite, interval: (
                _next(scale, good_steps, is_finite, interval + 1) if is_finite else (scale / 2, 0)
            ),
        ),
        Mistake(
            "raised at every step",
            "your scale doubles after every good step, and overflows soon. It waits for interval of them.",
            lambda scale, good_steps, is_finite, interval: (scale * 2, 0) if is_finite else (scale / 2, 0),
        ),
        Mistake(
            "lowered for raised",
            "you doubled the scale at an overflow and halved it after good steps. An overflow says that the scale is "
            "too large.",
            lambda scale, good_steps, is_finite, interval: (
                (scale * 2, 0)
                if not is_finite
                else (scale / 2, 0)
                if good_steps + 1 == interval
                else (scale, good_steps + 1)
            ),
        ),
    ],
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


mended_update = Exercise(
    "mended_update",
    chapter=27,
    given="nothing mended, no check",
    title="mend a step with a scaled loss",
    reference=lambda scaled, scale, max_norm: _or_zero(scaled, _clip(scaled / scale, max_norm)),
    cases=_scaled,
    verified="five gradients: divided by the scale, then clipped, and nothing of one that overflowed.",
    points=2,
    mistakes=[
        Mistake(
            "clipped before it is unscaled",
            "you clipped the scaled gradient and divided by the scale afterwards. Clipping then allows a norm of "
            "max_norm / scale, so each step is far too small. Divide first.",
            lambda scaled, scale, max_norm: _or_zero(scaled, _clip(scaled, max_norm) / scale),
        ),
        Mistake(
            "never unscaled",
            "you never divided by the scale.",
            lambda scaled, scale, max_norm: _or_zero(scaled, _clip(scaled, max_norm)),
        ),
        Mistake(
            "unscaled twice",
            "you divided by the scale twice.",
            lambda scaled, scale, max_norm: _or_zero(scaled, _clip(scaled / scale, max_norm) / scale),
        ),
        Mistake(
            "not clipped",
            "you did not clip the gradient.",
            lambda scaled, scale, max_norm: _or_zero(scaled, scaled / scale),
        ),
        Mistake(
            "overflow used",
            "a gradient with an infinite number has an infinite norm: clipping multiplies it by 0, and 0 * inf is "
            "NaN. Look whether all numbers are finite, and return zeros if not.",
            lambda scaled, scale, max_norm: _clip(scaled / scale, max_norm),
        ),
        Mistake(
            "overflow cut out",
            "you set only the infinite numbers to 0 and used the rest. Where one number overflowed, others may be "
            "wrong, too: skip the whole step.",
            lambda scaled, scale, max_norm: _clip(scaled.nan_to_num(0.0, 0.0, 0.0) / scale, max_norm),
        ),
        Mistake(
            "max_norm scaled, too",
            "you scaled max_norm as well, and never divided the gradient: its direction is right, its size is not.",
            lambda scaled, scale, max_norm: _or_zero(scaled, _clip(scaled, max_norm * scale)),
        ),
        Mistake(
            "always to max_norm",
            "you scaled small gradients up to max_norm. The factor is 1 at most.",
            lambda scaled, scale, max_norm: _or_zero(scaled, scaled / scaled.norm() * max_norm),
        ),
        Mistake(
            "nothing mended, no check",
            "the code still clips before it divides by the scale, and uses gradients that overflowed.",
            lambda scaled, scale, max_norm: _clip(scaled, max_norm) / scale,
        ),
    ],
)
