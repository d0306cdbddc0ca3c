"""Exercises on what weights look like: chapters 6, 12 and 13."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from ._exercise import Case, Exercise, Mistake, draw, sizes


def _some_weights(rng: random.Random) -> Iterator[Case]:
    yield {"weights": torch.tensor([[[[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.25, 0.25, 0.5]]]])}
    for _ in range(3):
        batch_size, num_heads, num_tokens = sizes(rng, 3, smallest=3)
        yield {"weights": (2 * draw(rng, batch_size, num_heads, num_tokens, num_tokens)).softmax(-1)}


def _rows(weights: Tensor) -> Tensor:
    return -torch.special.xlogy(weights, weights).sum(-1)


def _not_square(rng: random.Random) -> Iterator[Case]:
    yield from _some_weights(rng)
    batch_size, num_heads, num_queries, num_kvpairs = sizes(rng, 4)
    yield {"weights": (2 * draw(rng, batch_size, num_heads, num_queries, num_kvpairs)).softmax(-1)}


head_entropy = Exercise(
    "head_entropy",
    chapter=6,
    title="mean entropy of each head's rows",
    reference=lambda weights: _rows(weights).mean((0, 2)),
    cases=_not_square,
    verified="five sets of weights, one of them with zeros in it, one with Q and K different; one number for each "
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
    for offset, case in zip((-1, -1, 2, 0), _some_weights(rng), strict=True):
        yield {**case, "offset": offset}


def _at_offset(weights: Tensor, offset: int) -> Tensor:
    return weights.diagonal(offset, -2, -1).mean((0, 2))


def _from_every_query(weights: Tensor, offset: int, place: Callable[[int, int], int]) -> Tensor:
    n = weights.shape[-1]
    return torch.stack([weights[:, :, t, place(t + offset, n)] for t in range(n)], -1).mean((0, 2))


offset_weight = Exercise(
    "offset_weight",
    chapter=6,
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
    ],
)


def _first_key(weights: Tensor) -> Tensor:
    return weights[..., 0].mean((0, 2))


sink_weight = Exercise(
    "sink_weight",
    chapter=12,
    title="weight on the first token, for each head",
    reference=_first_key,
    cases=_some_weights,
    verified="four sets of weights; one number for each head.",
    mistakes=[
        Mistake(
            "first query",
            "this is 1/N whatever the weights are, since every row sums to 1: you averaged over all keys, or those of "
            "the first row. Choose column 0, what looks at the first token, before you average.",
            lambda weights: weights[..., 0, :].mean((0, 2)),
        ),
        Mistake(
            "heads averaged",
            "this is one number for all heads; keep their axis.",
            lambda weights: weights[..., 0].mean(),
        ),
        Mistake(
            "first query left out",
            "you left out the first query. It looks at the first token, too: all queries count here.",
            lambda weights: weights[..., 1:, 0].mean((0, 2)),
        ),
        Mistake(
            "maxima counted",
            "you counted the rows whose largest weight is at the first token. Average the weight itself.",
            lambda weights: (weights.argmax(-1) == 0).float().mean((0, 2)),
        ),
    ],
)


def _most_frequent(distances: Tensor) -> tuple[int, float]:
    counts = Counter(sorted(distances.flatten().tolist(), key=lambda distance: (abs(distance), distance)))
    winner, count = counts.most_common(1)[0]
    return winner, count / distances.numel()


def _best_offset(weights: Tensor) -> tuple[int, float]:
    return _most_frequent(weights.argmax(-1) - torch.arange(weights.shape[-1]))


def _one_head(rng: random.Random) -> Iterator[Case]:
    yield {"weights": torch.tensor([[[0.8, 0.1, 0.1], [0.7, 0.2, 0.1], [0.2, 0.5, 0.3]]])}
    for offset in (1, -2, -1):
        batch_size, num_tokens = sizes(rng, 2, smallest=5, largest=9)
        weights = draw(rng, batch_size, num_tokens, num_tokens)
        weights.diagonal(offset, -2, -1).add_(8.0)
        weights[0, rng.sample(range(num_tokens), 2), 0] += 20.0  # two queries look at the first token
        yield {"weights": weights.softmax(-1)}


def _with_a_key(weights: Tensor) -> tuple[int, float]:
    offset, share = _best_offset(weights)
    return offset, share * weights.shape[-1] / (weights.shape[-1] - abs(offset))


positional_role = Exercise(
    "positional_role",
    chapter=12,
    title="the distance at which a head has its maximum",
    reference=_best_offset,
    cases=_one_head,
    parts=("the offset", "the share"),
    verified="four heads; the most frequent distance from a query to its largest weight, and its share of all queries.",
    points=3,
    mistakes=[
        Mistake(
            "sign",
            "the distance has the wrong sign: key minus query, so that -1 is the previous token.",
            lambda weights: (-_best_offset(weights)[0], _best_offset(weights)[1]),
        ),
        Mistake(
            "mean weight",
            "your second number is the mean weight at that distance. Voita's rule counts maxima: at how many queries "
            "is the largest weight there?",
            lambda weights: (
                _best_offset(weights)[0],
                float(weights.diagonal(_best_offset(weights)[0], -2, -1).mean()),
            ),
        ),
        Mistake(
            "divided by the queries with such a key",
            "you divided by the queries that have a key at that distance; here all queries count.",
            _with_a_key,
        ),
        Mistake(
            "swapped",
            "you return the share first. Return the distance, then the share.",
            lambda weights: _best_offset(weights)[::-1],
        ),
        Mistake(
            "places, not distances",
            "your first number is the key at which most queries have their largest weight. Subtract each query's own "
            "place: a distance is key minus query.",
            lambda weights: _most_frequent(weights.argmax(-1)),
        ),
        Mistake(
            "over the queries",
            "your `argmax` runs over the queries: which one looks at a key most. Each query has its largest weight at "
            "one of the keys, the last axis.",
            lambda weights: _most_frequent(weights.argmax(-2) - torch.arange(weights.shape[-1])),
        ),
        Mistake(
            "over the queries, turned round",
            "your `argmax` runs over the queries: which one looks at a key most. Each query has its largest weight at "
            "one of the keys, the last axis.",
            lambda weights: _most_frequent(torch.arange(weights.shape[-1]) - weights.argmax(-2)),
        ),
        Mistake(
            "absolute distance",
            "you took the distance without its sign: the previous token, -1, and the next one, 1, became the same.",
            lambda weights: _most_frequent((weights.argmax(-1) - torch.arange(weights.shape[-1])).abs()),
        ),
        Mistake(
            "a count",
            "your second number is a count. Divide by the number of queries.",
            lambda weights: (_best_offset(weights)[0], _best_offset(weights)[1] * weights.shape[0] * weights.shape[1]),
        ),
        Mistake(
            "share alone",
            "return both: the distance, then the share.",
            lambda weights: _best_offset(weights)[1],
        ),
    ],
)


def _heads_of_one(rng: random.Random) -> Iterator[Case]:
    yield {"weights": torch.tensor([[[0.6, 0.2, 0.2]], [[0.1, 0.3, 0.6]]])}
    for _ in range(3):
        num_heads, num_queries, num_kvpairs = sizes(rng, 3, smallest=3)
        yield {"weights": (2 * draw(rng, num_heads, num_queries, num_kvpairs)).softmax(-1)}


def _products(flat: Tensor) -> Tensor:
    return flat @ flat.mT


def _cosines(flat: Tensor) -> Tensor:
    return _products(flat / flat.norm(dim=-1, keepdim=True))


def _half_normalised(weights: Tensor, side: int) -> Tensor:
    flat = weights.flatten(1)
    products = flat / flat.norm(dim=-1, keepdim=True) @ flat.mT
    return products.mT if side else products


head_cosines = Exercise(
    "head_cosines",
    chapter=13,
    title="cosine between the patterns of heads",
    reference=lambda weights: _cosines(weights.flatten(1)),
    cases=_heads_of_one,
    verified="four layers; a symmetric matrix with ones on its diagonal.",
    points=2,
    mistakes=[
        Mistake(
            "not normalised",
            "these are products, not cosines: divide each pattern by its length first. The diagonal must be 1.",
            lambda weights: _products(weights.flatten(1)),
        ),
        Mistake(
            "normalised over the heads",
            "you normalised over the wrong axis: across the heads. Divide each head's pattern, a row, by its own "
            "length: dim=-1. The diagonal must be 1.",
            lambda weights: _products(torch.nn.functional.normalize(weights.flatten(1), dim=0)),
        ),
        *(
            Mistake(
                f"{which} side normalised",
                "you normalised one of the two patterns only: the matrix is not symmetric. Divide by the lengths of "
                "both.",
                partial(_half_normalised, side=side),
            )
            for side, which in enumerate(("left", "right"))
        ),
        Mistake(
            "correlation",
            "you subtracted the mean first: that is a correlation. Two patterns of weights always have a cosine of at "
            "least 0.",
            lambda weights: _cosines(weights.flatten(1) - weights.flatten(1).mean(-1, keepdim=True)),
        ),
        Mistake(
            "mean of the rows' cosines",
            "you took the cosine row by row and averaged. The exercise asks for one cosine of the flattened patterns, "
            "in which sharp rows count more.",
            lambda weights: torch.nn.functional.cosine_similarity(weights[:, None], weights[None], dim=-1).mean(-1),
        ),
        Mistake(
            "average over the queries",
            "you averaged each head over its queries first, so heads that look at the same keys in another order seem "
            "equal.",
            lambda weights: _cosines(weights.mean(1)),
        ),
    ],
)


def _two_rows(rng: random.Random) -> Iterator[Case]:
    yield {"p": torch.tensor([1.0, 0.0, 0.0]), "q": torch.tensor([0.5, 0.5, 0.0])}
    yield {"p": torch.tensor([1.0, 0.0, 0.0]), "q": torch.tensor([0.0, 0.5, 0.5])}
    yield {"p": torch.tensor([0.5, 0.5, 0.0]), "q": torch.tensor([0.5, 0.5, 0.0])}
    for num_kvpairs in sizes(rng, 4, smallest=3):
        yield {
            "p": (2 * draw(rng, num_kvpairs)).softmax(-1),
            "q": (2 * draw(rng, num_kvpairs)).softmax(-1),
        }


def _kl(p: Tensor, q: Tensor) -> Tensor:
    return (torch.special.xlogy(p, p) - torch.special.xlogy(p, q)).sum()


def _js(p: Tensor, q: Tensor) -> Tensor:
    middle = (p + q) / 2
    return (_kl(p, middle) + _kl(q, middle)) / 2


def _of_p_alone(p: Tensor, q: Tensor, factor: float) -> Tensor:
    return factor * _kl(p, (p + q) / 2)


js_divergence = Exercise(
    "js_divergence",
    chapter=13,
    title="Jensen-Shannon divergence of two rows",
    reference=_js,
    cases=_two_rows,
    verified="seven pairs of rows; symmetric, 0 for equal rows, ln 2 for rows that share no key.",
    points=2,
    mistakes=[
        Mistake(
            "Kullback-Leibler",
            "this is the Kullback-Leibler divergence of p from q: not symmetric, and infinite where q is 0. Compare "
            "both rows with their middle.",
            _kl,
        ),
        *(
            Mistake(
                f"p alone{name}",
                "you compared p alone with the middle. Do the same with q, and average the two.",
                partial(_of_p_alone, factor=factor),
            )
            for name, factor in (("", 1.0), (", halved", 0.5))
        ),
        Mistake(
            "middle not halved",
            "your middle is p + q, which sums to 2. It is half of that.",
            lambda p, q: (_kl(p, p + q) + _kl(q, p + q)) / 2,
        ),
        Mistake(
            "reversed Kullback-Leibler",
            "you took the divergences of the middle from p and from q: infinite where one of them is 0. Take those of "
            "p and of q from the middle.",
            lambda p, q: (_kl((p + q) / 2, p) + _kl((p + q) / 2, q)) / 2,
        ),
        Mistake(
            "symmetrised Kullback-Leibler",
            "you averaged the divergences of p from q and of q from p. Take those of p and of q from their middle.",
            lambda p, q: (_kl(p, q) + _kl(q, p)) / 2,
        ),
        Mistake(
            "not halved",
            "twice as large as it should be: average the two divergences, do not add them.",
            lambda p, q: 2 * _js(p, q),
        ),
        Mistake(
            "square root",
            "this is its square root, the Jensen-Shannon distance. The exercise asks for the divergence.",
            lambda p, q: _js(p, q).sqrt(),
        ),
        Mistake(
            "in bits",
            "this is in bits. The exercise asks for natural logarithms.",
            lambda p, q: _js(p, q) / math.log(2),
        ),
        Mistake(
            "NaN at a weight of 0",
            "0 times the logarithm of 0 is NaN for a computer. Its limit is 0: torch.special.xlogy knows that.",
            lambda p, q: ((p * (2 * p / (p + q)).log()).sum() + (q * (2 * q / (p + q)).log()).sum()) / 2,
        ),
    ],
)
