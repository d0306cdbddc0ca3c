"""The worked example: softmax by hand agrees with its numbers, and what does not fit is refused by name."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
import torch

from mhalib.widgets import WorkedExample


def by_hand(made: WorkedExample) -> tuple[list[float], list[float]]:
    """Weights and output by Python's own arithmetic."""
    scores = [sum(a * b for a, b in zip(made.q, key, strict=True)) for key in made.k]
    scores = [score / math.sqrt(2) if made.scale else score for score in scores]
    powers = [math.exp(score) if sees else 0.0 for score, sees in zip(scores, made.seen, strict=True)]
    weights = [power / sum(powers) if sum(powers) else 0.0 for power in powers]
    return weights, [sum(w * value[c] for w, value in zip(weights, made.v, strict=True)) for c in (0, 1)]


def test_the_example_of_chapter_1() -> None:
    made = WorkedExample()
    assert made.scores.tolist() == [2, 0]
    torch.testing.assert_close(made.weights, torch.tensor([math.e**2, 1.0], dtype=torch.float64) / (math.e**2 + 1))
    assert made.results() == {"largest weight": "0.88", "output": "(0.88, 0.12)"}
    caption, header, rows = made.table()
    assert caption == "hungry asks (1, 1); it brings back (0.88, 0.12)"
    assert (header[2], list(rows[1])) == ("score q·k", ["bear", "(1, -1)", "0.00", "0.12", "(0, 1)"])


@pytest.mark.parametrize("seed", range(20))
def test_numbers_are_those_of_plain_arithmetic(seed: int) -> None:
    rng = random.Random(seed)
    num_words = rng.choice([2, 3])
    row = [[rng.uniform(-3, 3) for _ in range(2)] for _ in range(2 * num_words + 1)]
    seen = [rng.random() < 0.8 for _ in range(num_words)]
    scale = rng.random() < 0.5
    made = WorkedExample(
        ["a", "b", "c"][:num_words], row[0], row[1 : num_words + 1], row[num_words + 1 :], seen=seen, scale=scale
    )
    weights, output = by_hand(made)
    torch.testing.assert_close(made.weights, torch.tensor(weights, dtype=torch.float64))
    torch.testing.assert_close(made.output, torch.tensor(output, dtype=torch.float64))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"words": ["one"]}, "words has 1 entries, but 2 to 3 can be shown"),
        ({"words": "fox"}, "words must be a sequence of strings"),
        ({"q": [1.0, 2.0, 3.0]}, "q has 3 numbers, but 2 can be shown"),
        ({"q": 3}, "q must be a list"),
        ({"k": [[1.0, 2.0]]}, r"k has shape \(1, 2\), but must have \(2, 2\)"),
        ({"v": [[1.0, 200.0], [0.0, 0.0]]}, "v must hold numbers from -100 to 100, got 200"),
        ({"asked": ["noun"]}, "asked has 1 entries, but there are 2 to name"),
        ({"asking": 3}, "asking must be"),
        ({"seen": [True]}, "seen has 1 entries, but there are 2 words"),
        ({"seen": [1, 0]}, "each of seen must be"),
        ({"scale": 1}, "scale must be"),
        ({"step": 6}, "step=6"),
        ({"step": True}, "step"),
        ({"choices": ["heat"]}, "each choice"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(given: dict[str, Any], says: str) -> None:
    with pytest.raises((TypeError, ValueError), match=says):
        WorkedExample(**given)


def test_truth_of_numpy_can_travel_to_a_page() -> None:
    made = WorkedExample(scale=np.bool_(True), seen=np.array([True, False]))
    assert '"seen":[true,false]' in made._repr_mimebundle_()[0]["text/html"]


def test_a_trait_is_checked_as_an_argument_is() -> None:
    made = WorkedExample()
    made.q = [0.0, 0.0]
    assert made.weights.tolist() == [0.5, 0.5]
    with pytest.raises(ValueError, match="k has shape"):
        made.k = [[1.0, 1.0]]
    made.seen = [False, False]
    assert made.output.tolist() == [0, 0]
