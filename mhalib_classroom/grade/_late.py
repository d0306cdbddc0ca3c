"""When a notebook was handed in, as far as that can be known, and how late that is.

What a download says of time differs by system, and little of it is proof:

- Blackboard writes the time of an attempt into the file's name.
- nbgrader writes it into `timestamp.txt` beside the notebook. Any student can write such a file, so it is believed only
  where the teacher says that nbgrader has collected the work, and where nbgrader puts that file.
- Canvas writes LATE into the name, by its own deadline, and no time. Its files have the time of the download.
- Moodle streams its files without a time, so that they have that of the download, too.
- A commit has the time of the student's own clock, and so has a file that a student has packed.

Students name files, too: a name is believed only in the part in which the system has written whose the file is.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path, PurePath

from ._commits import Commits, is_repository
from ._files import start_of
from ._roster import plain
from ._students import DOWNLOADS, text_of
from ._submissions import Submission
from ._table import Row

ONE_DOWNLOAD = timedelta(minutes=5)
NOTED, LONGEST_NOTE = "timestamp.txt", 64


@dataclass(frozen=True)
class Handed:
    """When a notebook was handed in: `when`, if that is known; what says so; and whether its system marks it as late,
    `None` where the system says nothing."""

    when: datetime | None
    source: str
    is_marked: bool | None = None


Key = tuple[str, "int | None"]
"""A student's name, as it is compared, and a chapter; `None` stands for all chapters."""


@dataclass(frozen=True)
class Deadlines:
    """What is due when.

    due: by chapter; that of `None` holds for all chapters that are not named.
    extended: a student's own deadline, or the time that is added.
    known: when a student handed in, from a list of the teacher's; it counts more than what the download says.
    percent_per_day: of the points, taken off for each day that has begun.
    """

    due: Mapping[int | None, datetime]
    extended: Mapping[Key, datetime | timedelta] = field(default_factory=dict)
    known: Mapping[Key, datetime] = field(default_factory=dict)
    percent_per_day: float = 0.0

    def of(self, student: str, chapter: int | None) -> datetime | None:
        """The deadline of a student for a chapter; `None` if there is none."""
        due = self.due.get(chapter, self.due.get(None))
        own = _of(self.extended, student, chapter)
        if isinstance(own, timedelta):
            return None if due is None else due + own
        return own if isinstance(own, datetime) and due is not None else due


def deadlines(
    due: str, extensions: Path | None = None, times: Path | None = None, percent_per_day: float = 0.0
) -> Deadlines:
    """What the command line says.

    Args:
        due: a time, or a file of lines  chapter,time .
        extensions: a file of lines  student,time  or  student,+days ; a chapter may be a third part.
        times: a file of lines  student,time , when that student handed in; a chapter may be a third part.
        percent_per_day: see `Deadlines`.

    Raises:
        ValueError: a file cannot be read, or a line of it not understood.
    """
    if not 0 <= percent_per_day <= 100:
        raise ValueError(f"--late-percent={percent_per_day:g} is not between 0 and 100")
    path = Path(due)
    if path.is_file():
        dates: dict[int | None, datetime] = {}
        for place, (chapter, text, *rest) in _lines(path, "chapter,time"):
            dates[_chapter(chapter, place)] = _moment(",".join([text, *rest]), place)
    else:
        dates = {None: _moment(due, "--due")}
    extended: dict[Key, datetime | timedelta] = {}
    for place, (student, text, *rest) in _lines(extensions, "student,time"):
        added = re.fullmatch(r"\+ *(\d+(?:\.\d+)?)(?: *days?)?", text)
        one = timedelta(days=float(added[1])) if added else _moment(text, place)
        extended[plain(student), _chapter(rest[0], place) if rest else None] = one
    known = {
        (plain(student), _chapter(rest[0], place) if rest else None): _moment(text, place)
        for place, (student, text, *rest) in _lines(times, "student,time")
    }
    return Deadlines(dates, extended, known, percent_per_day)


def _lines(path: Path | None, form: str) -> list[tuple[str, list[str]]]:
    """The parts of each line, and what names the line; the first may be a heading."""
    if path is None:
        return []
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeError) as error:
        raise ValueError(f"{str(path)!r} could not be read: {type(error).__name__}: {error}") from error
    found = []
    for number, line in enumerate(lines, 1):
        parts = [part.strip() for part in line.split(",")]
        if not line.strip() or (number == 1 and not re.search(r"\d", line)):
            continue
        if len(parts) < 2 or not all(parts):
            raise ValueError(f"{str(path)!r}, line {number}: {line!r:.80} is not  {form}")
        found.append((f"{str(path)!r}, line {number}", parts))
    return found


def _chapter(text: str, place: str) -> int:
    if not text.isdecimal():
        raise ValueError(f"{place}: {text!r:.40} is not the number of a chapter")
    return int(text)


def _moment(text: str, place: str) -> datetime:
    """A time as ISO 8601 has it; without a zone it is that of this machine, and a day alone is meant to its end."""
    try:
        found = datetime.fromisoformat(re.sub(r"[zZ]\Z", "+00:00", text.strip()))
        if re.fullmatch(r"\d{4}-?\d\d-?\d\d", text.strip()):
            found += timedelta(days=1, microseconds=-1)
        return found.astimezone()
    except (OverflowError, ValueError):
        raise ValueError(f"{place}: {text!r:.40} is no time such as 2026-11-30 or 2026-11-30T18:00") from None


def _of(held: Mapping[Key, object], student: str, chapter: int | None) -> object:
    name = plain(student)
    return held.get((name, chapter), held.get((name, None)))


def is_of_nbgrader(path: Path, folder: Path) -> bool:
    """Whether a path is one of nbgrader's, submitted/STUDENT/ASSIGNMENT/FILE, where `folder` is its `submitted`, or the
    folder above that."""
    parts = path.relative_to(folder).parts
    parts = parts if len(parts) == 4 else (folder.resolve().name, *parts)
    return len(parts) == 4 and parts[0] == "submitted"


class Times:
    """When notebooks were handed in, as the download says; of each, that is asked once.

    Args:
        folder: with all submissions; nothing above it is looked at.
        noted: whether nbgrader has collected them, and its notes of the time are believed.
    """

    def __init__(self, folder: Path, noted: bool = False) -> None:
        self.folder, self.noted = folder, noted
        self._commits = Commits()
        self._known: dict[Path, Handed] = {}

    def of(self, one: Submission) -> Handed:
        """When this one was."""
        if one.path not in self._known:
            self._known[one.path] = self._of(one)
        return self._known[one.path]

    def order(self, one: Submission) -> tuple[float, int]:
        """What sorts a student's attempts: when they were handed in, or where that is not known, their files' time."""
        written = 0 if one.unread else one.path.lstat().st_mtime_ns
        when = self.of(one).when
        return (written / 1e9 if when is None else when.timestamp()), written

    def doubts(self) -> list[str]:
        """What the teacher should know of how the times were found."""
        return self._commits.doubts()

    def _of(self, one: Submission) -> Handed:
        if one.unread:
            return Handed(None, "file")
        written = DOWNLOADS[one.system].fullmatch(text_of(PurePath(one.path.name))) if one.system else None
        if written is not None and one.system == "Canvas":
            return Handed(None, "Canvas", written["late"] is not None)
        if written is not None and one.system == "Blackboard":
            with contextlib.suppress(OverflowError, ValueError):  # the 31st of February
                return Handed(datetime.strptime(written["when"], "%Y-%m-%d-%H-%M-%S").astimezone(), "Blackboard")
        if self.noted and is_of_nbgrader(one.path, self.folder):
            with contextlib.suppress(OSError, ValueError):
                text = start_of(one.path.with_name(NOTED), LONGEST_NOTE).decode("ascii").strip()
                return Handed(_moment(text.removesuffix(" UTC") + "+00:00" * text.endswith(" UTC"), ""), "nbgrader")
        above = (place for place in one.path.parents if place.is_relative_to(self.folder))
        top = next((place for place in above if is_repository(place)), None)
        if top is not None:
            return Handed(self._commits.when(one.student, top, one.path.relative_to(top)), "commit")
        try:
            return Handed(datetime.fromtimestamp(one.path.lstat().st_mtime).astimezone(), "file")
        except (OSError, OverflowError, ValueError):
            return Handed(None, "file")


def judged(
    rows: Iterable[Row], submissions: Sequence[Submission], times: Times, given: Deadlines
) -> tuple[list[Row], list[str]]:
    """The rows, each with when its notebook was handed in and how late that is; and what the teacher should know.

    Where the files of three students or more are all of the same five minutes, that is when they were downloaded or
    unpacked, and says nothing: `late` is then "unknown".
    """
    of = {one.notebook: times.of(one) for one in submissions}
    students = {one.notebook: one.student for one in submissions}
    told = times.doubts()
    alike = {name: one.when for name, one in of.items() if one.source == "file" and one.when is not None}
    if len({students[name] for name in alike}) > 2 and max(alike.values()) - min(alike.values()) < ONE_DOWNLOAD:
        told.append(
            f"{len(alike)} files have times within five minutes of each other: those of the download or of unpacking. "
            "Whether they were late is not known; --times gives a list"
        )
        of |= {name: Handed(None, "file") for name in alike}
    made = [_with_time(row, of[row.notebook], given) for row in rows]
    there = {plain(student) for student in students.values()}
    lost = sorted({name for name, _ in (*given.extended, *given.known)} - there)
    return made, [*told, *(f"In a list of times, and not among the students: {name}" for name in lost)]


def _with_time(row: Row, handed: Handed, given: Deadlines) -> Row:
    known = _of(given.known, row.student, row.chapter)
    if isinstance(known, datetime):
        handed = Handed(known, "list")
    due = given.of(row.student, row.chapter)
    when = "" if handed.when is None else handed.when.isoformat(" ", "minutes")
    row = replace(row, handed_in=when, time_from=handed.source)
    if handed.is_marked is not None:
        return replace(row, late="yes" if handed.is_marked else "no")
    if due is None:
        return row
    if handed.when is None:
        return replace(row, late="unknown")
    days = (handed.when - due).total_seconds() / 86400
    if days <= 0:
        return replace(row, late="no")
    share = max(0.0, 1 - given.percent_per_day / 100 * math.ceil(days))
    points = round(row.points * share, 2)
    return replace(row, late="yes", days_late=round(days, 2), points=int(points) if points == int(points) else points)
