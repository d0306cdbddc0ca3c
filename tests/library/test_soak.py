"""A grader that is killed, or whose disk is full, at random places."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import mhalib

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks, and files have names in Unicode")


@pytest.mark.parametrize(
    "faults", [40, pytest.param(1000, marks=pytest.mark.weekly("mhalib_classroom/grade/", "mhalib/_write.py"))]
)
def test_nothing_is_lost_by_faults_at_random_places(faults):
    program = [sys.executable, "-W", "ignore", str(Path(__file__).with_name("soak.py")), str(faults), str(faults)]
    tested = {**os.environ, "PYTHONPATH": str(Path(mhalib.__file__).parents[1])}
    ran = subprocess.run(program, capture_output=True, text=True, timeout=1800, check=False, env=tested)
    assert ran.returncode == 0, ran.stderr[-3000:]
    said = json.loads(ran.stdout)
    assert said["faults"] >= faults
    assert min(said["killed"], said["full"], said["two at a time"]) > faults // 20
