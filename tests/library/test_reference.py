"""Weights carried between four forms of the layer: the numbers must stay, and nothing else may be shared."""

import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from mhalib import MultiHeadAttention, causal_mask, padding_mask, reference

EXACT = {"rtol": 0, "atol": 1e-10}
SIZES = st.lists(st.sampled_from([1, 2, 3, 5, 7]), min_size=5, max_size=5, unique=True)


@given(sizes=SIZES, bias=st.booleans(), widths=st.booleans(), causal=st.booleans(), lengths=st.booleans())
def test_to_torch_computes_the_same(sizes, bias, widths, causal, lengths, device):
    batch_size, num_queries, num_kvpairs, num_heads, head_dim = sizes
    sizes_of_inputs = {"key_size": 13, "value_size": 17} if widths else {}
    layer = _layer(num_heads * head_dim, num_heads, bias, device, **sizes_of_inputs)
    inputs = _inputs(layer, batch_size, num_queries, num_kvpairs)
    mask = causal_mask(num_queries, num_kvpairs, device=device) if causal else None
    valid_lens = torch.randint(1, num_kvpairs + 1, (batch_size,), device=device) if lengths else None
    expected, expected_weights = layer(*inputs, valid_lens, mask=mask)
    hidden = None if valid_lens is None else ~padding_mask(valid_lens, num_kvpairs)[:, 0, 0]
    twin = reference.to_torch(layer)
    output, weights = twin(
        *inputs, key_padding_mask=hidden, attn_mask=None if mask is None else ~mask, average_attn_weights=False
    )
    torch.testing.assert_close(output, expected, **EXACT)
    torch.testing.assert_close(weights, expected_weights, **EXACT)
    torch.testing.assert_close(layer(*inputs, valid_lens, mask=mask, need_weights=False)[0], output, **EXACT)


@pytest.mark.parametrize("widths", [{}, {"kdim": 13, "vdim": 17}])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_from_torch_computes_the_same(widths, batch_first, bias, device):
    torch.manual_seed(0)
    twin = nn.MultiheadAttention(
        15, 3, bias=bias, batch_first=batch_first, device=device, dtype=torch.float64, **widths
    )
    for parameter in twin.parameters():  # torch starts its biases at 0, which would hide a forgotten one
        nn.init.normal_(parameter)
    layer = reference.from_torch(twin)
    inputs = _inputs(layer, 2, 5, 7)
    theirs = inputs if batch_first else [x.transpose(0, 1) for x in inputs]
    expected, expected_weights = twin(*theirs, average_attn_weights=False)
    output, weights = layer(*inputs)
    torch.testing.assert_close(output, expected if batch_first else expected.transpose(0, 1), **EXACT)
    torch.testing.assert_close(weights, expected_weights, **EXACT)


@pytest.mark.parametrize("training", [True, False])
def test_torch_keeps_dropout_and_mode(training):
    twin = reference.to_torch(MultiHeadAttention(15, 3, dropout=0.25).train(training))
    layer = reference.from_torch(twin)
    assert (twin.dropout, twin.training) == (layer.dropout, layer.training) == (0.25, training)


def test_torch_gives_nan_to_a_query_that_sees_nothing_and_we_0():
    layer = _layer(15, 3, False, "cpu")
    inputs = _inputs(layer, 2, 5, 7)
    valid_lens = torch.tensor([0, 3])
    theirs, _ = reference.to_torch(layer)(*inputs, key_padding_mask=~padding_mask(valid_lens, 7)[:, 0, 0])
    ours, _ = layer(*inputs, valid_lens)
    assert theirs[0].isnan().all()
    assert ours[0].count_nonzero() == 0
    torch.testing.assert_close(ours[1], theirs[1], **EXACT)


@pytest.mark.parametrize("lens_shape", [None, (2,), (2, 5)])
@pytest.mark.parametrize("bias", [True, False])
def test_d2l_computes_the_same(lens_shape, bias, device):
    layer = _layer(15, 3, bias, device)
    twin = reference.D2LMultiHeadAttention(15, 3, bias=bias).to(device, torch.float64)
    twin.load_state_dict(reference.to_d2l(layer))
    inputs = _inputs(layer, 2, 5, 7)
    valid_lens = None if lens_shape is None else torch.randint(1, 8, lens_shape, device=device)
    expected, expected_weights = layer(*inputs, valid_lens)
    torch.testing.assert_close(twin(*inputs, valid_lens), expected, **EXACT)
    torch.testing.assert_close(twin.attention_weights.view(2, 3, 5, 7), expected_weights, **EXACT)


@pytest.mark.parametrize("mask_shape", [None, (2, 1, 7), (2, 5, 7)])
def test_harvard_computes_the_same(mask_shape, device):
    layer = _layer(15, 3, True, device)
    twin = reference.HarvardMultiHeadAttention(3, 15, dropout=0.0).to(device, torch.float64)
    twin.load_state_dict(reference.to_harvard(layer))
    inputs = _inputs(layer, 2, 5, 7)
    mask = None if mask_shape is None else torch.rand(mask_shape, device=device) < 0.7
    if mask is not None:
        mask[..., 0] = True  # with nothing to see, this layer spreads its weight evenly: see below
    expected, expected_weights = layer(*inputs, mask=None if mask is None else mask[:, None])
    torch.testing.assert_close(twin(*inputs, mask), expected, **EXACT)
    torch.testing.assert_close(twin.attn, expected_weights, **EXACT)


def test_d2l_and_harvard_spread_the_weight_of_a_query_that_sees_nothing():
    d2l, harvard = reference.D2LMultiHeadAttention(15, 3), reference.HarvardMultiHeadAttention(3, 15)
    x = torch.randn(2, 7, 15)
    d2l(x, x, x, torch.tensor([0, 7]))
    harvard(x, x, x, padding_mask(torch.tensor([0, 7]), 7)[:, 0])
    for weights in (d2l.attention_weights[:3], harvard.attn[0]):
        torch.testing.assert_close(weights, torch.full((3, 7, 7), 1 / 7))


def test_harvards_biases_are_0_when_the_layer_has_none():
    layer = _layer(15, 3, False, "cpu")
    twin = reference.from_harvard(reference.to_harvard(layer), 3)
    inputs = _inputs(layer, 2, 5, 7)
    assert twin.W_q.bias.count_nonzero() == 0
    torch.testing.assert_close(twin(*inputs)[0], layer(*inputs)[0], rtol=0, atol=0)


ROUND_TRIPS = {
    "torch": lambda layer: reference.from_torch(reference.to_torch(layer)),
    "d2l": lambda layer: reference.from_d2l(reference.to_d2l(layer), layer.num_heads),
    "harvard": lambda layer: reference.from_harvard(reference.to_harvard(layer), layer.num_heads),
}


@pytest.mark.parametrize("form", ROUND_TRIPS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_round_trips_keep_every_bit_and_share_no_memory(form, dtype, device):
    layer = _layer(15, 3, True, device).to(dtype)
    twin = ROUND_TRIPS[form](layer)
    assert twin.num_heads == layer.num_heads
    assert twin.state_dict().keys() == layer.state_dict().keys()
    for name, weight in layer.state_dict().items():
        torch.testing.assert_close(twin.state_dict()[name], weight, rtol=0, atol=0)
    assert not _storages(twin.state_dict().values()) & _storages(layer.state_dict().values())


@pytest.mark.parametrize(
    "convert", [reference.to_d2l, reference.to_harvard, lambda x: reference.to_torch(x).state_dict()]
)
def test_converting_copies(convert):
    layer = _layer(15, 3, True, "cpu")
    converted = convert(layer)
    assert not _storages(converted.values()) & _storages(layer.parameters())
    torch.testing.assert_close(sum(x.sum() for x in converted.values()), sum(x.sum() for x in layer.parameters()))


def test_d2l_keeps_the_widths_of_the_inputs():
    layer = _layer(15, 3, True, "cpu", query_size=11, key_size=13, value_size=17)
    twin = reference.from_d2l(reference.to_d2l(layer), 3, dropout=0.25)
    inputs = _inputs(layer, 2, 5, 7)
    assert twin.dropout == 0.25
    assert torch.equal(twin.eval()(*inputs)[0], layer(*inputs)[0])


STATE = {f"W_{name}.weight": torch.zeros(15, 15) for name in "qkvo"}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: reference.to_torch(MultiHeadAttention(15, 3, query_size=11)), "num_hiddens=15, but query_size=11"),
        (lambda: reference.to_harvard(MultiHeadAttention(15, 3, key_size=11)), "num_hiddens=15, but W_k takes 11"),
        (lambda: reference.from_torch(nn.MultiheadAttention(15, 3, add_bias_kv=True)), "add_bias_kv=True"),
        (lambda: reference.from_torch(nn.MultiheadAttention(15, 3, add_zero_attn=True)), "add_zero_attn=True"),
        (lambda: reference.from_d2l({}, 3), "missing ['W_k.weight', 'W_o.weight', 'W_q.weight', 'W_v.weight']"),
        (lambda: reference.from_d2l(STATE | {"W_x.weight": STATE["W_q.weight"]}, 3), "unknown ['W_x.weight']"),
        (lambda: reference.from_d2l(STATE | {"W_q.bias": torch.zeros(15)}, 3), "missing ['W_k.bias', 'W_o.bias', 'W_v"),
        (lambda: reference.from_d2l(STATE | {"W_q.weight": torch.zeros(14, 15)}, 3), "W_q.weight"),
        (lambda: reference.from_d2l(STATE | {"W_q.weight": torch.zeros(15)}, 3), "W_q.weight must have 2 axes"),
        (lambda: reference.from_d2l(STATE | {"W_o.weight": torch.zeros(15, 14)}, 3), "layer of num_hiddens=15"),
        (lambda: reference.from_d2l(STATE, 4), "num_hiddens=15 is not divisible by num_heads=4"),
        (lambda: reference.from_harvard(STATE, 3), "missing ['linears.0.weight'"),
    ],
)
def test_what_cannot_be_converted_is_refused(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()


def _layer(num_hiddens, num_heads, bias, device, **widths):
    torch.manual_seed(0)
    return MultiHeadAttention(num_hiddens, num_heads, bias=bias, **widths).to(device, torch.float64)


def _inputs(layer, batch_size, num_queries, num_kvpairs):
    torch.manual_seed(1)
    shapes = [
        (batch_size, length, projection.in_features)
        for length, projection in ((num_queries, layer.W_q), (num_kvpairs, layer.W_k), (num_kvpairs, layer.W_v))
    ]
    return [torch.randn(shape, dtype=torch.float64, device=layer.W_q.weight.device) for shape in shapes]


def _storages(tensors):
    return {tensor.untyped_storage().data_ptr() for tensor in tensors}


@pytest.mark.parametrize("num_kv_heads", [3, 1])
def test_the_loops_turn_by_rotary_positions_as_the_layer_does(num_kv_heads):
    layer = _layer(12, 3, True, "cpu", positions="rotary", num_kv_heads=num_kv_heads)
    x = _inputs(layer, 2, 5, 5)[0]
    layer.eval()
    found = reference.multi_head_attention_loops(layer, x, x, x, torch.tensor([5, 2]))
    torch.testing.assert_close(found, layer(x, x, x, torch.tensor([5, 2])))
    layer.positions = None
    assert not torch.allclose(found[0], layer(x, x, x, torch.tensor([5, 2]))[0], atol=1e-3)


@pytest.mark.parametrize("convert", [reference.to_torch, reference.to_d2l, reference.to_harvard])
def test_rotary_positions_are_not_dropped_in_silence(convert):
    layer = _layer(12, 3, True, "cpu", positions="rotary")
    with pytest.raises(ValueError, match=r"layer turns its queries and keys by their positions, which .* does not"):
        convert(layer)


def test_a_pruned_layer_becomes_torchs_with_heads_of_zeros():
    layer = _layer(15, 3, True, "cpu")
    layer.keep_heads([0, 2])
    queries, keys, values = _inputs(layer, 2, 5, 7)
    output, _ = reference.to_torch(layer)(queries, keys, values)
    torch.testing.assert_close(output, layer(queries, keys, values)[0])
