"""The costs equal what torch counts, and sizes that do not fit are refused by name."""

import re

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

pytest.importorskip("anywidget")

from mhalib import MultiHeadAttention
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
