"""Ways through the book: their pages, their minutes, and what a reader meets in Chromium."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path

import nbformat
import pytest
from bs4 import BeautifulSoup
from playwright.sync_api import Browser, FloatRect, Locator, expect
from served import HTML

from tools.notebooks import core_words, notebooks
from tools.pages import book_map, ways
from tools.pages.ways import ALL_OPEN

FRONT = HTML / "chapters/index.html"
STEMS = [stem for _, stem, _ in book_map.chapters().values()]


@functools.cache
def soup(path: Path) -> BeautifulSoup:
    return BeautifulSoup(path.read_bytes(), "html.parser")


NEXT = '<nav class="next-on-way"'


@functools.cache
def text_of(stem: str) -> str:
    return (HTML / f"chapters/{stem}.html").read_text("utf-8")


def next_on(stem: str) -> BeautifulSoup:
    """What a page says of where to go on; there is one such place."""
    (found,) = re.findall(f"{NEXT}.*?</nav>", text_of(stem), re.DOTALL)
    return BeautifulSoup(found, "html.parser")


def test_the_start_page_lists_each_way_with_its_pages_and_minutes() -> None:
    lists = soup(FRONT).select("details.way")
    assert [one["data-way"] for one in lists] == [way.name for way in ways.ways()]
    for way, one in zip(ways.ways(), lists, strict=True):
        assert [item["data-page"] for item in one.select("li")] == list(way.pages)
        assert [link["href"] for link in one.select("a")] == [f"{stem}.html?way={way.name}" for stem in way.pages]
        assert (way.lasts(str) in one.summary.get_text()) == (way.name != ways.WHOLE)
    assert "about 95 minutes" in lists[0].summary.get_text()
    assert "about 5½ hours" in lists[1].summary.get_text()


@pytest.mark.page("chapters/index.")
def test_each_page_leads_on_to_the_next_of_its_way_and_the_last_says_so() -> None:
    for way in ways.ways():
        pages = list(way.pages)
        for stem, after in zip(pages, [*pages[1:], None], strict=True):
            (line,) = next_on(stem).select(f'nav p[data-way="{way.name}"]')
            assert [link["href"] for link in line.select("a")] == ([f"{after}.html?way={way.name}"] if after else [])


@pytest.mark.parametrize("stem", STEMS)
def test_where_to_go_on_is_said_above_the_exercises(stem: str) -> None:
    before, _, after = text_of(stem).partition(NEXT)
    assert 'id="exercises"' in after or 'id="exercises"' not in before


INSTRUMENT = "mhalib-instrument"


def is_shown(cell: nbformat.NotebookNode) -> bool:
    return cell.cell_type == "code" and "remove-cell" not in cell.metadata.get("tags", [])


FOLDED = {"hide-cell", "hide-input", "remove-cell", "remove-input", "set-up", "exercise", "exercise-setup"}


@pytest.mark.parametrize(
    ("stem", "minutes"), sorted({item for way in ways.ways() for item in way.pages.items() if item[1]})
)
def test_the_minutes_of_a_page_are_those_of_its_words_code_and_questions(stem: str, minutes: int) -> None:
    path = notebooks.CHAPTERS / f"{stem}.ipynb"
    cells = nbformat.read(path, as_version=4).cells
    in_sight = [one for one in cells if one.cell_type == "code" and not FOLDED & set(one.metadata.get("tags", []))]
    lines = sum(len(one.source.splitlines()) for one in in_sight)
    questions = sum(one.source.count("**Predict.**") for one in cells if one.cell_type == "markdown")
    instruments = sum(INSTRUMENT in str(one.outputs) for one in cells if is_shown(one))
    reading = core_words.words_of(path).core / 180 + lines * 5 / 60
    assert abs(reading + questions * 2 + instruments * 5 - minutes) <= 5


def test_an_evening_is_an_evening() -> None:
    evening = ways.ways()[0]
    assert sum(core_words.words_of(notebooks.CHAPTERS / f"{stem}.ipynb").core for stem in evening.pages) <= 4000
    assert evening.minutes() <= 105  # a student took 50 to read it, and 102 with predicting and playing


def test_a_way_of_a_page_that_is_not_there_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ways.yml").write_text("short:\n  title: S\n  says: s\n  pages:\n    00_nothing: 5\n", "utf-8")
    monkeypatch.setattr(ways, "WAYS", tmp_path / "ways.yml")
    with pytest.raises(ValueError, match="short: '00_nothing' is no chapter"):
        ways.ways()


@pytest.mark.page("chapters/index.")
def test_a_reader_who_chose_the_evening_is_led_along_it_and_finds_it_ticked(browser: Browser) -> None:
    """From the start page to the second page of the way, and back: one box is ticked, and only that way is shown."""
    context = browser.new_context()
    start = context.new_page()
    start.goto(FRONT.as_uri())
    evening = start.locator('details.way[data-way="evening"]')
    expect(evening.locator("input:checked")).to_have_count(0)
    evening.locator("summary").click()
    evening.locator("a").first.click()
    nav = start.locator("nav.next-on-way")
    nav.scroll_into_view_if_needed()
    expect(nav.locator("p:visible")).to_have_count(1)
    expect(nav.locator("p:visible")).to_contain_text("1/4")
    nav.locator("p:visible a").click()
    start.wait_for_url("**/01_weighted_average.html?way=evening")
    start.goto(FRONT.as_uri())
    expect(start.locator('details.way[data-way="evening"]')).to_have_attribute("open", "")
    expect(start.locator('details.way[data-way="evening"] input:checked')).to_have_count(1)
    expect(start.locator('details.way[data-way="whole"] input:checked')).to_have_count(1)
    context.close()


@pytest.mark.page("chapters/index.")
def test_the_foot_of_a_page_leads_along_the_way_until_it_is_left(browser: Browser) -> None:
    context = browser.new_context()
    page = context.new_page()
    address = (HTML / "chapters/01_weighted_average.html").as_uri()
    page.goto(f"{address}?way=evening")
    foot = page.locator("a.right-next")
    expect(foot).to_have_attribute("href", re.compile("/03_why_more_than_one_head.html.way=evening$"))
    expect(foot).to_contain_text("Why more than one head")
    back = page.locator("a.left-prev")
    expect(back).to_have_attribute("href", "00_take_a_model_apart.html?way=evening")
    expect(back).to_contain_text("Take a model apart")
    page.get_by_role("button", name="Leave this way").click()
    page.wait_for_url(address)
    expect(foot).to_have_attribute("href", "02_masks.html")
    expect(page.get_by_role("button", name="Leave this way")).to_have_count(0)
    context.close()


@pytest.mark.page("chapters/index.")
@pytest.mark.parametrize("chosen", ["evening", "weekend"])
def test_start_here_leads_onto_the_evening_unless_another_way_is_chosen(browser: Browser, chosen: str) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(FRONT.as_uri())
    if chosen != "evening":
        page.locator(f'details.way[data-way="{chosen}"] summary').click()
    page.locator("a.front-start").click()
    page.wait_for_url(f"**/00_take_a_model_apart.html?way={chosen}")
    context.close()


@pytest.mark.page("chapters/index.")
def test_what_is_deeper_is_shut_but_on_the_whole_way_and_a_press_a_link_or_a_search_opens_it(browser: Browser) -> None:
    context = browser.new_context()
    page = context.new_page()
    address = (HTML / "chapters/01_weighted_average.html").as_uri()
    page.goto(f"{address}{ALL_OPEN}")
    sections = page.locator("section.deeper")
    count = sections.count()
    assert count
    assert page.locator("section.deeper p:visible").count() > count  # who reads the whole sees all
    page.goto(f"{address}?way=evening")
    expect(page.locator("section.deeper > div[hidden]")).to_have_count(count)
    page.evaluate("localStorage.clear()")
    page.goto(address)
    buttons = page.locator("section.deeper button.deeper-chip")
    expect(buttons).to_have_count(count)
    expect(page.locator("section.deeper > div[hidden]")).to_have_count(count)
    assert all(box["height"] < 2 for box in map(height_of, page.locator("section.deeper > div").all()))
    expect(buttons.first).to_have_attribute("aria-expanded", "false")
    buttons.first.press("Enter")
    expect(buttons.first).to_have_attribute("aria-expanded", "true")
    expect(sections.first.locator("p").first).to_be_visible()
    name = sections.last.get_attribute("id")
    page.goto(f"{address}?way=evening#{name}")
    expect(sections.last.locator("button.deeper-chip")).to_have_attribute("aria-expanded", "true")
    buttons.last.click()
    sections.last.locator("> div").dispatch_event("beforematch")  # what a browser's search in the page sends
    expect(buttons.last).to_have_attribute("aria-expanded", "true")
    expect(page.locator("#sources button.deeper-chip")).to_have_text("to look up")
    expect(page.locator("nav.page-toc a[href='#sources']")).to_have_text("Sources")
    context.close()


def height_of(locator: Locator) -> FloatRect:
    box = locator.bounding_box()
    assert box is not None
    return box


@pytest.mark.page("chapters/index.")
def test_who_chose_no_way_reads_of_none_but_reaching_its_place_ticks_the_page(browser: Browser) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto((HTML / "chapters/01_weighted_average.html").as_uri())
    expect(page.locator("nav.next-on-way p").first).to_be_attached()
    expect(page.locator("nav.next-on-way p:visible")).to_have_count(0)
    page.locator("#exercises h2").scroll_into_view_if_needed()
    page.wait_for_function("() => localStorage.getItem('ways')?.includes('01_weighted_average')")
    context.close()


@pytest.mark.page("chapters/index.")
def test_what_another_wrote_into_the_storage_stops_no_page(browser: Browser) -> None:
    errors: list[str] = []
    for wrong, ticked in {
        "{": 0,
        "[]": 0,
        "null": 0,
        '{"read": 5, "way": {}}': 0,
        '{"read": [1, "01_weighted_average"]}': 1,
    }.items():
        context = browser.new_context()
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.add_init_script(f"localStorage.setItem('ways', {json.dumps(wrong)})")  # before the page's own scripts
        page.goto(FRONT.as_uri())
        expect(page.locator("details.way li input").first).to_be_attached()
        expect(page.locator('details.way[data-way="evening"] input:checked')).to_have_count(ticked)
        context.close()
    assert errors == []


@pytest.mark.page("chapters/index.")
def test_an_address_that_ends_in_anything_stops_no_page(browser: Browser) -> None:
    context = browser.new_context()
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    address = (HTML / "chapters/01_weighted_average.html").as_uri()
    for end in ("#%", "#%E9", "#<b>", "#'"):
        page.goto("about:blank")
        page.goto(f"{address}?way=evening{end}")
        expect(page.locator("section.deeper button.deeper-chip").last).to_be_attached()
    assert errors == []
    context.close()
