"""Make a class of any size and grade it: seconds, processor time and memory, for what chapters/teaching.md says.

    python -m tools.teaching.big_class 200
    python -m tools.teaching.big_class 40 --jobs 1 2
    python -m tools.teaching.big_class 200 --scheduler tcp://127.0.0.1:8786

Each student hands in the exercises of one chapter, the chapters in turn. Of the exercises, seven in ten have the
chapter's own solution, the others are untouched, or solved with one thing wrong. With several numbers of --jobs, the
class is dealt out in slices of ten, each graded with one number after the other, so that all of them meet the same
machine. Processor time is read from /proc as a sandbox ends.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from mhalib_classroom import checks
from mhalib_classroom.grade import Row, bubblewrap, grade_class
from mhalib_classroom.grade._sandbox import Sandbox
from mhalib_classroom.grade._usage import processes_of, usage
from tools.teaching.simulated_term import Work, checked_name

SLICE, SECONDS_BETWEEN_LOOKS = 10, 1.0
SLIPS = (("-1", "-2"), (" * ", " + "), (" / ", " * "), (" + ", " - "), ("True", "False"))


def handed_in(work: Work, rng: random.Random) -> NotebookNode:
    """A student's notebook of a chapter: exercises solved, solved with one thing wrong, or untouched."""
    chances = {name: rng.random() for name in work.names}

    def change(source: str) -> str:
        return with_a_slip(source, rng) if 0.7 <= chances.get(checked_name(source), 0) < 0.85 else source

    return work.done([name for name, chance in chances.items() if chance < 0.85], change)


def with_a_slip(source: str, rng: random.Random) -> str:
    """The code with one axis, sign or operation exchanged, if there is any."""
    body, check, name = source.rpartition("\nchecks.")
    there = [slip for slip in SLIPS if slip[0] in body]
    if not there:
        return source
    right, wrong = rng.choice(there)
    return body.replace(right, wrong, 1) + check + name


def hand_in(folder: Path, students: int, seed: int) -> None:
    """Write a folder for each student."""
    rng = random.Random(seed)
    works = [Work(chapter) for chapter in sorted({one.chapter for one in checks.EXERCISES.values()})]
    for number in range(students):
        work = works[number % len(works)]
        own = folder / f"student-{number + 1:05d}"
        own.mkdir(parents=True)
        nbformat.write(handed_in(work, rng), own / work.path.name)


@dataclass
class Measured:
    """What grading took. seconds: by the clock; sandboxes, grader: of processor time; peak: bytes of memory, of the
    grader and all its sandboxes together."""

    seconds: float = 0.0
    sandboxes: float = 0.0
    grader: float = 0.0
    peak: int = 0
    rows: list[Row] = field(default_factory=list)

    def __str__(self) -> str:
        count = len({row.student for row in self.rows})
        return (
            f"{count} notebooks, {len(self.rows)} exercises: {self.seconds:.0f} s, {self.seconds / count:.2f} s each; "
            f"processor time {self.sandboxes / count:.2f} s each in the sandbox, {self.grader / count:.2f} s in the "
            f"grader; at most {self.peak / 1e6:,.0f} MB"
        )


class Meter:
    """Adds to `Measured` what happens while it is entered."""

    def __init__(self, into: Measured) -> None:
        self.into, self._over = into, threading.Event()
        self._watch = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> None:
        self._close = close = Sandbox.close

        def counting(sandbox: Sandbox) -> None:
            self.into.sandboxes += processor_seconds(sandbox._process.pid)
            close(sandbox)

        Sandbox.close = counting  # type: ignore[method-assign,assignment]
        self._start, self._own = time.perf_counter(), time.process_time()
        self._watch.start()

    def __exit__(self, *_: object) -> None:
        self.into.seconds += time.perf_counter() - self._start
        self.into.grader += time.process_time() - self._own
        self._over.set()
        self._watch.join()
        Sandbox.close = self._close  # type: ignore[method-assign]

    def _look(self) -> None:
        while not self._over.wait(SECONDS_BETWEEN_LOOKS):
            self.into.peak = max(self.into.peak, usage(os.getpid())[0])


def processor_seconds(pid: int) -> float:
    """Of a process and all below it that still are."""
    ticks = 0
    for process in processes_of(pid):
        try:
            text = Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace")
        except OSError:
            continue
        user, system = text.rpartition(")")[2].split()[11:13]
        ticks += int(user) + int(system)
    return ticks / os.sysconf("SC_CLK_TCK")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("students", type=int)
    parser.add_argument("--jobs", type=int, nargs="+", default=[None], help="several: compared slice by slice")
    parser.add_argument("--scheduler", help="of a Dask cluster; processor time and memory are then not measured")
    parser.add_argument("--seed", type=int, default=0, help="of the class; default: 0")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        everything = Path(place) / "all"
        hand_in(everything, given.students, given.seed)
        own = sorted(everything.iterdir())
        size = len(own) if len(given.jobs) == 1 else SLICE
        found = {jobs: Measured() for jobs in given.jobs}
        for number, start in enumerate(range(0, len(own), size)):
            jobs = given.jobs[number % len(given.jobs)]
            folder = Path(place) / f"part-{number}"
            folder.mkdir()
            for one in own[start : start + size]:
                one.rename(folder / one.name)
            with Meter(found[jobs]):
                found[jobs].rows += grade_class(
                    folder,
                    Path(place) / f"{number}.csv",
                    seed="of the big class",
                    launcher=bubblewrap,
                    jobs=jobs,
                    scheduler=given.scheduler,
                )
            print(f"jobs {jobs or 'as many as fit'}: {found[jobs]}", file=sys.stderr, flush=True)
    for jobs, measured in found.items():
        print(f"jobs {jobs or 'as many as fit'}: {measured}")
        print(
            "    "
            + ", ".join(f"{count} {kind}" for kind, count in Counter(r.kind for r in measured.rows).most_common())
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
