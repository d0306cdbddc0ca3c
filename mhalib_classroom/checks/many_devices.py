"""Which rows, columns and keys a process holds, and what the one sum makes of the parts.

Copies of keys, tokens' vectors, heads that are exchanged, a batch that is dealt out, and what a sum sends.
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
        (24, 3, 12, (4, 10, 11)),
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


@own_sizes("fewer keys than processes, more, and as many: the sizes are chosen by hand, in whole copies")
def _copies(rng: random.Random) -> Iterator[Case]:
    """Fewer keys than processes, then more, then as many."""
    for (num_hiddens, head_dim), (num_kv_heads, num_ranks) in zip(
        ([3, 2], *apart(rng, 2, 4)), ((2, 4), (6, 3), (3, 12), (2, 8), (5, 5)), strict=True
    ):
        rows = max(1, num_kv_heads // num_ranks) * head_dim
        yield {"gradients": draw(rng, num_ranks, rows, num_hiddens), "num_kv_heads": num_kv_heads}


def _by_copies(gradients: Tensor, num_kv_heads: int) -> Tensor:
    """(g or G, copies of a key, rows, D)."""
    return gradients.unflatten(0, (-1, max(1, len(gradients) // num_kv_heads)))


key_gradient = exercise(
    "key_gradient",
    reference=lambda gradients, num_kv_heads: _by_copies(gradients, num_kv_heads).sum(1).flatten(0, 1),
    cases=_copies,
)


def _held_tokens(rng: random.Random) -> Iterator[Case]:
    """What each of G processes has of its own tokens: all heads, of which a process gets two or more."""
    drawn = apart(rng, 4, smallest=3, of=lambda G, each, n, d: [G, each, n, d, G * each, G * n])
    for num_ranks, each, num_tokens, head_dim in ([2, 2, 3, 1], *drawn):
        yield {"x": draw(rng, num_ranks, num_ranks * each, num_tokens, head_dim)}


def _pieces(x: Tensor) -> Tensor:
    """(G, h, N / G, d) -> (G, G, h / G, N / G, d): from, to."""
    return x.unflatten(1, (len(x), -1))


all_to_all = exercise(
    "all_to_all",
    reference=lambda x: _pieces(x).permute(1, 2, 0, 3, 4).flatten(2, 3),
    cases=_held_tokens,
)


def _text(rng: random.Random) -> Iterator[Case]:
    """Texts of pieces that are longer than one token; the process is neither the first nor in the middle."""
    yield {"x": draw(rng, 8, 3), "num_ranks": 2, "rank": 1}
    drawn = apart(rng, 3, smallest=3, of=lambda n, length, D: [n, length, D, 2 * n * length])
    for num_ranks, length, num_hiddens in drawn:
        yield {"x": draw(rng, 2 * num_ranks * length, num_hiddens), "num_ranks": num_ranks, "rank": num_ranks - 2}


def _two_pieces(x: Tensor, first: int, second: int) -> Tensor:
    return torch.cat([x[first], x[second]])


zigzag_rows = exercise(
    "zigzag_rows",
    reference=lambda x, num_ranks, rank: _two_pieces(x.unflatten(0, (2 * num_ranks, -1)), rank, -1 - rank),
    cases=_text,
)


def _choices(rng: random.Random) -> Iterator[Case]:
    """Each expert is chosen twice or more, in no order; process 0 never is the one that is asked for."""
    drawn = apart(rng, 3, of=lambda n, each, D: [n, each, D, n * each, 2 * n * each + 5])
    for num_ranks, each, num_hiddens in ([2, 2, 3], *drawn):
        chosen = 2 * list(range(num_ranks * each)) + [rng.randrange(num_ranks * each) for _ in range(5)]
        rng.shuffle(chosen)
        yield {
            "x": draw(rng, len(chosen), num_hiddens),
            "chosen": torch.tensor(chosen),
            "num_experts": num_ranks * each,
            "num_ranks": num_ranks,
            "to": rng.randrange(1, num_ranks),
        }


def _for_process(x: Tensor, chosen: Tensor, to: int, owner: Tensor, *, is_sorted: bool = True) -> Tensor:
    order = chosen.argsort(stable=True) if is_sorted else torch.arange(len(chosen))
    return x[order[owner[order] == to]]


sent_to = exercise(
    "sent_to",
    reference=lambda x, chosen, num_experts, num_ranks, to: _for_process(
        x, chosen, to, chosen // (num_experts // num_ranks)
    ),
    cases=_choices,
)


def _words(rng: random.Random) -> Iterator[Case]:
    """Tokens of every process, among them the first and the last of its own, and its neighbours'."""
    yield {"ids": torch.tensor([0, 3, 5, 2]), "rows": draw(rng, 3, 2), "rank": 1}
    drawn = apart(rng, 4, of=lambda rows, D, rank, more: [rows, D, rank, 7 + more])
    for num_rows, num_hiddens, rank, more in drawn:
        first = rank * num_rows
        ids = [first, first + num_rows - 1, first - 1, first + num_rows, first + num_rows // 2, 0, 9 * num_rows]
        ids += [rng.randrange(first + 2 * num_rows) for _ in range(more)]
        rng.shuffle(ids)
        yield {"ids": torch.tensor(ids), "rows": draw(rng, num_rows, num_hiddens), "rank": rank}


def _looked_up(ids: Tensor, rows: Tensor, rank: int, *, end: int = 0, shift: int = 0, masked: bool = True) -> Tensor:
    own = ids - (rank + shift) * len(rows)
    mine = (own >= 0) & (own < len(rows) + end) if masked else torch.ones_like(ids, dtype=torch.bool)
    return rows[own.clamp(0, len(rows) - 1)] * mine[:, None]


added_vectors = exercise(
    "added_vectors",
    reference=lambda ids, rows, rank: _looked_up(ids, rows, rank),
    cases=_words,
    switches=_looked_up,
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


def _pipelines(rng: random.Random) -> Iterator[Case]:
    """The slowest stage is neither the first nor the last; in the last pipeline all are equal."""
    yield {"times": [1, 3, 2], "parts": 2}
    *pipelines, (equal, parts) = apart(rng, 2, 4, smallest=3, largest=9)
    for stages, num_parts in pipelines:
        times = [rng.randint(1, 5) for _ in range(stages)]
        times[rng.randrange(1, stages - 1)] = rng.randint(7, 9)
        yield {"times": times, "parts": num_parts}
    yield {"times": [rng.randint(2, 9)] * equal, "parts": parts}


def _idle(times: list[int], parts: int, total: float) -> float:
    return 1 - parts * sum(times) / (len(times) * total)


idle_share = exercise(
    "idle_share",
    reference=lambda times, parts: _idle(times, parts, sum(times) + (parts - 1) * max(times)),
    cases=_pipelines,
)
