"""A race with many keys: recall of pairs from 512 tokens, at equal weights, equal operations and equal bytes.

    OMP_NUM_THREADS=1 python -m tools.evidence.many_keys --folder RUNS [--seeds 24] [--layers NAME ...] [--store]

A text is 64 pairs of a key and a value among other tokens, then its keys again in another order, twice: after each, the
model names the value (multi-query associative recall, after Arora et al. 2023, Zoology). Each model is a GPT of one
layer, whose tokens are mixed with the three before them by a convolution behind the embedding, so that no layer has to
learn first to look one token back. Each run is a file of RUNS, and what is there already is not done again.

The analysis, written down before a fresh seed was run:

1. *Training*: texts of 32 tokens, then 64, 128, 256, and from step 161 on of 512, an eighth of them pairs; 2,048 tokens
   a step, the same for all layers with one seed. The rate rises for 20 steps and is constant then, so that a curve may
   be read at any step.
2. *Rates* are chosen by pilot seeds 0 and 1 from `RATES`, by the mean of the curve: recall at 512 tokens after 20, 40,
   up to 200 steps. Where the best is at an edge, the grid grows there by one rate, once.
3. *The race* is run with seeds 100 and on, as many as could be computed, for each layer at its rate.
4. *Equal weights*: all models have the weights of multi-head attention's, by the width of their feed-forward network.
   The mean of the curve, minus multi-head attention's with the same seed.
5. *Equal operations*: the same, each curve read where a training has taken as many operations as multi-head
   attention's after 20, 40, up to 200 steps, between two points by a straight line. Trainings go on to step 240.
6. *Equal bytes*: `EQUAL_BYTES` keep as much of 512 tokens, within 2 %. The mean of the curve, minus the wide state's.
7. *At the end*: recall at 512 tokens after 240 steps, in new texts, with the comparisons of 4 and 6. Recall in 64 to
   2,048 tokens, where 512 and more have 64 pairs, and the step from which recall is 0.9, are told and not tested.
8. *Verdict*: max-T over sign flips of whole seeds, over all comparisons of one of these four questions, at 5 %. "The
   same again" is multi-head attention from other first weights, "no convolution" leaves out the one behind the
   embedding: both are checks, and compared with nothing.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from mhalib.models import GPT
from tools.evidence import results
from tools.evidence.operations import counter
from tools.evidence.race import p_values

NUM_KEYS, NUM_VALUES, NUM_OTHERS = 64, 16, 16
CONTROL, AGAIN, BARE, WIDE = "multi-head", "the same again", "no convolution", "wide state"
LAYERS: dict[str, tuple[int, Any, int | None]] = {  # heads, attention, window
    CONTROL: (4, "multi-head", None),
    "one key": (4, {"name": "multi-head", "num_kv_heads": 1}, None),
    "state": (2, "delta", None),
    "narrow key": (8, {"name": "multi-head", "num_kv_heads": 1, "value_dim": 10}, None),
    "latent": (4, {"name": "latent", "latent_size": 14, "rotary_size": 4}, None),
    "window": (4, "multi-head", 73),
    WIDE: (2, {"name": "delta", "head_dim": 64, "value_dim": 64}, None),
}
CHECKS = (AGAIN, BARE)
EQUAL_BYTES = (WIDE, "narrow key", "latent", "window")
RATES, LOWER, HIGHER = (0.005, 0.01, 0.02), 0.0025, 0.04
PILOT = range(2)
STEPS, EVERY, COUNTED = 240, 20, 10  # of these measurements count for the curve
LENGTHS = {80: 32, 120: 64, 140: 128, 160: 256, STEPS: 512}  # of a text, up to this step
TESTED = (64, 128, 256, 512, 1024, 2048)
WIDTH, TOKENS = 256, 2048  # of multi-head attention's feed-forward network; of a step


def texts(count: int, num_tokens: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """Tokens (count, num_tokens), and the value to be named after each, below 0 where none is."""
    pairs, half = min(NUM_KEYS, num_tokens // 8), num_tokens // 2

    def some(n: int, of: int) -> Tensor:
        return torch.rand(count, of, generator=rng).argsort(1)[:, :n]

    keys, values = some(pairs, NUM_KEYS), torch.randint(NUM_VALUES, (count, pairs), generator=rng)
    tokens = NUM_KEYS + NUM_VALUES + torch.randint(NUM_OTHERS, (count, num_tokens), generator=rng)
    where = some(pairs, half - pairs).sort(1).values + torch.arange(pairs)  # each pair has moved the next ones
    tokens.scatter_(1, where, keys).scatter_(1, where + 1, values + NUM_KEYS)
    asked, where = torch.cat([some(pairs, pairs), some(pairs, pairs)], 1), half + some(2 * pairs, half)
    tokens.scatter_(1, where, keys.gather(1, asked))
    return tokens, torch.full_like(tokens, -1).scatter(1, where, values.gather(1, asked))


class Blurred(nn.Module):
    """Token vectors, plus a convolution over each token and the three before it."""

    def __init__(self, tokens: nn.Module, num_hiddens: int) -> None:
        super().__init__()
        self.tokens = tokens
        self.convolution = nn.Conv1d(num_hiddens, num_hiddens, 4, groups=num_hiddens)

    def forward(self, *told: Any) -> Tensor:
        x: Tensor = self.tokens(*told)
        mixed: Tensor = self.convolution(F.pad(x.mT, (3, 0)))
        return x + mixed.mT


def new_model(name: str, width: int, seed: int = 0) -> GPT:
    """A GPT of one such layer."""
    heads, attention, window = LAYERS[CONTROL if name in CHECKS else name]
    torch.manual_seed(seed + 1000 * (name == AGAIN))
    options: dict[str, Any] = {"num_heads": heads, "attention": attention, "window": window, "positions": "rotary"}
    vocab_size = NUM_KEYS + NUM_VALUES + NUM_OTHERS
    model = GPT(vocab_size, num_hiddens=64, num_layers=1, ffn_num_hiddens=width, **options)
    if name != BARE:
        model.tokens = Blurred(model.tokens, 64)  # type: ignore[assignment]
    return model


@cache
def width_for(name: str) -> int:
    """The feed-forward width at which the model has as many weights as with multi-head attention."""
    few, more = (new_model(name, width).num_weights for width in (1, 2))
    return 1 + round((new_model(CONTROL, WIDTH).num_weights - few) / (more - few))


def length_at(step: int) -> int:
    return next(length for last, length in LENGTHS.items() if step <= last)


@torch.no_grad()
def recall(model: GPT, num_tokens: int, num_texts: int = 8) -> float:
    """The share of values that the model names, in texts that no training shows."""
    tokens, targets = texts(num_texts, num_tokens, torch.Generator().manual_seed(10**6 + num_tokens))
    asked = targets >= 0
    named = model.eval()(tokens)[0][asked][:, NUM_KEYS : NUM_KEYS + NUM_VALUES].argmax(-1)
    return float((named == targets[asked]).double().mean())


def loss_of(model: GPT, tokens: Tensor, targets: Tensor) -> Tensor:
    asked = targets >= 0
    return F.cross_entropy(model(tokens)[0][asked][:, NUM_KEYS : NUM_KEYS + NUM_VALUES], targets[asked])


def trained(name: str, rate: float, seed: int) -> dict[str, Any]:
    """The curve of a training, and recall at its end in texts of `TESTED` lengths."""
    model, rng = new_model(name, width_for(name), seed), torch.Generator().manual_seed(seed)
    optimizer, curve = torch.optim.AdamW(model.parameters(), weight_decay=0.01), []
    for step in range(1, STEPS + 1):
        model.train()
        optimizer.param_groups[0]["lr"] = rate * min(1.0, step / 20)
        tokens, targets = texts(TOKENS // length_at(step), length_at(step), rng)
        loss = loss_of(model, tokens, targets)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % EVERY == 0:
            curve.append(round(recall(model, 512), 4))
    ends = {str(length): round(recall(model, length, max(8, 2048 // length)), 4) for length in TESTED}
    return {"curve": curve, "ends": ends}


def run(folder: Path, name: str, rate: float, seed: int) -> dict[str, Any]:
    """A run, made or read."""
    path = folder / name / f"{rate}" / f"{seed}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    results.keep(path, lambda: trained(name, rate, seed))
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found


def rate_for(folder: Path, name: str) -> float:
    """The rate that the pilot seeds choose."""

    def worth(rate: float) -> float:
        return fmean(fmean(run(folder, name, rate, seed)["curve"][:COUNTED]) for seed in PILOT)

    means = {rate: worth(rate) for rate in RATES}
    best = max(means, key=means.__getitem__)
    for edge, next_one in ((min(RATES), LOWER), (max(RATES), HIGHER)):
        if best == edge:
            means[next_one] = worth(next_one)
    return max(means, key=means.__getitem__)


@cache
def bytes_kept(name: str, num_tokens: int = 512) -> int:
    """What the attention keeps of a text, in float32."""
    model = new_model(name, width_for(name)).eval()
    caches = model.new_caches()
    with torch.no_grad():
        model(torch.zeros(1, num_tokens, dtype=torch.long), caches=caches)
    return sum(one.num_bytes for one in caches)


@cache
def operations(name: str) -> tuple[float, ...]:
    """Of a training until each measurement, in products of matrices."""
    model = new_model(name, width_for(name))
    of_length: dict[int, int] = {}
    for length in LENGTHS.values():
        with sdpa_kernel(SDPBackend.MATH), counter() as counted:
            loss_of(model, *texts(1, length, torch.Generator().manual_seed(0))).backward()  # type: ignore[no-untyped-call]
        of_length[length] = counted.get_total_flops() * (TOKENS // length)
    total = np.cumsum([of_length[length_at(step)] for step in range(1, STEPS + 1)])
    return tuple(total[EVERY - 1 :: EVERY].tolist())


def at_equal_operations(name: str, curve: Sequence[float]) -> list[float]:
    """The curve where multi-head attention's training had taken as many operations, after 20, 40, up to 200 steps."""
    goals, spent = operations(CONTROL)[:COUNTED], operations(name)
    if goals[-1] > spent[-1]:
        raise ValueError(f"{name} has taken {spent[-1]:.3g} operations, and {goals[-1]:.3g} are to be compared")
    found: list[float] = np.interp(goals, [0, *spent], [1 / NUM_VALUES, *curve]).tolist()
    return found


def questions(curves: Mapping[str, Sequence[Sequence[float]]]) -> dict[str, dict[str, list[float]]]:
    """By question and comparison, the difference in each seed."""
    mean = {name: np.array(each)[:, :COUNTED].mean(1) for name, each in curves.items()}
    end = {name: np.array(each)[:, -1] for name, each in curves.items()}
    spent = {name: np.mean([at_equal_operations(name, one) for one in each], 1) for name, each in curves.items()}
    rivals, kept = [name for name in LAYERS if name != CONTROL], EQUAL_BYTES[1:]
    asked: dict[str, list[tuple[Mapping[str, Any], Sequence[str], str]]] = {
        "equal weights": [(mean, rivals, CONTROL)],
        "equal operations": [(spent, rivals, CONTROL)],
        "equal bytes": [(mean, kept, WIDE)],
        "at the end": [(end, rivals, CONTROL), (end, kept, WIDE)],
    }
    return {
        question: {
            f"{name} - {other}": (numbers[name] - numbers[other]).tolist()
            for numbers, names, other in each
            for name in names
        }
        for question, each in asked.items()
    }


def lines(curves: Mapping[str, Sequence[Sequence[float]]]) -> list[str]:
    """What came out: a line for each comparison of each question."""
    said = []
    for question, differences in questions(curves).items():
        said.append(question)
        for name, p in p_values(differences).items():
            one = np.array(differences[name])
            half = 1.96 * one.std(ddof=1) / np.sqrt(len(one))
            said.append(f"  {name:28} {one.mean():+.3f} ± {half:.3f}  p {p:.4f}")
    return said


def main() -> None:
    names = [*LAYERS, *CHECKS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where a file for each run goes")
    parser.add_argument("--seeds", type=int, default=24, help="fresh seeds, 100 and on")
    parser.add_argument("--layers", nargs="+", choices=names, default=names, help="run these, and say nothing yet")
    parser.add_argument("--store", action="store_true", help="write mhalib/results/many_keys.json")
    arguments = parser.parse_args()
    seeds = range(100, 100 + arguments.seeds)
    rates = {name: rate_for(arguments.folder, CONTROL if name in CHECKS else name) for name in arguments.layers}
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in arguments.layers}
    for seed in seeds:  # a seed of all layers first, so that what is there can be compared
        for name, each in runs.items():
            each.append(run(arguments.folder, name, rates[name], seed))
    if arguments.layers != names:
        return
    curves = {name: [one["curve"] for one in each] for name, each in runs.items()}
    print(*lines(curves), sep="\n")
    values: dict[str, list[float]] = {}
    for name, each in runs.items():
        print(f"{name:16} rate {rates[name]}, {bytes_kept(name):,} bytes")
        values |= {f"{name}/rate": [rates[name]], f"{name}/bytes": [bytes_kept(name)]}
        values |= {f"{name}/{n}": list(told) for n, told in enumerate(zip(*curves[name], strict=True), 1)}
        values |= {f"{name}/{length} tokens": [one["ends"][str(length)] for one in each] for length in TESTED}
    for question, differences in questions(curves).items():
        values |= {f"{question}/{name}": each for name, each in differences.items()}
    if arguments.store:
        results.store("many_keys", seeds, values, 3, made_by="python -m tools.evidence.many_keys")


if __name__ == "__main__":
    main()
