"""Sphinx extension of this book: instruments from our own pages, exercises, figures, statements."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import nbformat
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.environment import BuildEnvironment

from mhalib.widgets import live_names, page_script, style_sheet, weights_script
from tools.notebooks import statements
from tools.pages import deeper, downloads, folds, kit, moved, page_head, predict, theme_words
from tools.teaching import exercises

INSTRUMENTS, LIVE = "instruments", "live"
OF_THIS_RUN = '<p class="statement of-this-run">From one run of the code. If you run it, yours will differ.</p>'
CAPTION = re.compile(r"Figure (\d+\.\d+)\.")
FIGURE = re.compile(r"Figure[ \u00a0]\d+\.\d+")
FOLDS = {  # by tag: what the fold of a cell says where the cell itself does not
    "set-up": ("Show how this page installs what it needs in Colab", "Hide how this page installs what it needs"),
    exercises.EXERCISE: ("Show a solution, and what the checker says", "Hide the solution"),
}
PERCENT = re.compile(r"(?<!\D) %")  # behind a number, which may be a field of its own
DIGITS = re.compile(r"\b\d(?: \d)+\b")
SHORT_CODE = 24  # characters, half of a phone's line
FITS_A_PHONE, SMALLER = 49, (56, 64)  # characters: what a phone holds in its own letters, and in two smaller sizes
MEASURED = '<p class="statement measured" title="{said}"><span aria-hidden="true">±</span><span>{said}</span></p>'


def write_instruments(app: Sphinx) -> None:
    """One script and one style for the instruments of all pages, made from the package's files."""
    folder = Path(app.outdir) / "_static"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / INSTRUMENTS).with_suffix(".js").write_text(page_script(), encoding="utf-8")
    (folder / INSTRUMENTS).with_suffix(".css").write_text(style_sheet(), encoding="utf-8")
    app.add_js_file(f"{INSTRUMENTS}.js", loading_method="defer")
    app.add_css_file(f"{INSTRUMENTS}.css")
    (folder / LIVE).with_suffix(".js").write_text(page_script("LiveModel"), encoding="utf-8")
    (folder / LIVE).mkdir(exist_ok=True)
    for name in live_names():
        (folder / LIVE / f"{name}.js").write_text(weights_script(name), encoding="utf-8")


def load_live_models(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object) -> None:
    """The script that runs models, on the pages that have one. It loads their weights itself, when they come near."""
    if 'data-script="LiveModel"' in context.get("body", ""):
        app.add_js_file(f"{LIVE}.js", loading_method="defer")


def write_title(app: Sphinx, config: Config) -> None:
    """Show the title beside the logo. _config.yml cannot say it without dropping Jupyter Book's other theme options."""
    config.html_theme_options["logo"] = {"text": config.html_title}


def mend_roles(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object) -> None:
    """docutils gives the entries of a bibliography a role that the list around them may not hold, and MyST-NB gives
    all folds one name, which hides from screen readers what is written on them."""
    if "body" in context:
        entries, folds = theme_words.ENTRIES, theme_words.FOLD
        body = theme_words.replaced_within(context["body"], entries, theme_words.ENTRY, 'role="listitem"', page)
        context["body"] = theme_words.replaced_within(body, folds, theme_words.FOLD_NAME, "<summary>", page)


def number_chapter(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object) -> None:
    """Tell the style sheet a chapter's number, which it shows on paper."""
    found = kit.CHAPTER.match(page)
    if found and "body" in context:
        title = f'{theme_words.TITLE} data-chapter="{int(found[1])}"'
        context["body"] = theme_words.replaced(context["body"], theme_words.TITLE, title, page)


def link_downloads(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object) -> None:
    """Link the PDF and the EPUB on the start page, where an earlier `make pdf` or `make epub` has left them."""
    if f"{page}.html" == downloads.START and "body" in context:
        context["body"] = downloads.html_with_links(context["body"], downloads.links(Path(app.outdir)))


def caption_figures(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Move a paragraph that begins **Figure 7.2.** into a figure with the framed picture of the cell above it."""
    if app.builder.name == "gettext":  # collects the words for translators, and no pictures
        return
    for paragraph in list(doctree.findall(nodes.paragraph)):
        number, parent = caption_number(paragraph), paragraph.parent
        if number is None or "stale-translation" in parent.get("classes", []):  # an older caption, kept in a box
            continue
        place = parent.index(paragraph)
        pictures = list(parent[place - 1].findall(nodes.image)) if place else []
        if not pictures:
            raise ValueError(f"{docname}: no picture directly above the caption of Figure {number}: move one of them")
        frame = pictures[-1].parent
        figure = nodes.figure("", classes=["captioned", "cell_output"], ids=[figure_id(number)])
        frame.parent.replace(frame, figure)
        figure += [frame, nodes.caption("", "", *paragraph.children)]
        parent.remove(paragraph)


def caption_number(paragraph: nodes.paragraph) -> str | None:
    """Of which figure a paragraph is the caption: `7.2`; `None` for other paragraphs."""
    first = page_head.first_part(paragraph)
    found = CAPTION.fullmatch(first.astext()) if isinstance(first, nodes.strong) else None
    return found[1] if found else None


def figure_id(number: str) -> str:
    return "figure-" + number.replace(".", "-")


def link_figures(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Make links of the words `Figure 7.2`, to this page or another; captions and titles stay as they are."""
    found_chapters = filter(None, map(kit.CHAPTER.match, app.env.found_docs))
    pages = {int(chapter[1]): chapter.string for chapter in found_chapters}
    for paragraph in list(doctree.findall(nodes.paragraph)):
        for text in list(paragraph.findall(nodes.Text)):
            if not isinstance(text.parent, nodes.reference | nodes.literal) and FIGURE.search(text):
                text.parent.replace(text, linked(app, docname, text.astext(), pages))


def linked(app: Sphinx, docname: str, text: str, pages: dict[int, str]) -> list[nodes.Node]:
    """The text in pieces, each `Figure 7.2` in it a link."""
    made: list[nodes.Node] = []
    for piece in re.split(f"({FIGURE.pattern})", text):
        found = FIGURE.fullmatch(piece)
        if found is None:
            made.append(nodes.Text(piece))
            continue
        number = found[0].removeprefix("Figure").strip()
        chapter = int(number.partition(".")[0])
        if chapter not in pages:
            raise ValueError(f"{docname}: {found[0]!r} is in a chapter that is not there: mend the number")
        address = app.builder.get_relative_uri(docname, pages[chapter]) if pages[chapter] != docname else ""
        made.append(nodes.reference("", piece, internal=True, refuri=f"{address}#{figure_id(number)}"))
    return [one for one in made if one.astext()]


def keep_short_code_whole(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Mark code in a sentence, not in a table, that no line should break, such as `4 b a l l .`"""
    for paragraph in doctree.findall(nodes.paragraph):
        if isinstance(paragraph.parent, nodes.entry):
            continue
        for code in paragraph.findall(nodes.literal):
            if len(code.astext()) <= SHORT_CODE:
                code["classes"].append("short")


def keep_numbers(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Let no line end between a number and its %, or in a row of digits such as 5 5 2 2."""
    for text in list(doctree.findall(nodes.Text)):
        if isinstance(text.parent, nodes.FixedTextElement | nodes.literal | nodes.raw):
            continue
        kept = PERCENT.sub("\u00a0%", DIGITS.sub(lambda row: row[0].replace(" ", "\u00a0"), text))
        if kept != text:
            text.parent.replace(text, nodes.Text(kept))


def keep_columns(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Mark printed tables and rows of numbers: on a phone, sentences wrap, but these would be torn apart.

    What is a little too wide for a phone gets a mark of its own, too, by which its letters are smaller there.
    """
    for output in list(doctree.findall(nodes.container)):
        if "cell_output" in output["classes"]:
            for text in output.findall(nodes.literal_block):
                if has_columns(text.astext()):
                    text["classes"].append("columns")
                    longest = max(len(line) for line in text.astext().splitlines())
                    most = next((size for size in (FITS_A_PHONE, *SMALLER) if longest <= size), None)
                    if most in SMALLER:
                        text["classes"].append(f"columns-{most}")


def has_columns(text: str) -> bool:
    """Whether parts of a printed text stand under each other by spaces in several lines, or numbers in a row.

    Numbers in a line of two sentences are no row.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    under = len(lines) > 1 and any(re.search(r"\S {2,}\S|^ {4,}\S", line) for line in lines)
    row, sentences = re.compile(r"\d[\])]?,? +[-+\[(]?\d+\b"), re.compile(r"[a-z]\. [A-Z]")
    return under or any(row.search(line) and not sentences.search(line) for line in lines)


def mark_statements(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Say of an output that it is of one run, or, behind a small sign, how far its numbers may differ in another."""
    for cell in list(doctree.findall(page_head.is_cell)):
        outputs = [child for child in cell.children if "cell_output" in child.get("classes", [])]
        if not outputs:
            continue
        if f"tag_{statements.OF_THIS_RUN}" in cell["classes"]:
            outputs[0].insert(0, nodes.raw("", OF_THIS_RUN, format="html"))
        elif stated := stated_in(docname, cell):
            said = html.escape(f"Another run may differ by {stated}", quote=True)
            printed = [part for part in cell.findall(nodes.container) if "figure-text" in part["classes"]]
            (printed or outputs)[0].insert(0, nodes.raw("", MEASURED.format(said=said), format="html"))


def stated_in(docname: str, cell: nodes.container) -> statements.Measured | None:
    """What a cell states of its numbers; an error names the page."""
    try:
        return statements.measured(cell.get("cell_metadata") or {})
    except ValueError as error:
        raise ValueError(f"{docname}.ipynb, metadata of a cell: {error}") from error


def prepare_cells(app: Sphinx, docname: str, source: list[str]) -> None:
    """Name the folds, and show of an exercise the code to mend; solution and what the checker says are folded."""
    if not str(app.env.doc2path(docname)).endswith(".ipynb"):
        return
    notebook = nbformat.reads(source[0], as_version=4)
    cells = []
    for place, cell in enumerate(notebook.cells):
        tags = cell.metadata.get("tags", [])
        for tag in FOLDS.keys() & tags:
            shown = cell.metadata.setdefault("mystnb", {})
            shown.setdefault("code_prompt_show", FOLDS[tag][0])
            shown.setdefault("code_prompt_hide", FOLDS[tag][1])
        if "exercise-launch" in tags:  # Sphinx takes a notebook's link for one to a page
            cell.source = cell.source.replace("](../exercises/", "](path:../exercises/")
        if "predict" in cell.metadata:
            cell.source = fields_written(docname, notebook.cells, place)
        if exercises.EXERCISE in tags:
            cell.metadata.tags = [*(tag for tag in tags if tag != "hide-input"), "hide-cell"]
            wrong = exercises.code_to_mend(cell.source)
            if wrong is not None:
                text = f":::{{container}} {folds.TO_REPAIR}\nCode to repair:\n\n```python\n{wrong}\n```\n:::"
                cells.append(nbformat.v4.new_markdown_cell(text))
            cell.source = exercises.with_solution(cell.source)
        cells.append(cell)
    notebook.cells = cells
    source[0] = nbformat.writes(notebook)


def fields_written(docname: str, cells: Sequence[nbformat.NotebookNode], place: int) -> str:
    """The source of a cell with the fields of its question; an error names the page."""
    try:
        return predict.with_fields(cells, place)
    except ValueError as error:
        raise ValueError(f"{docname}.ipynb: {error}") from error


def quotable(env: BuildEnvironment) -> dict[str, list[str]]:
    """What other pages may show of a page or link to: its title, headings, anchors and labels, and what it cites."""
    labels = env.get_domain("std").data["labels"]
    citations: Any = env.get_domain("cite")
    return {
        name: [
            env.titles[name].astext(),
            env.tocs[name].pformat(),
            *sorted(env.metadata[name].get("myst_slugs", ())),
            *sorted(label for label, (page, *_) in labels.items() if page == name),
            *sorted(target.key for one in citations.citation_refs if one.docname == name for target in one.targets),
        ]
        for name in sorted(env.found_docs)
    }


def write_all_where_one_quotes_another(app: Sphinx, env: BuildEnvironment) -> Iterable[str]:
    """Sphinx writes the pages that changed; if what others may quote has changed too, all are to be written."""
    ours: Any = env  # Sphinx keeps what is added to it
    before, now = getattr(ours, "book_quotable", None), quotable(env)
    ours.book_quotable = now
    return env.found_docs if before not in (None, now) else ()


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_config_value("comments_config", {}, "html")  # Jupyter Book sets it for sphinx_comments, which we left out
    app.connect("config-inited", write_title)
    app.connect("builder-inited", write_instruments)
    app.connect("source-read", prepare_cells)
    app.connect("env-get-updated", write_all_where_one_quotes_another)
    app.connect("doctree-resolved", caption_figures)
    app.connect("doctree-resolved", link_figures)
    app.connect("doctree-resolved", keep_numbers)
    app.connect("doctree-resolved", keep_columns)
    app.connect("doctree-resolved", keep_short_code_whole)
    app.connect("doctree-resolved", deeper.mark_sections)
    app.connect("doctree-resolved", folds.join_code)
    app.connect("doctree-resolved", predict.fold_answers)
    app.connect("doctree-resolved", page_head.fold_head)
    app.connect("doctree-resolved", page_head.fold_code_of_figures)
    app.connect("doctree-resolved", page_head.open_with_picture)
    app.connect("doctree-resolved", mark_statements)
    app.connect("doctree-resolved", folds.fold_code)
    app.connect("doctree-resolved", folds.fold_exercises)
    app.connect("html-page-context", deeper.mark_contents, priority=400)  # before the theme reads the contents
    app.connect("html-page-context", mend_roles)
    app.connect("html-page-context", number_chapter)
    app.connect("html-page-context", link_downloads)
    app.connect("html-page-context", load_live_models)
    app.connect("build-finished", moved.write_pages, priority=910)  # when finish.py has finished the others
    return {"parallel_read_safe": True, "parallel_write_safe": True}
