"""Control groups: where this user may make them, the kernel itself holds a sandbox to its memory and its threads.

Between two looks from outside, a sandbox can take much; and for root the kernel counts no threads otherwise.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

from ._launch import Limits

CONTROLLERS = ("memory", "pids")
REMOVE_SECONDS = 2.0  # for what is killed to be gone
_numbers = itertools.count()


class Group:
    """A group of processes that the kernel holds to limits.

    Args:
        parents: the folders in which it is made: one, or with the older control groups, one for each controller.
        limits: what all of its processes together may use.

    Raises:
        OSError: this user may not make one.
    """

    def __init__(self, parents: Iterable[Path], limits: Limits) -> None:
        self._folders: list[Path] = []
        name = f"mhalib-grade-{os.getpid()}-{next(_numbers)}"
        try:
            for parent in parents:
                (parent / name).mkdir()
                self._folders.append(parent / name)
            self._set(limits.memory_mb << 20, "memory.max", "memory.limit_in_bytes")
            self._set(limits.processes, "pids.max")
            with contextlib.suppress(OSError):  # not where there is no swap
                self._set(0, "memory.swap.max", "memory.swappiness")
        except OSError:
            self.remove()
            raise

    def _set(self, value: int, *names: str) -> None:
        there = [one / name for one in self._folders for name in names if (one / name).exists()]
        if not there:
            raise OSError(f"no control group has {names}")
        there[0].write_text(str(value), encoding="ascii")

    def add(self, processes: Iterable[int]) -> None:
        """These processes belong to it from now on, and so does what they start."""
        for folder, process in itertools.product(self._folders, processes):
            (folder / "cgroup.procs").write_text(str(process), encoding="ascii")

    def has_run_out_of_memory(self) -> bool:
        """Whether the kernel has ended one of its processes, since they had too much memory."""
        for path in (one / name for one in self._folders for name in ("memory.events", "memory.oom_control")):
            with contextlib.suppress(OSError):
                told = dict(line.split() for line in path.read_text(encoding="ascii").splitlines())
                return int(told.get("oom_kill", 0)) > 0
        return False

    def remove(self) -> None:
        """End what is in it, and the group."""
        end = time.monotonic() + REMOVE_SECONDS
        while self._folders:
            folder = self._folders[-1]
            with contextlib.suppress(OSError, ValueError):
                for process in (folder / "cgroup.procs").read_text(encoding="ascii").split():
                    os.kill(int(process), signal.SIGKILL)
            try:
                folder.rmdir()
            except OSError:
                if folder.exists() and time.monotonic() < end:
                    time.sleep(0.01)
                    continue
            self._folders.pop()


def group_of(processes: Iterable[int], limits: Limits) -> Group | None:
    """A new group of these processes; `None` where this user may not make one."""
    parents = _parents()
    if not parents:
        return None
    try:
        made = Group(parents, limits)
    except OSError:
        return None
    try:
        made.add(processes)
    except OSError:  # one of them has ended, or may not be moved
        made.remove()
        return None
    return made


@functools.cache
def _parents() -> list[Path]:
    """The folders in which this user may make a group; none where that is not possible."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8")
        own = Path("/proc/self/cgroup").read_text(encoding="utf-8")
        found = parents(mounts, own)
        for parent in found:
            _forget_ended(parent)
        Group(found, Limits()).remove()
        return found
    except (OSError, ValueError):
        return []


def parents(mounts: str, own: str) -> list[Path]:
    """The folders in which groups may be made for memory and threads, by what the system says of itself.

    Args:
        mounts: as in /proc/self/mountinfo.
        own: the groups of this process, as in /proc/self/cgroup.
    """
    places: dict[str, tuple[str, str]] = {}
    for line in mounts.splitlines():
        here, _, there = line.partition(" - ")
        kind, _, options = there.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            root, place = here.split()[3:5]
            places |= dict.fromkeys(options.split(",") if kind == "cgroup" else [""], (root, place))
    folders = {}
    for line in own.splitlines():
        _, names, path = line.split(":", 2)
        for name in set(names.split(",")) & places.keys():
            root, place = places[name]
            folders[name] = Path(place + path.removeprefix(root.rstrip("/"))), Path(place)
    if set(CONTROLLERS) <= folders.keys():
        return list(dict.fromkeys(folders[name][0] for name in CONTROLLERS))
    if "" in folders:
        folder, top = folders[""]
        for one in (folder, *folder.parents):  # a group that has processes lets none below it
            if one.is_relative_to(top) and set(CONTROLLERS) <= set(_said(one / "cgroup.subtree_control").split()):
                return [one]
    raise OSError("no control groups for memory and threads")


def _said(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except OSError:
        return ""


def _forget_ended(parent: Path) -> None:
    """Remove the empty groups of graders that were killed."""
    for left in parent.glob("mhalib-grade-*-*"):
        if not os.path.exists(f"/proc/{left.name.split('-')[2]}"):
            with contextlib.suppress(OSError):
                left.rmdir()
