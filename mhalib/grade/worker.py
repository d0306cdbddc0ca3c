"""Runs inside the sandbox: executes a submission's cells, then calls its functions when asked. It knows no checks.

Started as a file, without the package: `python -I worker.py LIMITS`, with `wire.py` beside it.
"""

from __future__ import annotations

import builtins
import ctypes
import errno
import json
import os
import resource
import signal
import struct
import sys
import types


def _limit(limits):
    for kind, name in (
        (resource.RLIMIT_AS, "memory_bytes"),
        (resource.RLIMIT_CPU, "cpu_seconds"),
        (resource.RLIMIT_FSIZE, "file_bytes"),
        (resource.RLIMIT_NPROC, "processes"),
    ):
        resource.setrlimit(kind, (limits[name], limits[name]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _forbid_processes():
    """From here on this process can start threads, but no process: a limit on their number does not hold for root.

    A filter of system calls, as seccomp(2) takes it. clone3 hides its flags, so it is said not to exist; C then falls
    back on clone. A call in the form of another architecture ends the process.
    """
    known = {"x86_64": (0xC000003E, 56, (57, 58)), "aarch64": (0xC00000B7, 220, ())}
    if sys.platform != "linux" or os.uname().machine not in known:
        return
    architecture, clone, forks = known[os.uname().machine]
    load, equal, above, has, answer = 0x20, 0x15, 0x35, 0x45, 0x06
    allow, end, refuse, missing = 0x7FFF0000, 0x80000000, 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS
    program = [(load, 0, 0, 4), (equal, 1, 0, architecture), (answer, 0, 0, end), (load, 0, 0, 0)]
    program += [(above, 0, 1, 0x40000000), (answer, 0, 0, end)]
    for number in forks:
        program += [(equal, 0, 1, number), (answer, 0, 0, refuse)]
    program += [(equal, 0, 1, 435), (answer, 0, 0, missing)]
    program += [(equal, 1, 0, clone), (answer, 0, 0, allow)]
    program += [(load, 0, 0, 16), (has, 0, 1, 0x10000), (answer, 0, 0, allow), (answer, 0, 0, refuse)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in program))
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program), ctypes.addressof(code)))
    control = ctypes.CDLL(None, use_errno=True).prctl
    for arguments in ((38, 1, 0, 0, 0), (22, 2, ctypes.c_void_p(ctypes.addressof(header)), 0, 0)):
        if control(*arguments):
            raise OSError(ctypes.get_errno(), "the filter of system calls was refused")


def _take_over_pipes():
    """The pipes to the grader under new numbers; a submission's own input and output lead nowhere."""
    incoming, outgoing = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nowhere, number)
    return incoming, outgoing


class TooSlow(BaseException):
    pass


class Nothing:
    """Stands for what a submission may import but does not need here: whatever is done with it does nothing."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing()

    def __call__(self, *_, **__):
        return Nothing()

    def __iter__(self):
        return iter(())


class NothingModule(types.ModuleType):
    def __init__(self, name):
        super().__init__(name)
        self.__path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing()


def _python_only(source):
    """Lines for the shell and for Jupyter, `!ls` and `%time`, are left out."""
    if source.lstrip().startswith("%%"):
        return ""
    lines = source.splitlines()
    return "\n".join(
        line[: len(line) - len(line.lstrip())] + "pass" if line.lstrip().startswith(("%", "!")) else line
        for line in lines
    )


def _error(error):
    try:
        text = str(error)[:500]
    except BaseException:
        text = ""
    return {"error": type(error).__name__, "text": text}


def main():
    limits = json.loads(sys.argv[1])
    incoming, outgoing = _take_over_pipes()
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import torch
    import wire

    torch.set_num_threads(1)
    _limit(limits)
    _forbid_processes()

    def read(count):
        held = b""
        while len(held) < count:
            part = os.read(incoming, min(count - len(held), 1 << 20))
            if not part:
                os._exit(0)
            held += part
        return held

    def send(message, blobs):
        rest = memoryview(wire.pack(message, blobs))
        while rest:
            rest = rest[os.write(outgoing, rest) :]

    def stop(*_):
        raise TooSlow

    signal.signal(signal.SIGALRM, stop)
    for name in ("mhalib", "mhalib.checks"):
        sys.modules[name] = NothingModule(name)
    space = {"__name__": "__main__", "__builtins__": builtins, "display": Nothing(), "get_ipython": Nothing()}

    def copied(value):
        return value.clone() if isinstance(value, torch.Tensor) else value

    send({"ready": True}, [])
    while True:
        message, sent = wire.unpack(read)
        blobs = []
        try:
            signal.setitimer(signal.ITIMER_REAL, message["seconds"])
            if message["do"] == "cell":
                exec(compile(_python_only(message["source"]), "<cell>", "exec"), space)
                answer = {"value": None}
            elif message["name"] not in space:
                answer = {"missing": True}
            elif message["do"] == "find":
                answer = {"value": None}
            elif message["do"] == "value":
                answer = {"value": wire.encode(space[message["name"]], blobs)}
            else:
                arguments = [wire.decode(one, sent) for one in message["arguments"]]
                before = [copied(one) for one in arguments]
                value = space[message["name"]](*arguments)
                answer = {"value": wire.encode(value, blobs)}
                answer["changed"] = [
                    [place, wire.encode(now, blobs)]
                    for place, (was, now) in enumerate(zip(before, arguments, strict=True))
                    if isinstance(was, torch.Tensor)
                    and (was.shape != now.shape or not torch.equal(was.nan_to_num(), now.nan_to_num()))
                ]
            signal.setitimer(signal.ITIMER_REAL, 0)
            frame = (answer, blobs)
            wire.pack(*frame)
        except BaseException as error:
            signal.setitimer(signal.ITIMER_REAL, 0)
            frame = (_error(error), [])
        send(*frame)


if __name__ == "__main__":
    main()
