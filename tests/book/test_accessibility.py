"""What axe finds is still found where contrast is looked at once for each kind of text."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from accessibility import serious_findings
from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

WORDS = "".join(f"<code>word{number}</code> <b>bold{number}</b> " for number in range(40))
PAGE = f"""<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Page</title><style>
    body {{ background: white; color: black }} #dark {{ background: #222; color: white }}
    </style></head><body><main><h1>Page</h1>
    <p id="light">{WORDS}</p><p id="dark">{WORDS}</p>
    <details><summary>folded</summary>{'<p class="in">folded text</p>' * 7}</details>
    <details open><summary>open</summary><p class="in">open text</p></details>
    <p>{"<i>x</i> " * 7}<i>xyz</i></p>
    <label>number <input value="3"></label></main></body></html>"""


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page()
    yield page
    page.close()


def test_a_sound_page_has_no_findings(page: Page) -> None:
    page.set_content(PAGE)
    assert serious_findings(page) == []


@pytest.mark.parametrize(
    ("style", "found"),
    [
        ("#light code:nth-of-type(23) { color: #bbb }", "word22"),
        ("#dark code { color: #333 }", "word0"),
        ("#light b { background: #444 }", "bold0"),
        ("#dark { background: #eee }", "word0"),
        ("#light b:nth-of-type(17) { opacity: 0.2 }", "bold16"),
        ("details .in { color: #ccc }", "open text"),
        ("i { color: #ccc }", "xyz"),
        ("input { color: #ccc; background: white }", "input"),
        ("@media (max-width: 400px) { #dark { color: #444 } }", "word0"),
        ("@media (prefers-color-scheme: dark) { b { color: #999 } }", "bold0"),
    ],
)
def test_a_bad_contrast_is_found_wherever_it_is(page: Page, style: str, found: str) -> None:
    page.set_viewport_size({"width": 390 if "max-width" in style else 1280, "height": 900})
    page.emulate_media(color_scheme="dark" if "prefers" in style else "light")
    page.set_content(PAGE.replace("</style>", f"{style}</style>"))
    (finding,) = serious_findings(page)
    assert finding.startswith("serious: color-contrast: ")
    assert found in finding


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ('<label>number <input value="3"></label>', '<input value="3">', "label"),
        ('<html lang="en">', "<html>", "html-has-lang"),
        ("<title>Page</title>", "", "document-title"),
        ("<h1>Page</h1>", '<h1>Page</h1><img src="data:,">', "image-alt"),
    ],
)
def test_other_rules_look_at_everything(page: Page, old: str, new: str, rule: str) -> None:
    page.set_content(PAGE.replace(old, new))
    assert [finding.split(": ")[1] for finding in serious_findings(page)] == [rule]
