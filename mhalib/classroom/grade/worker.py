"""Runs inside the sandbox: executes a submission's cells, then calls its functions when asked. It knows no checks.

Started as a file, without the package: `python -I worker.py LIMITS`, with `wire.py` beside it.
"""

from __future__ import annotations

import builtins
import ctypes
import errno
import importlib.machinery
import json
import os
import re
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
        (resource.RLIMIT_NOFILE, "open_files"),
        (resource.RLIMIT_CORE, "core_bytes"),
    ):
        try:
            resource.setrlimit(kind, (limits[name], limits[name]))
        except (ValueError, OSError):
            if sys.platform == "linux":  # elsewhere not all of them exist
                raise


def _forbid_processes():
    """From here on this process can start threads, but no process: a limit on their number does not hold for root.

    Nor can it keep memory that belongs to no process, or reach into another process. A filter of system calls, as
    seccomp(2) takes it. clone3 hides its flags, so it is said not to exist; C then falls back on clone. A call in the
    form of another architecture ends the process.
    """
    machine = os.uname().machine if sys.platform == "linux" else ""
    if machine == "x86_64":
        architecture, seccomp, clone, ipc = 0xC000003E, 317, 56, (29, 64, 68, 101, 310, 311, 319)
        refused = (57, 58, *ipc)  # fork, vfork
    elif machine == "aarch64":
        architecture, seccomp, clone, ipc = 0xC00000B7, 277, 220, (194, 190, 186, 117, 270, 271, 279)
        refused = ipc
    else:
        return
    # ipc: shmget, semget, msgget, ptrace, process_vm_readv, process_vm_writev, memfd_create
    absent = (425, 435, 438, 447)  # io_uring_setup, clone3, pidfd_getfd, memfd_secret
    load, equal, above, has, answer = 0x20, 0x15, 0x35, 0x45, 0x06
    allow, end, refuse, missing = 0x7FFF0000, 0x80000000, 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS
    program = [(load, 0, 0, 4), (equal, 1, 0, architecture), (answer, 0, 0, end), (load, 0, 0, 0)]
    program += [(above, 0, 1, 0x40000000), (answer, 0, 0, end)]
    for numbers, what in ((refused, refuse), (absent, missing)):
        for number in numbers:
            program += [(equal, 0, 1, number), (answer, 0, 0, what)]
    program += [(equal, 1, 0, clone), (answer, 0, 0, allow)]
    program += [(load, 0, 0, 16), (has, 0, 1, 0x10000), (answer, 0, 0, allow), (answer, 0, 0, refuse)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in program))
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program), ctypes.addressof(code)))
    library = ctypes.CDLL(None, use_errno=True)
    every_thread = ctypes.c_ulong(1)
    if library.prctl(38, 1, 0, 0, 0) or library.syscall(seccomp, 1, every_thread, header):
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


class NotInTheGrader:
    """Stands for what a submission may import but does not need here: whatever is done with it does nothing."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return NotInTheGrader()

    def __call__(self, *_, **__):
        return NotInTheGrader()

    def __iter__(self):
        return iter(())


class _Module(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return NotInTheGrader()


class _Importer:
    """Finds an empty module for whatever belongs to the package."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "mhalib":
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return _Module(spec.name)

    def exec_module(self, module):
        pass


def _python_only(source):
    """Lines for the shell and for Jupyter, `!ls`, `%time` and `help?`, are left out."""
    source = re.sub(r"\A\s*%%(time|timeit|capture|prun)\b[^\n]*", "", source)
    if source.lstrip().startswith("%%"):
        return ""
    return re.sub(r"^([ \t]*)(%+[a-zA-Z].*|[!?].*|[\w.]+\?{1,2}[ \t]*)$", r"\1pass", source, flags=re.MULTILINE)


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
    sys.meta_path.insert(0, _Importer())
    space = {"__name__": "__main__", "__builtins__": builtins}
    space.update(display=NotInTheGrader(), get_ipython=NotInTheGrader())

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
