"""Sphinx extension: what a teacher takes from a page. Links to a chapter's quiz and slides, to each instrument alone.

The files are made of the finished pages, by `embeds.py`, `slides.py` and `quizzes.py` of tools/teaching.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from tools.teaching import embeds, quizzes, slides

CHAPTER = re.compile(r"chapters/(\d\d)_(\w+)")
INSTRUMENT = re.compile(r'<div (?:[^>]* )?class="mhalib-instrument".*?</script></div>', re.DOTALL)
EMBED = (
    '<p class="embed"><a href="../{address}" '
    'title="This instrument alone, for slides and other pages">Open it alone</a></p>'
)
TEACHING = "chapters/teaching"
NAMED = re.compile(r"\b(slides|quiz) (\d+)\b")  # in its plans
KIT = (
    '<p class="kit"><strong>Check yourself:</strong> <a href="../{quiz}.html">five questions</a> about this page. '
    '<strong>For a class:</strong> <a href="../{slides}">slides</a>; the questions '
    'for <a href="../{quiz}.xml" download>Moodle</a> and as <a href="../{quiz}.zip" download>QTI</a>; '
    '<a href="teaching.html">plans</a>.</p>\n'
)


def link_kit(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object) -> None:
    """Put the links into a page; a translation has none, since its files would be in English."""
    if "body" not in context or app.builder.name != "html" or app.config.language != "en":
        return
    name, number = page.rpartition("/")[2], 0

    def followed(found: re.Match[str]) -> str:
        nonlocal number
        number += 1
        return found[0] + EMBED.format(address=f"{embeds.FOLDER}/{embeds.file_name(name, number)}")

    if page == TEACHING:
        context["body"] = NAMED.sub(to_file, context["body"])
    context["body"] = INSTRUMENT.sub(followed, context["body"])
    found = CHAPTER.fullmatch(page)
    if found and (quizzes.SOURCES / f"{found[2]}.md").exists():
        context["body"] += KIT.format(quiz=f"{quizzes.FOLDER}/{name}", slides=f"{slides.FOLDER}/{name}.html")


def to_file(named: re.Match[str]) -> str:
    """A link to the slides or the quiz of a chapter; the words as they are where there is no such chapter."""
    folder = slides.FOLDER if named[1] == "slides" else quizzes.FOLDER
    stem = next((stem for stem in quizzes.chapters().values() if int(stem[:2]) == int(named[2])), None)
    return f'<a href="../{folder}/{stem}.html">{named[1]}&nbsp;{named[2]}</a>' if stem else named[0]


def write_kit(app: Sphinx, exception: Exception | None) -> None:
    """Make the files, when all pages are finished; those of an earlier build go, whose chapters may have moved."""
    if exception is None and app.builder.name == "html" and app.config.language == "en":
        for tool in (embeds, slides, quizzes):
            shutil.rmtree(Path(app.outdir, tool.FOLDER), ignore_errors=True)
            tool.write(Path(app.outdir))


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("html-page-context", link_kit)
    app.connect("build-finished", write_kit, priority=920)  # when finish.py has finished the pages
    return {"parallel_read_safe": True, "parallel_write_safe": True}
