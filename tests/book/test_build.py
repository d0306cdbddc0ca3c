"""What `make book` builds: no page too few, and no page that nobody changed."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path

import pytest
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace

from tools.notebooks import notebooks
from tools.pages import build

pytestmark = pytest.mark.tool

PACKAGE = '''WIDTH = 8
"""The width."""


class Layer:
    """A layer."""

    def forward(self, x):
        """(B, N, D) -> (B, N, D)."""
        return x  # as it is
'''
FILES = {
    "_config.yml": "title: Book",
    "_toc.yml": "root: chapters/a",
    "requirements.txt": "torch",
    "chapters/a.md": "# A",
    "chapters/b.ipynb": "{}",
    "chapters/api_models.md": "# API",
    "chapters/references.bib": "@book{}",
    "chapters/_static/book.css": "p {}",
    "chapters/_static/small/picture.svg": "<svg/>",
    "tools/pages/book_extension.py": "pass",
    "mhalib/attention/layer.py": PACKAGE,
    "mhalib/widgets/host.js": "draw()",
}


@pytest.fixture
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, list[list[str]]]:
    """A book's folder and the commands that were run to build it; a page that says "broken" breaks a build."""
    commands: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess:
        commands.append(command)
        (tmp_path / "_build/html").mkdir(parents=True, exist_ok=True)
        (tmp_path / "_build/html/index.html").touch()
        return subprocess.CompletedProcess(command, "broken" in (tmp_path / "chapters/a.md").read_text("utf-8"))

    monkeypatch.setattr(subprocess, "run", run)
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path, commands


def test_the_first_build_is_of_all_and_the_second_of_nothing(book: tuple[Path, list[list[str]]]) -> None:
    root, commands = book
    assert [build.build(root), build.build(root)] == [0, 0]
    (command,) = commands
    assert command[0] == sys.executable
    assert command[1:3] == ["-m", "tools.pages.sphinx_book"]
    assert command[3:] == [str(root), "--strict", "--all"]


@pytest.mark.parametrize("name", FILES)
def test_what_a_change_builds(book: tuple[Path, list[list[str]]], name: str) -> None:
    """A page itself, what all pages depend on all, and what no page shows nothing."""
    root, commands = book
    build.build(root)
    (root / name).write_text("root: chapters/b" if name == "_toc.yml" else "other", encoding="utf-8")
    build.build(root)
    some = name in ("chapters/a.md", "chapters/b.ipynb", "chapters/api_models.md", "mhalib/attention/layer.py")
    assert ["--all" in command for command in commands[1:]] == [not some]


@pytest.mark.parametrize(
    ("old", "new", "shown"),
    [
        ("A layer.", "The layer.", True),
        ("(B, N, D).", "(B, Q, D).", True),
        ("The width.", "The width, D.", True),
        ("WIDTH = 8", "WIDTH = 16", True),
        ("self, x", "self, x, mask=None", True),
        ("def forward", "@staticmethod\n    def forward", True),
        ("class Layer", "class Layer(Module)", True),
        ("return x  #", "return x + 0  #", False),
        ("as it is", "untouched", False),
        ("WIDTH", "# the table's D\nWIDTH", False),
    ],
)
def test_a_change_of_the_package_builds_the_pages_that_show_it(
    book: tuple[Path, list[list[str]]], old: str, new: str, shown: bool
) -> None:
    """Docstrings, signatures and constants stand on the pages of the API; what a function does stands on no page."""
    root, commands = book
    build.build(root)
    assert old in PACKAGE
    (root / "mhalib/attention/layer.py").write_text(PACKAGE.replace(old, new, 1), encoding="utf-8")
    for page in ("a.md", "api_models.md"):
        build.os.utime(root / "chapters" / page, (1, 1))
    build.build(root)
    assert ["--all" in command for command in commands[1:]] == [False] * shown
    assert ((root / "chapters/api_models.md").stat().st_mtime > 1) == shown
    assert (root / "chapters/a.md").stat().st_mtime == 1


def test_files_of_the_package_that_come_or_go_build_the_pages_of_the_api(book: tuple[Path, list[list[str]]]) -> None:
    root, commands = book
    build.build(root)
    for number, name in enumerate(("mhalib/attention/masks.py", "mhalib_classroom/checks.py"), start=1):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("", encoding="utf-8")
        build.build(root)
        assert ["--all" in command for command in commands[1:]] == [False] * number


def test_a_file_that_is_no_python_yet_is_left_to_the_build(book: tuple[Path, list[list[str]]]) -> None:
    """Half an edit must not break the tool before Sphinx can say where."""
    root, commands = book
    build.build(root)
    (root / "mhalib/attention/layer.py").write_text("def forward(", encoding="utf-8")
    build.build(root)
    assert len(commands) == 2


def test_a_page_that_comes_or_goes_builds_all(book: tuple[Path, list[list[str]]]) -> None:
    root, commands = book
    build.build(root)
    (root / "chapters/c.md").touch()
    build.build(root)
    (root / "chapters/b.ipynb").unlink()
    build.build(root)
    assert ["--all" in command for command in commands] == [True] * 3


def test_after_a_failure_all_is_built_until_it_succeeds(book: tuple[Path, list[list[str]]]) -> None:
    """Sphinx remembers the page that it warned of, and would pass it the next time."""
    root, commands = book
    build.build(root)
    (root / "chapters/a.md").write_text("broken", encoding="utf-8")
    assert [build.build(root), build.build(root)] == [1, 1]
    (root / "chapters/a.md").write_text("mended", encoding="utf-8")
    assert build.build(root) == 0
    assert ["--all" in command for command in commands] == [True, False, True, True]


def test_all_is_built_when_asked_for_or_when_the_pages_are_gone(book: tuple[Path, list[list[str]]]) -> None:
    root, commands = book
    build.build(root)
    build.build(root, everything=True)
    (root / "_build/html/index.html").unlink()
    build.build(root)
    assert ["--all" in command for command in commands] == [True] * 3


def test_a_page_with_an_old_date_is_built(book: tuple[Path, list[list[str]]]) -> None:
    """Sphinx goes by dates, and a copy may bring its own."""
    root, _ = book
    build.build(root)
    (root / "chapters/a.md").write_text("other", encoding="utf-8")
    for page in ("a.md", "b.ipynb"):
        build.os.utime(root / "chapters" / page, (1, 1))
    build.build(root)
    assert (root / "chapters/a.md").stat().st_mtime > 1
    assert (root / "chapters/b.ipynb").stat().st_mtime == 1


def test_what_all_pages_depend_on_is_there() -> None:
    found = build.fingerprints(notebooks.ROOT, build.SHARED)
    for pattern in build.SHARED:
        assert build.fingerprints(notebooks.ROOT, (pattern,)), pattern
    configuration = (notebooks.ROOT / "_config.yml").read_text(encoding="utf-8")
    for name in re.findall(r"\bchapters/_static/[\w.]+\w|chapters/[\w.]+\.bib", configuration):
        assert any(path == name or path.startswith(f"{name}/") for path in found), name
    imported = {
        "mhalib/widgets/__init__.py",
        "mhalib/widgets/host.js",
        "tools/teaching/exercises.py",
        "tools/pages/book_extension.py",
    }
    assert imported <= found.keys()


PAGES = {
    "one": "# One\n\nA [link](two.md#a-part) and a word.\n",
    "two": "# Two\n\n## A part\n\nText.\n",
    "three": "# Three\n\n```{toctree}\none\ntwo\n```\n",
}
ONE = PAGES["one"]


def sphinx(folder: Path, pages: dict[str, str]) -> dict[str, str]:
    """The pages, built by Sphinx with the book's extension over what was built in `folder` before, and what it said."""
    source = folder / "source"
    source.mkdir(parents=True, exist_ok=True)
    for name, text in pages.items():
        file = source / f"{name}.md"
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")
    (source / "empty.bib").touch()
    settings = {
        "extensions": ["tools.pages.formulas", "myst_parser", "sphinxcontrib.bibtex", "tools.pages.book_extension"],
        "bibtex_bibfiles": ["empty.bib"],
        "root_doc": "three",
        "source_suffix": {".md": "markdown"},  # Sphinx's own default is one dict for all builds of a process
        "myst_heading_anchors": 3,
        "html_title": "Book",
        "html_theme": "basic",
        "html_sidebars": {"**": ["globaltoc.html"]},
    }
    said = io.StringIO()
    with docutils_namespace():
        out, doctrees = str(folder / "html"), str(folder / "doctrees")
        Sphinx(str(source), None, out, doctrees, "html", settings, status=None, warning=said).build()
    built = {name: (folder / f"html/{name}.html").read_text(encoding="utf-8") for name in pages}
    return {name: re.sub(r"\?v=\w+", "", page) for name, page in built.items()} | {
        "said": said.getvalue().replace(str(folder), "")
    }


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "changed",
    [
        {"one": ONE.replace("a word", "another word")},
        {"two": "# Two\n\n## A part\n\nText, and a formula: $x$.\n"},
        {"two": "# Number two\n\n## A part\n\nText.\n"},
        {"two": "# Two\n\n## Another part\n\nText.\n"},
        {"two": "# Two\n\n## Before\n\n## A part\n\nText.\n", "one": ONE.replace("a word", "another word")},
    ],
    ids=["words", "other words", "title", "heading", "two pages"],
)
def test_building_what_changed_gives_what_building_all_gives(tmp_path: Path, changed: dict[str, str]) -> None:
    """Titles stand beside every page, and a link to a heading that is gone is warned of."""
    sphinx(tmp_path / "step", PAGES)
    stepwise = sphinx(tmp_path / "step", {**PAGES, **changed})
    assert stepwise == sphinx(tmp_path / "whole", {**PAGES, **changed})
