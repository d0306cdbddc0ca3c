"""Exercises and their mistakes, written as Markdown: one file a chapter, which a teacher can read and change.

A file is called as its chapter's notebook is, without the number.

    ## scores(q, k): scaled scores of every query and every key

    *Coding · easy.* Verified: four random inputs in which Q, K and d all differ.

    - **divided by d** `_products(q, k) / q.shape[-1]`
      you divided by d, not by its square root.

A heading has the exercise's name, its arguments and its title. Below it: its kind and difficulty, the names of the
parts of its result, if it has any, and what the student may believe after success. A mistake is a name, an expression
in the arguments and in the names of the chapter's Python, and the sentence for the student; "as above." repeats the
sentence before. In an exercise whose reference has switches, `split=straight_split` is that reference with this switch.
In a repair, `(given)` marks what the given code does. "- all of `multi_head`" stands for that exercise's mistakes.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ._chapters import number_of
from ._exercise import Exercise, Mistake

HEADING = re.compile(r"## (?P<name>\w+)\((?P<arguments>[\w, ]*)\): (?P<title>\S.*)")
ABOUT = re.compile(
    r"\*(?P<kind>Coding|Prediction|Repair) · (?P<difficulty>easy|medium|hard)\.\*"
    r"(?: Parts: (?P<parts>[^.]+)\.)? Verified: (?P<verified>\S.*)"
)
MISTAKE = re.compile(r"- \*\*(?P<name>[^*]+)\*\*(?P<given> \(given\))? `(?P<code>[^`]+)`(?: (?P<message>\S.*))?")
ALL_OF = re.compile(r"- all of `(?P<code>[^`]+)`")
SWITCH = re.compile(r"\w+=(?!=)")
POINTS = {"easy": 1, "medium": 2, "hard": 3}


@dataclass
class Text:
    """What a file says of one exercise. Of each part: the number of its line, and what was found there."""

    path: Path
    line: int
    head: Mapping[str, str]
    about: Mapping[str, str] = field(default_factory=dict)
    entries: list[tuple[int, Mapping[str, str]]] = field(default_factory=list)

    def wrong(self, why: str, line: int = 0) -> ValueError:
        """For the exercise, or for one of its lines."""
        return ValueError(f"{self.path.name}, line {line or self.line}: {self.head['name']}: {why}")


def exercises_of(space: dict[str, Any]) -> Callable[..., Exercise]:
    """For a chapter's module, by its `globals()`: what makes its exercises, with the texts of the file beside it."""
    return functools.partial(_exercise, space)


def _exercise(
    space: dict[str, Any],
    name: str,
    *,
    reference: Callable[..., Any],
    cases: Callable[..., Any],
    switches: Callable[..., Any] | None = None,
    has_gradients: bool = False,
) -> Exercise:
    """The exercise `name`, as its chapter's file describes it.

    Raises:
        ValueError: the file does not have it, or is wrong; with the file's name and the line.
    """
    path = Path(space["__file__"]).with_suffix(".md")
    text = read(path).get(name)
    if text is None:
        raise ValueError(f"{path.name} has no exercise {name!r}: write its heading")
    mistakes = list(_mistakes(text, space, switches))
    names = [mistake.name for mistake in mistakes]
    if len(set(names)) < len(names):
        raise text.wrong(f"two mistakes are called {next(one for one in names if names.count(one) > 1)!r}")
    given = [found["name"] for _, found in text.entries if found.get("given")]
    if len(given) != (text.about["kind"] == "Repair"):
        raise text.wrong(f"{len(given)} mistakes are marked (given): a repair has one, another exercise none")
    return Exercise(
        name,
        chapter=number_of(path.stem),
        title=text.head["title"],
        reference=reference,
        cases=cases,
        mistakes=mistakes,
        verified=text.about["verified"],
        parts=text.about["parts"].split("; ") if text.about["parts"] else (),
        points=POINTS[text.about["difficulty"]],
        given=given[0] if given else None,
        switches=switches,
        has_gradients=has_gradients,
        is_prediction=text.about["kind"] == "Prediction",
    )


def in_order(space: Mapping[str, Any]) -> dict[str, Exercise]:
    """The exercises of a module, by its `globals()`, in the order of the chapters whose files are beside it.

    Raises:
        ValueError: a file describes an exercise that the namespace does not have.
    """
    found = {}
    paths = Path(space["__file__"]).parent.glob("*.md")
    for path in sorted(paths, key=lambda path: number_of(path.stem)):
        for name, text in read(path).items():
            if not isinstance(space.get(name), Exercise):
                raise text.wrong("no such exercise is made and imported")
            found[name] = space[name]
    return found


@functools.cache
def read(path: Path) -> dict[str, Text]:
    """The texts of a file, by the names of the exercises.

    Raises:
        ValueError: a line is none of those that a file may have, or does not come where it should.
    """
    found: dict[str, Text] = {}
    text: Text | None = None
    for line, block in _blocks(path.read_text(encoding="utf-8")):
        about, entry = ABOUT.fullmatch(block), MISTAKE.fullmatch(block) or ALL_OF.fullmatch(block)
        if head := HEADING.fullmatch(block):
            text = Text(path, line, head.groupdict())
            if found.setdefault(head["name"], text) is not text:
                raise text.wrong("there are two exercises of this name")
        elif text and about and not text.about:
            text.about = about.groupdict()
        elif text and entry and text.about:
            text.entries.append((line, entry.groupdict()))
        elif text or not re.match("# ", block):
            raise ValueError(f"{path.name}, line {line}: what is this, and why here? {block!r:.80}")
    for one in found.values():
        if not one.about:
            raise one.wrong("below a heading: *Coding · easy.* Verified: ...")
    return found


def _blocks(text: str) -> Iterator[tuple[int, str]]:
    """Headings, paragraphs and items of a list, each as one line, with the number of its first line."""
    block: list[str] = []
    start = 0
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if block and (not line.strip() or line.startswith(("#", "- "))):
            yield start, " ".join(block)
            block = []
        if line.strip():
            start = start if block else number
            block.append(line.strip())


def _mistakes(text: Text, space: dict[str, Any], switches: Callable[..., Any] | None) -> Iterator[Mistake]:
    message = ""
    for line, found in text.entries:
        code = found["code"]
        try:
            if "name" not in found:
                yield from eval(code, space).mistakes
                continue
            if not SWITCH.match(code):
                function = eval(compile(f"lambda {text.head['arguments']}: {code}", str(text.path), "eval"), space)
            elif switches is None:
                raise text.wrong(f"its reference has no switches: {code!r}", line)
            else:
                function = functools.partial(switches, **eval(f"dict({code})", space))
        except (SyntaxError, NameError, AttributeError, TypeError) as error:
            raise text.wrong(f"{code!r} does not compile: {error}", line) from error
        message = message if found["message"] == "as above." else found["message"]
        if not message:
            raise text.wrong(f"the mistake {found['name']!r} has no sentence for the student", line)
        if not callable(function):
            raise text.wrong(f"{code!r} is not one expression: put it in brackets", line)
        yield Mistake(found["name"], message, function)
