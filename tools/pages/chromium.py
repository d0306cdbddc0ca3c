"""Chromium for the tools that draw: found as the tests find it, in CHROMIUM or on the path."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from playwright.sync_api import Browser, Playwright

NO_BROWSER = "no Chromium: install it (Debian: apt-get install chromium), or name one with CHROMIUM=/path/to/it"


def launch(playwright: Playwright) -> Browser:
    """Chromium without windows; `SystemExit` says what to install."""
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if path is None and not Path(playwright.chromium.executable_path).exists():
        raise SystemExit(NO_BROWSER)
    as_root = hasattr(os, "geteuid") and os.geteuid() == 0
    flags = ["--disable-gpu", "--allow-file-access-from-files", *(["--no-sandbox"] if as_root else [])]
    return playwright.chromium.launch(executable_path=path, args=flags)
