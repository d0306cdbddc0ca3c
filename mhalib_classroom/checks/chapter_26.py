"""Chapter 26: a softmax in one pass, and its halves merged."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import torch
from torch import Tensor

from ._exercise import Case, Exercise, Mistake
from ._inputs import apart, draw


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


updated = Exercise(
    "updated",
    chapter=26,
    title="take in one more tile",
    reference=_updated,
    cases=_running,
    verified="four tiles, also for queries that have seen nothing yet, and with keys that are hidden.",
    parts=("largest", "total"),
    points=2,
    mistakes=[
        Mistake(
            "NaN for an empty row",
            "a query that has seen no key gets NaN: its largest score is still -inf, and -inf - (-inf) is NaN. There, "
            "subtract another number, 0 for example.",
            _with_nan,
        ),
        Mistake(
            "NaN replaced",
            "you replaced NaN by a number after it had arisen. A query that has seen nothing should keep a total of 0, "
            "and yours does not. Subtract 0 instead of -inf, and no NaN arises.",
            lambda largest, total, scores: tuple(
                part.nan_to_num(1.0, neginf=-math.inf) for part in _with_nan(largest, total, scores)
            ),
        ),
        Mistake(
            "total not corrected",
            "the old total was made with the old largest score. When that rises, multiply the total by "
            "exp(old - new) before you add.",
            _not_corrected,
        ),
        Mistake(
            "correction upside down",
            "you multiplied by exp(new - old), which makes old terms larger. When the largest score rises, they count "
            "less: exp(old - new).",
            _upside_down,
        ),
        Mistake(
            "new terms corrected, too",
            "you corrected the new terms as well. They are made with the new largest score already.",
            _both_corrected,
        ),
        Mistake(
            "the tile's own largest",
            "you forgot the largest score of the tiles before. Take the maximum of both.",
            _own_largest,
        ),
        Mistake(
            "one largest for all queries",
            "you took one largest score of the whole tile. Each query has its own: take it over the keys only.",
            _all_rows,
        ),
        Mistake(
            "starts at 0",
            "your largest score is never below 0. Where all scores are negative, that is too large, and with scores of "
            "-200 every term is 0. Begin with -inf.",
            _from_zero,
        ),
        Mistake(
            "nothing subtracted",
            "you added exp(score) itself. It is right on paper and overflows for large scores: subtract the largest.",
            lambda largest, total, scores: (torch.maximum(largest, scores.amax(-1)), total + scores.exp().sum(-1)),
        ),
        Mistake(
            "old terms forgotten",
            "the result holds this tile only. Add the old total, corrected.",
            lambda largest, total, scores: _updated(largest, torch.zeros_like(total), scores),
        ),
    ],
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


merged = Exercise(
    "merged",
    chapter=26,
    title="merge two halves of the keys",
    reference=_merged,
    cases=_halves,
    verified="four pairs of halves, also with a log-sum-exp of 200, and for queries that saw nothing in one or both.",
    parts=("output", "lse"),
    points=2,
    mistakes=[
        Mistake(
            "plain mean",
            "you gave both halves the same weight. A half counts as much as the sum of its exponentials, exp(lse).",
            lambda first, first_lse, second, second_lse: (
                (first + second) / 2,
                torch.logaddexp(first_lse, second_lse),
            ),
        ),
        Mistake(
            "sum",
            "you added the two outputs. Each is an average already: weigh them by exp(lse), and divide by the sum.",
            lambda first, first_lse, second, second_lse: (first + second, torch.logaddexp(first_lse, second_lse)),
        ),
        Mistake(
            "halves exchanged",
            "each half got the weight of the other.",
            lambda first, first_lse, second, second_lse: _merged(second, first_lse, first, second_lse),
        ),
        Mistake(
            "overflow",
            "you computed exp(lse) without subtracting the larger one, and exp(200) is infinite. Only the difference "
            "of the two matters.",
            _merged_naively,
        ),
        Mistake(
            "NaN where both are empty",
            "a query that saw nothing in either half gets NaN: -inf - (-inf). Give it 0, with a log-sum-exp of -inf.",
            _merged_with_nan,
        ),
        Mistake(
            "log-sum-exps added",
            "the output is right, but you added the two logarithms. That multiplies the sums; add the exponentials.",
            lambda first, first_lse, second, second_lse: (
                _merged(first, first_lse, second, second_lse)[0],
                first_lse + second_lse,
            ),
        ),
        Mistake(
            "larger log-sum-exp",
            "the output is right, but your log-sum-exp is the larger one. Both count: take the logarithm of their sum.",
            lambda first, first_lse, second, second_lse: (
                _merged(first, first_lse, second, second_lse)[0],
                torch.maximum(first_lse, second_lse),
            ),
        ),
        Mistake(
            "not divided",
            "the weights of the two halves do not sum to 1: divide by the sum of the two exponentials.",
            lambda first, first_lse, second, second_lse: (
                (first_lse - torch.maximum(first_lse, second_lse)).exp().nan_to_num(0.0)[:, None] * first
                + (second_lse - torch.maximum(first_lse, second_lse)).exp().nan_to_num(0.0)[:, None] * second,
                torch.logaddexp(first_lse, second_lse),
            ),
        ),
    ],
)
