"""Chapter 28: the gradient of a batch that is dealt out, and what a sum over the processes sends."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor

from ._exercise import Case, Exercise, Mistake
from ._inputs import apart, draw, own_sizes


def _gradients(rng: random.Random) -> Iterator[Case]:
    """Shares of a batch that are not equally long, each with the gradient of its mean loss."""
    for num_ranks, size in ([2, 3], *apart(rng, 2, smallest=3)):
        yield {
            "gradients": [draw(rng, size) for _ in range(num_ranks)],
            "rows": rng.sample(range(2, 9), num_ranks),
        }


def _weighted(gradients: list[Tensor], rows: list[int]) -> Tensor:
    return torch.stack([n * g for g, n in zip(gradients, rows, strict=True)]).sum(0)


batch_gradient = Exercise(
    "batch_gradient",
    chapter=28,
    title="the gradient of a whole batch from its shares",
    reference=lambda gradients, rows: _weighted(gradients, rows) / sum(rows),
    cases=_gradients,
    verified="four batches, dealt out to two to five processes in shares that are not equally long.",
    points=2,
    mistakes=[
        Mistake(
            "every share counts the same",
            "you took the mean over the processes. It is right for shares that are equally long. Here a row of a short "
            "share counts more than one of a long share: weigh each gradient by its rows.",
            lambda gradients, rows: torch.stack(gradients).mean(0),
        ),
        Mistake(
            "sum",
            "you summed gradients of means. The result is too large by the number of processes.",
            lambda gradients, rows: torch.stack(gradients).sum(0),
        ),
        Mistake(
            "divided twice",
            "you divided twice: by the rows of the batch, and by the number of processes again.",
            lambda gradients, rows: _weighted(gradients, rows) / sum(rows) / len(rows),
        ),
        Mistake(
            "the sum divided by the rows",
            "you divided the sum of the gradients by the rows of the batch. Each gradient is a mean already: multiply "
            "it by its own rows first.",
            lambda gradients, rows: torch.stack(gradients).sum(0) / sum(rows),
        ),
        Mistake(
            "divided by processes",
            "you weighed each gradient by its rows and divided by the number of processes. Divide by all rows.",
            lambda gradients, rows: _weighted(gradients, rows) / len(rows),
        ),
        Mistake(
            "not divided",
            "this is the gradient of the sum of all losses. Divide by the rows of the batch.",
            _weighted,
        ),
        Mistake(
            "divided by its own rows",
            "you divided each gradient by its own rows. It is a mean already: multiply.",
            lambda gradients, rows: torch.stack([g / n for g, n in zip(gradients, rows, strict=True)]).sum(0),
        ),
    ],
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


all_reduce_bytes = Exercise(
    "all_reduce_bytes",
    chapter=28,
    title="the bytes that a process sends for an all-reduce",
    reference=_ring,
    cases=_messages,
    verified="five messages, among two to sixteen processes.",
    mistakes=[
        Mistake(
            "one round",
            "you counted one round. In the first the parts are summed; a second one hands the sums to everybody.",
            lambda num_numbers, num_ranks, bytes_per_number: _ring(num_numbers, num_ranks, bytes_per_number) // 2,
        ),
        Mistake(
            "whole messages",
            "you send the whole message in each step, or count what all processes send together. In a step of the ring "
            "a process sends one of n parts.",
            lambda num_numbers, num_ranks, bytes_per_number: 2 * (num_ranks - 1) * num_numbers * bytes_per_number,
        ),
        Mistake(
            "to everybody once",
            "you send the message to everybody. That is a sum, too, but each process then sends n - 1 messages. In a "
            "ring it sends less than two.",
            lambda num_numbers, num_ranks, bytes_per_number: (num_ranks - 1) * num_numbers * bytes_per_number,
        ),
        Mistake(
            "n steps",
            "you counted n steps in a round. After n - 1 steps every part has met every process.",
            lambda num_numbers, num_ranks, bytes_per_number: 2 * num_numbers * bytes_per_number,
        ),
        Mistake(
            "sent and received",
            "you counted what is sent and what is received. Count what one process sends.",
            lambda num_numbers, num_ranks, bytes_per_number: 2 * _ring(num_numbers, num_ranks, bytes_per_number),
        ),
        Mistake(
            "numbers for bytes",
            "these are numbers. Each of them has several bytes.",
            lambda num_numbers, num_ranks, bytes_per_number: _ring(num_numbers, num_ranks, 1),
        ),
    ],
)
