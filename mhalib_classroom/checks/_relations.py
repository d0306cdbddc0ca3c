"""What a wrong result that no known mistake explains has to do with the right one: a last resort, and never a guess.

A relation is told only if it holds in every case in which the result is wrong, and in two of them at least.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from ._call import Outcome, call
from ._compare import compare
from ._show import ABSOLUTE, RELATIVE

Case = dict[str, Any]
LONGEST = 2.0  # seconds for the calls that a search makes


def relation(
    function: Callable[..., Any],
    reference: Callable[..., Any],
    drawn: Sequence[Case],
    outcomes: Sequence[Outcome],
    right: Sequence[Outcome],
    seconds: float | None = None,
) -> str | None:
    """A sentence without its full stop, or `None` where nothing is known. Every outcome has a value.

    Args:
        function: the submission.
        reference: what is right.
        drawn: the cases.
        outcomes: what the submission did in them.
        right: what the reference did in them.
        seconds: how long one call of the submission may take; `None` if it is not to be called again.
    """
    rows = list(zip(drawn, (one.value for one in right), (one.value for one in outcomes), strict=False))
    wrong = [row for row in rows if compare(row[1], row[2]) is not None]
    if len(wrong) < 2:
        return None
    end = time.monotonic() + LONGEST
    for search in (_of_values, lambda *row: _of_arguments(reference, end, *row)):
        if told := _in_all(search, wrong):
            return told
    if seconds is None:
        return None
    return _in_all(lambda *row: _without_effect(function, reference, min(seconds, LONGEST), end, *row), wrong[-2:])


def _in_all(search: Callable[..., Iterator[str]], wrong: Sequence[tuple[Case, Any, Any]]) -> str | None:
    """The first sentence that is said of all."""
    common: list[str] = []
    for number, row in enumerate(wrong):
        try:
            found = list(search(*row))
        except Exception as error:  # what students return may do anything when it is looked at
            if getattr(error, "stops_the_check", False):
                raise
            return None
        common = [one for one in common if one in found] if number else found
        if not common:
            return None
    return common[0]


def _of_values(case: Case, right: Any, got: Any) -> Iterator[str]:
    """What can be seen in the two values alone, and in the sizes of the case."""
    if isinstance(right, (tuple, list)):
        if not isinstance(got, (tuple, list)) or len(got) != len(right):
            return
        wrong = [number for number, pair in enumerate(zip(right, got, strict=True)) if compare(*pair) is not None]
        if len(right) == 2 and compare(right[0], got[1]) is None and compare(right[1], got[0]) is None:
            yield "Its two parts are exchanged"
        for one in _of_values(case, right[wrong[0]], got[wrong[0]]):
            yield f"In part {wrong[0]}: {one[0].lower()}{one[1:]}" if len(right) > 1 else one
        return
    x, y = _tensor(right), _tensor(got)
    if x is None or y is None:
        return
    if _is_constant(y):
        if not _is_constant(x):
            yield f"Every number of it is {float(y.flatten()[0]):.4g}" if y.numel() else "It is empty"
            yield "All numbers of it are the same"
        return
    yield from _moved(x, y)
    if x.shape == y.shape and x.dtype == y.dtype == torch.bool:
        if torch.equal(x, ~y):
            yield "It is True where it should be False, and False where it should be True"
    elif x.shape == y.shape and torch.bool not in (x.dtype, y.dtype) and bool(torch.isfinite(y).all()):
        yield from _changed(case, x.double(), y.double())


def _moved(x: Tensor, y: Tensor) -> Iterator[str]:
    """The right numbers, in other places."""
    axes = range(-x.dim(), 0)
    for a, b in itertools.combinations(axes, 2):
        if _close(x.transpose(a, b), y):
            yield f"Its axes {a} and {b} are exchanged"
    for a in axes if x.shape == y.shape else ():
        if x.shape[a] > 2 and _close(x.narrow(a, 1, x.shape[a] - 1), y.narrow(a, 0, x.shape[a] - 1)):
            yield f"It is shifted by one along axis {a}: each place has the number of the next"
        if x.shape[a] > 2 and _close(x.narrow(a, 0, x.shape[a] - 1), y.narrow(a, 1, x.shape[a] - 1)):
            yield f"It is shifted by one along axis {a}: each place has the number of the one before"
        if _close(x.flip(a), y):
            yield f"It is reversed along axis {a}"
    if x.shape != y.shape and x.numel() == y.numel() and x.numel() > 1 and _close(x.flatten(), y.flatten()):
        yield "These are the right numbers in the right order, in another shape"


def _changed(case: Case, x: Tensor, y: Tensor) -> Iterator[str]:
    """Other numbers in the same places. x, y: two of one shape, in float64."""
    if not x.numel() or not bool(torch.isfinite(x).all()):
        return
    if _close(-x, y):
        yield "Its sign is the opposite"
    filled = x.abs() > ABSOLUTE
    if bool(filled.any()) and _close(x * (factor := float((y[filled] / x[filled]).median())), y) and factor > 0:
        for name, size in _sizes(case).items():
            for said, times in (
                (f"times the square root of {name}", size**0.5),
                (f"divided by the square root of {name}", size**-0.5),
                (f"times {name}", size),
                (f"divided by {name}", 1 / size),
            ):
                if abs(factor - times) <= 10 * RELATIVE * times:
                    yield f"Every number is the right one {said}"
        yield f"Every number is {factor:.4g} times the right one"
    offset = float((y - x).flatten()[0])
    if _close(x + offset, y):
        yield f"Every number is too {'large' if offset > 0 else 'small'} by {abs(offset):.4g}"
    if _close(1 - x, y):
        yield "It is 1 minus what is right"
    if _close(x, y.exp()):
        yield "It is the logarithm of what is right"
    for a in range(-x.dim(), -1):
        if _sums_to_1(x, -1) and _sums_to_1(y, a) and not _sums_to_1(x, a):
            yield f"It sums to 1 over axis {a}, and should over the last axis"


def _of_arguments(reference: Callable[..., Any], end: float, case: Case, _: Any, got: Any) -> Iterator[str]:
    """Whether it is right for two arguments that have changed places."""
    for a, b in itertools.combinations(case, 2):
        one, other = case[a], case[b]
        alike = isinstance(one, Tensor) and isinstance(other, Tensor) and one.dtype == other.dtype
        if not (alike or type(one) is type(other) is int) or time.monotonic() > end:
            continue
        swapped = call(reference, {**case, a: other, b: one}, None)
        if not swapped.error and compare(swapped.value, got) is None:
            yield f"It would be right if {a} and {b} were exchanged"


def _without_effect(
    function: Callable[..., Any], reference: Callable[..., Any], seconds: float, end: float, *row: Any
) -> Iterator[str]:
    """Arguments that make a difference to what is right, and none to the result."""
    case, right, got = row
    for name, value in case.items():
        other = _other(value)
        if other is None or time.monotonic() > end:
            continue
        expected = call(reference, {**case, name: other}, None)
        if expected.error or compare(right, expected.value) is None:
            continue
        again = call(function, {**case, name: other}, seconds)
        if not again.error and compare(got, again.value) is None:
            yield f"{name} has no effect on it"


def _other(value: Any) -> Any:
    """Something of the same form, or `None`."""
    if not isinstance(value, Tensor) or not value.numel():
        return None
    if value.dtype == torch.bool:
        return ~value
    return 1.7 * value.flip(-1) + 0.3 if value.is_floating_point() and value.dim() else None


def _tensor(value: Any) -> Tensor | None:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return torch.tensor(float(value), dtype=torch.float64)
    return value.detach() if isinstance(value, Tensor) and not value.is_complex() else None


def _close(x: Tensor, y: Tensor) -> bool:
    same = x.shape == y.shape and (x.dtype == torch.bool) == (y.dtype == torch.bool)
    return same and torch.allclose(x.double(), y.double(), RELATIVE, ABSOLUTE, equal_nan=True)


def _is_constant(x: Tensor) -> bool:
    """Whether its numbers are all the same, and not just one: in an empty one they are."""
    return x.numel() != 1 and bool((x == x.flatten()[:1]).all())


def _sums_to_1(x: Tensor, axis: int) -> bool:
    total = x.sum(axis)
    return x.shape[axis] > 1 and torch.allclose(total, torch.ones_like(total), RELATIVE)


def _sizes(case: Case) -> dict[str, float]:
    """The sizes and numbers of a case, by the expressions that give them."""
    found: dict[str, float] = {}
    for name, value in case.items():
        if isinstance(value, Tensor):
            found |= {f"{name}.shape[{axis}]": value.shape[axis] for axis in range(-1, -value.dim() - 1, -1)}
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            found[name] = value
    return {name: size for name, size in found.items() if size > 0 and size != 1}
