"""One notebook: its cells in a sandbox, and what the checks say of it. This is what is sent to a cluster's workers."""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ..checks import EXERCISES, Exercise, Finding
from ._launch import Launcher, Limits
from ._sandbox import USED_UP, Abandoned, NotStarted, Sandbox, Stopped, Stopping

MOST_BAD_CELLS, MOST_NOTES = 5, 20


@dataclass(frozen=True)
class Job:
    """A notebook and what is asked of it. Nobody's name is in it, and what is printed of it is neither the seed nor the
    student's work.

    cells: the code, by number.
    exercises: their names.
    seed: what the checks draw their inputs from.
    launcher, limits: of the sandbox.
    """

    cells: dict[int, str] = field(repr=False)
    exercises: Sequence[str]
    seed: str = field(repr=False)
    launcher: Launcher
    limits: Limits


@dataclass(frozen=True)
class Found:
    """What was found of each exercise, in their order, what there is to say of the cells, and the seconds it took."""

    findings: list[Finding]
    notes: str
    seconds: float = 0.0


def out_of_time() -> Finding:
    """Of an exercise that was not begun, for the time was used up."""
    return Finding(False, "stopped", None, f"{USED_UP}, before this exercise")


def examined(job: Job, stopping: Stopping | None = None) -> Found:
    """Run a notebook's cells in a sandbox, and check its exercises.

    Args:
        job: the notebook.
        stopping: set from outside when it is to be abandoned.

    Raises:
        NotStarted: no sandbox came up.
        Abandoned: `stopping` was set.
    """
    start = time.monotonic()
    exercises = [EXERCISES[name] for name in job.exercises]
    run = _Run(job, stopping or threading.Event())
    try:
        findings = [run.examine(exercise) for exercise in exercises]
        for place, finding in enumerate(findings):
            if finding.kind == "too slow":  # the machine may have been busy with somebody else's code
                run.close()
                findings[place] = run.examine(exercises[place])
        return Found(findings, run.said(), time.monotonic() - start)
    finally:
        run.close()


class _Run:
    """The cells of a notebook in a sandbox, which is started anew when it is lost."""

    def __init__(self, job: Job, stopping: Stopping) -> None:
        self.job, self.cells, self.stopping = job, job.cells, stopping
        self.notes: dict[int, dict[str, None]] = {}  # of each cell, in the order in which they were made
        self.bad: set[int] = set()
        self.end = time.monotonic() + job.limits.submission_seconds
        self.sandbox: Sandbox | None = None

    def examine(self, exercise: Exercise) -> Finding:
        """What was handed to the checker counts, and else what has the exercise's name.

        A lost sandbox costs the exercise that lost it; the next one gets a new sandbox.
        """
        if time.monotonic() >= self.end:
            return out_of_time()
        try:
            sandbox = self.sandbox or self._start()
            self.sandbox = sandbox
            handed_in = sandbox.functions(exercise.name)
            if not handed_in:
                return Finding(False, "missing", None, self._why_missing(exercise.name))
            findings = []
            for one in handed_in:
                findings.append(exercise.examine(one, self.job.seed, cells=self.cells.values()))
                if findings[-1].solved:
                    return findings[-1]
            first, hoarded = findings[0], sandbox.hoarded()
            if first.kind != "too slow" or not hoarded:
                return first
            return replace(first, message=f"{first.message}\n{hoarded}")
        except Stopped as error:
            self.close()
            return Finding(False, "stopped", None, f"your code stopped the grader's sandbox: {error}")
        except (NotStarted, Abandoned):
            raise
        except Exception as error:  # nobody else shall pay for a result that nobody has thought of
            self.close()
            return Finding(False, "stopped", None, f"what your code returned broke the check: {type(error).__name__}")

    def said(self) -> str:
        """What there is to say of the cells."""
        told = (f"code cell {number}{note}" for number, notes in self.notes.items() for note in notes)
        return "; ".join(itertools.islice(told, MOST_NOTES))[:500]

    def _start(self) -> Sandbox:
        """A sandbox in which all cells were run; a cell that stops it is left out the next time."""
        while True:
            try:
                sandbox = self._new()
            except NotStarted:  # the machine may have been busy with somebody else's code
                sandbox = self._new()
            try:
                if self._runs_all_in(sandbox):
                    return sandbox
            except BaseException:
                sandbox.close()
                raise

    def _new(self) -> Sandbox:
        return Sandbox(self.job.launcher, self.job.limits, end=self.end, stopping=self.stopping)

    def _runs_all_in(self, sandbox: Sandbox) -> bool:
        """Whether all cells ran without stopping it; cells that did so before are left out."""
        for number, source in self.cells.items():
            if number in self.bad:
                continue
            try:
                error = sandbox.run_cell(source)
            except Stopped as stopped:
                if time.monotonic() >= self.end:
                    raise Stopped(USED_UP) from None
                self.bad.add(number)
                self._note(number, f" left out: {stopped}")
                if len(self.bad) > MOST_BAD_CELLS:
                    raise Stopped("too many cells hang or crash") from None
                return False
            if error.startswith("TooSlow"):
                error = f"no end after {self.job.limits.cell_seconds:g} seconds. {sandbox.hoarded()}".strip(". ")
            if error:
                self._note(number, f": {error}")
        return True

    def _note(self, number: int, note: str) -> None:
        self.notes.setdefault(number, {})[note] = None

    def _why_missing(self, name: str) -> str:
        defines = re.compile(rf"\bdef +{name}\b|^{name} *=[^=]", re.MULTILINE)
        for number, notes in self.notes.items():
            if defines.search(self.cells[number]):
                failed = f"code cell {number}{next(iter(notes))}"
                return f"{name} was to be defined in a cell that did not run to its end: {failed}"
        return f"nothing named {name} is defined in this notebook"

    def close(self) -> None:
        if self.sandbox is not None:
            self.sandbox.close()
            self.sandbox = None
