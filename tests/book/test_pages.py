"""The built pages, in a real browser.

A few pages, and those whose source changed, are looked at light and dark, on a desktop and on a phone; with
MHALIB_LOOK=all, as once a week in the workflow `look.yml`, all are. The others wait for the week: what they come from
has not changed. Where what all pages share has, each is looked at once, one light on a desktop, the next dark on a
phone.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import book_text
import pytest
from _pytest.mark import ParameterSet
from accessibility import OF_COLOURS, serious_findings
from playwright.sync_api import Browser, Page, expect
from test_look import PAGES as CHOSEN

from tools.notebooks import address, notebooks
from tools.pages.book_extension import has_columns
from tools.pages.ways import ALL_OPEN

pytestmark = pytest.mark.browser

SOURCES = {path.relative_to(notebooks.ROOT).with_suffix("").as_posix(): path for path in book_text.toc()}
START = next(iter(SOURCES))
CHAPTERS = [name for name, path in SOURCES.items() if path.suffix == ".ipynb"]
PAGES = [*SOURCES, "search", "genindex"]
WITH_MATHS = {name for name, path in SOURCES.items() if book_text.formulas(book_text.read(path).prose)}
HEATMAPS = "chapters/07_per_head_heatmaps"
CLOSELY = {*CHOSEN, START, "search", "genindex"}
MODES = list(itertools.product(("light", "dark"), (1280, 390)))
BRIEFLY = [("light", 1280), ("dark", 390)]


def waits(name: str) -> list[pytest.MarkDecorator]:
    """What is not looked at closely waits for the week, unless something that the page comes from has changed."""
    return [] if name in CLOSELY else [pytest.mark.page(f"{name}.")]


def visits() -> Iterator[ParameterSet]:
    """Each page with its modes. Where what all share has changed, each third of those whose own source is as it was is
    looked at, too, by turns light on a desktop and dark on a phone."""
    for i, name in enumerate(PAGES):
        for mode in MODES if name in CLOSELY else BRIEFLY:
            turn = name in CLOSELY or (i % 3 == 0 and mode == BRIEFLY[i % 2])
            yield pytest.param((name, *mode), marks=waits(name) + ([] if turn else [pytest.mark.weekly(f"{name}.")]))


VISITS = list(visits())

LINKS = "[...new Set([...document.querySelectorAll('a')].map(link => link.href))]"
HEADINGS = """[...document.querySelectorAll('main h1, main h2, main h3, main h4')]
    .filter(heading => heading.offsetParent !== null)  /* the theme keeps a second title for print */
    .map(heading => +heading.tagName[1])"""
IMAGES = """[...document.querySelectorAll('article img')].map(
    image => ({source: image.src, alt: image.alt, loaded: image.complete && image.naturalWidth > 0}))"""
CUT_TABLES = """[...document.querySelectorAll('article table')]
    .filter(table => !table.closest('.ledger, .mhalib') && table.getBoundingClientRect().right > window.innerWidth)
    .map(table => table.innerText.slice(0, 60))"""
MATHS = """({
    asked: document.querySelectorAll('article .math').length,
    set: document.querySelectorAll('article .math > math').length,
    empty: [...document.querySelectorAll('article .math > math')]
        .filter(one => one.checkVisibility() && one.getBoundingClientRect().width < 4).length})"""
DONE = "() => document.fonts.ready.then(() => true)"
NEAR = "for (const one of document.querySelectorAll('img[loading=lazy]')) one.loading = 'eager'"

SETTLED = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"


@dataclass
class Visit:
    """What one page did in the browser."""

    hosts: set[str] = field(default_factory=set)
    failed: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    width: int = 0
    theme: str = ""
    headings: list[int] = field(default_factory=list)
    images: list[dict] = field(default_factory=list)
    cut_tables: list[str] = field(default_factory=list)
    maths: dict[str, int] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)


def watch(page: Page, visit: Visit) -> None:
    page.on("request", lambda request: visit.hosts.add(urlsplit(request.url).netloc))
    page.on("response", lambda reply: visit.failed.append(reply.url) if reply.status >= 400 else None)
    page.on("requestfailed", lambda request: visit.failed.append(request.url))
    page.on("console", lambda message: visit.errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: visit.errors.append(str(error)))


def look(page: Page, visit: Visit, rules: Sequence[str] | None = None) -> None:
    page.evaluate(NEAR)
    visit.violations = serious_findings(page, rules)
    page.wait_for_load_state("networkidle")  # meanwhile it has come
    visit.links = page.evaluate(LINKS)
    visit.width = page.evaluate("document.documentElement.scrollWidth")
    visit.theme = page.evaluate("document.documentElement.dataset.theme")
    visit.headings = page.evaluate(HEADINGS)
    visit.images = page.evaluate(IMAGES)
    visit.cut_tables = page.evaluate(CUT_TABLES)
    visit.maths = page.evaluate(MATHS)


@pytest.fixture(scope="session")
def opened(browser: Browser, site: str) -> Callable[[str], dict[tuple[str, int], Visit]]:
    """Opens a page in its modes, once for all tests of a worker; schedule.py gives a page to one worker.

    It is loaded light on a desktop, and, if it is looked at closely, again dark on a phone. Then the window changes its
    size, and what may differ by theme and size at once, the colours, is looked at again; without a second loading the
    theme changes, too.
    """

    def load(page: Page, name: str, scheme: str, width: int) -> Visit:
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 900})
        visit = Visit()
        watch(page, visit)
        page.goto(f"{site}{name}.html{ALL_OPEN}")
        page.evaluate(DONE)
        look(page, visit)
        return visit

    def change(page: Page, loaded: Visit, scheme: str, width: int) -> Visit:
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 900})
        page.evaluate(SETTLED)
        visit = Visit(loaded.hosts, loaded.failed, loaded.errors)
        look(page, visit, OF_COLOURS)
        return visit

    @functools.cache
    def open_page(name: str) -> dict[tuple[str, int], Visit]:
        done = {}
        context = browser.new_context()
        closely = (("light", 1280), ("light", 390)), (("dark", 390), ("dark", 1280))
        for first, second in closely if name in CLOSELY else (BRIEFLY,):
            page = context.new_page()
            done[first] = load(page, name, *first)
            done[second] = change(page, done[first], *second)
            page.close()
        context.close()
        return done

    return open_page


@pytest.fixture(params=VISITS, ids=lambda visit: "-".join(map(str, visit)))
def mode(request: pytest.FixtureRequest) -> tuple[str, str, int]:
    return request.param


@pytest.fixture
def visit(mode: tuple[str, str, int], opened: Callable[[str], dict[tuple[str, int], Visit]]) -> Visit:
    return opened(mode[0])[mode[1:]]


def test_asks_no_other_host(visit: Visit, site: str) -> None:
    assert visit.hosts == {urlsplit(site).netloc}


def test_finds_every_file(visit: Visit) -> None:
    assert visit.failed == []


def test_logs_no_error(visit: Visit) -> None:
    assert visit.errors == []


def test_fits_the_screen(visit: Visit, mode: tuple[str, str, int]) -> None:
    assert visit.width <= mode[2]


def test_no_table_is_cut_off(visit: Visit) -> None:
    """The theme hides what is too wide, so the page's width does not tell. Ledgers and instruments have own frames."""
    assert visit.cut_tables == []


def test_follows_the_colour_scheme(visit: Visit, mode: tuple[str, str, int]) -> None:
    assert visit.theme == mode[1]


def test_headings_are_in_order(visit: Visit) -> None:
    assert visit.headings[0] == 1
    assert visit.headings.count(1) == 1
    assert all(deeper - level <= 1 for level, deeper in itertools.pairwise(visit.headings))


def test_images_load_and_say_what_they_show(visit: Visit) -> None:
    for image in visit.images:
        assert image["loaded"], image["source"]
        assert len(image["alt"]) > 40, f"alt text of {image['source']}: {image['alt']!r}"


def test_maths_is_typeset(visit: Visit, mode: tuple[str, str, int]) -> None:
    assert visit.maths["empty"] == 0
    assert visit.maths["set"] == visit.maths["asked"]
    assert (visit.maths["set"] > 0) == (mode[0] in WITH_MATHS)


def test_axe_finds_nothing_serious(visit: Visit) -> None:
    assert visit.violations == []


@pytest.mark.parametrize("chapter", [pytest.param(name, marks=waits(name)) for name in CHAPTERS])
def test_launch_links_lead_to_this_chapter(opened: Callable[[str], dict[tuple[str, int], Visit]], chapter: str) -> None:
    now = address.here()  # without one, a link would lead nowhere
    expected = set(notebooks.launch_links(notebooks.ROOT / f"{chapter}.ipynb", now).values()) if now else set()
    own = notebooks.ROOT / "exercises" / f"{Path(chapter).name}.ipynb"
    exercises = set(notebooks.launch_links(own, now).values()) if now else set()
    for visit in opened(chapter).values():
        assert expected <= set(visit.links)
        for host in ("colab.research.google.com", "mybinder.org", "studiolab.sagemaker.aws"):
            assert {link for link in visit.links if host in link} <= expected | exercises


def test_the_start_page_s_model_fits_a_screen_with_its_controls(browser: Browser, site: str) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(f"{site}{START}.html")
    live = page.locator(".mhalib-live-model[data-settled]")
    expect(live).to_be_visible(timeout=30_000)
    box = live.bounding_box()
    assert box
    assert box["height"] <= 900
    page.close()


def test_start_page_leads_into_the_book(browser: Browser, site: str) -> None:
    page = browser.new_page()
    page.goto(site)
    page.wait_for_url(f"{site}{START}.html")
    assert page.title().startswith("Attention, Head by Head")
    assert "2026" in page.inner_text("footer.bd-footer-content, .bd-footer-content")
    page.close()


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("head  best  worst\n0     0.9   0.1", True),
        ("tensor([[1, 0],\n        [1, 1]])", True),
        ("the old owl\nle vieux hibou", False),
        ("head 0:  0.9", False),
        ("keys: [3, 11, 24, 16]", True),
        ("from layer 1: 0.67 0.62", True),
        ("2 heads of 0.3 each", False),
        ("offset_weight: right. Verified: distances -1, 0 and 2; queries without a key", False),
    ],
)
def test_columns_are_told_from_sentences(text: str, columns: bool) -> None:
    assert has_columns(text) == columns


def test_on_a_phone_columns_scroll_and_sentences_wrap(browser: Browser, site: str) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 900})
    page.goto(f"{site}{HEATMAPS}.html{ALL_OPEN}")
    spaces = """(kind) => [...document.querySelectorAll(`.cell_output ${kind} pre`)].map(
        (text) => getComputedStyle(text).whiteSpace)"""
    assert set(page.evaluate(spaces, ".columns")) == {"pre"}
    assert set(page.evaluate(spaces, ".output:not(.columns)")) == {"pre-wrap"}
    page.close()


@pytest.mark.parametrize("name", ["12_all_targets_at_once", "15_induction_circuit", "20_which_heads_matter"])
def test_on_a_phone_a_printed_table_of_64_characters_is_seen_whole(browser: Browser, site: str, name: str) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 900})
    page.goto(f"{site}chapters/{name}.html?way=whole")
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    widths = page.evaluate(
        """() => [...document.querySelectorAll(".cell_output .columns pre")].filter((one) => one.checkVisibility()).map(
            (one) => [Math.max(...one.textContent.split("\\n").map((line) => line.length)),
                      one.scrollWidth - one.clientWidth])"""
    )
    page.close()
    assert any(49 < characters <= 64 for characters, _ in widths)
    assert not [one for one in widths if one[0] <= 64 and one[1] > 0]


def test_on_a_phone_no_figure_scrolls(browser: Browser, site: str) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 900})
    fits = {}
    for name in ("chapters/26_heads_composed_anew", HEATMAPS):
        page.goto(f"{site}{name}.html{ALL_OPEN}")
        page.evaluate(NEAR)
        page.wait_for_function(
            "() => [...document.querySelectorAll('.figure-frame img')].every((one) => one.naturalWidth)"
        )
        fits[name] = page.evaluate(
            """() => [...document.querySelectorAll(".figure-frame img")].filter((one) => one.checkVisibility()).map(
                (image) => image.parentElement.scrollWidth <= image.parentElement.clientWidth
                    && image.getBoundingClientRect().width <= image.parentElement.clientWidth)"""
        )
    page.close()
    assert len(fits["chapters/26_heads_composed_anew"]) >= 3
    assert all(map(all, fits.values())), fits


def test_search_finds_a_chapter_without_a_server(browser: Browser, site: str) -> None:
    page = browser.new_page()
    page.goto(f"{site}search.html?q=strides")
    page.wait_for_selector("#search-results li a")
    assert "The reshape trick" in page.inner_text("#search-results")
    page.close()


def test_reader_can_switch_to_dark(browser: Browser, site: str) -> None:
    page = browser.new_page(color_scheme="light")
    page.goto(f"{site}{CHAPTERS[0]}.html")
    for _ in range(3):  # auto, light, dark, in the theme's order
        page.click("button.theme-switch-button:visible")
        if page.evaluate("document.documentElement.dataset.theme") == "dark":
            break
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.close()


def test_phone_opens_the_contents(browser: Browser, site: str) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 844})
    page.goto(f"{site}{CHAPTERS[0]}.html")
    other = page.get_by_role("link", name="What a heatmap proves").first
    expect(other).not_to_be_in_viewport()
    page.click("button.primary-toggle:visible, label.primary-toggle:visible")
    expect(other).to_be_in_viewport()
    other.click()
    page.wait_for_url(f"{site}{HEATMAPS}.html")
    page.close()
