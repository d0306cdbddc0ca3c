"""Chapter 20: heads that mix their scores, and the wider matrices that mixed weights stand for."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor

from ._exercise import Case
from ._inputs import apart, draw
from ._markdown import exercises_of

exercise = exercises_of(globals())


def mixed(x: Tensor, mixing: Tensor) -> Tensor:
    """(h, Q, K) and (h, h) -> (h, Q, K): head m gets the sum over n of mixing[n, m] * x[n]."""
    return torch.einsum("nqk,nm->mqk", x, mixing)


def _scores(rng: random.Random) -> Iterator[Case]:
    yield {"scores": torch.tensor([[[1.0, 2.0, 3.0]], [[0.0, 4.0, 1.0]]]), "mixing": torch.tensor([[1.0, 2.0], [0, 3]])}
    for num_heads, num_queries, num_kvpairs in apart(rng, 3):
        yield {"scores": draw(rng, num_heads, num_queries, num_kvpairs), "mixing": draw(rng, num_heads, num_heads)}


talk = exercise(
    "talk",
    reference=mixed,
    cases=_scores,
)


def _value_parts(rng: random.Random) -> Iterator[Case]:
    yield {
        "W_v": torch.tensor([[[1.0, 0.0, 2.0]], [[0.0, 3.0, 1.0]]]),
        "W_o": torch.tensor([[[1.0], [0.0], [1.0]], [[2.0], [1.0], [0.0]]]),
        "mixing": torch.tensor([[1.0, 2.0], [0.0, 3.0]]),
    }
    for num_heads, head_dim, num_hiddens in apart(rng, 3):
        yield {
            "W_v": draw(rng, num_heads, head_dim, num_hiddens),
            "W_o": draw(rng, num_heads, num_hiddens, head_dim),
            "mixing": draw(rng, num_heads, num_heads),
        }


def _matrices(W_v: Tensor, W_o: Tensor, mixing: Tensor) -> Tensor:
    return mixed(W_o @ W_v, mixing.T)


output_matrices = exercise(
    "output_matrices",
    reference=_matrices,
    cases=_value_parts,
)
