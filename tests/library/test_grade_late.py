"""How late work is: what is believed of time, deadlines, extensions, and what is taken off only where that is asked."""

import csv
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from mhalib_classroom import checks
from mhalib_classroom.grade import Row, __main__, _class, _commits, _late, grade_class

FIRST = ["weighted_average", "scores"]
DUE = datetime(2026, 11, 30, 18, tzinfo=timezone.utc)


def work(name: str) -> str:
    cells = [f"checks.{one}({one})" for one in FIRST] + [f"# {name}"]
    made = [{"cell_type": "code", "metadata": {}, "outputs": [], "source": source} for source in cells]
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


def hand_in(folder: Path, name: str, when: datetime | None = None) -> Path:
    path = folder / f"{name}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(work(name), encoding="utf-8")
    if when is not None:
        os.utime(path, (when.timestamp(), when.timestamp()))
    return path


@pytest.fixture
def all_right(monkeypatch):
    """Grade without a sandbox: everything is right, but in notebooks that are called "half"."""

    def right(task, _):
        who = (task.submission.student, task.submission.notebook)
        share = "half" not in task.submission.notebook
        return [
            Row(*who, one.chapter, one.name, share * one.points, one.points, "solved", "", "", "")
            for one in task.exercises
        ]

    monkeypatch.setattr(_class, "_grade", right)
    monkeypatch.setattr(_class, "require_working", lambda *_: None)


def grade(folder: Path, out: Path, given: _late.Deadlines | None, **more) -> list[Row]:
    return grade_class(folder, out, seed="s", launcher=lambda _: [], deadlines=given, progress=False, **more)


def of(rows: list[Row]) -> dict[str, tuple]:
    return {row.notebook: (row.time_from, row.late, row.days_late) for row in rows}


def test_each_system_is_believed_what_it_can_know(all_right, tmp_path):
    folder = tmp_path / "s"
    after, zone = DUE + timedelta(hours=36), datetime.now().astimezone().tzinfo
    hand_in(folder, "leeann_12_34_a", after)  # in Canvas' downloads a file has the time of the download
    hand_in(folder, "coben_LATE_13_35_a", DUE - timedelta(days=9))
    local = after.astimezone(zone).strftime("%Y-%m-%d-%H-%M-%S")
    hand_in(folder, f"Part 1_zed_attempt_{local}_a", DUE - timedelta(days=9))
    hand_in(folder, "submitted/eve/one/a", DUE)
    (folder / "submitted/eve/one/timestamp.txt").write_text("2026-12-01 06:00:00.000000 UTC", encoding="ascii")
    hand_in(folder, "kim/a", DUE - timedelta(seconds=1))
    hand_in(folder, "max/a", DUE + timedelta(days=3))
    rows = grade(folder, tmp_path / "grades.csv", _late.Deadlines({None: DUE}), noted=True)
    assert of(rows) == {
        "leeann_12_34_a": ("Canvas", "no", None),
        "coben_LATE_13_35_a": ("Canvas", "yes", None),
        f"Part 1_zed_attempt_{local}_a": ("Blackboard", "yes", 1.5),
        "submitted/eve/one/a": ("nbgrader", "yes", 0.5),
        "kim/a": ("file", "no", None),
        "max/a": ("file", "yes", 3.0),
    }
    assert {row.points for row in rows} == {1}  # the teacher decides
    with open(tmp_path / "grades.csv.students.csv", encoding="utf-8-sig", newline="") as file:
        book = {row["student"]: (row["points"], row["points_late"], row["days_late"]) for row in csv.DictReader(file)}
    assert book == {
        "leeann": ("2", "0", ""),
        "coben": ("2", "2", ""),
        "zed": ("2", "2", "1.5"),
        "submitted": ("2", "2", "0.5"),
        "kim": ("2", "0", ""),
        "max": ("2", "2", "3.0"),
    }


@pytest.mark.parametrize(
    ("name", "pattern", "source"),
    [
        ("ann/x_ann_attempt_2020-01-01-00-00-00", None, "file"),
        ("ann/x_1_2_a", None, "file"),
        ("Ann Lee_12_assignsubmission_file_/x_ann_attempt_2020-01-01-00-00-00", None, "file"),
        ("Ann Lee_12_assignsubmission_file_x_ann_attempt_2020-01-01-00-00-00", None, "file"),
        ("Part 1_alee_attempt_2026-12-02-10-20-30_x_12_assignsubmission_file_a", None, "Blackboard"),
        ("week1-ann/x_ann_attempt_2020-01-01-00-00-00", r"week\d-(\w+)/", "file"),
        ("week1-ann/x_1_2_a", r"week\d-(\w+)/", "file"),
        ("leeann_LATE_12_34_x_attempt_2020-01-01-00-00-00", None, "Canvas"),
        ("leeann_LATE_12_34_x_attempt_2020-01-01-00-00-00", r"[^_]+", "Canvas"),
        ("week1/leeann_LATE_12_34_a", r"week\d/([^_]+)_", "Canvas"),
        ("week1/Part 1_alee_attempt_2026-12-02-10-20-30_a", r"_(\w+)_attempt_", "Blackboard"),
        ("week1/Part 1_alee_attempt_2026-12-02-10-20-30_x_attempt_2020-01-01-00-00-00", r"_(alee)_", "Blackboard"),
    ],
)
def test_a_file_s_name_says_a_time_only_where_the_system_wrote_it(all_right, tmp_path, name, pattern, source):
    """And not the student, who chooses what stands behind it, or the name of a file in a folder."""
    hand_in(tmp_path / "s", name, DUE + timedelta(days=3))
    rows = grade(tmp_path / "s", tmp_path / "grades.csv", _late.Deadlines({None: DUE}), student_pattern=pattern)
    assert {(row.time_from, row.late) for row in rows} == {(source, "yes")}


def test_without_a_deadline_no_time_is_looked_at(all_right, tmp_path, monkeypatch):
    monkeypatch.setattr(_late.Times, "of", lambda *_: 1 / 0)
    hand_in(tmp_path / "s", "ann/a")
    assert of(grade(tmp_path / "s", tmp_path / "grades.csv", None)) == {"ann/a": ("", "", None)}
    head = Path(f"{tmp_path}/grades.csv.students.csv").read_text(encoding="utf-8-sig").splitlines()[0]
    assert head == "student,points,out_of,weighted_average,scores"


def test_files_of_one_download_say_nothing(all_right, tmp_path, capsys):
    for place, name in enumerate(("ann", "ben", "kim")):
        hand_in(tmp_path / "s", f"{name}/a", DUE + timedelta(days=2, seconds=place))
    rows = grade(tmp_path / "s", tmp_path / "grades.csv", _late.Deadlines({None: DUE}, percent_per_day=50))
    assert set(of(rows).values()) == {("file", "unknown", None)}
    assert {row.points for row in rows} == {1}
    assert "3 files have times within five minutes of each other" in capsys.readouterr().err
    known = {("ann", None): DUE + timedelta(days=1), ("zoe", None): DUE}
    rows = grade(tmp_path / "s", tmp_path / "grades.csv", _late.Deadlines({None: DUE}, known=known))
    assert of(rows)["ann/a"] == ("list", "yes", 1.0)
    assert of(rows)["ben/a"] == ("file", "unknown", None)
    assert "not among the students: zoe" in capsys.readouterr().err
    hand_in(tmp_path / "s", "ben/a", DUE - timedelta(days=1))
    rows = grade(tmp_path / "s", tmp_path / "grades.csv", _late.Deadlines({None: DUE}))
    assert [row.late for row in rows if row.student == "ben"] == ["no", "no"]


def git(folder: Path, *arguments: str, when: datetime = DUE, given: bytes = b"") -> bytes:
    stamp = f"{int(when.timestamp())} +0000"
    names = {f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1", **names}
    environment |= {"GIT_AUTHOR_DATE": stamp, "GIT_COMMITTER_DATE": stamp}
    ran = subprocess.run(["git", *arguments], cwd=folder, env=environment, check=True, capture_output=True, input=given)
    return ran.stdout


def sign(folder: Path) -> None:
    """Give the last commit a signature, which git has a program look at, if the repository's settings say so."""
    head, _, message = git(folder, "cat-file", "commit", "HEAD").partition(b"\n\n")
    signature = b"\ngpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----"
    made = git(folder, "hash-object", "-t", "commit", "-w", "--stdin", given=head + signature + b"\n\n" + message)
    git(folder, "reset", "-q", made.decode().strip())


@pytest.mark.skipif(sys.platform == "win32", reason="a repository made with another shell's rights")
def test_a_repository_has_the_time_of_the_commit_and_runs_nothing(all_right, tmp_path, capsys):
    """Its settings could name a program; and what was committed after the notebook does not make that late."""
    folder, ran = tmp_path / "s", tmp_path / "ran"
    for name, packs in (("ann", False), ("ben", True)):
        path = hand_in(folder, f"{name}/work/Übung a")
        git(path.parents[1], "init", "-q", "-b", "main")
        git(path.parents[1], "add", ".")
        git(path.parents[1], "commit", "-qm", "x", when=DUE + timedelta(hours=12))
        sign(path.parents[1])
        (folder / name / "README.md").write_text("x", encoding="ascii")
        git(path.parents[1], "add", ".")
        git(path.parents[1], "commit", "-qm", "x", when=DUE + timedelta(days=5))
        if packs:
            git(path.parents[1], "gc", "-q")
            git(path.parents[1], "pack-refs", "--all")
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {ran}\ncat\n", encoding="ascii")
    program.chmod(0o755)
    with open(folder / "ann/.git/config", "a", encoding="ascii") as file:
        file.write(f"[core]\n\tfsmonitor = {program}\n\tpager = {program}\n[log]\n\tshowSignature = true\n")
        file.write(f"[gpg]\n\tprogram = {program}\n[uploadpack]\n\tpackObjectsHook = {program}\n")
    hand_in(folder, "ann/work/b")  # was never committed: the last commit has to do
    hand_in(folder, "kim/a", DUE)
    (folder / "kim/.git").mkdir()
    (folder / "kim/.git/HEAD").write_text("ref: ../../../ann/.git/HEAD", encoding="ascii")
    rows = grade(folder, tmp_path / "grades.csv", _late.Deadlines({None: DUE}))
    assert of(rows) == {
        "ann/work/Übung a": ("commit", "yes", 0.5),
        "ann/work/b": ("commit", "yes", 5.0),
        "ben/work/Übung a": ("commit", "yes", 0.5),
        "kim/a": ("commit", "unknown", None),
    }
    assert not ran.exists()
    assert capsys.readouterr().err.count("no notebook") == 2  # the READMEs, and nothing of .git


@pytest.mark.skipif(sys.platform == "win32", reason="the slow git is a script of another shell")
def test_a_repository_in_which_git_takes_for_ever_costs_a_minute_at_most_and_is_told_of(
    all_right, tmp_path, capsys, monkeypatch
):
    """However many notebooks and repositories a student sends, and whether attempts are sorted by time, too."""
    folder = tmp_path / "s"
    for name in ("ann/a", "ann/b", "ben"):
        for number in range(5):
            hand_in(folder, f"{name}/{number}")
        git(folder / name, "init", "-q", "-b", "main")
        git(folder / name, "add", ".")
        git(folder / name, "commit", "-qm", "x", when=DUE)
    slow = tmp_path / "bin/git"
    slow.parent.mkdir()
    real = shutil.which("git")
    slow.write_text(
        f'#!/bin/sh\ngrep -q /ann/ "${{1#--git-dir=}}/objects/info/alternates" && exec sleep 60\nexec {real} "$@"\n',
        encoding="ascii",
    )
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(_commits, "SECONDS", 3.0)
    start = time.monotonic()
    rows = grade(folder, tmp_path / "grades.csv", _late.Deadlines({None: DUE}), last=True)
    assert time.monotonic() - start < 20
    assert {(row.student, row.time_from, row.late) for row in rows} == {
        ("ann", "commit", "unknown"),
        ("ben", "commit", "no"),
    }
    said = capsys.readouterr().err
    assert said.count("Asking git when notebooks were committed") == 1
    assert "git took more than 3 seconds in the repositories of ann" in said
    assert "of ben" not in said


def test_extensions_and_deadlines_by_chapter(tmp_path):
    (tmp_path / "due.csv").write_text("chapter,time\n1,2026-11-30\n5,2026-12-07T18:00+01:00\n", encoding="utf-8-sig")
    (tmp_path / "more.csv").write_text(
        "student,time\nAnn Lee,+2\nBen,2026-12-24T00:00Z\nben,+0.5 days,5\n\n", encoding="utf-8"
    )
    given = _late.deadlines(str(tmp_path / "due.csv"), tmp_path / "more.csv")
    end = datetime(2026, 11, 30, 23, 59, 59, 999999).astimezone()
    fifth = datetime(2026, 12, 7, 17, tzinfo=timezone.utc)
    assert given.of("kim", 1) == end
    assert given.of("kim", 5) == fifth
    assert given.of("kim", 2) is None
    assert given.of("ann  LEE", 1) == end + timedelta(days=2)
    assert given.of("BEN", 1) == datetime(2026, 12, 24, tzinfo=timezone.utc)
    assert given.of("ben", 5) == fifth + timedelta(hours=12)
    assert given.of("ben", 2) is None
    assert _late.deadlines("2026-11-30T18:00Z").of("kim", 9) == DUE
    for text, said in (
        ("1,tomorrow", "line 2: 'tomorrow' is no time such as"),
        ("1,0001-01-01T00:00+14:00", "line 2: '0001-01-01T00:00.14:00' is no time such as"),
        ("one,2026-11-30", "'one' is not the number of a chapter"),
        ("1;2026-11-30", "line 2: '1;2026-11-30' is not  chapter,time"),
    ):
        (tmp_path / "due.csv").write_text(f"chapter,time\n{text}\n", encoding="utf-8")
        with pytest.raises(ValueError, match=said):
            _late.deadlines(str(tmp_path / "due.csv"))
    with pytest.raises(ValueError, match="--due: 'nowhere' is no time"):
        _late.deadlines("nowhere")
    with pytest.raises(ValueError, match="could not be read"):
        _late.deadlines("2026-11-30", tmp_path / "none.csv")
    with pytest.raises(ValueError, match="not between 0 and 100"):
        _late.deadlines("2026-11-30", percent_per_day=101)


def test_a_day_ends_at_midnight(all_right, tmp_path):
    midnight = datetime(2026, 12, 1).astimezone()
    hand_in(tmp_path / "s", "ann/a", midnight - timedelta(seconds=0.5))
    hand_in(tmp_path / "s", "ben/a", midnight)
    rows = grade(tmp_path / "s", tmp_path / "grades.csv", _late.deadlines("2026-11-30"))
    assert {row.student: row.late for row in rows} == {"ann": "no", "ben": "yes"}


def test_a_time_that_no_clock_shows_costs_nobody_the_table(all_right, tmp_path):
    """nbgrader's note of the time lies among the student's files."""
    folder = tmp_path / "submitted"
    hand_in(folder, "ann/one/a", DUE)
    (folder / "ann/one/timestamp.txt").write_text("0001-01-01 00:00+14:00", encoding="ascii")
    rows = grade(folder, tmp_path / "grades.csv", _late.Deadlines({None: DUE}), noted=True)
    assert of(rows) == {"ann/one/a": ("file", "no", None)}


def test_points_are_taken_off_for_each_day_begun_and_the_better_attempt_counts(all_right, tmp_path):
    folder, out = tmp_path / "s", tmp_path / "grades.csv"
    hand_in(folder, "ann/late", DUE + timedelta(days=1, minutes=1))
    hand_in(folder, "ann/half", DUE - timedelta(days=1))
    hand_in(folder, "ben/a late one", DUE + timedelta(days=1))
    hand_in(folder, "ben/in time", DUE)
    hand_in(folder, "kim/very late", DUE + timedelta(days=40))
    rows = grade(folder, out, _late.Deadlines({None: DUE}, percent_per_day=15))
    assert {row.notebook: row.points for row in rows} == {
        "ann/late": 0.7,
        "ann/half": 0,
        "ben/a late one": 0.85,
        "ben/in time": 1,
        "kim/very late": 0,
    }
    with open(f"{out}.students.csv", encoding="utf-8-sig", newline="") as file:
        book = {row["student"]: row for row in csv.DictReader(file)}
    assert {name: row["points"] for name, row in book.items()} == {"ann": "1.4", "ben": "2", "kim": "0"}
    assert book["ben"]["points_late"] == "0"
    rows = grade(folder, out, _late.Deadlines({None: DUE}))  # what was taken off is not kept
    assert {row.points for row in rows if "half" not in row.notebook} == {1}
    with open(f"{out}.students.csv", encoding="utf-8-sig", newline="") as file:
        assert {row["student"]: row["points_late"] for row in csv.DictReader(file)}["ben"] == "0"


def test_the_last_attempt_is_the_one_that_was_handed_in_last(all_right, tmp_path):
    """By what the name says, and not by the file."""
    for day, name in ((3, "half"), (1, "all")):
        hand_in(tmp_path / "s", f"Part 1_zed_attempt_2026-11-2{day}-10-00-00_{name}", DUE - timedelta(days=day))
    rows = grade(tmp_path / "s", tmp_path / "grades.csv", None, last=True)
    assert [row.points for row in rows] == [1, 1, 0, 0]


def test_the_command_takes_deadlines_and_the_student_reads_of_them(all_right, tmp_path, capsys):
    folder, out = tmp_path / "s", tmp_path / "grades.csv"
    hand_in(folder, "ann/a", DUE + timedelta(hours=12))
    given = [str(folder), "--out", str(out), "--seed", "s", "--unsafe"]
    (tmp_path / "more.csv").write_text("ann,+1\n", encoding="utf-8")
    assert __main__.main([*given, "--due", "2026-11-30T18:00Z", "--late-percent", "25", "--feedback"]) == 0
    assert "1.5 of   2  ann" in capsys.readouterr().out
    page = Path(f"{out}.feedback/ann/feedback.html").read_text(encoding="utf-8")
    assert "0.75 of 1 points, handed in 0.5 days late." in page
    assert __main__.main([*given, "--due", "2026-11-30T18:00Z", "--extensions", str(tmp_path / "more.csv")]) == 0
    assert "   2 of   2  ann" in capsys.readouterr().out
    for wrong in (["--late-percent", "5"], ["--due", "soon"], ["--due", "2026-11-30", "--late-percent", "-1"]):
        with pytest.raises(SystemExit):
            __main__.main([*given, *wrong])


def test_many_files_that_are_no_notebooks_are_counted_and_not_listed(all_right, tmp_path, capsys):
    hand_in(tmp_path / "s", "ann/a")
    for number in range(_class.MOST_LEFT_OUT + 30):
        (tmp_path / f"s/ann/{number}.txt").write_text("x", encoding="ascii")
    grade(tmp_path / "s", tmp_path / "grades.csv", None)
    said = capsys.readouterr().err.splitlines()
    assert said[-1] == "Not graded: 30 files more that are no notebooks"
    assert len(said) == _class.MOST_LEFT_OUT + 1


def test_all_are_graded_out_of_what_was_asked(all_right, tmp_path, capsys):
    """Who hands in one of two notebooks has not all points there are."""
    folder, out = tmp_path / "s", tmp_path / "grades.csv"
    hand_in(folder, "ann/a")
    worth = sum(one.points for one in checks.EXERCISES.values() if one.chapter in (1, 2))
    given = [str(folder), "--out", str(out), "--seed", "s", "--unsafe", "--feedback"]
    (tmp_path / "points.csv").write_text("scores,5\nattend,0\n", encoding="utf-8")
    for more, out_of in (
        ([], 2),
        (["--chapter", "1", "--chapter", "2"], worth),
        (["--chapter", "1", "--chapter", "2", "--points", str(tmp_path / "points.csv")], worth + 4 - 2),
    ):
        assert __main__.main([*given, *more]) == 0
        points = 6 if "--points" in more else 2
        assert f"{points} of {out_of:3d}  ann" in capsys.readouterr().out
        book = Path(f"{out}.students.csv").read_text(encoding="utf-8-sig").splitlines()
        assert book[1].startswith(f"ann,{points},{out_of},")
        page = Path(f"{out}.feedback/ann/feedback.html").read_text(encoding="utf-8")
        assert f"{points} of {out_of} points in all." in page


def test_a_copy_of_the_repository_is_told_of_in_a_line_and_not_handed_back(all_right, tmp_path, capsys):
    folder, out = tmp_path / "s", tmp_path / "grades.csv"
    hand_in(folder, "ann/exercises/01_a")
    solved = {"cell_type": "code", "metadata": {"tags": ["exercise"]}, "outputs": [], "source": "# BEGIN SOLUTION"}
    for number in range(5):
        path = hand_in(folder, f"ann/chapters/{number}")
        path.write_text(json.dumps({"cells": [solved], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    hand_in(folder, "ben/a")
    (folder / "ben/b.ipynb").write_text("{", encoding="ascii")
    rows = grade(folder, out, None, feedback=True)
    assert len(rows) == 2 * 2 + 5 + 1
    said = capsys.readouterr().err.splitlines()
    assert [line[:30] for line in said] == ["Not graded: ann/chapters/0: th", "Not graded: ben/b: the noteboo"]
    assert said[0].endswith("; and 4 more of ann")
    written = sorted(path.name for path in (tmp_path / "grades.csv.feedback/ann").iterdir())
    assert written == ["01_a.ipynb", "feedback.html"] or written == ["exercises_01_a.ipynb", "feedback.html"]
    page = (tmp_path / "grades.csv.feedback/ann/feedback.html").read_text(encoding="utf-8")
    assert page.count("<h2>Not graded</h2>") == 1
    assert page.count("<li>") == 5


def test_a_late_row_is_still_a_row(all_right):
    """What `counted` prefers at equal points."""
    row = Row("a", "a", 1, "scores", 1, 1, "solved", "", "", "", late="yes", days_late=1.0)
    in_time = replace(row, late="no", days_late=None)
    for rows in ([row, in_time], [in_time, row]):
        assert _class.counted(rows)["a"]["scores"] is in_time
    assert checks.EXERCISES["scores"].points == 1


def test_the_teachers_list_counts_more_than_what_canvas_marks(all_right, tmp_path):
    hand_in(tmp_path / "s", "coben_LATE_13_35_a")
    hand_in(tmp_path / "s", "leeann_12_34_a")
    known = {("coben", None): DUE, ("leeann", None): DUE + timedelta(seconds=1)}
    rows = grade(tmp_path / "s", tmp_path / "grades.csv", _late.Deadlines({None: DUE}, {}, known, 10))
    assert of(rows) == {"coben_LATE_13_35_a": ("list", "no", None), "leeann_12_34_a": ("list", "yes", 0.0)}
    assert {row.student: row.points for row in rows} == {"coben": 1, "leeann": 0.9}
