"""The race of "The bake-off" on seeds that nobody has seen, and a slot for a layer of your own.

    OMP_NUM_THREADS=1 python -m tools.evidence.race --folder RUNS [--tasks copying pictures] [--store]
    OMP_NUM_THREADS=1 python -m tools.evidence.race --folder RUNS my_layer.py [--tasks copying]

Runs the chapter's own cells: its tasks, models, equal weights, equal operations. Each run is a file of RUNS, and what
is there already is not done again. `--store` writes these tasks into mhalib/results/race.json, and keeps the others.

`my_layer.py` registers a kind of attention by `mhalib.attention.register("my_layer")`, under the name of the file. It
gets the same rates, pilot seeds and fresh seeds, with four heads, and is printed below what is stored.

The analysis, written down before a fresh seed was run:

1. *Rates* are chosen by pilot seeds 0 to 7, those of the stored race: the rate with the largest mean over seeds of the
   mean of the curve. Where that is the largest rate of the grid, the grid grows by the next one of `GRID`, until it is
   not, or the grid ends.
2. *The race* is run with seeds 100 to 123, for each layer at its rate, with the same batches for one seed.
3. *Measure*: the mean of the five points of the curve, minus multi-head attention's with the same seed.
4. *Verdict*: max-T over sign flips of whole seeds, over all comparisons of a task, at 5 %. "The same again" is
   multi-head attention from other first weights: no comparison but a check, whose interval should hold 0.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import nbformat
import numpy as np
import torch

from tools.evidence import results
from tools.notebooks import notebooks

CHAPTER = next(notebooks.CHAPTERS.glob("*_bake_off.ipynb"))
CONTROL, AGAIN = "multi-head", "the same again"
PILOT, FRESH = range(8), range(100, 124)
GRID = {"copying": (0.02, 0.035, 0.06), "translation": (0.02, 0.035), "pictures": (0.0075, 0.012)}
"""Rates beyond those of the chapter, smallest first."""
FLIPS = 20_000
Run = Callable[[str, str, float, int], dict[str, Any]]


def chapter() -> dict[str, Any]:
    """What the chapter's cells define, up to the function that makes all runs."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for source, _ in results.program(nbformat.read(CHAPTER, as_version=4)):
        exec(compile(source, "<cell>", "exec"), namespace)
    return namespace


def own_layer(path: Path) -> str:
    """Run a reader's file, and say the name of the kind that it registers."""
    from mhalib.attention.registry import KINDS

    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ValueError(f"{path} is no Python file")
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    if path.stem not in KINDS:
        raise ValueError(f'{path} registers no kind of its own name: put @register("{path.stem}") above its class')
    return path.stem


def runner(folder: Path, told: Mapping[str, Any], *, focus: bool = True) -> Run:
    """A function that makes a run, or reads it; in copying with the focus of its best head, unless `focus` is off."""

    def run(task: str, name: str, rate: float, seed: int) -> dict[str, Any]:
        path = folder / task / name / f"{rate}" / f"{seed}.json"
        path.parent.mkdir(parents=True, exist_ok=True)

        def made() -> dict[str, Any]:
            again = name == AGAIN
            model, curve = told["trained"](task, CONTROL if again else name, rate, seed, again)
            looks = focus and task == "copying"
            return {"curve": curve, "focus": float(told["copying_heads"](model)[1].max()) if looks else None}

        results.keep(path, made)
        found: dict[str, Any] = json.loads(path.read_text("utf-8"))
        return found

    return run


def stored_pilot(task: str, name: str) -> dict[float, list[float]]:
    """The means of the curves of the stored race, by rate."""
    stored = json.loads((results.FOLDER / f"{CHAPTER.stem}.json").read_text("utf-8"))["values"]
    found: dict[float, list[list[float]]] = {}
    for key, numbers in stored.items():
        _, place, label, *rest = key.split("/")
        if (place, label) == (task, name):
            found.setdefault(float(rest[0]), []).append(numbers)
    return {rate: [fmean(curve) for curve in zip(*fifths, strict=True)] for rate, fifths in found.items()}


def rate_for(run: Run, task: str, name: str, rates: Sequence[float]) -> float:
    """The rate that the pilot seeds choose, from a grid that grows while its largest is the best."""
    means = {rate: fmean(each) for rate, each in stored_pilot(task, name).items()}
    for rate in (*rates, *GRID[task]):
        if rate in means:
            continue
        if rate not in rates and max(means, key=means.__getitem__) != max(means):
            break
        means[rate] = fmean(fmean(run(task, name, rate, seed)["curve"]) for seed in PILOT)
    return max(means, key=means.__getitem__)


@cache
def max_t() -> Callable[..., dict[str, float]]:
    """The function of this name that the chapter writes out."""
    (source,) = (cell.source for cell in nbformat.read(CHAPTER, as_version=4).cells if "def max_t(" in cell.source)
    namespace: dict[str, Any] = {"torch": torch}
    exec(compile(source, "<cell>", "exec"), namespace)
    found: Callable[..., dict[str, float]] = namespace["max_t"]
    return found


def p_values(differences: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """By name, the share of sign flips whose largest |t| of all is at least the |t| of that name (max-T).

    A flip turns all comparisons of one seed at once, since they share the control's run. The chapter draws the same.
    """
    table = {name: torch.tensor(np.array(each)) for name, each in differences.items()}
    (seeds,) = {len(each) for each in table.values()}
    flips = torch.randint(2, (FLIPS, seeds), generator=torch.Generator().manual_seed(0)).double() * 2 - 1
    return max_t()(table, flips)


def lines(curves: Mapping[str, Sequence[Sequence[float]]], rates: Mapping[str, float]) -> list[str]:
    """A line for each layer of a task: rate, mean of its curves minus the control's, and p."""
    means = {name: np.array(each).mean(1) for name, each in curves.items()}
    rivals = {name: one - means[CONTROL] for name, one in means.items() if name != CONTROL}
    p = p_values({name: one for name, one in rivals.items() if name != AGAIN})
    said = []
    for name, one in rivals.items():
        half = 1.96 * one.std(ddof=1) / np.sqrt(len(one))
        passes = "" if name == AGAIN else f"p {p[name]:.4f}"
        said.append(f"{name:16} {rates[name]:7} {one.mean():+.3f} ± {half:.3f}  {passes}")
    return said


def others_kept(tasks: Sequence[str], seeds: Sequence[int]) -> dict[str, list[float]]:
    """What is stored of tasks other than `tasks`, from the same seeds."""
    path = results.FOLDER / "race.json"
    if not path.exists():
        return {}
    stored = json.loads(path.read_text("utf-8"))
    task_of = {key: key.split("/")[0].replace("focus", "copying") for key in stored["values"]}
    kept = {key: each for key, each in stored["values"].items() if task_of[key] not in tasks}
    if kept and stored["seeds"] != list(seeds):
        raise ValueError(f"{path.name} holds other seeds than {list(seeds)}: name all tasks, so that none is kept")
    return kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("layer", nargs="?", type=Path, help="a file that registers a layer of your own")
    parser.add_argument("--folder", type=Path, required=True, help="where a file for each run goes")
    parser.add_argument("--tasks", nargs="+", default=["copying"], choices=list(GRID))
    parser.add_argument("--seeds", type=int, default=len(FRESH), help="fresh seeds, 100 and on")
    parser.add_argument("--store", action="store_true", help="write mhalib/results/race.json")
    arguments = parser.parse_args()
    told = chapter()
    run = runner(arguments.folder, told)
    names = [*told["LAYERS"], AGAIN]
    if arguments.layer:
        try:
            names = [CONTROL, own_layer(arguments.layer)]
        except ValueError as error:
            parser.exit(2, f"{error}\n")
        told["LAYERS"][names[1]] = (4, names[1])
    seeds = FRESH[: arguments.seeds]
    values: dict[str, list[float]] = {}
    for task in arguments.tasks:
        rates = {name: rate_for(run, task, name, told["RATES"][task]) for name in names if name != AGAIN}
        rates |= {AGAIN: rates[CONTROL]} if AGAIN in names else {}
        runs = {name: [run(task, name, rates[name], seed) for seed in seeds] for name in names}
        curves = {name: [one["curve"] for one in each] for name, each in runs.items()}
        print(task, *lines(curves, rates), sep="\n", flush=True)
        for name, each in curves.items():
            values |= {f"{task}/{name}/{n}": list(fifth) for n, fifth in enumerate(zip(*each, strict=True), 1)}
            values |= {f"{task}/{name}/rate": [rates[name]]}
        if task == "copying":
            values |= {f"focus/{name}": [one["focus"] for one in each] for name, each in runs.items()}
    if arguments.store:
        values = others_kept(arguments.tasks, seeds) | values
        results.store("race", seeds, values, 4, made_by="python -m tools.evidence.race")


if __name__ == "__main__":
    main()
