"""Chapter 31: the state of a head without a softmax."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor

from ._exercise import Case, Exercise, Mistake
from ._inputs import apart, draw


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


decayed_state = Exercise(
    "decayed_state",
    chapter=31,
    given="newest token decayed",
    title="repair a state that forgets",
    reference=lambda keys, values, decay: _weighed(keys, values, _left(decay)),
    cases=_written,
    verified="four lists of tokens, each with a decay of its own; the newest token is written whole.",
    points=2,
    mistakes=[
        Mistake(
            "newest token decayed",
            "the newest token is multiplied by its own decay. The decay comes first and meets only what is older; then "
            "the token is written whole.",
            lambda keys, values, decay: _weighed(keys, values, _left(decay) * decay),
        ),
        Mistake(
            "nothing forgotten",
            "this is the plain sum of keys times values. Nothing is forgotten: use the decays.",
            lambda keys, values, decay: keys.T @ values,
        ),
        Mistake(
            "only the own decay",
            "each token is multiplied by its own decay, and by none of the later ones. A token meets the decay of "
            "every token after it.",
            lambda keys, values, decay: _weighed(keys, values, decay),
        ),
        Mistake(
            "decays before it",
            "each token is multiplied by the decays up to its own, so the newest counts least. It is the later decays "
            "that a token meets.",
            lambda keys, values, decay: _weighed(keys, values, decay.cumprod(0)),
        ),
        Mistake(
            "decay of the next",
            "the decays are one step late: before token t is written, the state is multiplied by decay[t].",
            lambda keys, values, decay: _weighed(keys, values, _left(decay.roll(1))),
        ),
        Mistake(
            "mixture",
            "you multiplied the new token by 1 - decay. That is a running mean; here the token is added as it is.",
            lambda keys, values, decay: _weighed(keys, values, _left(decay) * (1 - decay)),
        ),
        Mistake(
            "the last token alone",
            "the state holds the last token only: add it to the state, in place of replacing it.",
            lambda keys, values, decay: keys[-1:].T @ values[-1:],
        ),
        Mistake(
            "keys and values exchanged",
            "the state has a row for each channel of the keys, (d, d_v). Yours is transposed.",
            lambda keys, values, decay: _weighed(keys, values, _left(decay)).T,
        ),
    ],
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


delta_state = Exercise(
    "delta_state",
    chapter=31,
    title="write what is missing",
    reference=lambda keys, values, rates: _delta(keys, values, rates),
    cases=_rated,
    verified="four lists, one of them with the same key twice; every token has a rate of its own.",
    points=2,
    mistakes=[
        Mistake(
            "nothing read",
            "you added each key times its value, whatever the state said already. The delta rule reads first, and "
            "writes the difference.",
            lambda keys, values, rates: _delta(keys, values, rates, read=0.0),
        ),
        Mistake(
            "reading added",
            "you added what the state says to the value. What is missing is the value minus what the state says.",
            lambda keys, values, rates: _delta(keys, values, rates, read=-1.0),
        ),
        Mistake(
            "reading not rated",
            "the rate multiplies the value only. It multiplies the whole difference: otherwise all of the old answer "
            "is erased, and only a part of the new one is written.",
            lambda keys, values, rates: _delta(keys, values, rates, keep_old=True),
        ),
        Mistake(
            "rated twice",
            "the rate was applied twice, once to the difference and once to the key.",
            lambda keys, values, rates: _delta(keys, values, rates, twice=True),
        ),
        Mistake(
            "no rates",
            "every difference is written whole. Each token has a rate.",
            lambda keys, values, rates: _delta(keys, values, torch.ones_like(rates)),
        ),
        Mistake(
            "old state decayed",
            "you multiplied the whole state by 1 - rate. The delta rule changes the state only along the token's key.",
            lambda keys, values, rates: _delta(keys, values, rates, read=0.0, decay=True),
        ),
        Mistake(
            "all at once",
            "you computed all differences from one state, and added them together. Each token must read what the "
            "tokens before it have written.",
            lambda keys, values, rates: (
                (rates[:, None] * keys).T @ (values - keys @ ((rates[:, None] * keys).T @ values))
            ),
        ),
        Mistake(
            "from the end",
            "you went through the tokens from the last to the first.",
            lambda keys, values, rates: _delta(keys.flip(0), values.flip(0), rates.flip(0)),
        ),
        Mistake(
            "keys and values exchanged",
            "the state has a row for each channel of the keys, (d, d_v). Yours is transposed.",
            lambda keys, values, rates: _delta(keys, values, rates).T,
        ),
    ],
)
