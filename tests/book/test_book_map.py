"""The start page: a map that has every chapter, and an instrument that lives."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import nbformat
import pytest
from bs4 import BeautifulSoup
from playwright.sync_api import Browser, Page, expect

from tools.notebooks import notebooks
from tools.pages import book_map, catalogues

FRONT = notebooks.ROOT / "_build/html/chapters/index.html"
FRONTS = [FRONT, *sorted(notebooks.ROOT.glob("_build/html-*/chapters/index.html"))]
"""And in each other language that is built."""


def test_every_chapter_is_a_link_on_the_map() -> None:
    drawn = BeautifulSoup(FRONT.read_bytes(), "html.parser").select_one("svg.book-map")
    known = book_map.chapters()
    assert [link["href"] for link in drawn.select("a")] == [f"{known[number][1]}.html" for number in sorted(known)]
    assert [link.select_one(".name").text for link in drawn.select("a")] == [known[n][2] for n in sorted(known)]
    assert {link["class"][0] for link in drawn.select("a")} == {f"part-{number}" for number in range(1, 7)}


def test_the_map_names_each_part_beside_its_colour() -> None:
    drawn = BeautifulSoup(FRONT.read_bytes(), "html.parser").select_one("svg.book-map")
    assert [one.text for one in drawn.select(".parts > g text")] == book_map.parts()
    assert len(book_map.parts()) == 6


def test_in_french_the_map_has_the_titles_that_the_pages_have() -> None:
    """As it was: English titles on a French page."""
    placed = {number: book_map.Station(number, 0) for number in book_map.chapters()}
    drawn = BeautifulSoup(book_map.drawn(placed, "the map", "fr"), "html.parser")
    titles = [link["aria-label"] for link in drawn.select("a")]
    page = nbformat.read(notebooks.CHAPTERS / "01_weighted_average.ipynb", as_version=4)
    english = page.cells[0].source.removeprefix("# ")
    assert titles[1] == catalogues.title_of("fr", "chapters/01_weighted_average", f"1 · {english}") != f"1 · {english}"
    assert "Chapter" not in "".join(titles)
    assert drawn.select_one(".parts text").text.startswith("Partie I ·")


def test_each_chapter_but_the_first_says_which_earlier_ones_it_needs_and_a_line_leads_from_the_last() -> None:
    drawn = BeautifulSoup(FRONT.read_bytes(), "html.parser").select_one("svg.book-map")
    known = book_map.chapters()
    needed = {number: book_map.needs(known[number][1]) for number in sorted(known)}
    assert needed[0] == []
    assert all(before and before[-1] < number for number, before in needed.items() if number > 0)
    middles = [(one["cx"], one["cy"]) for one in drawn.select("a circle")]  # in the order of the chapters
    ways = [[tuple(point.split(",")) for point in one["points"].split()] for one in drawn.select("polyline")]
    lines = {way[-1]: way[0] for way in ways}
    assert lines == {middles[number]: middles[before[-1]] for number, before in needed.items() if before}
    assert len(set(middles)) == len(known)


def test_the_start_page_has_an_instrument_with_real_heads() -> None:
    page = BeautifulSoup(FRONT.read_bytes(), "html.parser")
    (instrument,) = page.select(".front-instrument .mhalib-instrument")
    assert instrument["data-script"] == "LiveModel"
    assert len(instrument.select("table tbody tr")) >= 3


RING_RULES = re.compile(r"([^{}]+)\{[^{}]*\bfront-ring\b")


def test_nothing_but_the_ring_moves_as_it_does() -> None:
    """As it was: a rule of its own matched cells that have no ring."""
    sheet = (notebooks.CHAPTERS / "_static/book.css").read_text(encoding="utf-8")
    (rule,) = RING_RULES.findall(sheet)
    assert rule.strip() == ".front-instrument"  # a variable, which the ring's own rule reads
    assert sheet.count("var(--ring-moves, none)") == 1


RINGED = """() => [...document.querySelectorAll(".front-instrument [role=gridcell]")]
    .filter((cell) => getComputedStyle(cell, "::after").borderTopStyle === "solid").map((cell) => cell.title)"""


@pytest.fixture
def front(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens a start page, and closes it whatever a test finds there."""
    with contextlib.ExitStack() as opened:
        yield lambda file, **options: open_front(opened.enter_context(browser.new_page(**options)), file)


def open_front(page: Page, file: Path) -> Page:
    page.goto(file.as_uri())
    expect(page.locator(".front-instrument [role=gridcell]").first).to_be_visible(timeout=30_000)
    return page


@pytest.mark.browser
@pytest.mark.page("chapters/index.")
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("file", FRONTS, ids=lambda file: file.parts[-3])
def test_a_ring_shows_the_cell_to_click_until_something_is_done(
    front: Callable[..., Page], file: Path, width: int
) -> None:
    page = front(file, reduced_motion="reduce", viewport={"width": width, "height": 1200})
    ringed = page.locator(".front-instrument [role=gridcell][title^='the → dog:']").first
    (title,) = page.evaluate(RINGED)
    assert title == ringed.get_attribute("title")
    moves = "(cell) => getComputedStyle(cell, '::after').animationName"
    assert ringed.evaluate(moves) == "none"
    page.emulate_media(reduced_motion="no-preference")
    assert ringed.evaluate(moves) == "front-ring"
    board = page.locator(".front-instrument .mhalib-live-model-board")
    told = page.locator(".after-first")
    expect(board).to_be_hidden()
    expect(told).to_be_hidden()
    ringed.click()
    expect(page.locator(".mhalib-live-model-sentence strong")).to_have_text("le")
    expect(board).to_be_visible()
    expect(told).to_be_visible()
    assert page.evaluate(RINGED) == []
    page.locator(".front-instrument .mhalib-live-model-tools button").nth(1).click()  # as trained
    expect(page.locator(".mhalib-live-model-sentence strong")).to_have_count(0)
    expect(board).to_be_visible()  # what is once unfolded stays
    if width > 1200:
        board, large = (
            page.locator(f".front-instrument .mhalib-live-model-{part}").bounding_box() for part in ("board", "large")
        )
        assert abs(board["y"] + board["height"] - large["y"] - large["height"]) < 30  # no blank under the maps


@pytest.mark.browser
@pytest.mark.page("chapters/index.")
@pytest.mark.parametrize("file", FRONTS, ids=lambda file: file.parts[-3])
def test_a_link_shows_all_heads_at_once(front: Callable[..., Page], file: Path) -> None:
    page = front(file)
    board = page.locator(".front-instrument .mhalib-live-model-board")
    expect(board).to_be_hidden()
    page.locator(".front a[href$='#all-heads']").click()
    expect(board).to_be_visible()
    assert len(page.evaluate(RINGED)) == 1  # there is still a cell to click


@pytest.mark.browser
@pytest.mark.page("chapters/index.")
def test_a_link_with_a_state_and_a_model_that_cannot_run_leave_nothing_folded(front: Callable[..., Page]) -> None:
    page = front(FRONT)
    expect(page.locator(".after-first")).to_be_hidden()
    page.evaluate("document.querySelector('.front-instrument table').hidden = false")  # as where a model fails
    expect(page.locator(".after-first")).to_be_visible()
    page.goto("about:blank")
    page.goto(f"{FRONT.as_uri()}#live=e30")
    expect(page.locator(".after-first")).to_be_visible()
    assert page.locator(".front-shut").count() == 0


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["1 0 0"], "write a chapter, its row and column"),
        (["1: 0 0", "3: 1 0 after 2"], "write a chapter, its row and column"),
    ],
)
def test_a_line_that_is_wrong_is_named(lines: list[str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        book_map.stations(lines)


def test_a_chapter_that_is_only_on_the_map_is_named() -> None:
    placed = {number: book_map.Station(number, 0) for number in [*book_map.chapters(), 99]}
    with pytest.raises(ValueError, match=r"chapters \[99\] are in only one"):
        book_map.drawn(placed, "map")
