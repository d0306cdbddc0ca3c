"""Chapter 2: softmax with a mask, and attention."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from mhalib.attention import attend as right_attend
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


def _with_weights(weights_of: Callable[..., Tensor]) -> Callable[..., tuple[Tensor, Tensor]]:
    """Attention with these weights."""

    def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        weights = weights_of(q, k, v, mask)
        return weights @ v, weights

    return attention


def _unscaled(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    weights = right_softmax(q @ k.mT, mask)
    return weights @ v, weights


def _over_queries(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    hidden = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(~mask, -math.inf)
    weights = hidden.softmax(-2).nan_to_num(0.0)
    return weights @ v, weights


def _after_softmax(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    weights = (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1) * mask
    return weights @ v, weights


attend = exercise(
    "attend",
    reference=right_attend,
    cases=_attention_inputs,
    has_gradients=True,
)
