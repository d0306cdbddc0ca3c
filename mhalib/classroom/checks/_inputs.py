"""Inputs for exercises, drawn at random."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch

from ._exercise import Case


def draw(rng: random.Random, *shape: int) -> torch.Tensor:
    """A tensor of normal numbers that depends on nothing but `rng`."""
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    return torch.randn(*shape, generator=generator)


def sizes(rng: random.Random, count: int, smallest: int = 2, largest: int = 7) -> list[int]:
    """Sizes that all differ, so that a swapped axis shows."""
    return rng.sample(range(smallest, largest + 1), count)


def square_weights(rng: random.Random) -> Iterator[Case]:
    """Weights (B, h, N, N) of tokens that attend to each other: a small causal head, then three layers."""
    yield {"weights": torch.tensor([[[[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.25, 0.25, 0.5]]]])}
    for _ in range(3):
        batch_size, num_heads, num_tokens = sizes(rng, 3, smallest=3)
        yield {"weights": (2 * draw(rng, batch_size, num_heads, num_tokens, num_tokens)).softmax(-1)}
