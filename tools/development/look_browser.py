"""How `make look` sees a built page: in a scheme, at a width, with every picture loaded."""

from __future__ import annotations

import base64
import contextlib
import io
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from PIL import Image
from playwright.sync_api import Browser, Page

from tools.development.look_pixels import Picture

HEIGHTS = {1280: 900, 768: 1024, 390: 844}
"""Of the windows, by their widths: a desktop, a tablet, a phone."""
AROUND = 120  # pixels above and below a picture, where nothing that sticks to the window covers it
PATIENCE = 180_000  # milliseconds: on a busy machine
LOADED = """async () => {
    for (const one of document.images) [one.loading, one.decoding] = ["eager", "sync"];
    await document.fonts.ready;
    const wait = (image) => new Promise((done) => { image.onload = image.onerror = done; });
    await Promise.all([...document.images].filter((one) => !one.complete).map(wait));
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    const moving = document.getAnimations().filter((one) => one instanceof CSSTransition);  // as the sidebar does
    await Promise.allSettled(moving.map((one) => one.finished));
}"""


@dataclass(frozen=True)
class Mode:
    """What a reader reads in: `light` or `dark`, at a width of the window."""

    scheme: str
    width: int

    def __str__(self) -> str:
        return f"{self.width} {self.scheme}"


DESKTOP, TABLET, PHONE, NIGHT = Mode("light", 1280), Mode("light", 768), Mode("light", 390), Mode("dark", 1280)
MODES = (DESKTOP, TABLET, PHONE, NIGHT)


@contextlib.contextmanager
def opened(browser: Browser, address: str, scheme: str) -> Iterator[Page]:
    """The page in this scheme, loaded once."""
    context = browser.new_context(color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    try:
        answer = page.goto(address)
        if answer is not None and answer.status >= 400:
            raise ValueError(f"{address}: the server answers {answer.status}: is the page built?")
        yield page
    finally:
        context.close()


def resize(page: Page, width: int) -> None:
    """Give the window this width, and wait until all is drawn."""
    page.set_viewport_size({"width": width, "height": HEIGHTS[width]})
    page.evaluate(LOADED)


def picture(page: Page, x: float, y: float, width: float, height: float, density: int = 1) -> Picture:
    """What this rectangle of the page shows, wherever it is, with so many pixels for each of CSS.

    The window may grow and scroll for it.

    Chromium paints what is out of sight late or not at all, and Playwright's own pictures of it take long.
    """
    window = page.viewport_size
    if window and window["height"] < height + 2 * AROUND:
        page.set_viewport_size({"width": window["width"], "height": math.ceil(height) + 2 * AROUND})
    page.evaluate("(top) => scrollTo({top, behavior: 'instant'})", y - AROUND)
    session = page.context.new_cdp_session(page)
    clip = {"x": max(x, 0), "y": max(y, 0), "width": max(width, 1), "height": max(height, 1), "scale": density}
    taken = session.send("Page.captureScreenshot", {"clip": clip, "optimizeForSpeed": True})
    session.detach()
    return np.array(Image.open(io.BytesIO(base64.b64decode(taken["data"]))).convert("RGB"))
