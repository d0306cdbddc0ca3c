"""A quiz as a page, as Moodle's XML, as a package of QTI 2.1, and on paper."""

from __future__ import annotations

import html
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

from markdown_it import MarkdownIt

from tools.teaching.closed_page import closed_page
from tools.teaching.quiz_text import BOOK, Answer, Question, Quiz, chapters

markdown = MarkdownIt("commonmark", {"html": False, "xhtmlOut": True})


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
        f'<resource identifier="{name[:-4]}" type="imsqti_item_xmlv2p1" href="{name}">'
        f'<file href="{name}"/></resource>\n'
        for name in files
    )
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as package:
        for name, text in {"imsmanifest.xml": MANIFEST.format(resources=resources), **files}.items():
            package.writestr(zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0)), text, zipfile.ZIP_DEFLATED)


# Pages


def shown(question: Question, number: int, answers: str) -> str:
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
    questions = ""
    for number, variants in enumerate(quiz.questions, 1):
        all_shown = (shown(one, number, "".join(map(fold, one.answers))) for one in variants)
        questions += f'<section class="question">{"".join(all_shown)}</section>\n'
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
        lettered = dict(zip("ABCD", question.answers, strict=True))
        lines = "".join(f"<p>☐ {letter}. {inline(answer.text)}</p>" for letter, answer in lettered.items())
        asked.append(shown(question, number, lines))
        right, why = next((letter, answer.why) for letter, answer in lettered.items() if answer.is_right)
        solved.append(f"<p>{number}. <strong>{right}</strong> {inline(why)}</p>")
    answers = f'<section class="answers"><h1>Answers</h1>{"".join(solved)}</section>'
    body = f"<main><h1>{title}</h1>{''.join(asked)}{answers}</main>"
    return closed_page(title, body, "quizzes")
