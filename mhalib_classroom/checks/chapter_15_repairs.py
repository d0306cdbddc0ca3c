"""Chapter 15: a repair of the mask over pictures of different widths."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor

from ._exercise import Case, Exercise, Mistake
from ._inputs import apart


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


mended_picture_mask = Exercise(
    "mended_picture_mask",
    chapter=15,
    given="nothing mended",
    title="mend the mask over pictures of different widths",
    reference=_mask,
    cases=_widths,
    verified="four batches of pictures of different widths: the padding on the right is hidden in every row.",
    points=2,
    mistakes=[
        Mistake(
            "nothing mended",
            "the mask still hides the LAST patches. They are the right end of the lowest row, but the padding is the "
            "right end of EVERY row. Make a mask for one row, then use it for each.",
            lambda real_columns, num_rows, num_columns: (
                torch.arange(num_rows * num_columns) < (real_columns * num_rows)[:, None]
            )[:, None, None],
        ),
        Mistake(
            "columns as a length",
            "you took the number of columns for the number of patches: only that many patches are seen.",
            lambda real_columns, num_rows, num_columns: (torch.arange(num_rows * num_columns) < real_columns[:, None])[
                :, None, None
            ],
        ),
        Mistake(
            "the opposite",
            "the mask is the opposite of the right one: here `True` means that a patch may be seen.",
            lambda real_columns, num_rows, num_columns: ~_mask(real_columns, num_rows, num_columns),
        ),
        Mistake(
            "off by one",
            "one column too many is seen: with 1 real column, only column 0 is real.",
            lambda real_columns, num_rows, num_columns: _mask(real_columns + 1, num_rows, num_columns),
        ),
        Mistake(
            "queries hidden",
            "the mask hides rows: it has the patches where the words are, the queries. Patches are keys, the last "
            "axis: (B, 1, 1, patches).",
            lambda real_columns, num_rows, num_columns: _mask(real_columns, num_rows, num_columns).mT,
        ),
        Mistake(
            "no axes for heads and words",
            "the mask is right, but has the shape (B, patches). Against weights (B, h, Q, K) it needs an axis of 1 for "
            "the heads, and one for the words.",
            lambda real_columns, num_rows, num_columns: _mask(real_columns, num_rows, num_columns)[:, 0, 0],
        ),
        Mistake(
            "one axis too few",
            "the mask has the shape (B, 1, patches). Against weights (B, h, Q, K), torch would take B for the heads: "
            "it needs an axis of 1 for the heads AND one for the words.",
            lambda real_columns, num_rows, num_columns: _mask(real_columns, num_rows, num_columns)[:, 0],
        ),
    ],
)
