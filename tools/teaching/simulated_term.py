"""Play the first four weeks of the seminar's plan with twelve students, and grade them as the teacher's page says.

    python -m tools.teaching.simulated_term [--weeks 1 2] [--folder FOLDER]

The students do what students do: they hand in late, rename files, finish half, hand in twice, push a repository, delete
the checks, write `!ls`, bury a notebook in folders, damage a file, forget the imports, hand in the solved chapter, and
have accents in their names. What each of them deserves follows from what was done to the notebook; it is compared with
the tables, and any difference is an error. The commands are read from the page.
"""

from __future__ import annotations

import argparse
import ast
import csv
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from mhalib_classroom import checks
from tools import ROOT
from tools.notebooks import notebooks
from tools.teaching import exercises

PAGE = notebooks.CHAPTERS / "teaching.md"
WEEKS = (1, 2, 3, 4)
DUE = datetime(2026, 11, 30, 18).astimezone()
DAY = timedelta(days=1)


@dataclass(frozen=True)
class Expected:
    """What a student's work deserves: points of exercises; and of notebooks without points, why."""

    points: dict[str, int] = field(default_factory=dict)
    kinds: set[str] = field(default_factory=set)
    days_late: float | None = None


def handed_in_by_week(page: str) -> dict[int, list[int]]:
    """The chapters whose notebooks are due in each week, from a table: "notebooks 01 to 03", "notebooks 06 and 08"."""
    found = {}
    listed = r"^\| (\d) \|.*\| notebooks ((?:\d\d, )*\d\d (?:to|and) \d\d)[^|]*\|"
    for week, told in re.findall(listed, page, re.M):
        numbers = [int(number) for number in re.findall(r"\d\d", told)]
        found[int(week)] = list(range(numbers[0], numbers[1] + 1)) if " to " in told else numbers
    return found


def command(page: str, week: int, chapters: Iterable[int]) -> list[str]:
    """The page's command for a week's work, with this week's folder, chapters and deadline."""
    found = re.search(r"^mhalib (grade week1 (?:.*\\\n)*.*)$", page, re.M)
    if found is None:
        raise ValueError(f"{PAGE.name} has no command for week1: write one in a code block")
    words = shlex.split(found[1].replace("\\\n", " "))
    kept = [word for place, word in enumerate(words) if "--chapter" not in words[max(0, place - 1) : place + 1]]
    changed = [word.replace("week1", f"week{week}") for word in kept]
    changed[changed.index("--due") + 1] = DUE.isoformat()
    return [*changed, *(part for chapter in chapters for part in ("--chapter", str(chapter)))]


class Work:
    """What there is to do in a chapter: the student's notebook, and the solved cells."""

    def __init__(self, chapter: int) -> None:
        [self.path] = notebooks.CHAPTERS.glob(f"{chapter:02d}_*.ipynb")
        self.stem = self.path.stem
        self.given: NotebookNode = nbformat.read(exercises.FOLDER / self.path.name, as_version=4)
        self.solved = {
            exercises.without_solution(cell.source): exercises.with_solution(cell.source)
            for cell in nbformat.read(self.path, as_version=4).cells
            if exercises.EXERCISE in cell.metadata.get("tags", [])
        }
        self.names = [name for name, one in checks.EXERCISES.items() if one.chapter == chapter]

    def done(self, wanted: Iterable[str] | None = None, change: Callable[[str], str] = str) -> NotebookNode:
        """The notebook with some exercises solved; None: all. change: what is done to the source of each code cell."""
        chosen = set(self.names if wanted is None else wanted)
        made = nbformat.from_dict(json.loads(json.dumps(self.given)))
        for cell in made.cells:
            name = checked_name(cell.source)
            if cell.source in self.solved and name in chosen:
                cell.source = self.solved[cell.source]
            if cell.cell_type == "code" and "set-up" not in cell.metadata.get("tags", []):
                cell.source = change(cell.source)
        return made

    def without_imports(self) -> set[str]:
        """The exercises whose solution uses nothing that another cell imports."""
        free = set()
        for source in self.solved.values():
            tree = ast.parse(source)
            used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
            if not used & self.imported():
                free.add(checked_name(source))
        return free

    def imported(self) -> set[str]:
        """What the notebook's own cells import or define beside the exercises."""
        names: set[str] = set()
        for cell in self.given.cells:
            if cell.cell_type == "code" and cell.source not in self.solved and "%pip" not in cell.source:
                for node in ast.walk(ast.parse(cell.source)):
                    if isinstance(node, (ast.Import, ast.ImportFrom)):
                        names |= {one.asname or one.name.partition(".")[0] for one in node.names}
                    elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                        names.add(node.name)
        return names - {"checks"}


def checked_name(source: str) -> str:
    """The exercise that a cell has checked; empty for other cells."""
    return (re.findall(r"^checks\.(\w+)\(", source, re.M) or [""])[-1]


def _worth(names: Iterable[str], right: Iterable[str] | None = None) -> dict[str, int]:
    solved = set(names if right is None else right)
    return {name: checks.EXERCISES[name].points * (name in solved) for name in names}


def hand_in(
    folder: Path, week: int, chapters: list[int], *, others: Iterable[int] = range(1, 100)
) -> dict[str, Expected]:
    """Write the twelve students' work of a week below `folder`, and say what each of them deserves.

    others: the chapters that are in the student's copy of the repository.
    """
    works = [Work(chapter) for chapter in chapters]
    names = [name for work in works for name in work.names]
    all_right = _worth(names)
    expected: dict[str, Expected] = {}
    before = DUE - 2 * DAY

    def put(path: str, made: NotebookNode | str, when: datetime) -> Path:
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(made if isinstance(made, str) else nbformat.writes(made), encoding="utf-8")
        os.utime(place, (when.timestamp(), when.timestamp()))
        return place

    for place, work in enumerate(works):
        file = f"{work.stem}.ipynb"
        early = before - place * timedelta(hours=3)  # nobody's files are all of one minute
        put(f"Anna Müller/{file}", work.done(), early)
        put(unicodedata.normalize("NFD", f"Zoë Núñez/{file}"), work.done(), DUE + 1.5 * DAY)
        put(f"Ben/my homework {place + 1} (final) v2.ipynb", work.done(), early)
        if place == 0:  # and nothing else of the week
            put(f"Chloé/{file}", work.done(work.names[::2]), early)
        put(f"Dmitri/{work.stem}.ipynb", work.done([]), early - DAY)
        put(f"Dmitri/{work.stem}-Copy1.ipynb", work.done(), early)
        put(f"Fatima/{file}", work.done(change=_without_checks), early)
        put(f"Goran/{file}", work.done(change=_with_shell), early)
        put(f"Hana/Downloads/Neuer Ordner/{file}", work.done(), early)
        text = nbformat.writes(work.done())
        put(f"Iván/{file}", text[: len(text) // 2] if place == 0 else text, early)
        put(f"Jia/{file}", work.done(change=_without_imports), early)
        put(f"Kofi/{file}", work.path.read_text(encoding="utf-8"), early)
    if week > 1:  # last week's folder again
        put("Hana/last week/01_weighted_average.ipynb", Work(1).done(), before)
    _push(folder / "Emeka", works, set(others))
    for student in ("Anna Müller", "Ben", "Goran", "Fatima", "Dmitri"):
        expected[student] = Expected(all_right)
    expected["Zoë Núñez"] = Expected(all_right, days_late=1.5)
    expected["Chloé"] = Expected(_worth(works[0].names, works[0].names[::2]))
    expected["Hana"] = Expected(all_right, {"other chapter"} if week > 1 else set())
    expected["Iván"] = Expected(_worth(names, set(names) - set(works[0].names)))
    free = [name for work in works for name in work.without_imports()]
    expected["Jia"] = Expected(_worth(names, free))
    expected["Kofi"] = Expected({}, {"a chapter"})
    expected["Emeka"] = Expected(all_right, {"a chapter", "other chapter"}, days_late=0.25)
    return expected


def _without_checks(source: str) -> str:
    lines = [
        line for line in source.splitlines() if not re.match(r"checks\.|from mhalib_classroom import checks", line)
    ]
    return "\n".join(lines).rstrip()


def _with_shell(source: str) -> str:
    return f"!ls\n{source}" if not source.startswith("def ") else f"%%time\n{source}"


def _without_imports(source: str) -> str:
    return "" if re.match(r"(import|from) ", source) else source


def _push(folder: Path, works: list[Work], others: set[int]) -> None:
    """The book's own repository, as a student pushes it: chapters, all exercises, and this week's work done."""
    for room in ("chapters", "exercises"):
        (folder / room).mkdir(parents=True)
        for path in sorted((ROOT / room).glob("[0-9]*.ipynb")):
            if int(path.name[:2]) in others:
                shutil.copy(path, folder / room)
    for work in works:
        (folder / "exercises" / work.path.name).write_text(nbformat.writes(work.done()), encoding="utf-8")
    stamp = f"{int((DUE + DAY / 4).timestamp())} +0000"
    person = {f"GIT_{who}_{what}": "emeka" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1", **person}
    environment |= {"GIT_AUTHOR_DATE": stamp, "GIT_COMMITTER_DATE": stamp}
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "week"]):
        subprocess.run(["git", *arguments], cwd=folder, env=environment, check=True)


def differences(expected: dict[str, Expected], rows: list[dict[str, str]], book: list[dict[str, str]]) -> list[str]:
    """What the tables say otherwise than was expected, in words."""
    found = []
    of = {line["student"]: line for line in book}
    if of.keys() != expected.keys():
        found.append(f"students: {sorted(of.keys() ^ expected.keys())} are in one of the two only")
    for student in sorted(of.keys() & expected.keys()):
        due, line = expected[student], of[student]
        got = {name: float(line[name]) for name in checks.EXERCISES if line.get(name)}
        for name in sorted(got.keys() | due.points.keys()):
            if got.get(name) != due.points.get(name):
                found.append(f"{student}: {name} has {got.get(name)}, not {due.points.get(name)}")
        if int(line["out_of"]) != max(sum(_worth(one.points).values()) for one in expected.values()):
            found.append(f"{student}: out of {line['out_of']}")
        if float(line["points"]) != sum(due.points.values()):
            found.append(f"{student}: {line['points']} points, not {sum(due.points.values())}")
        kinds = {row["kind"] for row in rows if row["student"] == student and not row["exercise"]}
        if kinds != due.kinds:
            found.append(f"{student}: not graded because of {sorted(kinds)}, not of {sorted(due.kinds)}")
        days = float(line["days_late"]) if line["days_late"] else None
        if days != due.days_late:
            found.append(f"{student}: {days} days late, not {due.days_late}")
    return found


def table(path: Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def play(folder: Path, week: int, chapters: list[int], more: list[str]) -> list[str]:
    """One week: hand in, grade with the page's command, compare. Prints what each student got."""
    expected = hand_in(folder / f"week{week}", week, chapters)
    start = time.monotonic()
    words = command(PAGE.read_text(encoding="utf-8"), week, chapters)
    print(f"== week {week}: chapters {chapters}\n{shlex.join(words)}", flush=True)
    ran = subprocess.run(
        [sys.executable, "-m", "mhalib_classroom.command", *words, *more],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    seconds = time.monotonic() - start
    if ran.returncode:
        return [f"week {week}: the command ended with {ran.returncode}: {ran.stderr[-2000:]}"]
    rows, book = table(folder / f"week{week}.csv"), table(folder / f"week{week}.csv.students.csv")
    for line in book:
        print(f"{line['points']:>4} of {line['out_of']:>3}, {line['points_late']:>3} late  {line['student']}")
    graded = len({row["notebook"] for row in rows if row["exercise"]})
    print(f"{graded} notebooks graded, {len(rows)} rows, {seconds:.0f} s", flush=True)
    pages = list((folder / f"week{week}.csv.feedback").glob("*/feedback.html"))
    said = [] if len(pages) == len(expected) else [f"{len(pages)} feedback pages for {len(expected)} students"]
    return [f"week {week}: {one}" for one in [*differences(expected, rows, book), *said]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weeks", type=int, nargs="+", choices=WEEKS, default=list(WEEKS))
    parser.add_argument("--folder", type=Path, help="an empty one, where all is kept; default: a temporary one")
    given, more = parser.parse_known_args()
    due = handed_in_by_week(PAGE.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        wrong = [one for week in given.weeks for one in play(folder, week, due[week], more)]
    if wrong:
        sys.exit("\n".join(["Not as expected:", *wrong]))
    print("All students have what they deserve.")


if __name__ == "__main__":
    main()
