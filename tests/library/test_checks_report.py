"""The report at the end of an exercises' notebook: *Run all* goes through, and says what is left."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from mhalib_classroom import checks
from mhalib_classroom.checks import _report
from mhalib_classroom.grade import _submissions

EXERCISES = Path(__file__).parents[2] / "exercises"


@pytest.fixture(autouse=True)
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_report, "_found", None)


def test_without_keep_going_a_wrong_answer_stops_the_cell() -> None:
    with pytest.raises(checks.CheckFailed, match="weighted_average"):
        checks.weighted_average(lambda weights, values: values)


def test_who_grades_is_told_by_an_error_all_the_same() -> None:
    checks.keep_going()
    checks.weighted_average.require(lambda weights, values: weights @ values, seed="secret")
    with pytest.raises(checks.CheckFailed, match="weighted_average"):
        checks.weighted_average.require(lambda weights, values: values)


def test_after_it_what_is_wrong_is_said_and_reported(capsys: pytest.CaptureFixture[str]) -> None:
    def unwritten(q, k):
        raise NotImplementedError

    checks.keep_going()
    checks.weighted_average(lambda weights, values: values)
    assert capsys.readouterr().out.startswith("weighted_average: ")
    checks.scores(unwritten)
    checks.weighted_average(lambda weights, values: weights @ values)
    capsys.readouterr()
    checks.report()
    average, scores, total = capsys.readouterr().out.splitlines()
    points = checks.EXERCISES["weighted_average"].points
    assert average.split() == ["weighted_average", "right", f"{points}", "of", f"{points}"]
    assert "not started" in scores
    assert f" 0 of {checks.EXERCISES['scores'].points}" in scores
    assert total.startswith(f"1 of 2 right, {points} of ")


def test_a_report_on_nothing_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    checks.report()
    assert "run the cells above" in capsys.readouterr().out


@pytest.mark.parametrize("path", sorted(EXERCISES.glob("*.ipynb")), ids=lambda path: path.stem)
def test_each_notebook_keeps_going_before_its_exercises_and_ends_in_the_report(path: Path) -> None:
    code = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    calls = [_submissions.checked_names({1: source}) for source in code]
    start = next(place for place, source in enumerate(code) if "checks.keep_going()" in source)
    assert not any(calls[: start + 1])
    assert any(calls)
    assert code[-1] == "checks.report()"


def test_the_report_is_no_exercise_for_the_grader() -> None:
    cells = {1: "checks.keep_going()", 2: "checks.report()", 3: "checks.scores(scores)", 4: "checks.reports(x)"}
    assert _submissions.checked_names(cells) == {"scores", "reports"}
