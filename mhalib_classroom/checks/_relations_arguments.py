"""For which other arguments a wrong result would be right, and which it does not ask: of `_relations.py`."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from typing import Any

import torch
from torch import Tensor

from ._call import Outcome, call
from ._compare import compare
from ._show import plain

Case = dict[str, Any]


def of_changed(
    reference: Callable[..., Any], end: float, case: Case, _: Any, got: Any, asked: Collection[str] | None
) -> Iterator[str]:
    """What would have to be true of the arguments for the result to be right. Many would be for nothing, or 0."""
    if not all(_tells_something(one) for one in (got if isinstance(got, (tuple, list)) else [got])):
        return
    for said, changed in _changes(case):
        sentence = f"It would be right if {said}"
        if asked is not None and sentence not in asked:
            continue
        if time.monotonic() > end:
            return
        found = call(reference, changed, None)
        if not found.error and compare(found.value, got) is None:
            yield sentence


def _tells_something(value: Any) -> bool:
    return bool((value != 0).any()) if isinstance(value, Tensor) else not isinstance(value, (int, float)) or value != 0


def _changes(case: Case) -> Iterator[tuple[str, Case]]:
    """Two arguments exchanged, one in another's place, and each changed."""
    names = [*case]
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            if _alike(case[a], case[b]):
                yield f"{a} and {b} were exchanged", {**case, a: case[b], b: case[a]}
    for a in names:
        for b in names:
            if a != b and _alike(case[a], case[b]):
                yield f"{a} were {b}", {**case, a: case[b]}
    for name, value in case.items():
        for said, other in _changed(value):
            yield f"{name} were {said}", {**case, name: other}
        for said, size in _roots(case) if isinstance(value, Tensor) and value.is_floating_point() else ():
            yield f"{name} were multiplied by {said}", {**case, name: value * size}
            yield f"{name} were divided by {said}", {**case, name: value / size}


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.dtype == other.dtype
    return type(one) is type(other) and isinstance(one, (int, float, list, tuple))


def _changed(value: Any) -> Iterator[tuple[str, Any]]:
    """What else an argument could be."""
    if isinstance(value, bool):
        yield str(not value), not value
        yield "its opposite", not value
    elif isinstance(value, (int, float)):
        yield from (("0", type(value)(0)), ("1", type(value)(1)), ("its opposite", -value), ("its square", value**2))
        yield from (("one larger", value + 1), ("one smaller", value - 1), ("twice as large", 2 * value))
        yield "half as large", value // 2 if isinstance(value, int) else value / 2
        if isinstance(value, float) and value:
            yield "its reciprocal", 1 / value
    elif isinstance(value, list):
        yield "reversed", value[::-1]
        yield "without its last", value[:-1]
        yield "without its first", value[1:]
    elif isinstance(value, Tensor) and value.dim():
        yield from _changed_tensor(value)


def _changed_tensor(value: Tensor) -> Iterator[tuple[str, Tensor]]:
    if value.dtype == torch.bool:
        yield "its opposite", ~value
        yield "True everywhere", torch.ones_like(value)
        yield "False everywhere", torch.zeros_like(value)
    else:
        yield "0 everywhere", torch.zeros_like(value)
        yield "1 everywhere", torch.ones_like(value)
        yield "its opposite", -value
    if value.dtype.is_floating_point:
        yield from (
            ("its square", value * value),
            ("its absolute value", value.abs()),
            ("its exponential", value.exp()),
        )
        yield from (
            ("its softmax", value.softmax(-1)),
            ("its logarithm", value.log()),
            ("its square root", value.sqrt()),
        )
    elif value.dtype != torch.bool:
        yield from (("one larger", value + 1), ("one smaller", value - 1))
    if value.dim() > 1:
        yield "transposed", value.mT
    for a in range(-1, -1 - value.dim(), -1):
        if value.shape[a] > 1:
            yield f"reversed along axis {a}", value.flip(a)
            yield f"moved by one along axis {a}, round the end", value.roll(1, a)
            yield f"moved back by one along axis {a}, round the end", value.roll(-1, a)
            first, last = value.narrow(a, 0, 1), value.narrow(a, value.shape[a] - 1, 1)
            yield f"everywhere its first along axis {a}", first.expand_as(value)
            yield f"everywhere its last along axis {a}", last.expand_as(value)
            if value.dtype.is_floating_point:
                yield f"everywhere its mean over axis {a}", value.mean(a, keepdim=True).expand_as(value)


def _roots(case: Case) -> Iterator[tuple[str, float]]:
    """Numbers of the case, widths and lengths of its tensors, and their square roots."""
    sizes = {name: value for name, value in case.items() if type(value) in (int, float) and value > 0}
    for name, value in case.items():
        if isinstance(value, Tensor):
            sizes |= {f"{name}.shape[{axis}]": value.shape[axis] for axis in range(-1, -1 - min(value.dim(), 2), -1)}
    for name, size in sizes.items():
        if size != 1:
            yield f"the square root of {name}", size**0.5
            yield name, size


def of_effects(
    again: Callable[[Case], Outcome],
    reference: Callable[..., Any],
    end: float,
    case: Case,
    right: Any,
    got: Any,
    asked: Collection[str] | None,
) -> Iterator[str]:
    """Arguments that make a difference to what is right alone, or to the result alone. again: calls the submission."""
    difference = compare(right, got)
    if difference is None or difference.kind in ("type", "dtype"):
        return
    for name, value in case.items():
        other = _other(value)
        if other is None or time.monotonic() > end:
            continue
        expected = call(reference, {**case, name: other}, None)
        repeated = again({**case, name: other})
        if expected.error or repeated.error:
            continue
        stays, same = compare(right, expected.value) is None, compare(got, repeated.value) is None
        if same and not stays:
            yield f"{name} has no effect on it"
        if stays and not same:
            yield f"{name} has an effect on it, and should have none"
    for name, value in case.items():
        if type(value) not in (int, float) or time.monotonic() > end:
            continue
        twice = {**case, name: 2 * value}
        should, does = _growth(right, call(reference, twice, None)), _growth(got, again(twice))
        if should and does and abs(should - does) > 0.001 * should:
            yield f"With {name} doubled it becomes {does:.4g} times as large, and should become {should:.4g} times"
            yield f"It grows too {'fast' if does > should else 'slowly'} with {name}"


def _growth(before: Any, after: Outcome) -> float:
    """From one number to another; 0 if they are not."""
    both = [plain(before), plain(after.value)]
    if after.error or not all(type(one) in (int, float) for one in both) or not both[0]:
        return 0.0
    return float(both[1] / both[0])


def _other(value: Any) -> Any:
    """Something of the same form, or `None`."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + 1 if isinstance(value, int) else 1.7 * value + 0.3
    if isinstance(value, list):
        return value[::-1]
    if not isinstance(value, Tensor) or not value.numel():
        return None
    if value.dtype == torch.bool:
        return ~value
    if value.is_floating_point():
        return 1.7 * (value.flip(-1) if value.dim() else value) + 0.3
    return value.flip(-1) if value.dim() else None
