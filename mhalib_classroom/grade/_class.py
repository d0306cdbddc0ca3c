"""Grade all submissions, one row per student and exercise; go on where an interrupted run stopped."""

from __future__ import annotations

import contextlib
import re
import sys
import threading
from collections.abc import Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from tqdm import tqdm

from mhalib._validate import require_count
from mhalib._write import remove_parts, write_whole

from . import _late, _local, _submissions
from ._feedback import hand_back
from ._journal import Journal
from ._late import Deadlines
from ._launch import Launcher, Limits
from ._local import jobs_that_fit
from ._notebook import Found, Job, examined, out_of_time
from ._progress import Progress
from ._sandbox import require_working
from ._students import alike, crowded, named, text_of, unpacked_into
from ._submissions import Submission
from ._table import COLUMNS, Row, as_csv, asked, counted, gradebook, harmless, without_points
from ._tasks import Task, require_known, rows_of, task_of

MOST_LEFT_OUT = 20


def grade_class(
    folder: Path,
    out: Path,
    *,
    seed: str,
    launcher: Launcher,
    limits: Limits | None = None,
    chapters: Sequence[int] = (),
    jobs: int | None = None,
    scheduler: str | None = None,
    retry: bool = False,
    student_pattern: str | None = None,
    last: bool = False,
    points: Mapping[str, int] | None = None,
    feedback: bool = False,
    deadlines: Deadlines | None = None,
    noted: bool = False,
    progress: bool = True,
) -> list[Row]:
    """Grade every notebook below `folder`, and write `out`; beside it, `out` + ".students.csv" is the gradebook.

    A notebook is graded on the chapters whose checkers it calls; if it calls none, on `chapters`, or else on the
    chapter that its first words or its name say. Each has a row at least, which says why where nothing was graded.

    Args:
        folder: with the submissions.
        out: a file of comma-separated values; beside it, `out` + ".progress" holds what is done, and is kept.
        seed: what the checks draw their inputs from; keep it from the students.
        launcher: `bubblewrap`, `runc`, `crun`, `no_sandbox`, or one of your own.
        limits: for each submission.
        chapters: whose exercises count; none means all.
        jobs: how many submissions are graded at a time; `None` is one for each core, as far as there is memory.
        scheduler: the address of a Dask scheduler, whose workers grade in place of this machine; see `_cluster`.
        retry: grade those notebooks again that were too slow for their limits, or stopped their sandbox.
        student_pattern: a regular expression that finds a student's name in a path below `folder`: its group "student",
            or the first group that finds something, or all; `None` is the first folder, or what Moodle, Canvas and
            Blackboard write, and so is a path in which it finds no name.
        last: of several notebooks of a student with the same exercise, the one that was handed in last counts, as far
            as that is known, and not the best one.
        points: of exercises by name, in place of their own.
        feedback: write a folder for each student into `out` + ".feedback": a page with the results, and the notebooks
            with comments.
        deadlines: what is due when, as `deadlines` reads it; `None` looks at no time.
        noted: believe what `timestamp.txt` says of time in submitted/STUDENT/ASSIGNMENT, where nbgrader writes it; a
            student can write it, too.
        progress: say how far it is, and how long it will take.

    Raises:
        ValueError: there is no notebook, or none with an exercise that counts; a chapter or an exercise is unknown,
            `student_pattern` is no regular expression, `jobs` is below 1, or another grader writes this table.
        RuntimeError: the sandbox does not work; nobody gets 0 for that, and what was graded until then is kept.

    Returns:
        The rows, by student and exercise.
    """
    limits = limits or Limits()
    if jobs is not None:
        require_count("jobs", jobs)
    try:
        pattern = None if student_pattern is None else re.compile(student_pattern)
    except re.error as error:
        raise ValueError(f"student_pattern={student_pattern!r:.80} is no regular expression: {error}") from error
    require_known(chapters, points or {})
    submissions, others = _submissions.find(folder, pattern)
    if not submissions:
        raise ValueError(f"there is no notebook below folder={str(folder)!r}")
    times = _late.Times(folder, noted)
    if last:
        submissions.sort(key=lambda one: (one.student, times.order(one), one.notebook))
    tasks = [task_of(one, chapters) for one in submissions]
    if not any(task.exercises for task in tasks):
        raise ValueError("no checker is called in these notebooks; name the chapters")
    journal = Journal(out.with_name(out.name + ".progress"), seed, limits, retry=retry)
    with contextlib.closing(journal):  # until all is written: nobody else writes these tables
        if journal.is_of_another:
            tqdm.write("mhalib has changed since the last run: every notebook is graded anew", file=sys.stderr)
        rows = {task.submission.path: done for task in tasks if (done := _done_before(task, journal)) is not None}
        left = [task for task in tasks if task.submission.path not in rows]
        how = _How(seed, launcher, limits)
        with (
            Progress(len(tasks), done=len(rows), shown=progress) as shown,
            contextlib.closing(_graded(left, how, jobs, scheduler)) as arriving,
        ):
            try:
                for task, found in arriving if left else ():
                    if task.submission.path in rows:  # what comes from a cluster may come twice
                        continue
                    journal.keep(task, found)
                    rows[task.submission.path] = found
                    shown.one_more()
            except KeyboardInterrupt:
                tqdm.write("Stopping. The same command goes on from here.", file=sys.stderr)
                raise
        ordered = [_weighed(row, points or {}) for one in submissions for row in rows[one.path]]
        told: list[str] = []
        if deadlines is not None:
            ordered, told = _late.judged(ordered, submissions, times, deadlines)
        told += _doubts(submissions, folder) if pattern is None else _unnamed(submissions, folder, pattern)
        told += alike(one.student for one in submissions)
        out_of = asked(chapters, points or {})
        remove_parts(out.parent, out.name)
        write_whole(out, as_csv(COLUMNS, [asdict(row).values() for row in ordered]))
        write_whole(out.with_name(out.name + ".students.csv"), gradebook(counted(ordered, last=last), out_of))
        if feedback:
            hand_back(out.with_name(out.name + ".feedback"), submissions, ordered, last=last, out_of=out_of)
    for text in _left_out(others, folder, out, noted):
        tqdm.write(text, file=sys.stderr)
    for text in without_points(ordered):
        tqdm.write(text, file=sys.stderr)
    for text in told:
        tqdm.write(harmless(text), file=sys.stderr)
    return ordered


def _done_before(task: Task, journal: Journal) -> list[Row] | None:
    """The rows of a task that needs no sandbox, or no more; `None` for what is to be graded."""
    if task.why is not None:  # soon found out again, so it is not kept
        return rows_of(task, [task.why] * max(1, len(task.exercises)), "")
    return journal.rows(task)


def _left_out(others: Sequence[Path], folder: Path, out: Path, noted: bool) -> list[str]:
    """What is to be told of files that are no notebooks."""
    told = []
    for path in others:
        if out.parent in path.parents and path.relative_to(out.parent).parts[0].startswith(out.name):
            continue  # what this program has written
        if noted and path.name == _late.NOTED and _late.is_of_nbgrader(path, folder):
            continue
        why = "a link" if path.is_symlink() else "no notebook"
        told.append(f"Not graded, {why}: {harmless(str(path.relative_to(folder)))}")
    if len(told) > MOST_LEFT_OUT:  # a student's repository may have thousands
        told[MOST_LEFT_OUT:] = [f"Not graded: {len(told) - MOST_LEFT_OUT} files more that are no notebooks"]
    return told


def _doubts(submissions: Sequence[Submission], folder: Path) -> list[str]:
    """What is to be told of a download in a folder of its own, and of a folder that looks like one."""
    paths = [one.path.relative_to(folder) for one in submissions if not one.unread]
    base, system = unpacked_into(paths)
    if system:
        return [f"{system} has named what is in {text_of(base)!r}: students are found there"]
    return crowded(paths)


def _unnamed(submissions: Sequence[Submission], folder: Path, pattern: re.Pattern[str]) -> list[str]:
    """What is to be told of the paths in which a pattern finds no student."""
    paths = [text_of(one.path.relative_to(folder)) for one in submissions]
    unnamed = [path for path in paths if named(path, pattern) is None]
    if not unnamed:
        return []
    return [
        f"student_pattern finds no student in {len(unnamed)} of {len(paths)} paths, such as {unnamed[0]!r}: "
        "there, the student is found as without a pattern"
    ]


def _weighed(row: Row, points: Mapping[str, int]) -> Row:
    """The row with the exercise's points of this course."""
    if row.exercise not in points:
        return row
    worth = points[row.exercise]
    return replace(row, points=worth * (row.points == row.out_of), out_of=worth)


@dataclass(frozen=True)
class _How:
    """What is the same for all submissions."""

    seed: str
    launcher: Launcher
    limits: Limits
    stopping: threading.Event = field(default_factory=threading.Event)
    used: dict[str, list[float]] = field(default_factory=dict)  # seconds of each student's notebooks, also of threads

    def job(self, task: Task) -> Job | None:
        """What is to be done for a task, in the time that its student has left; `None` where none is left."""
        left = self.limits.student_seconds - sum(self.used.get(task.submission.student, ()))
        if left <= 0:
            return None
        limits = replace(self.limits, submission_seconds=min(self.limits.submission_seconds, left))
        return Job(task.cells, [one.name for one in task.exercises], self.seed, self.launcher, limits)

    def rows(self, task: Task, found: Found) -> list[Row]:
        """The rows of a task, whose time is now the student's."""
        self.used.setdefault(task.submission.student, []).append(found.seconds)
        return rows_of(task, found.findings, found.notes)


def _grade(task: Task, how: _How) -> list[Row]:
    """The rows of a submission, graded on this machine."""
    job = how.job(task)
    return _too_late(task) if job is None else how.rows(task, examined(job, how.stopping))


def _too_late(task: Task) -> list[Row]:
    """The rows of a task whose student has no time left."""
    return rows_of(task, [out_of_time()] * len(task.exercises), "")


def _graded(
    tasks: list[Task], how: _How, jobs: int | None, scheduler: str | None
) -> Generator[tuple[Task, list[Row]], None, None]:
    """Each task with its rows, as they arrive; what a student has handed in several times is run once. Not what two
    students have handed in: one of them may have used up all the time."""
    same: dict[tuple[object, ...], list[Task]] = {}
    for task in tasks:
        same.setdefault(_work_of(task), []).append(task)
    with contextlib.closing(_run([alike[0] for alike in same.values()], how, jobs, scheduler)) as arriving:
        for task, rows in arriving:
            for one in same[_work_of(task)]:
                yield one, [replace(row, notebook=one.submission.notebook) for row in rows]


def _work_of(task: Task) -> tuple[object, ...]:
    return task.submission.student, *task.cells.items(), *(one.name for one in task.exercises)


def _run(
    tasks: list[Task], how: _How, jobs: int | None, scheduler: str | None
) -> Generator[tuple[Task, list[Row]], None, None]:
    """Each task with its rows, from this machine or from a cluster."""
    if scheduler is None:
        require_working(how.launcher, how.limits)
        jobs = jobs_that_fit(how.limits.memory_mb) if jobs is None else jobs
        yield from _local.finished(lambda task: _grade(task, how), tasks, jobs, how.stopping)
        return
    from . import _cluster  # needs Dask

    late: list[Task] = []
    with contextlib.closing(_cluster.finished(_jobs(tasks, how, late), scheduler)) as arriving:
        for task, found in arriving:
            yield task, how.rows(task, found)
    for task in late:
        yield task, _too_late(task)


def _jobs(tasks: list[Task], how: _How, late: list[Task]) -> Generator[tuple[Task, Job], None, None]:
    """Each task with what is to be done for it. A task whose student has no time left by then goes to `late`."""
    for task in tasks:
        job = how.job(task)
        if job is None:
            late.append(task)
        else:
            yield task, job
