"""Heads that are split, merged and folded into the batch."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor

from mhalib.attention import merge_heads as right_merge
from mhalib.attention import split_heads as right_split
from mhalib.attention import transpose_qkv as right_fold

from ._exercise import Case
from ._heads import interleaved_merge, interleaved_split, merge_folded_head_first, straight_merge, straight_split
from ._inputs import apart, draw
from ._markdown import exercises_of

exercise = exercises_of(globals())


def _tokens(rng: random.Random) -> Iterator[Case]:
    """x (B, N, h*d) and h: once with distinct small sizes, then with random ones."""
    yield {"x": draw(rng, 1, 3, 4), "num_heads": 2}
    for batch_size, num_tokens, num_heads, head_dim in apart(rng, 4, of=lambda B, N, h, d: [B, N, h, d, h * d]):
        yield {"x": draw(rng, batch_size, num_tokens, num_heads * head_dim), "num_heads": num_heads}


def _heads(rng: random.Random) -> Iterator[Case]:
    for case in _tokens(rng):
        yield {"x": right_split(case["x"], case["num_heads"]).contiguous()}


def _no_transpose(x: Tensor, num_heads: int) -> Tensor:
    return x.unflatten(-1, (num_heads, -1))


def _wrong_transpose(x: Tensor, num_heads: int) -> Tensor:
    return x.unflatten(-1, (num_heads, -1)).permute(0, 2, 3, 1)


split_heads = exercise(
    "split_heads",
    reference=right_split,
    cases=_tokens,
)


merge_heads = exercise(
    "merge_heads",
    reference=right_merge,
    cases=_heads,
)


fold_heads = exercise(
    "fold_heads",
    reference=right_fold,
    cases=_tokens,
)


def _rows(rng: random.Random) -> Iterator[Case]:
    yield {"row": 21, "num_heads": 8}
    for num_heads, example in apart(rng, 2, 5, smallest=3, largest=12):
        yield {"row": example * num_heads + rng.randrange(num_heads), "num_heads": num_heads}


row_of_fold = exercise(
    "row_of_fold",
    reference=lambda row, num_heads: (row // num_heads, row % num_heads),
    cases=_rows,
)


def _strided(rng: random.Random) -> Iterator[Case]:
    yield {"shape": (2, 3, 4), "num_heads": 2}
    for batch_size, num_tokens, num_heads, head_dim in apart(rng, 4, of=lambda B, N, h, d: [B, N, h, d, h * d]):
        yield {"shape": (batch_size, num_tokens, num_heads * head_dim), "num_heads": num_heads}


def _strides(shape: tuple[int, int, int], num_heads: int) -> tuple[int, ...]:
    return right_split(torch.empty(shape), num_heads).stride()


strides_of_heads = exercise(
    "strides_of_heads",
    reference=_strides,
    cases=_strided,
)


def _head_first(rng: random.Random) -> Iterator[Case]:
    yield {"x": torch.arange(12.0).reshape(6, 2, 1), "num_heads": 2}
    for batch_size, num_heads, num_tokens, head_dim in apart(rng, 4, of=lambda B, h, N, d: [B, h, N, d, h * B, h * d]):
        yield {"x": draw(rng, num_heads * batch_size, num_tokens, head_dim), "num_heads": num_heads}


mended_merge = exercise(
    "mended_merge",
    reference=merge_folded_head_first,
    cases=_head_first,
)
