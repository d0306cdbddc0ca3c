"""Call a student's function, and survive what it does."""

from __future__ import annotations

import contextlib
import copy
import functools
import itertools
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch

from ._gradients import gradients_here
from ._prediction import without_libraries

LONGEST_MESSAGE = 300
PAUSES = [microseconds * 1e-6 for microseconds in range(1, 60)]  # some as long as it takes to leave a `try`


@dataclass
class Outcome:
    """What a call did.

    kind: "returned", "raised", "too slow" or "not started".
    value: what came back.
    error, error_type: the exception as text, and its class's name.
    line: where in the student's code it was raised, as text.
    changed: the arguments that the call changed in place.
    seconds: after how many it was too slow.
    """

    kind: str
    value: Any = None
    error: str = ""
    error_type: str = ""
    line: str = ""
    changed: list[str] = field(default_factory=list)
    seconds: float = 0.0


class TooSlow(BaseException):
    """Not an `Exception`, so that a student's `except Exception` does not catch it. Its argument: after how many
    seconds, where that was another's limit."""


def call(
    function: Callable[..., Any], case: dict[str, Any], seconds: float | None, *, predicts: bool = False
) -> Outcome:
    """Call `function` with copies of the arguments in `case`, in their order; `predicts`: without torch and its like.

    An exception with a true attribute `stops_the_check` is raised on: it is not the student's. A function that runs
    elsewhere has a method `predicted` for a call without libraries.
    """
    given = {name: _copied(value) for name, value in case.items()}
    elsewhere = getattr(function, "predicted", None) if predicts else None
    away = without_libraries(function) if predicts and elsewhere is None else contextlib.nullcontext()
    try:
        with _silence(), away:
            value = _within(seconds, elsewhere or function, *given.values())
    except NotImplementedError as error:
        if str(error):  # torch's own, of an operation that it lacks: a stub's has no text
            return _raised(error)
        return Outcome("not started", error="NotImplementedError", error_type="NotImplementedError")
    except TooSlow as slow:
        after = slow.args[0] if slow.args else seconds
        return Outcome("too slow", error="too slow", error_type="TooSlow", seconds=after or 0.0)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit, too
        if getattr(error, "stops_the_check", False):
            raise
        return _raised(error)
    changed = [name for name, value in given.items() if not _unchanged(case[name], value)]
    return Outcome("returned", value, changed=changed)


def gradients(
    function: Callable[..., Any], case: dict[str, Any], towards: list[torch.Tensor], seconds: float | None
) -> dict[str, torch.Tensor]:
    """Of the sum of all that `function` returns, each number times its weight in `towards`, with respect to its
    floating-point arguments, as far as there are any.

    A function that runs elsewhere has a method of this name, which takes `towards` and the arguments. What is raised is
    not told: the forward pass has been looked at before.
    """
    given = {name: _copied(value) for name, value in case.items()}
    elsewhere = getattr(function, "gradients", None)
    work = elsewhere or functools.partial(gradients_here, function)
    try:
        with _silence():
            found = _within(seconds, work, towards, *given.values())
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if getattr(error, "stops_the_check", False):
            raise
        return {}
    pairs = zip(given, found, strict=False) if isinstance(found, (list, tuple)) else ()
    return {name: one for name, one in pairs if isinstance(one, torch.Tensor) and one.is_floating_point()}


def _raised(error: BaseException) -> Outcome:
    try:
        text = " ".join(str(error)[: 4 * LONGEST_MESSAGE].split())
    except Exception:
        text = ""
    text = text if len(text) <= LONGEST_MESSAGE else text[:LONGEST_MESSAGE] + " ..."
    name = type(error).__name__[:60]
    trace, line = error.__traceback__, ""
    while trace is not None:
        filename = trace.tb_frame.f_code.co_filename
        if "ipykernel" in filename or filename.startswith("<"):  # a cell of a notebook
            line = f", in line {trace.tb_lineno} of the cell"
        trace = trace.tb_next
    return Outcome("raised", error=f"{name}: {text}" if text else name, error_type=name, line=line)


def _copied(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else copy.deepcopy(value)


def _unchanged(before: Any, after: Any) -> bool:
    try:
        return _equal(before, after)
    except Exception:  # it is something else altogether
        return False


def _equal(before: Any, after: Any) -> bool:
    if isinstance(before, torch.Tensor):
        same = before.shape == after.shape and before.dtype == after.dtype
        return same and torch.equal(torch.nan_to_num(before), torch.nan_to_num(after))
    if isinstance(before, (list, tuple)):
        return len(before) == len(after) and all(_equal(*pair) for pair in zip(before, after, strict=True))
    if isinstance(before, dict):
        return before.keys() == after.keys() and all(_equal(before[key], after[key]) for key in before)
    return bool(before == after)


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """What a student's code prints goes nowhere; in threads it is printed, for they share one `sys.stdout`."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with open(os.devnull, "w", encoding="utf-8") as nowhere, contextlib.redirect_stdout(nowhere):
        yield


def _within(seconds: float | None, function: Callable[..., Any], *arguments: Any) -> Any:
    """`function(*arguments)`, or `TooSlow` after so many seconds, where the platform can stop it: on Unix, in the main
    thread, in Python code.

    A loop that catches everything catches the first `TooSlow`, too. So the alarm rings again and again, after pauses
    of all lengths, until it rings outside the loop's `try`. Python 3.10 hears no alarm on its way from one `try` to
    the next, unless it is traced; there, a loop with `except Exception` is stopped, one that catches everything is not.
    """
    if seconds is None or not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        return function(*arguments)
    running, pauses = True, itertools.cycle(PAUSES)

    def stop(_: int, frame: FrameType | None) -> None:
        if not running:
            return
        signal.setitimer(signal.ITIMER_REAL, next(pauses))
        while frame is not None and frame.f_code in (stop.__code__, _look.__code__):  # an alarm within an alarm
            frame = frame.f_back
        if frame is not None and frame.f_code not in (_within.__code__, unraisable.__code__):  # for both shall end
            raise TooSlow

    def unraisable(lost: sys.UnraisableHookArgs, /) -> None:
        """An alarm that rang where Python hands no exception on, in a `__del__`, is told to nobody: it rings again."""
        if not issubclass(lost.exc_type, TooSlow):
            told(lost)

    traces = sys.version_info < (3, 11) and sys.gettrace() is None
    before, told = signal.signal(signal.SIGALRM, stop), sys.unraisablehook
    try:
        sys.unraisablehook = unraisable
        if traces:
            sys.settrace(_look)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        return (lambda: function(*arguments))()
    finally:
        running = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        sys.unraisablehook = told
        if traces:
            sys.settrace(None)


def _look(*_: Any) -> Any:
    """The least that traces: Python enters it at every line, and hears signals as it enters."""
    return _look
