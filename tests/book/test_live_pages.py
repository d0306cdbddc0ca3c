"""Live models on built pages: one script for the pages that have one, weights beside it, alive from a disk."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import small_book
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from playwright.sync_api import Browser, expect

from mhalib.widgets import LiveModel, live_names, page_script, weights_script
from tools.notebooks import notebooks

pytestmark = [pytest.mark.tool("mhalib/"), pytest.mark.browser]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages of a book of two, one of which has a live model."""
    folder = tmp_path_factory.mktemp("book")
    pages = small_book.sources(folder)
    (pages / "index.md").write_text("# A small book\n\nBegin with [the first page](01_first.ipynb).\n")
    quests = ["le vache", "as many as you can", "the others"]  # as chapter 13 has it
    data, _ = LiveModel("translator", head="encoder self 1 2", quests=quests)._repr_mimebundle_()
    shown = {name: data[name] for name in ("text/plain", "text/html")}
    output = new_output("execute_result", shown, execution_count=1)
    cells = [new_markdown_cell("# First\n\nA model."), new_code_cell("model", outputs=[output], execution_count=1)]
    language = {"name": "python", "pygments_lexer": "ipython3"}
    nbformat.write(new_notebook(cells=cells, metadata={"language_info": language}), pages / "01_first.ipynb")
    tools = os.environ | {"PYTHONPATH": str(notebooks.ROOT)}
    command = [sys.executable, "-m", "tools.pages.sphinx_book", str(folder), "--strict", "--all"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=tools)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "_build/html"


def test_only_a_page_with_a_live_model_loads_its_script(built: Path) -> None:
    first, index = ((built / f"chapters/{name}.html").read_text("utf-8") for name in ("01_first", "index"))
    assert first.count('src="../_static/live.js"') == 1
    assert "live.js" not in index
    assert (built / "_static/live.js").read_text("utf-8") == page_script("LiveModel")
    assert "_live/" not in first
    for name in live_names():
        assert (built / f"_static/live/{name}.js").read_text("utf-8") == weights_script(name)
    for page in built.glob("_static/pages-*.js"):
        assert "function LiveModel(" not in page.read_text("utf-8")


@pytest.mark.parametrize("width", [390, 720, 1280])
def test_it_fits_into_the_column_of_a_page(built: Path, browser: Browser, width: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.goto((built / "chapters/01_first.html").as_uri())
    live = page.locator(".mhalib-live-model[data-settled]")
    expect(live).to_be_visible(timeout=30_000)
    assert live.evaluate("(one) => one.scrollWidth - one.clientWidth") <= 0
    page.close()


def test_the_whole_translator_fits_a_screen_with_its_controls(built: Path, browser: Browser) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto((built / "chapters/01_first.html").as_uri())
    live = page.locator(".mhalib-live-model[data-settled]")
    expect(live).to_be_visible(timeout=30_000)
    height = "(one) => one.getBoundingClientRect().height"
    assert live.evaluate(height) <= 900
    page.locator("[data-switch='decoder self 0 1']").click()
    expect(page.locator(".mhalib-live-model .mhalib-voice")).to_contain_text("It says: la chien")
    expect(live).to_be_visible(timeout=30_000)
    assert live.evaluate(height) <= 900  # with what is said of it
    page.close()


def test_it_is_alive_from_a_disk_and_its_first_view_needs_no_weights(built: Path, browser: Browser) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    asked: list[str] = []
    errors: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto((built / "chapters/01_first.html").as_uri())
    expect(page.locator(".mhalib-live-model[data-settled]")).to_be_visible(timeout=30_000)
    expect(page.locator(".mhalib-live-model-sentence")).to_have_text("la vache blanche voit le chien noir ")
    assert {url.partition(":")[0] for url in asked} <= {"file", "data"}
    assert sum(url.endswith("/live/translator.js") for url in asked) == 1
    assert not any("live/re" in url for url in asked)
    assert errors == []
    sizes = {Path(url.removeprefix("file://").partition("?")[0]) for url in asked if url.startswith("file:")}
    assert sum(path.stat().st_size for path in sizes if path.is_file()) < 1_516_000
    page.close()
