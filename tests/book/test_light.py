"""The finished pages: light, closed by a policy, quick to reach by keyboard, whole without scripts and on a disk."""

from __future__ import annotations

import base64
import hashlib
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import finish
import icons
import offline
import pytest
import weigh
from accessibility import serious_findings
from playwright.sync_api import Browser, BrowserContext, Page, expect
from served import HTML

CHAPTER = "chapters/07_per_head_heatmaps"
FORMULAS = "chapters/04_mathematics"
TAB_STOPS = "[...document.querySelectorAll('.math, .math *')].filter((one) => one.tabIndex >= 0).length"


@pytest.fixture(scope="module")
def built() -> dict[str, str]:
    """Every finished page by its place."""
    if not (HTML / "search.html").exists():
        pytest.fail("there is no built book to test: run  make book  first")
    files = [*HTML.glob("*.html"), *HTML.glob("chapters/*.html")]
    return {file.relative_to(HTML).as_posix(): file.read_text(encoding="utf-8") for file in files}


@pytest.fixture(scope="module")
def packing() -> Iterator[str]:
    with weigh.packing_server(HTML) as address:
        yield address


@pytest.mark.browser
@pytest.mark.parametrize("name", [CHAPTER, "search.html?q=strides"])
def test_a_first_view_is_light_and_comes_from_here(browser: Browser, packing: str, name: str) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    found = weigh.load(context.new_page(), weigh.address_of(packing, name))
    context.close()
    assert found.transferred < 600_000, found.sizes
    assert len(found.sizes) <= 15, found.sizes
    assert len(found.hosts) == 1
    assert found.errors == []


def test_nothing_in_a_page_waits_for_a_script(built: dict[str, str]) -> None:
    """Scripts of other files are deferred, and there is one style: so seconds do not depend on how many there are."""
    for name, text in built.items():
        styles = finish.STYLE.findall(text)
        assert len(styles) == (name != "index.html"), name
        sources = [found["attributes"] for found in finish.SCRIPT.finditer(text) if "src=" in found["attributes"]]
        assert all(" defer " in one for one in sources), name
        assert len(sources) <= 3, name
        assert ("instruments.js" in text) == ('id="instrument"' in text), name


def test_every_page_has_a_policy_that_knows_its_scripts(built: dict[str, str]) -> None:
    assert len(built) > 40
    for name, text in built.items():
        (policy,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)" />', text)
        before = text[: text.index(policy)]
        assert not re.search(r"<(?:script|link|style|title)", before), f"{name}: the policy comes too late"
        rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
        assert rules["default-src"] == "'none'"
        assert not re.search(r"unsafe|https?:|\*|data:", rules["script-src"]), name
        for found in re.finditer(r"<script([^>]*)>(.*?)</script>", text, re.DOTALL):
            if "src=" not in found[1] and "application/json" not in found[1]:
                digest = base64.b64encode(hashlib.sha256(found[2].encode()).digest()).decode()
                assert f"'sha256-{digest}'" in rules["script-src"], f"{name}: {found[2][:80]}"
        tags = re.sub(r"<(script|pre)\b.*?</\1>", "", text, flags=re.DOTALL)
        assert not re.search(r"<[^>]*\s(?:on[a-z]+=|href=\"javascript:)", tags), name


@pytest.mark.browser
def test_the_policy_stops_what_is_not_the_books(browser: Browser, packing: str) -> None:
    page = browser.new_page()
    errors: list[str] = []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.goto(f"{packing}{CHAPTER}.html")
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=/none.png onerror=\"window.PWN = 1\">')")
    page.evaluate("document.body.append(Object.assign(document.createElement('script'), {text: 'window.PWN = 2'}))")
    page.evaluate("document.body.append(Object.assign(new Image(), {src: 'https://example.org/x.png'}))")
    page.wait_for_timeout(200)
    assert page.evaluate("window.PWN") is None
    stopped = [error for error in errors if "Content Security Policy" in error]
    assert len(stopped) >= 3, errors
    page.close()


@pytest.mark.browser
def test_the_keyboard_reaches_the_instrument_and_passes_formulas(browser: Browser, packing: str) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    for name in (CHAPTER, FORMULAS):
        page.goto(f"{packing}{name}.html")
        stops = weigh.tab_stops(page, skipping=True)
        assert stops is not None
        assert stops <= 10, name
        assert page.evaluate(TAB_STOPS) == 0, name
    page.set_viewport_size({"width": 240, "height": 800})  # where a formula scrolls, the keyboard can scroll it
    expect(page.locator("div.math[tabindex='0']").first).to_be_attached()
    cut = "[...document.querySelectorAll('div.math')].filter((one) => one.scrollWidth > one.clientWidth)"
    assert page.evaluate(f"{cut}.filter((one) => one.tabIndex !== 0).length") == 0
    page.close()


@pytest.mark.browser
def test_the_buttons_for_print_and_full_screen_work_under_the_policy(browser: Browser, packing: str) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(f"{packing}{CHAPTER}.html")
    page.evaluate("window.print = () => { window.asked = 'print' }")
    page.evaluate("window.toggleFullScreen = () => { window.asked = 'full screen' }")
    for click, asked in (("window.print()", "print"), ("toggleFullScreen()", "full screen")):
        page.locator(f"[data-click='{click}']").first.dispatch_event("click")
        assert page.evaluate("window.asked") == asked
    assert errors == []
    page.close()


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_in_search_results(browser: Browser, packing: str, scheme: str) -> None:
    page = browser.new_page(color_scheme=scheme)  # type: ignore[arg-type]
    page.goto(f"{packing}search.html?q=softmax")
    expect(page.locator("#search-results a .highlighted").first).to_be_visible()
    assert serious_findings(page) == []
    page.close()


@pytest.mark.browser
def test_without_scripts_formulas_are_legible_and_a_word_says_what_is_missing(browser: Browser, packing: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{packing}{FORMULAS}.html")
    formula = page.locator("div.math > math").first
    expect(formula).to_be_visible()
    box = formula.bounding_box()
    assert box is not None
    assert box["height"] > 20
    assert box["width"] > 60
    assert "\\(" not in page.locator("article").inner_text()
    expect(page.locator(".without-script")).to_contain_text("instruments")
    page.goto(f"{packing}{CHAPTER}.html")
    expect(page.locator(".mhalib-instrument > table").first).to_be_visible()
    context.close()


@dataclass
class Disk:
    """A browser, the unpacked zip, and what went wrong in it."""

    folder: Path
    context: BrowserContext
    errors: list[str] = field(default_factory=list)
    asked: set[str] = field(default_factory=set)

    def open(self, path: str) -> Page:
        page = self.context.new_page()
        page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self.asked.add(request.url.split(":")[0]))
        page.goto(f"{self.folder.as_uri()}/book/{path}")
        return page


@pytest.fixture(scope="module")
def disk(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Disk]:
    folder = tmp_path_factory.mktemp("disk")
    offline.pack(offline.ROOT, HTML, folder / "book.zip")
    with zipfile.ZipFile(folder / "book.zip") as packed:
        packed.extractall(folder)
    context = browser.new_context()
    yield Disk(folder / offline.NAME, context)
    context.close()


@pytest.mark.browser
def test_the_zip_works_from_a_disk_with_search_and_instruments(disk: Disk) -> None:
    page = disk.open("index.html")
    page.wait_for_url("**/chapters/index.html")
    page = disk.open(f"{CHAPTER}.html")
    expect(page.locator(".mhalib-instrument[data-awake] .mhalib").first).to_be_visible()
    assert page.evaluate("document.fonts.load('16px \"STIX Two Math\"').then((found) => found.length)") == 1
    page = disk.open("search.html?q=strides")
    found = page.locator("#search-results li", has_text="The reshape trick").first
    expect(found.locator("p.context")).to_contain_text("strides", ignore_case=True)
    assert disk.errors == []
    assert disk.asked <= {"file", "data"}


@pytest.mark.browser
def test_the_zip_has_all_that_its_note_promises(disk: Disk) -> None:
    note = (disk.folder / "OFFLINE.txt").read_text(encoding="utf-8")
    assert "book/index.html" in note
    assert "pip download -r requirements.txt -d wheelhouse" in note
    for name in ("chapters/07_per_head_heatmaps.ipynb", "exercises", "mhalib/__init__.py", "pyproject.toml", "LICENSE"):
        assert (disk.folder / "notebooks" / name).exists(), name
    pins = (disk.folder / "notebooks/requirements.txt").read_text(encoding="utf-8").split()
    assert all("==" in pin for pin in pins)
    assert {"torch", "jupyterlab", "scikit-learn", "anywidget"} <= {pin.split("==")[0] for pin in pins}
    assert not list(disk.folder.rglob("all.min.js"))


@pytest.mark.browser
def test_the_zips_package_can_be_built_into_a_wheel(disk: Disk) -> None:
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-index", "--no-build-isolation", "."]
    done = subprocess.run(
        [*build, "-w", "wheelhouse"], cwd=disk.folder / "notebooks", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len([*(disk.folder / "notebooks/wheelhouse").glob("mhalib-*.whl")]) == 1


def test_icons_are_pictures_and_signs_of_a_small_font(built: dict[str, str]) -> None:
    for name, text in built.items():
        assert not icons.ICON.search(text), name
    assert built[f"{CHAPTER}.html"].count('<svg class="svg-inline--fa') > 15
    (name,) = set(finish.STYLE.findall(built[f"{CHAPTER}.html"]))
    style = (HTML / "chapters" / name).read_text(encoding="utf-8")
    assert style.count("@font-face") == 3
    assert len(style) < 500_000
    with pytest.raises(ValueError, match="has no 'no-such'"):
        icons.drawn('<i class="fa-solid fa-no-such"></i>', HTML)


THEME = (
    '<html lang="en" data-content_root="../"><head>\n    <meta charset="utf-8" />\n'
    '<script data-cfasync="false">1</script>'
    '<link rel="stylesheet" href="../_static/a.css?v=1" /></head>'
    '<body><a href="#main-content">Skip to main content</a><article class="x"></article></body></html>'
)
WITH_INSTRUMENT = THEME.replace("</article>", f"{finish.INSTRUMENT}></div></article>")


@pytest.fixture
def theme(tmp_path: Path) -> Path:
    """A folder with the style that THEME asks for."""
    (tmp_path / "_static").mkdir()
    (tmp_path / "_static/a.css").write_text("p { color: red }", encoding="utf-8")
    return tmp_path


def test_the_skip_link_and_the_word_without_scripts_are_in_the_page_s_language(theme: Path) -> None:
    page = WITH_INSTRUMENT.replace("Skip to main content", "Passer au contenu principal")
    made = finish.finished(page, theme, "chapters/a.html", lambda english: f"[{english}]")
    first, second = re.findall(r'<a href="#([\w-]+)">([^<]+)</a>', made)
    assert first == ("main-content", "Passer au contenu principal")
    assert second == ("instrument", f"[{finish.TO_INSTRUMENT}]")
    assert f">[{finish.WITHOUT_SCRIPT}]</p></noscript>" in made


def test_a_theme_that_changed_is_refused_by_name(theme: Path) -> None:
    made = finish.finished(THEME, theme, "chapters/a.html")
    assert finish.POLICY in made
    for word in ('<meta charset="utf-8" />', 'rel="stylesheet"', "<html ", "data-cfasync"):
        with pytest.raises(ValueError, match=r"finish\.py|styles"):
            finish.finished(THEME.replace(word, ""), theme, "chapters/a.html")
    with pytest.raises(ValueError, match=r"main part.*finish\.py"):
        finish.finished(WITH_INSTRUMENT.replace("main-content", "main"), theme, "chapters/a.html")
    with pytest.raises(ValueError, match="searchtools"):
        finish.script_part("fetch(another)", "_static/searchtools.js")
