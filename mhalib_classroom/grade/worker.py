"""Runs inside the sandbox: executes a submission's cells, then calls its functions when asked. It knows no checks.

Started as a file, without the package: `python -I worker.py LIMITS`, with `wire.py` and the checks' `_gradients.py` and
`_prediction.py` beside it.
"""

from __future__ import annotations

import ast
import asyncio
import builtins
import contextlib
import ctypes
import errno
import gc
import importlib
import importlib.machinery
import inspect
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


# What Python, torch and their threads ask of the system, by what it is for. Everything else is said not to exist.
ALLOWED = """
brk munmap mremap mprotect madvise mincore msync membarrier
read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 lseek sendfile copy_file_range
open openat creat close close_range dup dup2 dup3 umask
stat lstat fstat newfstatat fstatat64 statx access faccessat faccessat2 readlink readlinkat statfs fstatfs
getcwd chdir fchdir getdents getdents64 mkdir mkdirat rmdir unlink unlinkat rename renameat renameat2
truncate ftruncate fallocate fadvise64 fsync fdatasync chmod fchmod fchmodat utimensat
pipe pipe2 eventfd eventfd2 poll ppoll select pselect6
epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2
futex futex_waitv set_robust_list get_robust_list rseq set_tid_address arch_prctl exit exit_group
sched_yield sched_getaffinity sched_getparam sched_getscheduler sched_get_priority_max sched_get_priority_min
getpid getppid gettid getuid geteuid getgid getegid getgroups getpgid getpgrp getsid getpriority
rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait rt_sigsuspend sigaltstack pause
restart_syscall wait4 waitid
setitimer getitimer alarm nanosleep clock_nanosleep clock_gettime clock_getres gettimeofday time times
getrandom getrlimit setrlimit getrusage sysinfo uname getcpu
""".split()
REFUSED = "fork vfork execve execveat socket ptrace process_vm_readv process_vm_writev".split()
CLONE_THREAD = 0x10000
AF_UNIX = 1
MAP_TYPE, MAP_PRIVATE = 0xF, 2
IOCTLS = {"TCGETS": 0x5401, "TIOCGWINSZ": 0x5413, "FIONREAD": 0x541B, "FIONBIO": 0x5421, "FIOCLEX": 0x5451}
# Not the locks, leases and notices: those that are held on Python's own files would make all other sandboxes wait.
FCNTLS = {"F_DUPFD": 0, "F_GETFD": 1, "F_SETFD": 2, "F_GETFL": 3, "F_SETFL": 4, "F_DUPFD_CLOEXEC": 1030}
PRCTLS = {"PR_SET_NAME": 15, "PR_GET_NAME": 16}


def _filter_of_system_calls():
    """What this process may ask of the system once it is loaded: what stands in `ALLOWED`, and a few things more in one
    form only, such as to start a thread, and no process.

    What is not allowed does not exist, as on an older system, so that C falls back on what is: on clone, for clone3,
    whose flags cannot be seen. What students may well try is refused by name. A call in the form of another
    architecture ends the process. libseccomp knows the calls' numbers and writes the program for the kernel; pyseccomp
    calls it.
    """
    if sys.platform != "linux":
        return None
    try:
        import pyseccomp as seccomp
    except (ImportError, RuntimeError) as error:  # it is missing, or the library is
        sys.exit(f"{error}: pip install pyseccomp; on Debian, apt-get install libseccomp2, too")
    made = seccomp.SyscallFilter(seccomp.ERRNO(errno.ENOSYS))
    made.set_attr(seccomp.Attr.ACT_BADARCH, seccomp.KILL_PROCESS)
    made.set_attr(seccomp.Attr.CTL_TSYNC, 1)  # for the threads, too, that torch has started

    def rule(answer, name, *conditions):
        if seccomp.resolve_syscall(seccomp.Arch.NATIVE, name) >= 0:  # else it is not of this machine, or too new
            made.add_rule(answer, name, *conditions)

    def where(place, value, mask=0xFFFFFFFF):
        return seccomp.Arg(place, seccomp.MASKED_EQ, mask, value)

    for name in ("read", "mmap", "futex", "clone"):  # without them, nothing would run, and nobody could tell why
        if seccomp.resolve_syscall(seccomp.Arch.NATIVE, name) < 0:
            sys.exit(f"libseccomp is too old: it does not know the system call {name}")
    own = os.getpid()
    refused = seccomp.ERRNO(errno.EPERM)
    for name in ALLOWED:
        rule(seccomp.ALLOW, name)
    for name in REFUSED:
        rule(refused, name)
    for name in ("kill", "tgkill"):  # abort() signals itself
        rule(seccomp.ALLOW, name, where(0, own))
        rule(refused, name, seccomp.Arg(0, seccomp.NE, own))
    rule(seccomp.ALLOW, "clone", where(0, CLONE_THREAD, CLONE_THREAD))
    rule(refused, "clone", where(0, 0, CLONE_THREAD))
    rule(seccomp.ALLOW, "mmap", where(3, MAP_PRIVATE, MAP_TYPE))  # shared pages can be kept where none are counted
    rule(refused, "mmap", where(3, 1, 1))
    rule(seccomp.ALLOW, "socketpair", where(0, AF_UNIX))
    for number in (0, own):
        rule(seccomp.ALLOW, "prlimit64", where(0, number))
    for number in IOCTLS.values():
        rule(seccomp.ALLOW, "ioctl", where(1, number))
    for number in FCNTLS.values():
        rule(seccomp.ALLOW, "fcntl", where(1, number))
    for number in PRCTLS.values():
        rule(seccomp.ALLOW, "prctl", where(0, number))
    return made


def _end_with_parent():
    """Whoever starts sandboxes kills them by killing the command that started them. Not all launchers pass that on."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def _take_over_pipes():
    """The pipes to the grader under new numbers; a submission's own input and output lead nowhere."""
    incoming, outgoing = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nowhere, number)
    return incoming, outgoing


class TooSlow(BaseException):
    pass


PACKAGES = ("mhalib_classroom", "mhalib")  # neither is here, and a notebook may import both
CHECKS = ("mhalib_classroom.checks", "mhalib.classroom.checks")  # today, and until version 0.3
OF_NO_EXERCISE = ("keep_going", "report")


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
        inside = f"{self.__name__}.{name}"
        if any(checks == inside or checks.startswith(f"{inside}.") for checks in CHECKS):
            return importlib.import_module(inside)
        return NotInTheGrader()


class _Checks(_Module):
    """Stands for the checkers, and notes what was handed to each of them."""

    def __init__(self, name, noted):
        super().__init__(name)
        self._noted = noted

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        if name in OF_NO_EXERCISE:
            return NotInTheGrader()
        return lambda submission=None, *_, **__: self._noted.update({name: submission})


class _Importer:
    """Finds an empty module for whatever belongs to the package."""

    def __init__(self, noted):
        self._noted = noted

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in PACKAGES:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return _Checks(spec.name, self._noted) if spec.name in CHECKS else _Module(spec.name)

    def exec_module(self, module):
        pass


def _compiled(source):
    """The code of a cell. One that is no Python may still be a notebook's: Jupyter translates `!ls`, `%time`, `help?`
    and `files = !ls` into calls, which do nothing here; but `%%time` and the like run the rest of the cell."""
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    try:
        return compile(source, "<cell>", "exec", flags, dont_inherit=True)
    except SyntaxError as error:
        try:
            from IPython.core.inputtransformer2 import TransformerManager
        except ImportError:
            raise error from None
        start = re.compile(r"\A\s*%%(time|timeit|capture|prun)\b[^\n]*")
        return compile(
            TransformerManager().transform_cell(start.sub("", source)), "<cell>", "exec", flags, dont_inherit=True
        )


def _run(source, space):
    """Execute a cell; also one that waits, `await answer()`, as Jupyter does."""
    code = _compiled(source)
    if code.co_flags & inspect.CO_COROUTINE:
        asyncio.run(types.FunctionType(code, space)())
    else:
        exec(code, space)


def _error(error):
    try:
        text = str(error)[:500]
    except BaseException:
        text = ""
    return {"error": type(error).__name__, "text": text}


def main():
    _end_with_parent()
    limits = json.loads(sys.argv[1])
    calls = _filter_of_system_calls()
    incoming, outgoing = _take_over_pipes()
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:0] = [here, os.path.join(here, os.pardir, "checks")]  # in a sandbox, all lies in one folder
    gc.disable()  # of what torch makes on its way in, nothing is to be collected: a tenth of its start
    import torch
    import wire
    from _gradients import gradients_here
    from _prediction import without_libraries
    from torch import Tensor

    gc.freeze()
    gc.enable()
    del sys.path[1]

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
    checked = {}
    sys.meta_path.insert(0, _Importer(checked))
    space = {"__name__": "__main__", "__builtins__": builtins}
    space.update(display=NotInTheGrader(), get_ipython=NotInTheGrader())

    def candidates(name):
        """What was handed to the checker, and what has the exercise's name, if that is something else."""
        handed_in, named = checked.get(name), space.get(name)
        return [one for one in (handed_in, None if named is handed_in else named) if one is not None]

    send({"ready": True}, [])
    while True:
        message, sent = wire.unpack(read)
        blobs = []

        def called(asked=message):
            return candidates(asked["name"])[asked["place"]]

        if message["do"] != "cell":  # as the checks do, whatever a cell has made the default
            torch.set_default_dtype(torch.float32)
        try:
            signal.setitimer(signal.ITIMER_REAL, message["seconds"])
            if message["do"] == "cell":
                _run(message["source"], space)
                answer = {"value": None}
            elif message["do"] == "find":
                answer = {"value": len(candidates(message["name"]))}
            elif message["do"] == "gradients":
                arguments = [wire.decode(one, sent) for one in message["arguments"]]
                answer = {"value": wire.encode(gradients_here(called(), *arguments), blobs)}
            else:
                arguments = [wire.decode(one, sent) for one in message["arguments"]]
                function = called()
                with without_libraries(function) if message["do"] == "predict" else contextlib.nullcontext():
                    value = function(*arguments)
                answer = {"value": wire.encode(value, blobs)}
                answer["arguments"] = [
                    [place, wire.encode(one, blobs)] for place, one in enumerate(arguments) if isinstance(one, Tensor)
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
