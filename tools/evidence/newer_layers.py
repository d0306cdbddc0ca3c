"""More layers in the copying race of "The bake-off", most of 2024 and 2025, and rivals that a specialist would ask for.

    OMP_NUM_THREADS=1 python -m tools.evidence.newer_layers --folder RUNS [--layers NAME ...] [--store]

Runs the chapter's own cells, with other layers: the same task, equal weights, equal operations, the same batches for
one seed. Each run is a file of RUNS, and what is there already is not done again. `--layers` makes only the runs of
these, so that two processes share the work; `--store` writes mhalib/results/newer_layers.json when all are there.

The analysis, written down before a fresh seed was run. One training of each layer (seed 0, rate 0.012) had been seen.

1. *Rates* are chosen by pilot seeds 0 to 7, as in `tools.evidence.race`: the largest mean over seeds of the mean of the
   curve. Where that is the largest rate, the grid grows. Where it is the smallest, 0.004, this is printed.
2. *The race* is run with seeds 200 to 223. Nothing was trained from them before, multi-head attention included.
3. *Measure*: the mean of the five points of the curve, minus multi-head attention's with the same seed.
4. *Verdict*: max-T over sign flips of whole seeds, over all of `NEWER`, at 5 %. "The same again" and "convolution" are
   checks and compared with nothing here.
5. *A second question, of `NEIGHBOURS` alone*: these layers mix a token with its neighbours before or while they look,
   so that no head has to learn to look one token back. Does one of them lead *multi-head attention behind the same
   convolution over four tokens*? The same measure, minus "convolution", and max-T over these.
6. *A third question, added when a specialist had read what came out*, on the same seeds: the same convolution in front
   of `GIVEN` as well, and multi-token attention whose kernel is as small as it can be. Do these lead "convolution"?

Sizes are those of the chapter (64 channels, 4 heads, 23 tokens), so windows, blocks and choices are small as well; the
kernel of multi-token attention is that of its paper, 6 queries by 11 keys. The states are computed in chunks of 8
tokens, since chunks of 64 would pay for 41 that are not there.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

import mhalib
from mhalib.variants.indexed import IndexedAttention
from tools.evidence import race, results
from tools.evidence.many_keys import Blurred
from tools.evidence.operations import counter

TASK, MIXED = "copying", "convolution"
DELTA = {"name": "delta", "chunk_size": 8}
NEWER: dict[str, tuple[int, Any]] = {  # heads, layer or a layer for each place
    "sinks": (4, "sinks"),
    "off by one": (4, {"name": "sinks", "learned": False}),
    "softpick": (4, "softpick"),
    "sigmoid": (4, "sigmoid"),
    "soft-cap": (4, "soft-cap"),
    "qk-norm": (4, "qk-norm"),
    "channel gates": (4, {"name": "gated", "per_channel": True, "norm": "rms"}),
    "open gates": (4, {"name": "gated", "init": "multi-head"}),
    "bare differential": (2, {"name": "differential", "normalise": False}),
    "wide latent": (4, {"name": "latent", "latent_size": 64}),
    "tensor product": (4, "tensor-product"),
    "cross-layer": (4, "cross-layer"),
    "blocks": (4, {"name": "blocks", "block_size": 4, "num_chosen": 2}),
    "native sparse": (4, {"name": "native-sparse", "block_size": 4, "num_chosen": 2, "window": 8}),
    "indexed": (4, {"name": "indexed", "num_chosen": 8}),
    "local, then all": (4, [{"name": "sparse", "window": 8}, "multi-head"]),
    "multi-token": (4, "multi-token"),
    "bare delta": (4, {**DELTA, "convolution": 1}),
    "delta": (4, DELTA),
    "Kimi's delta": (4, {**DELTA, "decay": "channel"}),
    "hybrid": (4, [DELTA, "multi-head"]),
}
NEIGHBOURS = ("multi-token", "delta", "Kimi's delta", "hybrid")
GIVEN = {f"{MIXED}, {name}": NEWER[name] for name in (*NEIGHBOURS, "bare differential", "cross-layer")}
LATER = {**GIVEN, "small multi-token": (4, {"name": "multi-token", "kernel_size": (1, 3)})}
FRESH = range(200, 224)
ENTRANTS = (race.CONTROL, race.AGAIN, MIXED, *NEWER, *LATER)


def chapter() -> dict[str, Any]:
    """What the chapter's cells define, with these layers, the convolution, and the loss of an indexer."""
    told = race.chapter()
    usual_model, usual_loss = told["new_model"], told["task_loss"]

    def new_model(task: str, name: str, width: int = 128, seed: int = 0) -> nn.Module:
        model: nn.Module = usual_model(task, name, width, seed)
        if name.startswith(MIXED):
            model.tokens = Blurred(model.tokens, 64)  # type: ignore[arg-type]
        return model

    def task_loss(task: str, model: nn.Module) -> Tensor:
        layers = [one for one in model.modules() if isinstance(one, IndexedAttention)]
        seen: list[Tensor] = []
        hooks = [one.register_forward_pre_hook(lambda _, given: seen.append(given[0])) for one in layers]
        loss = usual_loss(task, model)
        for hook in hooks:
            hook.remove()
        for layer, x in zip(layers, seen, strict=True):
            loss = loss + layer.index_loss(x, mask=mhalib.causal_mask(x.shape[1]))
        return loss

    told |= {"new_model": new_model, "task_loss": task_loss, "FlopCounterMode": counter}
    told["LAYERS"] = {race.CONTROL: told["LAYERS"][race.CONTROL], MIXED: (4, "multi-head")} | NEWER | LATER
    return told


def lines(curves: Mapping[str, np.ndarray], rates: Mapping[str, float]) -> list[str]:
    """All three questions: a line for each layer with its mean difference, half the interval, and p."""
    means = {name: each.mean(1) for name, each in curves.items()}
    said = []
    for control, names in ((race.CONTROL, tuple(NEWER)), (MIXED, NEIGHBOURS), (MIXED, tuple(LATER))):
        differences = {name: means[name] - means[control] for name in names}
        p = race.p_values(differences)
        said.append(f"minus {control}, {means[control].mean():.3f}")
        for name, one in differences.items():
            half = 2.069 * one.std(ddof=1) / np.sqrt(len(one))
            end = curves[name][:, -1].mean()
            said.append(f"{name:18} {rates[name]:6} {one.mean():+.3f} ± {half:.3f}  p {p[name]:.4f}  ends at {end:.2f}")
    return said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where a file for each run goes")
    parser.add_argument("--layers", nargs="+", default=list(ENTRANTS), choices=list(ENTRANTS))
    parser.add_argument("--store", action="store_true", help="write mhalib/results/newer_layers.json")
    arguments = parser.parse_args()
    told = chapter()
    run = race.runner(arguments.folder, told, focus=False)
    curves, rates = {}, {}
    for name in arguments.layers:
        raced = race.CONTROL if name == race.AGAIN else name
        rates[name] = race.rate_for(run, TASK, raced, told["RATES"][TASK])
        if rates[name] == told["RATES"][TASK][0]:
            print(f"{name}: the smallest rate is the best", flush=True)
        curves[name] = np.array([run(TASK, name, rates[name], seed)["curve"] for seed in FRESH])
        print(f"{name:18} {rates[name]:6} {curves[name].mean(0).round(3)}", flush=True)
    if set(arguments.layers) < set(ENTRANTS):
        return
    print(*lines(curves, rates), sep="\n")
    if arguments.store:
        values = {f"{name}/{n}": list(fifth) for name, each in curves.items() for n, fifth in enumerate(each.T, 1)}
        values |= {f"{name}/rate": [rate] for name, rate in rates.items()}
        values |= {f"{name}/steps": [told["steps_for"](TASK, name)] for name in told["LAYERS"]}
        results.store("newer_layers", FRESH, values, 4, made_by="python -m tools.evidence.newer_layers")


if __name__ == "__main__":
    main()
