"""Formulas as they are drawn: each of the book as MathJax draws it, roots without holes, no sign outside the font."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from pathlib import Path

import book_text
import numpy as np
import pytest
from bs4 import BeautifulSoup
from fontTools.ttLib import TTFont
from PIL import Image
from playwright.sync_api import Browser

from tools.development import formula_ink, look_formulas
from tools.pages import math_font, mathml

needs_mathjax = pytest.mark.skipif(not formula_ink.MATHJAX.exists(), reason="no MathJax: run  make javascript")
LETTERS_MAY_TOUCH = 3  # formulas, in another version of Chromium


def differing(browser: Browser, given: Sequence[look_formulas.Formula], folder: Path, **options: Path) -> list[str]:
    page = browser.new_page()
    pairs = formula_ink.draw(page, [one[:2] for one in given], folder, **options)
    page.close()
    return [one.line for one, pair in zip(given, pairs, strict=True) if look_formulas.unpaired(pair)]


@pytest.fixture(scope="module")
def given() -> list[look_formulas.Formula]:
    return look_formulas.formulas()


def test_all_formulas_are_looked_at(given: list[look_formulas.Formula]) -> None:
    there = {tex for text in book_text.TEXTS for tex in book_text.formulas(text.prose)}
    assert {one.tex for one in given} == there
    assert set(look_formulas.SEEN) <= {one.line for one in given}


@pytest.mark.browser
@needs_mathjax
def test_every_formula_is_drawn_as_mathjax_draws_it(
    browser: Browser, given: list[look_formulas.Formula], tmp_path: Path
) -> None:
    found = set(differing(browser, given, tmp_path)) - set(look_formulas.SEEN)
    assert len(found) <= LETTERS_MAY_TOUCH, found


@pytest.mark.browser
@needs_mathjax
@pytest.mark.tool("chapters/_static/")
def test_a_root_that_is_not_drawn_is_seen(
    browser: Browser, given: list[look_formulas.Formula], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not math_font.SOURCE.exists():
        pytest.skip("no whole font: run  make javascript")
    signs = math_font.signs() - {"√"}
    monkeypatch.setattr(math_font, "signs", lambda: signs)
    monkeypatch.setattr(math_font, "narrow_roots", lambda font: None)
    math_font.make(math_font.SOURCE, tmp_path / "without.woff2")
    roots = [one for one in given if r"\sqrt" in one.tex]
    assert len(roots) >= 25
    assert differing(browser, roots, tmp_path, font=tmp_path / "without.woff2") == [one.line for one in roots]


@pytest.mark.browser
@needs_mathjax
@pytest.mark.tool("chapters/_static/")
def test_a_converter_that_says_something_else_is_seen(
    browser: Browser, given: list[look_formulas.Formula], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = mathml.mathml

    def upside_down(tex: str, *, display: bool = False) -> str:
        made = BeautifulSoup(right(tex, display=display), "html.parser")
        for fraction in made.find_all("mfrac"):
            fraction.append(next(fraction.children).extract())
        return str(made)

    def on_one_line(tex: str, *, display: bool = False) -> str:
        return right(tex, display=display).replace("</mtr><mtr>", "")

    for bug, sign in ((upside_down, r"\frac{"), (on_one_line, r"\\")):
        monkeypatch.setattr(formula_ink, "mathml", bug)
        wrong = [one for one in given if sign in one.tex]
        assert len(wrong) >= 15
        assert len(differing(browser, wrong, tmp_path)) > 0.9 * len(wrong), bug


def test_no_sign_is_outside_the_font_nor_one_that_only_an_element_implies() -> None:
    has = {chr(code) for code in TTFont(math_font.FONT).getBestCmap()}
    implied = {"msqrt": "√", "mroot": "√", "mfenced": "(),", "mfrac": "", "mover": "", "munder": "", "mtable": ""}
    assert {sign for signs in implied.values() for sign in signs} <= has
    for text in book_text.TEXTS:
        for tex in book_text.formulas(text.prose):
            made = BeautifulSoup(mathml.mathml(tex), "html.parser")
            signs = {sign for sign in made.get_text() if not sign.isspace()}
            signs |= {sign for tag in made.find_all(True) for sign in implied.get(tag.name, "")}
            assert signs <= has, tex


def test_brackets_and_roots_have_larger_sizes() -> None:
    font = TTFont(math_font.FONT)
    names, table = font.getBestCmap(), font["MATH"].table.MathVariants
    larger = dict(zip(table.VertGlyphCoverage.glyphs, table.VertGlyphConstruction, strict=True))
    for sign in "()[]{}|∥⌊⌋⌈⌉⟨⟩√∑∏":
        sizes = larger[names[ord(sign)]]
        assert len(sizes.MathGlyphVariantRecord) >= (2 if sign in "∑∏" else 3) or sizes.GlyphAssembly, sign


@pytest.mark.tool("chapters/_static/")
def test_the_package_makes_the_committed_font_again(tmp_path: Path) -> None:
    if not math_font.SOURCE.exists():
        pytest.skip("no whole font: run  make javascript")
    math_font.make(math_font.SOURCE, tmp_path / "again.woff2")
    assert (tmp_path / "again.woff2").read_bytes() == math_font.FONT.read_bytes()


class Drawn:
    """Formulas at 100 pixels, as a page shows them, each a list: is this column of pixels inked?"""

    def __init__(self, browser: Browser) -> None:
        self.page = browser.new_page(viewport={"width": 1200, "height": 400})
        font = base64.b64encode(math_font.FONT.read_bytes()).decode()
        style = formula_ink.STYLE.read_text(encoding="utf-8")
        style = style.replace(math_font.FONT.name, f"data:font/woff2;base64,{font}")
        self.page.set_content(f'<style>{style}</style><p style="margin: 100px; font-size: 100px"></p>')
        self.page.evaluate("document.fonts.load('100px \"STIX Two Math\"')")

    def __call__(self, tex: str) -> np.ndarray:
        self.page.evaluate("made => document.querySelector('p').innerHTML = made", mathml.mathml(tex))
        return np.asarray(Image.open(io.BytesIO(self.page.screenshot())).convert("L")) < 128

    def width(self, selector: str) -> float:
        return self.page.locator(selector).first.evaluate("one => one.getBoundingClientRect().width")


@pytest.fixture(scope="module")
def drawn(browser: Browser) -> Drawn:
    return Drawn(browser)


def gap_before_the_last(ink: np.ndarray) -> int:
    """The empty columns in front of the last sign."""
    empty = np.diff(np.flatnonzero(ink.any(0)))
    return int(empty[empty > 1][-1]) - 1


@pytest.mark.browser
@pytest.mark.parametrize("inside", ["d", "D/h", r"\frac{a}{b}", r"\frac{1}{\sqrt{\frac{a}{b}}}"])
def test_a_root_is_drawn_and_no_hole_follows(drawn: Drawn, inside: str) -> None:
    plain = drawn(f"{inside} |")
    rooted = drawn(rf"\sqrt{{{inside}}} |")
    assert (plain != rooted).sum() > 500
    assert drawn.width("msqrt") > drawn.width("msqrt > *") + 30
    assert abs(gap_before_the_last(rooted) - gap_before_the_last(plain)) <= 15


@pytest.mark.browser
def test_a_fractions_bar_ends_with_its_root(drawn: Drawn) -> None:
    ink = drawn(r"\frac{1}{\sqrt{d}}")
    bar = max(range(len(ink)), key=lambda row: ink[row].sum())
    below = np.flatnonzero(ink[bar + 12 :].any(0))
    assert np.flatnonzero(ink[bar]).max() - below.max() <= 12


@pytest.mark.browser
def test_an_equals_sign_among_words_has_space_on_both_sides(drawn: Drawn) -> None:
    drawn(r"\begin{aligned} \text{a} &= \text{b} \end{aligned}")
    sides = drawn.page.evaluate("""() => {
      const box = (one) => one.getBoundingClientRect();
      const sign = box(document.querySelector("mo")), [left, right] = [...document.querySelectorAll("mtext")].map(box);
      return [sign.left - left.right, right.left - sign.right];
    }""")
    assert min(sides) > 20, sides


@pytest.mark.browser
@pytest.mark.parametrize("accent", [r"\hat", r"\tilde", r"\bar", r"\dot"])
def test_an_accent_does_not_cross_its_letter(drawn: Drawn, accent: str) -> None:
    rows = np.flatnonzero(drawn(f"{accent} T").any(1))
    assert np.diff(rows).max() > 2
