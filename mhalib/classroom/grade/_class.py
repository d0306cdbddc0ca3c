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
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from tqdm import tqdm

from ... import __version__
from ..._validate import require_count
from ..checks import EXERCISES, Exercise, Finding
from . import _late, _submissions
from ._feedback import hand_back
from ._launch import Launcher, Limits
from ._sandbox import USED_UP, Abandoned, NotStarted, Sandbox, Stopped, require_working
from ._submissions import Submission
from ._table import COLUMNS, Row, as_csv, counted, gradebook, harmless, without_points, write

MOST_BAD_CELLS, MOST_NOTES, MOST_LEFT_OUT = 5, 20, 20


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
    student_pattern: str | None = None,
    last: bool = False,
    points: Mapping[str, int] | None = None,
    feedback: bool = False,
    deadlines: _late.Deadlines | None = None,
    progress: bool = True,
) -> list[Row]:
    """Grade every notebook below `folder`, and write `out`; beside it, `out` + ".students.csv" is the gradebook.

    A notebook is graded on the chapters whose checkers it calls; if it calls none, on `chapters`, or else on the
    chapter that its first words or its name say. Each has a row at least, which says why where nothing was graded.

    Args:
        folder: with the submissions.
        out: a file of comma-separated values; beside it, `out` + ".progress" holds what is done, and is kept.
        seed: what the checks draw their inputs from; keep it from the students.
        launcher: `bubblewrap`, `runc`, `crun`, `no_sandbox`, or one of your own.
        limits: for each submission.
        chapters: whose exercises count; none means all.
        jobs: how many submissions are graded at a time.
        retry: grade those notebooks again that were too slow for their limits, or stopped their sandbox.
        student_pattern: a regular expression that finds a student's name in a path below `folder`; `None` is the first
            folder, or what Moodle, Canvas and Blackboard write.
        last: of several notebooks of a student with the same exercise, the one that was handed in last counts, as far
            as that is known, and not the best one.
        points: of exercises by name, in place of their own.
        feedback: write a folder for each student into `out` + ".feedback": a page with the results, and the notebooks
            with comments.
        deadlines: what is due when, as `deadlines` reads it; `None` looks at no time.
        progress: show a bar.

    Raises:
        ValueError: there is no notebook, or none with an exercise that counts; a chapter or an exercise is unknown, or
            `student_pattern` is no regular expression.
        RuntimeError: the sandbox does not work; nobody gets 0 for that, and what was graded until then is kept.

    Returns:
        The rows, by student and exercise.
    """
    limits = limits or Limits()
    try:
        pattern = None if student_pattern is None else re.compile(student_pattern)
    except re.error as error:
        raise ValueError(f"student_pattern={student_pattern!r:.80} is no regular expression: {error}") from error
    _require_known(chapters, points or {})
    submissions, others = _submissions.find(folder, pattern)
    if not submissions:
        raise ValueError(f"there is no notebook below folder={str(folder)!r}")
    if last:
        submissions.sort(key=lambda one: (one.student, _late.order(one, folder), one.notebook))
    tasks = [_task(one, chapters) for one in submissions]
    if not any(task.exercises for task in tasks):
        raise ValueError("no checker is called in these notebooks; name the chapters")
    require_working(launcher, limits)
    journal = out.with_name(out.name + ".progress")
    journal.mkdir(parents=True, exist_ok=True)
    journal.chmod(0o700)
    rows: dict[Path, list[Row]] = {}
    how = _How(seed, launcher, limits, journal, retry)
    with (
        ThreadPoolExecutor(jobs) as pool,
        tqdm(total=len(tasks), unit="notebook", disable=not progress) as bar,
    ):
        waiting = {pool.submit(_graded_once, task, how): task.submission.path for task in tasks}
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
    ordered = [_weighed(row, points or {}) for one in submissions for row in rows[one.path]]
    told: list[str] = []
    if deadlines is not None:
        ordered, told = _late.judged(ordered, submissions, folder, deadlines)
    write(out, as_csv(COLUMNS, [asdict(row).values() for row in ordered]))
    write(out.with_name(out.name + ".students.csv"), gradebook(counted(ordered, last=last)))
    if feedback:
        hand_back(out.with_name(out.name + ".feedback"), submissions, ordered, last=last)
    left_out = []
    for path in others:
        if out.parent in path.parents and path.relative_to(out.parent).parts[0].startswith(out.name):
            continue  # what this program has written
        why = "a link" if path.is_symlink() else "no notebook"
        left_out.append(f"Not graded, {why}: {harmless(str(path.relative_to(folder)))}")
    if len(left_out) > MOST_LEFT_OUT:  # a student's repository may have thousands
        left_out[MOST_LEFT_OUT:] = [f"Not graded: {len(left_out) - MOST_LEFT_OUT} files more that are no notebooks"]
    for text in left_out:
        tqdm.write(text, file=sys.stderr)
    for text in without_points(ordered):
        tqdm.write(text, file=sys.stderr)
    for text in told:
        tqdm.write(harmless(text), file=sys.stderr)
    return ordered


def _runs(numbers: Sequence[int]) -> str:
    """Rising numbers in words: 1 to 28, 31."""
    starts = [i for i, number in enumerate(numbers) if i == 0 or number > numbers[i - 1] + 1]
    runs = [numbers[start:stop] for start, stop in zip(starts, [*starts[1:], len(numbers)], strict=True)]
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def _require_known(chapters: Sequence[int], points: Mapping[str, int]) -> None:
    known = sorted({exercise.chapter for exercise in EXERCISES.values()})
    if not set(chapters) <= set(known):
        raise ValueError(f"chapters={list(chapters)}: there are exercises for {_runs(known)}")
    for name, value in points.items():
        if name not in EXERCISES:
            raise ValueError(f"points: there is no exercise {name!r:.80}")
        require_count(f"points[{name!r}]", value, minimum=0)


def _weighed(row: Row, points: Mapping[str, int]) -> Row:
    """The row with the exercise's points of this course."""
    if row.exercise not in points:
        return row
    worth = points[row.exercise]
    return replace(row, points=worth * (row.points == row.out_of), out_of=worth)


@dataclass(frozen=True)
class _Task:
    """What is to be done with one submission: run its cells for these exercises, or say why nothing is done."""

    submission: Submission
    digest: bytes
    cells: dict[int, str]
    exercises: list[Exercise]
    why: Finding | None = None
    chapter: int | None = None


def _task(one: Submission, chapters: Sequence[int]) -> _Task:
    try:
        content = _submissions.content(one.path)
        notebook = _submissions.read(content)
    except ValueError as error:
        finding = Finding(False, "unreadable", None, f"the notebook could not be read: {error}")
        return _Task(one, b"", {}, _of(chapters), finding)
    if notebook.is_chapter:
        text = "this is a chapter of the book, with its solutions, and not the students' notebook"
        return _Task(one, b"", {}, [], Finding(False, "a chapter", None, text))
    called = _submissions.checked_names(notebook.cells)
    own = {exercise.chapter for name, exercise in EXERCISES.items() if name in called}
    named = _submissions.chapter_named(notebook, one.notebook)
    own = own or set(chapters) or ({named} if named is not None else set())
    exercises = _of([chapter for chapter in own if not chapters or chapter in chapters])
    if exercises:
        return _Task(one, hashlib.sha256(content).digest(), notebook.cells, exercises)
    if chapters:
        text = f"it calls the checkers of chapter {_runs(sorted(own))}, which is not graded"
        return _Task(one, b"", {}, [], Finding(False, "other chapter", None, text), min(own))
    text = "it calls no checker, and nothing says which chapter it belongs to: --chapter names one"
    return _Task(one, b"", {}, [], Finding(False, "no exercise", None, text))


def _of(chapters: Iterable[int]) -> list[Exercise]:
    wanted = set(chapters)
    return [exercise for exercise in EXERCISES.values() if exercise.chapter in wanted]


@dataclass(frozen=True)
class _How:
    """What is the same for all submissions."""

    seed: str
    launcher: Launcher
    limits: Limits
    journal: Path
    retry: bool
    stopping: threading.Event = field(default_factory=threading.Event)


def _graded_once(task: _Task, how: _How) -> list[Row]:
    """The rows of a submission: from the journal if this very file was graded, with these exercises and this seed."""
    if task.why is not None:  # soon found out again, so it is not kept
        why = task.why
        return [_row(task, each, why, "") for each in task.exercises] or [_row(task, None, why, "")]
    one = task.submission
    told = (__version__, one.student, one.notebook, how.seed, repr(how.limits), *(each.name for each in task.exercises))
    parts = (task.digest, *(part.encode() for part in told))
    key = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()
    entry = how.journal / f"{key}.json"
    with contextlib.suppress(OSError, ValueError, TypeError):  # not there, or damaged
        rows = [Row(**row) for row in json.loads(entry.read_text(encoding="utf-8"))]
        if not (how.retry and any(row.kind in ("too slow", "stopped") for row in rows)):
            return rows
    rows = _grade(task, how)
    write(entry, json.dumps([asdict(row) for row in rows]))
    return rows


def _grade(task: _Task, how: _How) -> list[Row]:
    submission = _Run(task.cells, how)
    try:
        findings = [submission.examine(exercise) for exercise in task.exercises]
        for place, finding in enumerate(findings):
            if finding.kind == "too slow":  # the machine may have been busy with somebody else's code
                submission.close()
                findings[place] = submission.examine(task.exercises[place])
        said = submission.said()
        return [_row(task, *pair, said) for pair in zip(task.exercises, findings, strict=True)]
    finally:
        submission.close()


class _Run:
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


def _row(task: _Task, exercise: Exercise | None, finding: Finding, notes: str) -> Row:
    worth = 0 if exercise is None else exercise.points
    return Row(
        task.submission.student,
        task.submission.notebook,
        task.chapter if exercise is None else exercise.chapter,
        "" if exercise is None else exercise.name,
        worth if finding.solved else 0,
        worth,
        finding.kind,
        finding.mistake or "",
        finding.message,
        notes,
    )
