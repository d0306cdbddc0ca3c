"""Which checkers grade: two that have one stamp find the same in a notebook."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

import mhalib


@functools.cache
def stamp() -> str:
    """The version, and eight digits that change with every change of the code or of the texts of the checkers, of the
    grader, or of `mhalib`, with whose functions checkers compare."""
    told = hashlib.sha256()
    for folder in (Path(__file__).parents[1], Path(mhalib.__file__).parent):
        for path in sorted(path for path in folder.rglob("*") if path.suffix in (".py", ".md")):
            told.update(path.relative_to(folder.parent).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return f"{mhalib.__version__} ({told.hexdigest()[:8]})"
