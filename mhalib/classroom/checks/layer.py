"""Exercises on the whole layer, among them a wrong one to mend: chapters 3 and 5."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from ...attention import attend, merge_heads, split_heads
from ...masks import padding_mask
from ._exercise import Case, Exercise, Mistake, draw, sizes


def _layer_inputs(rng: random.Random) -> Iterator[Case]:
    small = ([[1, 2], [0, 1]], [[0, 1], [1, 1]], [[1, 0], [2, 3]], [[1, -1], [0, 2]])
    matrices = {name: torch.tensor(rows).float() for name, rows in zip(_PROJECTIONS, small, strict=True)}
    yield {"x": torch.tensor([[[1.0, 0.0], [2.0, -1.0]]]), **matrices, "num_heads": 2}
    for _ in range(3):
        batch_size, num_tokens, num_heads, head_dim = sizes(rng, 4)
        num_hiddens = num_heads * head_dim
        yield {
            "x": draw(rng, batch_size, num_tokens, num_hiddens),
            **{name: draw(rng, num_hiddens, num_hiddens) / math.sqrt(num_hiddens) for name in _PROJECTIONS},
            "num_heads": num_heads,
        }


_PROJECTIONS = ("W_q", "W_k", "W_v", "W_o")


def straight_split(x: Tensor, num_heads: int) -> Tensor:
    """(B, N, D) -> (B, h, N, d) by one reshape: the wrong one."""
    return x.reshape(len(x), num_heads, x.shape[1], -1)


def straight_merge(x: Tensor) -> Tensor:
    """(B, h, N, d) -> (B, N, D) by one reshape: the wrong one."""
    return x.reshape(len(x), x.shape[2], -1)


def _forward(
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


def _made(**mistake: object) -> Callable[..., Tensor]:
    return partial(_forward, **mistake)  # type: ignore[arg-type]


def _interleaved(x: Tensor, num_heads: int) -> Tensor:
    return x.unflatten(-1, (-1, num_heads)).permute(0, 3, 1, 2)


_LAYER_MISTAKES = [
    Mistake(
        "straight reshape",
        "the heads are split by a straight reshape to (B, h, N, d), which mixes tokens and channels. Split the last "
        "axis, then swap the axes of tokens and heads.",
        _made(split=straight_split),
    ),
    Mistake(
        "straight merge",
        "the heads are merged by a straight reshape to (B, N, D). Swap the axes of heads and tokens first.",
        _made(merge=straight_merge),
    ),
    Mistake(
        "both straight",
        "both the split and the merge are straight reshapes. Their shapes fit, and one undoes the other, but in "
        "between no head holds its columns of a token.",
        _made(split=straight_split, merge=straight_merge),
    ),
    Mistake(
        "straight reshape of the values",
        "queries and keys are split rightly, but the values still by a straight reshape to (B, h, N, d). Split all "
        "three alike.",
        _made(split_v=straight_split),
    ),
    Mistake(
        "no transpose",
        "you split the last axis but left the heads behind the tokens: (B, N, h, d). Now heads of one token attend to "
        "each other. Swap the axes of tokens and heads, before the scores and after the average.",
        _made(split=lambda x, num_heads: x.unflatten(-1, (num_heads, -1)), merge=lambda x: x.flatten(2)),
    ),
    *(
        Mistake(
            f"heads interleaved{where}",
            "you split the last axis into (d, h), not (h, d): column c belongs to head c % h. Head i owns columns i*d "
            "to (i+1)*d.",
            _made(split=_interleaved, merge=merge),
        )
        for where, merge in (("", merge_heads), (", both ways", lambda x: x.permute(0, 2, 3, 1).flatten(2)))
    ),
    Mistake(
        "no scale",
        "the scores are not divided by the square root of d.",
        _made(scale=lambda x, q: math.sqrt(q.shape[-1])),
    ),
    Mistake(
        "scaled by D",
        "the scores are divided by the square root of D, the width of the layer, not of d, the width of a head. Old "
        "code has this mistake: with more heads the weights become flatter and flatter.",
        _made(scale=lambda x, q: math.sqrt(q.shape[-1] / x.shape[-1])),
    ),
    Mistake(
        "W_o forgotten",
        "the heads stand side by side, but nothing mixes them: W_o is missing.",
        _made(mixed=False),
    ),
    Mistake(
        "matrices not transposed",
        "you multiplied by the matrices as they are, x @ W. In an nn.Linear the outputs are in the rows of the weight, "
        "so it computes x @ W.T.",
        _made(transposed="qo"),
    ),
    Mistake(
        "W_o not transposed",
        "the last product is x @ W_o. In an nn.Linear the outputs are in the rows of the weight: x @ W_o.T.",
        _made(transposed="o"),
    ),
    Mistake(
        "projections not transposed",
        "queries, keys and values are x @ W. In an nn.Linear the outputs are in the rows of the weight: x @ W.T.",
        _made(transposed="q"),
    ),
    Mistake(
        "queries and keys swapped",
        "queries and keys have changed places: what should ask is asked.",
        _made(order=(1, 0, 2)),
    ),
    Mistake(
        "keys and values swapped",
        "keys and values have changed places: you average what should be compared.",
        _made(order=(0, 2, 1)),
    ),
    Mistake(
        "divided by d",
        "the scores are divided by d, not by its square root.",
        _made(scale=lambda x, q: 1 / math.sqrt(q.shape[-1])),
    ),
    Mistake(
        "divided by the root of the number of tokens",
        "the scores are divided by the square root of N, the number of tokens. Take that of d, the width of a head.",
        _made(scale=lambda x, q: math.sqrt(q.shape[-1] / x.shape[1])),
    ),
    Mistake(
        "divided by the root of the number of heads",
        "the scores are divided by the square root of h, the number of heads. Take that of d, the width of a head.",
        _made(scale=lambda x, q: math.sqrt(q.shape[-1] / q.shape[1])),
    ),
    Mistake(
        "root of D divided by h",
        "the scores are divided by the square root of D, over h. A bracket is missing: the square root of (D / h).",
        _made(scale=lambda x, q: math.sqrt(q.shape[-1] / x.shape[-1]) * q.shape[1]),
    ),
    Mistake(
        "softmax over the queries",
        "the softmax runs over the queries: columns sum to 1, not rows.",
        _made(over=-2),
    ),
    Mistake(
        "keys from W_q",
        "the keys are projected by W_q, so every head looks for tokens that are like its own.",
        _made(shared=True),
    ),
]

multi_head = Exercise(
    "multi_head",
    chapter=3,
    title="the whole layer, from four matrices",
    reference=_forward,
    cases=_layer_inputs,
    verified="a small layer and three with sizes that all differ; the numbers are those of "
    "`mhalib.MultiHeadAttention`.",
    points=3,
    mistakes=_LAYER_MISTAKES,
)


mended_layer = Exercise(
    "mended_layer",
    chapter=5,
    title="mend a layer with three mistakes",
    reference=_forward,
    cases=_layer_inputs,
    verified="a small layer and three with sizes that all differ; nothing of the three mistakes is left.",
    points=3,
    mistakes=[
        Mistake(
            "nothing mended",
            "it computes just what it computed before. Check one step after the other, by values: split, scale, merge.",
            _made(
                split=straight_split,
                merge=straight_merge,
                scale=lambda x, q: math.sqrt(q.shape[-1] / x.shape[-1]),
            ),
        ),
        Mistake(
            "split and scale left",
            "the merge is right now. The split still reshapes straight, and the scale is still that of D.",
            _made(split=straight_split, scale=lambda x, q: math.sqrt(q.shape[-1] / x.shape[-1])),
        ),
        Mistake(
            "merge and scale left",
            "the split is right now. The merge still reshapes straight, and the scale is still that of D.",
            _made(
                merge=straight_merge,
                scale=lambda x, q: math.sqrt(q.shape[-1] / x.shape[-1]),
            ),
        ),
        *_LAYER_MISTAKES,
    ],
)


def _lens_and_heads(rng: random.Random) -> Iterator[Case]:
    yield {"valid_lens": torch.tensor([3, 1]), "num_heads": 3}
    for _ in range(3):
        batch_size, num_heads = sizes(rng, 2)
        yield {"valid_lens": torch.tensor(rng.sample(range(1, 20), batch_size)), "num_heads": num_heads}


folded_lens = Exercise(
    "folded_lens",
    chapter=5,
    title="lengths for heads that are folded into the batch",
    reference=lambda valid_lens, num_heads: valid_lens.repeat_interleave(num_heads),
    cases=_lens_and_heads,
    verified="four batches; row b*h + i has the length of example b.",
    mistakes=[
        Mistake(
            "repeat",
            "`repeat` writes the lengths of all examples h times in a row. Row b*h + i of the folded array is of "
            "example b, so each length must stand h times side by side: `repeat_interleave`.",
            lambda valid_lens, num_heads: valid_lens.repeat(num_heads),
        ),
        Mistake(
            "not repeated",
            "these are the lengths of B examples, but the folded array has B*h rows.",
            lambda valid_lens, num_heads: valid_lens,
        ),
        Mistake(
            "as a matrix",
            "the numbers are right, but as a matrix (B, h). The folded array needs one axis, B*h.",
            lambda valid_lens, num_heads: valid_lens[:, None].expand(-1, num_heads),
        ),
    ],
)


def _masked_inputs(rng: random.Random) -> Iterator[Case]:
    yield {
        "q": torch.tensor([[[[1.0, 2.0]]]]),
        "k": torch.tensor([[[[1.0, 0.0], [0.0, 1.0]]]]),
        "v": torch.tensor([[[[1.0, 2.0], [5.0, 6.0]]]]),
        "hidden": torch.tensor([[False, True]]),
    }
    for _ in range(3):
        batch_size, num_heads, num_queries, num_kvpairs, head_dim = sizes(rng, 5, smallest=3, largest=9)
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
    chapter=5,
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
