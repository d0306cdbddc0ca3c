"""The words of the theme, of Sphinx and of MyST-NB that the tools look for in pages, styles and scripts: all of them.

A word that is missing stops the build by `ThemeError`, which says where it was looked for. Then something is newer
than the book knows: mend the word here, and what is done with it where the error was raised.
"""

from __future__ import annotations

import re
from pathlib import Path

# Pages
CHARSET = '<meta charset="utf-8" />'
HTML = "<html "
OF_SPHINX = "data-content_root="  # on the pages that Sphinx made
STAYS_INLINE = "data-cfasync"  # the script that chooses light or dark
OWN_NAME = "DOCUMENTATION_OPTIONS.pagename"  # set by a script in each page
ON_CLICK = re.compile(r'\bonclick="([^"]*)"')
CLICKS = {"toggleFullScreen()", "window.print()"}  # tools/pages/page_script.js calls them
ARTICLE = re.compile(r"<article\b[^>]*>(.*)</article>", re.DOTALL)
LINK_TO_HEADING = re.compile(r'<a class="headerlink".*?</a>', re.DOTALL)
SECTION = re.compile(r'<section\b[^>]*?\bid="([^"]*)"[^>]*>')
TITLE = "<h1"  # with  lang="en"  where a page is not translated
ENTRY = 'role="doc-biblioentry"'
ENTRIES = 'class="citation-list"'
FOLD_NAME = '<summary aria-label="Toggle hidden content">'
FOLD = '<details class="admonition hide'
SIDEBAR = ["navbar-logo.html", "icon-links.html", "search-button-field.html", "sbt-sidebar-nav.html"]

# Scripts of the search
SEARCH, LANGUAGE = "/searchtools.js", "/language_data.js"
FETCHES = re.compile(r"fetch\(requestUrl\)\s*\.then\(\(responseData\) => responseData\.text\(\)\)")
DOCTOOLS, TRANSLATIONS = "_static/doctools.js", "_static/translations.js"
EVALUATED = re.compile(r'new Function\(\s*"n",\s*`return \(\$\{catalog\.plural_expr\}\)`,?\s*\)')
PLURAL = re.compile(r'"plural_expr": "([^"\\]*)"')  # which form a number asks for, as an expression of n

# Icons
ICON = re.compile(r'<(i|span) class="([^"]*\bfa-[^"]*)"([^>]*)></\1>')
ICON_KINDS = {"fa-solid": "solid", "fas": "solid", "fab": "brands", "fa-brands": "brands"}
ICON_SIZES = {"fa-lg", "fa-fw"}
ICON_SCRIPTS = ("_static/vendor/fontawesome/*/js/all.min.js", "_static/scripts/fontawesome.js")  # version 6, version 7
ICON_FONTS = (
    "_static/vendor/fontawesome/*/webfonts/fa-solid-900.ttf",
    "_static/vendor/fontawesome/webfonts/fa-solid-900.woff2",
)
ICON_LICENCES = ("_static/vendor/fontawesome/*/css/all.min.css", "_static/scripts/fontawesome.js.LICENSE.txt")
ICON_STYLES = ("_static/styles/*.css", "_static/*.css")
ICON_NAMES = re.compile(r"[^{}]*\{--fa:[^{}]*\}")  # a rule for each icon of the library, in version 7
TERMINAL = re.compile(r"div\.highlight \.-Color\[[^{}]*\{[^{}]*\}\s*")  # 528 rules for colours of a terminal's text
ICON_FAMILY = re.compile(r"Font Awesome\\? (\d+) Free")
ICON_CODE = re.compile(r'"\\(f[0-9a-f]{3})"')
COLOUR = re.compile(r"(--pst-color-[\w-]+)\s*:")
OUR_COLOUR = re.compile(r"var\((--pst-color-[\w-]+)")


class ThemeError(ValueError):
    """A word of this module is not where it was."""


def replaced(text: str, old: str, new: str, where: str) -> str:
    """The text with the first place of some words changed."""
    if old not in text:
        raise ThemeError(f"{where}: there is no {old!r} any more: mend tools/pages/theme_words.py")
    return text.replace(old, new, 1)


def replaced_within(text: str, frame: str, old: str, new: str, where: str) -> str:
    """The text with all places of some words changed; where the frame is that they belong to, they must be."""
    if frame in text and old not in text:
        raise ThemeError(f"{where}: there is {frame!r} without {old!r}: mend tools/pages/theme_words.py")
    return text.replace(old, new)


def file(folder: Path, patterns: tuple[str, ...], what: str) -> Path:
    """The one file of the built book that fits one of the patterns."""
    found = [path for pattern in patterns for path in folder.glob(pattern)]
    if len(found) != 1:
        raise ThemeError(
            f"{what}: looked in {folder} for {' and '.join(patterns)}, and found {len(found)} files: "
            "mend their places in tools/pages/theme_words.py"
        )
    return found[0]


def check_colours(theme: str, ours: str, where: str) -> None:
    """See that the theme's styles define each colour that a style of ours takes from them."""
    if gone := set(OUR_COLOUR.findall(ours)) - set(COLOUR.findall(theme)):
        raise ThemeError(f"{where}: the theme defines no {', '.join(sorted(gone))} any more: choose others")
