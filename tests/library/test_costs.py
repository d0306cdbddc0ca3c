"""The formulas of costs equal what torch counts and what layers hold, and bad sizes are refused by name."""

import re

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from mhalib import MultiHeadAttention, costs
from mhalib.costs import Sizes

LAYERS = [
    (Sizes(60, 5), {}),
    (Sizes(24, 6, 2), {"num_kv_heads": 2}),
    (Sizes(24, 6, 1), {"num_kv_heads": 1}),
    (Sizes(20, 3, None, 16), {"head_dim": 16}),
    (Sizes(20, 4, 2, 16), {"head_dim": 16, "num_kv_heads": 2}),
]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("sizes", "settings"), LAYERS)
def test_formulas_are_what_a_layer_takes(sizes, settings, bias):
    layer = MultiHeadAttention(sizes.num_hiddens, sizes.num_heads, bias=bias, **settings)
    x = torch.randn(3, 7, sizes.num_hiddens)
    found = costs.measured(layer, x)
    assert found.parameters == costs.parameters(sizes, bias=bias)
    assert found.flops == costs.flops(sizes, 7, 3)
    assert found.cache_bytes == costs.cache_bytes(sizes, 7, 3)
    _, weights = layer(x, x, x)
    assert costs.score_bytes(sizes, 7, 3) == weights.numel() * 4


def test_scores_and_averages_are_what_is_left_without_projections():
    q, k = torch.randn(3, 5, 7, 12), torch.randn(3, 5, 7, 12)
    with FlopCounterMode(display=False) as counter:
        (q @ k.mT).softmax(-1) @ k
    assert costs.pair_flops(Sizes(60, 5), 7, 3) == counter.get_total_flops()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: costs.parameters(Sizes(100, 6)), ValueError, "num_hiddens=100 is not divisible by num_heads=6"),
        (lambda: costs.flops(Sizes(12, 6, 4), 7), ValueError, "num_heads=6 is not divisible by num_kv_heads=4"),
        (lambda: costs.flops(Sizes(12, 6), 0), ValueError, "num_tokens=0 must be at least 1"),
        (lambda: costs.cache_bytes(Sizes(12, 6), 7, 1.5), TypeError, "batch_size must be an integer"),
        (lambda: costs.score_bytes(Sizes(12, 0), 7), ValueError, "num_heads=0 must be at least 1"),
        (lambda: costs.parameters(Sizes(12, 2, 0)), ValueError, "num_kv_heads=0 must be at least 1"),
        (lambda: costs.parameters(Sizes("12", 2)), TypeError, "num_hiddens must be an integer"),
    ],
)
def test_bad_sizes_are_refused(call, error, message):
    with pytest.raises(error, match=re.escape(message)):
        call()
