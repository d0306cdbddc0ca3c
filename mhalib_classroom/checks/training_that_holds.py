"""Queries and keys that are normalised, gradients that are clipped, rates that rise and fall.

The scale of a loss, and gradients that come with it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ._exercise import Case
from ._inputs import apart, draw, own_sizes
from ._markdown import exercises_of

exercise = exercises_of(globals())


Gradients = list[Tensor]


def _heads(rng: random.Random) -> Iterator[Case]:
    yield {
        "q": torch.tensor([[[3.0, 4.0], [1.0, 0.0]], [[0.0, 2.0], [1.0, 1.0]]]),
        "k": torch.tensor([[[3.0, 4.0], [4.0, -3.0], [0.0, 1.0]], [[5.0, 0.0], [1.0, 2.0], [3.0, 3.0]]]),
    }
    for num_heads, num_queries, num_kvpairs, head_dim in apart(rng, 4, smallest=3, largest=9):
        yield {
            "q": 3 * draw(rng, num_heads, num_queries, head_dim) + 1,
            "k": 2 * draw(rng, num_heads, num_kvpairs, head_dim) - 1,
        }


def _normed(
    q: Tensor,
    k: Tensor,
    *,
    queries: bool = True,
    keys: bool = True,
    axis: int | tuple[int, ...] = -1,
    size: Callable[..., Tensor] = lambda x, axis: x.pow(2).mean(axis, keepdim=True).sqrt(),
    centred: bool = False,
    scaled: bool = True,
) -> Tensor:
    def norm(x: Tensor) -> Tensor:
        x = x - x.mean(-1, keepdim=True) if centred else x
        return x / size(x, axis)

    scores = (norm(q) if queries else q) @ (norm(k) if keys else k).mT
    return scores / math.sqrt(q.shape[-1]) if scaled else scores


normed_scores = exercise(
    "normed_scores",
    reference=_normed,
    cases=_heads,
    switches=_normed,
)


def _drawn(rng: random.Random, size: float) -> Gradients:
    """Three gradients whose norm together is `size`; they have different shapes and norms."""
    first, second = apart(rng, 2, 2)
    shapes = [tuple(first), (rng.randint(8, 12),), tuple(second)]
    gradients = [draw(rng, *shape) * weight for shape, weight in zip(shapes, (3.0, 0.2, 1.0), strict=True)]
    return [gradient * size / _norm(gradients) for gradient in gradients]


@own_sizes("three gradients in every case, whose shapes differ within it; only their norm counts")
def _gradients(rng: random.Random) -> Iterator[Case]:
    yield {"gradients": [torch.tensor([3.0, 0.0]), torch.tensor([[4.0]])], "max_norm": 1.0}
    yield {"gradients": _drawn(rng, rng.uniform(0.5, 0.9)), "max_norm": 1.0}
    yield {"gradients": _drawn(rng, rng.uniform(6.0, 9.0)), "max_norm": 2.0}
    yield {"gradients": _drawn(rng, rng.uniform(15.0, 25.0)), "max_norm": 0.5}


def _norm(gradients: Gradients) -> float:
    return math.sqrt(sum(float(gradient.pow(2).sum()) for gradient in gradients))


def _times(factor: Callable[[Gradients, float], float]) -> Callable[[Gradients, float], Gradients]:
    return lambda gradients, max_norm: [gradient * factor(gradients, max_norm) for gradient in gradients]


def _clipped(gradients: Gradients, max_norm: float) -> Gradients:
    return _times(lambda gradients, max_norm: min(1.0, max_norm / _norm(gradients)))(gradients, max_norm)


def _alone(gradients: Gradients, max_norm: float) -> Gradients:
    return [_clipped([gradient], max_norm)[0] for gradient in gradients]


clipped = exercise(
    "clipped",
    reference=_clipped,
    cases=_gradients,
)


@own_sizes("steps of one training: one length, one rise")
def _steps(rng: random.Random) -> Iterator[Case]:
    """Steps of one training: in the rise, its last, the first and later ones of the fall, the very last."""
    yield {"step": 0, "steps": 10, "warm_up": 4, "max_lr": 1.0}
    steps, warm_up = rng.randint(50, 90), rng.randint(11, 19)
    max_lr = rng.choice((0.02, 0.5, 3.0))
    for step in (warm_up - 2, warm_up - 1, warm_up, warm_up + rng.randint(5, 20), steps - 1):
        yield {"step": step, "steps": steps, "warm_up": warm_up, "max_lr": max_lr}


def _rate(step: int, steps: int, warm_up: int, max_lr: float) -> float:
    if step < warm_up:
        return max_lr * (step + 1) / warm_up
    return max_lr * (steps - step) / (steps - warm_up + 1)


rate_at = exercise(
    "rate_at",
    reference=_rate,
    cases=_steps,
)


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
