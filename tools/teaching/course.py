"""Hand out the exercises where a course has a system for that: nbgrader, Otter-Grader, or links for a JupyterHub.

    python -m tools.teaching.course nbgrader --out FOLDER
    python -m tools.teaching.course otter --out FOLDER
    python -m tools.teaching.course links https://hub.example.edu

nbgrader's course has the chapters' own exercises, an assignment for each chapter: solutions in nbgrader's regions, and
behind each a locked cell with the points, which calls the same checker as the book does. So a student reads the name of
the mistake in the notebook, and again in nbgrader's feedback. For grading, the cell calls it once more with the
course's secret seed, in a region that students do not get.

For Otter-Grader, an assignment is the students' own notebook, and beside it a test file for each exercise, of the kind
that fails by an exception: it calls the checker, whose sentence is what Otter shows, and once more with the secret seed
in a case that students are not shown.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import re
import secrets
import sys
from pathlib import Path
from urllib.parse import urlencode

import nbformat
from nbformat import NotebookNode

from mhalib._write import write_whole
from mhalib_classroom import checks
from tools import ROOT
from tools.notebooks import address, notebooks
from tools.teaching import exercises

SEED_FILE, SETTINGS_FILE = "seed.txt", "nbgrader_config.py"
SETTINGS = '''"""nbgrader's settings of this course; yours to change, it is not written again."""

c = get_config()
c.CourseDirectory.course_id = "heads"
c.ClearSolutions.code_stub = {"python": "# your code here"}  # the rest of a stub, or code to mend, stands below it
c.OverwriteCells.add_missing_cells = True  # a check that a student has deleted comes back
c.ExecutePreprocessor.timeout = 60
'''
OTTER_TEST = """from otter.test_files import test_case

from mhalib_classroom import checks

OK_FORMAT = False  # a case fails by raising
name, points, all_or_nothing = "{name}", {points}, True


@test_case()
def as_in_the_notebook({name}):
    checks.{name}.require({name})


@test_case(hidden=True)
def with_other_inputs({name}):
    checks.{name}.require({name}, seed="{seed}")
"""
INTRODUCTION = (
    "# Exercises: {title}\n\n"
    "They belong to the chapter [{title}]({link}). Write your code where a cell says so, and run the cell and the one "
    "below it, which checks what you wrote, and tells you what it found. A shape in brackets, (B, N, D), is that of a "
    "torch tensor; the letters are those of the chapter. Use Python and torch, not `mhalib`."
)


def solved_and_given(source: str, name: str) -> str:
    """An exercise's cell as nbgrader wants it, without its check: what a student keeps, a region with the rest of the
    solved function, and behind it the rest of what a student is given. A solution returns, so that in the teacher's
    notebook this last part is never reached.

    Raises:
        ValueError: the function is not found, or begins in two ways.
    """
    solved, given = (
        text.rpartition("\nchecks.")[0].rstrip().splitlines()
        for text in (exercises.with_solution(source), exercises.without_solution(source))
    )
    found = [one for one in ast.parse("\n".join(given)).body if isinstance(one, ast.FunctionDef) and one.name == name]
    if not found:
        raise ValueError(f"there is no function {name}")
    first = found[0].body[0]
    start = first.lineno - 1
    if ast.get_docstring(found[0]) is not None:
        start = first.end_lineno or start
    while given[start - 1].lstrip().startswith("#"):
        start -= 1
    if solved[:start] != given[:start]:
        raise ValueError(f"{name} begins in two ways: put what differs behind its docstring")
    if not isinstance(ast.parse("\n".join(solved)).body[-1].body[-1], ast.Return):  # type: ignore[attr-defined]
        raise ValueError(f"{name} does not end in a return")
    rest = [line for line in given[start:] if line.strip() != exercises.STUB[0]]
    return "\n".join([*given[:start], "    ### BEGIN SOLUTION", *solved[start:], "    ### END SOLUTION", *rest])


def test_source(name: str, seed: str) -> str:
    """The cell that is graded: the check, and in a region that students do not get the same with other inputs, which
    raises whatever a student has asked of the checks."""
    hidden = f'checks.{name}.require({name}, seed="{seed}")'
    return f"checks.{name}({name})\n### BEGIN HIDDEN TESTS\n{hidden}\n### END HIDDEN TESTS"


def own_seed(seed: str, chapter: Path) -> str:
    """A chapter's own secret seed, made from the course's."""
    return hashlib.sha256(f"{seed}:{chapter.stem}".encode()).hexdigest()[:16]


def _marked(cell: NotebookNode, grade_id: str, *, is_solution: bool = False, points: int | None = None) -> NotebookNode:
    """The cell with what nbgrader knows of it; it is locked unless a student writes there."""
    told = {"schema_version": 3, "grade_id": grade_id, "solution": is_solution, "locked": not is_solution}
    told |= {"task": False, "grade": points is not None} | ({} if points is None else {"points": points})
    cell.metadata["nbgrader"] = told
    return cell


def course_notebook(chapter: Path, seed: str) -> NotebookNode | None:
    """The exercises of a chapter as the teacher's notebook of an nbgrader course; `None` if it has none.

    Each has a seed of its own, made from the course's: nbgrader's feedback shows it, and other weeks shall not be told.
    """
    plain = exercises.student_notebook(chapter)
    if plain is None:
        return None
    now = address.here()
    pages = f"{now.url}/blob/{now.revision}/chapters/" if now else "../chapters/"
    title = plain.cells[0].source.partition("\n")[0].removeprefix("# Exercises: ")
    introduction = INTRODUCTION.format(title=title, link=pages + chapter.name)
    made = [_marked(nbformat.v4.new_markdown_cell(introduction), "introduction")]
    solved = {
        exercises.without_solution(cell.source): cell.source
        for cell in nbformat.read(chapter, as_version=4).cells
        if exercises.EXERCISE in cell.metadata.get("tags", [])
    }
    own = own_seed(seed, chapter)
    own_cells = (exercises.KEEP_GOING, exercises.REPORT)  # nbgrader needs the error of each check
    cells = [cell for cell in plain.cells[2:] if cell.source not in own_cells]  # without introduction and launch links
    for number, cell in enumerate(cells):
        if cell.source in solved:
            name = re.findall(r"checks\.(\w+)\(", cell.source)[-1]
            try:
                answer = nbformat.v4.new_code_cell(solved_and_given(solved[cell.source], name))
            except ValueError as error:
                raise ValueError(f"{chapter.name}: {error}") from error
            made.append(_marked(answer, name, is_solution=True))
            test = nbformat.v4.new_code_cell(test_source(name, own))
            made.append(_marked(test, f"test-{name}", points=checks.EXERCISES[name].points))
        else:
            cell.source = cell.source.replace("](../chapters/", f"]({pages}")
            made.append(_marked(cell, f"given-{number}"))
    return notebooks.normalise(nbformat.v4.new_notebook(cells=made))


def course_seed(folder: Path) -> str:
    """The secret seed of the course in a folder, drawn the first time.

    Raises:
        ValueError: what the folder holds cannot be a seed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / SEED_FILE
    if not kept.exists():
        kept.touch(mode=0o600)
        write_whole(kept, secrets.token_hex(8))
    seed = kept.read_text(encoding="ascii").strip()
    if not re.fullmatch(r"[\w .,-]+", seed, re.ASCII):
        raise ValueError(f"{kept} holds {seed!r:.40}: write a line of letters and digits, or delete it")
    return seed


def write_course(folder: Path) -> int:
    """Write a course for nbgrader, or write its notebooks anew; the seed and the settings that are there stay. Returns
    how many assignments it has."""
    seed = course_seed(folder)
    if not (folder / SETTINGS_FILE).exists():
        write_whole(folder / SETTINGS_FILE, SETTINGS)
    count = 0
    for chapter in sorted(notebooks.CHAPTERS.glob("[0-9]*.ipynb")):
        notebook = course_notebook(chapter, seed)
        if notebook is not None:
            path = folder / "source" / chapter.stem / chapter.name
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, nbformat.writes(notebook).rstrip("\n") + "\n")
            count += 1
    return count


def write_otter(folder: Path) -> int:
    """Write assignments for Otter-Grader, a folder for each chapter, in which `otter generate` makes the autograder.
    What it installs stands in requirements.txt, where the book has an address. Returns how many there are."""
    seed, now, count = course_seed(folder), address.here(), 0
    for chapter in sorted(notebooks.CHAPTERS.glob("[0-9]*.ipynb")):
        notebook = exercises.student_notebook(chapter)
        if notebook is None:
            continue
        tests = folder / chapter.stem / "tests"
        tests.mkdir(parents=True, exist_ok=True)
        write_whole(tests.parent / chapter.name, nbformat.writes(notebook).rstrip("\n") + "\n")
        for name in re.findall(r"^checks\.(\w+)\(\1\)$", "\n".join(cell.source for cell in notebook.cells), re.M):
            points = checks.EXERCISES[name].points
            test = OTTER_TEST.format(name=name, points=points, seed=own_seed(seed, chapter))
            write_whole(tests / f"{name}.py", test)
        if now is not None:
            write_whole(tests.parent / "requirements.txt", f"{now.package}\n")
        count += 1
    return count


def hub_link(hub: str, path: str) -> str:
    """The address that opens a file of this repository on a JupyterHub with nbgitpuller: it clones the repository into
    the student's own folder, or brings it up to date and keeps what the student has changed, and opens the file.

    Raises:
        ValueError: `hub` is no address, or the book has none.
    """
    if not re.fullmatch(r"https?://[^\s?#]+", hub):
        raise ValueError(f"hub={hub!r} is not an address such as https://hub.example.edu")
    now = address.here()
    if now is None:
        raise ValueError("the book has no address to clone: set BOOK_REPOSITORY=owner/name")
    opened = f"lab/tree/{now.slug.rpartition('/')[2]}/{path}"
    asked = urlencode({"repo": now.url, "urlpath": opened, "branch": "main"})
    return f"{hub.rstrip('/')}/hub/user-redirect/git-pull?{asked}"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    chosen = parser.add_subparsers(dest="kind", required=True)
    for kind in ("nbgrader", "otter"):
        made = chosen.add_parser(kind, help=f"write a course for {kind}")
        made.add_argument("--out", type=Path, default=ROOT / kind, help=f"default: {kind}/")
    chosen.add_parser("links", help="print nbgitpuller's links").add_argument("hub", help="https://hub.example.edu")
    given = parser.parse_args(arguments)
    try:
        if given.kind == "links":
            for path in sorted(exercises.FOLDER.glob("*.ipynb")):
                print(hub_link(given.hub, f"exercises/{path.name}"))
        elif given.kind == "otter":
            print(f"{write_otter(given.out)} assignments in {given.out}")
        else:
            print(f"{write_course(given.out)} assignments in {given.out}/source")
    except ValueError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
