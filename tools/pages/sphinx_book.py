"""Have Sphinx build the book of a folder, with the settings of its `_config.yml`.

    python -m tools.pages.sphinx_book . --strict  # into _build/html, what changed since the last time
    python -m tools.pages.sphinx_book . --strict --all                 # every page
    python -m tools.pages.sphinx_book . --builder linkcheck            # ask other hosts whether links lead there

`make book` does this and more: see `build.py`. `jupyter-book build .` makes the same pages from the same files.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.cmd.build import handle_exception
from sphinx.util.docutils import docutils_namespace, patch_docutils

from tools.pages import book_settings

SHORT_ERRORS = argparse.Namespace(pdb=False, verbosity=0, traceback=False)


def sphinx_build(
    root: Path,
    target: Path,
    builder: str = "html",
    *,
    more: dict[str, Any] | None = None,
    strict: bool = False,
    everything: bool = False,
    quiet: bool = False,
    doctrees: Path | None = None,
) -> int:
    """Build into `target`; the exit status. `more` goes over the book's settings.

    `strict` makes warnings errors, also of references that lead nowhere, and goes on to find all of them.
    """
    told = book_settings.settings(root) | {"nitpicky": strict} | (more or {})
    app = None
    try:
        with patch_docutils(None), docutils_namespace():
            app = Sphinx(
                root,
                None,
                target,
                doctrees or target.parent / ".doctrees",
                builder,
                told,
                status=None if quiet else sys.stdout,
                freshenv=everything,
                warningiserror=strict,
                keep_going=strict,
            )
            app.build()
            return app.statuscode
    except Exception as error:
        handle_exception(app, SHORT_ERRORS, error)
        return 2


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path, help="the folder of _config.yml")
    parser.add_argument("--builder", default="html", help="one of Sphinx's builders")
    parser.add_argument("--strict", action="store_true", help="warnings are errors, as are references to nothing")
    parser.add_argument("--all", action="store_true", help="build every page")
    asked = parser.parse_args()
    root = asked.root.resolve()
    return sphinx_build(root, root / "_build/html", asked.builder, strict=asked.strict, everything=asked.all)


if __name__ == "__main__":
    sys.exit(main())
