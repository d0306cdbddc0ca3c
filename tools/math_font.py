"""The font of the formulas, made by hand: of STIX Two Math the signs that tools/mathml.py can write, and no others.

    python tools/math_font.py STIXTwoMath-Regular.ttf

writes chapters/_static/stix-two-math.woff, which every page with a formula loads. The whole font has 1.5 MB. It comes
from https://github.com/stipub/stixfonts, under the SIL Open Font License 1.1, which lets parts of it be passed on. The
signs of other sizes, for brackets and roots, come along as the font's own table names them.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import mathml
from fontTools import subset
from fontTools.ttLib import TTFont

FONT = Path(__file__).resolve().parents[1] / "chapters/_static/stix-two-math.woff"


def signs() -> set[str]:
    """All signs that a formula may show, but for the letters of `\\text` beyond English ones."""
    plain = {chr(code) for code in range(0x20, 0x7F)} | {"\u00a0"}
    named = {sign for table in (mathml.LETTERS, mathml.SIGNS) for sign, _ in table.values()}
    others = {*mathml.LIMITS.values(), *mathml.ACCENTS.values(), "′"}
    letters = {chr(code) for code in mathml.BOLD.values()}
    italic = {chr(code) for code in range(0x1D434, 0x1D468) if code != 0x1D455} | {"ℎ"}
    greek = {chr(code) for code in range(0x1D6FC, 0x1D71C)}
    return {sign for sign in plain | named | others if len(sign) == 1} | letters | italic | greek


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("font", type=Path, help="the file of the whole font")
    font = TTFont(parser.parse_args().font)
    options = subset.Options(flavor="woff", hinting=False, layout_features=["kern"], name_IDs=["*"])
    chosen = subset.Subsetter(options)
    chosen.populate(unicodes=[ord(sign) for sign in signs()])
    chosen.subset(font)
    subset.save_font(font, str(FONT), options)
    missing = sorted(sign for sign in signs() if ord(sign) not in font.getBestCmap())
    print(f"{FONT.name}: {FONT.stat().st_size / 1000:.0f} kB, {len(signs())} signs; not in the font: {missing}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
