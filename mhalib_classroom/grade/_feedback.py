"""What a student gets back: a page with the student's own results, and the notebooks with a comment at each check."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path

from mhalib._write import remove_parts, write_whole

from .._language import say, spoken
from ..checks import EXERCISES
from ._submissions import Submission, content, parsed
from ._table import Row, counted, totals

PAGE = """<!doctype html>
<html lang="{language}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 1rem/1.5 system-ui, sans-serif; max-width: 50rem; margin: 2rem auto; padding: 0 1rem; }}
section {{ border-top: 1px solid #8888; margin-top: 1rem; }}
pre {{ white-space: pre-wrap; overflow-wrap: anywhere; border-left: 4px solid #8888; padding-left: 1rem; }}
h1, h2, h3, p {{ overflow-wrap: anywhere; }}
</style>
</head>
<body>
<h1>{title}</h1>
<p>{total}</p>
{parts}
</body>
</html>
"""


def hand_back(
    folder: Path,
    submissions: Iterable[Submission],
    rows: Sequence[Row],
    *,
    last: bool = False,
    out_of: int | None = None,
) -> None:
    """Write a folder for each student: `feedback.html`, and each notebook with comments under its own name. Notebooks
    that an earlier run has left in these folders are removed: whose they were may have been found otherwise.

    Args:
        folder: where the students' folders go.
        submissions: what was handed in.
        rows: what was graded.
        last: which attempt counts, as in `counted`.
        out_of: how many points are asked of all, as in `totals`.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.chmod(0o700)
    own: dict[str, list[Row]] = {}
    for row in rows:
        own.setdefault(row.student, []).append(row)
    places = _apart({student: student for student in own})
    for student, place in places.items():
        (folder / place).mkdir(exist_ok=True)
        remove_parts(folder / place)
        for old in (folder / place).glob("*.ipynb"):
            old.unlink()
        write_whole(folder / place / "feedback.html", page(student, own[student], last=last, out_of=out_of))
    names = {student: _names(student, (row.notebook for row in of)) for student, of in own.items()}
    not_theirs = {row.notebook for row in rows if row.kind in ("a chapter", "other chapter")}
    for one in submissions:
        if one.notebook in not_theirs:
            continue  # nothing to say in it, and a repository has 59 of them
        of_notebook = {row.exercise: row for row in own[one.student] if row.notebook == one.notebook and row.exercise}
        try:
            commented = comment(content(one.path), of_notebook)
        except ValueError:
            continue  # the page says that it could not be read
        write_whole(folder / places[one.student] / f"{names[one.student][one.notebook]}.ipynb", commented)


def page(student: str, rows: Sequence[Row], *, last: bool = False, out_of: int | None = None) -> str:
    """One student's results in HTML: each exercise with its points and the checker's message. Nothing in it is
    executed, whatever a name or a message holds."""
    counts = counted(rows, last=last)
    [(_, points, out_of)] = totals(counts, out_of)
    parts = []
    for row in rows:
        if not row.exercise:
            continue
        known = EXERCISES.get(row.exercise)
        title = row.notebook if known is None else f"{say(known.title)} ({row.exercise})"
        said = say(f"{row.points} of {row.out_of} points")
        if row.late == "yes":
            said += say(", handed in late" if row.days_late is None else f", handed in {row.days_late:g} days late")
        if counts[student][row.exercise] is not row:
            said += say(", and another attempt counts")
        notes = f"<p>{escape(say(f'Cells that did not run: {row.notes}'))}</p>" if row.notes else ""
        parts.append(
            f"<section><h2>{escape(title)}</h2><p>{said}. {escape(say(f'chapter {row.chapter}, {row.notebook}'))}</p>"
            f"<pre>{escape(say(row.diagnosis))}</pre>{notes}</section>"
        )
    why: dict[str, list[str]] = {}
    for row in rows:
        if not row.exercise:
            why.setdefault(row.diagnosis, []).append(row.notebook)
    for diagnosis, notebooks in why.items():
        names = "".join(f"<li>{escape(name)}</li>" for name in notebooks)
        heading, text = say("Not graded"), escape(say(diagnosis))
        parts.append(f"<section><h2>{heading}</h2><ul>{names}</ul><pre>{text}</pre></section>")
    total = say(f"{points} of {out_of} points in all.")
    return PAGE.format(language=spoken(), title=escape(student), total=total, parts="\n".join(parts))


def comment(notebook: bytes, rows: Mapping[str, Row]) -> str:
    """A notebook as it was handed in, with a cell behind the last check of each exercise that says what was found; what
    is checked nowhere is said at the end.

    Raises:
        ValueError: it is no notebook.
    """
    made, every = parsed(notebook)
    cells = made["cells"]
    try:
        has_ids = (int(made["nbformat"]), int(made["nbformat_minor"])) >= (4, 5)
        sources = [source if cell.get("cell_type") == "code" else "" for cell, source in zip(cells, every, strict=True)]
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"{type(error).__name__}: {error}"[:200]) from error
    behind: dict[int, list[dict[str, object]]] = {}
    for name, row in rows.items():
        calls = [place for place, source in enumerate(sources) if re.search(rf"\bchecks\.{name}\(", source)]
        behind.setdefault(calls[-1] if calls else len(cells) - 1, []).append(_cell(row, has_ids))
    commented = [one for place, cell in enumerate(cells) for one in (cell, *behind.get(place, []))]
    made["cells"] = [*behind.get(-1, []), *commented]
    try:
        return json.dumps(made, ensure_ascii=False, indent=1) + "\n"
    except RecursionError as error:
        raise ValueError("nested too deep") from error


def _cell(row: Row, has_id: bool) -> dict[str, object]:
    worth, diagnosis = say(f"{row.points} of {row.out_of} points"), say(row.diagnosis)
    fence = "`" * max(3, *(1 + len(run) for run in re.findall("`+", diagnosis + "`")))
    source = f"**{row.exercise}: {worth}**\n\n{fence}text\n{diagnosis}\n{fence}"
    named: dict[str, object] = {"id": f"graded-{row.exercise}"[:64]} if has_id else {}
    return {"cell_type": "markdown", **named, "metadata": {"tags": ["graded"]}, "source": source}


def _file_name(text: str) -> str:
    """A name that every system can have, also where a number and a suffix are added: some count bytes."""
    plain = "".join(letter if letter.isalnum() or letter in " ._-()" else "_" for letter in text)
    cut = plain.strip(" .").encode()[:100].decode(errors="ignore").strip(" .") or "_"
    return os.fsdecode(cut.encode())  # under an ASCII locale, too


def _names(student: str, notebooks: Iterable[str]) -> dict[str, str]:
    """A file's name for each notebook of a student: the last part of its path, or where that is not the only one of its
    kind, all of the path."""
    last = {one: one.rpartition("/")[2] if student in one else one for one in notebooks}
    often = Counter(_file_name(name).casefold() for name in last.values())
    return _apart({one: one if often[_file_name(name).casefold()] > 1 else name for one, name in last.items()})


def _apart(wanted: Mapping[str, str]) -> dict[str, str]:
    """A name of a file for each of these, all of them different, also where letters' case does not matter."""
    names: dict[str, str] = {}
    taken: set[str] = set()
    for one, text in wanted.items():
        name, number = _file_name(text), 2
        while name.casefold() in taken:
            name, number = f"{_file_name(text)} {number}", number + 1
        taken.add(name.casefold())
        names[one] = name
    return names
