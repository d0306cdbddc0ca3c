"""What the tools refuse, they refuse by the file's name, and say what to do about it."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode

from tools.development import affected, quick
from tools.evidence import results
from tools.notebooks import markdown_pages as pages
from tools.notebooks import notebooks
from tools.pages import build
from tools.teaching import exercises

pytestmark = pytest.mark.tool

CODE, MARKDOWN = nbformat.v4.new_code_cell, nbformat.v4.new_markdown_cell
WRITTEN = (MARKDOWN("", metadata={"tags": ["launch"]}), CODE("", metadata={"tags": ["set-up"]}))


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a page of another repository would be."""
    (tmp_path / "chapters").mkdir()
    monkeypatch.setattr(notebooks, "ROOT", tmp_path)
    monkeypatch.setattr(notebooks, "CHAPTERS", tmp_path / "chapters")
    monkeypatch.setattr(exercises, "FOLDER", tmp_path / "exercises")
    return tmp_path / "chapters/01_page.ipynb"


def written(path: Path, *cells: NotebookNode) -> Path:
    named = [NotebookNode({**cell, "id": f"cell-{number:03d}"}) for number, cell in enumerate(cells)]
    notebook = nbformat.v4.new_notebook(cells=named)
    nbformat.write(notebooks.normalise(notebook), path)
    return path


@pytest.mark.parametrize("name", ["chapters/02_nothing.ipynb", "chapters/page.md", "../elsewhere.ipynb"])
def test_a_notebook_that_is_none(page: Path, name: str) -> None:
    path = notebooks.ROOT / name
    path.touch() if path.suffix == ".md" else None
    with pytest.raises(ValueError, match=rf"{path.name} is no notebook of this repository: name one of chapters"):
        notebooks.given([path])


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ((), r"^chapters/01_page\.ipynb: 0 cells carry the tag 'launch': give it to one cell"),
        ((*WRITTEN, *WRITTEN), r"^chapters/01_page\.ipynb: 2 cells carry the tag 'launch': give it to one cell"),
        (
            (*WRITTEN, CODE("1 / 0")),
            r"(?s)^chapters/01_page\.ipynb is not stored, .* mend it\n.*1 / 0.*ZeroDivisionError",
        ),
        (
            (*WRITTEN, CODE("print(1)", metadata={"measured": {"tolerance": "much"}})),
            r"^chapters/01_page\.ipynb, cell-002: measured\.tolerance: 'much' must be a number",
        ),
    ],
)
def test_a_page_that_cannot_be_stored(page: Path, cells: tuple[NotebookNode, ...], said: str) -> None:
    path = written(page, *cells)
    with pytest.raises(ValueError, match=said):
        notebooks.execute(path)


def test_a_figure_of_the_start_page_that_is_none(page: Path) -> None:
    cell = CODE("1", metadata={"tags": ["front-page"]})
    with pytest.raises(ValueError, match=r"^chapters/01_page\.ipynb: the cell .* draws no figure: give the tag to one"):
        notebooks.store_front_picture(page, nbformat.v4.new_notebook(cells=[cell]))
    cell.outputs = [nbformat.v4.new_output("display_data", data={"image/svg+xml": "<svg/>"})]
    with pytest.raises(
        ValueError, match=r"^chapters/01_page\.ipynb has the tag 'front-page': add a line to FRONT_PICT"
    ):
        notebooks.store_front_picture(page, nbformat.v4.new_notebook(cells=[cell]))


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ([CODE("", metadata={"tags": ["exercise"]})], r"^01_page\.ipynb has no title: begin its first cell with '# '"),
        (
            [MARKDOWN("# A"), CODE("", metadata={"tags": ["exercise"]})],
            r"^01_page\.ipynb, cell .*: enclose the solution",
        ),
    ],
)
def test_exercises_that_cannot_be_made(page: Path, cells: list[NotebookNode], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        exercises.student_notebook(written(page, *cells))


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ([CODE("x = 1")], r"^chapters/01_page\.ipynb asks for no results: add 'results' to a code cell's metadata"),
        (
            [CODE("x = 1", metadata={"results": {"x": "x"}})] * 2,
            r"^chapters/01_page\.ipynb: two cells ask for the result 'x': give one another name",
        ),
        (
            [CODE("SEED = 0\n1 / 0", metadata={"results": {"x": "1"}})],
            r"(?s)^chapters/01_page\.ipynb fails with SEED = 0: mend its code\n.*ZeroDivisionError",
        ),
    ],
)
def test_a_page_without_results(page: Path, cells: list[NotebookNode], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        results.measure(written(page, *cells))


def test_a_revision_that_git_does_not_know() -> None:
    with pytest.raises(
        ValueError, match=r"^git merge-base no-such-branch HEAD: .*: name a commit or a branch with --base"
    ):
        quick.changed_files(notebooks.ROOT, "no-such-branch")


def test_a_file_that_is_no_python(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/broken.py").write_text("x = 1\ndef f(:\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"^tools/broken\.py: .* in line 2 of its code, 'def f\(:': mend it"):
        affected.Tree(tmp_path).file(tmp_path / "tools/broken.py")


def test_a_table_without_its_second_line() -> None:
    with pytest.raises(ValueError, match=r"^under 'A page > A part': add the line \|---\| behind the header '\| a \|'"):
        pages.tables("# A page\n\n## A part\n\n| a |\n\nText.\n")


def test_a_state_that_cannot_be_read_builds_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "_build/html").mkdir(parents=True)
    (tmp_path / "_build/html/index.html").touch()
    (tmp_path / "_build/state.json").write_text("{", encoding="utf-8")
    commands: list[list[str]] = []

    def ran(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, 1)

    monkeypatch.setattr(subprocess, "run", ran)
    assert build.build(tmp_path) == 1
    assert commands[0][-1] == "--all"


@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")
@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        (
            "notebooks.notebooks",
            ["chapters/99_x.ipynb"],
            "chapters/99_x.ipynb is no notebook of this repository: name one of",
        ),
        ("notebooks.rehearse", ["--jobs", "0"], "--jobs 0: give 1 or more"),
        ("teaching.mutants", ["99"], "no chapter 99: there are 0 to 37"),
        ("editions.release", ["v9.9.9"], "mhalib/__init__.py says "),
    ],
)
def test_a_tool_says_it_in_its_last_line_without_a_traceback(
    tool: str,
    arguments: list[str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As `python -m` runs it, but in this process, which has torch already: another error would be a traceback."""
    monkeypatch.setattr(sys, "argv", [tool, *arguments])
    monkeypatch.setenv("PYTHONHASHSEED", "0")  # one of them sets it
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(f"tools.{tool}", run_name="__main__")
    assert ended.value.code in (1, 2)
    assert said in capsys.readouterr().err.splitlines()[-1]
