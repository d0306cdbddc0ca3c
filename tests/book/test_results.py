"""Results of several seeds: made from the chapters' own cells, and not older than these."""

from __future__ import annotations

import ast
import hashlib
import json
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import torch
from nbformat import NotebookNode

import mhalib
from mhalib.results import read
from tools.evidence import results
from tools.notebooks import notebooks, prose_numbers

FILES = sorted(results.FOLDER.glob("[0-9]*.json"))  # of chapters; others are of real weights


def page_numbers(stem: str) -> set[float]:
    notebook = nbformat.read(notebooks.CHAPTERS / f"{stem}.ipynb", as_version=4)
    return prose_numbers.printed(prose_numbers.outputs(notebook.cells))


def result_numbers(where: str) -> list[float]:
    """Numbers of "chapter.name": each seed's, and what a text says of them together."""
    chapter, _, name = where.partition(".")
    found = read(chapter)[name]
    return [*found, sum(found) / len(found)]


@pytest.mark.parametrize("path", sorted(notebooks.CHAPTERS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_every_number_in_prose_has_its_source(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    assert prose_numbers.unaccounted(notebook.cells, page_numbers, result_numbers) == []


def test_every_file_belongs_to_a_chapter_and_every_chapter_has_its_file() -> None:
    assert [path.stem for path in FILES] == [path.stem for path, _ in results.chapters()]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_results_are_of_the_code_that_the_page_shows(path: Path) -> None:
    notebook = nbformat.read(notebooks.CHAPTERS / f"{path.stem}.ipynb", as_version=4)
    stored = json.loads(path.read_text(encoding="utf-8"))
    assert {name.partition("/")[0] for name in stored["values"]} == set(results.asked(notebook))
    assert path.read_text(encoding="utf-8") == results.written(stored)
    assert stored["made_by"] == f"make results CHAPTERS={path.stem[:2]}"
    assert stored["code"] == results.code_key(notebook), f"run  {stored['made_by']}"
    assert tuple(stored["seeds"]) == results.seeds(notebook)
    assert len(stored["seeds"]) >= 5
    assert all(len(found) == len(stored["seeds"]) for found in stored["values"].values())


def undefined(notebook: NotebookNode) -> str:
    """What ruff says of the names that the notebook's program uses and no cell of it defines."""
    lines = [line for source, asked in results.program(notebook) for line in (source, *asked.values())]
    command = [
        sys.executable,
        "-m",
        "ruff",
        "check",
        "--isolated",
        "--select",
        "F821",
        "--output-format=concise",
        "-",
    ]
    return subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, check=False).stdout


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_cells_that_run_define_all_names_that_they_use(path: Path) -> None:
    notebook = nbformat.read(notebooks.CHAPTERS / f"{path.stem}.ipynb", as_version=4)
    assert undefined(notebook) == "All checks passed!\n"


def test_a_name_that_only_a_left_out_cell_defines_is_found() -> None:
    notebook = chapter("SEED = 0", "width = 3", "area = width * SEED", area="area")
    assert undefined(notebook) == "All checks passed!\n"
    notebook.cells[1].metadata["tags"] = ["remove-cell"]
    assert "Undefined name `width`" in undefined(notebook)


def chapter(*sources: str, **asked: str) -> NotebookNode:
    """A notebook of these cells; what is `asked` is asked behind the last."""
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    cells[-1].metadata["results"] = asked
    return nbformat.v4.new_notebook(cells=cells)


@pytest.mark.tool("mhalib/")
def test_a_chapter_runs_with_the_seed_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "01_page.ipynb"
    page = chapter("SEED = 0", "double = 2 * SEED", twice="double", both="{'a': SEED, 'b/c': -SEED}")
    page.metadata["mhalib"] = {"seeds": 2}
    nbformat.write(page, path)
    stored = results.measure(path, jobs=2)
    assert stored["seeds"] == [0, 1]
    assert stored["values"] == {"twice": [0, 2], "both/a": [0, 1], "both/b/c": [0, -1]}
    assert json.loads(results.written(stored)) == stored
    assert stored["versions"]["torch"] == torch.__version__.partition("+")[0]


def test_a_chapter_without_a_seed_is_refused() -> None:
    with pytest.raises(ValueError, match="no cell assigns SEED"):
        results.run(results.program(chapter("x = 1", x="x")), 3)


def test_the_key_follows_the_code_and_not_its_comments() -> None:
    key = results.code_key(chapter("SEED = 0\nx = 1", x="x"))
    assert key == results.code_key(chapter("SEED = 0  # why\nx = 1", x="x"))
    assert key != results.code_key(chapter("SEED = 0\nx = 2", x="x"))
    assert key != results.code_key(chapter("SEED = 0\nx = 1", x="x + 1"))


DRAWN = [nbformat.v4.new_output("display_data", data={"image/svg+xml": "<svg/>", "text/plain": "<Figure>"})]


@pytest.mark.parametrize(
    ("figure", "same"),
    [
        ("title = 'short'\nfigure, ax = plt.subplots(figsize=(3, 2))\nax.plot(x)\nfloor = min(x)", True),
        ("figure, ax = plt.subplots()\nax.plot(x, color='C1')\nfloor = min(x)", True),
        ("figure, ax = plt.subplots()\nax.plot(x)\nfloor = max(x)", False),  # a number that is used below
    ],
)
def test_the_key_does_not_follow_how_a_figure_looks(figure: str, same: bool) -> None:
    def key(source: str, compute: str = "x = [SEED, 3]") -> str:
        cells = [
            nbformat.v4.new_code_cell(f"import matplotlib.pyplot as plt\nSEED = 0\n{compute}"),
            nbformat.v4.new_code_cell(source, outputs=DRAWN),
            nbformat.v4.new_code_cell("low = floor", metadata={"results": {"low": "low"}}),
        ]
        return results.code_key(nbformat.v4.new_notebook(cells=cells))

    plain = "figure, ax = plt.subplots()\nax.plot(x)\nfloor = min(x)"
    assert (key(figure) == key(plain)) is same
    assert key(plain, "x = [SEED, 4]") != key(plain)


def test_results_are_read_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mhalib.results, "FOLDER", tmp_path)
    stored = {"seeds": [0, 1], "device": "cpu", "versions": {"torch": "2.13.0"}, "values": {"share": [0.91, 0.954]}}
    (tmp_path / "page.json").write_text(json.dumps(stored))
    assert read("page")["share"] == (0.91, 0.954)
    assert read("page").spread("share") == "0.93 (0.91 to 0.95)"
    with pytest.raises(KeyError, match="page has no result 'part', but share"):
        read("page")["part"]
    with pytest.raises(ValueError, match="chapter='other' has no results; there are: page"):
        read("other")


def markdown(text: str, **metadata: object) -> dict:
    return {"cell_type": "markdown", "source": text, "metadata": metadata, "id": "m"}


def code(source: str, printed: str) -> dict:
    output = nbformat.v4.new_output("stream", text=printed)
    return {"cell_type": "code", "source": source, "metadata": {}, "outputs": [output]}


PAGE = [
    markdown("# Title"),
    markdown("## One"),
    code("rate = 0.02", "share 0.934\n"),
    markdown("## Two"),
    code("", "other 0.50\n"),
]


@pytest.mark.parametrize(
    ("place", "text", "said", "problem"),
    [
        (2, "It gets 0.93, or 93 %, at 0.02, in $0.77$ and `0.66`.", {}, None),
        (2, "It gets 0.94.", {}, "printed nowhere"),
        (4, "It gets 0.93.", {}, "printed nowhere"),  # printed in another section
        (1, "It gets 0.93.", {}, None),  # the first part may quote all
        (4, "## Recap\n0.93", {}, None),
        (2, "They got 0.81.", {"0.81": "paper: Somebody 2020"}, None),
        (2, "They got 0.81.", {"0.81": "somebody"}, "must begin with"),
        (2, "There 0.81.", {"0.81": "page: there"}, None),
        (2, "There 0.82.", {"0.82": "page: there"}, "not printed on page"),
        (2, "Seeds 0.71.", {"0.71": "results: x.y"}, None),
        (2, "Seeds 0.72.", {"0.72": "results: x.y"}, "not in the results"),
        (2, "Nothing.", {"0.72": "results: x.y"}, "not in its text"),
    ],
)
def test_numbers_in_prose_are_held(place: int, text: str, said: dict[str, str], problem: str | None) -> None:
    cells = [*PAGE[:place], markdown(text, numbers=said), *PAGE[place:]]
    found = prose_numbers.unaccounted(cells, lambda page: {0.81}, lambda where: [0.71])
    assert (found == []) if problem is None else (len(found) == 1 and problem in found[0])


def test_a_hash_of_code_is_the_same_in_every_python() -> None:
    """Python 3.12 gave functions type parameters, 3.13 leaves empty fields out of `ast.dump`."""
    (function,) = ast.parse("def f(x, y=1):\n    return x[0] + y").body
    lists = results.as_lists(function)
    function.type_params = []
    assert results.as_lists(function) == lists
    assert hashlib.sha256(json.dumps(lists).encode()).hexdigest()[:16] == "c340c12ab8d90cec"
