"""The table of grades: its rows, its sums, and its file, which a spreadsheet may open without harm."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..checks import EXERCISES

COLUMNS = (
    *("student", "notebook", "chapter", "exercise", "points", "out_of", "kind", "mistake", "diagnosis", "notes"),
    *("handed_in", "time_from", "late", "days_late"),
)


@dataclass(frozen=True)
class Row:
    """One notebook, one exercise; or a notebook on which nothing was graded, with no exercise and `kind` that says why.

    `kind` and `mistake` are as in `checks.Finding`; or "unreadable", "stopped", "no exercise", "other chapter",
    "a chapter". The last four are empty where no deadline was given: `late` is "no", "yes" or "unknown", and
    `time_from` says what is believed about the time: a "list" of the teacher's, "Blackboard", "nbgrader", "Canvas",
    a "commit" or the "file".
    """

    student: str
    notebook: str
    chapter: int | None
    exercise: str
    points: float
    out_of: int
    kind: str
    mistake: str
    diagnosis: str
    notes: str
    handed_in: str = ""
    time_from: str = ""
    late: str = ""
    days_late: float | None = None


def counted(rows: Iterable[Row], *, last: bool = False) -> dict[str, dict[str, Row]]:
    """Of each student, the row that counts of each exercise: the one with the most points, and of several of them the
    first that was in time; or the last one."""
    found: dict[str, dict[str, Row]] = {}
    for row in rows:
        own = found.setdefault(row.student, {})
        before = own.get(row.exercise)
        if row.exercise and (before is None or last or _worth(row) > _worth(before)):
            own[row.exercise] = row
    return found


def _worth(row: Row) -> tuple[float, bool]:
    return row.points, row.late != "yes"


def asked(chapters: Sequence[int], points: Mapping[str, int]) -> int | None:
    """Out of how many points a student is graded where chapters were named; `None` if none were, and what was handed in
    has to do."""
    wanted = [one for one in EXERCISES.values() if one.chapter in chapters]
    return sum(points.get(one.name, one.points) for one in wanted) if wanted else None


def totals(found: Mapping[str, Mapping[str, Row]], out_of: int | None = None) -> list[tuple[str, float, int]]:
    """Each student's points, and out of how many: what is asked of all, or of what the student handed in."""
    return [
        (
            student,
            round(sum(row.points for row in own.values()), 2),
            sum(row.out_of for row in own.values()) if out_of is None else out_of,
        )
        for student, own in found.items()
    ]


def gradebook(found: Mapping[str, Mapping[str, Row]], out_of: int | None = None) -> str:
    """A line for each student: points, out of how many, and the points of each exercise, empty where none was handed
    in. Where there is a deadline, how many of the points came late stands before the exercises, and by how many days
    the latest of them."""
    exercises = [name for name in EXERCISES if any(name in own for own in found.values())]
    is_timed = any(row.late for own in found.values() for row in own.values())
    lines = [
        (
            *total,
            *(_lateness(own.values()) if is_timed else ()),
            *(own[x].points if x in own else "" for x in exercises),
        )
        for total, own in zip(totals(found, out_of), found.values(), strict=True)
    ]
    timed = ("points_late", "days_late") if is_timed else ()
    return as_csv(("student", "points", "out_of", *timed, *exercises), lines)


def _lateness(rows: Iterable[Row]) -> tuple[float, float | str]:
    late = [row for row in rows if row.late == "yes"]
    days = [row.days_late for row in late if row.days_late is not None]
    return round(sum(row.points for row in late), 2), max(days, default="")


def without_points(rows: Iterable[Row]) -> list[str]:
    """A line for each notebook on which nothing was graded; one for all of a student's that have the same kind, where
    there are more than three, as in a copy of the book's repository."""
    kinds: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if not row.exercise:
            kinds.setdefault((row.student, row.kind), []).append(row)
    found = []
    for (student, _), own in kinds.items():
        if len(own) <= 3:
            found += [f"Not graded: {harmless(row.notebook)}: {row.diagnosis}" for row in own]
        else:
            name, more = harmless(own[0].notebook), f"and {len(own) - 1} more of {harmless(student)}"
            found.append(f"Not graded: {name}: {own[0].diagnosis}; {more}")
    return found


def as_csv(columns: Sequence[str], rows: Iterable[Iterable[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(columns)
    for row in rows:
        writer.writerow([harmless(value) if isinstance(value, str) else value for value in row])
    return "\N{BYTE ORDER MARK}" + text.getvalue()  # or a spreadsheet takes it for another encoding


def harmless(text: str) -> str:
    """A text for spreadsheets and terminals: without control characters, and nowhere to be taken for a formula, also
    not behind a semicolon or the end of a line, where a spreadsheet of another language begins a cell."""
    text = "".join(letter if letter.isprintable() or letter == "\n" else "\N{REPLACEMENT CHARACTER}" for letter in text)
    return _FORMULA.sub(r"\1'", text)


_FORMULA = re.compile(r"((?:\A|[;\n])[\s\"']*)(?=[=+\-@＝＋－＠|%])")  # the wide ones, too
