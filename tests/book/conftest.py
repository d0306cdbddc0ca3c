"""The browser, the served pages, and the loud word when there is no browser."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from js_coverage import COVERAGE
from playwright.sync_api import Browser, BrowserContext, CDPSession, Page, Route, sync_playwright
from served import HTML, StrictHandler

from mhalib import widgets
from tools.pages import chromium

NO_BROWSER = f"The built pages were NOT tested: {chromium.NO_BROWSER}"
FLAGS = (
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        try:
            browser = chromium.launch(playwright, FLAGS)
        except SystemExit:
            (pytest.fail if os.environ.get("CI") else pytest.skip)(NO_BROWSER)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the built book on a plain static server, two folders below the server's root."""
    if not (HTML / "index.html").exists():
        pytest.fail("there is no built book to test: run  make book  first")
    folder = tmp_path_factory.mktemp("server")
    (folder / "some").mkdir()
    (folder / "some/path").symlink_to(HTML, target_is_directory=True)
    with chromium.serving(folder) as address:
        yield f"{address}some/path/"


@dataclass
class Instruments:
    """A page that holds nothing but instruments, in the browser, and what went wrong on it."""

    page: Page
    errors: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    with chromium.serving(tmp_path, StrictHandler) as found:
        yield found


@pytest.fixture(scope="session")
def modules(browser: Browser) -> Iterator[Page]:
    """An empty page that may import live models' modules, /live/NAME and /widgets/NAME, and reaches nothing else."""
    files = {f"/{file.parent.name}/{file.name}": file for file in widgets.scripts("LiveModel")}

    def serve(route: Route) -> None:
        file = files.get(route.request.url.removeprefix("http://localhost"))
        kind = "text/javascript" if file else "text/html"
        route.fulfill(body=file.read_text(encoding="utf-8") if file else "<!doctype html>", content_type=kind)

    context = browser.new_context()
    context.route("**/*", serve)
    page = context.new_page()
    page.goto("http://localhost/index.html")
    yield page
    context.close()


@pytest.fixture
def show(browser: Browser, address: str, tmp_path: Path) -> Iterator[Callable[..., Instruments]]:
    """Opens instruments on a page without a kernel, under a policy that allows no inline script and no eval."""
    contexts: list[tuple[BrowserContext, CDPSession]] = []

    def open_page(*instruments: widgets.Instrument, width: int = 1280, **options: Any) -> Instruments:
        bodies = "".join(one._repr_mimebundle_()[0]["text/html"] for one in instruments)
        (tmp_path / "instruments.js").write_text(widgets.page_script(), encoding="utf-8")
        (tmp_path / "instruments.css").write_text(widgets.style_sheet(), encoding="utf-8")
        more = ""
        if 'data-script="LiveModel"' in bodies:  # as the book's pages have them
            (tmp_path / "live.js").write_text(widgets.page_script("LiveModel"), encoding="utf-8")
            (tmp_path / "live").mkdir(exist_ok=True)
            for name in widgets.live_names():
                (tmp_path / f"live/{name}.js").write_text(widgets.weights_script(name), encoding="utf-8")
            more = '<script defer src="live.js"></script>'
        (tmp_path / "favicon.ico").touch()
        (tmp_path / "index.html").write_text(
            '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Instruments</title>'
            '<meta name="viewport" content="width=device-width">'
            '<link rel="stylesheet" href="instruments.css">'
            f'<script defer src="instruments.js"></script>{more}</head>'
            f"<body><main><h1>Instruments</h1>{bodies}</main></body></html>",
            encoding="utf-8",
        )
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        shown = Instruments(context.new_page())
        profiler = context.new_cdp_session(shown.page)
        profiler.send("Profiler.enable")
        profiler.send("Profiler.startPreciseCoverage", {"callCount": True, "detailed": True})
        contexts.append((context, profiler))
        shown.page.on("console", lambda message: shown.errors.append(message.text) if message.type == "error" else None)
        shown.page.on("pageerror", lambda error: shown.errors.append(str(error)))
        shown.page.on("request", lambda request: shown.hosts.add(urlsplit(request.url).netloc))
        shown.page.goto(address)
        return shown

    yield open_page
    for context, profiler in contexts:
        for script in profiler.send("Profiler.takePreciseCoverage")["result"]:
            if coverage := COVERAGE.get(script["url"].rpartition("/")[2]):
                coverage.add(script["functions"])
        context.close()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reasons = [str(report.longrepr) for report in terminalreporter.stats.get("skipped", [])]
    if any(NO_BROWSER in reason for reason in reasons):
        terminalreporter.section("PAGES NOT TESTED", sep="!", red=True, bold=True)
        terminalreporter.line(NO_BROWSER)
