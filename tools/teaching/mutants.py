"""Hold every exercise's checker against its solution with one small change: `make mutants`, or for two chapters

    python -m tools.teaching.mutants [--jobs 2] [--seeds 3] [--list] [5 9 ...]

A checker should refuse each of these mutants on every seed; `mutate.py` says which there are, and the mistakes that it
knows by name are among them. With few seeds, one that is right on most of them may not be seen: `--seeds 300` looks for
it, once a week, and is quick, since on all seeds but the first only the first wrong case counts.

The table tells of each exercise how many there are, how many the checker called by a mistake's name, of how many it
told how the result relates to the right one, how many it only refused, because the result was wrong, because they
raised an error or took too long, and how many got through. A mutant that got through is listed in `mutants.toml` with
the reason why it computes the same as the solution, or it makes this tool fail. So does a line of that file for a
mutant that is refused, or no longer made.

Mutants run in processes of their own, which end when one hangs or takes too much memory. Nothing is stored.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random
from typing import Any

import nbformat
import tomllib  # type: ignore[import-not-found]
import torch

from mhalib_classroom import checks
from mhalib_classroom.checks._call import call
from mhalib_classroom.checks._compare import compare
from tools.notebooks import notebooks
from tools.teaching import exercises
from tools.teaching.mutate import Mutant, mutants

EQUIVALENTS = Path(__file__).with_name("mutants.toml")
SECONDS = 2.0  # for one call; an honest one takes some milliseconds
LONGEST = 60.0  # for one mutant, before its process ends; and a second more for each seed, whose cases are to be drawn
MEMORY = 12 * 2**30  # bytes of addresses, torch's own included
NAMED, RELATED, COMPARED, RAISED, SLOW, SURVIVED = "named", "related", "compared", "raised", "too slow", "survived"
OUTCOMES = (NAMED, RELATED, COMPARED, RAISED, SLOW, SURVIVED)


@dataclass
class Task:
    """One exercise: its name, the code that precedes it, its mutants, and what became of each: kind, detail."""

    name: str
    setup: str
    mutants: list[Mutant]
    found: list[tuple[str, str]] = field(default_factory=list)

    def survivors(self) -> Iterator[tuple[Mutant, str]]:
        return ((one, detail) for one, (kind, detail) in zip(self.mutants, self.found, strict=True) if kind == SURVIVED)

    def counts(self) -> list[int]:
        return [sum(kind == each for kind, _ in self.found) for each in OUTCOMES]


@dataclass
class Worker:
    """A process, the task that it works on, and when it last answered."""

    process: BaseProcess
    task: Task
    since: float


def tasks(chapter: Path) -> list[Task]:
    """The exercises of a chapter."""
    cells = nbformat.read(chapter, as_version=4).cells
    setup = [cell.source for cell in cells if exercises.SETUP in cell.metadata.get("tags", [])]
    found = []
    for cell in cells:
        if exercises.EXERCISE in cell.metadata.get("tags", []):
            solution, _, name = exercises.with_solution(cell.source).rstrip().rpartition("\nchecks.")
            name = name.partition("(")[0]
            made = [*mutants(solution), *_known_mistakes(checks.EXERCISES[name])]
            found.append(Task(name, "\n".join(["import torch", *setup]), made))
    return found


def _known_mistakes(exercise: checks.Exercise) -> Iterator[Mutant]:
    """The mistakes that the checker knows, as mutants."""
    for place, mistake in enumerate(exercise.mistakes):
        function = f"EXERCISES[{exercise.name!r}].mistakes[{place}].function"
        source = f"from mhalib_classroom.checks import EXERCISES\n{exercise.name} = {function}"
        yield Mutant(source, f"the mistake {mistake.name!r}", 2)


def judge(exercise: checks.Exercise, setup: Mapping[str, Any], source: str, seeds: int) -> tuple[str, str]:
    """What the checker says of one mutant: a kind of `OUTCOMES`, and the mistake, the kind of finding or the seed."""
    space = dict(setup)
    try:
        exec(source, space)
    except Exception as error:
        return RAISED, type(error).__name__
    finding = exercise.examine(space[exercise.name], 0)
    if finding.solved:
        return SURVIVED, "0"
    for seed in range(1, 1 if finding.kind == "too slow" else seeds):
        if not _is_wrong(exercise, space[exercise.name], seed) and exercise.examine(space[exercise.name], seed).solved:
            return SURVIVED, str(seed)
    if finding.mistake:
        return NAMED, finding.mistake
    if finding.relation:
        return RELATED, finding.relation
    return {"raised": RAISED, "too slow": SLOW}.get(finding.kind, COMPARED), finding.kind


def _is_wrong(exercise: checks.Exercise, function: Any, seed: int) -> bool:
    """Whether a result on this seed is another than the right one: what `examine` sees first, and all that most mutants
    need, without a word on why."""
    if not callable(function):
        return True
    for case in exercise.cases(Random(f"{exercise.name}:{seed}")):
        right = _right(exercise, case)
        outcome = call(function, case, exercise.seconds)
        if outcome.error or compare(right, outcome.value, parts=exercise.parts) is not None:
            return True
    return False


def _right(exercise: checks.Exercise, case: dict[str, Any]) -> Any:
    """What is right, computed once for each case: `_drawn_once` keeps the cases themselves."""
    known = vars(exercise).setdefault("_right_by_case", {})
    if id(case) not in known:
        known[id(case)] = case, call(exercise.reference, case, None).value  # the case is kept: no other has its id
    return known[id(case)][1]


def _drawn_once(cases: Callable[[Random], Iterator[Any]]) -> Callable[[Random], Iterator[Any]]:
    """The same cases, kept by the state of the source of chance. A check works on copies of them."""
    known: dict[Any, list[Any]] = {}

    def kept(rng: Random) -> Iterator[Any]:
        state = rng.getstate()
        if state not in known:
            known[state] = list(cases(rng))
        return iter(known[state])

    return kept


def _work(task: Task, seeds: int, answers: Connection) -> None:
    """In a process of its own: what is left of a task."""
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    exercise = checks.EXERCISES[task.name]
    exercise.seconds = min(SECONDS, exercise.seconds)
    exercise.cases = _drawn_once(exercise.cases)
    setup: dict[str, Any] = {}
    exec(task.setup, setup)
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        for number in (1, 2):
            os.dup2(nowhere.fileno(), number)
        for mutant in task.mutants[len(task.found) :]:
            answers.send(judge(exercise, setup, mutant.source, seeds))


def run(waiting: Sequence[Task], jobs: int, seeds: int) -> None:
    """Fill in what was found, and say so on the way."""
    todo, workers, done = [task for task in reversed(waiting) if task.mutants], dict[Connection, Worker](), 0
    context = multiprocessing.get_context("fork")  # torch is loaded once, and checkers need no pickling

    def start(task: Task) -> None:
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_work, args=(task, seeds, theirs), daemon=True)
        process.start()
        theirs.close()
        workers[ours] = Worker(process, task, time.monotonic())

    def end(connection: Connection) -> None:
        process = workers.pop(connection).process
        connection.close()
        process.kill()
        process.join()

    def broken(connection: Connection, why: str) -> None:
        task = workers[connection].task
        task.found.append((SLOW, why))
        end(connection)
        if len(task.found) < len(task.mutants):
            start(task)

    try:
        while todo or workers:
            while todo and len(workers) < jobs:
                start(todo.pop())
            ready = wait(list(workers), timeout=1.0)
            for connection, worker in list(workers.items()):
                task = worker.task
                if connection in ready:
                    try:
                        task.found.append(connection.recv())
                        worker.since = time.monotonic()
                    except (EOFError, OSError):
                        broken(connection, "its process ended")
                elif time.monotonic() - worker.since > LONGEST + seeds:
                    broken(connection, f"over {LONGEST + seeds:g} s")
                if len(task.found) == len(task.mutants):
                    if connection in workers:
                        end(connection)
                    done += 1
                    alive = [f"\n    {mutant.key} {mutant.change}" for mutant, _ in task.survivors()]
                    print(f"{done}/{len(waiting)} {line(task)}", *alive, sep="", file=sys.stderr, flush=True)
    finally:
        for connection in list(workers):
            end(connection)


def line(task: Task) -> str:
    said = ", ".join(f"{count} {kind}" for kind, count in zip(OUTCOMES, task.counts(), strict=True) if count)
    return f"{task.name}: {len(task.mutants)} mutants: {said}"


def table(done: Sequence[Task]) -> str:
    """Exercises by outcomes, and their sums."""
    rows = [(task.name, task.counts()) for task in done]
    rows.append(("together", [sum(column) for column in zip(*(counts for _, counts in rows), strict=True)]))
    width = max(len(name) for name, _ in rows)
    head = f"{'':{width}}{'mutants':>10}" + "".join(f"{each:>10}" for each in OUTCOMES)
    told = (f"{name:{width}}{sum(counts):>10}" + "".join(f"{count:>10}" for count in counts) for name, counts in rows)
    return "\n".join([head, *told])


def equivalents() -> dict[str, dict[str, str]]:
    """Of each exercise, the reasons why mutants compute the same, by the mutants' keys."""
    with EQUIVALENTS.open("rb") as file:
        listed = tomllib.load(file)
    return {name: {one["mutant"]: one["why"] for one in entries} for name, entries in listed.items()}


def complaints(done: Sequence[Task], listed: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Survivors that are not listed, and lines that have no survivor."""
    found = []
    for task in done:
        known = listed.get(task.name, {})
        alive = {mutant.key: (mutant, seed) for mutant, seed in task.survivors()}
        for key, (mutant, seed) in alive.items():
            if key not in known:
                text = mutant.source.splitlines()[mutant.line - 1].strip()
                found.append(f"{task.name}, {key}: {mutant.change}\n    seed {seed}, line {mutant.line}: {text}")
        found += [f"{task.name}, {key}: listed, but refused or no longer made" for key in known if key not in alive]
    return found


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2, help="how many processes at a time")
    parser.add_argument("--seeds", type=int, default=3, help="each mutant must be refused on that many")
    parser.add_argument("--list", action="store_true", help="also list what was refused without a name")
    parser.add_argument("chapters", nargs="*", type=int, help="numbers of chapters; all, if none is given")
    arguments = parser.parse_args(given)
    if min(arguments.jobs, arguments.seeds) < 1:
        parser.error("--jobs and --seeds: give 1 or more")
    paths = {int(path.name[:2]): path for path in sorted(notebooks.CHAPTERS.glob("[0-9][0-9]_*.ipynb"))}
    if unknown := [number for number in arguments.chapters if number not in paths]:
        parser.error(f"no chapter {', '.join(map(str, unknown))}: there are {min(paths)} to {max(paths)}")
    torch.set_num_threads(1)
    listed = equivalents()
    done = [task for number in arguments.chapters or paths for task in tasks(paths[number])]
    if not done:
        parser.error("these chapters have no exercises in code")
    run(done, arguments.jobs, arguments.seeds)
    print(table(done))
    for task in done if arguments.list else ():
        for mutant, (kind, detail) in zip(task.mutants, task.found, strict=True):
            if kind in (RELATED, COMPARED):
                print(f"{task.name}: {mutant.change}: {detail}")
    found = complaints(done, listed)
    if found:
        print(f"\n{len(found)} to look at: make the checker see it, or list it in {EQUIVALENTS.name} and say why.")
        print(*found, sep="\n")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
