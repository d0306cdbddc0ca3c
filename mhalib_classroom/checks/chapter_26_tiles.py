"""Chapter 26: attention in tiles, mended, differentiated and skipped."""

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
