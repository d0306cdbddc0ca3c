"""A question that the reader answers before the page does.

A paragraph that begins with **Predict.** and its answer, which is all cells behind it and the `<details>` behind them,
become one box. The answer is one fold; number, figure and text open together. The metadata of the question's cell holds
its fields, which the script predict_script.js shows, and which open the fold:

    "predict": [{"ask": "one head", "kind": "number"}, {"ask": "Which?", "kind": "choice", "choices": ["a", "b"]}]

Of a "choice" one is chosen, of "several" any number.

Where the metadata of the question's cell has "tried", a sentence with places for results, the answer holds a table of
the class "predict-tried", hidden: of each way to choose a row, with the place of what is chosen in each field, counted
from 0, and then the results. The script says the sentence of the reader's own choice.

What is right for a field, where its metadata says so (tools/notebooks/predictions.py), is an attribute of the form on
the page; the script says it beside the reader's own answer.
"""

from __future__ import annotations

import html
import itertools
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from docutils import nodes
from myst_nb.sphinx_ import HideCodeCellNode
from nbformat import NotebookNode
from sphinx.application import Sphinx

from tools.notebooks import predictions
from tools.pages import catalogues
from tools.pages.page_head import code_behind_word, first_part, is_cell, raw

MARK, FIELDS, RIGHT, SEVERAL = "Predict.", "predict-fields", "predict-right-", "predict-several-"
TRIED = "predict-tried"
SHOW, LOOK, SAID = "Show what happens", "just show me", "You said:"
NUDGE = "Guess first: it is the guess that makes you remember."
NUMBER = "Please write it as a number."
ANSWER = "Answer"
CODE = {"prompt_show": "Show the code of this answer", "prompt_hide": "Hide the code of this answer"}
COMPARED = {
    "agrees": "You said {said}, and so it is.",
    "near": "You said {said}: well guessed. It is {right}.",
    "low": "You said {said}: too low. It is {right}.",
    "high": "You said {said}: too high. It is {right}.",
    "differs": "You said {said}; it is {right}.",
    "chosen": "You said “{said}”, and so it is.",
    "other": "You said “{said}”; the answer is “{right}”.",
    "range": "{low} to {high}",
}
PHRASES = (MARK, SHOW, LOOK, SAID, NUDGE, NUMBER, ANSWER, *CODE.values(), *COMPARED.values())
"""locale/*/LC_MESSAGES/book.po has them."""
KINDS = ("number", "choice", "several")
SUMMARY = re.compile(r"<details[^>]*>\s*<summary>(.*?)</summary>\s*", re.DOTALL)
FIGURE = re.compile(r"(\w+ \d+\.\d+)\.$")
END = "</details>"


def fields_of(cell: NotebookNode) -> list[dict[str, Any]]:
    """The fields of a cell, checked.

    Raises:
        ValueError: a field has another form, or the cell does not end in a paragraph that begins with **Predict.**
    """
    fields: list[dict[str, Any]] = cell.metadata.get("predict", [])
    for field in fields:
        if field.get("kind") not in KINDS or not field.get("ask", "").strip():
            raise ValueError(f"predict={dict(field)}: a field has 'ask', and a 'kind', one of {', '.join(KINDS)}")
        if field["kind"] != "number" and len(set(field.get("choices", ()))) < 2:
            raise ValueError(f"predict={dict(field)}: a choice has two or more 'choices'")
    if "tried" in cell.metadata and not (fields and all(field["kind"] == "choice" for field in fields)):
        raise ValueError(f"tried={cell.metadata['tried']!r}: each field of its question must be a choice")
    if fields and not cell.source.rstrip().rpartition("\n\n")[2].startswith(f"**{MARK}**"):
        raise ValueError(f"a cell with the metadata 'predict' does not end in a paragraph **{MARK}**: {cell.source!r}")
    return fields


def with_fields(cells: Sequence[NotebookNode], place: int) -> str:
    """The source of a cell, its fields written as a list, which is translated as the text is.

    What is right goes into a class of their container, in hexadecimal digits, which a class keeps as they are.
    """
    cell, lines = cells[place], []
    fields = fields_of(cell)
    right = [predictions.right(field, cells, place) for field in fields]
    for field in fields:
        lines.append(f"- {field['ask']}")
        lines += [f"  - {choice}" for choice in field.get("choices", ())]
    if "tried" in cell.metadata:
        lines.append(f"- {cell.metadata['tried']}")
    listed = "\n".join(lines)
    kinds = f"{FIELDS} {RIGHT}{json.dumps(right).encode().hex()}" if any(right) else FIELDS
    kinds += "".join(f" {SEVERAL}{n}" for n, field in enumerate(fields, start=1) if field["kind"] == "several")
    kinds += f" {TRIED}" * ("tried" in cell.metadata)
    return f"{cell.source}\n\n:::{{container}} {kinds}\n{listed}\n:::\n" if lines else str(cell.source)


def fold_answers(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Make a box of each question and its answer.

    Raises:
        ValueError: nothing answers a question.
    """
    if app.builder.name == "gettext":
        return
    say = catalogues.phrases(app.config.language)
    questions = [one for one in doctree.findall(nodes.paragraph) if asks(one, {MARK, say(MARK)})]
    for number, question in enumerate(questions, start=1):
        parent = question.parent
        after = parent.children[parent.index(question) + 1 :]
        fields = after[0] if after and FIELDS in getattr(after[0], "attributes", {}).get("classes", ()) else None
        parts = answer(after[1:] if fields is not None else after)
        if not parts:
            raise ValueError(f"{docname}: no answer is behind {question.astext()[:90]!r}: fold a cell or a text")
        if fields is not None and TRIED in fields["classes"] and f'class="{TRIED}"' not in shown(parts):
            raise ValueError(f"{docname}: the answer of {question.astext()[:90]!r} has no table of the class {TRIED}")
        place = parent.index(question)
        for part in (question, *([fields] if fields is not None else []), *parts):
            parent.remove(part)
        form = [] if fields is None else form_of(fields, number, figures_in(parts), say)
        parent.insert(place, nodes.container("", question, *form, *opened(parts, say), classes=["predict"]))


def asks(paragraph: nodes.paragraph, marks: set[str]) -> bool:
    first = first_part(paragraph)
    return isinstance(first, nodes.strong) and first.astext() in marks


def answer(after: list[nodes.Node]) -> list[nodes.Node]:
    """The answer among what follows a question: cells and then a fold in the text, or cells up to a folded one."""
    cells = list(itertools.takewhile(is_cell, after))
    rest = after[len(cells) :]
    if rest and is_raw(rest[0]) and SUMMARY.match(rest[0].astext()):
        depth = 0
        for length, part in enumerate(rest, start=1):
            text = part.astext() if is_raw(part) else ""
            depth += text.count("<details") - text.count(END)
            if depth == 0:
                return [*cells, *rest[:length]]
    folded = [place for place, cell in enumerate(cells, start=1) if cell.get("hide_mode") == "all"]
    return cells[: folded[-1]] if folded else []


def shown(parts: list[nodes.Node]) -> str:
    """The HTML that an answer's cells have put out."""
    return "".join(one.astext() for part in parts for one in part.findall(nodes.raw))


def is_raw(part: nodes.Node) -> bool:
    return isinstance(part, nodes.raw)


def opened(parts: list[nodes.Node], say: Callable[[str], str]) -> list[nodes.Node]:
    """The answer in one fold; its cells, and the fold of its text, have no bars of their own."""
    cells = [part for part in parts if is_cell(part)]
    texts = parts[len(cells) :]
    prompts = [str(hidden["prompt_show"]) for cell in cells for hidden in cell.findall(HideCodeCellNode)]
    summary = html.escape(next(iter(prompts), say(ANSWER)))
    for cell in cells:
        show_output(cell, say)
        cell["is_answer"] = True
    cells, code = code_apart(cells, say(CODE["prompt_show"]))
    if texts:
        summary = SUMMARY.match(texts[0].astext())[1]  # type: ignore[index]
        first = SUMMARY.sub("", texts[0].astext(), count=1)
        if len(texts) == 1:
            texts = [raw(first.rpartition(END)[0])]
        else:
            texts = [raw(first), *texts[1:-1], raw(texts[-1].astext().rpartition(END)[0])]
    begin = (
        f'<details class="predict-answer"><summary>{summary}</summary><div class="predict-opened" tabindex="-1">'
        f'<div class="predict-said" role="status" data-said="{html.escape(say(SAID), quote=True)}" hidden></div>'
    )
    return [raw(begin), *cells, *texts, *code, raw(f"</div>{END}")]


def code_apart(cells: list[nodes.container], prompt: str) -> tuple[list[nodes.container], list[nodes.Node]]:
    """The cells of an answer without what is hidden behind this prompt, and all of that code behind one word."""
    code: list[nodes.Node] = []
    for cell in cells:
        hidden = cell.children[0]
        if isinstance(hidden, HideCodeCellNode) and hidden["prompt_show"] == prompt:
            cell.remove(hidden)
            code += hidden.children
    return [cell for cell in cells if cell.children], code_behind_word(prompt, code, in_caption=False) if code else []


def show_output(cell: nodes.container, say: Callable[[str], str]) -> None:
    """Fold only the code of a cell that was folded whole, and call it code: the answer is open."""
    hidden = cell.children[0]
    if cell.get("hide_mode") == "all" and isinstance(hidden, HideCodeCellNode):
        shown = [part for part in hidden.children if "cell_input" not in part["classes"]]
        for part in shown:
            hidden.remove(part)
        cell.extend(shown)
        cell["hide_mode"] = "input"
        if not any(part.next_node(nodes.image) for part in shown):  # a figure's code has a word of its own
            for prompt, text in CODE.items():
                hidden[prompt] = say(text)


def figures_in(parts: list[nodes.Node]) -> str:
    """The figures of an answer by name, in brackets: its button names them, so that no number seems to be missing."""
    names = [FIGURE.match(strong.astext()) for part in parts for strong in part.findall(nodes.strong)]
    found = ", ".join(dict.fromkeys(name[1] for name in names if name))
    return f" ({found})" if found else ""


def form_of(fields: nodes.Element, number: int, figures: str, say: Callable[[str], str]) -> list[nodes.Node]:
    """The fields of a question, and the buttons that open the answer: hidden, until the script shows them."""
    parts: list[nodes.Node] = []
    items = [item for item in fields.children[0].children if isinstance(item, nodes.list_item)]
    tried = items.pop().astext() if TRIED in fields["classes"] else ""
    for place, item in enumerate(items, start=1):
        asked, *choices = item.children
        name = f"predict-{number}-{place}"
        if not choices:
            parts += [
                raw(f'<div class="predict-field"><label for="{name}">'),
                *asked.children,
                raw(f'</label> <input id="{name}" type="text" inputmode="decimal" size="6" maxlength="20" /></div>'),
            ]
            continue
        kind = "checkbox" if f"{SEVERAL}{place}" in fields["classes"] else "radio"
        parts += [raw('<fieldset class="predict-field"><legend>'), *asked.children, raw("</legend>")]
        for choice in choices[0].children:
            parts += [raw(f'<label><input type="{kind}" name="{name}" /> <span>'), *choice.children[0].children]
            parts.append(raw("</span></label>"))
        parts.append(raw("</fieldset>"))
    nudge, number_only = (html.escape(say(phrase), quote=True) for phrase in (NUDGE, NUMBER))
    buttons = (
        f'<p class="predict-buttons"><button type="submit">{html.escape(say(SHOW) + figures)}</button> '
        f'<button type="button" class="predict-look">{html.escape(say(LOOK))}</button></p>'
        f'<p class="predict-nudge" role="status" data-said="{nudge}" data-number="{number_only}"></p></form>'
    )
    right = "".join(bytes.fromhex(one.removeprefix(RIGHT)).decode() for one in fields["classes"] if RIGHT in one)
    said = {"right": right, **{f"say-{name}": say(phrase) for name, phrase in COMPARED.items()}} if right else {}
    said |= {"tried": tried} if tried else {}
    data = "".join(f' data-{name}="{html.escape(value, quote=True)}"' for name, value in said.items())
    return [raw(f'<form class="predict-form" autocomplete="off"{data} hidden>'), *parts, raw(buttons)]
