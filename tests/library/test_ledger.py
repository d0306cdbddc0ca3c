"""The ledger watches without a trace, its names never lie, its bytes are real, and it says what it cannot see."""

import functools
import gc
import math
import re
import weakref
from html.parser import HTMLParser

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from mhalib import MultiHeadAttention, attend, ledger, merge_heads, split_heads
from mhalib.bench import peak_bytes
from mhalib.reference import D2LMultiHeadAttention, HarvardMultiHeadAttention

pytestmark = pytest.mark.package

B, Q, K, D, H, WIDTH = 2, 4, 6, 100, 5, 20  # the sizes of D2L's check


def _inputs(*shapes, **options):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator).to(**options) for shape in shapes]


def _queries_and_pairs(**options):
    queries, pairs = _inputs((B, Q, D), (B, K, D), **options)
    return queries, pairs, pairs


def einsum_attention(queries, keys, values):
    q, k, v = (x.unflatten(-1, (H, -1)) for x in (queries, keys, values))
    return torch.einsum("bhqk,bkhd->bqhd", torch.einsum("bqhd,bkhd->bhqk", q, k).softmax(-1), v).flatten(2)


def loop_over_heads(queries, keys, values):
    heads = []
    for start in range(0, queries.shape[-1], WIDTH):
        q, k, v = (x[..., start : start + WIDTH] for x in (queries, keys, values))
        heads.append((q @ k.mT).softmax(-1) @ v)
    return torch.cat(heads, -1)


def bmm_attention(queries, keys, values):
    return torch.bmm(torch.bmm(queries, keys.transpose(1, 2)).softmax(-1), values), ["a list", 7]


def fused_attention(queries, keys, values):
    q, k, v = (split_heads(x, H) for x in (queries, keys, values))
    return merge_heads(F.scaled_dot_product_attention(q, k, v))


LENGTHS = torch.tensor([3, 2])
LAYERS = {
    "ours": lambda: (MultiHeadAttention(D, H, dropout=0.3, bias=True), {}),
    "ours, lengths per example": lambda: (MultiHeadAttention(D, H), {"valid_lens": LENGTHS}),
    "ours, lengths per query": lambda: (MultiHeadAttention(D, H), {"valid_lens": torch.tensor([[0, 1, 2, 3]] * B)}),
    "ours, masked": lambda: (MultiHeadAttention(D, H), {"mask": torch.ones(Q, K).tril() > 0, "need_weights": True}),
    "ours, fused": lambda: (MultiHeadAttention(D, H).eval(), {"valid_lens": LENGTHS, "need_weights": False}),
    "torch": lambda: (nn.MultiheadAttention(D, H, dropout=0.3, batch_first=True), {}),
    "torch, heads apart": lambda: (
        nn.MultiheadAttention(D, H, batch_first=True, bias=False).eval(),
        {"average_attn_weights": False, "key_padding_mask": torch.arange(K) >= LENGTHS[:, None]},
    ),
    "torch, fused": lambda: (nn.MultiheadAttention(D, H, batch_first=True), {"need_weights": False}),
    "torch, own widths": lambda: (nn.MultiheadAttention(D, H, kdim=D, vdim=D, batch_first=True, add_bias_kv=True), {}),
    "d2l": lambda: (D2LMultiHeadAttention(D, H, dropout=0.3), {"valid_lens": LENGTHS}),
    "d2l, lengths per query": lambda: (D2LMultiHeadAttention(D, H), {"valid_lens": torch.tensor([[1, 2, 3, 4]] * B)}),
    "harvard": lambda: (HarvardMultiHeadAttention(H, D), {"mask": torch.ones(1, Q, K).tril()}),
    "einsum": lambda: (einsum_attention, {}),
    "loop": lambda: (loop_over_heads, {}),
    "bmm": lambda: (bmm_attention, {}),
    "scaled_dot_product_attention": lambda: (fused_attention, {}),
}
MODES = {"gradients": torch.enable_grad, "no_grad": torch.no_grad, "inference": torch.inference_mode}


def _make(name, device="cpu", dtype=torch.float32):
    torch.manual_seed(0)
    layer, options = LAYERS[name]()
    moved = {key: x.to(device) if isinstance(x, torch.Tensor) else x for key, x in options.items()}
    return (layer.to(device, dtype) if isinstance(layer, nn.Module) else layer), moved


def _flat(output):
    return [x for x in (output if isinstance(output, tuple) else (output,)) if isinstance(x, torch.Tensor)]


# --- the layer does what it does unwatched ---------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_output_and_random_numbers_are_those_without_the_ledger(name, dtype, mode, device):
    layer, options = _make(name, device, dtype)
    x = _queries_and_pairs(device=device, dtype=dtype)
    with MODES[mode]():
        torch.manual_seed(1)
        expected, drawn = _flat(layer(*x, **options)), torch.rand(1, device=device)
        torch.manual_seed(1)
        seen, drawn_too = ledger(layer, *x, **options), torch.rand(1, device=device)
    got = _flat(seen.output)
    assert len(got) == len(expected)
    assert torch.equal(drawn, drawn_too)
    for one, other in zip(got, expected, strict=True):
        assert torch.equal(one, other)
        assert one.stride() == other.stride()
        assert one.requires_grad == other.requires_grad


def test_autocast_casts_the_same_under_the_ledger():
    x = _queries_and_pairs()
    for layer in (einsum_attention, _make("ours")[0].eval(), _make("torch")[0].eval()):
        for mode in MODES.values():
            with mode(), torch.autocast("cpu", torch.bfloat16):
                expected, got = _flat(layer(*x))[0], _flat(ledger(layer, *x).output)[0]
            assert got.dtype == expected.dtype == torch.bfloat16
            assert torch.equal(got, expected)


def test_views_of_weights_remember_in_inference_mode_that_these_need_gradients():
    weight = nn.Parameter(torch.zeros(5, 7))
    for view in (torch.flatten, lambda x: x.mT, lambda x: x.reshape(7, 5), torch.t):
        with torch.inference_mode():
            assert ledger(view, weight).output.requires_grad == view(weight).requires_grad


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_are_those_without_the_ledger(name):
    layer, options = _make(name)
    found = []
    for watch in (lambda layer, *x, **options: layer(*x, **options), lambda *a, **k: ledger(*a, **k).output):
        torch.manual_seed(1)
        queries, pairs = (x.requires_grad_() for x in _inputs((B, Q, D), (B, K, D)))
        weights = list(layer.parameters()) if isinstance(layer, nn.Module) else []
        output = _flat(watch(layer, queries, pairs, pairs, **options))[0]
        found.append(torch.autograd.grad(output.square().sum(), [queries, pairs, *weights]))
    assert all(map(torch.equal, *found))


@pytest.mark.parametrize("mode", MODES)
def test_torchs_fast_path_is_taken_and_shown_if_it_is_without_the_ledger(mode):
    layer = nn.MultiheadAttention(12, 4, batch_first=True).eval()
    x = _inputs((2, 5, 12))[0]
    with MODES[mode]():
        seen = ledger(layer, x, x, x)
    assert (len(seen) == 1) == (mode != "gradients")
    if mode != "gradients":
        assert seen[0].operation == "fused attention"
        assert seen[0].axes == ("B", "N", "D")
        assert "_native_multi_head_attention is one fused kernel" in str(seen)


def test_all_modes_show_the_same_moves_of_heads():
    layer, x = _make("ours")[0].eval(), _queries_and_pairs()
    shown = []
    for mode in MODES.values():
        with mode():
            shown.append([step.axes for step in ledger(layer, *x) if step.operation.startswith(("soft", "lin", "tr"))])
    assert shown[0] == shown[1] == shown[2]


def test_a_training_step_within_the_function_is_listed_and_leaves_its_gradients():
    layer, x = _make("ours, lengths per example")[0], _queries_and_pairs()
    layer(*x)[0].sum().backward()
    expected = [weight.grad.clone() for weight in layer.parameters()]
    layer.zero_grad()
    seen = ledger(lambda *x: layer(*x)[0].sum().backward(), *x)
    assert seen.output is None
    assert all(map(torch.equal, expected, (weight.grad for weight in layer.parameters())))
    assert len(seen) > len(ledger(layer, *x))


@pytest.mark.parametrize("error", [KeyError("mine"), StopIteration(), KeyboardInterrupt()])
def test_an_error_comes_through_and_the_watch_ends(error):
    def layer(x):
        x.relu()
        raise error

    x = _inputs((2, 5, 12))[0]
    with pytest.raises(type(error)) as caught:
        ledger(layer, x)
    assert caught.value is error
    assert torch.utils._python_dispatch._get_current_dispatch_mode() is None


def test_nested_ledgers_see_the_same():
    layer, x = _make("ours, lengths per example")[0], _queries_and_pairs()
    inner = []
    outer = ledger(lambda *x: inner.append(ledger(layer, *x)), *x)
    assert [step.shape for step in outer] == [step.shape for step in inner[0]]
    assert str(inner[0]) == str(ledger(layer, *x))


def test_nothing_of_the_run_lives_on_but_the_output():
    class Layer(nn.Module):
        def forward(self, x):
            inside = [x * 2, x.clone()]
            alive.extend(map(weakref.ref, inside))
            alive.extend(weakref.ref(one.untyped_storage()) for one in inside)
            return (inside[0] + inside[1]).sum()

    alive = []
    gc.collect()
    gc.disable()
    try:
        seen = ledger(Layer(), _inputs((2, 5, 12))[0])
        assert [one() for one in alive] == [None] * 4
        assert len(seen) == 4
    finally:
        gc.enable()


# --- every way to call -----------------------------------------------------------------------------------------------


def test_ways_to_call_the_same_layer_give_the_same_steps():
    layer, (queries, pairs, _) = _make("ours, lengths per example")[0], _queries_and_pairs()
    expected = [(step.operation, step.axes, step.bytes) for step in ledger(layer, queries, pairs, pairs, LENGTHS)]
    ways = [
        ledger(layer, valid_lens=LENGTHS, values=pairs, keys=pairs, queries=queries),
        ledger(functools.partial(layer, valid_lens=LENGTHS), queries, pairs, pairs),
        ledger(functools.partial(functools.partial(layer, queries), pairs), pairs, valid_lens=LENGTHS),
        ledger(lambda queries, pairs: layer(queries, pairs, pairs, LENGTHS), queries, pairs, axes={"pairs": "B K D"}),
        ledger(layer.forward, queries, pairs, pairs, LENGTHS),
        ledger(torch.compile(layer, backend="eager"), queries, pairs, pairs, LENGTHS),
    ]
    for seen in (*ways[:3], *ways[4:]):
        assert [(step.operation, step.axes, step.bytes) for step in seen] == expected
    named = [step.axes for step in ways[3] if step.operation == "linear"]
    assert named == [("B", "Q", "D"), ("B", "K", "D"), ("B", "K", "D"), ("B", "Q", "D")]
    assert "layer.W_q.weight" in str(ways[3])
    assert "keys=values" in str(ways[0])


def test_layers_of_layers_are_seen_through():
    seen = ledger(nn.Sequential(nn.LayerNorm(D), nn.Linear(D, 3 * D), nn.Unflatten(-1, (3, D))), _inputs((B, Q, D))[0])
    assert [step.axes for step in seen] == [("B", "N", "D"), ("B", "N", "3·D"), ("B", "N", "3", "D")]
    assert seen[1].reads == ("0", "1.weight", "1.bias")


def test_an_encoder_with_nested_tensors_runs():
    block = nn.TransformerEncoderLayer(12, 3, 24, batch_first=True).eval()
    x, padding = _inputs((2, 5, 12))[0], torch.arange(5) >= torch.tensor([[5], [3]])
    assert torch.equal(ledger(block, x, src_key_padding_mask=padding).output, block(x, src_key_padding_mask=padding))
    sparse = ledger(lambda x: torch.sparse.mm(x[0].to_sparse(), x[0].T), x)
    assert torch.allclose(sparse.output, x[0] @ x[0].T)


def test_a_generator_comes_back_unread():
    def lazy(x):
        yield x.relu()

    seen = ledger(lazy, _inputs((2, 5, 12))[0])
    assert len(seen) == 0
    assert seen.notes == ("torch did nothing during the call",)
    assert len(list(seen.output)) == 1


@pytest.mark.parametrize(
    ("sizes", "heads"),
    [
        *[((0, 4, 6, 15), 3), ((1, 4, 6, 15), 3), ((2, 4, 6, 15), 1), ((2, 4, 4, 15), 3), ((3, 4, 6, 15), 3)],
        *[((2, 15, 6, 15), 3), ((5, 3, 5, 15), 3), ((2, 1, 6, 15), 15), ((2, 0, 6, 15), 3), ((4, 4, 4, 16), 4)],
    ],
)
@pytest.mark.parametrize("design", [MultiHeadAttention, D2LMultiHeadAttention])
def test_sizes_that_vanish_or_coincide_never_give_a_wrong_name(sizes, heads, design):
    batch, queries, pairs, width = sizes
    x, y = _inputs((batch, queries, width), (batch, pairs, width))
    lens = torch.full((batch,), pairs)
    seen = ledger(design(width, heads), x, y, y, lens)
    truth = {"B": batch, "Q": queries, "K": pairs, "D": width, "h": heads, "d": width // heads}
    for step in seen:
        for name, size in zip(step.axes, step.shape, strict=True):
            assert math.prod(truth.get(part, int(part) if part.isdigit() else -1) for part in name.split("·")) == size
    if min(sizes) > 1:
        expected = ("B", "h", "Q", "K") if design is MultiHeadAttention else ("B·h", "Q", "K")
        softmax = next(step for step in seen if step.operation.startswith("softmax over K"))
        assert softmax.axes[-2:] == ("Q", "K")
        assert softmax.axes == expected or heads == 1
    assert "pairs" not in "".join(seen.notes)


# --- names -----------------------------------------------------------------------------------------------------------


MOVES = [
    "transpose",
    "permute",
    "reshape",
    "flatten",
    "unflatten",
    "slice",
    "split",
    "select",
    "expand",
    "cat",
    "squeeze",
]


def _divisors(size):
    return [part for part in range(1, size + 1) if size % part == 0]


def _move(x, data):
    """x after one random view or copy."""
    draw, axis = data.draw, data.draw(st.integers(0, x.dim() - 1))
    size = x.shape[axis]
    match draw(st.sampled_from(MOVES)):
        case "transpose":
            return x.transpose(axis, draw(st.integers(-x.dim(), x.dim() - 1)))
        case "permute":
            return x.permute(draw(st.permutations(range(x.dim()))))
        case "reshape":
            first = draw(st.sampled_from(_divisors(x.numel())))
            return x.reshape(first, draw(st.sampled_from(_divisors(x.numel() // first))), -1)
        case "flatten":
            return x.flatten(axis, draw(st.integers(axis, x.dim() - 1)))
        case "unflatten":
            return x.unflatten(axis, (draw(st.sampled_from(_divisors(size))), -1))
        case "slice":
            start, stop, step = draw(st.integers(-size, size - 1)), draw(st.integers(1, size)), draw(st.integers(1, 3))
            stop = None if stop <= start % size else stop
            return x[(slice(None),) * axis + (slice(start, stop, step),)]
        case "split":
            return draw(st.sampled_from(x.split(draw(st.integers(1, size)), axis)))
        case "select" if x.dim() > 1:
            return x.select(axis, draw(st.integers(-size, size - 1)))
        case "expand":
            return x.unsqueeze(axis).expand(*x.shape[:axis], draw(st.integers(1, 3)), *x.shape[axis:])
        case "cat":
            return torch.cat(draw(st.permutations(x.split(draw(st.integers(1, size)), axis))), axis)
    return x.squeeze(axis) if x.dim() > 1 else x.clone()


@settings(max_examples=400)
@given(data=st.data())
def test_a_name_never_lies(data):
    """Entries are their own places in (B, N, D): along an axis called N, n must run through 0 to N - 1, and so on."""
    b, n, width, heads = data.draw(st.tuples(*[st.integers(1, 4)] * 2, st.integers(1, 3), st.integers(1, 3)))
    sizes = {"B": b, "N": n, "D": width * heads, "h": heads, "d": width}
    x = torch.arange(b * n * width * heads).view(b, n, -1)

    def chain(x):
        for _ in range(data.draw(st.integers(1, 5))):
            x = _move(x, data)
        return x.clone()

    seen = ledger(chain, x, axes={"x": "B N D"}, num_heads=heads)
    for dim, name in enumerate(seen[-1].axes):
        if name in sizes:
            _check_walk(seen.output, dim, name, sizes)


def _check_walk(x, dim, name, sizes):
    column, rest = x % sizes["D"], x // sizes["D"]
    places = {"B": rest // sizes["N"], "N": rest % sizes["N"], "D": column}
    places |= {"h": column // sizes["d"], "d": column % sizes["d"]}
    walk = places[name].movedim(dim, -1)
    assert torch.equal(walk, torch.arange(sizes[name]).expand_as(walk)), name
    for other in {"B", "N", "D"} - {"D" if name in "hd" else name}:
        still = places[other].movedim(dim, -1)
        assert torch.equal(still, still[..., :1].expand_as(still)), f"{other} moves along {name}"


@pytest.mark.parametrize(
    ("chain", "expected"),
    [
        (lambda x: x.view(2, 7, 3, 5), "B N h d"),
        (lambda x: x.view(2, 7, 3, 5).transpose(1, 2), "B h N d"),
        (lambda x: x.view(2, 7, 3, 5).permute(0, 2, 1, 3).reshape(6, 7, 5), "B·h N d"),
        (lambda x: x.view(2, 7, 3, 5).transpose(1, 2).transpose(1, 2).reshape(2, 7, 15), "B N D"),
        (lambda x: x.view(2, 7, 3, 5).transpose(1, 2).reshape(2, 7, 15), "B D~N D~N"),
        (lambda x: x.reshape(2, 3, 7, 5), "B N~D N~D N~D"),
        (lambda x: x.reshape(14, 15), "B·N D"),
        (lambda x: x.view(2, 7, 5, 3), "B N D:5 D:3"),
        (lambda x: x[..., 5:10], "B N d"),
        (lambda x: x[..., 4:9], "B N D:5"),
        (lambda x: x[..., 1::5], "B N h"),
        (lambda x: x[..., 4:14].unflatten(-1, (2, 5)), "B N D:2 D:5"),
        (lambda x: x.view(2, 7, 3, 5).mT.flatten(2), "B N d·h"),
        (lambda x: x[:, :1].expand(2, 3, 15), "B 3 D"),
        (lambda x: x[:, 1:4], "B N:3 D"),
        (lambda x: torch.cat([x[..., :5], x[..., 5:10], x[..., 10:]], -1), "B N D"),
        (lambda x: torch.cat([x[..., 5:10], x[..., :5], x[..., 10:]], -1), "B N 15"),
        (lambda x: torch.cat(x.view(2, 7, 3, 5).unbind(2), -1), "B N D"),
        (lambda x: torch.cat([x.view(2, 7, 3, 5)[:, :, i] for i in (0, 2, 1)], -1), "B N 15"),
        (lambda x: torch.stack([x, x, x], 1), "B 3 N D"),
        (lambda x: x[:, :, None].expand(2, 7, 3, 15), "B N 3 D"),
        (lambda x: x.sum(1), "B D"),
        (lambda x: x.mean((0, 2), keepdim=True), "1 N 1"),
        (lambda x: x.sum(), ""),
        (lambda x: torch.zeros(7, 5) + x[..., :5], "B N d"),
        (lambda x: x.new_zeros(2, 15).copy_(x[:, 3]), "B D"),
        (lambda x: x.topk(3, -1)[0], "2 7 3"),
        (lambda x: x.new_zeros(2, 15).copy_(x[:, 3]).copy_(x[0, :2]), "N:2 D"),
        (lambda x: torch.arange(7) + 1, "N"),
        (lambda x: torch.arange(4) + 1, "4"),
    ],
)
def test_the_last_step_is_named_by_where_its_axes_come_from(chain, expected):
    seen = ledger(chain, _inputs((2, 7, 15))[0], num_heads=3)
    assert " ".join(seen[-1].axes) == expected


def test_a_function_without_heads_tells_them_by_its_first_cut():
    seen = ledger(lambda x: x.view(2, 7, 3, 5).transpose(1, 2), _inputs((2, 7, 15))[0])
    assert seen[-1].axes == ("B", "h", "N", "d")
    assert seen.notes == ("h = 3 and d = 5 are taken from the first cut of D",)


def test_arguments_are_named_as_usual_or_as_told():
    queries, pairs = _inputs((4, 2, 15), (6, 2, 15))
    layer = nn.MultiheadAttention(15, 3)
    for options in ({}, {"axes": {"query": "Q B D", "key": "K B D", "value": "K,B,D"}}):
        seen = ledger(layer, queries, pairs, pairs, **options)
        assert next(s for s in seen if s.operation.startswith("softmax")).axes == ("B·h", "Q", "K")
        assert seen[-1].axes == ("B", "Q", "K") or seen[-1].axes == ("Q", "B", "D")
    other = MultiHeadAttention(15, 3, query_size=7, key_size=11, value_size=13)
    x, y, z = _inputs((2, 4, 7), (2, 6, 11), (2, 6, 13))
    seen = ledger(other, x, y, z)
    assert seen[0].axes == ("B", "Q", "D")
    assert next(s for s in seen if s.operation.startswith("softmax over K")).axes == ("B", "h", "Q", "K")
    four = ledger(attend, *_inputs((2, 3, 4, 5), (2, 3, 6, 5), (2, 3, 6, 7)))
    assert next(s for s in four if s.operation.startswith("softmax over K")).axes == ("B", "h", "Q", "K")


def test_a_size_that_several_axes_have_names_no_axis_from_nowhere():
    assert ledger(lambda x: torch.arange(7) + 1, _inputs((7, 7, 15))[0])[-1].axes == ("7",)


def test_a_mask_of_ones_hides_no_size():
    q, k = _inputs((2, 3, 4, 5), (2, 3, 6, 5))
    seen = ledger(lambda mask, q, k: (q @ k.mT).masked_fill(mask, 0), torch.ones(1, 1, 4, 6) > 0, q, k)
    assert seen[-1].axes == ("B", "h", "Q", "K")


def test_layers_that_disagree_on_their_heads_tell_none():
    layers = nn.ModuleList([MultiHeadAttention(30, 3), MultiHeadAttention(30, 5)])
    seen = ledger(lambda x: layers[1](layers[0](x, x, x)[0], x, x)[0], _inputs((2, 7, 30))[0])
    assert "h = 3 and d = 10 are taken from the first cut of D" in seen.notes
    assert ("B", "N", "D:5", "D:6") in [step.axes for step in seen]


def test_axes_whose_origin_is_lost_accuse_nobody():
    def attention(x):
        v = split_heads(x, 3)
        weights = (v @ v.mT).sort(-1)[0]  # nobody knows which key is where now
        return merge_heads(weights @ v) @ weight

    weight = nn.Parameter(torch.zeros(15, 15))
    seen = ledger(attention, _inputs((2, 7, 15))[0], num_heads=3)
    assert ("2", "7", "3·d") in [step.axes for step in seen]
    assert seen.notes == ()


# --- the rows of D2L's check -----------------------------------------------------------------------------------------


def _rows(seen):
    return [(s.operation, " ".join(s.axes), s.shape, s.memory.split(" of ")[0], s.bytes) for s in seen]


def test_d2ls_check_on_d2ls_layer():
    seen = ledger(D2LMultiHeadAttention(D, H).eval(), *_queries_and_pairs(), LENGTHS)
    rows = _rows(seen)
    assert rows[:4] == [
        ("linear", "B Q D", (2, 4, 100), "new", 3_200),
        ("view", "B Q h d", (2, 4, 5, 20), "view", 0),
        ("transpose", "B h Q d", (2, 5, 4, 20), "view", 0),
        ("reshape", "B·h Q d", (10, 4, 20), "copy", 3_200),
    ]
    assert [s.strides for s in seen][:4] == [(400, 100, 1), (400, 100, 20, 1), (400, 20, 100, 1), (80, 20, 1)]
    assert seen[0].reads == ("queries", "W_q.weight")
    assert seen[2].memory == "view of 0"
    assert [row for row in rows if row[0] == "expand, copy"] == [("expand, copy", "B·5", (10,), "copy", 80)]
    assert [row for row in rows if "softmax" in row[0]] == [("softmax over K", "B·h Q K", (10, 4, 6), "new", 960)]
    assert rows[-5:] == [
        ("matmul", "B·h Q d", (10, 4, 20), "new", 3_200),
        ("view", "B h Q d", (2, 5, 4, 20), "view", 0),
        ("transpose", "B Q h d", (2, 4, 5, 20), "view", 0),
        ("reshape", "B Q D", (2, 4, 100), "copy", 3_200),
        ("linear", "B Q D", (2, 4, 100), "new", 3_200),
    ]
    assert seen.notes == ()


def test_d2ls_check_on_our_layer():
    seen = ledger(MultiHeadAttention(D, H), *_queries_and_pairs(), LENGTHS)
    rows = _rows(seen)
    for expected in [
        ("linear", "B Q D", (2, 4, 100), "new", 3_200),
        ("linear", "B K D", (2, 6, 100), "new", 4_800),
        ("transpose", "B h Q d", (2, 5, 4, 20), "view", 0),
        ("transpose", "B h K d", (2, 5, 6, 20), "view", 0),
        ("softmax over K", "B h Q K", (2, 5, 4, 6), "new", 960),
        ("reshape", "B Q D", (2, 4, 100), "copy", 3_200),
    ]:
        assert expected in rows
    assert sum(row[0] == "linear" for row in rows) == 4
    assert rows[-1] == ("linear", "B Q D", (2, 4, 100), "new", 3_200)
    assert seen.notes == ("the code looks at values, for which the processor waits for a GPU",)


# --- mistakes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LAYERS)
def test_right_layers_are_not_accused(name):
    layer, options = _make(name)
    seen = ledger(layer, *_queries_and_pairs(), **options, num_heads=H)
    assert "pairs" not in "".join(seen.notes)
    assert "~" not in str(seen)


def test_a_reshape_instead_of_a_transpose_shows():
    seen = ledger(lambda x: x.reshape(2, 3, 7, 5), _inputs((2, 7, 15))[0], num_heads=3)
    assert seen[-1].axes == ("B", "N~D", "N~D", "N~D")


def test_a_merge_without_a_transpose_shows():
    seen = ledger(lambda x: split_heads(x, 3).reshape(2, 7, 15), _inputs((2, 7, 15))[0], num_heads=3)
    assert all("~" in name for name in seen[-1].axes[1:])


def test_a_softmax_over_the_wrong_axis_shows():
    seen = ledger(lambda q, k: (q @ k.mT).softmax(1), *_inputs((2, 4, 15), (2, 6, 15)))
    assert seen[-1].operation == "softmax over Q"


def test_heads_and_examples_swapped_are_noted():
    def swapped(queries, keys):
        q = split_heads(queries, 3).flatten(0, 1)
        k = split_heads(keys, 3).transpose(0, 1).flatten(0, 1)
        return q @ k.mT

    seen = ledger(swapped, *_inputs((2, 4, 15), (2, 6, 15)), num_heads=3)
    assert [note for note in seen.notes if "pairs" in note] == [f"step {len(seen) - 1} (matmul) pairs B·h with h·B"]


def test_a_head_that_meets_another_is_noted():
    def crossed(queries, keys):
        return split_heads(queries, 3)[:, 0] @ split_heads(keys, 3)[:, 1].mT

    seen = ledger(crossed, *_inputs((2, 4, 15), (2, 6, 15)), num_heads=3)
    assert "(matmul) pairs d with d" in "".join(seen.notes)


@pytest.mark.parametrize(("repeat", "is_wrong"), [(torch.Tensor.repeat, True), (torch.repeat_interleave, False)])
def test_lengths_repeated_in_the_wrong_order_are_noted(repeat, is_wrong):
    def masked(x, valid_lens):
        scores = (q := split_heads(x, 3).flatten(0, 1)) @ q.mT
        return scores.masked_fill(torch.arange(7) >= repeat(valid_lens, 3)[:, None, None], -1e6)

    seen = ledger(masked, _inputs((2, 7, 15))[0], torch.tensor([3, 2]), num_heads=3)
    assert ("(masked_fill) pairs B·h with 3·B" in "".join(seen.notes)) == is_wrong
    assert ("pairs" in "".join(seen.notes)) == is_wrong


# --- memory ----------------------------------------------------------------------------------------------------------


def test_views_copies_and_bytes_are_what_the_memory_says(device):
    made = []

    def moves(x):
        keep = [x, x.transpose(1, 2), x.transpose(1, 2).contiguous(), x * 2, x[1:, 1:4], x.reshape(14, 15), x.double()]
        keep += [x.unflatten(-1, (3, 5)).transpose(1, 2).reshape(6, 7, 5), x[1:, ::2].clone(), x.chunk(3, -1)[1]]
        made.extend(keep)

    x = _inputs((2, 7, 15), device=device)[0]
    seen = ledger(moves, x)
    mine = {one.untyped_storage()._cdata: one.untyped_storage().nbytes() for one in made[1:]}
    mine.pop(x.untyped_storage()._cdata)
    assert seen.bytes == sum(mine.values())
    for step in seen:
        twins = [one for one in made[1:] if (tuple(one.shape), one.stride()) == (step.shape, step.strides)]
        for one in twins[:1]:
            is_view = one.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
            assert (step.memory == "view of x") == is_view
            assert (step.bytes == 0) == is_view
    assert ledger(lambda x: x @ x.mT, split_heads(x, 3))[-1].memory == "new, after a copy"
    memories = [step.memory for step in seen]
    assert memories.count("copy") == 3
    assert [s.bytes for s in seen if s.operation == "convert"] == [2 * 7 * 15 * 8]


def test_work_in_place_takes_no_memory_and_says_whose_it_changes():
    def layer(x):
        y = x.clone()
        y.mul_(2)
        y[:, :3] = 0
        y[:, 3:].copy_(x[:, 3:])
        return x.add_(1)

    seen = ledger(layer, _inputs((2, 7, 15))[0])
    changes = [(s.operation, s.memory, s.bytes) for s in seen if s.memory.startswith("in ")]
    assert changes[0] == ("mul, in place", "in 0", 0)
    assert changes[-1] == ("add, in place", "in x", 0)
    assert ("copy, in place", "in 0", 0) in changes


def test_a_result_with_a_given_place_is_work_in_place():
    def layer(q, k):
        scores = q @ k.mT
        torch.softmax(scores, -1, out=scores)
        other = (k @ q.mT).flatten().view(2, 4, 6)  # its old names are gone
        return torch.mul(scores, 2, out=other)

    with torch.no_grad():
        seen = ledger(layer, *_inputs((2, 4, 15), (2, 6, 15)))
    changes = [(s.operation, s.axes, s.bytes) for s in seen if s.memory.startswith("in ")]
    assert changes == [("softmax over K, in place", ("B", "Q", "K"), 0), ("mul, in place", ("B", "Q", "K"), 0)]
    assert seen.notes == ()


def test_arguments_that_share_memory_are_both_named():
    q, k = _inputs((2, 7, 30))[0].chunk(2, -1)
    assert ledger(lambda q, k: q.transpose(1, 2), q, k)[0].memory == "view of q, k"


def test_all_new_memory_is_at_least_what_lives_at_once():
    layer, x = MultiHeadAttention(D, H), _queries_and_pairs()
    with torch.no_grad():
        assert ledger(layer, *x).bytes >= 0.9 * peak_bytes(lambda: layer(*x))


# --- what it cannot see ----------------------------------------------------------------------------------------------


def test_what_cannot_be_seen_is_said():
    x = _queries_and_pairs()
    assert "fused kernel" in "".join(ledger(fused_attention, *x).notes)
    detour = ledger(lambda x: torch.from_numpy(x.numpy() * 2).relu(), _inputs((2, 7, 15))[0])
    assert detour[0].reads == ("?",)
    assert "step 0 reads a tensor that no step made" in "".join(detour.notes)
    assert "looks at values" in "".join(ledger(lambda x: x.relu() if x.sum() > 0 else x, x[0]).notes)


@pytest.mark.parametrize("where", ["layer", "function", "part", "in place"])
def test_compiled_code_is_shown_as_it_was_written_and_said_to_be(where):
    linear, x = nn.Linear(15, 15), _inputs((2, 7, 15))[0]
    expected = linear(x)
    if where == "in place":
        linear.compile(backend="eager")
    layers = {
        "layer": lambda: torch.compile(linear, backend="eager"),
        "function": lambda: torch.compile(lambda x: linear(x), backend="eager"),
        "part": lambda: nn.Sequential(torch.compile(linear, backend="eager")),
        "in place": lambda: linear,
    }
    seen = ledger(layers[where](), x)
    assert torch.equal(seen.output, expected)
    assert seen[0].operation == "linear"
    assert "the layer is compiled" in seen.notes[0]
    assert "_orig_mod" not in str(seen)


# --- text and table --------------------------------------------------------------------------------------------------


class _Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.open, self.cells, self.tags = [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.tags.append((tag, dict(attrs)))
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1] in ("td", "th"):
            self.cells[-1] += data


def test_every_step_stands_in_text_and_table():
    seen = ledger(MultiHeadAttention(D, H), *_queries_and_pairs(), LENGTHS)
    page, lines = _Page(seen._repr_html_()), str(seen).splitlines()
    headings = "# shape axes operation reads strides memory bytes".split()
    assert lines[0].split() == headings
    assert page.cells[:9] == [*headings, "code"]
    assert lines[len(seen) + 1] == seen.summary
    for number, step in enumerate(seen):
        cells = page.cells[9 * (number + 1) : 9 * (number + 2)]
        assert cells == [*step.cells(number), step.code]
        assert re.split(r" {2,}", lines[number + 1].strip()) == [cell for cell in cells[:8] if cell]
        for heading, cell in zip(headings[1:-1], cells[1:7], strict=True):
            assert lines[number + 1][lines[0].index(heading) :].startswith(cell)
        assert len(lines[number + 1]) == len(lines[0])
    assert f"{seen.bytes:,} bytes" in seen.summary
    assert len(list(seen)) == len(seen)


def test_the_table_can_be_read_aloud_and_scrolled_by_keyboard():
    tags = _Page(ledger(bmm_attention, *_queries_and_pairs())._repr_html_()).tags
    assert [tag for tag, _ in tags].count("caption") == 1
    assert all(attributes == {"scope": "col"} for tag, attributes in tags if tag == "th")
    region = tags[0][1]
    assert region["role"] == "region"
    assert region["aria-label"]
    assert region["tabindex"] == "0"


def test_code_and_names_cannot_become_markup():
    seen = ledger(lambda **x: x["<b>&"].masked_fill(x["<b>&"] < 0, 0), **{"<b>&": _inputs((2, 7, 15))[0]})
    page = _Page(seen._repr_html_())
    assert {tag for tag, _ in page.tags} == {"div", "table", "caption", "thead", "tbody", "tr", "th", "td"}
    assert "<b>&" in page.cells
    assert any('x["<b>&"] < 0' in cell for cell in page.cells)


@pytest.mark.parametrize("name", LAYERS)
def test_text_is_the_same_each_time_and_names_no_machine(name):
    layer, options = _make(name)
    texts = [ledger(layer, *_queries_and_pairs(), **options) for _ in range(2)]
    assert str(texts[0]) == repr(texts[1])
    assert texts[0]._repr_html_() == texts[1]._repr_html_()
    assert not re.search(r"/\w+/|0x[0-9a-f]{6}|site-packages", texts[0]._repr_html_().replace("</", "<"))


def test_the_code_is_the_line_of_the_layer_not_of_torch():
    seen = ledger(HarvardMultiHeadAttention(H, D), *_queries_and_pairs())
    assert [step.code for step in seen if "softmax" in step.operation] == ["self.attn = scores.softmax(dim=-1)"]
    assert seen[-1].code == "return self.linears[3](output)"


# --- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        (("text",), {}, TypeError, "layer must be a module or a function, got str: 'text'"),
        ((torch.zeros(1),), {}, TypeError, "layer must be a module or a function, got Tensor"),
        ((bmm_attention,), {"axes": {"x": "B N D"}}, ValueError, "axes names ['x'], but the tensor arguments are ['ke"),
        ((bmm_attention,), {"axes": {"keys": "B K"}}, ValueError, "axes['keys']='B K' names 2 axes, but the shape is"),
        ((bmm_attention,), {"axes": "B N D"}, TypeError, "axes must be a mapping such as"),
        ((bmm_attention,), {"axes": {"keys": 3}}, TypeError, "got dict: {'keys': 3}"),
    ],
)
def test_a_bad_argument_is_named(arguments, options, error, message):
    with pytest.raises(error, match=re.escape(message)):
        ledger(*arguments, *_queries_and_pairs(), **options)


def test_heads_that_share_keys_and_heads_that_do_not_fill_d_keep_their_names():
    x = torch.randn(2, 5, 12)
    shared = ledger(MultiHeadAttention(12, 6, num_kv_heads=2), x, x, x)
    assert [step.axes for step in shared][:6] == [
        ("B", "N", "D"),
        ("B", "N", "h", "d"),
        ("B", "h", "N", "d"),
        ("B", "N", "g·d"),
        ("B", "N", "g", "d"),
        ("B", "g", "N", "d"),
    ]
    assert any(step.axes == ("B", "g·3", "N", "d") and step.memory == "copy" for step in shared)
    pruned = MultiHeadAttention(12, 3)
    pruned.keep_heads([0, 2])
    for layer in (pruned, MultiHeadAttention(12, 2, head_dim=4)):
        steps = ledger(layer, x, x, x)
        assert [step.axes for step in steps][:3] == [("B", "N", "h·d"), ("B", "N", "h", "d"), ("B", "h", "N", "d")]
        assert [step.axes for step in steps][-2:] == [("B", "N", "h·d"), ("B", "N", "D")]
        assert not steps.notes
    assert not shared.notes


# --- what steps compute and move ------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", LAYERS)
def test_flops_are_those_that_torch_counts(name, mode):
    layer, options = _make(name)
    x = _queries_and_pairs()
    with MODES[mode]():
        with FlopCounterMode(display=False) as counter:
            layer(*x, **options)
        book = ledger(layer, *x, **options)
    assert book.flops == counter.get_total_flops()
    assert sum(step.flops for step in book) == book.flops


def _moved(function, *inputs):
    """Of the steps that move something."""
    return [step.moved for step in ledger(function, *inputs) if step.moved]


def test_bytes_moved_are_inputs_and_outputs():
    x, W = _inputs((3, 5), (7, 5))
    assert _moved(lambda x, W: x @ W.T, x, W) == [4 * (15 + 35 + 21)]
    assert _moved(lambda x: x.double(), x) == [15 * (4 + 8)]
    assert _moved(lambda x: x * x, x) == [4 * (15 + 15)]
    assert _moved(lambda x: x.softmax(-1), x) == [4 * 30]
    assert _moved(lambda x: x.add_(1.0), x) == [4 * 30]


def test_a_view_moves_nothing_and_a_repeated_number_counts_once():
    (x,) = _inputs((3, 1, 5))
    assert _moved(lambda x: x.transpose(0, 2)[1:].flatten(), x) == [2 * 4 * 12]
    assert _moved(lambda x: x.expand(3, 4, 5).contiguous(), x) == [4 * (15 + 60)]
    assert ledger(lambda x: x.expand(3, 4, 5), x).moved == 0


def test_views_of_one_tensor_are_read_one_by_one():
    (x,) = _inputs((4, 4))
    assert _moved(lambda x: x + x.T, x) == [4 * 48]
    assert _moved(lambda x: x[:2] + x[2:], x) == [4 * 24]
    assert _moved(lambda x: x[:1] + x, x) == [4 * 36]


def test_an_axis_without_numbers_leaves_nothing_to_read():
    (x,) = _inputs((3, 1))
    assert _moved(lambda x: x.expand(3, 0) * 2.0, x) == []


def test_flops_of_a_convolution_need_the_size_of_its_result():
    x, kernel = _inputs((2, 3, 11), (5, 3, 4))
    assert ledger(F.conv1d, x, kernel).flops == 2 * 2 * 5 * 8 * 3 * 4


def test_memory_that_is_taken_or_overwritten_is_not_read():
    (x,) = _inputs((3, 5))
    assert _moved(lambda x: x.new_empty(7), x) == []
    assert _moved(lambda x: torch.empty_like(x), x) == []
    assert _moved(lambda x: torch.ones_like(x), x) == [4 * 15]
    assert _moved(lambda x: x.new_zeros(7), x) == [4 * 7]
    assert _moved(lambda x: x.fill_(2.0), x) == [4 * 15]
    assert _moved(lambda x, y: x.copy_(y), x, x.clone()) == [4 * 30]
    out = torch.empty(3, 5)
    assert _moved(lambda x: torch.softmax(x, -1, out=out), x) == [4 * 30]


@pytest.mark.parametrize("name", ["zero_", "uniform_", "normal_", "bernoulli_", "exponential_"])
def test_what_is_filled_is_not_read(name):
    (x,) = _inputs((3, 5))
    assert _moved(lambda x: getattr(x, name)(), x) == [4 * 15]


@pytest.mark.parametrize("move", [lambda x: x.transpose_(0, 1), lambda x: x.unsqueeze_(0), lambda x: x.t_()])
def test_a_view_in_place_moves_nothing(move):
    (x,) = _inputs((3, 5))
    assert _moved(move, x) == []


def test_a_lookup_reads_what_it_returns():
    table, numbers = torch.randn(100, 5), torch.tensor([3, 1])
    assert _moved(lambda table, numbers: table[numbers], table, numbers) == [2 * 4 * 10 + 16]
    assert _moved(lambda table, numbers: F.embedding(numbers, table), table, numbers) == [2 * 4 * 10 + 16]
    assert _moved(lambda table, numbers: table.index_select(0, numbers), table, numbers) == [2 * 4 * 10 + 16]
    assert _moved(lambda table, numbers: table.gather(0, numbers[:, None]), table, numbers) == [2 * 4 * 2 + 16]


def test_a_step_of_several_operations_costs_what_each_of_them_does():
    x = torch.randn(2, 5, 3).mT  # is laid by rows before the product
    (step,) = [step for step in ledger(nn.Linear(5, 7), x) if step.flops]
    assert step.flops == 2 * 6 * 5 * 7
    assert step.moved == 4 * (30 + 30) + 4 * (30 + 35 + 42)
    assert step.bytes == 4 * (30 + 42)


def test_costs_are_a_table_of_the_steps_that_move_something():
    layer, options = _make("ours, lengths per example")
    book = ledger(layer, *_queries_and_pairs(), **options)
    lines = book.costs.splitlines()
    moving = [step for step in book if step.moved]
    assert lines[0].split() == ["#", "operation", "reads", "FLOPs", "bytes", "moved", "FLOPs/byte"]
    assert [line.split()[-2] for line in lines[1:-1]] == [f"{step.moved:,}" for step in moving]
    assert [line.split()[-1] for line in lines[1:-1]] == [f"{step.flops / step.moved:.2f}" for step in moving]
    assert [line.split()[0] for line in lines[1:-1]] == [str(i) for i, step in enumerate(book) if step.moved]
    for line, step in zip(lines[1:-1], moving, strict=True):
        assert f"  {step.operation}  " in line
        assert f"  {', '.join(step.reads)}  " in line
    assert book.moved == sum(step.moved for step in book)
    assert book.moved != book.bytes
    rest = len(book) - len(moving)
    assert lines[-1] == f"{book.flops:,} FLOPs, {book.moved:,} bytes moved; {rest} steps move nothing"
    assert all(step.intensity == 0 for step in book if not step.moved)
