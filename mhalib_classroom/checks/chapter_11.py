"""Chapter 11: how good a translator is, and what its heads align."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from ._exercise import Case, Exercise, Mistake
from ._inputs import apart, draw, own_sizes


@own_sizes("pairs of sentences in equal numbers, one for each change", "written.0", "written.1")
def _pairs(rng: random.Random) -> Iterator[Case]:
    yield {  # words exchanged; more after the end; two that stop early
        "written": torch.tensor([[4, 3, 5, 2], [6, 7, 2, 9], [8, 2, 0, 0], [5, 0, 0, 0]]),
        "expected": torch.tensor([[3, 4, 5, 2], [6, 7, 2, 0], [8, 2, 5, 2], [5, 8, 2, 0]]),
    }
    for _ in range(3):
        num_tokens = rng.randint(6, 9)
        changes: list[_Change] = [
            _ends_early,
            _ends_early,
            _of_equal_sum,
            partial(_with_wrong, count=3),
            _talks_on,
            _all_wrong,
        ]
        changes += [_exchanged] * 2 + [_with_wrong] * 3 + [_as_it_is] * rng.randint(1, 3)
        rng.shuffle(changes)
        pairs = [_pair(rng, change, num_tokens) for change in changes]
        written, expected = torch.tensor(pairs).unbind(1)
        yield {"written": written.clone(), "expected": expected.clone()}


_Change = Callable[[list[int], int], list[int]]
"""From the right words, and a place among them that is not the last, to what a model wrote."""


def _pair(rng: random.Random, change: _Change, num_tokens: int) -> list[list[int]]:
    """What a model wrote, and what is right: 4 words or more, all different, then padding."""
    words = rng.sample(range(20, 60, 2), rng.randint(4, num_tokens - 1))
    written = change(words, rng.randrange(len(words) - 1))
    return [(row + [0] * num_tokens)[:num_tokens] for row in (written, words)]


def _as_it_is(words: list[int], place: int) -> list[int]:
    return words


def _talks_on(words: list[int], place: int) -> list[int]:
    return [*words, 7]


def _ends_early(words: list[int], place: int) -> list[int]:
    return words[:-1]


def _exchanged(words: list[int], place: int) -> list[int]:
    return [*words[:place], words[place + 1], words[place], *words[place + 2 :]]


def _of_equal_sum(words: list[int], place: int) -> list[int]:
    return [*words[:place], words[place] + 1, words[place + 1] - 1, *words[place + 2 :]]


def _with_wrong(words: list[int], place: int, count: int = 1) -> list[int]:
    return [word + ((number - place) % len(words) < count) for number, word in enumerate(words)]


def _all_wrong(words: list[int], place: int) -> list[int]:
    return [word + 1 for word in words]


def _right_words(written: Tensor, expected: Tensor) -> Tensor:
    return (written == expected) | (expected == 0)


def _exact(written: Tensor, expected: Tensor) -> float:
    return _right_words(written, expected).all(1).float().mean().item()


share_exact = Exercise(
    "share_exact",
    chapter=11,
    title="share of sentences that are right to the last word",
    reference=_exact,
    cases=_pairs,
    verified="four batches, with sentences that end early, words in another order, and one or more mistakes; what "
    "stands where the expected sentence has padding (0) does not count.",
    points=2,
    mistakes=[
        Mistake(
            "per word",
            "this is the share of right words. One wrong word makes a sentence wrong.",
            lambda written, expected: (written == expected)[expected != 0].float().mean().item(),
        ),
        Mistake(
            "per place",
            "this is the share of right places, padding among them: short sentences look better than they are.",
            lambda written, expected: (written == expected).float().mean().item(),
        ),
        Mistake(
            "padding counted",
            "you compare the padding, too. What a model writes after the end of a sentence does not matter.",
            lambda written, expected: (written == expected).all(1).float().mean().item(),
        ),
        Mistake(
            "early ends excused",
            "you excuse places where the MODEL wrote 0: a sentence that stops too early is wrong. Only where 0 is "
            "expected does it not matter what was written.",
            lambda written, expected: (_right_words(written, expected) | (written == 0)).all(1).float().mean().item(),
        ),
        Mistake(
            "the model's padding excused",
            "you leave out the places where the MODEL wrote 0, instead of those where 0 is expected: who writes "
            "nothing at all is always right.",
            lambda written, expected: ((written == expected) | (written == 0)).all(1).float().mean().item(),
        ),
        Mistake(
            "mean of all places",
            "this is the share of places that are right or padding. One wrong word makes a sentence wrong: `all` over "
            "the words first.",
            lambda written, expected: _right_words(written, expected).float().mean().item(),
        ),
        Mistake(
            "order ignored",
            "you compare which words there are, in whatever order. Each must stand in its place.",
            lambda written, expected: (
                ((written * (expected != 0)).sort(1).values == expected.sort(1).values).all(1).float().mean().item()
            ),
        ),
        Mistake(
            "sums compared",
            "you compare the sums of the ids: other words, or another order, can have the same sum. Compare word by "
            "word.",
            lambda written, expected: ((written * (expected != 0)).sum(1) == expected.sum(1)).float().mean().item(),
        ),
        Mistake(
            "one mistake allowed",
            "a sentence with one wrong word counts as right here. All words must be right.",
            lambda written, expected: ((~_right_words(written, expected)).sum(1) <= 1).float().mean().item(),
        ),
        Mistake(
            "any word",
            "a sentence counts as right here as soon as one word is. All must be.",
            lambda written, expected: ((written == expected) & (expected != 0)).any(1).float().mean().item(),
        ),
    ],
)


def _aligned(rng: random.Random) -> Iterator[Case]:
    for num_heads, num_queries, num_kvpairs in apart(rng, 3, 4, smallest=3, largest=8):
        weights = (2 * draw(rng, num_heads, num_queries, num_kvpairs)).softmax(-1)
        places = torch.tensor([rng.randrange(num_kvpairs) for _ in range(num_queries)])
        best = weights[0].argmax(-1)
        places[: num_queries // 2] = best[: num_queries // 2]  # so that head 0 is right half of the time
        yield {"weights": weights, "places": places}


alignment_share = Exercise(
    "alignment_share",
    chapter=11,
    title="how often a head looks at the right source word",
    reference=lambda weights, places: (weights.argmax(-1) == places).float().mean(-1),
    cases=_aligned,
    verified="four sentences; one share for each head.",
    points=2,
    mistakes=[
        Mistake(
            "mean weight",
            "this is the mean weight on the right word. The exercise counts queries whose largest weight is there.",
            lambda weights, places: weights.gather(-1, places.expand(len(weights), -1)[..., None])[..., 0].mean(-1),
        ),
        Mistake(
            "over the wrong axis",
            "you took the largest weight of each key, over the queries. Take it over the keys.",
            lambda weights, places: (
                (weights.argmax(-2)[:, : len(places)] == places[: weights.shape[-1]]).float().mean(-1)
            ),
        ),
        Mistake(
            "heads averaged",
            "this is one number for all heads; keep their axis.",
            lambda weights, places: (weights.argmax(-1) == places).float().mean(),
        ),
        Mistake(
            "counts",
            "these are counts. Divide by the number of target words.",
            lambda weights, places: (weights.argmax(-1) == places).float().sum(-1),
        ),
    ],
)


def _answers(rng: random.Random) -> Iterator[Case]:
    yield {"written": torch.tensor([[4, 5, 0], [4, 3, 5]]), "expected": torch.tensor([[4, 6, 0], [4, 0, 0]])}
    for number, length in apart(rng, 2, smallest=5, largest=9):
        lens = [1, length, *(rng.randint(2, length) for _ in range(number - 2))]
        expected = torch.tensor([[rng.randint(1, 4) if t < n else 0 for t in range(length)] for n in lens])
        written = [[word if rng.random() < 0.6 else rng.randint(0, 4) for word in row] for row in expected.tolist()]
        written[0][-1], written[1][0] = 1, 0  # something at padding, padding at something
        yield {"written": torch.tensor(written), "expected": expected}


def _accuracy(written: Tensor, expected: Tensor) -> float:
    real = expected != 0
    return (written == expected)[real].float().mean().item()


mended_accuracy = Exercise(
    "mended_accuracy",
    chapter=11,
    given="nothing mended",
    title="mend a share of right words",
    reference=_accuracy,
    cases=_answers,
    verified="four batches of sentences with padding; only real words count, above and below the line.",
    mistakes=[
        Mistake(
            "nothing mended",
            "padding still counts as words: where the model writes padding too, each is a right answer that nobody "
            "asked for.",
            lambda written, expected: (written == expected).float().mean().item(),
        ),
        Mistake(
            "divided by all",
            "padding no longer counts as right, but you still divide by all places, padding included.",
            lambda written, expected: ((written == expected) & (expected != 0)).float().mean().item(),
        ),
        Mistake(
            "divided by the real ones only",
            "you divide by the real words, but padding still counts as right above the line.",
            lambda written, expected: ((written == expected).sum() / (expected != 0).sum()).item(),
        ),
        Mistake(
            "where neither is padding",
            "you leave out the real words for which the model wrote padding. They are wrong, and count below the line.",
            lambda written, expected: (written == expected)[(written != 0) & (expected != 0)].float().mean().item(),
        ),
        Mistake(
            "padding counts as right",
            "you count every place of padding as right. It is no word: leave it out above and below the line.",
            lambda written, expected: ((written == expected) | (expected == 0)).float().mean().item(),
        ),
        Mistake(
            "padding of what was written",
            "you leave out the places where the MODEL wrote padding. It could leave out what it does not know: the "
            "expected sentence says which places are real.",
            lambda written, expected: (written == expected)[written != 0].float().mean().item(),
        ),
        Mistake(
            "mean of sentences",
            "this is the mean over sentences of each one's share. A word of a short sentence counts more then. Count "
            "all words together.",
            lambda written, expected: (
                (((written == expected) & (expected != 0)).sum(1) / (expected != 0).sum(1)).mean().item()
            ),
        ),
        Mistake(
            "whole sentences",
            "this is the share of sentences without a mistake. Count words.",
            lambda written, expected: ((written == expected) | (expected == 0)).all(1).float().mean().item(),
        ),
    ],
)
