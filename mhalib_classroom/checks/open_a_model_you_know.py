"""What a config says, and tokens as text.

Sinks beside padding, and what becomes of a claim about heads.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterator

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


def _config_bytes(
    config: Config,
    num_tokens: int,
    *,
    every_head: bool = False,
    shared_maps: bool = False,
    own_width: bool = True,
    if_silent: int | None = None,
    sides: int = 2,
    one_layer: bool = False,
    queries: int | None = None,
    bytes_per_number: int = 2,
) -> tuple[int, int]:
    """-> bytes of the cache and of the maps."""
    h = config["num_attention_heads"]
    g = config.get("num_key_value_heads", if_silent or h)
    d = config["hidden_size"] // h
    d = config.get("head_dim", d) if own_width else d
    layers = 1 if one_layer else config["num_hidden_layers"]
    cache = sides * num_tokens * layers * (h if every_head else g) * d
    maps = (queries or num_tokens) * num_tokens * layers * (g if shared_maps else h)
    return bytes_per_number * cache, bytes_per_number * maps


config_bytes = exercise(
    "config_bytes",
    reference=_config_bytes,
    cases=_configs,
    switches=_config_bytes,
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


def _readable(
    text: str,
    tokens: list[str],
    offsets: list[tuple[int, int]],
    *,
    in_bytes: bool = False,
    numbered: bool = True,
    first: int = 1,
    special: bool = True,
    blank: bool = False,
) -> list[str]:
    spans = []
    for start, stop in offsets:
        blanks = len(text[start:stop]) - len(text[start:stop].lstrip())
        spans.append((start + (0 if blank else blanks), stop))
    often, seen, found = Counter(spans), Counter[tuple[int, int]](), []
    for token, (start, stop) in zip(tokens, spans, strict=True):
        piece = text.encode()[start:stop].decode(errors="ignore").lstrip() if in_bytes else text[start:stop]
        if often[start, stop] > 1 and numbered:
            piece += f"({seen[start, stop] + first}/{often[start, stop]})"
        seen[start, stop] += 1
        found.append(piece if stop > start or not special else token)
    return found


readable_tokens = exercise(
    "readable_tokens",
    reference=_readable,
    cases=_texts,
    switches=_readable,
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


def _sink(
    weights: Tensor, is_real: Tensor, *, column: str = "first", rows: str = "later", mean: str = "of all queries"
) -> Tensor:
    """(B, h, N, N), (B, N) -> (h,). rows: whose weight counts, those of the later real tokens, "real" ones or "all"."""
    places, first = torch.arange(is_real.shape[1]), is_real.int().argmax(1)
    sink = {"first": first, "0": torch.zeros_like(first), "last": (places * is_real).argmax(1)}[column]
    on_sink = weights.gather(-1, sink[:, None, None, None].expand(*weights.shape[:3], 1))[..., 0]  # (B, h, N)
    counts = torch.ones_like(is_real) if rows == "all" else is_real
    if rows == "later":
        counts = counts & (places != first[:, None])
    given = (on_sink * counts[:, None]).sum(-1)  # (B, h)
    if mean == "of means":
        return (given / counts.sum(-1, keepdim=True)).mean(0)
    return given.sum(0) / (is_real.numel() if mean == "of all places" else counts.sum())


sink_share = exercise(
    "sink_share",
    reference=_sink,
    cases=_padded,
    switches=_sink,
)


def _logits(rng: random.Random) -> Iterator[Case]:
    for rows, num_words in ([2, 3], *apart(rng, 2, smallest=4, largest=9)):
        clean, corrupted, patched = draw(rng, num_words), draw(rng, num_words), draw(rng, rows, num_words)
        right, wrong = rng.sample(range(num_words), 2)
        clean[right], clean[wrong] = 4 + rng.random(), 1 + rng.random()
        corrupted[right], corrupted[wrong] = 0.5 + rng.random() / 4, 2 + rng.random()
        yield {"clean": clean, "corrupted": corrupted, "patched": patched, "right": right, "wrong": wrong}


def _recovered(
    clean: Tensor,
    corrupted: Tensor,
    patched: Tensor,
    right: int,
    wrong: int,
    *,
    softmax: bool = False,
    against: bool = True,
    divided_by: str = "lost",
    missing: bool = False,
) -> Tensor:
    def answer(logits: Tensor) -> Tensor:
        scores = logits.softmax(-1) if softmax else logits
        return scores[..., right] - (scores[..., wrong] if against else 0)

    most, least, found = answer(clean), answer(corrupted), answer(patched)
    moved = most - found if missing else found - least
    return moved / {"lost": most - least, "1": torch.tensor(1.0), "clean": most}[divided_by]


recovered_share = exercise(
    "recovered_share",
    reference=_recovered,
    cases=_logits,
    switches=_recovered,
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


def _rates(rng: random.Random) -> Iterator[Case]:
    """Pairs that turn more often than `high`, less often than `low`, and in between."""
    yield {"rates": torch.tensor([1.0, 0.1, 0.02, 0.001]), "num_tokens": 1000, "factor": 4.0, "low": 1.0, "high": 4.0}
    for (num_pairs,), low in zip(apart(rng, 1, smallest=9, largest=16), (0.5, 1.5, 2.0), strict=True):
        num_tokens, factor = rng.randint(500, 900), rng.uniform(3.0, 9.0)
        turns = torch.logspace(2.0, -1.0, num_pairs)
        rates = turns * 2 * math.pi / num_tokens
        high = low * rng.uniform(6.0, 12.0)
        yield {"rates": rates, "num_tokens": num_tokens, "factor": factor, "low": low, "high": high}


def _slowed(
    rates: Tensor,
    num_tokens: int,
    factor: float,
    low: float,
    high: float,
    *,
    turn: float = 2 * math.pi,
    clamped: bool = True,
    swapped: bool = False,
    slow: Callable[[Tensor, float], Tensor] = lambda rates, factor: rates / factor,
    share: Callable[[Tensor, float, float], Tensor] = lambda turns, low, high: (turns - low) / (high - low),
) -> Tensor:
    kept = share(rates * num_tokens / turn, low, high)
    kept = kept.clamp(0, 1) if clamped else kept
    kept = 1 - kept if swapped else kept
    return kept * rates + (1 - kept) * slow(rates, factor)


slowed_rates = exercise(
    "slowed_rates",
    reference=_slowed,
    cases=_rates,
    switches=_slowed,
)
