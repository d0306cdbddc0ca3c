"""What was checked in a notebook, told at its end: *Run all* does not stop at the first exercise that is not right."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._language import say

if TYPE_CHECKING:
    from ._exercise import Exercise, Finding

__all__ = ["keep_going", "report", "told_instead"]

MARKS = {"solved": "right", "not started": "not started"}
_found: dict[str, tuple[Exercise, Finding]] | None = None


def keep_going() -> None:
    """From here on a checker says what is wrong without stopping the notebook, and `report` sums up.

    Exercises' notebooks begin with it. Without it a checker raises `CheckFailed`.
    """
    global _found
    _found = {}


def told_instead(exercise: Exercise, finding: Finding) -> bool:
    """Print what was found, and keep it for the report; `False` where nobody asked for one."""
    if _found is None:
        return False
    _found[exercise.name] = (exercise, finding)
    print(f"{exercise.name}: {say('right.') + ' ' if finding.solved else ''}{say(finding.message)}")
    return True


def report() -> None:
    """Print a line for each exercise that was checked since `keep_going`, and their points together."""
    if not _found:
        print(say("No exercise has been checked yet: run the cells above."))
        return
    for name, (exercise, finding) in _found.items():
        points = exercise.points if finding.solved else 0
        print(f"{name:24} {say(MARKS.get(finding.kind, 'not yet')):12} {say(f'{points} of {exercise.points}')}")
    solved = [exercise.points for exercise, finding in _found.values() if finding.solved]
    worth = sum(exercise.points for exercise, _ in _found.values())
    print(say(f"{len(solved)} of {len(_found)} right, {sum(solved)} of {worth} points"))
