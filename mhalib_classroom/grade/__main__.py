"""`python -m mhalib_classroom.grade`: see --help."""

from __future__ import annotations

import argparse
import io
import secrets
import signal
import sys
import threading
from pathlib import Path
from typing import NoReturn

from mhalib._write import write_whole

from ._class import grade_class
from ._late import deadlines
from ._launch import Limits, bubblewrap, no_sandbox
from ._oci import crun, runc
from ._roster import filled
from ._sandbox import NotStarted
from ._table import asked, counted, harmless, totals

DESCRIPTION = """Grade a folder of notebooks: one row per student and exercise, with points and the diagnosis.

An interrupted run goes on where it stopped, and a notebook that has not changed is not graded twice."""

MOST_NAMES = 20  # of exercises, in one line
LAUNCHERS = {one.__name__: one for one in (bubblewrap, runc, crun)}
UBUNTU = (
    "Ubuntu 24.04 forbids users to make one, until: sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0 . "
)
UNSAFE = "Without a sandbox, students' code could do all that you can; --unsafe allows that"


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}\n")


def main(arguments: list[str] | None = None, prog: str = "python -m mhalib_classroom.grade") -> int:
    parser = Parser(prog, description=DESCRIPTION)
    parser.add_argument(
        "submissions",
        type=Path,
        help="a folder; what is first in a path below it names the student",
    )
    parser.add_argument("--out", type=Path, default=Path("grades.csv"), help="default: grades.csv")
    parser.add_argument("--seed", help="what inputs are drawn from; default: a new secret, kept beside OUT")
    parser.add_argument("--chapter", type=int, action="append", default=[], help="only its exercises; may be repeated")
    parser.add_argument(
        "--jobs", type=int, help="notebooks at a time; default: one for each core, as far as there is memory for all"
    )
    parser.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="of a Dask cluster, whose workers run the notebooks, as in tls://host:8786; needs the package distributed",
    )
    parser.add_argument(
        "--memory-mb", type=int, default=Limits.memory_mb, help="for one notebook; default: %(default)s"
    )
    parser.add_argument(
        "--call-seconds",
        type=float,
        default=Limits.call_seconds,
        help="for one call of a function; default: %(default)g",
    )
    parser.add_argument(
        "--cell-seconds", type=float, default=Limits.cell_seconds, help="for one cell; default: %(default)g"
    )
    parser.add_argument("--student-pattern", help="a regular expression that finds a student's name in a path")
    parser.add_argument("--last", action="store_true", help="of several attempts the last one counts, not the best")
    parser.add_argument("--due", help="a time such as 2026-11-30T18:00, or a file of lines  chapter,time")
    parser.add_argument("--extensions", type=Path, help="a file of lines  student,time  or  student,+days")
    parser.add_argument("--times", type=Path, help="a file of lines  student,time , when they handed in")
    parser.add_argument(
        "--times-from",
        choices=["nbgrader"],
        help="believe timestamp.txt in submitted/STUDENT/ASSIGNMENT, which students can write, too",
    )
    parser.add_argument(
        "--late-percent", type=float, default=0, help="of the points, off for each day begun; default: 0"
    )
    parser.add_argument("--points", type=Path, help="a file of lines  exercise,points  in place of the book's own")
    parser.add_argument("--feedback", action="store_true", help="a page and commented notebooks for each student")
    parser.add_argument("--roster", type=Path, help="the gradebook that Canvas, Moodle or Blackboard has exported")
    parser.add_argument("--column", help="the heading of the column in it that is to be filled with the sums")
    parser.add_argument("--retry", action="store_true", help="grade again what was too slow or stopped its sandbox")
    parser.add_argument("--launcher", choices=LAUNCHERS, default="bubblewrap", help="of sandboxes; default: bubblewrap")
    parser.add_argument(
        "--unsafe", action="store_true", help="without a sandbox: the students' code runs with your rights"
    )
    given = parser.parse_args(arguments)
    _hear_interrupts()
    _print_all_letters()
    if not given.submissions.is_dir():
        parser.error(f"submissions={str(given.submissions)!r} is not a folder")
    if given.out.is_dir():
        parser.error(f"--out={str(given.out)!r} is a folder, and must be a file")
    if (given.roster is None) != (given.column is None):
        parser.error("--roster and --column belong together: which column of the export is to be filled?")
    if given.scheduler is not None and given.jobs is not None:
        parser.error("--jobs is for this machine; with --scheduler, the workers' threads say how many at a time")
    if given.due is None and (given.extensions or given.times or given.late_percent):
        parser.error("--extensions, --times and --late-percent need --due: late for what?")
    if given.times_from and given.due is None and not given.last:
        parser.error("--times-from needs --due or --last: without them, no time is looked at")
    launcher = no_sandbox if given.unsafe else LAUNCHERS[given.launcher]
    try:
        limits = Limits(memory_mb=given.memory_mb, call_seconds=given.call_seconds, cell_seconds=given.cell_seconds)
        points_of = {} if given.points is None else _points(given.points)
        rows = grade_class(
            given.submissions,
            given.out,
            seed=given.seed or _kept_seed(given.out),
            launcher=launcher,
            limits=limits,
            chapters=given.chapter,
            jobs=given.jobs,
            scheduler=given.scheduler,
            retry=given.retry,
            student_pattern=given.student_pattern,
            last=given.last,
            feedback=given.feedback,
            points=points_of,
            deadlines=given.due
            and deadlines(given.due, given.extensions, given.times, percent_per_day=given.late_percent),
            noted=given.times_from == "nbgrader",
        )
    except ValueError as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        return 130
    except NotStarted as error:
        parser.error(str(error) if given.unsafe else f"{error}. {_without_a_sandbox(error)}")
    except RecursionError:
        raise  # a mistake of ours
    except RuntimeError as error:  # of a cluster
        parser.error(str(error))
    except OSError as error:  # a full disk, say
        parser.error(f"{error}. What was graded until then is kept: the same command goes on from there")
    sums = totals(counted(rows, last=given.last), asked(given.chapter, points_of))
    if given.roster is not None:
        try:
            text, left = filled(given.roster, given.column, {student: points for student, points, _ in sums})
            write_whole(given.out.with_name(given.out.name + ".roster.csv"), text)
        except (ValueError, OSError) as error:
            parser.error(f"{error}. The tables are written")
        for student in left:
            print(f"Not in the roster: {harmless(student)}", file=sys.stderr)
    for student, points, out_of in sums:
        name = harmless(student).replace("\n", " ")
        print(f"{points:4g} of {out_of:3d}  {name}")
    names = list(dict.fromkeys(row.exercise for row in rows if row.exercise))
    print(f"Exercises: {len(names)}" if len(names) > MOST_NAMES else f"Exercises: {', '.join(names)}")
    print(f"{len(rows)} rows in {given.out}, the gradebook in {given.out}.students.csv")
    return 0


def _hear_interrupts() -> None:
    """A shell that starts a job in the background has it ignore SIGINT. But then nobody could stop the grader cleanly,
    and nothing is lost by an interrupt: the same command goes on from there."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _print_all_letters() -> None:
    """As their codes, where the terminal's encoding lacks them."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _without_a_sandbox(error: NotStarted) -> str:
    return (UBUNTU if "uid map" in str(error) else "") + UNSAFE


def _points(path: Path) -> dict[str, int]:
    """Exercises and points of a file."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeError) as error:
        raise ValueError(f"--points={str(path)!r} could not be read: {type(error).__name__}: {error}") from error
    found = {}
    for number, line in enumerate(lines, 1):
        name, _, points = (part.strip() for part in line.partition(","))
        if not points.isdecimal():
            if not line.strip() or (number == 1 and not any(map(str.isdigit, line))):  # a heading
                continue
            raise ValueError(f"--points={str(path)!r}, line {number}: {line!r:.80} is not  exercise,points")
        found[name] = int(points)
    return found


def _kept_seed(out: Path) -> str:
    """A secret, made on the first run and kept, so that an interrupted run goes on with the same inputs. Nobody else
    may read it."""
    folder = out.with_name(out.name + ".progress")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.chmod(0o700)
    path = folder / "seed.txt"
    kept = path.read_text(encoding="ascii").strip() if path.exists() else ""
    if not kept:  # or it is empty, because the disk was full
        kept = secrets.token_hex(8)
        path.touch(mode=0o600)
        write_whole(path, kept)
    return kept


if __name__ == "__main__":
    sys.exit(main())
