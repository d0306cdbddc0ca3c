"""Chromium, in CHROMIUM or on the path, and a server, for the tools and tests that look at pages."""

from __future__ import annotations

import contextlib
import functools
import http.server
import os
import shutil
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from playwright.sync_api import Browser, Playwright

NO_BROWSER = (
    "no Chromium: install it (Debian: apt-get install chromium; elsewhere: python -m playwright install chromium), "
    "or name one with CHROMIUM=/path/to/it"
)


def launch(playwright: Playwright, flags: Sequence[str] = ("--allow-file-access-from-files",)) -> Browser:
    """Chromium without its windows, which draws the same pages in less time. `SystemExit` says what to install."""
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if path is None and not Path(playwright.chromium.executable_path).exists():
        raise SystemExit(NO_BROWSER)
    as_root = hasattr(os, "geteuid") and os.geteuid() == 0
    every = ["--disable-gpu", *flags, *(["--no-sandbox"] if as_root else [])]
    return playwright.chromium.launch(executable_path=path, args=every)


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    """A static server that does not write into the terminal."""

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def serving(folder: Path, handler: type[QuietHandler] = QuietHandler) -> Iterator[str]:
    """The address of a server for `folder`. It asks often whether it shall end: each test waits for that."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(handler, directory=folder))
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
