"""Chapter 16: sinks, roles, and the words beside a heatmap."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from ._exercise import Case, Exercise, Mistake
from ._inputs import apart, draw, square_weights


def _first_key(weights: Tensor) -> Tensor:
    return weights[..., 0].mean((0, 2))


sink_weight = Exercise(
    "sink_weight",
    chapter=16,
    title="weight on the first token, for each head",
    reference=_first_key,
    cases=square_weights,
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


def _mean_weights(weights: Tensor) -> dict[int, float]:
    """The mean weight at each distance."""
    longest = weights.shape[-1] - 1
    return {offset: float(weights.diagonal(offset, -2, -1).mean()) for offset in range(-longest, longest + 1)}


def _of_largest_mean(weights: Tensor) -> int:
    means = _mean_weights(weights)
    return max(means, key=lambda offset: means[offset])


def _median(weights: Tensor) -> int:
    return int((weights.argmax(-1) - torch.arange(weights.shape[-1])).flatten().median())


def _scattered(rng: random.Random, batch_size: int, num_tokens: int) -> Tensor:
    """Weights whose most frequent distance, middle distance and distance of the largest mean weight all differ."""
    while True:
        logits = draw(rng, batch_size, num_tokens, num_tokens)
        often, seldom, strong = rng.sample((-3, -2, -1, 1, 2, 3), 3)
        for example in range(batch_size):
            for query in range(num_tokens):
                offset = rng.choice((often, often, often, seldom, seldom, strong))
                if 0 <= query + offset < num_tokens:
                    logits[example, query, query + offset] += 12.0 if offset == strong else 2.0
        weights = logits.softmax(-1)
        counts = Counter((weights.argmax(-1) - torch.arange(num_tokens)).flatten().tolist()).most_common(2)
        kinds = {counts[0][0], _median(weights), _of_largest_mean(weights)}
        if counts[0][1] > counts[1][1] and len(kinds) == 3:
            return weights


def _one_head(rng: random.Random) -> Iterator[Case]:
    yield {"weights": torch.tensor([[[0.8, 0.1, 0.1], [0.7, 0.2, 0.1], [0.2, 0.5, 0.3]]])}
    *drawn, last = apart(rng, 2, 4, smallest=5, largest=11)
    for offset, (batch_size, num_tokens) in zip((1, -2, -1), drawn, strict=True):
        weights = draw(rng, batch_size, num_tokens, num_tokens)
        weights.diagonal(offset, -2, -1).add_(8.0)
        weights[0, rng.sample(range(num_tokens), 2), 0] += 20.0  # two queries look at the first token
        yield {"weights": weights.softmax(-1)}
    yield {"weights": _scattered(rng, *last)}


def _with_a_key(weights: Tensor) -> tuple[int, float]:
    offset, share = _best_offset(weights)
    return offset, share * weights.shape[-1] / (weights.shape[-1] - abs(offset))


positional_role = Exercise(
    "positional_role",
    chapter=16,
    title="the distance at which a head has its maximum",
    reference=_best_offset,
    cases=_one_head,
    parts=("the offset", "the share"),
    verified="five heads; the most frequent distance from a query to its largest weight, and its share of all queries.",
    points=3,
    mistakes=[
        Mistake(
            "sign",
            "the distance has the wrong sign: key minus query, so that -1 is the previous token.",
            lambda weights: (-_best_offset(weights)[0], _best_offset(weights)[1]),
        ),
        Mistake(
            "the middle distance",
            "your first number is the median of the distances. The rule takes the one that occurs most often.",
            lambda weights: (_median(weights), _best_offset(weights)[1]),
        ),
        Mistake(
            "the largest mean weight",
            "your first number is the distance at which the mean weight is largest. The rule counts maxima: at how "
            "many queries is the largest weight there?",
            lambda weights: (_of_largest_mean(weights), _best_offset(weights)[1]),
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


def _written_words(rng: random.Random) -> Iterator[Case]:
    yield {"weights": torch.tensor([[0.1, 0.2, 0.7, 0.0], [0.5, 0.1, 0.1, 0.3]]), "tokens": ["a", "dog", "saw", "it"]}
    for num_queries, more in apart(rng, 2, of=lambda Q, more: [Q, more, Q + more]):
        tokens = rng.sample("a cat chased the old mouse under our table while two boys slept".split(), 13)
        tokens = [*tokens[: num_queries + more - 1], tokens[0]]  # a word may stand twice
        yield {"weights": (2 * draw(rng, num_queries, len(tokens))).softmax(-1), "tokens": tokens}


def _pairs(weights: Tensor, tokens: list[str], *, first: int | None = None) -> list[tuple[str, str]]:
    first = len(tokens) - len(weights) if first is None else first
    return [(tokens[first + i], tokens[int(row.argmax())]) for i, row in enumerate(weights)]


mended_words = Exercise(
    "mended_words",
    chapter=16,
    given="nothing mended",
    title="mend the words beside a heatmap",
    reference=_pairs,
    cases=_written_words,
    verified="four tables with fewer rows than columns: row i is the query of the i-th of the LAST tokens.",
    points=2,
    mistakes=[
        Mistake(
            "nothing mended",
            "row 0 is still called by the first token of the text. The rows are the queries of the last tokens: the "
            "first of them is token K - Q.",
            partial(_pairs, first=0),
        ),
        Mistake(
            "one too early",
            "each row is called by the token before its own.",
            lambda weights, tokens: _pairs(weights, tokens, first=len(tokens) - len(weights) - 1),
        ),
        Mistake(
            "from the end",
            "the rows run backwards: row 0 is the FIRST of the last tokens, not the last of all.",
            lambda weights, tokens: [(tokens[-i - 1], looked) for i, (_, looked) in enumerate(_pairs(weights, tokens))],
        ),
        Mistake(
            "one too far",
            "each row is called by the token after its own.",
            lambda weights, tokens: [
                (tokens[(len(tokens) - len(weights) + i + 1) % len(tokens)], looked)
                for i, (_, looked) in enumerate(_pairs(weights, tokens))
            ],
        ),
        Mistake(
            "keys moved too",
            "you moved the keys as well. The columns are all tokens, from the first on.",
            lambda weights, tokens: [
                (asks, tokens[(int(row.argmax()) + len(tokens) - len(weights)) % len(tokens)])
                for (asks, _), row in zip(_pairs(weights, tokens), weights, strict=True)
            ],
        ),
        Mistake(
            "pairs turned round",
            "each pair is turned round: the token that looks comes first.",
            lambda weights, tokens: [(looked, asks) for asks, looked in _pairs(weights, tokens)],
        ),
    ],
)
