"""Serving a real model: what drafts save, and what eviction forgets, measured on SmolLM2-135M and stored.

    python -m tools.evidence.real_serving

The analysis, written down before it was run; float32, one thread, greedy; times are the processor's, not the clock's,
since others may work on the machine:

1. *Drafts by looking up.* Twelve prompts, four of each kind: code that does the same again, a sentence that is to be
   said again, and prose, which are the first four texts of `real_sinks`. 48 tokens, 6 drafts at most, keys of 2. For
   each: passes, drafts, drafts that were taken, and how many different tokens were written. The tokens must be those of
   plain steps, or nothing is stored.
2. *A wider step.* The time of a pass over 2, 4, 7 or 13 new tokens over that of one, with 256 in the cache: the least
   of nine, by turns.
3. *Eviction.* Five texts: the book's 23 sentences, beginning with sentence 0, 4, 8, 12 or 16. Nats per token from place
   96 on, with the whole cache, and with windows of 32 and 64 tokens that keep 0, 1 or 4 sinks.
4. *What it forgets.* Sentence 0, "The password is WORD.", the sentences from 2 on, eleven of them or two, and "The
   password is": is WORD's first token the likeliest, and what is its probability? Eight words; the whole cache, and
   windows of 32 and 64 tokens with 4 sinks. (In a first run nothing stood before the password: the word was one of the
   four sinks, and was found by all.)

The file is mhalib/results/smollm2_serving.json, with the hash of the weights. "prompt/..." has a number for each of
the twelve prompts, "evict/..." for each text, "forget/..." for each word, "wider/..." one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from mhalib import pretrained
from mhalib.attention import WindowCache
from mhalib.decoding import sample, speculate
from mhalib.pretrained import SENTENCES, WHEELS
from tools.evidence import results
from tools.evidence.real_sinks import TEXTS

NAME = "smollm2-135m"
CODE = (
    "def area(width, height):\n    return width * height\n\ndef area(width, height):\n    return",
    "import json\n\ndef read(path):\n    with open(path) as file:\n        return json.load(file)\n\n"
    "def write(path, value):\n    with open(path",
    "x = [1, 2, 3]\nfor i in range(len(x)):\n    print(i, x[i])\n\ny = [4, 5, 6]\nfor i in range(len(y)):\n",
    "class Point:\n    def __init__(self, x, y):\n        self.x = x\n        self.y = y\n\n"
    "class Circle:\n    def __init__(self, x, y",
)
AGAIN = tuple(f"{text}\n\nThe same text, once more:\n\n" for text in TEXTS[:4])
PROMPTS = {"code": CODE, "again": AGAIN, "prose": tuple(TEXTS[:4])}
NUM_TOKENS, NUM_DRAFTS, KEY_LENGTH = 48, 6, 2
WIDTHS, HELD = (2, 4, 7, 13), 256
WINDOWS, SINKS, FROM = (32, 64), (0, 1, 4), 96
FIRSTS = (0, 4, 8, 12, 16)
WORDS = ("tiger", "purple", "Berlin", "seven", "winter", "guitar", "pepper", "river")
FILLERS = {"far": 11, "near": 2}


def ids_of(opened: Any, text: str) -> Tensor:
    return torch.tensor([opened.tokenizer.encode(text).ids])


def least_seconds(ways: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """The processor's time for each way, the least of some rounds in which each has its turn."""
    least = dict.fromkeys(ways, float("inf"))
    for _ in range(rounds):
        for name, way in ways.items():
            start = time.process_time()
            way()
            least[name] = min(least[name], time.process_time() - start)
    return least


def one_prompt(opened: Any, text: str) -> dict[str, float]:
    """What drafts by looking up save for one prompt."""
    prompt = ids_of(opened, text)
    given: dict[str, Any] = {"num_drafts": NUM_DRAFTS, "key_length": KEY_LENGTH, "temperature": 0}
    plain = sample(opened.model, prompt, NUM_TOKENS, temperature=0)
    found = speculate(opened.model, prompt, NUM_TOKENS, **given)
    if not torch.equal(plain, found.tokens):
        raise RuntimeError(f"other tokens than plain steps write after {text!r:.60}")
    return {
        "passes": found.passes,
        "drafted": found.drafted,
        "taken": found.taken,
        "different": len(set(plain[0, prompt.shape[1] :].tolist())),
    }


@torch.no_grad()
def wider(opened: Any) -> dict[str, float]:
    """The time of a pass over several new tokens over that of one."""
    model = opened.model
    tokens = torch.arange(100, 100 + HELD)[None]
    caches = model.new_caches(HELD + max(WIDTHS))
    model(tokens, caches=caches)

    def step(width: int) -> None:
        model(tokens[:, :width], caches=caches)
        for cache in caches:
            cache.crop(HELD)

    seconds = least_seconds({str(width): partial(step, width) for width in (1, *WIDTHS)}, 9)
    return {str(width): seconds[str(width)] / seconds["1"] for width in WIDTHS}


def caches_of(model: Any, window: int | None, sinks: int) -> Any:
    layers = model.decoder.layers
    return model.new_caches() if window is None else [WindowCache(window, sinks=sinks) for _ in layers]


@torch.no_grad()
def nats(model: Any, tokens: Tensor, window: int | None = None, sinks: int = 0) -> float:
    """Nats per token from place `FROM` on, where tokens see a window and sinks, or all before them."""
    logits, _ = model(tokens, caches=caches_of(model, window, sinks))
    return float(F.cross_entropy(logits[0, FROM - 1 : -1], tokens[0, FROM:]))


def evicted(opened: Any, first: int) -> dict[str, float]:
    """One text, with the whole cache and with less."""
    tokens = ids_of(opened, " ".join(SENTENCES[first:] + SENTENCES[:first]))
    found = {"tokens": float(tokens.shape[1]), "whole": nats(opened.model, tokens)}
    ways = [(window, sinks) for window in WINDOWS for sinks in SINKS]
    return found | {f"{window}, {sinks} sinks": nats(opened.model, tokens, window, sinks) for window, sinks in ways}


@torch.no_grad()
def forgotten(opened: Any, word: str) -> dict[str, float]:
    """Whether the model finds a word again, with the whole cache and with a window and sinks."""
    found, model = {}, opened.model
    for where, number in FILLERS.items():
        middle = " ".join(SENTENCES[2 : 2 + number])
        before = f"{SENTENCES[0]} The password is {word}. {middle} The password is"
        tokens, asked = ids_of(opened, before), ids_of(opened, f"is {word}")[0, 1]
        for name, window in (("whole", None), *((str(window), window) for window in WINDOWS)):
            p = model(tokens, caches=caches_of(model, window, 4))[0][0, -1].softmax(-1)
            found[f"{where}, {name}/p"] = float(p[asked])
            found[f"{where}, {name}/right"] = float(p.argmax() == asked)
        found[f"{where}/tokens"] = float(tokens.shape[1] - ids_of(opened, SENTENCES[0]).shape[1])
    return found


def main() -> None:
    torch.set_num_threads(1)
    opened = pretrained.load(NAME)
    values: dict[str, list[float]] = {}
    prompts = [text for texts in PROMPTS.values() for text in texts]
    parts = {
        "prompt": [one_prompt(opened, text) for text in prompts],
        "evict": [evicted(opened, first) for first in FIRSTS],
        "forget": [forgotten(opened, word) for word in WORDS],
        "wider": [wider(opened)],
    }
    for part, runs in parts.items():
        values |= {f"{part}/{name}": numbers for name, numbers in results.by_name(runs).items()}
    results.store(
        "smollm2_serving",
        range(len(prompts)),
        values,
        4,
        made_by="python -m tools.evidence.real_serving",
        model=WHEELS[NAME].files[0].sha256,
        a_number_for="prompt, text or word",
    )


if __name__ == "__main__":
    main()
