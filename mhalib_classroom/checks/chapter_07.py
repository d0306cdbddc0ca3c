"""Chapter 7: how sharp a head is, how far it looks, and a softmax over the wrong axis."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from ._exercise import Case, Exercise, Mistake
from ._inputs import apart, draw, square_weights


def _rows(weights: Tensor) -> Tensor:
    return -torch.special.xlogy(weights, weights).sum(-1)


def _not_square(rng: random.Random) -> Iterator[Case]:
    yield next(square_weights(rng))
    for batch_size, num_heads, num_queries, num_kvpairs in apart(rng, 4, 4, largest=8):
        yield {"weights": (2 * draw(rng, batch_size, num_heads, num_queries, num_kvpairs)).softmax(-1)}


head_entropy = Exercise(
    "head_entropy",
    chapter=7,
    title="mean entropy of each head's rows",
    reference=lambda weights: _rows(weights).mean((0, 2)),
    cases=_not_square,
    verified="five sets of weights, one of them with zeros in it, four with Q and K different; one number for each "
    "head, with the natural logarithm.",
    points=2,
    mistakes=[
        Mistake(
            "NaN at a weight of 0",
            "0 times the logarithm of 0 is NaN for a computer. Its limit is 0: torch.special.xlogy knows that.",
            lambda weights: -(weights * weights.log()).sum(-1).mean((0, 2)),
        ),
        Mistake(
            "in bits",
            "this is the entropy in bits, with the logarithm to base 2. The exercise asks for the natural one.",
            lambda weights: _rows(weights).mean((0, 2)) / math.log(2),
        ),
        Mistake(
            "sign",
            "an entropy is not negative: the sign is missing.",
            lambda weights: -_rows(weights).mean((0, 2)),
        ),
        Mistake(
            "entropy of the mean",
            "you averaged the rows first and took the entropy of the average. Rows that are sharp at different places "
            "make a flat average; average the rows' entropies.",
            lambda weights: _rows(weights.mean((0, 2))),
        ),
        Mistake(
            "entropy of the mean over the examples",
            "you averaged the examples' weights before you took the entropy. Take the entropy of every row first, then "
            "average.",
            lambda weights: _rows(weights.mean(0)).mean(-1),
        ),
        Mistake(
            "entropy of the mean over the queries",
            "you averaged the queries' weights before you took the entropy. Take the entropy of every row first, then "
            "average.",
            lambda weights: _rows(weights.mean(2)).mean(0),
        ),
        Mistake(
            "averaged over the keys",
            "you averaged over the keys too; the entropy of a row is a sum.",
            lambda weights: -torch.special.xlogy(weights, weights).mean((0, 2, 3)),
        ),
        Mistake(
            "summed over all but the heads",
            "you summed over everything but the heads. The entropy of a row is a sum over the keys; over queries and "
            "examples, average.",
            lambda weights: _rows(weights).sum((0, 2)),
        ),
        Mistake(
            "summed over everything",
            "you summed over everything. The entropy of a row is a sum over the keys; over queries and examples, "
            "average, and the heads keep their axis.",
            lambda weights: _rows(weights).sum(),
        ),
        Mistake(
            "heads averaged",
            "this is one number for all heads. Which head is sharp is what you want to know: keep their axis.",
            lambda weights: _rows(weights).mean(),
        ),
        Mistake(
            "over the wrong axis",
            "you added up the columns, over the queries, and averaged over the keys. A row sums to 1, over the keys.",
            lambda weights: (-torch.special.xlogy(weights, weights)).sum(-2).mean((0, 2)),
        ),
        Mistake(
            "summed over the queries",
            "you summed over the queries; average, so that long sentences do not count as less sharp.",
            lambda weights: _rows(weights).sum(2).mean(0),
        ),
    ],
)


def _offsets(rng: random.Random) -> Iterator[Case]:
    for offset, case in zip((-1, -1, 2, 0), square_weights(rng), strict=True):
        yield {**case, "offset": offset}


def _at_offset(weights: Tensor, offset: int) -> Tensor:
    return weights.diagonal(offset, -2, -1).mean((0, 2))


def _from_every_query(weights: Tensor, offset: int, place: Callable[[int, int], int]) -> Tensor:
    n = weights.shape[-1]
    return torch.stack([weights[:, :, t, place(t + offset, n)] for t in range(n)], -1).mean((0, 2))


offset_weight = Exercise(
    "offset_weight",
    chapter=7,
    title="weight at a fixed distance, for each head",
    reference=_at_offset,
    cases=_offsets,
    verified="distances -1, 0 and 2; queries without such a neighbour are left out of the mean.",
    points=2,
    mistakes=[
        Mistake(
            "wrong direction",
            "you look the other way: an offset of -1 means the previous token, key t - 1 for query t.",
            lambda weights, offset: _at_offset(weights, -offset),
        ),
        Mistake(
            "divided by all queries",
            "you divided by the number of all queries, or averaged zeros in. Some have no such neighbour (the first "
            "token has no previous one); leave them out of the mean.",
            lambda weights, offset: weights.diagonal(offset, -2, -1).sum(-1).mean(0) / weights.shape[-1],
        ),
        *(
            Mistake(
                name,
                "the first token's previous one became the last token, by a roll or by the index -1. Leave such "
                "queries out.",
                partial(_from_every_query, place=place),
            )
            for name, place in (("rolled round", lambda k, n: k % n), ("index -1", lambda k, n: k))
        ),
        Mistake(
            "index clamped",
            "queries without such a neighbour took the nearest token there is: the first token itself, say. Leave them "
            "out.",
            partial(_from_every_query, place=lambda k, n: min(max(k, 0), n - 1)),
        ),
        Mistake(
            "offset ignored",
            "you always take the previous token, whatever `offset` says.",
            lambda weights, offset: _at_offset(weights, -1),
        ),
        Mistake(
            "heads averaged",
            "this is one number for all heads; keep their axis.",
            lambda weights, offset: _at_offset(weights, offset).mean(),
        ),
        Mistake(
            "examples not averaged",
            "your result is (B, h): the examples still have an axis of their own. Average over them, too.",
            lambda weights, offset: weights.diagonal(offset, -2, -1).mean(-1),
        ),
        Mistake(
            "queries not averaged",
            "every query still has a number of its own: average over them, too.",
            lambda weights, offset: weights.diagonal(offset, -2, -1).mean(0),
        ),
        Mistake(
            "examples for heads",
            "your result is (B,): you averaged over the heads and kept the examples. Keep the heads.",
            lambda weights, offset: weights.diagonal(offset, -2, -1).mean((1, 2)),
        ),
        Mistake(
            "axes of length 1 kept",
            "the numbers are right, but axes of length 1 are left over: the result is to be (h,).",
            lambda weights, offset: _at_offset(weights, offset)[None, :, None],
        ),
        Mistake(
            "a column",
            "the numbers are right, but your result is (h, 1): drop the last axis.",
            lambda weights, offset: _at_offset(weights, offset)[:, None],
        ),
        Mistake(
            "a row",
            "the numbers are right, but your result is (1, h): drop the first axis.",
            lambda weights, offset: _at_offset(weights, offset)[None],
        ),
    ],
)


def _heads_beside_channels(rng: random.Random) -> Iterator[Case]:
    for batch_size, num_heads, head_dim, num_queries, num_kvpairs in ([1, 2, 2, 1, 2], *apart(rng, 5, 2)):
        lengths = {"q": num_queries, "k": num_kvpairs, "v": num_kvpairs}
        yield {name: 2 * draw(rng, batch_size, length, num_heads, head_dim) for name, length in lengths.items()}


def _over_axis(q: Tensor, k: Tensor, v: Tensor, *, axis: int = 2) -> Tensor:
    scores = torch.einsum("bqhd,bkhd->bqkh", q, k) / math.sqrt(q.shape[-1])
    return torch.einsum("bqkh,bkhd->bqhd", scores.softmax(axis), v)


mended_axis = Exercise(
    "mended_axis",
    chapter=7,
    given="nothing mended",
    title="mend a softmax that runs over the wrong axis",
    reference=_over_axis,
    cases=_heads_beside_channels,
    verified="three batches; the weights of every query sum to 1.",
    mistakes=[
        Mistake(
            "nothing mended",
            "the softmax still runs over the queries: in a heatmap, columns would sum to 1 and rows would not. A query "
            "shares out its weight over the keys.",
            partial(_over_axis, axis=1),
        ),
        Mistake(
            "over the heads",
            "the softmax runs over the heads. Which axis are the keys in your scores?",
            partial(_over_axis, axis=3),
        ),
        Mistake(
            "over the batch",
            "the softmax runs over the examples: each one's result depends on all others.",
            partial(_over_axis, axis=0),
        ),
        Mistake(
            "scale lost",
            "the axis is right now, but the scores are no longer divided by the square root of d.",
            lambda q, k, v: _over_axis(q * math.sqrt(q.shape[-1]), k, v),
        ),
    ],
)
