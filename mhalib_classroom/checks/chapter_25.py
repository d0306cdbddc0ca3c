"""Chapter 25: what a step reads, a room that grows, and pages."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor

from ._exercise import Case
from ._inputs import apart, draw, own_sizes
from ._markdown import exercises_of

exercise = exercises_of(globals())


_NAMES = "num_weights num_layers num_heads num_kv_heads head_dim num_tokens batch_size bytes_per_number".split()


@own_sizes("numbers have 1, 2 or 8 bytes", "bytes_per_number")
def _models(rng: random.Random) -> Iterator[Case]:
    yield dict(zip(_NAMES, (1000, 2, 6, 3, 5, 10, 4, 2), strict=True))
    drawn = apart(
        rng, 6, smallest=3, largest=20, of=lambda layers, g, shared, d, N, B: [layers, g, d, B, g * shared, 100 * N]
    )
    for num_bytes, (num_layers, g, shared, d, hundreds, batch_size) in zip((1, 2, 8), drawn, strict=True):
        numbers = (num_layers, g * shared, g, d, 100 * hundreds, batch_size, num_bytes)
        yield dict(zip(_NAMES, (rng.randint(10**5, 10**6), *numbers), strict=True))


def _read(
    num_weights: int, num_layers: int, h: int, g: int, d: int, num_tokens: int, batch_size: int, num_bytes: int
) -> int:
    return (num_weights + 2 * batch_size * num_tokens * num_layers * g * d) * num_bytes


step_bytes = exercise(
    "step_bytes",
    reference=_read,
    cases=_models,
)


def _rooms(rng: random.Random) -> Iterator[Case]:
    """Room left, a full room, and one that is too small even when it is doubled; then two of them with other sizes."""
    yield {"room": torch.tensor([[[[1.0], [2.0], [0.0]]]]), "length": 2, "k": torch.tensor([[[[3.0]]]])}
    kinds = ((5, 4, 2), (rng.choice((6, 7)), 0, 1), (4, 1, 17), (9, 1, 4))
    for (length, free, new), drawn in zip(kinds, apart(rng, 3, 4, smallest=11, largest=14), strict=True):
        batch_size, num_heads, head_dim = drawn
        room = draw(rng, batch_size, num_heads, length + free, head_dim)
        room[:, :, length:] = 0.0
        yield {"room": room, "length": length, "k": draw(rng, batch_size, num_heads, new, head_dim)}


def _moved(room: Tensor, length: int, k: Tensor, size: int) -> Tensor:
    new = k.new_zeros(*room.shape[:2], max(size, length + k.shape[2]), room.shape[3])
    new[:, :, :length] = room[:, :, :length]
    new[:, :, length : length + k.shape[2]] = k
    return new


def _grown(room: Tensor, length: int, k: Tensor) -> Tensor:
    fits = length + k.shape[2] <= room.shape[2]
    return _moved(room, length, k, room.shape[2] if fits else 2 * room.shape[2])


def _lost(room: Tensor, length: int, k: Tensor) -> Tensor:
    new = _grown(room, length, k)
    if new.shape[2] != room.shape[2]:
        new[:, :, :length] = 0.0
    return new


def _at_the_front(room: Tensor, length: int, k: Tensor) -> Tensor:
    new = _grown(room, length, k)
    new[:, :, length : length + k.shape[2]] = 0.0
    new[:, :, : k.shape[2]] = k
    return new


grown = exercise(
    "grown",
    reference=_grown,
    cases=_rooms,
)


def _pools(rng: random.Random) -> Iterator[Case]:
    """The last page partly full, once in a while completely; the table is never in the order of the memory."""
    first = torch.arange(8.0).reshape(4, 1, 2, 1)
    yield {"pages": first, "table": [2, 0], "length": 3}
    drawn = apart(rng, 5, smallest=3, largest=9, of=lambda h, page, d, own, more: [h, page, d, own, own + more])
    for spare, (num_heads, page, head_dim, own, more) in zip((1, 0, 2), drawn, strict=True):
        table = rng.sample(range(1, own + more), own)
        while table == sorted(table) or table[::-1] == sorted(table):
            rng.shuffle(table)
        yield {
            "pages": draw(rng, own + more, num_heads, page, head_dim),
            "table": table,
            "length": own * page - spare,
        }


def _text(pages: Tensor, table: list[int], length: int) -> Tensor:
    return pages[table].transpose(0, 1).flatten(1, 2)[:, :length]


read_pages = exercise(
    "read_pages",
    reference=_text,
    cases=_pools,
)
