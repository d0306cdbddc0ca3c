"""Chapter 22: heads that tokens compose."""

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


def _said(rng: random.Random) -> Iterator[Case]:
    yield {
        "scores": torch.tensor([[[1.0, 2.0, 3.0]], [[4.0, 5.0, 6.0]]]),
        "first": torch.tensor([[[1.0, 0.0], [1.0, 1.0]]]),
        "second": torch.tensor([[[0.0, 2.0], [-1.0, 0.0]]]),
        "gate": torch.tensor([[0.5, 0.0]]),
    }
    for num_heads, num_queries, num_kvpairs, rank in apart(rng, 4):
        yield {
            "scores": draw(rng, num_heads, num_queries, num_kvpairs),
            "first": draw(rng, num_queries, rank, num_heads),
            "second": draw(rng, num_queries, rank, num_heads),
            "gate": draw(rng, num_queries, num_heads).tanh(),
        }


def _exchanged(scores: Tensor, first: Tensor, second: Tensor) -> Tensor:
    return torch.einsum("nqk,qrn,qrm->mqk", scores, first, second)


def _composed(scores: Tensor, first: Tensor, second: Tensor, gate: Tensor) -> Tensor:
    return scores + _exchanged(scores, first, second) + scores * gate.T[:, :, None]


composed_scores = exercise(
    "composed_scores",
    reference=_composed,
    cases=_said,
)


def _masked(rng: random.Random) -> Iterator[Case]:
    yield {
        "scores": torch.tensor([[[1.0, 2.0, 3.0]], [[2.0, 0.0, 1.0]]]),
        "compositions": torch.tensor([[[1.0, -0.5], [0.5, 1.0]]]),
        "mask": torch.tensor([[True, True, False]]),
    }
    for num_heads, num_queries, num_kvpairs in apart(rng, 3, smallest=3):
        mask = draw(rng, num_queries, num_kvpairs) > -0.3
        mask[:, 0], mask[0, 1] = True, False
        compositions = torch.eye(num_heads) + draw(rng, num_queries, num_heads, num_heads)
        compositions[0, :, 1] = -compositions[0, :, 1].abs()  # -inf becomes +inf here, not NaN
        yield {
            "scores": draw(rng, num_heads, num_queries, num_kvpairs),
            "compositions": compositions,
            "mask": mask,
        }


def _mixed(a: Tensor, compositions: Tensor) -> Tensor:
    return torch.einsum("nqk,qnm->mqk", a, compositions)


def _weights(scores: Tensor, compositions: Tensor, mask: Tensor) -> Tensor:
    return _mixed(scores, compositions).masked_fill(~mask, -math.inf).softmax(-1)


composed_weights = exercise(
    "composed_weights",
    reference=_weights,
    cases=_masked,
)
