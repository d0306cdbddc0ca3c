"""The grader against a class of honest and hostile notebooks. All floods here are bounded, in case it fails."""

import csv
import hashlib
import importlib
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import nbformat
import pytest
import torch
from sandbox_probes import left_running

import mhalib
from mhalib._write import write_whole
from mhalib_classroom import checks
from mhalib_classroom.grade import (
    Limits,
    Row,
    __main__,
    _class,
    _feedback,
    _journal,
    _launch,
    _notebook,
    _roster,
    _sandbox,
    _stamp,
    _students,
    _submissions,
    bubblewrap,
    grade_class,
    wire,
)

pytestmark = pytest.mark.grader

ROOT = Path(__file__).parents[2]
SEED = "seed-that-nobody-sees"
MEMORY_MB = 1011 + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])  # of nobody else, to tell its processes
LIMITS = Limits(memory_mb=MEMORY_MB, call_seconds=2, cell_seconds=3)
TOGETHER = replace(LIMITS, submission_seconds=900)  # of what would else be many notebooks
SPLITTING = checks.EXERCISES["split_heads"].chapter
CHAPTERS = [1, 2, SPLITTING, *(checks.EXERCISES[one].chapter for one in ("mended_scale", "prune"))]


def why_not() -> str:
    """Why bubblewrap cannot be used here, or nothing."""
    if sys.platform != "linux":
        return "no bubblewrap on this platform"
    try:
        _sandbox.require_working(bubblewrap, Limits())
    except RuntimeError as error:
        return str(error)
    return ""


@pytest.fixture(scope="module")
def sandboxed():
    reason = why_not()
    if reason and os.environ.get("CI") == "true" and sys.platform == "linux":
        pytest.fail(f"in CI the grader must be tested: {reason}")
    if reason:
        pytest.skip(reason)


RIGHT = "def weighted_average(weights, values):\n    return weights @ values"
RIGHT_TOO = "def scores(q, k):\n    return q @ k.mT / q.shape[-1] ** 0.5"
CHECKS = "from mhalib_classroom import checks\nchecks.weighted_average(weighted_average)\nchecks.scores(scores)"
HONEST = ["import torch", RIGHT, RIGHT_TOO, CHECKS]
FIRST = [name for name, one in checks.EXERCISES.items() if one.chapter == 1]
OF_SPLITTING = [name for name, one in checks.EXERCISES.items() if one.chapter == SPLITTING]


def notebook(cells: list[str]) -> str:
    made = [{"cell_type": "code", "metadata": {}, "outputs": [], "source": source} for source in cells]
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


def in_a_cell(code: str) -> list[str]:
    return [code, *HONEST]


def in_the_function(code: str, before: str = "import torch, os, sys, time, signal") -> list[str]:
    lines = "\n".join(f"    {line}" for line in code.splitlines())
    return [before, f"def weighted_average(weights, values):\n{lines}", RIGHT_TOO, CHECKS]


IMPORTS = "import torch, os, sys, time, signal"
MERGE = "return a[0].transpose(1, 2).flatten(2)"  # right, for merge_heads


def in_functions(bodies: dict[str, str], before: str = IMPORTS) -> list[str]:
    """A notebook in which each of these exercises does what its body says; `a` are its arguments."""
    functions = ["\n    ".join([f"def {name}(*a):", *body.splitlines()]) for name, body in bodies.items()]
    calls = "\n".join(f"checks.{name}({name})" for name in bodies)
    return [before, *functions, f"from mhalib_classroom import checks\n{calls}"]


PIPES = """
def pipes():
    found = []
    for fd in range(3, 40):
        try:
            if "pipe" in os.readlink(f"/proc/self/fd/{fd}"): found.append(fd)
        except OSError: pass
    return found
def write(raw):
    for fd in pipes():
        try: os.write(fd, raw)
        except OSError: pass
"""
NO_GRADIENT = """
def masked_softmax(scores, mask):
    hidden = torch.where(mask, 0.0, -torch.inf)
    return (scores + hidden).softmax(-1).nan_to_num(0.0)
"""
SOFTMAX = """
def masked_softmax(scores, mask):
    sees = mask.any(-1, keepdim=True)
    return scores.masked_fill(~mask & sees, -torch.inf).softmax(-1).masked_fill(~sees, 0.0)
"""
CATCHES_ALL = "while True:\n    try:\n        while True: time.sleep(0.01)\n    except BaseException: pass"
# What a function does that ends its call and nothing else: they share one sandbox. Exercise: (body, kind, what is said)
RAISING = {
    "weighted_average": ("return a[0] @ a[1] / len(a[1])", "value", "weights sum to 1"),
    "scores": ("raise NotImplementedError", "not started", ""),
    "masked_softmax": ("return w.reference(*a)", "raised", "made by mhalib, which the grader does not have"),
    "padding_mask": ("os.system('true')\nimport subprocess\nsubprocess.run(['true'])", "raised", "PermissionError"),
    "causal_mask": ("os.execv('/usr/bin/env', ['env'])", "raised", "PermissionError"),
    "attend": (
        "class Bomb:\n    def __reduce__(self): return os.system, ('touch /tmp/x',)\nreturn Bomb()",
        "raised",
        "type Bomb cannot be sent",
    ),
    "mended_scale": ("return torch.zeros(1).expand(10**12)", "raised", ""),
    "mended_filling": ("return torch.zeros(20 << 20)", "raised", "too large"),
    "split_heads": ("x = []\nfor _ in range(10**5): x = [x]\nreturn x", "raised", "nested too deep"),
    "merge_heads": ("return 10**4000", "type", ""),
    "fold_heads": ("raise ValueError('\\ud800\\x1b[31m=1+1')", "raised", "ValueError"),
    "row_of_fold": ("raise ValueError('=HYPERLINK(1)')", "raised", "=HYPERLINK(1)"),
    "strides_of_heads": ("raise ValueError(';  =cmd|x')", "raised", "; =cmd|x"),
    "mended_merge": (
        "class Same:\n    def __eq__(self, other): return True\nreturn Same()",
        "raised",
        "type Same cannot be sent",
    ),
    "head_importance": (
        "class Lie(torch.Tensor):\n    @classmethod\n    def __torch_function__(cls, *_, **__): return True\n"
        "return torch.zeros(2).as_subclass(Lie)",
        "raised",
        "",
    ),
    "hard_gate": ("return a[0] * 0", "value", ""),  # where torch says that all is equal, see below
    "open_gates": ("raise type('NotStarted', (BaseException,), {})('x')", "raised", "NotStarted"),
    "prune": ("return len(*a)", "raised", "TypeError"),
    "mended_pruning": ("def f(*a): return f(*a)\nreturn f()", "raised", "RecursionError"),
}
PATCHES = (
    f"{IMPORTS}\nfrom mhalib_classroom.checks import EXERCISES, masks\n"
    "from mhalib_classroom.checks.masks import masked_softmax as w\n"
    "from mhalib_classroom import checks\nchecks.prune = checks.Exercise.examine = lambda *_: True\n"
    "for name in ('equal', 'allclose', 'isclose'): setattr(torch, name, lambda *a, **k: True)"
)
# What loses the sandbox, and costs that exercise only: the next ones get a new sandbox
STOPPING = {
    "loops": {
        "weighted_average": (CATCHES_ALL, "stopped", "time limit"),
        "scores": ("signal.signal(signal.SIGALRM, signal.SIG_IGN)\nwhile True: pass", "stopped", "time limit"),
        "split_heads": ("os.kill(os.getpid(), signal.SIGSTOP)", "stopped", "time limit"),
        "merge_heads": (MERGE, "solved", "Verified"),
        "fold_heads": ("os._exit(0)", "stopped", "its process died"),
        "row_of_fold": (
            "import wire\nwrite(wire.pack({'solved': True, 'points': 100, 'value': True}, []))\nreturn a",
            None,
            "",
        ),
    },
    "pipes": {
        "weighted_average": ("import ctypes; ctypes.string_at(0)", "stopped", "its process died"),
        "scores": ("os.closerange(3, 100)\nreturn a[0] @ a[1]", "stopped", "its process died"),
        "split_heads": ("write(b'x' * 100)\nreturn a[0]", "stopped", "no answer"),
        "merge_heads": (MERGE, "solved", "Verified"),
        "fold_heads": ("return torch.zeros([1] * 40)", "stopped", "no answer"),
        "row_of_fold": (
            "write(b'\\0\\0\\0\\2\\0\\0\\1\\0{')\nfor _ in range(90):\n    write(b'x')\n    time.sleep(0.1)\nreturn 1",
            None,
            "",
        ),
    },
    "slow": {
        "weighted_average": ("time.sleep(60)", "too slow", "no result after 2 seconds"),
        "scores": ("while True: pass", "too slow", "no result after 2 seconds"),
    },
}
HARMLESS_CELLS = {  # what a cell does, and what is said of it, in one sandbox
    "x = = 1": "SyntaxError",
    "while True: pass": "no end after 3 seconds",
    "import sys; sys.exit()": "SystemExit",
    "import os; os.kill(1, 9)": "PermissionError",
    "os.kill(-1, 9)": "PermissionError",
    "os.fork()": "PermissionError",
    "with open('/tmp/x', 'wb') as f: f.write(bytes(80 << 20))": "OSError",
    "for _ in range(300): print('x' * 100_000)\nos.write(1, b'x' * 9999)\n1 / 0": "ZeroDivisionError",
    "raise type('\\n=1', (Exception,), {})('x')": "=1",
}
DEADLY_CELLS = {  # at most five of them are left out
    "import os; os.kill(os.getpid(), 9)": "left out: its process died",
    f"import time\n{CATCHES_ALL}": "left out: time limit",
    "import wire; wire.pack = None": "left out: its process died",
    "x = '" + "x" * (2 << 20) + "'": "left out: it is too long",
    # on a slow machine, the limit of time may come first
    "import time\nx = [bytearray(b'x' * (64 << 20)) for _ in range(30)]\ntime.sleep(20)": "limit",
}
ODD = {  # right in ways that are not expected: name of the function, and its cell
    "weighted_average": "%%time\ndef weighted_average(weights, values):\n    return weights @ values",
    "scores": f"files = !ls\n{RIGHT_TOO}\n%matplotlib inline\n!pip install x\ntorch.softmax?",
    "split_heads": "assert await asyncio.sleep(0, 1) == 1\n"
    "def split_heads(x, h): return x.unflatten(2, (h, -1)).transpose(1, 2)",
    "merge_heads": "def f(x: int): pass\nassert f.__annotations__ == {'x': int}\n"
    "def mine(x): return x.transpose(1, 2).flatten(2)",
    "fold_heads": "def fold_heads(x, h): raise NotImplementedError\n"
    "def good(x, h): return split_heads(x, h).flatten(0, 1)",
}
ODD_CHECKS = """from mhalib_classroom import checks
import mhalib_classroom as room, mhalib.plots as p
from mhalib.classroom.checks import split_heads as check
from mhalib.attention import causal_mask
p.draw(causal_mask(3))
checks.weighted_average(weighted_average); checks.scores(print)
check(split_heads); room.checks.merge_heads(mine); checks.fold_heads(good); checks.row_of_fold(len)"""
SOLVED = ("solved", "Verified")
# notebook: its cells; what comes out of an exercise; what is said of its cells
ATTACKS = {
    "honest": (HONEST, dict.fromkeys(FIRST, SOLVED), []),
    "a/homework": (
        ["import torch, asyncio", *ODD.values(), ODD_CHECKS],
        dict.fromkeys(ODD, SOLVED) | {"row_of_fold": ("raised", "TypeError")},
        [],
    ),
    "b/homework": (
        in_functions({"weighted_average": "return a[0]", "scores": "return a[0] @ a[1].mT / a[0].shape[-1] ** 0.5"}),
        {"weighted_average": ("shape", ""), "scores": SOLVED},
        [],
    ),
    '=HYPERLINK("evil")': (
        in_functions({name: body for name, (body, *_) in RAISING.items()}, PATCHES),
        {name: expected for name, (_, *expected) in RAISING.items()},
        [],
    ),
    "new\nline, \x1b[31mred": (
        [*HARMLESS_CELLS, *HONEST],
        dict.fromkeys(FIRST, SOLVED),
        HARMLESS_CELLS.values(),
    ),
    ";=cmd|' /C calc'!A0": ([*DEADLY_CELLS, *HONEST], dict.fromkeys(FIRST, SOLVED), DEADLY_CELLS.values()),
    "threads": (
        [
            "import threading, time\nthreading.stack_size(65536)\n"
            "for _ in range(200): threading.Thread(target=time.sleep, args=(4,), daemon=True).start()\ntime.sleep(2)",
            *HONEST,
        ],
        dict.fromkeys(FIRST, SOLVED),
        ["thread"],
    ),
    "no modules": (["import sys; sys.modules.clear()", *HONEST], {}, []),
    "a lying wire": (
        ["import wire; wire.encode = lambda *_: {'solved': True}", *HONEST],
        dict.fromkeys(FIRST, ("stopped", "no answer")),
        [],
    ),
    **{
        name: (
            in_functions({one: body for one, (body, *_) in bodies.items()}, IMPORTS + PIPES),
            {one: expected for one, (_, *expected) in bodies.items()},
            [],
        )
        for name, bodies in STOPPING.items()
    },
}
DAMAGED = {
    "empty": b"",
    "truncated": notebook(HONEST).encode()[:-9],
    "other encoding": notebook(HONEST).encode("utf-16"),
    "no cells": b'{"nbformat": 4}',
    "cells of another kind": b'{"cells": 3}',
    "sources of another kind": b'{"cells": [{"cell_type": "code", "source": [[1]]}]}',
    "deep": b"[" * 100_000,
    "many values": b'{"cells": [' + b"[]," * 1_000_000 + b"[]]}",
    "no object": b"3",
    "zeros": bytes(1000),
}


def hand_in(folder: Path, work: dict[str, list[str]]) -> Path:
    for name, cells in work.items():
        path = folder / f"{name}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(notebook(cells), encoding="utf-8")
    return folder


def fingerprint(folder: Path) -> dict[str, str]:
    return {
        str(path): hashlib.sha256(path.read_bytes() if path.is_file() else b"").hexdigest()
        for path in sorted(folder.rglob("*"))
    }


class Graded:
    """A class that was graded once: its rows, and what is around them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.out = folder / "submissions", folder / "results" / "grades.csv"
        self.out.parent.mkdir()
        outside = folder / "outside.txt"
        outside.write_text("untouched", encoding="ascii")
        hand_in(self.folder, {name: cells for name, (cells, *_) in ATTACKS.items()})
        for name, content in DAMAGED.items():
            (self.folder / f"{name}.ipynb").write_bytes(content)
        os.mkfifo(self.folder / "fifo.ipynb")
        (self.folder / "folder.ipynb").mkdir()
        (self.folder / "link.ipynb").symlink_to("honest.ipynb")
        (self.folder / "passwords.ipynb").symlink_to("/etc/passwd")
        (self.folder / "nowhere.ipynb").symlink_to("/nowhere")
        (self.folder / "linked").symlink_to(self.folder / "a")
        with open(self.folder / "large.ipynb", "wb") as file:
            file.truncate(25 << 20)
        Path(os.fsdecode(os.fsencode(self.folder) + b"/\xff.ipynb")).write_text(notebook(HONEST), encoding="utf-8")
        before, self.frames = fingerprint(folder), []

        def spying(message, blobs, pack=wire.pack):
            self.frames.append(pack(message, blobs))
            return self.frames[-1]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_sandbox, "GRACE", 2.0)
            patch.setattr(wire, "pack", spying)
            self.start = time.monotonic()
            self.rows = grade(self.folder, self.out, limits=TOGETHER, chapters=CHAPTERS)
            self.seconds = time.monotonic() - self.start
        after = fingerprint(folder)
        self.changed = {path for path in before if before[path] != after.get(path)}
        self.new = {path for path in after.keys() - before.keys() if not path.startswith(str(self.out))}
        self.left = left_running(MEMORY_MB)
        self.of = {(row.notebook, row.exercise): row for row in self.rows}


@pytest.fixture(scope="module")
def graded(sandboxed, tmp_path_factory):
    return Graded(tmp_path_factory.mktemp("class"))


def test_there_are_enough_attacks():
    stopping = sum(map(len, STOPPING.values()))
    assert len(RAISING) + stopping + len(HARMLESS_CELLS) + len(DEADLY_CELLS) + len(DAMAGED) >= 50


@pytest.mark.parametrize(
    ("name", "exercise"), [(name, exercise) for name, (_, expected, _) in ATTACKS.items() for exercise in expected]
)
def test_a_notebook_gets_what_it_deserves(graded, name, exercise):
    row, (kind, said) = graded.of[name, exercise], ATTACKS[name][1][exercise]
    assert row.out_of == checks.EXERCISES[exercise].points
    assert row.points == (row.out_of if kind == "solved" else 0), row
    assert kind in (None, row.kind), row  # what writes into the grader's pipe may be found out in several ways
    assert said in row.diagnosis
    assert 0 < len(row.diagnosis) < 2_500


@pytest.mark.parametrize("name", ATTACKS)
def test_what_is_said_of_the_cells(graded, name):
    notes = {row.notes for row in graded.rows if row.notebook == name}
    for said in ATTACKS[name][2]:
        assert any(said in note for note in notes), notes


def test_a_known_mistake_is_named_in_the_table(graded):
    assert graded.of['=HYPERLINK("evil")', "weighted_average"].mistake == "divided by the number of values"


@pytest.mark.parametrize("name", [*DAMAGED, "fifo", "folder", "link", "passwords", "nowhere", "large"])
def test_what_cannot_be_read_costs_only_itself(graded, name):
    for exercise in ("weighted_average", "scores"):
        row = graded.of[name, exercise]
        assert (row.points, row.kind) == (0, "unreadable")
        assert row.diagnosis.startswith("the notebook could not be read: ")
    assert "root" not in graded.of["passwords", "scores"].diagnosis
    assert "more than 1,000,000 values" in graded.of["many values", "scores"].diagnosis
    assert "larger than 20 MB" in graded.of["large", "scores"].diagnosis  # it was not read at all


def test_nobody_is_lost_or_there_twice(graded):
    extra = {"fifo", "folder", "link", "passwords", "nowhere", "large", "\N{REPLACEMENT CHARACTER}"}
    assert {row.notebook for row in graded.rows} == {*ATTACKS, *DAMAGED} | extra
    assert len(graded.of) == len(graded.rows)
    assert graded.of["\N{REPLACEMENT CHARACTER}", "scores"].points == 1


def test_nothing_outside_is_touched(graded):
    assert not graded.changed
    assert not graded.new
    assert not graded.left


def test_neither_the_seed_nor_what_is_expected_is_sent_to_the_students(graded):
    assert len(graded.frames) > 100
    assert not any(SEED.encode() in frame for frame in graded.frames)
    asked = [wire.unpack(iter_bytes(frame))[0] for frame in graded.frames]
    assert {key for message in asked for key in message} == {"do", "source", "name", "place", "arguments", "seconds"}


def iter_bytes(frame: bytes):
    rest = bytearray(frame)

    def read(count):
        part = bytes(rest[:count])
        del rest[:count]
        return part

    return read


def test_the_table_is_safe_to_open(graded):
    with open(graded.out, encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(graded.rows)
    assert [int(row["points"]) for row in rows] == [row.points for row in graded.rows]
    texts = [text for row in rows for text in row.values()]
    for text in texts:  # also where a semicolon, or the end of a line, begins a cell
        assert not any(part.lstrip(' "')[:1] in tuple("=+-@") for part in re.split(r"[;\n]", text) if part.strip(' "'))
    assert all(letter.isprintable() or letter == "\n" for text in texts for letter in text)
    assert '\'=HYPERLINK("evil")' in {row["notebook"] for row in rows}
    with open(f"{graded.out}.students.csv", encoding="utf-8-sig", newline="") as file:
        book = {row["student"]: row for row in csv.DictReader(file)}
    sums = {name: (int(row["points"]), int(row["out_of"])) for name, row in book.items()}
    worth = sum(one.points for one in checks.EXERCISES.values() if one.chapter in CHAPTERS)
    assert sums["honest"] == (2, worth)  # out of all that was asked
    assert sums.keys() == {row["student"] for row in rows}
    assert sum(points for points, _ in sums.values()) == sum(row.points for row in graded.rows)
    assert (book["b"]["weighted_average"], book["b"]["scores"]) == ("0", "1")


def test_what_is_done_is_not_done_again(graded, monkeypatch):
    def no_more(*_):
        raise AssertionError("graded again")

    monkeypatch.setattr(_class, "_grade", no_more)
    monkeypatch.setattr(_class, "require_working", lambda *_: None)
    assert grade(graded.folder, graded.out, limits=TOGETHER, chapters=CHAPTERS) == graded.rows


def grade(folder: Path, out: Path, **changed) -> list[Row]:
    settings = {"seed": SEED, "launcher": bubblewrap, "limits": LIMITS, "progress": False, **changed}
    return grade_class(folder, out, **settings)


def points(rows: list[Row]) -> dict[tuple[str, str], int]:
    return {(row.student, row.exercise): row.points for row in rows}


def command(folder: Path, out: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "mhalib_classroom.grade", str(folder), "--out", str(out), "--seed", SEED, *more]


def test_a_killed_run_goes_on_where_it_stopped(sandboxed, tmp_path):
    work = dict.fromkeys("abd", HONEST) | {"c": in_the_function("time.sleep(60)")}
    folder, out, memory_mb = hand_in(tmp_path / "s", work), tmp_path / "grades.csv", MEMORY_MB + 100
    journal = tmp_path / "grades.csv.progress"
    more = ["--jobs", "1", "--memory-mb", str(memory_mb), "--call-seconds", "2"]
    process = subprocess.Popen(
        command(folder, out, *more), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    end = time.monotonic() + 120
    while not list(journal.glob("*.json")) and time.monotonic() < end:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    finished = {path.name: path.stat().st_mtime_ns for path in journal.glob("*.json")}
    assert 1 <= len(finished) < 4
    assert not out.exists()
    while left_running(memory_mb) and time.monotonic() < end:
        time.sleep(0.05)
    assert not left_running(memory_mb)  # no sandbox outlives its grader

    ran = subprocess.run(command(folder, out, *more), capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    assert "8 rows in" in ran.stdout
    assert "   2 of   2  a\n   2 of   2  b\n   1 of   2  c\n   2 of   2  d\n" in ran.stdout
    assert "weighted_average, scores" in ran.stdout
    assert {name: (journal / name).stat().st_mtime_ns for name in finished} == finished
    with open(out, encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["student"] for row in rows] == list("aabbccdd")
    assert [int(row["points"]) for row in rows] == [1, 1, 1, 1, 0, 1, 1, 1]
    assert [row["kind"] for row in rows if row["points"] == "0"] == ["too slow"]


def test_the_interpreter_may_be_named_by_a_relative_path(sandboxed, tmp_path):
    """From a folder that the sandbox does not have, so that `..` leads nowhere in there."""
    folder, out = hand_in(tmp_path / "s", {"a": HONEST}), tmp_path / "grades.csv"
    relative = os.path.relpath(sys.executable, tmp_path)
    given = [relative, *command(folder, out)[1:]]
    ran = subprocess.run(given, capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert "   2 of   2  a\n" in ran.stdout, ran.stderr


@pytest.mark.parametrize("launcher", ["bubblewrap", "runc"])
def test_an_endless_loop_ends_with_its_grader(sandboxed, launcher):
    """Long before its own limit."""
    if shutil.which("runc") is None and launcher == "runc" and os.environ.get("CI") != "true":
        pytest.skip("runc is not installed")
    memory_mb = MEMORY_MB + 200
    program = (
        f"from mhalib_classroom.grade import Limits, _sandbox, {launcher}\n"
        f"sandbox = _sandbox.Sandbox({launcher}, Limits(memory_mb={memory_mb}, cell_seconds=300))\n"
        "print('it runs', flush=True)\n"
        "sandbox.run_cell('while True: pass')"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"it runs\n"
        time.sleep(1)
        assert left_running(memory_mb)
        process.kill()
    end = time.monotonic() + 60
    while left_running(memory_mb) and time.monotonic() < end:
        time.sleep(0.05)
    assert not left_running(memory_mb)


@pytest.mark.skipif(sys.platform == "win32", reason="pipes of another kind")
@pytest.mark.parametrize("program", [["false"], ["/nowhere/at/all"], ["echo", "x" * 100]])
def test_a_launcher_that_does_not_work_gives_nobody_a_zero(tmp_path, program):
    folder, out = hand_in(tmp_path / "s", {"a": HONEST}), tmp_path / "grades.csv"
    with pytest.raises(RuntimeError, match="the sandbox does not start"):
        grade(folder, out, launcher=lambda limits: program)
    assert not out.exists()
    assert not list(tmp_path.rglob("*.json"))


def test_a_launcher_that_stops_working_gives_nobody_a_zero(sandboxed, tmp_path):
    folder, out = hand_in(tmp_path / "s", dict.fromkeys("abc", HONEST)), tmp_path / "grades.csv"
    starts = iter([bubblewrap] * 2)
    with pytest.raises(RuntimeError, match="the sandbox does not start"):
        grade(folder, out, launcher=lambda limits: next(starts, lambda _: ["false"])(limits), jobs=1)
    assert not out.exists()
    assert set(points(grade(folder, out)).values()) == {1}


def test_a_start_that_fails_once_is_tried_again(sandboxed, tmp_path):
    folder, out = hand_in(tmp_path / "s", {"a": HONEST}), tmp_path / "grades.csv"
    starts = iter([bubblewrap, lambda limits: ["false"]])
    rows = grade(folder, out, launcher=lambda limits: next(starts, bubblewrap)(limits), jobs=1)
    assert set(points(rows).values()) == {1}


@pytest.mark.skipif(sys.platform == "win32", reason="pipes of another kind")
def test_without_a_sandbox_it_refuses_unless_told(tmp_path):
    folder, out = hand_in(tmp_path / "s", {"a": HONEST}), tmp_path / "grades.csv"
    environment = {**os.environ, "PATH": str(tmp_path), "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(command(folder, out), capture_output=True, text=True, env=environment, timeout=300)
    assert ran.returncode == 2
    assert "apt-get install bubblewrap" in ran.stderr
    assert "--unsafe" in ran.stderr
    assert not out.exists()
    if sys.platform != "linux":
        return
    ran = subprocess.run(command(folder, out, "--unsafe"), capture_output=True, text=True, env=environment, timeout=300)
    assert "   2 of   2  a\n" in ran.stdout, ran.stderr


@pytest.fixture
def worker():
    pytest.importorskip("resource", reason="no such limits on this platform")
    return importlib.import_module("mhalib_classroom.grade.worker")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux filters system calls")
def test_without_the_library_of_filters_no_worker_starts(worker, monkeypatch):
    pyseccomp = pytest.importorskip("pyseccomp")
    with monkeypatch.context() as patch:
        patch.setattr(pyseccomp, "resolve_syscall", lambda arch, name: -1)
        with pytest.raises(SystemExit, match="libseccomp is too old: it does not know the system call read"):
            worker._filter_of_system_calls()
    monkeypatch.setitem(sys.modules, "pyseccomp", None)
    with pytest.raises(SystemExit, match=r"pip install pyseccomp; .* apt-get install libseccomp2"):
        worker._filter_of_system_calls()


def test_why_no_worker_starts_is_said_also_without_a_sandbox(tmp_path, monkeypatch, capsys):
    def without_the_library(limits):
        return [sys.executable, "-c", "import sys; sys.exit('pyseccomp is missing')"]

    monkeypatch.setattr(__main__, "no_sandbox", without_the_library)
    folder = hand_in(tmp_path / "s", {"a": HONEST})
    with pytest.raises(SystemExit) as stopped:
        __main__.main([str(folder), "--out", str(tmp_path / "grades.csv"), "--unsafe"])
    assert stopped.value.code == 2
    assert "the sandbox does not start: its process died: pyseccomp is missing\n" in capsys.readouterr().err


def test_what_is_printed_at_the_end_is_harmless(tmp_path, monkeypatch, capsys):
    row = Row("\x1b[31m=1\n2", "a", 1, "two_heads", 1, 1, "solved", "", "", "")
    monkeypatch.setattr(__main__, "grade_class", lambda *_, **__: [row])
    assert __main__.main([str(tmp_path), "--seed", "s"]) == 0
    assert "\x1b" not in (shown := capsys.readouterr().out)
    assert shown.splitlines()[0].strip() == "1 of   1  \N{REPLACEMENT CHARACTER}[31m=1 2"


def test_names_that_are_no_text_stay_apart(tmp_path):
    names = [b"\xff", b"\xfe", b"ab"]
    try:
        for name in names:
            Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name + b".ipynb")).write_text("x", encoding="utf-8")
    except (OSError, UnicodeError):
        pytest.skip("no such names on this platform")
    students = [one.student for one in _submissions.find(tmp_path)[0]]
    assert len(set(students)) == 3
    assert all(student.encode() for student in students)


def test_the_seed_is_made_once_and_kept(tmp_path):
    out = tmp_path / "grades.csv"
    seed = __main__._kept_seed(out)
    assert len(seed) == 16
    assert __main__._kept_seed(out) == seed
    assert __main__._kept_seed(tmp_path / "other.csv") != seed
    kept = tmp_path / "grades.csv.progress/seed.txt"
    assert (kept.stat().st_mode & 0o077, kept.parent.stat().st_mode & 0o077) == (0, 0)
    kept.write_text("", encoding="ascii")  # the disk was full
    assert len(__main__._kept_seed(out)) == 16


@pytest.fixture
def counted(monkeypatch):
    """Grade without a sandbox or a check: one point for each exercise that a notebook is graded on."""

    def one_point_each(task, _):
        who = (task.submission.student, task.submission.notebook)
        return [
            Row(*who, one.chapter, one.name, one.points, one.points, "solved", "", "", "") for one in task.exercises
        ]

    monkeypatch.setattr(_class, "_grade", one_point_each)
    monkeypatch.setattr(_class, "require_working", lambda *_: None)


def test_a_changed_notebook_or_seed_or_a_damaged_entry_is_graded_anew(counted, tmp_path, monkeypatch):
    folder, out = hand_in(tmp_path / "s", {"a": HONEST, "b": HONEST}), tmp_path / "grades.csv"
    done = []
    real = _class._grade

    def right_or_not(task, how):
        done.append(task.submission.student)
        return [replace(row, points=int(RIGHT in task.cells.values())) for row in real(task, how)]

    monkeypatch.setattr(_class, "_grade", right_or_not)
    assert set(points(grade(folder, out)).values()) == {1}
    assert sorted(done) == ["a", "b"]
    hand_in(folder, {"b": in_the_function("return weights")})
    assert points(grade(folder, out))["b", "weighted_average"] == 0
    assert done[2:] == ["b"]
    for entry in (tmp_path / "grades.csv.progress").glob("*.json"):
        entry.write_text("[{", encoding="ascii")
    grade(folder, out)
    assert sorted(done[3:]) == ["a", "b"]
    grade(folder, out, seed="another")
    assert sorted(done[5:]) == ["a", "b"]
    grade(folder, out, seed="another", limits=Limits(memory_mb=MEMORY_MB, call_seconds=9))
    assert sorted(done[7:]) == ["a", "b"]


def test_a_mended_checker_grades_anew_and_the_teacher_is_told(counted, tmp_path, monkeypatch, capsys):
    """Also where the version is the same, as between two releases."""
    folder, out, done = hand_in(tmp_path / "s", {"a": HONEST}), tmp_path / "grades.csv", []
    real = _class._grade
    monkeypatch.setattr(_class, "_grade", lambda task, how: done.append(task) or real(task, how))
    grade(folder, out)
    grade(folder, out)
    assert len(done) == 1
    assert "graded anew" not in capsys.readouterr().err
    with monkeypatch.context() as mended:
        mended.setattr(_journal, "stamp", lambda: "0.3.0 (12345678)")
        grade(folder, out)
        grade(folder, out)
    assert len(done) == 2
    assert capsys.readouterr().err.count("mhalib has changed since the last run: every notebook is graded anew") == 1


@pytest.mark.parametrize(
    "changed", ["mhalib_classroom/checks/weighted_average.py", "mhalib/core.py", "mhalib_classroom/a.md"]
)
def test_a_stamp_changes_with_every_checker_and_with_what_checkers_compare_with(tmp_path, monkeypatch, changed):
    for name in ("mhalib_classroom/grade/_stamp.py", "mhalib_classroom/checks/weighted_average.py", "mhalib/core.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x = 1\n", encoding="ascii")
    monkeypatch.setattr(_stamp, "__file__", str(tmp_path / "mhalib_classroom/grade/_stamp.py"))
    monkeypatch.setattr(mhalib, "__file__", str(tmp_path / "mhalib/__init__.py"))
    before = _stamp.stamp.__wrapped__()
    (tmp_path / changed).write_text("x = 2\n", encoding="ascii")
    assert _stamp.stamp.__wrapped__() != before
    assert _stamp.stamp.__wrapped__() == _stamp.stamp.__wrapped__()


OTHER_CHAPTER = ["checks.split_heads(split_heads)\nchecks.merge_heads(merge_heads)"]


def exercises_of(rows: list[Row]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in rows:
        found.setdefault(row.notebook, []).append(row.exercise or row.kind)
    return found


def test_chapters_come_from_the_notebook_itself(counted, tmp_path, capsys):
    """Also where only one student hands in a chapter, and for a student who has deleted the checkers."""
    untouched = nbformat.read(ROOT / "exercises/04_reshape_trick.ipynb", as_version=4)
    for cell in untouched.cells:
        cell.source = cell.source.replace("checks.", "") if cell.cell_type == "code" else cell.source
    work = {"anna/a": HONEST, "anna/b": OTHER_CHAPTER, "ben/c": HONEST, "carl": ["x = 1"], "dora/04_mine": ["x = 1"]}
    folder, out = hand_in(tmp_path / "s", work), tmp_path / "grades.csv"
    nbformat.write(untouched, folder / "emil.ipynb")
    shutil.copy(ROOT / "chapters/04_reshape_trick.ipynb", folder / "dora/04_reshape_trick.ipynb")
    expected = {"anna/a": FIRST, "anna/b": OF_SPLITTING, "ben/c": FIRST, "carl": ["no exercise"], "emil": OF_SPLITTING}
    expected |= {"dora/04_mine": OF_SPLITTING, "dora/04_reshape_trick": ["a chapter"]}
    assert exercises_of(grade(folder, out)) == expected
    said = capsys.readouterr().err
    assert "Not graded: carl: it calls no checker, and nothing says which chapter it belongs to: --chapter" in said
    assert "Not graded: dora/04_reshape_trick: this is a chapter of the book, with its solutions" in said
    found = grade(folder, out, chapters=[1])
    assert exercises_of(found)["carl"] == exercises_of(found)["emil"] == FIRST
    assert exercises_of(found)["anna/b"] == ["other chapter"]
    assert "Not graded: anna/b: it calls the checkers of chapter 4, which is not graded" in capsys.readouterr().err


def book_of(out: Path) -> dict[str, dict[str, str]]:
    with open(f"{out}.students.csv", encoding="utf-8-sig", newline="") as file:
        return {row["student"]: row for row in csv.DictReader(file)}


def test_sums_are_of_students_and_each_exercise_counts_once(counted, tmp_path, monkeypatch):
    work = {"anna/1": HONEST, "anna/2": OTHER_CHAPTER, "anna/3": [*HONEST, "worse = 1"], "ben": HONEST}
    folder, out = hand_in(tmp_path / "s", work), tmp_path / "grades.csv"
    real = _class._grade

    def worse(task, how):
        return [replace(row, points=row.points * ("worse = 1" not in task.cells.values())) for row in real(task, how)]

    monkeypatch.setattr(_class, "_grade", worse)
    worth = {name: checks.EXERCISES[name].points for name in (*FIRST, *OF_SPLITTING)}
    grade(folder, out)
    anna, ben = book_of(out)["anna"], book_of(out)["ben"]
    assert (int(anna["points"]), int(anna["out_of"])) == (sum(worth.values()),) * 2
    assert ben["split_heads"] == ""
    assert [name for name in anna if name in worth] == [*FIRST, *OF_SPLITTING]
    for place, name in enumerate(("1", "2", "3")):
        os.utime(folder / f"anna/{name}.ipynb", (1_000_000 + place, 1_000_000 + place))
    grade(folder, out, last=True)
    assert int(book_of(out)["anna"]["points"]) == sum(worth[name] for name in OF_SPLITTING)
    os.utime(folder / "anna/3.ipynb", (999_999, 999_999))  # the last by name, and the first by time
    grade(folder, out, last=True)
    assert int(book_of(out)["anna"]["points"]) == sum(worth.values())
    rows = grade(folder, out, points={"scores": 10, "split_heads": 0})
    mine = {row.notebook: (row.points, row.out_of) for row in rows if row.exercise == "scores"}
    assert (mine["anna/1"], mine["anna/3"]) == ((10, 10), (0, 10))
    assert int(book_of(out)["ben"]["points"]) == 10 + sum(worth[name] for name in FIRST if name != "scores")
    for points, said in (({"nothing": 1}, "there is no exercise 'nothing'"), ({"scores": -1}, r"points\['scores'\]")):
        with pytest.raises(ValueError, match=said):
            grade(folder, out, points=points)


def test_points_are_read_from_a_file(tmp_path):
    (tmp_path / "points.csv").write_text("exercise,points\nscores, 5\n\nsplit_heads,0\n", encoding="utf-8-sig")
    assert __main__._points(tmp_path / "points.csv") == {"scores": 5, "split_heads": 0}
    (tmp_path / "points.csv").write_text("scores,5\n", encoding="utf-8-sig")  # no heading
    assert __main__._points(tmp_path / "points.csv") == {"scores": 5}
    (tmp_path / "points.csv").write_text("scores,5\nsplit_heads;3\n", encoding="utf-8")
    with pytest.raises(ValueError, match="line 2: 'split_heads;3' is not  exercise,points"):
        __main__._points(tmp_path / "points.csv")
    (tmp_path / "points.csv").write_text("split_heads;3\n", encoding="utf-8")  # it was taken for a heading
    with pytest.raises(ValueError, match="line 1: 'split_heads;3' is not  exercise,points"):
        __main__._points(tmp_path / "points.csv")
    with pytest.raises(ValueError, match="could not be read: FileNotFoundError"):
        __main__._points(tmp_path / "none.csv")


@pytest.mark.parametrize(
    ("paths", "students"),
    [
        (["anna/01.ipynb", "anna/02.ipynb", "ben.ipynb"], ["anna", "anna", "ben"]),
        (["Ann Lee_12_assignsubmission_file_/a.ipynb", "Ann Lee_12_assignsubmission_file/b.ipynb"], ["Ann Lee"] * 2),
        (["Ann Lee_12_assignsubmission_onlinetext_/a.ipynb"], ["Ann Lee"]),
        ([f"Ann Lee_12_assignsubmission_file_{one}.ipynb" for one in ("a", "b_1_2_c")], ["Ann Lee"] * 2),
        (["leeann_12_345_a.ipynb", "leeann_LATE_12_346_b-1.ipynb", "coben_7_8_a.ipynb"], ["leeann", "leeann", "coben"]),
        (["Part 1_alee_attempt_2026-11-23-10-20-30_a.ipynb"], ["alee"]),
        (["Part 1_alee_attempt_2026-11-23-10-20-30_x_ben_attempt_2026-11-01-10-20-30_a.ipynb"], ["alee"]),
        (
            [f"Part 1_{one}_attempt_2026-11-23-10-20-30_x_1.ipynb" for one in ("a_lee", "b_lee", "lee", "_lee")],
            ["a_lee", "b_lee", "lee", "_lee"],
        ),
        ([f"Part {one}_a_lee_attempt_2026-11-23-10-20-30.ipynb" for one in (1, 2)], ["a_lee", "a_lee"]),
        ([f"Part_1_{one}_attempt_2026-11-23-10-20-30.ipynb" for one in ("lee", "a_lee")], ["1_lee", "1_a_lee"]),
    ],
    ids=[
        "folders",
        "Moodle",
        "Moodle online",
        "Moodle without folders",
        "Canvas",
        "Blackboard",
        "Blackboard, and a file named as another's",
        "Blackboard, and users with a low line",
        "Blackboard, twice",
        "Blackboard, and an assignment with a low line",
    ],
)
def test_students_are_found_in_what_courses_download(tmp_path, paths, students):
    for path in paths:
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text("x", encoding="ascii")
    found = {one.path.relative_to(tmp_path).as_posix(): one.student for one in _submissions.find(tmp_path)[0]}
    assert [found[path] for path in paths] == students


def test_a_pattern_finds_the_student(tmp_path):
    for path in ("week1/anna-lee.ipynb", "week2/anna-lee.ipynb", "week2/other.ipynb"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text("x", encoding="ascii")
    for pattern in (r"/(\w+)-", r"/(?P<student>\w+)-(\w+)", "anna"):
        found = _submissions.find(tmp_path, re.compile(pattern))[0]
        assert [one.student for one in found] == ["anna", "anna", "week2"]
    with pytest.raises(ValueError, match="student_pattern='\\(' is no regular expression"):
        grade(tmp_path, tmp_path / "out.csv", student_pattern="(")


@pytest.mark.parametrize(
    ("pattern", "students", "unfound"),
    [
        (r"(?:a-(\w+)|b-(\w+))", ["ann", "ben", "kim", "week1"], 1),
        (r"a-(\w+)|b-", ["ann", "week1", "week1", "week1"], 3),
        (r"(?P<student>ann)?-(\w+)", ["week1", "week1", "week1", "week1"], 4),
        (r"[abk]-(x*)", ["week1", "week1", "week1", "week1"], 4),
        (r"x*", ["week1", "week1", "week1", "week1"], 4),
        (r"x/", ["week1", "week1", "week1", "week1"], 4),
        (r"\w-\w+", ["a-ann", "b-ben", "b-kim", "week1"], 1),
    ],
)
def test_a_pattern_that_finds_no_name_is_told_of_and_loses_nobody(
    counted, tmp_path, capsys, pattern, students, unfound
):
    folder = hand_in(tmp_path / "s", {f"week1/{name}": HONEST for name in ("a-ann", "b-ben", "b-kim", "other")})
    rows = grade(folder, tmp_path / "out.csv", student_pattern=pattern)
    assert list({row.notebook: row.student for row in sorted(rows, key=lambda row: row.notebook)}.values()) == students
    assert f"student_pattern finds no student in {unfound} of 4 paths, such as 'week1/" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("many values", "^more than 1,000,000 values$"),  # before they are in memory
        ("deep", "^RecursionError"),
        ("no cells", "^KeyError"),
        ("cells of another kind", "^TypeError"),
        ("truncated", "^JSONDecodeError"),
        ("other encoding", "^UnicodeDecodeError"),
    ],
)
def test_why_a_file_is_no_notebook(name, said):
    with pytest.raises(ValueError, match=said):
        _submissions.read(DAMAGED[name])


def test_two_students_of_one_name_stay_apart(tmp_path):
    for number in (1, 2):
        path = tmp_path / f"Ann Lee_{number}_assignsubmission_file_/a.ipynb"
        path.parent.mkdir()
        path.write_text("x", encoding="ascii")
    assert len({one.student for one in _submissions.find(tmp_path)[0]}) == 2


def test_what_is_no_notebook_is_said_and_what_a_mac_adds_is_not_graded(counted, tmp_path, capsys):
    folder, out = (
        hand_in(tmp_path / "s", {"a": HONEST, "Zoe\N{COMBINING DIAERESIS}": HONEST}),
        tmp_path / "s/grades.csv",
    )
    (folder / "b.IPYNB").write_text(notebook(HONEST), encoding="utf-8")
    (folder / "__MACOSX").mkdir()
    for name in ("c.ipynb.txt", "class.zip", "._a.ipynb", "__MACOSX/._a.ipynb", "__MACOSX/b.ipynb", ".DS_Store"):
        (folder / name).write_text("x", encoding="ascii")
    for _ in range(2):  # what it writes itself is no submission
        assert {row.student for row in grade(folder, out)} == {"a", "b", "Zo\N{LATIN SMALL LETTER E WITH DIAERESIS}"}
        said = capsys.readouterr().err
        assert said == "Not graded, no notebook: c.ipynb.txt\nNot graded, no notebook: class.zip\n"


def test_a_wrong_folder_or_chapter_leaves_the_table_as_it_was(counted, tmp_path, capsys):
    folder, out = hand_in(tmp_path / "s", {"a": HONEST}), tmp_path / "grades.csv"
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    hand_in(tmp_path / "other", {"b": ["x = 1"]})
    out.write_text("old", encoding="ascii")
    for given, said in (
        ([str(folder), "--chapter", "99"], r"there are exercises for 1 to 37"),
        ([str(tmp_path / "empty")], r"there is no notebook below"),
        ([str(tmp_path / "other")], r"no checker is called in these notebooks; name the chapters"),
        ([str(folder), "--out", str(tmp_path / "empty")], r"is a folder, and must be a file"),
        ([str(folder), "--jobs", "0"], r"jobs=0 must be at least 1"),
        ([str(folder), "--memory-mb", "0"], r"memory_mb=0 must be positive and finite"),  # it was a traceback
        ([str(folder), "--call-seconds", "nan"], r"call_seconds=nan must be positive and finite"),
    ):
        with pytest.raises(SystemExit) as stopped:
            __main__.main([*given, *(["--out", str(out)] if "--out" not in given else []), "--seed", "s"])
        assert stopped.value.code == 2
        assert said in capsys.readouterr().err
    assert out.read_text(encoding="ascii") == "old"


def test_an_interrupted_run_says_how_to_go_on(counted, tmp_path, monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(_class, "_grade", interrupted)
    folder, out = hand_in(tmp_path / "s", {"a": HONEST}), tmp_path / "grades.csv"
    assert __main__.main([str(folder), "--out", str(out), "--seed", "s"]) == 130
    assert "The same command goes on from here" in capsys.readouterr().err


def test_a_broken_cell_is_named_by_its_number_in_the_file(sandboxed, tmp_path):
    cells = [_submissions.SET_UP, "import torch", RIGHT.replace(":\n", "\n", 1), RIGHT_TOO, "while True: pass", CHECKS]
    folder, out = hand_in(tmp_path / "s", {"a": cells}), tmp_path / "grades.csv"
    first, second = grade(folder, out, chapters=[1])
    assert first.kind == "missing"
    assert first.diagnosis.startswith(
        "weighted_average was to be defined in a cell that did not run to its end: code cell 3: SyntaxError"
    )
    assert second.points == 1
    assert "code cell 5: no end after 3 seconds" in second.notes


def test_another_cell_s_error_is_not_taken_for_why_a_function_is_missing(sandboxed, tmp_path):
    cells = ["weighted_average = 1; del weighted_average", *["pass"] * 10, "1 / 0", RIGHT_TOO, CHECKS]
    folder, out = hand_in(tmp_path / "s", {"a": cells}), tmp_path / "grades.csv"
    first, _ = grade(folder, out, chapters=[1])
    assert "code cell 12: ZeroDivisionError" in first.notes
    assert first.diagnosis == "nothing named weighted_average is defined in this notebook"


def test_printing_is_not_lost_when_two_are_graded_at_a_time(tmp_path, capsys):
    from concurrent.futures import ThreadPoolExecutor

    from mhalib_classroom.checks import two_heads

    before = sys.stdout
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda seed: two_heads.examine(lambda w, v: time.sleep(0.01), seed), range(12)))
    assert sys.stdout is before


@pytest.mark.parametrize(
    "value",
    [None, True, -3, 2.5, math.inf, -math.inf, "é\ud800", [1, (2, [])], {"a": (1.0, None)}, 10**30],
)
def test_a_value_comes_back_as_it_was_sent(value):
    blobs: list[bytes] = []
    message, received = wire.unpack(iter_bytes(wire.pack({"value": wire.encode(value, blobs)}, blobs)))
    back = wire.decode(message["value"], received)
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize("dtype", wire._DTYPES.values(), ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (2, 3), (1, 0, 4)])
def test_a_tensor_comes_back_as_it_was_sent(dtype, shape):
    tensor = (
        (torch.arange(24)[: torch.Size(shape).numel()].reshape(shape) % 2).to(dtype).mT
        if len(shape) == 2
        else (torch.ones(shape, dtype=dtype))
    )
    blobs: list[bytes] = []
    message, received = wire.unpack(iter_bytes(wire.pack({"value": wire.encode([tensor], blobs)}, blobs)))
    (back,) = wire.decode(message["value"], received)
    assert (back.dtype, back.shape) == (tensor.dtype, tensor.shape)
    assert torch.equal(back, tensor)


FORGED = [
    {"tensor": ["float32", [2]]},
    {"tensor": ["float32", [3]]},
    {"tensor": ["float32", [-1]]},
    {"tensor": ["float32", [True]]},
    {"tensor": ["float32", [1] * 17]},
    {"tensor": ["bool", [4]]},
    {"tensor": ["object", [1]]},
    {"tensor": 3},
    {"pickle": "x"},
    {"list": 3},
    {"dict": [1]},
    {"float": "1e5"},
    {"list": [], "tuple": []},
    [1],
]


@pytest.mark.parametrize("value", FORGED, ids=str)
def test_a_forged_value_is_refused(value):
    with pytest.raises((ValueError, TypeError, IndexError)):
        wire.decode(value, iter([b"\2\3\4\5"]))


@pytest.mark.parametrize(
    "frame",
    [
        b"\xff" * 8,
        b"\0\0\0\2\0\0\0\0[]",
        b"\0\0\0\2\0\0\0\0{}",
        b'\0\0\0\x0d\0\0\0\1{"blobs":[2]}x',
        b'\0\0\0\x0e\0\0\0\1{"blobs":[-1]}x',
        b'\0\0\0\x0d\0\0\0\1{"blobs": 3 }x',
        b"\0\0\0\3\0\0\0\0\xff\xff\xff",
    ],
)
def test_a_forged_frame_is_refused(frame):
    with pytest.raises((ValueError, KeyError, TypeError)):
        wire.unpack(iter_bytes(frame))


@pytest.mark.parametrize("package", ["mhalib", "mhalib_classroom"])
def test_the_packages_in_an_environment_stay_outside(tmp_path, monkeypatch, package):
    """Also where it is installed in the environment that the sandbox needs."""
    monkeypatch.setattr(shutil, "which", lambda _: "/usr/bin/bwrap")
    packages = tmp_path / "lib" / "python3" / "site-packages"
    (packages / package).mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [str(packages)])
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    made = bubblewrap(Limits())
    hidden = [made[place + 1] for place, word in enumerate(made) if word == "--tmpfs"]
    shown = [made[place + 1] for place, word in enumerate(made) if word in ("--ro-bind", "--ro-bind-try")]
    assert str(packages / package) in hidden
    assert str(tmp_path) not in shown
    assert made.index(str(packages)) < made.index(str(packages / package))


def test_packages_of_the_python_below_an_environment_stay_outside(tmp_path, monkeypatch):
    """It may have this package, too."""
    below, own = tmp_path / "lib/python3/site-packages", tmp_path / "environment/site-packages"
    for folder in (below, own):
        (folder / "mhalib").mkdir(parents=True)
        (folder / "mhalib_classroom").mkdir()
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(below.parent))
    monkeypatch.setattr(sys, "path", [str(own)])
    assert str(below.parent) in _launch.shown()
    assert set(_launch.hidden()) == {str(below), str(own / "mhalib"), str(own / "mhalib_classroom")}


def test_all_cells_together_end_in_time(sandboxed, tmp_path):
    """Each of them is far from its own limit."""
    cells = ["import time, torch", *["time.sleep(1)"] * 60, *HONEST]
    folder, out = hand_in(tmp_path / "s", {"a": cells}), tmp_path / "grades.csv"
    start = time.monotonic()
    rows = grade(folder, out, limits=replace(LIMITS, submission_seconds=4))
    assert time.monotonic() - start < 30
    assert {row.diagnosis for row in rows} == {
        f"your code stopped the grader's sandbox: {_sandbox.USED_UP}",
        f"{_sandbox.USED_UP}, before this exercise",
    }


@pytest.mark.parametrize(
    "started",
    [
        pytest.param(signal.SIG_DFL, id="by hand", marks=pytest.mark.weekly("mhalib_classroom/grade/")),
        pytest.param(signal.SIG_IGN, id="in a shell's background"),
    ],
)
def test_an_interrupt_is_heard_at_once(sandboxed, tmp_path, started):
    """While a cell sleeps that has minutes left; nothing is said of that notebook. A shell's job in the background is
    started with interrupts ignored, and `kill -INT` is to stop it nevertheless."""
    folder, out, memory_mb = hand_in(tmp_path / "s", {"a": in_a_cell("import time\ntime.sleep(200)")}), "g.csv", 1500
    given = [*command(folder, tmp_path / out, "--cell-seconds", "300"), "--memory-mb", str(MEMORY_MB + memory_mb)]
    heard = partial(signal.signal, signal.SIGINT, started)
    with subprocess.Popen(
        given, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, preexec_fn=heard
    ) as process:
        end = time.monotonic() + 120
        while not (tmp_path / f"{out}.progress").exists() and time.monotonic() < end:
            time.sleep(0.05)
        time.sleep(3)
        process.send_signal(signal.SIGINT)
        sent = time.monotonic()
        said = process.communicate(timeout=150)[1]
        assert time.monotonic() - sent < 60
    assert process.returncode == 130
    assert "Stopping. The same command goes on from here." in said
    assert not list((tmp_path / f"{out}.progress").glob("*.json"))
    while left_running(MEMORY_MB + memory_mb) and time.monotonic() - sent < 60:  # the system takes its time, if busy
        time.sleep(0.05)
    assert not left_running(MEMORY_MB + memory_mb)


def test_gradients_are_looked_at_in_the_sandbox_too(sandboxed, tmp_path):
    wide = "torch.set_default_dtype(torch.float64)"  # changes nothing that is checked
    folder = hand_in(tmp_path / "s", {"a": ["import torch", wide, NO_GRADIENT], "b": [f"import torch\n{SOFTMAX}"]})
    rows = grade(folder, tmp_path / "grades.csv", chapters=[2])
    found = {row.student: row.kind for row in rows if row.exercise == "masked_softmax"}
    assert found == {"a": "gradient", "b": "solved"}


def test_what_torch_says_in_the_sandbox_is_not_believed(sandboxed, tmp_path):
    """A notebook that makes torch say that nothing was changed, and that no gradient is NaN."""
    lies = "import torch\ntorch.equal = torch.allclose = lambda *a, **k: True"
    no_nan = "torch.autograd.grad = lambda *a, **k: [torch.zeros(1)] * 9"
    below = (
        "import torch.autograd\n"
        "torch.autograd._engine_run_backward = lambda *a, **k: tuple(torch.zeros_like(x) for x in a[4])"
    )
    changes = "def scores(q, k):\n    return q.div_(q.shape[-1] ** 0.5) @ k.mT"
    work = {
        "a": [lies, changes, "checks.scores(scores)"],
        "b": [lies, no_nan, NO_GRADIENT, "checks.masked_softmax(masked_softmax)"],
        "c": [lies, below, NO_GRADIENT, "checks.masked_softmax(masked_softmax)"],
    }
    rows = grade(hand_in(tmp_path / "s", work), tmp_path / "grades.csv")
    found = {row.student: row.kind for row in rows if row.exercise in ("scores", "masked_softmax")}
    assert found == {"a": "input changed", "b": "gradient", "c": "gradient"}


def test_two_graders_that_write_one_table_do_not_meet(tmp_path):
    """Each writes beside it under a name of its own."""
    from concurrent.futures import ThreadPoolExecutor

    out = tmp_path / "grades.csv"
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: write_whole(out, f"{number}" * 5000), range(400)))
    assert len(set(out.read_text(encoding="ascii")[:1000])) <= 3
    assert [path.name for path in tmp_path.iterdir()] == ["grades.csv"]


class FakeSandbox:
    """Runs nothing; every function is there."""

    def __init__(self, *_, **__): ...

    def run_cell(self, source):
        return ""

    def functions(self, name):
        return [print]

    def hoarded(self):
        return ""

    def close(self): ...


MERGE_TO_MEND = """
def mended_merge(x, num_heads):
    \'\'\'(h * B, N, d), head first -> (B, N, h * d).\'\'\'
    N, d = x.shape[1:]
    x = x.view(num_heads, -1, N, d)
    return x.permute(0, 2, 1, 3).reshape(-1, N, num_heads * d)
"""
STRIDES_READ_OFF = """
def strides_of_heads(shape, num_heads):
    return torch.empty(shape).unflatten(-1, (num_heads, -1)).transpose(1, 2).stride()
"""
STRIDES = """
def strides_of_heads(shape, num_heads):
    return shape[1] * shape[2], shape[2] // num_heads, shape[2], 1
"""
BOTH = """from mhalib_classroom import checks
checks.mended_merge(mended_merge, tell=True)
checks.strides_of_heads(strides_of_heads)"""


def test_code_to_mend_and_predictions_are_known_in_the_sandbox_too(sandboxed, tmp_path):
    """Neither page nor commented notebook has the diagnosis of code that nobody touched."""
    mine = MERGE_TO_MEND.replace("N, d = x", "N, d = y = x")
    work = {
        "untouched": ["import torch", f"%%time\n# mine\n{STRIDES}", f"# here\n{MERGE_TO_MEND}", STRIDES_READ_OFF, BOTH],
        "tried": ["import torch", MERGE_TO_MEND, mine, STRIDES, BOTH],
        "hidden": ["import torch", f"%%time\n{mine}", f"{STRIDES}\nalso = torch.empty(1)\nimport numpy as np", BOTH],
    }
    exercises = ("mended_merge", "strides_of_heads")
    exercise = checks.EXERCISES["mended_merge"]
    out = tmp_path / "out" / "grades.csv"
    folder = hand_in(tmp_path / "in", work)
    rows = {
        (row.student, row.exercise): row
        for row in grade(folder, out, chapters=[SPLITTING])
        if row.exercise in exercises
    }
    kinds = {name: [rows[name, one].kind for one in exercises] for name in work}
    assert kinds == {
        "untouched": ["not started", "computed"],
        "tried": ["value", "solved"],
        "hidden": ["not started", "solved"],
    }
    assert {row.mistake for row in rows.values() if row.exercise == "mended_merge"} == {exercise.given}
    assert [row.points for row in rows.values() if row.exercise == "mended_merge"] == [0, 0, 0]
    assert "your code asks torch.empty. Work" in rows["untouched", "strides_of_heads"].diagnosis
    diagnosis = exercise.mistakes[0].message
    for name in work:
        row = rows[name, "mended_merge"]
        handed_back = _feedback.page(name, [row]) + _feedback.comment(
            notebook(work[name]).encode(), {row.exercise: row}
        )
        assert ("swaps examples and tokens" in handed_back) == (name == "tried") == (diagnosis in row.diagnosis)


def test_what_was_too_slow_is_tried_again_once(tmp_path, monkeypatch):
    kinds = iter(["too slow", "too slow", "solved", "too slow"])

    def examine(self, submitted, seed, *, cells):
        kind = next(kinds)
        return checks.Finding(kind == "solved", kind, None, "")

    monkeypatch.setattr(_notebook, "Sandbox", FakeSandbox)
    monkeypatch.setattr(_class, "require_working", lambda *_: None)
    monkeypatch.setattr(checks.Exercise, "examine", examine)
    folder, out = hand_in(tmp_path / "s", {"a": HONEST}), tmp_path / "grades.csv"
    assert [row.kind for row in grade(folder, out)] == ["solved", "too slow"]
    assert [row.kind for row in grade(folder, out)] == ["solved", "too slow"]  # from the journal
    kinds = iter(["solved", "solved"])
    assert [row.kind for row in grade(folder, out, retry=True)] == ["solved", "solved"]


@pytest.mark.parametrize(("deadly", "kind"), [(5, "not started"), (7, "stopped")])
def test_a_notebook_whose_cells_end_one_sandbox_after_the_other_is_given_up(tmp_path, monkeypatch, deadly, kind):
    class Dying(FakeSandbox):
        def run_cell(self, source):
            if source.startswith("die"):
                raise _sandbox.Stopped("its process died")
            return ""

        def functions(self, name):
            def stub(*_):
                raise NotImplementedError

            return [stub]

    monkeypatch.setattr(_notebook, "Sandbox", Dying)
    monkeypatch.setattr(_class, "require_working", lambda *_: None)
    folder, out = hand_in(tmp_path / "s", {"a": ["die"] * deadly + HONEST}), tmp_path / "grades.csv"
    rows = grade(folder, out)
    assert {row.kind for row in rows} == {kind}
    assert ("too many cells hang or crash" in rows[0].diagnosis) == (kind == "stopped")


def test_names_that_look_alike_stay_apart(tmp_path):
    names = [
        "anna",
        "\N{CYRILLIC SMALL LETTER A}nn\N{GREEK SMALL LETTER ALPHA}",
        "an\N{ZERO WIDTH SPACE}na",
        "anna\N{HANGUL FILLER}",
        "ANNA",
        "ben",
        "b\N{VARIATION SELECTOR-1}en",
    ]
    for name in names:
        (tmp_path / f"{name}.ipynb").write_text("x", encoding="utf-8")
    sign = hashlib.sha256(repr(b"anna").encode()).hexdigest()[:8]
    (tmp_path / f"anna ({sign}).ipynb").write_text("x", encoding="utf-8")  # made to be taken for the other
    students = [one.student for one in _submissions.find(tmp_path)[0]]
    assert len({_students._look(student) for student in students}) == len(students) == 8
    assert "ANNA" in students
    assert names[1] not in students  # it has a sign


def test_a_linked_folder_is_said_to_be_left_out(counted, tmp_path, capsys):
    folder, out = hand_in(tmp_path / "s", {"a": HONEST}), tmp_path / "grades.csv"
    (folder / "linked").symlink_to(tmp_path)
    grade(folder, out)
    assert capsys.readouterr().err == "Not graded, a link: linked\n"


CANVAS = """Student,ID,SIS User ID,SIS Login ID,Section,Heads (4411),Essay (4412),Final Score
    Points Possible,,,,,10.00,5.00,(read only)
,,,,,Manual Posting,,
"Lee, Ann",12,s-1,alee,A,,4,80
"Çelik, Ben",13,s-2,bcelik,A,3,,70
"Student, Test",99,,x,A,8,,
"""
MOODLE = """First name,Last name,ID number,Email address,Assignment: Heads (Real),Assignment: Heads (Real) twice
Ann,Lee,s-1,ann@example.org,-,4
Ben,Çelik,s-2,ben@example.org,-,-
"""
OLD_MOODLE = """First name,Surname,Email address,Heads
Ann,Lee,ann@example.org,5
Ben,Çelik
"""
BLACKBOARD = """"Last Name"|"First Name"|"Username"|"Heads [Total Pts: 10 Score] ;771"|"Essay [Total Pts: 5 Score] ;772"
"Lee"|"Ann"|"alee"|""|"4"
"Çelik"|"Ben"|"bcelik"|""|""
""".replace("|", "\t")


@pytest.mark.parametrize(
    ("export", "encoding", "column", "points", "filled"),
    [
        (
            CANVAS,
            "utf-8-sig",
            "Heads",
            {"leeann": 9, "çelikben": 0},
            "Student,ID,SIS User ID,SIS Login ID,Section,Heads (4411)\n    Points Possible,,,,,10.00\n"
            ",,,,,Manual Posting\n"
            '"Lee, Ann",12,s-1,alee,A,9\n"Çelik, Ben",13,s-2,bcelik,A,0\n"Student, Test",99,,x,A,\n',
        ),
        (
            MOODLE,
            "utf-8",
            "Assignment: Heads (Real)",
            {"Ann Lee": 9, "C\N{COMBINING CEDILLA}elik Ben": 7, "Nobody": 1},
            "First name,Last name,ID number,Email address,Assignment: Heads (Real)\n"
            "Ann,Lee,s-1,ann@example.org,9\nBen,Çelik,s-2,ben@example.org,7\n",
        ),
        (
            OLD_MOODLE,  # with another word for the name, and a line that ends early
            "utf-8",
            "Heads",
            {"Lee Ann": 9, "Ben Çelik": 7},
            "First name,Surname,Email address,Heads\nAnn,Lee,ann@example.org,9\nBen,Çelik,,7\n",
        ),
        (
            BLACKBOARD,
            "utf-16",
            "Heads",
            {"alee": 9},
            "Last Name\tFirst Name\tUsername\tHeads [Total Pts: 10 Score] ;771\n"
            "Lee\tAnn\talee\t9\nÇelik\tBen\tbcelik\t\n",
        ),
    ],
    ids=["Canvas", "Moodle", "old Moodle", "Blackboard"],
)
def test_a_course_gets_its_own_export_back_with_one_column_filled(tmp_path, export, encoding, column, points, filled):
    (tmp_path / "export.csv").write_text(export, encoding=encoding)
    text, left = _roster.filled(tmp_path / "export.csv", column, points)
    assert text.replace("\r\n", "\n") == filled
    assert left == (["Nobody"] if "Nobody" in points else [])


@pytest.mark.parametrize(
    ("export", "column", "points", "said"),
    [
        ("a,b\n1,2\n", "b", {}, "has no column of"),
        (CANVAS, "Nothing", {}, r"is the heading of 0 columns of \['Heads"),
        (MOODLE, "Assignment", {}, "is the heading of 2 columns of"),
        (MOODLE, "Assignment: Heads (Real)", {"Ann Lee": 1, "s-1": 2}, r"line 2, fits \['Ann Lee', 's-1'\]"),
        (CANVAS, "Heads", {"A": 1}, "lines 4 and 5 both fit 'A'"),
        (CANVAS, "Heads", {"Lee Ann": 1, "lee  ann": 2}, "'Lee Ann' and 'lee  ann' are one name but for"),
        (CANVAS, "ID", {}, "is the heading of 0 columns"),  # it says who they are
        ("Student,ID\n", "ID", {}, "has no students"),
        ('Student,ID\n"a,1\n', "ID", {}, "could not be read: Error"),
    ],
)
def test_an_export_that_does_not_fit_is_refused(tmp_path, export, column, points, said):
    (tmp_path / "export.csv").write_text(export, encoding="utf-8")
    with pytest.raises(ValueError, match=said):
        _roster.filled(tmp_path / "export.csv", column, points)


def test_the_command_fills_an_export(counted, tmp_path, capsys):
    folder, out = hand_in(tmp_path / "s", {"leeann_12_34_a": HONEST, "zed_1_2_a": HONEST}), tmp_path / "grades.csv"
    (tmp_path / "export.csv").write_text(CANVAS, encoding="utf-8")
    given = [str(folder), "--out", str(out), "--seed", "s", "--roster", str(tmp_path / "export.csv")]
    assert __main__.main([*given, "--column", "Heads"]) == 0
    worth = sum(checks.EXERCISES[name].points for name in FIRST)
    assert f'"Lee, Ann",12,s-1,alee,A,{worth}' in Path(f"{out}.roster.csv").read_text(encoding="utf-8")
    assert "Not in the roster: zed" in capsys.readouterr().err
    for wrong in ([], ["--column", "Nothing"]):
        with pytest.raises(SystemExit):
            __main__.main([*given, *wrong])


def test_each_student_gets_a_page_and_commented_notebooks(tmp_path, monkeypatch):
    """Of nobody else; and nothing in it runs, whatever a student wrote."""

    def found(task, _):
        who = (task.submission.student, task.submission.notebook)
        evil = f"<script>alert(1)</script> ```\n# {task.submission.student}'s"
        return [Row(*who, 1, one.name, 0, one.points, "value", "", evil, "code cell 1: <b>") for one in task.exercises]

    monkeypatch.setattr(_class, "_grade", found)
    monkeypatch.setattr(_class, "require_working", lambda *_: None)
    again = "checks.scores(scores)"
    work = {"anna/a": HONEST, "anna/b": [*HONEST, again], "Ben <b>": HONEST, "BEN _b_": ["x = 1"], "dan <b>": ["1"]}
    folder, out = hand_in(tmp_path / "s", work), tmp_path / "grades.csv"
    (folder / "dan <b>.ipynb").write_text("{", encoding="ascii")
    before = fingerprint(folder)
    rows = grade(folder, out, feedback=True)
    back = tmp_path / "grades.csv.feedback"
    assert fingerprint(folder) == before
    assert not back.stat().st_mode & 0o077
    assert not any("<b>" in path.read_text(encoding="utf-8") for path in back.rglob("*.html"))
    written = sorted(path.relative_to(back).as_posix() for path in back.rglob("*.*"))
    assert len({path.casefold() for path in written}) == len(written) == 8
    assert [path for path in written if path.startswith("anna/")] == [
        "anna/a.ipynb",
        "anna/b.ipynb",
        "anna/feedback.html",
    ]
    page = (back / "anna/feedback.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "# anna&#x27;s" in page
    assert "ben" not in page
    assert "default-src &#x27;none&#x27;" not in page
    assert "default-src 'none'" in page
    assert "another attempt counts" in page
    assert f"0 of {sum(row.out_of for row in rows if row.notebook == 'anna/a')} points in all." in page
    assert "could not be read" in (back / "dan _b_/feedback.html").read_text(encoding="utf-8")
    cells = json.loads((back / "anna/b.ipynb").read_text(encoding="utf-8"))["cells"]
    assert [cell["source"] for cell in cells if cell["cell_type"] == "code"] == [*HONEST, again]
    comments = [cell for cell in cells if cell["cell_type"] == "markdown"]
    assert len({cell["id"] for cell in comments}) == len(comments)
    texts = [cell["source"] for cell in comments]
    assert texts[0].startswith("**weighted_average: 0 of 1 points**\n\n````text\n<script>")  # as text, between fences
    assert cells[4]["source"] == texts[0]  # behind the check
    assert cells[-1]["source"].startswith("**scores: ")  # behind the last of them
    assert len(texts) == len(FIRST)
    for damaged in (DAMAGED["many values"], DAMAGED["cells of another kind"], b'{"cells": []}'):  # as for grading
        with pytest.raises(ValueError, match=r"more than|Error"):
            _feedback.comment(damaged, {})
    row = Row("a", "a", 1, "never_checked", 0, 2, "missing", "", "nothing named", "")
    cells = json.loads(_feedback.comment(notebook(["1"]).encode(), {"never_checked": row}))["cells"]
    assert cells[-1]["source"].startswith("**never_checked: 0 of 2 points**")
    assert "id" in cells[-1]
    old = notebook(["1"]).replace('"nbformat_minor": 5', '"nbformat_minor": 4')  # has no ids, and may have none
    assert "id" not in json.loads(_feedback.comment(old.encode(), {"never_checked": row}))["cells"][-1]


def test_a_page_holds_what_others_wrote_as_text():
    """A student's name, a file's, and what the checker says, wherever they stand."""
    evil = "</title><script>alert(1)</script><b title='\"&amp;"
    row = Row(evil, evil, 1, evil, 0, 1, "value", "", evil, evil, late="yes", days_late=1.0)
    made = _feedback.page(evil, [row, replace(row, exercise="", kind="unreadable")])
    plain = _feedback.page("x", [replace(row, student="x", notebook="x", exercise="y", diagnosis="x", notes="x")])
    assert "</title><script>" not in made
    assert "<b" not in made.replace("<body", "")
    assert made.count("<script") == plain.count("<script") == 0
    assert made.count("</title>") == plain.count("</title>") == 1
    assert made.count("&lt;/title&gt;&lt;script&gt;alert(1)&lt;/script&gt;&lt;b title=&#x27;&quot;&amp;amp;") == 8


def test_each_notebook_of_a_student_comes_back_with_its_own_comments(counted, tmp_path):
    """Also where names are alike once they are those of files, and where a run before had given others the folder."""
    work = {"anna/1/a": HONEST, "anna/2/a": OTHER_CHAPTER, "anna/A": ["x = 1"], "anna/a<": [*HONEST, "'<'"]}
    work |= {"anna/a_": [*HONEST, "'_'"], "ben/b": HONEST, "\N{CJK UNIFIED IDEOGRAPH-4E00}" * 82: HONEST}
    folder, out = hand_in(tmp_path / "s", work), tmp_path / "grades.csv"
    back = tmp_path / "grades.csv.feedback"
    grade(folder, out, feedback=True, student_pattern="anna|ben", chapters=[1, SPLITTING])
    came = {path.name: path.read_text(encoding="utf-8") for path in (back / "anna").glob("*.ipynb")}
    assert len({name.casefold() for name in came}) == 5
    assert {"anna_1_a.ipynb", "anna_2_a.ipynb"} <= came.keys()
    sources = [[cell["source"] for cell in json.loads(text)["cells"]] for text in came.values()]
    own = [[source for source in cells if not source.startswith("**")] for cells in sources]
    assert sorted(own) == sorted(cells for name, cells in work.items() if name.startswith("anna"))
    for cells, mine in zip(sources, own, strict=True):
        wanted = OF_SPLITTING if mine == OTHER_CHAPTER else [*FIRST, *OF_SPLITTING] if mine == ["x = 1"] else FIRST
        assert sorted(cell.split("*")[2].split(":")[0] for cell in cells if cell not in mine) == sorted(wanted)
    others = tmp_path / "t"
    hand_in(others, {"anna/c": HONEST})
    grade(others, out, feedback=True)
    assert sorted(path.name for path in (back / "anna").iterdir()) == ["c.ipynb", "feedback.html"]


HOSTILE = {
    "half a letter": notebook([*HONEST, "'\ud800'"]),
    **{f"{depth} deep": notebook(HONEST)[:-1] + ', "x": ' + "[" * depth + "]" * depth + "}" for depth in (900, 5000)},
    "no number": notebook(HONEST).replace('"nbformat": 4', '"nbformat": 1e999'),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_notebook_that_cannot_be_handed_back_costs_nobody_the_feedback(counted, tmp_path, name):
    folder, out = hand_in(tmp_path / "s", {"ben/b": HONEST}), tmp_path / "grades.csv"
    (folder / "anna").mkdir()
    (folder / "anna/a.ipynb").write_text(HOSTILE[name], encoding="ascii")
    grade(folder, out, feedback=True)
    back = tmp_path / "grades.csv.feedback"
    assert (back / "ben/b.ipynb").exists()
    assert (back / "anna/feedback.html").exists()


def test_what_a_student_s_code_says_in_half_letters_is_written(tmp_path):
    row = Row("a", "a", 1, "scores", 0, 1, "raised", "", "raised \ud800", "code cell 1: \udfff")
    for text in (_feedback.page("a", [row]), _feedback.comment(notebook(HONEST).encode(), {"scores": row})):
        write_whole(tmp_path / "written", text)
        assert r"raised \ud800" in (tmp_path / "written").read_text(encoding="utf-8")


def test_a_notebook_without_cells_comes_back_with_comments():
    row = Row("a", "a", 1, "scores", 0, 1, "missing", "", "nothing named scores", "")
    (cell,) = json.loads(_feedback.comment(notebook([]).encode(), {"scores": row}))["cells"]
    assert "nothing named scores" in cell["source"]
