"""`attend` and `MultiHeadAttention`: their values, gradients, dropout and state."""

import copy
import math
import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from mhalib import MultiHeadAttention, attend, masked_softmax, padding_mask, reference
from mhalib.bench import peak_bytes

EXACT = {"rtol": 0, "atol": 1e-10}
SIZES = st.lists(st.sampled_from([1, 2, 3, 5, 7]), min_size=5, max_size=5, unique=True)
MASKS = st.sampled_from([None, "", "K", "QK", "B11K", "1h1K", "BhQK", "11Q1"])
LENGTHS = st.sampled_from([None, "B", "BQ"])
BOTH = pytest.mark.parametrize("need_weights", [True, False])


@given(sizes=SIZES, axes=MASKS, need_weights=st.booleans())
def test_attend_equals_the_loops(sizes, axes, need_weights, device):
    batch_size, num_queries, num_kvpairs, num_heads, head_dim = sizes
    q, k, v = _random(
        device, (num_queries, head_dim), (num_kvpairs, head_dim), (num_kvpairs, 11), lead=(batch_size, num_heads)
    )
    mask = _random_mask(axes, sizes, device)
    output, weights = attend(q, k, v, mask, need_weights=need_weights)
    whole_mask = None if mask is None else mask.expand(batch_size, num_heads, num_queries, num_kvpairs)
    expected, expected_weights = reference.attend_loops(q, k, v, whole_mask)
    torch.testing.assert_close(output, expected, **EXACT)
    assert (weights is not None) == need_weights
    if need_weights:
        assert weights.shape == (batch_size, num_heads, num_queries, num_kvpairs)
        torch.testing.assert_close(weights, expected_weights, **EXACT)


@given(sizes=SIZES, axes=MASKS.filter(lambda axes: axes not in ("", "K")))
def test_attend_equals_torch(sizes, axes, device):
    batch_size, num_queries, num_kvpairs, num_heads, head_dim = sizes
    q, k, v = _random(
        device, (num_queries, head_dim), (num_kvpairs, head_dim), (num_kvpairs, 11), lead=(batch_size, num_heads)
    )
    mask = _random_mask(axes, sizes, device)
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    torch.testing.assert_close(attend(q, k, v, mask)[0], expected, **EXACT)


@given(sizes=SIZES, axes=MASKS, lengths=LENGTHS, bias=st.booleans(), need_weights=st.booleans())
def test_layer_equals_the_loops(sizes, axes, lengths, bias, need_weights, device):
    layer, inputs = _layer_and_inputs(sizes, bias, device)
    masks = {"mask": _random_mask(axes, sizes, device), "valid_lens": _random_lengths(lengths, sizes, device)}
    output, weights = layer(*inputs, **masks, need_weights=need_weights)
    expected, expected_weights = reference.multi_head_attention_loops(layer, *inputs, **masks)
    torch.testing.assert_close(output, expected, **EXACT)
    assert (weights is not None) == need_weights
    if need_weights:
        torch.testing.assert_close(weights, expected_weights, **EXACT)


@pytest.mark.parametrize("lead", [(), (3,), (2, 3, 5, 7)])
@BOTH
def test_attend_takes_any_leading_axes(lead, need_weights):
    q, k, v = _random("cpu", (5, 3), (7, 3), (7, 2), lead=lead)
    mask = _random_mask("QK", (1, 5, 7, 1, 1), "cpu")
    output, _ = attend(q, k, v, mask, need_weights=need_weights)
    torch.testing.assert_close(output, F.scaled_dot_product_attention(q, k, v, attn_mask=mask), **EXACT)


@given(sizes=SIZES, axes=MASKS)
def test_rows_of_weights_sum_to_1_or_see_nothing(sizes, axes, device):
    batch_size, num_queries, num_kvpairs, num_heads, head_dim = sizes
    q, k = _random(device, (num_queries, head_dim), (num_kvpairs, head_dim), lead=(batch_size, num_heads))
    mask = _random_mask(axes, sizes, device)
    _, weights = attend(q, k, k, mask)
    sees_something = torch.ones((), dtype=torch.bool) if mask is None else mask.any(-1)
    torch.testing.assert_close(weights.sum(-1), sees_something.to(weights).expand(weights.shape[:-1]), **EXACT)


@BOTH
def test_a_query_that_sees_nothing_gets_exactly_0(need_weights, device):
    q, k, v = _random(device, (5, 3), (7, 3), (7, 11), lead=(2, 3))
    mask = torch.ones(2, 1, 5, 7, dtype=torch.bool, device=device)
    mask[1, :, 2] = False
    output, weights = attend(q, k, v, mask, need_weights=need_weights)
    assert output[1, :, 2].count_nonzero() == 0
    assert output[0, :, 2].count_nonzero() == 3 * 11
    assert weights is None or weights[1, :, 2].count_nonzero() == 0


def test_masked_softmax_survives_scores_that_overflow():
    scores = torch.tensor([[1e30, -1e30, 1e30], [-1e30, -1e30, 5.0]])
    mask = torch.tensor([[True, True, True], [True, True, False]])
    torch.testing.assert_close(masked_softmax(scores, mask), torch.tensor([[0.5, 0, 0.5], [0.5, 0.5, 0]]))


def test_masked_softmax_does_not_mind_what_is_hidden_and_leaves_its_argument():
    scores = torch.tensor([[1.0, 1.0, torch.nan], [torch.inf, 2.0, 2.0], [torch.nan, torch.nan, torch.inf]])
    before = scores.clone()
    mask = torch.tensor([[True, True, False], [False, True, True], [False, False, False]])
    torch.testing.assert_close(masked_softmax(scores, mask), torch.tensor([[0.5, 0.5, 0], [0, 0.5, 0.5], [0, 0, 0]]))
    torch.testing.assert_close(scores, before, rtol=0, atol=0, equal_nan=True)


@given(sizes=SIZES, axes=MASKS)
def test_attend_gives_the_same_when_no_gradient_is_wanted(sizes, axes, device):
    batch_size, num_queries, num_kvpairs, num_heads, head_dim = sizes
    q, k, v = _random(
        device, (num_queries, head_dim), (num_kvpairs, head_dim), (num_kvpairs, 11), lead=(batch_size, num_heads)
    )
    copies = [x.clone() for x in (q, k, v)]
    mask = _random_mask(axes, sizes, device)
    expected = attend(q, k, v, mask)
    for mode in (torch.no_grad(), torch.inference_mode()):
        with mode:
            torch.testing.assert_close(attend(q, k, v, mask), expected, **EXACT)
    torch.testing.assert_close([q, k, v], copies, rtol=0, atol=0)


def test_autocast_gives_the_same_weights_when_no_gradient_is_wanted(device):
    q, k = (x.float() for x in _random(device, (5, 3), (7, 3), lead=(2, 3)))
    with torch.autocast(device.type, torch.bfloat16):
        _, expected = attend(q, k, k)
        with torch.no_grad():
            _, weights = attend(q, k, k)
    torch.testing.assert_close(weights, expected, rtol=0, atol=0)  # in one dtype: on a GPU, autocast's float32


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.*torch.jit.script:FutureWarning")  # torch's own
@pytest.mark.parametrize("grad", [True, False])
def test_attend_under_vmap_and_forward_mode(grad):
    q, k, v = _random("cpu", (5, 3), (7, 3), (7, 2), lead=(4, 2))
    mask = _random_mask("BhQK", (4, 5, 7, 2, 3), "cpu")
    mask[1, :, 2] = False
    with torch.set_grad_enabled(grad):
        torch.testing.assert_close(torch.func.vmap(attend)(q, k, v, mask), attend(q, k, v, mask), **EXACT)
        value, slope = torch.func.jvp(lambda v: attend(q, k, v, mask)[0], (v,), (torch.ones_like(v),))
    torch.testing.assert_close(value, attend(q, k, v, mask)[0], **EXACT)
    torch.testing.assert_close(slope, mask.any(-1, keepdim=True).to(v).expand_as(slope), **EXACT)


@BOTH
def test_gradients_are_those_of_finite_differences(need_weights, device):
    q, k, v = (x.requires_grad_() for x in _random(device, (3, 2), (5, 2), (5, 1), lead=(1, 2)))
    mask = torch.rand(3, 5, device=device) < 0.6
    mask[1] = False

    def returned(q, k, v):
        return tuple(x for x in attend(q, k, v, mask, need_weights=need_weights) if x is not None)

    assert torch.autograd.gradcheck(returned, (q, k, v))


@BOTH
def test_gradients_are_finite_when_a_query_sees_nothing(need_weights, device):
    layer, inputs = _layer_and_inputs((2, 5, 7, 3, 4), True, device)
    for x in inputs:
        x.requires_grad_()
    with torch.autograd.set_detect_anomaly(True):  # no NaN on the way either, which would stop whoever looks for NaN
        output, _ = layer(*inputs, torch.tensor([0, 3], device=device), need_weights=need_weights)
        output.square().sum().backward()
    assert all(x.grad.isfinite().all() for x in [*inputs, *layer.parameters()])
    assert inputs[1].grad[0].count_nonzero() == 0


@pytest.mark.parametrize(("batch_size", "num_queries", "num_kvpairs"), [(0, 3, 5), (2, 0, 5), (2, 3, 0)])
@BOTH
def test_no_examples_no_queries_no_keys(batch_size, num_queries, num_kvpairs, need_weights, device):
    layer, inputs = _layer_and_inputs((batch_size, num_queries, num_kvpairs, 2, 7), True, device)
    lengths = torch.full((batch_size,), num_kvpairs, device=device)
    output, weights = layer(*inputs, lengths, need_weights=need_weights)
    assert output.shape == (batch_size, num_queries, 14)
    torch.testing.assert_close(output, layer.W_o.bias.expand_as(output))  # what is left when nothing is attended to
    assert weights is None or weights.shape == (batch_size, 2, num_queries, num_kvpairs)


def test_dropped_weights_are_0_and_the_others_grow():
    torch.manual_seed(0)
    q, k = torch.randn(2, 2, 3, 61, 5)
    output, weights = attend(q, k, torch.eye(61).expand(2, 3, 61, 61), dropout=0.25)  # v = 1 shows what arrived
    kept = output != 0
    torch.testing.assert_close(output[kept], weights[kept] / 0.75)
    torch.testing.assert_close(weights, attend(q, k, k)[1], rtol=0, atol=0)
    assert 0.7 < kept.float().mean() < 0.8


@BOTH
def test_the_layer_drops_weights_only_in_training(need_weights, device):
    layer, inputs = _layer_and_inputs((2, 5, 7, 3, 11), True, device)
    layer.dropout = 0.5
    trained, trained_weights = layer(*inputs, need_weights=need_weights)
    output, weights = layer.eval()(*inputs, need_weights=need_weights)
    layer.dropout = 0.0
    torch.testing.assert_close(output, layer(*inputs)[0], **EXACT)
    assert not torch.allclose(trained, output)
    torch.testing.assert_close(trained_weights, weights, rtol=0, atol=0)  # or both None


def test_dropout_of_1_leaves_nothing():
    q, k, v = _random("cpu", (5, 3), (7, 3), (7, 2), lead=(2,))
    for need_weights in (True, False):
        assert attend(q, k, v, dropout=1.0, need_weights=need_weights)[0].count_nonzero() == 0


def test_forward_leaves_nothing_on_the_layer():
    layer, inputs = _layer_and_inputs((2, 5, 7, 3, 11), True, "cpu")

    def state():
        return [{name: copy.copy(value) for name, value in vars(module).items()} for module in layer.modules()]

    before = state()
    layer(*inputs, torch.tensor([2, 7]), mask=torch.ones(5, 7, dtype=torch.bool))
    assert state() == before


def test_save_and_load(tmp_path):
    layer, inputs = _layer_and_inputs((2, 5, 7, 3, 11), True, "cpu")
    torch.save(layer.state_dict(), tmp_path / "layer.pt")
    loaded, _ = _layer_and_inputs((2, 5, 7, 3, 11), True, "cpu", seed=1)
    assert not torch.equal(loaded(*inputs)[0], layer(*inputs)[0])
    loaded.load_state_dict(torch.load(tmp_path / "layer.pt", weights_only=True))
    assert torch.equal(loaded(*inputs)[0], layer(*inputs)[0])


@pytest.mark.parametrize("bias", [True, False])
def test_state_dict_has_the_names_of_d2l(bias):
    parts = ("weight", "bias") if bias else ("weight",)
    expected = {f"{name}.{part}" for name in ("W_q", "W_k", "W_v", "W_o") for part in parts}
    assert set(MultiHeadAttention(6, 3, bias=bias).state_dict()) == expected


def test_a_copy_is_independent():
    layer, inputs = _layer_and_inputs((2, 5, 7, 3, 11), True, "cpu")
    twin = copy.deepcopy(layer)
    before = layer(*inputs)[0]
    assert torch.equal(twin(*inputs)[0], before)
    torch.nn.init.zeros_(twin.W_v.weight)
    assert torch.equal(layer(*inputs)[0], before)
    assert not torch.equal(twin(*inputs)[0], before)


def test_the_layer_says_what_it_is():
    assert "num_hiddens=21, num_heads=3, head_dim=7, dropout=0.5" in repr(MultiHeadAttention(21, 3, dropout=0.5))


@pytest.mark.parametrize(("batch_size", "length"), [(4, 32), (1, 256)])
@pytest.mark.parametrize("lengths", [False, True])
@pytest.mark.parametrize("backward", [False, True])
def test_the_layer_takes_no_more_memory_than_torchs(batch_size, length, lengths, backward):
    torch.manual_seed(0)
    layer = MultiHeadAttention(64, 4, bias=True).eval()
    twin = reference.to_torch(layer)
    x = torch.randn(batch_size, length, 64, requires_grad=backward)
    valid_lens = torch.randint(1, length + 1, (batch_size,)) if lengths else None

    def mask():
        return None if valid_lens is None else padding_mask(valid_lens, length)

    def bare():
        q, k, v = (W(x).unflatten(-1, (4, 16)).transpose(1, 2) for W in (layer.W_q, layer.W_k, layer.W_v))
        return layer.W_o(F.scaled_dot_product_attention(q, k, v, attn_mask=mask()).transpose(1, 2).flatten(2))

    def torchs():
        hidden = None if valid_lens is None else ~mask()[:, 0, 0]
        return twin(x, x, x, key_padding_mask=hidden, average_attn_weights=False)[0]

    def peak(function):
        def run():
            output = function()
            if backward:
                torch.autograd.grad(output, x, torch.ones_like(output))

        with torch.set_grad_enabled(backward):
            return peak_bytes(run)

    assert peak(lambda: layer(x, x, x, valid_lens, need_weights=False)[0]) <= peak(bare)
    assert peak(lambda: layer(x, x, x, valid_lens)[0]) <= peak(torchs)


@pytest.mark.parametrize("axes", [None, "B11K", "QK"])
@pytest.mark.parametrize(("grad", "arrays"), [(False, 1), (True, 2)])
def test_attend_stores_no_more_scores_than_it_needs(axes, grad, arrays):
    """Weights alone without a gradient; with one, the scores they come from as well, until they are there."""
    q, k, v = _random("cpu", (256, 4), (256, 4), (256, 4), lead=(1, 8))
    mask = _random_mask(axes, (1, 256, 256, 8, 4), "cpu")
    one_array, rest = 8 * 256 * 256 * 8, 1.15
    with torch.set_grad_enabled(grad):
        assert peak_bytes(lambda: attend(q.requires_grad_(grad), k, v, mask)) < arrays * one_array * rest


def _random(device, *shapes, lead=()):
    """Random float64 tensors, one for each shape, all with the axes `lead` in front."""
    torch.manual_seed(0)
    return [torch.randn(*lead, *shape, dtype=torch.float64, device=device) for shape in shapes]


def _random_mask(axes, sizes, device):
    """A random mask whose shape is spelt by `axes`, such as "B11K"; `None` makes none."""
    if axes is None:
        return None
    torch.manual_seed(1)
    named = dict(zip("BQKh", sizes, strict=False)) | {"1": 1}
    return torch.rand([named[axis] for axis in axes], device=device) < 0.6


def _random_lengths(axes, sizes, device):
    """Random lengths in 0..K of shape (B,) or (B, Q)."""
    if axes is None:
        return None
    torch.manual_seed(2)
    return torch.randint(0, sizes[2] + 1, sizes[: len(axes)], device=device)


def _layer_and_inputs(sizes, bias, device, seed=0):
    """A float64 layer whose three inputs have widths of their own, and such inputs; `seed` makes the layer."""
    batch_size, num_queries, num_kvpairs, num_heads, head_dim = sizes
    torch.manual_seed(seed)
    layer = MultiHeadAttention(
        num_heads * head_dim, num_heads, bias=bias, query_size=13, key_size=17, value_size=19
    ).to(device, torch.float64)
    return layer, _random(device, (num_queries, 13), (num_kvpairs, 17), (num_kvpairs, 19), lead=(batch_size,))


def test_a_hidden_score_that_overflows_in_float16_does_no_harm():
    q, k, v = (torch.full((1, 1, length, 4), 200.0, dtype=torch.float16) for length in (2, 3, 3))
    k[..., :2, :] = 1.0
    v[..., 0, :] = 100.0
    assert torch.isinf(q @ k.mT)[..., 2].all()
    mask = torch.tensor([True, True, False])
    output, weights = attend(q, k, v, mask)
    torch.testing.assert_close(weights, torch.tensor([0.5, 0.5, 0]).half().expand(1, 1, 2, 3))
    torch.testing.assert_close(output, attend(q, k, v, mask, need_weights=False)[0])


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_hidden_key_that_is_not_finite_does_no_harm_where_weights_are_wanted(value, grad):
    q, k, v = _random("cpu", (5, 3), (7, 3), (7, 2), lead=(2, 3))
    mask = torch.ones(5, 7, dtype=torch.bool)
    mask[:, 4] = False
    mask[1] = False
    expected = attend(q, k, v, mask)
    k[..., 4, :] = value
    with torch.set_grad_enabled(grad):
        torch.testing.assert_close(attend(q, k, v, mask), expected, rtol=0, atol=0)


def test_the_gradient_of_a_blind_row_of_infinite_scores_is_0():
    scores = torch.tensor([[math.inf, -math.inf, math.nan], [1.0, 2.0, math.inf]], requires_grad=True)
    mask = torch.tensor([[False, False, False], [True, True, False]])
    weights = masked_softmax(scores, mask)
    with torch.autograd.set_detect_anomaly(True):
        (weights * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert scores.grad.isfinite().all()
    assert scores.grad[0].count_nonzero() == 0
    assert scores.grad[1, :2].count_nonzero() == 2


class _Masked(torch.nn.Module):
    """A layer whose mask can be traced: by its place."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, queries, keys, values, mask):
        return self.layer(queries, keys, values, mask=mask)


class _Fused(_Masked):
    """A layer without weights."""

    def forward(self, queries, keys, values):
        return self.layer(queries, keys, values, need_weights=False)[0]


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*torch.jit:FutureWarning")
@pytest.mark.parametrize("grad", [True, False])
def test_a_traced_layer_takes_a_blind_row_that_it_was_not_traced_with(grad):
    layer, inputs = _layer_and_inputs((2, 5, 7, 3, 4), True, "cpu")
    mask = torch.ones(2, 1, 5, 7, dtype=torch.bool)
    blind = mask.clone()
    blind[0, :, 2] = False
    lens = torch.tensor([7, 3])
    with torch.set_grad_enabled(grad):
        by_mask = torch.jit.trace(_Masked(layer), (*inputs, mask))
        by_lens = torch.jit.trace(layer, (*inputs, lens))
        fused = torch.jit.trace(_Fused(layer).requires_grad_(False), inputs)
    with torch.no_grad():
        torch.testing.assert_close(by_mask(*inputs, blind), layer(*inputs, mask=blind))
        torch.testing.assert_close(fused(*inputs), layer(*inputs)[0])
        torch.testing.assert_close(by_lens(*inputs, torch.tensor([0, 6])), layer(*inputs, torch.tensor([0, 6])))


def test_lengths_may_come_under_vmap_and_on_the_device_meta():
    layer, inputs = _layer_and_inputs((2, 5, 7, 3, 4), True, "cpu")
    lens = torch.tensor([0, 6])
    one = torch.func.vmap(lambda q, k, v, n: layer(q[None], k[None], v[None], n[None])[0][0])(*inputs, lens)
    torch.testing.assert_close(one, layer(*inputs, lens)[0], **EXACT)
    output, weights = layer.to("meta")(*(x.to("meta") for x in inputs), lens.to("meta"))
    assert output.is_meta
    assert weights.shape == (2, 3, 5, 7)


def test_a_quantized_layer_is_near_the_layer():
    layer, inputs = _layer_and_inputs((2, 5, 7, 3, 4), True, "cpu")
    layer, inputs = layer.float(), [x.float() for x in inputs]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch will move this function elsewhere
        small = torch.ao.quantization.quantize_dynamic(layer, {torch.nn.Linear})
    assert not isinstance(small.W_q, torch.nn.Linear)
    torch.testing.assert_close(small(*inputs)[0], layer(*inputs)[0], rtol=0, atol=0.1)


def test_a_nested_tensor_is_refused_by_name():
    layer, (queries, *_) = _layer_and_inputs((2, 5, 5, 3, 4), True, "cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nested = torch.nested.nested_tensor([queries[0], queries[1, :3]])
    with pytest.raises(TypeError, match="queries is a nested tensor: pad it, and give valid_lens"):
        layer(nested, nested, nested)


@pytest.mark.parametrize("num_masks", [1, 7])
def test_a_mask_of_three_axes_stores_no_scores_either(num_masks):
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 7, 256, 16)
    mask = torch.rand(num_masks, 256, 256) < 0.7
    scores = 2 * 7 * 256 * 256 * 4
    found = attend(q, k, v, mask, need_weights=False)[0]
    assert torch.equal(found, attend(q, k, v, mask[None], need_weights=False)[0])
    torch.testing.assert_close(found, attend(q, k, v, mask)[0])
    assert peak_bytes(lambda: attend(q, k, v, mask, need_weights=False)) < scores
