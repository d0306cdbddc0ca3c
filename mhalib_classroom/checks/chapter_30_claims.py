"""Chapter 30: sinks beside padding, and what becomes of a claim about heads."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ._exercise import Case, Exercise, Mistake
from ._inputs import apart, draw


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


sink_share = Exercise(
    "sink_share",
    chapter=30,
    title="weight on the first real token, with padding before it",
    reference=_sink,
    cases=_padded,
    verified="four batches of texts with padding before them: one share for each head, over real queries.",
    points=2,
    mistakes=[
        Mistake(
            "column 0",
            "you read column 0. Where padding comes before a text, that is padding, and no query looks at it. Find the "
            "first real token of each text.",
            _sinks("column 0"),
        ),
        Mistake(
            "the last token",
            "you read the column of the last real token. `is_real.int().argmax(1)` is the place of the first.",
            _sinks("last"),
        ),
        Mistake(
            "padding asks, too",
            "queries that are padding count in your mean. What they look at means nothing: leave their rows out.",
            _sinks("padding"),
        ),
        Mistake(
            "the first token's own row",
            "the first real token counts as a query, too. Under a causal mask it can see nothing but itself, so its "
            "weight there is always 1: leave it out.",
            _sinks("first query"),
        ),
        Mistake(
            "a mean of means",
            "you took the mean of each text first. Then a query in a short text counts for more. Sum over all queries, "
            "and divide once.",
            _sinks("texts"),
        ),
        Mistake(
            "divided by all places",
            "you left out rows of padding, and then divided by the number of all places. Divide by the number of "
            "queries that count.",
            _sinks("all places"),
        ),
    ],
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


recovered_share = Exercise(
    "recovered_share",
    chapter=30,
    title="how much of an answer comes back",
    reference=_recovered,
    cases=_logits,
    verified="four patchings: 0 where nothing comes back, 1 where all does, and below or above where a patch overdoes.",
    mistakes=[
        Mistake(
            "not divided",
            "this is how far the answer moves. Divide by what was lost, or sentences cannot be compared.",
            _patches("difference"),
        ),
        Mistake(
            "divided by the clean answer",
            "you divided by the clean answer. What can come back is clean less corrupted.",
            _patches("of the clean"),
        ),
        Mistake(
            "upside down",
            "this is what is still missing: 1 for the corrupted run, 0 for the clean one.",
            _patches("upside down"),
        ),
        Mistake(
            "the right logit alone",
            "you read one logit. A patch that raises all logits alike changes no prediction: take the difference of "
            "`right` and `wrong`.",
            _patches("right alone"),
        ),
        Mistake(
            "probabilities",
            "you took a softmax first. Near 0 and 1 probabilities hardly move: read logits.",
            _patches("probabilities"),
        ),
    ],
)


def _effects(rng: random.Random) -> Iterator[Case]:
    for number, (count,) in enumerate(apart(rng, 1, 4, smallest=19, largest=59)):
        by_chance = (draw(rng, 4 if number == 0 else count) * 4).round() / 4  # some are equal
        order = by_chance.sort(descending=True).values
        yield {"claimed": float(order[len(order) // (2, 5, 6, 7)[number]]), "by_chance": by_chance}


chance_share = Exercise(
    "chance_share",
    chapter=30,
    title="where a claim stands among random groups",
    reference=lambda claimed, by_chance: (int((by_chance >= claimed).sum()) + 1) / (len(by_chance) + 1),
    cases=_effects,
    verified="four claims; groups that cost just as much count against the claim, and so does the claim itself.",
    mistakes=[
        Mistake(
            "never zero",
            "the claimed group is one of the groups that could have been drawn: count it above and below, (k + 1) / "
            "(n + 1). Else a claim that no group beats has a share of 0, however few groups you drew.",
            lambda claimed, by_chance: float((by_chance >= claimed).sum()) / len(by_chance),
        ),
        Mistake(
            "ties for the claim",
            "a random group that costs exactly as much counts against the claim: use >=.",
            lambda claimed, by_chance: (float((by_chance > claimed).sum()) + 1) / (len(by_chance) + 1),
        ),
        Mistake(
            "the wrong side",
            "you counted the groups that cost less. A claim is in doubt where others cost as much or more.",
            lambda claimed, by_chance: (float((by_chance <= claimed).sum()) + 1) / (len(by_chance) + 1),
        ),
        Mistake(
            "one added above only",
            "you added the claimed group to the count, and not to the number of groups.",
            lambda claimed, by_chance: (float((by_chance >= claimed).sum()) + 1) / len(by_chance),
        ),
    ],
)
