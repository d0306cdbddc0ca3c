"""Chapter 30: what a config says, and tokens as text."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from ._exercise import Case
from ._inputs import apart, own_sizes
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
