"""Checkers for the exercises: they say which mistake was made.

`checks.split_heads(your_function)` draws inputs from a seed, compares with the reference, and, where the result is
wrong, names the known mistake that does the same. It prints what was verified, or raises `CheckFailed` with a message.
"""

from . import (
    at_work,
    averages,
    counts,
    heads,
    importance,
    layer,
    ledgers,
    patterns,
    pictures,
    repairs,
    repairs_of_models,
    weights,
)
from ._exercise import CheckFailed, Exercise, Finding, Mistake

_MODULES = (
    averages,
    weights,
    counts,
    layer,
    heads,
    ledgers,
    patterns,
    at_work,
    pictures,
    importance,
    repairs,
    repairs_of_models,
)
_ALL = [one for module in _MODULES for one in vars(module).values() if isinstance(one, Exercise)]

EXERCISES: dict[str, Exercise] = {one.name: one for one in sorted(_ALL, key=lambda one: one.chapter)}
"""Every exercise by its name, in the order of the chapters."""

globals().update(EXERCISES)

__all__ = ["EXERCISES", "CheckFailed", "Exercise", "Finding", "Mistake", *EXERCISES]
