"""Which heads matter, in other translators: what chapter "Which heads matter?" says of more than one training.

    OMP_NUM_THREADS=1 python -m tools.evidence.translators --folder RUNS [--seeds 20] [--store]

Writes RUNS/stored.json and RUNS/optimal.json, of the model that comes with the package, and RUNS/SEED.json of each
training; what is there already is not done again. `--store` makes mhalib/results/translators.json of all that is there.

The analysis, written down before it was run:

1. *Trainings.* Seeds 1, 2, ... of the stored model's recipe, which is seed 0, on the same sentences. Heads are judged
   on the chapter's 300 unseen sentences; means and slopes come from its 300 training sentences. As many seeds as the
   time allows, in this order, none left out.
2. *Each head off*, by zero, by its mean, and by what it finds in the sentence before ("resample"): exact translations
   that are lost (`lost`), and nats of a sentence (`rise`). The page's gap is the largest of lost by zero - lost by
   mean, over the 24 heads (`gap`); `same` counts the heads where both agree to 0.03.
3. *Any one, not all four.* For each layer the sum of what its heads cost one by one, and what they cost together, both
   by mean. A layer is "more together" if together is over the sum by more than 0.1.
4. *Slope.* Rank correlation of Michel's importance with the rise by zero, by mean, by resampling.
5. *Orders.* 14 of 24 heads are kept, the others at their means, in the orders "one-off", "importance" (once) and 40
   random ones; `beaten` counts the random orders that are at least as good.
6. *The stored model again*: 20 draws of 300 other sentences, and 200 random orders, at 14 heads, by zero and by mean.
7. *Optimal ablation of the stored model* (RUNS/optimal.json): for each head that costs over 0.02 of the exact
   translations by zero, the constant with which the mean loss of the first 100 of the 300 training sentences is least,
   by 20 steps of Adam from the head's mean, at 0.3 of the spread of what it finds; the least on the way counts. Judged,
   as zero, mean and resample are, on the 300 unseen sentences: exact translations lost, and nats. `optimal/chosen` is
   the rise on the 100 on which it was chosen, `optimal/far` how far the constant is from the mean, over the length of
   the mean. That it costs less than the mean on other sentences is not built in. (It was meant for all 24 heads, and
   cut for time before any number was seen.)
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from mhalib import Head, heads_of, measures, saved, switched_off
from mhalib.data import Translations, translations
from mhalib.evaluation import exact_match
from tools.evidence import results
from tools.evidence.head_benchmark import spearman
from tools.evidence.train import translator

MADE = translations(21_000, seed=0)
FEW, TEST = MADE[:300], MADE[20_000:20_300]
OTHERS = translations(6_000, seed=18)
KEPT, DRAWS, ORDERS, ORDERS_OF_STORED = 14, 20, 40, 200
STEPS, SEARCHED, LITTLE = 20, FEW[:100], 0.02
WAYS = ("zero", "mean", "resample")
DIGITS = 4


def read(model: Any, data: Translations) -> dict[str, Tensor]:
    """Run the model, and say which queries are words."""
    model(data.source, data.target[:, :-1], data.source_lens)
    return {"encoder self": data.source != 0, "decoder self": data.written != 0, "cross": data.written != 0}


def losses(model: Any, data: Translations) -> Tensor:
    """(B,): nats of each sentence's right translation."""
    logits, _ = model(data.source, data.target[:, :-1], data.source_lens)
    return F.cross_entropy(logits.mT, data.written, ignore_index=0, reduction="none").sum(1)


def exact_without(model: Any, off: list[Head], to: Any = None, data: Translations = TEST) -> float:
    """Exact translations with these heads off, by zero or by their means."""
    with switched_off(model, off, to):
        return exact_match(model, data)


def given(model: Any, head: Head, instead: Callable[[Tensor], Tensor]) -> AbstractContextManager[object]:
    """The head gives `instead` of what all heads of its layer find, (B, h, Q, d)."""

    def change(found: Tensor) -> Tensor:
        own = torch.arange(found.shape[1])[:, None, None] == head.head
        return torch.where(own, instead(found), found)

    handle: AbstractContextManager[object] = model.attention_layers()[head.kind][head.layer].on_heads(change)
    return handle


def resampled(model: Any, head: Head) -> AbstractContextManager[object]:
    """The head gives what it finds in the sentence before."""
    return given(model, head, lambda found: found.roll(1, 0))


def best_constant(model: Any, head: Head, mean: Tensor) -> tuple[Tensor, float]:
    """(d,): what the head gives with the least loss on the sentences of the search, and that loss."""
    spread = []

    def watch(found: Tensor) -> Tensor:
        spread.append(float(found[:, head.head].std()))
        return found

    with torch.no_grad(), model.attention_layers()[head.kind][head.layer].on_heads(watch):
        read(model, SEARCHED)
    constant = mean.clone().requires_grad_()
    optimizer = torch.optim.Adam([constant], lr=0.3 * spread[0] + 1e-8)
    best, least = mean, float("inf")
    for _ in range(STEPS + 1):
        with given(model, head, lambda found: constant.expand_as(found)):
            loss = losses(model, SEARCHED).mean()
        if loss.item() < least:
            best, least = constant.detach().clone(), loss.item()
        (constant.grad,) = torch.autograd.grad(loss, constant)
        optimizer.step()
    return best, least


def of_optimal() -> dict[str, list[float]]:
    """Zero, mean, resample and the best constant, the costly heads of the model that comes with the package."""
    model: Any = saved.load("translator").requires_grad_(False)
    whole = exact_match(model, TEST)
    with torch.no_grad():
        means = measures.head_means(model, [FEW], read)
        heads = [head for head in heads_of(model) if whole - exact_without(model, [head]) > LITTLE]
        found = {"optimal/heads": [float(heads_of(model).index(head)) for head in heads]}
        for way in WAYS:
            found |= one_by_one(model, way, {"zero": None, "mean": means}, heads)
        base, on_searched = (float(losses(model, data).mean()) for data in (TEST, SEARCHED))
    for head in heads:
        mean = means[head.kind][head.layer][head.head]
        best, least = best_constant(model, head, mean)
        with torch.no_grad(), given(model, head, best.expand_as):
            told = {"lost/optimal": whole - exact_match(model, TEST)}
            told["rise/optimal"] = float(losses(model, TEST).mean()) - base
        told |= {"optimal/chosen": least - on_searched, "optimal/far": float((best - mean).norm() / mean.norm())}
        print(tuple(head), told, flush=True)
        for name, number in told.items():
            found.setdefault(name, []).append(number)
    return {f"stored/{name}": numbers for name, numbers in found.items()}


def one_by_one(model: Any, way: str, means: Any, heads: list[Head] | None = None) -> dict[str, list[float]]:
    """What is lost, and by how much the loss rises, with each head off, or each of these."""
    whole, base = exact_match(model, TEST), float(losses(model, TEST).mean())
    lost, rise = [], []
    for head in heads or heads_of(model):
        off = resampled(model, head) if way == "resample" else switched_off(model, [head], means[way])
        with off:
            lost.append(whole - exact_match(model, TEST))
            rise.append(float(losses(model, TEST).mean()) - base)
    return {f"lost/{way}": lost, f"rise/{way}": rise}


def by_chance(model: Any, seed: int) -> list[Head]:
    """The heads that go, in a random order."""
    heads = heads_of(model)
    return random.Random(seed).sample(heads, len(heads) - KEPT)


def of_training(seed: int) -> dict[str, Any]:
    """Everything that is kept of one training."""
    model: Any = translator(seed)[0].eval()
    slopes = measures.head_importance(model, [FEW], losses, normalise=False)
    found: dict[str, Any] = {"slope": torch.cat(list(slopes.values())).flatten().tolist()}
    with torch.no_grad():
        means = measures.head_means(model, [FEW], read)
        found["whole"] = exact_match(model, TEST)
        for way in WAYS:
            found |= one_by_one(model, way, {"zero": None, "mean": means})
        heads = heads_of(model)
        layers = [heads[n : n + 4] for n in range(0, len(heads), 4)]
        found["together"] = [found["whole"] - exact_without(model, layer, means) for layer in layers]
        for name, score in (("one-off", found["rise/mean"]), ("importance", found["slope"])):
            first = sorted(range(len(heads)), key=lambda n: score[n])[: len(heads) - KEPT]
            found[f"order/{name}"] = exact_without(model, [heads[n] for n in first], means)
        found["random"] = [exact_without(model, by_chance(model, 1000 * seed + n), means) for n in range(ORDERS)]
    return found


@torch.no_grad()
def of_stored() -> dict[str, list[float]]:
    """Other sentences and random orders, for the model that comes with the package."""
    model: Any = saved.load("translator")
    means, heads = measures.head_means(model, [FEW], read), heads_of(model)
    found: dict[str, list[float]] = {}
    for way, to in (("zero", None), ("mean", means)):
        orders = (by_chance(model, seed) for seed in range(ORDERS_OF_STORED))
        found[f"stored/random/{way}"] = [exact_without(model, off, to) for off in orders]
    for draw in range(DRAWS):
        data = OTHERS[300 * draw : 300 * draw + 300]
        whole = exact_match(model, data)
        lost = {
            way: [whole - exact_without(model, [head], to, data) for head in heads]
            for way, to in (("zero", None), ("mean", means))
        }
        for way, costs in lost.items():
            found.setdefault(f"stored/costliest/{way}", []).append(costs.index(max(costs)))
            for name, head in (("decoder self 0.1", 9), ("cross 1.1", 21)):
                found.setdefault(f"stored/{name}/{way}", []).append(costs[head])
    return found


def summary(run: dict[str, Any]) -> dict[str, float]:
    """What is stored of one training."""
    gaps = [zero - mean for zero, mean in zip(run["lost/zero"], run["lost/mean"], strict=True)]
    widest = gaps.index(max(gaps))
    singles = [sum(run["lost/mean"][n : n + 4]) for n in range(0, 24, 4)]
    short = {"whole": run["whole"], "gap": gaps[widest], "same": sum(abs(gap) < 0.03 for gap in gaps)}
    short |= {f"gap/{way}": run[f"lost/{way}"][widest] for way in ("zero", "mean")}
    for way in WAYS:
        lost, rise = run[f"lost/{way}"], run[f"rise/{way}"]
        short |= {f"most/{way}": max(lost), f"costliest/{way}": lost.index(max(lost))}
        short |= {f"cheap/{way}": sum(x < 0.05 for x in lost), f"slope/{way}": spearman(run["slope"], rise)}
    short["resample over mean"] = sum(x > y for x, y in zip(run["rise/resample"], run["rise/mean"], strict=True))
    for n, (single, together) in enumerate(zip(singles, run["together"], strict=True)):
        short |= {f"singles/{n}": single, f"together/{n}": together}
    random_orders = sorted(run["random"])
    short |= {"random/least": random_orders[0], "random/most": random_orders[-1]}
    short["random/mean"] = sum(random_orders) / len(random_orders)
    for name in ("one-off", "importance"):
        short[f"order/{name}"] = run[f"order/{name}"]
        short[f"beaten/{name}"] = sum(one >= run[f"order/{name}"] for one in random_orders)
    return short


def main() -> None:
    arguments = results.run_arguments(__doc__)
    paths = {seed: arguments.folder / f"{seed}.json" for seed in range(1, arguments.seeds + 1)}
    of_the_stored = {arguments.folder / "stored.json": of_stored, arguments.folder / "optimal.json": of_optimal}
    if not arguments.store:
        for path, run in of_the_stored.items():
            results.keep(path, run)
        for seed, path in paths.items():
            results.keep(path, partial(of_training, seed))
        return
    runs = {seed: summary(run) for seed, run in results.kept(paths).items()}
    values = results.by_name([*runs.values()])
    for path in of_the_stored:
        values |= json.loads(path.read_text("utf-8"))
    told = {"made_by": "python -m tools.evidence.translators --folder RUNS --store"}
    results.store("translators", runs, values, DIGITS, **told)


if __name__ == "__main__":
    main()
