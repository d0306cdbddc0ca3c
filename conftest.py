"""What every run of pytest in this repository needs, in whatever folder it starts."""

import os
from importlib.util import find_spec

# Two workers with two threads each on two cores wait for each other most of the time: training took eight times as
# long. Torch reads this when it is imported, which the plugins below do; kernels that nbval starts inherit it.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

pytest_plugins = [
    "tools.development.schedule",
    "tools.evidence.run_recorder",
]  # starts what takes longest first; keeps a record of what was tested
if find_spec("nbval"):  # the library's tests do without
    pytest_plugins.append(
        "tools.notebooks.nbval_statements"
    )  # compares a notebook's outputs by the kind of statement they make
