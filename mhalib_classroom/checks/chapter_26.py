"""Chapter 26: a softmax in one pass, and its halves merged."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import torch
from torch import Tensor

from ._exercise import Case
from ._inputs import apart, draw
from ._markdown import exercises_of

exercise = exercises_of(globals())


def _running(rng: random.Random) -> Iterator[Case]:
    yield {"largest": torch.tensor([1.0]), "total": torch.tensor([2.0]), "scores": torch.tensor([[3.0, 1.0]])}
    for num_queries, num_kvpairs in apart(rng, 2, smallest=4):
        largest, scores = draw(rng, num_queries), 2 * draw(rng, num_queries, num_kvpairs) - 0.5
        total = 1 + draw(rng, num_queries).abs()
        largest[0] = largest[1] = -math.inf  # nothing seen yet
        total[0] = total[1] = 0
        largest[2] = scores[2].amax() + 2  # this tile brings no larger score
        scores[3] = largest[3] + 1 + scores[3].abs()  # this one does
        scores[1], scores[0, 0] = -math.inf, -math.inf
        yield {"largest": largest, "total": total, "scores": scores}


def _updated(largest: Tensor, total: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    new = torch.maximum(largest, scores.amax(-1))
    base = new.masked_fill(new == -math.inf, 0)
    return new, (largest - base).exp() * total + (scores - base[:, None]).exp().sum(-1)


def _with_nan(largest: Tensor, total: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    new = torch.maximum(largest, scores.amax(-1))
    return new, (largest - new).exp() * total + (scores - new[:, None]).exp().sum(-1)


def _not_corrected(largest: Tensor, total: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    new, _ = _updated(largest, total, scores)
    base = new.masked_fill(new == -math.inf, 0)
    return new, total + (scores - base[:, None]).exp().sum(-1)


def _from_zero(largest: Tensor, total: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    new = torch.maximum(largest, scores.amax(-1)).clamp(min=0)
    return new, (largest - new).exp() * total + (scores - new[:, None]).exp().sum(-1)


def _own_largest(largest: Tensor, total: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    new = scores.amax(-1)
    base = new.masked_fill(new == -math.inf, 0)
    return new, (largest - base).exp() * total + (scores - base[:, None]).exp().sum(-1)


def _all_rows(largest: Tensor, total: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    new = torch.maximum(largest, scores.max())
    return new, (largest - new).exp() * total + (scores - new[:, None]).exp().sum(-1)


def _upside_down(largest: Tensor, total: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    new, _ = _updated(largest, total, scores)
    base = new.masked_fill(new == -math.inf, 0)
    correction = (base - largest).exp().nan_to_num(posinf=0.0) * (total > 0)
    return new, correction * total + (scores - base[:, None]).exp().sum(-1)


def _both_corrected(largest: Tensor, total: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    new, _ = _updated(largest, total, scores)
    base = new.masked_fill(new == -math.inf, 0)
    return new, (largest - base).exp() * (total + (scores - base[:, None]).exp().sum(-1))


updated = exercise(
    "updated",
    reference=_updated,
    cases=_running,
)


def _halves(rng: random.Random) -> Iterator[Case]:
    yield {
        "first": torch.tensor([[1.0, 0.0]]),
        "first_lse": torch.tensor([0.0]),
        "second": torch.tensor([[0.0, 1.0]]),
        "second_lse": torch.tensor([math.log(3)]),
    }
    for far, (num_queries, d_v) in zip((0.0, 0.0, 200.0), apart(rng, 2, smallest=3), strict=True):
        first, second = draw(rng, 2, num_queries, d_v)
        first_lse, second_lse = far + 1 + draw(rng, 2, num_queries).abs()
        first[0], first_lse[0], second[2], second_lse[2] = 0, -math.inf, 0, -math.inf
        first[1], first_lse[1], second[1], second_lse[1] = 0, -math.inf, 0, -math.inf
        yield {"first": first, "first_lse": first_lse, "second": second, "second_lse": second_lse}


def _shares(first_lse: Tensor, second_lse: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What the halves are multiplied by, (Q, 1) each, and the log-sum-exp of both."""
    largest = torch.maximum(first_lse, second_lse)
    base = largest.masked_fill(largest == -math.inf, 0)
    one, two = (first_lse - base).exp(), (second_lse - base).exp()
    total = (one + two).clamp(min=1)
    return (one / total)[:, None], (two / total)[:, None], torch.logaddexp(first_lse, second_lse)


def _merged(first: Tensor, first_lse: Tensor, second: Tensor, second_lse: Tensor) -> tuple[Tensor, Tensor]:
    one, two, lse = _shares(first_lse, second_lse)
    return one * first + two * second, lse


def _merged_naively(first: Tensor, first_lse: Tensor, second: Tensor, second_lse: Tensor) -> tuple[Tensor, Tensor]:
    one, two = first_lse.exp(), second_lse.exp()
    return (one[:, None] * first + two[:, None] * second) / (one + two)[:, None], (one + two).log()


def _merged_with_nan(first: Tensor, first_lse: Tensor, second: Tensor, second_lse: Tensor) -> tuple[Tensor, Tensor]:
    lse = torch.logaddexp(first_lse, second_lse)
    one, two = (first_lse - lse).exp()[:, None], (second_lse - lse).exp()[:, None]
    return one * first + two * second, lse


merged = exercise(
    "merged",
    reference=_merged,
    cases=_halves,
)
