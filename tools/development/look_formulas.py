"""Every formula of the book as our pages draw it, beside MathJax's drawing; what differs comes first.

    python -m tools.development.look_formulas [FOLDER]

writes sheets of pictures for eyes (into _build/look/formulas), and prints the formulas whose parts differ: a part is a
connected piece of ink, such as a letter, a root or a fraction's bar. The two agree where each part of one has a part
of about the same size at about the same place in the other. `make javascript` brings MathJax.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import nbformat
import numpy as np
from PIL import Image, ImageDraw, ImageFont
from playwright.sync_api import sync_playwright
from scipy.optimize import linear_sum_assignment

from tools import ROOT
from tools.development import formula_ink
from tools.development.formula_ink import Drawing, Pair, Part
from tools.editions import single_page
from tools.pages import chromium

SHEETS = ROOT / "_build/look/formulas"
FORMULA = re.compile(r"\$\$(.+?)\$\$|\$([^$\n]+?)\$", re.DOTALL)
NO_FORMULA = re.compile(r"^(`{3,}).*?^\1|`[^`\n]*`", re.MULTILINE | re.DOTALL)
SHADES = (60, 85, 110, 140, 165, 190)  # letters that touch at one of them are apart at another
TOUCH = 0.12  # em
FAR = 1e3
SEEN = {  # what differs in looks alone, as somebody saw; spaces as one
    r"\begin{aligned} \frac{F}{M} &= \frac{2\,X\,Y\,Z}{\nu\,(X\,Y + Y\,Z + X\,Z)}\\ &= \frac{2}{\nu} \cdot "
    r"\frac{1}{\frac1X + \frac1Y + \frac1Z}. \end{aligned}": "MathJax has wider bars in fractions of fractions",
    r"\frac{F}{M} = \frac{2}{\nu} \cdot \frac{1}{\frac{2}{N} + \frac{h}{D}} \;<\; \frac{2d}{\nu}.": "the same",
    r"\tfrac{1}{2} / \sqrt{\tfrac{1}{2}} = 0.71": "the same, and it takes a larger root",
    "(X, Y)": "letters that touch",
}
OURS, THEIRS, WIDTH, HEIGHT = 350, 930, 1500, 1900  # pixels of a sheet


class Formula(NamedTuple):
    tex: str
    display: bool
    page: str

    @property
    def line(self) -> str:
        return " ".join(self.tex.split())

    @property
    def is_seen(self) -> bool:
        return self.line in SEEN


def formulas() -> list[Formula]:
    """Each different formula of the book's pages, in their order, with the page that has it first."""
    found: dict[tuple[str, bool], Formula] = {}
    for name, _, _ in single_page.listed(ROOT / "_toc.yml"):
        path = ROOT / f"chapters/{name}.ipynb"
        cells = nbformat.read(path, as_version=4).cells if path.exists() else []
        texts = [cell.source for cell in cells if cell.cell_type == "markdown"]
        prose = "\n\n".join(texts) if path.exists() else path.with_suffix(".md").read_text(encoding="utf-8")
        for alone, inside in FORMULA.findall(NO_FORMULA.sub("", prose)):
            tex = alone or inside
            found.setdefault((tex, bool(alone)), Formula(tex, bool(alone), name))
    return list(found.values())


def pair_up(ours: Sequence[Part], theirs: Sequence[Part]) -> tuple[list[Part], list[Part]]:
    """The parts of each that have no partner in the other. Spaces may differ, and add up along a formula."""
    if not ours or not theirs:
        return list(ours), list(theirs)
    left, right = np.array(ours)[:, None], np.array(theirs)[None]
    apart, larger = np.abs(left - right), np.maximum(np.abs(left), np.abs(right))
    x, y, width, height = np.moveaxis(larger, -1, 0)
    allowed = [0.45 + 0.1 * x, 0.2 + 0.15 * y + 0.1 * height, 0.25 + 0.1 * width, 0.25 + 0.15 * height]
    share = apart / np.stack(allowed, -1)
    cost = np.where((share <= 1).all(-1), share.sum(-1), FAR)
    rows, columns = linear_sum_assignment(cost)
    good = cost[rows, columns] < FAR
    paired, taken = set(rows[good]), set(columns[good])
    return (
        [part for place, part in enumerate(ours) if place not in paired],
        [part for place, part in enumerate(theirs) if place not in taken],
    )


def together(parts: Sequence[Part]) -> list[Part]:
    """Parts that nearly touch, as one."""
    groups: list[tuple[float, float, float, float]] = []
    for part in parts:
        box = (part.x - part.width / 2, part.y - part.height / 2, part.x + part.width / 2, part.y + part.height / 2)
        for other in [one for one in groups if near(one, box)]:
            groups.remove(other)
            box = (min(box[0], other[0]), min(box[1], other[1]), max(box[2], other[2]), max(box[3], other[3]))
        groups.append(box)
    return [Part((a + c) / 2, (b + d) / 2, c - a, d - b) for a, b, c, d in groups]


def near(one: Sequence[float], two: Sequence[float]) -> bool:
    return all(max(one[side], two[side]) - min(one[side + 2], two[side + 2]) <= TOUCH for side in (0, 1))


def unpaired(pair: Pair) -> int:
    """How many parts the drawings do not share, at the shade where they agree best."""
    counts = []
    for shade in SHADES:
        ours, theirs = pair_up(pair.ours.parts(shade), pair.theirs.parts(shade))
        ours, theirs = pair_up(together(ours), together(theirs))
        counts.append(len(ours) + len(theirs))
    return min(counts)


def drawn(given: Sequence[Formula]) -> list[Pair]:
    """Each formula, drawn twice in a Chromium of our own."""
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = chromium.launch(playwright)
        pairs = formula_ink.draw(browser.new_page(), [one[:2] for one in given], Path(folder))
        browser.close()
    return pairs


def row(formula: Formula, pair: Pair) -> Image.Image:
    """A formula's page and TeX, our drawing and MathJax's, side by side."""
    pictures = [ink(drawing) for drawing in pair]
    shrink = min(0.75, 560 / max(one.width for one in pictures))
    pictures = [one.resize((int(one.width * shrink) + 1, int(one.height * shrink) + 1)) for one in pictures]
    lines = textwrap.wrap(f"{formula.page[:2]} {formula.line}", 44)
    made = Image.new("L", (WIDTH, max(18 * len(lines), *(one.height for one in pictures)) + 10), 255)
    pen = ImageDraw.Draw(made)
    pen.multiline_text((4, 4), "\n".join(lines), fill=0, font=ImageFont.load_default(15))
    for picture, left in zip(pictures, (OURS, THEIRS), strict=True):
        made.paste(picture, (left, 5))
    pen.line((0, made.height - 1, WIDTH, made.height - 1), fill=200)
    return made


def ink(drawing: Drawing) -> Image.Image:
    """A drawing without the white around it."""
    rows, columns = np.nonzero(drawing.shades < 235)
    if not len(rows):
        return Image.new("L", (1, 1), 255)
    return Image.fromarray(drawing.shades[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1])


def write(rows: Sequence[Image.Image], folder: Path) -> None:
    """The rows on as many sheets as they need."""
    pages: list[list[Image.Image]] = [[]]
    for one in rows:
        if pages[-1] and sum(other.height for other in pages[-1]) + one.height > HEIGHT:
            pages.append([])
        pages[-1].append(one)
    for number, page in enumerate(pages):
        sheet = Image.new("L", (WIDTH, sum(one.height for one in page)), 255)
        top = 0
        for one in page:
            sheet.paste(one, (0, top))
            top += one.height
        sheet.save(folder / f"formulas-{number:02}.png")


def sheets(folder: Path) -> list[str]:
    """Write the sheets into `folder`, and return a line for each formula whose drawings differ."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("formulas-*.png"):
        old.unlink()
    given = formulas()
    pairs = drawn(given)
    counts = [unpaired(pair) for pair in pairs]
    order = sorted(range(len(given)), key=lambda place: -counts[place])
    write([row(given[place], pairs[place]) for place in order], folder)
    return [
        f"{given[place].page}: {counts[place]} parts differ: {given[place].line}{' (seen)' * given[place].is_seen}"
        for place in order
        if counts[place]
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=SHEETS)
    folder = parser.parse_args().folder
    if not formula_ink.MATHJAX.exists():
        print("there is no MathJax to compare with: run  make javascript  first", file=sys.stderr)
        return 1
    findings = sheets(folder)
    print("\n".join(findings))
    print(f"{len(findings)} of {len(formulas())} formulas differ; sheets in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
