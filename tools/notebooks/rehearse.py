"""Rehearse other machines: run chapters under `pytest --nbval` in kernels whose arithmetic differs from this one's.

    python -m tools.notebooks.rehearse [--only a1,b] [--jobs 2] [--out FILE] [NOTEBOOK ...]

What breaks is listed by cell, with in how many of the runs and why, and the exit status is 1. What came close, a number
that used over 0.7 of its tolerance, is listed, too: on one machine in a hundred it will break. The rehearsals:

    a1 to a5   each product of matrices is off by a relative 1e-6, or 3e-7 (a4, a5), forward and backward
    b1 b2 b4   that many threads; all others have one
    c1 c2 c3   torch's plain kernels, without oneDNN; its kernels for AVX2; MKL's and oneDNN's for old processors
    d1 d2      off by a relative 5e-4, as with TF32, until a cell trains; `allclose` and its like allow 0.02
    e1 e2      sums in another order, as other kernels have them
    f1 f2      a mixture of these

They reach the kernel through the environment and a start-up file in an IPYTHONDIR of its own, so that notebooks know
nothing of them. The pages' own timings run under all this, too.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tools import ROOT
from tools.notebooks import notebooks

ARITHMETIC = Path(__file__).with_name("other_arithmetic.py")
PLAIN = {"ATEN_CPU_CAPABILITY": "default"}
AVX2 = {"ATEN_CPU_CAPABILITY": "avx2"}
OLD = {"MKL_CBWR": "COMPATIBLE", "ONEDNN_MAX_CPU_ISA": "SSE41"}
CLOSE = 0.7  # of a tolerance
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
ERROR = re.compile(r"^\w*(?:Error|Exception|Interrupt|Warning)\b.*")


@dataclass(frozen=True)
class Rehearsal:
    """One machine: what other_arithmetic.py is told, and the environment of the kernel."""

    arithmetic: dict[str, Any] = field(default_factory=dict)
    threads: int = 1
    environment: dict[str, str] = field(default_factory=dict)


REHEARSALS = {
    "a1": Rehearsal({"error": 1e-6, "seed": 1}),
    "a2": Rehearsal({"error": 1e-6, "seed": 2}),
    "a3": Rehearsal({"error": 1e-6, "seed": 3}),
    "a4": Rehearsal({"error": 3e-7, "seed": 4}),
    "a5": Rehearsal({"error": 3e-7, "seed": 5}),
    "b1": Rehearsal(),
    "b2": Rehearsal(threads=2),
    "b4": Rehearsal(threads=4),
    "c1": Rehearsal({"onednn": False}, environment=PLAIN),
    "c2": Rehearsal(environment=AVX2),
    "c3": Rehearsal(environment=OLD),
    "d1": Rehearsal({"error": 5e-4, "seed": 1}),
    "d2": Rehearsal({"error": 5e-4, "seed": 2}),
    "e1": Rehearsal({"order": True, "seed": 1}),
    "e2": Rehearsal({"order": True, "seed": 2}),
    "f1": Rehearsal({"error": 1e-6, "seed": 6, "onednn": False}, threads=2, environment=PLAIN),
    "f2": Rehearsal({"error": 3e-7, "seed": 7, "order": True}, environment=OLD),
}


@dataclass(frozen=True)
class Trouble:
    """A code cell, counted from 0 as nbval does, and the first line of why."""

    cell: int
    why: str


@dataclass(frozen=True)
class Run:
    """One chapter in one rehearsal."""

    chapter: str
    rehearsal: str
    seconds: float
    cells: int
    broken: tuple[Trouble, ...]
    close: tuple[Trouble, ...] = ()
    machine: dict[str, Any] = field(default_factory=dict)  # as the kernel found it


def run(path: Path, name: str) -> Run:
    """The notebook at `path` in the rehearsal `name`, in an interpreter of its own; `RuntimeError` if that fails."""
    rehearsal = REHEARSALS[name]
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        answer, report = Path(folder) / "answer.json", Path(folder) / "report.json"
        told = {**rehearsal.arithmetic, "report": str(report)}
        environment = {
            **os.environ,
            **rehearsal.environment,
            "OMP_NUM_THREADS": str(rehearsal.threads),
            "OMP_WAIT_POLICY": "PASSIVE",  # threads that wait for a busy core would else keep it busier
            "IPYTHONDIR": folder,
            "REHEARSAL": json.dumps(told),
        }
        start_up = Path(folder) / "profile_default/startup/other_arithmetic.py"
        start_up.parent.mkdir(parents=True)
        source = f"open({str(ARITHMETIC)!r}, encoding='utf-8').read()"
        code = f"exec(compile({source}, 'other_arithmetic', 'exec'), {{'__name__': 'other'}})"
        start_up.write_text(code, encoding="utf-8")
        command = [sys.executable, "-m", "tools.notebooks.rehearse", "--one", str(path), str(answer)]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        if not answer.exists() or not report.exists():
            raise RuntimeError(f"{path.stem} did not run in {name}:\n{done.stdout}{done.stderr}")
        found, machine = (json.loads(file.read_text(encoding="utf-8")) for file in (answer, report))
    broken, close = (tuple(Trouble(**each) for each in found[kind]) for kind in ("broken", "close"))
    return Run(path.stem, name, round(time.perf_counter() - start, 1), found["cells"], broken, close, machine)


class Recorder:
    """A plugin of pytest that keeps what became of each cell."""

    def __init__(self) -> None:
        self.cells = 0
        self.broken: list[dict[str, Any]] = []
        self.close: list[dict[str, Any]] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: Any, call: pytest.CallInfo[None]) -> Any:
        report = yield
        if call.when == "call":
            self.cells += 1
            if call.excinfo is not None and not report.passed:
                self.broken.append({"cell": item.cell_num, "why": reason(call.excinfo.value)})
            elif item.used[0] > CLOSE:
                self.close.append(
                    {"cell": item.cell_num, "why": f"{item.used[1]}: {item.used[0]:.2f} of its tolerance"}
                )
        return report


def reason(error: BaseException) -> str:
    """The first line of why a cell failed: the difference, or the exception, and where it says nothing, its code."""
    lines = ESCAPES.sub("", getattr(error, "inner_traceback", None) or str(error)).strip().splitlines()
    raised = [line for line in lines if ERROR.match(line)]
    if not raised:
        return _first_difference(lines)
    if raised[-1].rstrip(": ") != "AssertionError" and "not close" not in raised[-1]:
        return raised[-1]
    more = [line for line in lines if line.startswith("Greatest")]
    at = [line.split(maxsplit=2)[-1] for line in lines if re.match(r"-+> \d+ ", line)]
    return "; ".join([raised[-1].rstrip(": "), *at[:1], *more])


def _first_difference(lines: Sequence[str]) -> str:
    what, *rest = lines
    if what.endswith(": stored") and "computed" in rest:
        middle = rest.index("computed")
        pairs = itertools.zip_longest(rest[:middle], rest[middle + 1 :], fillvalue="nothing")
        old, new = next((pair for pair in pairs if pair[0] != pair[1]), ("", "other white space"))
        return f"{what} {old.strip()}, computed {new.strip()}"
    return what


def one(path: Path, answer: Path) -> None:
    """The run, in the interpreter that `run` started for it."""
    recorder = Recorder()
    root = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT)]
    plugins = ["-p", "tools.notebooks.nbval_statements", "-p", "no:cacheprovider"]
    status = pytest.main(["--nbval", "--nbval-current-env", *root, *plugins, str(path)], plugins=[recorder])
    if status in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) and recorder.cells:
        answer.write_text(json.dumps(vars(recorder)), encoding="utf-8")


def table(runs: Sequence[Run], names: Sequence[str]) -> str:
    """Chapters by rehearsals: ok, or how many cells broke."""
    chapters = list(dict.fromkeys(run.chapter for run in runs))
    found = {(run.chapter, run.rehearsal): str(len(run.broken) or "ok") for run in runs}
    width = max(map(len, chapters))
    rows = [("", *names), *((chapter, *(found[chapter, name] for name in names)) for chapter in chapters)]
    return "\n".join(f"{first:{width}}" + "".join(f"{each:>4}" for each in rest) for first, *rest in rows)


def by_cell(runs: Sequence[Run], kind: str = "broken") -> Iterable[str]:
    """A line for each cell that broke, or came close."""
    found: dict[tuple[str, int], list[tuple[str, str]]] = {}
    for each in runs:
        for broken in getattr(each, kind):
            found.setdefault((each.chapter, broken.cell), []).append((each.rehearsal, broken.why))
    for (chapter, cell), cases in sorted(found.items()):
        of = sum(run.chapter == chapter for run in runs)
        names = " ".join(name for name, _ in cases)
        yield f"{chapter}, code cell {cell}: {len(cases)} of {of} ({names}): {cases[0][1]}"


def rehearse(paths: Sequence[Path], names: Sequence[str], jobs: int) -> list[Run]:
    """Every chapter in every rehearsal, `jobs` at a time."""

    def told(path: Path, name: str) -> Run:
        done = run(path, name)
        said = f"{len(done.broken)} broken" if done.broken else "ok"
        said = "\n    ".join([f"{done.chapter} {name}: {said}, {done.seconds:.0f} s", *by_cell([done])])
        print(said, file=sys.stderr, flush=True)
        return done

    with ThreadPoolExecutor(jobs) as pool:
        waiting = [pool.submit(told, path, name) for path in paths for name in names]
        try:
            return [each.result() for each in waiting]
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(REHEARSALS), help="names or letters of rehearsals, with commas")
    parser.add_argument("--jobs", type=int, default=2, help="how many run at a time")
    parser.add_argument("--out", type=Path, help="write what was found as JSON")
    parser.add_argument("--one", nargs=2, type=Path, help=argparse.SUPPRESS)
    parser.add_argument("notebooks", nargs="*", type=Path, help="all chapters, if none is named")
    arguments = parser.parse_args(given)
    if arguments.one:
        one(*arguments.one)
        return 0
    asked = arguments.only.split(",")
    names = [name for name in REHEARSALS if any(map(name.startswith, asked))]
    if unknown := [each for each in asked if not each or not any(name.startswith(each) for name in REHEARSALS)]:
        parser.error(f"--only: {', '.join(unknown)} not among {', '.join(REHEARSALS)}")
    if arguments.jobs < 1:
        parser.error(f"--jobs {arguments.jobs}: give 1 or more")
    paths = [path.resolve() for path in arguments.notebooks] or sorted(notebooks.CHAPTERS.glob("*.ipynb"))
    runs = rehearse(paths, names, arguments.jobs)
    print(table(runs, names), *by_cell(runs), sep="\n")
    if close := list(by_cell(runs, "close")):
        print("close:", *close, sep="\n")
    if arguments.out:
        found = {
            "rehearsals": {name: vars(REHEARSALS[name]) for name in names},
            "runs": [asdict(each) for each in runs],
        }
        arguments.out.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return int(any(each.broken for each in runs))


if __name__ == "__main__":
    sys.exit(main())
