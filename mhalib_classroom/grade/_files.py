"""Students' folders and files, read with the teacher's rights: what is no file is not opened, no walk is endless."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

DEEPEST, LONGEST = 30, 1000  # folders within folders, and bytes of a path below the teacher's folder
IGNORED = {".git", ".ipynb_checkpoints", "__MACOSX"}


def start_of(path: Path, most: int) -> bytes:
    """The first bytes of a regular file.

    Raises:
        ValueError: it is something else. A link is not followed: it could lead to another student's work, or to a
            device without end. A pipe is not waited for.
        OSError: it cannot be opened, or its name is too long.
    """
    if path.is_symlink():
        raise ValueError("a link, not a file")
    flags = sum(getattr(os, f"O_{name}", 0) for name in ("NOFOLLOW", "NONBLOCK", "CLOEXEC", "BINARY"))
    if not stat.S_ISREG(path.lstat().st_mode):  # some devices do something as soon as they are opened
        raise ValueError("not a file")
    with open(os.open(path, os.O_RDONLY | flags), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):  # it was exchanged in between
            raise ValueError("not a file")
        return file.read(most)


def walk(folder: Path, unread: Callable[[Path, str], object]) -> Iterator[Path]:
    """All that is below a folder, in no order; links are there and are not followed.

    Args:
        folder: the teacher's.
        unread: is told of each folder below it that is not looked into, and why.
    """
    waiting = [(folder, 0)]
    while waiting:
        place, depth = waiting.pop()
        try:
            with os.scandir(place) as entries:
                found = [entry for entry in entries if entry.name not in IGNORED]
                folders = [Path(entry.path) for entry in found if entry.is_dir(follow_symlinks=False)]
        except OSError as error:
            if place == folder:
                raise
            unread(place, f"{type(error).__name__}: {error.strerror}")
            continue
        yield from (Path(entry.path) for entry in found)
        for inner in folders:
            if depth == DEEPEST:
                unread(inner, f"more than {DEEPEST} folders within each other")
            elif len(os.fsencode(inner.relative_to(folder))) > LONGEST:
                unread(inner, f"a path of more than {LONGEST} bytes")
            else:
                waiting.append((inner, depth + 1))
