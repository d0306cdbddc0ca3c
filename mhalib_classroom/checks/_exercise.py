"""What an exercise is: what must come out, on which inputs, and which mistakes are known by name."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from .._language import say
from ._call import Outcome, call, gradients
from ._compare import compare
from ._given import is_untouched
from ._prediction import Computed
from ._recognise import one_mistake, two_mistakes
from ._relations import relation
from ._report import told_instead
from ._show import kind_of, show_call, show_difference, show_value

SEED = 0
RELATED = {"value", "shape", "nan", "dtype", "type"}  # kinds of findings whose result is held against the right one
Case = dict[str, Any]
"""The arguments of one call, in their order, by name."""


@dataclass(frozen=True)
class Mistake:
    """A wrong version that people write.

    name: short, in a grader's table: "no transpose".
    message: what the student reads, in the second person: what was done, what it does, what to do instead.
    function: the wrong version itself. A submission that returns the same on all inputs made this mistake.
    """

    name: str
    message: str
    function: Callable[..., Any]


@dataclass(frozen=True)
class Finding:
    """What a check found out about one submission.

    solved: whether all is right.
    kind: "solved", "not started", "missing", "raised", "too slow", "nothing returned", "type", "dtype", "device",
        "shape", "nan", "input changed", "value", "gradient", "computed", or "unsteady".
    mistake: the name of the known mistake that it is, or of two; or `None`.
    message: for the student.
    relation: where no mistake is known, what the result has to do with the right one, as a sentence; or `None`.
    """

    solved: bool
    kind: str
    mistake: str | None
    message: str
    relation: str | None = None


class Exercise:
    """A function that a student has to write; calling the exercise checks it.

    Args:
        name: under which the student's object is found, and what it is called in `mhalib_classroom.checks`.
        chapter: the number of the chapter.
        title: what a grader's table shows.
        reference: what is right, as a function of the same arguments.
        cases: draws the inputs with a random generator, the smallest first; all sizes of a case differ.
        mistakes: the known wrong versions, the most special first.
        verified: what the student may believe after success.
        parts: what the parts of the result are called, if it is a tuple.
        points: what it counts.
        seconds: how long one call may take.
        given: the name of the mistake that the code makes which a student is given to mend, if there is such code.
        switches: the reference as a function that has a keyword for each place where it can be made wrong.
        has_gradients: whether the result is to be trained through, so that its gradients are looked at, too.
        is_prediction: whether it is to be worked out from the arguments, without torch and its like.
    """

    def __init__(
        self,
        name: str,
        *,
        chapter: int,
        title: str,
        reference: Callable[..., Any],
        cases: Callable[[random.Random], Iterator[Case]],
        mistakes: Sequence[Mistake] = (),
        verified: str,
        parts: Sequence[str] = (),
        points: int = 1,
        seconds: float = 10.0,
        given: str | None = None,
        switches: Callable[..., Any] | None = None,
        has_gradients: bool = False,
        is_prediction: bool = False,
    ) -> None:
        self.name, self.chapter, self.title = name, chapter, title
        self.reference, self.cases, self.mistakes = reference, cases, tuple(mistakes)
        self.verified, self.parts = verified, tuple(parts)
        self.points, self.seconds = points, seconds
        self.given, self.switches = given, switches
        self.has_gradients, self.is_prediction = has_gradients, is_prediction

    def __repr__(self) -> str:
        return f"checks.{self.name}: {self.title} (chapter {self.chapter})"

    def __call__(self, submission: Any, *, seed: int | str = SEED, tell: bool = False) -> None:
        """Check a submission, and say what was verified or raise `CheckFailed` with what is wrong.

        After `checks.keep_going()` nothing is raised: what is wrong is printed, too.

        Args:
            submission: the student's function or value.
            seed: what the inputs are drawn from.
            tell: whether to name the mistake of code to mend, too, while nobody has touched it.
        """
        finding = self.examine(submission, seed, tell=tell)
        if not told_instead(self, finding):
            self._say_or_raise(finding)

    def require(self, submission: Any, *, seed: int | str = SEED) -> None:
        """Check a submission for somebody who grades: what is wrong is raised, whatever the notebook has asked for."""
        self._say_or_raise(self.examine(submission, seed))

    def _say_or_raise(self, finding: Finding) -> None:
        if not finding.solved:
            raise CheckFailed(f"{self.name}: {say(finding.message)}")
        print(f"{self.name}: {say('right.')} {say(finding.message)}")

    def examine(
        self, submission: Any, seed: int | str = SEED, *, tell: bool = False, cells: Iterable[str] | None = None
    ) -> Finding:
        """What there is to say about a submission; nothing is raised for what a student can do wrong.

        Args:
            submission: the student's function or value.
            seed: what the inputs are drawn from.
            tell: whether to name the mistake of code to mend, too, while nobody has touched it.
            cells: the code that the submission comes from, where it runs elsewhere.
        """
        if not callable(submission):
            return Finding(False, "type", None, f"hand in the function itself, not {show_value(submission)}")
        with _float32():
            finding = self._examined(submission, list(self.cases(random.Random(f"{self.name}:{seed}"))), seed)
        if self.given is None or finding.mistake != self.given:
            return finding
        return self._of_the_given(finding, is_untouched(self.name, submission, cells), tell)

    def _examined(self, function: Callable[..., Any], drawn: list[Case], seed: int | str) -> Finding:
        outcomes: list[Outcome] = []
        for case in drawn:
            outcomes.append(call(function, case, self.seconds, predicts=self.is_prediction))
            if outcomes[-1].kind in ("too slow", "not started"):
                break
        right = [call(self.reference, case, None) for case in drawn[: len(outcomes)]]
        for number in range(len(outcomes)):
            finding = self._judge(number, drawn, outcomes, right)
            if finding is not None:
                return self._related(finding, function, drawn, outcomes, right)
        again = call(function, drawn[-1], self.seconds, predicts=self.is_prediction)
        if again.error or compare(outcomes[-1].value, again.value) is not None:
            return Finding(False, "unsteady", None, "the same input gave two results; draw no random numbers here")
        if self.has_gradients:
            chance = torch.Generator().manual_seed(random.Random(f"{self.name}:{seed}:gradients").getrandbits(60))
            for case, outcome in zip(drawn, right, strict=True):
                text = self._of_gradients(function, case, outcome.value, chance)
                if text:
                    return Finding(False, "gradient", None, f"the result is right, but {text}\n{self._shown(case)}")
        return Finding(True, "solved", None, f"Verified: {self.verified}")

    def _of_gradients(self, function: Callable[..., Any], case: Case, value: Any, chance: torch.Generator) -> str:
        """What is wrong with the gradients, as far as there are any. They are compared, so that nobody's torch can just
        say that all is well; and weighted, since of a softmax's sum they are 0."""
        parts = value if isinstance(value, tuple) else (value,)
        towards = [torch.randn(part.shape, generator=chance) for part in parts]
        found = gradients(function, case, towards, self.seconds)
        for name, expected in gradients(self.reference, case, towards, None).items():
            gradient = found.get(name, expected)  # without torch there is none
            if bool(gradient.isnan().any()):
                return (
                    f"its gradient with respect to {name} holds NaN, and in training it would spread to all weights. "
                    "Somewhere a NaN was made and then replaced; make none: choose what is divided, or what the "
                    "softmax reads, before, not after."
                )
            if compare(expected, gradient) is not None:
                return (
                    f"its gradient with respect to {name} is not, and training would learn something else. Is a part "
                    "of it taken out of torch's sight, by detach, no_grad or NumPy?"
                )
        return ""

    def _judge(self, number: int, drawn: list[Case], outcomes: list[Outcome], right: list[Outcome]) -> Finding | None:
        """What is wrong in this case, or `None`."""
        case, outcome, expected = drawn[number], outcomes[number], right[number].value
        if outcome.kind == "not started":
            return Finding(False, "not started", None, "this is still the stub; write your code in its place")
        if outcome.kind == "too slow":
            text = f"no result after {outcome.seconds:g} seconds. Does a loop never end?\n{self._shown(case)}"
            return Finding(False, "too slow", None, text)
        if self.is_prediction and outcome.error_type == Computed.__name__:
            asked = outcome.error.removeprefix(f"{Computed.__name__}: ")
            text = (
                f"this is a prediction, and your code asks {asked}. Work the answer out from the arguments, with "
                f"arithmetic alone: while it is checked, torch, NumPy and mhalib are away.\n{self._shown(case)}"
            )
            return Finding(False, "computed", None, text)
        difference = None if outcome.error else compare(expected, outcome.value, parts=self.parts)
        if difference is None and not outcome.error and not outcome.changed:
            return None
        known = self._recognise(drawn, outcomes, right)
        where = f"\n{self._shown(case)}"
        if known is not None:
            detail = "" if outcome.error else f"{where}\n{show_difference(expected, outcome.value, self.parts)}"
            kind = "raised" if outcome.error else difference.kind if difference else "input changed"
            return Finding(False, kind, known.name, f"{known.message}{detail}")
        if outcome.error:
            text = f"your code raised {outcome.error}{outcome.line}"
            return Finding(False, "raised", None, f"{text}{where}")
        if difference is None:
            names = " and ".join(outcome.changed)
            text = f"the result is right, but your code changed its input {names} in place. Work on a copy"
            return Finding(False, "input changed", None, f"{text}{where}")
        if difference.kind == "nothing returned" and any(one.value is not None for one in outcomes):
            text = f"the result is None in this case, and is to be {kind_of(expected)} in every one{where}"
            return Finding(False, "type", None, text)
        text = f"{difference.message}{where}\n{show_difference(expected, outcome.value, self.parts)}"
        return Finding(False, difference.kind, None, text)

    def _related(
        self,
        finding: Finding,
        function: Callable[..., Any],
        drawn: list[Case],
        outcomes: list[Outcome],
        right: list[Outcome],
    ) -> Finding:
        """The finding; of wrong values that no known mistake explains, with their relation to the right ones."""
        if finding.mistake or finding.kind not in RELATED:
            return finding
        raised = [one for one in outcomes if one.kind == "raised"]
        if raised:
            told: str | None = f"In {len(raised)} of {len(outcomes)} inputs your code raises {raised[0].error}"
        elif any(one.error for one in outcomes):
            return finding
        else:
            told = relation(function, self.reference, drawn, outcomes, right, self.seconds, predicts=self.is_prediction)
        first, line, rest = finding.message.partition("\n")
        return replace(finding, message=f"{first}. {told}{line}{rest}", relation=told) if told else finding

    def _of_the_given(self, finding: Finding, untouched: bool, tell: bool) -> Finding:
        """Of what does as the code to mend did: its mistake is named after an own change, or when that is asked for."""
        (message,) = (mistake.message for mistake in self.mistakes if mistake.name == self.given)
        shown = finding.message.removeprefix(message)
        if not untouched:
            return replace(finding, message=f"{message}\nThe code that you were given does just this, too.{shown}")
        if tell:
            text = f"{message}\nThe code that you were given does just this.{shown}"
        else:
            text = (
                f"this is still the code that you were given, and its result is not right.{shown}\nChange it, and what "
                f"is wrong then gets a name. To be told now:  checks.{self.name}({self.name}, tell=True)"
            )
        return replace(finding, kind="not started", message=text)

    def _recognise(self, drawn: list[Case], outcomes: list[Outcome], right: list[Outcome]) -> Mistake | None:
        """The known mistake that does just what the submission did in every case, or two of them in one."""
        known = one_mistake(self.mistakes, drawn, outcomes, right)
        if known or self.switches is None or any(outcome.error for outcome in outcomes):
            return known
        pair = two_mistakes(self.mistakes, self.switches, drawn, outcomes, right)
        if pair is None:
            return None
        one, other = pair
        return Mistake(f"{one.name}, and {other.name}", f"two things: {one.message} And {other.message}", one.function)

    def _shown(self, case: Case) -> str:
        return f"    {show_call(self.name, case)}"


@contextlib.contextmanager
def _float32() -> Iterator[None]:
    """Inputs and results in float32, whatever a notebook has made the default."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


class CheckFailed(AssertionError):  # noqa: N818 - a student reads it: no error of the machine
    """What is wrong with a submission. Jupyter shows the message alone, without a traceback."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]
