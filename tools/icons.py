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

ICON = re.compile(r'<(i|span) class="([^"]*\bfa-[^"]*)"([^>]*)></\1>')
KINDS = {"fa-solid": "solid", "fas": "solid", "fab": "brands", "fa-brands": "brands"}
SIZES = {"fa-lg"}
PRIVATE = re.compile(r"[\ue000-\uf8ff]")
CODE = re.compile(r'"\\(f[0-9a-f]{3})"')
STYLE = """
.svg-inline--fa { display: inline-block; height: 1em; overflow: visible; vertical-align: -0.125em; }
.svg-inline--fa.fa-lg { font-size: 1.25em; line-height: 0.05em; vertical-align: -0.2em; }
"""


def library(folder: Path) -> Path:
    (found,) = folder.glob("_static/vendor/fontawesome/*")
    return found


def drawn(text: str, folder: Path) -> str:
    """A page with its icons as pictures.

    Raises:
        ValueError: an icon that the library does not have.
    """

    def picture(found: re.Match[str]) -> str:
        _, classes, more = found.groups()
        names = classes.split()
        kind = next((KINDS[name] for name in names if name in KINDS), "")
        icon = [name.removeprefix("fa-") for name in names if name.startswith("fa-") and name not in {*KINDS, *SIZES}]
        if not kind or len(icon) != 1:
            raise ValueError(f"{found[0]}: no icon of a known kind: mend tools/icons.py")
        width, height, path = shape(folder, kind, icon[0])
        kept = " ".join(name for name in names if name not in KINDS)
        return (
            f'<svg class="svg-inline--fa {kept}"{more} aria-hidden="true" focusable="false" '
            f'xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">'
            f'<path fill="currentColor" d="{path}"></path></svg>'
        )

    return ICON.sub(picture, text)


@functools.cache
def shape(folder: Path, kind: str, name: str) -> tuple[str, str, str]:
    """Width, height and outline of an icon. The library's script lists the brands first, the solid icons last."""
    text = (library(folder) / "js/all.min.js").read_text(encoding="utf-8")
    pattern = rf"""[{{,]["']?{re.escape(name)}["']?:\[(\d+),(\d+),\[[^\]]*\],"[0-9a-f]+","([^"]+)"\]"""
    found = re.findall(pattern, text)
    if not found:
        raise ValueError(f"the icon library has no {name!r}")
    return found[0] if kind == "brands" else found[-1]


@functools.cache
def style(folder: Path) -> str:
    """What the theme's styles take from the library: its families, with the signs that they name."""
    codes: set[int] = set()
    for file in (*folder.glob("_static/styles/*.css"), *folder.glob("_static/*.css")):
        if not file.name.startswith("pages-"):
            text = file.read_text(encoding="utf-8")
            codes |= {ord(sign) for sign in PRIVATE.findall(text)} | {int(code, 16) for code in CODE.findall(text)}
    licence = re.match(r"/\*!.*?\*/", (library(folder) / "css/all.min.css").read_text(encoding="utf-8"), re.DOTALL)
    font = TTFont(library(folder) / "webfonts/fa-solid-900.ttf", recalcTimestamp=False)
    chosen = subset.Subsetter(subset.Options(hinting=False, layout_features=[], name_IDs=[]))
    chosen.populate(unicodes=sorted(codes))
    chosen.subset(font)
    font.flavor = "woff"
    packed = io.BytesIO()
    font.save(packed)
    data = base64.b64encode(packed.getvalue()).decode()
    faces = "".join(
        f'@font-face {{ font-family: "{family}"; font-weight: 900; '
        f'src: url(data:font/woff;base64,{data}) format("woff"); }}\n'
        for family in ("Font Awesome 6 Free", "Font Awesome 5 Free")
    )
    said = licence[0] if licence else ""
    return f'{said}\n:root {{ --fa-font-solid: normal 900 1em/1 "Font Awesome 6 Free"; }}\n{faces}{STYLE}'
