"""Read what students hand in: files that may be anything."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ._files import start_of, walk
from ._students import Owner, student_of, text_of, told_apart, unpacked_into

LARGEST, MOST_VALUES = 20 << 20, 1_000_000
SET_UP = "# Where all is installed, this does nothing."
_CALLS = re.compile(r"\bchecks\.(?!(?:keep_going|report)\()(\w+)\(")


@dataclass(frozen=True)
class Submission:
    """One file. student: whose; notebook: its path below the folder, without the suffix; system: see `Owner`; unread:
    why this is a folder that was not looked into; empty for a file."""

    student: str
    notebook: str
    path: Path
    system: str = ""
    unread: str = ""


def find(folder: Path, pattern: re.Pattern[str] | None = None) -> tuple[list[Submission], list[Path]]:
    """Every notebook below `folder`, by student, with one folder of each student that was not looked into; and all that
    is not graded.

    pattern: what finds the student's name in a path, see `student_of`.
    """
    found, others = [], []
    unread: dict[Path, str] = {}
    for path in sorted(walk(folder, unread.setdefault)):
        if path.suffix.lower() == ".ipynb" and not path.name.startswith("._"):
            found.append(path)
        elif (path.is_symlink() or path.is_file()) and not path.name.startswith("."):
            others.append(path)
    base = folder / unpacked_into([path.relative_to(folder) for path in found])[0] if pattern is None else folder

    def owner(path: Path) -> Owner:
        return student_of(path.relative_to(base if base in path.parents else folder), pattern)

    of_owner = {owner(path).key: path for path in sorted(unread, reverse=True)}
    found += sorted({*of_owner.values()}.difference(found))
    below = [path.relative_to(folder) for path in found]
    owners = [owner(path) for path in found]
    students = told_apart([one.name for one in owners], [one.key for one in owners])
    notebooks = told_apart([text_of(path.with_suffix("")) for path in below], [os.fsencode(path) for path in below])
    systems, whys = [one.system for one in owners], [unread.get(path, "") for path in found]
    made = [Submission(*one) for one in zip(students, notebooks, found, systems, whys, strict=True)]
    return sorted(made, key=lambda one: (one.student, one.notebook)), others


def content(path: Path) -> bytes:
    """What a file holds.

    Raises:
        ValueError: it cannot be read, and why. A link is not followed: it could lead to another student's work.
    """
    try:
        held = start_of(path, LARGEST + 1)
    except OSError as error:
        raise ValueError(f"{type(error).__name__}: {error.strerror}") from error
    if len(held) > LARGEST:
        raise ValueError(f"larger than {LARGEST >> 20} MB")
    return held


@dataclass(frozen=True)
class Notebook:
    """What is read of a file. cells: its code, by the number among code cells, without the cell that installs the
    package; text: the first cell that is no code; is_chapter: whether it is a chapter of the book, with its solutions.
    """

    cells: dict[int, str]
    text: str
    is_chapter: bool


def parsed(content: bytes) -> tuple[dict[str, Any], list[str]]:
    """A notebook as it lies in its file, and the source of each of its cells.

    Raises:
        ValueError: it is none, and why.
    """
    if sum(map(content.count, b"[{,")) > MOST_VALUES:  # each of them may take a hundred bytes of memory
        raise ValueError(f"more than {MOST_VALUES:,} values")
    try:
        made = json.loads(content.decode("utf-8-sig"))
        return made, ["".join(cell["source"]) for cell in made["cells"]]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__}: {error}"[:200]) from error


def read(content: bytes) -> Notebook:
    """A notebook.

    Raises:
        ValueError: it is none, and why.
    """
    made, all_sources = parsed(content)
    try:
        cells = made["cells"]
        sources = [(one, cell.get("cell_type") == "code") for one, cell in zip(all_sources, cells, strict=True)]
        solved = [cell for cell in cells if "exercise" in (cell.get("metadata") or {}).get("tags", [])]
    except (TypeError, AttributeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}"[:200]) from error
    code = [source for source, is_code in sources if is_code]
    kept = {number: source for number, source in enumerate(code, 1) if not source.lstrip().startswith(SET_UP)}
    text = next((source for source, is_code in sources if not is_code), "")
    return Notebook(kept, text, bool(solved) and any("# BEGIN SOLUTION" in source for source in code))


def checked_names(cells: dict[int, str]) -> set[str]:
    """The exercises whose checkers the code calls."""
    return {name for source in cells.values() for name in _CALLS.findall(source)}


def chapter_named(notebook: Notebook, name: str) -> int | None:
    """The chapter that a notebook says it belongs to: by its first words, as `make exercises` writes them, or by its
    file's name; `None` if neither says any."""
    found = re.search(r"\(\.\./chapters/(\d\d)_\w+\.ipynb\)", notebook.text) or re.search(
        r"(?:\A|[/_-])(\d\d)_[a-z]", name
    )
    return int(found[1]) if found else None
