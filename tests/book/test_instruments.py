"""What holds of all instruments: small scripts, and alive on the built pages under a policy without inline scripts."""

from __future__ import annotations

import http.server
import re
import threading
from collections.abc import Iterator
from functools import partial

import notebooks
import pytest
from conftest import HTML, StrictHandler
from playwright.sync_api import Browser

from mhalib.widgets import Instrument, page_script
from mhalib.widgets._instrument import FOLDER, _snake

WOKEN = re.compile(r'data-script="(\w+)"')
PAGES = {
    path.stem: found
    for path in sorted(notebooks.CHAPTERS.glob("*.ipynb"))
    if (found := WOKEN.findall(path.read_text(encoding="utf-8").replace('\\"', '"')))
}


def test_scripts_are_small_and_plain() -> None:
    text = page_script()
    sizes = [len((FOLDER / f"{_snake(script)}.js").read_bytes()) for script in Instrument.known]
    assert sum(sizes) < 60_000
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


def test_stored_instruments_exist() -> None:
    assert {script for scripts in PAGES.values() for script in scripts} <= set(Instrument.known)


@pytest.fixture(scope="module")
def strict_site() -> Iterator[str]:
    """The built book under `script-src 'self'`."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(StrictHandler, directory=HTML))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.mark.browser
@pytest.mark.parametrize("page_name", PAGES)
def test_instruments_wake_on_the_built_page(browser: Browser, strict_site: str, page_name: str) -> None:
    page = browser.new_page()
    page.goto(f"{strict_site}chapters/{page_name}.html")
    woken = page.locator(".mhalib-instrument[data-awake]")
    assert [one.get_attribute("data-script") for one in woken.all()] == PAGES[page_name]
    for one in woken.all():
        assert one.locator(".mhalib").is_visible()
        assert one.locator("> table").is_hidden()
    page.close()
