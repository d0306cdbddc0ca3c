"""What the built pages weigh for a reader, in a real browser: bytes, requests, hosts, seconds, tab stops.

    python -m tools.development.page_weight [--html _build/html] [--times 3] [PAGE ...]

Without pages, a sample of all kinds. A page comes from a server that packs as public ones do (gzip), into an empty
cache, in a window of 1280 by 800 that does not scroll: its first view. The last columns: how
often one presses Tab from the top until an instrument has the focus, with the skip links and without. What axe finds on
each page is asked by tests/book/test_pages.py. Seconds say something on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import functools
import gzip
import mimetypes
import os
import statistics
import sys
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from playwright.sync_api import Browser, Page, sync_playwright

from tools import ROOT
from tools.pages import chromium

HTML = ROOT / "_build/html"
SAMPLE = (
    "chapters/index",
    "chapters/03_why_more_than_one_head",
    "chapters/05_mathematics",
    "chapters/06_per_head_heatmaps",
    "chapters/16_what_heads_look_at",
    "chapters/31_four_frameworks",
    "chapters/instruments",
    "chapters/notation",
    "chapters/bibliography",
    "chapters/api",
    "search.html?q=softmax",
)
PACKED = ("text/", "application/javascript", "application/json", "image/svg+xml")
MOST_STOPS = 400
PATIENCE = 180_000  # milliseconds: on a busy machine
QUIET = 6  # tenths of a second without a request
INSTRUMENT = ".mhalib-instrument"
FOCUS = f"""() => {{
    const here = document.activeElement;
    return {{
        none: !here || here === document.body,
        inside: !!here?.closest("{INSTRUMENT}"),
        skips: !!here?.closest(".skip-link") && here.hash.length > 1,
        name: here?.textContent.trim(),
    }};
}}"""


class PackingHandler(chromium.QuietHandler):
    """A static server that sends text packed, as GitHub Pages does."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:  # noqa: N802
        path = Path(self.directory) / unquote(urlsplit(self.path).path).lstrip("/")
        if path.is_dir():
            path /= "index.html"
        if not path.is_file():
            self.send_error(404)
            return
        kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        body = path.read_bytes()
        packed = kind.startswith(PACKED) or path.suffix == ".js"
        if packed:
            body = packed_bytes(path, path.stat().st_mtime_ns)
        self.send_response(200)
        self.send_header("Content-Type", f"{kind}; charset=utf-8" if packed else kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "max-age=600")
        if packed:
            self.send_header("Content-Encoding", "gzip")
            self.send_header("Vary", "Accept-Encoding")
        self.end_headers()
        self.wfile.write(body)


@functools.lru_cache(maxsize=256)
def packed_bytes(path: Path, changed: int) -> bytes:
    return gzip.compress(path.read_bytes(), compresslevel=6, mtime=0)


@dataclass
class Load:
    """What the first view of a page took."""

    sizes: dict[str, int] = field(default_factory=dict)
    hosts: set[str] = field(default_factory=set)
    errors: list[str] = field(default_factory=list)
    loaded: float = 0.0
    """Seconds until DOMContentLoaded."""

    @property
    def transferred(self) -> int:
        """Bytes, with the headers."""
        return sum(self.sizes.values())


def load(page: Page, address: str) -> Load:
    """Open a page that has been nowhere yet, until it asks for nothing more."""
    found = Load()
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    names: dict[str, str] = {}
    waiting: set[str] = set()

    def asked(event: dict) -> None:
        url = event["request"]["url"]
        if not url.startswith(("data:", "blob:")):
            names[event["requestId"]] = url
            waiting.add(event["requestId"])
            found.hosts.add(urlsplit(url).netloc)
            found.sizes.setdefault(url, 0)

    def came(event: dict) -> None:
        waiting.discard(event["requestId"])
        if event["requestId"] in names:
            found.sizes[names[event["requestId"]]] += int(event["encodedDataLength"])

    session.on("Network.requestWillBeSent", asked)
    session.on("Network.loadingFinished", came)
    session.on("Network.loadingFailed", lambda event: waiting.discard(event["requestId"]))
    page.on("console", lambda message: found.errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: found.errors.append(str(error)))
    page.goto(address)
    quiet, patience = 0, 200
    while quiet < QUIET and patience:  # Playwright's own "networkidle" waits in vain on a busy machine
        page.wait_for_timeout(100)
        quiet, patience = (0 if waiting else quiet + 1), patience - 1
    found.loaded = page.evaluate("performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd") / 1000
    session.detach()
    return found


def tab_stops(page: Page, skipping: bool) -> int | None:
    """How many keys lead from the top of a page that was just opened into an instrument; `None`: it has none.

    With `skipping`, Enter is pressed on the skip link that names the instrument, or else on the first, and counted.
    """
    if page.locator(INSTRUMENT).count() == 0:
        return None
    pressed, skipped = 0, not skipping
    links = [one.strip() for one in page.locator(".skip-link a").all_text_contents()]
    wanted = next((one for one in links if "instrument" in one.lower()), links[0] if links else "")
    while pressed < MOST_STOPS:
        page.keyboard.press("Tab")
        pressed += 1
        focus = page.evaluate(FOCUS)
        if focus["inside"]:
            return pressed
        if not skipped and focus["skips"] and focus["name"] == wanted:
            page.keyboard.press("Enter")
            pressed, skipped = pressed + 1, True
            if page.evaluate(FOCUS)["inside"]:
                return pressed
    return MOST_STOPS


def address_of(site: str, page: str) -> str:
    return f"{site}{page}" if ".html" in page else f"{site}{page}.html"


def measured(browser: Browser, site: str, name: str, times: int) -> str:
    """A page's line of the table."""
    loads = []
    for _ in range(times):
        context = browser.new_context(viewport={"width": 1280, "height": 800})
        context.set_default_timeout(PATIENCE)
        loads.append(load(context.new_page(), address_of(site, name)))
        context.close()
    first = loads[0]
    stops = []
    for skipping in (True, False):
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.set_default_timeout(PATIENCE)
        page.goto(address_of(site, name))
        page.wait_for_load_state("networkidle")
        stops.append(tab_stops(page, skipping))
        page.close()
    seconds = statistics.median(one.loaded for one in loads)
    weight = f"{first.transferred / 1000:7.0f} kB {len(first.sizes):4} {len(first.hosts):3}"
    shown = ["-" if one is None else str(one) for one in stops]
    return (
        f"{name.removeprefix('chapters/'):34} {weight} "
        f"{seconds:6.2f} s {shown[0]:>5} {shown[1]:>5}   {'; '.join(first.errors)[:200]}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", default=SAMPLE, help="as chapters/05_mathematics")
    parser.add_argument("--html", type=Path, default=HTML, help="the folder of the built pages")
    parser.add_argument("--times", type=int, default=3, help="how often each page is loaded; seconds are the median")
    asked = parser.parse_args()
    if not (asked.html / "index.html").exists():
        sys.exit(f"{asked.html} has no built book: run  make book  first")
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(f"{'page':34} {'bytes':>10} {'req':>4} {'hosts':>3} {'DOM':>6} {'skip':>5} {'tabs':>5}   errors")
    with chromium.serving(asked.html, PackingHandler) as site, sync_playwright() as playwright:
        browser = chromium.launch(playwright)
        for name in asked.pages:
            print(measured(browser, site, name, asked.times), flush=True)
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
