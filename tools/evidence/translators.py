"""Which heads matter, in twenty translators: what chapter "Which heads matter?" says of more than one training.

    OMP_NUM_THREADS=1 python -m tools.evidence.translators --folder runs [--store]

A training leaves one file in the folder, and is not run again. Fixed before the first run: seeds 1 to 20 by the recipe
of the stored model, which is not among them; heads are judged on 300 sentences of its unseen ones, and means, slopes
and the best constants come from 300 of its training sentences (constants from 100). A head that is off gives 0, its
mean, what it gave in the sentence before (resample), or the constant with which 100 sentences cost least (optimal).
`rise` is in nats a sentence, `lost` in exact translations. The stored model has the same measured, each number of a
head, and 20 draws of 300 other sentences, and 200 random orders. mhalib/results/translators.json has it.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import mhalib
from mhalib import Head, heads_of, measures, saved, switched_off
from mhalib._write import write_whole
from mhalib.data import Translations, translations
from mhalib.evaluation import exact_match
from tools.evidence import results
from tools.evidence.head_benchmark import spearman
from tools.evidence.train import translator

SEEDS, DRAWS, ORDERS = range(1, 21), range(20), 200
MADE = translations(21_000, seed=0)
FEW, TEST = MADE[:300], MADE[20_000:20_300]


def read(model: Any, data: Translations) -> dict[str, Tensor]:
    """Run the model, and say which queries are words."""
    model(data.source, data.target[:, :-1], data.source_lens)
    return {"encoder self": data.source != 0, "decoder self": data.written != 0, "cross": data.written != 0}


def losses(model: Any, data: Translations) -> Tensor:
    """(B,): nats of each sentence's right translation."""
    return judged(model, data)[0]


def judged(model: Any, data: Translations) -> tuple[Tensor, float]:
    """`losses`, and the share of sentences that are translated exactly, from one pass."""
    logits, _ = model(data.source, data.target[:, :-1], data.source_lens)
    nats = torch.nn.functional.cross_entropy(logits.mT, data.written, ignore_index=0, reduction="none").sum(1)
    right = (logits.argmax(-1) == data.written) | (data.written == 0)
    return nats, float(right.all(1).double().mean())


def another(model: Any, head: Head, given: Tensor | None) -> Any:
    """The head gives `given` (d,) at every query, or what it gives in the sentence before."""

    def change(outputs: Tensor) -> Tensor:
        own = torch.arange(outputs.shape[1])[:, None, None] == head.head
        return torch.where(own, outputs.roll(1, 0) if given is None else given, outputs)

    return model.attention_layers()[head.kind][head.layer].on_heads(change)


def best_constant(model: Any, head: Head, mean: Tensor, steps: int = 10) -> Tensor:
    """(d,): from the head's mean by ten steps of Adam, the one that costs least on the way, as in `head_card`."""
    few = FEW[:100]
    with measures.head_outputs(model) as own, torch.no_grad():
        read(model, few)
    constant = mean.clone().requires_grad_()
    optimizer = torch.optim.Adam([constant], lr=0.3 * float(own[head.kind][head.layer][:, head.head].std()) + 1e-8)
    least, best = float("inf"), mean
    for _ in range(steps + 1):
        with another(model, head, constant):
            loss = losses(model, few).mean()
        if loss.item() < least:
            least, best = loss.item(), constant.detach().clone()
        (constant.grad,) = torch.autograd.grad(loss, constant)
        optimizer.step()
    return best


def of_model(model: Any, seed: int) -> dict[str, Any]:
    """Everything that is kept of one training."""
    heads, means = heads_of(model), measures.head_means(model, [FEW], read)
    with torch.no_grad():
        nats, whole = judged(model, TEST)
    found: dict[str, Any] = {"whole": whole}

    def own_mean(head: Head) -> Tensor:
        return means[head.kind][head.layer][head.head]

    ways = {
        "zero": lambda head: switched_off(model, [head]),
        "mean": lambda head: switched_off(model, [head], means),
        "resample": lambda head: another(model, head, None),
        "optimal": lambda head: another(model, head, best_constant(model, head, own_mean(head))),
    }
    for way, changed in ways.items():
        rise, lost = [], []
        for head in heads:
            with changed(head), torch.no_grad():
                paid, exact = judged(model, TEST)
            rise.append(float((paid - nats).mean()))
            lost.append(whole - exact)
        found |= {f"rise/{way}": rise, f"lost/{way}": lost}
    slopes = measures.head_importance(model, [FEW], losses, normalise=False)
    found["slope"] = torch.cat(list(slopes.values())).flatten().tolist()
    found["layer lost"] = [whole - exact_without(model, heads[n : n + 4], means) for n in range(0, 24, 4)]
    scores = {"one-off": torch.tensor(found["rise/mean"]), "importance": torch.tensor(found["slope"])}
    for name, score in scores.items():
        order = [heads[int(n)] for n in score.argsort(stable=True)]
        found[f"order/{name}"] = exact_without(model, order[:10], means)
    found["orders"] = [exact_without(model, by_chance(model, 1000 * seed + n)[:10], means) for n in range(40)]
    return found


def exact_without(model: Any, off: list[Head], means: Any = None, data: Translations = TEST) -> float:
    with switched_off(model, off, means):
        return exact_match(model, data)


def by_chance(model: Any, seed: int) -> list[Head]:
    heads = heads_of(model)
    return random.Random(seed).sample(heads, len(heads))


def of_the_stored() -> dict[str, list[float]]:
    """Other sentences, and random orders, for the model that comes with the package."""
    model = saved.load("translator")
    means, heads = measures.head_means(model, [FEW], read), heads_of(model)
    found: dict[str, list[float]] = {}
    made = translations(300 * len(DRAWS), seed=18)
    for way, to in (("zero", None), ("mean", means)):
        for draw in DRAWS:
            data = made[300 * draw : 300 * draw + 300]
            whole = exact_match(model, data)
            lost = [whole - exact_without(model, [head], to, data) for head in heads]
            found.setdefault(f"draws/{way}/decoder self 0.1", []).append(lost[heads.index(Head("decoder self", 0, 1))])
            found.setdefault(f"draws/{way}/cross 1.1", []).append(lost[heads.index(Head("cross", 1, 1))])
            found.setdefault(f"draws/{way}/costliest", []).append(lost.index(max(lost)))
        orders = (by_chance(model, seed)[:10] for seed in range(ORDERS))
        found[f"random/{way}"] = [exact_without(model, off, to) for off in orders]
    return found


def told(run: dict[str, Any]) -> dict[str, float]:
    """What is stored of one training."""
    rise = {way: run[f"rise/{way}"] for way in ("zero", "mean", "resample", "optimal")}
    lost = {way: run[f"lost/{way}"] for way in rise}
    gaps = [zero - mean for zero, mean in zip(lost["zero"], lost["mean"], strict=True)]
    short = {"whole": run["whole"], "gap": max(gaps)}
    for way in rise:
        short |= {f"most/{way}": max(lost[way]), f"costliest/{way}": rise[way].index(max(rise[way]))}
        short |= {f"under/{way}": sum(x < 0.05 for x in lost[way]), f"slope/{way}": spearman(run["slope"], rise[way])}
        short[f"above mean/{way}"] = sum(x > y for x, y in zip(rise[way], rise["mean"], strict=True))
        short[f"agree/{way}"] = spearman(rise[way], rise["mean"])
    for n, layer in enumerate(run["layer lost"]):
        short |= {f"layer/{n}": layer, f"singles/{n}": sum(lost["mean"][4 * n : 4 * n + 4])}
    random_orders = sorted(run["orders"])
    short |= {"orders/least": random_orders[0], "orders/median": random_orders[20], "orders/most": random_orders[-1]}
    for name in ("one-off", "importance"):
        short[f"order/{name}"] = run[f"order/{name}"]
        short[f"beaten/{name}"] = sum(one >= run[f"order/{name}"] for one in random_orders)
    return short


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where a file for each training goes")
    parser.add_argument("--store", action="store_true", help="write mhalib/results from the files that are there")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    if not arguments.store:
        jobs = {"0": lambda: of_model(saved.load("translator"), 0), "stored": of_the_stored}
        jobs |= {str(seed): lambda seed=seed: of_model(translator(seed)[0].eval(), seed) for seed in SEEDS}  # type: ignore[misc, dict-item]
        for name, job in jobs.items():
            path = arguments.folder / f"{name}.json"
            if not path.exists():
                write_whole(path, json.dumps(job()))
                print(name, flush=True)
        return
    files = [arguments.folder / f"{seed}.json" for seed in SEEDS]
    done = [(int(path.stem), told(json.loads(path.read_text(encoding="utf-8")))) for path in files if path.exists()]
    values: dict[str, list[float]] = json.loads((arguments.folder / "stored.json").read_text(encoding="utf-8"))
    page = json.loads((arguments.folder / "0.json").read_text(encoding="utf-8"))
    values |= {f"stored/{name}": numbers for name, numbers in page.items() if name.startswith("rise")}
    values |= {name: [run[name] for _, run in done] for name in done[0][1]}
    stored = {
        "made_by": "python -m tools.evidence.translators",
        "seeds": [seed for seed, _ in done],
        "device": "cpu",
        "versions": {"torch": torch.__version__.partition("+")[0], "mhalib": mhalib.__version__},
        "values": {name: [float(f"{one:.3g}") for one in numbers] for name, numbers in values.items()},
    }
    write_whole(results.FOLDER / "translators.json", results.written(stored))


if __name__ == "__main__":
    main()
