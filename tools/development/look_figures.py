"""What a reader would notice about a page's figures, as `make look` finds it: one line for each.

A figure is a picture (PNG or SVG, as a file or in the page) in a `figure` or a frame of a built page, as it is seen in
a mode: of two pictures for two themes only the one that is shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from playwright.sync_api import Browser, Page

from tools.development import look_lettering
from tools.development.look_browser import DESKTOP, NIGHT, PHONE, Mode, opened, picture, resize
from tools.development.look_lettering import Lettering
from tools.development.look_pixels import Picture, border, empty_share, luminance

CHECKS = {
    "cut": "wider than what shows it",
    "squeezed": "drawn in another ratio than its file's",
    "small": "lettering too small on a phone",
    "touching": "words that touch",
    "outside": "words that run over the edge",
    "contrast": "lettering that is hard to see",
    "empty": "mostly empty",
    "slab": "a light slab in the dark",
}
SQUEEZED = 0.02  # of the ratio of width to height
LEAST_LETTERING = 9.0  # pixels, on a phone
MOSTLY_EMPTY = 0.5  # of the area
SLAB = 0.2  # of luminance: how much lighter than the page the edge of a figure may be
SHOWN = 3  # of words that touch or cannot be seen: how many are quoted
UNFOLD = "() => { for (const one of document.querySelectorAll('article details')) one.open = true; }"
FIGURES = "article :is(figure, .figure-frame) :is(img, svg)"
MEASURE = """(selector) => {
    const coloured = (element) => {
        for (let one = element; one; one = one.parentElement) {
            const colour = getComputedStyle(one).backgroundColor;
            if (!/, 0\\)$|transparent/.test(colour)) return colour;
        }
        return "rgb(255, 255, 255)";
    };
    const room = (element) => {
        let [left, right] = [0, document.documentElement.clientWidth];
        for (let one = element.parentElement; one && one !== document.body; one = one.parentElement) {
            if (getComputedStyle(one).overflowX === "visible") continue;
            const inner = one.getBoundingClientRect().left + one.clientLeft;
            [left, right] = [Math.max(left, inner), Math.min(right, inner + one.clientWidth)];
        }
        return [left, right];
    };
    const of = (element) => {
        const [rect, style] = [element.getBoundingClientRect(), getComputedStyle(element)];
        const edge = (side) => parseFloat(style[`padding${side}`]) + parseFloat(style[`border${side}Width`]);
        const box = [rect.x + edge("Left") + scrollX, rect.y + edge("Top") + scrollY,
            rect.width - edge("Left") - edge("Right"), rect.height - edge("Top") - edge("Bottom")];
        const inline = element.localName === "svg", view = inline && element.viewBox.baseVal;
        const keeps = inline && element.preserveAspectRatio.baseVal.align !== 1;
        const natural = inline ? (view && !keeps ? [view.width, view.height] : [0, 0])
            : [element.naturalWidth, element.naturalHeight];
        const [left, right] = room(element);
        const frame = (element.closest(".figure-frame") ?? element.parentElement).getBoundingClientRect();
        const over = Math.max(box[0] + box[2] - right, left - box[0], box[2] - frame.width);
        const whole = style.objectFit === "contain" || style.objectFit === "scale-down";
        return {
            name: element.closest("figure[id]")?.id ?? "", inline, box, over, left, right,
            natural: whole ? [0, 0] : natural,
            source: inline ? "" : element.currentSrc,
            ground: coloured(element), page: coloured(element.closest("article")), dimmed: style.filter,
        };
    };
    const all = [...document.querySelectorAll(selector)].filter((one) => one.getBoundingClientRect().width > 1
        && !one.parentElement.closest("svg, figcaption, .mhalib-instrument"));
    return all.map((one, place) => { one.dataset.lookFigure = place; return of(one); });
}"""
EXACT = 1.0  # pixels


@dataclass(frozen=True)
class Finding:
    """One thing that a reader would notice."""

    page: str
    figure: str
    check: str
    mode: Mode
    said: str

    def __str__(self) -> str:
        return f"{self.page}: {self.figure}: {self.mode}: {self.check}: {self.said}"


@dataclass
class Figure:
    """A figure as it is seen in a mode; sizes in pixels of CSS."""

    name: str
    """`Figure 7.1`; where it has no number, `opening figure` or `picture 2`."""
    box: tuple[float, float, float, float]
    """Left, top, width and height of what is drawn, on the page."""
    natural: tuple[float, float]
    """Width and height in its file; zeros where they cannot be distorted."""
    over: float
    """How many pixels of its width nobody sees without scrolling."""
    page_ground: np.ndarray
    """The page's colour."""
    seen: Picture
    lettering: Lettering | None = None
    """Its words, where it is an SVG that has some."""
    is_svg: bool = False

    @property
    def ratio(self) -> float:
        """Its width to height, over that of its file."""
        return (self.box[2] / self.box[3]) / (self.natural[0] / self.natural[1]) if all(self.natural) else 1.0

    @property
    def scale(self) -> float:
        """How much larger it is drawn than its words were measured."""
        return self.box[2] / self.lettering.width if self.lettering else 1.0


@dataclass
class Seen:
    """All that was seen of a page's figures, by mode, and what is to be said of them."""

    page: str
    figures: dict[Mode, list[Figure]] = field(default_factory=dict)

    @property
    def findings(self) -> list[Finding]:
        return [one for mode, figures in self.figures.items() for figure in figures for one in self.of(figure, mode)]

    def of(self, figure: Figure, mode: Mode) -> list[Finding]:
        said = {**of_shape(figure), **of_colours(figure, mode), **of_words(figure, mode)}
        return [Finding(self.page, figure.name, check, mode, words) for check, words in said.items()]


def of_shape(figure: Figure) -> dict[str, str]:
    """Is it cut, or squeezed: what is to be said, by check."""
    said = {}
    if figure.over > EXACT:
        said["cut"] = f"{figure.over:.0f} of {figure.box[2]:.0f} px are not seen"
    if abs(figure.ratio - 1) > SQUEEZED:
        said["squeezed"] = f"to {figure.ratio:.2f} of its width to height"
    return said


def of_colours(figure: Figure, mode: Mode) -> dict[str, str]:
    """Is it a slab, or empty."""
    said = {}
    if mode == NIGHT:
        edge, behind = float(luminance(border(figure.seen)).mean()), float(luminance(figure.page_ground))
        if edge - behind > SLAB:
            said["slab"] = f"its edge has a luminance of {edge:.2f}, the page {behind:.2f}"
    if mode == DESKTOP and (share := empty_share(figure.seen)) > MOSTLY_EMPTY:
        said["empty"] = f"one rectangle of {share:.0%} of it shows nothing"
    return said


def of_words(figure: Figure, mode: Mode) -> dict[str, str]:
    """Are its words too small, do they touch, run out or fade: each is asked in the modes where it can differ."""
    lettering, said = figure.lettering, {}
    if lettering is None or not lettering.words:
        return {}
    smallest = min(lettering.words, key=lambda word: word.size)
    if mode == PHONE and smallest.size * figure.scale < LEAST_LETTERING - 0.05:
        many = sum(word.size * figure.scale < LEAST_LETTERING - 0.05 for word in lettering.words)
        said["small"] = f"{smallest.size * figure.scale:.1f} px, as in {smallest.label!r}; {many} words in all"
    if mode == DESKTOP and (pairs := lettering.touching()):
        quoted = ", ".join(f"{one!r} and {other!r}" for one, other in pairs[:SHOWN])
        said["touching"] = f"{len(pairs)} pairs, as {quoted}"
    if mode == DESKTOP and (labels := lettering.outside()):
        said["outside"] = f"{len(labels)} words, as {', '.join(map(repr, labels[:SHOWN]))}"
    if mode in (DESKTOP, NIGHT) and (pale := [word for word in lettering.words if word.is_hard_to_see]):
        worst = min(pale, key=lambda word: word.contrast)
        said["contrast"] = f"{worst.contrast:.1f} to 1 in {worst.label!r}; {len(pale)} words in all"
    return said


def colour(css: str) -> np.ndarray:
    """(3,): `rgb(1, 2, 3)` as numbers."""
    return np.array([float(part) for part in re.findall(r"[\d.]+", css)[:3]])


def figures(browser: Browser, page: Page) -> list[Figure]:
    """The figures of a page as they are seen now, those in folds too."""
    page.evaluate(UNFOLD)
    found, names = [], set()
    for place, one in enumerate(page.evaluate(MEASURE, FIGURES)):
        number = re.fullmatch(r"figure-(\d+)-(\d+)", one["name"])
        name = f"Figure {number[1]}.{number[2]}" if number else f"picture {place + 1}"
        name = "opening figure" if one["name"] == "opening-figure" else name
        name += f", part {place + 1}" if name in names else ""
        names.add(name)
        left, top, width, height = one["box"]
        visible = max(left, one["left"]), min(left + width, one["right"])
        seen = picture(page, visible[0], top, visible[1] - visible[0], height)
        figure = Figure(name, one["box"], one["natural"], one["over"], colour(one["page"]), seen)
        if one["inline"]:
            figure.is_svg = True
            figure.lettering = look_lettering.lettering(page.locator(f"[data-look-figure='{place}']"))
        elif one["source"].partition("?")[0].endswith(".svg"):
            figure.is_svg = True
            svg = page.request.get(one["source"]).text()
            figure.lettering = look_lettering.read(browser, svg, ground=one["ground"], dimmed=one["dimmed"])
        found.append(figure)
    return found


def look_at(browser: Browser, address: str, name: str, modes: Iterable[Mode] = (DESKTOP, PHONE, NIGHT)) -> Seen:
    """The figures of one page in these modes; each scheme is loaded once."""
    seen, wanted = Seen(name), list(modes)
    for scheme in dict.fromkeys(mode.scheme for mode in wanted):
        with opened(browser, address, scheme) as page:
            for mode in (mode for mode in wanted if mode.scheme == scheme):
                resize(page, mode.width)
                seen.figures[mode] = figures(browser, page)
    return seen
