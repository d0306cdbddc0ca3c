"""The teacher's side of a sandbox: start a worker behind a launcher, talk to it, and end it when it misbehaves."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..checks._call import TooSlow
from . import wire

HERE = Path(__file__).parent
WORKER, WIRE = HERE / "worker.py", HERE / "wire.py"
GRACE = 3.0  # seconds for a worker to stop itself
LOOK_SECONDS = 0.2


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
    for folder in ("/bin", "/lib", "/lib64"):
        if os.path.islink(folder):
            command += ["--symlink", os.readlink(folder), folder]
        elif os.path.isdir(folder):
            command += ["--ro-bind", folder, folder]
    for place in ("/etc/ld.so.cache", "/etc/alternatives"):
        command += ["--ro-bind-try", place, place]
    for prefix in dict.fromkeys((sys.base_prefix, sys.prefix)):
        if not prefix.startswith("/usr/") and prefix != "/usr":
            for part in ("bin", "lib", "pyvenv.cfg"):  # an environment may have been made in a folder of work
                command += ["--ro-bind-try", f"{prefix}/{part}", f"{prefix}/{part}"]
    for folder in {path for path in sys.path if path.endswith(("site-packages", "dist-packages"))}:
        if os.path.isdir(f"{folder}/mhalib"):
            command += _empty(f"{folder}/mhalib")  # the solutions stay outside
    for path, name in ((WORKER, "worker.py"), (WIRE, "wire.py")):
        command += ["--ro-bind", str(path), f"/sandbox/{name}"]
    for name, value in {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8", **_THREADS}.items():
        command += ["--setenv", name, value]
    command += ["--remount-ro", "/dev", "--remount-ro", "/"]  # what is written there is memory, and not limited
    return [*command, "--chdir", "/tmp", sys.executable, "-I", "/sandbox/worker.py", _as_json(limits)]


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


class Stopped(Exception):  # noqa: N818 - what became of a sandbox
    """The sandbox is gone: it hung, crashed, used too much, or sent what is no answer."""

    stops_the_check = True


class NotStarted(RuntimeError):  # noqa: N818 - what became of a sandbox
    """No worker came up: the launcher's fault or the machine's, for no code of a student had run."""


class StudentError(Exception):
    """Something that a submission raised, under its own name."""


def require_working(launcher: Launcher, limits: Limits) -> None:
    """Start a worker once, so that a launcher that does not work is not taken for the students' fault.

    Raises:
        NotStarted: no worker came up, and what the launcher said.
    """
    try:
        Sandbox(launcher, limits).close()
    except NotStarted as error:
        said = ""
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            tried = subprocess.run(launcher(limits), input=b"", capture_output=True, timeout=limits.start_seconds)
            said = tried.stderr.decode(errors="replace").strip()[-500:]
        raise NotStarted(f"{error}{said and ': '}{said}") from error


class Sandbox:
    """One worker. After `Stopped` it is of no use any more."""

    def __init__(self, launcher: Launcher, limits: Limits) -> None:
        self.limits = limits
        try:
            self._process = subprocess.Popen(
                launcher(limits),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            raise NotStarted(f"the sandbox does not start: {error}") from error
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._to, self._from = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._to, False)
        os.set_blocking(self._from, False)
        self._next_look = 0.0
        try:
            ready, _ = self._exchange(b"", limits.start_seconds)
        except Stopped as error:
            self.close()
            raise NotStarted(f"the sandbox does not start: {error}") from error
        if "ready" not in ready:
            self.close()
            raise NotStarted("the sandbox does not start: it sent what is no answer")

    def run_cell(self, source: str) -> str:
        """Execute a cell; returns the error it raised, or an empty text."""
        answer, _ = self._ask({"do": "cell", "source": source}, [], self.limits.cell_seconds)
        return f"{answer['error']}: {answer.get('text', '')}"[:300] if "error" in answer else ""

    def function(self, name: str) -> Callable[..., Any] | None:
        """The submission's function of that name, or `None` if there is none; to call it calls it in the sandbox."""
        answer, _ = self._ask({"do": "find", "name": name}, [], self.limits.call_seconds)
        if "missing" in answer:
            return None
        return lambda *arguments: self._call(name, arguments)

    def value(self, name: str) -> tuple[bool, Any]:
        """Whether there is a value of that name, and what it is."""
        answer, blobs = self._ask({"do": "value", "name": name}, [], self.limits.call_seconds)
        if "missing" in answer or "error" in answer:
            return "error" in answer, None
        return True, self._decoded(answer["value"], blobs)

    def close(self) -> None:
        """End it, with everything that it has started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def _call(self, name: str, arguments: tuple[Any, ...]) -> Any:
        blobs: list[bytes] = []
        encoded = [wire.encode(one, blobs) for one in arguments]
        message = {"do": "call", "name": name, "arguments": encoded}
        answer, received = self._ask(message, blobs, self.limits.call_seconds)
        if "error" in answer:
            raise _student_error(str(answer["error"]), str(answer.get("text", "")))
        value = self._decoded(answer["value"], received)
        for place, changed in answer.get("changed", []):  # what was done to the arguments there is done to ours
            if type(place) is int and 0 <= place < len(arguments) and isinstance(arguments[place], torch.Tensor):
                arguments[place].data = self._decoded(changed, received)
        return value

    def _decoded(self, value: Any, blobs: Any) -> Any:
        try:
            return wire.decode(value, blobs)
        except Exception as error:
            self.close()
            raise Stopped("it sent what is no answer") from error

    def _ask(self, message: dict[str, Any], blobs: list[bytes], seconds: float) -> tuple[dict[str, Any], Any]:
        """Within `seconds` the worker stops itself; a little later it is ended."""
        try:
            frame = wire.pack({**message, "seconds": seconds}, blobs)
        except TypeError as error:  # a cell of megabytes
            self.close()
            raise Stopped("it is too long") from error
        try:
            answer, received = self._exchange(frame, seconds + GRACE)
            if not {"value", "error", "missing"} & answer.keys():
                raise Stopped("it sent what is no answer")
        except Stopped:
            self.close()
            raise
        return answer, received

    def _exchange(self, frame: bytes, seconds: float) -> tuple[dict[str, Any], Any]:
        end = time.monotonic() + seconds
        rest = memoryview(frame)
        while rest:
            self._wait([], [self._to], end)
            try:
                rest = rest[os.write(self._to, rest) :]
            except BrokenPipeError:
                raise Stopped("its process died") from None

        def read(count: int) -> bytes:
            held = bytearray()
            while len(held) < count:
                self._wait([self._from], [], end)
                part = os.read(self._from, min(count - len(held), 1 << 20))
                if not part:
                    raise Stopped("its process died")
                held += part
            return bytes(held)

        try:
            return wire.unpack(read)
        except Stopped:
            raise
        except Exception as error:
            raise Stopped("it sent what is no answer") from error

    def _wait(self, readable: list[int], writable: list[int], end: float) -> None:
        while True:
            left = end - time.monotonic()
            if left <= 0:
                raise Stopped("time limit")
            if time.monotonic() >= self._next_look:  # also of one that sends byte after byte
                self._look()
            if any(select.select(readable, writable, [], min(left, LOOK_SECONDS))):
                return

    def _look(self) -> None:
        memory, tasks = _usage(self._process.pid)
        if memory > self.limits.memory_mb << 20:
            raise Stopped("memory limit")
        if tasks > self.limits.processes:
            raise Stopped("too many processes or threads")
        self._next_look = time.monotonic() + LOOK_SECONDS


def _student_error(name: str, text: str) -> BaseException:
    if name == "NotImplementedError":
        return NotImplementedError()
    if name == "TooSlow":
        return TooSlow()
    name = name if name.isidentifier() and len(name) <= 60 else "Error"
    return type(name, (StudentError,), {})(text[:500])


def _usage(pid: int) -> tuple[int, int]:
    """Bytes of memory and number of threads of a process and all that it has started; 0 where the system is silent."""
    memory, tasks, waiting = 0, 0, [str(pid)]
    while waiting and tasks < 10_000:
        process = waiting.pop()
        try:
            threads = os.listdir(f"/proc/{process}/task")
            tasks += len(threads)
            for thread in threads[:100]:
                with open(f"/proc/{process}/task/{thread}/children", encoding="ascii") as file:
                    waiting += file.read().split()
            with open(f"/proc/{process}/smaps_rollup", encoding="ascii") as file:
                memory += sum(int(line.split()[1]) << 10 for line in file if line.startswith(("Pss:", "SwapPss:")))
        except OSError:
            continue
    return memory, tasks
