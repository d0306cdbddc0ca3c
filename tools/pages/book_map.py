"""The start page's two pictures that live: a map of the chapters, and an instrument out of one of them.

    ```{book-map} A map of the chapters.
    1: 0 0
    2: 1 0
    ```

A line gives a chapter, its row and column. Titles and addresses come from `_toc.yml`. What a chapter builds on is said
in one place, its own: the chapters that the paragraph *You need* above its first section links to. The map draws a line
from the last of them, and a circle's title names all. A chapter one column to the right of what it needs hangs below
it; a line to one farther off turns above it, where no title is.

    ```{instrument-of} 07_per_head_heatmaps
    ```

shows the instrument of that chapter's cell with the tag `front-instrument`.
"""

from __future__ import annotations

import html
import json
import re
from typing import NamedTuple

import nbformat
import yaml
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from tools import ROOT
from tools.notebooks import notebooks
from tools.pages import catalogues

FRONT_INSTRUMENT = "front-instrument"
LINE = re.compile(r"(\d+): (\d+) (\d+)")
NEEDS = re.compile(r"^You need .+", re.MULTILINE)
CHAPTER = re.compile(r"\((\d+)_\w+\.ipynb[)#]")
STEP, DROP, RADIUS, MARGIN = 30, 30, 12, 20  # pixels from column to column and row to row, of a circle, around all
WIDTH, LEGEND = 960, 8  # with the titles on the right; the names of the parts are below these columns on the left


class Station(NamedTuple):
    """Where a chapter is on the map."""

    row: int
    column: int


def stations(lines: list[str]) -> dict[int, Station]:
    """The lines of a map, by chapter.

    Raises:
        ValueError: a line that cannot be read.
    """
    found = {}
    for line in filter(None, map(str.strip, lines)):
        parts = LINE.fullmatch(line)
        if parts is None:
            raise ValueError(f"{line!r}: write a chapter, its row and column, as in '2: 1 0'")
        found[int(parts[1])] = Station(int(parts[2]), int(parts[3]))
    return found


def needs(stem: str) -> list[int]:
    """The chapters that a chapter says it needs, in order."""
    cells = json.loads((notebooks.CHAPTERS / f"{stem}.ipynb").read_text(encoding="utf-8"))["cells"]
    text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    said = " ".join(NEEDS.findall(text.partition("\n## ")[0]))
    return sorted({int(number) for number in CHAPTER.findall(said)})


def chapters() -> dict[int, tuple[int, str, str]]:
    """Of every chapter: its part, counted from 1, its file's name and its title."""
    listed = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    found = {}
    for part, one in enumerate(listed["parts"], 1):
        for chapter in one["chapters"]:
            if numbered := re.match(r"(\d+) · (.+)", chapter.get("title", "")):
                found[int(numbered[1])] = (part, chapter["file"].split("/")[-1], numbered[2])
    return found


def parts() -> list[str]:
    """The parts of the book by their titles, in order; what has no number, the reference, is none."""
    listed = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    return [one["caption"] for one in listed["parts"] if one["caption"].startswith("Part ")]


def titles() -> dict[str, str]:
    """The title of each chapter with its number, by its file's name."""
    return {stem: f"{number} · {title}" for number, (_, stem, title) in chapters().items()}


def drawn(placed: dict[int, Station], label: str, language: str = "en") -> str:
    """The map as SVG: a circle and a link for each chapter, a line for each from the last one that it needs. In another
    language, titles are those of its pages."""
    known = chapters()
    if placed.keys() != known.keys():
        wrong = sorted(placed.keys() ^ known.keys())
        raise ValueError(f"chapters {wrong} are in only one of the map and _toc.yml: add or drop their lines")

    def place(number: int) -> tuple[int, int]:
        return MARGIN + STEP * placed[number].column, MARGIN + DROP * placed[number].row

    lines, circles = [], []
    for number in sorted(placed):
        x, y = place(number)
        part, name, title = known[number]
        told = ""
        if before := needs(name):
            left, top = place(before[-1])
            turn = f"{left},{y}" if x - left == STEP else f"{left},{y - DROP // 2} {x},{y - DROP // 2}"
            lines.append(f'<polyline points="{left},{top} {turn} {x},{y}"/>')
            told = f" (needs {', '.join(map(str, before))})"
        told = f"Chapter {number}: {title}{told}"
        if language != "en":
            told = catalogues.title_of(language, f"chapters/{name}", f"{number} · {title}")
            title = told.partition(" · ")[2]
        said = html.escape(told, quote=True)
        circles.append(
            f'<a href="{name}.html" class="part-{part}" aria-label="{said}"><title>{said}</title>'
            f'<circle cx="{x}" cy="{y}" r="{RADIUS}"/><text x="{x}" y="{y}">{number}</text>'
            f'<text class="name" x="{x + RADIUS + 6}" y="{y}">{html.escape(title)}</text></a>'
        )
    lowest = max(one.row for one in placed.values() if one.column < LEGEND)
    legend = "".join(
        f'<g class="part-{part}"><circle cx="{MARGIN}" cy="{y}" r="5"/>'
        f'<text class="name" x="{MARGIN + RADIUS + 6}" y="{y}">{html.escape(caption)}</text></g>'
        for part, english in enumerate(parts(), 1)
        for caption in [catalogues.title_of(language, "chapters/index", english)]
        for y in [DROP * (lowest + 2 + part)]
    )
    height = 2 * MARGIN + DROP * max(one.row for one in placed.values())
    said = html.escape(label, quote=True)
    return (
        f'<svg class="book-map" viewBox="0 0 {WIDTH} {height}" role="group" aria-label="{said}">'
        f'<g>{"".join(lines)}</g>{"".join(circles)}<g class="parts">{legend}</g></svg>'
    )


class BookMap(SphinxDirective):
    """The map, at the place of the directive."""

    required_arguments = 1
    final_argument_whitespace = True
    has_content = True

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(ROOT / "_toc.yml"))
        for _, stem, _ in chapters().values():
            self.env.note_dependency(str(notebooks.CHAPTERS / f"{stem}.ipynb"))
        try:
            made = drawn(stations(list(self.content)), self.arguments[0], self.config.language)
        except ValueError as error:
            raise self.error(str(error)) from error
        return [nodes.raw("", made, format="html")]


class InstrumentOf(SphinxDirective):
    """An instrument, at the place of the directive."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        path = notebooks.CHAPTERS / f"{self.arguments[0]}.ipynb"
        self.env.note_dependency(str(path))
        try:
            cell = notebooks.cell_with_tag(nbformat.read(path, as_version=4), FRONT_INSTRUMENT)
        except ValueError as error:
            raise self.error(f"{path.name}: {error}") from error
        shown = [output["data"]["text/html"] for output in cell.outputs if "text/html" in output.get("data", {})]
        if len(shown) != 1:
            raise self.error(f"{path.name}: the cell with the tag {FRONT_INSTRUMENT!r} must end in an instrument")
        return [nodes.container("", nodes.raw("", shown[0], format="html"), classes=[FRONT_INSTRUMENT])]


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("book-map", BookMap)
    app.add_directive("instrument-of", InstrumentOf)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
