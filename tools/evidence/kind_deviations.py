"""How far each kind of attention is from its loop, from multi-head attention, and from an author's program.

    python -m tools.evidence.kind_deviations

runs the tests that `mhalib/reference/kinds.json` names, and writes into it, as `to`, the largest deviation of all that
each of them compares in float64. tests/library/conftest.py notes it, and fails a test that has moved away since.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from mhalib._write import write_whole
from mhalib.reference import kinds
from mhalib.reference.stored import KINDS

COMPARED = ("loop", "identity", "program")
NOTED = "MHALIB_DEVIATIONS"
"""The variable of the environment that names the file into which tests write."""
TESTS = Path(__file__).parents[2] / "tests/library"


def measured(tests: set[str]) -> dict[str, float]:
    """By test, as "file: function", the largest deviation, to one digit.

    Raises:
        RuntimeError: a test fails, or compares nothing.
    """
    with tempfile.TemporaryDirectory() as folder:
        noted = Path(folder) / "noted"
        names = [str(TESTS / test.replace(": ", "::")) for test in sorted(tests)]
        environment = {**os.environ, NOTED: str(noted), "MHALIB_TESTS": "all"}
        ran = subprocess.run([sys.executable, "-m", "pytest", "-q", "-m", "not weekly", *names], env=environment)
        lines = noted.read_text("utf-8").splitlines() if noted.exists() else []
    found: dict[str, float] = {}
    for test, deviation in map(json.loads, lines):
        found[test] = max(found.get(test, 0.0), float(f"{deviation:.0e}"))
    if ran.returncode or (left := tests - set(found)):
        raise RuntimeError(f"pytest ended with {ran.returncode}" if ran.returncode else f"nothing compared: {left}")
    return found


def written(told: dict[str, dict[str, Any]]) -> str:
    """The file: a line for each kind."""
    lines = (f" {json.dumps(kind)}: {json.dumps(of, ensure_ascii=False)}" for kind, of in told.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> None:
    told = kinds()
    each = [of[way] for of in told.values() for way in COMPARED if way in of]
    found = measured({one["test"] for one in each})
    for one in each:
        one["to"] = found[one["test"]]
    write_whole(KINDS, written(told))


if __name__ == "__main__":
    main()
