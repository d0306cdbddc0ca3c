"""One HTML file that holds its style and its script, under a policy that lets a browser run no other.

Slides, quizzes and the files of instruments are such pages. What they show from the book, pictures, the font of
formulas, instruments in frames, they take from the folders beside them: nothing comes from a network.
"""

from __future__ import annotations

import base64
import hashlib
import html
from pathlib import Path

HERE = Path(__file__).parent
FONT = (
    '@font-face { font-family: "STIX Two Math"; src: url("../../_static/stix-two-math.woff2"); font-display: swap }\n'
)


def closed_page(title: str, body: str, name: str, *, scripts: str = "") -> str:
    """The page: `body` under the style NAME.css and the script NAME.js of this folder.

    Args:
        title: of the page, as text.
        body: HTML, trusted: it comes from the book.
        name: of the two files.
        scripts: HTML of scripts from the book's folder `_static`, which may run, too.
    """
    style, script = (FONT + (HERE / f"{name}.css").read_text("utf-8")), (HERE / f"{name}.js").read_text("utf-8")
    known = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    own = "'self' file:"
    policy = (
        f"default-src 'none'; script-src 'sha256-{known}'{f' {own}' if scripts else ''}; "
        f"style-src {own} 'unsafe-inline'; img-src {own} data:; font-src {own}; frame-src {own}; base-uri 'none'"
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<meta name="robots" content="noindex">\n'
        f"<title>{html.escape(title)}</title>\n<style>{style}</style>\n{scripts}</head>\n<body>\n{body}\n"
        f"<script>{script}</script>\n</body>\n</html>\n"
    )


def is_older(made: Path, *sources: Path) -> bool:
    """Whether a file is not there, or older than one of those that it is made from."""
    return not made.exists() or made.stat().st_mtime < max(one.stat().st_mtime for one in sources)
