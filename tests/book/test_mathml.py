"""Formulas: the TeX that the book writes becomes the MathML that it means, and nothing else becomes anything."""

from __future__ import annotations

import re

import book_text
import pytest
from bs4 import BeautifulSoup
from docutils import nodes
from docutils.utils import new_document
from fontTools.ttLib import TTFont

from tools.pages import formulas, math_font
from tools.pages.mathml import mathml

SPACED = '<mo form="infix" stretchy="false" lspace="{0}" rspace="{0}">{1}</mo>'


def inside(tex: str) -> str:
    """What stands in the `math` element, without the spaces around operators."""
    made = re.sub(r' (?:form|stretchy|lspace|rspace|symmetric|fence)="[^"]*"', "", mathml(tex))
    return re.fullmatch(r'<math alttext="[^"]*">(.*)</math>', made)[1]  # type: ignore[index]


@pytest.mark.parametrize(
    ("tex", "expected"),
    [
        ("W_q", "<msub><mi>W</mi><mi>q</mi></msub>"),
        ("x_12", "<mrow><msub><mi>x</mi><mn>1</mn></msub><mn>2</mn></mrow>"),
        (r"\frac12", "<mfrac><mn>1</mn><mn>2</mn></mfrac>"),
        (r"\tfrac1X", '<mstyle displaystyle="false"><mfrac><mn>1</mn><mi>X</mi></mfrac></mstyle>'),
        ("2{,}048.5", "<mn>2,048.5</mn>"),
        ("10^{-8}", "<msup><mn>10</mn><mrow><mo>−</mo><mn>8</mn></mrow></msup>"),
        (r"\mathbf h_i", "<msub><mi>𝐡</mi><mi>i</mi></msub>"),
        (r"\mathbf{W}'", "<msup><mi>𝐖</mi><mo>′</mo></msup>"),
        ("w'^2_j", "<msubsup><mi>w</mi><mi>j</mi><mrow><mo>′</mo><mn>2</mn></mrow></msubsup>"),
        (r"\Phi\phi", '<mrow><mi mathvariant="normal">Φ</mi><mi>ϕ</mi></mrow>'),
        (r"\text{up to } t", "<mrow><mtext>up\u00a0to\u00a0</mtext><mi>t</mi></mrow>"),
        (r"\sqrt d", "<msqrt><mi>d</mi></msqrt>"),
        (r"\bar{\mathbf{h}_t}", '<mover accent="true"><msub><mi>𝐡</mi><mi>t</mi></msub><mo>¯</mo></mover>'),
        (r"\underset{d \times 1}{x}", "<munder><mi>x</mi><mrow><mi>d</mi><mo>×</mo><mn>1</mn></mrow></munder>"),
        (r"= \text{a}", "<mrow><mo>=</mo><mtext>a</mtext><mi></mi></mrow>"),
        (r"\max_j", '<munder><mo movablelimits="true">max</mo><mi>j</mi></munder>'),
        (r"\ln 2", '<mrow><mi>ln</mi><mspace width="0.167em"/><mn>2</mn></mrow>'),
        (r"\max(x)", '<mrow><mo movablelimits="true">max</mo><mo>(</mo><mi>x</mi><mo>)</mo></mrow>'),
        (r"\mathrm{Id}", "<mi>Id</mi>"),
        ("a < b", "<mrow><mi>a</mi><mo>&lt;</mo><mi>b</mi></mrow>"),
        (r"\{x\}", "<mrow><mo>{</mo><mi>x</mi><mo>}</mo></mrow>"),
        (
            r"\left(\frac{a}{b}\right]",
            "<mrow><mo>(</mo><mfrac><mi>a</mi><mi>b</mi></mfrac><mo>]</mo></mrow>",
        ),
        (
            r"\begin{bmatrix} a & b \\ c & d \end{bmatrix}",
            '<mrow><mo>[</mo><mtable columnalign="center center"><mtr><mtd class="centre"><mi>a</mi></mtd>'
            '<mtd class="centre"><mi>b</mi></mtd></mtr><mtr><mtd class="centre"><mi>c</mi></mtd>'
            '<mtd class="centre"><mi>d</mi></mtd></mtr></mtable><mo>]</mo></mrow>',
        ),
        (
            r"\begin{aligned} a &= b \\ \end{aligned}",
            '<mtable columnalign="right left" displaystyle="true"><mtr><mtd class="right"><mi>a</mi></mtd>'
            '<mtd class="left"><mrow><mo>=</mo><mi>b</mi></mrow></mtd></mtr></mtable>',
        ),
    ],
)
def test_tex_becomes_mathml(tex: str, expected: str) -> None:
    assert inside(tex) == expected


def test_a_minus_is_a_sign_or_an_operation() -> None:
    sign = '<mo form="prefix" lspace="0" rspace="0">−</mo>'
    operation = SPACED.format("0.222em", "−")
    assert sign in mathml("-1")
    assert sign in mathml("(-1)")
    assert sign in mathml("a = -1")
    assert operation in mathml("a - 1")
    assert operation in mathml(r"\begin{aligned} a &- 1 \end{aligned}")
    assert SPACED.format("0.08em", "−") in mathml("x_{a - 1}")


def test_tex_stays_as_the_text_of_a_formula_and_cannot_end_it() -> None:
    made = mathml('a < "b" & c'.replace('"b" & c', r"\text{\"><script>}"), display=True)
    (formula,) = BeautifulSoup(made, "html.parser").contents
    assert formula["display"] == "block"
    assert formula["alttext"] == r"a < \text{\"><script>}"
    assert formula.find("script") is None


@pytest.mark.parametrize(
    ("tex", "said"),
    [
        (r"\color{red} x", r"\\color is not known"),
        (r"\frac{a}", "lacks what it takes"),
        ("{a", "} is missing at the end"),
        ("a}", "} is not known"),
        ("x_a_b", "a second _"),
        (r"\left( a", r"\\right is missing"),
        (r"\left a", "a is no bracket"),
        (r"\begin{tabular} a \end{tabular}", "the environment tabular"),
        (r"\begin{matrix} a \end{aligned}", r"\\begin\{matrix\} ends as aligned"),
        (r"\begin{aligned} a", "is missing at the end"),
        (r"\mathbf{\alpha}", "letters and digits"),
        (r"\text{a", "} is missing"),
        ("a & b", "& is not known"),
        ("ü", "ü is not known"),
    ],
)
def test_what_is_not_known_is_refused_by_name(tex: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        mathml(tex)


def test_the_font_has_every_sign_that_a_formula_may_show() -> None:
    has = set(TTFont(math_font.FONT).getBestCmap())
    assert {sign for sign in math_font.signs() if ord(sign) not in has} == set()
    shown = set()
    for text in book_text.TEXTS:
        for formula in book_text.formulas(text.prose):
            shown |= set(BeautifulSoup(mathml(formula), "html.parser").get_text())
    assert len(shown) > 100
    assert {sign for sign in shown if ord(sign) not in has and not sign.isspace()} == set()


def test_what_closes_a_formula_stays_on_its_line() -> None:
    """In Chromium a line began with the comma of "divided by √d, without"."""
    parts = [nodes.math(tex, tex) for tex in (r"\sqrt d", "w", "x", "y", "z")]
    parts[1:1], parts[3:3], parts[5:5] = [nodes.Text(", without ")], [nodes.Text("?) And ")], [nodes.Text(" is ")]
    paragraph = nodes.paragraph("", "", *parts[:-1], nodes.emphasis("", ", no"), parts[-1])
    document = new_document("page")
    document += paragraph
    before = document.astext()
    formulas.keep_stops(document)
    kept = [one.astext() for one in document.findall(nodes.inline) if formulas.UNBROKEN in one["classes"]]
    assert kept == [r"\sqrt d,", "w?)"]
    assert document.astext() == before
    assert [one.astext() for one in document.findall(nodes.math)] == [r"\sqrt d", "w", "x", "y", "z"]
