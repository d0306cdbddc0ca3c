"""How good a translator is, and what its heads align."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from ._exercise import Case
from ._inputs import apart, draw, own_sizes
from ._markdown import exercises_of

exercise = exercises_of(globals())


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


share_exact = exercise(
    "share_exact",
    reference=_exact,
    cases=_pairs,
)


def _aligned(rng: random.Random) -> Iterator[Case]:
    for num_heads, num_queries, num_kvpairs in apart(rng, 3, 4, smallest=3, largest=8):
        weights = (2 * draw(rng, num_heads, num_queries, num_kvpairs)).softmax(-1)
        places = torch.tensor([rng.randrange(num_kvpairs) for _ in range(num_queries)])
        best = weights[0].argmax(-1)
        places[: num_queries // 2] = best[: num_queries // 2]  # so that head 0 is right half of the time
        yield {"weights": weights, "places": places}


alignment_share = exercise(
    "alignment_share",
    reference=lambda weights, places: (weights.argmax(-1) == places).float().mean(-1),
    cases=_aligned,
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


mended_accuracy = exercise(
    "mended_accuracy",
    reference=_accuracy,
    cases=_answers,
)
