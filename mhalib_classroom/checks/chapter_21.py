"""Chapter 21: a window, and a span that is learned."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ._exercise import Case, Exercise, Mistake
from ._inputs import apart, draw


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


window_mask = Exercise(
    "window_mask",
    chapter=21,
    title="a window on both sides",
    reference=lambda num_tokens, reach: _apart(num_tokens).abs() <= reach,
    cases=_windows,
    verified="four windows that reach 1 to 3 tokens to each side, over 5 to 13 tokens.",
    mistakes=[
        Mistake(
            "one too few",
            "your window ends one token too early: a key at a distance of exactly `reach` may be seen, too.",
            lambda num_tokens, reach: _apart(num_tokens).abs() < reach,
        ),
        Mistake(
            "one too many",
            "your window ends one token too late: the farthest key is `reach` tokens away.",
            lambda num_tokens, reach: _apart(num_tokens).abs() <= reach + 1,
        ),
        Mistake(
            "before only",
            "your window looks back only. It reaches as far to the other side.",
            lambda num_tokens, reach: (_apart(num_tokens) >= 0) & (_apart(num_tokens) <= reach),
        ),
        Mistake(
            "behind only",
            "your window looks ahead only. It reaches as far to the other side.",
            lambda num_tokens, reach: (_apart(num_tokens) <= 0) & (_apart(num_tokens) >= -reach),
        ),
        Mistake(
            "no absolute value",
            "you compared the distance with its sign, so that keys on one side are always near. Take its absolute "
            "value.",
            lambda num_tokens, reach: _apart(num_tokens) <= reach,
        ),
        Mistake(
            "causal",
            "you compared the distance with its sign, so that all the past is near. Take its absolute value.",
            lambda num_tokens, reach: _apart(num_tokens) >= -reach,
        ),
        Mistake(
            "the whole window is reach",
            "your window is `reach` tokens wide in all. It reaches that far to each side.",
            lambda num_tokens, reach: _apart(num_tokens).abs() <= reach // 2,
        ),
        Mistake(
            "hidden for seen",
            "`True` marks what is hidden in your mask. In this book, `True` = may attend.",
            lambda num_tokens, reach: _apart(num_tokens).abs() > reach,
        ),
        Mistake(
            "blocks",
            "you cut the text into blocks, and tokens see their own block. The window moves with the query.",
            lambda num_tokens, reach: (
                torch.arange(num_tokens)[:, None] // (reach + 1) == torch.arange(num_tokens) // (reach + 1)
            ),
        ),
        Mistake(
            "last key missing",
            "the farthest key after the query is missing: a slice or range ends before its end, so it needs "
            "`+ reach + 1`.",
            lambda num_tokens, reach: (_apart(num_tokens) > -reach) & (_apart(num_tokens) <= reach),
        ),
        Mistake(
            "slice from below 0",
            "the first rows are wrong: for a query near the start, `query - reach` is negative, and a slice counts it "
            "from the end. Begin at 0 at the least.",
            _sliced,
        ),
        Mistake(
            "not itself",
            "a token does not see itself in your mask. The window is around it, and it is inside.",
            lambda num_tokens, reach: (_apart(num_tokens).abs() <= reach) & (_apart(num_tokens) != 0),
        ),
    ],
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


span_shares = Exercise(
    "span_shares",
    chapter=21,
    title="what a span lets through",
    reference=_span_shares,
    cases=_spans,
    verified="four layers of two to five heads, each with a span of its own.",
    points=2,
    mistakes=[
        Mistake(
            "future seen",
            "keys behind the query have the share 1, because their distance is negative. They must have 0.",
            lambda spans, ramp, num_tokens: _span_shares(spans, ramp, num_tokens, causal=False),
        ),
        Mistake(
            "both sides",
            "you took the absolute value of the distance, so that a query sees keys behind it. They must have 0.",
            lambda spans, ramp, num_tokens: _span_shares(spans, ramp, num_tokens, distances=torch.abs, causal=False),
        ),
        Mistake(
            "not cut off at 1",
            "some of your shares exceed 1. Near keys have the share 1, however near they are.",
            lambda spans, ramp, num_tokens: (
                ((ramp + spans[:, None, None] - _apart(num_tokens)) / ramp).clamp_min(0) * (_apart(num_tokens) >= 0)
            ),
        ),
        Mistake(
            "not cut off at 0",
            "some of your shares are negative. Beyond the ramp, the share is 0.",
            lambda spans, ramp, num_tokens: (
                ((ramp + spans[:, None, None] - _apart(num_tokens)) / ramp).clamp_max(1) * (_apart(num_tokens) >= 0)
            ),
        ),
        Mistake(
            "not cut off",
            "your shares are a straight line without ends: some are negative and some exceed 1. Cut them off at 0 and "
            "1.",
            lambda spans, ramp, num_tokens: (ramp + spans[:, None, None] - _apart(num_tokens)) / ramp,
        ),
        Mistake(
            "not cut off, future hidden",
            "your shares are a straight line without ends: some are negative and some exceed 1. Cut them off at 0 and "
            "1.",
            lambda spans, ramp, num_tokens: (
                (ramp + spans[:, None, None] - _apart(num_tokens)) / ramp * (_apart(num_tokens) >= 0)
            ),
        ),
        Mistake(
            "distance turned round",
            "your distance has the wrong sign: it must be positive where the key comes before the query.",
            lambda spans, ramp, num_tokens: _span_shares(spans, ramp, num_tokens, distances=torch.neg, causal=False),
        ),
        Mistake(
            "divided by the sum",
            "you divided each row by its sum. These are shares, no weights: the row is divided after they have "
            "multiplied the weights.",
            lambda spans, ramp, num_tokens: (
                _span_shares(spans, ramp, num_tokens) / _span_shares(spans, ramp, num_tokens).sum(-1, keepdim=True)
            ),
        ),
        Mistake(
            "ramp inside the span",
            "your ramp ends at the span. It begins there: the share is 1 up to `span`, and 0 from `span + ramp` on.",
            lambda spans, ramp, num_tokens: _span_shares(spans - ramp, ramp, num_tokens),
        ),
        Mistake(
            "no ramp",
            "your spans end at once, so that no gradient reaches them. Let the share fall to 0 over `ramp` tokens.",
            lambda spans, ramp, num_tokens: (
                (spans[:, None, None] - _apart(num_tokens) >= 0) & (_apart(num_tokens) >= 0)
            ).float(),
        ),
        Mistake(
            "not divided by the ramp",
            "you did not divide by `ramp`, so that the share falls to 0 over one token.",
            lambda spans, ramp, num_tokens: (
                (ramp + spans[:, None, None] - _apart(num_tokens)).clamp(0, 1) * (_apart(num_tokens) >= 0)
            ),
        ),
        Mistake(
            "one span for all heads",
            "every head has the span of head 0. Each head has its own.",
            lambda spans, ramp, num_tokens: _span_shares(spans[:1].expand(len(spans)), ramp, num_tokens),
        ),
        Mistake(
            "keys by queries",
            "rows are keys in your result. Rows are queries and columns are keys.",
            lambda spans, ramp, num_tokens: _span_shares(spans, ramp, num_tokens).mT,
        ),
        Mistake(
            "far for near",
            "your shares rise with the distance. The nearer a key, the larger its share.",
            lambda spans, ramp, num_tokens: (
                ((_apart(num_tokens) - spans[:, None, None]) / ramp).clamp(0, 1) * (_apart(num_tokens) >= 0)
            ),
        ),
    ],
)
