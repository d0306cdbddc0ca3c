"""Positions: against the paper's formula in loops, against complex numbers, and by what they are made for."""

import math
import re

import pytest
import torch

from mhalib import KeyValueCache, MultiHeadAttention
from mhalib.attention import LearnedPositions, SinusoidalPositions, rotate, sinusoidal_positions


def _paper(num_tokens, num_hiddens, start):
    """Section 3.5, number by number: sin and cos of pos / 10000^(2i / width)."""
    rows = []
    for place in range(start, start + num_tokens):
        row = []
        for pair in range(num_hiddens // 2):
            angle = place / 10000 ** (2 * pair / num_hiddens)
            row += [math.sin(angle), math.cos(angle)]
        rows.append(row)
    return torch.tensor(rows)


@pytest.mark.parametrize(("num_tokens", "num_hiddens", "start"), [(1, 2, 0), (7, 10, 0), (5, 6, 3), (3, 4, 5000)])
def test_sinusoids_are_the_paper_s(num_tokens, num_hiddens, start):
    table = sinusoidal_positions(num_tokens, num_hiddens, start)
    torch.testing.assert_close(table, _paper(num_tokens, num_hiddens, start), rtol=0, atol=1e-6)


def test_sinusoids_of_no_tokens():
    assert sinusoidal_positions(0, 6).shape == (0, 6)


def test_sinusoids_start_counts_places():
    assert torch.equal(sinusoidal_positions(5, 6, 7), sinusoidal_positions(12, 6)[7:])


@pytest.mark.parametrize("distance", [1, 3, 11])
def test_a_shift_is_one_linear_map_for_all_places(distance):
    """Each pair (sin, cos) of place n + distance is that of place n, turned: the map does not know n."""
    table = sinusoidal_positions(40, 10)
    here, there = table[: 40 - distance], table[distance:]
    turned = []
    for pair in range(5):
        angle = distance / 10000 ** (2 * pair / 10)
        sin, cos = math.sin(angle), math.cos(angle)
        turned.append(here[:, 2 * pair : 2 * pair + 2] @ torch.tensor([[cos, -sin], [sin, cos]]))
    torch.testing.assert_close(torch.cat(turned, 1), there, rtol=0, atol=1e-5)


@pytest.mark.parametrize("start", [0, 4])
@pytest.mark.parametrize("shape", [(7, 2), (2, 3, 5, 6)])
def test_rotate_multiplies_complex_numbers(shape, start):
    """Channels 2i and 2i + 1 are one complex number, and it is multiplied by e^(i angle)."""
    torch.manual_seed(0)
    x = torch.randn(*shape, dtype=torch.float64)
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
    places = torch.arange(start, start + shape[-2], dtype=torch.float64)
    rates = torch.tensor([10000 ** (-2 * pair / shape[-1]) for pair in range(shape[-1] // 2)], dtype=torch.float64)
    unit = torch.polar(torch.ones((), dtype=torch.float64), places[:, None] * rates)
    expected = torch.view_as_real(pairs * unit).flatten(-2)
    torch.testing.assert_close(rotate(x, start), expected, rtol=0, atol=1e-6)


def test_rotate_leaves_the_first_token_and_all_lengths(device):
    torch.manual_seed(0)
    x = torch.randn(2, 7, 6, device=device)
    turned = rotate(x)
    torch.testing.assert_close(turned[:, 0], x[:, 0])
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))
    assert not torch.allclose(turned[:, 1:], x[:, 1:], atol=0.1)


def test_rotated_products_depend_on_the_distance_only():
    torch.manual_seed(0)
    q, k = torch.randn(2, 6)
    products = rotate(q.expand(11, 6)) @ rotate(k.expand(11, 6)).T  # (Q, K): the same vectors at all places
    for distance in range(-10, 11):
        diagonal = products.diagonal(distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), rtol=0, atol=1e-5)
    assert products[0].std() > 0.1


def test_rotate_keeps_the_dtype():
    assert rotate(torch.ones(3, 4, dtype=torch.bfloat16)).dtype == torch.bfloat16


def _rotary(num_hiddens=12, num_heads=3):
    torch.manual_seed(0)
    return MultiHeadAttention(num_hiddens, num_heads, bias=True, positions="rotary")


def test_rotary_attention_is_attention_of_turned_queries_and_keys(device):
    layer = _rotary().to(device)
    x = torch.randn(2, 5, 12, device=device)
    output, weights = layer(x, x, x)
    found = []
    for head in range(3):
        own = slice(4 * head, 4 * head + 4)
        q, k = rotate(layer.W_q(x)[..., own]), rotate(layer.W_k(x)[..., own])
        expected = (q @ k.mT / 2).softmax(-1)
        torch.testing.assert_close(weights[:, head], expected)
        found.append(expected @ layer.W_v(x)[..., own])
    torch.testing.assert_close(output, layer.W_o(torch.cat(found, -1)))


def test_rotary_attention_sees_order_and_no_absolute_place():
    """Unlike plain attention it tells an order from another; but the same text further on looks the same."""
    layer = _rotary()
    x = torch.randn(1, 5, 12)
    _, weights = layer(x, x, x)
    order = torch.tensor([2, 0, 1, 4, 3])
    _, shuffled = layer(x[:, order], x[:, order], x[:, order])
    assert not torch.allclose(shuffled, weights[:, :, order][:, :, :, order], atol=1e-3)
    cache = KeyValueCache()
    cache.append(torch.zeros(1, 3, 7, 4), torch.zeros(1, 3, 7, 4))  # 7 tokens before, which a mask hides
    seen = torch.arange(12) >= 7
    _, later = layer(x, x, x, mask=seen, cache=cache)
    torch.testing.assert_close(later[..., 7:], weights, rtol=0, atol=1e-5)


def test_rotary_attention_needs_as_many_keys_as_queries():
    x = torch.zeros(1, 5, 12)
    with pytest.raises(ValueError, match="rotary positions are for self-attention: 2 queries, but 5 keys"):
        _rotary()(x[:, :2], x, x)


def test_rotary_attention_has_the_weights_of_the_plain_layer():
    plain = MultiHeadAttention(12, 3, bias=True)
    assert {n: p.shape for n, p in plain.named_parameters()} == {n: p.shape for n, p in _rotary().named_parameters()}


def test_learned_positions_add_row_n_to_token_n():
    torch.manual_seed(0)
    positions = LearnedPositions(7, 6)
    x = torch.randn(2, 3, 6)
    for start in (0, 4):
        output = positions(x, start)
        for n in range(3):
            torch.testing.assert_close(output[:, n], x[:, n] + positions.table[start + n])


def test_learned_positions_get_gradients_where_they_were_used():
    positions = LearnedPositions(7, 6)
    positions(torch.zeros(2, 3, 6), 4).sum().backward()
    assert positions.table.grad.eq(torch.tensor([0, 0, 0, 0, 2, 2, 2])[:, None]).all()


def test_sinusoidal_positions_add_the_table():
    x = torch.randn(2, 5, 6)
    torch.testing.assert_close(SinusoidalPositions()(x, 3), x + _paper(5, 6, 3))
    assert not list(SinusoidalPositions().parameters())


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: sinusoidal_positions(3, 5), ValueError, "positions by angles need an even width, got 5"),
        (lambda: sinusoidal_positions(3, 0), ValueError, "width=0 must be at least 1"),
        (lambda: sinusoidal_positions(-1, 4), ValueError, "num_tokens=-1 must be at least 0"),
        (lambda: sinusoidal_positions(3.0, 4), TypeError, "num_tokens must be an integer, got float: 3.0"),
        (lambda: sinusoidal_positions(3, 4, -2), ValueError, "start=-2 must be at least 0"),
        (lambda: rotate([1.0]), TypeError, "x must be a torch.Tensor, got list: [1.0]"),
        (lambda: rotate(torch.ones(4)), ValueError, "x needs at least 2 axes, got shape (4,)"),
        (lambda: rotate(torch.ones(3, 5)), ValueError, "positions by angles need an even width, got 5"),
        (lambda: rotate(torch.ones(3, 4), -1), ValueError, "start=-1 must be at least 0"),
        (lambda: LearnedPositions(0, 4), ValueError, "max_tokens=0 must be at least 1"),
        (lambda: LearnedPositions(4, 2.5), TypeError, "num_hiddens must be an integer, got float: 2.5"),
        (
            lambda: LearnedPositions(4, 6)(torch.ones(1, 3, 6), 2),
            ValueError,
            "5 tokens, but the model has only max_tokens=4 positions",
        ),
    ],
)
def test_errors_name_argument_and_value(call, error, message):
    with pytest.raises(error, match=re.escape(message)):
        call()


def test_learned_positions_and_vectors_are_on_one_device():
    with pytest.raises(ValueError, match="x is on meta, but positions are on cpu"):
        LearnedPositions(8, 12)(torch.zeros(2, 5, 12, device="meta"))
    assert LearnedPositions(8, 12).to("meta")(torch.zeros(2, 5, 12, device="meta")).is_meta
