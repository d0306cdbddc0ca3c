"""Reads the quizzes, and computes the answers that have numbers. `quizzes.py` says what a file looks like."""

from __future__ import annotations

import math
import random
import re
from pathlib import Path
from typing import Any, NamedTuple

import torch

import mhalib
from mhalib import costs, parallel, roofline
from tools import ROOT
from tools.notebooks import notebooks

SOURCES = ROOT / "quizzes"
KNOWN = {"mhalib": mhalib, "costs": costs, "roofline": roofline, "parallel": parallel, "torch": torch, "math": math}
EXPRESSION = re.compile(r"\{= ([^{}]+)\}")
WITH = re.compile(r"^\*With\* (.+)\n", re.MULTILINE)
ANSWER = re.compile(r"^- \[(?P<mark>[x ])\] (?P<text>.+)\n(?P<why>(?:  .+\n?)+)", re.MULTILINE)
BOOK = "Attention, Head by Head"


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
    return EXPRESSION.sub(lambda one: str(eval(f'f"""{{{one[1]}}}"""', {**KNOWN, **found})), text)


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
