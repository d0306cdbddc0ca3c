"""How wide one head must be: the phone book of "Heads that talk" with a single head of width 1 to 64.

    OMP_NUM_THREADS=1 python -m tools.evidence.head_width --folder RUNS [--first 100] [--seeds 20] [--store]

Runs the chapter's own cells: its phone books, its model and its training of 400 steps. One head has queries and keys of
width d and values of width 32, so only what it can tell apart grows. Each seed is a file of RUNS, and what is there
already is not done again. `--pilot` runs the seeds that choose the rate, and prints their means.

The analysis, written down before a fresh seed was run:

1. *Rate*: one for all widths, of 0.005, 0.01, 0.02 and 0.04. Widths 1, 8 and 64 are run with seeds 0 and 1; the rate
   with the largest mean of these six runs is taken.
2. *Runs*: seeds 100 to 119, phone books of 12 entries, all widths from the same batches. `--entries 24` asks the same
   of longer phone books, if there is time for them.
3. *Measure*: the share of 1,000 answers that are right, as a mean over seeds, with a 95 % interval.
4. *Verdict*: the narrowest width of which no seed is below 0.95; and whether each doubling from 1 up to it helps with
   all 20 seeds. Bhojanapalli et al. show that a head as wide as the text is long can have any weights. Is so much
   needed here?
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import nbformat

from tools.evidence import results
from tools.notebooks import notebooks

CHAPTER = next(notebooks.CHAPTERS.glob("*_heads_that_talk.ipynb"))
SIGNS = ("SEED = ", "def phone_books(", "class PhoneBook(", "test, test_answers = ", "def trained(")
"""Signs of the cells that run, in the chapter's order."""
WIDTHS = (1, 2, 4, 8, 16, 32, 64)
RATES, PILOT, PILOT_WIDTHS = (0.005, 0.01, 0.02, 0.04), (0, 1), (1, 8, 64)


def program(entries: int = 12) -> list[str]:
    """The chapter's cells, with phone books of so many entries."""
    cells = [cell for cell in nbformat.read(CHAPTER, as_version=4).cells if cell.cell_type == "code"]
    sources = [next(cell.source for cell in cells if sign in cell.source) for sign in SIGNS]
    books = sources[1].replace("ENTRIES, D = 32, 12, 32", f"ENTRIES, D = 32, {entries}, 32")
    if entries != 12 and books == sources[1]:
        raise ValueError("the chapter no longer says NAMES, ENTRIES, D = 32, 12, 32")
    return [sources[0], books, *sources[2:]]


def right_with(entries: int, widths: Sequence[int], rates: Sequence[float], seed: int) -> dict[str, float]:
    """The share of right answers with each width and rate, from one seed: `{"width/rate": share}`."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for source in program(entries):
        exec(compile(source, "<cell>", "exec"), namespace)
    namespace["SEED"] = seed
    shares = {}
    for rate in rates:
        for width in widths:
            choice = {"name": "multi-head", "head_dim": width, "value_dim": namespace["D"]}
            model = namespace["trained"](choice, 1, max_lr=rate)
            shares[f"{width}/{rate}"] = namespace["share_right"](model)
    return shares


def chosen_rate(pilot: Sequence[dict[str, float]]) -> float:
    """The rate with the largest mean over pilot seeds and widths."""
    means = {rate: fmean(run[f"{width}/{rate}"] for run in pilot for width in PILOT_WIDTHS) for rate in RATES}
    return max(means, key=means.__getitem__)


def pilot_of(folder: Path) -> list[dict[str, float]]:
    """What the pilot seeds gave, run where they have not been."""
    paths = {seed: folder / f"pilot_{seed}.json" for seed in PILOT}
    for seed, path in paths.items():
        results.keep(path, partial(right_with, 12, PILOT_WIDTHS, RATES, seed))
    return list(results.kept(paths).values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where a file for each seed goes")
    parser.add_argument("--first", type=int, default=100, help="the first fresh seed of this call")
    parser.add_argument("--seeds", type=int, default=20, help="how many fresh seeds")
    parser.add_argument("--entries", type=int, default=12, help="of a phone book")
    parser.add_argument("--pilot", action="store_true", help="run the pilot seeds only")
    parser.add_argument("--store", action="store_true", help="write mhalib/results/head_width_ENTRIES.json")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    pilot = pilot_of(arguments.folder)
    rate = chosen_rate(pilot)
    if arguments.pilot:
        for name in pilot[0]:
            print(name, *(run[name] for run in pilot))
        print("rate", rate)
        return
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    paths = {seed: arguments.folder / f"{arguments.entries}_{seed}.json" for seed in seeds}
    if not arguments.store:
        for seed, path in paths.items():
            results.keep(path, partial(right_with, arguments.entries, WIDTHS, [rate], seed))
        return
    runs = results.kept(paths)
    values = {f"{n}": [run[f"{n}/{rate}"] for run in runs.values()] for n in WIDTHS}
    made_by = f"python -m tools.evidence.head_width --folder RUNS --entries {arguments.entries} --store"
    results.store(
        f"head_width_{arguments.entries}", runs, values, 4, made_by=made_by, entries=arguments.entries, rate=rate
    )


if __name__ == "__main__":
    main()
