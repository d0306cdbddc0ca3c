"""One shape, checked where it is claimed."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from .._validate import as_list, require_count, require_tensor, require_text


def check_shape(x: Tensor, expected: Sequence[int | None], name: str = "x") -> None:
    """Raise `ValueError` unless `x` has the shape `expected`, in which `None` stands for any size.

    >>> import torch
    >>> check_shape(torch.zeros(2, 4, 100), (2, None, 100))
    >>> check_shape(torch.zeros(2, 4, 100), (2, 6, 100), name="output")
    Traceback (most recent call last):
    ...
    ValueError: output has shape (2, 4, 100), expected (2, 6, 100): axis 1 is 4, not 6
    """
    require_tensor(name, x)
    require_text("name", name)
    got, want = tuple(x.shape), tuple(as_list("expected", expected))
    for size in want:
        if size is not None:
            require_count("each size in expected", size, minimum=0)
    wanted = (
        "(" + ", ".join("any" if size is None else str(size) for size in want) + ("," if len(want) == 1 else "") + ")"
    )
    if len(got) != len(want):
        raise ValueError(f"{name} has shape {got}, expected {wanted}: {len(got)} axes, not {len(want)}")
    wrong = [f"axis {i} is {g}, not {w}" for i, (g, w) in enumerate(zip(got, want, strict=True)) if w not in (None, g)]
    if wrong:
        raise ValueError(f"{name} has shape {got}, expected {wanted}: {', '.join(wrong)}")
