"""Chapter 28: which rows, columns and keys a process holds, and what the one sum makes of the parts."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor

from ._exercise import Case, Exercise, Mistake
from ._inputs import apart, draw, own_sizes

Parts = tuple[Tensor, Tensor]


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


own_weights = Exercise(
    "own_weights",
    chapter=28,
    title="the weights that a process holds",
    reference=lambda W_q, W_o, num_heads, num_ranks, rank: (_own(W_q, num_ranks, rank), _own(W_o.T, num_ranks, rank).T),
    cases=_shares,
    parts=("rows of W_q", "columns of W_o"),
    verified="four layers on two to four processes; neighbouring heads, rows of W_q, columns of W_o.",
    mistakes=[
        Mistake(
            "rows of W_o",
            "you took rows of W_o. A row of W_o belongs to one number of the output, and reads all heads. What belongs "
            "to a head are columns.",
            lambda W_q, W_o, num_heads, num_ranks, rank: (
                _own(W_q, num_ranks, rank),
                W_o[rank * len(W_o) // num_ranks : (rank + 1) * len(W_o) // num_ranks],
            ),
        ),
        Mistake(
            "columns of W_q",
            "you took columns of W_q. They belong to numbers of the input, which every head reads. What belongs to a "
            "head are rows.",
            lambda W_q, W_o, num_heads, num_ranks, rank: (
                W_q[:, rank * W_q.shape[1] // num_ranks : (rank + 1) * W_q.shape[1] // num_ranks],
                _own(W_o.T, num_ranks, rank).T,
            ),
        ),
        Mistake(
            "heads dealt out",
            "your process holds every other head, as if heads were dealt out like cards. The sum is the same, but "
            "heads that share a key come apart. Give a process neighbours.",
            lambda W_q, W_o, num_heads, num_ranks, rank: (
                _dealt(W_q, num_heads, num_ranks, rank),
                _dealt(W_o.T, num_heads, num_ranks, rank).T,
            ),
        ),
        Mistake(
            "heads of W_q dealt out",
            "the rows of W_q are those of heads dealt out like cards, the columns of W_o those of neighbours. What a "
            "head finds then meets the columns of another head.",
            lambda W_q, W_o, num_heads, num_ranks, rank: (
                _dealt(W_q, num_heads, num_ranks, rank),
                _own(W_o.T, num_ranks, rank).T,
            ),
        ),
        Mistake(
            "rows dealt out",
            "you dealt out rows, not heads: each process gets a part of every head, and no score is whole.",
            lambda W_q, W_o, num_heads, num_ranks, rank: (W_q[rank::num_ranks], W_o[:, rank::num_ranks]),
        ),
        Mistake(
            "one head",
            "your process holds one head, that of its own number. With fewer processes than heads it holds several.",
            lambda W_q, W_o, num_heads, num_ranks, rank: (
                _own(W_q, num_heads, rank),
                _own(W_o.T, num_heads, rank).T,
            ),
        ),
        Mistake(
            "counted from 1",
            "processes are counted from 0: yours holds the heads of the process before it.",
            lambda W_q, W_o, num_heads, num_ranks, rank: (
                _own(W_q, num_ranks, rank - 1),
                _own(W_o.T, num_ranks, rank - 1).T,
            ),
        ),
    ],
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


summed_output = Exercise(
    "summed_output",
    chapter=28,
    given="bias on every process",
    title="the sum over the processes",
    reference=lambda found, columns, bias: _sent(found, columns).sum(0) + bias,
    cases=_found,
    verified="four layers on two to five processes; one bias, however many processes there are.",
    mistakes=[
        Mistake(
            "bias on every process",
            "each process adds the bias before the sum, so the output holds it once for each process. Add it after "
            "the sum, or on one process alone.",
            lambda found, columns, bias: (_sent(found, columns) + bias).sum(0),
        ),
        Mistake(
            "no sum",
            "you returned what the first process has. It lacks what the heads of the others found: sum over the "
            "processes.",
            lambda found, columns, bias: _sent(found, columns)[0] + bias,
        ),
        Mistake(
            "mean",
            "you took the mean over the processes. Gradients of batches are averaged; outputs of heads are summed.",
            lambda found, columns, bias: _sent(found, columns).mean(0) + bias,
        ),
        Mistake(
            "no bias",
            "the bias is missing.",
            lambda found, columns, bias: _sent(found, columns).sum(0),
        ),
        Mistake(
            "part of the bias",
            "you added the n-th part of the bias once. Add the n-th part on each process, or all of it after the sum.",
            lambda found, columns, bias: _sent(found, columns).sum(0) + bias / len(found),
        ),
        Mistake(
            "summed before W_o",
            "you summed what the processes found, and then multiplied. Each process has other columns of W_o: multiply "
            "first.",
            lambda found, columns, bias: torch.stack(found).sum(0) @ torch.stack(columns).sum(0).T + bias,
        ),
        Mistake(
            "one process's columns",
            "you multiplied everything by the columns of the first process. Each process has its own.",
            lambda found, columns, bias: sum(x @ columns[0].T for x in found) + bias,
        ),
    ],
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


own_keys = Exercise(
    "own_keys",
    chapter=28,
    title="the keys that a process needs",
    reference=_own_keys,
    cases=_groups,
    verified="five layers, with fewer keys than processes, as many, and more.",
    points=2,
    mistakes=[
        Mistake(
            "no copies",
            "you dealt out the keys without copies, so that some processes have none. With more processes than keys, "
            "neighbours hold a copy of the same one.",
            lambda num_heads, num_kv_heads, num_ranks, rank: [
                key
                for key in range(num_kv_heads)
                if rank * max(1, num_kv_heads // num_ranks) <= key < (rank + 1) * max(1, num_kv_heads // num_ranks)
            ],
        ),
        Mistake(
            "copies by turns",
            "with more processes than keys you give copies by turns, 0, 1, 0, 1. The heads of a group are neighbours: "
            "0, 0, 1, 1.",
            lambda num_heads, num_kv_heads, num_ranks, rank: (
                [rank % num_kv_heads]
                if num_ranks > num_kv_heads
                else _own_keys(num_heads, num_kv_heads, num_ranks, rank)
            ),
        ),
        Mistake(
            "dealt out",
            "your process takes every n-th key. Its heads are neighbours, and so are the keys that they use.",
            lambda num_heads, num_kv_heads, num_ranks, rank: [
                key for key in range(num_kv_heads) if key % num_ranks == rank % num_kv_heads % num_ranks
            ],
        ),
        Mistake(
            "all keys",
            "your process holds all keys. It needs only those that its own heads use.",
            lambda num_heads, num_kv_heads, num_ranks, rank: list(range(num_kv_heads)),
        ),
        Mistake(
            "heads for keys",
            "these are the numbers of the process's heads. Several heads share a key: head i uses key i g / h, rounded "
            "down.",
            lambda num_heads, num_kv_heads, num_ranks, rank: list(
                range(rank * num_heads // num_ranks, (rank + 1) * num_heads // num_ranks)
            ),
        ),
        Mistake(
            "one for each head",
            "you list a key once for each head that uses it. A process holds it once.",
            lambda num_heads, num_kv_heads, num_ranks, rank: [
                head * num_kv_heads // num_heads
                for head in range(rank * num_heads // num_ranks, (rank + 1) * num_heads // num_ranks)
            ],
        ),
        Mistake(
            "one key",
            "your process holds one key. With fewer processes than keys it needs several.",
            lambda num_heads, num_kv_heads, num_ranks, rank: [rank * num_kv_heads // num_ranks],
        ),
    ],
)
