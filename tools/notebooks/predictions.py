"""The right answers to the questions that a reader answers first, from what the page's code printed.

A field of `predict` (tools/pages/predict.py) names a line of the print behind the question, with {} in the place of the
answer and * for what does not matter; of several {} the least and the largest count. Or it names the answer, and says
what must hold: a comparison of printed numbers, or an assertion, written as it is in the page's code.

    {"ask": "right of 100", "kind": "number", "printed": "head 1 * {}", "times": 100, "within": 5}
    {"ask": "Which?", "kind": "choice", "choices": ["a", "b"], "answer": "a", "holds": "`a: {}` > `b: {}`"}
    {"ask": "Does it?", "kind": "choice", "choices": ["yes", "no"], "answer": "no", "holds": "assert changed == 0"}
    {"ask": "Who can go?", "kind": "several", "choices": ["a", "b", "c"], "answer": ["a", "c"], "holds": "assert ..."}

A guess that differs by no more than `within` is well guessed. A field without an answer is not judged.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from tools.notebooks import statements

NUMBER = r"([-−]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?)[%,]?"
PLACE = "{}"
COMPARED = (
    *(ast.Expression, ast.BoolOp, ast.boolop, ast.Compare, ast.cmpop, ast.Constant),
    *(ast.BinOp, ast.operator, ast.UnaryOp, ast.unaryop),
)
KEYS = {"ask", "kind", "choices", "printed", "times", "within", "answer", "holds"}


def right(field: dict[str, Any], cells: Sequence[dict[str, Any]], after: int) -> dict[str, Any] | None:
    """What is right for a field of a question in cell number `after`: its number or range, or its choices.

    Raises:
        ValueError: it is printed nowhere behind the question, or what should hold for it does not.
    """
    if unknown := set(field) - KEYS:
        raise ValueError(f"predict={field}: unknown {sorted(unknown)}")
    if field["kind"] in {"choice", "several"}:
        if "answer" not in field:
            return None
        wanted = field["answer"] if field["kind"] == "several" else [field["answer"]]
        if not set(wanted) <= set(field["choices"]):
            raise ValueError(f"predict={field}: 'answer' is none of its 'choices'")
        check(field, cells, after)
        return {"choices": [place for place, choice in enumerate(field["choices"]) if choice in wanted]}
    if "printed" in field:
        found = printed(field["printed"], cells, after)
    elif "answer" in field:
        check(field, cells, after)
        found = [str(field["answer"])]
    else:
        return None
    values = sorted({scaled(one, field.get("times", 1)) for one in found})
    return {"is": [f"{one:,f}" for one in dict.fromkeys((values[0], values[-1]))], "within": field.get("within", 0)}


def scaled(number: str, times: int) -> Decimal:
    """A printed number as it is, or a whole one in the unit of the question."""
    value = Decimal(number.replace(",", "").replace("−", "-"))
    return value if times == 1 else (value * times).quantize(Decimal(1))


def printed(line: str, cells: Sequence[dict[str, Any]], after: int) -> list[str]:
    """The numbers in the places of a line that the code behind a cell prints."""
    escaped = (re.escape(word).replace(r"\{\}", NUMBER).replace(r"\*", ".*?") for word in line.split())
    words = [r"\S.*?" if word == ".*?" else word for word in escaped]
    if PLACE not in line:
        raise ValueError(f"{line!r} has no {PLACE} in the place of the answer")
    pattern = re.compile(r"^\s*" + r"\s+".join(words) + r"\s*$", re.MULTILINE)
    for cell in cells[after + 1 :]:
        if cell["cell_type"] == "code":
            shown = statements.texts(cell["outputs"])
            if found := pattern.search("\n".join(shown.get(kind, "") for kind in ("stdout", "text/plain"))):
                return [group.rstrip(",") for group in found.groups()]
    raise ValueError(f"{line!r} is printed nowhere behind the question: correct it, or run the page again")


def check(field: dict[str, Any], cells: Sequence[dict[str, Any]], after: int) -> None:
    """Whether what must hold for an answer does."""
    claim = field.get("holds", "")
    if "assert" in claim:
        lines = {line.strip() for cell in cells if cell["cell_type"] == "code" for line in cell["source"].splitlines()}
        if claim not in lines:
            raise ValueError(f"predict={field}: no cell of the page asserts this")
        return
    filled = re.sub(r"`([^`]+)`", lambda one: printed(one[1], cells, after)[0].replace(",", ""), claim)
    tree = ast.parse(filled or "0", mode="eval")
    if not all(isinstance(node, COMPARED) for node in ast.walk(tree)):
        raise ValueError(f"predict={field}: {claim!r} is no comparison of numbers")
    if not eval(compile(tree, "holds", "eval"), {"__builtins__": {}}):
        raise ValueError(f"predict={field}: {claim!r} does not hold: {filled}")
