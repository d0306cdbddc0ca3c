"""Grades a class again and again, with a fault at a random place of each run, and looks whether anything was lost.

    python tests/library/soak.py 1000 [seed]

A fault is a kill -9, or a disk that is full from there on, at one of the steps by which files are written: before,
after some of the bytes, or after all of them. Every tenth time two graders write one table. After each run every file
that is there is whole, and no notebook that was kept is graded again; at the end a run without a fault writes what it
would have written in the first place, and leaves nothing beside it. No sandbox is started: what students' code does is
another test's.
"""

from __future__ import annotations

import collections
import contextlib
import csv
import errno
import json
import os
import random
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mhalib_classroom.grade import Row, __main__, _class

STUDENTS, MOST_STEPS = 6, 90
CELL = {"cell_type": "code", "metadata": {}, "outputs": [], "source": "checks.scores(scores)"}


def hand_in(folder: Path) -> None:
    for student in range(STUDENTS):
        path = folder / f"Zoë {student}" / "week.ipynb"
        path.parent.mkdir(parents=True)
        cell = {**CELL, "source": f"# {student}\n{CELL['source']}"}
        made = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
        path.write_text(json.dumps(made), encoding="utf-8")


class Fault:
    """Happens at a step: every write has three, every other change of a file has two."""

    def __init__(self, step: int, kills: bool) -> None:
        self.left, self.kills, self.is_full = step, kills, False

    def step(self) -> None:
        self.left -= 1
        if self.left == 0:
            if self.kills:
                os.kill(os.getpid(), signal.SIGKILL)
            self.is_full = True
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def around(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def faulty(*given: Any, **more: Any) -> Any:
            self.step()
            made = real(*given, **more)
            self.step()
            return made

        return faulty

    def writing(self, encoded: Callable[..., bytes]) -> Callable[..., Any]:
        """In place of `Path.write_bytes` and `Path.write_text`."""

        def write(path: Path, content: Any, **more: Any) -> None:
            self.step()
            held = encoded(content, **more)
            middle = random.randint(0, len(held))
            with open(path, "wb") as file:
                file.write(held[:middle])
                file.flush()
                self.step()
                file.write(held[middle:])
            self.step()

        return write

    def install(self) -> None:
        Path.write_bytes = self.writing(lambda content: content)  # type: ignore[assignment]
        Path.write_text = self.writing(  # type: ignore[assignment]
            lambda text, encoding="utf-8", errors="strict", newline=None: text.encode(encoding, errors)
        )
        os.replace = self.around(os.replace)
        for name in ("mkdir", "touch", "chmod"):
            setattr(Path, name, self.around(getattr(Path, name)))


def graded_by(log: Path) -> Callable[..., list[Row]]:
    def grade(task: Any, _: Any) -> list[Row]:
        told = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(told, f"{task.submission.notebook}\n".encode())
        os.close(told)
        who = (task.submission.student, task.submission.notebook)
        of = task.exercises
        return [Row(*who, one.chapter, one.name, one.points, one.points, "solved", "", "", "") for one in of]

    return grade


def start(folder: Path, out: Path, log: Path, fault: Fault | None) -> int:
    """A grader in a process of its own; its id."""
    child = os.fork()
    if child:
        return child
    status = 70  # a traceback
    try:
        said = os.open(log.with_suffix(".err"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(said, 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        _class._grade = graded_by(log)
        _class.require_working = lambda *_: None
        if fault is not None:
            random.seed(fault.left)
            fault.install()
        status = __main__.main([str(folder), "--out", str(out), "--jobs", "1", "--feedback"])
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 71
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}".encode(errors="replace"))
    finally:
        os._exit(status)


def ended(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def kept(out: Path) -> set[str]:
    """The notebooks whose rows are in the journal, each entry of which is whole."""
    entries = out.with_name(out.name + ".progress").glob("*.json")
    return {row["notebook"] for entry in entries for row in json.loads(entry.read_text(encoding="utf-8"))}


def tables(out: Path) -> Iterator[tuple[str, str]]:
    """Each table and each student's page that is there, by its path; whole, or this raises."""
    folder = out.with_name(out.name + ".feedback")
    for path in (out, out.with_name(out.name + ".students.csv"), *sorted(folder.glob("*/*"))):
        if path.exists() and not path.name.endswith(".part"):
            text = path.read_bytes().decode("utf-8-sig")
            if path.suffix == ".csv":
                assert len(list(csv.reader(text.splitlines()))) > STUDENTS, path
            elif path.suffix == ".ipynb":
                json.loads(text)
            else:
                assert text.rstrip().endswith("</html>"), path
            yield str(path.relative_to(out.parent)), text


def soak(faults: int, seed: int) -> dict[str, int]:
    """How often what happened. Raises AssertionError at the first thing that is lost."""
    chance, counts = random.Random(seed), collections.Counter[str]()
    with tempfile.TemporaryDirectory() as held:
        folder, log = Path(held, "Wörter"), Path(held, "log")
        hand_in(folder)
        assert ended(start(folder, Path(held, "right/grades.csv"), log, None)) == 0, log.with_suffix(".err").read_text()
        right = dict(tables(Path(held, "right/grades.csv")))
        assert len(right) == 2 + 2 * STUDENTS
        number = 0
        while counts["faults"] < faults:
            number += 1
            out = Path(held, f"{number}/grades.csv")
            out.parent.mkdir()
            for attempt in range(20):  # the same command, until it comes through
                before, fault = kept(out), None
                if attempt < 19:
                    fault = Fault(chance.randint(1, MOST_STEPS), kills=chance.random() < 0.6)
                log.unlink(missing_ok=True)
                others = [start(folder, out, Path(held, "other"), None)] if chance.random() < 0.1 else []
                status = ended(start(folder, out, log, fault))
                for other in others:
                    code = ended(other)
                    said = Path(held, "other.err").read_text(encoding="utf-8", errors="replace")
                    assert code == 0 or "another grader writes this table" in said, said
                    counts["two at a time"] += 1
                    before = before if code else set()  # it came through, and what it kept on its way is gone
                said = log.with_suffix(".err").read_text(encoding="utf-8", errors="replace")
                counts["faults"] += status != 0 and "another grader" not in said
                counts["killed"] += status == -signal.SIGKILL
                counts["full"] += "No space left" in said
                assert status in (0, -signal.SIGKILL) or (status == 2 and "Traceback" not in said), (status, said)
                again = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
                assert not before.intersection(again), "graded again"
                assert all(right[name] == text for name, text in tables(out)), "half written, or another's"
                assert kept(out) >= before, "lost"
                if status == 0:
                    break
            assert dict(tables(out)) == right, "not all of it"
            assert not list(out.parent.rglob("*.part")), "left over"
            counts["classes"] += 1
    return dict(counts)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        print(json.dumps(soak(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)))
