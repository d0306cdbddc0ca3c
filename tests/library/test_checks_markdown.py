"""The chapters' exercises in Markdown: what is read, and that a broken file is refused with its name and the line."""

import ast
import random
import re
from pathlib import Path

import pytest

from mhalib_classroom import checks
from mhalib_classroom.checks import EXERCISES, _chapters, _markdown

FOLDER = Path(checks.__file__).parent
TOPICS = {number: topic for topic, number in _chapters.numbers().items()}
GOOD = """# Chapter 1

## halved(x, by): half of it

*Coding · medium.* Verified: two numbers,
one of them odd.

- **not halved** `x`
  this is what came in.
- **a quarter, or
  less** `x /
  4`
  you halved `x` twice.
- **an eighth** `x / 8`
  as above.

## mended(x, by): two parts

*Repair · easy.* Parts: the half; the rest. Verified: a number.

- **not rounded** (given) `rest=lambda x: x / 2`
  the rest is a whole number.
- all of `halved`
"""


@pytest.fixture
def chapter(tmp_path):
    """Writes a file of this text and makes its exercises, with a module's names beside it."""
    count = iter(range(10))

    def made(text, wanted=("halved", "mended"), **more):
        folder = tmp_path / str(next(count))
        folder.mkdir()
        (folder / "weighted_average.md").write_text(text, encoding="utf-8")
        space = {"__file__": str(folder / "weighted_average.py")}
        exercise = _markdown.exercises_of(space)
        for name in wanted:
            given = {"reference": halves, "cases": numbers, "switches": halves if name == "mended" else None, **more}
            space[name] = exercise(name, **given)
        return _markdown.in_order(space)

    return made


def halves(x, by, *, rest=lambda x: x // 2):
    return x / 2, rest(x)


def numbers(rng):
    yield {"x": 5, "by": 2}


def test_a_file_is_read(chapter):
    halved, mended = chapter(GOOD).values()
    assert (halved.name, halved.chapter, halved.title, halved.points) == ("halved", 1, "half of it", 2)
    assert halved.verified == "two numbers, one of them odd."
    assert [(one.name, one.message) for one in halved.mistakes] == [
        ("not halved", "this is what came in."),
        ("a quarter, or less", "you halved `x` twice."),
        ("an eighth", "you halved `x` twice."),
    ]
    assert [one.function(8, 2) for one in halved.mistakes] == [8, 2, 1]
    assert (halved.given, halved.parts, halved.is_prediction) == (None, (), False)
    assert (mended.given, mended.parts, mended.points) == ("not rounded", ("the half", "the rest"), 1)
    assert mended.mistakes[0].function(5, 2) == (2.5, 2.5)
    assert mended.mistakes[1:] == halved.mistakes


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("## mended(x, by)", "## mendet(x, by)", "weighted_average.md has no exercise 'mended': write its heading"),
        ("## mended(x, by)", "## halved(x, by)", "line 17: halved: there are two exercises of this name"),
        ("## mended(x, by): two parts", "## mended: two parts", "line 17: what is this, and why here? '## mended"),
        ("**an eighth**", "**not halved**", "line 3: halved: two mistakes are called 'not halved'"),
        ("`x / 8`", "`x / / 8`", "line 14: halved: 'x / / 8' does not compile: invalid syntax"),
        ("`x / 8`", "`x, 8`", "line 14: halved: 'x, 8' is not one expression: put it in brackets"),
        ("`x / 8`", "`x / 8", "line 14: what is this"),
        ("`x / 8`", "`by=2`", "line 14: halved: its reference has no switches: 'by=2'"),
        ("rest=lambda x: x / 2", "rest=nothing_known", "line 21: mended: 'rest=nothing_known' does not compile: name"),
        ("all of `halved`", "all of `others`", "line 23: mended: 'others' does not compile: name 'others'"),
        ("  as above.", "", "line 14: halved: the mistake 'an eighth' has no sentence for the student"),
        ("  this is what came in.", "  as above.", "line 8: halved: the mistake 'not halved' has no sentence"),
        ("(given) ", "", "line 17: mended: 0 mistakes are marked (given): a repair has one"),
        ("halved** `x`", "halved** (given) `x`", "line 3: halved: 1 mistakes are marked (given)"),
        ("Coding", "Codeing", "line 5: what is this"),
        ("· easy.*", "· simple.*", "line 19: what is this"),
        ("*Repair · easy.* Parts", "Repair", "line 19: what is this"),
        ("*Coding · medium.* Verified: two numbers,\none of them odd.\n\n", "", "line 5: what is this"),
        ("- all of `halved`", "all of `halved`\n\nAnd more.", "line 25: what is this"),
        ("# Chapter 1", "- **early** `1`\n  too early.", "line 1: what is this"),
        ("- all of `halved`", "- all of `halved`\n\n## last(x): it", "line 25: last: below a heading"),
        ("- all of `halved`", "## last(x): it\n\n*Coding · easy.* Verified: a.", "line 23: last: no such exercise is"),
    ],
)
def test_a_broken_file_is_refused_with_its_name_and_the_line(chapter, old, new, why):
    assert GOOD.count(old) == 1
    with pytest.raises(ValueError, match=re.escape(why)) as refused:
        chapter(GOOD.replace(old, new))
    assert "weighted_average.md" in str(refused.value)


@pytest.mark.parametrize("name", EXERCISES)
def test_a_heading_has_the_arguments_of_the_cases(name):
    exercise = EXERCISES[name]
    arguments = _markdown.read(FOLDER / f"{TOPICS[exercise.chapter]}.md")[name].head["arguments"]
    case = next(iter(exercise.cases(random.Random(0))))
    assert arguments == ", ".join(case)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("[a-z]*.py")), ids=lambda path: path.stem)
def test_what_a_chapter_imports_and_defines_is_used_there_or_in_its_mistakes(path):
    """ruff does not see what an expression in Markdown uses."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    text = path.with_suffix(".md").read_text(encoding="utf-8")
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    used |= set(re.findall(r"\w+", " ".join(re.findall("`([^`]*)`", text)))) | {"annotations", *EXERCISES}
    names = set()
    for node in tree.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {(one.asname or one.name).partition(".")[0] for one in node.names}
        elif isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    assert names - used == set()


def test_a_topic_without_a_chapter_is_refused():
    with pytest.raises(ValueError, match="topic='heads_of_state': no notebook in chapters/ is called so"):
        _chapters.number_of("heads_of_state")


def test_a_chapter_is_moved_by_its_name_alone(monkeypatch, tmp_path):
    """The order of the exercises is that of the numbers, wherever a name stands in the list."""
    (tmp_path / "chapters.json").write_text('["02_weighted_average", "01_reshape_trick"]', encoding="utf-8")
    monkeypatch.setattr(_chapters, "STEMS", tmp_path / "chapters.json")
    assert list(_chapters.numbers.__wrapped__().items()) == [("reshape_trick", 1), ("weighted_average", 2)]
