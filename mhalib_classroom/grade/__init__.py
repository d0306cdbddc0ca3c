"""Grade a class: `python -m mhalib_classroom.grade SUBMISSIONS --out grades.csv --seed S`.

Students' code is not trusted. It runs in a sandbox without network, which knows neither the checks nor their seed: it
is sent arguments and sends back results, as JSON and raw numbers through a pipe. What is right is decided outside.
"""

from ._class import grade_class
from ._late import Deadlines, deadlines
from ._launch import Limits, bubblewrap, no_sandbox
from ._oci import crun, runc
from ._table import Row

__all__ = [
    "Deadlines",
    "Limits",
    "Row",
    "bubblewrap",
    "crun",
    "deadlines",
    "grade_class",
    "no_sandbox",
    "runc",
]
