"""Run a chapter's experiment from several seeds, and store what came out.

    python -m tools.evidence.results [--jobs N] [--fresh N] [NOTEBOOK ...]

A chapter says in a code cell's metadata what is worth knowing from other seeds, by name and expression:

    {"results": {"nonlinear": "share_right(nonlinear)[2]"}}

and holds a cell that assigns `SEED`. An expression gives a number, or a mapping from names to numbers, which are
stored as "nonlinear/NAME". For each of five seeds, or as many as the notebook's metadata say with
{"mhalib": {"seeds": 8}}, its code cells run up to the last of these, with that seed, in a fresh interpreter; cells that
install, measure time, read results, are tagged `remove-cell` or are exercises are left out. The numbers go into
mhalib/results, with seeds, versions, device, and a hash of the code that ran, so that a test can say when they are old.

With `--fresh 20` a chapter runs with twenty seeds of which its text knows nothing, 100 to 119; nothing is stored, and a
table beside what is stored says whether the text still holds.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from mhalib._write import write_whole
from tools import ROOT
from tools.notebooks import notebooks, statements
from tools.teaching import exercises

FOLDER = ROOT / "mhalib/results"
KEY = "results"
NUM_SEEDS = 5
FRESH = 100
"""The first seed that no text knows."""
LEFT_OUT = {"set-up", exercises.EXERCISE, exercises.SETUP, statements.TIMING, "remove-cell"}
READS = "mhalib.results"
DRAWS = {"ax", "axes", "figure", "plt", "sns", "LiveModel", "ReshapeStepper", "WorkedExample"}
"""Names by which a statement of a chapter draws, or shows an instrument."""
DIGITS = 6


def asked(notebook: NotebookNode) -> dict[str, str]:
    """What a chapter wants to know, by name: all `results` of its cells."""
    found: dict[str, str] = {}
    for cell in notebook.cells:
        for name, expression in cell.metadata.get(KEY, {}).items():
            if name in found:
                raise ValueError(f"two cells ask for the result {name!r}: give one another name")
            found[name] = expression
    return found


def program(notebook: NotebookNode) -> list[tuple[str, dict[str, str]]]:
    """The code that runs, cell by cell, each with what is asked behind it."""
    found: list[tuple[str, dict[str, str]]] = []
    last = 0
    for cell in notebook.cells:
        if cell.cell_type != "code" or LEFT_OUT & set(cell.metadata.get("tags", [])) or READS in cell.source:
            continue
        found.append((cell.source, dict(cell.metadata.get(KEY, {}))))
        if KEY in cell.metadata:
            last = len(found)
    return found[:last]


def code_key(notebook: NotebookNode) -> str:
    """A hash of the code that runs, whatever its comments, layout and figures, and of what is asked."""
    parts = [(code, sorted(names.items())) for code, names in without_drawing(notebook)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def without_drawing(notebook: NotebookNode) -> list[tuple[list[Any], dict[str, str]]]:
    """The statements of the program that can bear on what is asked, cell by cell: how a figure looks cannot.

    What mentions an Axes draws. In a cell with a figure, only what later statements use is an experiment's.
    """
    drawn = {cell.source for cell in notebook.cells if any(notebooks.pictures(cell.get("outputs", [])))}
    found: list[tuple[list[Any], dict[str, str]]] = []
    needed: set[str] = set()
    for source, names in reversed(program(notebook)):
        for expression in names.values():
            needed |= names_of(ast.parse(expression))[1]
        kept = []
        for statement in reversed(ast.parse(source).body):
            defined, used = names_of(statement)
            draws = bool(DRAWS & (defined | used))
            if draws or (source in drawn and not names and not defined & needed):
                continue
            needed = (needed - defined) | used
            kept.append(as_lists(statement))
        if kept or names:
            found.append((kept[::-1], names))
    return found[::-1]


def as_lists(node: object) -> Any:
    """A piece of code as lists and texts, which are the same in every version of Python: empty fields are left out."""
    if isinstance(node, ast.AST):
        fields = {name: as_lists(value) for name, value in ast.iter_fields(node) if value is not None and value != []}
        return [type(node).__name__, fields]
    return [as_lists(each) for each in node] if isinstance(node, list) else repr(node)


def names_of(tree: ast.AST) -> tuple[set[str], set[str]]:
    """The names that a piece of code defines, its arguments too, and those that it uses without defining them."""
    defined: set[str] = set()
    used: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else defined).add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            defined.add(node.name)
        elif isinstance(node, ast.arg):
            defined.add(node.arg)
        elif isinstance(node, ast.alias):
            defined.add((node.asname or node.name).partition(".")[0])
    return defined, used - defined


def run(cells: list[tuple[str, dict[str, str]]], seed: int) -> dict[str, float]:
    """What is asked, after the cells ran in one namespace with `SEED` set to `seed`."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    found: dict[str, float] = {}
    seeded = False
    for source, names in cells:
        exec(compile(source, "<cell>", "exec"), namespace)
        if "SEED" in namespace and not seeded:
            namespace["SEED"], seeded = seed, True
        for name, expression in names.items():
            value = eval(expression, namespace)
            if isinstance(value, Mapping):
                found |= {f"{name}/{part}": float(number) for part, number in value.items()}
            else:
                found[name] = float(value)
    if not seeded:
        raise ValueError("no cell assigns SEED, so that every run would be the same: add  SEED = 0")
    return found


def seeds(notebook: NotebookNode) -> tuple[int, ...]:
    """Those that a chapter is run with."""
    return tuple(range(notebook.metadata.get("mhalib", {}).get("seeds", NUM_SEEDS)))


def measure(path: Path, jobs: int = 1, fresh: int = 0) -> dict[str, Any]:
    """Everything that is stored of the chapter at `path`, from `jobs` seeds at once, or of `fresh` others."""
    notebook = nbformat.read(path, as_version=4)
    try:
        wanted = asked(notebook)
    except ValueError as error:
        raise ValueError(f"{notebooks.here(path)}: {error}") from error
    if not wanted:
        raise ValueError(f"{notebooks.here(path)} asks for no results: add {KEY!r} to a code cell's metadata")
    cells = program(notebook)
    chosen = tuple(range(FRESH, FRESH + fresh)) if fresh else seeds(notebook)
    with ThreadPoolExecutor(jobs) as pool:
        runs = list(pool.map(lambda seed: _run_apart(path, cells, seed, jobs), chosen))
    *_, last = runs
    return {
        "made_by": f"make results CHAPTERS={path.stem[:2]}",
        "code": code_key(notebook),
        "seeds": list(chosen),
        "device": last["device"],
        "versions": last["versions"],
        "values": by_name([one["values"] for one in runs]),
    }


def _run_apart(path: Path, cells: list[tuple[str, dict[str, str]]], seed: int, jobs: int) -> dict[str, Any]:
    """What `one` answers, from an interpreter of its own, which has its share of the processors."""
    print(f"{path.stem}: seed {seed}", file=sys.stderr, flush=True)
    environment = {**os.environ, "MPLBACKEND": "agg", "PYTHONHASHSEED": "0", "PYTHONPATH": str(ROOT)}
    if jobs > 1:
        environment["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // jobs))
    with tempfile.TemporaryDirectory() as folder:
        told, answer = Path(folder) / "told.json", Path(folder) / "answer.json"
        told.write_text(json.dumps([cells, seed]), encoding="utf-8")
        command = [sys.executable, "-m", "tools.evidence.results", "--one", str(told), str(answer)]
        done = subprocess.run(command, cwd=path.parent, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            said = done.stderr.strip()
            raise ValueError(f"{notebooks.here(path)} fails with SEED = {seed}: mend its code\n{said}")
        answered: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
    return answered


def written(stored: dict[str, Any]) -> str:
    """As JSON, a line for each name."""
    lines = [f"  {json.dumps(name)}: {json.dumps(found)}" for name, found in stored["values"].items()]
    head = json.dumps({**stored, "values": {}}, indent=1, ensure_ascii=False)
    return head.removesuffix("{}\n}") + "{\n" + ",\n".join(lines) + "\n }\n}\n"


def versions() -> dict[str, str]:
    """Of what computes, without a build's suffix."""
    import torch

    return {"python": platform.python_version(), "torch": torch.__version__.partition("+")[0]}


def device_name(kind: str) -> str:
    """Of a device's kind, what results say of it: a GPU's own name."""
    import torch

    return torch.cuda.get_device_name() if kind == "cuda" else kind


def store(
    name: str,
    seeds: Iterable[int],
    values: Mapping[str, Iterable[float]],
    digits: int,
    *,
    device: str = "cpu",
    **told: Any,
) -> None:
    """Write what an experiment outside the chapters gave: `told`, seeds, device, versions, and by name its numbers, to
    so many digits."""
    rounded = {key: [float(f"{one:.{digits}g}") for one in numbers] for key, numbers in values.items()}
    stored = {**told, "seeds": list(seeds), "device": device, "versions": versions(), "values": rounded}
    write_whole(FOLDER / f"{name}.json", written(stored))


def by_name(runs: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    """What several runs gave: for each name, a number of each run."""
    return {name: [run[name] for run in runs] for name in runs[0]}


def run_arguments(told: str | None) -> argparse.Namespace:
    """`folder`, `seeds`, `first` and `store`, of a tool with a file for each training that stores all in the end."""
    parser = argparse.ArgumentParser(description=told, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where a file for each training goes")
    parser.add_argument("--seeds", type=int, default=20, help="how many trainings")
    parser.add_argument("--first", type=int, default=0, help=f"the first seed; {FRESH} for seeds that no text knows")
    parser.add_argument("--store", action="store_true", help="write mhalib/results from the files that are there")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    return arguments


def keep(path: Path, run: Callable[[], object]) -> None:
    """Write what `run` gives, unless a run that was stopped has written it before."""
    if not path.exists():
        write_whole(path, json.dumps(run()))


def kept(paths: Mapping[int, Path]) -> dict[int, Any]:
    """By seed, what was written of the runs that are done."""
    return {seed: json.loads(path.read_text("utf-8")) for seed, path in paths.items() if path.exists()}


def beside(stored: Mapping[str, Any], fresh: Mapping[str, Any]) -> str:
    """A table, a line for each name: least, middle and largest of the stored seeds, and of fresh ones."""
    lines = [f"{'':40} {'stored: ' + str(len(stored['seeds'])):^30} {'fresh: ' + str(len(fresh['seeds'])):^30}"]
    for name, numbers in stored["values"].items():
        three = ((min(one), statistics.median(one), max(one)) for one in (numbers, fresh["values"][name]))
        lines.append(f"{name:40} " + " ".join("".join(f"{number:10.4g}" for number in some) for some in three))
    return "\n".join(lines)


def one(told: Path, answer: Path) -> None:
    """One run, in the interpreter that `measure` started for it."""
    import mhalib

    cells, seed = json.loads(told.read_text(encoding="utf-8"))
    found = {name: float(f"{value:.{DIGITS}g}") for name, value in run(cells, seed).items()}
    device = device_name(mhalib.best_device().type)
    answer.write_text(json.dumps({"values": found, "versions": versions(), "device": device}), encoding="utf-8")


def chapters() -> Iterator[tuple[Path, NotebookNode]]:
    """The chapters that ask for results."""
    for path in sorted(notebooks.CHAPTERS.glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        if asked(notebook):
            yield path, notebook


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one", nargs=2, type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--jobs", type=int, default=1, help="how many seeds run at once, on one processor's share each")
    parser.add_argument("--fresh", type=int, default=0, help="run with so many seeds that no text knows, store nothing")
    parser.add_argument("notebooks", nargs="*", type=Path, help="all chapters that ask for results, if none is named")
    arguments = parser.parse_args()
    if arguments.one:
        one(*arguments.one)
        return
    try:
        for path in notebooks.given(arguments.notebooks) or [path for path, _ in chapters()]:
            stored = measure(path, arguments.jobs, arguments.fresh)
            if arguments.fresh:
                known = json.loads((FOLDER / f"{path.stem}.json").read_text(encoding="utf-8"))
                print(f"{path.stem}\n{beside(known, stored)}\n{json.dumps(stored['values'])}")
                continue
            write_whole(FOLDER / f"{path.stem}.json", written(stored))
            print(f"mhalib/results/{path.stem}.json")
    except ValueError as error:
        parser.exit(2, f"{error}\n")


if __name__ == "__main__":
    main()
