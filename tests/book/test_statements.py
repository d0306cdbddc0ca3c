"""The comparison under nbval: what is exact, what is measured within a tolerance, what is of one run."""

from __future__ import annotations

import copy
import importlib.util
import json
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
import torch
from nbval.plugin import IPyNbFile

import mhalib
from mhalib.widgets import HeadExplorer, HeadWall
from tools.notebooks import nbval_statements, notebooks, statements

MEASURED = {"measured": {"tolerance": 0.02}}
OF_RUN = {"tags": ["of-this-run"]}


def stream(text: str) -> dict[str, Any]:
    return nbformat.v4.new_output("stream", text=text)


def problems(stored: str, computed: str, **stated: Any) -> list[str]:
    metadata = {"measured": stated} if stated else {}
    return statements.unconfirmed(metadata, [stream(stored)], [stream(computed)])


@pytest.mark.parametrize(
    ("line", "numbers"),
    [
        ("heads: 2, share 0.93", ["2", "0.93"]),
        ("262,144 weights, (0, 2) and [1,2]", ["262,144", "0", "2", "1", "2"]),
        ("loss -1.39 or −1.4e-05, x1, W_3, v2.5.0", ["-1.39", "−1.4e-05"]),
        ("64 % of 0.12.", ["64", "0.12"]),
        ("0.93–1.00", ["0.93", "1.00"]),
    ],
)
def test_numbers_are_told_from_words(line: str, numbers: list[str]) -> None:
    assert [number.text for number in statements.parted(line)[1]] == numbers


def test_exact_is_letter_by_letter() -> None:
    assert problems("share 0.93\n", "share 0.93\n") == []
    assert problems("share 0.93\n", "share  0.93\n")
    assert problems("share 0.93\n", "share 0.931\n")


@pytest.mark.parametrize(
    ("stored", "computed", "tolerance", "confirmed"),
    [
        ("share 0.93", "share 0.95", 0.02, True),
        ("share 0.93", "share 0.96", 0.02, False),
        ("share 0.93", "share 0.90", 0.02, False),
        ("heads: 2, share 0.93", "heads: 3, share 0.93", 0.02, False),
        ("heads: 2, share 0.93", "layers: 2, share 0.93", 0.02, False),
        ("share  0.99", "share  1.00", 0.02, True),
        ("share   9.9", "share  10.0", 0.2, True),  # alignment moves with the digits
        ("slope 2,000.0", "slope 2,090.0", "5 %", True),
        ("slope 2,000.0", "slope 2,110.0", "5 %", False),
        ("64 % of words", "66 % of words", 3, True),
        ("64 % of words", "68 % of words", 3, False),
        ("64 % of 24 heads", "64 % of 25 heads", 3, False),
        ("share 0.93", "share nan", 0.02, False),
        ("share 0.93", "share 0.93\nshare 0.94", 0.02, False),
    ],
)
def test_measured_numbers_stay_within_their_tolerance(
    stored: str, computed: str, tolerance: float | str, confirmed: bool
) -> None:
    assert (problems(stored, computed, tolerance=tolerance) == []) == confirmed


def test_each_line_can_have_its_own() -> None:
    stored = "exact 0.50\nshare 0.93\nslope 210.0\n"
    each = {"tolerance": [None, 0.02, "10 %"]}
    assert problems(stored, "exact 0.50\nshare 0.92\nslope 230.0\n", **each) == []
    assert problems(stored, "exact 0.51\nshare 0.92\nslope 230.0\n", **each)
    assert problems(stored, "exact 0.50\nshare 0.96\nslope 230.0\n", **each)
    assert "2 entries for 3 lines" in problems(stored, stored, tolerance=[None, 0.02])[0]


def test_counts_differ_only_where_it_is_said() -> None:
    assert problems("5 of 72 heads", "6 of 72 heads", tolerance=0.02)
    assert problems("15 of 72 heads", "16 of 72 heads", tolerance=0.02, counts=1) == []
    assert problems("15 of 72 heads", "17 of 72 heads", tolerance=0.02, counts=1)


def test_a_failure_names_number_and_tolerance() -> None:
    (said,) = problems("two heads: 0.93", "two heads: 0.83", tolerance=0.02)
    assert said == "stdout, line 1: 'two heads:' stored 0.93, computed 0.83, tolerance 0.02"


def test_a_wide_tolerance_must_be_argued() -> None:
    assert "say why" in problems("share 0.30", "share 0.30", tolerance=0.2)[0]
    assert problems("share 0.30", "share 0.30", tolerance=0.2, why="forty sentences are few") == []
    assert "say why" in problems("share 0.00", "share 0.00", tolerance=0.02)[0]


@pytest.mark.parametrize(
    "stated",
    [
        0.02,
        {},
        {"tolerance": "wide"},
        {"tolerance": -1},
        {"tolerance": True},
        {"tolerance": 0.1, "reason": "x"},
        {"tolerance": 0.1, "counts": -1},
    ],
)
def test_metadata_that_cannot_be_read_is_refused(stated: Any) -> None:
    with pytest.raises(ValueError, match="measured"):
        statements.measured({"measured": stated})


def test_a_missing_picture_is_noticed() -> None:
    figure = nbformat.v4.new_output("display_data", data={"image/png": "AAAA", "text/plain": "<Figure>"})
    assert statements.unconfirmed({}, [figure], [figure]) == []
    bare = nbformat.v4.new_output("display_data", data={"text/plain": "<Figure>"})
    assert statements.unconfirmed({}, [figure], [bare]) == [
        "outputs: stored image/png, text/plain, computed text/plain"
    ]


def shown(shift: float) -> list[dict[str, Any]]:
    weights = torch.tensor([[[0.25 + shift, 0.75 - shift], [0.5, 0.5]]])
    html = HeadExplorer(weights, queries=["a", "b"])._repr_mimebundle_()[0]["text/html"]
    return [nbformat.v4.new_output("display_data", data={"text/html": html})]


def test_an_instrument_is_compared_by_its_numbers() -> None:
    within = {"measured": {"tolerance": 0.01, "why": "weights of a trained model"}}
    assert statements.unconfirmed(within, shown(0), shown(0.004)) == []
    assert statements.unconfirmed({}, shown(0), shown(0.004))
    found = statements.unconfirmed(within, shown(0), shown(0.02))
    assert any("stored 0.250, computed 0.270" in each for each in found)
    state = shown(0)[0]["data"]["text/html"]
    hidden = copy.deepcopy(shown(0))  # a table that says one thing and a state that says another
    packed = re.search(r'"packed":"([^"]+)"', state)[1]
    other = re.search(r'"packed":"([^"]+)"', shown(0.02)[0]["data"]["text/html"])[1]
    hidden[0]["data"]["text/html"] = state.replace(packed, other)
    assert statements.unconfirmed(within, shown(0), hidden)


def wall(shift: float) -> HeadWall:
    weights = torch.tensor([[[[0.25 + shift, 0.75 - shift], [0.5, 0.5]]]])
    return HeadWall(weights, numbers={"first": torch.tensor([[0.5 + shift]])})


def hung(made: HeadWall) -> list[dict[str, Any]]:
    return [nbformat.v4.new_output("display_data", data={"text/html": made._repr_mimebundle_()[0]["text/html"]})]


def test_a_wall_of_heads_is_compared_by_its_numbers() -> None:
    within = {"measured": {"tolerance": 0.03, "why": "weights of a trained model"}}
    assert statements.unconfirmed(within, hung(wall(0)), hung(wall(0.01))) == []
    assert statements.unconfirmed({}, hung(wall(0)), hung(wall(0.01)))


@pytest.mark.parametrize(
    ("entry", "said"),
    [("maps", "stored 0.242, computed"), ("details", "stored 0.250, computed"), ("numbers", "stored 0.5000, computed")],
)
def test_a_wall_whose_state_alone_is_stale_is_noticed(entry: str, said: str) -> None:
    within = {"measured": {"tolerance": 0.03, "why": "weights of a trained model"}}
    old, new = (json.dumps(each.state()[entry], separators=(",", ":")) for each in (wall(0), wall(0.2)))
    stale = hung(wall(0))
    html = stale[0]["data"]["text/html"]
    assert html.count(f'"{entry}":{old}') == 1
    stale[0]["data"]["text/html"] = html.replace(f'"{entry}":{old}', f'"{entry}":{new}')
    found = statements.unconfirmed(within, hung(wall(0)), stale)
    assert any(said in each for each in found), found


def test_how_much_of_its_tolerance_a_number_used() -> None:
    stored, computed = [stream("2 heads, 0.93, 0.50\n12 %")], [stream("3 heads, 0.94, 0.47\n15 %")]
    assert statements.used({}, stored, computed) == (0, "")
    assert statements.used({"measured": {"tolerance": [None, None]}}, stored, computed) == (0, "")
    part, what = statements.used({"measured": {"tolerance": 0.04}}, stored[:1], [stream("3 heads, 0.94, 0.47\n12 %")])
    assert (round(part, 6), what) == (0.75, "stored 0.50, computed 0.47")
    assert statements.used({"measured": {"tolerance": [0.04, 2]}}, stored, computed)[0] == 1.5
    assert statements.used({"measured": {"tolerance": 0.1, "counts": 1}}, stored, computed)[1].startswith("stored 12")
    assert statements.used(OF_RUN, stored, computed) == (0, "")


def test_of_this_run_is_not_compared() -> None:
    tags = {"tags": [statements.OF_THIS_RUN]}
    assert statements.unconfirmed(tags, [stream("the fox")], [stream("a tree")]) == []


DOCTORED = [  # what is stored where "share 0.50" is computed, of which kind, and what becomes of it
    ("share 0.50\n", {}, "PASSED"),
    ("share 0.51\n", {}, "FAILED"),
    ("share 0.51\n", MEASURED, "PASSED"),
    ("share 0.53\n", MEASURED, "FAILED"),
    ("part 0.50\n", MEASURED, "FAILED"),
    ("the fox\n", OF_RUN, "PASSED"),
]


@pytest.mark.tool
def test_nbval_compares_by_kind(tmp_path: Path) -> None:
    """As the book's command does: pytest --nbval with the repository's plugin and no other setting."""
    cells = []
    for stored, metadata, _ in DOCTORED:
        cell = nbformat.v4.new_code_cell("print('share 0.50')", execution_count=len(cells) + 1, metadata=metadata)
        cells.append({**cell, "outputs": [stream(stored)]})
    pages = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": notebooks.KERNEL})
    nbformat.write(nbformat.from_dict(pages), tmp_path / "page.ipynb")
    (tmp_path / "conftest.py").write_text((notebooks.ROOT / "conftest.py").read_text(encoding="utf-8"))
    (tmp_path / "pytest.ini").write_text(f"[pytest]\npythonpath = {notebooks.ROOT}\n")
    command = [sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider", "--nbval", "--nbval-current-env", "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    became = re.findall(r"^(PASSED|FAILED) page\.ipynb::Cell (\d+)", done.stdout, re.MULTILINE)
    assert [outcome for outcome, _ in sorted(became, key=lambda one: int(one[1]))] == [
        outcome for _, _, outcome in DOCTORED
    ], done.stdout
    assert done.returncode == 1
    assert "stored 0.53, computed 0.50, tolerance 0.02" in done.stdout


@pytest.mark.parametrize(("died", "starts"), [(0, 1), (2, 3), (3, 3)])
def test_a_kernel_that_dies_before_its_first_answer_is_started_anew(
    monkeypatch: pytest.MonkeyPatch, died: int, starts: int
) -> None:
    """A notebook's cells failed, all of them, where another worker's kernel had taken a port meanwhile."""
    tried = []

    def start(_: object) -> None:
        tried.append(len(tried))
        if len(tried) <= died:
            raise RuntimeError("Kernel died before replying to kernel_info")

    monkeypatch.setattr(IPyNbFile, "setup", start)
    notebook = object.__new__(nbval_statements.Notebook)
    if died < starts:
        notebook.setup()
    else:
        with pytest.raises(RuntimeError, match="Kernel died"):
            notebook.setup()
    assert len(tried) == starts


def test_another_failure_of_a_kernel_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def start(_: object) -> None:
        tried.append(len(tried))
        raise RuntimeError("Kernel didn't respond in 60 seconds")

    monkeypatch.setattr(IPyNbFile, "setup", start)
    with pytest.raises(RuntimeError, match="respond"):
        object.__new__(nbval_statements.Notebook).setup()
    assert len(tried) == 1


def test_the_librarys_tests_do_without_nbval(monkeypatch: pytest.MonkeyPatch) -> None:
    conftest = str(notebooks.ROOT / "conftest.py")
    expected = ["tools.development.schedule", "tools.evidence.run_recorder", "tools.notebooks.nbval_statements"]
    assert runpy.run_path(conftest)["pytest_plugins"] == expected
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert runpy.run_path(conftest)["pytest_plugins"] == expected[:2]


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where `make notebooks` finds a page whose numbers come from a file, as from another machine."""
    path = tmp_path / "chapters/page.ipynb"
    path.parent.mkdir()
    monkeypatch.setattr(notebooks, "ROOT", tmp_path)
    code = nbformat.v4.new_code_cell
    cells = [
        nbformat.v4.new_markdown_cell("", metadata={"tags": ["launch"]}),
        code("", metadata={"tags": ["set-up"]}),
        code("import json\nfound = json.load(open('found.json'))"),
        code("print(f'share {found[0]:.2f}')", metadata=MEASURED),
        code("import matplotlib.pyplot as plt\nfigure, ax = plt.subplots()\nlines = ax.plot(found)"),
        code("print(found)", metadata=OF_RUN),
    ]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    return path


def run_with(page: Path, *found: float) -> str:
    (page.parent / "found.json").write_text(json.dumps(found))
    nbformat.write(notebooks.execute(page), page)
    return page.read_text(encoding="utf-8")


@pytest.mark.tool
def test_make_notebooks_keeps_what_another_machine_confirms(page: Path) -> None:
    first = run_with(page, 0.93, 0.5)
    assert "share 0.93" in first
    assert run_with(page, 0.94, 0.6) == first  # the picture and what is of that run stay, too
    second = run_with(page, 0.99, 0.6)
    assert "share 0.99" in second
    assert "[0.99, 0.6]" in second


@pytest.mark.tool
def test_when_the_code_has_changed_picture_and_number_are_of_the_new_run(page: Path) -> None:
    first = run_with(page, 0.93, 0.5)
    notebook = nbformat.read(page, as_version=4)
    notebook.cells[4].source += "\ntitle = ax.set_title('drawn anew')"
    nbformat.write(notebook, page)
    second = run_with(page, 0.94, 0.6)
    pictures = [re.search(r'"image/svg\+xml": (\[.*?\])', text, re.DOTALL)[1] for text in (first, second)]
    assert pictures[0] != pictures[1]
    assert "share 0.94" in second  # though 0.93 is confirmed: the picture shows what this run gave


def table_of(share: float) -> list[dict]:
    table = mhalib.number_table({"head": (share,)}, of="name", columns={"share": ".2f"}, bars={"share": 1})
    return [{"output_type": "execute_result", "data": {"text/html": table._repr_html_(), "text/plain": repr(table)}}]


def test_numbers_of_a_table_are_compared_and_their_bars_are_not() -> None:
    assert "50%" in table_of(0.5)[0]["data"]["text/html"]
    assert statements.unconfirmed(MEASURED, table_of(0.5), table_of(0.51)) == []
    (found, _) = statements.unconfirmed(MEASURED, table_of(0.5), table_of(0.53))
    assert "stored 0.50, computed 0.53" in found
    assert statements.unconfirmed({}, table_of(0.5), table_of(0.51)) != []
    assert statements.unconfirmed({}, table_of(0.5), table_of(0.5)) == []
    assert "%" not in statements.texts(table_of(0.5))["text/html"]  # nor may prose call the length of a bar its number
