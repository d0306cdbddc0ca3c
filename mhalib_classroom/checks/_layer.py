"""The layer of chapters 4 and 6, with a place for each mistake in it, and its mistakes."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from mhalib.attention import merge_heads, split_heads

from ._exercise import Case, Mistake
from ._heads import interleaved_merge, interleaved_split, straight_merge, straight_split
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
) -> Tensor:
    """Multi-head attention, with a place for each mistake; `scale` is beside the right one."""
    inputs = (W_q, W_q if shared else W_k, W_v)
    splits = (split, split, split_v or split)
    q, k, v = (splits[i](x @ (inputs[i] if "q" in transposed else inputs[i].mT), num_heads) for i in order)
    scores = q @ k.mT / math.sqrt(q.shape[-1]) * scale(x, q)
    found = merge(scores.softmax(over) @ v)
    if not mixed:
        return found
    return found @ (W_o if "o" in transposed else W_o.mT)


def layer_with(**mistake: object) -> Callable[..., Tensor]:
    """`forward` with mistakes in these places."""
    return partial(forward, **mistake)  # type: ignore[arg-type]


LAYER_MISTAKES = [
    Mistake(
        "straight reshape",
        "the heads are split by a straight reshape to (B, h, N, d), which mixes tokens and channels. Split the last "
        "axis, then swap the axes of tokens and heads.",
        layer_with(split=straight_split),
    ),
    Mistake(
        "straight merge",
        "the heads are merged by a straight reshape to (B, N, D). Swap the axes of heads and tokens first.",
        layer_with(merge=straight_merge),
    ),
    Mistake(
        "both straight",
        "both the split and the merge are straight reshapes. Their shapes fit, and one undoes the other, but in "
        "between no head holds its columns of a token.",
        layer_with(split=straight_split, merge=straight_merge),
    ),
    Mistake(
        "straight reshape of the values",
        "queries and keys are split rightly, but the values still by a straight reshape to (B, h, N, d). Split all "
        "three alike.",
        layer_with(split_v=straight_split),
    ),
    Mistake(
        "no transpose",
        "you split the last axis but left the heads behind the tokens: (B, N, h, d). Now heads of one token attend to "
        "each other. Swap the axes of tokens and heads, before the scores and after the average.",
        layer_with(split=lambda x, num_heads: x.unflatten(-1, (num_heads, -1)), merge=lambda x: x.flatten(2)),
    ),
    *(
        Mistake(
            f"heads interleaved{where}",
            "you split the last axis into (d, h), not (h, d): column c belongs to head c % h. Head i owns columns i*d "
            "to (i+1)*d.",
            layer_with(split=interleaved_split, merge=merge),
        )
        for where, merge in (("", merge_heads), (", both ways", interleaved_merge))
    ),
    Mistake(
        "no scale",
        "the scores are not divided by the square root of d.",
        layer_with(scale=lambda x, q: math.sqrt(q.shape[-1])),
    ),
    Mistake(
        "scaled by D",
        "the scores are divided by the square root of D, the width of the layer, not of d, the width of a head. Old "
        "code has this mistake: with more heads the weights become flatter and flatter.",
        layer_with(scale=lambda x, q: math.sqrt(q.shape[-1] / x.shape[-1])),
    ),
    Mistake(
        "W_o forgotten",
        "the heads stand side by side, but nothing mixes them: W_o is missing.",
        layer_with(mixed=False),
    ),
    Mistake(
        "matrices not transposed",
        "you multiplied by the matrices as they are, x @ W. In an nn.Linear the outputs are in the rows of the weight, "
        "so it computes x @ W.T.",
        layer_with(transposed="qo"),
    ),
    Mistake(
        "W_o not transposed",
        "the last product is x @ W_o. In an nn.Linear the outputs are in the rows of the weight: x @ W_o.T.",
        layer_with(transposed="o"),
    ),
    Mistake(
        "projections not transposed",
        "queries, keys and values are x @ W. In an nn.Linear the outputs are in the rows of the weight: x @ W.T.",
        layer_with(transposed="q"),
    ),
    Mistake(
        "queries and keys swapped",
        "queries and keys have changed places: what should ask is asked.",
        layer_with(order=(1, 0, 2)),
    ),
    Mistake(
        "keys and values swapped",
        "keys and values have changed places: you average what should be compared.",
        layer_with(order=(0, 2, 1)),
    ),
    Mistake(
        "divided by d",
        "the scores are divided by d, not by its square root.",
        layer_with(scale=lambda x, q: 1 / math.sqrt(q.shape[-1])),
    ),
    Mistake(
        "divided by the root of the number of tokens",
        "the scores are divided by the square root of N, the number of tokens. Take that of d, the width of a head.",
        layer_with(scale=lambda x, q: math.sqrt(q.shape[-1] / x.shape[1])),
    ),
    Mistake(
        "divided by the root of the number of heads",
        "the scores are divided by the square root of h, the number of heads. Take that of d, the width of a head.",
        layer_with(scale=lambda x, q: math.sqrt(q.shape[-1] / q.shape[1])),
    ),
    Mistake(
        "root of D divided by h",
        "the scores are divided by the square root of D, over h. A bracket is missing: the square root of (D / h).",
        layer_with(scale=lambda x, q: math.sqrt(q.shape[-1] / x.shape[-1]) * q.shape[1]),
    ),
    Mistake(
        "softmax over the queries",
        "the softmax runs over the queries: columns sum to 1, not rows.",
        layer_with(over=-2),
    ),
    Mistake(
        "keys from W_q",
        "the keys are projected by W_q, so every head looks for tokens that are like its own.",
        layer_with(shared=True),
    ),
]
