"""Where a kind is multi-head attention, for kinds whose own tests do not show it; and layers that read the keys of the
layer below, against loops."""

import pytest
import torch
from test_variants import MASKS, B, D, H, K, Q, _holds, _output, _plain, _rows, _same, _scores_and_values, _shaken, d
from torch import nn

from mhalib import Band, MultiHeadAttention, causal_mask, variants

pytestmark = pytest.mark.usefixtures("in_float64")


def _copied(num_kv_heads):
    """Heads that share keys and values, and multi-head attention in which each has a copy of them."""
    shared, plain = _plain(num_kv_heads=num_kv_heads), _plain()
    with torch.no_grad():
        for name in ("W_q", "W_o"):
            getattr(plain, name).load_state_dict(getattr(shared, name).state_dict())
        for name in ("W_k", "W_v"):
            for part in ("weight", "bias"):
                own = getattr(getattr(shared, name), part).unflatten(0, (num_kv_heads, d))
                copies = own.repeat_interleave(H // num_kv_heads, 0).flatten(0, 1)
                getattr(getattr(plain, name), part).copy_(copies)
    return shared, plain


def test_two_keys_are_multi_head_attention_with_copies_of_them():
    _same(*_copied(2))


def test_one_key_is_multi_head_attention_with_copies_of_it():
    _same(*_copied(1))


@MASKS
def test_heads_that_share_keys_are_the_loop(kind):
    for num_kv_heads in (1, 2):
        layer = _plain(num_kv_heads=num_kv_heads)

        def loop(x, y, mask, layer=layer, group=H // num_kv_heads):
            q, k, v = (one(z) for one, z in ((layer.W_q, x), (layer.W_k, y), (layer.W_v, y)))
            own = [slice(i * d, (i + 1) * d) for i in range(H)]
            keys = [own[i // group] for i in range(H)]
            scores = torch.stack([q[:, own[i]] @ k[:, keys[i]].T for i in range(H)])
            weights = _rows(scores * d**-0.5, mask)
            return _output(layer, weights, torch.stack([v[:, keys[i]] for i in range(H)])), weights

        _holds(layer, loop, kind)


@MASKS
def test_multi_head_attention_is_the_loop(kind):
    layer = _plain()

    def loop(x, y, mask):
        scores, values = _scores_and_values(layer, x, y)
        weights = _rows(scores, mask)
        return _output(layer, weights, values), weights

    _holds(layer, loop, kind)


def test_a_window_of_all_tokens_is_multi_head_attention():
    plain = _plain()
    layer = variants.SparseAttention(D, H, bias=True, window=K)
    layer.load_state_dict(plain.state_dict())
    x = torch.randn(B, K, D)
    for mask in (None, Band()):
        torch.testing.assert_close(layer(x, x, x, mask=mask), plain(x, x, x, mask=mask), atol=1e-12, rtol=1e-12)


def _long_tokens(*size):
    """Tokens whose squares have the mean at which a norm with eps 1e-6 leaves them as they are."""
    x = torch.randn(*size)
    return x * ((1 - 1e-6) / x.square().mean(-1, keepdim=True)).sqrt()


def _latent(kind, plain, **settings):
    """Latents as wide as the tokens, and turned only: what is made of them is what multi-head attention makes."""
    layer = kind(D, H, latent_size=D, **settings)
    turned = torch.linalg.qr(torch.randn(D, D)).Q
    with torch.no_grad():
        layer.W_down.weight.copy_(turned)
        layer.W_q.weight.copy_(plain.W_q.weight)
        layer.W_up_k.weight.copy_(plain.W_k.weight @ turned.T)
        layer.W_up_v.weight.copy_(plain.W_v.weight @ turned.T)
        layer.W_o.weight.copy_(plain.W_o.weight)
    return layer


def test_a_latent_as_wide_as_the_token_is_multi_head_attention():
    plain = MultiHeadAttention(D, H)
    layer, y = _latent(variants.LatentAttention, plain), _long_tokens(B, K, D)
    for absorbed in (False, True):
        layer.absorbed = absorbed
        for mask in (None, causal_mask(K)):
            torch.testing.assert_close(layer(y, y, y, mask=mask), plain(y, y, y, mask=mask), atol=1e-12, rtol=1e-12)


def test_an_index_that_chooses_all_of_wide_latents_is_multi_head_attention():
    plain = MultiHeadAttention(D, H)
    layer, y = _latent(variants.IndexedAttention, plain, num_chosen=K), _long_tokens(B, K, D)
    for mask in (None, causal_mask(K)):
        torch.testing.assert_close(layer(y, y, y, mask=mask), plain(y, y, y, mask=mask), atol=1e-12, rtol=1e-12)
    layer.num_chosen = 2
    assert not torch.allclose(layer(y, y, y)[0], plain(y, y, y)[0], atol=1e-3)


def test_norms_leave_queries_and_keys_of_length_one_as_they_are():
    """Both projections only turn, and tokens are made so that each head has vectors of the length that is left."""
    plain = MultiHeadAttention(D, H)
    layer = variants.QKNormAttention(D, H, norm="rms", norm_eps=1e-6)
    turned = torch.linalg.qr(torch.randn(D, D)).Q
    with torch.no_grad():
        plain.W_q.weight.copy_(turned)
        plain.W_k.weight.copy_(turned)
    layer.load_state_dict(plain.state_dict(), strict=False)
    x = _long_tokens(B, K, H, d).flatten(2) @ turned
    for mask in (None, causal_mask(K)):
        torch.testing.assert_close(layer(x, x, x, mask=mask), plain(x, x, x, mask=mask), atol=1e-12, rtol=1e-12)


def test_of_three_maps_a_window_of_all_tokens_alone_is_multi_head_attention():
    plain = _plain()
    layer = variants.NativeSparseAttention(D, H, bias=True, block_size=2, window=K)
    layer.load_state_dict(plain.state_dict(), strict=False)
    nn.init.zeros_(layer.W_gate.weight)
    with torch.no_grad():
        layer.W_gate.bias.copy_(torch.tensor([-1e4, -1e4, 1e4]).repeat_interleave(H))
    _same(layer, plain)


def test_a_layer_that_makes_its_own_keys_is_multi_head_attention():
    plain = _plain()
    layer = variants.CrossLayerAttention(D, H, bias=True, num_layers_per_key=1)
    layer.load_state_dict(plain.state_dict())
    _same(layer, plain)


@MASKS
def test_a_layer_reads_the_keys_of_the_one_below_as_in_the_loop(kind):
    below = variants.CrossLayerAttention(D, H, bias=True, makes_keys=True)
    layer = _shaken(variants.CrossLayerAttention(D, H, bias=True, makes_keys=False))

    def above(x, y, z, **settings):
        handed_on = {}
        below(x, y, z, handed_on=handed_on, **settings)
        return layer(x, y, z, handed_on=handed_on, **settings)

    def loop(x, y, mask):
        q, k, v = layer.W_q(x), below.W_k(y), below.W_v(y)
        own = [slice(i * d, (i + 1) * d) for i in range(H)]
        weights = _rows(torch.stack([q[:, one] @ k[:, one].T for one in own]) * d**-0.5, mask)
        return _output(layer, weights, torch.stack([v[:, one] for one in own])), weights

    _holds(above, loop, kind)


def test_a_choice_close_to_softmax_is_close_to_multi_head_attention():
    """Entmax with α = 1 is softmax, which the layer takes no nearer than this."""
    plain = _plain()
    layer = variants.EntmaxAttention(D, H, bias=True, alpha=1.0001)
    layer.load_state_dict(plain.state_dict(), strict=False)
    x, y = torch.randn(B, Q, D), torch.randn(B, K, D)
    torch.testing.assert_close(layer(x, y, y), plain(x, y, y), atol=1e-3, rtol=0)
