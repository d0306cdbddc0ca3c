"""An instrument as one HTML file: it opens from a disk, is alive there, asks for nothing, and trusts no token."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from accessibility import serious_findings
from playwright.sync_api import Browser, Page, expect

from mhalib.widgets import (
    AttentionPlayground,
    CostCalculator,
    HeadExplorer,
    HeadWall,
    Instrument,
    LiveModel,
    MistakeHunt,
    ModelCalculator,
    ReshapeStepper,
    Roofline,
    SortableTable,
    WorkedExample,
)

HOSTILE = [
    "</SCRIPT><img src=x onerror=window.PWN=1>",
    "<!--<script>",
    "\"'&<b>",
    "שלום",
    "\ud800\x00\u202e",
    "]]>{{1}}${1}",
]
WEIGHTS = torch.randn(4, 6, 6, generator=torch.Generator().manual_seed(3)).softmax(-1)
VECTORS = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.5, 0.0], [0.0, 2.0], [1.0, -1.0]]


def make(name: str) -> Instrument:
    """Each instrument, with hostile tokens where it takes tokens."""
    return {
        "AttentionPlayground": lambda: AttentionPlayground(tokens=HOSTILE, q=VECTORS, k=VECTORS, v=VECTORS),
        "CostCalculator": CostCalculator,
        "HeadExplorer": lambda: HeadExplorer(WEIGHTS, HOSTILE),
        "HeadWall": lambda: HeadWall([WEIGHTS] * 2, HOSTILE, numbers={HOSTILE[0]: torch.rand(2, 4)}),
        "LiveModel": lambda: LiveModel("reader"),
        "MistakeHunt": lambda: MistakeHunt(dict.fromkeys(HOSTILE, HOSTILE[2:]), HOSTILE),
        "ModelCalculator": ModelCalculator,
        "ReshapeStepper": ReshapeStepper,
        "Roofline": Roofline,
        "SortableTable": lambda: SortableTable(HOSTILE, dict.fromkeys(HOSTILE, HOSTILE)),
        "WorkedExample": lambda: WorkedExample(HOSTILE[:2], asking=HOSTILE[2], asked=HOSTILE[3:5], given=HOSTILE[4:]),
    }[name]()


@dataclass
class Opened:
    """A file in the browser, what it asked for, and what went wrong."""

    page: Page
    asked: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


@pytest.fixture
def opened(browser: Browser) -> Iterator[Callable[..., Opened]]:
    contexts = []

    def visit(path: Path, width: int = 1280, scheme: str = "light") -> Opened:
        contexts.append(
            browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
        )
        found = Opened(contexts[-1].new_page())
        found.page.on("request", lambda request: found.asked.append(request.url))
        found.page.on("pageerror", lambda error: found.errors.append(str(error)))
        found.page.on("console", lambda message: found.errors.append(message.text) if message.type == "error" else None)
        found.page.goto(path.as_uri())
        return found

    yield visit
    for context in contexts:
        context.close()


@pytest.mark.browser
@pytest.mark.parametrize("name", Instrument.known)
def test_a_saved_instrument_is_alive_and_asks_nobody(opened: Callable, tmp_path: Path, name: str) -> None:
    path = tmp_path / "saved.html"
    make(name).save_html(path, title=f"{name} {HOSTILE[0]}")
    found = opened(path)
    expect(found.page.locator(".mhalib-instrument[data-awake] .mhalib")).to_be_visible()
    expect(found.page.locator(".mhalib-instrument > table")).to_be_hidden()
    said = found.page.locator(".mhalib")
    before = said.inner_text()
    focusable = said.locator("select:visible").first
    if focusable.count():
        other = focusable.locator("option").last.get_attribute("value")
        focusable.select_option(other)
    elif said.locator("input[type=number]").count():
        said.locator("input[type=number]").first.press("ArrowUp")
    else:
        said.locator("button").last.click()
    assert said.inner_text() != before
    assert found.page.evaluate("window.PWN") is None
    assert found.page.locator("img, main script:not([type])").count() == 0
    assert found.asked == [path.as_uri()]
    assert found.errors == []
    assert found.page.title() == f"{name} {HOSTILE[0]}"


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_a_saved_page_fits_and_is_accessible(opened: Callable, tmp_path: Path, width: int, scheme: str) -> None:
    path = tmp_path / "saved.html"
    make("HeadExplorer").save_html(path)
    path.write_text(path.read_text().replace("script-src '", "script-src 'unsafe-eval' '", 1))  # for axe alone
    found = opened(path, width, scheme)
    back, ink = found.page.evaluate(
        "[getComputedStyle(document.documentElement).colorScheme, getComputedStyle(document.body).color]"
    )
    assert back == "light dark"
    assert ink == ("rgb(0, 0, 0)" if scheme == "light" else "rgb(255, 255, 255)")
    assert found.page.evaluate("document.documentElement.scrollWidth") <= width
    assert serious_findings(found.page) == []
    assert found.errors == []


@pytest.mark.browser
def test_a_drawing_can_be_downloaded_from_a_saved_page(opened: Callable, tmp_path: Path) -> None:
    make("HeadExplorer").save_html(tmp_path / "saved.html")
    page = opened(tmp_path / "saved.html").page
    with page.expect_download() as caught:
        page.get_by_role("button", name="as SVG").click()
    assert caught.value.suggested_filename == "head-0.svg"
    assert "PWN=1&gt;" in caught.value.path().read_text(encoding="utf-8")


@pytest.mark.browser
def test_the_policy_of_a_saved_page_stops_what_is_not_its_own(opened: Callable, tmp_path: Path) -> None:
    """Were a token ever to become an element, this would hold."""
    path = tmp_path / "saved.html"
    make("CostCalculator").save_html(path)
    more = "<img src=https://example.org/x.png onerror=window.PWN=1><script>window.PWN=2</script></main>"
    path.write_text(path.read_text(encoding="utf-8").replace("</main>", more), encoding="utf-8")
    found = opened(path)
    expect(found.page.locator(".mhalib-instrument[data-awake]")).to_be_visible()
    assert found.page.evaluate("window.PWN") in (None, 0)
    assert len(found.errors) >= 2
    assert all("Content Security Policy" in error for error in found.errors)


@pytest.mark.parametrize("name", Instrument.known)
def test_a_saved_page_is_whole_and_names_its_script_and_style_by_hash(tmp_path: Path, name: str) -> None:
    made = make(name)
    made.save_html(tmp_path / "saved.html")
    text = (tmp_path / "saved.html").read_bytes().decode("utf-8")
    assert text.startswith('<!doctype html>\n<html lang="en">')
    (policy,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]+)">', text)
    for kind in ("script", "style"):
        (inside,) = re.findall(rf"<{kind}>(.*?)</{kind}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert made._html() in text
    others = set(Instrument.known) - {name}
    assert not [other for other in others if f"function {other}(" in text]
    assert f"<title>{name}: " in text
    outside = re.sub(r"<(script|style)>.*?</\1>", "", text, flags=re.DOTALL)
    assert not re.search(r"<\w+[^>]*\b(?:src|href|style|on\w+)=", outside)
    assert not re.search(r"@import|url\(", re.findall(r"<style>(.*?)</style>", text, re.DOTALL)[0])


def test_a_saved_page_shows_what_was_chosen(tmp_path: Path) -> None:
    made = make("HeadExplorer")
    made.head = 2  # type: ignore[attr-defined]
    made.save_html(tmp_path / "saved.html", title="Über <b>")
    text = (tmp_path / "saved.html").read_text(encoding="utf-8")
    assert '"head":2,' in text
    assert "<title>Über &lt;b&gt;</title>" in text


def test_what_cannot_be_saved_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = CostCalculator()
    for path, error, message in (
        (tmp_path, ValueError, "is a folder, or in one that does not exist"),
        (tmp_path / "no/such.html", ValueError, "is a folder, or in one that does not exist"),
        ("", ValueError, "path='' is not the name of a file"),
        (3, TypeError, "path must be a string or a Path, got int: 3"),
    ):
        with pytest.raises(error, match=message):
            made.save_html(path)
    with pytest.raises(TypeError, match="title must be a string, got int: 3"):
        made.save_html(tmp_path / "a.html", title=3)  # type: ignore[arg-type]
    from mhalib.widgets import _instrument

    with pytest.raises(ValueError, match=r"cannot stand in a page because of '</SCRIPT'"):
        _instrument._hash("a</SCRIPT>")
    with pytest.raises(ValueError, match="names has 'NotYetMade', but the instruments are AttentionPlayground"):
        _instrument.page_script("NotYetMade")
    with pytest.raises(TypeError, match="each name must be a string"):
        _instrument.page_script(3)  # type: ignore[arg-type]
