"""Read what students hand in: files that may be anything."""

from __future__ import annotations

import hashlib
import json
import os
import re
import unicodedata
from collections import Counter
from pathlib import Path

LARGEST = 20 << 20
SET_UP = "# Where all is installed, this does nothing."
_NOT_A_SUBMISSION = {".ipynb_checkpoints", "__MACOSX"}
_CALLS = re.compile(r"\bchecks\.(\w+)\(")


def find(folder: Path) -> tuple[list[tuple[str, Path]], list[Path]]:
    """Every notebook below `folder`, with the student's name: its path without the suffix; and all other files."""
    found, others = [], []
    for path in sorted(folder.rglob("*")):
        if _NOT_A_SUBMISSION.intersection(path.parts):
            continue
        if path.suffix.lower() == ".ipynb" and not path.name.startswith("._"):
            found.append(path)
        elif path.is_file() and not path.name.startswith("."):
            others.append(path)
    names = [_name(path.relative_to(folder)) for path in found]
    times = Counter(names)
    for place, name in enumerate(names):
        if times[name] > 1:  # names that differed in bytes that are no text
            names[place] = f"{name} ({hashlib.sha256(os.fsencode(found[place])).hexdigest()[:8]})"
    return sorted(zip(names, found, strict=True)), others


def _name(path: Path) -> str:
    """As a class list has it: with composed letters, also from a system that takes them apart."""
    text = os.fsencode(path.with_suffix("").as_posix()).decode(errors="replace")
    return unicodedata.normalize("NFC", text)


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
    try:
        cells = json.loads(notebook.decode("utf-8-sig"))["cells"]
        sources = ["".join(cell["source"]) for cell in cells if cell.get("cell_type") == "code"]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__}: {error}"[:200]) from error
    return {number: source for number, source in enumerate(sources, 1) if not source.lstrip().startswith(SET_UP)}


def checked_names(cells: dict[int, str]) -> set[str]:
    """The exercises whose checkers the code calls."""
    return {name for source in cells.values() for name in _CALLS.findall(source)}
