"""What holds of every chapter as it is stored. That its outputs are true is checked by nbval, cell by cell."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import book_text
import nbformat
import pytest
from nbformat import NotebookNode

from mhalib_classroom import checks
from tools.notebooks import notebooks, statements
from tools.pages import book_map, page_head
from tools.teaching import exercises

PATHS = sorted(notebooks.CHAPTERS.glob("*.ipynb"))
MAX_BYTES = 1_000_000
MAX_LINES = 20
TIDY = "an editor has left something:  .venv/bin/python -m tools.notebooks.notebooks --tidy  drops it"
WHOLE_LAYER = ("class MultiHeadAttention(", 40)  # chapter 6 shows it in one piece, so that it is read as one


def figures_without_alt(notebook: NotebookNode) -> list[str]:
    """Sources of the cells that store a picture, but do not say in at least 40 characters what it shows."""
    return [
        cell.source
        for cell in notebook.cells
        if any(notebooks.pictures(cell.get("outputs", [])))
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


def test_written_cells_are_as_they_are_made(path: Path, notebook: NotebookNode) -> None:
    for tag, source in notebooks.generated_cells(path).items():
        assert notebooks.cell_with_tag(notebook, tag).source == source, f"run  make notebooks  (cell {tag!r})"
    first_code = next(cell for cell in notebook.cells if cell.cell_type == "code")
    assert "set-up" in first_code.metadata.tags


def test_was_run_from_top_to_bottom(code: list[NotebookNode]) -> None:
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    shown = [cell for cell in code if "remove-cell" not in cell.metadata.get("tags", [])]
    assert sum(bool(cell.outputs) for cell in shown) > len(shown) / 2


def test_stores_no_error_and_no_warning(code: list[NotebookNode]) -> None:
    outputs = [output for cell in code for output in cell.outputs]
    assert [output for output in outputs if output.output_type == "error"] == []
    assert [output.text for output in outputs if output.get("name") == "stderr"] == []


def test_no_output_is_the_name_of_an_object(code: list[NotebookNode]) -> None:
    """What a call into matplotlib returns, where nobody gave it a name, is printed below the figure."""
    texts = [output.get("data", {}).get("text/plain", "") for cell in code for output in cell.outputs]
    assert [text for text in texts if re.search(r" at 0x\d", text)] == []


def test_readme_shows_figures_of_the_book() -> None:
    pictures = {path.stem: notebooks.front_picture(nbformat.read(path, as_version=4)) for path in PATHS}
    stored = {name: path.read_text(encoding="utf-8") for name, path in notebooks.FRONT_PICTURES.items()}
    assert {name: picture for name, picture in pictures.items() if picture} == stored
    shown = (notebooks.ROOT / "README.md").read_text(encoding="utf-8")
    assert all(f"_static/{path.name}" in shown for path in notebooks.FRONT_PICTURES.values())


def test_every_figure_says_what_it_shows(notebook: NotebookNode) -> None:
    assert figures_without_alt(notebook) == []


def test_a_figure_without_alt_is_rejected(notebook: NotebookNode) -> None:
    doctored = next((cell for cell in notebook.cells if "image" in cell.metadata.get("mystnb", {})), None)
    if doctored is None:
        pytest.skip("the notebook has no figure")
    del doctored.metadata["mystnb"]["image"]["alt"]
    assert figures_without_alt(notebook) == [doctored.source]


def test_is_small(path: Path, code: list[NotebookNode]) -> None:
    assert path.stat().st_size < MAX_BYTES
    assert [cell.source for cell in code if len(cell.source.splitlines()) > most_lines(cell.source)] == []


def most_lines(source: str) -> int:
    begin, most = WHOLE_LAYER
    return most if source.startswith(begin) else MAX_LINES


def test_no_cell_ends_in_a_semicolon(code: list[NotebookNode]) -> None:
    """Jupyter then hides the last value, nbval does not, and the comparison fails."""
    assert [cell.source for cell in code if cell.source.rstrip().endswith(";")] == []


def test_is_built_like_a_chapter(path: Path, notebook: NotebookNode) -> None:
    if not path.stem[0].isdigit():
        pytest.skip("the notebook is not a chapter")
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    headings = re.findall(r"^(#+) (.+)$", text, flags=re.MULTILINE)
    levels = [len(marks) for marks, _ in headings]
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert all(deeper - level <= 1 for level, deeper in itertools.pairwise(levels))
    if path.stem.startswith("00_"):
        return  # it stands before the chapters, and has quests in place of exercises
    in_code = tuple(f"(`{name}`)" for name in checks.EXERCISES)
    titles = [title for _, title in headings if title != "In code" and not title.endswith(in_code)]
    assert titles[-4:] == ["Recap", "Exercises", "The same thing elsewhere", "Sources"]
    asked = text[text.index("\n## Exercises") : text.index("\n## The same thing elsewhere")]
    assert len(re.findall(r"^\d\. \*\*", asked, flags=re.MULTILINE)) >= 2


def test_tags_are_known_and_most_cells_are_compared(path: Path, code: list[NotebookNode]) -> None:
    tags = {tag for cell in code for tag in cell.metadata.get("tags", [])}
    assert tags <= {
        "set-up",
        "hide-input",
        "remove-output",
        "hide-cell",
        "remove-cell",
        exercises.EXERCISE,
        exercises.SETUP,
        notebooks.FRONT_PAGE,
        page_head.OPENING,
        book_map.FRONT_INSTRUMENT,
        statements.OF_THIS_RUN,
        statements.TIMING,
    }  # nothing else hides a cell from nbval
    compared = [cell for cell in code if not statements.is_of_this_run(cell.metadata) and cell.outputs]
    assert len(compared) >= (8 if path.stem[0].isdigit() else 4)


def test_at_most_one_figure_is_the_opening_one(notebook: NotebookNode) -> None:
    chosen = [cell for cell in notebook.cells if page_head.OPENING in cell.metadata.get("tags", [])]
    assert len(chosen) <= 1
    assert all(any(notebooks.pictures(cell.outputs)) for cell in chosen)


def badly_stated(code: list[NotebookNode]) -> list[str]:
    """What is wrong with the statements of a page's cells, beside their numbers, which nbval compares."""
    found = []
    for number, cell in enumerate(code):
        stated = statements.measured(cell.metadata)
        texts = statements.texts(cell.outputs)
        if stated is not None and not any(statements.holds_numbers(text, stated) for text in texts.values()):
            found.append(f"code cell {number} states a tolerance and prints no number that it applies to")
        found += [
            f"code cell {number}: {each}" for text in texts.values() for each in statements.too_wide(text, stated)
        ]
        tags = cell.metadata.get("tags", [])
        if statements.TIMING in tags and statements.OF_THIS_RUN not in tags:
            found.append(f"code cell {number} is tagged timing, but not of-this-run")
        if statements.is_of_this_run(cell.metadata) and texts and not guarded(code, number):
            found.append(f"code cell {number} is of this run, and no assertion guards what the text says of it")
    return found


def guarded(code: list[NotebookNode], number: int) -> bool:
    """Whether a cell asserts something itself, or the next one that is compared does."""
    following = (cell for cell in code[number + 1 :] if not statements.is_of_this_run(cell.metadata))
    return any(
        re.search(r"^\s*assert ", cell.source, re.MULTILINE) for cell in (code[number], next(following, None)) if cell
    )


def test_statements_are_well_formed(code: list[NotebookNode]) -> None:
    assert badly_stated(code) == []


@pytest.mark.parametrize(
    ("metadata", "source", "printed", "complaint"),
    [
        ({"measured": {"tolerance": 0.1}}, "print('text')", "text\n", "no number"),
        ({"measured": {"tolerance": 0.1}}, "print(3)", "3\n", "no number"),
        ({"measured": {"tolerance": 0.2}}, "print(0.3)", "0.3\n", "say why"),
        ({"tags": ["timing", "of-this-run"]}, "print(0.3)", "0.3\n", "no assertion"),
        ({"tags": ["timing"]}, "print(0.3)", "0.3\n", "not of-this-run"),
        ({"tags": ["of-this-run"]}, "print(0.3)\nassert True", "0.3\n", None),
        ({"measured": {"tolerance": 0.02}}, "print(0.3)", "0.3\n", None),
    ],
)
def test_bad_statements_are_named(metadata: dict, source: str, printed: str, complaint: str | None) -> None:
    cell = nbformat.v4.new_code_cell(source, metadata=metadata)
    cell.outputs = [nbformat.v4.new_output("stream", text=printed)]
    found = badly_stated([cell])
    assert (complaint is None and not found) or complaint in found[0]


@pytest.mark.tool
def test_running_twice_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Widget ids, addresses of objects and measured times are all different in the second run."""
    page = tmp_path / "chapters/page.ipynb"
    page.parent.mkdir()
    monkeypatch.setattr(notebooks, "ROOT", tmp_path)
    new_code, new_markdown = nbformat.v4.new_code_cell, nbformat.v4.new_markdown_cell
    cells = [
        new_markdown("", metadata={"tags": ["launch"]}),
        new_code("", metadata={"tags": ["set-up"]}),
        new_code("import ipywidgets, time\nipywidgets.IntSlider(value=3)"),
        new_code("object()"),
        new_code("time.time()", metadata={"tags": [statements.OF_THIS_RUN, statements.TIMING]}),
    ]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), page)
    versions = []
    for measure in (False, False, True):
        nbformat.write(notebooks.execute(page, measure), page)
        versions.append(page.read_bytes())
    assert versions[0] == versions[1]
    assert versions[1] != versions[2]  # --measure stores the new time


@pytest.mark.parametrize(
    ("code", "second", "stays"),
    [("the same", "0.5", True), ("the same", "0.9", False), ("another", "0.5", False)],
)
def test_what_is_stored_stays_as_a_whole_or_is_of_one_new_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, second: str, stays: bool
) -> None:
    monkeypatch.setattr(notebooks, "ROOT", tmp_path)
    path = tmp_path / "page.ipynb"

    def page(*printed: str) -> nbformat.NotebookNode:
        cells = [nbformat.v4.new_code_cell("print(share)", metadata={"measured": {"tolerance": 0.1}}) for _ in printed]
        for cell, text in zip(cells, printed, strict=True):
            cell.outputs = [nbformat.v4.new_output("stream", text=text)]
        return nbformat.v4.new_notebook(cells=cells)

    old, new = page("0.50\n", "0.5\n"), page("0.52\n", f"{second}\n")
    old.metadata["mhalib"] = {"code": notebooks.code_key(path, new) if code == "the same" else code}
    notebooks.settle(path, old, new)
    assert [cell.outputs[0].text for cell in new.cells] == (["0.50\n", "0.5\n"] if stays else ["0.52\n", f"{second}\n"])


def test_a_notebook_is_stored_as_tidy_leaves_it(path: Path) -> None:
    assert nbformat.writes(notebooks.tidied(path)).rstrip("\n") + "\n" == path.read_text(encoding="utf-8"), TIDY


def test_tidy_drops_what_an_editor_leaves_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = notebooks.CHAPTERS / "07_per_head_heatmaps.ipynb"
    opened = nbformat.read(stored, as_version=4)
    opened.metadata["vscode"] = {"interpreter": "x"}
    opened.metadata["language_info"]["version"] = "3.14.0"
    for cell in opened.cells:
        cell.metadata |= {"collapsed": True, "ExecuteTime": {"start": 1}, "jupyter": {"source_hidden": True}}
        cell.id = f"x{cell.id}"
        if cell.cell_type == "code":
            cell.execution_count = 900
    there = tmp_path / stored.name
    nbformat.write(opened, there)
    monkeypatch.setattr("sys.argv", ["notebooks", "--tidy", str(there)])
    monkeypatch.setattr(notebooks, "given", lambda paths: paths)
    monkeypatch.setattr(notebooks, "here", str)
    notebooks.main()
    assert there.read_text(encoding="utf-8") == stored.read_text(encoding="utf-8")
