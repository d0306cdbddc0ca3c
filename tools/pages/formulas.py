"""Sphinx extension: formulas as MathML, made when the page is built."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging

from tools.pages.mathml import mathml

logger = logging.getLogger(__name__)
STOPS = re.compile(r"[,.;:!?)\]]+")
UNBROKEN = "unbroken"  # book.css keeps what is in it on one line


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


def keep_stops(document: nodes.document) -> None:
    """Put the comma behind a formula, or what else closes it, on the formula's line: browsers break before it."""
    for formula in list(document.findall(nodes.math)):
        parent, place = formula.parent, formula.parent.index(formula)
        behind = parent[place + 1] if place + 1 < len(parent) else None
        if isinstance(behind, nodes.Text) and (found := STOPS.match(behind.astext())):
            kept = nodes.inline("", "", formula.deepcopy(), nodes.Text(found[0]), classes=[UNBROKEN])
            parent[place : place + 2] = [kept, nodes.Text(behind.astext()[found.end() :])]


class KeepStops(SphinxPostTransform):
    default_priority = 900  # after translations
    formats = ("html",)

    def run(self, **_: Any) -> None:
        keep_stops(self.document)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_post_transform(KeepStops)
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_display, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
