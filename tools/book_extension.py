"""Sphinx extension of this book: MathJax and instruments from our own pages, exercises, figures, bibliography."""

from __future__ import annotations

import importlib.metadata
import shutil
from pathlib import Path
from typing import Any

import nbformat
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config

import exercises
from mhalib.widgets import STYLE, page_script

MATHJAX = "tex-chtml.js"
INSTRUMENTS = "instruments"
FONTS = "output/chtml/fonts"


def mathjax_source() -> Path:
    """The folder of MathJax inside the installed package sphinx-mathjax-offline (not a name Python can import)."""
    return Path(str(importlib.metadata.distribution("sphinx-mathjax-offline").locate_file(""))) / (
        "sphinx-mathjax-offline/static/mathjax"
    )


def copy_mathjax(app: Sphinx, exception: Exception | None) -> None:
    """Copy the one script that the pages load, and its fonts: 1.5 MB of the package's 24 MB."""
    if exception is None and app.builder.format == "html":
        source, target = mathjax_source(), Path(app.outdir) / "_static/mathjax"
        target.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source / MATHJAX, target / MATHJAX)
        shutil.copytree(source / FONTS, target / FONTS, dirs_exist_ok=True)


def write_instruments(app: Sphinx) -> None:
    """One script and one style for the instruments of all pages, made from the package's files."""
    folder = Path(app.outdir) / "_static"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / INSTRUMENTS).with_suffix(".js").write_text(page_script(), encoding="utf-8")
    shutil.copy2(STYLE, (folder / INSTRUMENTS).with_suffix(".css"))
    app.add_js_file(f"{INSTRUMENTS}.js", loading_method="defer")
    app.add_css_file(f"{INSTRUMENTS}.css")


def write_title(app: Sphinx, config: Config) -> None:
    """Show the title beside the logo. _config.yml cannot say it without dropping Jupyter Book's other theme options."""
    config.html_theme_options["logo"] = {"text": config.html_title}


def name_list_items(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object) -> None:
    """docutils gives the entries of a bibliography a role that the list around them may not hold."""
    if "body" in context:
        context["body"] = context["body"].replace('role="doc-biblioentry"', 'role="listitem"')


def frame_figures(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """A frame around each figure of a notebook: on a phone it scrolls, and the keyboard can then reach it."""
    for output in list(doctree.findall(nodes.container)):
        if "cell_output" in output["classes"]:
            for image in [child for child in output.children if isinstance(child, nodes.image)]:
                output.replace(image, nodes.container("", image, classes=["output", "figure-frame"]))


def show_exercises(app: Sphinx, docname: str, source: list[str]) -> None:
    """A page shows the code to mend above the folded solution, and the solution without its markers."""
    if exercises.BEGIN not in source[0] or not app.env.doc2path(docname).endswith(".ipynb"):
        return
    notebook = nbformat.reads(source[0], as_version=4)
    cells = []
    for cell in notebook.cells:
        if exercises.EXERCISE in cell.metadata.get("tags", []):
            wrong = exercises.code_to_mend(cell.source)
            if wrong is not None:
                cells.append(nbformat.v4.new_markdown_cell(f"To mend:\n\n```python\n{wrong}\n```"))
            cell.source = exercises.with_solution(cell.source)
        cells.append(cell)
    notebook.cells = cells
    source[0] = nbformat.writes(notebook)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_config_value("comments_config", {}, "html")  # Jupyter Book sets it for sphinx_comments, which we left out
    app.config.mathjax_path = f"mathjax/{MATHJAX}"
    app.connect("config-inited", write_title)
    app.connect("builder-inited", write_instruments)
    app.connect("source-read", show_exercises)
    app.connect("doctree-resolved", frame_figures)
    app.connect("html-page-context", name_list_items)
    app.connect("build-finished", copy_mathjax)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
