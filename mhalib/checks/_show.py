"""Small pictures of arguments and results, as text."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

MOST_NUMBERS = 32
LONGEST = 160


def kind_of(value: Any) -> str:
    """ "a tuple of 2", "a tensor", "an int"."""
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"
    name = "tensor" if isinstance(value, torch.Tensor) else type(value).__name__
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def show_value(value: Any) -> str:
    """One value: a small tensor by its numbers, a large one by its shape."""
    if isinstance(value, torch.Tensor):
        if value.numel() > MOST_NUMBERS:
            return f"tensor of shape {tuple(value.shape)}"
        return _numbers(value)
    if isinstance(value, (tuple, list)):
        inside = ", ".join(show_value(one) for one in value)
        return f"({inside})" if isinstance(value, tuple) else f"[{inside}]"
    text = repr(value)
    return text if len(text) <= LONGEST else text[:LONGEST] + " ..."


def show_call(name: str, case: dict[str, Any]) -> str:
    """The call that failed: `split_heads(x, num_heads=2) with x of shape (2, 3, 4)`."""
    parts = [
        f"{argument} of shape {tuple(value.shape)}"
        if isinstance(value, torch.Tensor) and value.dim() > 1
        else f"{argument}={show_value(value)}"
        for argument, value in case.items()
    ]
    return f"{name}({', '.join(parts)})"


def show_difference(expected: Any, got: Any) -> str:
    """Expected beside got: all of it where it is small, else its first wrong place."""
    if isinstance(expected, (tuple, list)) and isinstance(got, (tuple, list)) and len(expected) == len(got):
        for number, (one, other) in enumerate(zip(expected, got, strict=True)):
            text = show_difference(one, other)
            if _differ(one, other):
                return f"    part {number}:\n{text}"
    if not isinstance(expected, torch.Tensor) or not isinstance(got, torch.Tensor) or expected.shape != got.shape:
        return f"    expected  {show_value(expected)}\n    got       {show_value(got)}"
    if expected.numel() <= MOST_NUMBERS:
        return f"    expected  {_numbers(expected)}\n    got       {_numbers(got)}"
    wrong = ~torch.isclose(expected.double(), got.detach().double(), 1e-4, 1e-5, equal_nan=True)
    if not bool(wrong.any()):
        return f"    expected  {show_value(expected)}\n    got       {show_value(got)}"
    place = tuple(int(i) for i in wrong.nonzero()[0])
    row = place[:-1]
    index = "[" + ", ".join(map(str, (*row, ":"))) + "]"
    count = f"{int(wrong.sum())} of {wrong.numel()} numbers differ; the first row that does, {index}:"
    return f"    {count}\n    expected  {_numbers(expected[row])}\n    got       {_numbers(got[row])}"


def _differ(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.shape != other.shape or not torch.allclose(
            one.double(), other.detach().double(), 1e-4, 1e-5, equal_nan=True
        )
    return bool(one != other)


def _numbers(x: torch.Tensor) -> str:
    array = x.detach().cpu().numpy() if x.dtype != torch.bfloat16 else x.detach().float().cpu().numpy()
    text = np.array2string(array, precision=2, suppress_small=True, separator=", ", threshold=MOST_NUMBERS + 1)
    return text.replace("\n", "\n              ")
