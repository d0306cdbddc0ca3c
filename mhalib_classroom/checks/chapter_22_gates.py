"""Chapter 22: heads that tokens turn up or down."""

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
