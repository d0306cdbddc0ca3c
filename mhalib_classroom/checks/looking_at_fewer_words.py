"""A window, how far news travels through one, a span that is learned, and the gradient of sparsemax."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ._exercise import Case
from ._inputs import apart, draw
from ._markdown import exercises_of

exercise = exercises_of(globals())


def _windows(rng: random.Random) -> Iterator[Case]:
    yield {"num_tokens": 5, "reach": 1}
    for reach, (num_tokens,) in zip(rng.sample((2, 3, 4), 3), apart(rng, 1, smallest=8, largest=13), strict=True):
        yield {"num_tokens": num_tokens, "reach": reach}


def _apart(num_tokens: int) -> Tensor:
    """How far the key is before the query, (N, N)."""
    places = torch.arange(num_tokens)
    return places[:, None] - places


def _sliced(num_tokens: int, reach: int) -> Tensor:
    """A loop over the queries whose slice may begin below 0."""
    seen = torch.zeros(num_tokens, num_tokens, dtype=torch.bool)
    for query in range(num_tokens):
        seen[query, query - reach : query + reach + 1] = True
    return seen


window_mask = exercise(
    "window_mask",
    reference=lambda num_tokens, reach: _apart(num_tokens).abs() <= reach,
    cases=_windows,
)


def _patterns(rng: random.Random) -> Iterator[Case]:
    chain = torch.arange(4)[:, None] - 1 == torch.arange(4)
    yield {"mask": chain, "num_layers": 2}
    layers = rng.sample((1, 2, 3, 4), 3)
    for num_layers, (num_tokens,) in zip(layers, apart(rng, 1, smallest=8, largest=13), strict=True):
        mask = draw(rng, num_tokens, num_tokens) > 1.1
        if num_layers == max(layers):  # 3 or 4: a mask by chance could reach everything by then
            mask = (_apart(num_tokens) == 1) | (_apart(num_tokens) == 0)
        yield {"mask": mask, "num_layers": num_layers}


def _heard(mask: Tensor, num_layers: int, *, skips: bool = True) -> Tensor:
    own = torch.eye(len(mask), dtype=torch.bool)
    step, heard = (mask | own) if skips else mask, own
    for _ in range(num_layers):
        heard = (step.float() @ heard.float()) > 0
    return heard


heard_of = exercise(
    "heard_of",
    reference=_heard,
    cases=_patterns,
)


def _spans(rng: random.Random) -> Iterator[Case]:
    yield {"spans": torch.tensor([0.0, 1.5]), "ramp": 2.0, "num_tokens": 5}
    for num_heads, more in apart(rng, 2, of=lambda h, more: [h, more, 6 + more]):
        num_tokens = 6 + more
        spans = draw(rng, num_heads).abs() * 2 + torch.arange(num_heads)
        yield {"spans": spans, "ramp": rng.choice((1.5, 2.5, 3.0)), "num_tokens": num_tokens}


def _span_shares(
    spans: Tensor,
    ramp: float,
    num_tokens: int,
    *,
    distances: Callable[[Tensor], Tensor] = lambda apart: apart,
    causal: bool = True,
) -> Tensor:
    apart = _apart(num_tokens)
    shares = ((ramp + spans[:, None, None] - distances(apart)) / ramp).clamp(0, 1)
    return shares * (apart >= 0) if causal else shares


span_shares = exercise(
    "span_shares",
    reference=_span_shares,
    cases=_spans,
    switches=_span_shares,
)


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
