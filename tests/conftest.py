"""What all tests share, notebooks included: one thread for each worker.

Two workers with two threads each on two cores wait for each other most of the time: training took eight times as long.
Kernels that nbval starts inherit the variable.
"""

import os

from js_coverage import pytest_sessionfinish, pytest_terminal_summary, pytest_testnodedown  # noqa: F401

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
