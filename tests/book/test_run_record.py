"""The page *How we know it is right* says what the stored record says, and no run that failed is stored."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

import mhalib
from tools.evidence import bench_page, run_record, run_recorder
from tools.notebooks import notebooks

MACHINE = {"system": "Linux", "processor": "x86-64", "cores": 2, "gpu": False, "python": "3.12.1", "torch": "2.13.0"}


def run(**changes):
    """A whole run without a failure: two tests of each kind, one of them skipped."""
    kinds = {kind: {"passed": 1001, "failed": 0, "skipped": 1} for kind in run_recorder.KINDS}
    whole = {
        "date": "2026-11-23",
        "commit": "0123456789abcdef",
        "clean": True,
        "chosen": False,
        "files": 130,
        "missing": [],
    }
    rest = {"notebooks": 3, "minutes": 25, "machine": MACHINE, "kinds": kinds, "skips": {"no GPU here": 7}}
    return {**whole, **rest, **changes}


def kept(**changes):
    extra = {"version": "0.3.0", "exercises": {"exercises": 5, "wrong": 1078}, "missing": 0}
    extra |= {"statements": {"exact": 4}, "seeds": {"chapters": 2, "numbers": 1522, "runs": 10}}
    return {**run(), **extra, "deviations": [["JAX", "no keys", "5e-06", "7e-15"]], **changes}


def test_the_page_says_what_is_stored() -> None:
    page = run_record.PAGE.read_text(encoding="utf-8")
    section = page.partition(run_record.BEGIN)[2].partition(run_record.END)[0].strip()
    assert section == run_record.text(run_record.kept()), "run  python -m tools.evidence.run_record --page"


def test_the_record_is_of_no_later_version_and_names_its_commit() -> None:
    """Commits since do not make it stale, and the page says that they are not in it. Only a release asks for a record
    of its own version, or no test of a new version could ever pass: `make release`."""
    found = run_record.kept()
    recorded, now = (tuple(map(int, version.split("."))) for version in (found["version"], mhalib.__version__))
    assert recorded <= now
    assert len(found["commit"]) == 40


@pytest.mark.tool
def test_every_kind_has_files_and_words() -> None:
    assert set(run_record.SAID) == set(run_recorder.KINDS)
    files = run_recorder.test_files(notebooks.ROOT)
    assert {run_recorder.kind_of(f"{file}::test", ()) for file in files} == set(run_recorder.KINDS) - {"browser"}
    for starts in run_recorder.KINDS.values():
        for start in starts:
            assert any(file.startswith(start) for file in files), start


@pytest.mark.tool
@pytest.mark.parametrize(
    ("nodeid", "marks", "kind"),
    [
        ("chapters/01_weighted_average.ipynb::Cell 3", (), "cells"),
        ("tests/library/test_grade.py::test_x[fork]", (), "hostile"),
        ("tests/library/test_checks.py::test_x", (), "mistakes"),
        ("tests/library/test_reference.py::test_x", (), "elsewhere"),
        ("tests/library/test_masks.py::test_x", (), "library"),
        ("tests/book/test_pages.py::test_x", ("browser",), "browser"),
        ("tests/book/test_quick.py::test_x", ("tool",), "tools"),
    ],
)
def test_a_test_is_of_one_kind(nodeid, marks, kind) -> None:
    assert run_recorder.kind_of(nodeid, marks) == kind


def report(nodeid, outcome, when="call", longrepr=None):
    state = {name: name == outcome for name in run_recorder.OUTCOMES}
    return SimpleNamespace(nodeid=nodeid, outcome=outcome, when=when, keywords={}, longrepr=longrepr, **state)


@pytest.mark.tool
def test_a_test_counts_once_and_a_failure_at_its_end_counts() -> None:
    recorder = run_recorder.Recorder()
    name = "tests/library/test_masks.py::test_"
    recorder.pytest_runtest_logreport(report(f"{name}a", "passed", "setup"))
    recorder.pytest_runtest_logreport(report(f"{name}a", "passed"))
    recorder.pytest_runtest_logreport(report(f"{name}b", "passed"))
    recorder.pytest_runtest_logreport(report(f"{name}b", "failed", "teardown"))
    recorder.pytest_runtest_logreport(report(f"{name}d", "failed"))
    recorder.pytest_runtest_logreport(report(f"{name}d", "skipped", "teardown", ("f", 3, "Skipped: no GPU here")))
    recorder.pytest_runtest_logreport(report(f"{name}c", "skipped", "setup", ("f", 3, "Skipped: no GPU here")))
    recorder.pytest_collectreport(report("tests/library/test_gates.py", "skipped", "", ("f", 1, "Skipped: no torch")))
    made = recorder.record(chosen=False)
    assert made["kinds"]["library"] == {"passed": 1, "failed": 2, "skipped": 2}
    assert made["skips"] == {"no GPU here": 2, "no torch": 1}
    assert "tests/library/test_gates.py" not in made["missing"]
    assert "tests/library/test_kernels.py" in made["missing"]
    assert json.loads(json.dumps(made)) == made


@pytest.mark.tool
@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"kinds": {"library": {"passed": 5, "failed": 1, "skipped": 0}}}, "1 tests failed"),
        ({"missing": ["a", "b"]}, "2 files were not run, a for one"),
        ({"chosen": True}, "-k or -m chose some"),
        ({"clean": False}, "had changes that were not committed"),
    ],
)
def test_what_is_not_a_whole_run_without_failures_is_not_stored(changes, why, tmp_path, monkeypatch, capsys) -> None:
    made, page = tmp_path / "record.json", tmp_path / "page.md"
    page.write_text(f"# Title\n\n{run_record.BEGIN}\n{run_record.END}\n", encoding="utf-8")
    monkeypatch.setattr(run_recorder, "RECORD", made)
    monkeypatch.setattr(run_record, "KEPT", tmp_path / "records/main.json")
    monkeypatch.setattr(run_record, "stored", lambda run: kept(**{**run, "missing": 0}))
    monkeypatch.setattr(
        run_record, "write_page", lambda: bench_page.rewrite(page, run_record.text(run_record.kept()), run_record.MARKS)
    )
    made.write_text(json.dumps(run(**changes)), encoding="utf-8")
    assert run_record.main([]) == 1
    assert why in capsys.readouterr().err
    assert not run_record.KEPT.exists()
    run_recorder.write(run())
    run_recorder.write(run(missing=["a", "b"]))  # a few tests afterwards do not cost the record of all
    assert run_record.main([]) == 0
    assert "## The last whole run" in page.read_text(encoding="utf-8")


@pytest.mark.tool
def test_the_page_gives_counts_the_machine_and_what_was_skipped() -> None:
    said = run_record.text(kept())
    assert "7,007 tests passed and 7 were skipped, in 25 minutes" in said
    assert "commit `0123456789`, on Linux on x86-64, 2 cores, no GPU, Python 3.12.1, torch 2.13.0: " in said
    assert "| no GPU here | 7 |" in said
    assert "The 5 exercises in code know 1,078 wrong versions." in said
    assert r"| JAX | no keys | $5 \cdot 10^{-6}$ | $7 \cdot 10^{-15}$ |" in said
