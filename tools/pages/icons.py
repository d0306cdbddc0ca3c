"""The icons that the book shows, out of the theme's icon library, whose script, style and fonts have 2 MB.

Icons in pages become the pictures (SVG) that the library's script would draw there: the theme's styles count on them.
The few signs that styles name themselves stay signs of a font, cut down to these.
"""

from __future__ import annotations

import base64
import functools
import io
import re
from pathlib import Path

from fontTools import subset
from fontTools.ttLib import TTFont

from tools.pages import theme_words
from tools.pages.theme_words import ICON_KINDS, ICON_SIZES, ThemeError

PRIVATE = re.compile(r"[\ue000-\uf8ff]")
STYLE = """
.svg-inline--fa { display: inline-block; height: 1em; overflow: visible; vertical-align: -0.125em; }
.svg-inline--fa.fa-fw { width: 1.25em; text-align: center; }
.svg-inline--fa.fa-lg { font-size: 1.25em; line-height: 0.05em; vertical-align: -0.2em; }
"""


def drawn(text: str, folder: Path, where: str = "a page") -> str:
    """A page with its icons as pictures.

    Raises:
        ThemeError: an icon that the library does not have, or no library.
    """

    def picture(found: re.Match[str]) -> str:
        _, classes, more = found.groups()
        names = classes.split()
        kind = next((ICON_KINDS[name] for name in names if name in ICON_KINDS), "")
        known = {*ICON_KINDS, *ICON_SIZES}
        icon = [name.removeprefix("fa-") for name in names if name.startswith("fa-") and name not in known]
        if not kind or len(icon) != 1:
            raise ThemeError(f"{where}: {found[0]} is no icon of a known kind: mend tools/pages/theme_words.py")
        width, height, path = shape(folder, kind, icon[0])
        kept = " ".join(name for name in names if name not in ICON_KINDS)
        return (
            f'<svg class="svg-inline--fa {kept}"{more} aria-hidden="true" focusable="false" '
            f'xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">'
            f'<path fill="currentColor" d="{path}"></path></svg>'
        )

    return theme_words.ICON.sub(picture, text)


@functools.cache
def shape(folder: Path, kind: str, name: str) -> tuple[str, str, str]:
    """Width, height and outline of an icon. The library's script lists the brands first, the solid icons last."""
    script = theme_words.file(folder, theme_words.ICON_SCRIPTS, "the icons' outlines")
    text = script.read_text(encoding="utf-8")
    pattern = rf"""[{{,]["']?{re.escape(name)}["']?:\[(\d+),(\d+),\[[^\]]*\],"[0-9a-f]+","([^"]+)"\]"""
    found = re.findall(pattern, text)
    if not found:
        raise ThemeError(f"the icon library {script.relative_to(folder)} has no {name!r}")
    return found[0] if kind == "brands" else found[-1]


def style(folder: Path) -> str:
    """What the theme's styles take from the library: its families, with the signs that they name."""
    styles = {file for pattern in theme_words.ICON_STYLES for file in folder.glob(pattern)}
    text = "".join(file.read_text(encoding="utf-8") for file in sorted(styles) if not file.name.startswith("pages-"))
    text = theme_words.ICON_NAMES.sub("", text)
    codes = {ord(sign) for sign in PRIVATE.findall(text)} | {
        int(code, 16) for code in theme_words.ICON_CODE.findall(text)
    }
    families = [f"Font Awesome {number} Free" for number in sorted(set(theme_words.ICON_FAMILY.findall(text)))]
    if not families:
        raise ThemeError(
            f"the icons' style: no style in {folder} names a font of icons: mend tools/pages/theme_words.py"
        )
    licence = theme_words.file(folder, theme_words.ICON_LICENCES, "the icons' licence").read_text(encoding="utf-8")
    said = re.search(r"/\*!.*?\*/", licence, re.DOTALL)
    data = signs(theme_words.file(folder, theme_words.ICON_FONTS, "the icons' font"), codes)
    faces = "".join(
        f'@font-face {{ font-family: "{family}"; font-weight: 900; '
        f'src: url(data:font/woff;base64,{data}) format("woff"); }}\n'
        for family in families
    )
    return f'{said[0] if said else ""}\n:root {{ --fa-font-solid: normal 900 1em/1 "{families[-1]}"; }}\n{faces}{STYLE}'


def signs(file: Path, codes: set[int]) -> str:
    """A font with nothing but some signs, packed into letters; the same for the same font."""
    try:
        font = TTFont(file, recalcTimestamp=False)
    except ImportError as error:  # fontTools reads woff2 with the help of brotli
        raise ImportError(f"{file}: to read this font, run  pip install brotli") from error
    chosen = subset.Subsetter(subset.Options(hinting=False, layout_features=[], name_IDs=[]))
    chosen.populate(unicodes=sorted(codes))
    chosen.subset(font)
    font.flavor = "woff"
    packed = io.BytesIO()
    font.save(packed)
    return base64.b64encode(packed.getvalue()).decode()
