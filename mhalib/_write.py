"""Replace a file by a whole one."""

from __future__ import annotations

import glob
import os
import re
import shutil
import threading
from pathlib import Path


def write_whole(path: Path, content: str | bytes) -> None:
    """Write all or nothing: a full disk or a kill leaves what was there, also where another process writes the same.

    Args:
        path: of the file; a link is written through.
        content: bytes, or text, which is written in UTF-8 with its own ends of lines. Half a letter, which no file can
            hold, is written as JSON does it.
    """
    path = path.resolve()
    beside = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.part")
    try:
        if isinstance(content, bytes):
            beside.write_bytes(content)
        else:
            beside.write_text(content, encoding="utf-8", errors="backslashreplace", newline="")
        if path.exists():
            shutil.copymode(path, beside)
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def remove_parts(folder: Path, name: str = "") -> None:
    """Remove what was being written beside the files of a folder whose names begin with `name`, by processes that were
    killed. Only for who knows that nobody is writing there."""
    for path in folder.glob(f"{glob.escape(name)}*.part"):
        if re.search(r"\.\d+-\d+\.part\Z", path.name):
            path.unlink(missing_ok=True)
