"""Chapter 29: repairs of weights and of a mask that went from one framework to another."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import torch
from torch import Tensor

from ._exercise import Case
from ._inputs import apart, draw
from ._markdown import exercises_of

exercise = exercises_of(globals())


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


mended_kernels = exercise(
    "mended_kernels",
    reference=_kernels,
    cases=_matrices,
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


mended_rows = exercise(
    "mended_rows",
    reference=lambda scores, mask: _weights(scores, mask) * mask,
    cases=_rows,
)
