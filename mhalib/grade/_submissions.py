"""Read what students hand in: files that may be anything."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from pathlib import Path

LARGEST = 20 << 20
SET_UP = "# Where all is installed, this does nothing."
_CALLS = re.compile(r"\bchecks\.(\w+)\(")


def find(folder: Path) -> list[tuple[str, Path]]:
    """Every notebook below `folder`, with the student's name: its path without the suffix."""
    found = [path for path in folder.rglob("*.ipynb") if ".ipynb_checkpoints" not in path.parts]
    names = [
        os.fsencode(path.relative_to(folder).with_suffix("").as_posix()).decode(errors="replace") for path in found
    ]
    times = Counter(names)
    for place, name in enumerate(names):
        if times[name] > 1:  # names that differed in bytes that are no text
            names[place] = f"{name} ({hashlib.sha256(os.fsencode(found[place])).hexdigest()[:8]})"
    return sorted(zip(names, found, strict=True))


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


def code_cells(notebook: bytes) -> list[str]:
    """The code of a notebook, cell by cell, without the cell that installs the package.

    Raises:
        ValueError: it is no notebook, and why.
    """
    try:
        cells = json.loads(notebook.decode("utf-8-sig"))["cells"]
        sources = ["".join(cell["source"]) for cell in cells if cell.get("cell_type") == "code"]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__}: {error}"[:200]) from error
    return [source for source in sources if not source.lstrip().startswith(SET_UP)]


def checked_names(cells: list[str]) -> set[str]:
    """The exercises whose checkers the code calls."""
    return {name for source in cells for name in _CALLS.findall(source)}
