"""Chapter 30: what a config says, and tokens as text.

Sinks beside padding, and what becomes of a claim about heads.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ._exercise import Case
from ._inputs import apart, draw, own_sizes
from ._markdown import exercises_of

exercise = exercises_of(globals())


Config = dict[str, int]


def _configs(rng: random.Random) -> Iterator[Case]:
    small = {"num_hidden_layers": 3, "hidden_size": 12, "num_attention_heads": 4}
    yield {"config": {**small, "num_key_value_heads": 2, "head_dim": 5}, "num_tokens": 7}
    drawn = apart(
        rng,
        6,
        smallest=3,
        largest=40,
        of=lambda layers, g, shared, d, width, N: [layers, g, shared, d, width, N, g * shared, 4 * g * shared * width],
    )
    silent = ("num_key_value_heads", "head_dim", "")
    for left_out, (num_layers, g, shared, d, width, num_tokens) in zip(silent, drawn, strict=True):
        config = {"num_hidden_layers": num_layers, "hidden_size": 4 * g * shared * width}
        config |= {"num_attention_heads": g * shared, "num_key_value_heads": g, "head_dim": d}
        config.pop(left_out, None)
        yield {"config": config, "num_tokens": num_tokens}


def _config_bytes(config: Config, num_tokens: int, *, bug: str = "none") -> tuple[int, int]:
    """-> bytes of the cache and of the maps."""
    h = config["num_attention_heads"]
    g = config.get("num_key_value_heads", 1 if bug == "one key" else h)
    d = config["hidden_size"] // h if bug == "width" else config.get("head_dim", config["hidden_size"] // h)
    layers = 1 if bug == "one layer" else config["num_hidden_layers"]
    num_bytes = 1 if bug == "numbers" else 2
    sides = 1 if bug == "keys only" else 2
    cache = sides * num_tokens * layers * (h if bug == "all heads" else g) * d
    squared = num_tokens if bug == "rows" else num_tokens**2
    return num_bytes * cache, num_bytes * squared * layers * (g if bug == "shared maps" else h)


def _counted(bug: str) -> Callable[..., Any]:
    return partial(_config_bytes, bug=bug)


config_bytes = exercise(
    "config_bytes",
    reference=_config_bytes,
    cases=_configs,
)


_WORDS = ("der", "café", "über", "的猫", "日本", "né", "ox")


@own_sizes("texts, cut into tokens of many lengths")
def _texts(rng: random.Random) -> Iterator[Case]:
    yield _cut(rng, ["né", "ox"])
    for count in (3, 4, 5):
        yield _cut(rng, ["café", *rng.sample(_WORDS, count)])


def _cut(rng: random.Random, words: list[str]) -> Case:
    """A text as a byte-level tokenizer cuts it: a blank goes with what follows, other letters fall into bytes."""
    text, offsets = " ".join(words), [(0, 0)]
    place = 0
    while place < len(text):
        start, place = place, place + (text[place] == " ")
        if text[place].isascii():
            place += 1
            while place < len(text) and text[place].isascii() and text[place] != " " and rng.random() < 0.7:
                place += 1
            offsets.append((start, place))
        else:
            offsets += [(start, place + 1), *[(place, place + 1)] * (len(text[place].encode()) - 1)]
            place += 1
    return {"text": text, "tokens": ["[CLS]", *(f"<{n}>" for n in range(1, len(offsets)))], "offsets": offsets}


def _readable(text: str, tokens: list[str], offsets: list[tuple[int, int]], *, bug: str = "none") -> list[str]:
    spans = []
    for start, stop in offsets:
        blanks = len(text[start:stop]) - len(text[start:stop].lstrip())
        spans.append((start + (0 if bug == "blank" else blanks), stop))
    often, seen, found = Counter(spans), Counter[tuple[int, int]](), []
    for token, (start, stop) in zip(tokens, spans, strict=True):
        seen[start, stop] += 1
        piece = text.encode()[start:stop].decode(errors="ignore").lstrip() if bug == "bytes" else text[start:stop]
        number = seen[start, stop] - (1 if bug == "from 0" else 0)
        if often[start, stop] > 1 and bug != "no parts":
            piece += f"({number}/{often[start, stop]})"
        found.append(piece if stop > start or bug == "empty" else token)
    return found


def _reads(bug: str) -> Callable[..., Any]:
    return partial(_readable, bug=bug)


readable_tokens = exercise(
    "readable_tokens",
    reference=_readable,
    cases=_texts,
)


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
