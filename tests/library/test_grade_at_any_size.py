"""Grading on all cores and on a cluster: what is lost, what counts twice, and what others may read."""

import contextlib
import csv
import io
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from mhalib_classroom.grade import (
    Limits,
    Row,
    __main__,
    _class,
    _local,
    _notebook,
    _progress,
    _sandbox,
    bubblewrap,
    grade_class,
)

pytest.importorskip("distributed")

from distributed import KilledWorker

from mhalib_classroom.grade import _cluster

pytestmark = pytest.mark.grader

HERE = Path(__file__).parent
RIGHT = "def weighted_average(weights, values):\n    return weights @ values"
RIGHT_TOO = "def scores(q, k):\n    return q @ k.mT / q.shape[-1] ** 0.5"
CALLS = "checks.weighted_average(weighted_average)\nchecks.scores(scores)"
HONEST = ["import torch\nfrom mhalib_classroom import checks", RIGHT, RIGHT_TOO, CALLS]


def hand_in(folder: Path, work: dict[str, list[str]]) -> Path:
    for student, cells in work.items():
        made = [{"cell_type": "code", "metadata": {}, "outputs": [], "source": source} for source in cells]
        (folder / student).mkdir(parents=True)
        text = json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
        (folder / student / "work.ipynb").write_text(text, encoding="utf-8")
    return folder


def job(cells: list[str] = HONEST, **limits) -> _notebook.Job:
    names = ["weighted_average", "scores"]
    return _notebook.Job(dict(enumerate(cells, 1)), names, "hush", bubblewrap, Limits(**limits))


@pytest.mark.parametrize(
    ("cores", "memory_gb", "jobs"), [(1, 64, 1), (2, 4, 2), (2, 0, 2), (16, 64, 16), (16, 16, 5), (64, 4, 2)]
)
def test_all_cores_are_used_as_far_as_there_is_memory(monkeypatch, cores, memory_gb, jobs):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)), raising=False)
    monkeypatch.setattr(_local, "_memory", lambda: memory_gb << 30)
    assert _local.jobs_that_fit(3072) == jobs


def test_this_machine_s_memory_is_known():
    if sys.platform == "linux":
        assert 1 << 30 < _local._memory() < 1 << 50


class Terminal(io.StringIO):
    def isatty(self):
        return True


def told(monkeypatch, stream: io.StringIO, seconds: list[float], **given) -> str:
    """What is printed while notebooks are done, each after so many seconds."""
    now = [0.0]
    monkeypatch.setattr(_progress.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(sys, "stderr", stream)
    with _progress.Progress(**given) as progress:
        for passed in seconds:
            now[0] += passed
            progress.one_more()
    return stream.getvalue()


def test_a_log_gets_a_line_now_and_then_with_the_time_left(monkeypatch):
    """What was done before says nothing of how long one takes."""
    said = told(monkeypatch, io.StringIO(), [10.0] * 8, total=108, done=90)
    assert said.splitlines() == [
        "93 of 108 notebooks, about 2 min left",
        "96 of 108 notebooks, about 2 min left",
    ]
    assert told(monkeypatch, io.StringIO(), [1.0] * 20, total=20) == ""  # it is over soon
    assert (
        told(monkeypatch, io.StringIO(), [40.0] * 2, total=2) == "1 of 2 notebooks, about 40 s left\n"
    )  # no time is left
    assert told(monkeypatch, io.StringIO(), [60.0] * 2, total=9, shown=False) == ""


def test_a_terminal_gets_a_bar(monkeypatch):
    said = told(monkeypatch, Terminal(), [1.0] * 3, total=3)
    assert "3/3" in said
    assert "left" not in said


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.2, "1 s"), (59.2, "59 s"), (90, "2 min"), (3540, "59 min"), (7800, "2 h 10 min")]
)
def test_a_time_is_said_as_exactly_as_it_is_known(seconds, words):
    assert _progress.in_words(seconds) == words


def test_a_result_that_is_delivered_twice_counts_once(tmp_path, monkeypatch):
    def twice(tasks, *_):
        for points in (1, 0):
            for task in tasks:
                who = (task.submission.student, task.submission.notebook)
                yield task, [Row(*who, 1, one.name, points, 1, "solved", "", "", "") for one in task.exercises]

    given = {"seed": "s", "launcher": bubblewrap, "progress": False}
    folder, out = hand_in(tmp_path / "s", {"a": HONEST, "b": HONEST}), tmp_path / "grades.csv"
    with monkeypatch.context() as changed:
        changed.setattr(_class, "_graded", twice)
        rows = grade_class(folder, out, **given)
    assert [(row.student, row.points) for row in rows] == [("a", 1), ("a", 1), ("b", 1), ("b", 1)]
    monkeypatch.setattr(_class, "_grade", lambda *_: pytest.fail("graded again"))
    assert grade_class(folder, out, **given) == rows  # from the journal


@pytest.mark.parametrize("address", ["tls://far.away:8786", "tcp://127.0.0.1:8786", "tcp://[::1]:1", "localhost:8786"])
def test_an_address_where_nobody_else_reads(address):
    _cluster.require_private([address])


@pytest.mark.parametrize("address", ["tcp://10.0.0.7:8786", "far.away:8786", "ws://127.0.0.1:1", "ucx://10.0.0.7:1"])
def test_a_seed_is_not_sent_in_the_clear(address):
    with pytest.raises(ValueError, match="not encrypted"):
        _cluster.require_private(["tcp://127.0.0.1:1", address])


def test_neither_seed_nor_work_is_printed_where_workers_log():
    sent = _cluster._travelling("stamp", pickle.dumps(job()))
    for text in (repr(sent), str(sent), repr(job())):
        assert "hush" not in text
        assert "softmax" not in text
        assert "weights @ values" not in text


def test_a_worker_with_another_mhalib_says_so():
    kind, _, text = _cluster.on_worker("0.0.1 (00000000)", pickle.dumps(job()))
    assert kind == "another mhalib"
    assert "0.0.1" in text
    assert _cluster.stamp() in text
    assert _cluster.on_worker(_cluster.stamp(), b"")[0] == "fits"


def test_a_machine_without_mhalib_says_so_too():
    """It reads what is sent, also a scheduler does, and has no more than Dask."""
    from distributed.protocol.pickle import dumps

    code = (
        "import sys; sys.modules['mhalib'] = None\nimport cloudpickle; print(cloudpickle.load(sys.stdin.buffer)()[::2])"
    )
    sent = dumps(_cluster._travelling("stamp", b""))
    ran = subprocess.run([sys.executable, "-I", "-c", code], input=sent, capture_output=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert b"has no mhalib that grades for others" in ran.stdout


class Future:
    """Of a job that came to no good end."""

    def __init__(self, error: BaseException, cancelled: bool = False):
        self.error, self.was_cancelled = error, cancelled

    def result(self):
        raise self.error

    def cancelled(self):
        return self.was_cancelled


def test_what_ends_every_worker_costs_only_itself():
    lost = KilledWorker(task="t", last_worker=None, allowed_failures=3)
    found = _cluster._found(Future(lost), job())
    assert [(one.solved, one.kind) for one in found.findings] == [(False, "stopped")] * 2
    assert "lost, 4 times" in found.findings[0].message
    with pytest.raises(RuntimeError, match="the scheduler is gone"):
        _cluster._found(Future(ValueError(), cancelled=True), job())
    with pytest.raises(ZeroDivisionError):  # a mistake of ours is not the student's
        _cluster._found(Future(ZeroDivisionError()), job())


@contextlib.contextmanager
def cluster(*hosts: str):
    """The address of a scheduler, and a worker at each of these: the number of its process, by where it listens."""
    command = [sys.executable, str(HERE / "cluster_of_test.py"), *hosts]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            address = process.stdout.readline().strip()
            told = [process.stdout.readline().split() for _ in hosts]
            yield address, {listens: int(number) for number, listens in told}
        finally:
            process.stdin.close()
            process.wait(60)


def until(true, what: str, seconds: float = 120.0):
    end = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < end, what
        time.sleep(0.05)
    return found


def below(worker: int) -> list[int]:
    """The sandboxes' processes."""
    return [one for one in _sandbox.processes_of(worker) if one != worker]


@pytest.fixture
def interrupts():
    """Heard, also where the tests run in a shell's background, which ignores them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def sandbox():
    try:
        _sandbox.require_working(bubblewrap, Limits())
    except (RuntimeError, FileNotFoundError) as error:
        pytest.skip(str(error))


@pytest.mark.usefixtures("interrupts", "sandbox")
def test_a_cluster_loses_nothing_with_a_worker(tmp_path, capsys):
    """Scheduler and workers are processes of their own. One is killed while it grades; then a run is interrupted."""
    folder, out = hand_in(tmp_path / "s", {"a": HONEST, "b": HONEST}), tmp_path / "grades.csv"
    with cluster("127.0.0.1", "127.0.0.1") as (address, numbers):
        workers = list(numbers.values())
        command = [str(folder), "--out", str(out), "--seed", "s", "--scheduler", address]
        killer = subprocess.Popen([sys.executable, "-I", "-S", "-c", KILLER, str(workers[0])])
        assert __main__.main(command) == 0
        assert killer.wait(60) == 0
        assert "   2 of   2  a\n   2 of   2  b\n" in capsys.readouterr().out
        assert len(list((tmp_path / "grades.csv.progress").glob("*.json"))) == 2

        slow = job(["import time\ntime.sleep(200)"], cell_seconds=200)
        with contextlib.closing(_cluster.finished([("slow", slow)], address)) as arriving:
            interrupt(workers[1])
            with pytest.raises(KeyboardInterrupt):
                next(arriving)
        until(lambda: not below(workers[1]), "a sandbox outlives the run that it is for", 30)


@pytest.mark.weekly("mhalib_classroom/grade/")
@pytest.mark.skipif(sys.platform != "linux", reason="only there is every 127.x.x.x this machine")
@pytest.mark.usefixtures("sandbox")
def test_a_class_on_two_addresses_survives_the_loss_of_one(tmp_path, capsys):
    """Two workers at addresses of their own; the second is killed in the middle, with results sent and one begun."""
    wrong_too = [HONEST[0], RIGHT.replace("weights @", "weights.mT @"), RIGHT_TOO, CALLS]
    work = {f"s{i:02}": [*(wrong_too if i % 3 == 0 else HONEST), f"own = {i}"] for i in range(12)}
    folder, out = hand_in(tmp_path / "s", work), tmp_path / "grades.csv"
    journal = tmp_path / "grades.csv.progress"
    killed = []

    def kill(lost: int, other: int):
        until(lambda: below(lost) and below(other), "not both have begun")
        until(lambda: len(list(journal.glob("*.json"))) >= 3 and below(lost), "nothing is done")
        killed.append(len(list(journal.glob("*.json"))))
        os.kill(lost, signal.SIGKILL)

    with cluster("127.0.0.1", "127.0.0.2") as (address, workers):
        assert [listens.rpartition(":")[0] for listens in workers] == ["tcp://127.0.0.1", "tcp://127.0.0.2"]
        stays, lost = workers.values()
        killer = threading.Thread(target=kill, args=(lost, stays), daemon=True)
        killer.start()
        assert __main__.main([str(folder), "--out", str(out), "--seed", "s", "--scheduler", address]) == 0
        killer.join(60)
    assert killed
    assert 3 <= killed[0] < 12, "not in the middle"
    with out.open(newline="", encoding="utf-8-sig") as file:
        rows = [(row["student"], row["exercise"], row["points"]) for row in csv.DictReader(file)]
    assert sorted(rows) == sorted(
        (student, exercise, "0" if cells[:4] == wrong_too and exercise == "weighted_average" else "1")
        for student, cells in work.items()
        for exercise in ("weighted_average", "scores")
    )
    told = [line for line in capsys.readouterr().out.splitlines() if " of " in line]
    assert [line.split()[-1] for line in told] == sorted(work)
    assert len(list(journal.glob("*.json"))) == len(work)


KILLER = """
import os, signal, sys, time
worker = int(sys.argv[1])
def below():
    with open(f"/proc/{worker}/task/{worker}/children") as file:
        found = file.read().split()
    for thread in os.listdir(f"/proc/{worker}/task"):
        with open(f"/proc/{worker}/task/{thread}/children") as file:
            found += file.read().split()
    return found
end = time.monotonic() + 100
while not (sandboxes := below()) and time.monotonic() < end:
    time.sleep(0.02)
time.sleep(0.2)
os.kill(worker, signal.SIGKILL)
while any(os.path.exists(f"/proc/{one}") for one in sandboxes) and time.monotonic() < end:
    time.sleep(0.02)
sys.exit(0 if sandboxes and time.monotonic() < end else 1)
"""


def interrupt(worker: int) -> None:
    """Ctrl-C, as soon as the worker has a sandbox."""

    def later():
        until(lambda: below(worker), "no sandbox")
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=later, daemon=True).start()
