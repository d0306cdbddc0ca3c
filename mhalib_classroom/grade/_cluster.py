"""A class on a cluster: notebooks go to the workers of a Dask scheduler, each into a sandbox there, and what was found
comes back. Journal and table stay here.

Dask starts again elsewhere what a lost worker had begun. What is sent is one function for each notebook, as code, so
that the scheduler need not have mhalib, and a worker that has another one can say so. Neither the seed nor students'
work is printed in a worker's log or shown on a dashboard, for both are in the function; no student's name is sent.
"""

from __future__ import annotations

import contextlib
import ipaddress
import itertools
import pickle
import platform
import sys
import time
import uuid
from collections.abc import Callable, Generator, Iterable
from typing import Any, TypeVar

from ..checks import Finding
from ._notebook import Found, Job, examined
from ._sandbox import Abandoned, NotStarted, require_working
from ._stamp import stamp

try:
    from distributed import Client, Future, KilledWorker, Reschedule, as_completed, get_worker
    from distributed.comm.addressing import parse_address, parse_host_port
except ImportError as missing:
    raise RuntimeError(f"--scheduler needs Dask: pip install distributed ({missing})") from missing

LEAST_AHEAD, AHEAD = 16, 3  # notebooks that are sent before others are done: at least, and for each thread of a worker
CONNECT_SECONDS, LOOK_SECONDS = 30, 5.0

Name = TypeVar("Name")
Answer = tuple[str, Any, str]


def finished(jobs: Iterable[tuple[Name, Job]], address: str) -> Generator[tuple[Name, Found], None, None]:
    """Each job's name with what was found, as they are done.

    Whoever stops to ask, or is interrupted, should close this iterator: it withdraws what was sent.

    Args:
        jobs: a name for each, and what is to be done. They are taken as workers become free.
        address: of the scheduler, as `tls://host:8786`. Without encryption, it must be on this machine.

    Raises:
        RuntimeError: there is no such scheduler, or others could read along; a worker has another mhalib, or no
            sandbox comes up on it; the scheduler is gone.
    """
    client = _connected(address)
    sent: dict[Any, tuple[Name, Job, Future]] = {}
    try:
        _require_fitting(client)
        left, run, numbers = iter(jobs), uuid.uuid4().hex, itertools.count()
        arriving = as_completed(loop=client.loop)
        room, looked = LEAST_AHEAD, -LOOK_SECONDS
        while True:
            if time.monotonic() - looked >= LOOK_SECONDS:  # workers come and go
                room, looked = max(LEAST_AHEAD, AHEAD * sum(client.nthreads().values())), time.monotonic()
            for name, job in itertools.islice(left, room - len(sent)):
                function = _travelling(stamp(), pickle.dumps(job))
                future = client.submit(function, key=f"notebook-{run}-{next(numbers)}", pure=False)
                sent[future.key] = name, job, future
                arriving.add(future)
            if not sent:
                return
            future = next(arriving)
            name, job, _ = sent.pop(future.key)
            yield name, _found(future, job)
    finally:
        with contextlib.suppress(Exception):  # the scheduler may be gone
            client.cancel([future for _, _, future in sent.values()], force=True)
        client.close()


def _connected(address: str) -> Client:
    try:
        require_private([address])
        return Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:  # a TypeError: tls, and no certificates
        raise RuntimeError(f"scheduler={address!r} cannot be used: {error}") from error


def require_private(addresses: Iterable[str]) -> None:
    """That nobody else reads what is sent to these addresses, nor sends there what is executed.

    Raises:
        ValueError: one is neither encrypted nor on this machine.
    """
    for address in addresses:
        scheme, place = parse_address(address)
        host = parse_host_port(place)[0] if scheme == "tcp" else ""
        try:
            is_here = host == "localhost" or ipaddress.ip_address(host).is_loopback
        except ValueError:
            is_here = False
        if not is_here and scheme not in ("tls", "wss", "inproc"):
            raise ValueError(
                f"{address} is another machine, and not encrypted: the seed and students' work could be read on the "
                "way, and anyone who reaches the scheduler has your rights on its workers. Start scheduler and workers "
                "with tls:// and certificates, see https://distributed.dask.org/en/stable/tls.html"
            )


def _require_fitting(client: Client) -> None:
    """That the workers which are there can do it; those that come later say so when it is their turn."""
    try:
        workers = client.scheduler_info()["workers"]
        require_private(workers)
    except ValueError as error:
        raise RuntimeError(str(error)) from error
    if not workers:
        print("The scheduler has no workers yet: waiting for the first.", file=sys.stderr)
    own = platform.python_version_tuple()[:2]
    for worker, version in client.run(platform.python_version).items():
        if tuple(version.split(".")[:2]) != own:
            raise RuntimeError(f"worker {worker} runs Python {version}, and this is {platform.python_version()}")
    for worker, (kind, _, text) in client.run(_travelling(stamp(), b"")).items():
        if kind != "fits":
            raise RuntimeError(f"worker {worker} {text}")


def _travelling(told: str, packed: bytes) -> Callable[[], Answer]:
    """The function that is sent. It is no function of a module, so it is sent as code."""

    def graded() -> Answer:
        try:
            from mhalib_classroom.grade._cluster import on_worker
        except ImportError as error:
            return "another mhalib", None, f"has no mhalib that grades for others: {error}"
        return on_worker(told, packed)

    return graded


def on_worker(told: str, packed: bytes) -> Answer:
    """What became of a job: a kind, what was found, and a text. An answer in any case, for what fails is printed into
    the worker's log.

    Args:
        told: the `stamp` of whoever sends it.
        packed: the job; none asks only whether it fits.
    """
    if told != stamp():
        text = f"has mhalib {stamp()}, and this is {told}: install the same one on all machines"
        return "another mhalib", None, text
    if not packed:
        return "fits", None, ""
    job: Job = pickle.loads(packed)
    try:
        found = examined(job, _Withdrawn())
        return "found", ([tuple(vars(one).values()) for one in found.findings], found.seconds), found.notes
    except Abandoned:
        raise Reschedule from None  # if somebody still waits: it is this worker that closes
    except (NotStarted, FileNotFoundError) as error:
        said = str(error)
        try:
            require_working(job.launcher, job.limits)
        except (NotStarted, FileNotFoundError) as again:
            said = str(again)  # with what the launcher said
        return "not started", None, f"{get_worker().address} cannot start a sandbox: {said}"


def _found(future: Future, job: Job) -> Found:
    try:
        kind, made, text = future.result()
    except KilledWorker as error:
        lost = error.allowed_failures + 1
        text = f"the workers that ran this notebook were lost, {lost} times; --retry tries it again"
        return Found([Finding(False, "stopped", None, text)] * len(job.exercises), "")
    except BaseException as error:
        if future.cancelled():
            raise RuntimeError("the scheduler is gone; the same command goes on from here") from error
        raise
    if kind != "found":
        raise RuntimeError(f"a worker {text}")
    findings, seconds = made
    return Found([Finding(*one) for one in findings], text, seconds)


class _Withdrawn:
    """Whether nobody waits any more for the task that runs in this thread: it was interrupted, its teacher's machine is
    gone, or the worker closes. Dask cannot end a thread; it only notes it."""

    def __init__(self) -> None:
        self._worker = get_worker()
        self._key = self._worker.get_current_task()

    def is_set(self) -> bool:
        task = self._worker.state.tasks.get(self._key)
        closes = self._worker.status.name in ("stopping", "stopped", "closing", "closed", "failed")
        return closes or task is None or task.state not in ("executing", "long-running")
