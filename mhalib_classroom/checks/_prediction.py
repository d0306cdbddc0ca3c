"""A prediction is worked out and not read off: while a student's function predicts, torch and its like are away.

This file is also used inside the grader's sandbox, where the package is not: it imports nothing of it.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

BOOK = {"mhalib", "mhalib_classroom"}
LIBRARIES = {*BOOK, "torch", "numpy", "jax", "tensorflow", "keras"}
OF_KNOWN_NUMBERS = {"tensor", "as_tensor", "Size", "array", "asarray", "prod", "int32", "int64", "float32", "float64"}


class Computed(Exception):  # noqa: N818 - a student reads its name
    """A function that was to predict asked a library; the argument says what for."""


class _Away:
    """Stands for a library, or for something of it. What only holds or multiplies known numbers is there."""

    def __init__(self, name: str, library: Any = None) -> None:
        self._name, self._library = name, library

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self._library is not None and name in OF_KNOWN_NUMBERS:
            return getattr(self._library, name)
        raise Computed(f"{self._name}.{name}")

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise Computed(self._name)


@contextlib.contextmanager
def without_libraries(function: Callable[..., Any]) -> Iterator[None]:
    """Take the libraries out of the namespace of `function`, and of its imports; functions of this book keep them."""
    space = _namespace(function)
    if space is None or _root(space.get("__name__")) in BOOK:
        yield
        return
    importing = builtins.__import__

    def imported(name: str, globals: Any = None, locals: Any = None, wanted: Any = (), level: int = 0) -> Any:
        found = importing(name, globals, locals, wanted, level)
        foreign = globals is not space or level or _root(name) not in LIBRARIES
        return found if foreign else _Away(name if wanted else _root(name), found)

    hidden = {name: value for name, value in space.items() if _is_of_a_library(value)}
    away = {
        name: _Away(_called(value, name), value if inspect.ismodule(value) else None) for name, value in hidden.items()
    }
    space.update(away)
    builtins.__import__ = imported  # type: ignore[assignment]
    try:
        yield
    finally:
        builtins.__import__ = importing
        space.update({name: value for name, value in hidden.items() if space.get(name) is away[name]})


def _namespace(function: Any) -> dict[str, Any] | None:
    """The globals of a function, also of one that is wrapped, bound to an object, or that object."""
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    function = getattr(function, "__func__", function)
    if not hasattr(function, "__globals__"):
        function = type(function).__call__
    return getattr(function, "__globals__", None)


def _is_of_a_library(value: Any) -> bool:
    try:
        if inspect.ismodule(value):
            return _root(value.__name__) in LIBRARIES
        if callable(value):
            return _root(value.__module__) in LIBRARIES and getattr(value, "__name__", "") not in OF_KNOWN_NUMBERS
        return _root(type(value).__module__) in LIBRARIES
    except Exception:  # an object that objects to being looked at
        return False


def _called(value: Any, name: str) -> str:
    return str(value.__name__) if inspect.ismodule(value) else name


def _root(name: Any) -> str:
    return str(name).partition(".")[0]
