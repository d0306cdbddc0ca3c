"""A window, and a span that is learned.

The gates of a router, mended, and the loss that balances it. The gradient of sparsemax.
"""

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


def _choices(rng: random.Random) -> Iterator[Case]:
    shares = torch.tensor([[[0.5, 0.25, 0.25], [0.25, 0.5, 0.25]]])
    yield {"shares": shares, "chosen": torch.tensor([[[True, True, False], [False, True, True]]])}
    for batch_size, num_tokens, num_heads in apart(rng, 3, smallest=3):
        scores = draw(rng, batch_size, num_tokens, num_heads) + draw(rng, num_heads)
        chosen = torch.zeros_like(scores).scatter(-1, scores.topk(2).indices, 1.0) > 0
        yield {"shares": scores.softmax(-1), "chosen": chosen}


def _means(shares: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
    return shares.mean((0, 1)), chosen.float().mean((0, 1))


def _balance(shares: Tensor, chosen: Tensor) -> Tensor:
    mean_share, load = _means(shares, chosen)
    return shares.shape[-1] * (mean_share * load).sum()


balance_loss = exercise(
    "balance_loss",
    reference=_balance,
    cases=_choices,
)


def _scores(rng: random.Random) -> Iterator[Case]:
    yield {"router_scores": torch.tensor([[[1.0, 3.0, 2.0, 0.0]]]), "num_chosen": 2}
    for batch_size, num_tokens, more in apart(rng, 3, largest=6, of=lambda B, N, more: [B, N, more, 3 + more]):
        num_heads, num_chosen = 3 + more, rng.choice((2, 3))
        yield {"router_scores": draw(rng, batch_size, num_tokens, num_heads), "num_chosen": num_chosen}


def _chosen(router_scores: Tensor, num_chosen: int, *, largest: bool = True, dim: int = -1) -> Tensor:
    best = router_scores.topk(num_chosen, dim, largest=largest).indices
    return torch.zeros_like(router_scores).scatter(dim, best, 1.0)


def _kept(router_scores: Tensor, num_chosen: int, *, largest: bool = True) -> Tensor:
    """Shares of a softmax over all heads, 0 for those that are not chosen."""
    return router_scores.softmax(-1) * _chosen(router_scores, num_chosen, largest=largest)


def _gates(router_scores: Tensor, num_chosen: int) -> Tensor:
    kept = _kept(router_scores, num_chosen)
    return num_chosen * kept / kept.sum(-1, keepdim=True)


mended_router = exercise(
    "mended_router",
    reference=_gates,
    cases=_scores,
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
