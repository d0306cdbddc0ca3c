"""The exercises as courses for nbgrader and Otter, by our own reading of their formats; once a week both grade one."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import nbformat
import pytest
from test_colab import make_host

from mhalib_classroom import checks
from tools.notebooks import notebooks
from tools.teaching import course, exercises

CHAPTER = notebooks.CHAPTERS / "04_reshape_trick.ipynb"
SEED = "of the course"
NBGRADER = "nbgrader==0.9.6"
OTTER = "otter-grader[grading]==7.0.0"
SCORES = """
import sys
from nbgrader.api import Gradebook
with Gradebook("sqlite:///gradebook.db") as book:
    for one in book.assignment_submissions(sys.argv[1]):
        print(one.student.id, one.score, one.max_score)
"""


def as_released(source: str) -> str:
    """What nbgrader makes of a cell with the course's settings."""
    stub = re.search(r'"python": "(.*)"', course.SETTINGS)[1]
    cleared = re.sub(r"^( *)### BEGIN SOLUTION\n.*?### END SOLUTION(\n|\Z)", rf"\1{stub}\n", source, flags=re.S | re.M)
    return re.sub(r"### BEGIN HIDDEN TESTS\n.*?### END HIDDEN TESTS(\n|\Z)", "", cleared, flags=re.S).rstrip()


@pytest.fixture(scope="module")
def made() -> nbformat.NotebookNode:
    return course.course_notebook(CHAPTER, SEED)


def test_every_cell_is_what_nbgrader_wants(made: nbformat.NotebookNode) -> None:
    nbformat.validate(made)
    told = [cell.metadata["nbgrader"] for cell in made.cells]
    ids = [one["grade_id"] for one in told]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]+", one) for one in ids)
    for one in told:
        assert set(one) - {"points"} == {"schema_version", "grade_id", "solution", "locked", "task", "grade"}
        assert one["schema_version"] == 3
        assert ("points" in one) == one["grade"] == one["grade_id"].startswith("test-")
        assert one["locked"] != one["solution"]
    names = [name for name, exercise in checks.EXERCISES.items() if exercise.chapter == int(CHAPTER.name[:2])]
    assert sorted(name for name, one in zip(ids, told, strict=True) if one["solution"]) == sorted(names)
    points = {one["grade_id"].removeprefix("test-"): one["points"] for one in told if one["grade"]}
    assert points == {name: checks.EXERCISES[name].points for name in names}
    for name in names:  # nbgrader grades what is directly behind
        assert ids.index(f"test-{name}") == ids.index(name) + 1


def test_the_teachers_notebook_is_solved_and_the_students_says_the_mistake(
    made: nbformat.NotebookNode, capsys: pytest.CaptureFixture
) -> None:
    code = [cell for cell in made.cells if cell.cell_type == "code" and "set-up" not in cell.metadata.get("tags", [])]
    space: dict = {}
    for cell in code:
        exec(cell.source, space)
    assert capsys.readouterr().out.count("Verified") == 2 * sum(cell.metadata["nbgrader"]["grade"] for cell in code)
    [seed] = {found for cell in code for found in re.findall(r'seed="(\w+)"', cell.source)}
    other = course.course_notebook(notebooks.CHAPTERS / "01_weighted_average.ipynb", SEED)
    assert not any(seed in cell.source or SEED in cell.source for cell in other.cells)  # for feedback shows it
    student: dict = {}
    said = {}
    for cell in code:
        released = as_released(cell.source)
        assert "SOLUTION" not in released
        assert "seed" not in released
        if cell.metadata["nbgrader"]["grade"]:
            with pytest.raises(checks.CheckFailed) as failed:
                exec(released, student)
            said[cell.metadata["nbgrader"]["grade_id"]] = str(failed.value)
        else:
            exec(released, student)
    assert "still the stub" in said["test-merge_heads"]
    exec("def merge_heads(x):\n    return x.reshape(x.shape[0], x.shape[2], -1)", student)
    with pytest.raises(checks.CheckFailed, match="you reshaped straight to"):
        exec("checks.merge_heads(merge_heads)", student)


def test_every_exercise_becomes_a_solution_and_what_a_student_is_given() -> None:
    """All that a student gets in the book's own notebook, and the same solution."""
    seen = []
    for path in sorted(notebooks.CHAPTERS.glob("[0-9]*.ipynb")):
        for cell in json.loads(path.read_bytes())["cells"]:
            if exercises.EXERCISE not in cell["metadata"].get("tags", []):
                continue
            source = "".join(cell["source"])
            name = re.findall(r"checks\.(\w+)\(", source)[-1]
            seen.append(name)
            both = course.solved_and_given(source, name)
            compile(both, name, "exec")
            given = exercises.without_solution(source).rpartition("\nchecks.")[0].rstrip().splitlines()
            kept = [line for line in as_released(both).splitlines() if line.strip() != exercises.STUB[0]]
            assert kept == [line for line in given if line.strip() != exercises.STUB[0]]
            region = re.sub(r" *### END SOLUTION.*", "", both.replace("    ### BEGIN SOLUTION\n", ""), flags=re.S)
            assert region.rstrip() == exercises.with_solution(source).rpartition("\nchecks.")[0].rstrip()
    assert sorted(seen) == sorted(checks.EXERCISES)


def test_what_would_be_reached_behind_a_solution_is_refused() -> None:
    begin, end = exercises.BEGIN, exercises.END
    for source, said in (
        (f"def f(x):\n    {begin}\n    x += 1\n    {end}\n\n\nchecks.f(f)", "does not end in a return"),
        (f"{begin}\ndef f(x):\n    return 1\n# INSTEAD\n# def f(y):\n#     return 2\n{end}\n\nchecks.f(f)", "two ways"),
        (f"{begin}\nf = 1\n{end}\nchecks.f(f)", "there is no function f"),
    ):
        with pytest.raises(ValueError, match=said):
            course.solved_and_given(source, "f")


def test_a_course_keeps_its_seed_and_its_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    seeds = []
    monkeypatch.setattr(course, "course_notebook", lambda path, seed: seeds.append(seed))
    course.main(["nbgrader", "--out", str(tmp_path / "c")])
    (tmp_path / "c" / course.SETTINGS_FILE).write_text("mine", encoding="utf-8")
    course.main(["nbgrader", "--out", str(tmp_path / "c")])
    assert len(set(seeds)) == 1
    assert len(seeds[0]) >= 16
    assert (tmp_path / "c" / course.SETTINGS_FILE).read_text(encoding="utf-8") == "mine"
    assert (tmp_path / "c" / course.SEED_FILE).stat().st_mode & 0o077 == 0
    (tmp_path / "c" / course.SEED_FILE).write_text('x")', encoding="ascii")
    with pytest.raises(SystemExit, match="write a line of letters and digits"):
        course.main(["nbgrader", "--out", str(tmp_path / "c")])
    capsys.readouterr()


def test_a_hub_opens_each_notebook(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """As nbgitpuller's own documentation writes links: repository, branch, and what is opened below the clone."""
    monkeypatch.setenv("BOOK_REPOSITORY", "your-name/your-copy")
    url, branch = "https://github.com/your-name/your-copy", "main"
    course.main(["links", "https://hub.example.edu/class/"])
    links = capsys.readouterr().out.split()
    assert len(links) == len(list(exercises.FOLDER.glob("*.ipynb")))
    for link, path in zip(links, sorted(exercises.FOLDER.glob("*.ipynb")), strict=True):
        parts = urlsplit(link)
        assert (parts.netloc, parts.path) == ("hub.example.edu", "/class/hub/user-redirect/git-pull")
        opened = f"lab/tree/{url.rpartition('/')[2]}/exercises/{path.name}"
        assert parse_qs(parts.query) == {"repo": [url], "branch": [branch], "urlpath": [opened]}
    page = (notebooks.CHAPTERS / "teaching.md").read_text(encoding="utf-8")
    assert course.hub_link("https://hub.example.edu", "exercises/04_reshape_trick.ipynb") in page
    with pytest.raises(SystemExit, match="is not an address"):
        course.main(["links", "hub.example.edu"])
    monkeypatch.setenv("BOOK_REPOSITORY", "")
    with pytest.raises(SystemExit, match="no address to clone: set BOOK_REPOSITORY=owner/name"):
        course.main(["links", "https://hub.example.edu"])


def test_otter_has_a_test_for_each_exercise_and_no_two_chapters_share_a_seed(tmp_path: Path) -> None:
    count = course.write_otter(tmp_path)
    tests = list(tmp_path.glob("*/tests/*.py"))
    assert sorted(path.stem for path in tests) == sorted(checks.EXERCISES)
    assert len({re.findall(r'seed="(\w+)"', path.read_text(encoding="utf-8"))[0] for path in tests}) == count
    assert not any("seed=" in path.read_text(encoding="utf-8") for path in tmp_path.glob("*/*.ipynb"))


def handed_in(*, mended: str = "") -> nbformat.NotebookNode:
    """A student's notebook of the chapter: untouched, or with one exercise as the book solves it."""
    cells = nbformat.read(CHAPTER, as_version=4).cells
    exercise = [cell.source for cell in cells if exercises.EXERCISE in cell.metadata.get("tags", [])]
    solved = {exercises.without_solution(one): exercises.with_solution(one) for one in exercise}
    notebook = exercises.student_notebook(CHAPTER)
    for cell in notebook.cells:
        if mended and f"checks.{mended}({mended})" in cell.source:
            cell.source = solved[cell.source]
    return notebook


class Host:
    """An environment of its own for a grader: what it brings along is no business of the book's."""

    def __init__(self, folder: Path, cwd: Path, package: str) -> None:
        self.python, self.cwd = make_host(folder), cwd
        path = os.pathsep.join([str(self.python.parent), os.environ["PATH"]])  # nbgrader calls alembic by name
        self.environment = {**os.environ, "PATH": path, "PYTHONPATH": str(notebooks.ROOT)}
        self("-m", "pip", "install", "--quiet", package)

    def __call__(self, *words: str | Path) -> str:
        asked = {"cwd": self.cwd, "env": self.environment, "capture_output": True, "text": True, "check": False}
        done = subprocess.run([self.python, *words], **asked)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout


@pytest.mark.network
@pytest.mark.weekly("tools/teaching/course.py")
@pytest.mark.skipif(sys.platform == "win32", reason="the host is made of symbolic links")
def test_nbgrader_itself_releases_and_grades_it(tmp_path: Path) -> None:
    assignment = CHAPTER.stem
    course.write_course(tmp_path / "c")
    run = Host(tmp_path / "host", tmp_path / "c", NBGRADER)
    run("-m", "nbgrader", "generate_assignment", assignment)
    for student, handed_in in (("keeps going", "release"), ("solved", "source"), ("untouched", "release")):
        shutil.copytree(tmp_path / "c" / handed_in / assignment, tmp_path / "c/submitted" / student / assignment)
    path = tmp_path / "c/submitted/keeps going" / assignment / CHAPTER.name
    written = nbformat.read(path, as_version=4)
    next(cell for cell in written.cells if "def split_heads" in cell.source).source += "\n\n\nchecks.keep_going()"
    nbformat.write(written, path)
    run("-m", "nbgrader", "autograde", assignment)
    worth = float(sum(one.points for one in checks.EXERCISES.values() if one.chapter == 4))
    scores = [line.rsplit(" ", 2) for line in run("-c", SCORES, assignment).splitlines()]
    assert {name: (float(score), float(most)) for name, score, most in scores} == {
        "keeps going": (0.0, worth),  # no check raises there, but the one that nobody sees
        "solved": (worth, worth),
        "untouched": (0.0, worth),
    }


@pytest.mark.network
@pytest.mark.weekly("tools/teaching/course.py")
@pytest.mark.skipif(sys.platform == "win32", reason="the host is made of symbolic links")
def test_otter_itself_grades_it(tmp_path: Path) -> None:
    """The students' notebook asks the checks to keep going, so nothing in it raises, solved or not."""
    course.write_otter(tmp_path / "c")
    folder = tmp_path / "c" / CHAPTER.stem
    run = Host(tmp_path / "host", folder, OTTER)
    run("-m", "otter", "generate")
    for mended, points in (("", 0), ("merge_heads", checks.EXERCISES["merge_heads"].points)):
        nbformat.write(handed_in(mended=mended), tmp_path / "mine.ipynb")
        run("-m", "otter", "run", "-a", "autograder.zip", "-o", tmp_path, tmp_path / "mine.ipynb")
        told = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["tests"]
        graded = {one["name"]: one for one in told if "score" in one}
        assert {name: one["max_score"] for name, one in graded.items()} == {
            name: one.points for name, one in checks.EXERCISES.items() if one.chapter == 4
        }
        assert {name: one["score"] for name, one in graded.items() if one["score"]} == (
            {mended: points} if mended else {}
        )
        assert "still the stub" in graded["split_heads"]["output"]
        [shown] = (one["output"] for one in told if one.get("visibility") == "visible")
        assert "still the stub" in shown
        assert "seed" not in shown
