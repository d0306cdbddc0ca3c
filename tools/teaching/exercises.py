"""Make the students' notebooks, exercises/NN_topic.ipynb, from the chapters: without solutions, without outputs.

    python -m tools.teaching.exercises

It also writes the teacher's table of all exercises into chapters/teaching.md, and a hash of each code to mend into
mhalib_classroom/checks/given.json, by which its checker knows it while nobody has touched it, and the chapters' names
into chapters.json beside it, from which checkers have their numbers.

A chapter marks what belongs to them by tags: `exercise-setup` (a code cell, copied), `exercise-text` (a markdown cell,
copied) and `exercise` (a code cell with a solution). In the latter,

    # BEGIN SOLUTION
    return x * 2
    # INSTEAD
    # return x + x + x
    # END SOLUTION

becomes what stands behind INSTEAD, without its `# `; where there is no INSTEAD, a line that raises NotImplementedError.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from mhalib._write import write_whole
from mhalib_classroom.checks._given import HASHES, fingerprint
from tools import ROOT
from tools.notebooks import notebooks
from tools.notebooks.chapter import write_names

GIVEN = ROOT / "mhalib_classroom/checks" / HASHES.name
FOLDER = ROOT / "exercises"
TABLE = notebooks.CHAPTERS / "teaching.md"
TABLE_BEGIN, TABLE_END = "<!-- written by tools/teaching/exercises.py -->\n", "<!-- end -->"
HEAD = re.compile(
    r"#### (?P<title>[A-Z].*) \(`(?P<name>\w+)`\)\n\n"
    r"\*(?P<kind>Coding|Prediction|Repair) · (?P<difficulty>easy|medium|hard) · (?P<minutes>\d+) minutes\.\*"
)
BEGIN, INSTEAD, END = "# BEGIN SOLUTION", "# INSTEAD", "# END SOLUTION"
STUB = ("# your code here", "raise NotImplementedError")
KEEP_GOING = "checks.keep_going()  # what is not right yet does not stop *Run all*"
REPORT = "checks.report()"
SETUP, TEXT, EXERCISE = "exercise-setup", "exercise-text", "exercise"

INTRODUCTION = (
    "# Exercises: {title}\n\n"
    "They belong to the chapter [{title}](../chapters/{name}), which has hints and solutions too, each behind a click. "
    "Write your code where a cell says so, and run the cell: its last line checks what you wrote, and tells you what "
    "it found. While it checks, what your code prints is not shown. A shape in brackets, (B, N, D), is that of a "
    "torch tensor; the letters are those of the chapter. The last cell reports on all. Use Python and torch, not "
    "`mhalib`: a grader runs your code where that is missing."
)


def without_solution(source: str) -> str:
    """The cell as a student gets it.

    Raises:
        ValueError: a marker is missing, doubled or out of order, or there is no solution.
    """
    kept: list[str] = []
    replacement: list[str] = []
    state, indent = "outside", ""
    for number, line in enumerate(source.splitlines(), 1):
        marker = line.strip()
        if "SOLUTION" in marker and marker not in (BEGIN, END):
            raise ValueError(f"line {number} is neither {BEGIN!r} nor {END!r}, write one: {line!r}")
        if marker == BEGIN:
            _require(state == "outside", number, marker)
            state, indent, replacement = "solution", line[: len(line) - len(line.lstrip())], []
        elif marker == INSTEAD:
            _require(state == "solution", number, marker)
            state = "instead"
        elif marker == END:
            _require(state in ("solution", "instead"), number, marker)
            kept += replacement if state == "instead" else [indent + stub for stub in STUB]
            state = "outside"
        elif state == "outside":
            kept.append(line)
        elif state == "instead":
            if not line.startswith(indent + "#"):
                raise ValueError(f"line {number} stands behind {INSTEAD!r} and must be a comment: {line!r}")
            replacement.append((indent + line[len(indent) + 1 :].removeprefix(" ")).rstrip())
    _require(state == "outside", len(source.splitlines()), "the end of the cell")
    if BEGIN not in source:
        raise ValueError(f"a cell with the tag {EXERCISE!r} has no {BEGIN!r}: enclose the solution, or drop the tag")
    return "\n".join(kept)


def _require(fits: bool, number: int, marker: str) -> None:
    if not fits:
        raise ValueError(
            f"line {number}: {marker!r} does not fit what stands before it: put {BEGIN!r} first, {END!r} last"
        )


def student_notebook(chapter: Path) -> NotebookNode | None:
    """The exercises of a chapter as a notebook; `None` if it has none."""
    cells = nbformat.read(chapter, as_version=4).cells
    if not any(EXERCISE in cell.metadata.get("tags", []) for cell in cells):
        return None
    headings = [line for cell in cells for line in cell.source.splitlines() if line.startswith("# ")]
    if not headings:
        raise ValueError(f"{chapter.name} has no title: begin its first cell with '# ' and the title")
    path = FOLDER / chapter.name
    generated = notebooks.generated_cells(path)
    made = [
        nbformat.v4.new_markdown_cell(INTRODUCTION.format(title=headings[0].removeprefix("# "), name=chapter.name)),
        nbformat.v4.new_markdown_cell(generated["launch"], metadata={"tags": ["launch"]}),
        nbformat.v4.new_code_cell(generated["set-up"], metadata={"tags": ["set-up"]}),
    ]
    for cell in cells:
        tags = cell.metadata.get("tags", [])
        if EXERCISE in tags:
            try:
                made.append(nbformat.v4.new_code_cell(without_solution(cell.source)))
            except ValueError as error:
                raise ValueError(f"{chapter.name}, cell {cell.id}: {error}") from error
        elif SETUP in tags:
            made += [nbformat.v4.new_code_cell(source) for source in (cell.source, KEEP_GOING)]
        elif TEXT in tags:
            made.append(
                nbformat.v4.new_markdown_cell(re.sub(r"\]\((?=[\w-]+\.(ipynb|md))", "](../chapters/", cell.source))
            )
        elif BEGIN in cell.source or END in cell.source:
            raise ValueError(f"{chapter.name}, cell {cell.id} has a solution, but not the tag {EXERCISE!r}: add it")
    if not any(re.search("^import torch$", cell.source, re.M) for cell in made):  # the introduction says to use it
        made.insert(3, nbformat.v4.new_code_cell("import torch"))
    made.append(nbformat.v4.new_code_cell(REPORT))
    return notebooks.normalise(nbformat.v4.new_notebook(cells=made))


def code_to_mend(source: str) -> str | None:
    """The wrong code of an exercise's cell that has one, without the line that checks it; `None` for other cells."""
    if INSTEAD not in source:
        return None
    return without_solution(source).rpartition("\nchecks.")[0].rstrip()


def given_code(chapters: Iterable[Path]) -> dict[str, str]:
    """Each exercise whose code is to be mended, and the hash of that code."""
    sources = [cell.source for path in chapters for cell in nbformat.read(path, as_version=4).cells]
    given = [(code, source.rpartition("\nchecks.")[2]) for source in sources if (code := code_to_mend(source))]
    return {call.partition("(")[0]: fingerprint(code, call.partition("(")[0]) for code, call in given}


def with_solution(source: str) -> str:
    """The cell as the page shows it when it is unfolded: solved, without markers and what stands behind INSTEAD."""
    without_instead = re.sub(rf"^ *{INSTEAD}\n(?:.*\n)*?(?= *{END}$)", "", source, flags=re.M)
    return re.sub(rf"^ *(?:{BEGIN}|{END})\n", "", without_instead, flags=re.M)


def table(chapters: Iterable[Path]) -> str:
    """All exercises in markdown, a line each: chapter, title and name, kind, difficulty, minutes."""
    lines = ["| chapter | exercise | kind | difficulty | minutes |", "|---|---|---|---|---|"]
    for chapter in chapters:
        for cell in nbformat.read(chapter, as_version=4).cells:
            found = HEAD.match(cell.source)
            if found:
                title, name, kind, difficulty, minutes = found.groups()
                link = f"[{int(chapter.name[:2])}]({chapter.name})"
                lines.append(f"| {link} | {title}: `{name}` | {kind.lower()} | {difficulty} | {minutes} |")
    return "\n".join(lines)


def with_table(page: str, written: str) -> str:
    """The teacher's page with another table between its two marks."""
    before, _, rest = page.partition(TABLE_BEGIN)
    _, mark, after = rest.partition(TABLE_END)
    if not mark:
        raise ValueError(f"{TABLE.name} has not both of {TABLE_BEGIN!r} and {TABLE_END!r}: put them back")
    return f"{before}{TABLE_BEGIN}\n{written}\n\n{TABLE_END}{after}"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    wanted = set()
    chapters = sorted(notebooks.CHAPTERS.glob("[0-9]*.ipynb"))
    for chapter in chapters:
        notebook = student_notebook(chapter)
        if notebook is not None:
            write_whole(FOLDER / chapter.name, nbformat.writes(notebook).rstrip("\n") + "\n")
            wanted.add(chapter.name)
    for path in FOLDER.glob("*.ipynb"):
        if path.name not in wanted:
            path.unlink()
    write_whole(GIVEN, json.dumps(given_code(chapters), indent=1) + "\n")
    write_names()
    page = TABLE.read_text(encoding="utf-8")
    written = with_table(page, table(chapters))
    if written != page:  # what is newer than the pages makes them be built anew
        write_whole(TABLE, written)
    print(f"{len(wanted)} notebooks in {FOLDER.name}/")


if __name__ == "__main__":
    main()
