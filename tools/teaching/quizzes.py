"""Quizzes, quizzes/TOPIC.md, as pages, for Moodle, as QTI 2.1, and as an exam.

    python -m tools.teaching.quizzes                    writes all into _build/html/_downloads/quizzes
    python -m tools.teaching.quizzes exam --chapters 3 4 5 --questions 8 --seed 7 --out exam

A file holds five questions, and a teacher can change it in any editor:

    # The reshape trick

    ## The row of a head

    *With* h = 8, 12; b = 2, 1

    {= h} heads are folded into the batch. In which row is head 0 of example {= b}?

    - [x] {= b * h}
      Each example has h rows.
    - [ ] {= b}
      An example has h rows, not one.

Each answer has its reason: why it is right, or what is wrong. `*With*` gives variants, the first values together, then
the second; `{= expression:format}` is Python, with `mhalib`, `costs`, `roofline`, `parallel`, `torch` and `math`.
"""

from __future__ import annotations

import argparse
import html
import itertools
import math
import random
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from xml.sax.saxutils import escape, quoteattr

import torch
from markdown_it import MarkdownIt

import mhalib
from mhalib import costs, parallel, roofline
from mhalib._write import write_whole
from tools import ROOT
from tools.notebooks import notebooks
from tools.teaching.closed_page import closed_page

SOURCES, FOLDER = ROOT / "quizzes", "_downloads/quizzes"
KNOWN = {"mhalib": mhalib, "costs": costs, "roofline": roofline, "parallel": parallel, "torch": torch, "math": math}
EXPRESSION = re.compile(r"\{= ([^{}]+)\}")
WITH = re.compile(r"^\*With\* (.+)\n", re.MULTILINE)
ANSWER = re.compile(r"^- \[(?P<mark>[x ])\] (?P<text>.+)\n(?P<why>(?:  .+\n?)+)", re.MULTILINE)
BOOK = "Attention, Head by Head"
markdown = MarkdownIt("commonmark", {"html": False, "xhtmlOut": True})


class Answer(NamedTuple):
    text: str
    why: str
    is_right: bool


class Question(NamedTuple):
    """One variant of a question; texts are Markdown, its values put in."""

    name: str  # such as reshape_trick-1a
    title: str
    text: str
    answers: tuple[Answer, ...]


class Quiz(NamedTuple):
    topic: str
    title: str
    questions: tuple[tuple[Question, ...], ...]  # of each question, its variants


def values(given: str) -> list[dict[str, Any]]:
    """`h = 8, 12; b = 2, 1` as `[{"h": 8, "b": 2}, {"h": 12, "b": 1}]`.

    Raises:
        ValueError: the names do not have equally many values.
    """
    lists = {name.strip(): some.split(",") for name, _, some in (part.partition("=") for part in given.split(";"))}
    rows = zip(*(map(float, some) for some in lists.values()), strict=True)
    return [{name: int(x) if x == int(x) else x for name, x in zip(lists, row, strict=True)} for row in rows]


def filled(text: str, found: dict[str, Any]) -> str:
    """The text with each expression computed."""
    return EXPRESSION.sub(lambda one: str(eval(f'f"""{{{one[1]}}}"""', {**KNOWN, **found})), text)  # noqa: S307


def read(path: Path) -> Quiz:
    """The quiz in a file.

    Raises:
        ValueError: a question has not four different answers with reasons, of which one is right; it is named.
    """
    title, *parts = path.read_text(encoding="utf-8").split("\n## ")
    questions = []
    for number, part in enumerate(parts, 1):
        heading, _, body = part.partition("\n")
        where = f"{path.name}, question {number}, {heading!r}"
        given = WITH.search(body)
        try:
            rows = values(given[1]) if given else [{}]
        except ValueError as error:
            raise ValueError(f"{where}: *With* needs names with equally many numbers ({error})") from error
        variants = []
        for letter, row in zip("abcdefgh", rows, strict=False):
            text = filled(WITH.sub("", body), row)
            answers = tuple(
                Answer(one["text"], re.sub(r"\s+", " ", one["why"]).strip(), one["mark"] == "x")
                for one in ANSWER.finditer(text + "\n")
            )
            asked = text.partition("\n- [")[0].strip()
            if text.count("\n- [") != 4 or len(answers) != 4 or not asked:
                raise ValueError(f"{where}: four answers, each with its reason below, not {len(answers)}")
            if len({one.text for one in answers}) != 4:
                raise ValueError(f"{where}: two answers are the same with {row}")
            if sum(one.is_right for one in answers) != 1:
                raise ValueError(f"{where}: one answer is right, marked [x]")
            order = list(answers)
            random.Random(f"{path.stem} {number}").shuffle(order)
            name = f"{path.stem}-{number}{letter if given else ''}"
            variants.append(Question(name, heading, asked, tuple(order)))
        questions.append(tuple(variants))
    return Quiz(path.stem, title.removeprefix("# ").strip(), tuple(questions))


def chapters() -> dict[str, str]:
    """The file of each topic's chapter, without its ending, in reading order."""
    return {path.stem[3:]: path.stem for path in sorted(notebooks.CHAPTERS.glob("[0-9][0-9]_*.ipynb"))}


def quizzes(folder: Path = SOURCES) -> list[Quiz]:
    """All quizzes, in the order of their chapters."""
    return [read(folder / f"{topic}.md") for topic in chapters() if (folder / f"{topic}.md").exists()]


def rendered(text: str) -> str:
    return str(markdown.render(text)).strip()


def inline(text: str) -> str:
    return str(markdown.renderInline(text)).strip()


# Moodle


def moodle(groups: Iterable[tuple[str, Iterable[Question]]]) -> str:
    """Moodle's XML: for each group its path of categories, and its questions."""

    def formatted(tag: str, text: str, more: str = "") -> str:
        return f'<{tag} format="html"{more}><text>{escape(text)}</text>'

    parts = ['<?xml version="1.0" encoding="UTF-8"?>\n<quiz>\n']
    for path, questions in groups:
        parts.append(f'<question type="category"><category><text>{escape(path)}</text></category></question>\n')
        for question in questions:
            parts.append(
                f'<question type="multichoice">\n<name><text>{escape(question.title)}</text></name>\n'
                f"{formatted('questiontext', rendered(question.text))}</questiontext>\n"
                "<defaultgrade>1</defaultgrade><penalty>0.3333333</penalty><hidden>0</hidden>\n"
                f"<idnumber>{question.name}</idnumber><single>true</single>"
                "<shuffleanswers>true</shuffleanswers><answernumbering>abc</answernumbering>\n"
            )
            for answer in question.answers:
                fraction = f' fraction="{100 if answer.is_right else 0}"'
                parts.append(
                    f"{formatted('answer', inline(answer.text), fraction)}"
                    f"{formatted('feedback', inline(answer.why))}</feedback></answer>\n"
                )
            parts.append("</question>\n")
    return "".join([*parts, "</quiz>\n"])


def categories(quiz: Quiz) -> Iterator[tuple[str, tuple[Question, ...]]]:
    """A category for each question, so that a random question of it is one of its variants."""
    for number, variants in enumerate(quiz.questions, 1):
        names = BOOK, f"{chapters()[quiz.topic][:2]} {quiz.title}", f"{number} {variants[0].title}"
        yield "$course$/top/" + "/".join(name.replace("/", "//") for name in names), variants


# QTI 2.1

QTI = "http://www.imsglobal.org/xsd/imsqti_v2p1"
SCHEMA = 'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:schemaLocation'
ITEM = f"""<?xml version="1.0" encoding="UTF-8"?>
<assessmentItem xmlns="{QTI}" {SCHEMA}="{QTI} http://www.imsglobal.org/xsd/qti/qtiv2p1/imsqti_v2p1.xsd"
 identifier="{{name}}" title={{title}} adaptive="false" timeDependent="false">
<responseDeclaration identifier="RESPONSE" cardinality="single" baseType="identifier">
<correctResponse><value>{{right}}</value></correctResponse></responseDeclaration>
<outcomeDeclaration identifier="SCORE" cardinality="single" baseType="float"/>
<outcomeDeclaration identifier="FEEDBACK" cardinality="single" baseType="identifier"/>
<itemBody>
<div>{{text}}</div>
<choiceInteraction responseIdentifier="RESPONSE" shuffle="true" maxChoices="1">
{{choices}}</choiceInteraction>
</itemBody>
<responseProcessing>
<responseCondition><responseIf><match><variable identifier="RESPONSE"/><correct identifier="RESPONSE"/></match>
<setOutcomeValue identifier="SCORE"><baseValue baseType="float">1</baseValue></setOutcomeValue></responseIf>
<responseElse><setOutcomeValue identifier="SCORE"><baseValue baseType="float">0</baseValue></setOutcomeValue>
</responseElse></responseCondition>
<setOutcomeValue identifier="FEEDBACK"><variable identifier="RESPONSE"/></setOutcomeValue>
</responseProcessing>
{{feedback}}</assessmentItem>
"""
CONTENT = "http://www.imsglobal.org/xsd/imscp_v1p1"
MANIFEST = f"""<?xml version="1.0" encoding="UTF-8"?>
<manifest xmlns="{CONTENT}" {SCHEMA}="{CONTENT} http://www.imsglobal.org/xsd/qti/qtiv2p1/qtiv2p1_imscpv1p2_v1p0.xsd"
 identifier="head-by-head">
<metadata><schema>QTIv2.1 Package</schema><schemaversion>1.0.0</schemaversion></metadata>
<organizations/>
<resources>
{{resources}}</resources>
</manifest>
"""


def item(question: Question) -> str:
    """A question as an assessmentItem of QTI 2.1."""
    marked = dict(zip("ABCD", question.answers, strict=True))
    return ITEM.format(
        name=question.name,
        title=quoteattr(question.title),
        right=next(letter for letter, answer in marked.items() if answer.is_right),
        text=rendered(question.text),
        choices="".join(
            f'<simpleChoice identifier="{letter}">{inline(answer.text)}</simpleChoice>\n'
            for letter, answer in marked.items()
        ),
        feedback="".join(
            f'<modalFeedback outcomeIdentifier="FEEDBACK" identifier="{letter}" showHide="show">'
            f"{inline(answer.why)}</modalFeedback>\n"
            for letter, answer in marked.items()
        ),
    )


def write_qti(path: Path, questions: Iterable[Question]) -> None:
    """A package: a manifest and a file for each question. The same questions give the same bytes."""
    files = {f"{question.name}.xml": item(question) for question in questions}
    resources = "".join(
        f'<resource identifier="{name[:-4]}" type="imsqti_item_xmlv2p1" href="{name}"><file href="{name}"/></resource>\n'
        for name in files
    )
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as package:
        for name, text in {"imsmanifest.xml": MANIFEST.format(resources=resources), **files}.items():
            package.writestr(zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0)), text, zipfile.ZIP_DEFLATED)


# Pages


def shown(question: Question, number: int, answer_of: Callable[[Answer], str]) -> str:
    answers = "".join(map(answer_of, question.answers))
    return f'<div class="variant"><h2>{number}. {inline(question.title)}</h2>{rendered(question.text)}{answers}</div>'


def fold(answer: Answer) -> str:
    said = "Right." if answer.is_right else "No."
    kind = "right" if answer.is_right else "wrong"
    return (
        f'<details class="{kind}"><summary>{inline(answer.text)}</summary>'
        f"<p><strong>{said}</strong> {inline(answer.why)}</p></details>"
    )


def page(quiz: Quiz) -> str:
    """A quiz as a page: each answer opens its reason. Scripts count, and offer other numbers."""
    stem = chapters()[quiz.topic]
    questions = "\n".join(
        f'<section class="question">{"".join(shown(one, number, fold) for one in variants)}</section>'
        for number, variants in enumerate(quiz.questions, 1)
    )
    files = f'<a href="{stem}.xml" download>Moodle</a>, <a href="{stem}.zip" download>QTI 2.1</a>'
    body = (
        f'<main><p class="where"><a href="../../chapters/{stem}.html">{html.escape(quiz.title)}</a></p>'
        f"<h1>Quiz: {html.escape(quiz.title)}</h1><p>Choose an answer: it says why it is right, or what is wrong.</p>\n"
        f'{questions}\n<p class="score" role="status"></p><p class="files">For your course: {files}.</p></main>'
    )
    return closed_page(f"Quiz: {quiz.title}", body, "quizzes")


def paper(questions: list[Question], title: str) -> str:
    """An exam to print, and its answers on a page of their own."""
    asked, solved = [], []
    for number, question in enumerate(questions, 1):
        letters = iter("ABCD")
        asked.append(shown(question, number, lambda answer, to=letters: f"<p>☐ {next(to)}. {inline(answer.text)}</p>"))
        right = next(i for i, answer in enumerate(question.answers) if answer.is_right)
        solved.append(f"<p>{number}. <strong>{'ABCD'[right]}</strong> {inline(question.answers[right].why)}</p>")
    body = f'<main><h1>{title}</h1>{"".join(asked)}<section class="answers"><h1>Answers</h1>{"".join(solved)}</section></main>'
    return closed_page(title, body, "quizzes")


def write(folder: Path) -> list[Quiz]:
    """Write pages, Moodle's XML and QTI of all quizzes, and all for Moodle in one file, into a built book."""
    made = [quiz for quiz in quizzes() if (folder / f"chapters/{chapters()[quiz.topic]}.html").exists()]
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    for quiz in made:
        stem = folder / FOLDER / chapters()[quiz.topic]
        write_whole(stem.with_suffix(".html"), page(quiz))
        write_whole(stem.with_suffix(".xml"), moodle(categories(quiz)))
        write_qti(stem.with_suffix(".zip"), itertools.chain(*quiz.questions))
    write_whole(folder / FOLDER / "all.xml", moodle(group for quiz in made for group in categories(quiz)))
    write_qti(folder / FOLDER / "all.zip", (one for quiz in made for one in itertools.chain(*quiz.questions)))
    return made


def exam(numbers: list[int], count: int, seed: int) -> list[Question]:
    """So many different questions from these chapters, of each the variant that the seed draws.

    Raises:
        ValueError: the chapters have no quiz, or fewer questions.
    """
    pool = [variants for quiz in quizzes() if int(chapters()[quiz.topic][:2]) in numbers for variants in quiz.questions]
    if len(pool) < count:
        raise ValueError(f"--questions {count}: chapters {numbers} have {len(pool)}")
    rng = random.Random(seed)
    return [rng.choice(variants) for variants in rng.sample(pool, count)]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("book", "exam"), default="book")
    parser.add_argument("--chapters", type=int, nargs="+", default=list(range(33)), help="of the exam")
    parser.add_argument("--questions", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0, help="another seed is another exam, of the same kind")
    parser.add_argument("--out", type=Path, default=ROOT / "exam")
    asked = parser.parse_args(arguments)
    if asked.what == "book":
        made = write(ROOT / "_build/html")
        count = sum(len(variants) for quiz in made for variants in quiz.questions)
        print(f"{len(made)} quizzes, {count} questions with all variants, in {FOLDER}")
        return
    try:
        drawn = exam(asked.chapters, asked.questions, asked.seed)
    except ValueError as error:
        parser.error(str(error))
    asked.out.mkdir(parents=True, exist_ok=True)
    write_whole(asked.out / "exam.html", paper(drawn, BOOK))
    write_whole(asked.out / "exam.xml", moodle([(f"$course$/top/{BOOK}, exam {asked.seed}", drawn)]))
    write_qti(asked.out / "exam.zip", drawn)
    print(f"{len(drawn)} questions: {asked.out}/exam.html, exam.xml for Moodle, exam.zip as QTI 2.1")


if __name__ == "__main__":
    main()
