"""Begin a chapter: its notebook with all that the conventions demand, and its lines in _toc.yml and chapters/index.md.

    make chapter NAME=rotary_positions TITLE="Rotary positions"

The notebook is executed and passes the tests of conventions. What is yours to write says "TO WRITE"; a test fails while
such words are left. The chapter comes last of those with a number; `make move` moves it.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

import nbformat
import yaml
from nbformat import NotebookNode

from mhalib._write import write_whole
from tools import ROOT
from tools.notebooks import notebooks

TO_WRITE = "TO WRITE"
NAMES = "mhalib_classroom/checks/chapters.json"  # from which checkers have their numbers
USAGE = 'make chapter NAME=rotary_positions TITLE="Rotary positions"'
NAME = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*")
IN_TOC = re.compile(r"^(?P<indent> +)- file: chapters/\d\d_\w+\n +title: .*\n", re.MULTILINE)
IN_MAP = re.compile(r"^\d+: (?P<column>\d+) (?P<row>\d+)\n", re.MULTILINE)
IN_INDEX = re.compile(r"^\d+\. \[.*\]\(\d\d_\w+\.ipynb\).*\n", re.MULTILINE)
ALT = (
    "A triangle of dark squares, five queries down and five keys across: each query sees itself and what comes before."
)

# Markdown is a string; code is a pair of its metadata and its source.
SKELETON: tuple[str | tuple[dict, str], ...] = (
    f"*{TO_WRITE}: the question that a reader has, in a case easy to picture, and what this page does about it.*",
    (
        {},
        """\
import matplotlib.pyplot as plt
import torch

import mhalib

torch.manual_seed(0)
x = torch.randn(2, 5, 12)  # (B, N, D)
print("examples, tokens, width:", *x.shape)""",
    ),
    f"## The idea in one picture\n\n*{TO_WRITE}: what each [query](glossary.md#query) sees here.*",
    (
        {
            "mystnb": {
                "code_prompt_hide": "Hide how Figure NUMBER.1 is drawn",
                "code_prompt_show": "Show how Figure NUMBER.1 is drawn",
                "image": {"alt": ALT},
            },
            "tags": ["hide-input"],
        },
        """\
sees = torch.ones(5, 5).tril()
figure, ax = plt.subplots(figsize=(3, 3), layout="constrained")
ax.imshow(sees, cmap="Greys")
ax.set(xlabel="key", ylabel="query")
print("pairs that are seen:", int(sees.sum()))""",
    ),
    f"**Figure NUMBER.1.** {TO_WRITE}: one or two sentences that say what to see in the picture.",
    f"## The mathematics\n\n*{TO_WRITE}: the steps.* A [head](glossary.md#head) has $d = D / h$ channels.",
    ({}, 'D, h = 12, 3\nprint("channels of a head:", D // h)'),
    f"## The smallest code\n\n*{TO_WRITE}: what the lines do, and why they are the smallest.*",
    (
        {},
        """\
layer = mhalib.MultiHeadAttention(num_hiddens=D, num_heads=h)
output, weights = layer(x, x, x)
print("output: ", *output.shape)
print("weights:", *weights.shape)""",
    ),
    f"## Is it right?\n\n*{TO_WRITE}: a check by values that this page's mistakes would not pass.*",
    (
        {},
        """\
torch.testing.assert_close(weights.sum(-1), torch.ones(2, h, 5))
print("rows that sum to 1:", weights[..., 0].numel())""",
    ),
    f"## What a trained layer does\n\n*{TO_WRITE}: a stored model, its picture, and the number that it shows.*",
    ({}, 'print("heads to look at:", weights.shape[1])'),
    f"## Something to play with\n\n*{TO_WRITE}: what the reader may change.*",
    ({}, 'causal = mhalib.causal_mask(5)\nprint("pairs, with a causal mask:", int(causal.sum()))'),
    f"**Predict.** *{TO_WRITE}: a question with one answer.*",
    (
        {
            "mystnb": {"code_prompt_hide": "Hide the answer", "code_prompt_show": "Show the answer"},
            "tags": ["hide-cell"],
        },
        """\
_, masked = layer(x, x, x, mask=causal)
print("weights that are 0:", int((masked[0, 0] == 0).sum()))""",
    ),
    f"""\
## Recap

- {TO_WRITE}: what a reader should be able to say without this page.""",
    f"""\
## Exercises

1. **{TO_WRITE}: predict, then run.** (5 minutes) A question that the page's own code answers.

   <details><summary>Answer</summary>

   {TO_WRITE}: the answer, worked out.

   </details>

2. **{TO_WRITE}: change one thing.** (10 minutes) What does it do to the numbers above?

   <details><summary>Answer</summary>

   {TO_WRITE}: the answer, worked out.

   </details>""",
    f"""\
## The same thing elsewhere

| | |
|---|---|
| torch | {TO_WRITE}: its name there |

All names side by side: [Notation](notation.md).

## Sources

- {TO_WRITE}: author, year and link; a paper gets an entry in references.bib.""",
)


def problem(name: str, title: str) -> str:
    """Why no chapter of this name and title can be begun, with the remedy; empty if it can."""
    wrong = ""
    if not name or not title.strip():
        wrong = f"{'TITLE' if name else 'NAME'} is missing"
    elif not NAME.fullmatch(name):
        wrong = f"NAME={name!r} is not made of lower-case letters, digits and single underscores"
    elif not title.isprintable() or title != title.strip():
        wrong = f"TITLE={title!r} is not one line without spaces around it"
    if wrong:
        return f"chapters/{name or 'NAME'}.ipynb cannot be made, for {wrong}: {USAGE}"
    for path in sorted(notebooks.CHAPTERS.glob("*")):
        if path.is_file() and re.sub(r"^\d\d_", "", path.stem) == name:
            return f"chapters/{path.name} has the name {name!r} already: give another NAME, or edit that page"
    for path in sorted(notebooks.CHAPTERS.glob("*.ipynb")):
        cells = nbformat.read(path, as_version=4).cells
        if cells and cells[0].source.strip() == f"# {title}":
            return f"chapters/{path.name} has the title {title!r} already: give another TITLE, or edit that page"
    return ""


def next_number() -> int:
    """One more than the last chapter has; `ValueError` if two digits are not enough for it."""
    found = [int(path.name[:2]) for path in notebooks.CHAPTERS.glob("[0-9][0-9]_*.ipynb")]
    number = max(found, default=0) + 1
    if number > 99:
        raise ValueError(f"chapters/99_*.ipynb is the last that two digits can name: rename a chapter, then {USAGE}")
    return number


def skeleton(path: Path, title: str) -> NotebookNode:
    """The cells that every chapter has, with what is to be written between them."""
    generated = notebooks.generated_cells(path)
    cells = [
        nbformat.v4.new_markdown_cell(f"# {title}"),
        nbformat.v4.new_markdown_cell(generated["launch"], metadata={"tags": ["launch"]}),
        nbformat.v4.new_code_cell(generated["set-up"], metadata={"tags": ["set-up", "hide-input"]}),
    ]
    number = str(int(path.name[:2]))
    for one in json.loads(json.dumps(SKELETON).replace("NUMBER", number)):
        if isinstance(one, str):
            cells.append(nbformat.v4.new_markdown_cell(one))
        else:
            cells.append(nbformat.v4.new_code_cell(one[1], metadata=one[0]))
    return notebooks.normalise(nbformat.v4.new_notebook(cells=cells))


def with_line(path: Path, pattern: re.Pattern[str], line: str, text: str | None = None) -> str:
    """`text`, or that of `path`, with `line` behind the last place where `pattern` fits; `{indent}` is that place's."""
    text = path.read_text(encoding="utf-8") if text is None else text
    places = list(pattern.finditer(text))
    if not places:
        where = path.relative_to(ROOT).as_posix()
        raise ValueError(f"{where} lists no chapter with a number: put one back, as  git checkout {where}  does")
    last = places[-1]
    return text[: last.end()] + line.format(**last.groupdict()) + text[last.end() :]


def in_yaml(words: str) -> str:
    """As it is, or in quotes where YAML would read it otherwise."""
    try:
        plain = yaml.safe_load(f"title: {words}") == {"title": words}
    except yaml.YAMLError:
        plain = False
    return words if plain else json.dumps(words, ensure_ascii=False)


def make(name: str, title: str) -> Path:
    """Write and execute the notebook, then list it; its path. `ValueError` says what stands in the way."""
    if said := problem(name, title):
        raise ValueError(said)
    number = next_number()
    stem = f"{number:02d}_{name}"
    toc, index = ROOT / "_toc.yml", notebooks.CHAPTERS / "index.md"
    entry = in_yaml(f"{number} · {title}").replace("{", "{{").replace("}", "}}")
    listed = with_line(toc, IN_TOC, f"{{indent}}- file: chapters/{stem}\n{{indent}}  title: {entry}\n")
    shown = title.replace("{", "{{").replace("}", "}}")
    told = with_line(index, IN_INDEX, f"{number}. [{shown}]({stem}.ipynb): {TO_WRITE}: what it shows, in ten words\n")
    told = with_line(index, IN_MAP, f"{number}: 0 {{row}}\n", told)
    path = notebooks.CHAPTERS / f"{stem}.ipynb"
    nbformat.write(skeleton(path, title), path)
    nbformat.write(notebooks.execute(path), path)
    write_whole(toc, listed)
    write_whole(index, told)
    write_names()
    return path


def write_names() -> None:
    """Write the names of all chapters for their checkers: of a chapter that is missing there, none can be imported."""
    stems = sorted(path.stem for path in notebooks.CHAPTERS.glob("[0-9]*.ipynb"))
    write_whole(ROOT / NAMES, json.dumps(stems, indent=1) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="lower-case words with underscores between them")
    parser.add_argument("title", help="as readers see it")
    given = parser.parse_args()
    try:
        path = make(given.name, given.title)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    where = path.relative_to(ROOT).as_posix()
    print(f"{where}, listed in _toc.yml and chapters/index.md. Write it, then  make notebooks  and  make quick")
    return 0


if __name__ == "__main__":
    sys.exit(main())
