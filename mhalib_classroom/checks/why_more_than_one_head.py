"""Two heads side by side. The heads whose average loses the order."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor

from ._exercise import Case
from ._inputs import apart, draw, own_sizes
from ._markdown import exercises_of

exercise = exercises_of(globals())


@own_sizes("there are two heads, as the exercise says", "weights.0")
def _two_heads(rng: random.Random) -> Iterator[Case]:
    for num_queries, num_kvpairs, head_dim in ([1, 2, 2], *apart(rng, 3, 2, smallest=3)):
        yield {
            "weights": draw(rng, 2, num_queries, num_kvpairs).softmax(-1),
            "values": draw(rng, 2, num_kvpairs, head_dim),
        }


def _side_by_side(weights: Tensor, values: Tensor) -> Tensor:
    return (weights @ values).transpose(0, 1).flatten(1)


two_heads = exercise(
    "two_heads",
    reference=_side_by_side,
    cases=_two_heads,
)


def _heads_and_mirrors(rng: random.Random) -> Iterator[Case]:
    yield {"weights": torch.tensor([[0.25, 0.75], [0.5, 0.5], [1.0, 0.0]])}
    for num_heads, num_nouns in apart(rng, 2, smallest=4, largest=10):
        makers = [_palindrome, _ends_alone, _all_but_the_ends, _even]
        makers += rng.choices((_palindrome, _any_weights), k=num_heads - len(makers))
        rng.shuffle(makers)
        yield {"weights": torch.stack([make(rng, num_nouns) for make in makers])}


def _any_weights(rng: random.Random, num_nouns: int) -> Tensor:
    """No two are equal."""
    counts = torch.tensor(rng.sample(range(1, 13), num_nouns))
    return counts / counts.sum()


def _even(rng: random.Random, num_nouns: int) -> Tensor:
    return torch.full((num_nouns,), 1 / num_nouns)


def _palindrome(rng: random.Random, num_nouns: int) -> Tensor:
    """The same from behind, and not all equal."""
    half = rng.sample(range(1, 13), (num_nouns + 1) // 2)
    counts = torch.tensor(half + half[: num_nouns // 2][::-1])
    return counts / counts.sum()


def _ends_alone(rng: random.Random, num_nouns: int) -> Tensor:
    """Only first and last are equal."""
    counts = torch.tensor(rng.sample(range(1, 13), num_nouns))
    counts[-1] = counts[0]
    return counts / counts.sum()


def _all_but_the_ends(rng: random.Random, num_nouns: int) -> Tensor:
    """The same from behind, but for first and last."""
    weights = _palindrome(rng, num_nouns)
    weights[-1] /= 2
    return weights / weights.sum()


same_average = exercise(
    "same_average",
    reference=lambda weights: torch.isclose(weights, weights.flip(-1)).all(-1),
    cases=_heads_and_mirrors,
)
