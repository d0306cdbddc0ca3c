"""`make look` itself, on pages and builds of the tests' making: pixels, numbers of a page, sheets, what changed."""

from __future__ import annotations

import contextlib
import itertools
import re
import shutil
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser

from tools.development import look, look_changed, look_pages, look_pixels, look_sheets
from tools.development.look_browser import opened, resize
from tools.development.look_sheets import Tile
from tools.pages import chromium

pytestmark = pytest.mark.tool

WHITE, BLACK = np.array([255, 255, 255]), np.array([0, 0, 0])


@pytest.mark.parametrize(
    ("one", "other", "ratio"),
    [((0, 0, 0), (255, 255, 255), 21), ((118, 118, 118), (255, 255, 255), 4.54), ((255, 0, 0), (255, 255, 255), 4.0)],
)
def test_contrasts_are_those_that_are_published(one: tuple, other: tuple, ratio: float) -> None:
    assert look_pixels.contrast(np.array(one), np.array(other)) == pytest.approx(ratio, abs=0.01)
    assert look_pixels.contrast(np.array(other), np.array(one)) == pytest.approx(ratio, abs=0.01)


def test_the_largest_rectangle_is_what_trying_all_of_them_finds() -> None:
    numbers = np.random.default_rng(3)
    for shape in [(1, 1), (5, 7), (7, 5), (6, 6)] * 5:
        cells = numbers.random(shape) < 0.7
        sides = [list(itertools.combinations(range(size + 1), 2)) for size in shape]
        tried = [(b - a) * (d - c) for (a, b), (c, d) in itertools.product(*sides) if cells[a:b, c:d].all()]
        assert look_pixels.largest_rectangle(cells) == max(tried, default=0)


def test_how_much_of_a_picture_is_empty_and_what_differs() -> None:
    picture = np.full((160, 320, 3), 250, dtype=np.uint8)
    assert look_pixels.empty_share(picture) == 1.0
    picture[:, 80:96] = 0  # one column of tiles of twenty, at the sixth
    assert look_pixels.empty_share(picture) == pytest.approx(14 / 20)
    other = picture.copy()
    other[40:80, 0:16] = 90
    share, drawn = look_pixels.difference(picture, other)
    assert share == pytest.approx(40 * 16 / (160 * 320))
    assert (drawn[50, 5] == (210, 0, 40)).all()
    share, drawn = look_pixels.difference(picture, picture[:80])
    assert (share, drawn.shape) == (pytest.approx(0.5), picture.shape)
    assert look_pixels.difference(picture, picture)[0] == 0


PAGE = """\
<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><style>
body {{ margin: 0; font: 16px sans-serif; }} p, pre, h1 {{ margin: 0; height: 50px; overflow: hidden; }}
img {{ display: block; }} pre {{ width: 100px; }} {style}</style></head><body><article>
<h1>Four words of title<a class="headerlink" href="#x">#</a></h1><p>These six words are the core.</p>
<details><summary>Show how this page installs</summary><pre>install(everything)</pre>
<div class="cell_output"><pre>one line more</pre></div><figure><img src="one.png" alt=""></figure></details>
<details><summary>Show how Figure 1.1 is drawn</summary><pre>draw()</pre></details>
<div class="cell_output"><pre>one line</pre></div><div class="cell_output"><pre>two
lines</pre></div>
<figure id="figure-1-1"><div class="figure-frame"><img src="{image}.png" width="300" height="200" alt=""></div>
<figcaption><p>Figure 1.1. A caption.</p><details class="figure-code"><summary>code</summary><pre>draw()</pre></details>
</figcaption></figure>
<div class="mhalib-instrument" style="height: 321px">an instrument<table><tr><td>0.5</td></tr></table></div>
<section class="deeper"><h2>More</h2><p>It is deeper.</p></section>
<section id="exercises"><h2>Exercises</h2><p>Do it.</p></section></article></body></html>
"""


def build(folder: Path, *, image: str = "one", style: str = "", names: str = "index 01_a 02_b") -> Path:
    """A build of small pages, each with a figure, a fold for it, and an instrument."""
    (folder / "chapters").mkdir(parents=True)
    for place, name in enumerate(("one", "two")):
        picture = np.full((200, 300, 3), 30 + 200 * place, dtype=np.uint8)
        picture[::7, ::2] = 250
        Image.fromarray(picture).save(folder / f"chapters/{name}.png")
    for name in names.split():
        same = PAGE.format(image="one" if name != "02_b" else image, style=style)
        (folder / f"chapters/{name}.html").write_text(same, encoding="utf-8")
    return folder


@pytest.mark.browser
def test_a_page_is_told_in_numbers(browser: Browser, tmp_path: Path) -> None:
    top = look_pages.Top("chapters/01_a")
    style = "@media (max-width: 500px) { h1 { width: 450px; } }"
    with (
        chromium.serving(build(tmp_path, style=style)) as site,
        opened(browser, f"{site}chapters/01_a.html", "light") as page,
    ):
        for width in (1280, 390):
            resize(page, width)
            look_pages.see(page, width, top)
    wide = top.measures[1280]
    summaries = 2 * 18  # of a browser's own style, about
    assert wide.picture == pytest.approx(50 + 50 + summaries + 2 * 50 + 16, abs=20)
    assert wide.instrument is not None
    assert wide.instrument - (wide.picture or 0) == pytest.approx(200 + 50 + 18 + 16, abs=20)
    assert wide.tallest == 321
    assert [one.scrolls for one in top.measures.values()] == [1280, 450]
    assert top.findings == ["chapters/01_a: page: 390 light: wide: it is 450 px wide"]
    assert [screen.shape for screen in top.screens.values()] == [(1800, 1280, 3), (1688, 390, 3)]
    assert "321" in top.line.split()
    assert len(top.line.split()) == len(look_pages.HEAD.split()) + 1


def test_a_sheet_shows_every_picture(tmp_path: Path) -> None:
    colours = [(200, 10, 10), (10, 200, 10), (10, 10, 200)]
    tiles = [Tile("a", np.full((90, 1200, 3), colour, dtype=np.uint8), ["what is wrong " * 30]) for colour in colours]
    look_sheets.sheet("three", tiles, tmp_path / "some/sheet.png")
    drawn = np.array(Image.open(tmp_path / "some/sheet.png"))
    for colour in colours:
        assert (drawn == colour).all(axis=-1).sum() == 90 * 1200
    assert drawn.shape[1] < look_sheets.WIDEST + 100
    assert (drawn == look_sheets.RED).all(axis=-1).any()


@pytest.mark.browser
def test_the_tool_writes_findings_numbers_and_sheets(tmp_path: Path) -> None:
    html, out = build(tmp_path / "html", style="img { height: 100px; }"), tmp_path / "out"
    done = ran("--html", str(html), "--out", str(out), "--pages", "1", "02_b")
    assert done.returncode == 0, done.stderr
    assert re.search(
        r"^squeezed +390 light +2$", done.stdout, flags=re.MULTILINE
    )  # the picture in the fold has no width
    found = (out / "findings.txt").read_text(encoding="utf-8").splitlines()
    assert "chapters/02_b: Figure 1.1: 1280 dark: squeezed: to 2.00 of its width to height" in found
    numbers = (out / "pages.txt").read_text(encoding="utf-8").splitlines()
    assert [line.split()[0] for line in numbers] == ["page", "01_a", "02_b"]
    made = sorted(path.relative_to(out).as_posix() for path in out.rglob("*.png"))
    modes = ("1280-dark", "1280-light", "390-light")
    figures = [f"figures/{name}-{mode}.png" for name in ("01_a", "02_b") for mode in modes]
    assert made == [*figures, "pages/01_a.png", "pages/02_b.png"]
    index = (out / "index.html").read_text(encoding="utf-8")
    assert all(f'src="{name}"' in index for name in made)


@pytest.mark.parametrize(
    ("pages", "with_mathjax", "shown"), [([], True, ["x: to formulas"]), (["1"], True, []), ([], False, [])]
)
def test_a_look_at_all_pages_is_one_at_the_formulas_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pages: list[str], with_mathjax: bool, shown: list[str]
) -> None:
    browser = SimpleNamespace(close=lambda: None)
    monkeypatch.setattr(look, "sync_playwright", contextlib.nullcontext)
    monkeypatch.setattr(look.chromium, "launch", lambda _: browser)
    monkeypatch.setattr(look, "look_through", lambda *_: ([], []))
    monkeypatch.setattr(look.look_formulas, "sheets", lambda folder: [f"x: to {folder.name}"])
    monkeypatch.setattr(look.formula_ink, "MATHJAX", tmp_path if with_mathjax else tmp_path / "none")
    look.run(Namespace(html=build(tmp_path / "html"), pages=pages, against=None, out=tmp_path / "out"))
    assert (tmp_path / "out/findings.txt").read_text(encoding="utf-8").splitlines() == shown


@pytest.mark.browser
@pytest.mark.parametrize("packed", [False, True])
def test_only_what_differs_from_another_build_is_shown(tmp_path: Path, packed: bool) -> None:
    before = build(tmp_path / "old/book", names="index 01_a 02_b 04_gone")
    html, out = build(tmp_path / "html", image="two", names="index 01_a 02_b 03_new"), tmp_path / "out"
    if packed:
        before = Path(shutil.make_archive(str(tmp_path / "old"), "zip", tmp_path / "old"))
    done = ran("--html", str(html), "--out", str(out), "--against", str(before))
    assert done.returncode == 0, done.stderr
    assert "2 of 4 pages are not byte by byte as they were" in done.stdout
    lines = (out / "findings.txt").read_text(encoding="utf-8").splitlines()
    assert {line.split(": ")[0] for line in lines} == {"chapters/02_b", "chapters/03_new"}
    changed = [line for line in lines if line.startswith("chapters/02_b: Figure 1.1, 1280 light")]
    assert len(changed) == 1
    assert "of it differs" in changed[0]
    assert not [line for line in lines if line.startswith("chapters/02_b: picture 1")]  # in the fold, it is as it was
    assert all(line.endswith("it is new") for line in lines if line.startswith("chapters/03_new"))
    assert {path.name for path in (out / "changed").iterdir()} >= {"02_b-1.png", "03_new-1.png"}


def test_what_a_page_shows_belongs_to_it(tmp_path: Path) -> None:
    old, new = build(tmp_path / "old"), build(tmp_path / "new")
    pages = ["chapters/01_a", "chapters/02_b", "chapters/none"]
    assert look_changed.that_differ(old, new, pages) == []
    shutil.copy(new / "chapters/two.png", new / "chapters/one.png")
    assert look_changed.that_differ(old, new, pages) == pages[:2]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--pages", "7"], "'7' is no page of"),
        (["--pages", "none"], "there are 01_a, 02_b, index"),
        (["--against", "{html}/chapters"], "holds no chapters/index.html: name a folder or a zip of a build"),
        (["--html", "{html}/chapters"], "has no built book: run  make book  first"),
    ],
)
def test_what_is_not_there_is_said(tmp_path: Path, arguments: list[str], said: str) -> None:
    html = build(tmp_path / "html")
    filled = [argument.format(html=html) for argument in arguments]
    done = ran("--html", str(html), "--out", str(tmp_path / "out"), *filled)
    assert done.returncode == 2
    assert said in done.stderr


def test_pages_have_names_and_numbers(tmp_path: Path) -> None:
    html = build(tmp_path)
    assert look.pages_of(html, []) == ["chapters/01_a", "chapters/02_b", "chapters/index"]
    assert look.pages_of(html, ["2", "chapters/index"]) == ["chapters/02_b", "chapters/index"]
    assert look.pages_of(html, ["01_a"]) == ["chapters/01_a"]


def ran(*arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", look.__name__, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)
