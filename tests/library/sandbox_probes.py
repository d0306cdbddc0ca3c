"""What a hostile cell tries at once, in one sandbox, for each launcher and for the user that runs this file.

    python sandbox_probes.py LAUNCHER MEMORY_MB

prints as JSON what came of it. Tests call it as themselves and as an ordinary user.
"""

import contextlib
import json
import os
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

READS = """
import os, sys
own = "/proc/1/" if os.getpid() == 1 else "/nowhere/"  # in a container, this process is the first
seen = [path for path in PLACES if os.path.exists(path) and not path.startswith(own)]
for folder in sys.path:
    for name in os.listdir(folder) if folder.endswith("-packages") else ():
        told = [name] + [f"{name}/direct_url.json"] * name.endswith(".dist-info")
        for one in told:
            if one.endswith((".pth", "direct_url.json")) or one.startswith("__editable__"):
                try: seen += [one] * bool(open(f"{folder}/{one}").read())
                except OSError: pass
for top, folders, files in os.walk("/"):
    if top in ("/usr", "/proc", "/bin", "/lib", "/lib64"):
        folders[:] = []
    if "/lib/python3" in top:  # thousands of files, which a cold disk takes seconds to list
        folders[:] = [name for name in folders if name in ("mhalib", "mhalib_classroom") or name.endswith("-packages")]
    seen += [f"{top}/{name}" for name in files if name.endswith((".ipynb", "seed.txt")) or "/mhalib" in top]
seen += [f"/proc/{one}" for one in os.listdir("/proc") if one.isdigit() and int(one) != os.getpid()
         and os.listdir(f"/proc/{one}")]
seen += [key for key in os.environ if key not in
         ("PATH", "HOME", "LANG", "PWD", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "PYTHONDONTWRITEBYTECODE", "LC_CTYPE")]
raise RuntimeError(f"saw {seen}")
"""
WRITES = """
import os
done = []
for path in PLACES + ["/x", "/usr/x", "/dev/x", "/dev/shm/x", "/sandbox/x", "/sandbox/wire.py", "/proc/1/mem",
                      "/proc/self/mem", "/proc/sys/vm/x", "/etc/x", os.__file__]:
    try:
        open(path, "ab").close()
        done.append(path)
    except OSError:
        pass
for top, _, names in os.walk("/proc/sys"):  # for root, the machine's own settings
    for name in names:
        try:
            os.close(os.open(f"{top}/{name}", os.O_WRONLY))
            done.append(f"{top}/{name}")
        except OSError:
            pass
raise RuntimeError(f"wrote {[path for path in done if not path.startswith('/tmp/')]}")  # /tmp inside is its own
"""
CALLS = """
import ctypes, os
call = ctypes.CDLL(None, use_errno=True)
done = []
def attempt(name, function):
    if function() >= 0: done.append(name)
attempt("ptrace", lambda: call.ptrace(16, 1, 0, 0))
attempt("memfd", lambda: call.memfd_create(b"x", 0))
attempt("sem", lambda: call.semget(0, 10, 0o1600))
attempt("shm", lambda: call.shmget(0, 4096, 0o1600))
attempt("msg", lambda: call.msgget(0, 0o1600))
attempt("io_uring", lambda: call.syscall(425, 4, 0))
attempt("reading a process", lambda: call.process_vm_readv(os.getpid(), None, 0, None, 0, 0))
attempt("writing into a process", lambda: call.process_vm_writev(os.getpid(), None, 0, None, 0, 0))
attempt("secret memory", lambda: call.syscall(447, 0))
number = {"x86_64": 248, "aarch64": 217}[os.uname().machine]
attempt("a key for all", lambda: call.syscall(number, b"user", b"x", b"y", 1, -4))
attempt("asking for a key", lambda: call.syscall(number + 1, b"user", b"x", 0, -4))
attempt("the keyring of the session", lambda: call.syscall(number + 2, 0, -3, 1))
attempt("a socket to the machine around", lambda: call.socket(40, 1, 0))
attempt("a socket", lambda: call.socket(2, 1, 0))
attempt("a signal to others", lambda: call.kill(1 if os.getpid() > 1 else 2, 0))
attempt("a signal to all", lambda: call.kill(-1, 0))
attempt("another program", lambda: call.execve(b"/usr/bin/env", None, None))
attempt("a name for the machine", lambda: call.sethostname(b"x", 1))
attempt("bpf", lambda: call.syscall({"x86_64": 321, "aarch64": 280}[os.uname().machine], 0, 0, 0))
attempt("limits of another", lambda: call.prlimit(1 if os.getpid() > 1 else 2, 7, None, None))
attempt("a terminal's input", lambda: call.ioctl(0, 0x5412, b"x"))
attempt("namespace", lambda: call.unshare(0x10000000))
attempt("mount", lambda: call.mount(b"proc", b"/tmp", b"proc", 0, None))
attempt("to outlive the grader", lambda: call.prctl(1, 0))
raise RuntimeError(f"did {done}")
"""
RIGHTS = """
import os
lines = dict(line.split(":\\t") for line in open("/proc/self/status").read().splitlines())
held = {name: lines[name] for name in ("CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb") if int(lines[name], 16)}
held |= {name: lines[name] for name, wanted in (("NoNewPrivs", "1"), ("Seccomp", "2")) if lines[name] != wanted}
links = []
for number in range(256):
    try: links.append(os.readlink(f"/proc/self/fd/{number}"))
    except OSError: pass
links = [link for link in links if "/libffi.so" not in link]  # which newer ones read their own code from
held |= {"open": [link for link in links if link != "/dev/null" and not link.startswith(("pipe:", "anon_inode:"))]}
held |= {"folder": os.getcwd()}
raise RuntimeError(f"has {held}")
"""
UNCOUNTED = """
import mmap, os
made = []
for number in (-1, os.open("/dev/zero", os.O_RDWR)):  # pages that no process has in its table, yet are kept
    for kind in (mmap.MAP_SHARED, 3):
        try: made.append(mmap.mmap(number, 1 << 20, kind))
        except OSError: pass
raise RuntimeError(f"shares {len(made)}")
"""
MANY_FILES = """
import os, time
end = time.monotonic() + 10
for number in range(10**6):  # empty, yet each of them costs the machine a kilobyte
    os.close(os.open(f"/tmp/{number}", os.O_CREAT))
    if time.monotonic() > end: break
"""
LEASES = """
import fcntl, os
held = []  # on Python's own files, which all sandboxes and the grader share
for name, attempt in {
    "lease for writing": lambda file: fcntl.fcntl(file, 1024, 1),
    "lease for reading": lambda file: fcntl.fcntl(file, 1024, 0),
    "lock": lambda file: fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB),
    "lock of bytes": lambda file: fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB),
    "owner": lambda file: fcntl.fcntl(file, 8, 1),
}.items():
    number = os.open(os.__file__, os.O_RDONLY)
    try:
        attempt(number)
        held.append(name)
    except OSError:
        pass
raise RuntimeError(f"holds {held}")
"""
FIRST_ENDS = """
import ctypes, threading, time
def hoard():
    time.sleep(0.3)
    kept = [bytearray(b"x" * (64 << 20)) for _ in range(25)]
    time.sleep(20)
threading.Thread(target=hoard).start()
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[__import__("os").uname().machine], 0)
"""
THREADS = """
import threading, time
threading.stack_size(65536)
started = 0
try:
    for _ in range(500):
        threading.Thread(target=time.sleep, args=(3,), daemon=True).start()
        started += 1
except RuntimeError: pass
time.sleep(1)
raise RuntimeError(f"started {started} threads")
"""
KEYS = """
import os, stat
held = [one for one in ("/proc/keys", "/proc/key-users") if os.path.exists(one) and stat.S_ISREG(os.stat(one).st_mode)]
raise RuntimeError(f"lists {held}")
"""
DESCRIPTORS = "import socket\npairs = [socket.socketpair() for _ in range(300)]"
CELLS = {  # name: (code, what it must say, as a regular expression)
    "files": (READS, r"RuntimeError: saw \[\]"),
    "writing": (WRITES, r"RuntimeError: wrote \[\]"),
    "system calls": (CALLS, r"RuntimeError: did \[\]"),
    "rights": (RIGHTS, r"RuntimeError: has {'open': \[\], 'folder': '/tmp'}"),
    "names of keys": (KEYS, r"RuntimeError: lists \[\]"),
    "leases": (LEASES, r"RuntimeError: holds \[\]"),
    "network": ("import socket\nsocket.create_connection(('1.1.1.1', 80), 1)", "PermissionError"),
    "processes": ("import os\nos.fork()", "PermissionError"),
    "descriptors": (DESCRIPTORS, "Too many open files"),
    "limits": ("import resource\nresource.setrlimit(resource.RLIMIT_AS, (-1, -1))", "not allowed to raise maximum"),
    "space": (
        "for i in range(8):\n    with open(f'/tmp/{i}', 'wb') as file: file.write(bytes(20 << 20))",
        "No space left",
    ),
    "time": ("while True: pass", "TooSlow"),
    "memory that is not counted": (UNCOUNTED, "RuntimeError: shares 0"),
    "many files": (MANY_FILES, "too many files|No space left"),
    "a first thread that ends while another hoards": (FIRST_ENDS, "its first thread has ended|memory limit"),
    "threads": (THREADS, "started ([1-5]?[0-9]|6[0-4]) threads|too many processes or threads"),
    "memory": ("import time\nx = [bytearray(b'x' * (64 << 20)) for _ in range(25)]\ntime.sleep(20)", "memory limit"),
}


def left_running(memory_mb: int) -> list[str]:
    """The processes that were started with this limit, which no other test has."""
    marker, found = f'"memory_bytes": {(memory_mb << 20) * 4}'.encode(), []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if marker in path.read_bytes():
                found.append(path.parent.name)
    return found


def places(folder: Path) -> list[str]:
    """Files that a student would like to see, or to change."""
    import mhalib
    from mhalib_classroom.grade import _sandbox

    package = Path(mhalib.__file__)
    kept = folder / "grades.csv.progress"
    kept.mkdir()
    (kept / "seed.txt").write_text("secret", encoding="ascii")
    own = [folder, kept, kept / "seed.txt", package, package.parent, package.parents[1] / "pyproject.toml"]
    system = ["/etc/passwd", "/etc/shadow", "/etc/hostname", "/proc/1/environ", "/proc/1/mem", "/var", "/home", "/sys"]
    return [*system, *map(str, own), _sandbox.__file__, "/usr/local/etc", "/dev/mem", "/dev/kmsg"]


def tried(launcher: str, memory_mb: int) -> dict[str, str]:
    """What came of each cell. They share a sandbox until one of them ends it, so none may depend on what another has
    left."""
    from mhalib_classroom.grade import Limits, __main__, _sandbox

    with tempfile.TemporaryDirectory() as folder:
        limits, said, sandbox = Limits(memory_mb=memory_mb, file_mb=32), {}, None
        start = f"PLACES = {places(Path(folder))!r}\n"
        try:
            for name, (code, _) in CELLS.items():
                sandbox = sandbox or _sandbox.Sandbox(__main__.LAUNCHERS[launcher], limits)
                sandbox.limits = replace(limits, cell_seconds=0.5 if name == "time" else 60.0)
                try:
                    said[name] = sandbox.run_cell((start + code) if "PLACES" in code else code)
                except _sandbox.Stopped as stopped:
                    said[name], sandbox = str(stopped), None
        finally:
            if sandbox:
                sandbox.close()
    end = time.monotonic() + 10
    while (left := left_running(memory_mb)) and time.monotonic() < end:
        time.sleep(0.05)
    return {**said, "left running": " ".join(left), "user": str(os.geteuid())}


if __name__ == "__main__":
    json.dump(tried(sys.argv[1], int(sys.argv[2])), sys.stdout)
