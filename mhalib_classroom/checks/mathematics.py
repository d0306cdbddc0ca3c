"""A layer as the sum of its heads, and the answer without one of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

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


def _without_each(terms: Tensor, bias: Tensor) -> Tensor:
    """terms (h, answers), bias (answers) -> (h, answers): the scores with each head off."""
    return terms.sum(0) - terms + bias


def _left(terms: Tensor, bias: Tensor) -> Tensor:
    return _without_each(terms, bias).argmax(1)


def _biasless(terms: Tensor, bias: Tensor) -> Tensor:
    return _left(terms, torch.zeros_like(bias))


def _biased_each(terms: Tensor, bias: Tensor) -> Tensor:
    """With the bias once for each head that is left, or with their mean: the winners are the same."""
    return _left(terms + bias, torch.zeros_like(bias))


def _all_on(terms: Tensor, bias: Tensor) -> Tensor:
    return (terms.sum(0) + bias).argmax().expand(len(terms))


def _alone_on(terms: Tensor, bias: Tensor) -> Tensor:
    return (terms + bias).argmax(1)


def _favourites(terms: Tensor, bias: Tensor) -> Tensor:
    return terms.argmax(1)


def _summed_over_answers(terms: Tensor, bias: Tensor) -> Tensor:
    return (terms.sum(1, keepdim=True) - terms + bias).argmax(1)


def _last_of_all(terms: Tensor, bias: Tensor) -> Tensor:
    return _without_each(terms, bias).argmin(1)


WAYS: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (
    *(_left, _biasless, _biased_each, _all_on, _alone_on, _favourites, _summed_over_answers, _last_of_all),
)


def _answered(rng: random.Random) -> Iterator[Case]:
    """Drawn until each way to choose a winner chooses differently."""
    terms = torch.tensor([[9.0, 0.0, 2.0, 1.0], [0.0, 3.0, 2.0, 0.0], [1.0, 2.0, 4.0, 0.0]])
    yield {"terms": terms, "bias": torch.tensor([0.0, 4.0, 0.0, 2.0])}
    for num_heads, num_answers in apart(rng, 2, smallest=4, largest=9):
        chosen: set[tuple[int, ...]] = set()
        while len(chosen) < len(WAYS):
            drawn = {"terms": 2 * draw(rng, num_heads, num_answers), "bias": 2 * draw(rng, num_answers)}
            chosen = {tuple(way(drawn["terms"], drawn["bias"]).tolist()) for way in WAYS}
        yield drawn


winners_without = exercise(
    "winners_without",
    reference=_left,
    cases=_answered,
)
