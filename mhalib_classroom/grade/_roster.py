"""Sums in the form that a course's own system reads: its exported list of students, with one column filled.

Canvas, Moodle and Blackboard all import what they export, and know a student by a column of theirs. So the teacher
makes the column there, exports the gradebook, and gets it back with what identifies students and that column alone:
other grades are not touched.
"""

from __future__ import annotations

import csv
import io
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path

IDENTIFIES = {
    "Canvas": ("Student", "ID", "SIS User ID", "SIS Login ID", "Integration ID", "Section"),
    "Moodle": ("First name", "Last name", "Surname", "ID number", "Email address", "Username"),
    "Blackboard": ("Last Name", "First Name", "Username", "Student ID"),
}
"""The columns that say who a line is about, as each system's export heads them."""


def filled(path: Path, column: str, points: Mapping[str, float]) -> tuple[str, list[str]]:
    """The exported file with the points of students in one column, and the students that it does not have.

    Args:
        path: of the export: comma-separated, or separated by tabs as Blackboard does it, in UTF-8 or UTF-16.
        column: its heading, or what that begins with, since systems add numbers to a heading.
        points: of each student, by a name or a number that stands in a column which identifies.

    Raises:
        ValueError: the file cannot be read, no column identifies students, none or several have that heading, or two
            students of the table are one line of the file, or have one name but for capitals and blanks.
    """
    lines, dialect = _lines(path)
    head = [cell.strip() for cell in lines[0]]
    identifies = {name for names in IDENTIFIES.values() for name in names}
    kept = [place for place, name in enumerate(head) if name in identifies]
    if not kept:
        raise ValueError(f"roster={str(path)!r} has no column of {sorted(identifies)}: export it from the course")
    found = [place for place, name in enumerate(head) if place not in kept and name.startswith(column)]
    exact = [place for place in found if head[place] == column]
    if len(exact or found) != 1:
        others = [name for place, name in enumerate(head) if place not in kept]
        raise ValueError(f"column={column!r} is the heading of {len(exact or found)} columns of {others}, not of one")
    target = (exact or found)[0]
    names = _by_any_name(points)
    seen: dict[str, int] = {}
    made = [[head[place] for place in kept] + [lines[0][target]]]
    for number, line in enumerate(lines[1:], 2):
        line = line + [""] * (len(head) - len(line))
        who = {head[place]: line[place].strip() for place in kept}
        students = {names[key] for key in _keys(who) if key in names}
        if len(students) > 1:
            raise ValueError(f"roster={str(path)!r}, line {number}, fits {sorted(students)}: rename one of them")
        cell = line[target] if _is_no_student(list(who.values())) else ""
        for student in students:
            if student in seen:
                raise ValueError(f"roster={str(path)!r}: lines {seen[student]} and {number} both fit {student!r}")
            seen[student], cell = number, str(points[student])
        made.append([line[place] for place in kept] + [cell])
    text = io.StringIO()
    csv.writer(text, delimiter=dialect, lineterminator="\r\n").writerows(made)
    return text.getvalue(), sorted(points.keys() - seen.keys())


def _lines(path: Path) -> tuple[list[list[str]], str]:
    """The file's lines that are not empty, and what separates their cells."""
    try:
        raw = path.read_bytes()
        text = raw.decode("utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
        first = text.partition("\n")[0]
        separator = "\t" if first.count("\t") > first.count(",") else ","
        lines = [line for line in csv.reader(io.StringIO(text), delimiter=separator, strict=True) if any(line)]
    except (OSError, UnicodeError, csv.Error) as error:
        raise ValueError(f"roster={str(path)!r} could not be read: {type(error).__name__}: {error}") from error
    if len(lines) < 2:
        raise ValueError(f"roster={str(path)!r} has no students")
    return lines, separator


def _is_no_student(who: Sequence[str]) -> bool:
    """Canvas has lines of its own under the heading: "    Points Possible", and which grades are shown."""
    return not any(who) or who[0].startswith("Points Possible") or who[0] == "Manual Posting"


def plain(text: str) -> str:
    """A name as it is compared with others: one form of each letter, no capitals, single blanks."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _by_any_name(points: Mapping[str, float]) -> dict[str, str]:
    """Each student's name as it is compared.

    Raises:
        ValueError: two students have one name then.
    """
    found: dict[str, str] = {}
    for student in points:
        other = found.setdefault(plain(student), student)
        if other != student:
            raise ValueError(f"{other!r} and {student!r} are one name but for capitals and blanks: rename one of them")
    return found


def _keys(who: Mapping[str, str]) -> set[str]:
    """All that a line's student may be called: each cell, both orders of the names, and the name as Canvas writes it
    into files, "leeann" for "Lee, Ann"."""
    found = {plain(cell) for cell in who.values()}
    last = who.get("Last name") or who.get("Surname") or who.get("Last Name") or ""
    first = who.get("First name") or who.get("First Name") or ""
    if "," in who.get("Student", ""):
        last, _, first = who["Student"].partition(",")
        found.add("".join(letter for letter in plain(last + first) if letter.isalnum()))
    if first.strip() and last.strip():
        found |= {plain(f"{first} {last}"), plain(f"{last} {first}")}
    return found - {""}
