"""Chapter 2: repairs of a scale and of a mask."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from mhalib.attention import padding_mask

from ._exercise import Case
from ._inputs import apart, draw
from ._markdown import exercises_of
from .chapter_02 import filled

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


def _low_scores(rng: random.Random) -> Iterator[Case]:
    yield {"scores": torch.tensor([[[[-1.0, -2.0, 0.5]]]]), "mask": torch.tensor([[[[True, True, False]]]])}
    kinds = [(0.0, 0.0), (-6.0, 0.0), (-3e5, 0.0), (-3e9, 0.0), (0.0, 2e5), (-3e9, 3e9)]
    for (middle, hidden_above), drawn in zip(kinds, apart(rng, 4, 6, smallest=3, largest=12), strict=True):
        batch_size, num_heads, num_queries, num_kvpairs = drawn
        mask = padding_mask(torch.tensor([rng.randint(1, num_kvpairs - 1) for _ in range(batch_size)]), num_kvpairs)
        scores = 2 * draw(rng, batch_size, num_heads, num_queries, num_kvpairs).double() + middle + ~mask * hidden_above
        yield {"scores": scores, "mask": mask}


mended_filling = exercise(
    "mended_filling",
    reference=filled,
    cases=_low_scores,
    switches=filled,
)
