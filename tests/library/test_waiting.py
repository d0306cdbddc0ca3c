"""Which tests wait for the week: none whose file, or what its mark is about, has changed."""

from types import SimpleNamespace

import pytest
import waiting


def skipped(monkeypatch, changed, *marks, nodeid="tests/book/test_roofline.py::test_it"):
    monkeypatch.delenv("MHALIB_TESTS", raising=False)
    monkeypatch.setattr(waiting, "changed_on_this_branch", lambda: (changed,))
    added = []
    item = SimpleNamespace(nodeid=nodeid, iter_markers=lambda: iter(marks), add_marker=added.append)
    waiting.pytest_collection_modifyitems([item])
    return bool(added)


MARK = pytest.mark.instrument("mhalib/widgets/roofline", "mhalib/roofline.py").mark


@pytest.mark.parametrize(
    "changed",
    [
        *("mhalib/widgets/roofline.js", "mhalib/widgets/shared.css", "mhalib/roofline.py"),
        *("tests/book/test_roofline.py", "requirements.txt"),
    ],
)
def test_what_has_changed_is_tested(monkeypatch, changed):
    assert not skipped(monkeypatch, changed, MARK)
    assert not skipped(monkeypatch, changed, pytest.mark.browser.mark, MARK)


@pytest.mark.parametrize(
    "changed", ["mhalib/costs.py", "mhalib/widgets/head_wall.css", "chapters/01_a.ipynb", "tests/book/test_look.py"]
)
def test_the_rest_waits(monkeypatch, changed):
    assert skipped(monkeypatch, changed, MARK)


@pytest.mark.parametrize(
    ("changed", "nodeid", "waits"),
    [
        ("tools/notebooks/rehearse.py", "tests/book/test_rehearse.py::test_it", False),
        ("tools/pages/predict.py", "tests/book/test_rehearse.py::test_it", True),  # the notebooks' room names no pages
        ("tools/notebooks/rehearse.py", "tests/book/test_ebook.py::test_it", False),  # pages, which editions use, do
        ("tools/teaching/slides.py", "tests/book/test_paper.py::test_it", False),  # so does what only pages use
        ("tools/editions/paper.py", "tests/book/test_gpu.py::test_it", True),
        ("pyproject.toml", "tests/book/test_gpu.py::test_it", False),
    ],
)
def test_of_a_tool_only_the_rooms_count_that_its_test_reaches(monkeypatch, changed, nodeid, waits):
    assert skipped(monkeypatch, changed, pytest.mark.tool.mark, nodeid=nodeid) == waits


@pytest.mark.parametrize("folder", ["book", "library"])
def test_a_conftest_wakes_the_tests_beside_it(monkeypatch, folder):
    changed = f"tests/{folder}/conftest.py"
    nodeid = "tests/library/test_grade.py::test_it"
    assert skipped(monkeypatch, changed, pytest.mark.grader.mark, nodeid=nodeid) == (folder == "book")


def test_of_two_marks_each_must_have_a_file_that_has_changed(monkeypatch):
    marks = pytest.mark.package.mark, pytest.mark.weekly("mhalib/variants/").mark
    assert not skipped(monkeypatch, "mhalib/variants/delta.py", *marks)
    assert skipped(monkeypatch, "mhalib/costs.py", *marks)
    assert not skipped(monkeypatch, "mhalib/costs.py", *marks[:1])
    assert not skipped(monkeypatch, "tests/book/test_roofline.py", *marks)


def test_without_a_mark_and_in_the_week_nothing_waits(monkeypatch):
    assert not skipped(monkeypatch, "README.md", pytest.mark.browser.mark)
    monkeypatch.setattr(waiting.os, "environ", {"MHALIB_TESTS": "all"})
    added = []
    item = SimpleNamespace(nodeid="a::b", iter_markers=lambda: iter([MARK]), add_marker=added.append)
    waiting.pytest_collection_modifyitems([item])
    assert added == []
