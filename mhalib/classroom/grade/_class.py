"""Grade all submissions, one row per student and exercise; go on where an interrupted run stopped."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path

from tqdm import tqdm

from ... import __version__
from ..checks import EXERCISES, Exercise, Finding
from . import _submissions
from ._launch import Launcher, Limits
from ._sandbox import NotStarted, Sandbox, Stopped, require_working
from ._table import COLUMNS, Row, as_csv, harmless, totals, write

MOST_BAD_CELLS = 5


def grade_class(
    folder: Path,
    out: Path,
    *,
    seed: str,
    launcher: Launcher,
    limits: Limits | None = None,
    chapters: Sequence[int] = (),
    jobs: int = 2,
    progress: bool = True,
) -> list[Row]:
    """Grade every notebook below `folder`, and write `out`; beside it, `out` + ".students.csv" holds the sums.

    A notebook is graded on the chapters whose checkers it calls, or, if it calls none, on all that count.

    Args:
        folder: with the submissions.
        out: a file of comma-separated values; beside it, `out` + ".progress" holds what is done, and is kept.
        seed: what the checks draw their inputs from; keep it from the students.
        launcher: `bubblewrap`, `no_sandbox`, or one of your own.
        limits: for each submission.
        chapters: whose exercises count; if none is named, the exercises that the submissions check: two of them at
            least, so that one student cannot add exercises for all (one, where there are only one or two).
        jobs: how many submissions are graded at a time.
        progress: show a bar.

    Raises:
        ValueError: there is no notebook, or no exercise that counts.
        RuntimeError: the sandbox does not work; nobody gets 0 for that, and what was graded until then is kept.

    Returns:
        The rows, by student and exercise.
    """
    limits = limits or Limits()
    submissions, others = _submissions.find(folder)
    if not submissions:
        raise ValueError(f"there is no notebook below folder={str(folder)!r}")
    exercises = _choose(submissions, chapters)
    require_working(launcher, limits)
    journal = out.with_name(out.name + ".progress")
    journal.mkdir(parents=True, exist_ok=True)
    journal.chmod(0o700)
    rows: dict[Path, list[Row]] = {}
    with (
        ThreadPoolExecutor(jobs) as pool,
        tqdm(total=len(submissions), unit="notebook", disable=not progress) as bar,
    ):
        waiting = {
            pool.submit(_graded_once, student, path, exercises, seed, launcher, limits, journal): path
            for student, path in submissions
        }
        try:
            for done in as_completed(waiting):
                rows[waiting[done]] = done.result()
                bar.update()
        except BaseException as error:
            for one in waiting:
                one.cancel()
            if isinstance(error, KeyboardInterrupt):
                tqdm.write("Stopping. The same command goes on from here.", file=sys.stderr)
            raise
    ordered = [row for _, path in submissions for row in rows[path]]
    write(out, as_csv(COLUMNS, [asdict(row).values() for row in ordered]))
    write(out.with_name(out.name + ".students.csv"), as_csv(("student", "points", "out_of"), totals(ordered)))
    for path in others:
        if out.parent in path.parents and path.relative_to(out.parent).parts[0].startswith(out.name):
            continue  # what this program has written
        tqdm.write(f"Not graded, no notebook: {harmless(str(path.relative_to(folder)))}", file=sys.stderr)
    for student in sorted({student for student, _ in submissions} - {row.student for row in ordered}):
        tqdm.write(f"Not graded, of another chapter: {harmless(student)}", file=sys.stderr)
    return ordered


def _runs(numbers: Sequence[int]) -> str:
    """Rising numbers in words: 1 to 29, 31."""
    starts = [i for i, number in enumerate(numbers) if i == 0 or number > numbers[i - 1] + 1]
    runs = [numbers[start:stop] for start, stop in zip(starts, [*starts[1:], len(numbers)], strict=True)]
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def _choose(submissions: Iterable[tuple[str, Path]], chapters: Sequence[int]) -> list[Exercise]:
    known = sorted({exercise.chapter for exercise in EXERCISES.values()})
    if not set(chapters) <= set(known):
        raise ValueError(f"chapters={list(chapters)}: there are exercises for {_runs(known)}")
    if chapters:
        return [exercise for exercise in EXERCISES.values() if exercise.chapter in chapters]
    named: Counter[str] = Counter()
    readable = 0
    for _, path in submissions:
        try:
            named.update(_submissions.checked_names(_submissions.code_cells(_submissions.content(path))))
            readable += 1
        except ValueError:
            continue
    chosen = [exercise for name, exercise in EXERCISES.items() if named[name] >= (2 if readable > 2 else 1)]
    if not chosen:
        raise ValueError("no checker is called in these notebooks; name the chapters")
    return chosen


def _own(exercises: list[Exercise], cells: dict[int, str]) -> list[Exercise]:
    """Those of the chapters that this notebook belongs to: a student may hand in one for each."""
    called = _submissions.checked_names(cells)
    own = {exercise.chapter for name, exercise in EXERCISES.items() if name in called}
    return [exercise for exercise in exercises if exercise.chapter in own] if own else exercises


def _graded_once(
    student: str,
    path: Path,
    exercises: list[Exercise],
    seed: str,
    launcher: Launcher,
    limits: Limits,
    journal: Path,
) -> list[Row]:
    """The rows of a submission: from the journal if this very file was graded, with these exercises and this seed."""
    try:
        notebook = _submissions.content(path)
        cells = _submissions.code_cells(notebook)
    except ValueError as error:  # soon found out again, so it is not kept
        finding = Finding(False, "unreadable", None, f"the notebook could not be read: {error}")
        return [_row(student, exercise, finding, []) for exercise in exercises]
    exercises = _own(exercises, cells)
    told = (__version__, student, seed, repr(limits), *(exercise.name for exercise in exercises))
    parts = (notebook, *(part.encode() for part in told))
    key = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()
    entry = journal / f"{key}.json"
    with contextlib.suppress(OSError, ValueError, TypeError):  # not there, or damaged
        return [Row(**row) for row in json.loads(entry.read_text(encoding="utf-8"))]
    rows = _grade(student, cells, exercises, seed, launcher, limits)
    write(entry, json.dumps([asdict(row) for row in rows]))
    return rows


def _grade(
    student: str, cells: dict[int, str], exercises: list[Exercise], seed: str, launcher: Launcher, limits: Limits
) -> list[Row]:
    notes: list[str] = []
    submission = _Submission(cells, launcher, limits, notes)
    try:
        return [_row(student, exercise, submission.examine(exercise, seed), notes) for exercise in exercises]
    finally:
        submission.close()


class _Submission:
    """The cells of a notebook in a sandbox, which is started anew when it is lost."""

    def __init__(self, cells: dict[int, str], launcher: Launcher, limits: Limits, notes: list[str]) -> None:
        self.cells, self.launcher, self.limits, self.notes = cells, launcher, limits, notes
        self.bad: set[int] = set()
        self.end = time.monotonic() + limits.submission_seconds
        self.sandbox: Sandbox | None = None

    def examine(self, exercise: Exercise, seed: str) -> Finding:
        """A lost sandbox costs the exercise that lost it; the next one gets a new sandbox."""
        if time.monotonic() > self.end:
            return Finding(False, "stopped", None, "the time for this notebook was used up before this exercise")
        try:
            sandbox = self.sandbox or self._start()
            self.sandbox = sandbox
            if exercise.is_value:
                there, submitted = sandbox.value(exercise.name)
            else:
                submitted = sandbox.function(exercise.name)
                there = submitted is not None
            if not there:
                return Finding(False, "missing", None, self._why_missing(exercise.name))
            return exercise.examine(submitted, seed)
        except Stopped as error:
            self.close()
            return Finding(False, "stopped", None, f"your code stopped the grader's sandbox: {error}")
        except NotStarted:
            raise
        except Exception as error:  # nobody else shall pay for a result that nobody has thought of
            self.close()
            return Finding(False, "stopped", None, f"what your code returned broke the check: {type(error).__name__}")

    def _start(self) -> Sandbox:
        """A sandbox in which all cells were run; a cell that stops it is left out the next time."""
        while True:
            try:
                sandbox = Sandbox(self.launcher, self.limits)
            except NotStarted:  # the machine may have been busy with somebody else's code
                sandbox = Sandbox(self.launcher, self.limits)
            for number, source in self.cells.items():
                if number in self.bad:
                    continue
                try:
                    error = sandbox.run_cell(source)
                except Stopped as stopped:
                    self.bad.add(number)
                    self.notes.append(f"code cell {number} left out: {stopped}")
                    if len(self.bad) > MOST_BAD_CELLS or time.monotonic() > self.end:
                        raise Stopped("too many cells hang or crash") from None
                    break
                if error.startswith("TooSlow"):
                    error = f"no end after {self.limits.cell_seconds:g} seconds"
                note = f"code cell {number}: {error}"
                if error and note not in self.notes:
                    self.notes.append(note)
            else:
                return sandbox

    def _why_missing(self, name: str) -> str:
        for number, source in self.cells.items():
            told = (f"code cell {number}:", f"code cell {number} ")  # not of cell 12, if this is cell 1
            failed = next((note for note in self.notes if note.startswith(told)), "")
            if failed and re.search(rf"\bdef +{name}\b|^{name} *=[^=]", source, re.MULTILINE):
                return f"{name} was to be defined in a cell that did not run to its end: {failed}"
        return f"nothing named {name} is defined in this notebook"

    def close(self) -> None:
        if self.sandbox is not None:
            self.sandbox.close()
            self.sandbox = None


def _row(student: str, exercise: Exercise, finding: Finding, notes: list[str]) -> Row:
    points = exercise.points if finding.solved else 0
    return Row(
        student,
        exercise.chapter,
        exercise.name,
        points,
        exercise.points,
        finding.kind,
        finding.mistake or "",
        finding.message,
        "; ".join(notes)[:500],
    )
