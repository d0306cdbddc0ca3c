"""The head of a chapter, and the code behind its figures, as the built page shows them.

A notebook begins with what runs it: links, set-up, imports. A page begins with its title, its hook and a picture; what
runs it is one fold at the end of the head, which is all that is above the first section. The picture is a figure of the
page, whose cell has the tag `opening`, shown once more in small, with a line that leads to it, or moved up from the
first section. Where an instrument is in the head, it is the picture, and its code is in the fold, too.

Code that draws a figure is behind the word *code* at the end of its caption, with what the cell prints: a number that a
reader needs is in the caption or the text.
"""

from __future__ import annotations

import html
import itertools
import re
from collections.abc import Callable

from docutils import nodes
from myst_nb.sphinx_ import HideCodeCellNode
from sphinx.application import Sphinx

from tools.pages import catalogues

OPENING, IN_SMALL = "opening", "in-small"
RUN_IN_COLAB = "Run this page yourself: Colab, set-up, imports"
RUN = "Run this page yourself: set-up, imports"
BELOW = ", from further down this page."
DESCRIBED_BELOW = "The same picture as below, where it is described:"
PHRASES = (RUN_IN_COLAB, RUN, BELOW, DESCRIBED_BELOW)  # locale/*/LC_MESSAGES/book.po has them
END_OF_SENTENCE = re.compile(r"[.?!](?=\s|$)")


def head_of(doctree: nodes.document) -> tuple[nodes.section | None, list[nodes.Node]]:
    """The section that is the page, and what it holds above its first section."""
    page = next(doctree.findall(nodes.section), None)
    parts = page.children if page is not None else []
    return page, list(itertools.takewhile(lambda part: not isinstance(part, nodes.section), parts))


def has_tag(node: nodes.Node, tag: str) -> bool:
    return isinstance(node, nodes.container) and f"tag_{tag}" in node["classes"]


def is_cell(node: nodes.Node) -> bool:
    return isinstance(node, nodes.container) and "cell" in node["classes"]


def figures_of(doctree: nodes.document) -> list[tuple[nodes.container, nodes.figure]]:
    """The figures with a caption, each with its cell. (A folded cell is not among the parents of what is in it.)"""
    cells = doctree.findall(is_cell)
    pairs = [(cell, figure) for cell in cells for figure in cell.findall(nodes.figure)]
    return [(cell, figure) for cell, figure in pairs if "captioned" in figure["classes"]]


def first_part(paragraph: nodes.paragraph) -> nodes.Node | None:
    """What a paragraph begins with, a word set in bold for instance. (MyST begins each with an empty text.)"""
    return next((child for child in paragraph.children if child.astext()), None)


def raw(text: str) -> nodes.raw:
    return nodes.raw("", text, format="html")


def fold_head(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Put what runs the page, launch links, set-up and imports, into one fold, where the last of them is."""
    if app.builder.name == "gettext":  # collects the words for translators, cell by cell
        return
    page, head = head_of(doctree)
    cells = [part for part in head if is_only_code(part)]
    set_up = next((cell for cell in cells if has_tag(cell, "set-up")), None)
    if page is None or set_up is None:
        return
    launch = page[page.index(set_up) - 1]
    if not isinstance(launch, nodes.paragraph):
        raise ValueError(f"{docname}: the cell tagged 'launch' must be directly above the one tagged 'set-up'")
    place = page.index(cells[-1]) - len(cells)
    for part in (launch, *cells):
        page.remove(part)
    parts = [launch, *code_of_instruments(head), *cells]
    for cell in cells:
        unfold(cell)
    in_colab = any("colab" in link.get("refuri", "") for link in launch.findall(nodes.reference))
    said = catalogues.phrases(app.config.language)(RUN_IN_COLAB if in_colab else RUN)
    begin = raw(f'<details class="head-fold"><summary>{html.escape(said)}</summary>')
    page.insert(place, [begin, *parts, raw("</details>")])


def code_of_instruments(head: list[nodes.Node]) -> list[nodes.Node]:
    """The folded code of the head's instruments, taken out of their cells."""
    found: list[nodes.Node] = []
    for cell in filter(is_instrument, head):
        for hidden in [part for part in cell.children if isinstance(part, HideCodeCellNode)]:
            cell.remove(hidden)
            found += hidden.children
    return found


def is_instrument(part: nodes.Node) -> bool:
    """Whether a part of the page is a cell that shows an instrument."""
    return is_cell(part) and not is_only_code(part) and not any(part.findall(nodes.image))


def is_only_code(part: nodes.Node) -> bool:
    """Whether a part of the page is a cell that shows neither a picture nor an instrument."""
    shows = (nodes.image, nodes.raw)
    return is_cell(part) and not any(isinstance(one, shows) for one in part.findall())


def unfold(cell: nodes.Element) -> None:
    """Show the code of a cell: it is in a fold already."""
    for hidden in list(cell.findall(HideCodeCellNode)):
        cell.insert(cell.index(hidden), hidden.children)
        cell.remove(hidden)


def fold_code_of_figures(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Move the folded code of a figure, and what its cell prints, behind a word at the end of the caption."""
    for cell, figure in figures_of(doctree):
        hidden = next((part for part in cell.children if isinstance(part, HideCodeCellNode)), None)
        if cell.get("hide_mode") != "input" or hidden is None:
            continue
        cell.remove(hidden)
        printed = [part for part in figure.parent.children if isinstance(part, nodes.literal_block)]
        for text in printed:
            figure.parent.remove(text)
        texts = [nodes.container("", *printed, classes=["cell_output", "figure-text"])] if printed else []
        figure += nodes.legend("", *code_behind_word(str(hidden["prompt_show"]), [*hidden.children, *texts]))


def code_behind_word(name: str, parts: list[nodes.Node], *, in_caption: bool = True) -> list[nodes.Node]:
    """Parts of a page behind a link: its whole name, or in a caption, behind the files of the figure, the word *code*,
    whose whole name is for screen readers and for paper."""
    said = f'code<span class="in-words">: {html.escape(name)}</span>' if in_caption else html.escape(name)
    return [raw(f'<details class="figure-code"><summary>{said}</summary>'), *parts, raw("</details>")]


def open_with_picture(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Show the opening figure under the hook: the figure itself if it is in the head, or tagged `opening` in the first
    section, where it would be seen twice on one screen; else its picture in small."""
    page, head = head_of(doctree)
    cell, figure = opening_figure(doctree)
    if page is None or figure is None or any(map(is_instrument, head)):
        return
    lists = [place for place, part in enumerate(head) if isinstance(part, nodes.bullet_list)]
    if not lists:
        raise ValueError(f"{docname}: no list of aims, above which the picture of the head goes")
    under_hook = lists[0] - 1  # above "After this page you can"
    if cell is not None and (cell in head or (has_tag(cell, OPENING) and cell.parent is first_section(page))):
        cell.parent.remove(cell)
        page.insert(under_hook, cell)
    else:
        page.insert(under_hook, plate(figure, catalogues.phrases(app.config.language)))


def first_section(page: nodes.section) -> nodes.Node | None:
    return next((part for part in page.children if isinstance(part, nodes.section)), None)


def opening_figure(doctree: nodes.document) -> tuple[nodes.container | None, nodes.figure | None]:
    """The figure whose cell is tagged `opening`, or the first that is no answer; its cell before it."""
    found = figures_of(doctree)
    chosen = [pair for pair in found if has_tag(pair[0], OPENING)]
    chosen += [pair for pair in found if pair[0].get("hide_mode") != "all" and not pair[0].get("is_answer")]
    return chosen[0] if chosen else (None, None)


def plate(figure: nodes.figure, say: Callable[[str], str]) -> nodes.figure:
    """The picture of a figure once more, with its number, a link, and the first sentence of its caption."""
    frame, caption = figure[0].deepcopy(), figure[1]
    number = next(iter(caption.findall(nodes.strong))).astext().rstrip(".")
    frame["classes"] = ["opening-frame"]
    for image in frame.findall(nodes.image):
        image["alt"] = f"{say(DESCRIBED_BELOW)} {number}"
        image["classes"] = [*image["classes"], IN_SMALL]
    link = nodes.reference("", number, internal=True, refuri=f"#{figure['ids'][0]}")
    said = nodes.caption("", "", *first_sentence(caption), nodes.Text(" "), link, nodes.Text(say(BELOW)))
    return nodes.figure("", frame, said, classes=[OPENING], ids=["opening-figure"])


def first_sentence(caption: nodes.caption) -> list[nodes.Node]:
    """What a caption says first, behind its number."""
    found: list[nodes.Node] = []
    number = next(iter(caption.findall(nodes.strong)))
    for part in caption.children[caption.index(number) + 1 :]:
        end = END_OF_SENTENCE.search(part.astext()) if isinstance(part, nodes.Text) else None
        if end:
            return [*found, nodes.Text(part.astext()[: end.end()])]
        found.append(part.deepcopy())
    return found
