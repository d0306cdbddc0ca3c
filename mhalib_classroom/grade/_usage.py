"""What a sandbox uses, seen from outside: in /proc, where nothing that runs inside can lie."""

from __future__ import annotations

import contextlib
import os
from typing import NamedTuple

from ._launch import HOME


class Usage(NamedTuple):
    """Of a process and all that it has started; 0 where the system is silent.

    memory: bytes.
    tasks: the number of processes and threads.
    files: the number of temporary files of those that have a folder of their own for them.
    has_lost_its_first: whether the first thread of one of them has ended, and others run on. Nothing can be asked of
        such a process by its own number.
    """

    memory: int
    tasks: int
    files: int
    has_lost_its_first: bool


def usage(pid: int) -> Usage:
    """What a process and all that it has started use."""
    memory, tasks, files, lost = 0, 0, 0, False
    for process in processes_of(pid):
        threads = _threads(process)
        tasks += len(threads)
        lost = lost or (len(threads) > 1 and _has_ended(f"/proc/{process}/task/{process}/stat"))
        for thread in threads:  # one that has ended has no memory any more, and another one tells the same
            with contextlib.suppress(OSError):
                memory += _memory(f"/proc/{process}/task/{thread}/smaps_rollup")
                files = max(files, _files(f"/proc/{process}/task/{thread}/root{HOME}"))
                break
    return Usage(memory, tasks, files, lost)


def processes_of(pid: int) -> list[int]:
    """A process and all that it has started; nothing where the system is silent."""
    found: list[int] = []
    waiting = [pid]
    while waiting and len(found) < 1000:
        process = waiting.pop()
        threads = _threads(process)
        if threads:
            found.append(process)
        for thread in threads[:100]:
            with (
                contextlib.suppress(OSError),
                open(f"/proc/{process}/task/{thread}/children", encoding="ascii") as file,
            ):
                waiting += map(int, file.read().split())
    return found


def _threads(process: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{process}/task")
    except OSError:
        return []


def _has_ended(path: str) -> bool:
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
        return file.read().rpartition(")")[2].split()[0] in ("Z", "X")
    return False


def _memory(path: str) -> int:
    with open(path, encoding="ascii") as file:
        return sum(int(line.split()[1]) << 10 for line in file if line.startswith(("Pss:", "SwapPss:")))


def _files(inside: str) -> int:
    if os.stat(inside).st_dev == os.stat(HOME).st_dev:
        return 0
    system = os.statvfs(inside)
    return system.f_files - system.f_ffree
