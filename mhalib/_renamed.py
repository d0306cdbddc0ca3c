"""What has another name since version 0.3: for one release, whoever uses the old one is told the new one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

MODULES = {
    "blocks": "mhalib.models",
    "cache": "mhalib.attention",
    "checks": "mhalib_classroom.checks",
    "gates": "mhalib.measures",
    "grade": "mhalib_classroom.grade",
    "masks": "mhalib.attention",
    "positions": 'mhalib.attention, and RotaryAttention is positions="rotary"',
    "scores": "mhalib.measures and mhalib.evaluation",
}
ARGUMENTS = {
    "largest_rate": "max_lr",
    "num_words": "vocab_size",
    "source_size": "source_vocab_size",
    "target_size": "target_vocab_size",
}
Function = TypeVar("Function", bound=Callable[..., Any])


class Finder:
    """Is asked for a module that nobody else has found, also by `from mhalib import NAME`."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> None:
        """Raises ModuleNotFoundError with the new name of a module that had the old one."""
        package, _, module = name.partition(".")
        if package == "mhalib" and module in MODULES:
            raise ModuleNotFoundError(f"{name} is {MODULES[module]} now")


def require_new_names(function: str, named: Iterable[str]) -> None:
    """Raise TypeError with the new name of an argument that is given by its old one."""
    for old in ARGUMENTS.keys() & named:
        raise TypeError(f"{function}: {old} is called {ARGUMENTS[old]} now")


def told(function: Function) -> Function:
    """The function, which says the new names of its arguments."""

    @functools.wraps(function)
    def called(*given: Any, **named: Any) -> Any:
        require_new_names(function.__name__, named)
        return function(*given, **named)

    return called  # type: ignore[return-value]
