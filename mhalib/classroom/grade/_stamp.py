"""Which mhalib grades: two that have one stamp find the same in a notebook."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

from ... import __version__


@functools.cache
def stamp() -> str:
    """The version, and eight digits that change with every change of the package's code or of its texts: checkers
    compare with functions from all over the package."""
    told = hashlib.sha256()
    folder = Path(__file__).parents[2]
    for path in sorted(path for path in folder.rglob("*") if path.suffix in (".py", ".md")):
        told.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return f"{__version__} ({told.hexdigest()[:8]})"
