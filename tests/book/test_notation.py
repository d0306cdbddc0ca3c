"""One name for one thing: every page, formula and cell against the tables of chapters/notation.md.

Four rules. A symbol in a formula stands in the tables, an index only where indices stand. A shape in a text or a
comment is made of sizes, and weights have the axes (B, h, Q, K) in this order. A name that another library uses for
a thing of ours stands only where that library is named. The letters of sizes hold sizes in code, too.
"""

from __future__ import annotations

import ast
import re
from collections import Counter

import pytest
from book_text import CHAPTERS, PAGES, TEXTS, Text, formulas

from tools.notebooks import markdown_pages as pages

NOTATION = PAGES["notation"].markdown[0]
TABLES = [table for table in pages.tables(NOTATION) if table.trail[-1] == "The one table"]
SIZES, ARRAYS, WEIGHTS, VECTORS, INDICES, LOCAL = (table.rows for table in TABLES)
FORBIDDEN = {
    name: pages.code_names(ours)
    for table in pages.tables(NOTATION)
    if table.trail[-1] == "Names that this book does not use"
    for ours, theirs in table.rows
    for name in pages.code_names(theirs)
}
OTHERS = re.compile(
    r"torch\.nn|nn\.Multi|torch's|scaled_dot_product|to_torch|from_torch|keras|flax|D2L|Dive into|Harvard|Annotated"
    r"|Vaswani|Hugging Face|einops|other libraries",
    flags=re.IGNORECASE,
)


def bold(formula: str) -> str:
    """`\\mathbf{q}` -> 𝐪: a symbol of its own, in one character."""
    start = ord("𝐚") - ord("a")
    pattern = r"\\(?:mathbf|boldsymbol|bm)\s*(?:\{([a-z])\}|([a-z])(?![A-Za-z]))"
    return re.sub(pattern, lambda found: chr(ord(found[1] or found[2]) + start), formula)


def symbols(cell: str) -> list[str]:
    return [bold(symbol) for symbol in re.findall(r"\$([^$]+)\$", cell)]


def pages_of(cell: str) -> list[str]:
    """`[3](03_name.ipynb), …` -> the names of the files that are linked."""
    return re.findall(r"\]\(([^)]+)\.(?:ipynb|md)\)", cell)


def declared(page: str) -> set[str]:
    """Symbols and indices that `page` may use."""
    rows = [row for row in (*SIZES, *ARRAYS, *WEIGHTS, *VECTORS, *INDICES) if row[0] != "–"]
    own = [row for row in LOCAL if page in pages_of(row[1])]
    return {symbol for row in (*rows, *own) for symbol in symbols(row[0])}


SIZE_LETTERS = {symbol for row in SIZES for symbol in symbols(row[0])}
NO_INDEX = {symbol for row in (*ARRAYS, *WEIGHTS, *VECTORS) for symbol in symbols(row[0])}


# Formulas

WORDS = re.compile(r"\\(?:text|mathrm|operatorname|textit|textbf|mathbb|begin|end|tag|label)\*?\{[^{}]*\}")
STYLES = re.compile(r"\\(?:hat|bar|tilde)(?![A-Za-z])")
GREEK = re.compile(r"\\(?:alpha|beta|gamma|delta|epsilon|theta|lambda|mu|pi|rho|sigma|tau|phi|psi|omega)(?![a-z])")
SCRIPT = r"[_^](?:\{[^{}]*\}|[^\s{}])"
OPERATOR = re.compile(rf"\\[A-Za-z]+((?:{SCRIPT})*)")  # a sum, a root: its scripts are read, its name is not
ATOM = re.compile(rf"[A-Za-z𝐚-𝐳](?:{SCRIPT})*(?:\s*\[[^\]]*\])?")


def letters(part: str) -> set[str]:
    return set(re.findall(r"[A-Za-z]", part))


def is_known(atom: str, known: set[str]) -> bool:
    """Is it a symbol of the table, such as d_v or W_i^q, or one with indices in the places of indices?"""
    letter, indices = atom[0], known - NO_INDEX
    scripts, _, brackets = atom.partition("[")
    below, above = ("".join(re.findall(rf"\{mark}(\{{[^{{}}]*\}}|[^\s{{}}])", scripts)).strip("{} ") for mark in "_^")
    above_letters = above.replace("⊤", "").strip()
    if not letters(brackets) <= indices or ("⊤" in above and letter in SIZE_LETTERS):  # i d + j is a place; N⊤ is none
        return False
    numbered = re.sub(r"^(\d+|h\s*-\s*1)$", "i", below)  # W_1^q is head 1's W_i^q
    if letter + (f"_{numbered}" if below else "") + (f"^{above_letters}" if letters(above) else "") in known:
        return True
    return letter in known and letters(below) <= indices and letters(above) <= indices


def unknown_symbols(formula: str, known: set[str]) -> set[str]:
    """Symbols of a formula that no table has, or with something in an index's place that is no index."""
    plain = re.sub(r"\\(?:bar|hat|tilde)\{(.)\}", r"\1", bold(formula))  # an accent on one letter, before its index
    plain = STYLES.sub("", WORDS.sub(" ", plain))
    greek = set(GREEK.findall(plain)) - known
    plain = GREEK.sub(" ", plain).replace(r"\top", "⊤")
    plain = re.sub(r"(?<![A-Za-z\\])e(?![A-Za-z_])", "", plain)  # Euler's number
    operators = OPERATOR.findall(plain)
    misplaced = {f"…_{letter}" for scripts in operators for letter in letters(scripts) & NO_INDEX}
    atoms = ATOM.findall(OPERATOR.sub(" ", plain))
    return greek | misplaced | {" ".join(atom.split()) for atom in atoms if not is_known(atom, known)}


def own_prose(text: Text) -> str:
    """Without the parts that speak other languages."""
    return re.sub(r"^(##+) The same thing elsewhere.*?(?=^#{2,3} Sources|\Z)", "", text.prose, flags=re.M | re.S)


def strange_symbols(text: Text) -> set[str]:
    known, prose = declared(text.name), own_prose(text)
    if text.name == "notation":  # declares the symbols of all pages
        known = known | {symbol for row in LOCAL for symbol in symbols(row[0])}
    return {symbol for formula in formulas(prose) for symbol in unknown_symbols(formula, known)}


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text.name)
def test_symbols_of_formulas_stand_in_the_table(text: Text) -> None:
    assert strange_symbols(text) == set(), "add a line to chapters/notation.md, or use the symbol that stands there"


@pytest.mark.parametrize(
    ("formula", "strange"),
    [
        (r"d = D/h", set()),
        (r"W_i^q x_t", set()),
        (r"W_1^q x_{t}", set()),
        (r"\mathbf{q}^\top W_i^{q\top} W_i^k \mathbf k_1", set()),
        (r"\mathbf{o} = \sum_i W_i^o \mathbf{h}_i", set()),
        (r"W_o^i", {"W_o^i"}),
        (r"\mathbf{u} h_i", {"𝐮"}),
        (r"\sum_j w_i[t, j] v_j", set()),
        (r"w_j = e^{s_j} / \sum_j e^{s_j}", set()),
        (r"(i+1)\,d", set()),
        (r"\text{softmax}(q k^\top / \sqrt{d})\, v", set()),
        (r"\mathbb{R}^{D \times D}", set()),
        (r"\frac{Q K^\top}{\sqrt{d_k}}", {"K^⊤", "d_k"}),
        (r"W^Q x", {"W^Q"}),
        (r"\sum_k w_k", {"…_k", "w_k"}),
        (r"w_i[t, q]", {"w_i[t, q]"}),
        (r"M x", {"M"}),
        (r"\alpha_{tj} v_j", {r"\alpha"}),
    ],
)
def test_a_strange_symbol_is_found(formula: str, strange: set[str]) -> None:
    assert unknown_symbols(formula, declared("page")) == strange


def said_twice(page: str) -> set[str]:
    """Symbols that stand in two lines of the tables, and names in code that do."""
    tables = [table for table in pages.tables(page) if table.trail[-1] == "The one table"]
    all_symbols = [symbol for table in tables for row in table.rows for symbol in symbols(row[0])]
    all_names = [name for table in tables[:3] for row in table.rows for name in pages.code_names(row[1])]
    return {name for each in (all_symbols, all_names) for name, times in Counter(each).items() if times > 1}


def test_no_symbol_and_no_name_has_two_meanings() -> None:
    assert said_twice(NOTATION) == set()


@pytest.mark.parametrize(
    ("right", "wrong", "twice"),
    [
        ("| $K$ | `num_kvpairs` |", "| $Q$ | `num_kvpairs` |", "Q"),
        ("| $w$ | `weights` |", "| $w$ | `scores` |", "scores"),
        (r"| $\tau$ | [8]", "| $q$ | [8]", "q"),
    ],
)
def test_a_second_meaning_is_found(right: str, wrong: str, twice: str) -> None:
    assert right in NOTATION
    assert said_twice(NOTATION.replace(right, wrong)) == {twice}


def test_tables_of_names_fit_each_other() -> None:
    ours = {name for rows in (SIZES, ARRAYS, WEIGHTS) for row in rows for name in pages.code_names(row[1])}
    assert not ours & FORBIDDEN.keys()
    assert {name for names in FORBIDDEN.values() for name in names} <= ours  # each replaces a name of ours
    files = {path.stem for path in pages.CHAPTERS.iterdir()}
    assert {page for row in LOCAL for page in pages_of(row[1])} <= files
    assert all(len(pages_of(row[1])) == row[1].count(",") + 1 for row in LOCAL)


# Shapes

SHAPE = re.compile(r"(?<![\w.)\]])\(((?:[^()\n,]+,)+[^()\n,]*)\)")
ORDER = ("B", "h", "Q", "K")


def wrong_shapes(text: str) -> list[str]:
    """Shapes with an axis that the table does not have, or with weights' axes in another order."""
    found = []
    for inside in SHAPE.findall(text.replace("$", "")):
        axes = [axis.strip() for axis in re.sub(r"\\[,; ]", " ", inside).split(",") if axis.strip()]
        factors = [re.split(r"\s*(?:\*|·|\\cdot)\s*|\s+", axis) for axis in axes]
        if not any(axis in ("B", "Q", "K", "D", "N") for parts in factors for axis in parts):
            continue  # a call, an aside
        single = {part for parts in factors for part in parts if re.fullmatch(r"[A-Za-z](_\w)?", part)}
        order = [part for parts in factors for part in parts if part in ORDER]
        weights = {"Q", "K"} <= set(order)
        if single - SIZE_LETTERS or (weights and order != sorted(order, key=ORDER.index)):
            found.append(f"({inside})")
    return found


def comments(code: str) -> str:
    return "\n".join(re.findall(r'#.*$|""".*?"""', code, flags=re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text.name)
def test_shapes_are_made_of_the_table_s_sizes(text: Text) -> None:
    prose = re.sub(r"`[^`\n]*`", "", own_prose(text))
    assert wrong_shapes(prose + "\n" + "\n".join(map(comments, text.code))) == []


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("weights are $(B, h, Q, K)$, scores (B·h, Q, K), a mask (B, 1, 1, K)", []),
        ("# (B, N, 4, words), (1, h, N, N), (B * h, N, d), (Q, d_v)", []),
        ("(see Q, K, and V)", ["(see Q, K, and V)"]),
        ("weights (B, h, K, Q)", ["(B, h, K, Q)"]),
        ("weights (h, B, Q, K)", ["(h, B, Q, K)"]),
        ("tokens (B, T, D)", ["(B, T, D)"]),
        ("x is (N, L, E)", ["(N, L, E)"]),
    ],
)
def test_a_wrong_shape_is_found(text: str, wrong: list[str]) -> None:
    assert wrong_shapes(text) == wrong


# Names of other libraries


def foreign_names(text: Text) -> list[str]:
    """Names that stand for a thing of ours, in a paragraph or a cell that names no other library."""
    parts = [*re.split(r"\n\s*\n|\n(?=[|-])", own_prose(text)), *text.code]
    words = {name: re.compile(rf"(?<![\w.]){name}(?!\w)") for name in FORBIDDEN}
    return [name for part in parts if not OTHERS.search(part) for name, word in words.items() if word.search(part)]


@pytest.mark.parametrize("text", [text for text in TEXTS if text.name != "notation"], ids=lambda text: text.name)
def test_other_libraries_names_stand_only_where_they_are_named(text: Text) -> None:
    assert foreign_names(text) == []


def test_a_foreign_name_is_found() -> None:
    prose = "The width `d_model` is 64.\n\ntorch's `embed_dim` is $D$.\n\n### The same thing elsewhere\n\n| `n_heads` |"
    code = "seq_len = 5", "layer = torch.nn.MultiheadAttention(embed_dim=8)"
    assert foreign_names(Text("page", (prose,), code)) == ["d_model", "seq_len"]


# Letters in code


def is_size(value: ast.expr) -> bool:
    """Numbers, other sizes, arithmetic with them, and what is read from a shape or a layer."""
    if isinstance(value, ast.Tuple):
        return all(map(is_size, value.elts))
    if isinstance(value, ast.BinOp):
        return is_size(value.left) and is_size(value.right) and not isinstance(value.op, ast.MatMult)
    if isinstance(value, ast.Constant):
        return isinstance(value.value, int)
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id in ("len", "int")
    if isinstance(value, ast.Subscript):
        return is_size(value.value)
    if isinstance(value, ast.Attribute):
        return value.attr in ("shape", "num_heads", "num_hiddens", "head_dim")
    return isinstance(value, ast.Name)


def without_magic(code: str) -> str:
    return re.sub(r"^(\s*)[%!].*$", r"\1pass", code, flags=re.MULTILINE)


def misused_letters(code: str) -> set[str]:
    """Letters of sizes to which a cell gives something else."""
    found = set()
    for node in ast.walk(ast.parse(without_magic(code))):
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value] * len(names)
            pairs = zip(names, values, strict=len(names) == len(values))
            found |= {
                name.id
                for name, value in pairs
                if isinstance(name, ast.Name) and name.id in SIZE_LETTERS and not is_size(value)
            }
    return found


@pytest.mark.parametrize("text", CHAPTERS, ids=lambda text: text.name)
def test_letters_of_sizes_hold_sizes(text: Text) -> None:
    assert {letter for code in text.code for letter in misused_letters(code)} == set()


@pytest.mark.parametrize(
    ("code", "misused"),
    [
        ("B, N, D = x.shape\nh = 3\nd = D // h", set()),
        ("B, h = 2, layer.num_heads", set()),
        ("Q = x @ W_q", {"Q"}),
        ("Q, K = W_q(x), W_k(x)", {"Q", "K"}),
        ("d = 'left'", {"d"}),
        ("%pip install x\nN = torch.eye(3)", {"N"}),
    ],
)
def test_a_misused_letter_is_found(code: str, misused: set[str]) -> None:
    assert misused_letters(code) == misused
