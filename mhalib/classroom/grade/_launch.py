"""How a worker is started, and what it may use."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
WORKER, WIRE = HERE / "worker.py", HERE / "wire.py"


@dataclass(frozen=True)
class Limits:
    """What one submission may use.

    memory_mb: of memory, for all that runs in a sandbox.
    cpu_seconds: of processor time, for a sandbox.
    processes: at one time, and threads.
    file_mb: in temporary files.
    cell_seconds, call_seconds: for one cell, and for one call of a function.
    start_seconds: until the worker is ready.
    submission_seconds: for all.
    """

    memory_mb: int = 3072
    cpu_seconds: int = 120
    processes: int = 64
    file_mb: int = 64
    cell_seconds: float = 20.0
    call_seconds: float = 10.0
    start_seconds: float = 90.0
    submission_seconds: float = 300.0


Launcher = Callable[[Limits], "list[str]"]
"""Makes the command that runs worker.py, with wire.py beside it. It should show them Python and nothing else."""


def bubblewrap(limits: Limits) -> list[str]:
    """A command that runs the worker in bubblewrap: no network, no files but Python's, no other processes.

    Raises:
        FileNotFoundError: bubblewrap is not installed.
    """
    program = shutil.which("bwrap")
    if program is None:
        raise FileNotFoundError(
            "bubblewrap (the command bwrap) is not installed; on Debian: apt-get install bubblewrap"
        )
    # env -i: the first process inside is bubblewrap's own, and students' code could read its environment
    command = ["/usr/bin/env", "-i", program, "--unshare-all", "--unshare-user", "--disable-userns"]
    command += [
        "--die-with-parent",
        "--new-session",
        "--clearenv",
        "--uid",
        "65534",
        "--gid",
        "65534",
        "--cap-drop",
        "ALL",
    ]
    command += ["--proc", "/proc", "--dev", "/dev", *_empty("/dev/shm")]
    command += _empty("/proc/1")  # or they could write into that first process, which has no filter
    command += ["--size", str(limits.file_mb << 20), "--tmpfs", "/tmp"]  # first: Python may lie below it
    command += ["--ro-bind", "/usr", "/usr"]
    for folder in ("/bin", "/sbin", "/lib", "/lib64"):  # /sbin/ldconfig says where a library is
        if os.path.islink(folder):
            command += ["--symlink", os.readlink(folder), folder]
        elif os.path.isdir(folder):
            command += ["--ro-bind", folder, folder]
    for place in ("/etc/ld.so.cache", "/etc/alternatives"):
        command += ["--ro-bind-try", place, place]
    for prefix in dict.fromkeys(map(os.path.abspath, (sys.base_prefix, sys.prefix))):
        if not prefix.startswith("/usr/") and prefix != "/usr":
            for part in ("bin", "lib", "pyvenv.cfg"):  # an environment may have been made in a folder of work
                command += ["--ro-bind-try", f"{prefix}/{part}", f"{prefix}/{part}"]
    for folder in {os.path.abspath(path) for path in sys.path if path.endswith(("site-packages", "dist-packages"))}:
        if os.path.isdir(f"{folder}/mhalib"):
            command += _empty(f"{folder}/mhalib")  # the solutions stay outside
    for path, name in ((WORKER, "worker.py"), (WIRE, "wire.py")):
        command += ["--ro-bind", str(path), f"/sandbox/{name}"]
    for name, value in {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8", **_THREADS}.items():
        command += ["--setenv", name, value]
    command += ["--remount-ro", "/dev", "--remount-ro", "/"]  # what is written there is memory, and not limited
    python = os.path.abspath(sys.executable)  # `work/../.venv/bin/python` leads nowhere where there is no folder work
    return [*command, "--chdir", "/tmp", python, "-I", "/sandbox/worker.py", _as_json(limits)]


def _empty(folder: str) -> list[str]:
    return ["--size", "4096", "--tmpfs", folder, "--remount-ro", folder]


_THREADS = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def no_sandbox(limits: Limits) -> list[str]:
    """A command that runs the worker as it is, with the rights of whoever grades. For code you would run yourself."""
    return [sys.executable, "-I", str(WORKER), _as_json(limits)]


def _as_json(limits: Limits) -> str:
    return json.dumps(
        {
            "memory_bytes": (limits.memory_mb << 20) * 4,  # of addresses; torch alone takes many that it never uses
            "cpu_seconds": limits.cpu_seconds,
            "file_bytes": limits.file_mb << 20,
            "processes": limits.processes,
            "open_files": 256,
            "core_bytes": 0,
        }
    )
