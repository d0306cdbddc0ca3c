"""Chapter 21: the gradient of sparsemax."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor

from ._exercise import Case, Exercise, Mistake
from ._inputs import apart, draw


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


sparsemax_gradient = Exercise(
    "sparsemax_gradient",
    chapter=21,
    title="the gradient of sparsemax",
    reference=lambda weights, gradient: (gradient - _mean_of_kept(weights, gradient)) * (weights > 0),
    cases=_gradients,
    verified="four sets of rows; what is hidden gets nothing, and what is kept sums to 0.",
    points=2,
    mistakes=[
        Mistake(
            "of softmax",
            "this is the gradient of softmax: the weights themselves multiply it. For sparsemax only whether a weight "
            "is above 0 counts.",
            lambda weights, gradient: weights * (gradient - (weights * gradient).sum(-1, keepdim=True)),
        ),
        Mistake(
            "times the weights",
            "the mean is right, but you multiplied by the weights. For sparsemax only whether a weight is above 0 "
            "counts: 1 or 0.",
            lambda weights, gradient: weights * (gradient - _mean_of_kept(weights, gradient)),
        ),
        Mistake(
            "mean of all keys",
            "you subtracted the mean over all keys. Only the kept ones share the threshold: take the mean over those.",
            lambda weights, gradient: (gradient - gradient.mean(-1, keepdim=True)) * (weights > 0),
        ),
        Mistake(
            "kept summed, divided by all",
            "you summed over the kept keys and divided by the number of all keys. Divide by the number of kept ones.",
            lambda weights, gradient: (gradient - (gradient * (weights > 0)).mean(-1, keepdim=True)) * (weights > 0),
        ),
        Mistake(
            "weighted mean",
            "you subtracted the mean with the weights. Kept keys count equally, however large their weight is.",
            lambda weights, gradient: (gradient - (weights * gradient).sum(-1, keepdim=True)) * (weights > 0),
        ),
        Mistake(
            "threshold held fixed",
            "you passed the gradient on where the weight is above 0. But the threshold moves with the scores, too: "
            "subtract the mean over the kept keys.",
            lambda weights, gradient: gradient * (weights > 0),
        ),
        Mistake(
            "mean subtracted everywhere",
            "you subtracted the mean from hidden keys, too. A small change of their score changes nothing: 0.",
            lambda weights, gradient: gradient * (weights > 0) - _mean_of_kept(weights, gradient),
        ),
        Mistake(
            "hidden keys too",
            "keys whose weight is 0 get a gradient from you. A small change of their score changes nothing: 0.",
            lambda weights, gradient: gradient - _mean_of_kept(weights, gradient),
        ),
        Mistake(
            "sum for mean",
            "you subtracted the sum over the kept keys. Subtract their mean.",
            lambda weights, gradient: (gradient - (gradient * (weights > 0)).sum(-1, keepdim=True)) * (weights > 0),
        ),
        Mistake(
            "mean over queries",
            "you averaged over the queries. Each row has a threshold of its own: average over its keys.",
            lambda weights, gradient: (
                (gradient - (gradient * (weights > 0)).sum(0) / (weights > 0).sum(0).clamp_min(1)) * (weights > 0)
            ),
        ),
        Mistake(
            "one mean for all",
            "you took one mean over all rows. Each row has a threshold of its own.",
            lambda weights, gradient: (gradient - gradient[weights > 0].mean()) * (weights > 0),
        ),
    ],
)
