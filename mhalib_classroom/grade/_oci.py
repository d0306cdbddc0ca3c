"""The sandbox as a container of the Open Container Initiative: what Docker and podman run, without them and without an
image (https://github.com/opencontainers/runtime-spec)."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from ._launch import ENVIRONMENT, FILES, HOME, INSIDE, LINKS, LISTS_OF_KEYS, Limits, hidden, shown, worker_inside

NOBODY = 65534
NAMESPACES = ("pid", "network", "ipc", "uts", "mount", "user")
_numbers = itertools.count()


def runc(limits: Limits) -> list[str]:
    """A command that runs the worker in a container of runc, the runtime below Docker. If root calls it, the files
    are read as nobody, and not with root's rights.

    Raises:
        FileNotFoundError: runc is not installed.
    """
    return _command([_program("runc")], limits)


def crun(limits: Limits) -> list[str]:
    """As `runc`, of crun, the runtime below podman.

    Raises:
        FileNotFoundError: crun is not installed.
    """
    return _command([_program("crun"), "--cgroup-manager=disabled"], limits)


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise FileNotFoundError(f"{name} is not installed; on Debian: apt-get install {name}")
    return found


def _command(program: list[str], limits: Limits) -> list[str]:
    bundle = _bundle(program[0], limits)
    states = bundle / "states"
    _forget_ended(states)
    name = f"sandbox-{os.getpid()}-{next(_numbers)}"  # no other sandbox has it
    # a runtime that lost its grader would wait for an endless loop
    return ["setpriv", "--pdeathsig", "KILL", *program, "--root", str(states), "run", "--bundle", str(bundle), name]


@functools.cache
def _bundle(program: str, limits: Limits) -> Path:
    """A folder that says what the container is; it goes when this process ends. All containers share it: its root is
    empty but for the points where files are shown, and read-only."""
    kept = tempfile.TemporaryDirectory(prefix="mhalib-grade-", ignore_cleanup_errors=True)
    _kept.append(kept)
    bundle = Path(kept.name)
    root = bundle / "root"
    root.mkdir()
    for folder in LINKS:
        if os.path.islink(folder):
            (root / folder[1:]).symlink_to(os.readlink(folder))
    (bundle / "states").mkdir(mode=0o700)
    (bundle / "config.json").write_text(json.dumps(container(limits)), encoding="utf-8")
    if os.getuid() == 0:  # in there, nobody is root
        bundle.chmod(0o711)
        os.chown(root, NOBODY, NOBODY)
    return bundle


_kept: list[tempfile.TemporaryDirectory[str]] = []


def _forget_ended(states: Path) -> None:
    """Remove what runtimes have noted of containers that are gone: whoever is killed does not tidy up."""
    for state in states.iterdir():
        with contextlib.suppress(OSError, ValueError, KeyError):
            for noted, key in (("state.json", "init_process_pid"), ("status", "pid")):  # runc's and crun's
                if (state / noted).exists():
                    process = json.loads((state / noted).read_text(encoding="utf-8"))[key]
                    if process and not os.path.exists(f"/proc/{process}"):
                        shutil.rmtree(state)


def container(limits: Limits) -> dict[str, Any]:
    """What the container is, in the words of the specification: its files, its user, and what it may not do."""

    def bound(source: str, place: str) -> dict[str, Any]:
        return {"destination": place, "source": source, "type": "bind", "options": ["bind", "ro", "nosuid", "nodev"]}

    def made(kind: str, place: str, *options: str) -> dict[str, Any]:
        return {"destination": place, "source": kind, "type": kind, "options": ["nosuid", "noexec", *options]}

    room = f"size={limits.file_mb << 20}", f"nr_inodes={limits.files}"
    mounts = [
        made("proc", "/proc", "nodev", "ro"),
        made("tmpfs", "/dev", "mode=755", "size=64k", "ro"),
        made("tmpfs", HOME, "nodev", "mode=1777", *room),  # first: Python may lie below it
        *(bound(place, place) for place in shown()),
        *(bound(str(path), f"{INSIDE}/{path.name}") for path in FILES),
    ]
    user, group = (NOBODY, NOBODY) if os.getuid() == 0 else (os.getuid(), os.getgid())
    kinds = ("bounding", "effective", "inheritable", "permitted", "ambient")
    return {
        "ociVersion": "1.0.2",
        "hostname": "sandbox",
        "root": {"path": "root", "readonly": True},
        "mounts": mounts,
        "process": {
            "terminal": False,
            "user": {"uid": 0, "gid": 0},  # that is `user` outside, and has no rights of root
            "noNewPrivileges": True,
            "capabilities": {kind: [] for kind in kinds},
            "env": [f"{name}={value}" for name, value in ENVIRONMENT.items()],
            "cwd": HOME,
            "args": worker_inside(limits),
        },
        "linux": {
            "namespaces": [{"type": kind} for kind in NAMESPACES],
            "uidMappings": [{"containerID": 0, "hostID": user, "size": 1}],
            "gidMappings": [{"containerID": 0, "hostID": group, "size": 1}],
            "maskedPaths": [*hidden(), *LISTS_OF_KEYS, "/proc/kcore", "/proc/timer_list", "/proc/sched_debug"],
            "readonlyPaths": ["/proc/sys", "/proc/sysrq-trigger"],
        },
    }
