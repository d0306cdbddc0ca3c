"""What meets a reader of a page, in numbers: where pictures and instruments begin, how high and wide it is.

Its words are counted by tools/notebooks/core_words.py, its bars by tools/pages/folds.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from playwright.sync_api import Page

from tools.development.look_browser import DESKTOP, HEIGHTS, picture
from tools.development.look_pixels import Picture

SCREENS = 2  # from the top of a page, that its sheet shows
MEASURE = """() => {
    const article = document.querySelector("article") ?? document.body;
    const shown = (selector) => [...article.querySelectorAll(selector)].filter((one) =>
        one.checkVisibility() && one.getBoundingClientRect().height > 1);
    const tops = (all) => all.map((one) => one.getBoundingClientRect().top + scrollY);
    const first = (all) => all.length ? Math.round(Math.min(...tops(all))) : null;
    const instruments = shown(".mhalib-instrument");
    const pictures = shown(":is(figure, .figure-frame) :is(img, svg), img, svg.book-map")
        .filter((one) => !one.closest(".mhalib-instrument"));
    return {
        picture: first(pictures), instrument: first(instruments),
        tallest: Math.round(Math.max(0, ...instruments.map((one) => one.getBoundingClientRect().height))),
        height: document.documentElement.scrollHeight, scrolls: document.documentElement.scrollWidth,
    };
}"""
HEAD = f"{'page':32} {'picture':>8} {'instr.':>8} {'tall':>6} {'height':>7} {'widths':>15}"


@dataclass
class Measures:
    """What a page measures at a width of the window, in pixels and counts; `None`: it has none."""

    picture: int | None
    """Where the first picture begins, from the top of the page."""
    instrument: int | None
    """Where the first instrument begins."""
    tallest: int
    """How high the highest instrument is."""
    height: int
    scrolls: int
    """How wide the page is."""


@dataclass
class Top:
    """A page by the width of the window: its measures, and a picture of its first screens."""

    page: str
    measures: dict[int, Measures] = field(default_factory=dict)
    screens: dict[int, Picture] = field(default_factory=dict)

    @property
    def line(self) -> str:
        """Its line of the table, as it is on a desktop."""
        one = self.measures[DESKTOP.width]
        widths = " ".join(f"{measured.scrolls}" for measured in self.measures.values())
        places = ["-" if place is None else f"{place:,}" for place in (one.picture, one.instrument)]
        return (
            f"{self.page.removeprefix('chapters/'):32} {places[0]:>8} {places[1]:>8} {one.tallest or '-':>6} "
            f"{one.height:>7,} {widths:>15}"
        )

    @property
    def findings(self) -> list[str]:
        """At which widths the page itself scrolls sideways."""
        wide = {width: one.scrolls for width, one in self.measures.items() if one.scrolls > width}
        return [f"{self.page}: page: {width} light: wide: it is {found} px wide" for width, found in wide.items()]


def see(page: Page, width: int, top: Top) -> None:
    """Measure the page as it is now, with its folds closed, and take its first screens."""
    top.measures[width] = Measures(**page.evaluate(MEASURE))
    page.set_viewport_size({"width": width, "height": SCREENS * HEIGHTS[width]})
    top.screens[width] = picture(page, 0, 0, width, SCREENS * HEIGHTS[width])
