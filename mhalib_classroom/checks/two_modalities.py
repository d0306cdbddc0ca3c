"""Words that look at a picture.

A repair of the mask over pictures of different widths.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor

from ._exercise import Case
from ._inputs import apart, draw
from ._markdown import exercises_of

exercise = exercises_of(globals())


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


weight_on_the_left = exercise(
    "weight_on_the_left",
    reference=_left,
    cases=_over_patches,
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


weight_on_the_symbol = exercise(
    "weight_on_the_symbol",
    reference=_symbol,
    cases=_over_symbols,
    switches=_symbol,
)


def _columns(num_columns: int, starts: Tensor) -> Tensor:
    """(Q, columns), `True` in the two columns of each word's symbol."""
    column = torch.arange(num_columns)
    return (column >= starts[:, None]) & (column < starts[:, None] + 2)


def _widths(rng: random.Random) -> Iterator[Case]:
    yield {"real_columns": torch.tensor([3, 1]), "num_rows": 2, "num_columns": 3}
    for batch_size, num_rows, num_columns in apart(
        rng, 3, smallest=3, of=lambda B, rows, columns: [B, rows, columns, rows * columns]
    ):
        real = [rng.randint(1, num_columns - 1) for _ in range(batch_size - 2)] + [num_columns, 1]
        yield {"real_columns": torch.tensor(real), "num_rows": num_rows, "num_columns": num_columns}


def _in_a_row(real_columns: Tensor, num_columns: int) -> Tensor:
    """(B, columns)."""
    return torch.arange(num_columns) < real_columns[:, None]


def _mask(real_columns: Tensor, num_rows: int, num_columns: int) -> Tensor:
    return _in_a_row(real_columns, num_columns).repeat(1, num_rows)[:, None, None]


mended_picture_mask = exercise(
    "mended_picture_mask",
    reference=_mask,
    cases=_widths,
)
