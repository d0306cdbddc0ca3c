"""The browser, the served pages, and the loud word when there is no browser."""

from __future__ import annotations

import functools
import http.server
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import notebooks
import pytest
from playwright.sync_api import Browser, sync_playwright

HTML = notebooks.ROOT / "_build/html"
NO_BROWSER = (
    "NO BROWSER: the built pages were NOT tested. Install Chromium (Debian: apt-get install chromium; "
    "elsewhere: python -m playwright install chromium), or name one with CHROMIUM=/path/to/it"
)
FLAGS = (
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
)


def find_chromium() -> str | None:
    """The browser named by CHROMIUM, or one on the path; `None` leaves Playwright's own, if it has one."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        path = find_chromium()
        if path is None and not Path(playwright.chromium.executable_path).exists():
            (pytest.fail if os.environ.get("CI") else pytest.skip)(NO_BROWSER)
        as_root = hasattr(os, "geteuid") and os.geteuid() == 0
        flags = [*FLAGS, "--no-sandbox"] if as_root else [*FLAGS]
        chromium = playwright.chromium.launch(executable_path=path, args=flags)
        yield chromium
        chromium.close()


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the built book on a plain static server, two folders below the server's root."""
    if not (HTML / "index.html").exists():
        pytest.fail("there is no built book to test: run  make book  first")
    folder = tmp_path_factory.mktemp("server")
    (folder / "some").mkdir()
    (folder / "some/path").symlink_to(HTML, target_is_directory=True)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(QuietHandler, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/some/path/"
    server.shutdown()
    server.server_close()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reasons = [str(report.longrepr) for report in terminalreporter.stats.get("skipped", [])]
    if any(NO_BROWSER in reason for reason in reasons):
        terminalreporter.section("PAGES NOT TESTED", sep="!", red=True, bold=True)
        terminalreporter.line(NO_BROWSER)
