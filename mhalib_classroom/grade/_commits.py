"""When a notebook in a repository of git was committed. Nothing that the repository says is executed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from tqdm import tqdm

from ._files import start_of
from ._table import harmless

SECONDS = 30.0
PATIENCE = 2.0  # seconds until the teacher is told what takes time


def is_repository(folder: Path) -> bool:
    git = folder / ".git"
    return git.is_dir() and not git.is_symlink()


class Commits:
    """Asks git when notebooks were committed: `SECONDS` for all of a student's, since a repository can be made in which
    git takes long, and there can be many of them."""

    def __init__(self) -> None:
        self._left: dict[str, float] = {}
        self._is_told = False

    def when(self, student: str, top: Path, path: Path) -> datetime | None:
        """When a file of this student's was committed in the repository at `top`; `None` where nothing says so."""
        left = self._left.setdefault(student, SECONDS)
        if left <= 0:
            return None
        if not self._is_told and sum(SECONDS - one for one in self._left.values()) > PATIENCE:
            self._is_told = True
            tqdm.write("Asking git when notebooks were committed ...", file=sys.stderr)
        start = time.monotonic()
        try:
            return _committed(top, path, start + left)
        finally:
            self._left[student] = left - (time.monotonic() - start)

    def doubts(self) -> list[str]:
        """What is to be told of students with whom git took too long."""
        return [
            f"git took more than {SECONDS:.0f} seconds in the repositories of {harmless(student)}: "
            "when notebooks there were handed in is not known"
            for student, left in self._left.items()
            if left <= 0
        ]


def _committed(top: Path, path: Path, until: float) -> datetime | None:
    """When the last commit that changed a file was made; if history does not say, when the last commit was made.

    A repository that somebody hands in has settings that make git start programs. So git is given a repository of our
    own, which borrows the student's objects, and nothing else of theirs is read.
    """
    try:
        head, objects = _head(top / ".git"), str((top / ".git" / "objects").absolute())
        if head is None or "\n" in objects:
            return None
        with tempfile.TemporaryDirectory() as own:
            for name in ("objects/info", "refs"):
                Path(own, name).mkdir(parents=True)
            Path(own, "HEAD").write_text("ref: refs/heads/none\n", encoding="ascii")
            Path(own, "objects/info/alternates").write_bytes(os.fsencode(objects) + b"\n")
            for asked in ([head, "--", os.fsencode(path)], ["--no-walk", head]):
                said = _git(own, ["log", "-1", "--format=%ct", *asked], until - time.monotonic())
                if said.isdecimal():
                    return datetime.fromtimestamp(int(said)).astimezone()
    except (OSError, OverflowError, ValueError, subprocess.SubprocessError):
        pass
    return None


def _head(git: Path) -> str | None:
    """The commit that is checked out, read without git."""
    text = _start_of(git / "HEAD")
    name = text.removeprefix("ref:").strip()
    if text.startswith("ref:"):
        if not re.fullmatch(r"refs/[\w.+-]+(/[\w.+-]+)*", name) or ".." in name:
            return None
        text = _start_of(git / name)
        packed = re.search(rf"^([0-9a-f]{{40,64}}) {re.escape(name)}$", _start_of(git / "packed-refs", 1 << 20), re.M)
        text = text or (packed[1] if packed else "")
    return text.strip() if re.fullmatch(r"[0-9a-f]{40,64}", text.strip()) else None


def _start_of(path: Path, most: int = 1000) -> str:
    try:
        return start_of(path, most).decode("ascii", errors="replace")
    except (OSError, ValueError):
        return ""


def _git(own: str, arguments: Sequence[str | bytes], seconds: float) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {
        "HOME": own,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_LITERAL_PATHSPECS": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_NO_LAZY_FETCH": "1",
    }
    ran = subprocess.run(
        ["git", f"--git-dir={own}", *arguments],
        capture_output=True,
        cwd=own,
        env=environment,
        timeout=max(0.0, seconds),
        check=False,
    )
    return ran.stdout.decode("ascii", errors="replace").strip()
