"""Lengths for folded heads, and reading a ledger of real layers, right and wrong.

Repairs of a layer, of a mask that means the opposite, and of the masks of folded heads.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from mhalib.attention import attend, merge_heads, padding_mask, split_heads
from mhalib.shapes import ledger

from . import the_whole_layer
from ._exercise import Case
from ._heads import merge_folded_head_first, straight_merge, straight_split
from ._inputs import apart, draw, own_sizes, sizes
from ._layer import forward, layer_inputs
from ._markdown import exercises_of

exercise = exercises_of(globals())


def _lens_and_heads(rng: random.Random) -> Iterator[Case]:
    yield {"valid_lens": torch.tensor([3, 1]), "num_heads": 3}
    for batch_size, num_heads in apart(rng, 2, of=lambda B, h: [B, h, B * h]):
        yield {"valid_lens": torch.tensor(rng.sample(range(1, 20), batch_size)), "num_heads": num_heads}


folded_lens = exercise(
    "folded_lens",
    reference=lambda valid_lens, num_heads: valid_lens.repeat_interleave(num_heads),
    cases=_lens_and_heads,
)


Steps = list[tuple[str, list[str]]]


def _turned(k: Tensor) -> Tensor:
    """(B, h, K, d) -> (B, h, d, K)."""
    return k.mT


def _reshaped(k: Tensor) -> Tensor:
    """(B, h, K, d) -> (B, h, d, K) without a transpose: wrong."""
    return k.reshape(*k.shape[:-2], k.shape[-1], k.shape[-2])


def _whole(x: Tensor) -> Tensor:
    return x


def _layer(
    num_heads: int,
    split: Callable[[Tensor, int], Tensor] = split_heads,
    merge: Callable[[Tensor], Tensor] = merge_heads,
    over: int = -1,
    folded: bool = False,
    unfolded: tuple[int, int] | None = None,
    turn: Callable[[Tensor], Tensor] = _turned,
    keys_first: bool = False,
    kept: Callable[[Tensor], Tensor] = _whole,
    kept_values: Callable[[Tensor], Tensor] = _whole,
) -> Callable[..., Tensor]:
    def layer(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        q, k, v = (kept(split(x, num_heads)) for x in (queries, keys, values))
        if folded:
            q, k, v = (x.flatten(0, 1) for x in (q, k, v))
        scores = (k @ q.mT if keys_first else q @ turn(k)) / math.sqrt(q.shape[-1])
        weights = scores.softmax(-2).mT if keys_first else scores.softmax(over)
        found = weights @ kept_values(v)
        return merge(found.unflatten(0, unfolded or (len(queries), num_heads)) if folded else found)

    return layer


@own_sizes("names of axes, not numbers; the sizes that decide how a wrong step is told are fixed")
def _ledgers(rng: random.Random) -> Iterator[Case]:
    """Of three right layers and twelve wrong ones; the sizes of some decide how a wrong step is told: Q~D, or Q:2.

    Among the wrong ones, what is wrong is in the first axes alone, in the last two, in the last, in the first.
    """
    right = [({}, None), ({"folded": True}, None), ({"keys_first": True}, None)]
    wrong = [
        ({"split": straight_split}, [2, 7, 5, 4, 3]),
        ({"merge": straight_merge}, [3, 8, 5, 4, 7]),
        ({"merge": straight_merge}, [3, 2, 5, 4, 7]),
        ({"over": -2}, None),
        ({"over": 1}, None),
        ({"over": 0}, None),
        ({"split": straight_split, "merge": straight_merge, "over": -2}, [2, 8, 6, 4, 5]),  # the last axis stays whole
        ({"merge": straight_merge, "over": -2}, [2, 7, 5, 4, 3]),
        ({"turn": _reshaped}, [2, 7, 5, 4, 3]),  # the first two axes stay whole, and Q has no part in it
        ({"folded": True, "unfolded": (3, 4)}, [4, 7, 5, 3, 8]),  # the last two stay whole
        ({"kept_values": lambda v: v[..., : v.shape[-1] // 2]}, [2, 7, 5, 3, 4]),  # all but the last
        ({"kept": lambda x: x[:3]}, [6, 7, 5, 4, 3]),  # all but the first
    ]
    for changed, fixed in (*right, *rng.sample(wrong, len(wrong))):
        batch_size, num_queries, num_kvpairs, num_heads, head_dim = fixed or sizes(rng, 5, largest=9)
        lengths = (num_queries, num_kvpairs, num_kvpairs)
        given = [draw(rng, batch_size, length, num_heads * head_dim) for length in lengths]
        taken = ledger(_layer(num_heads, **changed), *given, num_heads=num_heads)  # type: ignore[arg-type]
        yield {"steps": [(step.operation, list(step.axes)) for step in taken]}


def _first(steps: Steps, wrong: Callable[[str, list[str]], bool]) -> int:
    return next((number for number, step in enumerate(steps) if wrong(*step)), -1)


def _mixed(operation: str, axes: list[str]) -> bool:
    return any("~" in axis for axis in axes)


def _cut(operation: str, axes: list[str]) -> bool:
    return any(":" in axis for axis in axes)


def _folded(operation: str, axes: list[str]) -> bool:
    return any("·" in axis for axis in axes)


def _wrong_softmax(operation: str, axes: list[str]) -> bool:
    return operation.startswith("softmax over ") and operation != "softmax over K"


def _wrong(operation: str, axes: list[str]) -> bool:
    return _mixed(operation, axes) or _cut(operation, axes) or _wrong_softmax(operation, axes)


def _all_wrong(steps: Steps) -> list[int]:
    return [number for number, step in enumerate(steps) if _wrong(*step)]


first_wrong_step = exercise(
    "first_wrong_step",
    reference=lambda steps: _first(steps, _wrong),
    cases=_ledgers,
)


mended_layer = exercise(
    "mended_layer",
    reference=forward,
    cases=layer_inputs,
    switches=forward,
)


def _masked_inputs(rng: random.Random) -> Iterator[Case]:
    yield {
        "q": torch.tensor([[[[1.0, 2.0]]]]),
        "k": torch.tensor([[[[1.0, 0.0], [0.0, 1.0]]]]),
        "v": torch.tensor([[[[1.0, 2.0], [5.0, 6.0]]]]),
        "hidden": torch.tensor([[False, True]]),
    }
    for batch_size, num_heads, num_queries, num_kvpairs, head_dim in apart(rng, 5, smallest=3, largest=9):
        lens = torch.tensor([rng.randint(1, num_kvpairs - 1) for _ in range(batch_size)])
        yield {
            "q": draw(rng, batch_size, num_heads, num_queries, head_dim),
            "k": draw(rng, batch_size, num_heads, num_kvpairs, head_dim),
            "v": draw(rng, batch_size, num_heads, num_kvpairs, head_dim),
            "hidden": ~padding_mask(lens, num_kvpairs)[:, 0, 0],
        }


def _adding(q: Tensor, k: Tensor, v: Tensor, numbers: Tensor) -> Tensor:
    return (q @ k.mT / math.sqrt(q.shape[-1]) + numbers[:, None, None].float()).softmax(-1) @ v


def _hiding(q: Tensor, k: Tensor, v: Tensor, hidden: Tensor) -> Tensor:
    return attend(q, k, v, ~hidden[:, None, None])[0]


converted_mask = exercise(
    "converted_mask",
    reference=_hiding,
    cases=_masked_inputs,
)


def _unlike_masks(rng: random.Random) -> Iterator[Case]:
    drawn = apart(rng, 4, of=lambda B, h, d, N: [B, h, d, N, h * d, B * h])
    for batch_size, num_heads, head_dim, num_tokens in ([2, 3, 1, 2], *drawn):
        seen = [
            [[rng.random() < 0.5 or i == j for j in range(num_tokens)] for i in range(num_tokens)]
            for _ in range(batch_size - 1)
        ]
        yield {
            **{name: draw(rng, batch_size, num_tokens, num_heads * head_dim) for name in "qkv"},
            "mask": torch.cat([torch.tensor(seen), torch.eye(num_tokens, dtype=torch.bool)[None]]),
            "num_heads": num_heads,
        }


def _folded_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor, num_heads: int, *, fold: bool = True, tile: bool = True,
    unfold: bool = True,
) -> Tensor:  # fmt: skip
    """Attention over folded heads; each of the three steps is head first (`True`) or example first."""

    def folded(x: Tensor) -> Tensor:
        x = x.unflatten(-1, (num_heads, -1))
        return (x.permute(2, 0, 1, 3) if fold else x.transpose(1, 2)).flatten(0, 1)

    masks = mask.repeat(num_heads, 1, 1) if tile else mask.repeat_interleave(num_heads, 0)
    found, _ = attend(folded(q)[:, None], folded(k)[:, None], folded(v)[:, None], masks[:, None])
    if unfold:
        return merge_folded_head_first(found[:, 0], num_heads)
    return found[:, 0].unflatten(0, (-1, num_heads)).transpose(1, 2).flatten(2)


mended_tiling = exercise(
    "mended_tiling",
    reference=_folded_attention,
    cases=_unlike_masks,
    switches=_folded_attention,
)
