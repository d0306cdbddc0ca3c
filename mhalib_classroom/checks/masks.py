"""Softmax with a mask, and attention.

Masks that hide padding and the future. The repair of a mask that hides nothing.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from mhalib.attention import attend as right_attend
from mhalib.attention import causal_mask as right_causal_mask
from mhalib.attention import masked_softmax as right_softmax
from mhalib.attention import padding_mask as right_padding_mask

from ._exercise import Case
from ._inputs import apart, draw
from ._markdown import exercises_of

exercise = exercises_of(globals())


def _scores_and_mask(rng: random.Random) -> Iterator[Case]:
    yield {"scores": draw(rng, 2, 3), "mask": torch.tensor([[True, True, False], [False, False, True]])}
    for number, drawn in enumerate(apart(rng, 4, smallest=3)):
        batch_size, num_heads, num_queries, num_kvpairs = drawn
        valid_lens = torch.tensor([rng.randint(1, num_kvpairs - 1) for _ in range(batch_size)])
        if number == 2:
            valid_lens[0] = 0  # an example without any key
        mask = right_padding_mask(valid_lens, num_kvpairs)
        large = 1.0 if number else 200.0  # exp would overflow
        yield {"scores": large * draw(rng, batch_size, num_heads, num_queries, num_kvpairs), "mask": mask}


def filled(scores: Tensor, mask: Tensor, value: float = -math.inf) -> Tensor:
    """Softmax after the hidden scores were replaced by `value`; NaN where nothing is seen and it is infinite."""
    return scores.masked_fill(~mask, value).softmax(-1)


masked_softmax = exercise(
    "masked_softmax",
    reference=right_softmax,
    cases=_scores_and_mask,
    has_gradients=True,
)


def _attention_inputs(rng: random.Random) -> Iterator[Case]:
    first = {"q": draw(rng, 1, 1, 2, 4), "k": draw(rng, 1, 1, 3, 4), "v": draw(rng, 1, 1, 3, 2)}
    yield {**first, "mask": torch.tensor([[True, True, False], [True, True, True]])}
    for batch_size, num_heads, num_queries, num_kvpairs, head_dim, value_dim in apart(rng, 6, largest=8):
        lead = (batch_size, num_heads)
        valid_lens = torch.tensor([rng.randint(1, num_kvpairs - 1) for _ in range(batch_size)])
        yield {
            "q": draw(rng, *lead, num_queries, head_dim),
            "k": draw(rng, *lead, num_kvpairs, head_dim),
            "v": draw(rng, *lead, num_kvpairs, value_dim),
            "mask": right_padding_mask(valid_lens, num_kvpairs),
        }


def _attended(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor,
    *,
    scale: Callable[[int, int], float] = lambda d, d_v: math.sqrt(d),
    hidden: str = "before",
    over: int = -1,
    returned: Callable[[Tensor, Tensor, Tensor], Any] = lambda output, weights, scores: (output, weights),
) -> Any:
    """Output and weights; `hidden` says when and how the mask is used."""
    raw = q @ k.mT / scale(q.shape[-1], v.shape[-1])
    filled = {"before": ~mask, "upside down": mask}.get(hidden, torch.zeros_like(mask))
    scores = {"multiplied": raw * mask, "added": raw + mask}.get(hidden, raw).masked_fill(filled, -math.inf)
    weights = scores.softmax(over).nan_to_num(0.0)
    weights = weights * mask if hidden == "after" else weights
    return returned(weights @ v, weights, raw)


attend = exercise(
    "attend",
    reference=right_attend,
    cases=_attention_inputs,
    switches=_attended,
    has_gradients=True,
)


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


def _low_scores(rng: random.Random) -> Iterator[Case]:
    yield {"scores": torch.tensor([[[[-1.0, -2.0, 0.5]]]]), "mask": torch.tensor([[[[True, True, False]]]])}
    kinds = [(0.0, 0.0), (-6.0, 0.0), (-3e5, 0.0), (-3e9, 0.0), (0.0, 2e5), (-3e9, 3e9)]
    for (middle, hidden_above), drawn in zip(kinds, apart(rng, 4, 6, smallest=3, largest=12), strict=True):
        batch_size, num_heads, num_queries, num_kvpairs = drawn
        mask = right_padding_mask(
            torch.tensor([rng.randint(1, num_kvpairs - 1) for _ in range(batch_size)]), num_kvpairs
        )
        scores = 2 * draw(rng, batch_size, num_heads, num_queries, num_kvpairs).double() + middle + ~mask * hidden_above
        yield {"scores": scores, "mask": mask}


mended_filling = exercise(
    "mended_filling",
    reference=filled,
    cases=_low_scores,
    switches=filled,
)
