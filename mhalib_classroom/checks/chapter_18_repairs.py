"""Chapter 18: a repair of the removal of several heads."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from ._exercise import Case, Exercise, Mistake
from ._inputs import apart, draw, own_sizes
from .chapter_18 import without_heads


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


mended_pruning = Exercise(
    "mended_pruning",
    chapter=18,
    given="nothing mended",
    title="mend the removal of several heads",
    reference=without_heads,
    cases=_several_heads,
    parts=("W_v", "W_o"),
    verified="three layers of which three heads were removed, in several orders; the numbers are those before pruning.",
    points=3,
    mistakes=[
        Mistake(
            "nothing mended",
            "after the first head is gone, `len(W_v)` is smaller, and `num_heads` is not: d comes out too small, and "
            "from then on pieces of other heads are cut out.",
            partial(_one_by_one, width="stale"),
        ),
        *(
            Mistake(
                f"numbers of what is left, d {width}",
                "d is right now, but when a head is gone, all heads after it move up by one. You count in what is "
                "left, and remove others than those that were named.",
                partial(_one_by_one, width=width),
            )
            for width in ("fixed", "counted down")
        ),
        Mistake(
            "moved by all that are gone",
            "you lower a head's number by all heads that are gone. Only those BEFORE it move it, and `heads` need not "
            "be in order.",
            partial(_one_by_one, moved=1),
        ),
        Mistake(
            "from the last, but d too small",
            "from the last head to the first, the numbers stay right. But d is still taken from a layer that has "
            "shrunk.",
            lambda W_v, W_o, heads, num_heads: _one_by_one(
                W_v, W_o, sorted(heads, reverse=True), num_heads, width="stale"
            ),
        ),
        Mistake(
            "first head only",
            "only the first of the heads was removed.",
            lambda W_v, W_o, heads, num_heads: without_heads(W_v, W_o, heads[:1], num_heads),
        ),
        Mistake(
            "only these heads kept",
            "you kept the heads that were to go, and removed the others.",
            lambda W_v, W_o, heads, num_heads: without_heads(
                W_v, W_o, [i for i in range(num_heads) if i not in heads], num_heads
            ),
        ),
    ],
)
