"""Chapter 31: the state of a head without a softmax."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor

from ._exercise import Case
from ._inputs import apart, draw
from ._markdown import exercises_of

exercise = exercises_of(globals())


def _written(rng: random.Random) -> Iterator[Case]:
    yield {
        "keys": torch.tensor([[1.0, 0.0], [0.0, 1.0]]),
        "values": torch.tensor([[4.0], [6.0]]),
        "decay": torch.tensor([0.5, 0.25]),
    }
    for num_tokens, d, d_v in apart(rng, 3, smallest=3):
        decay = draw(rng, num_tokens).sigmoid() * 0.6 + 0.3
        yield {"keys": draw(rng, num_tokens, d), "values": draw(rng, num_tokens, d_v), "decay": decay}


def _left(decay: Tensor) -> Tensor:
    """What is left of each token at the end, (N,): the product of the later decays."""
    return torch.cat([decay[1:].flip(0).cumprod(0).flip(0), decay.new_ones(1)])


def _weighed(keys: Tensor, values: Tensor, left: Tensor) -> Tensor:
    return (left[:, None] * keys).T @ values


decayed_state = exercise(
    "decayed_state",
    reference=lambda keys, values, decay: _weighed(keys, values, _left(decay)),
    cases=_written,
)


def _rated(rng: random.Random) -> Iterator[Case]:
    yield {
        "keys": torch.tensor([[1.0, 0.0], [1.0, 0.0]]),
        "values": torch.tensor([[4.0], [6.0]]),
        "rates": torch.tensor([1.0, 0.5]),
    }
    for num_tokens, d, d_v in apart(rng, 3, smallest=3):
        keys = torch.nn.functional.normalize(draw(rng, num_tokens, d), dim=-1)
        rates = draw(rng, num_tokens).sigmoid() * 0.6 + 0.3
        yield {"keys": keys, "values": draw(rng, num_tokens, d_v), "rates": rates}


def _delta(
    keys: Tensor,
    values: Tensor,
    rates: Tensor,
    *,
    read: float = 1.0,
    keep_old: bool = False,
    twice: bool = False,
    decay: bool = False,
) -> Tensor:
    """The delta rule, with one thing changed."""
    state = keys.new_zeros(keys.shape[1], values.shape[1])
    for key, value, rate in zip(keys, values, rates, strict=True):
        said = read * (key @ state)
        missing = rate * value - said if keep_old else rate * (value - said)
        if twice:
            missing = rate * missing
        state = ((1 - rate) * state if decay else state) + key[:, None] * missing
    return state


delta_state = exercise(
    "delta_state",
    reference=lambda keys, values, rates: _delta(keys, values, rates),
    cases=_rated,
    switches=_delta,
)
