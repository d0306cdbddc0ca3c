"""What can be seen in two values alone, and in the sizes of the case: of `_relations.py`.

Every function is given a case, what is right and what came, as tensors or `None`, and yields sentences that hold.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from ._show import ABSOLUTE, RELATIVE

Case = dict[str, Any]
MOST_AXES = 4
MAPS: dict[str, Callable[[Tensor], Tensor]] = {
    "the square": torch.square,
    "the square root": torch.sqrt,
    "the absolute value": torch.abs,
    "the logarithm": torch.log,
    "the exponential": torch.exp,
    "the reciprocal": torch.reciprocal,
    "the softmax over the last axis": lambda x: x.softmax(-1),
    "the logarithm of the softmax over the last axis": lambda x: x.log_softmax(-1),
    "the sigmoid": torch.sigmoid,
}
ROUNDED: dict[str, Callable[[Tensor], Tensor]] = {
    "rounded down": torch.floor,
    "rounded up": torch.ceil,
    "rounded": torch.round,
    "with 0 for its negative numbers": lambda x: x.clamp(min=0),
    "with 1 for its larger numbers": lambda x: x.clamp(max=1),
    "with 0 for its NaN": lambda x: x.nan_to_num(0.0),
}
REDUCED: dict[str, Callable[[Tensor, tuple[int, ...]], Tensor]] = {
    "the sum": lambda x, axes: x.sum(axes),
    "the mean": lambda x, axes: x.mean(axes),
    "the maximum": lambda x, axes: x.amax(axes),
    "the first number": lambda x, axes: x.select(axes[0], 0) if len(axes) == 1 else x.sum(),
    "the last number": lambda x, axes: x.select(axes[0], -1) if len(axes) == 1 else x.sum(),
}


def alike(right: Any, got: Any) -> tuple[Tensor | None, Tensor | None]:
    """Both as tensors, as far as they are numbers; lists of words by a number for each word."""
    if isinstance(right, list) and isinstance(got, (list, tuple)):
        known: dict[str, int] = {}
        one, other = ([float(known.setdefault(repr(each), len(known))) for each in value] for value in (right, got))
        return torch.tensor(one), torch.tensor(other)
    return _tensor(right), _tensor(got)


def of_places(case: Case, x: Tensor | None, y: Tensor | None) -> Iterator[str]:
    """The right numbers, in other places, or some of them."""
    if x is None or y is None:
        return
    if y.numel() and bool(y.isnan().all()) and not bool(x.isnan().all()):
        yield "Every number of it is NaN"
        return
    if _is_constant(y):
        if not _is_constant(x):
            yield f"Every number of it is {float(y.flatten()[0]):.4g}" if y.numel() else "It is empty"
            yield "All numbers of it are the same"
        return
    yield from _moved(x, y)
    yield from _cut(x, y)
    if x.dtype != torch.bool and y.dtype != torch.bool:
        yield from (f"It is {said} of what is right over {axes}" for said, axes in _reduced(x.double(), y.double()))
        yield from (f"It would be right as {said} over {axes}" for said, axes in _reduced(y.double(), x.double()))


def _reduced(x: Tensor, y: Tensor) -> Iterator[tuple[str, str]]:
    """How `y` is made of `x`, which has more axes."""
    for axes in itertools.combinations(range(-x.dim(), 0), x.dim() - y.dim()) if x.dim() > y.dim() else ():
        said = f"axis {axes[0]}" if len(axes) == 1 else f"axes {axes}"
        for name, f in REDUCED.items() if x.numel() else ():
            if _close(f(x, axes), y):
                yield name, said


def _moved(x: Tensor, y: Tensor) -> Iterator[str]:
    axes = range(-x.dim(), 0)
    for a, b in itertools.combinations(axes, 2):
        if _close(x.transpose(a, b), y):
            yield f"Its axes {a} and {b} are exchanged"
    for order in itertools.permutations(range(x.dim())) if x.dim() <= MOST_AXES else ():
        if sorted(order) != list(order) and _close(x.permute(order), y):
            yield f"Its axes are in another order: it has the right one's axes {order}"
    for a in axes if x.shape == y.shape else ():
        n = x.shape[a]
        if n > 2 and _close(x.narrow(a, 1, n - 1), y.narrow(a, 0, n - 1)):
            yield f"It is shifted by one along axis {a}: each place has the number of the next"
        if n > 2 and _close(x.narrow(a, 0, n - 1), y.narrow(a, 1, n - 1)):
            yield f"It is shifted by one along axis {a}: each place has the number of the one before"
        if _close(x.flip(a), y):
            yield f"It is reversed along axis {a}"
    if x.shape != y.shape and x.numel() == y.numel() and x.numel() > 1 and _close(x.flatten(), y.flatten()):
        yield "These are the right numbers in the right order, in another shape"
    if x.numel() == y.numel() > 2 and x.dtype != torch.bool:
        for a in axes if x.shape == y.shape else ():
            if _close(x.sort(a).values, y.sort(a).values):
                yield f"Along axis {a} it has the right numbers, in another order"
        if _close(x.flatten().sort().values, y.flatten().sort().values):
            yield "It has the right numbers, in other places"


def _cut(x: Tensor, y: Tensor) -> Iterator[str]:
    """Right, but for its length along one axis."""
    differ = [a for a in range(-x.dim(), 0) if x.shape[a] != y.shape[a]] if x.dim() == y.dim() else []
    if len(differ) != 1 or not (n := min(x.shape[a := differ[0]], y.shape[a])):
        return
    kind, shorter = ("short", y) if n == y.shape[a] else ("long", x)
    longer = x if shorter is y else y
    if _close(longer.narrow(a, 0, n), shorter):
        yield f"It is too {kind} along axis {a} at the end, and right before that"
    if _close(longer.narrow(a, longer.shape[a] - n, n), shorter):
        yield f"It is too {kind} along axis {a} at the front, and right behind that"


def of_numbers(case: Case, x: Tensor | None, y: Tensor | None) -> Iterator[str]:
    """Other numbers in the same places: what was done to the right ones."""
    if x is None or y is None or x.shape != y.shape or not x.numel() or _is_constant(y):
        return
    if x.dtype == y.dtype == torch.bool:
        if torch.equal(x, ~y):
            yield "It is True where it should be False, and False where it should be True"
        return
    x, y = x.double(), y.double()
    for name, f in ROUNDED.items():
        if _close(x, f(y)):
            yield f"It would be right {name}"
        if _close(f(x), y):
            yield f"It is what is right, {name}"
    if torch.bool in (x.dtype, y.dtype) or not bool(torch.isfinite(y).all()) or not bool(torch.isfinite(x).all()):
        return
    yield from _multiplied(case, x, y)
    yield from _added(case, x, y)
    if _close(1 - x, y):
        yield "It is 1 minus what is right"
    for name, f in MAPS.items():
        if x.dim() or "softmax" not in name:
            yield from [f"It is {name} of what is right"] * _close(f(x), y)
            yield from [f"It would be right as {name} of what it is"] * _close(x, f(y))
    yield from _with_arguments(case, x, y)
    for a in range(-x.dim(), -1):
        if _sums_to_1(x, -1) and _sums_to_1(y, a) and not _sums_to_1(x, a):
            yield f"It sums to 1 over axis {a}, and should over the last axis"


def _multiplied(case: Case, x: Tensor, y: Tensor) -> Iterator[str]:
    if _close(-x, y):
        yield "Its sign is the opposite"
    filled = x.abs() > ABSOLUTE
    if not bool(filled.any()):
        return
    factor = float((y[filled] / x[filled]).median())
    if _close(x * factor, y) and factor > 0:
        for name, times in _factors(case):
            if abs(factor - times) <= 10 * RELATIVE * times:
                yield f"Every number is the right one {name}"
        yield f"Every number is {factor:.4g} times the right one"
        if x.numel() > 1:
            yield "It is a multiple of what is right, by one factor for all its numbers"
    for a in range(-x.dim(), 0) if x.dim() > 1 else ():
        factors = (x * y).sum(a, keepdim=True) / (x * x).sum(a, keepdim=True)
        if x.shape[a] > 1 and _close(x * factors.nan_to_num(0.0), y):
            yield f"Along axis {a} its numbers have the right ratios: one factor is wrong for all of them"
    if _close(x.abs(), y.abs()):
        yield "It is right but for the sign of some numbers"


def _factors(case: Case) -> Iterator[tuple[str, float]]:
    """Factors that sizes of the case make, and what they are called."""
    sizes = _sizes(case)
    for name, size in sizes.items():
        yield f"times the square root of {name}", size**0.5
        yield f"divided by the square root of {name}", size**-0.5
        yield f"times {name}", size
        yield f"divided by {name}", 1 / size
    for (one, size), (other, more) in itertools.combinations(sizes.items(), 2):
        yield f"times {one}, times {other}", size * more
        yield f"divided by {one} and by {other}", 1 / (size * more)
        yield f"times {one}, divided by {other}", size / more
        yield f"times {other}, divided by {one}", more / size


def _added(case: Case, x: Tensor, y: Tensor) -> Iterator[str]:
    offset = float((y - x).flatten()[0])
    if _close(x + offset, y):
        kind = "large" if offset > 0 else "small"
        for name, size in _sizes(case).items():
            if abs(abs(offset) - size) <= RELATIVE * size:
                yield f"Every number is too {kind} by {name}"
        yield f"Every number is too {kind} by {abs(offset):.4g}"
        if x.numel() > 1:
            yield "All its numbers are off by the same amount"
    for a in range(-x.dim(), 0) if x.dim() > 1 else ():
        if x.shape[a] > 1 and _close(x + (y - x).mean(a, keepdim=True), y):
            yield f"Along axis {a} all its numbers are off by the same amount"


def _with_arguments(case: Case, x: Tensor, y: Tensor) -> Iterator[str]:
    for name, value in case.items():
        one = _tensor(value)
        if one is None or not one.dim() or one.dtype == torch.bool:
            continue
        if _close(one, y):
            yield f"It is {name} itself"
        try:
            same = torch.broadcast_shapes(one.shape, x.shape) == x.shape
        except RuntimeError:
            same = False
        if same:
            for said, made in (("plus", x + one), ("minus", x - one), ("times", x * one), ("divided by", x / one)):
                yield from [f"It is what is right, {said} {name}"] * _close(made, y)


def of_errors(case: Case, x: Tensor | None, y: Tensor | None) -> Iterator[str]:
    """Where it is wrong, if that is not everywhere."""
    if x is None or y is None or x.shape != y.shape or (x.dtype == torch.bool) != (y.dtype == torch.bool):
        return
    wrong = ~torch.isclose(x.double(), y.double(), RELATIVE, ABSOLUTE, equal_nan=True)
    if not x.dim() or bool(wrong.all()):
        return
    if x.dtype == torch.bool:
        if not bool((wrong & x).any()):
            yield "It is True where it should be False, and never the other way round"
        if not bool((wrong & ~x).any()):
            yield "It is False where it should be True, and never the other way round"
    for name, value in case.items():
        if isinstance(value, Tensor) and value.dtype == torch.bool and _fits(value, x):
            if not bool((wrong & value).any()):
                yield f"It is wrong only where {name} is False"
            if not bool((wrong & ~value).any()):
                yield f"It is wrong only where {name} is True"
    yield from _along_axes(wrong)
    if x.dtype == torch.bool:
        return
    for said, there in (
        ("is NaN", y.isnan()),
        ("is infinite", y.isinf()),
        ("should be 0", x == 0),
        ("is 0", y == 0),
        ("should be negative", x < 0),
        ("is negative", y < 0),
    ):
        if not bool((wrong & ~there).any()):
            yield f"It is wrong only where it {said}"


def _along_axes(wrong: Tensor) -> Iterator[str]:
    """At which ends of an axis the errors are, or on which side of the diagonal."""
    for a in range(-wrong.dim(), 0):
        there = wrong.movedim(a, 0).flatten(1).any(1).tolist()
        n = len(there)
        for said, pattern in (
            ("the first is wrong", [i == 0 for i in range(n)]),
            ("the last is wrong", [i == n - 1 for i in range(n)]),
            ("the first is right", [i > 0 for i in range(n)]),
            ("the last is right", [i < n - 1 for i in range(n)]),
            ("the first and the last are wrong", [i in (0, n - 1) for i in range(n)]),
            ("every second is wrong, from the first on", [i % 2 == 0 for i in range(n)]),
            ("every second is wrong, from the second on", [i % 2 == 1 for i in range(n)]),
        ):
            if n > 1 and there == pattern:
                yield f"Along axis {a} only {said}"
    if wrong.dim() > 1 and wrong.shape[-1] > 1 < wrong.shape[-2]:
        ones = torch.ones(wrong.shape[-2:], dtype=torch.bool)
        for said, side in (
            ("on the diagonal", ones.tril() & ones.triu()),
            ("above the diagonal", ones.triu(1)),
            ("below the diagonal", ones.tril(-1)),
            ("beside the diagonal", ~(ones.tril() & ones.triu())),
        ):
            if not bool((wrong & ~side).any()):
                yield f"It is wrong only {said} of its last two axes"


def of_looks(case: Case, x: Tensor | None, y: Tensor | None) -> Iterator[str]:
    """What every right result had here, and this one has not."""
    if x is None or y is None or x.shape != y.shape or torch.bool in (x.dtype, y.dtype) or not x.numel():
        return
    for a in range(-1, -1 - x.dim(), -1):
        if _sums_to_1(x, a) and not _sums_to_1(y, a):
            yield f"It should sum to 1 over axis {a}, and does not"
    if x.numel() > 1:
        if bool((x >= 0).all()) and bool((y < -ABSOLUTE).any()):
            yield "It has numbers below 0, and should have none"
        if bool((x.abs() <= 1).all()) and bool((y.abs() > 1 + RELATIVE).any()) and x.is_floating_point():
            yield "It has numbers beyond 1, and should have none"
        if x.dim() > 1 and _close(x, x.mT) and not _close(y, y.mT):
            yield "It should be symmetric, and is not"
        if bool((x == 0).any()) and not bool((y == 0).any()):
            yield "Some of its numbers should be 0, and none is"
    if bool((x == x.round()).all()) and bool((y != y.round()).any()):
        yield "It should be whole, and is not"


def _tensor(value: Any) -> Tensor | None:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return torch.tensor(float(value), dtype=torch.float64)
    return value.detach() if isinstance(value, Tensor) and not value.is_complex() else None


def _close(x: Tensor, y: Tensor) -> bool:
    same = x.shape == y.shape and (x.dtype == torch.bool) == (y.dtype == torch.bool)
    return same and torch.allclose(x.double(), y.double(), RELATIVE, ABSOLUTE, equal_nan=True)


def _fits(mask: Tensor, x: Tensor) -> bool:
    """Whether a mask says of every number of `x`, by its last axes."""
    try:
        return torch.broadcast_shapes(mask.shape, x.shape) == x.shape and mask.numel() > 1
    except RuntimeError:
        return False


def _is_constant(x: Tensor) -> bool:
    """Whether its numbers are all the same, and not just one: in an empty one they are."""
    return x.numel() != 1 and bool((x == x.flatten()[:1]).all())


def _sums_to_1(x: Tensor, axis: int) -> bool:
    """Whether it does everywhere, but for what is 0 altogether."""
    if not x.dim() or x.shape[axis] < 2:
        return False
    total, empty = x.double().sum(axis), (x == 0).all(axis)
    return not bool(empty.all()) and torch.allclose(total[~empty], torch.ones_like(total[~empty]), RELATIVE)


def _sizes(case: Case) -> dict[str, float]:
    """The sizes and numbers of a case, by the expressions that give them."""
    found: dict[str, float] = {}
    for name, value in case.items():
        if isinstance(value, Tensor):
            found |= {f"{name}.shape[{axis}]": value.shape[axis] for axis in range(-1, -value.dim() - 1, -1)}
        elif isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
            found[name] = value
    return {name: size for name, size in found.items() if size > 0 and size != 1}
