"""Time and memory are measured, not guessed: known work and known allocations come out as known."""

import math
import pickle
import re
import time
from types import SimpleNamespace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from mhalib.bench import Machine, measure_machine, median_seconds, peak_bytes, time_ratios

MILLION_FLOATS = 4_000_000  # bytes


def test_ratio_is_of_medians_and_the_baseline_is_one():
    ratios = time_ratios({"once": lambda: time.sleep(0.002), "ten times": lambda: time.sleep(0.02)}, "once", rounds=5)
    assert ratios["once"] == 1
    assert 2 < ratios["ten times"] < 50


def test_every_function_is_called_in_every_round_and_follows_another_each_time():
    calls = []
    time_ratios({name: lambda name=name: calls.append(name) for name in "abc"}, "b", rounds=20)
    rounds = ["".join(calls[i : i + 3]) for i in range(0, len(calls), 3)]
    assert len(rounds) == 21  # one goes before, uncounted
    assert {"".join(sorted(one)) for one in rounds} == {"abc"}
    assert len(set(rounds)) == 6


def test_the_median_leaves_out_the_first_round(monkeypatch):
    clock = [0.0]
    lasts = iter([100.0, 1.0, 9.0, 2.0])  # the mean of the last three is 4
    monkeypatch.setattr("mhalib.bench.time", SimpleNamespace(perf_counter=lambda: clock[0]))
    found = median_seconds({"a": lambda: clock.__setitem__(0, clock[0] + next(lasts))}, rounds=3)
    assert found == {"a": 2.0}


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


SMALL = {"size": 64, "num_bytes": 2**20, "rounds": 3}


def test_a_machine_is_measured_beside_functions_in_the_same_rounds():
    calls = []
    machine, seconds = measure_machine({"nap": lambda: calls.append(time.sleep(0.01))}, **SMALL)
    assert len(calls) == 4  # one round goes before, uncounted
    assert seconds.keys() == {"nap"}
    assert 0.01 < seconds["nap"] < 1
    assert machine.bytes_per_number == 4
    assert machine.peak > 1e7
    assert machine.bandwidth > 1e7


def test_a_machines_limits_are_those_of_a_product_and_a_copy(monkeypatch):
    """With a clock that gives each call its own second: 2 n³ operations, and 2 bytes for each that is copied."""
    monkeypatch.setattr("mhalib.bench.median_seconds", lambda functions, rounds: dict.fromkeys(functions, 0.5))
    machine, _ = measure_machine(dtype=torch.bfloat16, **SMALL)
    assert machine[1:] == (2 * 64**3 / 0.5, 2 * 2**20 / 0.5, 2)


class Watch(TorchDispatchMode):
    """What torch is asked for: operation, and type and shape of each tensor."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        tensors = [x for x in (*args, *(kwargs or {}).values()) if isinstance(x, torch.Tensor)]
        self.seen.append((func.overloadpacket.__name__, [(x.dtype, tuple(x.shape), x.device.type) for x in tensors]))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_machine_is_measured_by_one_product_and_one_copy_of_the_sizes_asked_for(device, monkeypatch):
    watched = []

    def watch(functions, rounds):
        lasts = {}
        for name, function in functions.items():
            with Watch() as watch:
                function()
            lasts[name] = {"mm": 0.5, "copy_": 0.25}.get(watch.seen[0][0] if watch.seen else "", 1)
            watched.append(watch.seen)
        watched.append(rounds)
        return lasts

    monkeypatch.setattr("mhalib.bench.median_seconds", watch)
    monkeypatch.setattr("mhalib.bench._require_memory", lambda name, device: None)  # another device that is everywhere
    machine, seconds = measure_machine({"none": int}, dtype=torch.bfloat16, device=device, **SMALL)
    matrix, array = (torch.bfloat16, (64, 64), device), (torch.uint8, (2**20,), device)
    assert watched == [[("mm", [matrix] * 3)], [("copy_", [array] * 2)], [], 3]  # all in one call
    assert machine[1:] == (2 * 64**3 / 0.5, 2 * 2**20 / 0.25, 2)
    assert seconds == {"none": 1}


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"size": 0}, ValueError, "size=0 must be at least 1"),
        ({"num_bytes": 1.5}, TypeError, "num_bytes must be an integer"),
        ({"dtype": torch.int8}, TypeError, "dtype=torch.int8 must be a torch.dtype of floating-point numbers"),
        ({"functions": [int]}, TypeError, "functions must be"),
        ({"device": "meta"}, ValueError, "device='meta' has shapes and no numbers"),
        ({"device": torch.device("meta")}, ValueError, "device='meta' has shapes and no numbers"),
        ({"device": "nowhere"}, ValueError, "device='nowhere' cannot be used here"),
    ],
)
def test_a_machine_is_not_measured_with_nonsense(options, error, message):
    with pytest.raises(error, match=message):
        measure_machine(**{**SMALL, **options})


def test_memory_without_numbers_is_not_measured():
    with pytest.raises(ValueError, match="device='meta' has shapes and no numbers"):
        peak_bytes(lambda: torch.ones(5), "meta")


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"peak": 0}, ValueError, "peak=0 must be positive and finite"),
        ({"peak": math.nan}, ValueError, "peak=nan must be positive and finite"),
        ({"peak": "1e12"}, TypeError, "peak must be a number, got str"),
        ({"bandwidth": -1.0}, ValueError, "bandwidth=-1.0 must be positive and finite"),
        ({"bandwidth": math.inf}, ValueError, "bandwidth=inf must be positive and finite"),
        ({"bandwidth": True}, TypeError, "bandwidth must be a number, got bool"),
        ({"bytes_per_number": 0}, ValueError, "bytes_per_number=0 must be at least 1"),
        ({"bytes_per_number": 2.5}, TypeError, "bytes_per_number must be an integer"),
        ({"name": None}, TypeError, "name must be a string, got NoneType"),
        ({"name": " "}, ValueError, "name=' ' must say what the machine is called"),
    ],
)
def test_no_machine_has_nonsense_for_limits(change, error, message):
    right = {"name": "mine", "peak": 1e12, "bandwidth": 1e11, "bytes_per_number": 2}
    machine = Machine(**right)
    for make in (lambda: Machine(**right | change), lambda: machine._replace(**change)):
        with pytest.raises(error, match=re.escape(message)):
            make()
    with pytest.raises(error, match=re.escape(message)):
        Machine._make({**right, **change}.values())


def test_a_machine_is_a_tuple_and_comes_back_from_a_pickle():
    machine = Machine("mine", 100.0, 10.0, 4)
    assert tuple(machine) == ("mine", 100.0, 10.0, 4)
    again = pickle.loads(pickle.dumps(machine))
    assert (type(again), again) == (Machine, machine)
    assert repr(machine) == "Machine(name='mine', peak=100.0, bandwidth=10.0, bytes_per_number=4)"
    assert type(machine._replace(peak=5)) is Machine
    assert machine._replace(peak=5).ridge == 0.5
