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
SCRIPT = "/instruments.js"
TESTS = (
    "attention_playground",
    "cost_calculator",
    "head_explorer",
    "head_wall",
    "playground_planes",
    "reshape_stepper",
    "roofline",
    "sentences",
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


COVERAGE = Coverage()


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

    whole = page_script()
    for file in scripts():
        text = joinable(file)
        first = whole.index(text)
        code = COMMENT.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
        run = (COVERAGE.run >> (8 * first)).to_bytes(len(whole) + 1, "little")
        lines = [found for found in re.finditer(r"[^\n]+", code) if re.search(r"\w", found[0])]
        missed = [
            text.count("\n", 0, found.start()) + 1
            for found in lines
            if any(not run[at] for at in range(*found.span()) if not code[at].isspace())
        ]
        own = {
            name: called for name, called in COVERAGE.called.items() if 0 <= int(name.split()[0]) - first < len(text)
        }
        uncalled = [name.partition(" ")[2] or f"at {name}" for name, called in own.items() if not called]
        yield Report(file.name, len(lines), missed, len(own), uncalled)


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
        session.config.workeroutput["js_coverage"] = COVERAGE.as_dict()
        return
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if COVERAGE.run and complete(reporter) and any(report.percent < FLOOR for report in reports()):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    COVERAGE.join(getattr(node, "workeroutput", {}).get("js_coverage", Coverage().as_dict()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not COVERAGE.run:
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
