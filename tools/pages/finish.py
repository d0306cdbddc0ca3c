"""Sphinx extension: finishes the pages when all are written, so that they are light, closed and work from a disk.

The theme's pages load a dozen styles and a dozen scripts, and run scripts that no policy could name. Here each page
gets one style, one deferred script, the icons that the book shows, a Content-Security-Policy that knows its scripts by
their hashes, and pictures that come when they are near. The search page reads the words around a result from scripts,
which a page on a disk may load. What a page has besides the theme's is in `templates/layout.html`.

The theme's pages are read by the words of `theme_words.py`. Where one is missing, the build stops and names it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from mhalib.widgets._instrument import joinable
from tools.pages import catalogues, icons, page_head, theme_words
from tools.pages.theme_words import ThemeError, replaced

TOOLS = Path(__file__).parent
HIGHEST = 420  # points of a screen, for the picture of a head; lower, letters of chapter 17 are under 9
INSTRUMENT_CLASS = 'class="mhalib-instrument"'
INSTRUMENT = f"<div {INSTRUMENT_CLASS}"
INSTRUMENTS = "_static/instruments.js"
OWN_STYLES = ("_static/book.css", "_static/instruments.css")
"""The book's own, whose comments are for who writes them."""
DRAGGED = 'class="drag"'  # a number in a sentence, which the same script wakes
PAGE_SCRIPTS = ("page_script.js", "predict_script.js", "steps_script.js", "ways_script.js", "symbols_script.js")
SEPARATE = (INSTRUMENTS, "_static/live.js")  # not joined with what all pages load
POLICY = '<meta http-equiv="Content-Security-Policy" content="'
TO_INSTRUMENT = "Skip to the instrument"
WITHOUT_SCRIPT = (
    "Without JavaScript this page lacks its instruments, in whose place their numbers stand as tables, the search, "
    "the switch between light and dark, and the buttons that copy code."
)
PHRASES = (TO_INSTRUMENT, WITHOUT_SCRIPT)  # locale/*/LC_MESSAGES/book.po has them
INDENT = re.compile(r"\n\s+")
ICONS = "_static/icons.css"  # templates/layout.html asks for it
STYLE = re.compile(r'<link\b(?=[^>]*\brel="stylesheet")[^>]*?\bhref="([^"?]+)[^>]*>')
SCRIPT = re.compile(r"[ \t]*<script(?P<attributes>[^>]*)>(?P<text>.*?)</script>\n?", re.DOTALL)
SOURCE = re.compile(r'\bsrc="(?P<path>[^"?#]+)[^"]*"')
IMAGE = re.compile(r"<img\b[^>]*>")
COMMENT = re.compile(r"/\*(?!!)(?:(?!\*/|copyright|licen[cs]e).)*\*/\n?", re.DOTALL | re.IGNORECASE)  # but notices
IMPORT = re.compile(r"""@import ["']([^"']+)["'];""")
TABLE = re.compile(r'<table\b[^>]*\bclass="table".*?</table>', re.DOTALL)
NAME = re.compile(r'(?<=<span class="pre">)[^<]+')
JOINT = re.compile(
    r"(?<=[a-z]{2})(?=[A-Z])|(?<=[A-Za-z]{2}_)(?=[A-Za-z])|(?<=[A-Za-z][.(])(?=[A-Za-z])|(?<=[a-z][=/,])(?=[\w&])"
)
"""Where a name in a table may break: before a capital letter, behind an underscore, a dot, a bracket, a slash."""
ADDRESS = re.compile(r"""url\((['"]?)(?!data:|#)([^'")]+)\1\)""")


def fill_template(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object) -> None:
    """Tell templates/layout.html what it says in the page's language, and mark where its skip link leads."""
    say = catalogues.phrases(app.config.language)
    context["without_script"] = say(WITHOUT_SCRIPT)
    if INSTRUMENT in context.get("body", ""):
        context["to_instrument"] = say(TO_INSTRUMENT)
        marked = INSTRUMENT.replace("<div", '<div id="instrument" tabindex="-1"')
        context["body"] = context["body"].replace(INSTRUMENT, marked, 1)


def finished(text: str, folder: Path, path: str) -> str:
    """A page as readers get it. `folder` holds the built book, `path` is the page's place in it.

    Raises:
        ThemeError: the theme's page does not hold what this module changes.
    """
    root = "../" * path.count("/")
    text = one_style(icons.drawn(text, folder, path), folder, root, path)
    text = one_script(text, folder, root, path)
    text = listened_to(text, path)
    text = lazy_images(breakable(text), folder, path)
    return replaced(text, theme_words.CHARSET, f"{theme_words.CHARSET}\n    {policy(text)}", path)


def listened_to(text: str, path: str) -> str:
    """The page with buttons that page_script.js listens to, in place of scripts in attributes."""
    if unknown := set(theme_words.ON_CLICK.findall(text)) - theme_words.CLICKS:
        raise ThemeError(f"{path}: a button does {min(unknown)!r}: mend tools/pages/theme_words.py and page_script.js")
    return theme_words.ON_CLICK.sub(r'data-click="\1"', text)


def one_style(text: str, folder: Path, root: str, path: str) -> str:
    """The page with one style in place of all."""
    names = [found[1].removeprefix(root) for found in STYLE.finditer(text)]
    if ICONS not in names or len(names) < 2:
        raise ThemeError(f"{path}: its styles are {names}: mend tools/pages/templates/layout.html")
    link = joined(folder, "pages", ".css", (without_unused(moved(folder, name)) for name in names))
    text = STYLE.sub("\0", text, count=1)
    return STYLE.sub("", text).replace("\0", f'<link rel="stylesheet" href="{root}{link}" />')


def without_unused(style: str) -> str:
    """A style without the rules that no page needs."""
    return theme_words.TERMINAL.sub("", theme_words.ICON_NAMES.sub("", style))


def moved(folder: Path, name: str) -> str:
    """A style as it reads in the folder _static: its addresses go on from there, what it imports is in it."""
    place = (folder / name).parent

    def imported(found: re.Match[str]) -> str:
        return moved(folder, Path(os.path.relpath(place / found[1], folder)).as_posix())

    def address(found: re.Match[str]) -> str:
        target = (place / found[2]).resolve()
        return f'url("{Path(os.path.relpath(target, (folder / "_static").resolve())).as_posix()}")'

    text = (folder / name).read_text(encoding="utf-8").removeprefix('@charset "UTF-8";').removeprefix("\ufeff")
    text = INDENT.sub("\n", COMMENT.sub("", text))
    return IMPORT.sub(imported, ADDRESS.sub(address, text))


@cache
def own_scripts() -> tuple[str, ...]:
    """The scripts of all pages as they are loaded, read once for a build."""
    return tuple(joinable(TOOLS / name) for name in PAGE_SCRIPTS)


def one_script(text: str, folder: Path, root: str, path: str) -> str:
    """The page with one script that waits for the page, in place of all but the one that chooses light or dark."""
    head, body = text.split("</head>", 1)
    parts: list[str] = []
    search: list[tuple[bool, str]] = []  # a script of its own: the others ask whether there is one
    own: list[str] = []

    def taken(found: re.Match[str]) -> str:
        source = SOURCE.search(found["attributes"])
        if source is None:
            if theme_words.STAYS_INLINE in found["attributes"]:
                return found[0]
            if theme_words.OWN_NAME not in found["text"]:
                parts.append(found["text"])
            return ""
        name = source["path"].removeprefix(root)
        if name in SEPARATE or not name.startswith("_static/"):
            own.append(name)
            return ""
        part = script_part((folder / name).read_text(encoding="utf-8"), name)
        if name.endswith((theme_words.SEARCH, theme_words.LANGUAGE)):
            search.append((name.endswith(theme_words.SEARCH), part))  # behind the language's, which is not "use strict"
        else:
            parts.append(part)
        return ""

    head = SCRIPT.sub(taken, head)
    parts.append(f"{theme_words.OWN_NAME} = document.documentElement.dataset.page;")
    parts += own_scripts()
    names = [joined(folder, "pages", ".js", parts)]
    names += [joined(folder, "search", ".js", (part for _, part in sorted(search)))] if search else []
    names += [name for name in own if name != INSTRUMENTS or INSTRUMENT_CLASS in text or DRAGGED in text]
    links = "".join(f'    <script defer src="{root}{name}"></script>\n' for name in names)
    page = f'{theme_words.HTML}data-page="{path.removesuffix(".html")}" '
    return f"{replaced(head, theme_words.HTML, page, path)}{links}  </head>{body}"


def script_part(text: str, name: str) -> str:
    """A script as it stands among others; the search reads texts from scripts in place of pages.

    A page in another language has Sphinx's words in a script that evaluates a string, which the policy forbids: it gets
    a function.
    """
    text = re.sub(r"^//# sourceMappingURL=.*$", "", text, flags=re.MULTILINE)
    if name.endswith(theme_words.SEARCH):
        text, count = theme_words.FETCHES.subn("Search.textOf(docName)", text)
        if count != 1:
            raise ThemeError(f"{name}: fetches pages in another way than tools/pages/theme_words.py knows: mend it")
        text += (TOOLS / "search_script.js").read_text(encoding="utf-8")
    if name.endswith(theme_words.DOCTOOLS):
        text, count = theme_words.EVALUATED.subn("catalog.plural_expr", text)
        if count != 1:
            raise ThemeError(f"{name}: takes plurals in another way than tools/pages/theme_words.py knows: mend it")
    if name.endswith(theme_words.TRANSLATIONS):
        text = theme_words.PLURAL.sub(r'"plural_expr": (n) => Number(\1)', text)
    return text


def joined(folder: Path, name: str, suffix: str, parts: Iterable[str]) -> str:
    """Write the parts as one file, if it is not there; its name tells what it holds."""
    between = ";\n" if suffix == ".js" else "\n"
    text = between.join(parts)
    path = f"_static/{name}-{hashlib.sha256(text.encode()).hexdigest()[:10]}{suffix}"
    if not (folder / path).exists():
        (folder / path).write_text(text, encoding="utf-8")
    return path


def lazy_images(text: str, folder: Path, path: str) -> str:
    """The page with pictures that are loaded when they are near, and whose place is kept until then."""

    def later(found: re.Match[str]) -> str:
        source = SOURCE.search(found[0])
        if source is None or "loading=" in found[0] or not source["path"].endswith((".png", "-light.svg", "-dark.svg")):
            return found[0]
        size = ""
        if not re.search(r"\b(?:width|height|style)=", found[0]):
            width, height = size_of((folder / path).parent / source["path"])
            if page_head.IN_SMALL in found[0] and height > HIGHEST:
                small = width * HIGHEST // height
                width, height = small, round(small * height / width)
            size = f' width="{width}" height="{height}"'
        return found[0].replace("<img", f'<img loading="lazy" decoding="async"{size}', 1)

    return IMAGE.sub(later, text)


def breakable(text: str) -> str:
    """The page with names in tables that break where a reader would break them, and not within a word."""
    return TABLE.sub(lambda table: NAME.sub(lambda name: JOINT.sub("<wbr>", name[0]), table[0]), text)


def size_of(picture: Path) -> tuple[int, int]:
    """Width and height of a PNG, as its header says, or of an SVG, which says it in points, in pixels of the page."""
    with picture.open("rb") as file:
        header = file.read(1000)
    if picture.suffix == ".svg":
        sizes = dict(re.findall(rb'\b(width|height)="([\d.]+)pt"', header))
        return round(float(sizes[b"width"]) * 4 / 3), round(float(sizes[b"height"]) * 4 / 3)
    return int.from_bytes(header[16:20], "big"), int.from_bytes(header[20:24], "big")


def policy(text: str) -> str:
    """What the page may load and run: its own files, and the scripts in it, by their hashes.

    Styles are free, for pictures and tables carry some. `file:` is for browsers that do not take a page on a disk and
    the files beside it for one place; from the network no page can load such an address.
    """
    hashes = sorted(
        {
            f"'sha256-{base64.b64encode(hashlib.sha256(found['text'].encode()).digest()).decode()}'"
            for found in SCRIPT.finditer(text)
            if not SOURCE.search(found["attributes"]) and "application/json" not in found["attributes"]
        }
    )
    rules = {
        "default-src": "'none'",
        "script-src": " ".join(["'self'", "file:", *hashes]),
        "style-src": "'self' file: 'unsafe-inline'",
        "img-src": "'self' file: data:",
        "font-src": "'self' file: data:",
        "connect-src": "'self'",
        "form-action": "'self' file:",
        "base-uri": "'none'",
    }
    said = "; ".join(f"{name} {value}" for name, value in rules.items())
    return f'{POLICY}{said}" />'


def searched(text: str) -> str:
    """What the search shows of a page: the words of its main part, in the sections that results may name."""
    main = theme_words.ARTICLE.search(text)
    if main is None:
        return ""
    words = re.sub(r"<(script|style|noscript)\b.*?</\1>", "", main[1], flags=re.DOTALL)
    words = theme_words.LINK_TO_HEADING.sub("", words)
    words = re.sub(r"<(?!/?section\b)[^>]*>", " ", words)
    words = theme_words.SECTION.sub(r'<section id="\1">', words)
    words = re.sub(r"\s+", " ", words)
    return f'<div role="main">{words}</div>'


def write_text(folder: Path, path: str, text: str) -> None:
    """Write what the search shows of a page, as a script."""
    name = path.removesuffix(".html")
    target = folder / f"_static/texts/{name}.js"
    target.parent.mkdir(parents=True, exist_ok=True)
    said = json.dumps(searched(text), ensure_ascii=False)
    target.write_text(f"Search.texts[{json.dumps(name)}] = {said};\n", encoding="utf-8")


def finish_pages(app: Sphinx, exception: Exception | None) -> None:
    """Finish all pages that were written anew: those of a build before have their policy."""
    if exception is not None or app.builder.name != "html":
        return
    folder = Path(app.outdir)
    icons.shape.cache_clear()
    (folder / ICONS).write_text(icons.style(folder), encoding="utf-8")
    for file in sorted(folder.rglob("*.html")):
        path = file.relative_to(folder).as_posix()
        text = file.read_text(encoding="utf-8")
        if path.startswith("_") or POLICY in text or theme_words.OF_SPHINX not in text:
            continue
        write_text(folder, path, text)
        file.write_text(finished(text, folder, path), encoding="utf-8")
    drop_what_no_page_asks_for(folder)
    check_colours(folder)


def check_colours(folder: Path) -> None:
    """See that the colours which the book's styles take from the theme are still there."""
    theme = "".join(file.read_text(encoding="utf-8") for file in folder.glob("_static/styles/*.css"))
    for name in (name for name in OWN_STYLES if (folder / name).exists()):
        theme_words.check_colours(theme, (folder / name).read_text(encoding="utf-8"), name)


def drop_what_no_page_asks_for(folder: Path) -> None:
    """Remove the joined files of earlier builds."""
    asked = "".join(file.read_text(encoding="utf-8") for file in folder.rglob("*.html"))
    for file in (*folder.glob("_static/pages-*"), *folder.glob("_static/search-*")):
        if file.name not in asked:
            file.unlink()


def write_start(folder: Path, start: str) -> None:
    """The book's own address, which leads to its first page."""
    text = (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8" />{policy("")}<title>To the book</title>'
        f'<meta http-equiv="refresh" content="0; url={start}" /><link rel="canonical" href="{start}" /></head>'
        f'<body><p><a href="{start}">To the book</a></p></body></html>\n'
    )
    (folder / "index.html").write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("html-page-context", fill_template, priority=900)  # when others have changed the body
    app.connect("build-finished", finish_pages, priority=900)  # after what other extensions copy and write
    return {"parallel_read_safe": True, "parallel_write_safe": True}
