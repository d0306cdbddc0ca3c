"""Grade all submissions, one row per student and exercise; go on where an interrupted run stopped."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import json
import os
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path

from tqdm import tqdm

from .. import __version__
from ..checks import EXERCISES, Exercise, Finding
from . import _submissions
from ._launch import Launcher, Limits
from ._sandbox import NotStarted, Sandbox, Stopped, require_working

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
        chapters: whose exercises count; if none is named, the exercises that the submissions check: two of them at
            least, so that one student cannot add exercises for all (one, where there are only one or two).
        jobs: how many submissions are graded at a time.
        progress: show a bar.

    Raises:
        RuntimeError: the sandbox does not work; nobody gets 0 for that, and what was graded until then is kept.

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
        except BaseException:
            for one in waiting:
                one.cancel()
            raise
    ordered = [row for _, path in submissions for row in rows[path]]
    _write(out, _as_csv(ordered))
    return ordered


def _choose(submissions: Iterable[tuple[str, Path]], chapters: Sequence[int]) -> list[Exercise]:
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
    return [exercise for name, exercise in EXERCISES.items() if named[name] >= (2 if readable > 2 else 1)]


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
    told = (__version__, student, seed, *(exercise.name for exercise in exercises))
    parts = (notebook, *(part.encode() for part in told))
    key = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()
    entry = journal / f"{key}.json"
    with contextlib.suppress(OSError, ValueError, TypeError):  # not there, or damaged
        return [Row(**row) for row in json.loads(entry.read_text(encoding="utf-8"))]
    rows = _grade(student, cells, exercises, seed, launcher, limits)
    _write(entry, json.dumps([asdict(row) for row in rows]))
    return rows


def _grade(
    student: str, cells: list[str], exercises: list[Exercise], seed: str, launcher: Launcher, limits: Limits
) -> list[Row]:
    notes: list[str] = []
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
        writer.writerow([harmless(value) if isinstance(value, str) else value for value in asdict(row).values()])
    return text.getvalue()


def harmless(text: str) -> str:
    """A text for spreadsheets and terminals: without control characters, and not to be taken for a formula."""
    text = "".join(letter if letter.isprintable() or letter == "\n" else "\N{REPLACEMENT CHARACTER}" for letter in text)
    return f"'{text}" if text.lstrip()[:1] in _FORMULA else text


_FORMULA = tuple("=+-@＝＋－＠")  # the wide ones, too


def _write(path: Path, text: str) -> None:
    """All or nothing."""
    beside = path.with_name(path.name + ".part")
    beside.write_text(text, encoding="utf-8", newline="")
    os.replace(beside, path)
