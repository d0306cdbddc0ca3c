"""A softmax in one pass, and its halves merged.

Attention in tiles, mended, differentiated and skipped.
"""

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


def _rows(rng: random.Random) -> Iterator[Case]:
    values = torch.tensor([[1.0], [2.0], [4.0]])
    yield {"scores": torch.tensor([[0.0, 1.0, 2.0]]), "values": values, "size": 2}
    drawn = apart(rng, 3, of=lambda Q, d_v, size: [Q, d_v, size, 3 * size + 1])
    for far, (num_queries, d_v, size) in zip((0.0, -200.0, 0.0), drawn, strict=True):
        num_kvpairs = 3 * size + 1  # the last tile is not full
        rising = torch.arange(num_kvpairs) / size
        scores = draw(rng, num_queries, num_kvpairs) + rising + far
        scores[0, 0] += far  # in one tile, a score far below all others
        yield {
            "scores": scores,
            "values": draw(rng, num_kvpairs, d_v),
            "size": size,
        }


def _one_pass(
    scores: Tensor,
    values: Tensor,
    size: int,
    *,
    start: float = -math.inf,
    correct_found: bool = True,
    correct_total: bool = True,
    sign: int = 1,
    divide_by: str = "",
    last_tile: bool = True,
    divide: bool = True,
) -> Tensor:
    """The loop, with one thing changed."""
    num_queries, num_kvpairs = scores.shape
    largest, total = torch.full((num_queries, 1), start), torch.zeros(num_queries, 1)
    found = torch.zeros(num_queries, values.shape[1])
    for begin in range(0, num_kvpairs if last_tile else num_kvpairs - size + 1, size):
        tile = scores[:, begin : begin + size]
        new = torch.maximum(largest, tile.amax(-1, keepdim=True))
        correction = (sign * (largest - new)).exp() if begin else torch.zeros_like(new)
        terms = (tile - new).exp()
        total = (correction if correct_total else 1) * total + terms.sum(-1, keepdim=True)
        part = terms @ values[begin : begin + size]
        found = (correction if correct_found else 1) * found
        found = found + (part / terms.sum(-1, keepdim=True) if divide_by == "tile" else part)
        found = found / total if divide_by == "total" else found
        largest = new
    return found / total if divide and not divide_by else found


mended_pass = exercise(
    "mended_pass",
    reference=lambda scores, values, size: scores.softmax(-1) @ values,
    cases=_rows,
    switches=_one_pass,
)


def _passes(rng: random.Random) -> Iterator[Case]:
    weights, values = torch.tensor([[0.25, 0.75]]), torch.tensor([[4.0], [0.0]])
    yield {"weights": weights, "values": values, "output": weights @ values, "grad": torch.tensor([[2.0]])}
    for num_queries, num_kvpairs, d_v in apart(rng, 3, smallest=3):
        weights, values = draw(rng, num_queries, num_kvpairs).softmax(-1), draw(rng, num_kvpairs, d_v)
        grad = draw(rng, num_queries, d_v)
        yield {"weights": weights, "values": values, "output": weights @ values, "grad": grad}


def _gradient(weights: Tensor, values: Tensor, output: Tensor, grad: Tensor) -> Tensor:
    return weights * (grad @ values.T - (grad * output).sum(-1, keepdim=True))


score_gradient = exercise(
    "score_gradient",
    reference=_gradient,
    cases=_passes,
)


def _grids(rng: random.Random) -> Iterator[Case]:
    yield {"num_queries": 7, "num_kvpairs": 6, "rows": 4, "cols": 2}
    drawn: list[list[int]] = []
    while [rows > cols for rows, cols in drawn] != [True, False, True]:
        drawn = apart(rng, 2, of=lambda rows, cols: [rows, cols, 3 * rows + 1, 4 * rows + cols + 1])
    for rows, cols in drawn:
        num_queries = 3 * rows + 1
        yield {"num_queries": num_queries, "num_kvpairs": num_queries + rows + cols, "rows": rows, "cols": cols}


def _grid(num_queries: int, num_kvpairs: int, rows: int, cols: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """First and last queries of the blocks, (n, 1), and first and last keys, (m,)."""
    first_query, first_key = torch.arange(0, num_queries, rows)[:, None], torch.arange(0, num_kvpairs, cols)
    last_query = (first_query + rows).clamp(max=num_queries) - 1
    return first_query, last_query, first_key, (first_key + cols).clamp(max=num_kvpairs) - 1


def _needed(num_queries: int, num_kvpairs: int, rows: int, cols: int) -> Tensor:
    _, last_query, first_key, _ = _grid(num_queries, num_kvpairs, rows, cols)
    return first_key <= last_query


def _by(rule: str, num_queries: int, num_kvpairs: int, rows: int, cols: int) -> Tensor:
    first_query, last_query, first_key, last_key = _grid(num_queries, num_kvpairs, rows, cols)
    if rule == "first query":
        return first_key <= first_query
    if rule == "full tiles":
        return last_key <= first_query
    if rule == "last key":
        return last_key <= last_query
    if rule == "strict":
        return first_key < last_query
    if rule == "one more":
        return first_key <= last_query + 1
    if rule == "past the end":
        return first_key <= first_query + rows - 1
    return torch.arange(len(first_key)) <= torch.arange(len(first_query))[:, None]


needed_tiles = exercise(
    "needed_tiles",
    reference=_needed,
    cases=_grids,
)


def _packed_rows(rng: random.Random) -> Iterator[Case]:
    yield {"starts": torch.tensor([0, 2, 2, 5])}
    for count in (3, 4, 6):
        lengths = rng.sample(range(1, 8), count)
        lengths.insert(rng.randrange(1, count), 0)  # an empty text, neither first nor last
        yield {"starts": torch.tensor([0, *lengths]).cumsum(0)}


def _numbered(starts: Tensor) -> tuple[Tensor, Tensor]:
    lengths = starts.diff()
    text = torch.arange(len(lengths)).repeat_interleave(lengths)
    return text, torch.arange(len(text)) - starts[text]


def _from_the_left(starts: Tensor) -> Tensor:
    """The text of a token, if the first token of a text is taken for the last one of the text before."""
    tokens = torch.arange(int(starts[-1]))
    return (torch.searchsorted(starts, tokens) - 1).clamp(min=0)


numbered = exercise(
    "numbered",
    reference=_numbered,
    cases=_packed_rows,
)


def _rising_rows(rng: random.Random) -> Iterator[Case]:
    values = torch.tensor([[1.0], [2.0], [4.0]])
    yield {
        "scores": torch.tensor([[0.0, 2.0, 5.0]]),
        "values": values,
        "size": 1,
        "threshold": 2.0,
    }  # 2 is not above it
    drawn = apart(rng, 3, of=lambda Q, d_v, size: [Q, d_v, size, 3 * size + 1])
    for jump, threshold, (num_queries, d_v, size) in zip((9.0, 9.0, 200.0), (1.0, 2.0, 3.0), drawn, strict=True):
        rows = torch.arange(num_queries)[:, None]
        scores = 0.2 * draw(rng, num_queries, 3 * size + 1) + 9 * rows  # the last tile is not full
        scores[:, 0] -= 2 * threshold  # the smallest of the first tile
        scores[:, size] += threshold * (0.5 + 2 * (rows[:, 0] % 2))  # every other row must be corrected
        scores[1:, 2 * size :] += jump
        yield {"scores": scores, "values": draw(rng, 3 * size + 1, d_v), "size": size, "threshold": threshold}


def _lazy(
    scores: Tensor,
    values: Tensor,
    size: int,
    threshold: float,
    *,
    terms_by: str = "new",
    correct_by: str = "new",
    keep: str = "new",
    correct_found: bool = True,
    correct_total: bool = True,
    last_tile: bool = True,
    divide: bool = True,
) -> tuple[Tensor, int]:
    """The loop, with one thing changed."""
    base, corrections = scores[:, :size].amax(1, keepdim=True), 0
    total = found = torch.tensor(0.0)
    for begin in range(0, scores.shape[1] if last_tile else scores.shape[1] - size + 1, size):
        tile, part = scores[:, begin : begin + size], values[begin : begin + size]
        largest = torch.maximum(base, tile.amax(1, keepdim=True))
        numbers = {"old": base, "new": torch.where(largest > base + threshold, largest, base), "largest": largest}
        corrections += int((numbers["new"] > base).sum())
        correction, terms = (base - numbers[correct_by]).exp(), (tile - numbers[terms_by]).exp()
        total = (correction if correct_total else 1) * total + terms.sum(1, keepdim=True)
        found = (correction if correct_found else 1) * found + terms @ part
        base = numbers[keep]
    return found / total if divide else found, corrections


mended_lazy = exercise(
    "mended_lazy",
    reference=_lazy,
    cases=_rising_rows,
    switches=_lazy,
)
