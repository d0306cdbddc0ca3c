"""The linear estimate of an exchange, and what a head is worth over all orders."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ._exercise import Case
from ._inputs import apart, draw
from ._markdown import exercises_of

exercise = exercises_of(globals())


def _outputs_and_gradients(rng: random.Random) -> Iterator[Case]:
    outputs, gradients = [[[[1.0], [2.0]]], [[[3.0], [1.0]]], [[[0.0], [2.0]]]], [[[[2.0], [-3.0]]]] * 3
    yield {"outputs": torch.tensor(outputs), "gradients": torch.tensor(gradients)}
    for batch_size, num_heads, num_queries, head_dim in apart(rng, 4, smallest=3):
        shape = (batch_size, num_heads, num_queries, head_dim)
        yield {"outputs": draw(rng, *shape), "gradients": draw(rng, *shape)}


def _estimate(outputs: Tensor, gradients: Tensor) -> Tensor:
    return ((outputs.roll(1, 0) - outputs) * gradients).sum((-2, -1)).mean(0)


attribution_estimate = exercise("attribution_estimate", reference=_estimate, cases=_outputs_and_gradients)


def _tables(rng: random.Random) -> Iterator[Case]:
    yield {"accuracies": torch.tensor([0.0, 0.1, 0.3, 1.0])}
    for num_heads in (3, 4):
        yield {"accuracies": draw(rng, 2**num_heads).sigmoid()}


def _orders(size: int, num_heads: int) -> float:
    return math.factorial(size) * math.factorial(num_heads - 1 - size) / math.factorial(num_heads)


def _gains(accuracies: Tensor, weight: Callable[[int, int], float] = _orders) -> Tensor:
    num_heads = len(accuracies).bit_length() - 1
    values = torch.zeros(num_heads)
    for head in range(num_heads):
        for number in range(len(accuracies)):
            if not number >> head & 1:
                gain = accuracies[number | 1 << head] - accuracies[number]
                values[head] += weight(number.bit_count(), num_heads) * gain
    return values


shapley_values = exercise("shapley_values", reference=lambda accuracies: _gains(accuracies), cases=_tables)
