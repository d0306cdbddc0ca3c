"""A control that a page's text names is visible in an instrument of that page, also where a live model is compact."""

from __future__ import annotations

import book_text
import pytest
from playwright.sync_api import Browser, Page, expect

from tools.notebooks import notebooks
from tools.pages.ways import ALL_OPEN

pytestmark = pytest.mark.browser

LIVE = '[data-script="LiveModel"]'
NAMES = [
    path.relative_to(notebooks.ROOT).with_suffix("").as_posix()
    for path in book_text.toc()
    if any(sign in path.read_text(encoding="utf-8") for sign in (r"data-script=\"LiveModel\"", "{instrument-of}"))
]
OPEN = "for (const one of document.querySelectorAll('details')) one.open = true"
ACTS = ("[data-head]", "[role=gridcell]", "[class$=model-freeze]")
"""What brings the controls that come only then: a head is chosen, a cell is clicked, a head is frozen."""
CONTROLS = """[...document.querySelectorAll('.mhalib-instrument :is(button, label, option)')].map((one) => [
    [...one.childNodes].filter(({ nodeType }) => nodeType === Node.TEXT_NODE).map((text) => text.data).join(' '),
    (one.closest('select') ?? one).checkVisibility({ visibilityProperty: true })])"""
PHRASES = """[...document.querySelectorAll('article :is(em, strong, code, p, li)')]
    .filter((one) => !one.closest('.mhalib-instrument, pre')).flatMap((one) => one.matches('p, li')
        ? [...one.textContent.matchAll(/[“"]([^”"]+)[”"]/g)].map((found) => found[1]) : [one.textContent])"""


def plain(text: str) -> str:
    return " ".join(text.split()).strip(" .,:;!?").lower()


def hidden(page: Page) -> set[str]:
    """The labels that the text names, and that no visible control has, whatever a reader does first."""
    page.evaluate(OPEN)
    for instrument in page.locator(LIVE).all():
        instrument.scroll_into_view_if_needed()
        expect(instrument.locator("[data-head]").first).to_be_attached(timeout=30_000)
    labels, seen = set(), set()
    for act in ("", *ACTS):
        for instrument in page.locator(LIVE).all() if act else ():
            instrument.locator(act).first.evaluate("(one) => one.click()")
        controls = [(plain(label), is_visible) for label, is_visible in page.evaluate(CONTROLS)]
        labels |= {label for label, _ in controls if label}
        seen |= {label for label, is_visible in controls if is_visible}
    return (labels - seen) & {plain(phrase) for phrase in page.evaluate(PHRASES)}


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=pytest.mark.instrument("mhalib/widgets/live_", f"{one}.")) for one in NAMES]
)
def test_a_control_that_the_text_names_can_be_seen(browser: Browser, site: str, name: str) -> None:
    page = browser.new_page()
    page.goto(f"{site}{name}.html{ALL_OPEN}")
    assert hidden(page) == set()
    page.close()


def test_a_control_that_is_hidden_is_missed(browser: Browser, site: str) -> None:
    page = browser.new_page()
    page.goto(f"{site}chapters/11_positions.html{ALL_OPEN}")
    page.add_style_tag(content=".mhalib-live-model .mhalib-check { display: none }")
    assert hidden(page) == {"it knows the order"}
    page.close()
