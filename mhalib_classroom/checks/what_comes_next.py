"""Heads that look nowhere.

The state of a head without a softmax, and what a model of both kinds keeps.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor

from ._exercise import Case
from ._inputs import apart, draw
from ._markdown import exercises_of

exercise = exercises_of(globals())


def _scored(rng: random.Random) -> Iterator[Case]:
    yield {
        "scores": torch.tensor([[[0.0, 1.0, 2.0]]]),
        "mask": torch.tensor([[True, True, False]]),
        "extra": torch.tensor([1.0]),
    }
    for far, drawn in zip((0.0, 0.0, 200.0), apart(rng, 3, smallest=3), strict=True):
        num_heads, num_queries, num_kvpairs = drawn
        mask = draw(rng, num_queries, num_kvpairs) > -0.4
        mask[0], mask[1, :2], mask[2, 0] = False, True, False
        yield {
            "scores": 2 * draw(rng, num_heads, num_queries, num_kvpairs) + far,
            "mask": mask,
            "extra": draw(rng, num_heads) + 0.5 + far,
        }


def _escaping(scores: Tensor, mask: Tensor, extra: Tensor) -> Tensor:
    scores = scores.masked_fill(~mask, -torch.inf)
    largest = torch.maximum(scores.amax(-1, keepdim=True), extra[:, None, None])
    terms = (scores - largest).exp()
    return terms / (terms.sum(-1, keepdim=True) + (extra[:, None, None] - largest).exp())


def _with_column(scores: Tensor, column: Tensor) -> Tensor:
    every = torch.cat([scores, column[:, None, None].expand(*scores.shape[:2], 1)], -1)
    return every.softmax(-1)


def _hidden(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.masked_fill(~mask, -torch.inf)


def _unshifted(scores: Tensor, mask: Tensor, extra: Tensor) -> Tensor:
    scores = _hidden(scores, mask)
    largest = scores.amax(-1, keepdim=True)
    terms = (scores - largest.masked_fill(largest == -torch.inf, 0)).exp()
    return terms / (terms.sum(-1, keepdim=True) + extra[:, None, None].exp())


escaping_weights = exercise(
    "escaping_weights",
    reference=_escaping,
    cases=_scored,
)


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


def _faded(rng: random.Random) -> Iterator[Case]:
    yield {
        "keys": torch.tensor([[1.0, 0.0], [0.6, 0.8]]),
        "values": torch.tensor([[4.0], [6.0]]),
        "rates": torch.tensor([1.0, 0.5]),
        "decays": torch.tensor([[0.9, 0.7], [0.5, 0.25]]),
    }
    for num_tokens, d, d_v in apart(rng, 3, smallest=3):
        keys = torch.nn.functional.normalize(draw(rng, num_tokens, d), dim=-1)
        rates, decays = (draw(rng, *shape).sigmoid() * 0.6 + 0.3 for shape in ((num_tokens,), (num_tokens, d)))
        yield {"keys": keys, "values": draw(rng, num_tokens, d_v), "rates": rates, "decays": decays}


def _fading(
    keys: Tensor,
    values: Tensor,
    rates: Tensor,
    decays: Tensor,
    *,
    late: bool = False,
    read_first: bool = False,
    read: float = 1.0,
    keep_old: bool = False,
) -> Tensor:
    """The delta rule with a decay for each row, with one thing changed."""
    state = keys.new_zeros(keys.shape[1], values.shape[1])
    for key, value, rate, decay in zip(keys, values, rates, decays, strict=True):
        said = read * (key @ state)
        if not late:
            state = decay[:, None] * state
        if not read_first:
            said = read * (key @ state)
        missing = rate * value - said if keep_old else rate * (value - said)
        state = state + key[:, None] * missing
        if late:
            state = decay[:, None] * state
    return state


fading_state = exercise(
    "fading_state",
    reference=lambda keys, values, rates, decays: _fading(keys, values, rates, decays),
    cases=_faded,
    switches=_fading,
)


def _hybrids(rng: random.Random) -> Iterator[Case]:
    yield {"kinds": ["state", "state", "state", "cache"], "num_heads": 2, "head_dim": 3, "num_tokens": 5}
    for num_layers, num_heads, head_dim, num_tokens in apart(rng, 4, smallest=4, largest=13):
        kinds = ["cache"] * 2 + ["state"] * (num_layers - 2)
        rng.shuffle(kinds)
        yield {"kinds": kinds, "num_heads": num_heads, "head_dim": head_dim, "num_tokens": num_tokens}


def _kept(
    kinds: list[str],
    num_heads: int,
    head_dim: int,
    num_tokens: int,
    *,
    states: int = 1,
    square: bool = True,
    of_state: int = 4,
    of_cache: int = 2,
    parts: int = 2,
) -> int:
    """Bytes of all layers, with one thing changed."""
    state = of_state * states * num_heads * (head_dim**2 if square else head_dim)
    cache = of_cache * parts * num_heads * head_dim * num_tokens
    return sum(state if kind == "state" else cache for kind in kinds)


hybrid_bytes = exercise(
    "hybrid_bytes",
    reference=lambda kinds, num_heads, head_dim, num_tokens: _kept(kinds, num_heads, head_dim, num_tokens),
    cases=_hybrids,
)
