"""Which known mistake, or which two at once, do just what a submission did."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from ._call import Outcome, call
from ._compare import compare


class WithFunction(Protocol):
    """A mistake, as far as it is needed here."""

    @property
    def function(self) -> Callable[..., Any]: ...


M = TypeVar("M", bound=WithFunction)
Case = dict[str, Any]


def one_mistake(
    mistakes: Sequence[M], drawn: Sequence[Case], outcomes: Sequence[Outcome], right: Sequence[Outcome]
) -> M | None:
    """The first that does just what the submission did in every case that has been tried, and is wrong in one."""
    for mistake in mistakes:
        if _explains(mistake.function, drawn, outcomes, right):
            return mistake
    return None


def two_mistakes(
    mistakes: Sequence[M],
    switches: Callable[..., Any],
    drawn: Sequence[Case],
    outcomes: Sequence[Outcome],
    right: Sequence[Outcome],
) -> tuple[M, M] | None:
    """Two that do so together: both are switches of one function, and of different places in it."""
    known = [
        (one, one.function.keywords)
        for one in mistakes
        if isinstance(one.function, functools.partial) and one.function.func is switches
    ]
    pairs = [
        (first, second, {**one, **other})
        for (first, one), (second, other) in itertools.combinations(known, 2)
        if not one.keys() & other.keys()
    ]
    for first, second, both in sorted(pairs, key=lambda pair: len(pair[2])):
        if _explains(functools.partial(switches, **both), drawn, outcomes, right):
            return first, second
    return None


def _explains(
    function: Callable[..., Any], drawn: Sequence[Case], outcomes: Sequence[Outcome], right: Sequence[Outcome]
) -> bool:
    differs = False
    for case, outcome, expected in zip(drawn, outcomes, right, strict=False):
        wrong = call(function, case, None)
        if not _same(wrong, outcome):
            return False
        differs = differs or not _same(wrong, expected)
    return differs


def _same(one: Outcome, other: Outcome) -> bool:
    if one.error or other.error:
        return bool(one.error) and bool(other.error) and one.error == other.error
    return one.changed == other.changed and compare(one.value, other.value) is None
