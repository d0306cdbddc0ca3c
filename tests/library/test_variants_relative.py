"""Numbers for distances, against loops written from the formula, and in the models that share them."""

import copy
import math
import re

import pytest
import torch

from mhalib import Band, MultiHeadAttention, variants
from mhalib.models import GPT, Transformer

D, H, d, B = 24, 4, 6, 2
EXACT = {"atol": 1e-12, "rtol": 1e-12}
CHOICE = {"name": "relative", "num_buckets": 6, "max_distance": 5}
pytestmark = pytest.mark.usefixtures("in_float64")


def _bucket(distance, num_buckets, max_distance, one_sided):
    """Of one distance: the first half of a side's buckets holds one each, the others' borders are a geometric row."""
    if one_sided:
        first, size, away = 0, num_buckets, max(-distance, 0)
    else:
        size = num_buckets // 2
        first, away = (size if distance > 0 else 0), abs(distance)
    single = size // 2
    borders = [single * (max_distance / single) ** (i / (size - single)) for i in range(1, size - single)]
    if away < single:
        return first + away
    return first + single + sum(away >= border - 1e-9 for border in borders)


@pytest.mark.parametrize(
    ("num_buckets", "max_distance", "one_sided"),
    [(32, 128, False), (32, 128, True), (8, 20, False), (4, 7, False), (2, 9, True), (6, 5, False), (16, 1000, True)],
)
def test_buckets_are_single_distances_and_then_a_geometric_row(num_buckets, max_distance, one_sided):
    distances = list(range(-3 * max_distance, 3 * max_distance))
    settings = (num_buckets, max_distance, one_sided)
    found = variants.distance_buckets(torch.tensor(distances), *settings)
    assert found.tolist() == [_bucket(one, *settings) for one in distances]
    never = set() if one_sided else {num_buckets // 2}  # what is behind a query is not at distance 0
    assert set(found.tolist()) == set(range(num_buckets)) - never
    matrix = torch.tensor(distances).view(2, -1)
    assert torch.equal(variants.distance_buckets(matrix.int(), *settings), found.view(2, -1))


def _by_loops(layer, x, y, mask):
    """Output and weights of one example; the last query is the last key's token."""
    num_queries, num_keys = len(x), len(y)
    q, k, v = (
        (projection(z)).unflatten(-1, (layer.num_heads, d))
        for projection, z in ((layer.W_q, x), (layer.W_k, y), (layer.W_v, y))
    )
    weights, found = torch.zeros(layer.num_heads, num_queries, num_keys), torch.zeros(num_queries, layer.num_heads, d)
    for i, made in enumerate(layer.head_numbers):
        for t in range(num_queries):
            powers = {}
            for s in range(num_keys):
                distance = s - (t + num_keys - num_queries)
                bucket = _bucket(distance, layer.num_buckets, layer.max_distance, layer.one_sided)
                if mask[t, s]:
                    score = float(q[t, i] @ k[s, i]) * layer.scale + float(layer.distance_scores[bucket, made])
                    powers[s] = math.exp(score)
            for s, power in powers.items():
                weights[i, t, s] = power / sum(powers.values())
                found[t, i] += weights[i, t, s] * v[s, i]
    return layer.W_o(found.flatten(1)), weights


@pytest.mark.parametrize(("one_sided", "scale"), [(False, 1.0), (True, None)])
def test_numbers_are_added_as_in_the_loop(one_sided, scale):
    torch.manual_seed(0)
    layer = variants.RelativeAttention(D, H, scale=scale, num_buckets=6, max_distance=5, one_sided=one_sided)
    x = torch.randn(B, 7, D)
    some = torch.rand(B, 1, 7, 7) > 0.4
    some[1, :, 2] = False  # sees nothing
    for mask in (None, Band(), some):
        matrix = torch.ones(7, 7) if mask is None else mask.matrix(7, 7) if isinstance(mask, Band) else mask
        rows = matrix.expand(B, 1, 7, 7)[:, 0]
        with torch.no_grad():
            expected = [_by_loops(layer, x[b], x[b], rows[b]) for b in range(B)]
            output, weights = layer(x, x, x, mask=mask)
            torch.testing.assert_close(output, torch.stack([one for one, _ in expected]), **EXACT)
            torch.testing.assert_close(weights, torch.stack([one for _, one in expected]), **EXACT)
            torch.testing.assert_close(layer(x, x, x, mask=mask, need_weights=False)[0], output, **EXACT)


def test_a_query_is_the_last_keys_token():
    """So it is with a cache, and where keys come before the queries."""
    layer = variants.RelativeAttention(D, H, num_buckets=6, max_distance=5, one_sided=True).requires_grad_(False)
    x = torch.randn(1, 7, D)
    output, weights = _by_loops(layer, x[0, 4:], x[0], torch.ones(3, 7, dtype=torch.bool).tril(4))
    found, of_late = layer(x[:, 4:], x, x, mask=Band(offset=4))
    torch.testing.assert_close(found[0], output, **EXACT)
    torch.testing.assert_close(of_late[0], weights, **EXACT)
    cache = layer.new_cache()
    layer(x[:, :4], x[:, :4], x[:, :4], mask=Band(), cache=cache)
    found, of_late = layer(x[:, 4:], x[:, 4:], x[:, 4:], mask=Band(offset=4), cache=cache)
    torch.testing.assert_close(found[0], output, **EXACT)
    torch.testing.assert_close(of_late[0], weights, **EXACT)
    assert layer.added(0, 0).shape == (H, 0, 0)
    assert layer.added(0, 3).shape == (H, 0, 3)


def test_gradients_are_those_of_finite_differences():
    layer, x = variants.RelativeAttention(D, H, num_buckets=6, max_distance=5), torch.randn(1, 5, D)

    def output(numbers):
        return torch.func.functional_call(layer, {"distance_scores": numbers}, (x, x, x))[0].sin().sum()

    assert torch.autograd.gradcheck(output, (torch.randn(6, H, requires_grad=True),), fast_mode=True, atol=1e-6)


def test_without_numbers_it_is_multi_head_attention():
    plain = MultiHeadAttention(D, H, bias=True)
    layer = variants.RelativeAttention(D, H, bias=True)
    layer.load_state_dict({**plain.state_dict(), "distance_scores": torch.zeros(32, H)})
    x = torch.randn(B, 7, D)
    torch.testing.assert_close(layer(x, x, x, mask=Band()), plain(x, x, x, mask=Band()), **EXACT)


def test_heads_keep_their_numbers_when_others_go():
    layer, x = variants.RelativeAttention(D, H, num_buckets=6, max_distance=5), torch.randn(B, 7, D)
    gates = torch.tensor([1.0, 0.0, 1.0, 1.0])[:, None, None]
    with layer.on_heads(lambda found: found * gates):
        expected, weights = layer(x, x, x)
    layer.keep_heads([0, 2, 3])
    layer.keep_heads([0, 1, 2])
    output, left = layer(x, x, x)
    torch.testing.assert_close(output, expected, **EXACT)
    torch.testing.assert_close(left, weights[:, [0, 2, 3]], **EXACT)


def test_layers_of_a_kind_have_the_first_ones_numbers_or_their_own():
    """In the encoder and in the decoder alike, and after a copy, a pruning and a reading of weights."""
    sizes = (7, 9, D, H, 3, 8)
    model = Transformer(*sizes, attention=CHOICE, decoder={"attention": {**CHOICE, "one_sided": True}})
    kinds = model.attention_layers()
    assert [type(layers[0]).__name__ for layers in kinds.values()] == [
        "RelativeAttention",
        "RelativeAttention",
        "MultiHeadAttention",
    ]
    numbers = {kind: [layer.distance_scores for layer in kinds[kind]] for kind in ("encoder self", "decoder self")}
    assert len({id(one) for of_kind in numbers.values() for one in of_kind}) == 2
    assert [layer.one_sided for layer in kinds["decoder self"]] == [True] * 3
    again = copy.deepcopy(model)
    again.load_state_dict({key: value.clone() for key, value in model.state_dict().items()}, assign=True)
    assert len(list(again.parameters())) == len(list(model.parameters()))
    apart = Transformer(*sizes, attention={**CHOICE, "own": True})
    assert apart.num_weights - model.num_weights == 4 * 6 * H
    ids = torch.randint(7, (2, 5))
    model(ids, ids)[0].sin().sum().backward()
    together = numbers["encoder self"][0].grad
    for layer in kinds["encoder self"]:
        layer.distance_scores = torch.nn.Parameter(layer.distance_scores.detach().clone())
    model.zero_grad()
    model(ids, ids)[0].sin().sum().backward()
    torch.testing.assert_close(together, sum(layer.distance_scores.grad for layer in kinds["encoder self"]), **EXACT)


def test_padding_before_a_text_changes_nothing():
    model = GPT(7, D, H, 2, 8, attention=CHOICE, positions="none").eval()
    ids, is_real = torch.randint(7, (1, 6)), torch.tensor([[False, False, False, True, True, True]])
    padded = model(ids, is_real=is_real)[0][:, 3:]
    torch.testing.assert_close(padded, model(ids[:, 3:])[0], **EXACT)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: variants.RelativeAttention(D, H, num_buckets=2), ValueError, "num_buckets=2 must be at least 4"),
        (lambda: variants.RelativeAttention(D, H, num_buckets=7), ValueError, "num_buckets=7 must be even"),
        (lambda: variants.RelativeAttention(D, H, max_distance=8), ValueError, "max_distance=8 must be above 8, the"),
        (lambda: variants.RelativeAttention(D, H, one_sided=1), TypeError, "one_sided must be True or False"),
        (lambda: variants.RelativeAttention(D, H, own="x"), TypeError, "own must be True or False"),
        (lambda: variants.distance_buckets(torch.ones(3)), TypeError, "distances must hold integers, got torch.fl"),
        (
            lambda: variants.RelativeAttention(D, H)(torch.ones(1, 3, D), torch.ones(1, 2, D), torch.ones(1, 2, D)),
            ValueError,
            "distances are for self-attention: 3 queries, but 2 keys",
        ),
        (
            lambda: Transformer(7, 7, D, H, cross=CHOICE),
            ValueError,
            "cross={'name': 'relative', 'num_buckets': 6, 'max_distance': 5} cannot be: this layer looks at its own",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_name(call, error, message):
    with pytest.raises(error, match=re.escape(message)):
        call()
