"""Sphinx extension: finishes the pages when all are written, so that they are light, closed and work from a disk.

The theme's pages load a dozen styles, a dozen scripts and an icon library, and run scripts that no policy could name.
Here each page gets one style, one deferred script, the icons that the book shows, a Content-Security-Policy that knows
its scripts by their hashes, a second skip link, pictures that come when they are near, and a word for readers without
JavaScript. The search page reads the words around a result from scripts, which a page on a disk may load.

The theme's pages are read by their known words. Where one of these is missing, the build stops and names it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import catalogues
import icons
from sphinx.application import Sphinx

TOOLS = Path(__file__).parent
INSTRUMENT = '<div class="mhalib-instrument"'
INSTRUMENTS = "_static/instruments.js"
POLICY = '<meta http-equiv="Content-Security-Policy" content="'
SKIP = re.compile(r'<a href="#main-content">[^<]+</a>')  # in the page's language
TO_INSTRUMENT = "Skip to the instrument"
WITHOUT_SCRIPT = (
    "Without JavaScript this page lacks its instruments, in whose place their numbers stand as tables, the search, "
    "the switch between light and dark, and the buttons that copy code."
)
PHRASES = (TO_INSTRUMENT, WITHOUT_SCRIPT)  # locale/*/LC_MESSAGES/book.po has them
SEARCH_FETCHES = re.compile(r"fetch\(requestUrl\)\s*\.then\(\(responseData\) => responseData\.text\(\)\)")
STYLE = re.compile(r'<link\b(?=[^>]*\brel="stylesheet")[^>]*?\bhref="([^"?]+)[^>]*>')
THEME = re.compile(r'<script data-cfasync="false">.*?</script>', re.DOTALL)
CHOOSE = """
    (({ dataset }) => {
      dataset.mode = localStorage.getItem("mode") || "auto";
      const isDark = dataset.mode === "auto" ? matchMedia("(prefers-color-scheme: dark)").matches
        : dataset.mode === "dark";
      dataset.theme = isDark ? "dark" : "light";
    })(document.documentElement);
  """
ARTICLE = re.compile(r"<article\b[^>]*>")
SCRIPT = re.compile(r"[ \t]*<script(?P<attributes>[^>]*)>(?P<text>.*?)</script>\n?", re.DOTALL)
SOURCE = re.compile(r'\bsrc="(?P<path>[^"?#]+)[^"]*"')
IMAGE = re.compile(r"<img\b[^>]*>")
IMPORT = re.compile(r"""@import ["']([^"']+)["'];""")
ADDRESS = re.compile(r"""url\((['"]?)(?!data:|#)([^'")]+)\1\)""")


def finished(text: str, folder: Path, path: str, say: Callable[[str], str] = str) -> str:
    """A page as readers get it. `folder` holds the built book, `path` is the page's place in it, `say` translates.

    Raises:
        ValueError: the theme's page does not hold what this module changes.
    """
    root = "../" * path.count("/")
    text = early_theme(icons.drawn(without_early_loading(text), folder), path)
    text = one_style(text, folder, root)
    text = one_script(text, folder, root, path)
    text = re.sub(r'\bonclick="([^"]*)"', r'data-click="\1"', text)
    text = lazy_images(text, folder, path)
    text = with_skip_link(text, path, say)
    missing = f'<noscript><p class="without-script d-print-none">{say(WITHOUT_SCRIPT)}</p></noscript>'
    text = ARTICLE.sub(lambda found: f"{found[0]}\n{missing}", text, count=1)
    return replaced(text, '<meta charset="utf-8" />', f'<meta charset="utf-8" />\n    {policy(text)}', path)


def replaced(text: str, old: str, new: str, path: str) -> str:
    """The text with the first place of some words changed."""
    if old not in text:
        raise ValueError(f"{path}: the theme's page has no {old!r} any more: mend tools/finish.py")
    return text.replace(old, new, 1)


def without_early_loading(text: str) -> str:
    """The page without what asks for fonts and scripts that are not loaded any more."""
    return re.sub(r'[ \t]*<link rel="preload"[^>]*>\n?', "", text)


def early_theme(text: str, path: str) -> str:
    """The page with its colours from the first moment on, and light ones without scripts."""
    text, count = THEME.subn(f'<script data-cfasync="false">{CHOOSE}</script>', text, count=1)
    if not count:
        raise ValueError(f"{path}: the theme chooses light or dark in another way than tools/finish.py knows: mend it")
    return text.replace('data-theme="auto"', 'data-theme="light"', 1)


def one_style(text: str, folder: Path, root: str) -> str:
    """The page with one style in place of all; the icons' is made for the signs that the book shows."""
    names = [found[1].removeprefix(root) for found in STYLE.finditer(text)]
    if not names:
        raise ValueError("a page has no styles: has the theme changed how it names them?")
    parts = [icons.style(folder) if "fontawesome" in name else moved(folder, name) for name in names]
    link = f'<link rel="stylesheet" href="{root}{joined(folder, "pages", ".css", parts)}" />'
    first = STYLE.search(text)
    assert first is not None
    text = f"{text[: first.start()]}\0{text[first.start() :]}"
    return STYLE.sub("", text).replace("\0", link)


def moved(folder: Path, name: str) -> str:
    """A style as it reads in the folder _static: its addresses go on from there, what it imports is in it."""
    place = (folder / name).parent

    def imported(found: re.Match[str]) -> str:
        return moved(folder, Path(os.path.relpath(place / found[1], folder)).as_posix())

    def address(found: re.Match[str]) -> str:
        target = (place / found[2]).resolve()
        return f'url("{Path(os.path.relpath(target, (folder / "_static").resolve())).as_posix()}")'

    text = (folder / name).read_text(encoding="utf-8").removeprefix('@charset "UTF-8";').removeprefix("\ufeff")
    return IMPORT.sub(imported, ADDRESS.sub(address, text))


def one_script(text: str, folder: Path, root: str, path: str) -> str:
    """The page with one script that waits for the page, in place of all but the one that chooses light or dark."""
    head, body = text.split("</head>", 1)
    parts: list[str] = []
    search: list[str] = []  # a script of its own: the others ask whether there is one
    own: list[str] = []

    def taken(found: re.Match[str]) -> str:
        source = SOURCE.search(found["attributes"])
        if source is None:
            if "data-cfasync" in found["attributes"]:
                return found[0]  # chooses light or dark before anything is drawn
            if "DOCUMENTATION_OPTIONS.pagename" not in found["text"]:
                parts.append(found["text"])
            return ""
        name = source["path"].removeprefix(root)
        if "fontawesome" in name:
            return ""
        if name == INSTRUMENTS or not name.startswith("_static/"):
            own.append(name)
        else:
            of_search = name.endswith(("/searchtools.js", "/language_data.js"))
            part = script_part((folder / name).read_text(encoding="utf-8"), name)
            (search if of_search else parts).append(part)
        return ""

    head = SCRIPT.sub(taken, head)
    body = re.sub(r"<script src=[^>]*></script>\n?", lambda found: SCRIPT.sub(taken, found[0]), body)
    parts.append("DOCUMENTATION_OPTIONS.pagename = document.documentElement.dataset.page;")
    parts.append((TOOLS / "page_script.js").read_text(encoding="utf-8"))
    names = [joined(folder, "pages", ".js", parts)]
    names += [joined(folder, "search", ".js", search)] if search else []
    names += [name for name in own if name != INSTRUMENTS or INSTRUMENT in text]
    links = "".join(f'    <script defer src="{root}{name}"></script>\n' for name in names)
    head = replaced(head, "<html ", f'<html data-page="{path.removesuffix(".html")}" ', path)
    return f"{head}{links}  </head>{body}"


def script_part(text: str, name: str) -> str:
    """A script as it stands among others; the search reads texts from scripts in place of pages."""
    text = re.sub(r"^//# sourceMappingURL=.*$", "", text, flags=re.MULTILINE)
    if name.endswith("/searchtools.js"):
        text, count = SEARCH_FETCHES.subn("Search.textOf(docName)", text)
        if count != 1:
            raise ValueError("searchtools.js fetches pages in another way than tools/finish.py knows: mend it")
        text += (TOOLS / "search_script.js").read_text(encoding="utf-8")
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
            size = f' width="{width}" height="{height}"'
        return found[0].replace("<img", f'<img loading="lazy" decoding="async"{size}', 1)

    return IMAGE.sub(later, text)


def size_of(picture: Path) -> tuple[int, int]:
    """Width and height of a PNG, as its header says, or of an SVG, which says it in points, in pixels of the page."""
    with picture.open("rb") as file:
        header = file.read(1000)
    if picture.suffix == ".svg":
        sizes = dict(re.findall(rb'\b(width|height)="([\d.]+)pt"', header))
        return round(float(sizes[b"width"]) * 4 / 3), round(float(sizes[b"height"]) * 4 / 3)
    return int.from_bytes(header[16:20], "big"), int.from_bytes(header[20:24], "big")


def with_skip_link(text: str, path: str, say: Callable[[str], str]) -> str:
    """The page with a second skip link, to its first instrument."""
    if INSTRUMENT not in text:
        return text
    link = f'<a href="#instrument">{say(TO_INSTRUMENT)}</a>'
    text, count = SKIP.subn(lambda found: f"{found[0]} {link}", text, count=1)
    if not count:
        raise ValueError(f"{path}: the theme's page has no link to its main part any more: mend tools/finish.py")
    return text.replace(INSTRUMENT, '<div id="instrument" tabindex="-1" class="mhalib-instrument"', 1)


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
    main = re.search(r"<article\b[^>]*>(.*)</article>", text, re.DOTALL)
    if main is None:
        return ""
    words = re.sub(r"<(script|style|noscript)\b.*?</\1>", "", main[1], flags=re.DOTALL)
    words = re.sub(r'<a class="headerlink".*?</a>', "", words, flags=re.DOTALL)
    words = re.sub(r"<(?!/?section\b)[^>]*>", " ", words)
    words = re.sub(r'<section\b[^>]*?\bid="([^"]*)"[^>]*>', r'<section id="\1">', words)
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
    icons.style.cache_clear()
    icons.shape.cache_clear()
    say = catalogues.phrases(app.config.language)
    for file in sorted(folder.rglob("*.html")):
        path = file.relative_to(folder).as_posix()
        text = file.read_text(encoding="utf-8")
        if path.startswith("_") or POLICY in text or "data-content_root=" not in text:
            continue
        write_text(folder, path, text)
        file.write_text(finished(text, folder, path, say), encoding="utf-8")
    drop_what_no_page_asks_for(folder)


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
    app.connect("build-finished", finish_pages, priority=900)  # after what other extensions copy and write
    return {"parallel_read_safe": True, "parallel_write_safe": True}
