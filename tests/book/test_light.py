"""The finished pages: light, closed by a policy, quick to reach by keyboard, whole without scripts and on a disk."""

from __future__ import annotations

import base64
import functools
import hashlib
import io
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from accessibility import serious_findings
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from fontTools.ttLib import TTFont
from playwright.sync_api import Browser, BrowserContext, Page, expect
from served import HTML

from tools import PACKAGES
from tools.development import page_weight
from tools.editions import offline
from tools.notebooks import move_chapter, notebooks
from tools.pages import chromium, finish, icons, theme_words

CHAPTER = "chapters/07_per_head_heatmaps"
FORMULAS = "chapters/05_mathematics"
FORMULAS_AND_INSTRUMENT = "chapters/15_induction_circuit"
TAB_STOPS = "[...document.querySelectorAll('.math, .math *')].filter((one) => one.tabIndex >= 0).length"


BARE = {"index.html", *(f"chapters/{old}.html" for old in move_chapter.addresses(notebooks.ROOT))}  # they only lead on


@pytest.fixture(scope="module")
def built() -> dict[str, str]:
    """Every finished page by its place."""
    if not (HTML / "search.html").exists():
        pytest.fail("there is no built book to test: run  make book  first")
    files = [*HTML.glob("*.html"), *HTML.glob("chapters/*.html")]
    return {file.relative_to(HTML).as_posix(): file.read_text(encoding="utf-8") for file in files}


@pytest.fixture(scope="module")
def packing() -> Iterator[str]:
    with chromium.serving(HTML, page_weight.PackingHandler) as address:
        yield address


@pytest.mark.browser
@pytest.mark.parametrize("name", [CHAPTER, "search.html?q=strides"])
@pytest.mark.page
def test_a_first_view_is_light_and_comes_from_here(browser: Browser, packing: str, name: str) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    found = page_weight.load(context.new_page(), page_weight.address_of(packing, name))
    context.close()
    assert found.transferred < 600_000, found.sizes
    assert len(found.sizes) <= 18, found.sizes  # of a search, most are the texts of what it found
    assert len(found.hosts) == 1
    assert found.errors == []


WEIGHTS = """
() => {
  const [page] = performance.getEntriesByType("navigation");
  const found = performance.getEntriesByType("resource").filter((one) => one.name.includes("/live/"));
  const [drawn] = performance.getEntriesByName("first-contentful-paint");
  return found.map((one) => one.startTime - Math.max(page.loadEventEnd, drawn.startTime));
}
"""
FAR = "chapters/20_which_heads_matter"  # its live model is below the first view


@pytest.mark.browser
@pytest.mark.parametrize("name", ["chapters/11_positions", "chapters/13_translator", FAR, "chapters/index"])
@pytest.mark.page
def test_weights_of_a_live_model_come_after_the_first_view(browser: Browser, packing: str, name: str) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    found = page_weight.load(page, page_weight.address_of(packing, name))
    later = page.evaluate(WEIGHTS)
    context.close()
    weights = sum(size for url, size in found.sizes.items() if "/live/" in url)
    assert found.transferred - weights < 300_000, found.sizes
    assert len(later) == (name != FAR)
    assert all(milliseconds >= 0 for milliseconds in later)
    assert found.transferred < 1_100_000


def test_nothing_in_a_page_waits_for_a_script(built: dict[str, str]) -> None:
    """Scripts of other files are deferred, and there is one style: so seconds do not depend on how many there are."""
    for name, text in built.items():
        styles = finish.STYLE.findall(text)
        assert len(styles) == (name not in BARE), name
        sources = [found["attributes"] for found in finish.SCRIPT.finditer(text) if "src=" in found["attributes"]]
        assert all(" defer " in one for one in sources), name
        assert len(sources) <= 3, name
        assert ("instruments.js" in text) == ('id="instrument"' in text or 'class="drag"' in text), name


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
@pytest.mark.page
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
@pytest.mark.page
def test_the_keyboard_reaches_the_instrument_and_passes_formulas(browser: Browser, packing: str) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    for name in (CHAPTER, FORMULAS_AND_INSTRUMENT):
        page.goto(f"{packing}{name}.html")
        assert page_weight.tab_stops(page) <= 10, name
        assert page.evaluate(TAB_STOPS) == 0, name
    page.goto(f"{packing}{FORMULAS}.html")  # where symbols can be gone through, by a button above them
    assert page.evaluate(TAB_STOPS) == 0
    page.set_viewport_size({"width": 240, "height": 800})  # where a formula scrolls, the keyboard can scroll it
    expect(page.locator("div.math[tabindex='0']").first).to_be_attached()
    cut = "[...document.querySelectorAll('div.math')].filter((one) => one.scrollWidth > one.clientWidth)"
    assert page.evaluate(f"{cut}.filter((one) => one.tabIndex !== 0).length") == 0
    page.close()


@pytest.mark.browser
@pytest.mark.page
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
@pytest.mark.page
def test_axe_finds_nothing_serious_in_search_results(browser: Browser, packing: str, scheme: str) -> None:
    page = browser.new_page(color_scheme=scheme)  # type: ignore[arg-type]
    page.goto(f"{packing}search.html?q=softmax")
    expect(page.locator("#search-results a .highlighted").first).to_be_visible()
    assert serious_findings(page) == []
    page.close()


@pytest.mark.browser
@pytest.mark.page
def test_without_scripts_formulas_are_legible_and_a_word_says_what_is_missing(browser: Browser, packing: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{packing}{FORMULAS}.html")
    formula = page.locator("div.math > math").first
    expect(formula).to_be_visible()
    box = formula.bounding_box()
    assert box is not None
    assert box["height"] > 15  # a line of text; collapsed, it has none
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
@pytest.mark.page
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
@pytest.mark.page
def test_the_zip_has_all_that_its_note_promises(disk: Disk) -> None:
    note = (disk.folder / "OFFLINE.txt").read_text(encoding="utf-8")
    assert "book/index.html" in note
    assert "pip download -r requirements.txt -d wheelhouse" in note
    for name in ("chapters/07_per_head_heatmaps.ipynb", "exercises", "pyproject.toml", "LICENSE"):
        assert (disk.folder / "notebooks" / name).exists(), name
    for package in PACKAGES:
        assert (disk.folder / "notebooks" / package / "__init__.py").exists(), package
    pins = (disk.folder / "notebooks/requirements.txt").read_text(encoding="utf-8").split()
    assert all("==" in pin for pin in pins)
    assert {"torch", "jupyterlab", "scikit-learn", "anywidget"} <= {pin.split("==")[0] for pin in pins}
    assert not list(disk.folder.rglob("all.min.js"))


@pytest.mark.browser
@pytest.mark.page
def test_the_zips_package_can_be_built_into_a_wheel(disk: Disk) -> None:
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-index", "--no-build-isolation", "."]
    done = subprocess.run(
        [*build, "-w", "wheelhouse"], cwd=disk.folder / "notebooks", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len([*(disk.folder / "notebooks/wheelhouse").glob("mhalib-*.whl")]) == 1


def test_icons_are_pictures_and_signs_of_a_small_font(built: dict[str, str]) -> None:
    for name, text in built.items():
        assert not theme_words.ICON.search(text), name
    assert built[f"{CHAPTER}.html"].count('<svg class="svg-inline--fa') > 15
    (name,) = set(finish.STYLE.findall(built[f"{CHAPTER}.html"]))
    style = (HTML / "chapters" / name).read_text(encoding="utf-8")
    faces = re.findall(r'@font-face \{\s*font-family: "(Font Awesome [^"]*)"', style)
    assert set(theme_words.ICON_FAMILY.findall(style)) == {name.split()[2] for name in faces}
    assert len(faces) == len(set(faces)) <= 2
    coloured = re.compile(r'class="[^"]*-Color')  # by a terminal: its 528 rules are left out
    assert not any(coloured.search(text) for text in built.values())
    assert "-Color[" not in style
    assert "by the Sphinx team" in style  # a notice is no comment
    assert len(style) < 472_000
    with pytest.raises(ValueError, match="has no 'no-such'"):
        icons.drawn('<i class="fa-solid fa-no-such"></i>', HTML)


THEME = (
    '<html lang="en" data-content_root="../"><head>\n    <meta charset="utf-8" />\n'
    '<script data-cfasync="false">1</script>'
    '<link rel="stylesheet" href="../_static/a.css?v=1" /><link rel="stylesheet" href="../_static/icons.css" /></head>'
    '<body><button onclick="window.print()"></button><i class="fas fa-x"></i>'
    '<article class="x"></article></body></html>'
)


def write_font(path: Path) -> None:
    """A font of three empty signs."""
    names = {0xF00C: "check", 0xF00D: "x", 0xF00E: "y"}
    glyphs = [".notdef", *names.values()]
    font = FontBuilder(1000)
    font.setupGlyphOrder(glyphs)
    font.setupCharacterMap(names)
    font.setupGlyf({name: TTGlyphPen(None).glyph() for name in glyphs})
    font.setupHorizontalMetrics(dict.fromkeys(glyphs, (500, 0)))
    font.setupHorizontalHeader()
    font.setupPost()
    font.save(path)


@pytest.fixture
def theme(tmp_path: Path) -> Iterator[Path]:
    """A folder with what THEME asks for, and with an icon library of version 6."""
    files = {
        "a.css": 'p { color: red; font-family: "Font Awesome 6 Free" } p:before { content: "\\f00d" }',
        "icons.css": "svg { height: 1em }",
        "vendor/fontawesome/6.5.2/js/all.min.js": 'x={x:[384,512,[],"f00d","M1 2z"]}',
        "vendor/fontawesome/6.5.2/css/all.min.css": "/*! A licence */ a { b: c }",
    }
    for name, text in files.items():
        (tmp_path / "_static" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "_static" / name).write_text(text, encoding="utf-8")
    (tmp_path / "_static/vendor/fontawesome/6.5.2/webfonts").mkdir()
    write_font(tmp_path / "_static/vendor/fontawesome/6.5.2/webfonts/fa-solid-900.ttf")
    icons.shape.cache_clear()
    yield tmp_path
    icons.shape.cache_clear()


def test_a_theme_that_changed_is_refused_by_name(theme: Path) -> None:
    made = finish.finished(THEME, theme, "chapters/a.html")
    assert finish.POLICY in made
    assert "M1 2z" in made
    for word, other, named in (
        ('<meta charset="utf-8" />', "", "charset"),
        ("<html ", "<HTML ", "<html "),
        ("icons.css", "fontawesome.css", r"chapters/a\.html: its styles are .*layout\.html"),
        ("window.print()", "share()", r"chapters/a\.html: a button does 'share\(\)'"),
        ("fas fa-x", "fa-sharp fa-x", r"chapters/a\.html: .*fa-sharp fa-x.*no icon of a known kind"),
        ("fas fa-x", "fas fa-y", "has no 'y'"),
    ):
        assert word in THEME
        with pytest.raises(theme_words.ThemeError, match=named):
            finish.finished(THEME.replace(word, other), theme, "chapters/a.html")
    with pytest.raises(theme_words.ThemeError, match="searchtools"):
        finish.script_part("fetch(another)", "_static/searchtools.js")


def test_the_words_of_another_language_evaluate_no_string() -> None:
    tools = finish.script_part((HTML / "_static/doctools.js").read_text(encoding="utf-8"), "_static/doctools.js")
    assert "new Function" not in tools
    assert "PLURAL_EXPR = catalog.plural_expr;" in tools
    told = finish.script_part('{"plural_expr": "n > 1"}', "_static/translations.js")
    assert told == '{"plural_expr": (n) => Number(n > 1)}'
    with pytest.raises(theme_words.ThemeError, match="plurals in another way"):
        finish.script_part("eval(another)", "_static/doctools.js")


@pytest.mark.parametrize(
    ("body", "loads"), [("", False), (finish.INSTRUMENT + "></div>", True), ('<span class="drag">1</span>', True)]
)
def test_the_script_of_instruments_is_on_pages_that_it_wakes(theme: Path, body: str, loads: bool) -> None:
    head = f'<script src="../{finish.INSTRUMENTS}"></script></head>'
    page = THEME.replace("</head>", head).replace("</article>", f"{body}</article>")
    made = finish.finished(page, theme, "chapters/a.html")
    assert (f'<script defer src="../{finish.INSTRUMENTS}">' in made) == loads


def test_what_is_replaced_in_a_frame_must_be_there() -> None:
    replaced = theme_words.replaced_within
    assert replaced("no fold", theme_words.FOLD, theme_words.FOLD_NAME, "<summary>", "a") == "no fold"
    for frame, word in ((theme_words.FOLD, theme_words.FOLD_NAME), (theme_words.ENTRIES, theme_words.ENTRY)):
        assert replaced(f"{frame} {word} {word}", frame, word, "new", "a") == f"{frame} new new"
        with pytest.raises(theme_words.ThemeError, match=r"chapters/a: there is .* without .*theme_words\.py"):
            replaced(f"{frame} other", frame, word, "new", "chapters/a")


@pytest.mark.parametrize(
    ("gone", "named"),
    [
        ("js/all.min.js", r"outlines: looked in .* for .*js/all\.min\.js and _static/scripts/fontawesome\.js"),
        ("css/all.min.css", r"licence: looked in .*all\.min\.css"),
        ("webfonts/fa-solid-900.ttf", r"font: looked in .*fa-solid-900\.ttf.* found 0 files: .*theme_words\.py"),
    ],
)
def test_an_icon_library_that_moved_is_missed_by_a_sentence(theme: Path, gone: str, named: str) -> None:
    """Without one the icons would be as large as the sidebar."""
    assert '"Font Awesome 6 Free"' in icons.style(theme)
    (theme / f"_static/vendor/fontawesome/6.5.2/{gone}").unlink()
    made = icons.style if "js" not in gone else functools.partial(icons.drawn, THEME)
    with pytest.raises(theme_words.ThemeError, match=named):
        made(theme)


def test_the_icons_style_is_the_same_at_any_time(theme: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a page that nobody changed keeps its bytes."""
    first = icons.style(theme)
    monkeypatch.setattr("fontTools.ttLib.tables._h_e_a_d.timestampNow", lambda: 3_900_000_000)
    assert icons.style(theme) == first


def test_a_style_that_names_no_icons_is_refused(theme: Path) -> None:
    (theme / "_static/a.css").write_text("p { color: red }", encoding="utf-8")
    with pytest.raises(theme_words.ThemeError, match=r"no style in .* names a font of icons"):
        icons.style(theme)


def test_the_icons_of_version_7_are_drawn_from_its_one_script(theme: Path) -> None:
    """It has no style of its own, fonts as woff2 alone, and a rule for each icon in the theme's style."""
    static, old = theme / "_static", theme / "_static/vendor/fontawesome/6.5.2"
    (static / "scripts").mkdir()
    (old / "js/all.min.js").rename(static / "scripts/fontawesome.js")
    (static / "scripts/fontawesome.js.LICENSE.txt").write_text("/*! Version 7 */", encoding="utf-8")
    (static / "vendor/fontawesome/webfonts").mkdir()
    font = TTFont(old / "webfonts/fa-solid-900.ttf")
    font.flavor = "woff"  # what woff2 needs, brotli, is not among the book's packages
    font.save(static / "vendor/fontawesome/webfonts/fa-solid-900.woff2")
    shutil.rmtree(old)
    named = r'.a{font-family:Font Awesome\ 7 Free;content:"\f00c"}.fa-x{--fa:"\f00d"}.fa-y,.fa-z{--fa:"\f00e"}.b{top:0}'
    (static / "a.css").write_text(named, encoding="utf-8")
    style = icons.style(theme)
    assert style.startswith("/*! Version 7 */")
    assert '900 1em/1 "Font Awesome 7 Free"' in style
    (data,) = re.findall(r"base64,([^)]*)\)", style)
    assert {0xF00C} == set(TTFont(io.BytesIO(base64.b64decode(data))).getBestCmap())
    text = finish.finished(THEME.replace("fas fa-x", "fa-solid fa-x fa-fw"), theme, "chapters/a.html")
    assert 'class="svg-inline--fa fa-x fa-fw"' in text
    (joined,) = static.glob("pages-*.css")
    assert "--fa:" not in joined.read_text("utf-8")
    assert ".b{top:0}" in joined.read_text("utf-8")


def test_a_colour_that_the_theme_gave_up_is_named(theme: Path) -> None:
    (theme / "_static/styles").mkdir()
    (theme / "_static/styles/theme.css").write_text("html { --pst-color-border: red }", encoding="utf-8")
    (theme / "_static/book.css").write_text("p { color: var(--pst-color-border) }", encoding="utf-8")
    finish.check_colours(theme)
    (theme / "_static/book.css").write_text("p { color: var(--pst-color-shade) }", encoding="utf-8")
    with pytest.raises(theme_words.ThemeError, match=r"book\.css: the theme defines no --pst-color-shade"):
        finish.check_colours(theme)


def test_skip_links_lead_to_the_main_part_and_to_the_instrument(built: dict[str, str]) -> None:
    for name, text in (pair for pair in built.items() if pair[0] not in BARE):
        blocks = re.findall(r'<div[^>]*class="skip-link.*?</div>', text, re.DOTALL)
        targets = re.findall(r'<a href="([^"]+)"', "".join(blocks))
        assert targets == ["#main-content", *["#instrument"] * (finish.INSTRUMENT_CLASS in text)], name
        assert [text.count(f' id="{target[1:]}"') for target in targets] == [1] * len(targets), name


def test_the_search_loads_on_its_page_alone(built: dict[str, str]) -> None:
    for name, text in built.items():
        sources = "".join(found["attributes"] for found in finish.SCRIPT.finditer(text))
        assert ("searchindex.js" in sources, "/search-" in sources) == (name == "search.html",) * 2, name
