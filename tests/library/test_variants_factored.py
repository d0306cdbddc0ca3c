"""Queries, keys and values that are means of products: against a loop, and where they are multi-head attention."""

import pytest
import torch
from test_variants import MASKS, D, H, _holds, _output, _plain, _rows, _shaken, d

from mhalib import Band, variants
from mhalib.attention import rotate

pytestmark = pytest.mark.usefixtures("in_float64")


def _product(projection, x, products, width):
    """Head by head and product by product: x (N, D) -> (H, N, width)."""
    made = projection(x)
    heads = torch.zeros(H, len(x), width)
    for i in range(H):
        for r in range(products):
            number = made[:, r * H + i]
            begin = products * H + r * width
            heads[i] += number[:, None] * made[:, begin : begin + width] / products
    return heads


@MASKS
def test_heads_are_means_of_products(kind):
    layer = _shaken(variants.TensorProductAttention(D, H, bias=True, rank=3, query_rank=5, value_dim=7))

    def loop(x, y, mask):
        q, k = _product(layer.W_q, x, 5, d), _product(layer.W_k, y, 3, d)
        weights = _rows(q @ k.mT * d**-0.5, mask)
        return _output(layer, weights, _product(layer.W_v, y, 3, 7)), weights

    _holds(layer, loop, kind)


def test_with_a_vector_for_each_head_it_is_multi_head_attention():
    """As many products as heads, and numbers that pick one head each: biases alone make them."""
    plain = _plain()
    layer = variants.TensorProductAttention(D, H, bias=True, rank=H, query_rank=H)
    with torch.no_grad():
        for one, other in ((layer.W_q, plain.W_q), (layer.W_k, plain.W_k), (layer.W_v, plain.W_v)):
            one.weight[: H * H] = 0
            one.bias[: H * H] = H * torch.eye(H).flatten()
            one.weight[H * H :] = other.weight
            one.bias[H * H :] = other.bias
        layer.W_o.load_state_dict(plain.W_o.state_dict())
    x = torch.randn(2, 7, D)
    torch.testing.assert_close(layer(x, x, x, mask=Band()), plain(x, x, x, mask=Band()), atol=1e-12, rtol=1e-12)


def test_to_turn_the_vectors_is_to_turn_the_keys():
    """So the cache may hold vectors that are turned."""
    layer = variants.TensorProductAttention(D, H, positions="rotary", rotary_base=37.0)
    x = torch.randn(2, 7, D)
    turned = layer.project_with_cache(x, x, x, None)
    layer.positions = None
    plain = layer.project_with_cache(x, x, x, None)
    for one, other in zip(turned[:2], plain[:2], strict=True):
        torch.testing.assert_close(one, rotate(other, base=37.0), atol=1e-12, rtol=1e-12)


def test_the_cache_keeps_factors():
    layer, x = variants.TensorProductAttention(64, 8, rank=1), torch.randn(2, 7, 64)
    cache = layer.new_cache()
    layer(x, x, x, cache=cache)
    assert cache.num_bytes == 8 * 2 * 7 * 2 * (8 + 8)  # of 2 * 64 numbers for each token
