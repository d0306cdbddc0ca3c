"""Where the built pages lie, and the servers that the browser tests read them from."""

from __future__ import annotations

import contextlib
import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

from tools.notebooks import notebooks

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
