"""Examples for the pages of the API: of each public name, the shortest statement of a chapter that uses it.

Chapters are executed and compared, so that no example can be of yesterday, and none is written twice.
"""

from __future__ import annotations

import ast
import functools
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import nbformat

import mhalib
from tools.notebooks import notebooks
from tools.teaching import exercises

LONGEST = 400  # characters; more shows a chapter's figure, not a name's use
LEFT_OUT = {"set-up", "remove-cell", exercises.EXERCISE, exercises.SETUP}
SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return, ast.Assert)


class Example(NamedTuple):
    """A statement, and the page that executes it."""

    code: str
    page: str


def code_cells(path: Path) -> Iterator[str]:
    """The code of a chapter that everybody sees, without what is for IPython alone."""
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "code" and not LEFT_OUT & set(cell.metadata.get("tags", [])):
            yield "\n".join("" if line.lstrip().startswith(("%", "!")) else line for line in cell.source.split("\n"))


def imported(tree: ast.AST) -> dict[str, str]:
    """What names of the package a piece of code imports: here -> the full name, of which a module's is its own."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mhalib"):
            for one in node.names:
                home = mhalib._HOMES.get(one.name) if node.module == "mhalib" else None
                found[one.asname or one.name] = ".".join(filter(None, (node.module, home, one.name)))
        elif isinstance(node, ast.Import):
            found |= {one.asname or one.name: one.name for one in node.names if one.name == "mhalib"}
    return found


def full_name(node: ast.expr, known: Mapping[str, str]) -> str:
    """Of `attend` or `mhalib.attend` the name in the package; empty where it is something else."""
    if isinstance(node, ast.Name):
        return known.get(node.id, "")
    if isinstance(node, ast.Attribute):
        before = full_name(node.value, known)
        home = mhalib._HOMES.get(node.attr) if before == "mhalib" else None
        return ".".join(filter(None, (before, home, node.attr))) if before else ""
    return ""


def of_its_own(node: ast.AST) -> list[ast.expr]:
    """What a statement with a body says in its head."""
    if isinstance(node, ast.With):
        return [one.context_expr for one in node.items]
    if isinstance(node, (ast.If, ast.While)):
        return [node.test]
    if isinstance(node, ast.For):
        return [node.iter]
    return node.decorator_list if isinstance(node, (ast.ClassDef, ast.FunctionDef)) else []


def shown(lines: list[str], node: ast.stmt) -> str:
    """A statement as it is written, of one with a body its head."""
    heads = of_its_own(node)
    start = min([node.lineno, *(one.lineno for one in heads)])
    end = node.body[0].lineno - 1 if heads else node.end_lineno  # type: ignore[attr-defined]
    return textwrap.dedent("\n".join(lines[start - 1 : end])).strip()


def uses(statement: ast.stmt, known: Mapping[str, str]) -> dict[str, bool]:
    """The full names that a statement uses, and whether it calls each."""
    found: dict[str, bool] = {}
    parts: list[ast.AST] = [*of_its_own(statement)] or [statement]
    for node in (one for part in parts for one in ast.walk(part)):
        for expression, is_call in ((getattr(node, "func", None), True), (node, False)):
            name = full_name(expression, known) if isinstance(expression, (ast.Name, ast.Attribute)) else ""
            if name:
                found[name] = found.get(name, False) or is_call
    return found


@functools.cache
def _all(chapters: Path) -> dict[str, list[tuple[bool, Example]]]:
    """Of each full name all statements that may be shown, and whether each calls it."""
    found: dict[str, list[tuple[bool, Example]]] = {}
    for path in sorted(chapters.glob("*.ipynb")):
        known: dict[str, str] = {}
        for source in code_cells(path):
            tree, lines = ast.parse(source), source.split("\n")
            known |= imported(tree)
            for node in ast.walk(tree):
                if not isinstance(node, ast.stmt) or not (isinstance(node, SIMPLE) or of_its_own(node)):
                    continue
                code = shown(lines, node)
                if len(code) <= LONGEST:
                    for name, is_call in uses(node, known).items():
                        found.setdefault(name, []).append((is_call, Example(code, path.stem)))
    return found


def example_of(full: str, page: str, chapters: Path = notebooks.CHAPTERS) -> Example | None:
    """The shortest statement that calls a public name, if there is one in the page that builds it in that page; where
    nothing calls it, one that uses it; `None` where no chapter does."""
    given = _all(chapters).get(full)
    if given is None:
        return None
    return min(given, key=lambda one: (not one[0], one[1].page != page, len(one[1].code), one[1].code))[1]
