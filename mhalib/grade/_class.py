"""Grade all submissions, one row per student and exercise; go on where an interrupted run stopped."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path

from tqdm import tqdm

from ..checks import EXERCISES, Exercise, Finding
from . import _submissions
from ._sandbox import Launcher, Limits, Sandbox, Stopped, require_working

COLUMNS = ("student", "chapter", "exercise", "points", "out_of", "kind", "mistake", "diagnosis", "notes")
MOST_BAD_CELLS = 5


@dataclass(frozen=True)
class Row:
    """One student, one exercise. `kind` and `mistake` are as in `mhalib.checks.Finding`; or "unreadable", "stopped"."""

    student: str
    chapter: int
    exercise: str
    points: int
    out_of: int
    kind: str
    mistake: str
    diagnosis: str
    notes: str


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
    """Grade every notebook below `folder`, and write `out`.

    Args:
        folder: with the submissions.
        out: a file of comma-separated values; beside it, `out` + ".progress" holds what is done, and is kept.
        seed: what the checks draw their inputs from; keep it from the students.
        launcher: `bubblewrap`, `no_sandbox`, or one of your own.
        limits: for each submission.
        chapters: whose exercises count; if none is named, those whose checkers occur in any submission.
        jobs: how many submissions are graded at a time.
        progress: show a bar.

    Raises:
        RuntimeError: the sandbox does not work at all; nothing was graded.

    Returns:
        The rows, by student and exercise.
    """
    limits = limits or Limits()
    require_working(launcher, limits)
    submissions = _submissions.find(folder)
    exercises = _choose(submissions, chapters)
    journal = out.with_name(out.name + ".progress")
    journal.mkdir(parents=True, exist_ok=True)
    journal.chmod(0o700)
    rows: dict[str, list[Row]] = {}
    with (
        ThreadPoolExecutor(jobs) as pool,
        tqdm(total=len(submissions), unit="notebook", disable=not progress) as bar,
    ):
        waiting = {
            pool.submit(_graded_once, student, path, exercises, seed, launcher, limits, journal): student
            for student, path in submissions
        }
        try:
            for done in as_completed(waiting):
                rows[waiting[done]] = done.result()
                bar.update()
        except BaseException:
            for one in waiting:
                one.cancel()
            raise
    ordered = [row for student, _ in submissions for row in rows[student]]
    _write(out, _as_csv(ordered))
    return ordered


def _choose(submissions: Iterable[tuple[str, Path]], chapters: Sequence[int]) -> list[Exercise]:
    if chapters:
        return [exercise for exercise in EXERCISES.values() if exercise.chapter in chapters]
    named: set[str] = set()
    for _, path in submissions:
        try:
            named |= _submissions.checked_names(_submissions.code_cells(path))
        except ValueError:
            continue
    return [exercise for name, exercise in EXERCISES.items() if name in named]


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
    content = path.read_bytes() if path.is_file() and path.stat().st_size <= _submissions.LARGEST else b""
    parts = (student.encode(), content, seed.encode(), *(exercise.name.encode() for exercise in exercises))
    key = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()
    entry = journal / f"{key}.json"
    if entry.exists():
        return [Row(**row) for row in json.loads(entry.read_text(encoding="utf-8"))]
    rows = _grade(student, path, exercises, seed, launcher, limits)
    _write(entry, json.dumps([asdict(row) for row in rows]))
    return rows


def _grade(
    student: str, path: Path, exercises: list[Exercise], seed: str, launcher: Launcher, limits: Limits
) -> list[Row]:
    notes: list[str] = []
    try:
        cells = _submissions.code_cells(path)
    except ValueError as error:
        finding = Finding(False, "unreadable", None, f"the notebook could not be read: {error}")
        return [_row(student, exercise, finding, notes) for exercise in exercises]
    submission = _Submission(cells, launcher, limits, notes)
    try:
        return [_row(student, exercise, submission.examine(exercise, seed), notes) for exercise in exercises]
    finally:
        submission.close()


class _Submission:
    """The cells of a notebook in a sandbox, which is started anew when it is lost."""

    def __init__(self, cells: list[str], launcher: Launcher, limits: Limits, notes: list[str]) -> None:
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
                return Finding(False, "missing", None, f"nothing named {exercise.name} is defined in this notebook")
            return exercise.examine(submitted, seed)
        except Stopped as error:
            self.close()
            return Finding(False, "stopped", None, f"your code stopped the grader's sandbox: {error}")

    def _start(self) -> Sandbox:
        """A sandbox in which all cells were run; a cell that stops it is left out the next time."""
        while True:
            sandbox = Sandbox(self.launcher, self.limits)
            for number, source in enumerate(self.cells):
                if number in self.bad:
                    continue
                try:
                    error = sandbox.run_cell(source)
                except Stopped as stopped:
                    self.bad.add(number)
                    self.notes.append(f"code cell {number + 1} left out: {stopped}")
                    if len(self.bad) > MOST_BAD_CELLS or time.monotonic() > self.end:
                        raise Stopped("too many cells hang or crash") from None
                    break
                note = f"code cell {number + 1}: {error}"
                if error and note not in self.notes:
                    self.notes.append(note)
            else:
                return sandbox

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


def _as_csv(rows: list[Row]) -> str:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    for row in rows:
        writer.writerow([_harmless(value) for value in asdict(row).values()])
    return text.getvalue()


def _harmless(value: object) -> object:
    """A spreadsheet takes a text that begins with = + - @ for a formula; an apostrophe in front makes it text."""
    if not isinstance(value, str):
        return value
    value = "".join(
        letter if letter.isprintable() or letter == "\n" else "\N{REPLACEMENT CHARACTER}" for letter in value
    )
    return f"'{value}" if value[:1] in ("=", "+", "-", "@") else value


def _write(path: Path, text: str) -> None:
    """All or nothing."""
    beside = path.with_name(path.name + ".part")
    beside.write_text(text, encoding="utf-8")
    os.replace(beside, path)
