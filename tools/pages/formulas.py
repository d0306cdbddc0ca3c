"""Sphinx extension: formulas as MathML, made when the page is built."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging

from tools.pages.mathml import mathml

logger = logging.getLogger(__name__)


def made(node: nodes.Element, display: bool) -> str:
    """The formula of a node; one that cannot be read is a warning that names its page, and stays TeX."""
    tex = node.astext()
    try:
        return mathml(tex, display=display)
    except ValueError as error:
        logger.warning("formula %s: %s", tex, error, location=node, type="formula")
        return nodes.literal(text=tex).astext()


def visit_inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(translator.starttag(node, "span", "", CLASS="math notranslate nohighlight"))
    translator.body.append(f"{made(node, display=False)}</span>")
    raise nodes.SkipNode


def visit_display(translator: Any, node: nodes.math_block) -> None:
    if node.get("number"):
        logger.warning("formula %s: it has a label, and numbers are not made", node.astext(), location=node)
    translator.body.append(translator.starttag(node, "div", CLASS="math notranslate nohighlight"))
    translator.body.append(f"{made(node, display=True)}</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_display, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
