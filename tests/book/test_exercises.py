"""The exercises: in the chapters with solutions, in the students' notebooks without, and each with a checker."""

from __future__ import annotations

import json
import linecache
import re
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import nbformat
import pytest
from bs4 import BeautifulSoup, Tag
from nbclient import NotebookClient

from mhalib_classroom import checks
from tools.evidence.frameworks import __main__ as frameworks
from tools.notebooks import notebooks
from tools.notebooks.chapter import NAMES
from tools.teaching import exercises

CHAPTERS = [path for path in sorted(notebooks.CHAPTERS.glob("[0-9]*.ipynb")) if exercises.student_notebook(path)]
STUDENTS = sorted(exercises.FOLDER.glob("*.ipynb"))


def cells_with(path: Path, tag: str) -> list[nbformat.NotebookNode]:
    return [cell for cell in nbformat.read(path, as_version=4).cells if tag in cell.metadata.get("tags", [])]


def solution_lines(source: str) -> list[str]:
    """The lines between the markers, INSTEAD's part left out."""
    inside = re.findall(rf"{exercises.BEGIN}\n(.*?)(?:{exercises.INSTEAD}.*?)?\s*{exercises.END}", source, re.S)
    return [line.strip() for text in inside for line in text.splitlines() if line.strip()]


def test_the_students_notebooks_are_those_of_the_chapters() -> None:
    assert [path.name for path in STUDENTS] == [path.name for path in CHAPTERS]
    for chapter in CHAPTERS:
        stored = nbformat.read(exercises.FOLDER / chapter.name, as_version=4)
        assert stored == exercises.student_notebook(chapter), f"{chapter.name} is stale: run  make exercises"


def test_the_teachers_table_is_that_of_the_chapters() -> None:
    page = exercises.TABLE.read_text(encoding="utf-8")
    assert page == exercises.with_table(page, exercises.table(CHAPTERS)), "the table is stale: run  make exercises"
    assert page.count("\n| [") >= len(checks.EXERCISES)
    with pytest.raises(ValueError, match="has not both"):
        exercises.with_table("no marks", "")


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)
def test_no_solution_leaks(chapter: Path) -> None:
    """Not into a cell, not into an output, not into metadata: the file's text is searched as it is."""
    text = (exercises.FOLDER / chapter.name).read_text(encoding="utf-8")
    assert "SOLUTION" not in text
    assert "hide-input" not in text
    stored = nbformat.reads(text, as_version=4)
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in stored.cells)
    for cell in cells_with(chapter, exercises.EXERCISE):
        given = (exercises.code_to_mend(cell.source) or "").split("\n")
        for line in set(solution_lines(cell.source)) - {line.strip() for line in given}:
            assert json.dumps(line)[1:-1] not in text, line


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)
def test_every_exercise_has_text_hints_and_a_checker_of_its_chapter(chapter: Path) -> None:
    texts, cells = cells_with(chapter, exercises.TEXT), cells_with(chapter, exercises.EXERCISE)
    assert len(texts) == len(cells)
    for text, cell in zip(texts, cells, strict=True):
        head = exercises.HEAD.match(text.source)
        assert head, f"{chapter.name}: begin with a title in words: {text.source[:60]!r}"
        name, difficulty = head["name"], head["difficulty"]
        assert checks.EXERCISES[name].chapter == int(chapter.name[:2])
        assert checks.EXERCISES[name].points == {"easy": 1, "medium": 2, "hard": 3}[difficulty]
        assert text.source.count("<details>") == text.source.count("</details>")
        assert cell.source.rstrip().endswith(f"checks.{name}({name})")
        assert "hide-input" in cell.metadata["tags"], "the page must fold the solution"


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)
def test_code_to_mend_that_nobody_has_touched_is_not_started(chapter: Path) -> None:
    setup = [cell.source for cell in cells_with(chapter, exercises.SETUP)]
    for cell in cells_with(chapter, exercises.EXERCISE):
        exercise = checks.EXERCISES[re.findall(r"checks\.(\w+)\(", cell.source)[-1]]
        wrong = exercises.code_to_mend(cell.source)
        assert (wrong is None) == (exercise.given is None)
        if wrong is not None:
            space: dict[str, Any] = {}
            exec("\n".join(["import torch", *setup, wrong]), space)
            finding = exercise.examine(space[exercise.name])
            assert (finding.kind, finding.mistake) == ("not started", exercise.given)


def as_a_cell(source: str, space: dict[str, Any]) -> None:
    """Run it as Jupyter does: its text can be looked up afterwards, by the name of its file."""
    name = f"<cell {len(linecache.cache)}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    exec(compile(source, name, "exec"), space)


def repairs_of(path: Path) -> dict[str, tuple[str, dict[str, Any]]]:
    """From a students' notebook: name -> the cell to mend, and the namespace that its other cells leave behind."""
    cells = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"][1:]
    called = {re.findall(r"^checks\.(\w+)\(", source, re.M)[-1]: source for source in cells if "\nchecks." in source}
    space: dict[str, Any] = {}
    for source in cells:
        if source not in {*called.values(), exercises.KEEP_GOING, exercises.REPORT}:
            as_a_cell(source, space)
    return {name: (one, dict(space)) for name, one in called.items() if checks.EXERCISES[name].given}


def said_of(source: str, space: dict[str, Any]) -> str:
    with pytest.raises(checks.CheckFailed) as failed:
        as_a_cell(source, space)
    return str(failed.value)


def sentences(message: str) -> list[str]:
    return [one for one in re.split(r"(?<=[.:?;]) ", message) if len(one) > 12]


def with_an_own_change(source: str, name: str) -> str:
    """Another name for a parameter that stays unused: no number changes."""
    return re.sub(rf"(def {name}\(.*)\):", r"\1, unused=None):", source, count=1)


def test_a_repair_that_nobody_has_touched_tells_nothing_but_numbers() -> None:
    """Each of them, from the students' own notebooks, as at the first *Run All*; and only then."""
    seen = 0
    for path in STUDENTS:
        for name, (source, space) in repairs_of(path).items():
            exercise = checks.EXERCISES[name]
            (given,) = (one for one in exercise.mistakes if one.name == exercise.given)
            known = [one for mistake in exercise.mistakes for one in (mistake.name, *sentences(mistake.message))]
            for unchanged in (source, f"# one of mine\n\n{source}", source.replace('"""\n', '"""  # hm\n\n')):
                said = said_of(unchanged, dict(space))
                assert not [one for one in known if one in said], said
                assert f"    {name}(" in said
                assert "    right  " in said
                assert "    yours  " in said
                assert f"checks.{name}({name}, tell=True)" in said
            asked = said_of(source.replace(f"checks.{name}({name})", f"checks.{name}({name}, tell=True)"), dict(space))
            assert given.message in asked
            assert "The code that you were given does just this." in asked
            said = said_of(with_an_own_change(source, name), dict(space))
            assert given.message in said
            assert "The code that you were given does just this, too." in said
            seen += 1
    assert seen == 33


def test_where_no_source_can_be_had_a_repair_is_taken_for_untouched() -> None:
    for name, (source, space) in repairs_of(exercises.FOLDER / "04_reshape_trick.ipynb").items():
        exercise = checks.EXERCISES[name]
        code = with_an_own_change(source, name).replace(f"checks.{name}({name})", "")
        exec(compile(code, "<nowhere>", "exec"), space)
        finding = exercise.examine(space[name])
        assert (finding.kind, finding.mistake) == ("not started", exercise.given)
        assert exercise.mistakes[0].message not in finding.message
        assert exercise.mistakes[0].message in exercise.examine(space[name], tell=True).message


def test_a_kernel_knows_what_was_touched() -> None:
    """In a real notebook: untouched, with an own change that mends nothing, mended, and untouched again."""
    path = exercises.FOLDER / "04_reshape_trick.ipynb"
    ((name, (source, _)),) = repairs_of(path).items()
    changed = with_an_own_change(source, name)
    mended = source.replace("permute(0, 2, 1, 3)", "permute(1, 2, 0, 3)")
    cells = [source, changed, mended, source]
    made = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell("import torch\nfrom mhalib_classroom import checks")]
        + [nbformat.v4.new_code_cell(one) for one in cells]
    )
    NotebookClient(made, timeout=120, kernel_name="python3", allow_errors=True).execute()
    shown = ["".join(str(one.get("text") or one.get("traceback")) for one in cell.outputs) for cell in made.cells[1:]]
    assert ["swaps examples and tokens" in one for one in shown] == [False, True, False, False]
    assert ["right. Verified" in one for one in shown] == [False, False, True, False]
    assert ["tell=True" in one for one in shown] == [True, False, False, True]


def test_what_is_known_of_code_to_mend_is_of_today() -> None:
    assert json.loads(exercises.GIVEN.read_text(encoding="utf-8")) == exercises.given_code(CHAPTERS), (
        "mhalib_classroom/checks/given.json is stale: run  make exercises"
    )


def test_a_checkers_chapter_has_the_number_that_its_notebook_has() -> None:
    names = json.loads((notebooks.ROOT / NAMES).read_text(encoding="utf-8"))
    assert names == [path.stem for path in sorted(notebooks.CHAPTERS.glob("[0-9]*.ipynb"))], (
        "mhalib_classroom/checks/chapters.json is stale: run  make exercises"
    )
    topics = {path.stem for path in (notebooks.ROOT / NAMES).parent.glob("*.md")}
    assert topics <= {name[3:] for name in names}


def test_predictions_are_those_that_the_chapters_call_so() -> None:
    texts = [cell.source for chapter in CHAPTERS for cell in cells_with(chapter, exercises.TEXT)]
    heads = [exercises.HEAD.match(text) for text in texts]
    called = {head["name"] for head in heads if head and head["kind"] == "Prediction"}
    asked = {head["name"] for head, text in zip(heads, texts, strict=True) if head and "Predict; " in text}
    assert called | asked == {name for name, one in checks.EXERCISES.items() if one.is_prediction}
    assert len(called) >= 4


@pytest.mark.parametrize("path", STUDENTS, ids=lambda path: path.stem)
def test_what_students_are_given_needs_nothing_that_the_grader_has_not(path: Path) -> None:
    """The grader runs a notebook where mhalib is missing, and puts a stand-in for the checkers there."""
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    given = [cell.source for cell in cells if "set-up" not in cell.metadata.get("tags", [])]
    lines = [line for source in given for line in source.splitlines() if "mhalib" in line]
    assert set(lines) == {"from mhalib_classroom import checks"}


def test_every_checker_has_its_exercise() -> None:
    found = [
        re.search(r"checks\.(\w+)\(", cell.source)[1]
        for chapter in CHAPTERS
        for cell in cells_with(chapter, exercises.EXERCISE)
    ]
    assert sorted(found) == sorted(checks.EXERCISES)
    assert len(found) >= 30


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)
def test_solutions_pass_and_stubs_fail_in_the_students_notebook(chapter: Path, capsys: pytest.CaptureFixture) -> None:
    """In the notebook alone: nothing of the chapter's own cells is there. Repairs fail by value, stubs by name."""
    student = exercises.student_notebook(chapter)
    space: dict = {}
    for cell in cells_with(chapter, exercises.SETUP):
        assert cell.source in [one.source for one in student.cells]
        exec(cell.source, space)
    for cell in cells_with(chapter, exercises.EXERCISE):
        stub = exercises.without_solution(cell.source)
        assert stub in [one.source for one in student.cells]
        with pytest.raises(checks.CheckFailed) as failed:
            exec(stub, dict(space))
        is_repair = exercises.INSTEAD in cell.source
        assert ("still the stub" in str(failed.value)) != is_repair
        exec(cell.source, dict(space))
        assert "Verified" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = 1", "has no '# BEGIN SOLUTION'"),
        ("# BEGIN SOLUTION\nx = 1", "the end of the cell"),
        ("# END SOLUTION", "'# END SOLUTION' does not fit"),
        ("# BEGIN SOLUTION\n# BEGIN SOLUTION\n# END SOLUTION", "line 2"),
        ("# BEGIN SOLUTION\n# INSTEAD\nx = 1\n# END SOLUTION", "must be a comment"),
        ("# BEGIN SOLUTIONS\n# END SOLUTION", "neither"),
        ("# BEGIN SOLUTION\n# INSTEAD\n# INSTEAD\n# END SOLUTION", "line 3"),
    ],
)
def test_markers_that_do_not_fit_are_refused(source: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        exercises.without_solution(source)


def test_a_solution_becomes_a_stub_or_what_stands_behind_instead() -> None:
    source = "def f(x):\n    # BEGIN SOLUTION\n    return x\n    # END SOLUTION\n\n\ncheck(f)"
    assert exercises.without_solution(source) == (
        "def f(x):\n    # your code here\n    raise NotImplementedError\n\n\ncheck(f)"
    )
    source = (
        "def f(x):\n    # BEGIN SOLUTION\n    return x\n    # INSTEAD\n    # y = -x\n    # return y\n    # END SOLUTION"
    )
    assert exercises.without_solution(source) == "def f(x):\n    y = -x\n    return y"


def test_the_code_to_mend_and_the_solution_stand_apart() -> None:
    instead = "    # INSTEAD\n    # return -x\n"
    source = f"def f(x):\n    # BEGIN SOLUTION\n    return x\n{instead}    # END SOLUTION\n\n\nchecks.f(f)"
    assert exercises.code_to_mend(source) == "def f(x):\n    return -x"
    assert exercises.code_to_mend(source.replace(instead, "")) is None
    assert exercises.with_solution(source) == "def f(x):\n    return x\n\n\nchecks.f(f)"
    assert exercises.with_solution(source.replace(instead, "")) == "def f(x):\n    return x\n\n\nchecks.f(f)"


def folds_one(tag: Tag) -> bool:
    """Whether an element is a fold within an exercise, and not the bar that all exercises of a page are behind."""
    return tag.name == "details" and "exercises-in-code" not in tag.get_attribute_list("class")


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)
def test_the_page_shows_the_code_to_mend_above_the_folded_solution(chapter: Path) -> None:
    page = BeautifulSoup((notebooks.ROOT / f"_build/html/chapters/{chapter.stem}.html").read_bytes(), "html.parser")
    sections = {heading.find("code").text: heading.find_parent("section") for heading in page.select("h4:has(code)")}
    for cell in cells_with(chapter, exercises.EXERCISE):
        name = re.search(r"checks\.(\w+)\(", cell.source)[1]
        section, start = sections[name], re.compile(rf"(@\w+\n)?def {name}\(")
        blocks = [
            (block.get_text().strip(), block.find_parent(folds_one)) for block in section.select(".highlight pre")
        ]
        assert [text for text, _ in blocks if "SOLUTION" in text or "INSTEAD" in text] == []
        wrong = exercises.code_to_mend(cell.source)
        shown = [text for text, folded in blocks if start.match(text) and not folded]
        assert shown == ([wrong] if wrong else [])
        hidden = [text for text, folded in blocks if start.match(text) and folded]
        assert hidden == [exercises.with_solution(cell.source).strip()]


OF_FRAMEWORKS = pytest.mark.weekly("chapters/30_", "mhalib_classroom/checks/four_frameworks", "requirements.txt")


@pytest.mark.parametrize("framework", ["numpy", *(pytest.param(one, marks=OF_FRAMEWORKS) for one in ("jax", "keras"))])
def test_the_exercises_of_four_frameworks_can_be_solved_in_each_framework(
    framework: str, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page solves them in torch. One line chooses another framework, and the same text solves them there."""
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    chapter, space = notebooks.CHAPTERS / "34_four_frameworks.ipynb", {}
    for cell in cells_with(chapter, exercises.SETUP):
        exec(cell.source.replace('FRAMEWORK = "torch"', f'FRAMEWORK = "{framework}"'), space)
    assert space["xp"].__name__.partition(".")[0] == framework
    for cell in cells_with(chapter, exercises.EXERCISE):
        exec(cell.source, dict(space))
    assert capsys.readouterr().out.count("Verified") == 4


IN_TENSORFLOW = """
import sys
sys.path += {path!r}  # torch and nbformat of the book's environment, behind TensorFlow's own
import nbformat
from tools.teaching import exercises
chapter, space = nbformat.read({chapter!r}, 4), {{}}
for cell in chapter.cells:
    if exercises.SETUP in cell.metadata.get("tags", []):
        exec(cell.source.replace('FRAMEWORK = "torch"', 'FRAMEWORK = "tensorflow"'), space)
print(space["xp"].__name__)
for cell in chapter.cells:
    if exercises.EXERCISE in cell.metadata.get("tags", []):
        exec(cell.source, dict(space))
"""


def test_the_exercises_of_four_frameworks_can_be_solved_in_tensorflow() -> None:
    """Where `make frameworks` has put it."""
    python = frameworks.python_of("tensorflow")
    if python is None:
        pytest.skip("no environment has tensorflow: make frameworks")
    path = [str(notebooks.ROOT), sysconfig.get_path("purelib")]
    code = IN_TENSORFLOW.format(path=path, chapter=str(notebooks.CHAPTERS / "34_four_frameworks.ipynb"))
    found = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert "tensorflow" in found.stdout.splitlines()[0]
    assert found.stdout.count("Verified") == 4
