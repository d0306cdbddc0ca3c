"""Chapter 30: sinks beside padding, and what becomes of a claim about heads."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ._exercise import Case
from ._inputs import apart, draw
from ._markdown import exercises_of

exercise = exercises_of(globals())


def _padded(rng: random.Random) -> Iterator[Case]:
    for batch_size, num_heads, num_tokens in ([2, 1, 4], *apart(rng, 3, smallest=4, largest=9)):
        lengths = [rng.randint(2, num_tokens - 1) for _ in range(batch_size)]
        lengths[:2] = rng.sample(range(2, num_tokens), 2) if num_tokens > 3 else [2, 3]
        places = torch.arange(num_tokens)
        is_real = places >= num_tokens - torch.tensor(lengths)[:, None]
        seen = (places <= places[:, None]) & is_real[:, None, None]
        scores = 1.5 * draw(rng, batch_size, num_heads, num_tokens, num_tokens)
        weights = scores.masked_fill(~seen, -1e9).softmax(-1)  # a row of padding is spread evenly
        yield {"weights": weights, "is_real": is_real}


def _sink(weights: Tensor, is_real: Tensor, *, bug: str = "none") -> Tensor:
    """(B, h, N, N), (B, N) -> (h,)."""
    places, first = torch.arange(is_real.shape[1]), is_real.int().argmax(1)
    wrong = {"column 0": torch.zeros_like(first), "last": (places * is_real).argmax(1)}
    column = wrong.get(bug, first)[:, None, None, None].expand(*weights.shape[:3], 1)
    on_first = weights.gather(-1, column)[..., 0]  # (B, h, N)
    counts = torch.ones_like(is_real) if bug == "padding" else is_real
    if bug not in ("first query", "padding"):
        counts = counts & (places != first[:, None])
    given = (on_first * counts[:, None]).sum(-1)  # (B, h)
    if bug == "texts":
        return (given / counts.sum(-1, keepdim=True)).mean(0)
    if bug == "all places":
        return given.sum(0) / is_real.numel()
    return given.sum(0) / counts.sum()


def _sinks(bug: str) -> Callable[..., Any]:
    return partial(_sink, bug=bug)


sink_share = exercise(
    "sink_share",
    reference=_sink,
    cases=_padded,
)


def _logits(rng: random.Random) -> Iterator[Case]:
    for rows, num_words in ([2, 3], *apart(rng, 2, smallest=4, largest=9)):
        clean, corrupted, patched = draw(rng, num_words), draw(rng, num_words), draw(rng, rows, num_words)
        right, wrong = rng.sample(range(num_words), 2)
        clean[right], clean[wrong] = 4 + rng.random(), 1 + rng.random()
        corrupted[right], corrupted[wrong] = 0.5 + rng.random() / 4, 2 + rng.random()
        yield {"clean": clean, "corrupted": corrupted, "patched": patched, "right": right, "wrong": wrong}


def _recovered(
    clean: Tensor, corrupted: Tensor, patched: Tensor, right: int, wrong: int, *, bug: str = "none"
) -> Tensor:
    def answer(logits: Tensor) -> Tensor:
        scores = logits.softmax(-1) if bug == "probabilities" else logits
        return scores[..., right] - (0 if bug == "right alone" else scores[..., wrong])

    most, least, found = answer(clean), answer(corrupted), answer(patched)
    if bug == "upside down":
        return (most - found) / (most - least)
    return (found - least) / {"difference": torch.tensor(1.0), "of the clean": most}.get(bug, most - least)


def _patches(bug: str) -> Callable[..., Any]:
    return partial(_recovered, bug=bug)


recovered_share = exercise(
    "recovered_share",
    reference=_recovered,
    cases=_logits,
)


def _effects(rng: random.Random) -> Iterator[Case]:
    for number, (count,) in enumerate(apart(rng, 1, 4, smallest=19, largest=59)):
        by_chance = (draw(rng, 4 if number == 0 else count) * 4).round() / 4  # some are equal
        order = by_chance.sort(descending=True).values
        yield {"claimed": float(order[len(order) // (2, 5, 6, 7)[number]]), "by_chance": by_chance}


chance_share = exercise(
    "chance_share",
    reference=lambda claimed, by_chance: (int((by_chance >= claimed).sum()) + 1) / (len(by_chance) + 1),
    cases=_effects,
)
