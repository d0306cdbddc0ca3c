"""Pages at the addresses that chapters had before: each leads on to where the chapter is now.

chapters/moved.yml is the table; `make move` adds to it. Search and sitemap do not know these pages.
"""

from __future__ import annotations

import html
import shutil
from pathlib import Path
from urllib.parse import urljoin

from sphinx.application import Sphinx

from tools.notebooks.move_chapter import ADDRESSES, addresses
from tools.pages import book_map, finish

SCRIPT = "moved_script.js"
PAGE = """\
<!doctype html>
<html lang="en"><head><meta charset="utf-8" />{policy}<title>{title}</title>
<meta name="robots" content="noindex" /><link rel="canonical" href="{canonical}" />
<noscript><meta http-equiv="refresh" content="0; url={name}.html" /></noscript>
<script defer src="../_static/{script}"></script></head>
<body><p>This chapter has a new address: <a href="{name}.html">{title}</a></p></body></html>
"""


def write_pages(app: Sphinx, exception: Exception | None) -> None:
    """Write a page at each old address whose chapter is in the book that was built."""
    if exception is not None or app.builder.name != "html" or not (Path(app.srcdir) / ADDRESSES).exists():
        return
    folder = Path(app.outdir)
    titles = book_map.titles()
    shutil.copy2(Path(__file__).with_name(SCRIPT), folder / "_static")
    for old, now in addresses(Path(app.srcdir)).items():
        page = f"chapters/{now}.html"
        if f"chapters/{now}" in app.env.found_docs:
            canonical = urljoin(app.config.html_baseurl, page) if app.config.html_baseurl else f"{now}.html"
            title = html.escape(titles.get(now, now))
            said = {"policy": finish.policy(""), "canonical": canonical, "name": now, "title": title, "script": SCRIPT}
            (folder / f"chapters/{old}.html").write_text(PAGE.format(**said), encoding="utf-8")
