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

from ._exercise import Case, Exercise, Mistake
from ._inputs import apart, draw


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


masked_softmax = Exercise(
    "masked_softmax",
    chapter=2,
    has_gradients=True,
    title="softmax over the keys that a query may see",
    reference=right_softmax,
    cases=_scores_and_mask,
    verified="hidden keys get exactly 0, rows sum to 1, and a row without any key is 0, not NaN; four random inputs.",
    points=2,
    mistakes=[
        Mistake(
            "mask inverted",
            "you hid the keys that may be seen. In this book True means: may attend. torch.nn.MultiheadAttention "
            "means the opposite.",
            lambda scores, mask: right_softmax(scores, ~mask),
        ),
        Mistake(
            "multiplied after the softmax",
            "you multiplied by the mask after the softmax, so the rows no longer sum to 1: what the hidden keys had "
            "taken is lost. Hide their scores before the softmax.",
            lambda scores, mask: scores.softmax(-1) * mask,
        ),
        Mistake(
            "scores multiplied",
            "hidden scores are 0 in your code, and exp(0) = 1 is not nothing. A hidden score must become minus "
            "infinity.",
            lambda scores, mask: (scores * mask).softmax(-1),
        ),
        Mistake(
            "hidden with 0 afterwards",
            "you filled hidden places of the scores with 0 and those of the weights too: the rows no longer sum to 1.",
            lambda scores, mask: (scores * mask).softmax(-1) * mask,
        ),
        Mistake(
            "softmax over the queries",
            "your softmax runs over the queries: columns sum to 1, not rows. Each query shares out its weight over the "
            "keys, the last axis.",
            lambda scores, mask: scores.masked_fill(~mask, -math.inf).softmax(-2).nan_to_num(0.0),
        ),
        Mistake(
            "NaN without keys",
            "all is right but for a query that may see nothing: its row divides 0 by 0. Such a row must be 0. One NaN "
            "in a batch ruins the gradient of all of it.",
            lambda scores, mask: filled(scores, mask, -math.inf),
        ),
        Mistake(
            "everything seen instead of nothing",
            "all is right but for a query that may see nothing: it now sees everything. Set its row to 0 in the end.",
            lambda scores, mask: scores.masked_fill(~mask & mask.any(-1, keepdim=True), -math.inf).softmax(-1),
        ),
        Mistake(
            "a large negative number",
            "all is right but for a query that may see nothing: with all its scores at one large negative number it "
            "looks at everything, hidden keys too. Such a row must be 0.",
            lambda scores, mask: filled(scores, mask, -1e9),
        ),
        Mistake(
            "exponentials not shifted",
            "you computed exp of the scores as they are. exp(100) is infinite in float32: subtract each row's maximum "
            "first, or use `softmax`, which does.",
            lambda scores, mask: (scores.exp() * mask) / (scores.exp() * mask).sum(-1, keepdim=True).clamp_min(1e-9),
        ),
        Mistake(
            "not negative enough",
            "hidden scores are -100 in your code. Real scores can be lower than that; take minus infinity.",
            lambda scores, mask: filled(scores, mask, -100.0),
        ),
        Mistake(
            "mask ignored",
            "this is the softmax of all scores: the mask has no effect. `masked_fill` returns a new tensor; keep it.",
            lambda scores, mask: scores.softmax(-1),
        ),
    ],
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


attend = Exercise(
    "attend",
    chapter=2,
    has_gradients=True,
    title="attention: output and weights",
    reference=right_attend,
    cases=_attention_inputs,
    parts=("the output", "the matrix of weights"),
    verified="output and weights agree with `mhalib.attend`, which is held against torch, on four inputs; values have "
    "a width of their own.",
    points=2,
    mistakes=[
        Mistake(
            "no scale",
            "the scores are not divided by the square root of d. The shapes cannot tell you.",
            _unscaled,
        ),
        Mistake(
            "mask inverted",
            "the mask is read the wrong way round: True means may attend.",
            lambda q, k, v, mask: right_attend(q, k, v, ~mask),
        ),
        Mistake(
            "mask ignored",
            "the mask has no effect. `masked_fill` returns a new tensor; keep it.",
            lambda q, k, v, mask: right_attend(q, k, v),
        ),
        Mistake(
            "mask after the softmax",
            "the mask is applied after the softmax, so the rows do not sum to 1.",
            _after_softmax,
        ),
        Mistake(
            "softmax over the queries",
            "the softmax runs over the queries: columns sum to 1, not rows.",
            _over_queries,
        ),
        Mistake(
            "divided by d",
            "the scores are divided by d, not by its square root.",
            _with_weights(lambda q, k, v, mask: right_softmax(q @ k.mT / q.shape[-1], mask)),
        ),
        Mistake(
            "scaled by the width of the values",
            "the scale is the square root of the values' width. Scores are products of queries and keys: take theirs.",
            _with_weights(lambda q, k, v, mask: right_softmax(q @ k.mT / math.sqrt(v.shape[-1]), mask)),
        ),
        Mistake(
            "scores multiplied",
            "hidden scores are 0 in your code, and exp(0) = 1 is not nothing. A hidden score must become minus "
            "infinity.",
            _with_weights(lambda q, k, v, mask: (q @ k.mT / math.sqrt(q.shape[-1]) * mask).softmax(-1)),
        ),
        Mistake(
            "mask added",
            "you added the mask to the scores. True counts as 1, which hides nothing. Fill hidden scores with minus "
            "infinity.",
            _with_weights(lambda q, k, v, mask: (q @ k.mT / math.sqrt(q.shape[-1]) + mask).softmax(-1)),
        ),
        Mistake(
            "weights forgotten",
            "you return the output alone. Return both: `output, weights`.",
            lambda q, k, v, mask: right_attend(q, k, v, mask)[0],
        ),
        Mistake(
            "weights first",
            "you return the weights first. Return `output, weights`.",
            lambda q, k, v, mask: right_attend(q, k, v, mask)[::-1],
        ),
        Mistake(
            "scores returned",
            "what you return as weights are the scores, before the softmax.",
            lambda q, k, v, mask: (right_attend(q, k, v, mask)[0], q @ k.mT / math.sqrt(q.shape[-1])),
        ),
    ],
)
