"""Chapter 2: repairs of a scale and of a mask."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from mhalib.attention import padding_mask

from ._exercise import Case, Exercise, Mistake
from ._inputs import apart, draw
from .chapter_02 import filled


def _one_head(rng: random.Random) -> Iterator[Case]:
    for batch_size, num_tokens, head_dim, num_hiddens in ([1, 3, 2, 5], *apart(rng, 4, 2)):
        yield {
            "x": draw(rng, batch_size, num_tokens, num_hiddens),
            **{name: draw(rng, head_dim, num_hiddens) for name in ("W_q", "W_k", "W_v")},
        }


def _head(
    x: Tensor, W_q: Tensor, W_k: Tensor, W_v: Tensor, *, factor: Callable[[int, int, int], float] = lambda d, D, N: 1.0
) -> Tensor:
    q, k, v = x @ W_q.mT, x @ W_k.mT, x @ W_v.mT
    # `factor` is beside the right scale
    return (q @ k.mT / math.sqrt(q.shape[-1]) * factor(q.shape[-1], x.shape[-1], x.shape[1])).softmax(-1) @ v


mended_scale = Exercise(
    "mended_scale",
    chapter=2,
    given="nothing mended",
    title="mend a head's scale",
    reference=_head,
    cases=_one_head,
    verified="three heads whose width d is not the width D of their input: the scores are divided by the root of d.",
    mistakes=[
        Mistake(
            "nothing mended",
            "the scores are still divided by the square root of D, the width of the input. A score is a sum of d "
            "products, one for each number of a query: the width of `q` counts.",
            partial(_head, factor=lambda d, D, N: math.sqrt(d / D)),
        ),
        Mistake(
            "no scale",
            "now the scores are not divided at all.",
            partial(_head, factor=lambda d, D, N: math.sqrt(d)),
        ),
        Mistake(
            "multiplied",
            "the scores are multiplied by the square root of d. That makes large scores larger.",
            partial(_head, factor=lambda d, D, N: d),
        ),
        Mistake(
            "divided by d",
            "the scores are divided by d, not by its square root.",
            partial(_head, factor=lambda d, D, N: 1 / math.sqrt(d)),
        ),
        Mistake(
            "divided by both",
            "the scores are divided twice, by the square root of D and by that of d.",
            partial(_head, factor=lambda d, D, N: 1 / math.sqrt(D)),
        ),
        Mistake(
            "divided after the softmax",
            "you divide the weights, after the softmax: they no longer sum to 1. Divide the scores.",
            lambda x, W_q, W_k, W_v: _head(x, W_q, W_k, W_v / math.sqrt(len(W_q)), factor=lambda d, D, N: math.sqrt(d)),
        ),
        Mistake(
            "scaled by the number of tokens",
            "the scores are divided by the square root of the number of tokens. How large one score is does not depend "
            "on how many there are.",
            partial(_head, factor=lambda d, D, N: math.sqrt(d / N)),
        ),
    ],
)


def _low_scores(rng: random.Random) -> Iterator[Case]:
    yield {"scores": torch.tensor([[[[-1.0, -2.0, 0.5]]]]), "mask": torch.tensor([[[[True, True, False]]]])}
    kinds = [(0.0, 0.0), (-6.0, 0.0), (-3e5, 0.0), (-3e9, 0.0), (0.0, 2e5), (-3e9, 3e9)]
    for (middle, hidden_above), drawn in zip(kinds, apart(rng, 4, 6, smallest=3, largest=12), strict=True):
        batch_size, num_heads, num_queries, num_kvpairs = drawn
        mask = padding_mask(torch.tensor([rng.randint(1, num_kvpairs - 1) for _ in range(batch_size)]), num_kvpairs)
        scores = 2 * draw(rng, batch_size, num_heads, num_queries, num_kvpairs).double() + middle + ~mask * hidden_above
        yield {"scores": scores, "mask": mask}


mended_filling = Exercise(
    "mended_filling",
    chapter=2,
    given="filled with about 0",
    title="mend a mask that hides nothing",
    reference=filled,
    cases=_low_scores,
    verified="seven tables of scores, some of them far below zero, some with hidden scores far above all others.",
    mistakes=[
        Mistake(
            "filled with about 0",
            "the hidden scores become 0, or so small that it makes no difference, and exp(0) = 1: a hidden key gets as "
            "much weight as a visible one whose score is 0. It must become minus infinity, so that exp gives 0.",
            partial(filled, value=0.0),
        ),
        *(
            Mistake(
                f"not low enough: {by:g}",
                "a number that is low may not be low enough: a visible score can be lower, and then the hidden keys "
                "win. Take minus infinity, or the lowest number that the type has.",
                partial(filled, value=by),
            )
            for by in (-1e9, -1e4)
        ),
        *(
            Mistake(
                f"lowered by {by:g}",
                "you lower the hidden scores by a fixed number. One that was far above the visible ones is still seen: "
                "put minus infinity in its place.",
                lambda scores, mask, by=by: (scores - by * ~mask).softmax(-1),
            )
            for by in (1e4, 1e9)
        ),
        Mistake(
            "the minus is gone",
            "the hidden scores become very large: they take all the weight.",
            partial(filled, value=1e9),
        ),
        Mistake(
            "shared out again",
            "you took the hidden weights away after the softmax and divided by what was left. Where a hidden score is "
            "far above the visible ones nothing is left, and 0/0 is NaN. Hide the scores, before the softmax.",
            lambda scores, mask: scores.softmax(-1) * mask / (scores.softmax(-1) * mask).sum(-1, keepdim=True),
        ),
        Mistake(
            "hidden after the softmax",
            "you set the weights of hidden keys to 0 after the softmax. They have taken their share by then: the rows "
            "no longer sum to 1.",
            lambda scores, mask: scores.softmax(-1) * mask,
        ),
        Mistake(
            "mask upside down",
            "you hide what may be seen. `mask` is True where a query may attend.",
            lambda scores, mask: scores.masked_fill(mask, -math.inf).softmax(-1),
        ),
        Mistake(
            "not masked",
            "the mask has no effect any more.",
            lambda scores, mask: scores.softmax(-1),
        ),
    ],
)
