"""The roofline's numbers are those of `mhalib.roofline`, and what does not fit is refused by name."""

import re

import pytest

pytest.importorskip("anywidget")

from mhalib.bench import Machine
from mhalib.costs import Sizes
from mhalib.roofline import LATENT_STEPS, MACHINES, PHASES, STEPS, latent_step_costs, step_costs
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


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize(("given", "used"), [({}, (32, 4)), ({"latent_size": 7, "rotary_size": 0}, (7, 0))])
def test_counts_the_steps_of_the_latent_layer_which_is_absorbed_in_decoding(phase, given, used):
    roof = Roofline(MINE, 96, 12, variant="latent", num_tokens=50, batch_size=5, phase=phase, **given)
    choice = {"name": "latent", "latent_size": used[0], "absorbed": phase == "decoding"}
    choice |= {"positions": "rotary", "rotary_size": used[1]} if used[1] else {}
    assert roof.costs() == latent_step_costs(choice, 96, 12, phase, 50, 5, 4)
    names = [one.name for one in roof.costs()]
    assert set(names) == set(LATENT_STEPS) - (set() if used[1] else {"W_rotary"})
    caption, _, rows = roof.table()
    kind = "absorbed latent" if phase == "decoding" else "latent"
    sizes = f"num_hiddens=96, num_heads=12, latent_size={used[0]}, rotary_size={used[1]}, num_tokens=50, batch_size=5"
    assert caption == f"Steps of {kind} attention, {phase}, stored, on this machine, at {sizes}"
    assert [row[0] for row in rows] == names


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize(("kernel", "causal"), [("stored", True), ("fused", False), ("fused", True)])
def test_counts_both_kernels(phase, kernel, causal):
    how = {"phase": phase, "kernel": kernel, "causal": causal}
    roof = Roofline(MINE, 96, 12, variant="grouped", num_tokens=50, batch_size=5, **how)
    own = {"kernel": kernel, "causal": causal}
    assert roof.costs() == step_costs(Sizes(96, 12, 3), phase, 50, 5, 4, **own)
    assert roof.step == ("fused" if kernel == "fused" else "scores")
    roof = Roofline(MINE, 96, 12, variant="latent", num_tokens=50, batch_size=5, **how)
    choice = {"name": "latent", "latent_size": 32, "absorbed": phase == "decoding"}
    choice |= {"positions": "rotary", "rotary_size": 4}
    assert roof.costs() == latent_step_costs(choice, 96, 12, phase, 50, 5, 4, **own)


@pytest.mark.parametrize(
    ("num_hiddens", "num_heads", "used"), [(4096, 32, (512, 64)), (7, 7, (4, 2)), (60, 5, (48, 6))]
)
def test_latents_have_the_ratios_of_deepseek(num_hiddens, num_heads, used):
    """d_c = 4 d and a rotary width of d / 2, so that the cache is that of GQA with 2.25 groups."""
    roof = Roofline(MINE, num_hiddens, num_heads, variant="latent")
    assert (roof.latent_size, roof.rotary_size) == used


def test_what_a_row_says_is_computed_from_its_counts():
    roof = Roofline(MINE, 96, 12, num_tokens=50, variant="grouped")
    caption, header, rows = roof.table()
    assert "num_heads=12, num_kv_heads=3, num_tokens=50" in caption
    assert "num_kv_heads" not in Roofline(MINE, 96, 12).table()[0]
    assert header == ("step", "FLOPs", "bytes", "FLOPs/byte", "bound by", "at least")
    for step, row in zip(roof.costs(), rows, strict=True):
        assert row[:4] == (step.name, f"{step.flops:,}", f"{step.moved:,}", f"{step.intensity:.2f}")
        assert row[4] == ("arithmetic" if step.intensity > MINE.ridge else "memory")
    assert {row[4] for row in rows} == {"arithmetic", "memory"}


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
        (0.0999999, "100 ms"),
    ],
)
def test_times_have_three_digits(seconds, said):
    assert in_time(seconds) == said


def test_a_trait_set_later_is_checked_too():
    roof = Roofline(num_hiddens=96, num_heads=12)
    for name, value in [
        ("num_heads", 0),
        ("num_tokens", 10**9),
        ("phase", "writing"),
        ("machine", "abacus"),
        ("kernel", "flash"),
    ]:
        with pytest.raises(ValueError, match=f"{name}={value!r}"):
            setattr(roof, name, value)
    with pytest.raises(ValueError, match="machines come too late"):
        roof.machines = []
    roof.rotary_size = 3  # of another variant: of no account here
    assert [one.name for one in roof.costs()] == list(STEPS)
    roof.variant = "latent"
    assert "rotary positions need an even rotary_size, got 3" in roof._repr_mimebundle_()[0]["text/html"]
    roof.num_heads = 5  # does not divide 96: on the way to another width
    assert "num_hiddens=96 is not divisible by num_heads=5" in roof._repr_mimebundle_()[0]["text/html"]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"machine": "abacus"}, ValueError, "machine='abacus'"),
        ({"machine": 3}, TypeError, "machine must be"),
        ({"variant": []}, ValueError, "variant=[] must be one of"),
        ({"step": []}, ValueError, "step=[] must be one of"),
        ({"num_hiddens": 100, "num_heads": 6}, ValueError, "num_hiddens=100 is not divisible by num_heads=6"),
        ({"variant": "grouped", "num_kv_heads": 5}, ValueError, "num_heads=32 is not divisible by num_kv_heads=5"),
        ({"num_tokens": 2.5}, TypeError, "num_tokens must be an integer"),
        ({"batch_size": 10**7}, ValueError, "batch_size=10000000 must be at most 1000000"),
        ({"variant": "talking"}, ValueError, "variant='talking'"),
        ({"variant": "latent", "latent_size": 0}, ValueError, "latent_size=0 must be at least 1"),
        ({"variant": "latent", "rotary_size": 3}, ValueError, "need an even rotary_size, got 3"),
        ({"variant": "latent", "rotary_size": 10**5}, ValueError, "rotary_size=100000 must be at most 65536"),
        ({"variant": "latent", "step": "W_k"}, ValueError, "step='W_k'"),
        ({"variant": "latent", "rotary_size": 0, "step": "W_rotary"}, ValueError, "step='W_rotary'"),
        ({"step": "W_down"}, ValueError, "step='W_down'"),
        ({"step": "merge"}, ValueError, "step='merge'"),
        ({"step": "fused"}, ValueError, "step='fused'"),
        ({"step": "scores", "kernel": "fused"}, ValueError, "step='scores'"),
        ({"kernel": "flash"}, ValueError, "kernel='flash' must be one of"),
        ({"causal": 1}, TypeError, "causal must be"),
    ],
)
def test_what_does_not_fit_is_refused(options, error, message):
    with pytest.raises(error, match=re.escape(message)):
        Roofline(**options)
