"""Inputs for exercises, drawn at random."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence

import torch

from ._exercise import Case

Cases = Callable[[random.Random], Iterator[Case]]


def draw(rng: random.Random, *shape: int) -> torch.Tensor:
    """A tensor of normal numbers that depends on nothing but `rng`."""
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    return torch.randn(*shape, generator=generator)


def sizes(rng: random.Random, count: int, smallest: int = 2, largest: int = 7) -> list[int]:
    """Sizes that all differ, so that a swapped axis shows."""
    return rng.sample(range(smallest, largest + 1), count)


def apart(
    rng: random.Random,
    count: int,
    cases: int = 3,
    *,
    smallest: int = 2,
    largest: int = 7,
    of: Callable[..., Sequence[int]] = lambda *drawn: drawn,
) -> list[list[int]]:
    """Numbers that several cases' sizes are made of, so that no size and no ratio can be taken for a constant.

    In a case, all sizes differ. Between two cases, every size differs, and so does every ratio of two sizes.

    count: how many numbers a case has.
    of: a case's sizes, of its numbers; the numbers themselves, if nothing is said. With `lambda B, h, d: [B, h, h * d]`
        a width differs from all other sizes, too.

    Returns:
        For each case, `count` different numbers from `smallest` to `largest`.

    Raises:
        ValueError: there are no such sizes in this range, or too few to be found.
    """
    for _ in range(200):
        found: list[list[int]] = []
        known: list[Sequence[int]] = []
        for _ in range(10 * cases):
            drawn = sizes(rng, count, smallest, largest)
            every = of(*drawn)
            if len(set(every)) == len(every) and all(_are_apart(every, other) for other in known):
                found.append(drawn)
                known.append(every)
                if len(found) == cases:
                    return found
    raise ValueError(f"count={count}, cases={cases}: no such sizes from {smallest} to {largest}: widen the range")


def _are_apart(one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether no size stays and no two sizes keep their ratio."""
    changes = list(zip(one, other, strict=True))
    pairs = itertools.combinations(changes, 2)
    return all(a != b for a, b in changes) and all(a * d != b * c for (a, b), (c, d) in pairs)


def own_sizes(why: str, *lengths: str) -> Callable[[Cases], Cases]:
    """For a function that draws cases whose sizes, or some of them, are not `apart`.

    why: the reason.
    lengths: which ones, as the test names them: "weights.0" is the first axis of `weights`. Without any: all.
    """

    def marked(cases: Cases) -> Cases:
        cases.own_sizes = (why, lengths)  # type: ignore[attr-defined]
        return cases

    return marked


def square_weights(rng: random.Random) -> Iterator[Case]:
    """Weights (B, h, N, N) of tokens that attend to each other: a small causal head, then three layers."""
    yield {"weights": torch.tensor([[[[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.25, 0.25, 0.5]]]])}
    for batch_size, num_heads, num_tokens in apart(rng, 3, smallest=3):
        yield {"weights": (2 * draw(rng, batch_size, num_heads, num_tokens, num_tokens)).softmax(-1)}
