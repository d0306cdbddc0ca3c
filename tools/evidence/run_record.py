"""Store what the last whole run of the tests found, and write it into the page *How we know it is right*.

    make test && python -m tools.evidence.run_record  # the record of a whole run, from _build/record.json
    python -m tools.evidence.run_record --rehearsals rehearsals.json  # what  rehearse.py --out  wrote
    python -m tools.evidence.run_record --name gpu --as-it-is             # a second machine; part of the tests will do
    python -m tools.evidence.run_record --page                            # only write the page anew

tools/evidence/records/ has one file for each machine; `main` is the one that the page describes. run_recorder.py makes
the record while pytest runs. A run with a failure is never stored, and part of the tests only with `--as-it-is`; the
page then says so.
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

RECORDS = ROOT / "tools/evidence/records"
PAGE = ROOT / "chapters/how_we_know.md"
RESULTS = ROOT / "mhalib/results"
MAIN = "main"
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


def problems(run: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Why a run cannot be stored at all, and why it can be stored only as it is."""
    failed = count(run, "failed")
    never = [f"{failed} tests failed: mend them, and run  make test  again"] if failed else []
    only = [f"{len(run['missing'])} files were not run, {run['missing'][0]} for one"] if run["missing"] else []
    only += ["-k or -m chose some of the tests"] if run["chosen"] else []
    only += [] if run["clean"] else ["the working tree had changes that were not committed"]
    return never, only


def part(run: dict[str, Any]) -> bool:
    """Whether only part of the tests ran."""
    return bool(run["missing"] or run["chosen"])


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


def rehearsed(found: dict[str, Any]) -> dict[str, Any]:
    """What a report of tools/notebooks/rehearse.py says, in numbers."""
    runs = found["runs"]
    return {
        "ways": len(found["rehearsals"]),
        "chapters": len({run["chapter"] for run in runs}),
        "cells": sum(run["cells"] for run in runs),
        "broken": sum(len(run["broken"]) for run in runs),
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


def stored(run: dict[str, Any], rehearsals: dict[str, Any] | None) -> dict[str, Any]:
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
        **({"rehearsals": rehearsals} if rehearsals else {}),
    }


def records() -> dict[str, dict[str, Any]]:
    """All stored records, that of the page first."""
    found = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(RECORDS.glob("*.json"))}
    return {name: found[name] for name in sorted(found, key=lambda name: (name != MAIN, name))}


def table(heads: Sequence[str], rows: Sequence[Sequence[object]], numbers: int) -> str:
    """A table whose last columns, as many as `numbers`, are aligned to the right."""
    rule = ["---"] * (len(heads) - numbers) + ["---:"] * numbers
    cells = [heads, rule, *([f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def system(run: dict[str, Any]) -> str:
    machine = run["machine"]
    gpu = "a GPU" if machine["gpu"] else "no GPU"
    return f"{machine['system']} on {machine['processor']}, {machine['cores']} cores, {gpu}"


def count(run: dict[str, Any], outcome: str) -> int:
    return sum(each[outcome] for each in run["kinds"].values())


def what_ran(run: dict[str, Any]) -> str:
    """The first words of the section: which commit, which machine, and how much of the tests."""
    changes = "" if run["clean"] else ", with changes that were not committed"
    minutes = "a minute" if run["minutes"] == 1 else f"{run['minutes']} minutes"
    said = (
        f"{run['date']}, version {run['version']}, commit `{run['commit'][:COMMIT]}`{changes}: "
        f"{count(run, 'passed'):,} tests passed and {count(run, 'skipped'):,} were skipped, in {minutes}. "
        "None failed: a run with a failure is not stored. "
        f"Notebooks executed: {run['notebooks']}. Later commits are not in this record."
    )
    if part(run):
        ran = run["files"] - run["missing"]
        warning = f"This is **part of the tests only**: {ran} of {run['files']} files. The whole run will replace it."
        said = f":::{{warning}}\n{warning}\n:::\n\n{said}"
    return said


def claims(run: dict[str, Any]) -> list[str]:
    """What there is to be wrong: wrong versions, statements, experiments."""
    caught, seeds = run["exercises"], run["seeds"]
    return [
        "### Wrong versions",
        f"The {caught['exercises']} exercises in code know {caught['wrong']:,} wrong versions. Each is run on inputs "
        "from several seeds. It must be refused, and named as the mistake that it is. Each exercise also comes with "
        "right versions in other words, and these must pass."
        + ("" if run["kinds"]["mistakes"]["passed"] else " These tests were not part of this run."),
        "### What a page claims",
        table(("statement", "cells"), [*run["statements"].items()], 1),
        f"{seeds['chapters']} chapters repeat an experiment from several seeds. "
        f"Their {seeds['runs']} runs gave the {seeds['numbers']:,} numbers that are stored.",
    ]


def rehearsals(run: dict[str, Any]) -> str:
    if "rehearsals" not in run:
        return "Rehearsals with the arithmetic of other machines, `make rehearse`, are not in this record."
    ways = run["rehearsals"]
    return (
        f"The arithmetic of other machines was rehearsed in {ways['ways']} ways over {ways['chapters']} chapters: of "
        f"{ways['cells']:,} cells, {ways['broken']} came out differently."
    )


def text(found: dict[str, dict[str, Any]]) -> str:
    """What stands on the page between the marks."""
    run = found[MAIN]
    ran = [kind for kind in SAID if sum(run["kinds"][kind].values())]
    kinds = [[*SAID[kind], run["kinds"][kind]["passed"], run["kinds"][kind]["skipped"]] for kind in ran]
    parts = ["## The last run" if part(run) else "## The last whole run", what_ran(run)]
    parts.append(table(("what is tested", "against", "passed", "skipped"), kinds, 2))
    if run["skips"]:
        parts += ["### What was skipped, and why", table(("reason", "tests"), list(run["skips"].items()), 1)]
    parts += claims(run)
    parts += [
        "### Other libraries",
        "Each layer gets the same weights and inputs as plain loops, with masks, gradients and caches among what is "
        "compared. A number is the largest deviation, as `make frameworks` measured and stored it. Some layers give "
        "another answer by design, such as NaN for a query without keys; "
        "[Four frameworks, one answer](31_four_frameworks.ipynb) explains these.",
        table(("layer", "another answer for", "float32", "float64"), [_in_powers(row) for row in run["deviations"]], 2),
        "### Machines",
        table(("machine", "Python", "torch", "run", "passed"), [_machine_row(each) for each in found.values()], 1),
        rehearsals(run),
    ]
    return "\n\n".join(parts)


def _in_powers(row: list[str]) -> list[str]:
    """5e-06 as a formula."""
    layer, other, *numbers = row
    powers = [each.partition("e") for each in numbers]
    name = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=\.)(?=\w)|(?<=_)(?=\w)", "<wbr>", layer)  # phones are narrow
    return [name, other, *(rf"${digit} \cdot 10^{{{int(power)}}}$" if power else "" for digit, _, power in powers)]


def _machine_row(run: dict[str, Any]) -> list[object]:
    machine = run["machine"]
    how_much = "part of the tests" if part(run) else "all tests"
    return [system(run), machine["python"], machine["torch"], f"{run['date']}, {how_much}", count(run, "passed")]


def write_page(page: Path = PAGE) -> None:
    bench_page.rewrite(page, text(records()), MARKS)


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", default=MAIN, help="of the machine, in tools/evidence/records")
    parser.add_argument("--as-it-is", action="store_true", help="store part of the tests, or uncommitted changes, too")
    parser.add_argument("--rehearsals", type=Path, help="what tools/notebooks/rehearse.py wrote")
    parser.add_argument("--page", action="store_true", help="store nothing, write the page anew")
    asked = parser.parse_args(given)
    if not asked.page:
        files = [run_recorder.RECORD, *([run_recorder.record_of_part()] if asked.as_it_is else ())]
        made = max(filter(Path.exists, files), key=lambda file: file.stat().st_mtime_ns, default=None)
        if made is None:
            parser.error("there is no _build/record.json: run  make test  first")
        run = json.loads(made.read_text(encoding="utf-8"))
        never, only = problems(run)
        if never or (only and not asked.as_it_is):
            print("not stored:", *never, *only, sep="\n  ", file=sys.stderr)
            return 1
        other = json.loads(asked.rehearsals.read_text(encoding="utf-8")) if asked.rehearsals else None
        RECORDS.mkdir(exist_ok=True)
        kept = json.dumps(stored(run, rehearsed(other) if other else None), indent=1, ensure_ascii=False)
        write_whole(RECORDS / f"{asked.name}.json", kept + "\n")
    write_page()
    return 0


if __name__ == "__main__":
    sys.exit(main())
