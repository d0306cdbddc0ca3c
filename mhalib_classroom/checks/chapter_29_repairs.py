"""Chapter 29: repairs of weights and of a mask that went from one framework to another."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import torch
from torch import Tensor

from ._exercise import Case, Exercise, Mistake
from ._inputs import apart, draw

HIDDEN = -1e30


def _matrices(rng: random.Random) -> Iterator[Case]:
    first = torch.arange(16.0).view(4, 4)
    yield {"W_q": first, "W_o": 100 + first, "num_heads": 2}
    for num_heads, head_dim in apart(rng, 2, 4, largest=6, of=lambda h, d: [h, d, h * d]):
        D = num_heads * head_dim
        yield {"W_q": draw(rng, D, D), "W_o": draw(rng, D, D), "num_heads": num_heads}


def _kernels(W_q: Tensor, W_o: Tensor, num_heads: int) -> tuple[Tensor, Tensor]:
    D = len(W_q)
    return W_q.T.reshape(D, num_heads, -1), W_o.T.reshape(num_heads, -1, D)


def _plain(W_q: Tensor, W_o: Tensor, num_heads: int) -> tuple[Tensor, Tensor]:
    return _kernels(W_q.T, W_o.T, num_heads)


def _interleaved(W_q: Tensor, W_o: Tensor, num_heads: int) -> tuple[Tensor, Tensor]:
    D = len(W_q)
    return W_q.T.reshape(D, -1, num_heads).mT, W_o.T.reshape(-1, num_heads, D).transpose(0, 1)


mended_kernels = Exercise(
    "mended_kernels",
    chapter=29,
    given="not transposed",
    title="repair weights on their way to Keras",
    reference=_kernels,
    cases=_matrices,
    verified="five pairs of matrices, with two, three and four heads.",
    points=2,
    parts=("the kernel of the queries", "the kernel of the output"),
    mistakes=[
        Mistake(
            "not transposed",
            "a kernel multiplies from the right, `x @ kernel`, and the matrices from the left. Transpose both before "
            "you cut an axis.",
            _plain,
        ),
        Mistake(
            "W_q not transposed",
            "the kernel of the output is right. That of the queries needs the transposed matrix, too.",
            lambda W_q, W_o, num_heads: (_plain(W_q, W_o, num_heads)[0], _kernels(W_q, W_o, num_heads)[1]),
        ),
        Mistake(
            "W_o not transposed",
            "the kernel of the queries is right. That of the output needs the transposed matrix, too.",
            lambda W_q, W_o, num_heads: (_kernels(W_q, W_o, num_heads)[0], _plain(W_q, W_o, num_heads)[1]),
        ),
        Mistake(
            "every h-th channel",
            "you cut the axis into (d, h): a head gets every h-th channel. Head i owns channels i d to (i+1) d: cut it "
            "into (h, d).",
            _interleaved,
        ),
    ],
)


def _rows(rng: random.Random) -> Iterator[Case]:
    yield {
        "scores": torch.tensor([[[1.0, 0.0, 2.0], [0.0, 3.0, 1.0]]]),
        "mask": torch.tensor([[True, True, False], [False, False, False]]),
    }
    for num_heads, num_queries, num_kvpairs in apart(rng, 3, smallest=3):
        mask = draw(rng, num_queries, num_kvpairs) > 0
        mask[0], mask[1], mask[2, 0], mask[2, 1] = True, False, True, False
        yield {"scores": 2 * draw(rng, num_heads, num_queries, num_kvpairs), "mask": mask}


def _weights(scores: Tensor, mask: Tensor, hidden: float = HIDDEN, axis: int = -1) -> Tensor:
    return scores.masked_fill(~mask, hidden).softmax(axis)


mended_rows = Exercise(
    "mended_rows",
    chapter=29,
    given="still upside down, and NaN",
    title="repair a softmax that came from elsewhere",
    reference=lambda scores, mask: _weights(scores, mask) * mask,
    cases=_rows,
    verified="four masks, each with a query that sees no key.",
    points=2,
    mistakes=[
        Mistake(
            "still upside down, and NaN",
            "this still hides where `mask` is True, and a row that is hidden as a whole is NaN.",
            lambda scores, mask: _weights(scores, ~mask, -math.inf),
        ),
        Mistake(
            "still upside down",
            "no NaN any more, but this still hides where `mask` is True. Here, True may be seen.",
            lambda scores, mask: _weights(scores, ~mask) * ~mask,
        ),
        Mistake(
            "NaN in an empty row",
            "the mask has its right meaning now. A row with nothing but -inf is still NaN: hide with a large negative "
            "number.",
            lambda scores, mask: _weights(scores, mask, -math.inf),
        ),
        Mistake(
            "even weights in an empty row",
            "a query that sees no key now spreads its weight evenly over hidden ones. Set hidden weights to 0 behind "
            "the softmax.",
            _weights,
        ),
        Mistake(
            "masked after the softmax",
            "you set hidden weights to 0 and hid nothing before the softmax, so hidden keys took a share: rows sum to "
            "less than 1.",
            lambda scores, mask: scores.softmax(-1) * mask,
        ),
        Mistake(
            "hidden scores 0",
            "you set hidden scores to 0, and e^0 is 1: hidden keys take a share. Use a large negative number.",
            lambda scores, mask: _weights(scores, mask, 0.0) * mask,
        ),
        Mistake(
            "softmax over queries",
            "your softmax runs over the queries. Largest score and sum are those of the last axis, the keys.",
            lambda scores, mask: _weights(scores, mask, axis=-2) * mask,
        ),
    ],
)
