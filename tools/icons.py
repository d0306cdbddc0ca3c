"""The icons that the book shows, as one small style: signs of the theme's icon fonts, which have 1.5 MB altogether."""

from __future__ import annotations

import base64
import functools
import io
import re
from pathlib import Path

from fontTools import subset
from fontTools.ttLib import TTFont

FONTS = {"fa-solid-900.ttf": "900", "fa-brands-400.ttf": "400"}
RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")
CODE = re.compile(r'"\\(f[0-9a-f]{3})"')


@functools.cache
def style(folder: Path) -> str:
    """The rules of the icon library for the names that the built pages and their scripts use, with fonts to match."""
    (library,) = folder.glob("_static/vendor/fontawesome/*")
    used = names(folder)
    kept, codes = [], set()
    text = (library / "css/all.min.css").read_text(encoding="utf-8")
    licence = re.match(r"/\*!.*?\*/", text, re.DOTALL)
    for selector, body in RULE.findall(re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)):
        wanted = [one for one in selector.split(",") if one == ":root" or set(re.findall(r"\.(fa[\w-]*)", one)) & used]
        if wanted and all(set(re.findall(r"\.(fa[\w-]*)", one)) <= used for one in wanted):
            kept.append(f"{','.join(wanted)}{{{body}}}")
            codes |= set(CODE.findall(body))
    for file in (*folder.glob("_static/styles/*.css"), *folder.glob("_static/*.css")):
        if not file.name.startswith("pages-"):
            codes |= set(CODE.findall(file.read_text(encoding="utf-8")))
    said = licence[0] if licence else ""
    return "\n".join([said, *faces(library / "webfonts", {int(code, 16) for code in codes}), *kept])


def names(folder: Path) -> set[str]:
    """The classes of icons in pages and in the theme's scripts."""
    found: set[str] = set()
    for file in (*folder.glob("*.html"), *folder.glob("chapters/*.html")):
        for classes in re.findall(r'<(?:i|span) class="(fa[^"]*)"', file.read_text(encoding="utf-8")):
            found |= set(classes.split())
    for file in folder.glob("_static/scripts/*-theme.js"):
        found |= set(re.findall(r"\bfa-[a-z-]+", file.read_text(encoding="utf-8")))
    return found


def faces(fonts: Path, codes: set[int]) -> list[str]:
    """The fonts, cut down to some signs, within the style."""
    found = []
    for name, weight in FONTS.items():
        font = TTFont(fonts / name)
        has = codes & font.getBestCmap().keys()
        chosen = subset.Subsetter(subset.Options(hinting=False, layout_features=[], name_IDs=[]))
        chosen.populate(unicodes=sorted(has))
        chosen.subset(font)
        font.flavor = "woff"
        packed = io.BytesIO()
        font.save(packed)
        data = base64.b64encode(packed.getvalue()).decode()
        families = ["Font Awesome 6 Brands"] if "brands" in name else ["Font Awesome 6 Free", "Font Awesome 5 Free"]
        for family in families:
            found.append(
                f'@font-face{{font-family:"{family}";font-style:normal;font-weight:{weight};font-display:block;'
                f"src:url(data:font/woff;base64,{data}) format('woff')}}"
            )
    return found
