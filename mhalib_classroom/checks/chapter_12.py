"""Chapter 12: induction, and drawing the next token."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor

from mhalib.attention import causal_mask

from ._exercise import Case
from ._inputs import apart, draw
from ._markdown import exercises_of

exercise = exercises_of(globals())


def _repeated(rng: random.Random) -> Iterator[Case]:
    for period, num_heads, more in apart(rng, 3, smallest=3, of=lambda p, h, more: [p, h, 2 * p + more]):
        num_tokens = 2 * period + more
        scores = draw(rng, num_heads, num_tokens, num_tokens) * 2
        scores[0].diagonal(1 - period).add_(5.0)
        yield {"weights": scores.masked_fill(~causal_mask(num_tokens), -torch.inf).softmax(-1), "period": period}


def _induction(weights: Tensor, period: int) -> Tensor:
    """The first query of this diagonal, period - 1, has a token that has not been there before."""
    return weights.diagonal(1 - period, -2, -1)[..., 1:].mean(-1)


def _on_all_followers(weights: Tensor, period: int) -> Tensor:
    """As `mhalib.measures.induction_score`: one round before, two rounds before, and so on."""
    places = torch.arange(weights.shape[-1])
    back = places[:, None] - places  # [t, j]: how far key j is before query t
    follows = (back >= 0) & ((back + 1) % period == 0) & (places > 0)
    return (weights * follows).sum(-1)[:, period:].mean(-1)


induction_weight = exercise(
    "induction_weight",
    reference=_induction,
    cases=_repeated,
)


def _logits(rng: random.Random) -> Iterator[Case]:
    yield {"logits": torch.tensor([1.0, 3.0, 2.0, 0.0]), "k": 2, "temperature": 0.5}
    (first,), (second,), (far,), (one,), (all_of_them,) = apart(rng, 1, 5, smallest=5, largest=12)
    for size in (first, second):
        yield {"logits": draw(rng, size) * 2, "k": rng.randint(2, size - 2), "temperature": rng.choice([0.5, 2.0])}
    yield {"logits": draw(rng, far) * 8 - 200, "k": rng.randint(2, far - 2), "temperature": 4.0}
    yield {"logits": draw(rng, one), "k": 1, "temperature": 3.0}
    yield {"logits": draw(rng, all_of_them), "k": all_of_them, "temperature": 3.0}


def _top_k(logits: Tensor, k: int, dropped: float = -torch.inf) -> Tensor:
    return logits.masked_fill(logits < logits.topk(k).values[-1], dropped)


def _dropped_to(logits: Tensor, k: int, temperature: float, low: float) -> Tensor:
    return (_top_k(logits, k, low) / temperature).softmax(-1)


next_token_probabilities = exercise(
    "next_token_probabilities",
    reference=lambda logits, k, temperature: (_top_k(logits, k) / temperature).softmax(-1),
    cases=_logits,
)
