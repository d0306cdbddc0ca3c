"""Which rows, columns and keys a process holds, and what the one sum makes of the parts.

The gradient of a batch that is dealt out, and what a sum over the processes sends.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor

from ._exercise import Case
from ._inputs import apart, draw, own_sizes
from ._markdown import exercises_of

exercise = exercises_of(globals())


def _shares(rng: random.Random) -> Iterator[Case]:
    """Heads of which a process has two or more, or they could not be dealt out in a wrong order."""
    drawn = apart(rng, 4, smallest=3, of=lambda n, each, d, D: [n, each, d, D, n * each, n * each * d])
    ranks = (1, -1, 1)  # neither the first nor the last, the last, and again
    several = [(n * each, d, n, D, rank % n) for (n, each, d, D), rank in zip(drawn, ranks, strict=True)]
    for num_heads, head_dim, num_ranks, num_hiddens, rank in ((4, 3, 2, 5, 1), *several):
        yield {
            "W_q": draw(rng, num_heads * head_dim, num_hiddens),
            "W_o": draw(rng, num_hiddens, num_heads * head_dim),
            "num_heads": num_heads,
            "num_ranks": num_ranks,
            "rank": rank,
        }


def _own(rows: Tensor, num_ranks: int, rank: int) -> Tensor:
    """A process's neighbours among the rows."""
    each = len(rows) // num_ranks
    return rows[rank * each : (rank + 1) * each]


def _dealt(rows: Tensor, num_heads: int, num_ranks: int, rank: int) -> Tensor:
    """Heads dealt out like cards."""
    return rows.unflatten(0, (num_heads, -1))[rank::num_ranks].flatten(0, 1)


own_weights = exercise(
    "own_weights",
    reference=lambda W_q, W_o, num_heads, num_ranks, rank: (_own(W_q, num_ranks, rank), _own(W_o.T, num_ranks, rank).T),
    cases=_shares,
)


def _found(rng: random.Random) -> Iterator[Case]:
    """What the heads of each process found, and the columns of W_o that it holds."""
    for num_ranks, num_tokens, width, num_hiddens in ([2, 3, 4, 5], *apart(rng, 4)):
        yield {
            "found": [draw(rng, num_tokens, width) for _ in range(num_ranks)],
            "columns": [draw(rng, num_hiddens, width) for _ in range(num_ranks)],
            "bias": 3 + draw(rng, num_hiddens),
        }


def _sent(found: list[Tensor], columns: list[Tensor]) -> Tensor:
    """(n, N, D): the summands."""
    return torch.stack([x @ w.T for x, w in zip(found, columns, strict=True)])


summed_output = exercise(
    "summed_output",
    reference=lambda found, columns, bias: _sent(found, columns).sum(0) + bias,
    cases=_found,
)


@own_sizes("fewer keys than processes, more, and as many: the sizes are chosen by hand, in whole groups")
def _groups(rng: random.Random) -> Iterator[Case]:
    """Fewer keys than processes, then more, then as many; no process 0, which is right by many rules."""
    yield {"num_heads": 8, "num_kv_heads": 2, "num_ranks": 4, "rank": 1}
    yield {"num_heads": 12, "num_kv_heads": 6, "num_ranks": 3, "rank": rng.choice((1, 2))}
    for num_heads, num_kv_heads, num_ranks, ranks in (
        (24, 3, 12, (4, 7, 11)),
        (16, 2, 8, (3, 5, 6)),
        (8, 4, 4, (1, 3)),
    ):
        yield {
            "num_heads": num_heads,
            "num_kv_heads": num_kv_heads,
            "num_ranks": num_ranks,
            "rank": rng.choice(ranks),
        }


def _own_keys(num_heads: int, num_kv_heads: int, num_ranks: int, rank: int) -> list[int]:
    each = num_heads // num_ranks
    return sorted({head * num_kv_heads // num_heads for head in range(rank * each, (rank + 1) * each)})


own_keys = exercise(
    "own_keys",
    reference=_own_keys,
    cases=_groups,
)


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
