"""Sphinx extension: the pages in another language, from the catalogues in locale/.

Sphinx itself translates paragraphs, headings and tables. Here is what it leaves out: the words on folds and the alt
texts of figures, a banner that says how much of a page is translated and from which text, passages that changed since,
and `lang="en"` on what is still English.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import nbformat
from docutils import nodes
from docutils.utils import new_document
from myst_parser.parsers.sphinx_ import MystParser
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx.util.nodes import extract_messages

from tools.pages import catalogues

LAUNCHED: dict[str, set[str]] = {}  # page -> the paragraphs of cells with links to the repository
SUMMARY = re.compile(r"\s*<details>\s*<summary>(?P<words>.+?)</summary>", re.DOTALL)  # not those of the tools' own
BEFORE_SPHINX, AFTER_SPHINX, AFTER_CONTENTS = (
    5,
    24,
    110,
)  # the table of contents comes at 100; Sphinx preserves messages at 10, translates at 20, and counts at 25
STATEMENT = re.compile(r'<p class="statement .*?</p>', re.DOTALL)
TRANSLATED = "Translated from the English text of {date}, version {version}: {now} of {all} passages are up to date."
ENGLISH = (
    "Code, what it prints and draws, and some words of instruments are in English; so is each page that is not "
    "translated yet."
)
UNTRANSLATED = "This page is not translated yet."
STALE = "The English text above has changed since it was translated. This is the translation of what it said before."
TITLE, STALE_TITLE = "Translation", "Stale translation"
START = "Start here: take a model apart"  # the start page's button
PHRASES = (TITLE, STALE_TITLE, TRANSLATED, ENGLISH, UNTRANSLATED, STALE, START)  # locale/*/LC_MESSAGES/book.po has them


class Words(nodes.Element, addnodes.translatable):
    """Words that Sphinx overlooks, in HTML or in an attribute; `translate` of `owner` exchanges them."""

    def preserve_original_messages(self) -> None:
        """They are in `said` from the beginning."""

    def extract_original_messages(self) -> Sequence[str]:
        return [str(message) for message in self["said"]]

    def apply_translated_message(self, original_message: str, translated_message: str) -> None:
        self["owner"].translate(original_message, translated_message)
        self["done"] = [*self.get("done", ()), original_message]


class Summary:
    """The words on a fold that the text writes in HTML."""

    def __init__(self, raw: nodes.raw) -> None:
        self.raw = raw

    def said(self) -> list[str]:
        found = SUMMARY.match(self.raw.astext())
        return [found["words"]] if found else []

    def translate(self, original: str, other: str) -> None:
        self.raw.children = [nodes.Text(self.raw.astext().replace(f">{original}<", f">{other}<"))]


class Cell:
    """The words on the fold of a code cell, and the alt text of its figure."""

    def __init__(self, cell: nodes.container) -> None:
        self.cell = cell

    def said(self) -> list[str]:
        folded = [self.cell[key] for key in ("prompt_show", "prompt_hide") if self.cell.get("hide_mode")]
        image = (self.cell.get("cell_metadata") or {}).get("mystnb", {}).get("image", {})
        return folded + ([image["alt"]] if "alt" in image else [])

    def translate(self, original: str, other: str) -> None:
        for node in (self.cell, *self.cell.findall(nodes.image)):
            for key in ("prompt_show", "prompt_hide", "alt"):
                if node.get(key) == original:
                    node[key] = other


def needed(app: Sphinx) -> bool:
    """Whether this build collects the words for translators, or translates them."""
    return app.builder.name == "gettext" or app.config.language != "en"


class FindWords(SphinxTransform):
    """Puts `Words` before each node whose words Sphinx overlooks; formulas are not to be translated."""

    default_priority = BEFORE_SPHINX

    def apply(self, **kwargs: Any) -> None:
        if not needed(self.app):
            return
        for formula in self.document.findall(nodes.math_block):
            formula["translatable"] = False
        launches = LAUNCHED.get(self.env.docname, ())
        for paragraph in self.document.findall(nodes.paragraph):
            if catalogues.one_line(paragraph.rawsource) in launches:
                paragraph["translatable"] = False
        owners: list[tuple[nodes.Element, Summary | Cell]] = []
        owners += [(raw, Summary(raw)) for raw in self.document.findall(nodes.raw)]
        owners += [(cell, Cell(cell)) for cell in self.document.findall(nodes.container)]
        for node, owner in owners:
            if said := owner.said():
                words = Words(said=said, owner=owner)
                words.source, words.line = node.source, node.line
                node.parent.insert(node.parent.index(node), words)


class MarkWhatIsEnglish(SphinxTransform):
    """A banner on each page, `lang="en"` on what is not translated, and beside it what was its translation before."""

    default_priority = AFTER_SPHINX

    def apply(self, **kwargs: Any) -> None:
        if not needed(self.app):
            return
        found = list(untranslated(self.document))
        for words in list(self.document.findall(Words)):
            if self.app.builder.name == "gettext":
                del words["owner"]
            else:
                words.parent.remove(words)
        section = next(self.document.findall(nodes.section), None)
        if self.app.builder.name == "gettext" or section is None:
            return
        language = self.config.language
        say = catalogues.phrases(language)
        catalogue = catalogues.read(language, self.env.docname)
        if catalogue is None:
            for node in section.children:
                in_english(node)
            section.insert(1, box(say(TITLE), say(UNTRANSLATED), "note"))
            return
        current = {str(one.id) for one in catalogue if one.string and not one.fuzzy}
        left = [(node, text) for node, text in found if text not in current]
        stale = catalogues.stale(catalogue, [text for _, text in left])
        for node, text in left:
            in_english(node)
            if text in stale and isinstance(node, nodes.paragraph):
                node.parent.insert(node.parent.index(node) + 1, self.before(stale[text], say))
        revised = catalogue.revision_date
        said = say(TRANSLATED).format(
            date=revised.date().isoformat() if isinstance(revised, datetime) else "",
            version=catalogue.version,
            now=self.document["passages"] - len(left),
            all=self.document["passages"],
        )
        section.insert(1, box(say(TITLE), f"{said} {say(ENGLISH)}", "note"))

    def before(self, text: str, say: Any) -> nodes.admonition:
        """An older translation, under the English text that is true now."""
        older = new_document(f"{self.document.current_source}: an older translation", self.document.settings)
        older.reporter = self.document.reporter
        MystParser().parse(text, older)
        stale = box(say(STALE_TITLE), say(STALE), "warning")
        stale += older.children
        stale["classes"].append("stale-translation")
        return stale


class TranslateContents(SphinxTransform):
    """The parts and titles of the table of contents, which come from _toc.yml, and the words on buttons."""

    default_priority = AFTER_CONTENTS

    def apply(self, **kwargs: Any) -> None:
        language = self.config.language
        if language == "en" or self.app.builder.name == "gettext":
            return
        say = catalogues.phrases(language)
        for contents in self.document.findall(addnodes.toctree):
            contents["caption"] = catalogues.title_of(language, self.env.docname, contents.get("caption") or "") or None
            contents["entries"] = [
                (catalogues.title_of(language, page, title) if title else title, page)
                for title, page in contents["entries"]
            ]
        for button in self.document.findall(addnodes.pending_xref):
            if "sd-btn" in button["classes"]:
                for text in list(button.findall(nodes.Text)):
                    text.parent.replace(text, nodes.Text(say(text.astext())))


def untranslated(document: nodes.document) -> Iterator[tuple[nodes.Element, str]]:
    """Each passage that Sphinx left as it was, and counts all passages on the way."""
    document["passages"] = 0
    for node, text in extract_messages(document):
        if isinstance(node, nodes.image) or isinstance(node.parent, nodes.field | nodes.field_body):
            continue  # alt texts are in Words, and fields hold the page's metadata
        if catalogues.needs_words(text):
            document["passages"] += 1
            if not (node.get("translated") or text in node.get("done", ())):
                yield node, text


def in_english(node: nodes.Node) -> None:
    """docutils makes  lang="en"  of this class."""
    if isinstance(node, nodes.Element) and not isinstance(node, nodes.Invisible | nodes.raw):
        node["classes"].append("language-en")


def box(title: str, text: str, kind: str) -> nodes.admonition:
    return nodes.admonition("", nodes.title("", title), nodes.paragraph("", text), classes=[kind])


def launches(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    """The cells with links to the repository."""
    return [cell for cell in notebook.cells if catalogues.LAUNCHES & set(cell.metadata.get("tags", []))]


def translate_launches(app: Sphinx, docname: str, source: list[str]) -> None:
    """The cells with links to the repository are put together from phrases, as `make notebooks` writes them."""
    if str(app.env.doc2path(docname)).endswith(".ipynb") and catalogues.read(app.config.language, docname) is not None:
        notebook = nbformat.reads(source[0], as_version=4)
        for cell in launches(notebook):
            cell.source = catalogues.in_phrases(app.config.language, cell.source)
        source[0] = nbformat.writes(notebook)


def note_launches(app: Sphinx, docname: str, source: list[str]) -> None:
    """Note the paragraphs of these cells, as they are when all have changed them: no catalogue holds them."""
    if needed(app) and str(app.env.doc2path(docname)).endswith(".ipynb"):
        cells = launches(nbformat.reads(source[0], as_version=4))
        LAUNCHED[docname] = {catalogues.one_line(part) for cell in cells for part in cell.source.split("\n\n")}


def translate_statements(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object) -> None:
    """What the page says of an output: that it is of one run, or how far another may differ."""
    if app.config.language != "en" and "body" in context and catalogues.read(app.config.language, page) is not None:
        context["body"] = STATEMENT.sub(
            lambda found: catalogues.in_phrases(app.config.language, found[0]), context["body"]
        )


def translate_instruments(app: Sphinx) -> None:
    """Give each page a script that exchanges the words of its instruments."""
    catalogue = catalogues.read(app.config.language, catalogues.INSTRUMENTS)
    if app.builder.format == "html" and catalogue is not None:
        words = {str(one.id): str(one.string) for one in catalogue if one.id and one.string and not one.fuzzy}
        app.add_js_file(None, body=words_script(words))


def words_script(words: dict[str, str]) -> str:
    """words_script.js with a catalogue in it."""
    script = Path(__file__).with_name("words_script.js").read_text(encoding="utf-8")
    return script.replace("WORDS = {}", f"WORDS = {json.dumps(words, ensure_ascii=False)}".replace("</", r"<\/"))


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_node(Words)
    app.add_transform(FindWords)
    app.add_transform(MarkWhatIsEnglish)
    app.add_transform(TranslateContents)
    app.connect("source-read", translate_launches, priority=400)  # before book_extension, which changes links in them
    app.connect("source-read", note_launches, priority=600)  # after it
    app.connect("html-page-context", translate_statements)
    app.connect("builder-inited", translate_instruments)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
