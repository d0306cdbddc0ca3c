"""Where the built pages lie, and a server that is strict with them."""

from __future__ import annotations

from tools.notebooks import notebooks
from tools.pages.chromium import QuietHandler

HTML = notebooks.ROOT / "_build/html"


class StrictHandler(QuietHandler):
    """A static server whose pages may run no inline script and no eval."""

    def end_headers(self) -> None:
        self.send_header(
            "Content-Security-Policy", "default-src 'self'; script-src 'self'; style-src 'self' 'unsafe-inline'"
        )
        super().end_headers()
