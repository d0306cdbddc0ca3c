"""Read what students hand in: files that may be anything."""

from __future__ import annotations

import hashlib
import json
import os
import re
import unicodedata
from collections import Counter
from pathlib import Path

from ._table import harmless

LARGEST, MOST_VALUES = 20 << 20, 1_000_000
SET_UP = "# Where all is installed, this does nothing."
_NOT_A_SUBMISSION = {".ipynb_checkpoints", "__MACOSX"}
_CALLS = re.compile(r"\bchecks\.(\w+)\(")


def find(folder: Path) -> tuple[list[tuple[str, Path]], list[Path]]:
    """Every notebook below `folder`, with the student's name: its path without the suffix; and all that is not graded.

    Names that look alike get a sign of their own.
    """
    found, others = [], []
    for path in sorted(folder.rglob("*")):
        if _NOT_A_SUBMISSION.intersection(path.parts):
            continue
        if path.suffix.lower() == ".ipynb" and not path.name.startswith("._"):
            found.append(path)
        elif (path.is_file() or path.is_symlink()) and not path.name.startswith("."):
            others.append(path)
    names = [_name(path.relative_to(folder)) for path in found]
    for digits in (8, 16, 32, 64):  # for a name may have been made to look like one that has a sign already
        looks = Counter(map(_look, names))
        for place, name in enumerate(names):
            if looks[_look(name)] > 1:
                sign = hashlib.sha256(os.fsencode(found[place])).hexdigest()[:digits]
                names[place] = f"{name} ({sign})"
    return sorted(zip(names, found, strict=True)), others


def _name(path: Path) -> str:
    """As a class list has it: with composed letters, also from a system that takes them apart."""
    text = os.fsencode(path.with_suffix("").as_posix()).decode(errors="replace")
    return unicodedata.normalize("NFC", text)


def _look(name: str) -> str:
    """The name without what cannot be seen, with one form of each letter and blank."""
    plain = unicodedata.normalize("NFKC", harmless(name))
    seen = (letter for letter in plain if unicodedata.category(letter) not in ("Cf", "Mn", "Me"))
    return " ".join("".join(" " if letter in _BLANK else letter for letter in seen).split())


_BLANK = "\N{HANGUL JUNGSEONG FILLER}\N{HANGUL CHOSEONG FILLER}\N{BRAILLE PATTERN BLANK}\N{REPLACEMENT CHARACTER}"


def content(path: Path) -> bytes:
    """What a file holds.

    Raises:
        ValueError: it cannot be read, and why. A link is not followed: it could lead to another student's work.
    """
    try:
        if path.is_symlink():
            raise ValueError("a link, not a file")
        if not path.is_file():
            raise ValueError("not a file")
        if path.stat().st_size > LARGEST:
            raise ValueError(f"larger than {LARGEST >> 20} MB")
        return path.read_bytes()
    except OSError as error:
        raise ValueError(f"{type(error).__name__}: {error.strerror}") from error


def code_cells(notebook: bytes) -> dict[int, str]:
    """The code of a notebook, cell by cell, without the cell that installs the package: by its number among code cells.

    Raises:
        ValueError: it is no notebook, and why.
    """
    if sum(map(notebook.count, b"[{,")) > MOST_VALUES:  # each of them may take a hundred bytes of memory
        raise ValueError(f"more than {MOST_VALUES:,} values")
    try:
        cells = json.loads(notebook.decode("utf-8-sig"))["cells"]
        sources = ["".join(cell["source"]) for cell in cells if cell.get("cell_type") == "code"]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__}: {error}"[:200]) from error
    return {number: source for number, source in enumerate(sources, 1) if not source.lstrip().startswith(SET_UP)}


def checked_names(cells: dict[int, str]) -> set[str]:
    """The exercises whose checkers the code calls."""
    return {name for source in cells.values() for name in _CALLS.findall(source)}
