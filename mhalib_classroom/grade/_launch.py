"""How a worker is started, and what it may use."""

from __future__ import annotations

import glob
import json
import os
import shutil
import site
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mhalib._validate import require_positive

HERE = Path(__file__).parent
WORKER = HERE / "worker.py"
FILES = [WORKER, HERE / "wire.py", *(HERE.parent / "checks" / name for name in ("_gradients.py", "_prediction.py"))]
INSIDE, HOME = "/sandbox", "/tmp"  # where a sandbox has these files, and where it may write
LINKS = ("/bin", "/sbin", "/lib", "/lib64")  # of newer systems, into /usr
LISTS_OF_KEYS = ("/proc/keys", "/proc/key-users")
ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "HOME": HOME,
    "LANG": "C.UTF-8",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}


@dataclass(frozen=True)
class Limits:
    """What one submission may use.

    memory_mb: of memory, for all that runs in a sandbox.
    cpu_seconds: of processor time, for a sandbox.
    processes: at one time, and threads.
    file_mb: in temporary files.
    files: at one time; each costs memory, also an empty one.
    cell_seconds, call_seconds: for one cell, and for one call of a function.
    start_seconds: until the worker is ready.
    submission_seconds: for all of a notebook.
    student_seconds: for all notebooks of a student.
    """

    memory_mb: int = 3072
    cpu_seconds: int = 120
    processes: int = 64
    file_mb: int = 64
    files: int = 10_000
    cell_seconds: float = 20.0
    call_seconds: float = 10.0
    start_seconds: float = 90.0
    submission_seconds: float = 300.0
    student_seconds: float = 1200.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            require_positive(name, value)


Launcher = Callable[[Limits], "list[str]"]
"""Makes the command that runs `WORKER`, with the other `FILES` beside it. It should show them Python and no more."""


def bubblewrap(limits: Limits) -> list[str]:
    """A command that runs the worker in bubblewrap: no network, no files but Python's, no other processes.

    Raises:
        FileNotFoundError: bubblewrap is not installed, or this is Windows.
    """
    _require_unix()
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
    command += ["--proc", "/proc"]
    command += _empty("/proc/1")  # or they could write into that first process, which has no filter
    for listed in LISTS_OF_KEYS:  # the names of the teacher's keys
        command += ["--ro-bind", "/dev/null", listed] if os.path.exists(listed) else []
    command += ["--remount-ro", "/proc"]  # for root, the machine's own settings lie in /proc/sys
    command += ["--dev", "/dev", *_empty("/dev/shm")]
    command += ["--size", str(limits.file_mb << 20), "--tmpfs", HOME]  # first: Python may lie below it
    for folder in LINKS:
        if os.path.islink(folder):
            command += ["--symlink", os.readlink(folder), folder]
    for place in shown():
        command += ["--ro-bind", place, place]
    for place in hidden():
        command += _empty(place) if os.path.isdir(place) else ["--ro-bind", "/dev/null", place]
    for path in FILES:
        command += ["--ro-bind", str(path), f"{INSIDE}/{path.name}"]
    for name, value in ENVIRONMENT.items():
        command += ["--setenv", name, value]
    command += ["--remount-ro", "/dev", "--remount-ro", "/"]  # what is written there is memory, and not limited
    return [*command, "--chdir", HOME, *worker_inside(limits)]


def worker_inside(limits: Limits) -> list[str]:
    """The command that a sandbox runs."""
    python = os.path.abspath(sys.executable)  # `work/../.venv/bin/python` leads nowhere where there is no folder work
    return [python, "-I", f"{INSIDE}/{WORKER.name}", _as_json(limits)]


def shown() -> list[str]:
    """What of this machine's files a sandbox may read: Python with its packages, and the libraries that it loads."""
    libraries = sysconfig.get_config_var("MULTIARCH") or ""
    found = [
        f"/usr/lib/{libraries}",  # without such a name, all of /usr/lib
        "/usr/lib64",
        "/usr/lib/locale",
        "/usr/sbin/ldconfig",  # says where libseccomp is
        "/etc/ld.so.cache",
        "/etc/alternatives",
        *(folder for folder in LINKS[2:] if not os.path.islink(folder)),
        *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib")),
        *(place for place in _packages() if not place.startswith(site.getuserbase() + "/")),
    ]
    for prefix in dict.fromkeys(map(os.path.abspath, (sys.base_prefix, sys.prefix))):
        for pattern in ("bin/python*", "lib/*.so*", "pyvenv.cfg"):
            found += glob.glob(f"{glob.escape(prefix)}/{pattern}")
    there = [place for place in dict.fromkeys(map(os.path.normpath, found)) if os.path.exists(place)]
    return sorted(there)  # a folder before what lies in it


def hidden() -> list[str]:
    """What of that it may not: these packages, for the solutions stay outside; what says where else the teacher has
    packages; and packages that the grader's Python does not use itself."""
    used = _packages()
    found = []
    for folder in used:
        within = glob.escape(folder)
        found += [f"{folder}/{package}" for package in ("mhalib", "mhalib_classroom")]
        for pattern in ("*.pth", "*.egg-link", "__editable__*", "*/direct_url.json"):
            found += glob.glob(f"{within}/{pattern}")
    for standard in {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}:
        found += [f"{standard}/{name}" for name in ("site-packages", "dist-packages")]
    return [
        place for place in dict.fromkeys(map(os.path.normpath, found)) if place not in used and os.path.exists(place)
    ]


def _packages() -> list[str]:
    """The folders from which this Python takes packages."""
    return [
        os.path.abspath(path)
        for path in sys.path
        if path.endswith(("site-packages", "dist-packages")) and os.path.isdir(path)
    ]


def _empty(folder: str) -> list[str]:
    return ["--size", "4096", "--tmpfs", folder, "--remount-ro", folder]


def no_sandbox(limits: Limits) -> list[str]:
    """A command that runs the worker as it is, with the rights of whoever grades. For code you would run yourself.

    Raises:
        FileNotFoundError: this is Windows.
    """
    _require_unix()
    return [sys.executable, "-I", str(WORKER), _as_json(limits)]


def _require_unix() -> None:
    if sys.platform == "win32":
        raise FileNotFoundError(
            "Windows cannot limit what students' code uses: grade in Linux, for example in WSL (wsl --install)"
        )


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
