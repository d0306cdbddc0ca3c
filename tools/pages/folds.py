"""Few bars. Code behind a word, the exercises in code of a page behind one bar, and bars counted.

The code of a cell tagged `hide-input` is behind a link below what the cell shows, which says what it opens, as that of
a figure is behind the word *code* below its caption; the code of such cells directly above it, which show nothing, is
there too. Each exercise in code has its title and text, and one fold that opens hint by hint.
"""

from __future__ import annotations

import html
from collections.abc import Callable

from bs4 import BeautifulSoup
from docutils import nodes
from myst_nb.sphinx_ import HideCodeCellNode
from sphinx.application import Sphinx

from tools.pages import catalogues
from tools.pages.page_head import code_behind_word, has_tag, head_of, is_cell, raw

BARS_AT_MOST = 10
TO_REPAIR = "code-to-repair"  # a container that book_extension.py writes
NUMBERS = ("Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten", "Eleven", "Twelve")
IN_CODE = (
    "One exercise in code, with hints and a solution",
    *(f"{number} exercises in code, with hints and solutions" for number in NUMBERS),
)
SOLUTION = "Hints and solution"
PHRASES = (*IN_CODE, SOLUTION)  # locale/*/LC_MESSAGES/book.po has them


def join_code(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Give the folded code of a cell that shows nothing to a folded cell directly below it; not in the head."""
    if app.builder.name == "gettext":
        return
    page, _ = head_of(doctree)
    for cell in list(doctree.findall(is_folded)):
        parent = cell.parent
        place = parent.index(cell)
        below = parent.children[place + 1 : place + 2]
        if parent is not page and len(cell.children) == 1 and any(map(is_folded, below)):
            parent.remove(cell)
            below[0].children[0].insert(0, cell.children[0].children)


def is_folded(part: nodes.Node) -> bool:
    """Whether a part of the page is a cell whose code, and nothing else, is folded."""
    return is_cell(part) and part.get("hide_mode") == "input" and isinstance(part.children[0], HideCodeCellNode)


def fold_code(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Move the folded code of a cell that shows something behind a word below it."""
    for cell in list(doctree.findall(is_cell)):
        hidden = next((part for part in cell.children if isinstance(part, HideCodeCellNode)), None)
        if hidden is not None and cell.get("hide_mode") == "input" and len(cell.children) > 1:
            cell.remove(hidden)
            cell += code_behind_word(str(hidden["prompt_show"]), hidden.children, in_caption=False)


def fold_exercises(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Put the exercises in code of a page, and what leads to them, behind a bar; hints and solution of each, too.

    Raises:
        ValueError: there are more of them than the bar has words for.
    """
    if app.builder.name == "gettext":
        return
    say = catalogues.phrases(app.config.language)
    sections = [one for one in doctree.findall(nodes.section) if any(map(is_exercise, one.children))]
    for section in sections:
        fold_solution(section, say)
    for parent in {id(one.parent): one.parent for one in sections}.values():
        own = [one for one in sections if one.parent is parent]
        begin, end = 1, parent.index(own[-1]) + 1  # all of *In code* but its title
        if len(own) > len(IN_CODE):
            raise ValueError(
                f"{docname}: {len(own)} exercises in code: add a number to NUMBERS in tools/pages/folds.py"
            )
        text = html.escape(say(IN_CODE[len(own) - 1]))
        inside = parent.children[begin:end]
        del parent[begin:end]
        bar = raw(f'<details class="exercises-in-code"><summary>{text}</summary>')
        parent.insert(begin, [bar, *inside, raw("</details>")])


def is_exercise(part: nodes.Node) -> bool:
    return has_tag(part, "exercise")


def fold_solution(section: nodes.section, say: Callable[[str], str]) -> None:
    """Put hints and solution of an exercise into one fold; code to repair stays above it."""
    last = next(place for place, part in enumerate(section.children) if is_exercise(part))
    first = next((place for place, part in enumerate(section.children[:last]) if begins_fold(part)), last)
    parts = section.children[first : last + 1]
    above = [part for part in parts if TO_REPAIR in getattr(part, "attributes", {}).get("classes", ())]
    inside = [part for part in parts if part not in above]
    del section[first : last + 1]
    begin = raw(f'<details class="solution"><summary>{html.escape(say(SOLUTION))}</summary>')
    section.insert(first, [*above, begin, *inside, raw("</details>")])


def begins_fold(part: nodes.Node) -> bool:
    return isinstance(part, nodes.raw) and part.astext().startswith("<details")


def bars(page: str) -> list[str]:
    """What is written on the bars of a built page, as a reader meets them: closed folds that are in no other.

    Code behind a word is no bar, nor is a question that has fields, nor what an instrument shows.
    """
    article = BeautifulSoup(page, "html.parser").find("article")
    found = []
    for fold in article.find_all("details") if article is not None else ():
        if fold.find_parent("details") is not None or fold.find_parent(class_="mhalib-instrument") is not None:
            continue
        kinds = fold.get_attribute_list("class")
        asked = "predict-answer" in kinds and fold.find_previous_sibling("form") is not None
        if not asked and "figure-code" not in kinds:
            summary = fold.find("summary")
            said = summary.select_one("p.collapsed") or summary if summary is not None else fold
            found.append(" ".join(said.get_text().split()))
    return found
