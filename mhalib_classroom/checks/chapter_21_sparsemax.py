"""Chapter 21: the gradient of sparsemax."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor

from ._exercise import Case
from ._inputs import apart, draw
from ._markdown import exercises_of

exercise = exercises_of(globals())


def _sparse(scores: Tensor) -> Tensor:
    """Sparsemax over the last axis."""
    ranked = scores.sort(-1, descending=True).values
    thresholds = (ranked.cumsum(-1) - 1) / torch.arange(1, scores.shape[-1] + 1)
    num_kept = (ranked > thresholds).sum(-1, keepdim=True)
    return (scores - thresholds.gather(-1, num_kept - 1)).clamp_min(0)


def _gradients(rng: random.Random) -> Iterator[Case]:
    yield {"weights": torch.tensor([[0.75, 0.25, 0.0]]), "gradient": torch.tensor([[1.0, 3.0, 5.0]])}
    for num_queries, more in apart(rng, 2, largest=6, of=lambda Q, more: [Q, more, 4 + more]):
        num_kvpairs = 4 + more
        weights = _sparse(draw(rng, num_queries, num_kvpairs))
        yield {"weights": weights, "gradient": draw(rng, num_queries, num_kvpairs)}


def _mean_of_kept(weights: Tensor, gradient: Tensor) -> Tensor:
    kept = weights > 0
    return (gradient * kept).sum(-1, keepdim=True) / kept.sum(-1, keepdim=True)


sparsemax_gradient = exercise(
    "sparsemax_gradient",
    reference=lambda weights, gradient: (gradient - _mean_of_kept(weights, gradient)) * (weights > 0),
    cases=_gradients,
)
