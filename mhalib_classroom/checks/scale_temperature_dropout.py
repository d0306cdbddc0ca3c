"""The scale of scores, and dropout of weights."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ._exercise import Case
from ._inputs import apart, draw
from ._markdown import exercises_of

exercise = exercises_of(globals())


def _one_head(rng: random.Random) -> Iterator[Case]:
    for batch_size, num_tokens, head_dim, num_hiddens in ([1, 3, 2, 5], *apart(rng, 4, 2)):
        yield {
            "x": draw(rng, batch_size, num_tokens, num_hiddens),
            **{name: draw(rng, head_dim, num_hiddens) for name in ("W_q", "W_k", "W_v")},
        }


def _head(
    x: Tensor, W_q: Tensor, W_k: Tensor, W_v: Tensor, *, factor: Callable[[int, int, int], float] = lambda d, D, N: 1.0
) -> Tensor:
    q, k, v = x @ W_q.mT, x @ W_k.mT, x @ W_v.mT
    # `factor` is beside the right scale
    return (q @ k.mT / math.sqrt(q.shape[-1]) * factor(q.shape[-1], x.shape[-1], x.shape[1])).softmax(-1) @ v


mended_scale = exercise(
    "mended_scale",
    reference=_head,
    cases=_one_head,
    switches=_head,
)


def _weights_and_chance(rng: random.Random) -> Iterator[Case]:
    for p, sizes in zip((0.4, 0.3, 0.1, 0.6), ([1, 1, 2, 3], *apart(rng, 4, 3, smallest=3)), strict=True):
        chance = torch.rand(*sizes, generator=torch.Generator().manual_seed(rng.randrange(2**31)))
        yield {"weights": draw(rng, *sizes).softmax(-1), "chance": chance, "p": p}


def _with_dropout(weights: Tensor, chance: Tensor, p: float) -> Tensor:
    return weights.masked_fill(chance < p, 0) / (1 - p)


def _shared_out(kept: Tensor) -> Tensor:
    """Rows that sum to 1 again; a row of zeros stays."""
    return kept / kept.sum(-1, keepdim=True).clamp_min(1e-12)


with_dropout = exercise(
    "with_dropout",
    reference=_with_dropout,
    cases=_weights_and_chance,
    has_gradients=True,
)
