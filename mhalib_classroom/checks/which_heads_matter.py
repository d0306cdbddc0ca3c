"""Importance, gates, and the removal of a head.

A repair of the removal of several heads.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ._exercise import Case
from ._inputs import apart, draw, own_sizes
from ._markdown import exercises_of

exercise = exercises_of(globals())


def _outputs_and_gradients(rng: random.Random) -> Iterator[Case]:
    products = [[[[1.0], [2.0]]], [[[3.0], [1.0]]]], [[[[2.0], [-3.0]]], [[[1.0], [2.0]]]]
    yield {"outputs": torch.tensor(products[0]), "gradients": torch.tensor(products[1])}
    for batch_size, num_heads, num_queries, head_dim in apart(rng, 4):
        shape = (batch_size, num_heads, num_queries, head_dim)
        yield {"outputs": draw(rng, *shape), "gradients": draw(rng, *shape)}


def _per_example(outputs: Tensor, gradients: Tensor) -> Tensor:
    return (outputs * gradients).sum((-2, -1)).abs().mean(0)


head_importance = exercise(
    "head_importance",
    reference=_per_example,
    cases=_outputs_and_gradients,
)


def _parameters(rng: random.Random) -> Iterator[Case]:
    yield {"log_a": torch.tensor([-4.0, 0.0, 4.0])}
    for (num_heads,) in apart(rng, 1, smallest=4):
        yield {"log_a": torch.cat([torch.tensor([0.5]), draw(rng, num_heads - 1) * 3])}


def _gate(log_a: Tensor) -> Tensor:
    return (1.2 * log_a.sigmoid() - 0.1).clamp(0, 1)


hard_gate = exercise(
    "hard_gate",
    reference=_gate,
    cases=_parameters,
)


def _is_open(log_a: Tensor) -> Tensor:
    return (log_a - 0.33 * math.log(0.1 / 1.1)).sigmoid().sum()


open_gates = exercise(
    "open_gates",
    reference=_is_open,
    cases=_parameters,
)


def _matrices(rng: random.Random) -> Iterator[Case]:
    numbers = 10.0 * torch.arange(4)[:, None] + torch.arange(4)  # row r, column c: 10 r + c
    yield {"W_v": numbers, "W_o": numbers + 100, "head": 0, "num_heads": 2}
    drawn = apart(rng, 2, smallest=3, of=lambda h, d: [h, d, h * d])
    for where, (num_heads, head_dim) in zip(("last", "middle", "first"), drawn, strict=True):
        num_hiddens = num_heads * head_dim
        heads = {"last": num_heads - 1, "middle": rng.randrange(1, num_heads - 1), "first": 0}
        yield {
            "W_v": draw(rng, num_hiddens, num_hiddens),
            "W_o": draw(rng, num_hiddens, num_hiddens),
            "head": heads[where],
            "num_heads": num_heads,
        }


def _kept(num_hiddens: int, heads: list[int], num_heads: int) -> Tensor:
    owner = torch.arange(num_hiddens) // (num_hiddens // num_heads)
    return ~torch.isin(owner, torch.tensor(heads))


def without_heads(W_v: Tensor, W_o: Tensor, heads: list[int], num_heads: int) -> tuple[Tensor, Tensor]:
    """Both without these heads, by the numbers that they have before anything is removed."""
    keep = _kept(len(W_o), heads, num_heads)
    return W_v[keep], W_o[:, keep]


def _keeping(which: Callable[[Tensor, int, int, int], Tensor]) -> Callable[..., tuple[Tensor, Tensor]]:
    """Keep other rows and columns: which(numbers of all of them, head, num_heads, head_dim)."""

    def pruned(W_v: Tensor, W_o: Tensor, head: int, num_heads: int) -> tuple[Tensor, Tensor]:
        keep = which(torch.arange(len(W_o)), head, num_heads, len(W_o) // num_heads)
        return W_v[keep], W_o[:, keep]

    return pruned


prune = exercise(
    "prune",
    reference=lambda W_v, W_o, head, num_heads: without_heads(W_v, W_o, [head], num_heads),
    cases=_matrices,
)


@own_sizes("three heads to remove in every case: one is the last, and two are not", "len heads")
def _several_heads(rng: random.Random) -> Iterator[Case]:
    drawn = apart(rng, 2, smallest=4, of=lambda h, d: [h, d, h * d])
    for ordered, (num_heads, head_dim) in zip((True, True, False), drawn, strict=True):
        heads = [*sorted(rng.sample(range(num_heads - 1), 2)), num_heads - 1]
        yield {
            "W_v": draw(rng, num_heads * head_dim, num_heads * head_dim),
            "W_o": draw(rng, num_heads * head_dim, num_heads * head_dim),
            "heads": heads if ordered else [heads[1], heads[2], heads[0]],
            "num_heads": num_heads,
        }


def _one_by_one(
    W_v: Tensor, W_o: Tensor, heads: list[int], num_heads: int, *, width: str = "fixed", moved: int = 0
) -> tuple[Tensor, Tensor]:
    """Head after head; `width` says how d is found in each round, `moved` by how much the number falls in each."""
    D = len(W_v)
    for removed, head in enumerate(heads):
        head_dim = {"fixed": D // num_heads, "stale": len(W_v) // num_heads}.get(
            width, len(W_v) // (num_heads - removed)
        )
        keep = torch.arange(len(W_v)) // head_dim != head - moved * removed
        W_v, W_o = W_v[keep], W_o[:, keep]
    return W_v, W_o


mended_pruning = exercise(
    "mended_pruning",
    reference=without_heads,
    cases=_several_heads,
)
