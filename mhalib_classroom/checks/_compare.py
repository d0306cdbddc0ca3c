"""Whether a result is what was expected, and in which respect it is not."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ._show import ABSOLUTE, RELATIVE, kind_of, plain


@dataclass(frozen=True)
class Difference:
    """kind: as in `Finding`; message: a sentence without its full stop."""

    kind: str
    message: str


def compare(expected: Any, got: Any, what: str = "the result", parts: Sequence[str] = ()) -> Difference | None:
    """`None` if they agree, precision aside. A list may stand for a tuple, and a tensor of one for a number.

    what: what `got` is called in the message; parts: and what its parts are called, if it has any.
    """
    try:
        return _compare(expected, got, what, parts)
    except Exception:  # what students return may do anything when it is looked at
        return Difference("type", f"{what} must be {kind_of(expected)}, and yours, {kind_of(got)}, cannot be read")


def _compare(expected: Any, got: Any, what: str, parts: Sequence[str]) -> Difference | None:
    if got is None and expected is not None:
        return Difference("nothing returned", f"{what} is None. Did you forget `return`?")
    if isinstance(expected, torch.Tensor):
        return _compare_tensors(expected, got, what)
    if isinstance(expected, (tuple, list)):
        return _compare_sequences(expected, got, what, parts)
    if isinstance(expected, dict):
        return _compare_dicts(expected, got, what)
    if isinstance(expected, (bool, np.bool_)):
        return _compare_bools(bool(expected), got, what)
    if isinstance(expected, numbers.Real):
        return _compare_numbers(float(expected), got, what)
    if not isinstance(got, type(expected)):
        return Difference("type", f"{what} must be {kind_of(expected)}, and yours is {kind_of(got)}")
    return None if bool(got == expected) else Difference("value", f"{what} is not right")


def _compare_tensors(expected: torch.Tensor, got: Any, what: str) -> Difference | None:
    if not isinstance(got, torch.Tensor):
        if expected.dim() == 0 and expected.dtype.is_floating_point and isinstance(plain(got), numbers.Real):
            return _compare_numbers(expected.item(), got, what)
        hint = {np.ndarray: ": wrap it in torch.from_numpy", list: ": wrap it in torch.tensor"}.get(type(got), "")
        if isinstance(got, list) and any(isinstance(one, torch.Tensor) for one in got):
            hint = ": join its tensors with torch.stack or torch.cat"
        return Difference("type", f"{what} must be a torch.Tensor, and yours is {kind_of(got)}{hint}")
    if got.device != expected.device:
        return Difference("device", f"{what} must be on {expected.device}, where the input is, not on {got.device}")
    if got.shape != expected.shape and expected.dim() == 0:
        return Difference("shape", f"{what} must be one number, and yours has shape {tuple(got.shape)}")
    if got.shape != expected.shape:
        shapes = f"{tuple(expected.shape)}, and yours has {tuple(got.shape)}"
        return Difference("shape", f"{what} must have shape {shapes}")
    if got.layout != torch.strided:
        return Difference("type", f"{what} must be an ordinary tensor, not one of layout {got.layout}")
    wanted = _sort(expected.dtype)
    if _sort(got.dtype) != wanted or got.dtype in (torch.float16, torch.bfloat16):
        return Difference("dtype", f"{what} must hold {wanted} ({expected.dtype}), and yours holds {got.dtype}")
    if not got.is_floating_point():
        return None if torch.equal(got, expected.to(got.dtype)) else _value(what)
    if bool(got.isnan().any()) and not bool(expected.isnan().any()):
        return Difference("nan", f"{what} holds NaN: somewhere 0/0, 0 * inf or inf - inf was computed")
    close = torch.allclose(got.detach().double(), expected.double(), RELATIVE, ABSOLUTE, equal_nan=True)
    return None if close else _value(what)


def _sort(dtype: torch.dtype) -> str:
    if dtype == torch.bool:
        return "booleans"
    if dtype.is_complex:
        return "complex numbers"
    return "floating-point numbers" if dtype.is_floating_point else "integers"


def _compare_sequences(expected: Any, got: Any, what: str, parts: Sequence[str]) -> Difference | None:
    if isinstance(got, torch.Tensor) or not isinstance(got, (tuple, list)):
        return Difference("type", f"{what} must be {kind_of(expected)}, and yours is {kind_of(got)}")
    if len(got) != len(expected):
        named = f" ({', '.join(parts)})" if parts else ""
        return Difference("shape", f"{what} must have {len(expected)} parts{named}, and yours has {len(got)}")
    for number, pair in enumerate(zip(expected, got, strict=True)):
        difference = compare(*pair, what=parts[number] if parts else f"{what}[{number}]")
        if difference is not None:
            plain = difference.kind == "value" and not parts and isinstance(pair[0], numbers.Real)
            return _value(what) if plain else difference
    return None


def _compare_dicts(expected: dict[Any, Any], got: Any, what: str) -> Difference | None:
    if not isinstance(got, dict) or got.keys() != expected.keys():
        shown = list(got) if isinstance(got, dict) else kind_of(got)
        return Difference("type", f"{what} must be a dict with the keys {list(expected)}, and yours is {shown}")
    for key, value in expected.items():
        difference = compare(value, got[key], what=f"{what}[{key!r}]")
        if difference is not None:
            return difference
    return None


def _compare_bools(expected: bool, got: Any, what: str) -> Difference | None:
    got = plain(got)
    if not isinstance(got, bool):
        return Difference("type", f"{what} must be True or False, and yours is {kind_of(got)}")
    return None if got == expected else _value(what)


def _compare_numbers(expected: float, got: Any, what: str) -> Difference | None:
    got = plain(got)
    if isinstance(got, bool) or not isinstance(got, numbers.Real):
        return Difference("type", f"{what} must be a number, and yours is {kind_of(got)}")
    if got != got:
        return Difference("nan", f"{what} is NaN")
    allowed = ABSOLUTE + RELATIVE * abs(expected) * (expected % 1 != 0)  # counts are exact
    try:
        close = abs(float(got) - expected) <= allowed
    except OverflowError:
        close = False
    return None if close else _value(what)


def _value(what: str) -> Difference:
    return Difference("value", f"{what} has the right form, but not the right values")
