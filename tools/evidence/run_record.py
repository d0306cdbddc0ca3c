"""Store what the last whole run of the tests found, and write it into the page *How we know it is right*.

    make test && python -m tools.evidence.run_record  # the record of a whole run, from _build/record.json
    python -m tools.evidence.run_record --page        # only write the page anew

run_recorder.py makes the record while pytest runs, and tools/evidence/records/main.json keeps the last one. A run with
a failure, of a part of the tests or of what is not committed is not stored.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat

import mhalib
from mhalib import reference
from mhalib._write import write_whole
from mhalib_classroom import checks
from tools import ROOT
from tools.evidence import bench_page, run_recorder
from tools.notebooks import statements

KEPT = ROOT / "tools/evidence/records/main.json"
PAGE = ROOT / "chapters/how_we_know.md"
RESULTS = ROOT / "mhalib/results"
COMMIT = 10  # digits
AGREES = 1e-3  # what deviates more is another answer, such as another meaning of a mask
BEGIN, END = MARKS = (
    "<!-- tools/evidence/run_record.py writes from here -->",
    "<!-- tools/evidence/run_record.py writes to here -->",
)
SAID = {  # of each kind of run_recorder.KINDS: what it is, and what it is held against
    "cells": ("cells of notebooks, executed again", "the outputs that are stored with the page"),
    "library": ("the package", "loops, formulas and answers worked out by hand"),
    "elsewhere": ("the package beside other libraries", "torch, transformers, x-transformers, JAX, Flax, Keras"),
    "mistakes": ("the checkers of the exercises", "wrong versions that students write, and right ones in other words"),
    "hostile": ("the grader", "notebooks that try to cheat it, to break it, or to run for ever"),
    "browser": (
        "pages and instruments, in Chromium",
        "errors, contrast, the keyboard, a phone's width, stored numbers",
    ),
    "tools": ("the book's tools and its text", "numbers in prose, links, sources, commands, refusals"),
}


def problems(run: dict[str, Any]) -> list[str]:
    """Why a run cannot be stored."""
    failed = count(run, "failed")
    found = [f"{failed} tests failed: mend them, and run  make test  again"] if failed else []
    found += [f"{len(run['missing'])} files were not run, {run['missing'][0]} for one"] if run["missing"] else []
    found += ["-k or -m chose some of the tests"] if run["chosen"] else []
    return found + ([] if run["clean"] else ["the working tree had changes that were not committed"])


def statements_of(root: Path) -> dict[str, int]:
    """How many cells with an output make each kind of statement."""
    found = {"exact": 0, "measured": 0, "of this run": 0}
    for path in sorted((root / "chapters").glob("*.ipynb")):
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type == "code" and cell.outputs:
                tags = cell.metadata.get("tags", [])
                kind = "measured" if statements.MEASURED in cell.metadata else "exact"
                found["of this run" if statements.OF_THIS_RUN in tags else kind] += 1
    return found


def several_seeds(results: Path) -> dict[str, int]:
    """How many chapters repeat an experiment from several seeds, how many numbers they keep, and of how many runs."""
    read = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(results.glob("*.json"))]
    return {
        "chapters": len(read),
        "numbers": sum(len(each["values"]) for each in read),
        "runs": sum(len(each["seeds"]) for each in read),
    }


def farthest() -> list[list[str]]:
    """Each layer of `make frameworks`: where it gives another answer, and its largest deviation elsewhere."""
    rows = []
    for layer, precisions in reference.deviations().items():
        measured = {dtype: precisions.get(dtype, {}) for dtype in ("float32", "float64")}
        other = [name for name, value in measured["float32"].items() if value != "cannot" and not _agrees(value)]
        largest = [max(filter(_agrees, found.values()), default=None) for found in measured.values()]
        rows.append([layer, "; ".join(other), *("" if each is None else f"{each:.0e}" for each in largest)])
    return rows


def _agrees(deviation: float | str) -> bool:
    return isinstance(deviation, float) and deviation < AGREES


def stored(run: dict[str, Any]) -> dict[str, Any]:
    """The record as it is kept: what ran, and what there was to run."""
    exercises = checks.EXERCISES.values()
    return {
        **run,
        "missing": len(run["missing"]),
        "version": mhalib.__version__,
        "exercises": {"exercises": len(exercises), "wrong": sum(len(each.mistakes) for each in exercises)},
        "statements": statements_of(ROOT),
        "seeds": several_seeds(RESULTS),
        "deviations": farthest(),
    }


def kept() -> dict[str, Any]:
    """The stored record."""
    found: dict[str, Any] = json.loads(KEPT.read_text(encoding="utf-8"))
    return found


def table(heads: Sequence[str], rows: Sequence[Sequence[object]], numbers: int) -> str:
    """A table whose last columns, as many as `numbers`, are aligned to the right."""
    rule = ["---"] * (len(heads) - numbers) + ["---:"] * numbers
    cells = [heads, rule, *([f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def system(run: dict[str, Any]) -> str:
    machine = run["machine"]
    gpu = "a GPU" if machine["gpu"] else "no GPU"
    return (
        f"{machine['system']} on {machine['processor']}, {machine['cores']} cores, {gpu}, "
        f"Python {machine['python']}, torch {machine['torch']}"
    )


def count(run: dict[str, Any], outcome: str) -> int:
    return sum(each[outcome] for each in run["kinds"].values())


def what_ran(run: dict[str, Any]) -> str:
    """The first words of the section: which commit, which machine, and how many tests."""
    minutes = "a minute" if run["minutes"] == 1 else f"{run['minutes']} minutes"
    return (
        f"{run['date']}, version {run['version']}, commit `{run['commit'][:COMMIT]}`, on {system(run)}: "
        f"{count(run, 'passed'):,} tests passed and {count(run, 'skipped'):,} were skipped, in {minutes}. "
        "None failed: a run with a failure is not stored. "
        f"Notebooks executed: {run['notebooks']}. Later commits are not in this record."
    )


def claims(run: dict[str, Any]) -> list[str]:
    """What there is to be wrong: wrong versions, statements, experiments."""
    caught, seeds = run["exercises"], run["seeds"]
    return [
        "### Wrong versions",
        f"The {caught['exercises']} exercises in code know {caught['wrong']:,} wrong versions. Each is run on inputs "
        "from several seeds. It must be refused, and named as the mistake that it is. Each exercise also comes with "
        "right versions in other words, and these must pass.",
        "### What a page claims",
        table(("statement", "cells"), [*run["statements"].items()], 1),
        f"{seeds['chapters']} chapters repeat an experiment from several seeds. "
        f"Their {seeds['runs']} runs gave the {seeds['numbers']:,} numbers that are stored.",
    ]


def text(run: dict[str, Any]) -> str:
    """What stands on the page between the marks."""
    ran = [kind for kind in SAID if sum(run["kinds"][kind].values())]
    kinds = [[*SAID[kind], run["kinds"][kind]["passed"], run["kinds"][kind]["skipped"]] for kind in ran]
    parts = ["## The last whole run", what_ran(run)]
    parts.append(table(("what is tested", "against", "passed", "skipped"), kinds, 2))
    if run["skips"]:
        parts += ["### What was skipped, and why", table(("reason", "tests"), list(run["skips"].items()), 1)]
    parts += claims(run)
    parts += [
        "### Other libraries",
        "Each layer gets the same weights and inputs as plain loops, with masks, gradients and caches among what is "
        "compared. A number is the largest deviation, as `make frameworks` measured and stored it. Some layers give "
        "another answer by design, such as NaN for a query without keys; "
        "[Four frameworks, one answer](34_four_frameworks.ipynb) explains these.",
        table(("layer", "another answer for", "float32", "float64"), [_in_powers(row) for row in run["deviations"]], 2),
    ]
    return "\n\n".join(parts)


def _in_powers(row: list[str]) -> list[str]:
    """5e-06 as a formula."""
    layer, other, *numbers = row
    powers = [each.partition("e") for each in numbers]
    name = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=\.)(?=\w)|(?<=_)(?=\w)", "<wbr>", layer)  # phones are narrow
    return [name, other, *(rf"${digit} \cdot 10^{{{int(power)}}}$" if power else "" for digit, _, power in powers)]


def write_page(page: Path = PAGE) -> None:
    bench_page.rewrite(page, text(kept()), MARKS)


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", action="store_true", help="store nothing, write the page anew")
    asked = parser.parse_args(given)
    if not asked.page:
        if not run_recorder.RECORD.exists():
            parser.error("there is no _build/record.json: run  make test  first")
        run = json.loads(run_recorder.RECORD.read_text(encoding="utf-8"))
        if found := problems(run):
            print("not stored:", *found, sep="\n  ", file=sys.stderr)
            return 1
        KEPT.parent.mkdir(exist_ok=True)
        write_whole(KEPT, json.dumps(stored(run), indent=1, ensure_ascii=False) + "\n")
    write_page()
    return 0


if __name__ == "__main__":
    sys.exit(main())
