"""The head of each chapter, and the code behind its figures, in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import Browser, Page

from tools.notebooks import notebooks
from tools.pages.ways import ALL_OPEN

pytestmark = pytest.mark.browser

CHAPTERS = sorted(notebooks.CHAPTERS.glob("[0-9]*.ipynb"))
FIRST_SCREEN = 900
FIRST_PICTURE = """() => {
    const [first] = [...document.querySelectorAll("article img")].filter((image) => image.checkVisibility());
    return first.getBoundingClientRect().top + scrollY;
}"""
HEAD = """() => {
    const page = document.querySelector("article section"), parts = [...page.children];
    const end = parts.findIndex((part) => part.localName === "section");
    const head = end < 0 ? parts : parts.slice(0, end);
    return {
        names: head.map((part) => part.localName === "figure" ? "picture"
            : part.querySelector("figure.captioned") ? "picture"
            : part.matches("details.head-fold") ? "fold" : part.matches("div.cell") ? "cell" : part.localName),
        bars: head.flatMap((part) => [...part.querySelectorAll("details.hide > summary")]).length,
        folded: head.filter((part) => part.matches("details.head-fold")).map((fold) => fold.textContent).join(""),
        hidden: head.filter((part) => part.matches("details.head-fold")).every((fold) => !fold.open),
    };
}"""
OPENING = """() => [...document.querySelectorAll("figure.opening")].map((plate) => {
    const [image] = [...plate.querySelectorAll("img")].filter((one) => one.checkVisibility());
    const target = document.querySelector(plate.querySelector("figcaption a").hash);
    const box = image.getBoundingClientRect();
    return {
        again: [...target.querySelectorAll("img")].some((one) => one.src === image.src),
        height: box.height,
        ratio: (box.width / box.height) / (image.naturalWidth / image.naturalHeight),
        width: box.width,
    };
})"""
LOADED = """() => Promise.all([...document.querySelectorAll("figure.opening img")].map((image) => {
    image.loading = "eager";
    return image.checkVisibility() ? image.decode() : null;
}))"""
CODE = """() => Object.fromEntries([...document.querySelectorAll("figure.captioned")].map((figure) => {
    const cell = figure.closest("div.cell"), own = figure.querySelector("figcaption details.figure-code");
    const answer = figure.closest("details.hide");
    const seen = [...cell.querySelectorAll("div.cell_input")].filter((code) => !own?.contains(code));
    const inside = [...(own ?? figure).querySelectorAll("div.cell_input pre")];
    return [figure.id, {
        name: own?.querySelector("summary").textContent ?? "",
        behind_word: inside.map((code) => code.textContent).join(""),
        beside: answer !== null || seen.some((code) => code.checkVisibility()),
    }];
}))"""
BARS = """() => [...document.querySelectorAll("div.cell:has(figure.captioned) details.hide:not(:has(figure))")]
    .map((bar) => bar.querySelector("summary").textContent.trim())"""


@pytest.fixture(scope="module")
def screen(browser: Browser) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 1280, "height": FIRST_SCREEN})
    yield page
    page.close()


@pytest.fixture(params=CHAPTERS, ids=lambda path: path.stem, scope="module")
def chapter(request: pytest.FixtureRequest, screen: Page, site: str) -> Path:
    """Opened once for all that is asked of it."""
    screen.goto(f"{site}chapters/{request.param.stem}.html{ALL_OPEN}")
    return request.param


def opens_with_an_instrument(chapter: Path) -> bool:
    """Whether a live model stands under the hook: the first cell of code behind the set-up shows it."""
    cells = [cell for cell in nbformat.read(chapter, as_version=4).cells if cell.cell_type == "code"]
    return "LiveModel(" in cells[1].source


def test_the_first_picture_begins_on_the_first_screen(chapter: Path, screen: Page) -> None:
    if opens_with_an_instrument(chapter):
        assert screen.locator("article .mhalib-instrument").first.bounding_box()["y"] < FIRST_SCREEN / 2
    else:
        assert screen.evaluate(FIRST_PICTURE) < FIRST_SCREEN


def test_the_head_is_title_hook_picture_aims_and_one_fold(chapter: Path, screen: Page) -> None:
    head = screen.evaluate(HEAD)
    names = [name for name in head["names"] if name not in ("span", "noscript")]
    assert names[:2] == ["h1", "p"]
    if opens_with_an_instrument(chapter):
        assert names[2] == "cell"
        assert [name for name in names[2:] if name not in ("p", "ul")] == ["cell", "fold"]
        assert "LiveModel(" in head["folded"]
    else:
        assert names.index("picture") < names.index("ul") < names.index("fold")
        assert names.count("picture") == names.count("fold") == 1
        assert "cell" not in names
    assert head["bars"] == 0
    assert head["hidden"]
    assert "%pip install" in head["folded"]
    assert re.search(r"^(import|from) ", head["folded"], flags=re.MULTILINE)
    assert "make lab" in head["folded"] or "Colab" in head["folded"]


def test_the_picture_of_the_head_is_a_figure_of_the_page_in_small(chapter: Path, screen: Page) -> None:
    screen.evaluate(LOADED)
    for plate in screen.evaluate(OPENING):
        assert plate["again"]
        assert plate["height"] <= 421  # it was 380: letters of chapters 7, 17 and 27 were 8.2 to 8.6 px high
        assert plate["ratio"] == pytest.approx(1, abs=0.02)


def is_folded(cell: nbformat.NotebookNode) -> bool:
    return cell.cell_type == "code" and "hide-input" in cell.metadata.get("tags", [])


def shows_nothing(cell: nbformat.NotebookNode) -> bool:
    return not cell.outputs or "remove-output" in cell.metadata.tags


def code_with_above(cells: list[nbformat.NotebookNode], cell: nbformat.NotebookNode) -> str:
    """The code of a cell; where it alone is folded, behind the head, after that of folded ones directly above it that
    show nothing."""
    shown = [one for one in cells if "remove-cell" not in one.metadata.get("tags", [])]
    end = begin = shown.index(cell)
    above = "\n".join(one.source for one in shown[:end] if one.cell_type == "markdown")
    if is_folded(cell) and re.search("^## ", above, re.MULTILINE):
        while is_folded(shown[begin - 1]) and shows_nothing(shown[begin - 1]):
            begin -= 1
    return "\n".join(one.source.strip() for one in shown[begin : end + 1])


def test_the_code_of_each_figure_is_behind_a_word_of_its_caption_or_beside_it(chapter: Path, screen: Page) -> None:
    cells = nbformat.read(chapter, as_version=4).cells
    drawn = [
        cell
        for cell in cells
        if cell.cell_type == "code"
        and {"hide-input", "hide-cell"} & set(cell.metadata.get("tags", []))
        and any({"image/png", "image/svg+xml"} & output.get("data", {}).keys() for output in cell.outputs)
    ]
    found = screen.evaluate(CODE)
    assert screen.evaluate(BARS) == []
    words = {figure["name"]: figure["behind_word"].strip() for figure in found.values() if figure["name"]}
    named = {f"code: {cell.metadata.mystnb.code_prompt_show}": cell for cell in drawn}
    assert words == {name: code_with_above(cells, named[name]) for name in words}
    folded = {
        name for name, cell in named.items() if "hide-cell" in cell.metadata.tags
    }  # an answer, but for its figure
    assert named.keys() - words.keys() <= folded
    assert all(figure["name"] or figure["beside"] for figure in found.values())


def test_what_a_cell_prints_beside_its_figure_is_behind_the_word_too(browser: Browser, screen: Page, site: str) -> None:
    screen.goto(f"{site}chapters/11_positions.html")
    printed = screen.locator("#figure-11-3 .figure-text")
    assert not printed.is_visible()
    screen.locator("#figure-11-3 summary").press("Enter")
    assert printed.is_visible()
    assert "2 apart" in printed.inner_text()
    paper = browser.new_page()
    paper.emulate_media(media="print")
    paper.goto(screen.url)
    assert paper.locator("#figure-11-3 .figure-text").is_visible()
    assert "Show how Figure 11.3 is drawn" in paper.locator("#figure-11-3 summary").inner_text()
    assert not paper.locator("figure.opening").is_visible()
    paper.close()


def test_on_paper_answers_that_can_be_pressed_stay(browser: Browser, site: str) -> None:
    page = browser.new_page()
    page.goto(f"{site}chapters/05_mathematics.html")
    live = page.locator(".mhalib-live-model")
    live.scroll_into_view_if_needed()
    page.locator(".mhalib-live-model[data-settled]").wait_for()
    page.emulate_media(media="print")
    assert live.locator("[data-answer]").count() == 32
    assert all(answer.is_visible() for answer in live.locator("[data-answer]").all())
    assert not live.get_by_role("button", name="Undo").is_visible()
    page.close()


def test_on_a_phone_the_picture_of_the_head_fills_the_width(browser: Browser, site: str) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 844})
    page.goto(f"{site}chapters/35_open_a_model_you_know.html")
    page.evaluate(LOADED)
    (plate,) = page.evaluate(OPENING)
    assert plate["width"] > 320
    assert plate["ratio"] == pytest.approx(1, abs=0.02)
    page.close()


@pytest.mark.parametrize("width", [1280, 390])
def test_the_place_of_the_picture_of_the_head_is_kept(browser: Browser, site: str, width: int) -> None:
    """So that nothing moves under a reader's eyes."""
    page = browser.new_page(viewport={"width": width, "height": 844})
    heights = []
    for blocked in (True, False):
        if blocked:
            page.route("**/*.svg", lambda route: route.abort())
        else:
            page.unroute("**/*.svg")
        page.goto(f"{site}chapters/35_open_a_model_you_know.html")
        if not blocked:
            page.evaluate(LOADED)
        heights.append(page.locator("figure.opening img.only-light").bounding_box()["height"])
    page.close()
    assert heights[0] == pytest.approx(heights[1], abs=1)
    assert heights[1] > 200  # the picture of chapter 35 is 249 pixels high
