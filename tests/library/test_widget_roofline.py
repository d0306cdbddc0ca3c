"""The roofline's numbers are those of `mhalib.roofline`, and what does not fit is refused by name."""

import re

import pytest

pytest.importorskip("anywidget")

from mhalib.bench import Machine
from mhalib.costs import Sizes
from mhalib.roofline import MACHINES, PHASES, step_costs
from mhalib.widgets import Roofline
from mhalib.widgets.roofline import in_time

MINE = Machine("this machine", 72e9, 11e9, 4)


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize(
    ("variant", "given", "shared"),
    [("multi-head", None, 12), ("grouped", None, 3), ("grouped", 6, 6), ("multi-query", None, 1)],
)
def test_counts_the_steps_of_the_layer(phase, variant, given, shared):
    roof = Roofline(MINE, 96, 12, variant=variant, num_kv_heads=given, num_tokens=50, batch_size=5, phase=phase)
    assert roof.costs() == step_costs(Sizes(96, 12, shared), phase, 50, 5, 4)
    roof.machine = "NVIDIA T4"
    assert roof.costs() == step_costs(Sizes(96, 12, shared), phase, 50, 5, 2)
    assert roof.limits() == MACHINES["NVIDIA T4"]


def test_a_measured_machine_comes_first_and_is_chosen():
    roof = Roofline(MINE)
    assert roof.limits() == MINE
    assert [one[0] for one in roof.machines] == ["this machine", *MACHINES]
    assert [one[0] for one in Roofline().machines] == list(MACHINES)


def test_a_machine_of_ones_own_may_have_a_known_name():
    own = Machine("NVIDIA T4", 1e12, 1e11, 2)
    roof = Roofline(own)
    assert roof.limits() == own
    assert roof.machines[0] == list(own)
    assert len(roof.machines) == len(MACHINES)


def test_what_a_cell_stores_is_the_numbers_and_not_the_script():
    roof = Roofline(MINE, 96, 12, num_tokens=50)
    data, _ = roof._repr_mimebundle_()
    assert data["text/html"] == Roofline(MINE, 96, 12, num_tokens=50)._repr_mimebundle_()[0]["text/html"]
    assert "function" not in data["text/html"]
    for step in roof.costs():
        assert f"{step.flops:,}" in data["text/html"]
        assert in_time(MINE.seconds(*step[1:])) in data["text/html"]


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (1234.5, "1,230 s"),
        (2.5, "2.50 s"),
        (0.0123, "12.3 ms"),
        (4.56e-5, "45.6 µs"),
        (7e-9, "7.00 ns"),
        (4.44e-10, "0.444 ns"),
    ],
)
def test_times_have_three_digits(seconds, said):
    assert in_time(seconds) == said


def test_a_trait_set_later_is_checked_too():
    roof = Roofline(num_hiddens=96, num_heads=12)
    for name, value in [("num_heads", 0), ("num_tokens", 10**9), ("phase", "writing"), ("machine", "abacus")]:
        with pytest.raises(ValueError, match=f"{name}={value!r}"):
            setattr(roof, name, value)
    with pytest.raises(ValueError, match="machines come too late"):
        roof.machines = []
    roof.num_heads = 5  # does not divide 96: on the way to another width
    assert "num_hiddens=96 is not divisible by num_heads=5" in roof._repr_mimebundle_()[0]["text/html"]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"machine": "abacus"}, ValueError, "machine='abacus'"),
        ({"machine": 3}, TypeError, "machine must be"),
        ({"variant": []}, ValueError, "variant=[] must be one of"),
        ({"step": None}, ValueError, "step=None must be one of"),
        ({"num_hiddens": 100, "num_heads": 6}, ValueError, "num_hiddens=100 is not divisible by num_heads=6"),
        ({"variant": "grouped", "num_kv_heads": 5}, ValueError, "num_heads=32 is not divisible by num_kv_heads=5"),
        ({"num_tokens": 2.5}, TypeError, "num_tokens must be an integer"),
        ({"batch_size": 10**7}, ValueError, "batch_size=10000000 must be at most 1000000"),
        ({"variant": "latent"}, ValueError, "variant='latent'"),
        ({"step": "merge"}, ValueError, "step='merge'"),
    ],
)
def test_what_does_not_fit_is_refused(options, error, message):
    with pytest.raises(error, match=re.escape(message)):
        Roofline(**options)
