"""What the teacher's page promises of a sandbox, on each launcher, for the tests' own user and for an ordinary one."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import sandbox_probes

import mhalib
from mhalib_classroom.grade import Limits, __main__, _sandbox

pytestmark = [pytest.mark.grader, pytest.mark.skipif(sys.platform != "linux", reason="sandboxes are Linux's")]
MEMORY_MB = 1411 + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])  # of nobody else, to tell its processes
ORDINARY = 54_321
IN_CI = ("bubblewrap", "runc")  # are there, and are to be tested


def as_an_ordinary_user(command: list[str], folder: Path) -> list[str]:
    """The command, run by nobody that the machine knows, in a view of its files of its own: where Python or the
    package lie in a folder that is root's alone, others may enter it."""
    lines, needed = [], [sys.base_prefix, sys.prefix, str(Path(mhalib.__file__).parents[1])]
    for number, place in enumerate(map(os.path.realpath, needed)):
        closed = [one for one in (Path(place), *Path(place).parents) if one.is_dir() and not one.stat().st_mode & 0o001]
        if closed:
            kept = folder / f"kept{number}"
            kept.mkdir()
            top, inside, beside = map(shlex.quote, (str(closed[-1]), place, str(kept)))
            lines += [f"mount --bind {inside} {beside}", f"mount -t tmpfs -o mode=755 none {top}"]
            lines += [f"mkdir -p {inside}", f"mount --bind {beside} {inside}"]
    who = ["setpriv", f"--reuid={ORDINARY}", f"--regid={ORDINARY}", "--clear-groups", "--inh-caps=-all"]
    return ["unshare", "--mount", "sh", "-ec", "\n".join([*lines, shlex.join(["exec", *who, *command])])]


@pytest.fixture(scope="module", params=["as ourselves", "as an ordinary user"])
def user(request):
    if request.param == "as an ordinary user" and os.geteuid() != 0:
        pytest.skip("the tests run as an ordinary user already")
    return request.param


@pytest.fixture(scope="module", params=__main__.LAUNCHERS)
def said(request, user, tmp_path_factory):
    """What came of the cells that attack the sandbox."""
    launcher = request.param
    must = os.environ.get("CI") == "true" and launcher in IN_CI
    if not must:
        try:
            _sandbox.require_working(__main__.LAUNCHERS[launcher], Limits())
        except (FileNotFoundError, RuntimeError) as error:
            pytest.skip(f"{launcher} does not work here: {error}")
    memory_mb = MEMORY_MB + 10 * list(__main__.LAUNCHERS).index(launcher) + 100 * (user != "as ourselves")
    command = [sys.executable, sandbox_probes.__file__, launcher, str(memory_mb)]
    folder = tmp_path_factory.mktemp("user")
    if user == "as an ordinary user":
        command = as_an_ordinary_user(command, folder)
    else:  # this process has what a new one would have to load
        return sandbox_probes.tried(launcher, memory_mb)
    settings = {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/tmp"}
    settings["PYTHONPATH"] = str(Path(mhalib.__file__).parents[1])  # of the package that is tested, and no other
    ran = subprocess.run(command, capture_output=True, text=True, env=settings, timeout=300)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert found["user"] == str(ORDINARY)
    return found


@pytest.mark.parametrize("attack", sandbox_probes.CELLS)
def test_a_sandbox_keeps_what_is_promised(said, attack):
    assert re.search(sandbox_probes.CELLS[attack][1], said[attack]), said[attack]


def test_nothing_of_a_sandbox_is_left_running(said):
    assert said["left running"] == ""
