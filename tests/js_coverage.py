"""How much of the instruments' JavaScript the browser tests run: counted by Chromium, summed over tests and workers.

A line counts as run if no part of it was left out by every test. At the end of a run a table says so for each file; a
run of all tests of the instruments fails below `FLOOR`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

FLOOR = 95  # percent of each file's lines
SCRIPTS: dict[str, tuple[str, ...]] = {"instruments.js": (), "live.js": ("LiveModel",)}
"""By file: the instruments that `page_script` is given for it."""
TESTS = (
    "attention_playground",
    "cost_calculator",
    "head_explorer",
    "head_wall",
    "live_model",
    "live_moments",
    "mistake_hunt",
    "model_calculator",
    "playground_planes",
    "reshape_stepper",
    "roofline",
    "sentences",
    "sortable_table",
    "worked_example",
)
COMMENT = re.compile(r"/\*.*?\*/|(?<!:)//[^\n]*", re.DOTALL)


@dataclass
class Coverage:
    """Which characters of the script ran, as one number with a bit for each, and which functions were called."""

    run: int = 0
    called: dict[str, bool] = field(default_factory=dict)  # by "start name"

    def add(self, functions: list[dict[str, Any]]) -> None:
        """What `Profiler.takePreciseCoverage` says of one page's script: ranges, inner ones after outer ones."""
        size = max((each["endOffset"] for one in functions for each in one["ranges"]), default=0)
        page = bytearray(size)
        for one in functions:
            for each in one["ranges"]:
                start, end = each["startOffset"], each["endOffset"]
                page[start:end] = (b"\x01" if each["count"] else b"\x00") * (end - start)
            name = f"{one['ranges'][0]['startOffset']} {one['functionName']}"
            self.called[name] = self.called.get(name, False) or one["ranges"][0]["count"] > 0
        self.run |= int.from_bytes(page, "little")

    def join(self, other: dict[str, Any]) -> None:
        self.run |= int(other["run"], 16)
        for name, called in other["called"].items():
            self.called[name] = self.called.get(name, False) or called

    def as_dict(self) -> dict[str, Any]:
        return {"run": f"{self.run:x}", "called": self.called}


COVERAGE = {name: Coverage() for name in SCRIPTS}
LOW = pytest.StashKey[list[str]]()
"""What makes the run fail: the files below `FLOOR`."""


@dataclass
class Report:
    """One file: its lines and functions, and what of them no test ran."""

    name: str
    lines: int
    missed: list[int]
    functions: int
    uncalled: list[str]

    @property
    def percent(self) -> float:
        return 100 * (1 - len(self.missed) / self.lines)


def reports() -> Iterator[Report]:
    from mhalib.widgets import joinable, page_script, scripts

    of_files = [(script, file) for script, names in SCRIPTS.items() for file in scripts(*names)]
    of_files = [
        one for one in of_files if one[1].parent.name == "widgets"
    ]  # the engine of live models is tested in node
    first_in = {file: script for script, file in reversed(of_files)}  # what several scripts hold is told once
    for file, script in reversed(first_in.items()):
        whole, coverage, text = page_script(*SCRIPTS[script]), COVERAGE[script], joinable(file)
        first = whole.index(text)
        code = COMMENT.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
        run = (coverage.run >> (8 * first)).to_bytes(len(whole) + 1, "little")
        lines = [found for found in re.finditer(r"[^\n]+", code) if re.search(r"\w", found[0])]
        missed = [
            text.count("\n", 0, found.start()) + 1
            for found in lines
            if any(not run[at] for at in range(*found.span()) if not code[at].isspace())
        ]
        own = {
            name: called for name, called in coverage.called.items() if 0 <= int(name.split()[0]) - first < len(text)
        }
        uncalled = [name.partition(" ")[2] or f"at {name}" for name, called in own.items() if not called]
        yield Report(file.name, len(lines), missed, len(own), uncalled)


def ran() -> bool:
    """Whether any test opened an instrument."""
    return any(one.run for one in COVERAGE.values())


def complete(reporter: pytest.TerminalReporter) -> bool:
    """Whether all tests of the instruments ran, and passed."""
    option = reporter.config.option
    if (
        option.keyword
        or option.markexpr
        or getattr(option, "lf", False)
        or any("::" in arg for arg in option.file_or_dir)
    ):
        return False
    bad = [*reporter.stats.get("failed", []), *reporter.stats.get("error", [])]
    passed = {report.nodeid.partition("::")[0] for report in reporter.stats.get("passed", [])}
    return not bad and all(any(file.endswith(f"test_{name}.py") for file in passed) for name in TESTS)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["js_coverage"] = {name: one.as_dict() for name, one in COVERAGE.items()}
        return
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if ran() and complete(reporter):
        low = [f"{report.name}, {report.percent:.1f} %" for report in reports() if report.percent < FLOOR]
        if low:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
            session.config.stash[LOW] = low


def pytest_unconfigure(config: pytest.Config) -> None:
    """Last of all, so that whoever reads only the end of a log sees why a run without a failure fails."""
    if low := config.stash.get(LOW, None):
        print(f"FAILED: the browser tests run less than {FLOOR} % of the lines of: {'; '.join(low)}")


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    for name, one in getattr(node, "workeroutput", {}).get("js_coverage", {}).items():
        COVERAGE[name].join(one)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not ran():
        return
    terminalreporter.section("JavaScript of the instruments that these tests ran")
    all_ran = complete(terminalreporter)
    for report in reports():
        called = report.functions - len(report.uncalled)
        line = f"{report.name:24} {report.percent:5.1f} % of {report.lines} lines"
        line += f", {called} of {report.functions} functions"
        if all_ran and report.missed:  # after a part of the tests the list would be long and say nothing
            line += f"; not run: lines {spans(report.missed)}"
        if all_ran and report.percent < FLOOR:
            terminalreporter.line(f"{line}: below {FLOOR} %, the run FAILS", red=True, bold=True)
        else:
            terminalreporter.line(line)


def spans(lines: list[int]) -> str:
    """[1, 2, 3, 7] as "1–3, 7"."""
    found: list[list[int]] = []
    for line in lines:
        if found and line == found[-1][1] + 1:
            found[-1][1] = line
        else:
            found.append([line, line])
    return ", ".join(f"{first}–{last}" if last > first else f"{first}" for first, last in found)
