"""What the library's tests share: no windows, a device, the same examples on every run."""

import functools
import json
import os

import matplotlib

matplotlib.use("Agg")  # not by MPLBACKEND: the notebooks' kernels, started from the same process, would inherit it

import matplotlib.pyplot as plt
import pytest
import torch
from hypothesis import settings

from mhalib import reference

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


@functools.cache
def told_deviations():
    """By test, as "file: function", how far apart what it compares may be, as `mhalib/reference/kinds.json` tells."""
    ways = [of[way] for of in reference.kinds().values() for way in ("loop", "identity", "program") if way in of]
    return {one["test"]: one.get("to", 1.0) for one in ways}


@pytest.fixture(autouse=True)
def _deviation_is_as_told(request, monkeypatch):
    """A test that is named there compares within ten times of what is told: other machines round otherwise. With
    MHALIB_DEVIATIONS, the name of a file, it notes there what it finds: python -m tools.evidence.kind_deviations."""
    test = f"{request.path.name}: {getattr(request.node, 'originalname', '')}"
    if test not in told_deviations() or request.node.get_closest_marker("weekly"):  # those compare in float32
        yield
        return
    assert_close, found = torch.testing.assert_close, []

    def noting(actual, expected, **settings):
        assert_close(actual, expected, **settings)
        single = isinstance(actual, torch.Tensor)
        for one, other in ((actual, expected),) if single else zip(actual, expected, strict=True):
            if one is not None and one.dtype == torch.float64:
                found.append(float((one - other).detach().abs().max()))

    monkeypatch.setattr(torch.testing, "assert_close", noting)
    yield
    path, largest = os.environ.get("MHALIB_DEVIATIONS"), max(found, default=0.0)
    if path and found:
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps([test, largest]) + "\n")
    elif not path:
        told = told_deviations()[test]
        assert largest <= 10 * max(told, 1e-15), f"{test} is off by {largest:.0e}, and kinds.json tells {told:.0e}"
