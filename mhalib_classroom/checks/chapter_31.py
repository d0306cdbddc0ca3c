"""Chapter 31: heads that look nowhere, and heads that keep few keys."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor

from ._exercise import Case, Exercise, Mistake
from ._inputs import apart, draw


def _scored(rng: random.Random) -> Iterator[Case]:
    yield {
        "scores": torch.tensor([[[0.0, 1.0, 2.0]]]),
        "mask": torch.tensor([[True, True, False]]),
        "extra": torch.tensor([1.0]),
    }
    for far, drawn in zip((0.0, 0.0, 200.0), apart(rng, 3, smallest=3), strict=True):
        num_heads, num_queries, num_kvpairs = drawn
        mask = draw(rng, num_queries, num_kvpairs) > -0.4
        mask[0], mask[1, :2], mask[2, 0] = False, True, False
        yield {
            "scores": 2 * draw(rng, num_heads, num_queries, num_kvpairs) + far,
            "mask": mask,
            "extra": draw(rng, num_heads) + 0.5 + far,
        }


def _escaping(scores: Tensor, mask: Tensor, extra: Tensor) -> Tensor:
    scores = scores.masked_fill(~mask, -torch.inf)
    largest = torch.maximum(scores.amax(-1, keepdim=True), extra[:, None, None])
    terms = (scores - largest).exp()
    return terms / (terms.sum(-1, keepdim=True) + (extra[:, None, None] - largest).exp())


def _with_column(scores: Tensor, column: Tensor) -> Tensor:
    every = torch.cat([scores, column[:, None, None].expand(*scores.shape[:2], 1)], -1)
    return every.softmax(-1)


def _hidden(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.masked_fill(~mask, -torch.inf)


def _unshifted(scores: Tensor, mask: Tensor, extra: Tensor) -> Tensor:
    scores = _hidden(scores, mask)
    largest = scores.amax(-1, keepdim=True)
    terms = (scores - largest.masked_fill(largest == -torch.inf, 0)).exp()
    return terms / (terms.sum(-1, keepdim=True) + extra[:, None, None].exp())


escaping_weights = Exercise(
    "escaping_weights",
    chapter=31,
    title="let heads look nowhere",
    reference=_escaping,
    cases=_scored,
    verified="four sets of scores, with scores of 200, keys that are hidden, and queries that see none.",
    points=2,
    mistakes=[
        Mistake(
            "ordinary softmax",
            "your rows sum to 1, so `extra` takes nothing. It belongs in the denominator, and no key gets its share.",
            lambda scores, mask, extra: _hidden(scores, mask).softmax(-1).nan_to_num(0.0),
        ),
        Mistake(
            "the column left in",
            "the last column is the share of `extra`. Compute it, then leave it out: there is no key for it.",
            lambda scores, mask, extra: _with_column(_hidden(scores, mask), extra),
        ),
        Mistake(
            "divided again",
            "you took the column out and divided by the sum of what was left. That gives its share back to the keys: "
            "this is the ordinary softmax, and a query that sees no key becomes NaN.",
            lambda scores, mask, extra: (
                _with_column(_hidden(scores, mask), extra)[..., :-1]
                / _with_column(_hidden(scores, mask), extra)[..., :-1].sum(-1, keepdim=True)
            ),
        ),
        Mistake(
            "always 1",
            "you added 1 to the denominator. That is right for an extra score of 0, and each head has its own: add the "
            "exponential of `extra`.",
            lambda scores, mask, extra: _with_column(_hidden(scores, mask), torch.zeros_like(extra))[..., :-1],
        ),
        Mistake(
            "extra without exp",
            "you added `extra` itself to the sum of the exponentials. It is a score: add its exponential.",
            lambda scores, mask, extra: (
                _hidden(scores, mask).exp() / (_hidden(scores, mask).exp().sum(-1, keepdim=True) + extra[:, None, None])
            ),
        ),
        Mistake(
            "masked after the softmax",
            "hidden keys took a share of the weight before you set them to 0. Hide their scores before the softmax.",
            lambda scores, mask, extra: _with_column(scores, extra)[..., :-1] * mask,
        ),
        Mistake(
            "hidden scores 0",
            "you set hidden scores to 0, and e^0 is 1: hidden keys get weight. Set them to -inf.",
            lambda scores, mask, extra: _with_column(scores * mask, extra)[..., :-1],
        ),
        Mistake(
            "no mask",
            "hidden keys get weight: the mask is not used.",
            lambda scores, mask, extra: _with_column(scores, extra)[..., :-1],
        ),
        Mistake(
            "overflow",
            "it is right on paper, but the exponential of 200 is infinite in float32, and inf/inf is NaN. Subtract the "
            "largest score first, or let softmax do it.",
            lambda scores, mask, extra: (
                _hidden(scores, mask).exp()
                / (_hidden(scores, mask).exp().sum(-1, keepdim=True) + extra[:, None, None].exp())
            ),
        ),
        Mistake(
            "extra not shifted",
            "you subtracted the largest score from the scores and not from `extra`, so it counts too much or too "
            "little. Subtract the same number from both.",
            _unshifted,
        ),
    ],
)


def _indexed(rng: random.Random) -> Iterator[Case]:
    yield {
        "index": torch.tensor([[[3.0, 1.0, 2.0], [0.0, 9.0, 5.0]]]),
        "mask": torch.tensor([[False, True, True], [True, False, False]]),
        "keep": 2,
    }
    for num_heads, num_queries, more in apart(rng, 3, smallest=3, of=lambda h, Q, more: [h, Q, more, Q + more]):
        num_kvpairs = num_queries + more
        index = draw(rng, num_heads, num_queries, num_kvpairs)
        mask = draw(rng, num_queries, num_kvpairs) > -0.3
        mask[0], mask[1], mask[2] = False, False, True
        mask[1, num_kvpairs - 1] = True  # one key alone, and none
        index[..., 0] += 6  # often hidden, always promising
        mask[3 % num_queries :, 0] = False
        mask[2, 0] = False
        yield {"index": index, "mask": mask, "keep": 2}


def _top(index: Tensor, keep: int) -> Tensor:
    best = index.topk(keep, -1).indices
    return torch.zeros_like(index, dtype=torch.bool).scatter(-1, best, True)


kept_keys = Exercise(
    "kept_keys",
    chapter=31,
    given="chosen, then hidden",
    title="repair the choice of keys",
    reference=lambda index, mask, keep: _top(_hidden(index, mask), keep) & mask,
    cases=_indexed,
    verified="four masks, in which hidden keys are promising, and some queries see fewer keys than they may keep.",
    points=2,
    mistakes=[
        Mistake(
            "chosen, then hidden",
            "hidden keys were among the chosen, and took the places of keys that the query may see. Hide them before "
            "you choose.",
            lambda index, mask, keep: _top(index, keep) & mask,
        ),
        Mistake(
            "hidden keys fill up",
            "where a query sees fewer keys than it may keep, `topk` fills up with hidden ones. Take them out again.",
            lambda index, mask, keep: _top(_hidden(index, mask), keep),
        ),
        Mistake(
            "hidden keys kept",
            "the mask is not used: hidden keys are kept.",
            lambda index, mask, keep: _top(index, keep),
        ),
        Mistake(
            "hidden index 0",
            "you set the index of hidden keys to 0. Keys below 0 then lose their place to hidden ones: use -inf.",
            lambda index, mask, keep: _top(index * mask, keep) & mask,
        ),
        Mistake(
            "smallest",
            "you kept the keys with the smallest index.",
            lambda index, mask, keep: _top(-index.masked_fill(~mask, torch.inf), keep) & mask,
        ),
        Mistake(
            "one more",
            "you kept one key more than asked, as `>=` does with the next largest.",
            lambda index, mask, keep: _top(_hidden(index, mask), keep + 1) & mask,
        ),
        Mistake(
            "one too few",
            "you kept one key fewer than asked, as `>` does with the last that should stay.",
            lambda index, mask, keep: _top(_hidden(index, mask), keep - 1) & mask,
        ),
        Mistake(
            "one choice for all heads",
            "all heads keep the same keys, those with the largest mean. Here each head has a choice of its own.",
            lambda index, mask, keep: _top(_hidden(index.mean(0, keepdim=True).expand_as(index), mask), keep) & mask,
        ),
        Mistake(
            "the visible keys",
            "you returned the mask. Of the keys that a query sees, keep the best.",
            lambda index, mask, keep: mask.expand_as(index),
        ),
        Mistake(
            "upside down",
            "this says which of the visible keys are dropped. Return True for those that are kept.",
            lambda index, mask, keep: mask & ~_top(_hidden(index, mask), keep),
        ),
    ],
)
