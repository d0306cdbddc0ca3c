"""Chapter 30: what a config says, and tokens as text."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from ._exercise import Case, Exercise, Mistake
from ._inputs import apart, own_sizes

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


config_bytes = Exercise(
    "config_bytes",
    chapter=30,
    title="count memory from a config",
    reference=_config_bytes,
    cases=_configs,
    verified="four configs: with shared keys, with a width of heads of its own, and with either entry missing.",
    parts=("cache", "maps"),
    points=2,
    mistakes=[
        Mistake(
            "every head in the cache",
            "your cache has keys and values for each of the h heads. Only `num_key_value_heads` are kept.",
            _counted("all heads"),
        ),
        Mistake(
            "shared keys, fewer maps",
            "your maps count `num_key_value_heads`. Heads that share a key still look for themselves: there is a map "
            "for each of the h heads.",
            _counted("shared maps"),
        ),
        Mistake(
            "width from the sizes",
            "you computed the width of a head as hidden_size / h although the config has `head_dim`. Where that entry "
            "is there, it counts.",
            _counted("width"),
        ),
        Mistake(
            "a missing entry is one",
            "without `num_key_value_heads`, you took one key for all heads. Where a config is silent, each head has "
            "its own: g = h.",
            _counted("one key"),
        ),
        Mistake(
            "keys without values",
            "your cache is half as large: each token leaves a key and a value.",
            _counted("keys only"),
        ),
        Mistake("one layer", "you counted one layer. Every layer has a cache and maps.", _counted("one layer")),
        Mistake(
            "maps of one query",
            "your maps grow with N. Each of the N queries has a row of N weights.",
            _counted("rows"),
        ),
        Mistake("numbers", "you counted numbers. Each takes two bytes.", _counted("numbers")),
    ],
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


readable_tokens = Exercise(
    "readable_tokens",
    chapter=30,
    title="name tokens by what they cover",
    reference=_readable,
    cases=_texts,
    verified="four texts, with letters of one, two and three bytes, and a token that covers nothing.",
    points=2,
    mistakes=[
        Mistake(
            "bytes counted",
            "you counted bytes of the text. Offsets count characters: cut the string itself, not what `.encode()` "
            "makes of it.",
            _reads("bytes"),
        ),
        Mistake(
            "parts not numbered",
            "several tokens that share one letter have the same name now. Say which part each one is: (1/2), (2/2).",
            _reads("no parts"),
        ),
        Mistake("parts from 0", "you number the parts of a letter from 0. The first is (1/n).", _reads("from 0")),
        Mistake(
            "nothing for a special token",
            "a token that covers nothing, (0, 0), is an empty string in your list. Give it its own name.",
            _reads("empty"),
        ),
        Mistake(
            "blank kept",
            "a blank before a piece is part of your names, and so a letter that is cut is not recognised where the "
            "blank belongs to its first part. Take the blank off the span first.",
            _reads("blank"),
        ),
    ],
)
