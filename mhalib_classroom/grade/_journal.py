"""What is done, kept beside the table, so that an interrupted run goes on."""

from __future__ import annotations

import contextlib
import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import IO

from mhalib._write import remove_parts, write_whole

from ._launch import Limits
from ._stamp import stamp
from ._table import Row
from ._tasks import Task


class Journal:
    """The rows of each notebook, by its content, exercises, seed, limits and mhalib: an entry is a file.

    What another mhalib has graded is graded anew, since a checker may have been mended; `is_of_another` says whether
    there is such work.

    Args:
        folder: where the files are; it is made, and nobody else may read it.
        seed: what the checks draw their inputs from.
        limits: for each submission.
        retry: forget the rows of notebooks that were too slow for their limits, or stopped their sandbox.

    Raises:
        ValueError: another grader has it open.
    """

    def __init__(self, folder: Path, seed: str, limits: Limits, *, retry: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        self._folder, self._seed, self._limits, self._retry = folder, seed, limits, retry
        self._lock = open(folder / "lock", "ab")  # noqa: SIM115 - until `close`
        try:
            _lock(self._lock)
            remove_parts(folder)
            self.is_of_another = self._note()
        except BlockingIOError:
            self.close()
            text = f"{str(folder)!r} is in use: another grader writes this table. Wait for it, or give another --out"
            raise ValueError(text) from None
        except OSError:
            self.close()
            raise

    def _note(self) -> bool:
        """Write down which mhalib grades; whether it was another one before."""
        noted, before = self._folder / "mhalib.txt", ""
        with contextlib.suppress(OSError, ValueError):
            before = noted.read_text(encoding="utf-8")
        write_whole(noted, stamp())
        return before != stamp() and any(self._folder.glob("*.json"))

    def close(self) -> None:
        """Others may open it."""
        self._lock.close()

    def rows(self, task: Task) -> list[Row] | None:
        """The rows of a task that is done; `None` if it is not."""
        with contextlib.suppress(OSError, ValueError, TypeError):  # not there, or damaged
            rows = [Row(**row) for row in json.loads(self._entry(task).read_text(encoding="utf-8"))]
            if not (self._retry and any(row.kind in ("too slow", "stopped") for row in rows)):
                return rows
        return None

    def keep(self, task: Task, rows: list[Row]) -> None:
        """Note the rows of a task that is done."""
        write_whole(self._entry(task), json.dumps([asdict(row) for row in rows]))

    def _entry(self, task: Task) -> Path:
        one = task.submission
        names = (each.name for each in task.exercises)
        told = (stamp(), one.student, one.notebook, self._seed, repr(self._limits), *names)
        parts = (task.digest, *(part.encode() for part in told))
        key = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()
        return self._folder / f"{key}.json"


def _lock(file: IO[bytes]) -> None:
    """Raises BlockingIOError where another process holds the file's lock. Windows and some servers have no locks."""
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:  # not on this file system
        return
