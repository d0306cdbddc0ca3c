"""What a step reads, a room that grows, and pages.

Keys in eight bits, and keys that are turned once.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from mhalib.attention import rotate

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


def _keys(rng: random.Random) -> Iterator[Case]:
    """Tokens and heads of different sizes, and the largest number of a key often negative."""
    yield {"k": torch.tensor([[[[1.0, -2.54], [0.5, 0.2]]]])}
    for drawn in apart(rng, 4, largest=8):
        k = draw(rng, *drawn)
        for axis in range(3):
            shape = [1] * 4
            shape[axis] = k.shape[axis]
            k = k * (2.0 ** (torch.arange(k.shape[axis]) % 3)).view(shape)
        yield {"k": k - 0.3 * k.abs().amax(-1, keepdim=True)}


def _rounded(
    k: Tensor,
    *,
    dims: int | tuple[int, ...] = -1,
    most: float = 127,
    size: Callable[[Tensor], Tensor] = torch.abs,
    whole: Callable[[Tensor], Tensor] = torch.round,
    told: Callable[[Tensor], Tensor] = lambda scales: scales,
) -> tuple[Tensor, Tensor]:
    scales = size(k).amax(dims, keepdim=True) / most
    codes = whole(k / scales)
    return (codes if size is torch.abs else codes.clamp(-127, 127)).to(torch.int8), told(scales)


rounded_keys = exercise(
    "rounded_keys",
    reference=_rounded,
    cases=_keys,
    switches=_rounded,
)


def _steps(rng: random.Random) -> Iterator[Case]:
    """Several new tokens, one, and several behind few."""
    one = torch.tensor([[[[1.0, 0.0]]]])
    yield {"q": one, "k": torch.tensor([[[[0.0, 1.0]]]]), "held": torch.cat([one, one], 2)}
    lengths = ((2, 7, 4), (1, 9, 8), (3, 5, 16))
    for (num_new, num_held, head_dim), drawn in zip(lengths, apart(rng, 2, smallest=11, largest=15), strict=True):
        batch_size, num_heads = drawn
        q, k = (draw(rng, batch_size, num_heads, num_new, head_dim) for _ in range(2))
        yield {"q": q, "k": k, "held": draw(rng, batch_size, num_heads, num_held, head_dim)}


def _scores(
    q: Tensor, k: Tensor, held: Tensor, *, query: int | None = None, key: int | None = None, old: bool = False
) -> Tensor:
    start = held.shape[2]
    if old:
        held = rotate(held)
    keys = torch.cat([held, rotate(k, start=start if key is None else key)], 2)
    return rotate(q, start=start if query is None else query) @ keys.mT


mended_rotary_step = exercise(
    "mended_rotary_step",
    reference=_scores,
    cases=_steps,
    switches=_scores,
)
