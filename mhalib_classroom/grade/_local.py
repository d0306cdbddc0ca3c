"""One machine: as many notebooks at a time as it has cores and memory for."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def jobs_that_fit(memory_mb: int) -> int:
    """How many sandboxes of `memory_mb` MB at most this machine runs at a time: one for each core that this process may
    use, but no more than its memory holds if all of them take all that they may; two where there are two cores, for
    an honest notebook takes a tenth of that."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, max(2, _memory() // (memory_mb << 20)))


def _memory() -> int:
    """Bytes of this machine's memory, or of what this process may use of it; 0 where the system is silent."""
    try:
        found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 0
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):  # of a container
        try:
            found = min(found, int(Path(path).read_text(encoding="ascii")))
        except (OSError, ValueError):  # there is none, or it is "max"
            continue
    return found


def finished(
    work: Callable[[Item], Result], items: Sequence[Item], jobs: int, stopping: threading.Event
) -> Generator[tuple[Item, Result], None, None]:
    """Each item with what `work` made of it, as they are done.

    The threads only wait for sandboxes, and compare a few numbers. Whoever stops to ask, or is interrupted, should
    close this iterator: it sets `stopping`, which the work has to hear, and begins nothing more.
    """
    with ThreadPoolExecutor(jobs) as pool:
        waiting = {pool.submit(work, item): item for item in items}
        try:
            for done in as_completed(waiting):
                yield waiting[done], done.result()
        finally:
            stopping.set()
            for one in waiting:
                one.cancel()
