"""What is said about figures, folds, predictions and open exercises, in every chapter."""

from __future__ import annotations

import io
import re
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import nbformat
import pytest
from bs4 import BeautifulSoup
from docutils import nodes
from matplotlib.figure import Figure

from tools.notebooks import core_words, notebooks
from tools.pages import book_extension

CHAPTERS = sorted(notebooks.CHAPTERS.glob("[0-9]*.ipynb"))
CAPTION = re.compile(r"\*\*Figure (\d+)\.(\d+)\.\*\* \S.{40,}")
MENTION = re.compile(r"Figure[ \u00a0](\d+\.\d+)")
NOT_SHOWN = {"remove-cell", "remove-output"}
FOLDED = {"hide-input", "hide-cell", "hide-output"}


def cells_of(path: Path) -> list[nbformat.NotebookNode]:
    shown = nbformat.read(path, as_version=4).cells
    return [cell for cell in shown if not NOT_SHOWN & set(cell.metadata.get("tags", []))]


def draws(cell: nbformat.NotebookNode) -> bool:
    return any(notebooks.pictures(cell.get("outputs", [])))


def figures_of(path: Path) -> list[str]:
    """The numbers in the captions of a chapter, in the order of the page."""
    found = [CAPTION.match(cell.source) for cell in cells_of(path) if cell.cell_type == "markdown"]
    return [f"{one[1]}.{one[2]}" for one in found if one]


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_every_figure_has_a_caption_and_the_numbers_count_up(path: Path) -> None:
    for cell, after in pairwise(cells_of(path)):
        if draws(cell):
            said = CAPTION.match(after.source) if after.cell_type == "markdown" else None
            assert said, f"{path.name}, {cell.id}: the next cell must begin '**Figure {int(path.stem[:2])}.k.** …'"
    numbers = figures_of(path)
    assert numbers == [f"{int(path.stem[:2])}.{k}" for k in range(1, len(numbers) + 1)]


HEADING_OR_FIGURE = re.compile(
    r"^(?P<level>#+) .+\n+(?P<first>.*)|^\*\*Figure \d+\.(?P<number>\d+)\.\*\*", re.MULTILINE
)


def figures_of_the_core(text: str) -> list[int]:
    """The numbers of the figures of a chapter that are in no section marked deeper."""
    numbers, is_deeper, level = [], False, 0
    for one in HEADING_OR_FIGURE.finditer(text):
        if one["level"] and (not is_deeper or len(one["level"]) <= level):
            is_deeper, level = one["first"].startswith(core_words.MARK), len(one["level"])
        elif one["number"] and not is_deeper:
            numbers.append(int(one["number"]))
    return numbers


@pytest.mark.parametrize("path", CHAPTERS[:12], ids=lambda path: path.stem)
def test_the_figures_of_the_core_are_numbered_without_a_hole(path: Path) -> None:
    text = "\n\n".join(cell.source for cell in cells_of(path) if cell.cell_type == "markdown")
    numbers = figures_of_the_core(text)
    assert numbers == [*range(1, len(numbers) + 1)]


SVG = "{http://www.w3.org/2000/svg}"


def hidden_points(svg: str) -> list[tuple[float, float]]:
    """Where a legend covers a point of the data: a `use` that is in no group of an axis."""
    boxes: list[tuple[float, ...]] = []
    points: list[tuple[float, float]] = []

    def read(one: ElementTree.Element) -> None:
        name = one.get("id", "")
        if name.startswith("legend"):
            frame = next(one.iter(f"{SVG}path")).get("d", "")
            x, y = ([float(number) for number in re.findall(r"-?[\d.]+", frame)][k::2] for k in (0, 1))
            boxes.append((min(x), min(y), max(x), max(y)))
        elif "axis" not in name and not name.startswith("text"):
            if one.tag == f"{SVG}use" and {"x", "y"} <= set(one.keys()):
                points.append((float(one.attrib["x"]), float(one.attrib["y"])))
            for inner in one:
                read(inner)

    read(ElementTree.fromstring(svg))
    return [(x, y) for x, y in points for a, b, c, d in boxes if a < x < c and b < y < d]


def test_no_legend_hides_a_point() -> None:
    def drawn(place: str) -> str:
        figure = Figure()
        axes = figure.subplots()
        axes.plot([0, 1], [0, 1], "o", label="two points")
        axes.legend(loc=place)
        file = io.StringIO()
        figure.savefig(file, format="svg")
        return file.getvalue()

    assert not hidden_points(drawn("lower right"))
    assert len(hidden_points(drawn("lower left"))) == 1
    for path in CHAPTERS:
        for cell in cells_of(path):
            for data, kind in notebooks.pictures(cell.get("outputs", [])):
                if kind == "image/svg+xml":
                    assert not hidden_points(data[kind]), f"{path.name}, {cell.id}: move the legend"


def test_every_figure_that_is_mentioned_exists() -> None:
    there = {number for path in CHAPTERS for number in figures_of(path)}
    assert len(there) > 50
    for path in CHAPTERS:
        said = {number for cell in cells_of(path) for number in MENTION.findall(cell.source)}
        assert said <= there, f"{path.name} speaks of {sorted(said - there)}"


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_every_fold_says_what_is_in_it(path: Path) -> None:
    for cell in cells_of(path):
        tags = set(cell.metadata.get("tags", []))
        if FOLDED & tags and not tags & book_extension.FOLDS.keys():
            shown = cell.metadata.get("mystnb", {})
            assert len(shown.get("code_prompt_show", "")) > 9, f"{path.name}, {cell.id}: name the fold"
            assert len(shown.get("code_prompt_hide", "")) > 9, f"{path.name}, {cell.id}: name the fold when it is open"


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_every_prediction_has_a_folded_answer(path: Path) -> None:
    cells = cells_of(path)
    asked = [place for place, cell in enumerate(cells) if re.search(r"^\**Predict", cell.source, flags=re.M)]
    assert asked, f"{path.name} asks for no prediction"
    for place in asked:
        after = cells[place].source.partition("Predict")[2]
        folded = [
            cell
            for cell in cells[place + 1 : place + 4]
            if {"hide-cell", "hide-output"} & set(cell.metadata.get("tags", [])) or "<details>" in cell.source
        ]
        after += next((cell.source for cell in cells[place + 1 :] if cell.cell_type == "markdown"), "")
        assert folded or "<details>" in after, f"{path.name}, {cells[place].id}: fold the answer"


@pytest.mark.parametrize("path", CHAPTERS[1:], ids=lambda path: path.stem)  # chapter 0 has quests
def test_every_open_exercise_has_an_answer(path: Path) -> None:
    text = "\n\n".join(cell.source for cell in cells_of(path) if cell.cell_type == "markdown")
    section = re.split(r"^## ", text.partition("\n## Exercises")[2], flags=re.M)[0].partition("### In code")[0]
    asked = re.findall(r"^\d+\. ", section, flags=re.M)
    assert len(asked) >= 2
    assert section.count("<summary>Answer") == len(asked), f"{path.name}: {len(asked)} open exercises"


@pytest.mark.tool
def test_a_caption_becomes_part_of_the_figure_and_words_become_links() -> None:
    folder = notebooks.ROOT / "_build/html/chapters"
    for path in CHAPTERS:
        page = BeautifulSoup((folder / f"{path.stem}.html").read_bytes(), "html.parser")
        captions = {figure["id"]: figure.find("figcaption").text for figure in page.select("figure.captioned")}
        wanted = figures_of(path)
        assert list(captions) == [f"figure-{number.replace('.', '-')}" for number in wanted]
        for one in captions:
            told = [image["alt"] for image in page.select(f"figure#{one} img")]
            assert len({*told}) == 1, f"{one}: on light pages and on dark ones, the same words"
            assert len(told) in (1, 2)
        for paragraph in page.select("article p:not(.predict-buttons)"):  # a button is no place for a link
            for number in MENTION.findall(paragraph.text):
                if not paragraph.find_parent(["figcaption", "summary"]):
                    assert paragraph.select(f"a[href$='#figure-{number.replace('.', '-')}']"), paragraph.text


def test_a_caption_without_a_picture_is_refused() -> None:
    said = nodes.paragraph("", "", nodes.Text(""), nodes.strong("", "Figure 7.2."), nodes.Text(" See it."))
    assert book_extension.caption_number(said) == "7.2"
    with pytest.raises(ValueError, match=r"page: no picture directly above the caption of Figure 7\.2"):
        book_extension.caption_figures(
            SimpleNamespace(builder=SimpleNamespace(name="html")), nodes.section("", said), "page"
        )
