"""What `make look` finds: each fault on a page made for it, and on no other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image
from playwright.sync_api import Browser

from tools.development import look_figures, look_lettering
from tools.development.look_browser import DESKTOP, NIGHT, PHONE, Mode
from tools.pages import chromium

pytestmark = [pytest.mark.browser, pytest.mark.tool]

STYLE = """
    body { margin: 0; background: white; }
    @media (prefers-color-scheme: dark) { body { background: #121212; } .only-light { display: none; } }
    @media (prefers-color-scheme: light) { .only-dark { display: none; } }
    article { margin: 20px; max-width: 700px; }
    .figure-frame { overflow-x: auto; }
    figure { margin: 0; }
    .fits { max-width: 100%; height: auto; }
"""
FRAMED = '<figure id="figure-3-1"><div class="figure-frame">{}</div><figcaption>Figure 3.1. See.</figcaption></figure>'
Made = Callable[..., set[tuple[str, str]]]


@pytest.fixture
def found(browser: Browser, tmp_path: Path) -> Made:
    """The checks and modes of what is found on a page with this article; its files lie in `tmp_path`."""

    def look(article: str, style: str = "", modes: Sequence[Mode] = (DESKTOP, PHONE, NIGHT)) -> set[tuple[str, str]]:
        head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><style>{STYLE}{style}</style>'
        html = f'<!doctype html><html lang="en"><head>{head}</head><body><article>{article}</article></body></html>'
        (tmp_path / "page.html").write_text(html, encoding="utf-8")
        with chromium.serving(tmp_path) as site:
            seen = look_figures.look_at(browser, f"{site}page.html", "page", modes)
        assert {one.figure for one in seen.findings} <= {"Figure 3.1"}
        return {(one.check, str(one.mode)) for one in seen.findings}

    return look


def png(path: Path, width: int, height: int, ground: tuple[int, ...] = (255, 255, 255), ink: str = "all") -> None:
    """A picture with marks all over it, or in its upper left corner alone, or with none along its edge."""
    picture = np.zeros((height, width, len(ground)), dtype=np.uint8)
    picture[:] = ground
    marks = picture[5:-5, 5:-5] if ink == "all" else picture[5 : height // 4, 5 : width // 4]
    marks[::12, ::3] = marks[:, ::12] = (90, 120, 200, 255)[: len(ground)]
    Image.fromarray(picture).save(path)


def svg(words: str, width: int = 340, height: int = 200, ground: str = "none") -> str:
    lines = "".join(f'<path stroke="#888" d="M{x} 110V{height - 5}"/>' for x in range(5, width, 12))
    back = f'<rect width="100%" height="100%" fill="{ground}"/>'
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{back}{lines}{words}</svg>'


def word(text: str, x: float = 20, y: float = 60, size: float = 14, more: str = 'fill="#757575"') -> str:
    """In a grey that can be read on white."""
    return f'<text x="{x}" y="{y}" font-size="{size}" font-family="sans-serif" {more}>{text}</text>'


DARK, PALE = 'fill="#222"', 'fill="#ddd"'
IMAGE = '<img class="fits" width="600" height="300" alt="" src="a.png">'


def test_a_figure_that_fits_is_whole_and_of_its_ratio(found: Made, tmp_path: Path) -> None:
    png(tmp_path / "a.png", 600, 300, (0, 0, 0, 0))
    assert found(FRAMED.format(IMAGE)) == set()


@pytest.mark.parametrize(
    ("style", "article"),
    [
        (".fits { max-width: none; }", FRAMED.format(IMAGE)),
        (".fits { max-width: none; } .figure-frame { overflow-x: hidden; }", FRAMED.format(IMAGE)),
        (".fits { max-width: none; } .figure-frame { overflow-x: visible; }", FRAMED.format(IMAGE)),
        (".outer { overflow: clip; width: 300px; } .figure-frame { width: 350px; }", FRAMED.format(IMAGE)),
    ],
    ids=["scrolls", "hidden", "wider than the window", "cut by what is around it"],
)
def test_a_cut_figure_is_found(found: Made, tmp_path: Path, style: str, article: str) -> None:
    png(tmp_path / "a.png", 600, 300, (0, 0, 0, 0))
    assert ("cut", "390 light") in found(f'<div class="outer">{article}</div>', style, [PHONE])


def test_a_squeezed_figure_is_found_where_it_is_squeezed(found: Made, tmp_path: Path) -> None:
    png(tmp_path / "a.png", 600, 300, (0, 0, 0, 0))
    assert found(FRAMED.format(IMAGE), ".fits { height: 300px; }") == {("squeezed", "390 light")}
    assert found(FRAMED.format(IMAGE), ".fits { height: 300px; object-fit: contain; }") == set()
    assert (
        found(FRAMED.format(IMAGE), ".fits { box-sizing: border-box; width: 300px; height: 160px; padding: 0 0 10px; }")
        == set()
    )


def test_a_squeezed_svg_is_found_in_a_file_and_in_the_page(found: Made, tmp_path: Path) -> None:
    (tmp_path / "a.svg").write_text(svg("").replace("<svg", '<svg preserveAspectRatio="none"'), encoding="utf-8")
    squeezed = ("squeezed", "390 light")
    assert squeezed in found(FRAMED.format('<img width="340" height="150" alt="" src="a.svg">'), modes=[PHONE])
    inline = FRAMED.format(svg(""))
    distorted = inline.replace('height="200"', 'height="150" preserveAspectRatio="none"')
    assert squeezed in found(distorted, modes=[PHONE])
    assert found(inline.replace('height="200"', 'height="150"'), modes=[PHONE]) == set()  # it leaves room beside it


@pytest.mark.parametrize("place", ["file", "page"])
@pytest.mark.parametrize(
    ("width", "size", "small"), [(340, 14, False), (340, 8, True), (660, 14, True), (660, 22, False)]
)
def test_small_lettering_is_found(found: Made, tmp_path: Path, place: str, width: int, size: int, small: bool) -> None:
    drawn = svg(word("query", size=size), width)
    (tmp_path / "a.svg").write_text(drawn, encoding="utf-8")
    image = '<img class="fits" alt="" src="a.svg">' if place == "file" else drawn.replace("<svg", '<svg class="fits"')
    assert (
        ("small", "390 light") in found(FRAMED.format(image), ".fits { width: 100%; max-width: 660px; }", [PHONE])
    ) is small


@pytest.mark.parametrize("kind", ["path", "none"])
def test_matplotlibs_lettering_has_the_size_it_was_asked_for(browser: Browser, tmp_path: Path, kind: str) -> None:
    figure = Figure(figsize=(4, 3))
    axes = figure.subplots()
    axes.set_title("of twelve points", fontsize=12)
    axes.set_ylabel("of nine, turned", fontsize=9)
    axes.set(xticks=[], yticks=[])
    with mpl.rc_context({"svg.fonttype": kind}):
        figure.savefig(tmp_path / "a.svg")
    lettering = look_lettering.read(browser, (tmp_path / "a.svg").read_text(encoding="utf-8"))
    assert (lettering.width, lettering.height) == pytest.approx((4 * 96, 3 * 96), abs=0.5)
    sizes = {one.label: one.size for one in lettering.words}
    points = {label: size * 72 / 96 for label, size in sizes.items()}
    assert points == pytest.approx({"of twelve points": 12, "of nine, turned": 9}, rel=0.01)
    assert (lettering.touching(), lettering.outside()) == ([], [])


TURNED = 'fill="#222" transform="rotate(-45 {} 100)"'


@pytest.mark.parametrize(
    ("words", "touch"),
    [
        (word("previous", 20) + word("next", 90), False),
        (word("previous", 20) + word("next", 60), True),
        (word("one line", 20, 40) + word("the next", 20, 54), False),
        (word("one line", 20, 40) + word("the next", 20, 45), True),
        ("".join(word("previous", x, 100, more=TURNED.format(x)) for x in (20, 45, 70)), False),
        ("".join(word("previous", x, 100, more=TURNED.format(x)) for x in (20, 30, 40)), True),
        (word("previous", 20) + word("unseen", 20, more='visibility="hidden"'), False),
    ],
    ids=["apart", "beside", "lines", "close lines", "turned", "turned and close", "one is hidden"],
)
def test_words_that_touch_are_found(found: Made, tmp_path: Path, words: str, touch: bool) -> None:
    (tmp_path / "a.svg").write_text(svg(words), encoding="utf-8")
    assert (("touching", "1280 light") in found(FRAMED.format('<img alt="" src="a.svg">'), modes=[DESKTOP])) is touch
    assert (("touching", "1280 light") in found(FRAMED.format(svg(words)), modes=[DESKTOP])) is touch


def test_words_that_run_over_the_edge_are_found(found: Made, tmp_path: Path) -> None:
    for x, over in ((20, False), (310, True), (-20, True)):
        (tmp_path / "a.svg").write_text(svg(word("previous", x)), encoding="utf-8")
        assert (("outside", "1280 light") in found(FRAMED.format('<img alt="" src="a.svg">'), modes=[DESKTOP])) is over


DARK_CELL = '<rect x="10" y="40" width="100" height="30" fill="#333"/>'


@pytest.mark.parametrize(
    ("light", "dark", "pale"),
    [
        (word("query", more=DARK), word("query", more=PALE), set()),
        (word("query", more=DARK), word("query", more=DARK), {"1280 dark"}),
        (word("query", more=PALE), word("query", more=PALE), {"1280 light"}),
        (word("query", more='fill="#222" opacity="0.3"'), word("query", more=PALE), {"1280 light"}),
        (DARK_CELL + word("0.7", more=DARK), word("query", more=PALE), {"1280 light"}),
        (DARK_CELL + word("0.7", more=PALE), word("query", more=PALE), set()),
        (DARK_CELL + word("over its edge", 92, more=DARK), word("query", more=PALE), {"1280 light"}),
        (word("query", more='fill="#767676"'), word("query", more=PALE), set()),
        (word("query", more='fill="#868686"'), word("query", more=PALE), {"1280 light"}),
        (word("query", size=30, more='fill="#868686"'), word("query", more=PALE), set()),
    ],
)
def test_pale_lettering_is_found_in_its_theme(found: Made, tmp_path: Path, light: str, dark: str, pale: set) -> None:
    for theme, words in (("light", light), ("dark", dark)):
        (tmp_path / f"{theme}.svg").write_text(svg(words), encoding="utf-8")
    images = "".join(f'<img class="only-{theme}" alt="" src="{theme}.svg">' for theme in ("light", "dark"))
    assert {mode for check, mode in found(FRAMED.format(images), modes=[DESKTOP, NIGHT]) if check == "contrast"} == pale


def test_pale_lettering_is_found_in_an_svg_of_the_page(found: Made) -> None:
    themed = "svg { color: #222; } @media (prefers-color-scheme: dark) { svg { color: #ddd; } }"
    drawn = FRAMED.format(svg(word("query", more='fill="currentColor"')))
    assert found(drawn, themed) == set()
    assert found(drawn) == {("contrast", "1280 dark")}


@pytest.mark.parametrize(("ink", "empty"), [("all", False), ("corner", True)])
def test_an_empty_figure_is_found(found: Made, tmp_path: Path, ink: str, empty: bool) -> None:
    png(tmp_path / "a.png", 600, 300, (0, 0, 0, 0), ink)
    assert (("empty", "1280 light") in found(FRAMED.format(IMAGE), modes=[DESKTOP])) is empty


@pytest.mark.parametrize(
    ("ground", "style", "slab"),
    [
        ((255, 255, 255), "", True),
        ((255, 255, 255), "img { filter: brightness(0.85); }", True),
        ((255, 255, 255), ".figure-frame { background: white; }", True),
        ((24, 24, 24), "", False),
        ((0, 0, 0, 0), "", False),
        ((0, 0, 0, 0), ".figure-frame { background: white; }", True),
    ],
)
def test_a_light_slab_in_the_dark_is_found(found: Made, tmp_path: Path, ground: tuple, style: str, slab: bool) -> None:
    png(tmp_path / "a.png", 600, 300, ground)
    assert found(FRAMED.format(IMAGE), style, [NIGHT]) == ({("slab", "1280 dark")} if slab else set())


def test_of_two_themes_only_the_shown_one_is_looked_at_and_a_fold_hides_nothing(found: Made, tmp_path: Path) -> None:
    png(tmp_path / "light.png", 300, 150)
    png(tmp_path / "dark.png", 300, 150, (20, 20, 20))
    images = "".join(f'<img class="only-{theme}" alt="" src="{theme}.png">' for theme in ("light", "dark"))
    folded = f"<details><summary>Answer</summary>{FRAMED.format(images)}</details>"
    assert found(folded) == set()
    assert found(folded.replace("dark.png", "light.png")) == {("slab", "1280 dark")}


def test_what_slides_when_the_window_changes_is_waited_for(found: Made, tmp_path: Path) -> None:
    png(tmp_path / "a.png", 300, 150, (0, 0, 0, 0))
    slides = "article { transition: margin-left 0.5s; } @media (max-width: 500px) { article { margin-left: 250px; } }"
    image = '<img alt="" src="a.png">'
    assert found(FRAMED.format(image), slides, [DESKTOP, PHONE]) == {("cut", "390 light")}
    assert found(FRAMED.format(image), slides.replace("max-width", "min-width"), [PHONE, DESKTOP]) == set()


def test_a_page_that_is_not_there_is_refused(browser: Browser, tmp_path: Path) -> None:
    with chromium.serving(tmp_path) as site, pytest.raises(ValueError, match=r"none\.html: the server answers 404"):
        look_figures.look_at(browser, f"{site}none.html", "none")


def test_a_text_without_svg_is_refused(browser: Browser) -> None:
    with pytest.raises(ValueError, match="svg='<html>' holds no <svg>"):
        look_lettering.read(browser, "<html>")
