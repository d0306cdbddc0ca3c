"""Small pictures of arguments and results, as text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

ABSOLUTE, RELATIVE = 1e-5, 1e-4  # how far two numbers may lie apart and still be taken for equal
MOST_NUMBERS, MOST_INPUT_NUMBERS, MOST_INPUT_LINES = 32, 12, 15
LONGEST, LONGEST_RESULT, MOST_PARTS, DEEPEST = 160, 700, 8, 4


def plain(value: Any) -> Any:
    """A tensor or an array of one number as that number; all else as it is."""
    held = isinstance(value, (torch.Tensor, np.ndarray, np.generic)) and math.prod(value.shape) == 1
    return value.item() if held else value


def kind_of(value: Any) -> str:
    """ "a tuple of 2", "a tensor", "an int"."""
    name = "tensor" if isinstance(value, torch.Tensor) else type(value).__name__[:60]
    kind = f"{'an' if name[:1] in 'aeiou' or name == 'ndarray' else 'a'} {name}"
    return f"{kind} of {len(value)}" if type(value) in (tuple, list) else kind


def show_value(value: Any, depth: int = 0) -> str:
    """One value: a small tensor by its numbers, a large one by its shape. Never long, and never an exception."""
    try:
        return _cut(_value(value, depth), LONGEST_RESULT)
    except Exception:  # a student's object, or a tensor that holds no numbers
        return f"tensor of shape {tuple(value.shape)}"[:LONGEST] if _is_dense(value) else kind_of(value)


def _has_tensors(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and any(isinstance(one, torch.Tensor) for one in value)


def _is_dense(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout == torch.strided


def _value(value: Any, depth: int) -> str:
    if isinstance(value, torch.Tensor):
        if value.numel() > MOST_NUMBERS:
            return f"tensor of shape {tuple(value.shape)}"
        return _numbers(value)
    if type(value) in (tuple, list):
        parts = [show_value(one, depth + 1) for one in value[:MOST_PARTS]] if depth < DEEPEST else []
        inside = ", ".join(parts + ["..."] * (len(value) > len(parts)))
        if type(value) is list:
            return f"[{inside}]"
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    return _cut(repr(value), LONGEST)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[:longest] + " ..."


def show_call(name: str, case: dict[str, Any]) -> str:
    """The call that failed, `split_heads(x of shape (1, 3, 4), num_heads=2)`; below it small tensors, and tables."""
    parts, below = [], ""
    for argument, value in case.items():
        if isinstance(value, torch.Tensor) and value.dim() > 1:
            parts.append(f"{argument} of shape {tuple(value.shape)}")
            if value.numel() <= MOST_INPUT_NUMBERS:
                below += f"\n    {argument:<8}  {show_value(value)}"
        elif type(value) is list and value and all(type(row) is tuple for row in value):
            parts.append(argument)
            below += (
                f"\n    {argument} = [" + "".join(f"\n      {row},  # {i}" for i, row in enumerate(value)) + "\n    ]"
            )
        else:
            parts.append(f"{argument}={show_value(value)}")
    return f"{name}({', '.join(parts)})" + below * (below.count("\n") <= MOST_INPUT_LINES)


def show_difference(expected: Any, got: Any, parts: Sequence[str] = ()) -> str:
    """What is right beside what came: all of it where it is small, else its first wrong place.

    parts: the names of a tuple's parts.
    """
    try:
        return _difference(expected, got, parts)
    except Exception:  # a tensor without numbers, say
        return _lines(show_value(expected), show_value(got))


def _difference(expected: Any, got: Any, parts: Sequence[str] = ()) -> str:
    if _has_tensors(expected) and isinstance(got, (tuple, list)) and len(expected) == len(got):
        for number, (one, other) in enumerate(zip(expected, got, strict=True)):
            if _differ(one, other):
                return f"    {parts[number] if parts else f'[{number}]'}:\n{show_difference(one, other)}"
    one, other = (plain(expected), plain(got)) if _form(expected) == _form(got) else (expected, got)
    if isinstance(one, float) and isinstance(other, float):
        digits = next((n for n in (4, 8) if f"{one:.{n}g}" != f"{other:.{n}g}"), 17)
        return _lines(f"{one:.{digits}g}", f"{other:.{digits}g}")
    if not isinstance(expected, torch.Tensor) or not isinstance(got, torch.Tensor) or expected.shape != got.shape:
        return _lines(show_value(expected), show_value(got))
    if expected.numel() <= MOST_NUMBERS:
        return _beside(expected, got)
    wrong = ~torch.isclose(expected.double(), got.detach().double(), RELATIVE, ABSOLUTE, equal_nan=True)
    if not bool(wrong.any()):
        return _lines(show_value(expected), show_value(got))
    place = tuple(int(i) for i in wrong.nonzero()[0])
    row = place[:-1]
    index = "[" + ", ".join(map(str, (*row, ":"))) + "]"
    count = f"{int(wrong.sum())} of {wrong.numel()} numbers differ; the first row that does, {index}:"
    return f"    {count}\n{_beside(expected[row], got[row])}"


def _form(value: Any) -> tuple[Any, ...]:
    """A shape, and whose it is; () for numbers, of every library."""
    shape = tuple(getattr(value, "shape", ()))
    return (type(value), *shape) if shape else ()


def _beside(expected: torch.Tensor, got: torch.Tensor) -> str:
    """With as many digits as it takes to see a difference."""
    for digits in (2, 4, 7):
        one, other = _numbers(expected, digits), _numbers(got, digits)
        if one != other:
            break
    return _lines(_cut(one, LONGEST_RESULT), _cut(other, LONGEST_RESULT))


def _lines(right: str, yours: str) -> str:
    return f"    right     {right}\n    yours     {yours}"


def _differ(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.shape != other.shape or not torch.allclose(
            one.double(), other.detach().double(), RELATIVE, ABSOLUTE, equal_nan=True
        )
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return not math.isclose(one, other, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    return bool(one != other)


def _numbers(x: torch.Tensor, digits: int = 2) -> str:
    array = x.detach().cpu().numpy() if x.dtype != torch.bfloat16 else x.detach().float().cpu().numpy()
    text = np.array2string(array, precision=digits, suppress_small=True, separator=", ", threshold=MOST_NUMBERS + 1)
    return "\n              ".join(line for line in text.split("\n") if line)
