"""Sections that a first reader may pass over.

    ## Why the root, and not d itself

    *Deeper.* You can use the root without knowing why it is a root. Here is why.

The emphasised word becomes a small chip beside the heading, in the page's own contents, too, and the section gets the
class `deeper`, which book.css draws. Jupyter shows the word where it is written. A chapter's last sections, which are
there to be looked up, get the class, too, and a chip that says so, but none in the contents.
"""

from __future__ import annotations

import html
import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

from tools.notebooks import core_words
from tools.pages import catalogues, kit, page_head

MARK, CHIP = core_words.MARK.strip("*"), "deeper"
LOOKED_UP, LOOK_UP = {"the-same-thing-elsewhere", "sources"}, "to look up"  # ids, which translations keep
PHRASES = (MARK, CHIP, LOOK_UP)  # locale/*/LC_MESSAGES/book.po has them


def mark_of(section: nodes.section, marks: set[str]) -> tuple[nodes.paragraph, nodes.emphasis] | None:
    """The first paragraph of a section, and the word that it begins with, if that is one of the marks."""
    first = section[1] if len(section) > 1 else None
    if not isinstance(first, nodes.paragraph):
        return None
    word = page_head.first_part(first)
    return (first, word) if isinstance(word, nodes.emphasis) and word.astext() in marks else None


def mark_sections(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Give each section that is deeper or to be looked up its classes and its chip.

    Raises:
        ValueError: nothing follows the mark.
    """
    if app.builder.name == "gettext":
        return
    say = catalogues.phrases(app.config.language)
    is_chapter = kit.CHAPTER.match(docname) is not None
    for section in list(doctree.findall(nodes.section)):
        if is_chapter and LOOKED_UP.intersection(section["ids"]):
            mark(section, say(LOOK_UP), "look-up")
            continue
        found = mark_of(section, {MARK, say(MARK)})
        if found is None:
            continue
        paragraph, word = found
        rest = paragraph.children[paragraph.index(word) + 1 :]
        if not "".join(part.astext() for part in rest).strip():
            raise ValueError(
                f"{docname}, {section[0].astext()!r}: nothing follows *{MARK}*: say what the section gives"
            )
        paragraph.remove(word)
        if isinstance(rest[0], nodes.Text):
            paragraph.replace(rest[0], nodes.Text(rest[0].lstrip()))
        mark(section, say(CHIP))


def mark(section: nodes.section, chip: str, *classes: str) -> None:
    """Give a section its classes, and its heading a chip."""
    section["classes"] += ["deeper", *classes]
    section[0] += [nodes.Text(" "), nodes.inline("", chip, classes=["deeper-chip"])]


def mark_contents(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document) -> None:
    """Write the chip of deeper sections into the page's own contents, too."""
    if doctree is None or "toc" not in context:
        return
    chip = f' <span class="deeper-chip">{html.escape(catalogues.phrases(app.config.language)(CHIP))}</span>'
    for section in doctree.findall(nodes.section):
        if "deeper" in section["classes"] and "look-up" not in section["classes"]:
            link = rf'(<a class="reference internal" href="#{re.escape(section["ids"][0])}">.*?)(</a>)'
            context["toc"] = re.sub(link, lambda found: found[1] + chip + found[2], context["toc"], flags=re.DOTALL)
