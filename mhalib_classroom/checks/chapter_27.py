"""Chapter 27: queries and keys that are normalised, gradients that are clipped, rates that rise and fall."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ._exercise import Case, Exercise, Mistake
from ._inputs import apart, draw, own_sizes

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


def _rms(x: Tensor, axis: int | tuple[int, ...] = -1) -> Tensor:
    return x / x.pow(2).mean(axis, keepdim=True).sqrt()


def _scored(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.mT / math.sqrt(q.shape[-1])


normed_scores = Exercise(
    "normed_scores",
    chapter=27,
    title="normalise queries and keys in each head",
    reference=lambda q, k: _scored(_rms(q), _rms(k)),
    cases=_heads,
    verified="four sets of heads; the d channels of each query and key have root mean square 1 before the product.",
    points=2,
    mistakes=[
        Mistake(
            "over all heads",
            "you took the root mean square over the channels of all heads together. Each head's d channels are "
            "normalised alone, or one loud head silences the others.",
            lambda q, k: _scored(_rms(q, (0, -1)), _rms(k, (0, -1))),
        ),
        Mistake(
            "over the tokens",
            "you took the root mean square over the tokens, channel by channel. A query is normalised over its own "
            "channels, the last axis, whatever the other tokens are.",
            lambda q, k: _scored(_rms(q, -2), _rms(k, -2)),
        ),
        Mistake(
            "only queries",
            "you normalised the queries only. A key that grows makes scores grow, too.",
            lambda q, k: _scored(_rms(q), k),
        ),
        Mistake(
            "only keys",
            "you normalised the keys only. A query that grows makes scores grow, too.",
            lambda q, k: _scored(q, _rms(k)),
        ),
        Mistake(
            "unit length",
            "you divided by the length, so each query has length 1, not √d: your scores are d times too small, and no "
            "head can look sharply. Divide by the root of the MEAN of the squares.",
            lambda q, k: _scored(q / q.norm(dim=-1, keepdim=True), k / k.norm(dim=-1, keepdim=True)),
        ),
        Mistake(
            "no root",
            "you divided by the mean square, not by its root.",
            lambda q, k: _scored(q / q.pow(2).mean(-1, keepdim=True), k / k.pow(2).mean(-1, keepdim=True)),
        ),
        Mistake(
            "not scaled",
            "the products are not divided by √d. Then they reach d, and not √d, in size.",
            lambda q, k: _rms(q) @ _rms(k).mT,
        ),
        Mistake(
            "scores normalised",
            "you normalised the scores, over the keys. Normalise queries and keys, before their product.",
            lambda q, k: _rms(_scored(q, k)),
        ),
        Mistake(
            "layer norm",
            "you subtracted the mean, too. That is layer norm, as in ViT-22B; here only the root mean square is asked "
            "for.",
            lambda q, k: _scored(_rms(q - q.mean(-1, keepdim=True)), _rms(k - k.mean(-1, keepdim=True))),
        ),
        Mistake(
            "not normalised",
            "these are the scores without any norm.",
            _scored,
        ),
    ],
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


clipped = Exercise(
    "clipped",
    chapter=27,
    given="each parameter alone",
    title="clip the gradient of a model",
    reference=_clipped,
    cases=_gradients,
    verified="four models: one factor for all parameters, and none where the gradient is small enough.",
    points=1,
    mistakes=[
        Mistake(
            "each parameter alone",
            "you clipped the gradient of each parameter by itself. That changes the direction of the step: a parameter "
            "with a large gradient is shortened, its neighbour is not. Take one norm of all, and one factor.",
            _alone,
        ),
        Mistake(
            "each number alone",
            "you clamped each number to [-max_norm, max_norm]. That changes the direction of the step. Multiply all "
            "numbers by one factor.",
            lambda gradients, max_norm: [gradient.clamp(-max_norm, max_norm) for gradient in gradients],
        ),
        Mistake(
            "always to max_norm",
            "you scaled every gradient to the norm max_norm, small ones too. A gradient that is small enough stays as "
            "it is: the factor is 1 at most.",
            _times(lambda gradients, max_norm: max_norm / _norm(gradients)),
        ),
        Mistake(
            "small ones only",
            "you scaled up the small gradients, and left the large ones alone. The factor is 1 at MOST.",
            _times(lambda gradients, max_norm: max(1.0, max_norm / _norm(gradients))),
        ),
        Mistake(
            "norms added",
            "you added the norms of the parameters. The norm of all numbers together is the root of the sum of all "
            "squares.",
            _times(
                lambda gradients, max_norm: min(1.0, max_norm / sum(float(gradient.norm()) for gradient in gradients))
            ),
        ),
        Mistake(
            "no root",
            "you compared the sum of the squares with max_norm. Take its root.",
            _times(lambda gradients, max_norm: min(1.0, max_norm / _norm(gradients) ** 2)),
        ),
        Mistake(
            "largest norm",
            "you took the largest norm of a parameter. The norm is that of all numbers together.",
            _times(
                lambda gradients, max_norm: min(1.0, max_norm / max(float(gradient.norm()) for gradient in gradients))
            ),
        ),
        Mistake(
            "largest number",
            "you took the largest number for the norm. The norm is the root of the sum of all squares.",
            _times(
                lambda gradients, max_norm: min(
                    1.0, max_norm / max(float(gradient.abs().max()) for gradient in gradients)
                )
            ),
        ),
        Mistake(
            "not clipped",
            "large gradients came back as they were.",
            lambda gradients, max_norm: [gradient.clone() for gradient in gradients],
        ),
    ],
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


rate_at = Exercise(
    "rate_at",
    chapter=27,
    title="a learning rate that rises and falls",
    reference=_rate,
    cases=_steps,
    verified="six steps of two trainings: the first step already learns, step warm_up - 1 has the full rate, "
    "and the last step is not wasted.",
    points=1,
    mistakes=[
        Mistake(
            "begins with 0",
            "your first step has rate 0, so nothing is learned in it, and the full rate comes one step late. Steps "
            "count from 0: step t is number t + 1.",
            lambda step, steps, warm_up, max_lr: (
                max_lr * step / warm_up if step < warm_up else max_lr * (steps - step) / (steps - warm_up)
            ),
        ),
        Mistake(
            "begins with 0, falls as asked",
            "your first step has rate 0, so nothing is learned in it. Steps count from 0: step t is number t + 1.",
            lambda step, steps, warm_up, max_lr: (
                max_lr * step / warm_up if step < warm_up else _rate(step, steps, warm_up, max_lr)
            ),
        ),
        Mistake(
            "twice the full rate",
            "the first step of the fall has the full rate once more. It has had it in the step before: let the fall "
            "begin at once.",
            lambda step, steps, warm_up, max_lr: (
                _rate(step, steps, warm_up, max_lr) if step < warm_up else max_lr * (steps - step) / (steps - warm_up)
            ),
        ),
        Mistake(
            "ends with 0",
            "your last step has rate 0: it is wasted. The rate would be 0 in step `steps`, which there is not.",
            lambda step, steps, warm_up, max_lr: (
                _rate(step, steps, warm_up, max_lr)
                if step < warm_up
                else max_lr * (steps - 1 - step) / (steps - warm_up)
            ),
        ),
        Mistake(
            "never falls",
            "after the rise, your rate stays where it is. It falls in equal steps.",
            lambda step, steps, warm_up, max_lr: max_lr * min(1.0, (step + 1) / warm_up),
        ),
        Mistake(
            "no rise",
            "your rate begins at its largest value and falls. The first warm_up steps rise.",
            lambda step, steps, warm_up, max_lr: max_lr * (steps - step) / steps,
        ),
        Mistake(
            "both at once",
            "you multiplied the rise by a fall that begins at step 0, as this chapter's own program does. Here the "
            "full rate is reached: the fall begins after the rise.",
            lambda step, steps, warm_up, max_lr: max_lr * min(1.0, (step + 1) / warm_up) * (1 - step / steps),
        ),
        Mistake(
            "warm_up as a share",
            "you took warm_up for a share of the steps. It counts steps.",
            lambda step, steps, warm_up, max_lr: max_lr * min(1.0, (step + 1) / (warm_up * steps)),
        ),
        Mistake(
            "share of the rate",
            "you returned a share of the largest rate. Multiply by max_lr.",
            lambda step, steps, warm_up, max_lr: _rate(step, steps, warm_up, 1.0),
        ),
    ],
)
