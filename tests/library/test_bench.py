"""Time and memory are measured, not guessed: known work and known allocations come out as known."""

import time

import pytest
import torch

from mhalib.bench import median_seconds, peak_bytes, time_ratios

MILLION_FLOATS = 4_000_000  # bytes


def test_ratio_is_of_medians_and_the_baseline_is_one():
    ratios = time_ratios({"once": lambda: time.sleep(0.002), "ten times": lambda: time.sleep(0.02)}, "once", rounds=5)
    assert ratios["once"] == 1
    assert 2 < ratios["ten times"] < 50


def test_every_function_is_called_in_every_round_in_turn():
    calls = []
    time_ratios({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, "b", rounds=3)
    assert calls == ["a", "b", "b", "a"] * 2  # one round goes before, uncounted; each begins with another one


def test_medians_are_seconds():
    seconds = median_seconds({"short": lambda: time.sleep(0.002), "long": lambda: time.sleep(0.02)}, rounds=3)
    assert 0.001 < seconds["short"] < seconds["long"] < 1


@pytest.mark.parametrize(
    ("function", "floats"),
    [
        (lambda: torch.ones(1000, 1000), 1_000_000),
        (lambda: [torch.ones(1000, 500), torch.ones(1000, 500)], 1_000_000),  # both live at one moment
        (lambda: [torch.ones(1000, 500).sum() for _ in range(7)], 500_000),  # one after the other
        (lambda: torch.ones(1000, 1000) + torch.ones(1000, 1000), 3_000_000),
        (lambda: _exp_and_back(torch.zeros(1000, 1000, requires_grad=True)), 3_000_000),
    ],
    ids=["one", "two at once", "in turn", "a sum", "backward"],
)
def test_peak_counts_what_is_held_at_one_moment(function, floats):
    assert peak_bytes(function) == pytest.approx(4 * floats, rel=0.01)


def test_peak_sees_inside_the_kernels():
    q = torch.randn(1, 7, 512, 16)
    scores = 7 * 512 * 512 * 4
    assert peak_bytes(lambda: (q @ q.mT).softmax(-1) @ q) >= 2 * scores
    assert peak_bytes(lambda: torch.nn.functional.scaled_dot_product_attention(q, q, q)) < scores


def test_peak_prints_nothing(capfd):
    peak_bytes(lambda: torch.ones(5))
    assert capfd.readouterr() == ("", "")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_peak_on_a_gpu():
    assert peak_bytes(lambda: torch.ones(1000, 1000, device="cuda"), "cuda") >= MILLION_FLOATS


def _exp_and_back(x):
    """Three arrays are held at the end of the way back: x, its exponential, and its gradient."""
    x.exp().sum().backward()


def test_errors_name_the_argument():
    with pytest.raises(ValueError, match=r"baseline='c' is not among the functions: \['a'\]"):
        time_ratios({"a": int}, "c")
    with pytest.raises(ValueError, match="rounds=0 must be at least 1"):
        time_ratios({"a": int}, "a", rounds=0)


def test_names_may_be_tuples_of_sizes():
    ratios = time_ratios({(1, True): lambda: sum(range(2000)), (4, False): lambda: sum(range(2000))}, (4, False), 3)
    assert set(ratios) == {(1, True), (4, False)}
    assert ratios[4, False] == 1
