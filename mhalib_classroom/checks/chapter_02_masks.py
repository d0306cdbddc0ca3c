"""Chapter 2: masks that hide padding and the future."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import torch

from mhalib.attention import causal_mask as right_causal_mask
from mhalib.attention import padding_mask as right_padding_mask

from ._exercise import Case
from ._inputs import apart
from ._markdown import exercises_of

exercise = exercises_of(globals())


def _lens(rng: random.Random) -> Iterator[Case]:
    yield {"valid_lens": torch.tensor([2, 0, 3]), "num_kvpairs": 4}
    for batch_size, num_kvpairs in apart(rng, 2, smallest=3):
        valid_lens = torch.tensor([rng.randint(0, num_kvpairs) for _ in range(batch_size)])
        yield {"valid_lens": valid_lens, "num_kvpairs": num_kvpairs}


padding_mask = exercise(
    "padding_mask",
    reference=right_padding_mask,
    cases=_lens,
)


def _lengths(rng: random.Random) -> Iterator[Case]:
    yield {"num_tokens": 3}
    for (num_tokens,) in apart(rng, 1, smallest=4, largest=9):
        yield {"num_tokens": num_tokens}


causal_mask = exercise(
    "causal_mask",
    reference=right_causal_mask,
    cases=_lengths,
)
