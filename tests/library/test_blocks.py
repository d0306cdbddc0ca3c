"""Encoder and decoder layers: against torch's, with the same weights, and by what they must not do."""

import re

import pytest
import torch
from torch import nn

from mhalib import causal_mask, padding_mask
from mhalib.models import DecoderLayer, EncoderLayer, FeedForward, SkipConnection
from mhalib.reference import multi_head_attention_loops, to_torch

D, HEADS, WIDE = 12, 3, 20


def _copy(target, source):
    target.load_state_dict(source.state_dict())


def _trained_looking(layer):
    """Norms and biases are born as 0 and 1, with which two norms that are mixed up cannot be told apart."""
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return layer.eval()


def _torch_encoder(layer, norm):
    twin = nn.TransformerEncoderLayer(
        D, HEADS, WIDE, 0.0, activation="gelu", batch_first=True, norm_first=norm == "pre"
    )
    _copy(twin.self_attn, to_torch(layer.attention))
    _copy(twin.norm1, layer.attention_skip.norm)
    _copy(twin.linear1, layer.ffn.widen)
    _copy(twin.linear2, layer.ffn.narrow)
    _copy(twin.norm2, layer.ffn_skip.norm)
    return twin  # in training mode, without dropout: evaluation takes a kernel that knows no gradient


def _torch_decoder(layer, norm):
    twin = nn.TransformerDecoderLayer(
        D, HEADS, WIDE, 0.0, activation="gelu", batch_first=True, norm_first=norm == "pre"
    )
    _copy(twin.self_attn, to_torch(layer.attention))
    _copy(twin.norm1, layer.attention_skip.norm)
    _copy(twin.multihead_attn, to_torch(layer.cross_attention))
    _copy(twin.norm2, layer.cross_skip.norm)
    _copy(twin.linear1, layer.ffn.widen)
    _copy(twin.linear2, layer.ffn.narrow)
    _copy(twin.norm3, layer.ffn_skip.norm)
    return twin


def _inputs(num_tokens=5, num_memory=7):
    torch.manual_seed(1)
    return torch.randn(2, num_tokens, D), torch.randn(2, num_memory, D)


@pytest.fixture(params=["pre", "post"])
def norm(request):
    return request.param


@pytest.fixture
def encoder(norm):
    torch.manual_seed(0)
    return _trained_looking(EncoderLayer(D, HEADS, WIDE, norm=norm))


@pytest.fixture
def decoder(norm):
    torch.manual_seed(0)
    return _trained_looking(DecoderLayer(D, HEADS, WIDE, norm=norm))


def test_encoder_layer_is_torch_s(encoder, norm):
    x, _ = _inputs()
    lens = torch.tensor([5, 3])
    hidden = ~padding_mask(lens, 5)[:, 0, 0]  # torch's True hides
    expected = _torch_encoder(encoder, norm)(x, src_key_padding_mask=hidden)
    torch.testing.assert_close(encoder(x, lens)[0], expected, rtol=0, atol=1e-5)


def test_encoder_layer_with_a_causal_mask_is_torch_s(encoder, norm):
    x, _ = _inputs()
    expected = _torch_encoder(encoder, norm)(x, src_mask=~causal_mask(5))
    torch.testing.assert_close(encoder(x, mask=causal_mask(5))[0], expected, rtol=0, atol=1e-5)


def test_decoder_layer_is_torch_s(decoder, norm):
    x, memory = _inputs()
    lens = torch.tensor([7, 4])
    expected = _torch_decoder(decoder, norm)(
        x, memory, tgt_mask=~causal_mask(5), memory_key_padding_mask=~padding_mask(lens, 7)[:, 0, 0]
    )
    torch.testing.assert_close(decoder(x, memory, lens, mask=causal_mask(5))[0], expected, rtol=0, atol=1e-5)


def test_gradients_are_torch_s(decoder, norm):
    gradients = []
    for layer in (decoder, _torch_decoder(decoder, norm)):
        x, memory = (tensor.requires_grad_() for tensor in _inputs())
        result = layer(x, memory)
        output = result[0] if isinstance(result, tuple) else result
        gradients.append(torch.autograd.grad(output.sin().sum(), (x, memory)))
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-4)


def test_norm_stands_where_it_is_said(encoder, norm):
    """After a post-norm layer each token has been normalised; after a pre-norm layer x is still in the sum."""
    with torch.no_grad():
        encoder.ffn_skip.norm.weight.fill_(1.0)
        encoder.ffn_skip.norm.bias.zero_()
    x, _ = _inputs()
    output, _ = encoder(100 * x)
    if norm == "post":
        torch.testing.assert_close(output.mean(-1), torch.zeros(2, 5), rtol=0, atol=1e-5)
        torch.testing.assert_close(output.std(-1, unbiased=False), torch.ones(2, 5), rtol=0, atol=1e-3)
    else:
        assert (output - 100 * x).norm() < 0.2 * output.norm()


def test_weights_are_those_of_the_loops(decoder):
    x, memory = _inputs()
    lens = torch.tensor([7, 4])
    _, own, cross = decoder(x, memory, lens, mask=causal_mask(5), need_weights=True)
    seen = decoder.attention_skip.before(x)
    found, expected = multi_head_attention_loops(decoder.attention, seen, seen, seen, mask=causal_mask(5))
    torch.testing.assert_close(own, expected)
    seen = decoder.cross_skip.before(decoder.attention_skip.after(x, found))
    _, expected = multi_head_attention_loops(decoder.cross_attention, seen, memory, memory, lens)
    torch.testing.assert_close(cross, expected)


def test_weights_come_only_when_asked_for_and_change_nothing(encoder, decoder):
    x, memory = _inputs()
    plain, nothing = encoder(x)
    asked, weights = encoder(x, need_weights=True)
    assert nothing is None
    assert weights.shape == (2, HEADS, 5, 5)
    torch.testing.assert_close(asked, plain)
    plain, *nothing = decoder(x, memory)
    asked, own, cross = decoder(x, memory, need_weights=True)
    assert nothing == [None, None]
    assert own.shape == (2, HEADS, 5, 5)
    assert cross.shape == (2, HEADS, 5, 7)
    torch.testing.assert_close(asked, plain)


def test_the_future_does_not_leak(decoder):
    x, memory = _inputs()
    x.requires_grad_()
    output = decoder(x, memory, mask=causal_mask(5))[0]
    for t in range(5):
        (gradient,) = torch.autograd.grad(output[:, t].sin().sum(), x, retain_graph=True)
        reached = gradient.abs().amax((0, 2)) > 0
        assert reached.tolist() == [j <= t for j in range(5)]


def test_padding_of_the_memory_changes_nothing(decoder):
    x, memory = _inputs()
    lens = torch.tensor([6, 4])
    before = decoder(x, memory, lens)[0]
    memory[0, 6:], memory[1, 4:] = 50.0, -50.0
    torch.testing.assert_close(decoder(x, memory, lens)[0], before)


def test_feed_forward_treats_each_token_alone():
    torch.manual_seed(0)
    ffn = FeedForward(D, WIDE)
    x, _ = _inputs()
    each = [
        ffn.narrow.weight @ (inside * 0.5 * (1 + torch.erf(inside / 2**0.5))) + ffn.narrow.bias
        for token in x.flatten(0, 1)
        for inside in [ffn.widen.weight @ token + ffn.widen.bias]
    ]
    torch.testing.assert_close(ffn(x).flatten(0, 1), torch.stack(each))


def test_without_a_feed_forward_network_attention_is_all():
    torch.manual_seed(0)
    layer = _trained_looking(EncoderLayer(D, HEADS, 0))
    assert layer.ffn is None
    x, _ = _inputs()
    seen = nn.functional.layer_norm(x, (D,), layer.attention_skip.norm.weight, layer.attention_skip.norm.bias)
    torch.testing.assert_close(layer(x)[0], x + layer.attention(seen, seen, seen)[0])


def test_rotary_is_in_self_attention_only():
    layer = DecoderLayer(D, HEADS, WIDE, positions="rotary")
    assert layer.attention.positions is not None
    assert layer.cross_attention.positions is None
    assert EncoderLayer(D, HEADS, WIDE, positions="rotary").attention.positions is not None
    assert EncoderLayer(D, HEADS, WIDE).attention.positions is None


def test_dropout_is_of_the_sublayers_results_in_training():
    x, _ = _inputs()
    layer = EncoderLayer(D, HEADS, WIDE, dropout=1.0)
    torch.testing.assert_close(layer(x)[0], x)  # all that the sublayers add is dropped
    assert not torch.allclose(layer.eval()(x)[0], x, atol=1e-2)


@pytest.mark.parametrize("kind", [EncoderLayer, DecoderLayer])
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((10, 3, 20), ValueError, "num_hiddens=10 is not divisible by num_heads=3"),
        ((12, 0, 20), ValueError, "num_heads=0 must be at least 1"),
        ((12, 3, -1), ValueError, "ffn_num_hiddens=-1 must be at least 0"),
        ((12, 3, 20.0), TypeError, "ffn_num_hiddens must be an integer, got float: 20.0"),
        ((12, 3, 20, 1.5), ValueError, "dropout=1.5 must lie in [0, 1]"),
        ((12, 3, 20, "no"), TypeError, "dropout must be a number in [0, 1], got str: 'no'"),
    ],
)
def test_errors_name_argument_and_value(kind, arguments, error, message):
    with pytest.raises(error, match=re.escape(message)):
        kind(*arguments)


def test_an_unknown_norm_is_named():
    known = "norm='first' must be one of ('pre', 'post', 'after', 'both'"
    for make in (lambda: EncoderLayer(12, 3, 20, norm="first"), lambda: SkipConnection(12, norm="first")):
        with pytest.raises(ValueError, match=re.escape(known)):
            make()
