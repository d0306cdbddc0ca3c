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
import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path, PurePath

from ._files import start_of
from ._roster import plain
from ._students import DOWNLOADS, text_of
from ._submissions import Submission
from ._table import Row

ONE_DOWNLOAD = timedelta(minutes=5)
NOTED, LONGEST_NOTE = "timestamp.txt", 64
_GIT_SECONDS = 20


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


def handed_in(one: Submission, folder: Path, noted: bool = False) -> Handed:
    """What the download says of when a notebook was handed in.

    Args:
        one: the notebook.
        folder: with all submissions; nothing above it is looked at.
        noted: whether nbgrader has collected them, and its notes of the time are believed.
    """
    if one.unread:
        return Handed(None, "file")
    written = DOWNLOADS[one.system].fullmatch(text_of(PurePath(one.path.name))) if one.system else None
    if written is not None and one.system == "Canvas":
        return Handed(None, "Canvas", written["late"] is not None)
    if written is not None and one.system == "Blackboard":
        with contextlib.suppress(OverflowError, ValueError):  # the 31st of February
            return Handed(datetime.strptime(written["when"], "%Y-%m-%d-%H-%M-%S").astimezone(), "Blackboard")
    if noted and is_of_nbgrader(one.path, folder):
        with contextlib.suppress(OSError, ValueError):
            text = start_of(one.path.with_name(NOTED), LONGEST_NOTE).decode("ascii").strip()
            return Handed(_moment(text.removesuffix(" UTC") + "+00:00" * text.endswith(" UTC"), ""), "nbgrader")
    top = next((place for place in one.path.parents if _is_repository(place) and place.is_relative_to(folder)), None)
    if top is not None:
        return Handed(_committed(top, one.path.relative_to(top)), "commit")
    try:
        return Handed(datetime.fromtimestamp(one.path.lstat().st_mtime).astimezone(), "file")
    except (OSError, OverflowError, ValueError):
        return Handed(None, "file")


def order(one: Submission, folder: Path, noted: bool = False) -> tuple[float, int]:
    """What sorts a student's attempts by time: when they were handed in, or where that is not known, their files."""
    written = 0 if one.unread else one.path.lstat().st_mtime_ns
    when = handed_in(one, folder, noted).when
    return (written / 1e9 if when is None else when.timestamp()), written


def _is_repository(folder: Path) -> bool:
    git = folder / ".git"
    return git.is_dir() and not git.is_symlink()


def _committed(top: Path, path: Path) -> datetime | None:
    """When the last commit that changed a file was made; if history does not say, when the last commit was made.

    A repository that somebody hands in has settings that make git start programs. So git is given a repository of our
    own, which borrows the student's objects, and nothing else of theirs is read.
    """
    try:
        head, objects = _head(top / ".git"), str((top / ".git" / "objects").absolute())
        if head is None or "\n" in objects:
            return None
        with tempfile.TemporaryDirectory() as own:
            for name in ("objects/info", "refs"):
                Path(own, name).mkdir(parents=True)
            Path(own, "HEAD").write_text("ref: refs/heads/none\n", encoding="ascii")
            Path(own, "objects/info/alternates").write_bytes(os.fsencode(objects) + b"\n")
            for asked in ([head, "--", os.fsencode(path)], ["--no-walk", head]):
                seconds = _git(own, ["log", "-1", "--format=%ct", *asked])
                if seconds.isdecimal():
                    return datetime.fromtimestamp(int(seconds)).astimezone()
    except (OSError, OverflowError, ValueError, subprocess.SubprocessError):
        pass
    return None


def _head(git: Path) -> str | None:
    """The commit that is checked out, read without git."""
    text = _start_of(git / "HEAD")
    name = text.removeprefix("ref:").strip()
    if text.startswith("ref:"):
        if not re.fullmatch(r"refs/[\w.+-]+(/[\w.+-]+)*", name) or ".." in name:
            return None
        text = _start_of(git / name)
        packed = re.search(rf"^([0-9a-f]{{40,64}}) {re.escape(name)}$", _start_of(git / "packed-refs", 1 << 20), re.M)
        text = text or (packed[1] if packed else "")
    return text.strip() if re.fullmatch(r"[0-9a-f]{40,64}", text.strip()) else None


def _start_of(path: Path, most: int = 1000) -> str:
    try:
        return start_of(path, most).decode("ascii", errors="replace")
    except (OSError, ValueError):
        return ""


def _git(own: str, arguments: Sequence[str | bytes]) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {
        "HOME": own,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_LITERAL_PATHSPECS": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_NO_LAZY_FETCH": "1",
    }
    ran = subprocess.run(
        ["git", f"--git-dir={own}", *arguments],
        capture_output=True,
        cwd=own,
        env=environment,
        timeout=_GIT_SECONDS,
        check=False,
    )
    return ran.stdout.decode("ascii", errors="replace").strip()


def judged(
    rows: Iterable[Row], submissions: Sequence[Submission], folder: Path, given: Deadlines, noted: bool = False
) -> tuple[list[Row], list[str]]:
    """The rows, each with when its notebook was handed in and how late that is; and what the teacher should know.

    Where the files of three students or more are all of the same five minutes, that is when they were downloaded or
    unpacked, and says nothing: `late` is then "unknown".
    """
    of = {one.notebook: handed_in(one, folder, noted) for one in submissions}
    students = {one.notebook: one.student for one in submissions}
    told = []
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
