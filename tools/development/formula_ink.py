"""Formulas as they are drawn: by our pages, and by MathJax from its own script and paths; and what of it is ink.

MathJax knows nothing of our converter and our font. It has a copy of the same design of letters, so what it draws can
be held against ours part by part. It comes from npm (package-lock.json), and asks for nothing from anywhere else.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from playwright.sync_api import Page
from scipy import ndimage

from tools import ROOT
from tools.pages.math_font import FONT
from tools.pages.mathml import mathml

STYLE = ROOT / "chapters/_static/book.css"
MATHJAX = ROOT / "node_modules/@mathjax/mathjax-stix2-font"
EM = 40  # pixels
WIDTH = 2000
STRIP = 4000
SETTINGS = {
    "startup": {"typeset": False},
    "loader": {"paths": {"mathjax-stix2": MATHJAX.as_uri()}},
    "svg": {"fontCache": "none", "displayOverflow": "overflow", "linebreaks": {"inline": False}},
    "options": {
        "enableMenu": False,
        "renderActions": {name: [] for name in ("enrich", "attachSpeech", "explorable", "addMenu")},
    },
}
CELLS = f"""
body {{ margin: 0; width: {WIDTH}px; background: white; color: black; }}
p {{ margin: 0; }}
.cell {{ display: inline-block; padding: 20px; white-space: nowrap; font: {EM}px serif; }}
.cell math {{ display: inline math; font-size: {EM}px; font-kerning: none; margin: 0; }} /* MathJax does not kern */
.cell i {{ display: inline-block; }}
"""
DRAW = """async ({formulas, em}) => {
  await MathJax.startup.promise;
  for (const cell of document.querySelectorAll(".theirs")) {
    const {tex, display} = formulas[cell.dataset.at];
    const svg = (await MathJax.tex2svgPromise(tex, {display})).querySelector("svg");
    const {x, y, width, height} = svg.viewBox.baseVal;
    svg.style = `width: ${width * em / 1000}px; height: ${height * em / 1000}px;`
      + `vertical-align: ${-(y + height) * em / 1000}px; overflow: visible`;
    cell.prepend(svg);
  }
  await document.fonts.load(`${em}px "STIX Two Math"`);
  await document.fonts.ready;
  return [...document.querySelectorAll(".cell")].map((cell) => {
    const {x, y, width, height} = cell.getBoundingClientRect();
    return [x, y, width, height, cell.querySelector("i").getBoundingClientRect().bottom - y];
  });
}"""


class Part(NamedTuple):
    """One connected piece of ink: its middle, from the left of the formula and above its line, and size, in em."""

    x: float
    y: float
    width: float
    height: float


class Drawing(NamedTuple):
    """A formula as drawn: shades from 0, black, to 255, and the row of pixels on which its letters stand."""

    shades: NDArray[np.uint8]
    line: float

    def parts(self, dark: int) -> list[Part]:
        """All connected pieces of pixels below this shade, from left to right."""
        marked, _ = ndimage.label(self.shades < dark, np.ones((3, 3)))
        boxes = ndimage.find_objects(marked)
        left = min((across.start for _, across in boxes), default=0)
        return sorted(
            Part(
                ((across.start + across.stop) / 2 - left) / EM,
                (self.line - (down.start + down.stop) / 2) / EM,
                (across.stop - across.start) / EM,
                (down.stop - down.start) / EM,
            )
            for down, across in boxes
        )


class Pair(NamedTuple):
    """A formula as our pages draw it, and as MathJax does."""

    ours: Drawing
    theirs: Drawing


def draw(page: Page, formulas: Sequence[tuple[str, bool]], folder: Path, font: Path = FONT) -> list[Pair]:
    """Both drawings of each formula, given as its TeX and whether it stands alone; `folder` takes the page."""
    embedded = f"data:font/woff2;base64,{base64.b64encode(font.read_bytes()).decode()}"
    style = STYLE.read_text(encoding="utf-8").replace(FONT.name, embedded)
    body = "".join(
        f'<p><span class="cell ours">{mathml(tex, display=display)}<i></i></span>'
        f'<span class="cell theirs" data-at="{at}"><i></i></span></p>'
        for at, (tex, display) in enumerate(formulas)
    ).replace("</p><p>", "")
    file = folder / "formulas.html"
    file.write_text(
        f'<!doctype html><meta charset="utf-8"><style>{style}{CELLS}</style>'
        f"<script>MathJax = {json.dumps(SETTINGS)}</script>"
        f'<script src="{(MATHJAX / "tex-mml-svg-mathjax-stix2.js").as_uri()}"></script>{body}',
        encoding="utf-8",
    )
    page.set_viewport_size({"width": WIDTH, "height": 800})
    page.goto(file.as_uri())
    given = [{"tex": tex, "display": display} for tex, display in formulas]
    boxes = page.evaluate(DRAW, {"formulas": given, "em": EM})
    drawings = [Drawing(shades, box[4]) for shades, box in zip(cut_out(page, boxes), boxes, strict=True)]
    return [Pair(*both) for both in zip(drawings[::2], drawings[1::2], strict=True)]


def cut_out(page: Page, boxes: Sequence[Sequence[float]]) -> list[NDArray[np.uint8]]:
    """The page's pixels in each box."""
    height = int(max(y + high for _, y, _, high, _ in boxes)) + 1
    width = int(max(x + wide for x, _, wide, _, _ in boxes)) + 1
    strips = []
    for top in range(0, height, STRIP):
        shot = page.screenshot(
            full_page=True, clip={"x": 0, "y": top, "width": width, "height": min(STRIP, height - top)}
        )
        strips.append(np.asarray(Image.open(io.BytesIO(shot)).convert("L")))
    whole = np.concatenate(strips)
    return [whole[int(y) : int(y + high) + 1, int(x) : int(x + wide) + 1] for x, y, wide, high, _ in boxes]
