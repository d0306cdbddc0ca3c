"""Gates: what is off is as if its columns of W_o were 0, and afterwards the model is as before."""

import re

import pytest
import torch
from torch import nn

from mhalib import Head, gated, heads_of, switched_off
from mhalib.measures import layers_of
from mhalib.models import GPT, Transformer, ViT

KINDS = ("encoder self", "decoder self", "cross")


def _transformer(device="cpu"):
    torch.manual_seed(0)
    model = Transformer(11, 13, 12, 3, 2, 20).eval().to(device)
    source, target = torch.randint(11, (2, 5)), torch.randint(13, (2, 7))
    return model, source.to(device), target.to(device)


def _num_hooks(model):
    return sum(len(layer._head_functions) for layers in layers_of(model).values() for layer in layers)


def _without_columns(head):
    """The same model, in which the head's columns of W_o are 0."""
    model, *inputs = _transformer()
    layer = layers_of(model)[head.kind][head.layer]
    d = layer.head_dim
    with torch.no_grad():
        layer.W_o.weight[:, head.head * d : (head.head + 1) * d] = 0
    return model(*inputs)[0]


def test_heads_of_names_every_head_once():
    model, *_ = _transformer()
    heads = heads_of(model)
    assert heads == [Head(kind, layer, head) for kind in KINDS for layer in range(2) for head in range(3)]
    assert heads_of(GPT(5, 12, 3, 1, 8)) == [Head("decoder self", 0, head) for head in range(3)]
    assert heads_of(ViT(num_hiddens=12, num_heads=3, num_layers=1))[0].kind == "encoder self"


def test_layers_and_weights_go_by_the_same_names():
    model, *inputs = _transformer()
    _, weights = model(*inputs, need_weights=True)
    layers = layers_of(model)
    assert list(layers) == list(weights) == list(KINDS)
    assert layers["encoder self"][1] is model.encoder.layers[1].attention
    assert layers["decoder self"][0] is model.decoder.layers[0].attention
    assert layers["cross"][1] is model.decoder.layers[1].cross_attention
    assert [len(of_kind) for of_kind in weights.values()] == [2, 2, 2]


@pytest.mark.parametrize("head", [Head("encoder self", 1, 0), Head("decoder self", 0, 2), Head("cross", 1, 1)])
def test_off_is_its_columns_set_to_0(head):
    model, *inputs = _transformer()
    before, _ = model(*inputs)
    with switched_off(model, [head]):
        output, weights = model(*inputs, need_weights=True)
    torch.testing.assert_close(output, _without_columns(head))
    assert not torch.allclose(output, before, atol=1e-4)
    torch.testing.assert_close(weights[head.kind][head.layer].sum(-1), torch.ones(2, 3, weights[head.kind][0].shape[2]))


def test_all_heads_off_leave_the_bias():
    model, *inputs = _transformer()
    with torch.no_grad():
        for layer in layers_of(model)["cross"]:
            layer.W_o.bias.fill_(0.5)
    off = [head for head in heads_of(model) if head.kind == "cross"]
    other = torch.randint(11, inputs[0].shape)
    with switched_off(model, off):
        without, _ = model(*inputs)
        torch.testing.assert_close(model(other, inputs[1])[0], without)  # the source is out of reach
    with torch.no_grad():
        for layer in layers_of(model)["cross"]:
            layer.W_o.weight.zero_()
    torch.testing.assert_close(model(*inputs)[0], without)


def test_a_gate_of_one_changes_nothing(device):
    model, *inputs = _transformer(device)
    before, _ = model(*inputs)
    with gated(model, {kind: [torch.ones(3, device=device)] * 2 for kind in KINDS}):
        torch.testing.assert_close(model(*inputs)[0], before)
    with gated(model, {"cross": [None, None]}), switched_off(model, []):
        torch.testing.assert_close(model(*inputs)[0], before)


def _scaled_by_hand(model, inputs, gate):
    """Layer 0's cross-attention, its result taken apart head by head and put together with gates (B, Q, h)."""
    layer = model.decoder.layers[0].cross_attention
    seen = {}
    hook = layer.W_o.register_forward_pre_hook(lambda _, given: seen.update(found=given[0]))
    model(*inputs)
    hook.remove()
    d = layer.head_dim
    parts = [
        gate[..., head, None]
        * (seen["found"][..., head * d : (head + 1) * d] @ layer.W_o.weight[:, head * d :][:, :d].T)
        for head in range(3)
    ]
    return sum(parts) + layer.W_o.bias


@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 7, 3), (1, 7, 3)])
def test_gates_for_all_per_example_and_per_query(shape):
    model, *inputs = _transformer()
    gate = torch.rand(shape)
    everywhere = gate[:, None] if gate.dim() == 2 else gate
    expected = _scaled_by_hand(model, inputs, everywhere.expand(2, 7, 3))
    result = {}
    hook = model.decoder.layers[0].cross_attention.W_o.register_forward_hook(
        lambda _, __, output: result.update(output=output)
    )
    with gated(model, {"cross": [gate, None]}):
        model(*inputs)
    hook.remove()
    torch.testing.assert_close(result["output"], expected)


def test_a_gate_of_one_example_leaves_the_others():
    model, *inputs = _transformer()
    before, _ = model(*inputs)
    with gated(model, {"cross": [torch.tensor([[0.0, 1.0, 1.0], [1.0, 1.0, 1.0]]), None]}):
        after, _ = model(*inputs)
    torch.testing.assert_close(after[1], before[1])
    assert not torch.allclose(after[0], before[0], atol=1e-4)


def test_a_gate_of_one_query_leaves_the_earlier_ones():
    model, *inputs = _transformer()
    gate = torch.ones(2, 7, 3)
    gate[:, 4] = 0
    before, _ = model(*inputs)
    with gated(model, {"cross": [None, gate]}):  # the last layer: nothing looks at query 4 after it
        after, _ = model(*inputs)
    changed = (after - before).abs().amax((0, 2)) > 1e-4
    assert changed.tolist() == [False] * 4 + [True] + [False] * 2


@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 7, 3)])
def test_gradients_reach_gates(shape):
    """The gradient is what a small change of the gate does to the loss."""
    model, *inputs = _transformer()
    model = model.double()
    gate = torch.ones(shape, dtype=torch.float64, requires_grad=True)

    def loss(gate):
        with gated(model, {"decoder self": [None, gate]}):
            return model(*inputs)[0].logsumexp(-1).mean()

    (gradient,) = torch.autograd.grad(loss(gate), gate)
    for place in ((0,) * len(shape), tuple(size - 1 for size in shape)):
        step = torch.zeros_like(gate)
        step[place] = 1e-5
        slope = (loss(gate.detach() + step) - loss(gate.detach() - step)) / 2e-5
        torch.testing.assert_close(gradient[place], slope, rtol=1e-4, atol=1e-9)
    assert gradient.abs().max() > 1e-5


def test_nothing_is_left_behind():
    model, *inputs = _transformer()
    before, _ = model(*inputs)
    with switched_off(model, heads_of(model)):
        assert _num_hooks(model) == 6
        assert not torch.allclose(model(*inputs)[0], before)
    assert _num_hooks(model) == 0
    assert torch.equal(model(*inputs)[0], before)


def test_nothing_is_left_behind_by_an_error_inside():
    model, *_ = _transformer()
    with pytest.raises(RuntimeError, match="inside"), switched_off(model, heads_of(model)):
        raise RuntimeError("inside")
    assert _num_hooks(model) == 0


def test_nothing_is_left_behind_by_a_gate_that_does_not_fit():
    """The first gate is fine and already in place when the second is refused."""
    model, *_ = _transformer()
    gates = {"cross": [torch.ones(3), torch.ones(4)]}
    with pytest.raises(ValueError, match=re.escape(" has shape (4,)")), gated(model, gates):
        raise AssertionError("not reached")
    assert _num_hooks(model) == 0


def test_gates_one_inside_the_other_multiply():
    model, *inputs = _transformer()
    half = {"cross": [torch.tensor([0.5, 1.0, 1.0])] * 2}
    with gated(model, half), gated(model, half):
        twice, _ = model(*inputs)
    with gated(model, {"cross": [torch.tensor([0.25, 1.0, 1.0])] * 2}):
        torch.testing.assert_close(model(*inputs)[0], twice)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda model: heads_of(nn.Linear(2, 2)), TypeError, "model must be one of mhalib.models, got Linear"),
        (lambda model: switched_off(model, [Head("cross", 2, 0)]), ValueError, "heads holds ('cross', 2, 0)"),
        (lambda model: switched_off(model, [("cross", 0, 3)]), ValueError, "heads holds ('cross', 0, 3)"),
        (lambda model: switched_off(model, [("self", 0, 0)]), ValueError, "heads holds ('self', 0, 0)"),
        (lambda model: switched_off(model, [("cross", 0, -1)]), ValueError, "heads holds ('cross', 0, -1)"),
        (lambda model: gated(model, {"self": []}), ValueError, "gates name the kind 'self', but the model has"),
        (lambda model: gated(model, {"cross": [None]}), ValueError, "gates['cross'] has 1 entries for 2 layers"),
        (
            lambda model: gated(model, {"cross": [torch.ones(2, 4), None]}),
            ValueError,
            " has shape (2, 4), but needs (3,), (B, 3) or (B, Q, 3)",
        ),
        (lambda model: gated(model, {"cross": [torch.ones(1, 2, 7, 3), None]}), ValueError, "(1, 2, 7, 3)"),
        (lambda model: gated(model, {"cross": [torch.ones(()), None]}), ValueError, " has shape ()"),
    ],
)
def test_errors_name_argument_and_value(call, error, message):
    model, *_ = _transformer()
    with pytest.raises(error, match=re.escape(message)), call(model):
        pass


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_gates_take_the_type_of_the_model(dtype):
    model, *inputs = _transformer()
    model = model.to(dtype)
    with switched_off(model, [Head("cross", 0, 1)]):
        off, _ = model(*inputs)
    with gated(model, {"cross": [torch.tensor([1.0, 0.0, 1.0]), None]}):
        closed, _ = model(*inputs)
    assert off.dtype == dtype
    assert torch.equal(off, closed)
    assert not torch.equal(off, model(*inputs)[0])


def test_one_head_is_no_list_of_heads():
    model, *_ = _transformer()
    with pytest.raises(TypeError, match=re.escape("heads must be a list of heads, got one head: write [Head(")):
        switched_off(model, Head("cross", 0, 1))
