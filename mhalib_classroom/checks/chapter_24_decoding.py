"""Chapter 24: what a layer computes and moves for one new token, and how many it takes to keep a processor busy."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

from ._exercise import Case, Exercise, Mistake
from ._inputs import apart, own_sizes


def _caches(rng: random.Random) -> Iterator[Case]:
    yield {"batch_size": 4, "h": 6, "g": 2, "d": 3, "num_tokens": 5, "bytes_per_number": 2}
    drawn = apart(rng, 5, smallest=5, largest=30, of=lambda g, shared, B, d, N: [g, shared, B, d, N, g * shared])
    for width, (g, shared, batch_size, d, num_tokens) in zip((2, 4, 8), drawn, strict=True):
        sizes = {"batch_size": batch_size, "h": g * shared, "g": g, "d": d, "num_tokens": num_tokens}
        yield {**sizes, "bytes_per_number": width}


def _decoded(
    batch_size: int,
    h: int,
    g: int,
    d: int,
    num_tokens: int,
    bytes_per_number: int,
    *,
    queries: int = 1,
    q: int = 1,
    k: float = 1,
    s: int = 1,
) -> tuple[int, int]:
    """FLOPs and bytes where `queries` tokens ask; q, k and s: how often queries, keys and scores are moved."""
    pairs = batch_size * h * queries * num_tokens
    numbers = q * batch_size * h * queries * d + k * batch_size * g * num_tokens * d + s * pairs
    return 2 * pairs * d, round(bytes_per_number * numbers)


decoding_scores = Exercise(
    "decoding_scores",
    chapter=24,
    title="what the scores of one new token cost",
    reference=lambda batch_size, h, g, d, num_tokens, bytes_per_number: _decoded(
        batch_size, h, g, d, num_tokens, bytes_per_number
    ),
    cases=_caches,
    verified="four layers whose heads share keys, in numbers of 2 and 4 bytes.",
    points=2,
    parts=("flops", "moved"),
    mistakes=[
        Mistake(
            "every token asks",
            "you let all tokens ask, as for a prompt. When a model writes, one token asks: there is one row of scores "
            "for each head, not num_tokens of them.",
            lambda *sizes: _decoded(*sizes, queries=sizes[4]),
        ),
        Mistake(
            "no factor 2",
            "you counted each multiplication together with its addition as one operation. They are two FLOPs.",
            lambda *sizes: (_decoded(*sizes)[0] // 2, _decoded(*sizes)[1]),
        ),
        Mistake(
            "numbers for bytes",
            "you counted numbers moved. Each has `bytes_per_number` bytes.",
            lambda *sizes: (_decoded(*sizes)[0], _decoded(*sizes)[1] // sizes[5]),
        ),
        Mistake(
            "keys of each head",
            "you read a key for each head. Heads that share keys read the same ones, g of them for each token.",
            lambda *sizes: _decoded(*sizes, k=sizes[1] / sizes[2]),
        ),
        Mistake(
            "FLOPs of shared heads",
            "you counted the FLOPs of g heads. Heads share keys, but each of the h heads has a query of its own to "
            "multiply by them.",
            lambda *sizes: (_decoded(*sizes)[0] * sizes[2] // sizes[1], _decoded(*sizes)[1]),
        ),
        Mistake(
            "one cache for the batch",
            "you read one cache. Every example of the batch has its own keys.",
            lambda *sizes: _decoded(*sizes, k=1 / sizes[0]),
        ),
        Mistake(
            "values, too",
            "you read keys and values. The scores need the keys alone; the average reads the values.",
            lambda *sizes: _decoded(*sizes, k=2),
        ),
        Mistake(
            "keys not read",
            "the keys are missing from the bytes. They are nearly all that this step reads.",
            lambda *sizes: _decoded(*sizes, k=0),
        ),
        Mistake(
            "scores not written",
            "you counted what is read. The scores have to be written, too.",
            lambda *sizes: _decoded(*sizes, s=0),
        ),
        Mistake(
            "queries not read",
            "the queries, d numbers for each head, are missing from the bytes.",
            lambda *sizes: _decoded(*sizes, q=0),
        ),
        Mistake(
            "one example",
            "you counted one example. There are `batch_size` of them.",
            lambda batch_size, *sizes: _decoded(1, *sizes),
        ),
        Mistake(
            "exchanged",
            "you returned the bytes first. FLOPs come first.",
            lambda *sizes: _decoded(*sizes)[::-1],
        ),
    ],
)


@own_sizes("numbers have 2 or 4 bytes", "bytes_per_number")
def _machines(rng: random.Random) -> Iterator[Case]:
    """Ridges far from 0 and from what the width allows, none of them met exactly; and two that no batch reaches,
    the second by nothing."""
    yield {"num_hiddens": 100, "bytes_per_number": 4, "ridge": 10}
    yield {"num_hiddens": 4 * rng.randint(16, 20), "bytes_per_number": 2, "ridge": rng.randint(45, 60)}
    yield {"num_hiddens": 246, "bytes_per_number": 2, "ridge": 123}
    for width in (4, 2):
        ridge = rng.randint(30, 60)
        num_hiddens = round(width * ridge * rng.uniform(2.2, 2.8))
        while width * ridge * num_hiddens % (num_hiddens - width * ridge) == 0:
            num_hiddens += 1
        yield {"num_hiddens": num_hiddens, "bytes_per_number": width, "ridge": ridge}


def _batch(num_hiddens: int, needed: float, activations: int = 2) -> float | None:
    """B where 2 / (1 / B + activations / D) is `needed`: the ridge times the bytes of a number."""
    left = 2 / needed - activations / num_hiddens
    return 1 / left if left > 0 else None


def _up(batch: float | None) -> int | None:
    return None if batch is None else math.ceil(batch)


batch_to_fill = Exercise(
    "batch_to_fill",
    chapter=24,
    title="how many must write at once",
    reference=lambda num_hiddens, bytes_per_number, ridge: _up(_batch(num_hiddens, bytes_per_number * ridge)),
    cases=_machines,
    verified="four machines, on one of which no batch is large enough.",
    points=3,
    mistakes=[
        Mistake(
            "weights alone",
            "you counted the bytes of W alone. The inputs and the results are read and written, too, and there are "
            "more of them in a larger batch.",
            lambda num_hiddens, bytes_per_number, ridge: math.ceil(bytes_per_number * ridge / 2),
        ),
        Mistake(
            "result not written",
            "the results, batch times D numbers, are missing from the bytes.",
            lambda num_hiddens, bytes_per_number, ridge: _up(_batch(num_hiddens, bytes_per_number * ridge, 1)),
        ),
        Mistake(
            "no factor 2",
            "you counted each multiplication together with its addition as one operation. They are two FLOPs.",
            lambda num_hiddens, bytes_per_number, ridge: _up(_batch(num_hiddens, 2 * bytes_per_number * ridge)),
        ),
        Mistake(
            "numbers for bytes",
            "you counted numbers. Each has `bytes_per_number` bytes.",
            lambda num_hiddens, bytes_per_number, ridge: _up(_batch(num_hiddens, ridge)),
        ),
        Mistake(
            "rounded down",
            "you rounded down. With one example fewer than needed, the step still waits for memory: round up.",
            lambda num_hiddens, bytes_per_number, ridge: (
                None if (found := _batch(num_hiddens, bytes_per_number * ridge)) is None else int(found)
            ),
        ),
        Mistake(
            "not rounded",
            "your batch is not whole. Round up.",
            lambda num_hiddens, bytes_per_number, ridge: _batch(num_hiddens, bytes_per_number * ridge),
        ),
        Mistake(
            "no way out",
            "you returned a number where no batch is large enough. However many examples there are, each moves 2 D "
            "numbers for 2 D² FLOPs. If that alone is too much, return None.",
            lambda num_hiddens, bytes_per_number, ridge: math.ceil(
                1 / (2 / (bytes_per_number * ridge) - 2 / num_hiddens)
            ),
        ),
    ],
)
