"""Runs inside the sandbox: executes a submission's cells, then calls its functions when asked. It knows no checks.

Started as a file, without the package: `python -I worker.py LIMITS`, with `wire.py` beside it.
"""

from __future__ import annotations

import builtins
import errno
import importlib.machinery
import json
import os
import re
import resource
import signal
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


REFUSED = "fork vfork shmget semget msgget ptrace process_vm_readv process_vm_writev memfd_create".split()
ABSENT = "clone3 io_uring_setup pidfd_getfd memfd_secret".split()
CLONE_THREAD = 0x10000


def _filter_of_system_calls():
    """Once it is loaded, this process can start threads, but no process: a limit on processes does not hold for root.

    Nor can it keep memory that belongs to no process, or reach into another process. clone3 hides its flags, so it is
    said not to exist; C then falls back on clone. A call in the form of another architecture ends the process.
    libseccomp knows the calls' numbers and writes the program for the kernel; pyseccomp calls it.
    """
    if sys.platform != "linux":
        return None
    try:
        import pyseccomp as seccomp
    except (ImportError, RuntimeError) as error:  # it is missing, or the library is
        sys.exit(f'{error}: pip install "mhalib[grade]" installs pyseccomp; on Debian, apt-get install libseccomp2')
    made = seccomp.SyscallFilter(seccomp.ALLOW)
    made.set_attr(seccomp.Attr.ACT_BADARCH, seccomp.KILL_PROCESS)
    made.set_attr(seccomp.Attr.CTL_TSYNC, 1)  # for the threads, too, that torch has started
    for names, answer in ((REFUSED, errno.EPERM), (ABSENT, errno.ENOSYS)):
        for name in names:
            if seccomp.resolve_syscall(seccomp.Arch.NATIVE, name) == -1:  # below -1: known, but not on this machine
                sys.exit(f"libseccomp is too old: it does not know the system call {name}")
            made.add_rule(seccomp.ERRNO(answer), name)
    made.add_rule(seccomp.ERRNO(errno.EPERM), "clone", seccomp.Arg(0, seccomp.MASKED_EQ, CLONE_THREAD, 0))
    return made


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
    calls = _filter_of_system_calls()
    incoming, outgoing = _take_over_pipes()
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import torch
    import wire

    torch.set_num_threads(1)
    _limit(limits)
    if calls is not None:
        calls.load()

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
