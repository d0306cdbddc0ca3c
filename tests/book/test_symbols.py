"""Queries, keys and values have their colours in all formulas; touched, the symbols of Part I say what they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import pytest
from playwright.sync_api import Browser, Locator, Page, expect
from served import HTML

from mhalib import style
from tools.pages import book_map
from tools.pages.ways import ALL_OPEN

pytestmark = [pytest.mark.browser, pytest.mark.page("chapters/06_the_whole_layer.", "chapters/notation.")]

MATHEMATICS = next(stem for _, stem, title in book_map.chapters().values() if title == "The whole layer")


def opened(browser: Browser, stem: str, **options: Any) -> Page:
    page = browser.new_context(**options).new_page()
    page.goto((HTML / f"chapters/{stem}.html").as_uri() + ALL_OPEN)
    return page


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    found = opened(browser, MATHEMATICS)
    yield found
    found.context.close()


def at(page: Page, selector: str) -> Locator:
    """The first of these, where the page has come to rest: a note closes when the page is scrolled."""
    found = page.locator(selector).first
    found.scroll_into_view_if_needed()
    page.wait_for_timeout(500)
    return found


def colour(page: Page, selector: str) -> str:
    return str(page.locator(selector).first.evaluate("one => getComputedStyle(one).color"))


def rgb(colour: str) -> str:
    return "rgb({}, {}, {})".format(*(int(colour[i : i + 2], 16) for i in (1, 3, 5)))


def test_queries_keys_and_values_have_the_colours_of_figures(page: Page) -> None:
    for letter, named in zip("qkv", (style.QUERY, style.KEY, style.VALUE), strict=True):
        assert colour(page, f"math .symbol-{letter}") == rgb(named)


def test_a_symbol_under_the_mouse_says_what_it_is_and_lights_up_its_part(page: Page) -> None:
    note = page.locator(".symbol-note")
    expect(note).to_be_hidden()
    at(page, "math .symbol-o").hover()
    expect(note).to_be_visible()
    text = note.inner_text()
    assert "mixes what the heads bring back" in text
    assert note.locator("rect.lit").count() in (1, 2)
    assert note.locator("rect:not(.lit)").count() > 8
    page.mouse.move(0, 0)
    expect(note).to_be_hidden()


def test_formulas_are_gone_through_by_arrow_keys(page: Page) -> None:
    page.locator(".symbols-guide").focus()
    said = []
    for _ in range(page.locator("div.math .symbol").count()):
        page.keyboard.press("ArrowRight")
        expect(page.locator("math .touched")).to_have_count(1)
        said.append(page.locator(".symbol-note").inner_text())
    assert len(set(said)) > 1
    page.keyboard.press("Escape")
    expect(page.locator(".symbol-note")).to_be_hidden()


def test_a_finger_opens_and_closes_within_a_phone(browser: Browser) -> None:
    page = opened(browser, MATHEMATICS, viewport={"width": 390, "height": 800}, has_touch=True)
    symbol = page.locator("p math .symbol").first
    symbol.tap()
    box = page.locator(".symbol-note").bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 390
    symbol.tap()
    expect(page.locator(".symbol-note")).to_be_hidden()
    page.context.close()


def test_a_matrix_of_one_head_is_smaller_than_that_of_the_layer(page: Page) -> None:
    note = page.locator(".symbol-note")
    page.locator("msubsup.symbol-q").first.hover()
    expect(note).to_contain_text("of one head. d × D, in the reader 16 × 64")
    page.locator("msub.symbol-q").first.hover()
    expect(note).to_contain_text("D × D, in the reader 64 × 64")


def test_an_index_is_no_symbol(page: Page) -> None:
    """In k with the index j, or h with the index 0, what stands low is no key and no number of heads."""
    wrong = page.locator("msub > :not(:first-child) .symbol, msub > mi.symbol:not(:first-child)")
    assert wrong.count() == 0, [unquote(text) for text in wrong.all_inner_texts()]


def test_later_parts_have_notations_of_their_own_and_no_notes(browser: Browser) -> None:
    late = opened(browser, "28_counting")
    assert late.locator("math").count() > 0
    assert late.locator("math .symbol").count() == 0
    late.context.close()


@pytest.mark.parametrize("stem", ["11_positions", "22_sharing_keys_and_values"])
def test_later_parts_keep_the_colours(browser: Browser, stem: str) -> None:
    late = opened(browser, stem)
    for letter, named in zip("qk", (style.QUERY, style.KEY), strict=True):
        assert colour(late, f"math .symbol-{letter}") == rgb(named)
    late.context.close()


def test_where_nothing_asks_a_k_is_a_count(browser: Browser) -> None:
    chosen = opened(browser, "24_looking_at_fewer_words")
    assert chosen.locator("math mi", has_text="k").count() > 0
    assert chosen.locator("math .symbol-k").count() == 0
    chosen.context.close()
