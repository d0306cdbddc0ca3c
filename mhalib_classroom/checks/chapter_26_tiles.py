"""Chapter 26: attention in tiles, mended, differentiated and skipped."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import torch
from torch import Tensor

from ._exercise import Case, Exercise, Mistake
from ._inputs import apart, draw


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


mended_pass = Exercise(
    "mended_pass",
    chapter=26,
    given="found not corrected",
    title="repair a softmax in one pass",
    reference=lambda scores, values, size: scores.softmax(-1) @ values,
    cases=_rows,
    verified="four sets of scores, around 0 and around -200; the last tile is not always full.",
    points=2,
    mistakes=[
        Mistake(
            "found not corrected",
            "the total is corrected when the largest score rises, and the sum of the values is not. Its old terms were "
            "made with the old largest score, too: multiply it by the same correction.",
            lambda scores, values, size: _one_pass(scores, values, size, correct_found=False),
        ),
        Mistake(
            "total not corrected",
            "the sum of the values is corrected when the largest score rises, and the total is not.",
            lambda scores, values, size: _one_pass(scores, values, size, correct_total=False),
        ),
        Mistake(
            "nothing corrected",
            "neither sum is corrected when the largest score rises. Multiply both by exp(old - new).",
            lambda scores, values, size: _one_pass(scores, values, size, correct_found=False, correct_total=False),
        ),
        Mistake(
            "correction upside down",
            "you multiplied by exp(new - old). When the largest score rises, old terms count less: exp(old - new).",
            lambda scores, values, size: _one_pass(scores, values, size, sign=-1),
        ),
        Mistake(
            "divided by the tile's sum",
            "you divided inside the loop, by the sum of one tile. Then each tile counts the same, whatever its scores. "
            "Divide once, at the end, by the total.",
            lambda scores, values, size: _one_pass(scores, values, size, divide_by="tile"),
        ),
        Mistake(
            "divided in every round",
            "you divided inside the loop by the total so far, so early tiles are divided again and again. Divide "
            "once, at the end.",
            lambda scores, values, size: _one_pass(scores, values, size, divide_by="total"),
        ),
        Mistake(
            "starts at 0",
            "the largest score begins with 0. Around -200 every exp(score - 0) is 0 in float32, and 0/0 is NaN. Begin "
            "with -inf.",
            lambda scores, values, size: _one_pass(scores, values, size, start=0.0),
        ),
        Mistake(
            "last tile dropped",
            "the last keys are missing: the last tile is not full, and your loop leaves it out.",
            lambda scores, values, size: _one_pass(scores, values, size, last_tile=False),
        ),
        Mistake(
            "not divided",
            "this is the sum of the values, not yet an average: divide by the total at the end.",
            lambda scores, values, size: _one_pass(scores, values, size, divide=False),
        ),
        Mistake(
            "mean of the tiles",
            "you averaged the tiles' answers with equal weights. A tile counts as much as the sum of its exponentials.",
            lambda scores, values, size: torch.stack(
                [s.softmax(-1) @ v for s, v in zip(scores.split(size, -1), values.split(size), strict=True)]
            ).mean(0),
        ),
    ],
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


score_gradient = Exercise(
    "score_gradient",
    chapter=26,
    title="go back through the softmax",
    reference=_gradient,
    cases=_passes,
    verified="four sets of weights; the gradient is that of autograd, and every row of it sums to 0.",
    points=2,
    mistakes=[
        Mistake(
            "average missing",
            "you multiplied each weight with its own gradient, and no key loses what another gains. Subtract the row's "
            "average slope first, the product of output and gradient.",
            lambda weights, values, output, grad: weights * (grad @ values.T),
        ),
        Mistake(
            "plain average",
            "you subtracted the plain mean over the keys. The average is weighted: keys with more weight count more. "
            "It is the product of output and gradient.",
            lambda weights, values, output, grad: (
                weights * (grad @ values.T - (grad @ values.T).mean(-1, keepdim=True))
            ),
        ),
        Mistake(
            "diagonal only",
            "w (1 - w) says how a weight moves with its own score. Every score moves all the other weights of its row, "
            "too.",
            lambda weights, values, output, grad: weights * (1 - weights) * (grad @ values.T),
        ),
        Mistake(
            "weights missing",
            "these are the slopes above the average. Multiply them by the weights: a key with weight 0 does not move.",
            lambda weights, values, output, grad: grad @ values.T - (grad * output).sum(-1, keepdim=True),
        ),
        Mistake(
            "mean over channels",
            "you took the mean over the channels of output times gradient. It is their sum, a product of two vectors.",
            lambda weights, values, output, grad: weights * (grad @ values.T - (grad * output).mean(-1, keepdim=True)),
        ),
        Mistake(
            "one average for all queries",
            "you subtracted one number for all queries. Each query has its own average.",
            lambda weights, values, output, grad: weights * (grad @ values.T - (grad * output).sum()),
        ),
        Mistake(
            "average added",
            "the average slope has to be subtracted; you added it.",
            lambda weights, values, output, grad: weights * (grad @ values.T + (grad * output).sum(-1, keepdim=True)),
        ),
        Mistake(
            "gradient in the weights",
            "this is the gradient in the weights. The one in the scores comes after the softmax's rule.",
            lambda weights, values, output, grad: grad @ values.T,
        ),
    ],
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


needed_tiles = Exercise(
    "needed_tiles",
    chapter=26,
    given="skipped one too early",
    title="repair the rule that skips tiles",
    reference=_needed,
    cases=_grids,
    verified="four grids, with tiles that are wider than high and higher than wide, and last tiles that are not full.",
    points=2,
    mistakes=[
        Mistake(
            "skipped one too early",
            "you skip a tile when its first key comes after its first query. Later queries of the block may see that "
            "key. Compare with the last query of the block.",
            lambda *given: _by("first query", *given),
        ),
        Mistake(
            "full tiles only",
            "you keep a tile only if all of its pairs are seen. A tile on the diagonal is seen in part, and is needed.",
            lambda *given: _by("full tiles", *given),
        ),
        Mistake(
            "last key",
            "you ask whether the last key is seen. One seen key is enough for a tile to be needed: ask for the first.",
            lambda *given: _by("last key", *given),
        ),
        Mistake(
            "own key missing",
            "a query may see the key at its own place: <=, not <.",
            lambda *given: _by("strict", *given),
        ),
        Mistake(
            "one too many",
            "no answer gets wrong, but you compute a tile that nobody sees: the last query of a block that begins at t "
            "is t + rows - 1.",
            lambda *given: _by("one more", *given),
        ),
        Mistake(
            "past the end",
            "the last block of queries may not be full. You count it as if it were, and compute tiles that no query "
            "sees.",
            lambda *given: _by("past the end", *given),
        ),
        Mistake(
            "numbers of blocks",
            "you compared the numbers of the blocks. That is right for square tiles only: compare the places of "
            "queries and keys.",
            lambda *given: _by("blocks", *given),
        ),
        Mistake(
            "last blocks dropped",
            "blocks that are not full are missing: round up, not down.",
            lambda num_queries, num_kvpairs, rows, cols: _needed(
                num_queries // rows * rows, num_kvpairs // cols * cols, rows, cols
            ),
        ),
        Mistake(
            "nothing skipped",
            "you compute every tile. Those whose first key comes after the last query of the block can be skipped.",
            lambda *given: torch.ones_like(_needed(*given)),
        ),
        Mistake(
            "upside down",
            "this says which tiles can be skipped. Return True for those that are needed.",
            lambda *given: ~_needed(*given),
        ),
    ],
)
