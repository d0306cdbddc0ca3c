"""What one student names and packs costs nobody else a grade: the teacher's side reads folders with its own rights."""

import csv
import errno
import json
import os
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from mhalib_classroom.grade import Row, __main__, _class, _commits, _files, _journal, _late, _sandbox, grade_class

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


def test_a_time_that_is_no_file_is_not_read(tmp_path):
    """It was read to its end, with all the machine's memory, or waited for, for ever. So another process does it."""
    kinds = ("device without end", "pipe", "another student's", "folder", "long")
    folder = hand_in(tmp_path / "submitted", "ben/one/a")
    for day, kind in enumerate(kinds, start=2):  # each its own, for a time that many share says nothing
        hand_in(folder, f"{kind}/one/a", when=DUE + timedelta(days=day))
    (folder / "ben/one/timestamp.txt").write_text("2026-01-01 06:00:00 UTC", encoding="ascii")
    device, pipe, another, inner, long = (folder / kind / "one/timestamp.txt" for kind in kinds)
    device.symlink_to("/dev/zero")
    os.mkfifo(pipe)
    another.symlink_to("../../ben/one/timestamp.txt")
    inner.mkdir()
    long.write_text("x" * 65 + "2026-01-01", encoding="ascii")
    out = tmp_path / "grades.csv"
    given = [str(folder), "--out", str(out), "--seed", "s", "--due", "2026-11-30T18:00Z", "--times-from", "nbgrader"]
    program = [sys.executable, "-c", IN_ANOTHER_PROCESS, str(Path(__file__).parent), *given]
    ran = subprocess.run(program, capture_output=True, text=True, timeout=100)
    assert ran.returncode == 0, ran.stderr
    with open(out, encoding="utf-8-sig", newline="") as file:
        rows = {row["student"]: (row["time_from"], row["late"]) for row in csv.DictReader(file)}
    assert rows == {**dict.fromkeys(kinds, ("file", "yes")), "ben": ("nbgrader", "no")}


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
    monkeypatch.setattr(_commits, "_committed", lambda *_: DUE + timedelta(days=2))
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


DOWNLOADED = {
    "Canvas": "{0}_11_101_x.ipynb",
    "Moodle": "{0}_12_assignsubmission_file_/a.ipynb",
    "Blackboard": "Part 1_{0}_attempt_2026-11-23-10-20-30_a.ipynb",
}


# As it was: one student, named like the folder, and the best notebook counted for all
@pytest.mark.parametrize("within", ["submissions", "week 1/submissions"])
@pytest.mark.parametrize("system", DOWNLOADED)
def test_a_download_in_a_folder_of_its_own_is_a_class(all_right, tmp_path, capsys, system, within):
    names = [f"{within}/{DOWNLOADED[system].format(student)}".removesuffix(".ipynb") for student in ("annlee", "ben")]
    rows = graded(hand_in(tmp_path / "s", *names), tmp_path / "grades.csv")
    assert [rows[name]["student"] for name in names] == ["annlee", "ben"]
    assert f"{system} has named what is in '{within}'" in capsys.readouterr().err


def test_a_folder_that_is_not_all_of_a_download_is_one_student_s_and_the_teacher_is_told(all_right, tmp_path, capsys):
    """A student, too, can name files as Canvas does, and as Canvas would name another student's."""
    names = ["submissions/leeann_11_101_x", "submissions/coben_12_102_x", "zoe/ben_1_2_x", "ben/a"]
    rows = graded(hand_in(tmp_path / "s", *names), tmp_path / "grades.csv")
    assert [rows[name]["student"] for name in names] == ["submissions", "submissions", "zoe", "ben"]
    said = capsys.readouterr().err
    assert "'submissions' counts as one student, but files in it have the names that Canvas gives those of 2" in said
    assert "'zoe' counts" not in said


def test_a_student_s_files_named_as_a_system_s_do_not_turn_a_download_inside_out(all_right, tmp_path):
    """All there is of Moodle's download is one student's folder."""
    name = "Ann Lee_12_assignsubmission_file_/ben_1_2_x"
    assert graded(hand_in(tmp_path / "s", name), tmp_path / "grades.csv")[name]["student"] == "Ann Lee"


def test_the_teacher_is_told_of_names_that_look_alike(all_right, tmp_path, capsys):
    graded(hand_in(tmp_path / "s", "Ann/a", "\N{CYRILLIC CAPITAL LETTER A}nn/a", "ben/b"), tmp_path / "grades.csv")
    said = capsys.readouterr().err
    assert "These names look alike, and are of 2 students: Ann (" in said
    assert "ben" not in said


def test_what_a_student_hands_in_twice_is_run_once(tmp_path, monkeypatch):
    """But not what two students hand in: one of them may have used up all the time."""
    done = []
    monkeypatch.setattr(_class, "require_working", lambda *_: None)
    monkeypatch.setattr(_class, "_grade", lambda task, how: done.append(task.submission.student) or right(task, how))
    names = [*(f"ann/copy {number}" for number in range(10)), "ben/a"]
    folder = hand_in(tmp_path / "s", *names)
    (folder / "ann/copy 3.ipynb").write_text(NOTEBOOK.replace("checks.scores(scores)", "checks.scores(mine)"))
    rows = graded(folder, tmp_path / "grades.csv")
    assert rows.keys() == set(names)
    assert sorted(done) == ["ann", "ann", "ben"]


UNDER_ASCII = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "POSIX"}


@pytest.mark.skipif(sys.platform != "linux", reason="other systems' files have names in Unicode")
def test_names_beyond_ascii_are_graded_under_an_ascii_locale(tmp_path):
    folder, out = hand_in(tmp_path / "Wörter", "Zoë Müller/a"), tmp_path / "Wörter/grades.csv"
    given = [str(folder), "--out", str(out), "--seed", "s", "--feedback"]
    program = [sys.executable, "-c", IN_ANOTHER_PROCESS, str(Path(__file__).parent), *given]
    ran = subprocess.run(program, capture_output=True, text=True, timeout=100, env={**os.environ, **UNDER_ASCII})
    assert ran.returncode == 0, ran.stderr
    assert "Zo\\xeb M\\xfcller" in ran.stdout
    assert (tmp_path / "Wörter/grades.csv.feedback/Zoë Müller/feedback.html").exists()


def test_a_table_is_written_by_one_grader_at_a_time(all_right, tmp_path, monkeypatch, capsys):
    fcntl = pytest.importorskip("fcntl")
    folder, out = hand_in(tmp_path / "s", "ann/a"), tmp_path / "grades.csv"
    graded(folder, out)
    table = out.read_bytes()
    with open(tmp_path / "grades.csv.progress/lock", "ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(SystemExit):
            graded(hand_in(folder, "ben/b"), out)
    assert "another grader writes this table. Wait for it, or give another --out" in capsys.readouterr().err
    assert out.read_bytes() == table
    assert graded(folder, out).keys() == {"ann/a", "ben/b"}


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ((Path, "mkdir"), "Read-only file system"),
        ((_journal, "write_whole"), "No space left on device"),
        ((_class, "write_whole"), "No space left on device"),
    ],
)
def test_a_disk_that_takes_nothing_is_said_in_a_sentence(all_right, tmp_path, monkeypatch, capsys, place, said):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, said)

    folder = hand_in(tmp_path / "s", "ann/a")
    monkeypatch.setattr(*place, full)
    with pytest.raises(SystemExit):
        graded(folder, tmp_path / "grades.csv")
    assert f"{said}. What was graded until then is kept" in capsys.readouterr().err


def test_a_disk_that_takes_no_roster_is_said_in_a_sentence(all_right, tmp_path, monkeypatch, capsys):
    """The grades stand in their tables by then. As it was: a traceback."""

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "export.csv").write_text("Student,ID,Week 1\nann,1,\n", encoding="utf-8")
    monkeypatch.setattr(__main__, "write_whole", full)
    more = ["--roster", str(tmp_path / "export.csv"), "--column", "Week 1"]
    with pytest.raises(SystemExit):
        graded(hand_in(tmp_path / "s", "ann/a"), tmp_path / "grades.csv", *more)
    assert "The tables are written" in capsys.readouterr().err


def test_times_from_needs_a_time_that_is_looked_at(tmp_path, capsys):
    with pytest.raises(SystemExit):
        __main__.main([str(tmp_path), "--seed", "s", "--times-from", "nbgrader"])
    assert "--times-from needs --due or --last" in capsys.readouterr().err
