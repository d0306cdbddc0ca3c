"""A week of the four that `simulated_term.py` plays, without the sandbox, so that it takes seconds; all of them, in the
sandbox, weekly."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from mhalib_classroom.grade import __main__, _class, _notebook, worker
from tools.teaching import simulated_term


class Here:
    """What a sandbox does, in this process: for notebooks that a tool has written."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.space: dict[str, Any] = {"__name__": "__main__", "get_ipython": worker.NotInTheGrader()}

    def run_cell(self, source: str) -> str:
        try:
            worker._run("\n".join(line for line in source.splitlines() if not line.startswith("checks.")), self.space)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return ""

    def functions(self, name: str) -> list[Any]:
        return [self.space[name]] if name in self.space else []

    def close(self) -> None: ...


@pytest.mark.skipif(os.name != "posix", reason="the worker's limits")
def test_a_week_of_twelve_students_is_graded_as_they_deserve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = simulated_term.PAGE.read_text(encoding="utf-8")
    chapters = simulated_term.handed_in_by_week(page)[2]
    expected = simulated_term.hand_in(tmp_path / "week2", 2, chapters, others=(1, 3, 4))
    assert len(expected) == 12
    monkeypatch.setattr(_notebook, "Sandbox", Here)
    monkeypatch.setattr(_class, "require_working", lambda *_: None)
    monkeypatch.chdir(tmp_path)
    words = simulated_term.command(page, 2, chapters)
    assert words[:2] == ["grade", "week2"]
    assert __main__.main([*words[1:], "--jobs", "1"]) == 0
    rows, book = simulated_term.table(tmp_path / "week2.csv"), simulated_term.table(tmp_path / "week2.csv.students.csv")
    assert simulated_term.differences(expected, rows, book) == []
    assert len(list(tmp_path.glob("week2.csv.feedback/*/feedback.html"))) == 12
    [line] = [line for line in book if line["student"] == "Jia"]  # a difference would be seen
    line["points"] = "99"
    assert len(simulated_term.differences(expected, rows, book)) == 1


def test_the_weeks_and_the_command_are_those_of_the_page() -> None:
    page = simulated_term.PAGE.read_text(encoding="utf-8")
    due = simulated_term.handed_in_by_week(page)
    assert [due[week] for week in simulated_term.WEEKS] == [[1, 2], [3, 4], [5, 6, 7], [8, 9, 10]]
    words = simulated_term.command(page, 3, due[3])
    assert words.count("--chapter") == len(due[3])
    assert [words[place + 1] for place, word in enumerate(words) if word == "--chapter"] == ["5", "6", "7"]
    assert {"week3", "week3.csv", "--feedback", "--due"} <= set(words)
    with pytest.raises(ValueError, match="has no command"):
        simulated_term.command("", 1, [1])
