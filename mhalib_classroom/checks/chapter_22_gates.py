"""Chapter 22: heads that tokens turn up or down."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import torch
from torch import Tensor

from ._exercise import Case, Exercise, Mistake
from ._inputs import apart, draw


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


gated_output = Exercise(
    "gated_output",
    chapter=22,
    title="turn heads up and down, then mix them",
    reference=lambda found, x, W_gate, W_o: _with_gates(found, (x @ W_gate.T).sigmoid(), W_o),
    cases=_found,
    verified="four layers, of two to seven heads; each token has a gate for each head, before W_o.",
    points=2,
    mistakes=[
        Mistake(
            "after W_o",
            "you gated the output, after W_o. There the heads are mixed already, so a gate meets a few channels of "
            "all heads. Gate what each head found, then merge, then multiply by W_o.",
            lambda found, x, W_gate, W_o: (
                (_merged(found) @ W_o.T) * (x @ W_gate.T).sigmoid().repeat_interleave(found.shape[-1], 1)
            ),
        ),
        Mistake(
            "from what heads found",
            "you computed the gates from what the heads found. They come from the token itself, x: the layer's input.",
            lambda found, x, W_gate, W_o: _with_gates(found, (_merged(found) @ W_gate.T).sigmoid(), W_o),
        ),
        Mistake(
            "no sigmoid",
            "the sigmoid is missing. A gate is between 0 and 1.",
            lambda found, x, W_gate, W_o: _with_gates(found, x @ W_gate.T, W_o),
        ),
        Mistake(
            "tanh",
            "you used tanh, which is 0 in the middle and may turn the sign of a head. These gates are sigmoids.",
            lambda found, x, W_gate, W_o: _with_gates(found, (x @ W_gate.T).tanh(), W_o),
        ),
        Mistake(
            "softmax over heads",
            "you used a softmax over the heads, so that they compete. Each gate is a sigmoid of its own: all heads "
            "may be open, or none.",
            lambda found, x, W_gate, W_o: _with_gates(found, (x @ W_gate.T).softmax(-1), W_o),
        ),
        Mistake(
            "one gate for the token",
            "all heads of a token got the same gate, the mean. Each head has its own.",
            lambda found, x, W_gate, W_o: _with_gates(
                found, (x @ W_gate.T).sigmoid().mean(1, keepdim=True).expand(-1, len(found)), W_o
            ),
        ),
        Mistake(
            "one gate for the head",
            "all tokens got the same gates, the mean. Each token has its own.",
            lambda found, x, W_gate, W_o: _with_gates(
                found, (x @ W_gate.T).sigmoid().mean(0, keepdim=True).expand(len(x), -1), W_o
            ),
        ),
        Mistake(
            "closed for open",
            "your gates are 1 minus the gates: open where they should be closed.",
            lambda found, x, W_gate, W_o: _with_gates(found, (-x @ W_gate.T).sigmoid(), W_o),
        ),
        Mistake(
            "no W_o",
            "you merged the gated heads and stopped. W_o comes last.",
            lambda found, x, W_gate, W_o: _merged(found * (x @ W_gate.T).sigmoid().T[:, :, None]),
        ),
        Mistake(
            "gates reshaped",
            "you reshaped the gates from (Q, h) to (h, Q), so a token gets gates of others. Transpose them.",
            lambda found, x, W_gate, W_o: _with_gates(
                found, (x @ W_gate.T).sigmoid().reshape(len(found), len(x)).T, W_o
            ),
        ),
        Mistake(
            "no gate",
            "this is the output without gates.",
            lambda found, x, W_gate, W_o: _merged(found) @ W_o.T,
        ),
        Mistake(
            "merged without a transpose",
            "you reshaped (h, Q, d) straight to (Q, h * d), which mixes tokens. Transpose heads and tokens first.",
            lambda found, x, W_gate, W_o: (found * (x @ W_gate.T).sigmoid().T[:, :, None]).reshape(len(x), -1) @ W_o.T,
        ),
        Mistake(
            "W_o transposed",
            "you multiplied by W_o, where an `nn.Linear` with this weight multiplies by its transpose.",
            lambda found, x, W_gate, W_o: _with_gates(found, (x @ W_gate.T).sigmoid(), W_o.T),
        ),
    ],
)
