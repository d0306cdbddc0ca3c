"""Chapter 28: the gradient of a batch that is dealt out, and what a sum over the processes sends."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor

from ._exercise import Case
from ._inputs import apart, draw, own_sizes
from ._markdown import exercises_of

exercise = exercises_of(globals())


def _gradients(rng: random.Random) -> Iterator[Case]:
    """Shares of a batch that are not equally long, each with the gradient of its mean loss."""
    for num_ranks, size in ([2, 3], *apart(rng, 2, smallest=3)):
        yield {
            "gradients": [draw(rng, size) for _ in range(num_ranks)],
            "rows": rng.sample(range(2, 9), num_ranks),
        }


def _weighted(gradients: list[Tensor], rows: list[int]) -> Tensor:
    return torch.stack([n * g for g, n in zip(gradients, rows, strict=True)]).sum(0)


batch_gradient = exercise(
    "batch_gradient",
    reference=lambda gradients, rows: _weighted(gradients, rows) / sum(rows),
    cases=_gradients,
)


@own_sizes("numbers have 2 or 4 bytes", "bytes_per_number")
def _messages(rng: random.Random) -> Iterator[Case]:
    yield {"num_numbers": 1200, "num_ranks": 4, "bytes_per_number": 2}
    for num_ranks, size in ((3, 4), (5, 2), (8, 4), (16, 2)):
        yield {
            "num_numbers": num_ranks * rng.randint(50, 500),
            "num_ranks": num_ranks,
            "bytes_per_number": size,
        }


def _ring(num_numbers: int, num_ranks: int, bytes_per_number: int) -> int:
    return 2 * (num_ranks - 1) * num_numbers * bytes_per_number // num_ranks


all_reduce_bytes = exercise(
    "all_reduce_bytes",
    reference=_ring,
    cases=_messages,
)
