"""Build the book's pages into _build/html, and only those that changed where that makes no difference.

    python -m tools.pages.build [--all] [--language fr]

A page is built anew when its own file changed. All are built when something changed that all depend on (the settings,
the table of contents, the references, tools, instruments, static files, versions), when a page came or went, and after
a build that failed: Sphinx warns of a page when it reads it, and would not warn again. If a title, heading, label or
reference of a page changed, book_extension.py has all pages written, for others may quote it. The pages of the
API are built anew, too, when a docstring or a signature of the package changed.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import yaml

from tools import PACKAGES, ROOT
from tools.notebooks import address

SHARED = (  # besides the pages themselves
    "_config.yml",
    "_toc.yml",
    "requirements.txt",
    "chapters/references.bib",
    "chapters/*.yml",
    "chapters/_static/**/*",
    "tools/**/*.py",
    "tools/pages/*.js",
    "tools/pages/templates/*",
    "mhalib/widgets/*",
    "mhalib/live/*.js",
    "mhalib/weights/*",
)
PAGES = ("chapters/*.ipynb", "chapters/*.md")
KIT = ("quizzes/*.md", "tools/teaching/*.css", "tools/teaching/*.js")  # files beside the pages
API_PAGES = ("chapters/api*.md",)
PACKAGE = tuple(f"{package}/**/*.py" for package in PACKAGES)


def fingerprints(root: Path, patterns: tuple[str, ...]) -> dict[str, str]:
    """The files that fit a pattern, each with the hash of what it holds."""
    files = {path for pattern in patterns for path in root.glob(pattern) if path.is_file()}
    return {path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(files)}


def interface(root: Path) -> str:
    """The hash of what the pages of the API show of the package: all but comments and what functions do."""
    told = hashlib.sha256()
    for path in sorted(path for pattern in PACKAGE for path in root.glob(pattern)):
        source = path.read_text(encoding="utf-8")
        try:
            tree = ast.parse(source)
        except SyntaxError:  # Sphinx says so, and where
            told.update(source.encode())
            continue
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                node.body = [ast.Expr(ast.Constant(ast.get_docstring(node)))]
        told.update(f"{path.relative_to(root).as_posix()} {ast.dump(tree)}".encode())
    return told.hexdigest()


def pages(root: Path) -> dict[str, str]:
    """Every page and every quiz with the hash of what it is made of."""
    shown = interface(root)
    api = {name: f"{own} {shown}" for name, own in fingerprints(root, API_PAGES).items()}
    return fingerprints(root, PAGES + KIT) | api


def what_to_build(before: dict, now: dict) -> str:
    """One of "all", "changed" and "nothing"; `before` is the state of the last build that went well, or empty."""
    if not before or before["shared"] != now["shared"] or before["pages"].keys() != now["pages"].keys():
        return "all"
    return "nothing" if before == now else "changed"


def build(root: Path, everything: bool = False) -> int:
    """Build what is to be built; the exit status."""
    state = root / "_build/state.json"
    built = state.exists() and (root / "_build/html/index.html").exists()
    try:
        before = json.loads(state.read_text(encoding="utf-8")) if built and not everything else {}
    except ValueError:  # broken off while it was written
        before = {}
    now = {"shared": fingerprints(root, SHARED) | {"address": str(address.here())}, "pages": pages(root)}
    what = what_to_build(before, now)
    if what == "nothing":
        print("no page changed")
        return 0
    state.unlink(missing_ok=True)
    for page in (page for page in now["pages"] if what == "changed" and before["pages"][page] != now["pages"][page]):
        os.utime(root / page)  # Sphinx goes by times, and what git or a copy put back may have an old one
    command = [sys.executable, "-m", "tools.pages.sphinx_book", str(root), "--strict"]
    status = subprocess.run([*command, "--all"] if what == "all" else command, check=False, cwd=ROOT).returncode
    if status == 0:
        write_start(root, "_build/html")
        state.write_text(json.dumps(now), encoding="utf-8")
    return status


def write_start(root: Path, html: str) -> None:
    """Have the folder of the built pages lead to the first."""
    from tools.pages import finish  # only here:  make quick  asks what pages depend on, and Sphinx takes seconds

    start = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))["root"]
    finish.write_start(root / html, f"{start}.html")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="build every page")
    parser.add_argument("--language", default="en", help="one of locale/: every page, into _build/html-LANGUAGE")
    asked = parser.parse_args()
    if asked.language == "en":
        return build(ROOT, asked.all)
    from tools.pages import catalogues  # only here: it needs sphinx-intl

    if asked.language not in catalogues.languages():
        parser.error(f"--language {asked.language}: locale/ has {', '.join(catalogues.languages())}")
    status = catalogues.build(asked.language)
    if status == 0:
        write_start(ROOT, f"_build/html-{asked.language}")
    return status


if __name__ == "__main__":
    sys.exit(main())
