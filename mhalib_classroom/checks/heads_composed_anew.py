"""Heads that tokens compose.

The difference of two maps, and the number by which the second is multiplied. Heads that tokens turn up or down.
"""

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


def _two_maps(rng: random.Random) -> Iterator[Case]:
    yield {"scores": torch.tensor([[[1.0, 2.0, 0.0]], [[0.0, 0.0, 1.0]]]), "second": 0.5}
    for num_heads, num_queries, num_kvpairs in apart(rng, 3, largest=9, of=lambda h, Q, K: [2 * h, Q, K]):
        yield {"scores": 2 * draw(rng, 2 * num_heads, num_queries, num_kvpairs), "second": rng.uniform(0.2, 0.8)}


def _maps(scores: Tensor) -> tuple[Tensor, Tensor]:
    weights = scores.softmax(-1)
    return weights[0::2], weights[1::2]


def _difference(scores: Tensor, second: float) -> Tensor:
    first, other = _maps(scores)
    return first - second * other


differential_weights = exercise(
    "differential_weights",
    reference=_difference,
    cases=_two_maps,
)


def _vectors(rng: random.Random) -> Iterator[Case]:
    yield {
        "q1": torch.tensor([1.0, 0.0]),
        "k1": torch.tensor([0.5, 2.0]),
        "q2": torch.tensor([0.0, 1.0]),
        "k2": torch.tensor([1.0, -0.5]),
        "start": 0.2,
    }
    for (head_dim,) in apart(rng, 1, smallest=3, largest=8):
        q1, k1, q2, k2 = (draw(rng, head_dim) / 2 for _ in range(4))
        yield {"q1": q1, "k1": k1, "q2": q2, "k2": k2, "start": rng.uniform(0.2, 0.8)}


second_weight = exercise(
    "second_weight",
    reference=lambda q1, k1, q2, k2, start: (q1 @ k1).exp() - (q2 @ k2).exp() + start,
    cases=_vectors,
)


def _found(rng: random.Random) -> Iterator[Case]:
    yield {
        "found": torch.tensor([[[1.0], [2.0], [3.0]], [[4.0], [5.0], [6.0]]]),
        "x": torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, -1.0]]),
        "W_gate": torch.tensor([[1.0, 0.0], [0.0, -2.0]]),
        "W_o": torch.tensor([[1.0, 0.0], [1.0, 1.0]]),
    }
    for num_heads, num_queries, head_dim in apart(rng, 3, of=lambda h, Q, d: [h, Q, d, h * d]):
        width = num_heads * head_dim
        yield {
            "found": draw(rng, num_heads, num_queries, head_dim),
            "x": draw(rng, num_queries, width),
            "W_gate": draw(rng, num_heads, width) / math.sqrt(width),
            "W_o": draw(rng, width, width) / math.sqrt(width),
        }


def _merged(found: Tensor) -> Tensor:
    return found.transpose(0, 1).flatten(1)


def _with_gates(found: Tensor, gates: Tensor, W_o: Tensor) -> Tensor:
    """gates: (Q, h)."""
    return _merged(found * gates.T[:, :, None]) @ W_o.T


gated_output = exercise(
    "gated_output",
    reference=lambda found, x, W_gate, W_o: _with_gates(found, (x @ W_gate.T).sigmoid(), W_o),
    cases=_found,
)
