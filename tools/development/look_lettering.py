"""The words in an SVG as Chromium sets them: how large they are, which touch, which run out, which are hard to see.

A word is a `text` element, or a group that matplotlib draws as paths (its identifier holds `text_`). A file is laid on
the page's ground at its natural size; an SVG of the page stays there. `Lettering.width` says how wide the picture was.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass

import numpy as np
from playwright.sync_api import Browser, Locator

from tools.development.look_browser import PATIENCE, picture
from tools.development.look_pixels import lettering_contrast

DENSITY = 3  # pixels for each of CSS, so that thin strokes have their whole colour somewhere
LEAST_CONTRAST, LARGE, LEAST_OF_LARGE = 4.5, 24.0, 3.0  # WCAG: contrast, pixels, contrast of what is so large
WORDS = """(svg) => {
    const frame = svg.getBoundingClientRect();
    const drawn = [...svg.querySelectorAll('g[id*="text_"]')].filter((one) => !one.querySelector("text"));
    const shown = (one) => one.checkVisibility({opacityProperty: true, visibilityProperty: true});
    const scale = (m) => Math.sqrt(Math.abs(m.a * m.d - m.b * m.c));
    const described = (element, size, label, trim) => {
        const box = element.getBBox(), m = element.getScreenCTM(), cut = trim * box.height;
        const [x0, x1, y0, y1] = [box.x, box.x + box.width, box.y + cut, box.y + box.height - cut];
        const corners = [[x0, y0], [x1, y0], [x1, y1], [x0, y1]].map(
            ([x, y]) => [m.a * x + m.c * y + m.e - frame.x, m.b * x + m.d * y + m.f - frame.y]);
        element.setAttribute("data-look", "");
        return {size, label: label.trim().replace(/\\s+/g, " "), corners};
    };
    const words = [...svg.querySelectorAll("text")].filter((one) => shown(one) && one.textContent.trim()).map((one) => {
        const sizes = [one, ...one.querySelectorAll("*")].map((part) => parseFloat(getComputedStyle(part).fontSize));
        return described(one, Math.max(...sizes) * scale(one.getScreenCTM()), one.textContent, 0.18);
    });
    for (const group of drawn) {
        const glyphs = [...group.querySelectorAll("use, path")].filter((one) => !one.closest("defs") && shown(one));
        if (!glyphs.length) continue;
        const comment = [...group.childNodes].find((one) => one.nodeType === Node.COMMENT_NODE);
        const size = 100 * Math.max(...glyphs.map((one) => scale(one.getScreenCTM())));
        const inner = group.querySelector(":scope > g[transform]") ?? group;
        words.push(described(inner, size, comment?.data ?? group.id, 0));
    }
    const measured = words.filter((one) => one.corners.flat().every(Number.isFinite));
    return {words: measured, x: frame.x + scrollX, y: frame.y + scrollY, width: frame.width, height: frame.height};
}"""
HIDE = """(svg, hidden) => {
    for (const one of svg.querySelectorAll("[data-look]")) one.style.visibility = hidden ? "hidden" : "";
}"""
SHELL = '<!doctype html><body style="margin: 0; background: {ground}"><div style="filter: {filter}">{svg}</div></body>'


@dataclass
class Word:
    """One piece of lettering: what it says, its size in pixels, its four corners, its contrast."""

    label: str
    size: float
    corners: np.ndarray
    contrast: float = 21.0

    @property
    def is_hard_to_see(self) -> bool:
        return self.contrast < (LEAST_OF_LARGE if self.size >= LARGE else LEAST_CONTRAST)


@dataclass
class Lettering:
    """All words of an SVG, and its natural size."""

    words: list[Word]
    width: float
    height: float

    def touching(self) -> list[tuple[str, str]]:
        """The words whose boxes share some room."""
        pairs = itertools.combinations(self.words, 2)
        return [(one.label, other.label) for one, other in pairs if overlap(one.corners, other.corners) > 1.0]

    def outside(self) -> list[str]:
        """The words that run over the picture's edge, by more than a pixel."""
        low, high = np.array([-1.0, -1.0]), np.array([self.width + 1, self.height + 1])
        return [word.label for word in self.words if (word.corners < low).any() or (word.corners > high).any()]


def overlap(one: np.ndarray, other: np.ndarray) -> float:
    """By how many pixels two rectangles, turned or not, reach into each other; 0 or less: they are apart."""
    depth = np.inf
    for corners in (one, other):
        for side in (corners[1] - corners[0], corners[3] - corners[0]):
            length = np.hypot(*side)
            if length == 0:
                return 0.0
            first, second = one @ side / length, other @ side / length
            depth = min(depth, first.max() - second.min(), second.max() - first.min())
    return float(depth)


@functools.lru_cache(maxsize=64)
def read(browser: Browser, svg: str, *, ground: str = "white", dimmed: str = "none") -> Lettering:
    """The words of an SVG that is drawn on this colour, under this filter of CSS.

    Raises:
        ValueError: there is no `svg` in the text.
    """
    start = svg.find("<svg")
    if start < 0:
        raise ValueError(f"svg={svg[:60]!r} holds no <svg>")
    context = browser.new_context(viewport={"width": 1600, "height": 1200})
    context.set_default_timeout(PATIENCE)
    try:
        page = context.new_page()
        page.set_content(SHELL.format(ground=ground, filter=dimmed, svg=svg[start:]))
        return lettering(page.locator("svg").first)
    finally:
        context.close()


def lettering(svg: Locator) -> Lettering:
    """The words of an SVG in a page, each with its contrast."""
    found = svg.evaluate(WORDS)
    words = [Word(one["label"], one["size"], np.array(one["corners"])) for one in found["words"]]
    if words:
        place = found["x"], found["y"], found["width"], found["height"]
        with_words = picture(svg.page, *place, DENSITY)
        svg.evaluate(HIDE, True)
        without = picture(svg.page, *place, DENSITY)
        svg.evaluate(HIDE, False)
        for word in words:
            word.contrast = lettering_contrast(with_words, without, word.corners * DENSITY)
    return Lettering(words, found["width"], found["height"])
