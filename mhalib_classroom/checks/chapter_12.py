"""Chapter 12: induction, and drawing the next token."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from mhalib.attention import causal_mask

from ._exercise import Case, Exercise, Mistake
from ._inputs import apart, draw


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


induction_weight = Exercise(
    "induction_weight",
    chapter=12,
    title="weight on the token after the last time",
    reference=_induction,
    cases=_repeated,
    verified="three sequences that repeat with a known period; queries without an earlier occurrence are left out.",
    points=3,
    mistakes=[
        Mistake(
            "one query too many",
            "the diagonal begins one query too early: token period - 1 has not occurred before, it is the last of the "
            "first round. Leave it out.",
            lambda weights, period: weights.diagonal(1 - period, -2, -1).mean(-1),
        ),
        Mistake(
            "last query left out",
            "you left out the last query of the diagonal. It is the first that has no earlier occurrence: leave that "
            "one out, with [..., 1:].",
            lambda weights, period: weights.diagonal(1 - period, -2, -1)[..., :-1].mean(-1),
        ),
        Mistake(
            "all earlier followers",
            "this is the weight on all earlier followers, as in the chapter's score; here only the one after the last "
            "occurrence counts.",
            _on_all_followers,
        ),
        Mistake(
            "the same token",
            "you measure the weight on the earlier occurrence of the token itself. An induction head looks at the "
            "token after it, one further on.",
            lambda weights, period: weights.diagonal(-period, -2, -1).mean(-1),
        ),
        Mistake(
            "the token before",
            "you look at the token before the earlier occurrence: off by two.",
            lambda weights, period: weights.diagonal(-period - 1, -2, -1).mean(-1),
        ),
        Mistake(
            "divided by all queries",
            "you divided by all queries. The first ones have no earlier occurrence; leave them out of the mean.",
            lambda weights, period: weights.diagonal(1 - period, -2, -1).sum(-1) / weights.shape[-1],
        ),
        Mistake(
            "previous token",
            "this is the score of a previous-token head.",
            lambda weights, period: weights.diagonal(-1, -2, -1).mean(-1),
        ),
        Mistake(
            "transposed",
            "you read rows as keys: the diagonal above the main one is the future, which is hidden.",
            lambda weights, period: weights.diagonal(period - 1, -2, -1).mean(-1),
        ),
    ],
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


next_token_probabilities = Exercise(
    "next_token_probabilities",
    chapter=12,
    title="probabilities with temperature and top-k",
    reference=lambda logits, k, temperature: (_top_k(logits, k) / temperature).softmax(-1),
    cases=_logits,
    verified="six sets of logits, one of them far below 0, and with k = 1 and k = vocab_size among them: k "
    "probabilities that sum to 1, the others 0.",
    points=2,
    mistakes=[
        Mistake(
            "not renormalised",
            "the k probabilities do not sum to 1: those that you dropped had taken their part. Drop logits before the "
            "softmax, or divide by the sum.",
            lambda logits, k, temperature: torch.where(
                logits >= logits.topk(k).values[-1], (logits / temperature).softmax(-1), 0.0
            ),
        ),
        Mistake(
            "temperature multiplied",
            "you multiplied by the temperature. A high temperature makes the distribution flatter: divide.",
            lambda logits, k, temperature: (_top_k(logits, k) * temperature).softmax(-1),
        ),
        Mistake(
            "temperature forgotten",
            "the temperature has no effect.",
            lambda logits, k, temperature: _top_k(logits, k).softmax(-1),
        ),
        Mistake(
            "temperature on probabilities",
            "you divided the probabilities by the temperature, which the normalisation undoes. Divide the logits.",
            lambda logits, k, temperature: _top_k(logits, k).softmax(-1) / temperature,
        ),
        Mistake(
            "dropped to 0",
            "you set the dropped logits to 0, and exp(0) = 1 is not nothing. They must become minus infinity.",
            lambda logits, k, temperature: (_top_k(logits, k, 0.0) / temperature).softmax(-1),
        ),
        *(
            Mistake(
                f"dropped to {low}",
                "a dropped token keeps a probability: its logit must be minus infinity, not just small. Real logits "
                "can be lower than any small number.",
                partial(_dropped_to, low=low),
            )
            for low in (-10, -100)
        ),
        Mistake(
            "k - 1 kept",
            "you kept only k - 1 tokens: the k-th likeliest stays, too. Drop what is smaller than its logit (<), not "
            "what equals it (<=).",
            lambda logits, k, temperature: (
                logits.masked_fill(logits <= logits.topk(k).values[-1], -torch.inf) / temperature
            ).softmax(-1),
        ),
        Mistake(
            "k + 1 kept",
            "you kept k + 1 tokens. In descending order the k-th likeliest has the index k - 1.",
            lambda logits, k, temperature: (
                logits.masked_fill(logits < logits.sort(descending=True).values[k], -torch.inf) / temperature
            ).softmax(-1),
        ),
        Mistake(
            "top-k ignored",
            "all tokens can be drawn: k has no effect.",
            lambda logits, k, temperature: (logits / temperature).softmax(-1),
        ),
    ],
)
