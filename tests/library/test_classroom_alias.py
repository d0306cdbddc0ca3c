"""The classroom's name until 0.3, which course notebooks that were handed out still have."""

import subprocess
import sys

OLD = """
import sys, warnings
for said in (
    "from mhalib.classroom import checks",
    "import mhalib.classroom.checks as checks",
    "import mhalib; checks = mhalib.classroom.checks",
):
    for name in [name for name in sys.modules if name.partition(".")[0] in ("mhalib", "mhalib_classroom")]:
        del sys.modules[name]  # as in a new process, but for torch
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        exec(said)
    assert checks.__name__ == "mhalib_classroom.checks", said
    assert [str(one.message) for one in caught if one.category is FutureWarning] == [
        "mhalib.classroom is the package mhalib_classroom now: import it from there"
    ], (said, caught)
"""


def test_the_old_name_is_the_new_package_and_says_so():
    subprocess.run([sys.executable, "-W", "error::DeprecationWarning", "-c", OLD], check=True)
