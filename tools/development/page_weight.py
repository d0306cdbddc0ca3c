"""What the built pages weigh for a reader, in a real browser: bytes, requests, hosts, tab stops.

A page comes from a server that packs as public ones do (gzip), into an empty cache, in a window that does not scroll:
its first view. tests/book/test_light.py says how much a page may weigh.
"""

from __future__ import annotations

import functools
import gzip
import mimetypes
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from playwright.sync_api import Page

from tools import ROOT
from tools.pages import chromium

HTML = ROOT / "_build/html"
PACKED = ("text/", "application/javascript", "application/json", "image/svg+xml")
MOST_STOPS = 400
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
    session.detach()
    return found


def tab_stops(page: Page) -> int:
    """How many keys lead from the top of a page that was just opened into an instrument. Enter is pressed on the skip
    link that names the instrument, or else on the first, and counted."""
    pressed, skipped = 0, False
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
