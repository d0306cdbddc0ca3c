"""Keys and values that heads share, and scores of latents.

Two changes to trained weights: average the heads of a group, and reorder the rows of each head.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import torch
from torch import Tensor

from ._exercise import Case
from ._inputs import apart, draw
from ._markdown import exercises_of

exercise = exercises_of(globals())


def _keys(rng: random.Random) -> Iterator[Case]:
    yield {"k": torch.tensor([[[[1.0], [2.0]], [[3.0], [4.0]]]]), "num_heads": 4}
    drawn = apart(
        rng, 5, of=lambda g, shared, B, K, d: [g, shared, B, K, d, g * shared]
    )  # a group is never as large as there are groups
    for num_kv_heads, shared, batch_size, num_kvpairs, head_dim in drawn:
        yield {"k": draw(rng, batch_size, num_kv_heads, num_kvpairs, head_dim), "num_heads": num_kv_heads * shared}


def _for_heads(k: Tensor, num_heads: int) -> Tensor:
    return k[:, torch.arange(num_heads) * k.shape[1] // num_heads]


def _repeated(k: Tensor, num_heads: int, dim: int) -> Tensor:
    return k.repeat_interleave(num_heads // k.shape[1], dim)


keys_for_heads = exercise(
    "keys_for_heads",
    reference=_for_heads,
    cases=_keys,
)


def _memories(rng: random.Random) -> Iterator[Case]:
    shapes = [(3, 2, 6, 4)]
    drawn = apart(rng, 4, largest=9, of=lambda layers, g, shared, d: [layers, g, shared, d, g * shared])
    shapes += [(layers, g, g * shared, d) for layers, g, shared, d in drawn]
    for number, (num_layers, num_kv_heads, num_heads, head_dim) in enumerate(shapes):
        per_token = 2 * num_layers * num_kv_heads * head_dim
        fitting = rng.randint(200, 900) if number else 10
        yield {
            "num_numbers": per_token * fitting + rng.randint(per_token // 2 + 1, per_token * 3 // 4),
            "num_layers": num_layers,
            "num_heads": num_heads,
            "num_kv_heads": num_kv_heads,
            "head_dim": head_dim,
        }


tokens_that_fit = exercise(
    "tokens_that_fit",
    reference=lambda num_numbers, num_layers, num_heads, num_kv_heads, head_dim: (
        num_numbers // (2 * num_layers * num_kv_heads * head_dim)
    ),
    cases=_memories,
)


def _latents(rng: random.Random) -> Iterator[Case]:
    yield {
        "q": torch.tensor([[[1.0, 2.0]], [[3.0, 4.0]]]),
        "up": torch.tensor([[[1.0, 0.0, 2.0], [0.0, 1.0, 0.0]], [[0.0, 1.0, 0.0], [2.0, 0.0, 1.0]]]),
        "latents": torch.tensor([[1.0, 0.0, 1.0], [0.0, 2.0, 0.0]]),
    }
    for num_heads, num_queries, num_kvpairs, head_dim, width in apart(
        rng, 5, largest=9, of=lambda h, Q, K, d, width: [h, Q, K, d, width, h * d]
    ):
        yield {
            "q": draw(rng, num_heads, num_queries, head_dim),
            "up": draw(rng, num_heads, head_dim, width),
            "latents": draw(rng, num_kvpairs, width),
        }


def _scores(q: Tensor, up: Tensor, latents: Tensor) -> Tensor:
    return q @ up @ latents.T / math.sqrt(q.shape[-1])


absorbed_scores = exercise(
    "absorbed_scores",
    reference=_scores,
    cases=_latents,
)


def _projections(rng: random.Random) -> Iterator[Case]:
    """Of 4 to 42 heads; but for the first, columns too can be cut into as many parts as a group has heads."""
    rows = [[1.0], [2.0], [3.0], [5.0], [7.0], [6.0], [4.0], [9.0]]
    yield {"weight": torch.tensor(rows), "num_heads": 4, "num_groups": 2}
    drawn = apart(
        rng, 4, of=lambda g, shared, d, pieces: [g, shared, d, pieces, g * shared, g * shared * d, shared * pieces]
    )
    for num_groups, shared, head_dim, pieces in drawn:
        yield {
            "weight": draw(rng, num_groups * shared * head_dim, shared * pieces),
            "num_heads": num_groups * shared,
            "num_groups": num_groups,
        }


def _in_groups(weight: Tensor, num_heads: int, num_groups: int) -> Tensor:
    """(g, h/g, d, D_in)."""
    return weight.reshape(num_groups, num_heads // num_groups, -1, weight.shape[1])


def _pooled(weight: Tensor, num_heads: int, num_groups: int) -> Tensor:
    return _in_groups(weight, num_heads, num_groups).mean(1).flatten(0, 1)


pooled = exercise(
    "pooled",
    reference=_pooled,
    cases=_projections,
)


def _rotary_rows(rng: random.Random) -> Iterator[Case]:
    yield {"weight": torch.arange(12.0)[:, None], "num_heads": 2}
    drawn = apart(rng, 3, smallest=3, of=lambda h, half, width: [h, width, 2 * half, 2 * half * h])
    for num_heads, half, width in drawn:
        yield {"weight": draw(rng, num_heads * 2 * half, width), "num_heads": num_heads}


def _two_halves(x: Tensor, dim: int) -> Tensor:
    """The even indices of an axis, then the odd ones."""
    even, odd = (torch.arange(first, x.shape[dim], 2) for first in (0, 1))
    return x.index_select(dim, torch.cat([even, odd]))


def _to_halves(weight: Tensor, num_heads: int) -> Tensor:
    return _two_halves(weight.unflatten(0, (num_heads, -1)), 1).flatten(0, 1)


to_halves = exercise(
    "to_halves",
    reference=_to_halves,
    cases=_rotary_rows,
)
