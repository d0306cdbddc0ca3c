"""Small mistakes in a piece of code, one at a time: what `mutants.py` holds the exercises' checkers against.

Operators of two kinds. The general ones are those of mutmut and cosmic-ray: another operator, another bound, another
constant, an argument or a statement less. The others are what goes wrong with tensors: another axis, two axes of an
index swapped, a transpose or a scale forgotten, letters of an einsum swapped, one argument taken for another. Neither
tool has any of these, and mutmut 3.8 would bring a user interface, cosmic-ray 8.7 a database and a web client. So the
first kind is written here, too.
"""

from __future__ import annotations

import ast
import copy
import hashlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Made = Iterator[tuple[str, ast.AST | None]]  # what is done, and what comes instead; `None` drops a statement
Path = tuple[tuple[str, int | None], ...]

ARITHMETIC: dict[type[ast.operator], tuple[type[ast.operator], ...]] = {
    ast.Add: (ast.Sub, ast.Mult),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div, ast.Add),
    ast.Div: (ast.Mult, ast.FloorDiv),
    ast.FloorDiv: (ast.Div, ast.Mod, ast.Mult),
    ast.Mod: (ast.FloorDiv, ast.Mult),
    ast.Pow: (ast.Mult, ast.Div),
    ast.MatMult: (ast.Mult,),
    ast.BitAnd: (ast.BitOr, ast.BitXor),
    ast.BitOr: (ast.BitAnd, ast.BitXor),
    ast.BitXor: (ast.BitAnd, ast.BitOr),
}
COMMUTE = (ast.Add, ast.Mult, ast.BitAnd, ast.BitOr, ast.BitXor)
COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt, ast.LtE),
    ast.Eq: (ast.NotEq, ast.GtE, ast.LtE),
    ast.NotEq: (ast.Eq, ast.Lt, ast.Gt),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
PEERS: list[tuple[str, ...]] = [
    *(("sum", "mean", "amax"), ("amax", "amin"), ("mean", "sum"), ("argmax", "argmin"), ("any", "all"), ("all", "any")),
    *(("sin", "cos"), ("cos", "sin"), ("exp", "exp2"), ("sqrt", "square"), ("square", "abs"), ("abs", "square")),
    *(("norm", "sum"), ("tril", "triu"), ("maximum", "minimum"), ("max", "min"), ("min", "max"), ("std", "var")),
    *(("repeat_interleave", "repeat"), ("repeat", "repeat_interleave"), ("softmax", "log_softmax")),
    *(("zeros", "ones"), ("ones", "zeros"), ("zeros_like", "ones_like"), ("round", "floor"), ("sigmoid", "tanh")),
    *(("argsort", "argmin"), ("logaddexp", "maximum"), ("sorted", "list"), ("cat", "stack")),
]
SYMMETRIC = {"transpose", "swapaxes", "maximum", "minimum", "logaddexp", "max", "min"}  # in the last two arguments
ROOMS = {"torch", "F", "math", "xp"}  # names whose attributes are functions, not methods


@dataclass(frozen=True)
class Mutant:
    """source: the code with one change; change: that change in words; line: where, in the code as `ast` writes it."""

    source: str
    change: str
    line: int

    @property
    def key(self) -> str:
        return hashlib.sha256(self.source.encode()).hexdigest()[:12]


def mutants(source: str) -> list[Mutant]:
    """All single changes to the bodies of the functions in `source`, each once."""
    plain = ast.unparse(ast.parse(source))
    tree = ast.parse(plain)  # so that lines are those of what is shown
    found: dict[str, Mutant] = {}
    for path, node, names in _places(tree):
        for operator in OPERATORS:
            for what, new in operator(node, names):
                text = ast.unparse(_replaced(tree, path, new))
                if text != plain and text not in found:
                    change = f"{what}: {_short(node)} -> {_short(new)}"
                    found[text] = Mutant(text, change, getattr(node, "lineno", 0))
    return list(found.values())


def _short(node: ast.AST | None) -> str:
    text = "nothing" if node is None else " ".join(ast.unparse(node).split())
    return text if len(text) <= 70 else text[:67] + "..."


def _places(tree: ast.Module) -> Iterator[tuple[Path, ast.AST, list[str]]]:
    """Every node in a function's body, how it is reached, and the names that mean something there."""

    def walk(node: ast.AST, path: Path, names: list[str]) -> Iterator[tuple[Path, ast.AST, list[str]]]:
        if isinstance(node, ast.FunctionDef):
            names = [*names, *(one.arg for one in node.args.args)]
            names += [one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)]
            names = list(dict.fromkeys(names))
        for field, value in ast.iter_fields(node):
            if (isinstance(node, ast.FunctionDef) and field != "body") or _number(node) is not None:
                continue
            for number, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
                is_text = isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)
                if not isinstance(child, ast.AST) or is_text:
                    continue
                here = (*path, (field, number))
                if path:
                    yield here, child, names
                yield from walk(child, here, names)

    yield from walk(tree, (), [])


def _replaced(tree: ast.Module, path: Path, new: ast.AST | None) -> ast.Module:
    changed = copy.deepcopy(tree)
    node: Any = changed
    for field, number in path[:-1]:
        node = getattr(node, field) if number is None else getattr(node, field)[number]
    field, number = path[-1]
    if number is None:
        setattr(node, field, new)
    elif new is None:
        rest = getattr(node, field)
        del rest[number]
        if not rest:
            rest.append(ast.Pass())
    else:
        getattr(node, field)[number] = new
    return ast.fix_missing_locations(changed)


def _with(node: ast.AST, **fields: Any) -> ast.AST:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def _swaps(items: list[Any]) -> Iterator[list[Any]]:
    """Neighbours exchanged, each pair in turn."""
    for i in range(len(items) - 1):
        yield [*items[:i], items[i + 1], items[i], *items[i + 2 :]]


def _without(items: list[Any]) -> Iterator[list[Any]]:
    for i in range(len(items)):
        yield [*items[:i], *items[i + 1 :]]


def _arithmetic(node: ast.AST, names: list[str]) -> Made:
    if isinstance(node, (ast.BinOp, ast.AugAssign)):
        for other in ARITHMETIC.get(type(node.op), ()):
            yield "another operator", _with(node, op=other())
    if isinstance(node, ast.BinOp):
        if not isinstance(node.op, COMMUTE):
            yield "sides swapped", _with(node, left=node.right, right=node.left)
        yield "one side dropped", node.left
        yield "one side dropped", node.right


def _comparison(node: ast.AST, names: list[str]) -> Made:
    if isinstance(node, ast.Compare):
        for other in COMPARISONS.get(type(node.ops[0]), ()):
            yield "another comparison", _with(node, ops=[other(), *node.ops[1:]])


def _logic(node: ast.AST, names: list[str]) -> Made:
    if isinstance(node, ast.UnaryOp) and _number(node) is None:
        yield "sign or negation dropped", node.operand
    if isinstance(node, ast.BoolOp):
        yield "and for or", _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
        for value in node.values:
            yield "one condition only", value
    if isinstance(node, ast.IfExp):
        yield "one branch only", node.body
        yield "one branch only", node.orelse
    if isinstance(node, (ast.If, ast.While)):
        for truth in (True, False):
            yield f"always {truth}", _with(node, test=ast.Constant(truth))


def _number(node: ast.AST) -> float | int | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inside = _number(node.operand)
        return None if inside is None else -inside
    is_number = isinstance(node, ast.Constant) and type(node.value) in (int, float)
    return node.value if is_number else None  # type: ignore[attr-defined, no-any-return]


def _constant(node: ast.AST, names: list[str]) -> Made:
    value = _number(node)
    if value is not None:
        others = [value + 1, value - 1, 0]
        others += [2 * value, value / 2, -value] if isinstance(value, float) else [-value] * (value < 2)
        for other in others:  # -1 is taken for 1; a 2 for -2 would mostly be the same axis
            yield "another number", ast.parse(repr(other), mode="eval").body
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield "true for false", ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield "another text", ast.Constant("")
        terms = node.value.replace("->", ",").split(",") if "->" in node.value else []
        for number, term in enumerate(terms):
            for letters in _swaps(list(term)):
                changed = [*terms[:number], "".join(letters), *terms[number + 1 :]]
                yield "letters swapped", ast.Constant(f"{','.join(changed[:-1])}->{changed[-1]}")


def _call(node: ast.AST, names: list[str]) -> Made:
    if not isinstance(node, ast.Call):
        return
    called = getattr(node.func, "attr", getattr(node.func, "id", ""))
    for args in _swaps(node.args):
        if not (called in SYMMETRIC and args[-1] is node.args[-2]):
            yield "arguments swapped", _with(node, args=args)
    for args in _without(node.args):
        yield "an argument dropped", _with(node, args=args)
    for keywords in _without(node.keywords):
        yield "a keyword dropped", _with(node, keywords=keywords)
    if isinstance(node.func, ast.Attribute) and getattr(node.func.value, "id", "") not in ROOMS:
        yield "the method not called", node.func.value
    elif node.args and not isinstance(node.args[0], ast.Starred):
        yield "the function not called", node.args[0]
    for other in (peer for peers in PEERS if peers[0] == called for peer in peers[1:]):
        if called:
            func = _with(node.func, **{"attr" if isinstance(node.func, ast.Attribute) else "id": other})
            yield "another function", _with(node, func=func)


def _subscript(node: ast.AST, names: list[str]) -> Made:
    if isinstance(node, ast.Attribute) and node.attr in ("T", "mT"):
        yield "not transposed", node.value
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        yield "not indexed", node.value
    if isinstance(node, ast.Slice):
        for field in ("lower", "upper", "step"):
            bound = getattr(node, field)
            if bound is not None and not (field == "lower" and _number(bound) == 0):
                yield "a bound dropped", _with(node, **{field: None})
                for op in (ast.Add(), ast.Sub()) if _number(bound) is None else ():
                    yield "off by one", _with(node, **{field: ast.BinOp(bound, op, ast.Constant(1))})


def _sequence(node: ast.AST, names: list[str]) -> Made:
    if isinstance(node, (ast.Tuple, ast.List)):
        for elts in _swaps(node.elts):
            yield "parts swapped", _with(node, elts=elts)
        for elts in _without(node.elts) if isinstance(node.ctx, ast.Load) and len(node.elts) > 1 else ():
            yield "a part dropped", _with(node, elts=elts)
    if isinstance(node, ast.comprehension):
        for ifs in _without(node.ifs):
            yield "a condition dropped", _with(node, ifs=ifs)


def _statement(node: ast.AST, names: list[str]) -> Made:
    if isinstance(node, (ast.Assign, ast.AugAssign, ast.Expr, ast.If, ast.For, ast.While)):
        yield "a statement dropped", None
    if isinstance(node, ast.AugAssign):
        yield "assigned", ast.Assign([node.target], node.value, lineno=node.lineno)
    if isinstance(node, ast.Break):
        yield "continue for break", ast.Continue()


def _name(node: ast.AST, names: list[str]) -> Made:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in names:
        for other in itertools.filterfalse(node.id.__eq__, names):
            yield "another name", ast.Name(other, ast.Load())


OPERATORS: list[Callable[[ast.AST, list[str]], Made]] = [
    *(_arithmetic, _comparison, _logic, _constant, _call, _subscript, _sequence, _statement, _name),
]
