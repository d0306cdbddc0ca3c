"""Sphinx builds the book without Jupyter Book, from its files, with its settings and into its pages."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from bs4 import BeautifulSoup
from myst_nb.core.config import NbParserConfig
from small_book import sources

from tools.notebooks import notebooks
from tools.pages import book_settings, catalogues, finish

pytestmark = pytest.mark.tool

JUPYTER_BOOK = Path(sys.executable).with_name("jupyter-book")
FILES = (book_settings.CONFIG, book_settings.TOC)
NOT_LOADED = ["jupyter_book", "sphinx_jupyterbook_latex", "sphinx_multitoc_numbering"]  # numbers for its own PDF
OF_WHAT_IS_NOT_LOADED = {"comments_config", "latex_engine", "use_jupyterbook_latex", "use_multitoc_numbering"}
PLAUSIBLE = "https://plausible.io/js/script.js"  # asked for only where a domain is given, which is empty
PAGES = {"index": "# A small book\n\nBegin with [the first page](01_first.md).\n", "01_first": "# First\n\n$x$\n"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the book's settings and its table of contents."""
    for name in FILES:
        shutil.copy(notebooks.ROOT / name, tmp_path / name)
    return tmp_path


@pytest.fixture
def small_book(folder: Path) -> Path:
    """A book of two pages with all settings of the real one."""
    pages = sources(folder)
    for name, text in PAGES.items():
        (pages / f"{name}.md").write_text(text, encoding="utf-8")
    return folder


def run(*command: Any) -> str:
    tools = os.environ | {"PYTHONPATH": str(notebooks.ROOT)}
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, env=tools)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def only(theirs: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    """What they say and we do not, down to the leaves."""
    found = {}
    for key, value in theirs.items():
        if isinstance(value, dict) and key in ours:
            found |= only(value, ours[key])
        elif key not in ours:
            found |= only(value, {}) if isinstance(value, dict) else {key: value}
        else:
            assert value == ours[key], key
    return found


def test_the_settings_are_those_that_jupyter_book_makes(folder: Path) -> None:
    run(JUPYTER_BOOK, "config", "sphinx", folder)
    theirs = {key: one for key, one in runpy.run_path(str(folder / "conf.py")).items() if not key.startswith("__")}
    ours = book_settings.settings(folder)
    assert ours.keys() <= theirs.keys()
    assert [one for one in theirs.pop("extensions") if one not in NOT_LOADED] == ours["extensions"]
    assert folder / theirs.pop("external_toc_path") == Path(ours["external_toc_path"])
    assert not ours["html_theme_options"].keys() - theirs["html_theme_options"].keys()
    options = only(theirs.pop("html_theme_options"), ours["html_theme_options"])
    assert {key: one for key, one in options.items() if one} == {"plausible_analytics_url": PLAUSIBLE}
    left = only({key: one for key, one in theirs.items() if key not in OF_WHAT_IS_NOT_LOADED}, ours)
    assert (left.pop("nb_execution_excludepatterns"), NbParserConfig().execution_excludepatterns) == ([], ())
    assert left == {name: getattr(NbParserConfig(), name.removeprefix("nb_")) for name in left}


@pytest.mark.weekly("tools/pages/sphinx_book.py", "tools/pages/book_settings.py", "_config.yml", "requirements.txt")
def test_the_pages_are_those_that_jupyter_book_makes(small_book: Path) -> None:
    """Its own command works, too, and what it writes is the same letter by letter."""
    said = run(JUPYTER_BOOK, "build", small_book, "-W", "-n", "--keep-going", "--all")
    assert "Jupyter-Book v1." in said
    (small_book / "_build").rename(small_book / "theirs")
    run(sys.executable, "-m", "tools.pages.sphinx_book", small_book, "--strict", "--all")
    theirs = {path.relative_to(small_book / "theirs/html"): path for path in (small_book / "theirs/html").rglob("*")}
    pages = [name for name, path in theirs.items() if path.suffix == ".html" and "vendor" not in name.parts]
    assert {"01_first.html", "index.html", "search.html", "genindex.html"} <= {name.name for name in pages}
    for name in (name for name in pages if name != Path("index.html")):  # which leads to the first page
        assert (small_book / "_build/html" / name).read_text("utf-8") == theirs[name].read_text("utf-8"), name


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"html:\n": "html:\n  google_tag: x\n"}, r"_config\.yml: html\.google_tag is not known.*book_settings\.py"),
        ({"sphinx:\n": "sphinx:\n  extra_extensions: [x]\n"}, r"sphinx\.extra_extensions is not known"),
        ({"    extensions:\n": "    other:\n"}, r"sphinx\.config\.extensions is missing"),
    ],
)
def test_a_setting_that_is_not_known_is_refused(folder: Path, change: dict[str, str], words: str) -> None:
    """Jupyter Book would know it, and the pages would lack it without a word."""
    ((old, new),) = change.items()
    text = (folder / book_settings.CONFIG).read_text("utf-8")
    assert old in text
    (folder / book_settings.CONFIG).write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(ValueError, match=words):
        book_settings.settings(folder)


def test_nothing_imports_jupyter_book() -> None:
    """The day it is given up, a line of requirements.txt and one of _config.yml go."""
    for path in sorted((notebooks.ROOT / "tools").rglob("*.py")):
        text = path.read_text("utf-8")
        assert "import jupyter_book" not in text, path
        assert "from jupyter_book" not in text, path


def test_a_warning_fails_the_build_and_names_the_page(small_book: Path) -> None:
    (small_book / "chapters/01_first.md").write_text("# First\n\n[gone](gone.md)\n", encoding="utf-8")
    command = [sys.executable, "-m", "tools.pages.sphinx_book", small_book, "--strict"]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, cwd=notebooks.ROOT)
    assert done.returncode == 1
    assert "01_first.md" in done.stderr
    assert "gone" in done.stderr


def test_the_template_speaks_the_page_s_language(small_book: Path) -> None:
    """A skip link to an instrument where there is one, and a word to readers without JavaScript."""
    instrument = f"{finish.INSTRUMENT} data-script='None'></div>"
    (small_book / "chapters/01_first.md").write_text(f"# First\n\n{instrument}\n{instrument}\n", encoding="utf-8")
    target = small_book / "_build/html-fr"
    build = f"sphinx_book.sphinx_build(Path({str(small_book)!r}), Path({str(target)!r}), more={{'language': 'fr'}})"
    run(
        sys.executable,
        "-c",
        f"import sys; from pathlib import Path; from tools.pages import sphinx_book; sys.exit({build})",
    )
    say = catalogues.phrases("fr")
    for name, number in (("index", 0), ("01_first", 1)):
        page = BeautifulSoup((target / f"chapters/{name}.html").read_text("utf-8"), "html.parser")
        assert page.select_one("noscript .without-script").get_text() == say(finish.WITHOUT_SCRIPT)
        main, *instruments = [link.get_text() for link in page.select(".skip-link a")]
        assert main == "Passer au contenu principal"
        assert instruments == [say(finish.TO_INSTRUMENT)] * number
        assert len(page.select("#instrument")) == number
        assert len(page.select("h1[lang=en][data-chapter='1']")) == number  # though it is not translated
        assert page.select_one("html")["data-theme"] == "light"
