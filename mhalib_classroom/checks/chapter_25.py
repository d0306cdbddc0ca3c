"""Chapter 25: what a step reads, a room that grows, and pages."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor

from ._exercise import Case, Exercise, Mistake
from ._inputs import apart, draw, own_sizes

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


step_bytes = Exercise(
    "step_bytes",
    chapter=25,
    title="count what a step reads",
    reference=_read,
    cases=_models,
    verified="four models and batches: the weights once, and the keys and values of every text.",
    mistakes=[
        Mistake(
            "every head",
            "you counted keys and values for all h heads. Heads that share a key read the same one: only "
            "`num_kv_heads` are stored.",
            lambda w, layers, h, g, d, n, b, num_bytes: _read(w, layers, h, h, d, n, b, num_bytes),
        ),
        Mistake(
            "a group's heads",
            "you counted h / g keys and values in a layer. That is how many heads share one; there are g.",
            lambda w, layers, h, g, d, n, b, num_bytes: _read(w, layers, h, h // g, d, n, b, num_bytes),
        ),
        Mistake(
            "one shared head",
            "you counted one key and one value in a layer, as in multi-query attention. Here there are `num_kv_heads`.",
            lambda w, layers, h, g, d, n, b, num_bytes: _read(w, layers, h, 1, d, n, b, num_bytes),
        ),
        Mistake(
            "weights for each text",
            "you counted the weights once for each text. All texts of a batch are multiplied by them in one go: a step "
            "reads the weights once. That is what a batch is for.",
            lambda w, layers, h, g, d, n, b, num_bytes: b * _read(w, layers, h, g, d, n, 1, num_bytes),
        ),
        Mistake(
            "one text's cache",
            "you counted the cache of one text. Each text of the batch has keys and values of its own.",
            lambda w, layers, h, g, d, n, b, num_bytes: _read(w, layers, h, g, d, n, 1, num_bytes),
        ),
        Mistake(
            "keys only",
            "you counted keys and no values. Each key has a value beside it.",
            lambda w, layers, h, g, d, n, b, num_bytes: (w + b * n * layers * g * d) * num_bytes,
        ),
        Mistake(
            "one layer's cache",
            "you counted the cache of one layer. Each layer has one.",
            lambda w, layers, h, g, d, n, b, num_bytes: _read(w, 1, h, g, d, n, b, num_bytes),
        ),
        Mistake(
            "weights of each layer",
            "you multiplied the weights by the number of layers. `num_weights` counts those of all layers together.",
            lambda w, layers, h, g, d, n, b, num_bytes: _read(w * layers, layers, h, g, d, n, b, num_bytes),
        ),
        Mistake(
            "one token",
            "you counted what one token leaves. A step reads the keys and values of all `num_tokens`.",
            lambda w, layers, h, g, d, n, b, num_bytes: _read(w, layers, h, g, d, 1, b, num_bytes),
        ),
        Mistake(
            "cache alone",
            "you counted the caches alone. A step also reads all weights.",
            lambda w, layers, h, g, d, n, b, num_bytes: _read(0, layers, h, g, d, n, b, num_bytes),
        ),
        Mistake(
            "weights alone",
            "you counted the weights alone. A step also reads the keys and values of all texts.",
            lambda w, layers, h, g, d, n, b, num_bytes: w * num_bytes,
        ),
        Mistake(
            "numbers, not bytes",
            "these are numbers, not bytes. Each has `bytes_per_number` bytes.",
            lambda w, layers, h, g, d, n, b, num_bytes: _read(w, layers, h, g, d, n, b, 1),
        ),
        Mistake(
            "weights in numbers",
            "you counted the cache in bytes and the weights in numbers. Weights have `bytes_per_number` bytes, too.",
            lambda w, layers, h, g, d, n, b, num_bytes: w + _read(0, layers, h, g, d, n, b, num_bytes),
        ),
    ],
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


grown = Exercise(
    "grown",
    chapter=25,
    given="nothing mended",
    title="mend a room that grows",
    reference=_grown,
    cases=_rooms,
    verified="five rooms, with and without space for the new tokens: none moves while it has space.",
    points=2,
    mistakes=[
        Mistake(
            "nothing mended",
            "the room is as large as what it holds, so it is full again: every step makes a new one and copies all "
            "tokens, N (N - 1) / 2 of them for a text of N. Keep the room while the new tokens fit, and double it when "
            "they do not.",
            lambda room, length, k: torch.cat([room[:, :, :length], k], 2),
        ),
        Mistake(
            "just large enough",
            "the room grows only as much as the new tokens need, so the next step copies all tokens again. Double it.",
            lambda room, length, k: _moved(room, length, k, room.shape[2]),
        ),
        Mistake(
            "doubled each time",
            "you doubled the room although the new tokens fitted. It moves, and copies, at every step, and soon fills "
            "the memory. Move only when it is full.",
            lambda room, length, k: _moved(room, length, k, 2 * room.shape[2]),
        ),
        Mistake(
            "twice what is needed",
            "the new room has twice the size that is needed now. It should have twice the size of the old one, or what "
            "is needed, whichever is more.",
            lambda room, length, k: _moved(
                room,
                length,
                k,
                room.shape[2] if length + k.shape[2] <= room.shape[2] else 2 * (length + k.shape[2]),
            ),
        ),
        Mistake(
            "doubled until it fits",
            "you doubled the room until the new tokens fitted. Where twice the room is too small, what is needed is "
            "enough.",
            lambda room, length, k: _moved(
                room,
                length,
                k,
                next(s for s in (room.shape[2] * 2**i for i in range(9)) if s >= length + k.shape[2]),
            ),
        ),
        Mistake(
            "behind the room",
            "you put the new tokens behind the room, not behind the tokens: between them is a hole of zeros, which a "
            "query would attend to. `length` says where the free space begins.",
            lambda room, length, k: torch.cat([room, k], 2),
        ),
        Mistake(
            "old tokens lost",
            "the larger room has the new tokens, but not the old ones. Copy those, too: once, when it moves.",
            _lost,
        ),
        Mistake(
            "at the front",
            "you wrote the new tokens over the first ones. They belong behind the `length` tokens that are there.",
            _at_the_front,
        ),
    ],
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


read_pages = Exercise(
    "read_pages",
    chapter=25,
    title="read a text from its pages",
    reference=_text,
    cases=_pools,
    verified="four pools; the pages are in the order of the table, and the text ends where it ends.",
    points=2,
    mistakes=[
        Mistake(
            "first pages",
            "you read the first pages of the memory. Others' texts may be there: `table` lists this text's pages.",
            lambda pages, table, length: _text(pages, list(range(len(table))), length),
        ),
        Mistake(
            "order of the memory",
            "these are the right pages, in the order in which they are in memory. The tokens are in the order of "
            "`table`.",
            lambda pages, table, length: _text(pages, sorted(table), length),
        ),
        Mistake(
            "order reversed",
            "you read the table backwards. Its first page has the first tokens.",
            lambda pages, table, length: _text(pages, table[::-1], length),
        ),
        Mistake(
            "whole pages",
            "you kept what is behind the last token of the last page. It is left over from another text, and a query "
            "would attend to it: cut at `length`.",
            lambda pages, table, length: _text(pages, table, len(table) * pages.shape[2]),
        ),
        Mistake(
            "heads mixed",
            "you reshaped pages and heads without moving the axis of the pages first, so a head gets tokens of other "
            "heads. The shape is right: first (h, pages, page, d), then join the two in the middle.",
            lambda pages, table, length: pages[table].reshape(
                pages.shape[1], len(table) * pages.shape[2], pages.shape[3]
            )[:, :length],
        ),
        Mistake(
            "tokens of pages by turns",
            "you joined (h, page, pages, d): the first tokens of all pages come first, then the second ones. Put the "
            "axis of the pages before that of their tokens.",
            lambda pages, table, length: pages[table].permute(1, 2, 0, 3).flatten(1, 2)[:, :length],
        ),
        Mistake(
            "last page only",
            "this is the last page alone. The text is in all pages of the table.",
            lambda pages, table, length: pages[table[-1]],
        ),
    ],
)
