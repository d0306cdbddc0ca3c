"""Chapter 15: a repair of the mask over pictures of different widths."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor

from ._exercise import Case
from ._inputs import apart
from ._markdown import exercises_of

exercise = exercises_of(globals())


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
