"""The tests' order: pages are dealt out, files stay whole, and what takes long starts first."""

from __future__ import annotations

import os

import pytest
import torch

from tools.development import schedule
from tools.notebooks import notebooks

pytest_plugins = ["pytester"]

PAGES = schedule.PAGES


@pytest.mark.parametrize(
    ("nodeid", "unit"),
    [
        (f"{PAGES}::test_fits[chapters/09_shape_checks-light-1280]", f"{PAGES}::chapters/09_shape_checks"),
        (f"{PAGES}::test_fits[chapters/09_shape_checks-dark-390]", f"{PAGES}::chapters/09_shape_checks"),
        (f"{PAGES}::test_links[chapters/09_shape_checks]", f"{PAGES}::chapters/09_shape_checks"),
        (f"{PAGES}::test_search", PAGES),
        ("tests/book/test_notation.py::test_line[chapters/a-light-390]", "tests/book/test_notation.py"),
        ("chapters/09_shape_checks.ipynb::Cell 3", "chapters/09_shape_checks.ipynb"),
    ],
)
def test_a_page_stays_together_and_so_does_another_file(nodeid: str, unit: str) -> None:
    assert schedule.unit(nodeid) == unit


def test_what_takes_long_comes_before_pages_and_those_before_short_files() -> None:
    heavy = [("chapters/new.ipynb", 3), (f"{PAGES}::chapters/index", 41), ("a.py", 9)]
    estimates = [schedule.seconds(*one) for one in heavy]
    assert estimates == sorted(estimates, reverse=True)
    assert len(set(estimates)) == len(estimates)


CONFTEST = """
from tools.development import schedule
schedule.A_TEST = 4.0
schedule.PAGES = "test_b.py"
from tools.development.schedule import pytest_xdist_make_scheduler
"""
OF_PAGES = """
import pytest

@pytest.mark.parametrize("page", ["one-light-390", "two-light-390", "one-dark-390", "two-dark-390"])
def test_page(page): pass
"""


@pytest.mark.tool
def test_the_longest_starts_first_and_pages_are_shared_out(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makepyprojecttoml(f"[tool.pytest.ini_options]\npythonpath = [{str(notebooks.ROOT)!r}]")
    long = "import pytest, time\n@pytest.mark.parametrize('n', range(4))\ndef test_long(n): time.sleep(1)"
    two = "def test_c(): pass\ndef test_d(): pass"
    pytester.makepyfile(test_a="def test_a(): pass", test_b=OF_PAGES, test_c=two, test_d=long)
    ran = pytester.runpytest_subprocess("-n", "2", "--dist", "loadfile", "-v", "-p", "no:cacheprovider")
    ran.assert_outcomes(passed=11)
    done = [line.split() for line in ran.outlines if line.startswith("[gw")]  # [gw0] [ 14%] PASSED test_a.py::test_a
    assert done[0][-1] == "test_c.py::test_c"
    beside = [name for *_, name in done if "test_d.py" not in name]  # on the other worker
    pages = [f"test_b.py::test_page[{page}-{scheme}-390]" for page in ("one", "two") for scheme in ("light", "dark")]
    assert beside == ["test_c.py::test_c", "test_c.py::test_d", *pages, "test_a.py::test_a"]
    assert len({worker for worker, *_, name in done if name in beside}) == 1


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="not one of several workers")
def test_a_worker_keeps_to_the_threads_it_is_given() -> None:
    """One, if no one says otherwise: torch must not be imported before conftest.py says so."""
    assert torch.get_num_threads() == int(os.environ["OMP_NUM_THREADS"])
