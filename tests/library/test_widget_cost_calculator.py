"""The costs equal what torch counts, and sizes that do not fit are refused by name."""

import hashlib
import re
import sys
from types import SimpleNamespace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

pytest.importorskip("anywidget")

from mhalib import MultiHeadAttention, costs
from mhalib.attention import make_attention
from mhalib.widgets import CostCalculator


@pytest.mark.parametrize(("num_hiddens", "num_heads", "num_tokens", "batch_size"), [(60, 5, 7, 3), (64, 1, 11, 2)])
def test_parameters_flops_and_scores_are_those_of_a_layer(num_hiddens, num_heads, num_tokens, batch_size):
    layer = MultiHeadAttention(num_hiddens, num_heads)
    x = torch.randn(batch_size, num_tokens, num_hiddens)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        _, weights = layer(x, x, x)
    costs = CostCalculator(
        num_hiddens, num_heads, num_layers=3, num_tokens=num_tokens, batch_size=batch_size, bytes_per_number=4
    ).costs()
    assert costs["parameters"] == 3 * sum(parameter.numel() for parameter in layer.parameters())
    assert costs["flops"] == 3 * counter.get_total_flops()
    assert costs["score_bytes"] == weights.untyped_storage().nbytes()


def test_shared_keys_are_counted_as_made():
    """h = 6 heads, g = 2 of keys and values, each 5 wide."""
    made = [torch.nn.Linear(30, width, bias=False) for width in (30, 10, 10, 30)]
    costs = CostCalculator(30, 6, num_kv_heads=2, num_layers=4, num_tokens=7, batch_size=3, bytes_per_number=2).costs()
    assert costs["parameters"] == 4 * sum(linear.weight.numel() for linear in made)
    kept = [linear(torch.zeros(3, 7, 30)).to(torch.bfloat16) for linear in made[1:3]]
    assert costs["cache_bytes"] == 4 * sum(x.numel() * x.element_size() for x in kept)


@pytest.mark.parametrize(
    ("sizes", "error", "message"),
    [
        ({"num_hiddens": 100, "num_heads": 6}, ValueError, "num_hiddens=100 is not divisible by num_heads=6"),
        ({"num_heads": 12, "num_kv_heads": 5}, ValueError, "num_heads=12 is not divisible by num_kv_heads=5"),
        ({"num_layers": 0}, ValueError, "num_layers=0 must be at least 1"),
        ({"num_tokens": 2.5}, TypeError, "num_tokens must be an integer"),
        ({"num_hiddens": 131_072, "num_heads": 1}, ValueError, "num_hiddens=131072 must be at most 65536"),
        ({"bytes_per_number": 3}, ValueError, "bytes_per_number=3 must be 1, 2, 4 or 8"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(sizes, error, message):
    with pytest.raises(error, match=re.escape(message)):
        CostCalculator(**sizes)


def test_a_trait_set_later_is_checked_too():
    calculator = CostCalculator()
    for name, value in [("num_heads", 0), ("num_tokens", 10**9), ("bytes_per_number", 3)]:
        with pytest.raises(ValueError, match=f"{name}={value} must be"):
            setattr(calculator, name, value)
    calculator.num_heads = 5  # does not divide 768: on the way to another width
    assert "num_hiddens=768 is not divisible by num_heads=5" in calculator._repr_mimebundle_()[0]["text/html"]
    calculator.num_hiddens = 100
    with pytest.raises(ValueError, match="num_heads=5 is not divisible by num_kv_heads=12"):
        calculator.costs()
    calculator.num_kv_heads = 5
    assert calculator.costs()["parameters"] > 0


def test_what_a_cell_stores_is_the_numbers_and_not_the_script():
    calculator = CostCalculator(num_hiddens=96)
    data, _ = calculator._repr_mimebundle_()
    assert data["text/html"] == CostCalculator(num_hiddens=96)._repr_mimebundle_()[0]["text/html"]
    assert "function" not in data["text/html"]
    assert f"{calculator.costs()['parameters']:,}" in data["text/html"]
    calculator.num_layers = 1
    assert f"{calculator.costs()['parameters']:,}" in calculator._repr_mimebundle_()[0]["text/html"]


VARIANTS = [
    ("multi-head", {}),
    ("grouped", {"num_kv_heads": 2}),
    ("grouped", {}),
    ("multi-query", {}),
    ("latent", {"latent_size": 7, "rotary_size": 0}),
    ("latent", {"latent_size": 7, "rotary_size": 4}),
    ("latent", {"absorbed": True}),
    ("talking", {}),
    ("collaborative", {"shared_size": 11}),
    ("overlapping", {"overlap": 3}),
    ("overlapping", {"overlap": 0}),
    ("mixture", {"num_shared": 2, "num_chosen": 1}),
    ("mixture", {"num_shared": 0}),
    ("mixture", {"num_shared": 6}),
    ("composed", {"rank": 3}),
    ("differential", {}),
    ("gated", {}),
    ("gated", {"per_channel": True}),
    ("qk-norm", {}),
]


@pytest.mark.parametrize(("variant", "settings"), VARIANTS)
def test_a_variants_costs_are_those_of_its_layer(variant, settings):
    calculator = CostCalculator(
        36, 6, num_layers=3, num_tokens=7, batch_size=2, bytes_per_number=4, variant=variant, **settings
    )
    x = torch.randn(2, 7, 36)
    plain = costs.measured(MultiHeadAttention(36, 6), x)
    own = costs.measured(make_attention(calculator.choice(), 36, 6), x)
    found = calculator.comparison()
    assert found["parameters"] == (3 * plain.parameters, 3 * own.parameters)
    assert found["flops"] == (3 * plain.flops, 3 * own.flops)
    assert found["cache_bytes_per_token"] == (3 * plain.cache_bytes / 14, 3 * own.cache_bytes / 14)
    assert ("chosen_flops" in found) == (variant == "mixture")
    assert calculator.costs() == {name: one for name, (_, one) in found.items()}


def test_only_chosen_heads_are_counted_where_others_are_skipped():
    few, many = (
        CostCalculator(36, 6, num_layers=3, num_tokens=7, batch_size=2, variant="mixture", num_chosen=k).costs()
        for k in (1, 5)
    )
    assert many["chosen_flops"] == many["flops"] == few["flops"]
    choice = {"name": "mixture", "num_shared": 1, "num_chosen": 1}
    assert few["chosen_flops"] == 3 * costs.chosen_flops(choice, 36, 6, 7, 2)


@pytest.mark.parametrize(
    ("sizes", "kv_heads", "chosen"), [((768, 12), 3, 6), ((60, 6), 3, 3), ((20, 5), 1, 2), ((8, 1), 1, 0)]
)
def test_what_is_not_said_of_a_variant_is_filled_in(sizes, kv_heads, chosen):
    calculator = CostCalculator(*sizes, variant="grouped")
    assert (calculator.num_kv_heads, calculator.num_chosen) == (kv_heads, chosen)
    d = sizes[0] // sizes[1]
    assert (calculator.latent_size, calculator.shared_size) == (2 * d, sizes[0] // 2)
    calculator.variant = "multi-query"
    assert calculator.choice() == {"name": "multi-head", "num_kv_heads": 1}


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"variant": "entmax2"}, ValueError, "variant='entmax2' must be one of ('multi-head', 'grouped'"),
        ({"variant": {"name": "entmax2"}}, ValueError, "must name one of"),
        ({"variant": "entmax", "rank": 3}, ValueError, "rank=3 is of a variant"),
        ({"variant": 3}, ValueError, "variant=3 must be one of"),
        ({"variant": "grouped", "num_kv_heads": 5}, ValueError, "num_heads=12 is not divisible by num_kv_heads=5"),
        ({"variant": "latent", "rotary_size": 3}, ValueError, "need an even rotary_size, got 3"),
        ({"variant": "latent", "latent_size": 0}, ValueError, "latent_size=0 must be at least 1"),
        ({"variant": "latent", "absorbed": 1}, TypeError, "absorbed must be True or False"),
        ({"variant": "collaborative", "shared_size": 2.5}, TypeError, "shared_size must be an integer"),
        ({"variant": "mixture", "num_shared": 13, "num_chosen": 0}, ValueError, "num_shared=13, but there are"),
        ({"variant": "mixture", "num_chosen": 12}, ValueError, "num_chosen=12, but only 11 heads are left"),
        ({"variant": "composed", "rank": 65}, ValueError, "rank=65 must be at most 64"),
        ({"num_hiddens": 36, "variant": "differential"}, ValueError, "not divisible by 2 * num_heads=24"),
        ({"variant": "gated", "per_channel": "yes"}, TypeError, "per_channel must be True or False"),
        ({"rank": 3}, ValueError, "rank=3 is of a variant, and variant is None"),
        ({"absorbed": True}, ValueError, "absorbed=True is of a variant"),
        ({"latent_size": 8}, ValueError, "latent_size=8 is of a variant"),
    ],
)
def test_variants_that_do_not_fit_are_refused(arguments, error, message):
    with pytest.raises(error, match=re.escape(message)):
        CostCalculator(**arguments)


def test_a_variant_set_later_is_checked_too():
    calculator = CostCalculator(variant="gated")
    for name, value in [("variant", "entmax"), ("rank", 0), ("overlap", -1)]:
        with pytest.raises(ValueError, match=f"{name}="):
            setattr(calculator, name, value)
    calculator.variant = "overlapping"
    calculator.overlap = 100  # beyond the next head
    assert len(calculator.table()[2]) == 3
    with pytest.raises(ValueError, match="variant='gated' comes too late"):
        CostCalculator().variant = "gated"
    for ask in (CostCalculator().comparison, CostCalculator().choice):
        with pytest.raises(ValueError, match="compares nothing"):
            ask()


def test_a_comparison_stores_both_and_a_plain_calculator_nothing_of_it():
    calculator = CostCalculator(variant="mixture", num_chosen=2)
    caption, header, rows = calculator.table()
    assert caption.endswith("bytes_per_number=2, num_shared=1, num_chosen=2")
    assert list(header) == ["cost", "multi-head", "mixture", "ratio"]
    plain, own = calculator.comparison()["chosen_flops"]
    assert rows[2][1:] == [f"{plain:,}", f"{own:,}", f"{own / plain:.3f}"]
    assert rows[3] == ["cache of all layers for each token", "36,864 bytes", "36,864 bytes", "1.000"]
    quarter = CostCalculator(512, 16, variant="multi-query").table()[2][2]
    assert quarter[3] == "0.063"  # 1/16, half of a thousandth up
    assert set(CostCalculator().state()) == {
        *("num_hiddens", "num_heads", "num_kv_heads", "num_layers", "num_tokens", "batch_size", "bytes_per_number")
    }
    text = CostCalculator()._repr_mimebundle_()[0]["text/html"]
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "cba993161c0d626a"


@pytest.mark.parametrize("name", ["num_shared", "rank", "absorbed", "latent_size"])
def test_a_tensor_for_a_setting_is_refused(name):
    with pytest.raises(ValueError, match=rf"{name}=tensor\(\[1, 2\]\) is of a variant, and variant is None"):
        CostCalculator(**{name: torch.tensor([1, 2])})


@pytest.mark.parametrize(
    "choice", ["entmax", {"name": "sparse", "window": 4}, {"name": "multi-head", "num_kv_heads": 2}]
)
def test_any_registered_kind_is_compared(choice):
    calculator = CostCalculator(36, 6, num_layers=3, num_tokens=7, batch_size=2, bytes_per_number=4, variant=choice)
    expected = costs.variant_costs(choice, 36, 6, 7, 2, 4)
    found = calculator.costs()
    assert (found["parameters"], found["flops"]) == (3 * expected.parameters, 3 * expected.flops)
    assert found["cache_bytes_per_token"] * 7 * 2 == 3 * expected.cache_bytes
    calculator.num_hiddens = 72  # counted anew
    assert calculator.counted == list(costs.variant_parts(choice, 72, 6)[:4])
    assert make_attention(calculator.choice(), 72, 6).num_hiddens == 72
    with pytest.raises(ValueError, match="comes too late"):
        calculator.variant = "gated"


def test_colab_is_told_who_draws_it(monkeypatch):
    """Colab shows a widget of a stranger's only where the output says which manager to load; ours adds to anywidget's
    output and must not lose that."""
    enabled, address = [], "https://example.org/manager"
    colab = SimpleNamespace(
        enable_custom_widget_manager=lambda: enabled.append(True), _widgets=SimpleNamespace(_installed_url=address)
    )
    for name in ("google", "google.colab", "google.colab.output"):
        monkeypatch.setitem(sys.modules, name, colab)
    data, metadata = CostCalculator()._repr_mimebundle_()
    kind = "application/vnd.jupyter.widget-view+json"
    assert kind in data
    assert "<table>" in data["text/html"]
    assert metadata[kind]["colab"]["custom_widget_manager"]["url"] == address
    assert enabled == [True]
