"""What a layer costs, and the whole layer."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

from mhalib.costs import Sizes, pair_flops

from ._exercise import Case
from ._heads import interleaved_merge, interleaved_split, straight_merge, straight_split
from ._inputs import apart
from ._layer import forward, layer_inputs
from ._markdown import exercises_of

exercise = exercises_of(globals())


def _numbers(rng: random.Random) -> Iterator[Case]:
    """Distinct sizes, with `num_hiddens` a multiple of `num_heads`."""
    for num_tokens, head_dim, num_heads in apart(rng, 3, largest=20, of=lambda tokens, d, h: [tokens, d, h, h * d]):
        yield {"num_tokens": num_tokens, "num_hiddens": num_heads * head_dim, "num_heads": num_heads}


count_flops = exercise(
    "count_flops",
    reference=lambda num_tokens, num_hiddens, num_heads: pair_flops(Sizes(num_hiddens, num_heads), num_tokens),
    cases=_numbers,
)


multi_head = exercise(
    "multi_head",
    reference=forward,
    cases=layer_inputs,
    switches=forward,
)
