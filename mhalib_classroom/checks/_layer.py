"""The layer of chapters 5 and 9, with a place for each mistake in it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from mhalib.attention import merge_heads, split_heads

from ._exercise import Case
from ._inputs import apart, draw


def layer_inputs(rng: random.Random) -> Iterator[Case]:
    """x (B, N, D), the four matrices (D, D) and h: a small layer, then three with sizes that all differ."""
    small = ([[1, 2], [0, 1]], [[0, 1], [1, 1]], [[1, 0], [2, 3]], [[1, -1], [0, 2]])
    matrices = {name: torch.tensor(rows).float() for name, rows in zip(_PROJECTIONS, small, strict=True)}
    yield {"x": torch.tensor([[[1.0, 0.0], [2.0, -1.0]]]), **matrices, "num_heads": 2}
    for batch_size, num_tokens, num_heads, head_dim in apart(rng, 4, of=lambda B, N, h, d: [B, N, h, d, h * d]):
        num_hiddens = num_heads * head_dim
        yield {
            "x": draw(rng, batch_size, num_tokens, num_hiddens),
            **{name: draw(rng, num_hiddens, num_hiddens) / math.sqrt(num_hiddens) for name in _PROJECTIONS},
            "num_heads": num_heads,
        }


_PROJECTIONS = ("W_q", "W_k", "W_v", "W_o")


def forward(
    x: Tensor,
    W_q: Tensor,
    W_k: Tensor,
    W_v: Tensor,
    W_o: Tensor,
    num_heads: int,
    *,
    split: Callable[[Tensor, int], Tensor] = split_heads,
    split_v: Callable[[Tensor, int], Tensor] | None = None,
    merge: Callable[[Tensor], Tensor] = merge_heads,
    scale: Callable[[Tensor, Tensor], float] = lambda x, q: 1.0,
    transposed: str = "",
    order: tuple[int, int, int] = (0, 1, 2),
    mixed: bool = True,
    over: int = -1,
    shared: bool = False,
    turned: Callable[[Tensor], Tensor] = lambda k: k.mT,
    averaged: Callable[[Tensor, Tensor], Tensor] = torch.matmul,
) -> Tensor:
    """Multi-head attention, with a place for each mistake; `scale` is beside the right one."""
    inputs = (W_q, W_q if shared else W_k, W_v)
    splits = (split, split, split_v or split)
    q, k, v = (splits[i](x @ (inputs[i] if "q" in transposed else inputs[i].mT), num_heads) for i in order)
    scores = q @ turned(k) / math.sqrt(q.shape[-1]) * scale(x, q)
    together = merge(averaged(scores.softmax(over), v))
    if not mixed:
        return together
    return together @ (W_o if "o" in transposed else W_o.mT)
