"""What is to be done with each notebook: for which exercises its cells are run, or why nothing is done."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mhalib._validate import require_count

from ..checks import EXERCISES, Exercise, Finding
from . import _submissions
from ._submissions import Submission
from ._table import Row


@dataclass(frozen=True)
class Task:
    """What is to be done with one submission: run its cells for these exercises, or say why nothing is done."""

    submission: Submission
    digest: bytes
    cells: dict[int, str]
    exercises: list[Exercise]
    why: Finding | None = None
    chapter: int | None = None


def task_of(one: Submission, chapters: Sequence[int]) -> Task:
    """A notebook's task. chapters: whose exercises count; none means all."""
    if one.unread:
        finding = Finding(False, "unreadable", None, f"this folder and what is in it could not be read: {one.unread}")
        return Task(one, b"", {}, [], finding)
    try:
        content = _submissions.content(one.path)
        notebook = _submissions.read(content)
    except ValueError as error:
        finding = Finding(False, "unreadable", None, f"the notebook could not be read: {error}")
        return Task(one, b"", {}, _of(chapters), finding)
    if notebook.is_chapter:
        text = "this is a chapter of the book, with its solutions, and not the students' notebook"
        return Task(one, b"", {}, [], Finding(False, "a chapter", None, text))
    called = _submissions.checked_names(notebook.cells)
    own = {exercise.chapter for name, exercise in EXERCISES.items() if name in called}
    named = _submissions.chapter_named(notebook, one.notebook)
    own = own or set(chapters) or ({named} if named is not None else set())
    exercises = _of([chapter for chapter in own if not chapters or chapter in chapters])
    if exercises:
        return Task(one, hashlib.sha256(content).digest(), notebook.cells, exercises)
    if chapters:
        text = f"it calls the checkers of chapter {_runs(sorted(own))}, which is not graded"
        return Task(one, b"", {}, [], Finding(False, "other chapter", None, text), min(own))
    text = "it calls no checker, and nothing says which chapter it belongs to: --chapter names one"
    return Task(one, b"", {}, [], Finding(False, "no exercise", None, text))


def _of(chapters: Iterable[int]) -> list[Exercise]:
    wanted = set(chapters)
    return [exercise for exercise in EXERCISES.values() if exercise.chapter in wanted]


def require_known(chapters: Sequence[int], points: Mapping[str, int]) -> None:
    """That there are such chapters and exercises.

    Raises:
        ValueError: there are not, or an exercise is worth less than 0 points.
    """
    known = sorted({exercise.chapter for exercise in EXERCISES.values()})
    if not set(chapters) <= set(known):
        raise ValueError(f"chapters={list(chapters)}: there are exercises for {_runs(known)}")
    for name, value in points.items():
        if name not in EXERCISES:
            raise ValueError(f"points: there is no exercise {name!r:.80}")
        require_count(f"points[{name!r}]", value, minimum=0)


def _runs(numbers: Sequence[int]) -> str:
    """Rising numbers in words: 1 to 28, 31."""
    starts = [i for i, number in enumerate(numbers) if i == 0 or number > numbers[i - 1] + 1]
    runs = [numbers[start:stop] for start, stop in zip(starts, [*starts[1:], len(numbers)], strict=True)]
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def rows_of(task: Task, findings: Sequence[Finding], notes: str) -> list[Row]:
    """A row for each exercise of a task with what was found; one row where there is no exercise."""
    exercises: list[Exercise | None] = [*task.exercises] or [None]
    return [_row(task, *pair, notes) for pair in zip(exercises, findings, strict=True)]


def _row(task: Task, exercise: Exercise | None, finding: Finding, notes: str) -> Row:
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
