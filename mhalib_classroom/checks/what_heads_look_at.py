"""Sinks, roles, and the words beside a heatmap."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import torch
from torch import Tensor

from ._exercise import Case
from ._inputs import apart, draw, square_weights
from ._markdown import exercises_of

exercise = exercises_of(globals())


def _first_key(weights: Tensor) -> Tensor:
    return weights[..., 0].mean((0, 2))


sink_weight = exercise(
    "sink_weight",
    reference=_first_key,
    cases=square_weights,
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


positional_role = exercise(
    "positional_role",
    reference=_best_offset,
    cases=_one_head,
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


mended_words = exercise(
    "mended_words",
    reference=_pairs,
    cases=_written_words,
    switches=_pairs,
)


def _what_is_written(rng: random.Random) -> Iterator[Case]:
    yield {
        "weights": torch.tensor([[[0.75, 0.25], [0.5, 0.5]], [[0.25, 0.75], [1.0, 0.0]]]),
        "lengths": torch.tensor([[0.5, 2.0], [3.0, 1.0]]),
    }
    for num_heads, num_queries, num_keys in apart(rng, 3, 3, smallest=3, largest=12):
        lengths = draw(rng, num_heads, num_keys).abs() + 0.2
        lengths[:, 0] *= 0.3
        yield {"weights": draw(rng, num_heads, num_queries, num_keys).mul(2).softmax(-1), "lengths": lengths}


def _share_of_first(
    weights: Tensor,
    lengths: Tensor,
    *,
    squared: bool = False,
    of_sums: bool = False,
    added: bool = False,
    divided: bool = True,
) -> Tensor:
    written = weights * lengths[:, None] ** (2 if squared else 1)
    if of_sums:
        return written[..., 0].sum(-1) / written.sum((-1, -2))
    share = written[..., 0] / (written.sum(-1) if divided else 1)
    return share.sum(-1) if added else share.mean(-1)


written_share = exercise(
    "written_share",
    reference=_share_of_first,
    cases=_what_is_written,
    switches=_share_of_first,
)
