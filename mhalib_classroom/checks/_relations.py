"""What a wrong result that no known mistake explains has to do with the right one: a last resort, and never a guess.

A relation is told only if it holds in every case in which the result is wrong, and in two of them at least. The most
telling comes first: the right numbers in other places, what a function makes of them, what is right for other
arguments, where the result is wrong, and at last what it should have and has not.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from . import _relations_arguments as arguments
from . import _relations_values as values
from ._call import Outcome, call
from ._compare import compare

Case = dict[str, Any]
Search = Callable[..., Iterator[str]]  # of a case, what is right, what came and the sentences that are asked for
MOST_PARTS = 4
LONGEST = 2.0  # seconds for the calls that a search makes


def relation(
    function: Callable[..., Any],
    reference: Callable[..., Any],
    drawn: Sequence[Case],
    outcomes: Sequence[Outcome],
    right: Sequence[Outcome],
    seconds: float,
    *,
    predicts: bool = False,
) -> str | None:
    """A sentence without its full stop, or `None` where nothing is known. Every outcome has a value.

    Args:
        function: the submission.
        reference: what is right.
        drawn: the cases.
        outcomes: what the submission did in them.
        right: what the reference did in them.
        seconds: how long one call of the submission may take.
        predicts: whether it is called without torch and its like.
    """
    rows = list(zip(drawn, (one.value for one in right), (one.value for one in outcomes), strict=False))
    wrong = [row for row in rows if compare(row[1], row[2]) is not None]
    several = wrong if len(wrong) > 1 else []
    end = time.monotonic() + LONGEST
    again = functools.partial(call, function, seconds=min(seconds, LONGEST), predicts=predicts)
    for search, those in (
        (_of_other_parts, several),
        (_in_a_part(values.of_places), several),
        (_in_a_part(values.of_numbers), several),
        (lambda *row: arguments.of_changed(reference, end, *row), several),
        (lambda *row: arguments.of_effects(again, reference, end, *row), several[-2:]),
        (_in_a_part(values.of_errors), wrong),
        (_in_a_part(values.of_looks), several),
        (_of_right_parts, several),
    ):
        if told := _in_all(search, those):
            return told
    return _of_cases(rows)


def _in_all(search: Search, wrong: Sequence[tuple[Case, Any, Any]]) -> str | None:
    """The first sentence that is said of all."""
    common: list[str] | None = None
    for row in wrong:
        try:
            found = list(search(*row, common))
        except Exception as error:  # what students return may do anything when it is looked at
            if getattr(error, "stops_the_check", False):
                raise
            return None
        common = found if common is None else [one for one in common if one in found]
        if not common:
            return None
    return common[0] if common else None


def _in_a_part(search: Search) -> Search:
    """Of the wrong parts of a tuple, or of the whole."""

    def said(case: Case, right: Any, got: Any, asked: Collection[str] | None) -> Iterator[str]:
        if not isinstance(right, tuple):
            yield from search(case, *values.alike(right, got))
            return
        for part in _wrong_parts(right, got):
            for one in search(case, *values.alike(right[part], got[part])):
                yield f"In part {part}: {one[0].lower()}{one[1:]}" if len(right) > 1 else one

    return said


def _wrong_parts(right: Any, got: Any) -> list[int]:
    """Of a result in parts which are wrong; none where it has not as many."""
    if not isinstance(got, (tuple, list)) or len(got) != len(right):
        return []
    return [number for number, pair in enumerate(zip(right, got, strict=True)) if compare(*pair) is not None]


def _of_other_parts(case: Case, right: Any, got: Any, asked: Collection[str] | None) -> Iterator[str]:
    """Parts that have changed places, or are missing."""
    if not isinstance(right, tuple):
        return
    for order in itertools.permutations(range(len(right))) if len(right) <= MOST_PARTS else ():
        if sorted(order) != list(order) and compare(tuple(right[i] for i in order), got) is None:
            yield "Its two parts are exchanged" if len(right) == 2 else f"Its parts are those of {order}, in this order"
    for number, part in enumerate(right):
        if compare(part, got) is None:
            yield f"It is part {number} of what is right, and the rest is missing"
        if compare((*right[:number], *right[number + 1 :]), got) is None:
            yield f"Part {number} is missing, and the rest is right"


def _of_right_parts(case: Case, right: Any, got: Any, asked: Collection[str] | None) -> Iterator[str]:
    wrong = _wrong_parts(right, got) if isinstance(right, tuple) else []
    if 0 < len(wrong) < len(right):
        yield f"It is right but for part {' and part '.join(map(str, wrong))}"


def _of_cases(rows: Sequence[tuple[Case, Any, Any]]) -> str | None:
    """For which cases it is right."""
    is_right = [compare(right, got) is None for _, right, got in rows]
    for name, value in rows[0][0].items():
        if isinstance(value, bool) and len(set(is_right)) > 1:
            for truth in (True, False):
                if [case[name] is truth for case, _, _ in rows] == is_right:
                    return f"It is right where {name} is {truth}, and wrong where it is {not truth}"
    return None
