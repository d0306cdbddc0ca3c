"""Chapter 15: words that look at a picture."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor

from ._exercise import Case, Exercise, Mistake
from ._inputs import apart, draw


def _over_patches(rng: random.Random) -> Iterator[Case]:
    yield {"weights": torch.tensor([[[0.3, 0.1, 0.05, 0.2, 0.25, 0.1]]]), "num_columns": 3}
    drawn = apart(rng, 4, of=lambda h, Q, rows, third: [h, Q, 3 * third, 3 * third * rows])
    for num_heads, num_words, rows, third in drawn:
        weights = (2 * draw(rng, num_heads, num_words, rows * 3 * third)).softmax(-1)
        yield {"weights": weights, "num_columns": 3 * third}


def _grid(weights: Tensor, num_columns: int) -> Tensor:
    return weights.unflatten(-1, (-1, num_columns))


def _left(weights: Tensor, num_columns: int) -> Tensor:
    return _grid(weights, num_columns)[..., : num_columns // 3].sum((-2, -1))


weight_on_the_left = Exercise(
    "weight_on_the_left",
    chapter=15,
    title="how much of its weight a word puts on the left third",
    reference=_left,
    cases=_over_patches,
    verified="four pictures; patches are counted row by row, so the left third is a part of every row.",
    points=2,
    mistakes=[
        Mistake(
            "the first third of the patches",
            "you took the first third of all patches: that is the top of the picture. Patches are counted row by row.",
            lambda weights, num_columns: weights[..., : weights.shape[-1] // 3].sum(-1),
        ),
        Mistake(
            "averaged",
            "you averaged the weights over the patches. Add them: a share of 1.",
            lambda weights, num_columns: _grid(weights, num_columns)[..., : num_columns // 3].mean((-2, -1)),
        ),
        Mistake(
            "the right third",
            "this is the right third.",
            lambda weights, num_columns: _grid(weights, num_columns)[..., -(num_columns // 3) :].sum((-2, -1)),
        ),
        Mistake(
            "rows, not columns",
            "you took the upper rows of the picture. What lies on the left is the first columns of every row: the last "
            "axis of the grid.",
            lambda weights, num_columns: _grid(weights, num_columns)[..., : num_columns // 3, :].sum((-2, -1)),
        ),
        Mistake(
            "a third of the rows",
            "you took the upper third of the rows. What lies on the left is the first third of the columns: the last "
            "axis of the grid.",
            lambda weights, num_columns: _grid(weights, num_columns)[
                ..., : weights.shape[-1] // num_columns // 3, :
            ].sum((-2, -1)),
        ),
        Mistake(
            "columns before rows",
            "you split the patches into (columns, rows). They are counted row by row, so the axis of columns runs "
            "fastest and comes last: (rows, columns).",
            lambda weights, num_columns: weights.unflatten(-1, (num_columns, -1))[..., : num_columns // 3].sum(
                (-2, -1)
            ),
        ),
        Mistake(
            "the first row only",
            "you took the left third of the first row only: the other rows of patches have a left, too. Give the "
            "patches their two axes first.",
            lambda weights, num_columns: weights[..., : num_columns // 3].sum(-1),
        ),
    ],
)


def _over_symbols(rng: random.Random) -> Iterator[Case]:
    weights = torch.tensor([[[0.3, 0.1, 0.05, 0.05, 0.2, 0.1, 0.15, 0.05], [0.05, 0.1, 0.2, 0.2, 0.1, 0.1, 0.05, 0.2]]])
    yield {"weights": weights, "num_columns": 4, "starts": torch.tensor([0, 2])}
    drawn = apart(rng, 4, smallest=3, of=lambda h, Q, rows, half: [h, Q, 2 * half + 2, (2 * half + 2) * rows])
    for num_heads, num_words, rows, half in drawn:
        columns = 2 * half + 2
        starts = torch.tensor([1 + 2 * half - k % 2 - rng.randrange(2, 2 * half) for k in range(num_words)])
        weights = (2 * draw(rng, num_heads, num_words, rows * columns)).softmax(-1)
        yield {"weights": weights, "num_columns": columns, "starts": starts}


def _symbol(weights: Tensor, num_columns: int, starts: Tensor, width: int = 2) -> Tensor:
    column = torch.arange(num_columns)
    inside = (column >= starts[:, None]) & (column < starts[:, None] + width)  # (Q, columns)
    return (_grid(weights, num_columns).sum(-2) * inside).sum(-1)


weight_on_the_symbol = Exercise(
    "weight_on_the_symbol",
    chapter=15,
    title="how much of its weight each word puts on its own symbol",
    reference=_symbol,
    cases=_over_symbols,
    verified="four pictures; each word is held against the two columns of its own symbol, in every row of patches.",
    points=2,
    mistakes=[
        Mistake(
            "the first word's symbol",
            "you held every word against the symbol of the first one. `starts` has a number for each word.",
            lambda weights, num_columns, starts: _symbol(weights, num_columns, starts[:1].expand(len(starts))),
        ),
        Mistake(
            "one column",
            "you took one column of patches. A symbol is two columns wide: `starts` and the one to the right of it.",
            lambda weights, num_columns, starts: _symbol(weights, num_columns, starts, width=1),
        ),
        Mistake(
            "three columns",
            "you took three columns of patches: a slice or a comparison goes one too far. A symbol has two.",
            lambda weights, num_columns, starts: _symbol(weights, num_columns, starts, width=3),
        ),
        Mistake(
            "the upper row only",
            "you took the two patches of the upper row only. The symbol goes on in the rows below it.",
            lambda weights, num_columns, starts: (
                _grid(weights, num_columns)[:, :, 0] * _columns(num_columns, starts)
            ).sum(-1),
        ),
        Mistake(
            "averaged",
            "you averaged the weights over the patches of the symbol. Add them: a share of 1.",
            lambda weights, num_columns, starts: (
                _symbol(weights, num_columns, starts) / (2 * weights.shape[-1] / num_columns)
            ),
        ),
        Mistake(
            "all words together",
            "you added the words, too. The result has a number for each head and word: (h, Q).",
            lambda weights, num_columns, starts: _symbol(weights, num_columns, starts).sum(-1),
        ),
        Mistake(
            "beside the symbol",
            "this is the weight on everything but the symbol.",
            lambda weights, num_columns, starts: 1 - _symbol(weights, num_columns, starts),
        ),
    ],
)


def _columns(num_columns: int, starts: Tensor) -> Tensor:
    """(Q, columns), `True` in the two columns of each word's symbol."""
    column = torch.arange(num_columns)
    return (column >= starts[:, None]) & (column < starts[:, None] + 2)
