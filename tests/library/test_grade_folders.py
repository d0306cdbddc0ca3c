"""What one student names and packs costs nobody else a grade: the teacher's side reads folders with its own rights."""

import csv
import json
import os
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from mhalib_classroom.grade import Row, __main__, _class, _files, _late, _sandbox, grade_class

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="links, pipes and paths of another kind")
DUE = datetime(2026, 11, 30, 18, tzinfo=timezone.utc)
WORK = {"cell_type": "code", "metadata": {}, "outputs": [], "source": "checks.scores(scores)"}
NOTEBOOK = json.dumps({"cells": [WORK], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


def right(task, _):
    who = (task.submission.student, task.submission.notebook)
    return [Row(*who, one.chapter, one.name, one.points, one.points, "solved", "", "", "") for one in task.exercises]


@pytest.fixture
def all_right(monkeypatch):
    monkeypatch.setattr(_class, "_grade", right)
    monkeypatch.setattr(_class, "require_working", lambda *_: None)


def hand_in(folder: Path, *names: str, when: datetime = DUE + timedelta(days=1)) -> Path:
    for name in names:
        path = folder / f"{name}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(NOTEBOOK, encoding="utf-8")
        os.utime(path, (when.timestamp(), when.timestamp()))
    return folder


def graded(folder: Path, out: Path, *more: str) -> dict[str, dict[str, str]]:
    """What the command writes of each notebook."""
    assert __main__.main([str(folder), "--out", str(out), "--seed", "s", *more]) == 0
    with open(out, encoding="utf-8-sig", newline="") as file:
        return {row["notebook"]: row for row in csv.DictReader(file)}


def nested(folder: Path, name: str, depth: int) -> None:
    """Folders within each other, also where their path is longer than the system takes."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=here)
        inside = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inside
    os.close(os.open("deep.ipynb", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)


@pytest.fixture
def removed():
    """A folder that pytest could not remove: its paths are too long."""
    made: list[Path] = []
    yield made.append
    for folder in made:
        subprocess.run(["rm", "-rf", str(folder)], check=True)


# As it was: RecursionError, and "--unsafe allows that"; OSError; RecursionError
@pytest.mark.parametrize(
    ("name", "depth", "said"),
    [("d", 990, "30 folders"), ("d" * 250, 20, "1000 bytes"), ("d", 5000, "30 folders"), ("d" * 250, 5, "1000 bytes")],
)
def test_one_student_s_nested_folders_cost_nobody_else_a_grade(all_right, removed, tmp_path, capsys, name, depth, said):
    folder = hand_in(tmp_path / "s", "ann/a", "ben/b", "zoe/z")
    nested(folder / "ben", name, depth)
    removed(folder / "ben")
    rows = graded(folder, tmp_path / "grades.csv", "--due", "2026-11-30", "--last", "--feedback")
    assert {one: row["points"] for one, row in rows.items() if row["exercise"]} == {
        "ann/a": "1",
        "ben/b": "1",
        "zoe/z": "1",
    }
    (left,) = (row for row in rows.values() if not row["exercise"])
    assert (left["student"], left["kind"], left["late"]) == ("ben", "unreadable", "unknown")
    assert said in left["diagnosis"]
    shown = capsys.readouterr()
    assert "Not graded: ben/d" in shown.err
    assert "unsafe" not in shown.err + shown.out


def test_many_folders_that_are_too_deep_have_one_row_for_each_student(all_right, tmp_path):
    folder = hand_in(tmp_path / "s", "ann/a", "ben/b")
    for student in ("ann", "ben"):
        for number in range(5):
            nested(folder / student, f"{number}", _files.DEEPEST + 1)
    rows = graded(folder, tmp_path / "grades.csv")
    assert [row["student"] for row in rows.values() if row["kind"] == "unreadable"] == ["ann", "ben"]


def test_a_folder_as_deep_as_allowed_is_read(all_right, tmp_path):
    folder = hand_in(tmp_path / "s", "/".join(["ann", *"d" * (_files.DEEPEST - 1), "a"]))
    (row,) = graded(folder, tmp_path / "grades.csv").values()
    assert row["points"] == "1"


@pytest.mark.skipif(os.name == "posix" and os.geteuid() == 0, reason="root may read all")
def test_a_folder_that_may_not_be_read_is_said(all_right, tmp_path):
    folder = hand_in(tmp_path / "s", "ann/a", "ben/b/c")
    (folder / "ben/b").chmod(0)
    rows = graded(folder, tmp_path / "grades.csv")
    (folder / "ben/b").chmod(0o700)
    assert rows["ben/b"]["kind"] == "unreadable"


@pytest.mark.parametrize("error", [RecursionError("too deep"), OSError("name too long"), RuntimeError("the scheduler")])
def test_no_mistake_but_a_missing_sandbox_offers_to_do_without(all_right, tmp_path, monkeypatch, capsys, error):
    def fails(*_, **__):
        raise error

    monkeypatch.setattr(__main__, "grade_class", fails)
    with pytest.raises((SystemExit, RecursionError)):
        __main__.main([str(tmp_path), "--seed", "s"])
    assert "unsafe allows" not in capsys.readouterr().err
    monkeypatch.setattr(__main__, "grade_class", lambda *_, **__: raises(_sandbox.NotStarted("gone")))
    with pytest.raises(SystemExit):
        __main__.main([str(tmp_path), "--seed", "s"])
    assert "unsafe allows" in capsys.readouterr().err


def raises(error: BaseException):
    raise error


IN_ANOTHER_PROCESS = """
import resource, sys
from pathlib import Path
from mhalib_classroom.grade import __main__, _class
sys.path.insert(0, sys.argv.pop(1))
from test_grade_folders import right
_class._grade, _class.require_working = right, lambda *_: None
resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
sys.exit(__main__.main(sys.argv[1:]))
"""


@pytest.mark.parametrize("kind", ["a device without end", "a pipe", "another student's", "a folder", "long"])
def test_a_time_that_is_no_file_is_not_read(tmp_path, kind):
    """It was read to its end, with all the machine's memory, or waited for, for ever. So another process does it."""
    folder = hand_in(tmp_path / "submitted", "ann/one/a", "ben/one/b")
    (folder / "ben/one/timestamp.txt").write_text("2026-01-01 06:00:00 UTC", encoding="ascii")
    note = folder / "ann/one/timestamp.txt"
    if kind == "a device without end":
        note.symlink_to("/dev/zero")
    elif kind == "a pipe":
        os.mkfifo(note)
    elif kind == "another student's":
        note.symlink_to("../../ben/one/timestamp.txt")
    elif kind == "a folder":
        note.mkdir()
    else:
        note.write_text("x" * 65 + "2026-01-01", encoding="ascii")
    out = tmp_path / "grades.csv"
    given = [str(folder), "--out", str(out), "--seed", "s", "--due", "2026-11-30T18:00Z", "--times-from", "nbgrader"]
    program = [sys.executable, "-c", IN_ANOTHER_PROCESS, str(Path(__file__).parent), *given]
    ran = subprocess.run(program, capture_output=True, text=True, timeout=100)
    assert ran.returncode == 0, ran.stderr
    with open(out, encoding="utf-8-sig", newline="") as file:
        rows = {row["student"]: (row["time_from"], row["late"]) for row in csv.DictReader(file)}
    assert rows == {"ann": ("file", "yes"), "ben": ("nbgrader", "no")}


LAYOUTS = {  # the notebook, and whether what lies beside it may be nbgrader's
    "submitted/ann/one/a": True,
    "Ann Lee_12_assignsubmission_file_/a": False,
    "ann/a": False,
    "ann/work/a": False,
    "submitted/ann/a": False,
    "ann/submitted/x/y/a": False,
}


@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("name", LAYOUTS)
def test_a_student_s_own_note_of_the_time_is_not_believed_but_listed(all_right, tmp_path, capsys, name, asked):
    folder = hand_in(tmp_path / "s", name)
    note = (folder / name).with_name("timestamp.txt")
    note.write_text("2026-01-01 06:00:00 UTC", encoding="ascii")
    more = ["--due", "2026-11-30T18:00Z"] + ["--times-from", "nbgrader"] * asked
    row = graded(folder, tmp_path / "grades.csv", *more)[name]
    believed = asked and LAYOUTS[name]
    assert (row["time_from"], row["late"]) == (("nbgrader", "no") if believed else ("file", "yes"))
    listed = f"Not graded, no notebook: {note.relative_to(folder)}" in capsys.readouterr().err
    assert listed is not believed


def test_a_note_does_not_beat_a_commit(all_right, tmp_path, monkeypatch):
    folder = hand_in(tmp_path / "s", "ann/a")
    (folder / "ann/.git").mkdir()
    (folder / "ann/timestamp.txt").write_text("2026-01-01 06:00:00 UTC", encoding="ascii")
    monkeypatch.setattr(_late, "_committed", lambda *_: DUE + timedelta(days=2))
    rows = grade_class(
        folder,
        tmp_path / "g.csv",
        seed="s",
        launcher=lambda _: [],
        deadlines=_late.Deadlines({None: DUE}),
        noted=True,
        progress=False,
    )
    assert {(row.time_from, row.days_late) for row in rows} == {("commit", 2.0)}


def test_times_from_needs_a_time_that_is_looked_at(tmp_path, capsys):
    with pytest.raises(SystemExit):
        __main__.main([str(tmp_path), "--seed", "s", "--times-from", "nbgrader"])
    assert "--times-from needs --due or --last" in capsys.readouterr().err
