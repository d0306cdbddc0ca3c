"""A layer as the sum of its heads."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor

from mhalib.attention import split_heads

from ._exercise import Case
from ._inputs import apart, draw
from ._markdown import exercises_of

exercise = exercises_of(globals())


def _layers(rng: random.Random) -> Iterator[Case]:
    drawn = apart(rng, 4, largest=12, of=lambda batch, tokens, d, h: [batch, tokens, d, h, h * d])
    for batch_size, num_tokens, head_dim, num_heads in ([1, 3, 2, 2], *drawn):
        num_hiddens = num_heads * head_dim
        yield {
            "passed_on": draw(rng, batch_size, num_heads, num_tokens, head_dim),
            "W_o": draw(rng, num_hiddens, num_hiddens),
        }


def _terms(passed_on: Tensor, W_o: Tensor) -> Tensor:
    """passed_on (B, h, N, d), W_o (D, D) -> (B, h, N, D)."""
    return passed_on @ split_heads(W_o[None], passed_on.shape[1]).mT


def _alone(passed_on: Tensor) -> Tensor:
    return _terms(passed_on, torch.eye(passed_on.shape[1] * passed_on.shape[3], dtype=passed_on.dtype))


head_terms = exercise(
    "head_terms",
    reference=_terms,
    cases=_layers,
)
