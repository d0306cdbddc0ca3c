"""Grade all submissions, one row per student and exercise; go on where an interrupted run stopped."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tqdm import tqdm

from ... import __version__
from ..checks import EXERCISES, Exercise, Finding
from . import _submissions
from ._launch import Launcher, Limits
from ._sandbox import USED_UP, Abandoned, NotStarted, Sandbox, Stopped, require_working
from ._table import COLUMNS, Row, as_csv, harmless, totals, write

MOST_BAD_CELLS, MOST_NOTES = 5, 20


def grade_class(
    folder: Path,
    out: Path,
    *,
    seed: str,
    launcher: Launcher,
    limits: Limits | None = None,
    chapters: Sequence[int] = (),
    jobs: int = 2,
    retry: bool = False,
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
        retry: grade those notebooks again that were too slow for their limits, or stopped their sandbox.
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
    how = _How(exercises, seed, launcher, limits, journal, retry)
    with (
        ThreadPoolExecutor(jobs) as pool,
        tqdm(total=len(submissions), unit="notebook", disable=not progress) as bar,
    ):
        waiting = {pool.submit(_graded_once, student, path, how): path for student, path in submissions}
        try:
            for done in as_completed(waiting):
                rows[waiting[done]] = done.result()
                bar.update()
        except BaseException as error:
            how.stopping.set()
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
        why = "a link" if path.is_symlink() else "no notebook"
        tqdm.write(f"Not graded, {why}: {harmless(str(path.relative_to(folder)))}", file=sys.stderr)
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


@dataclass(frozen=True)
class _How:
    """What is the same for all submissions."""

    exercises: list[Exercise]
    seed: str
    launcher: Launcher
    limits: Limits
    journal: Path
    retry: bool
    stopping: threading.Event = field(default_factory=threading.Event)


def _graded_once(student: str, path: Path, how: _How) -> list[Row]:
    """The rows of a submission: from the journal if this very file was graded, with these exercises and this seed."""
    try:
        notebook = _submissions.content(path)
        cells = _submissions.code_cells(notebook)
    except ValueError as error:  # soon found out again, so it is not kept
        finding = Finding(False, "unreadable", None, f"the notebook could not be read: {error}")
        return [_row(student, exercise, finding, "") for exercise in how.exercises]
    exercises = _own(how.exercises, cells)
    told = (__version__, student, how.seed, repr(how.limits), *(exercise.name for exercise in exercises))
    parts = (notebook, *(part.encode() for part in told))
    key = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()
    entry = how.journal / f"{key}.json"
    with contextlib.suppress(OSError, ValueError, TypeError):  # not there, or damaged
        rows = [Row(**row) for row in json.loads(entry.read_text(encoding="utf-8"))]
        if not (how.retry and any(row.kind in ("too slow", "stopped") for row in rows)):
            return rows
    rows = _grade(student, cells, exercises, how)
    write(entry, json.dumps([asdict(row) for row in rows]))
    return rows


def _grade(student: str, cells: dict[int, str], exercises: list[Exercise], how: _How) -> list[Row]:
    submission = _Submission(cells, how)
    try:
        findings = [submission.examine(exercise) for exercise in exercises]
        for place, finding in enumerate(findings):
            if finding.kind == "too slow":  # the machine may have been busy with somebody else's code
                submission.close()
                findings[place] = submission.examine(exercises[place])
        said = submission.said()
        return [_row(student, *pair, said) for pair in zip(exercises, findings, strict=True)]
    finally:
        submission.close()


class _Submission:
    """The cells of a notebook in a sandbox, which is started anew when it is lost."""

    def __init__(self, cells: dict[int, str], how: _How) -> None:
        self.cells, self.how = cells, how
        self.notes: dict[int, dict[str, None]] = {}  # of each cell, in the order in which they were made
        self.bad: set[int] = set()
        self.end = time.monotonic() + how.limits.submission_seconds
        self.sandbox: Sandbox | None = None

    def examine(self, exercise: Exercise) -> Finding:
        """What was handed to the checker counts, and else what has the exercise's name.

        A lost sandbox costs the exercise that lost it; the next one gets a new sandbox.
        """
        if time.monotonic() > self.end:
            return Finding(False, "stopped", None, f"{USED_UP}, before this exercise")
        try:
            sandbox = self.sandbox or self._start()
            self.sandbox = sandbox
            handed_in = sandbox.values(exercise.name) if exercise.is_value else sandbox.functions(exercise.name)
            if not handed_in:
                return Finding(False, "missing", None, self._why_missing(exercise.name))
            findings = []
            for one in handed_in:
                findings.append(exercise.examine(one, self.how.seed))
                if findings[-1].solved:
                    return findings[-1]
            return findings[0]
        except Stopped as error:
            self.close()
            return Finding(False, "stopped", None, f"your code stopped the grader's sandbox: {error}")
        except (NotStarted, Abandoned):
            raise
        except Exception as error:  # nobody else shall pay for a result that nobody has thought of
            self.close()
            return Finding(False, "stopped", None, f"what your code returned broke the check: {type(error).__name__}")

    def said(self) -> str:
        """What there is to say of the cells."""
        told = (f"code cell {number}{note}" for number, notes in self.notes.items() for note in notes)
        return "; ".join(itertools.islice(told, MOST_NOTES))[:500]

    def _start(self) -> Sandbox:
        """A sandbox in which all cells were run; a cell that stops it is left out the next time."""
        while True:
            try:
                sandbox = self._new()
            except NotStarted:  # the machine may have been busy with somebody else's code
                sandbox = self._new()
            try:
                if self._runs_all_in(sandbox):
                    return sandbox
            except BaseException:
                sandbox.close()
                raise

    def _new(self) -> Sandbox:
        return Sandbox(self.how.launcher, self.how.limits, end=self.end, stopping=self.how.stopping)

    def _runs_all_in(self, sandbox: Sandbox) -> bool:
        """Whether all cells ran without stopping it; cells that did so before are left out."""
        for number, source in self.cells.items():
            if number in self.bad:
                continue
            try:
                error = sandbox.run_cell(source)
            except Stopped as stopped:
                if time.monotonic() >= self.end:
                    raise Stopped(USED_UP) from None
                self.bad.add(number)
                self._note(number, f" left out: {stopped}")
                if len(self.bad) > MOST_BAD_CELLS:
                    raise Stopped("too many cells hang or crash") from None
                return False
            if error.startswith("TooSlow"):
                error = f"no end after {self.how.limits.cell_seconds:g} seconds"
            if error:
                self._note(number, f": {error}")
        return True

    def _note(self, number: int, note: str) -> None:
        self.notes.setdefault(number, {})[note] = None

    def _why_missing(self, name: str) -> str:
        defines = re.compile(rf"\bdef +{name}\b|^{name} *=[^=]", re.MULTILINE)
        for number, notes in self.notes.items():
            if defines.search(self.cells[number]):
                failed = f"code cell {number}{next(iter(notes))}"
                return f"{name} was to be defined in a cell that did not run to its end: {failed}"
        return f"nothing named {name} is defined in this notebook"

    def close(self) -> None:
        if self.sandbox is not None:
            self.sandbox.close()
            self.sandbox = None


def _row(student: str, exercise: Exercise, finding: Finding, notes: str) -> Row:
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
        notes,
    )
