"""The teacher's side of a sandbox: talk to a worker, and end it when it misbehaves."""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

import torch

from ..checks._call import TooSlow
from . import wire
from ._cgroup import Group, group_of
from ._launch import Launcher, Limits
from ._usage import processes_of, usage

GRACE = 3.0  # seconds for a worker to stop itself
LOOK_SECONDS = 0.2
USED_UP = "the time for this notebook, or for all that you handed in, is used up"


class Stopping(Protocol):
    """Whether something is to be abandoned: a `threading.Event`, or what has this method of it."""

    def is_set(self) -> bool: ...


class Stopped(Exception):  # noqa: N818 - what became of a sandbox
    """The sandbox is gone: it hung, crashed, used too much, or sent what is no answer."""

    stops_the_check = True


class Abandoned(RuntimeError):  # noqa: N818 - what became of a sandbox
    """The grader itself was told to stop: nothing is said of the submission."""

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
    """One worker. After `Stopped` or `Abandoned` it is of no use any more.

    Args:
        launcher: makes the command that starts it.
        limits: what it may use.
        end: by `time.monotonic`, when the time for the whole submission is used up.
        stopping: set from outside when it is to be abandoned.
    """

    def __init__(
        self, launcher: Launcher, limits: Limits, *, end: float = math.inf, stopping: Stopping | None = None
    ) -> None:
        self.limits, self.end, self.stopping = limits, end, stopping or threading.Event()
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
        self._group: Group | None = None
        self._has_lost_its_first, self._most_memory = False, 0
        self._next_look = math.inf  # nothing of a student runs before it is ready, and a look costs 4 ms
        try:
            ready, _ = self._exchange(b"", limits.start_seconds)
        except Abandoned:
            self.close()
            raise
        except Stopped as error:
            self.close()
            raise NotStarted(f"the sandbox does not start: {error}") from error
        if "ready" not in ready:
            self.close()
            raise NotStarted("the sandbox does not start: it sent what is no answer")
        self._group = group_of(processes_of(self._process.pid), limits)
        self._next_look = 0.0

    def run_cell(self, source: str) -> str:
        """Execute a cell; returns the error it raised, or an empty text."""
        answer, _ = self._ask({"do": "cell", "source": source}, [], self.limits.cell_seconds)
        return f"{answer['error']}: {answer.get('text', '')}"[:300] if "error" in answer else ""

    def functions(self, name: str) -> list[Callable[..., Any]]:
        """What the submission has handed to the checker of that name, and what has the name itself, if that is another.
        To call one calls it in the sandbox."""
        answer, _ = self._ask({"do": "find", "name": name}, [], self.limits.call_seconds)
        found = answer.get("value")
        return [_Remote(self, name, place) for place in range(found if type(found) is int and 0 <= found <= 2 else 0)]

    def hoarded(self) -> str:
        """What there is to say of its memory: nothing, unless it came near the limit."""
        if 2 * self._most_memory < self.limits.memory_mb << 20:
            return ""
        return f"It had {self._most_memory >> 20} MB of memory by then: does something grow without end?"

    def close(self) -> None:
        """End it, with everything that it has started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._group is not None:
            self._group.remove()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def _call(self, name: str, place: int, arguments: tuple[Any, ...], do: str = "call") -> Any:
        blobs: list[bytes] = []
        encoded = [wire.encode(one, blobs) for one in arguments]
        message = {"do": do, "name": name, "place": place, "arguments": encoded}
        answer, received = self._ask(message, blobs, self.limits.call_seconds)
        if "error" in answer:
            if answer["error"] == "TooSlow":
                raise TooSlow(self.limits.call_seconds)
            raise _student_error(str(answer["error"]), str(answer.get("text", "")))
        value = self._decoded(answer["value"], received)
        if do == "call":
            self._take_back(arguments, answer, received)
        return value

    def _take_back(self, arguments: tuple[Any, ...], answer: dict[str, Any], received: Any) -> None:
        """What was done to the tensors there is done to ours; whether they were changed is decided here."""
        tensors = [place for place, one in enumerate(arguments) if isinstance(one, torch.Tensor)]
        if [place for place, _ in answer.get("arguments", [])] != tensors:
            self.close()
            raise Stopped("it sent what is no answer")
        for place, now in answer["arguments"]:
            arguments[place].data = self._decoded(now, received)

    def _decoded(self, value: Any, blobs: Any) -> Any:
        try:
            return wire.decode(value, blobs)
        except Exception as error:
            self.close()
            raise Stopped("it sent what is no answer") from error

    def _ask(self, message: dict[str, Any], blobs: list[bytes], seconds: float) -> tuple[dict[str, Any], Any]:
        """Within `seconds` the worker stops itself; a little later it is ended."""
        left = self.end - time.monotonic()
        if left <= 0:
            self.close()
            raise Stopped(USED_UP)
        seconds = min(seconds, left)
        try:
            frame = wire.pack({**message, "seconds": seconds}, blobs)
        except TypeError as error:  # a cell of megabytes
            self.close()
            raise Stopped("it is too long") from error
        try:
            answer, received = self._exchange(frame, seconds + GRACE)
            if not {"value", "error"} & answer.keys():
                raise Stopped("it sent what is no answer")
            if time.monotonic() >= self.end:
                raise Stopped(USED_UP)
        except (Stopped, Abandoned):
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
                raise self._died() from None

        def read(count: int) -> bytes:
            held = bytearray()
            while len(held) < count:
                self._wait([self._from], [], end)
                part = os.read(self._from, min(count - len(held), 1 << 20))
                if not part:
                    raise self._died()
                held += part
            return bytes(held)

        try:
            return wire.unpack(read)
        except (Stopped, Abandoned):
            raise
        except Exception as error:
            raise Stopped("it sent what is no answer") from error

    def _wait(self, readable: list[int], writable: list[int], end: float) -> None:
        while True:
            if self.stopping.is_set():
                raise Abandoned("the grader stops")
            left = end - time.monotonic()
            if left <= 0:
                raise Stopped("time limit")
            if time.monotonic() >= self._next_look:  # also of one that sends byte after byte
                self._look()
            if any(select.select(readable, writable, [], min(left, LOOK_SECONDS))):
                return

    def _died(self) -> Stopped:
        ran_out = self._group is not None and self._group.has_run_out_of_memory()
        return Stopped("memory limit" if ran_out else "its process died")

    def _look(self) -> None:
        now = usage(self._process.pid)
        self._most_memory = max(self._most_memory, now.memory)
        if now.memory > self.limits.memory_mb << 20:
            raise Stopped("memory limit")
        if now.tasks > self.limits.processes:
            raise Stopped("too many processes or threads")
        if now.files > self.limits.files:
            raise Stopped("too many files")
        if now.has_lost_its_first and self._has_lost_its_first:  # and not just on its way out
            raise Stopped("its first thread has ended")
        self._has_lost_its_first = now.has_lost_its_first
        self._next_look = time.monotonic() + LOOK_SECONDS


class _Remote:
    """A submission's function: to call it calls it in the sandbox."""

    def __init__(self, sandbox: Sandbox, name: str, place: int) -> None:
        self._sandbox, self._name, self._place = sandbox, name, place

    def __call__(self, *arguments: Any) -> Any:
        return self._sandbox._call(self._name, self._place, arguments)

    def predicted(self, *arguments: Any) -> Any:
        """Its result without torch and its like, there."""
        return self._sandbox._call(self._name, self._place, arguments, "predict")

    def gradients(self, towards: Any, *arguments: Any) -> Any:
        """As `gradients_here`, there."""
        return self._sandbox._call(self._name, self._place, (towards, *arguments), "gradients")


def _student_error(name: str, text: str) -> BaseException:
    if name == "NotImplementedError":
        return NotImplementedError(text[:500])  # without a text it is the stub's
    name = name if name.isidentifier() and len(name) <= 60 else "Error"
    return type(name, (StudentError,), {})(text[:500])
