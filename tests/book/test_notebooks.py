"""What holds of every chapter as it is stored. That its outputs are true is checked by nbval, cell by cell."""

from __future__ import annotations

import copy
import itertools
import re
import subprocess
import sys
from pathlib import Path

import book_text
import nbformat
import notebooks
import pytest
from nbformat import NotebookNode

import exercises
from mhalib import checks

PATHS = sorted(notebooks.CHAPTERS.glob("*.ipynb"))
MAX_BYTES = 1_000_000
MAX_LINES = 20


def figures_without_alt(notebook: NotebookNode) -> list[str]:
    """Sources of the cells that store a picture, but do not say in at least 40 characters what it shows."""
    return [
        cell.source
        for cell in notebook.cells
        if any("image/png" in output.get("data", {}) for output in cell.get("outputs", []))
        and len(cell.metadata.get("mystnb", {}).get("image", {}).get("alt", "")) < 40
    ]


@pytest.fixture(params=PATHS, ids=lambda path: path.stem)
def path(request: pytest.FixtureRequest) -> Path:
    return request.param


@pytest.fixture
def notebook(path: Path) -> NotebookNode:
    return nbformat.read(path, as_version=4)


@pytest.fixture
def code(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_every_notebook_is_in_the_book() -> None:
    assert [path for path in book_text.toc() if path.suffix == ".ipynb"] == PATHS


def test_every_page_is_in_the_book() -> None:
    assert {path for path in book_text.toc() if path.suffix == ".md"} == set(notebooks.CHAPTERS.glob("*.md"))


def test_written_cells_follow_the_repository_address(path: Path, notebook: NotebookNode) -> None:
    for tag, source in notebooks.generated_cells(path).items():
        assert notebooks.cell_with_tag(notebook, tag).source == source, f"run  make notebooks  (cell {tag!r})"
    first_code = next(cell for cell in notebook.cells if cell.cell_type == "code")
    assert "set-up" in first_code.metadata.tags


def test_is_stored_as_make_notebooks_writes_it(notebook: NotebookNode) -> None:
    assert notebooks.normalise(copy.deepcopy(notebook)) == notebook, "run  make notebooks"


def test_was_run_from_top_to_bottom(code: list[NotebookNode]) -> None:
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert sum(bool(cell.outputs) for cell in code) > len(code) / 2


def test_stores_no_error_and_no_warning(code: list[NotebookNode]) -> None:
    outputs = [output for cell in code for output in cell.outputs]
    assert [output for output in outputs if output.output_type == "error"] == []
    assert [output.text for output in outputs if output.get("name") == "stderr"] == []


def test_start_page_shows_figures_of_the_book() -> None:
    pictures = {path.stem: notebooks.front_picture(nbformat.read(path, as_version=4)) for path in PATHS}
    stored = {name: path.read_bytes() for name, path in notebooks.FRONT_PICTURES.items()}
    assert {name: picture for name, picture in pictures.items() if picture} == stored
    shown = (notebooks.CHAPTERS / "index.md").read_text(encoding="utf-8")
    assert all(f"_static/{path.name}" in shown for path in notebooks.FRONT_PICTURES.values())


def test_every_figure_says_what_it_shows(notebook: NotebookNode) -> None:
    assert figures_without_alt(notebook) == []


def test_a_figure_without_alt_is_rejected(notebook: NotebookNode) -> None:
    doctored = next((cell for cell in notebook.cells if cell.metadata.get("mystnb")), None)
    if doctored is None:
        pytest.skip("no figure")
    del doctored.metadata["mystnb"]["image"]["alt"]
    assert figures_without_alt(notebook) == [doctored.source]


def test_is_small(path: Path, code: list[NotebookNode]) -> None:
    assert path.stat().st_size < MAX_BYTES
    assert [cell.source for cell in code if len(cell.source.splitlines()) > MAX_LINES] == []


def test_no_cell_ends_in_a_semicolon(code: list[NotebookNode]) -> None:
    """Jupyter then hides the last value, nbval does not, and the comparison fails."""
    assert [cell.source for cell in code if cell.source.rstrip().endswith(";")] == []


def test_is_built_like_a_chapter(path: Path, notebook: NotebookNode) -> None:
    if not path.stem[0].isdigit():
        pytest.skip("no chapter")
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    headings = re.findall(r"^(#+) (.+)$", text, flags=re.MULTILINE)
    levels = [len(marks) for marks, _ in headings]
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert all(deeper - level <= 1 for level, deeper in itertools.pairwise(levels))
    titles = [title for _, title in headings if title not in ("In code", *checks.EXERCISES)]
    assert titles[-4:] == ["Exercises", "Recap", "The same thing elsewhere", "Sources"]
    asked = text[text.index("## Exercises") : text.index("## Recap")]
    assert len(re.findall(r"^\d\. \*\*", asked, flags=re.MULTILINE)) >= 2


def test_measured_cells_print_and_the_rest_is_compared(path: Path, code: list[NotebookNode]) -> None:
    tags = {tag for cell in code for tag in cell.metadata.get("tags", [])}
    assert tags <= {
        "set-up",
        "hide-input",
        "hide-cell",
        exercises.EXERCISE,
        exercises.SETUP,
        notebooks.FRONT_PAGE,
        notebooks.MEASURES,
        notebooks.TRAINED,
    }  # nothing else hides a cell from nbval
    compared = [cell for cell in code if notebooks.MEASURES not in cell.metadata.get("tags", []) and cell.outputs]
    assert len(compared) >= (8 if path.stem[0].isdigit() else 4)


def stale_notebook(stored: str) -> NotebookNode:
    cell = nbformat.v4.new_code_cell("import mhalib\nmhalib.causal_mask(2).int().tolist()", execution_count=1)
    data = {"text/plain": stored}
    cell.outputs = [nbformat.v4.new_output("execute_result", data=data, execution_count=1)]
    return nbformat.v4.new_notebook(cells=[cell], metadata={"kernelspec": notebooks.KERNEL})


@pytest.mark.parametrize(("stored", "exit_code"), [("[[1, 0], [1, 1]]", 0), ("[[1, 1], [0, 1]]", 1)])
def test_a_stale_output_fails(tmp_path: Path, stored: str, exit_code: int) -> None:
    nbformat.write(stale_notebook(stored), tmp_path / "page.ipynb")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "--nbval",
        "--nbval-current-env",
        str(tmp_path),
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == exit_code, done.stdout


def test_running_twice_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Widget ids, addresses of objects and measured times are all different in the second run."""
    page = tmp_path / "chapters/page.ipynb"
    page.parent.mkdir()
    monkeypatch.setattr(notebooks, "ROOT", tmp_path)
    monkeypatch.setattr(notebooks, "repository", lambda: ("https://github.com/a/b", "main"))
    new_code, new_markdown = nbformat.v4.new_code_cell, nbformat.v4.new_markdown_cell
    cells = [
        new_markdown("", metadata={"tags": ["launch"]}),
        new_code("", metadata={"tags": ["set-up"]}),
        new_code("import ipywidgets, time\nipywidgets.IntSlider(value=3)"),
        new_code("object()"),
        new_code("time.time()", metadata={"tags": [notebooks.MEASURES]}),
    ]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), page)
    versions = []
    for measure in (False, False, True):
        nbformat.write(notebooks.execute(page, measure), page)
        versions.append(page.read_bytes())
    assert versions[0] == versions[1]
    assert versions[1] != versions[2]  # --measure stores the new time
