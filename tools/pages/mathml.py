r"""TeX formulas as MathML, which browsers draw by themselves: no script, no tab stop, legible at once and from a disk.

It reads the TeX that this book writes, and spaces it as TeX does. What it does not know it refuses by name, so that no
page is built with a formula that says something else; a command that is missing gets a place in a table below.

>>> mathml(r"W_q")
'<math alttext="W_q"><msub><mi>W</mi><mi>q</mi></msub></math>'
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from typing import NamedTuple

TOKEN = re.compile(r"\\[a-zA-Z]+|\\.|\s+|.", re.DOTALL)
GREEK = (
    "alpha α beta β gamma γ delta δ epsilon ϵ zeta ζ eta η theta θ kappa κ lambda λ mu μ nu ν xi ξ pi π rho ρ "
    "sigma σ tau τ phi ϕ varphi φ chi χ psi ψ omega ω ell ℓ partial ∂"
)
UPRIGHT = (
    "Gamma Γ Delta Δ Theta Θ Lambda Λ Xi Ξ Pi Π Sigma Σ Phi Φ Psi Ψ Omega Ω infty ∞ top ⊤ vdots ⋮ emptyset ∅ "
    "forall ∀ exists ∃ # # % % $ $ _ _ & &"
)
BINARY = "cdot ⋅ times × circ ∘ pm ± odot ⊙ oplus ⊕ cap ∩ cup ∪"
RELATIONS = (
    "le ≤ leq ≤ ge ≥ geq ≥ ne ≠ neq ≠ approx ≈ sim ∼ equiv ≡ to → mapsto ↦ mid ∣ in ∈ propto ∝ ll ≪ gg ≫ subset ⊂"
)


def commands(table: str, kind: str) -> dict[str, tuple[str, str]]:
    words = table.split()
    return {f"\\{name}": (sign, kind) for name, sign in zip(words[::2], words[1::2], strict=True)}


LETTERS = commands(GREEK, "letter") | commands(UPRIGHT, "upright")
SIGNS = {
    **commands(BINARY, "bin"),
    **commands(RELATIONS, "rel"),
    **commands("lfloor ⌊ lceil ⌈ langle ⟨ { {", "open"),
    **commands("rfloor ⌋ rceil ⌉ rangle ⟩ } }", "close"),
    **commands("ldots … dots … cdots ⋯", "inner"),
    **commands("| ∥ vert |", "ord"),
    **{sign: (sign, "rel") for sign in "=<>:"},
    **{sign: (sign, "punct") for sign in ",;"},
    **{sign: (sign, "ord") for sign in "|/.!"},
    "+": ("+", "bin"),
    "-": ("−", "bin"),
    "*": ("∗", "bin"),
    "·": ("⋅", "bin"),
    "(": ("(", "open"),
    "[": ("[", "open"),
    ")": (")", "close"),
    "]": ("]", "close"),
}
"""What stands between letters: how it looks, and what it is to its neighbours in TeX's words."""
FUNCTIONS = {f"\\{name}" for name in ("sin", "cos", "tan", "tanh", "exp", "ln", "log", "det", "dim")}
LIMITS = {"\\max": "max", "\\min": "min", "\\lim": "lim", "\\sum": "∑", "\\prod": "∏"}
SPACES = {"\\,": 3, "\\:": 4, "\\;": 5, "\\ ": 4.5, "~": 4.5, "\\quad": 18, "\\qquad": 36, "\\!": 0}  # em/18
ACCENTS = {"\\bar": "¯", "\\hat": "ˆ", "\\tilde": "˜", "\\dot": "˙"}
SIZES = {"\\big": "1.2em", "\\Big": "1.62em", "\\bigg": "2.05em", "\\Bigg": "2.47em"}
MATRICES = {"matrix": ("", ""), "pmatrix": ("(", ")"), "bmatrix": ("[", "]"), "vmatrix": ("|", "|")}
ALIGNED = ("aligned", "split", "align*")
FENCES = {token: sign for token, (sign, kind) in SIGNS.items() if kind in ("open", "close") or token in ("|", "\\|")}
BOLD = {**{chr(65 + n): 0x1D400 + n for n in range(26)}, **{chr(97 + n): 0x1D41A + n for n in range(26)}}
BOLD |= {str(n): 0x1D7CE + n for n in range(10)}
THIN = '<mspace width="0.167em"/>'
OPERATOR = re.compile(r"(?:<m\w+>)*<mo\b")
"""One operator among words and spaces: MathML gives its spaces to the whole row, a=b. An empty letter prevents that."""
UNARY_AFTER = ("", "bin", "op", "rel", "open", "punct")
"""After these, at the start too, TeX takes a binary operator for a sign: -1."""


class Atom(NamedTuple):
    """A piece of a formula, what it is to its neighbours, and whether limits stand below and above it."""

    mathml: str
    kind: str = "ord"
    limits: bool = False


def mathml(tex: str, *, display: bool = False) -> str:
    """A formula as a `math` element, with its TeX as the text for those who do not see it.

    Raises:
        ValueError: braces or environments that do not close, or a command that this module does not know.
    """
    reader = Reader(TOKEN.findall(tex))
    inside = reader.row(("",))
    said = html.escape(" ".join(tex.split()), quote=True)
    return f'<math{" display=" + chr(34) + "block" + chr(34) if display else ""} alttext="{said}">{inside}</math>'


class Reader:
    """Reads one formula from left to right. `script` says that a piece is below or above: there TeX leaves no space."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self.tokens = tokens
        self.place = 0

    def peek(self) -> str:
        """The next token that is no space; at the end an empty one."""
        while self.place < len(self.tokens) and self.tokens[self.place].isspace() and self.tokens[self.place] != "\\ ":
            self.place += 1
        return self.tokens[self.place] if self.place < len(self.tokens) else ""

    def take(self) -> str:
        token = self.peek()
        self.place += 1
        return token

    def expect(self, wanted: str) -> None:
        if (token := self.take()) != wanted:
            raise ValueError(f"{wanted} is missing before {token or 'the end'}")

    def words(self) -> str:
        """What stands between braces as it is written, spaces too."""
        self.expect("{")
        start, depth = self.place, 1
        while depth:
            if self.place >= len(self.tokens):
                raise ValueError("} is missing at the end")
            depth += {"{": 1, "}": -1}.get(self.tokens[self.place], 0)
            self.place += 1
        return "".join(self.tokens[start : self.place - 1])

    def argument(self, script: bool = False) -> str:
        """What a command takes: a group, or the next token."""
        token = self.take()
        if not token:
            raise ValueError("a command lacks what it takes at the end")
        if token == "{":
            return self.group(script)
        return f"<mn>{token}</mn>" if token.isdigit() else self.atom(token, script, "").mathml

    def group(self, script: bool) -> str:
        """The rest of a group whose brace was taken."""
        inside = self.row(("}",), script)
        self.expect("}")
        return inside

    def row(self, ends: tuple[str, ...], script: bool = False, before: str = "") -> str:
        """All up to a token that ends it, which is left, as one element; `before` is the kind of what is in front."""
        atoms: list[Atom] = []
        kind = before
        while (token := self.peek()) not in ends:
            if not token:
                raise ValueError(f"{' or '.join(ends)} is missing at the end")
            atom = self.scripted(self.atom(self.take(), script, kind))
            kind = atom.kind if atom.kind != "space" else kind
            atoms.append(atom)
        pieces = [atom.mathml for atom in (atoms if script else with_thin_spaces(atoms)) if atom.mathml]
        others = [piece for piece in pieces if not piece.startswith(("<mtext", "<mspace"))]
        if len(pieces) > 1 and len(others) == 1 and OPERATOR.match(others[0]):
            pieces.append("<mi></mi>")
        return pieces[0] if len(pieces) == 1 else f"<mrow>{''.join(pieces)}</mrow>"

    def scripted(self, base: Atom) -> Atom:
        """An atom with what is below and above it."""
        lower, upper, primes = "", "", ""
        while (token := self.peek()) in ("_", "^", "'"):
            self.take()
            if token == "'" and not upper:
                primes += "′"
            elif token == "_" and not lower:
                lower = self.argument(script=True)
            elif token == "^" and not upper:
                upper = self.argument(script=True)
            else:
                raise ValueError(f"a second {token} on one symbol")
        if primes:
            marks = f'<mo lspace="0" rspace="0">{primes}</mo>'
            upper = f"<mrow>{marks}{upper}</mrow>" if upper else marks
        if not lower and not upper:
            return base
        below, above = ("under", "over") if base.limits else ("sub", "sup")
        tag = f"m{below if lower else ''}{above if upper else ''}"
        return base._replace(mathml=f"<{tag}>{base.mathml or '<mrow></mrow>'}{lower}{upper}</{tag}>")

    def atom(self, token: str, script: bool, before: str) -> Atom:
        """What a token begins; `before` is the kind of the atom in front of it."""
        if token == "{":
            return Atom(self.group(script))
        if token.isdigit():
            return Atom(f"<mn>{token}{self.digits()}</mn>")
        if token.isascii() and token.isalpha():
            return Atom(f"<mi>{token}</mi>")
        if token in LETTERS:
            sign, kind = LETTERS[token]
            return Atom(
                f"<mi>{sign}</mi>" if kind == "letter" else f'<mi mathvariant="normal">{html.escape(sign)}</mi>'
            )
        if token in SIGNS:
            return sign_atom(*SIGNS[token], script, before)
        if token in SPACES:
            width = SPACES[token] / 18
            return Atom(f'<mspace width="{width:.3g}em"/>' if width else "", "space")
        if token in FUNCTIONS:
            return Atom(f"<mi>{token[1:]}</mi>", "op")
        if token in LIMITS:
            return Atom(f'<mo movablelimits="true" lspace="0" rspace="0">{LIMITS[token]}</mo>', "op", limits=True)
        return self.command(token, script)

    def digits(self) -> str:
        """The rest of a number; {,} stands between its thousands."""
        found = ""
        while True:
            after = "".join(self.tokens[self.place : self.place + 3])
            if (token := after[:1]).isdigit() or re.match(r"\.\d", after):
                found += token
                self.place += 1
            elif after == "{,}":
                found += ","
                self.place += 3
            else:
                return found

    def command(self, token: str, script: bool) -> Atom:
        """What a command makes of what follows it."""
        if token in ("\\frac", "\\tfrac"):
            made = f"<mfrac>{self.argument(script)}{self.argument(script)}</mfrac>"
            return Atom(made if token == "\\frac" else f'<mstyle displaystyle="false">{made}</mstyle>')
        if token == "\\sqrt":
            return Atom(f"<msqrt>{self.argument(script)}</msqrt>")
        if token == "\\text":
            return Atom(f"<mtext>{html.escape(self.words()).replace(' ', chr(0xA0))}</mtext>")
        if token in ("\\operatorname", "\\mathrm"):
            words = html.escape(self.words())
            variant = ' mathvariant="normal"' if len(words) == 1 else ""
            return Atom(f"<mi{variant}>{words}</mi>", "op" if token == "\\operatorname" else "ord")
        if token == "\\mathbf":
            return Atom(f"<mi>{self.bold()}</mi>")
        if token in ACCENTS:
            accent = f'<mo stretchy="false">{ACCENTS[token]}</mo>'
            return Atom(f'<mover accent="true">{self.argument(script)}{accent}</mover>')
        if token in ("\\underset", "\\overset"):
            aside, base = self.argument(script=True), self.argument(script)
            tag = "munder" if token == "\\underset" else "mover"
            return Atom(f"<{tag}>{base}{aside}</{tag}>")
        if token in SIZES:
            sign = self.fence()
            size = f'minsize="{SIZES[token]}" maxsize="{SIZES[token]}"'
            kind = next((kind for one, kind in SIGNS.values() if one == sign), "ord")
            made = f'<mo stretchy="true" symmetric="true" {size} lspace="0" rspace="0">{sign}</mo>'
            return Atom(f"<mrow>{made}<mi></mi></mrow>", kind)  # alone under an exponent, it would lose its size
        if token == "\\left":
            left = self.fence()
            inside = self.row(("\\right",), script)
            self.expect("\\right")
            return Atom(fenced(left, inside, self.fence()))
        if token == "\\begin":
            return self.environment()
        raise ValueError(f"{token} is not known to tools/pages/mathml.py, or stands where it does not belong")

    def bold(self) -> str:
        """The bold letters and digits that a command takes."""
        plain = self.words() if self.peek() == "{" else self.take()
        if not plain or not all(sign in BOLD for sign in plain):
            raise ValueError(f"\\mathbf takes letters and digits, not {plain!r}")
        return "".join(chr(BOLD[sign]) for sign in plain)

    def fence(self) -> str:
        """The sign behind a command that gives it a size."""
        token = self.take()
        if token != "." and token not in FENCES:
            raise ValueError(f"{token or 'the end'} is no bracket that could be given a size")
        return "" if token == "." else FENCES[token]

    def environment(self) -> Atom:
        """A matrix, or lines that are aligned."""
        name = self.words()
        if name not in ALIGNED and name not in MATRICES:
            raise ValueError(f"the environment {name} is not known to tools/pages/mathml.py")
        aligned = name in ALIGNED
        rows: list[list[str]] = [[]]
        while True:
            second = aligned and len(rows[-1]) % 2 == 1  # what follows & goes on from what is in front of it
            rows[-1].append(self.row(("&", "\\\\", "\\end"), before="ord" if second else ""))
            token = self.take()
            if token == "\\\\":
                rows.append([])
            elif token == "\\end":
                break
        if (end := self.words()) != name:
            raise ValueError(f"\\begin{{{name}}} ends as {end}")
        if rows[-1] == ["<mrow></mrow>"]:
            rows.pop()
        if not aligned:
            left, right = MATRICES[name]
            return Atom(fenced(left, table(rows, ("centre",)), right))
        return Atom(table(rows, ("right", "left"), ' displaystyle="true"'))


def sign_atom(sign: str, kind: str, script: bool, before: str) -> Atom:
    """A sign with the space that TeX leaves around it."""
    text = html.escape(sign)
    if kind in ("open", "close"):
        return Atom(f'<mo stretchy="false">{text}</mo>', kind)
    if kind == "bin" and before in UNARY_AFTER:
        return Atom(f'<mo form="prefix" lspace="0" rspace="0">{text}</mo>')
    if kind == "ord":
        return Atom(f'<mo stretchy="false" lspace="0" rspace="0">{text}</mo>', kind)
    if script and kind != "inner":
        around = "0" if kind == "punct" else "0.08em"  # TeX leaves none; so the signs do not touch
        return Atom(f'<mo form="infix" stretchy="false" lspace="{around}" rspace="{around}">{text}</mo>', kind)
    spaces = {"bin": ("0.222em",) * 2, "rel": ("0.278em",) * 2, "punct": ("0", "0.167em"), "inner": ("0", "0")}
    left, right = spaces[kind]
    return Atom(f'<mo form="infix" stretchy="false" lspace="{left}" rspace="{right}">{text}</mo>', kind)


def with_thin_spaces(atoms: list[Atom]) -> list[Atom]:
    """The atoms, and between them the thin spaces that TeX leaves beside functions, sums and dots."""
    found: list[Atom] = []
    before = Atom("", "")
    for atom in atoms:
        pair = (before.kind, atom.kind)
        beside_op = "op" in pair and set(pair) <= {"op", "ord", "close", "inner"} and pair != ("op", "close")
        beside_dots = "inner" in pair and set(pair) <= {"inner", "ord", "op", "close", "open", "punct"}
        if beside_op or (beside_dots and pair not in (("open", "inner"), ("inner", "close"), ("punct", "inner"))):
            found.append(Atom(THIN, "space"))
        found.append(atom)
        before = atom
    return found


def fenced(left: str, inside: str, right: str) -> str:
    """Something between brackets of its height."""

    def bracket(sign: str, form: str) -> str:
        size = 'fence="true" stretchy="true" symmetric="true" lspace="0" rspace="0"'
        return f'<mo form="{form}" {size}>{sign}</mo>' if sign else ""

    return f"<mrow>{bracket(left, 'prefix')}{inside}{bracket(right, 'postfix')}</mrow>"


def table(rows: list[list[str]], sides: tuple[str, ...], more: str = "") -> str:
    """A table. Browsers go by the classes of its cells, other readers by `columnalign`."""
    width = max(map(len, rows))
    lines = "".join(
        "<mtr>" + "".join(f'<mtd class="{sides[n % len(sides)]}">{cell}</mtd>' for n, cell in enumerate(row)) + "</mtr>"
        for row in rows
    )
    columns = " ".join(sides[n % len(sides)].replace("centre", "center") for n in range(width))
    return f'<mtable columnalign="{columns}"{more}>{lines}</mtable>'
