"""What the library's tests share: no windows, a device, the same examples on every run."""

import functools

import matplotlib

matplotlib.use("Agg")  # not by MPLBACKEND: the notebooks' kernels, started from the same process, would inherit it

import matplotlib.pyplot as plt
import pytest
import torch
from hypothesis import settings

settings.register_profile("book", deadline=None, derandomize=True)
settings.load_profile("book")


@pytest.fixture(params=["cpu", "cuda"], scope="session")
def device(request: pytest.FixtureRequest) -> torch.device:
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU here")
    return torch.device(request.param)


@pytest.fixture
def in_float64():
    """The same random numbers for each test, and float64 unless it says otherwise."""
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture(scope="module")
def ours(stored):
    """Our model of a case whose folder the module's fixture `stored` has written; each is read once."""
    from mhalib import pretrained

    @functools.cache
    def read(name):
        return pretrained.load(stored(name)[1]).model.requires_grad_(False)

    return read


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")
