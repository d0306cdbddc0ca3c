"""Checkers for the exercises: they say which mistake was made.

`checks.split_heads(your_function)` draws inputs from a seed, compares with the reference, and, where the result is
wrong, names the known mistake that does the same. It prints what was verified, or raises `CheckFailed` with a message.
"""

from . import at_work, averages, counts, heads, importance, layer, patterns, pictures, weights
from ._exercise import CheckFailed, Exercise, Finding, Mistake

EXERCISES: dict[str, Exercise] = {
    name: one
    for one in sorted(
        (
            one
            for module in (averages, weights, counts, layer, heads, patterns, at_work, pictures, importance)
            for one in vars(module).values()
            if isinstance(one, Exercise)
        ),
        key=lambda one: one.chapter,
    )
    for name in (one.name,)
}
"""Every exercise by its name, in the order of the chapters."""

globals().update(EXERCISES)

__all__ = ["EXERCISES", "CheckFailed", "Exercise", "Finding", "Mistake", *EXERCISES]
