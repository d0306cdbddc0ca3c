"""What holds of all instruments: small scripts, and alive on the built pages under a policy without inline scripts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
import torch
from playwright.sync_api import Browser, expect
from served import HTML, StrictHandler

from mhalib import widgets
from mhalib.widgets import (
    CostCalculator,
    HeadExplorer,
    HeadWall,
    Instrument,
    MistakeHunt,
    SortableTable,
    joinable,
    page_script,
    script_file,
    scripts,
)
from tools.notebooks import notebooks
from tools.pages import chromium
from tools.pages.ways import ALL_OPEN

CLASS = re.compile(r"\.(mhalib-[\w-]+)")
WOKEN = re.compile(r'data-script="(\w+)"')


def stored(path: Path) -> list[str]:
    """The instruments that a page shows, in order."""
    shown = (c for c in nbformat.read(path, as_version=4).cells if "remove-cell" not in c.metadata.get("tags", []))
    return WOKEN.findall(
        "".join("".join(o.get("data", {}).get("text/html", "")) for c in shown for o in c.get("outputs", []))
    )


PAGES = {path.stem: found for path in sorted(notebooks.CHAPTERS.glob("*.ipynb")) if (found := stored(path))}
SHOWN = [script for scripts in PAGES.values() for script in scripts]
FIRST = {next(page for page, scripts in PAGES.items() if script in scripts) for script in SHOWN}
"""Pages that wake in each commit: for each instrument the first that has it."""


def test_scripts_are_small_and_plain() -> None:
    """All pages load the ten together; 90 kB did, until the wall of heads and the planes came, 130 until whole models
    did, 138.5 until an example worked by hand did, 154 until a table drew its layers, 155 until that example had a
    second head and W_o, 158 until a hunt for mistakes came, 162.1 until W_o's columns had names and the hunt a
    score, 162.7 until readers struck out suspects themselves, 165.7 until two words could be swapped.
    A page with a live model loads its script, too: the engine and the instrument, and once more what all share."""
    ten = [script_file(script) for script in Instrument.known if not Instrument.needed[script]]
    assert len(ten) == 10
    assert sum(len(file.read_bytes()) for file in ten) < 166_000
    live = [joinable(file) for file in scripts("LiveModel")[1:-1]]
    assert sum(len(text.encode()) for text in live) < 102_100  # with mixing matrices, a temperature, and sums
    text = page_script() + page_script("LiveModel")
    for forbidden in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "new Function",
        "http:",
    ):
        assert forbidden not in text.replace("http://www.w3.org/2000/svg", ""), forbidden


@pytest.mark.browser
def test_an_unknown_instrument_keeps_its_table(show: Callable) -> None:
    """A notebook of a later version, on the page of an older one."""
    text = CostCalculator()._repr_mimebundle_()[0]["text/html"]
    later = SimpleNamespace(_repr_mimebundle_=lambda: ({"text/html": text.replace("CostCalculator", "NotYetMade")}, {}))
    shown = show(later, CostCalculator())
    expect(shown.page.locator(".mhalib-instrument > table")).to_have_count(2)
    expect(shown.page.locator(".mhalib-instrument > table").first).to_be_visible()
    expect(shown.page.locator(".mhalib-instrument > table").last).to_be_hidden()
    assert shown.errors == []


def test_the_old_name_of_the_styles_says_the_new_one() -> None:
    with pytest.raises(AttributeError, match=r"STYLE is style_sheet\(\) now"):
        _ = widgets.STYLE


def test_a_style_names_no_other_instrument() -> None:
    """A change of one instrument's style runs the tests of that instrument alone (`tests/waiting.py`)."""
    shared = set(CLASS.findall(Path(widgets.__path__[0], "shared.css").read_text(encoding="utf-8")))
    for script in Instrument.known:
        own = script_file(script).with_suffix(".css")
        named = set(CLASS.findall(own.read_text(encoding="utf-8")))
        begins = f"mhalib-{own.stem.replace('_', '-')}"
        assert any(one.startswith(begins) for one in named), own
        assert {one for one in named - shared if not one.startswith(begins)} == set(), own


@pytest.mark.browser
@pytest.mark.parametrize("colours", ["none", "active"])
@pytest.mark.parametrize("name", Instrument.known)
@pytest.mark.instrument("mhalib/widgets/", "mhalib/live/")
def test_tab_reaches_every_control_and_shows_where_it_is(show: Callable, name: str, colours: str) -> None:
    weights = torch.ones(2, 3, 4, 4) / 4
    of_weights = {"HeadExplorer": HeadExplorer, "HeadWall": HeadWall}
    if name in of_weights:
        made = of_weights[name]([weights[:1]] * 2)
    elif name == "SortableTable":
        made = SortableTable(["a", "b"], {letter: [1, 2] for letter in "cdefghi"})
    elif name == "MistakeHunt":
        made = MistakeHunt({letter: ["a"] for letter in "cdefghi"}, ["a", "b"])
    else:
        made = getattr(widgets, name)()
    page = show(made, forced_colors=colours).page
    if name == "LiveModel":
        page.wait_for_selector("[data-settled]")
    wanted = page.locator(".mhalib :is(button, select, input, summary, [tabindex='0'])").evaluate_all(
        "all => all.filter((one) => one.tabIndex >= 0 && one.checkVisibility())"
        ".filter((one) => one.type !== 'radio' || one.checked)"
        ".map((one, i) => one.dataset.wanted = i).length"
    )
    reached = set()
    for _ in range(wanted):
        page.keyboard.press("Tab")
        here, outline = page.evaluate(
            "[document.activeElement.dataset.wanted, getComputedStyle(document.activeElement).outlineStyle]"
        )
        assert outline == "solid", here
        reached.add(here)
    assert reached == {str(i) for i in range(wanted)}
    assert wanted >= 7


def test_stored_instruments_exist() -> None:
    assert set(SHOWN) <= set(Instrument.known)


@pytest.fixture(scope="module")
def strict_site() -> Iterator[str]:
    """The built book under `script-src 'self'`."""
    with chromium.serving(HTML, StrictHandler) as address:
        yield address


@pytest.mark.browser
@pytest.mark.parametrize(
    "page_name",
    [pytest.param(name, marks=[] if name in FIRST else pytest.mark.page(f"chapters/{name}.")) for name in PAGES],
)
def test_instruments_wake_on_the_built_page(browser: Browser, strict_site: str, page_name: str) -> None:
    page = browser.new_page()
    page.goto(f"{strict_site}chapters/{page_name}.html{ALL_OPEN}")
    woken = page.locator(".mhalib-instrument[data-awake]")
    assert [one.get_attribute("data-script") for one in woken.all()] == PAGES[page_name]
    for one in woken.all():
        assert one.locator(".mhalib").is_visible()
        assert one.locator("> table").is_hidden()
    page.close()
