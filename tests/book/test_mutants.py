"""Mutants of the exercises' solutions: which are made, and that a checker that lets one through is told."""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
import torch

from mhalib_classroom import checks
from tools.notebooks import notebooks
from tools.teaching import mutants
from tools.teaching.mutate import Mutant
from tools.teaching.mutate import mutants as made

pytestmark = pytest.mark.tool

SOLUTION = '''
def kept(weights, offset):
    """The docstring stays."""
    total = 0.0
    for row, column in enumerate(range(offset, weights.shape[-1])):
        if column >= 0 and row != 7:
            total = total + weights[row, column]
    return total / max(len(weights.T), 1), torch.einsum("qk,kd->qd", weights, weights[:, offset:])
'''


def test_each_kind_of_change_is_made_once_and_nothing_else() -> None:
    found = made(SOLUTION)
    sources = [one.source for one in found]
    assert len(set(sources)) == len({one.key for one in found}) == len(found) > 60
    assert all('"""The docstring stays."""' in source and "def kept(weights, offset)" in source for source in sources)
    for expected in (
        "total = total - weights[row, column]",  # an operator
        "if column > 0 and row != 7",  # a bound
        "if column >= 0 or row != 7",
        "if True:",
        "row != 8",  # a constant
        "weights.shape[1]",  # an axis
        "weights[column, row]",  # axes of an index
        "weights[:, offset + 1:]",  # a slice
        "len(weights)",  # no transpose
        "'qk,kd->dq'",  # letters
        "enumerate(range(weights.shape[-1], offset))",  # arguments
        "return (total, torch.einsum",  # no scale
        "range(row, weights",  # a name
        "range(offset)",  # an argument less
    ):
        assert any(expected in source for source in sources), expected


def weak(*, seen: bool) -> checks.Exercise:
    """A checker of `offset_of` whose cases have the offset 0 alone, or others."""

    def cases(rng: Random) -> Iterator[dict[str, Any]]:
        for offset in (0, -1 if seen else 0):
            yield {"weights": torch.eye(4) + torch.arange(4.0), "offset": offset}

    return checks.Exercise(
        "offset_of",
        chapter=1,
        title="",
        verified="",
        cases=cases,
        reference=lambda weights, offset: offset + len(weights),
    )


PLAIN = "def offset_of(weights, offset):\n    return offset + len(weights)"
HARMFUL = [
    Mutant(PLAIN.replace("return", "import os; os._exit(3)\n    return"), "ends its process", 2),
    Mutant(PLAIN.replace("return", "while True: pass\n    return"), "never ends", 2),
]


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*fork.. was called:RuntimeWarning")  # where another test has loaded JAX
def test_a_weak_checker_leaves_a_survivor_that_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`offset - len` would be seen; `-offset + len` is not, where every offset is 0."""
    monkeypatch.setattr(mutants, "SECONDS", 0.2)
    monkeypatch.setitem(checks.EXERCISES, "offset_of", weak(seen=False))
    task = mutants.Task("offset_of", "", [*HARMFUL, *made(PLAIN)])
    mutants.run([task], jobs=1, seeds=1)
    assert task.found[:2] == [(mutants.SLOW, "its process ended"), (mutants.SLOW, "too slow")]
    assert "offset_of" in capsys.readouterr().err
    alive = {one.change.partition(": ")[2] for one, _ in task.survivors()}
    assert alive == {"offset + len(weights) -> len(weights)"}
    assert len(mutants.complaints([task], {})) == 1
    (mutant, _), *_ = task.survivors()
    assert mutants.complaints([task], {"offset_of": {mutant.key: "why"}}) == []
    assert re.fullmatch(
        r"offset_of, 0+: listed, but refused or no longer made",
        mutants.complaints([task], {"offset_of": {mutant.key: "why", "0" * 12: "why"}})[0],
    )
    sums = mutants.table([task]).splitlines()[-1].split()
    assert sums[0] == "together"
    assert [int(one) for one in sums[1:]] == [len(task.mutants), *task.counts()]


def test_a_better_checker_leaves_none() -> None:
    exercise = weak(seen=True)
    verdicts = [mutants.judge(exercise, {"torch": torch}, one.source, 1)[0] for one in made(PLAIN)]
    assert mutants.SURVIVED not in verdicts
    assert mutants.judge(exercise, {}, PLAIN, 1) == (mutants.SURVIVED, "0")
    assert mutants.judge(exercise, {}, "raise ValueError", 1) == (mutants.RAISED, "ValueError")


def test_what_is_right_on_most_seeds_is_found_on_many() -> None:
    """As `first_wrong_step` was, where an answer that looks at the last axis alone was right on 236 of 300 seeds."""
    exercise = weak(seen=True)

    def rare(rng: Random) -> Iterator[dict[str, Any]]:
        yield {"weights": torch.ones(4, 4), "offset": 0 if rng.random() < 0.03 else 5}

    exercise.cases = rare
    wrong = PLAIN.replace("offset + len(weights)", "9 if offset else -1")
    found = [mutants.judge(exercise, {"torch": torch}, wrong.replace("-1", "4"), seeds) for seeds in (1, 300)]
    assert found == [(mutants.SURVIVED, "0")] * 2  # it is right
    wrong = PLAIN.replace("offset + len(weights)", "4 if offset == 0 else 8")
    few, many = (mutants.judge(exercise, {"torch": torch}, wrong, seeds) for seeds in (3, 300))
    assert few[0] != mutants.SURVIVED
    assert many[0] == mutants.SURVIVED


def test_a_mistake_that_a_checker_knows_is_among_the_mutants() -> None:
    (chapter,) = notebooks.CHAPTERS.glob("01_*.ipynb")
    for task in mutants.tasks(chapter):
        known = [one for one in task.mutants if one.change.startswith("the mistake ")]
        assert len(known) == len(checks.EXERCISES[task.name].mistakes)
        setup: dict[str, Any] = {}
        exec(task.setup, setup)
        verdicts = {mutants.judge(checks.EXERCISES[task.name], setup, one.source, 20)[0] for one in known}
        assert verdicts <= {mutants.NAMED, mutants.RELATED, mutants.COMPARED, mutants.RAISED}


def test_a_named_mistake_is_told_from_a_wrong_result() -> None:
    exercise = checks.EXERCISES["row_of_fold"]
    code = "def row_of_fold(row, num_heads):\n    return "
    wrong = ("row % num_heads, row // num_heads", "row, 0", "row % 7, row % num_heads + row % 5", "row.x")
    assert [mutants.judge(exercise, {}, code + made, 2) for made in wrong] == [
        (mutants.NAMED, "swapped"),
        (mutants.RELATED, "num_heads has no effect on it"),
        (mutants.COMPARED, "value"),
        (mutants.RAISED, "raised"),
    ]


def test_what_is_listed_as_equivalent_belongs_to_an_exercise_and_has_a_reason() -> None:
    listed = mutants.equivalents()
    assert set(listed) <= set(checks.EXERCISES)
    there = {
        (task.name, mutant.key)
        for path in notebooks.CHAPTERS.glob("[0-9][0-9]_*.ipynb")
        for task in mutants.tasks(path)
        for mutant in task.mutants
    }
    gone = [(name, key) for name, keys in listed.items() for key in keys if (name, key) not in there]
    assert gone == []  # the solution has changed since
    for name, reasons in listed.items():
        assert reasons, name
        for key, why in reasons.items():
            assert re.fullmatch(r"[0-9a-f]{12}", key), (name, key)
            assert len(why) > 20, (name, key)
