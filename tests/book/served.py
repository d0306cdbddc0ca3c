"""Where the built pages lie, and the servers that the browser tests read them from."""

from __future__ import annotations

import http.server

import notebooks

HTML = notebooks.ROOT / "_build/html"


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    """A static server that does not write into the tests' output."""

    def log_message(self, *_: object) -> None:
        pass


class StrictHandler(QuietHandler):
    """A static server whose pages may run no inline script and no eval."""

    def end_headers(self) -> None:
        self.send_header(
            "Content-Security-Policy", "default-src 'self'; script-src 'self'; style-src 'self' 'unsafe-inline'"
        )
        super().end_headers()
