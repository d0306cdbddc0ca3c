"""Chapter 6: repairs of a layer, of a mask that means the opposite, and of the masks of folded heads."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import torch
from torch import Tensor

from mhalib.attention import attend, padding_mask

from . import chapter_04
from ._exercise import Case
from ._heads import merge_folded_head_first, straight_merge, straight_split
from ._inputs import apart, draw
from ._layer import forward, layer_inputs
from ._markdown import exercises_of

exercise = exercises_of(globals())


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
