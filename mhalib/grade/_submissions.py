"""Read what students hand in: files that may be anything."""

from __future__ import annotations

import json
import re
from pathlib import Path

LARGEST = 20 << 20
SET_UP = "# Where all is installed, this does nothing."
_CALLS = re.compile(r"\bchecks\.(\w+)\(")


def find(folder: Path) -> list[tuple[str, Path]]:
    """Every notebook below `folder`, with the student's name: its path without the suffix."""
    found = [path for path in folder.rglob("*.ipynb") if ".ipynb_checkpoints" not in path.parts]
    return sorted((path.relative_to(folder).with_suffix("").as_posix(), path) for path in found)


def code_cells(path: Path) -> list[str]:
    """The code of a notebook, cell by cell, without the cell that installs the package.

    Raises:
        ValueError: it cannot be read, and why.
    """
    try:
        if not path.is_file():
            raise ValueError("not a file")
        if path.stat().st_size > LARGEST:
            raise ValueError(f"larger than {LARGEST >> 20} MB")
        cells = json.loads(path.read_bytes().decode("utf-8"))["cells"]
        sources = ["".join(cell["source"]) for cell in cells if cell.get("cell_type") == "code"]
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__}: {error}"[:200]) from error
    return [source for source in sources if not source.lstrip().startswith(SET_UP)]


def checked_names(cells: list[str]) -> set[str]:
    """The exercises whose checkers the code calls."""
    return {name for source in cells for name in _CALLS.findall(source)}
