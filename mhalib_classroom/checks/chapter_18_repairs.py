"""Chapter 18: a repair of the removal of several heads."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor

from ._exercise import Case
from ._inputs import apart, draw, own_sizes
from ._markdown import exercises_of
from .chapter_18 import without_heads

exercise = exercises_of(globals())


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
