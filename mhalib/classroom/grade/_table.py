"""The table of grades: its rows, its sums, and its file, which a spreadsheet may open without harm."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COLUMNS = ("student", "chapter", "exercise", "points", "out_of", "kind", "mistake", "diagnosis", "notes")


@dataclass(frozen=True)
class Row:
    """One student, one exercise. `kind` and `mistake` are as in `checks.Finding`; or "unreadable", "stopped"."""

    student: str
    chapter: int
    exercise: str
    points: int
    out_of: int
    kind: str
    mistake: str
    diagnosis: str
    notes: str


def totals(rows: Iterable[Row]) -> list[tuple[str, int, int]]:
    """Each student's points, and out of how many."""
    sums: dict[str, list[int]] = {}
    for row in rows:
        of_student = sums.setdefault(row.student, [0, 0])
        of_student[0] += row.points
        of_student[1] += row.out_of
    return [(student, points, out_of) for student, (points, out_of) in sums.items()]


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


def write(path: Path, text: str) -> None:
    """All or nothing."""
    beside = path.with_name(path.name + ".part")
    beside.write_text(text, encoding="utf-8", newline="")
    os.replace(beside, path)
