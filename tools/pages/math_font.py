"""The font of the formulas, made by hand: of STIX Two Math the signs that mathml.py can write, and no others.

    python -m tools.pages.math_font

writes chapters/_static/stix-two-math.woff2, which every page with a formula loads. The whole font has 400 kB as woff2.
It comes from the npm package @fontsource/stix-two-math, which  make javascript  puts into node_modules at the version
of package-lock.json, under the SIL Open Font License 1.1, which lets parts of a font be passed on and changed. The
same package gives the same bytes. The larger sizes of brackets and roots come along, as the font's own table names
them. Changed are:

- Roots: browsers give every root the width of the widest size that there is, so a hole would follow √d. All sizes get
  the width of the smallest.
- Primes: in text they hang from the top of a letter. Formulas raise them as exponents, so they are made lower here,
  and larger, as the exponent's letters are smaller. Whole fonts have a second prime for this, which browsers choose;
  this source lacks it.
- Measures: the index of y is no lower than that of x, and fractions in text are no higher than in TeX.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from fontTools import subset
from fontTools.ttLib import TTFont

from tools import ROOT
from tools.pages import mathml

SOURCE = ROOT / "node_modules/@fontsource/stix-two-math/files/stix-two-math-latin-400-normal.woff2"
FONT = ROOT / "chapters/_static/stix-two-math.woff2"
SQUARE_ROOT, PRIME = "√", "′"
PRIME_SIZE, PRIME_BOTTOM = 1.5, 30  # times its size in text; thousandths of the letters' size above the line
MEASURES = {  # thousandths of the letters' size
    "SubscriptBaselineDropMin": -60,  # an index's line is at least so far below the lowest point of its letter
    "FractionNumeratorShiftUp": 394,
    "FractionDenominatorShiftDown": 345,
}


def signs() -> set[str]:
    """All signs that a formula may show, but for the letters of `\\text` beyond English ones."""
    plain = {chr(code) for code in range(0x20, 0x7F)} | {"\u00a0"}
    named = {sign for table in (mathml.LETTERS, mathml.SIGNS) for sign, _ in table.values()}
    others = {*mathml.LIMITS.values(), *mathml.ACCENTS.values(), PRIME, SQUARE_ROOT}
    letters = {chr(code) for code in mathml.BOLD.values()}
    italic = {chr(code) for code in range(0x1D434, 0x1D468) if code != 0x1D455} | {"ℎ"}
    greek = {chr(code) for code in range(0x1D6FC, 0x1D71C)}
    return {sign for sign in plain | named | others if len(sign) == 1} | letters | italic | greek


def scale(font: TTFont, name: str, x: float, y: float = 1.0, bottom: int | None = None) -> None:
    """Make a glyph wider and higher by these factors; `bottom` is where its lowest point is afterwards."""
    glyph = font["glyf"][name]
    advance, left = font["hmtx"][name]
    glyph.coordinates.scale((x, y))
    if bottom is not None:
        glyph.coordinates.translate((0, bottom - min(height for _, height in glyph.coordinates)))
    glyph.coordinates.toInt()
    glyph.recalcBounds(font["glyf"])
    font["hmtx"][name] = (round(advance * x), round(left * x))


def narrow_roots(font: TTFont) -> None:
    """Give the larger roots, and the parts of which still larger ones are put together, the smallest one's width."""
    base = font.getBestCmap()[ord(SQUARE_ROOT)]
    table = font["MATH"].table.MathVariants
    sizes = table.VertGlyphConstruction[table.VertGlyphCoverage.glyphs.index(base)]
    names = {one.VariantGlyph for one in sizes.MathGlyphVariantRecord}
    names |= {part.glyph for part in sizes.GlyphAssembly.PartRecords}
    width = font["hmtx"][base][0]
    for name in names - {base}:
        scale(font, name, width / font["hmtx"][name][0])


def make(source: Path, target: Path) -> None:
    """Write the part of the font `source` that formulas need to `target`."""
    font = TTFont(source, recalcTimestamp=False)
    options = subset.Options(flavor="woff2", hinting=False, layout_features=["kern"], name_IDs=["*"])
    chosen = subset.Subsetter(options)
    chosen.populate(unicodes=[ord(sign) for sign in signs()])
    chosen.subset(font)
    narrow_roots(font)
    scale(font, font.getBestCmap()[ord(PRIME)], PRIME_SIZE, PRIME_SIZE, PRIME_BOTTOM)
    for name, value in MEASURES.items():
        getattr(font["MATH"].table.MathConstants, name).Value = value
    subset.save_font(font, str(target), options)


def main() -> int:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    if not SOURCE.exists():
        print(f"{SOURCE.relative_to(ROOT)} is not there: run  make javascript  first", file=sys.stderr)
        return 1
    make(SOURCE, FONT)
    has = TTFont(FONT).getBestCmap()
    missing = sorted(sign for sign in signs() if ord(sign) not in has)
    print(f"{FONT.name}: {FONT.stat().st_size / 1000:.1f} kB, {len(signs())} signs; not in the font: {missing}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
