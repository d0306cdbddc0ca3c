"""Which tests and notebooks a changed file touches, read from the code: who uses whose names, and who names a file.

A file is a set of definitions, and each of them uses names: of its own file, of another that it imports, and, by its
arguments, fixtures of the conftest.py above. What a test reaches that way is what touches it. Where a name cannot be
followed, the whole file that should hold it counts. A file that is no Python touches who names it in a text.

pytest-testmon was tried in its place: after a sentence of the glossary it ran none of 94 tests, 80 of which read that
page, for it follows Python alone; and it must first run everything once.
"""

from __future__ import annotations

import ast
import functools
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import tools

BODY = ""  # stands for what a file does when it is imported
DOTTED = re.compile(r"\b(?:mhalib(?:_classroom)?|tools)(?:\.(?!txt\b)\w+)+")  # mhalib.txt is a file
PACKAGES = (*tools.PACKAGES, "tools")
FOLDERS_OF_MODULES = ("tests", "tests/book", "tests/library")  # imported by their bare names


@dataclass
class Definition:
    """What a function, a class or an assignment uses: names with their dots, and the texts that stand in it."""

    names: set[str] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)

    def add(self, node: ast.AST) -> None:
        inner: set[ast.AST] = set()  # of a.b.c only the whole counts
        for one in ast.walk(node):
            if isinstance(one, ast.Constant) and isinstance(one.value, str):
                self.texts.add(one.value)
            elif isinstance(one, ast.arg):
                self.names.add(one.arg)
            elif isinstance(one, (ast.Name, ast.Attribute)) and one not in inner and (name := dotted(one)):
                self.names.add(name)
                inner.update(ast.walk(one))


def dotted(node: ast.AST) -> str:
    """`a.b.c` of such an expression; nothing for others, as `a().b`."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (before := dotted(node.value)):
        return f"{before}.{node.attr}"
    return ""


class File:
    """One Python file or notebook: its definitions by name, and where its imported names come from."""

    def __init__(self, source: str, module: str = "", is_package: bool = False) -> None:
        self.package = module if is_package else module.rpartition(".")[0]
        self.definitions: dict[str, Definition] = {BODY: Definition()}
        self.imports: dict[str, str] = {}  # local name -> dotted name elsewhere
        self._read(ast.parse(source).body)

    def _read(self, statements: Iterable[ast.stmt]) -> None:
        for one in statements:
            for inner in ast.walk(one):
                if isinstance(inner, ast.Import):
                    for name in inner.names:
                        self.imports[name.asname or name.name.partition(".")[0]] = (
                            name.name if name.asname else name.name.partition(".")[0]
                        )
                elif isinstance(inner, ast.ImportFrom):
                    above = self.package.split(".")[: len(self.package.split(".")) + 1 - inner.level]
                    start = ".".join([*(above if inner.level else ()), *filter(None, [inner.module])])
                    self.imports.update({name.asname or name.name: f"{start}.{name.name}" for name in inner.names})
            if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                self._define([one.name], one)
            elif isinstance(one, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
                targets = one.targets if isinstance(one, ast.Assign) else [one.target]
                names = [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
                self._define(names or [BODY], one)
            elif isinstance(one, (ast.If, ast.Try, ast.With)):
                self._read(child for child in ast.walk(one) if isinstance(child, ast.stmt) and child is not one)
            elif not isinstance(one, (ast.Import, ast.ImportFrom)) and not is_text(one):
                self.definitions[BODY].add(one)

    def _define(self, names: list[str], node: ast.AST) -> None:
        for name in names:
            self.definitions.setdefault(name, Definition()).add(node)


def is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def code_of(notebook: Path) -> str:
    """The code cells, without what is Jupyter's own."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    return re.sub(r"^([ \t]*)[%!].*$", r"\1pass", code, flags=re.MULTILINE)


class Tree:
    """All Python files and chapters below a folder, and what their names lead to."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.modules = {module: path for path in self._python() for module in self._names(path)}

    def _python(self) -> Iterator[Path]:
        for package in PACKAGES:
            yield from sorted((self.root / package).rglob("*.py"))
        for folder in FOLDERS_OF_MODULES:
            yield from sorted((self.root / folder).glob("*.py"))

    def _names(self, path: Path) -> Iterator[str]:
        """`mhalib/data/__init__.py` is mhalib.data; `tests/book/served.py` is served. A conftest.py has its folder."""
        parts = path.relative_to(self.root).with_suffix("").parts
        if parts[0] in PACKAGES:
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        elif parts[-1] != "conftest":
            yield parts[-1]

    @functools.cache  # noqa: B019 - a tree lives as long as the program
    def file(self, path: Path) -> File:
        is_page = path.suffix == ".ipynb"
        (module,) = ([] if is_page else [*self._names(path)]) or [""]
        source = code_of(path) if is_page else path.read_text(encoding="utf-8")
        try:
            return File(source, module, path.name == "__init__.py")
        except SyntaxError as error:
            where, line = path.relative_to(self.root).as_posix(), (error.text or "").strip()
            raise ValueError(f"{where}: {error.msg} in line {error.lineno} of its code, {line!r}: mend it") from error

    def tests(self) -> list[Path]:
        return sorted((self.root / "tests").rglob("test_*.py"))

    def notebooks(self) -> list[Path]:
        return sorted((self.root / "chapters").glob("*.ipynb"))

    def conftests(self, path: Path) -> list[Path]:
        """From the file's folder upwards."""
        folders = [one for one in path.parents if one == self.root or self.root in one.parents]
        return [folder / "conftest.py" for folder in folders if (folder / "conftest.py").exists()]

    def reached(self, start: Path) -> tuple[set[Path], set[str]]:
        """The files that a test or a notebook uses something of, and the texts in what it uses."""
        conftests = self.conftests(start)
        todo = [(start, name) for name in self.file(start).definitions]
        todo += [(path, BODY) for path in conftests]
        todo += [(path, "pytest_plugins") for path in conftests if "pytest_plugins" in self.file(path).definitions]
        seen: set[tuple[Path, str]] = set()
        texts: set[str] = set()
        while todo:
            here = todo.pop()
            if here in seen:
                continue
            seen.add(here)
            path, name = here
            if name != BODY:
                todo.append((path, BODY))
            used = self.file(path).definitions.get(name, Definition())
            texts |= used.texts
            plugins = used.texts if name == "pytest_plugins" else set()
            for module in {found for text in used.texts for found in DOTTED.findall(text)} | plugins:
                todo += self._follow(module)
            for one in used.names:
                todo += self._of_name(path, one)
                if path == start or path in conftests:  # an argument of a test or a fixture is a fixture
                    todo += [(place, one) for place in conftests if one in self.file(place).definitions]
        return {path for path, _ in seen}, texts

    def _of_name(self, path: Path, name: str) -> list[tuple[Path, str]]:
        head, _, rest = name.partition(".")
        file = self.file(path)
        if head in file.definitions:
            return [(path, head)]
        return self._follow(f"{file.imports[head]}.{rest}".rstrip(".")) if head in file.imports else []

    def _follow(self, name: str) -> list[tuple[Path, str]]:
        """Where `module.name.and.more` is defined; all of the module, if it is the module itself or cannot be seen."""
        module, rest = name, ""
        while module and module not in self.modules:
            module, _, last = module.rpartition(".")
            rest = f"{last}.{rest}".rstrip(".")
        if not module:
            return []
        path, head = self.modules[module], rest.partition(".")[0]
        file = self.file(path)
        if head in file.definitions or head.startswith("__"):
            return [(path, head)]
        if head in file.imports:
            return [(path, BODY), *self._of_name(path, rest)]
        imported = [place for one in file.imports.values() for place in self._follow(one)] if head else []
        return [(path, one) for one in file.definitions] + imported


def is_named(path: str, text: str) -> bool:
    """Whether a text in code is a file's path or name, ends in it, or is a folder above it but not a whole package.

    The stem of a file that is no Python counts, too: `load("translator")`.
    """
    folder, _, name = path.rpartition("/")
    text = text.strip("/")
    if not text or text in PACKAGES:
        return False
    stem = name if name.endswith(".py") else name.partition(".")[0]
    return text in (path, name, stem) or text.endswith(f"/{name}") or f"{folder}/".startswith(f"{text}/")


class Affected:
    """Tests and notebooks, with what they reach, to be asked for one changed file after the other."""

    def __init__(self, root: Path) -> None:
        self.root = root
        tree = Tree(root)
        self.reached = {path: tree.reached(path) for path in [*tree.tests(), *tree.notebooks()]}
        self.conftests = {path: tree.conftests(path) for path in self.reached}

    def by(self, changed: str) -> set[Path]:
        """What the file touches; its path is relative to the root, and it may be gone. What it is itself counts."""
        path = self.root / changed
        return {one for one in self.reached if path == one or path in self.conftests[one] or self._reaches(one, path)}

    def _reaches(self, one: Path, path: Path) -> bool:
        files, texts = self.reached[one]
        data_of_package = path.suffix != ".py" and path.relative_to(self.root).parts[0] in PACKAGES
        return (
            path in files
            or (data_of_package and any(file.parent == path.parent for file in files))
            or any(is_named(path.relative_to(self.root).as_posix(), text) for text in texts)
        )
