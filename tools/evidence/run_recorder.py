"""Plugin of pytest: writes what a run of all tests found, on which Python, torch and system, to _build/record.json.

Part of the tests writes nothing, so that one more test afterwards does not cost the record of all.

`python -m tools.evidence.run_record` stores the record of a whole run, and writes it into *How we know it is right*.
pytest's own `--junitxml` knows neither the marks by which tests are counted here, nor the commit, nor what did not run.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections import Counter
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from tools import ROOT

RECORD = ROOT / "_build/record.json"
KINDS: dict[str, tuple[str, ...]] = {  # in the order of the page; a test is of the first kind that fits
    "cells": ("chapters/",),
    "hostile": ("tests/library/test_grade.py",),
    "mistakes": ("tests/library/test_checks.py",),
    "elsewhere": (
        "tests/library/test_frameworks",
        "tests/library/test_variants_elsewhere.py",
        "tests/library/test_variants_delta.py",
        "tests/library/test_reference.py",
        "tests/library/test_translations.py",
        "tests/library/test_decoders.py",
        "tests/library/test_encoder_decoders.py",
        "tests/library/test_architectures.py",
        "tests/library/test_pretrained",
        "tests/book/test_notation.py",
    ),
    "library": ("tests/library/",),
    "browser": (),  # what carries the mark `browser`
    "tools": ("tests/book/",),
}
OUTCOMES = ("passed", "failed", "skipped")


def kind_of(nodeid: str, marks: Any) -> str:
    """The kind of a test, by its file, or by its mark."""
    if "browser" in marks and not nodeid.startswith(KINDS["cells"]):
        return "browser"
    return next((kind for kind, start in KINDS.items() if nodeid.startswith(start)), "tools")


def reason(report: Any) -> str:
    """Why a test was skipped, without the place in the file."""
    said = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return said.removeprefix("Skipped: ").splitlines()[0]


def git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def machine() -> dict[str, Any]:
    """The system in words that name no machine, and the versions that matter for numbers."""
    import torch

    processor = {"x86_64": "x86-64", "AMD64": "x86-64", "aarch64": "Arm", "arm64": "Arm"}
    return {
        "system": {"Darwin": "macOS"}.get(platform.system(), platform.system()),
        "processor": processor.get(platform.machine(), "another processor"),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "gpu": torch.cuda.is_available() or torch.backends.mps.is_available(),
        "python": platform.python_version(),
        "torch": torch.__version__.partition("+")[0],
    }


def test_files(root: Path) -> set[str]:
    """Every file that a whole run executes."""
    found = {*root.glob("tests/*/test_*.py"), *root.glob("chapters/*.ipynb")}
    return {path.relative_to(root).as_posix() for path in found}


class Recorder:
    """Counts reports. A test has failed if its set-up, its call or its end has."""

    def __init__(self, root: Path = ROOT) -> None:
        self.root, self.begun = root, time.monotonic()
        self.outcomes: dict[str, tuple[str, str]] = {}
        self.reasons: dict[str, str] = {}
        self.commit, self.clean = git("rev-parse", "HEAD"), not git("status", "--porcelain")

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call" and report.passed:
            return
        self.count(report.nodeid, kind_of(report.nodeid, report.keywords), report)

    @pytest.hookimpl
    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if not report.passed:  # a file that cannot be read, or asks for a library that is not there
            self.count(report.nodeid, kind_of(report.nodeid, ()), report)

    def count(self, nodeid: str, kind: str, report: Any) -> None:
        if self.outcomes.get(nodeid, ("", ""))[1] != "failed":
            self.outcomes[nodeid] = kind, report.outcome
        if report.skipped:
            self.reasons[nodeid] = reason(report)

    def record(self, chosen: bool) -> dict[str, Any]:
        """What was counted. `chosen`: only some of the tests in each file were asked for."""
        kinds = {kind: dict.fromkeys(OUTCOMES, 0) for kind in KINDS}
        for kind, outcome in self.outcomes.values():
            kinds[kind][outcome] += 1
        seen, files = {nodeid.partition("::")[0] for nodeid in self.outcomes}, test_files(self.root)
        return {
            "date": datetime.now(timezone.utc).date().isoformat(),
            "commit": self.commit,
            "clean": self.clean,
            "chosen": chosen,
            "files": len(files),
            "missing": sorted(files - seen),
            "notebooks": len({name for name in seen if name.endswith(".ipynb")}),
            "minutes": max(1, round((time.monotonic() - self.begun) / 60)),
            "machine": machine(),
            "kinds": kinds,
            "skips": dict(sorted(Counter(self.reasons.values()).items())),
        }


@pytest.hookimpl
def pytest_configure(config: pytest.Config) -> None:
    # Not in a worker of xdist, nor in a run of pytest that a test started
    if not hasattr(config, "workerinput") and config.rootpath == ROOT and "PYTEST_CURRENT_TEST" not in os.environ:
        config.pluginmanager.register(Recorder(), "recorder")


@pytest.hookimpl
def pytest_sessionfinish(session: pytest.Session) -> None:
    recorder = session.config.pluginmanager.get_plugin("recorder")
    if isinstance(recorder, Recorder) and recorder.outcomes:
        chosen = bool(session.config.getoption("keyword") or session.config.getoption("markexpr"))
        write(recorder.record(chosen))


def write(found: dict[str, Any]) -> None:
    """Store what a run found, if it was a whole one."""
    if not found["chosen"] and not found["missing"]:
        RECORD.parent.mkdir(exist_ok=True)
        RECORD.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
