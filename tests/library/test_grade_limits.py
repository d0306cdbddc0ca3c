"""What a sandbox may use: counted from outside, and where there are control groups, held to by the kernel itself."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mhalib_classroom import checks
from mhalib_classroom.grade import (
    Limits,
    _cgroup,
    _class,
    _notebook,
    _sandbox,
    _submissions,
    _tasks,
    _usage,
    bubblewrap,
)

pytestmark = [
    pytest.mark.grader,
    pytest.mark.skipif(sys.platform != "linux", reason="/proc and control groups are Linux's"),
]
LIMITS = Limits(memory_mb=1211, cell_seconds=20)
FIRST_ENDS = """
import ctypes, threading, time
def hoard():
    kept = bytearray(b"x" * (300 << 20))
    print("ready", flush=True)
    time.sleep(100)
threading.Thread(target=hoard).start()
ctypes.CDLL(None).syscall(NUMBER, 0)
""".replace("NUMBER", {"x86_64": "60", "aarch64": "93"}.get(os.uname().machine, "60") if os.name == "posix" else "0")
HOARDS = "import time\nkept = [bytearray(b'x' * (64 << 20)) for _ in range(30)]\ntime.sleep(4)"
THREADS = """
import threading, time
threading.stack_size(65536)
for _ in range(500): threading.Thread(target=time.sleep, args=(5,), daemon=True).start()
time.sleep(2)
"""


@pytest.fixture
def sandboxed():
    try:
        _sandbox.require_working(bubblewrap, Limits())
    except RuntimeError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(f"in CI the grader must be tested: {error}")
        pytest.skip(str(error))


@pytest.fixture
def no_groups(monkeypatch):
    monkeypatch.setattr(_cgroup, "_parents", list)


@pytest.fixture
def groups():
    found = _cgroup._parents()
    if not found:
        pytest.skip("this user may make no control groups")
    return found


def run(code: str) -> str:
    """What comes of a cell in a sandbox."""
    sandbox = _sandbox.Sandbox(bubblewrap, LIMITS)
    try:
        return sandbox.run_cell(code)
    except _sandbox.Stopped as stopped:
        return str(stopped)
    finally:
        sandbox.close()


def until(true, seconds: float = 20.0):
    end = time.monotonic() + seconds
    while not (found := true()) and time.monotonic() < end:
        time.sleep(0.05)
    return found


def test_a_process_without_its_first_thread_still_has_memory():
    """By its own number, the system says nothing of it any more."""
    with subprocess.Popen([sys.executable, "-c", FIRST_ENDS], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout.readline() == b"ready\n"
            assert until(lambda: _usage.usage(process.pid).has_lost_its_first)
            with pytest.raises(ProcessLookupError):
                Path(f"/proc/{process.pid}/smaps_rollup").read_bytes()
            assert 300 < _usage.usage(process.pid).memory >> 20 < 400
        finally:
            process.kill()


def test_a_process_with_all_its_threads_has_lost_nothing():
    code = "import threading, time\nthreading.Thread(target=time.sleep, args=(9,)).start()\nprint(1, flush=True)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        seen = _usage.usage(process.pid)
        process.kill()
    assert (seen.tasks, seen.has_lost_its_first) == (2, False)


@pytest.mark.parametrize("code", [HOARDS, "import threading\n" + FIRST_ENDS.replace("300", "1500")], ids=["one", "two"])
def test_memory_is_limited_without_control_groups(sandboxed, no_groups, code):
    assert run(code) in ("memory limit", "its first thread has ended")


def test_who_runs_out_of_time_with_much_memory_is_told_so(sandboxed, no_groups):
    """Growth without end that is slow comes to the time limit first."""
    hoards = "def scores(q, k):\n    kept = b'x' * (800 << 20)\n    while True: kept = kept"
    limits = Limits(memory_mb=1211, call_seconds=2)
    found = _notebook.examined(_notebook.Job({1: hoards}, ["scores"], "s", bubblewrap, limits))
    (finding,) = found.findings
    assert finding.kind == "too slow"
    assert re.search(
        r"\nIt had (9|1[0-2])\d\d MB of memory by then: does something grow without end\?$", finding.message
    )


def test_who_runs_out_of_time_with_little_memory_is_told_of_none(sandboxed):
    forever = {1: "def scores(q, k):\n    while True: pass"}
    job = _notebook.Job(forever, ["scores"], "s", bubblewrap, Limits(memory_mb=1211, call_seconds=1))
    assert "memory" not in _notebook.examined(job).findings[0].message


def test_the_time_of_all_of_a_student_s_notebooks_is_limited(monkeypatch):
    """Ten sleepers took ten times the limit of one."""
    now = [0.0]
    monkeypatch.setattr(_notebook.time, "monotonic", lambda: now[0])

    class Sleeping:
        def __init__(self, *_, end, **__):
            self.end = end

        def run_cell(self, source):
            now[0] = min(now[0] + 300, self.end)
            if now[0] == self.end:
                raise _sandbox.Stopped(_sandbox.USED_UP)
            return ""

        def close(self): ...

    monkeypatch.setattr(_notebook, "Sandbox", Sleeping)
    how = _class._How("s", bubblewrap, Limits(submission_seconds=300, student_seconds=700))
    exercises = [checks.EXERCISES["scores"]]
    rows = []
    for number in range(10):
        for student in ("eve", "ann"):
            if student == "ann" and number > 0:
                continue
            one = _submissions.Submission(student, f"{student}/{number}", Path(f"{student}/{number}.ipynb"))
            rows += _class._grade(_tasks.Task(one, b"", {1: str(number)}, exercises), how)
    assert now[0] == 300 + 700
    assert {row.kind for row in rows} == {"stopped"}
    assert rows[-1].diagnosis == f"{_sandbox.USED_UP}, before this exercise"


@pytest.mark.parametrize("scheduler", [None, "tls://host:8786"])
def test_a_student_without_time_left_is_given_no_job(monkeypatch, scheduler):
    """Neither here nor on a cluster: what waits for a student who has used up the time gets its row, and no sandbox."""
    ran = []

    def examined(job, *_):
        ran.append(job.limits.submission_seconds)
        finding = checks.Finding(False, "too slow", None, "a sleeper")
        return _notebook.Found([finding] * len(job.exercises), "", job.limits.submission_seconds)

    monkeypatch.setattr(_class, "examined", examined)
    monkeypatch.setattr(_class, "require_working", lambda *_: None)
    if scheduler:
        cluster = pytest.importorskip("mhalib_classroom.grade._cluster", exc_type=RuntimeError)
        monkeypatch.setattr(cluster, "finished", lambda jobs, _: ((name, examined(job)) for name, job in jobs))
    how = _class._How("s", bubblewrap, Limits(submission_seconds=300, student_seconds=700))
    exercises = [checks.EXERCISES["scores"], checks.EXERCISES["weighted_average"]]
    tasks = [
        _tasks.Task(_submissions.Submission(who, f"{who}/{n}", Path(f"{who}/{n}.ipynb")), b"", {1: str(n)}, exercises)
        for who, count in (("eve", 10), ("ann", 1))
        for n in range(count)
    ]
    rows = {task.submission.notebook: made for task, made in _class._graded(tasks, how, 1, scheduler)}
    assert ran == [300, 300, 100, 300]
    assert len(rows) == 11
    assert [row.kind for row in rows["eve/2"] + rows["ann/0"]] == ["too slow"] * 4
    assert [row.diagnosis for row in rows["eve/9"]] == [f"{_sandbox.USED_UP}, before this exercise"] * 2


def test_a_sandbox_without_its_first_thread_is_stopped(sandboxed, no_groups):
    assert run(FIRST_ENDS.replace("300", "1")) == "its first thread has ended"


def test_threads_are_limited_without_control_groups(sandboxed, no_groups):
    """For root the kernel does not count them, and for others it lets none begin."""
    assert run(THREADS) in ("too many processes or threads", "RuntimeError: can't start new thread")


def test_the_kernel_limits_memory_between_two_looks(sandboxed, groups, monkeypatch):
    monkeypatch.setattr(_sandbox, "usage", lambda _: _usage.Usage(0, 0, 0, False))
    assert run(HOARDS) == "memory limit"
    assert run("import os; os._exit(0)") == "its process died"


def test_the_kernel_limits_threads_between_two_looks(sandboxed, groups, monkeypatch):
    monkeypatch.setattr(_sandbox, "usage", lambda _: _usage.Usage(0, 0, 0, False))
    assert run(THREADS) == "RuntimeError: can't start new thread"


def test_no_control_group_is_left(sandboxed, groups):
    def left():
        return [one for parent in groups for one in parent.glob(f"mhalib-grade-{os.getpid()}-*")]

    sandbox = _sandbox.Sandbox(bubblewrap, LIMITS)
    assert len(left()) == len(groups)
    sandbox.close()
    assert left() == []
    ended = subprocess.Popen(["true"])
    ended.wait()
    for parent in groups:
        (parent / f"mhalib-grade-{ended.pid}-0").mkdir()
        _cgroup._forget_ended(parent)
        assert not (parent / f"mhalib-grade-{ended.pid}-0").exists()


def test_where_the_group_goes_in_the_older_system():
    mounts = """31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw
35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
39 31 0:36 /docker/a /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids
41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw"""
    own = "8:pids:/docker/a\n4:memory:/user/b\n0::/\n"
    assert _cgroup.parents(mounts, own) == [Path("/sys/fs/cgroup/memory/user/b"), Path("/sys/fs/cgroup/pids")]


def test_where_the_group_goes_in_the_newer_system(tmp_path):
    """A group that has processes, as one's own, hands no controller down; one above may."""
    (tmp_path / "user/app/own").mkdir(parents=True)
    for name, held in (("user", "cpu memory pids"), ("user/app", "memory pids"), ("user/app/own", "")):
        (tmp_path / name / "cgroup.subtree_control").write_text(held, encoding="ascii")
    mounts = f"29 23 0:26 / {tmp_path} rw - cgroup2 cgroup2 rw"
    assert _cgroup.parents(mounts, "0::/user/app/own\n") == [tmp_path / "user/app"]
    (tmp_path / "user/app/cgroup.subtree_control").write_text("pids", encoding="ascii")
    assert _cgroup.parents(mounts, "0::/user/app/own\n") == [tmp_path / "user"]
    (tmp_path / "user/cgroup.subtree_control").write_text("", encoding="ascii")
    with pytest.raises(OSError, match="no control groups"):
        _cgroup.parents(mounts, "0::/user/app/own\n")


def test_a_group_in_the_newer_system(tmp_path, monkeypatch):
    """Its files, as far as they can be told without such a system."""
    made = Path.mkdir

    def with_files(self, *given, **more):
        made(self, *given, **more)
        for name in ("memory.max", "memory.swap.max", "pids.max", "cgroup.procs"):
            (self / name).write_text("", encoding="ascii")

    monkeypatch.setattr(Path, "mkdir", with_files)
    group = _cgroup.Group([tmp_path], Limits(memory_mb=3, processes=7))
    (folder,) = group._folders
    group.add([4_000_001])
    found = {path.name: path.read_text(encoding="ascii") for path in folder.iterdir()}
    assert found == {"memory.max": "3145728", "memory.swap.max": "0", "pids.max": "7", "cgroup.procs": "4000001"}
    for events, ran_out in (("low 0\noom 2\noom_kill 0\n", False), ("low 0\noom 2\noom_kill 1\n", True)):
        (folder / "memory.events").write_text(events, encoding="ascii")
        assert group.has_run_out_of_memory() is ran_out
