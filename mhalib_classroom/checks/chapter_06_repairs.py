"""Chapter 6: repairs of a layer, of a mask that means the opposite, and of the masks of folded heads."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from functools import partial
from itertools import product

import torch
from torch import Tensor

from mhalib.attention import attend, padding_mask

from ._exercise import Case, Exercise, Mistake
from ._heads import merge_folded_head_first, straight_merge, straight_split
from ._inputs import apart, draw
from ._layer import LAYER_MISTAKES, forward, layer_inputs, layer_with

mended_layer = Exercise(
    "mended_layer",
    chapter=6,
    given="nothing mended",
    title="mend a layer with three mistakes",
    reference=forward,
    cases=layer_inputs,
    verified="a small layer and three with sizes that all differ; nothing of the three mistakes is left.",
    points=3,
    mistakes=[
        Mistake(
            "nothing mended",
            "it computes just what it computed before. Check one step after the other, by values: split, scale, merge.",
            layer_with(
                split=straight_split,
                merge=straight_merge,
                scale=lambda x, q: math.sqrt(q.shape[-1] / x.shape[-1]),
            ),
        ),
        Mistake(
            "split and scale left",
            "the merge is right now. The split still reshapes straight, and the scale is still that of D.",
            layer_with(split=straight_split, scale=lambda x, q: math.sqrt(q.shape[-1] / x.shape[-1])),
        ),
        Mistake(
            "merge and scale left",
            "the split is right now. The merge still reshapes straight, and the scale is still that of D.",
            layer_with(
                merge=straight_merge,
                scale=lambda x, q: math.sqrt(q.shape[-1] / x.shape[-1]),
            ),
        ),
        *LAYER_MISTAKES,
    ],
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


converted_mask = Exercise(
    "converted_mask",
    chapter=6,
    given="not inverted",
    title="use a mask that means the opposite",
    reference=_hiding,
    cases=_masked_inputs,
    verified="four batches with padding; `hidden` is (B, K), as torch.nn.MultiheadAttention takes it.",
    mistakes=[
        Mistake(
            "not inverted",
            "`hidden` is True where a key must NOT be seen. This book, like scaled_dot_product_attention, means the "
            "opposite: turn it round with ~.",
            lambda q, k, v, hidden: attend(q, k, v, hidden[:, None, None])[0],
        ),
        Mistake(
            "mask ignored",
            "the padding has an effect on your result: the mask was not used.",
            lambda q, k, v, hidden: attend(q, k, v)[0],
        ),
        Mistake(
            "mask added",
            "a float mask is ADDED to the scores, and adding 1 hides nothing: use booleans.",
            lambda q, k, v, hidden: _adding(q, k, v, ~hidden),
        ),
        Mistake(
            "mask added, not inverted",
            "a float mask is ADDED to the scores, and adding 1 hides nothing: use booleans. They must be turned round, "
            "too: True means may attend.",
            lambda q, k, v, hidden: _adding(q, k, v, hidden),
        ),
        Mistake(
            "hidden too late",
            "you set the hidden values, or their weights, to 0 after the softmax. Their scores had taken weight from "
            "the others by then: hide the scores.",
            lambda q, k, v, hidden: attend(q, k, v * ~hidden[:, None, :, None])[0],
        ),
        Mistake(
            "keys zeroed",
            "you set the hidden keys to 0. A score of 0 is not nothing: exp(0) = 1.",
            lambda q, k, v, hidden: attend(q, k * ~hidden[:, None, :, None], v)[0],
        ),
    ],
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


_FIRST = {True: "head first", False: "example first"}


def _does_not_fit(fold: bool, tile: bool, unfold: bool) -> Mistake:
    said = f"the fold is {_FIRST[fold]}, the masks are repeated {_FIRST[tile]}, the way back is {_FIRST[unfold]}"
    return Mistake(
        "nothing mended" if fold and unfold else f"fold {_FIRST[fold]}, masks {_FIRST[tile]}, back {_FIRST[unfold]}",
        f"{said}. All three must agree. (`repeat` writes mask 0, mask 1, mask 0, mask 1; `repeat_interleave` writes "
        "mask 0, mask 0, mask 1, mask 1.)",
        partial(_folded_attention, fold=fold, tile=tile, unfold=unfold),
    )


mended_tiling = Exercise(
    "mended_tiling",
    chapter=6,
    given="nothing mended",
    title="give folded heads their masks",
    reference=_folded_attention,
    cases=_unlike_masks,
    verified="four batches in which every example has a mask of its own.",
    points=3,
    mistakes=[
        *(_does_not_fit(*order) for order in product((True, False), repeat=3) if len(set(order)) == 2),
        Mistake(
            "mask ignored",
            "the mask has no effect any more.",
            lambda q, k, v, mask, num_heads: _folded_attention(q, k, v, torch.ones_like(mask), num_heads),
        ),
        Mistake(
            "one mask for all",
            "every example got the mask of example 0.",
            lambda q, k, v, mask, num_heads: _folded_attention(q, k, v, mask[:1].expand_as(mask), num_heads),
        ),
    ],
)
