"""Chapter 21: a window, and a span that is learned."""

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
