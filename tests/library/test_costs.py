"""The formulas of costs equal what torch counts and what layers hold, and bad sizes are refused by name."""

import re

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from mhalib import MultiHeadAttention, costs
from mhalib.attention import KINDS, make_attention, register
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


CHOICES = [
    "multi-head",
    {"name": "multi-head", "num_kv_heads": 2},
    {"name": "multi-head", "num_kv_heads": 1, "head_dim": 5, "value_dim": 7},
    "latent",
    {"name": "latent", "latent_size": 10, "positions": "rotary", "rotary_size": 6},
    {"name": "latent", "latent_size": 10, "positions": "rotary", "rotary_size": 6, "absorbed": True},
    {"name": "latent", "query_latent_size": 9, "value_dim": 5, "positions": "rotary"},
    {"name": "latent", "query_latent_size": 9, "value_dim": 5, "absorbed": True},
    "talking",
    {"name": "talking", "num_kv_heads": 3, "mix_bias": True},
    {"name": "collaborative", "shared_size": 10},
    {"name": "collaborative", "shared_size": 31, "value_dim": 3},
    {"name": "overlapping", "overlap": 0},
    {"name": "overlapping", "overlap": 3},
    {"name": "overlapping", "overlap": 9},
    "mixture",
    {"name": "mixture", "num_shared": 0, "num_chosen": 2},
    {"name": "mixture", "num_shared": 2, "num_chosen": 3, "num_kv_heads": 2},
    {"name": "mixture", "num_shared": 6},
    {"name": "mixture", "num_shared": 2, "router": "query norm"},
    "composed",
    {"name": "composed", "rank": 3, "num_kv_heads": 2, "static": True},
    {"name": "composed", "rank": 4, "by_keys": False},
    "differential",
    {"name": "differential", "normalise": False},
    {"name": "differential", "num_kv_heads": 3, "head_dim": 5},
    "gated",
    {"name": "gated", "per_channel": True, "value_dim": 5},
    "qk-norm",
    {"name": "qk-norm", "norm": "rms", "num_kv_heads": 2, "head_dim": 5},
    {"name": "qk-norm", "together": True, "num_kv_heads": 2, "head_dim": 5},
    {"name": "relative", "num_buckets": 6},
    {"name": "sinks", "num_kv_heads": 2},
    {"name": "soft-cap", "num_kv_heads": 3, "head_dim": 5},
]


@pytest.mark.parametrize("choice", CHOICES, ids=str)
def test_formulas_of_variants_are_what_their_layers_take(choice):
    layer = make_attention(choice, 36, 6)
    assert costs.variant_costs(choice, 36, 6, 7, 3) == costs.measured(layer, torch.randn(3, 7, 36))
    half = costs.variant_costs(choice, 36, 6, 7, 3, bytes_per_number=2)
    assert half.cache_bytes == costs.measured(layer.bfloat16(), torch.randn(3, 7, 36).bfloat16()).cache_bytes


@pytest.mark.parametrize("choice", CHOICES, ids=str)
def test_formulas_of_variants_are_what_is_counted_without_numbers(choice):
    layer = make_attention(choice, 36, 6)
    assert costs.counted_parts(layer) == costs.variant_parts(choice, 36, 6)


@pytest.mark.parametrize(
    "choice", ["entmax", {"name": "span", "max_span": 16}, {"name": "sparse", "window": 4}, "factors"], ids=str
)
def test_a_kind_without_a_formula_is_counted(choice, factors):
    found = costs.variant_costs(choice, 36, 6, 7, 3)
    assert found == costs.measured(make_attention(choice, 36, 6), torch.randn(3, 7, 36))
    assert found.parameters > 0
    assert costs.variant_parts(choice, 36, 6).flops(7, 3) == found.flops


@pytest.fixture
def factors():
    """A registered kind whose keys are products of two factors, which it keeps; and two that cannot be counted."""

    class Factors(MultiHeadAttention):
        def project_with_cache(self, queries, keys, values, cache):
            q, k, v = self.project(queries, keys, values)
            if cache is not None:
                k, v = cache.append(k[..., :2], v)
                k = torch.nn.functional.pad(k, (0, q.shape[-1] - 2))
            return q, k, v @ v.new_ones(v.shape[-1], v.shape[-1])

    class Looks(MultiHeadAttention):
        def gate(self, found, queries):
            return found if bool(found.sum() > 0) else -found

    class Cubic(MultiHeadAttention):
        def mix_weights(self, weights, queries, keys, **_):
            return weights @ weights

    kinds = {"factors": Factors, "looks": Looks, "cubic": Cubic}
    for name, kind in kinds.items():
        register(name)(kind)
    yield
    for name in kinds:
        del KINDS[name]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("looks", "Looks has no formula, and cannot be counted without numbers"),
        ("cubic", "Cubic has no formula, and what it takes is no sum of tokens and pairs"),
    ],
)
def test_what_is_no_sum_of_tokens_and_pairs_is_refused(name, message, factors):
    with pytest.raises(ValueError, match=message):
        costs.variant_costs(name, 36, 6, 7)


def test_formulas_of_variants_are_those_of_multi_head_attention():
    for sizes in (Sizes(768, 12), Sizes(768, 12, 4), Sizes(12_288, 96)):
        choice = {"name": "multi-head", "num_kv_heads": sizes.num_kv_heads}
        found = costs.variant_costs(choice, sizes.num_hiddens, sizes.num_heads, 2048, 5, 2)
        assert found.parameters == costs.parameters(sizes)
        assert found.flops == costs.flops(sizes, 2048, 5)
        assert found.cache_bytes == costs.cache_bytes(sizes, 2048, 5, 2)


def test_formulas_of_variants_are_those_of_the_papers():
    """DCMHA's 20hD + 64h² weights more, MOHSA's 2ohD, MoH's D(h + 2); DeepSeek-V3's cache of 576 numbers a token."""
    plain = costs.variant_parts("multi-head", 768, 12)
    assert plain == (4 * 768**2, 0, 2 * 768, 2 * 768, 0)
    assert costs.variant_parts("composed", 768, 12).each_token - plain.each_token == 20 * 12 * 768 + 64 * 12**2
    overlapping = costs.variant_parts({"name": "overlapping", "overlap": 5}, 768, 12)
    assert overlapping.each_token - plain.each_token == 2 * 5 * 12 * 768
    assert costs.variant_parts("mixture", 768, 12).each_token - plain.each_token == 768 * (12 + 2)
    deepseek = {"name": "latent", "latent_size": 512, "positions": "rotary", "rotary_size": 64, "head_dim": 128}
    assert costs.variant_parts(deepseek, 7168, 128).cached == 576


@pytest.mark.parametrize(("num_shared", "num_chosen"), [(0, 1), (1, 2), (2, 4), (6, 0)])
def test_what_a_mixture_would_cost_if_others_were_skipped(num_shared, num_chosen):
    """A loop that computes only what each token chose finds the same output, and takes these operations."""
    choice = {"name": "mixture", "num_shared": num_shared, "num_chosen": num_chosen}
    layer = make_attention(choice, 36, 6).double()
    x = torch.randn(1, 7, 36, dtype=torch.float64)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        gates, _ = layer.route(x)
        k, v = layer.W_k(x[0]), layer.W_v(x[0])
        rows = []
        for token in range(7):
            row = torch.zeros(1, 36, dtype=torch.float64)
            for head in gates[0, token].nonzero().flatten().tolist():
                own = layer.head_slices(head)
                q = x[0, token : token + 1] @ layer.W_q.weight[own.q].T
                found = (q @ k[:, own.k].T * layer.scale).softmax(-1) @ v[:, own.v]
                row += gates[0, token, head] * (found @ layer.W_o.weight[:, own.o].T)
            rows.append(row)
    torch.testing.assert_close(torch.cat(rows)[None], layer(x, x, x)[0])
    assert costs.chosen_flops(choice, 36, 6, 7) == counter.get_total_flops()
    assert costs.chosen_flops(choice, 36, 6, 7, 5) == 5 * counter.get_total_flops()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: costs.variant_costs("nothing", 36, 6, 7),
            ValueError,
            "attention={'name': 'nothing'} must name one of",
        ),
        (
            lambda: costs.variant_costs("talking", 36, 5, 7),
            ValueError,
            "num_hiddens=36 is not divisible by num_heads=5",
        ),
        (lambda: costs.variant_costs("talking", 36, 6, 0), ValueError, "num_tokens=0 must be at least 1"),
        (lambda: costs.variant_costs("differential", 36, 4, 7), ValueError, "not divisible by 2 * num_heads=8"),
        (lambda: costs.variant_costs({"name": "talking", "rank": 2}, 36, 6, 7), TypeError, "unexpected keyword"),
        (lambda: costs.variant_costs({"name": "gated", "bias": True}, 36, 6, 7), ValueError, "has biases"),
        (lambda: costs.variant_parts({"name": "gated", "key_size": 5}, 36, 6), ValueError, "several widths"),
        (lambda: costs.chosen_flops("gated", 36, 6, 7), ValueError, "choice='gated' is no mixture of heads"),
        (lambda: costs.chosen_flops({"name": "mixture"}, 36, 6, 7.5), TypeError, "num_tokens must be an integer"),
        (lambda: costs.chosen_flops({"name": "mixture", "num_chosen": 9}, 36, 6, 7), ValueError, "num_chosen=9"),
    ],
)
def test_variants_that_cannot_be_counted_are_refused(call, error, message):
    with pytest.raises(error, match=re.escape(message)):
        call()
