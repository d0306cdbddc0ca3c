"""Importance against finite differences of gates, and against the two formulas written out for one layer."""

import copy
import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mhalib import Head, gated, heads_of, switched_off
from mhalib.measures import head_importance, prune_heads
from mhalib.models import GPT, Transformer, ViT

STEP = 1e-5


def token_losses(model, batch):
    """(B,): for GPT, the mean loss of an example's tokens."""
    tokens = batch
    logits, _ = model(tokens[:, :-1])
    return F.cross_entropy(logits.mT, tokens[:, 1:], reduction="none").mean(1)


def translation_losses(model, batch):
    source, target, lens = batch
    logits, _ = model(source, target[:, :-1], lens)
    return F.cross_entropy(logits.mT, target[:, 1:], reduction="none").sum(1)


def make(name):
    torch.manual_seed(0)
    if name == "gpt":
        model = GPT(11, 12, 3, 2, 16, max_tokens=9).double().eval()
        return model, [torch.randint(11, (4, 7)), torch.randint(11, (2, 5))], token_losses
    model = Transformer(11, 7, 12, 3, 2, 16, max_tokens=9, positions="rotary").double().eval()
    lens = torch.tensor([5, 3, 1])
    return model, [(torch.randint(11, (3, 5)), torch.randint(7, (3, 6)), lens)], translation_losses


def slope(model, batch, loss, head, shape, place):
    """(L(1 + step) - L(1 - step)) / 2 step for the gate at `place` of a tensor of ones, by example."""
    values = []
    for step in (STEP, -STEP):
        gate = torch.ones(shape, dtype=torch.float64)
        gate[place] += step
        gates = [None] * len(model.attention_layers()[head.kind])
        gates[head.layer] = gate
        with torch.no_grad(), gated(model, {head.kind: gates}):
            values.append(loss(model, batch))
    return (values[0] - values[1]) / (2 * STEP)


@pytest.mark.parametrize("name", ["gpt", "transformer"])
def test_per_example_equals_finite_differences_of_a_gate(name):
    model, batches, loss = make(name)
    found = head_importance(model, batches, loss)
    assert {kind: tuple(table.shape) for kind, table in found.items()} == dict.fromkeys(
        model.attention_layers(), (2, 3)
    )
    for head in heads_of(model):
        slopes = [slope(model, batch, loss, head, (3,), (head.head,)) for batch in batches]
        expected = torch.cat(slopes).abs().mean().item()
        assert found[head.kind][head.layer, head.head].item() == pytest.approx(expected, rel=1e-4, abs=1e-8)


@pytest.mark.parametrize("name", ["gpt", "transformer"])
def test_per_token_equals_finite_differences_of_a_gate_for_each_query(name):
    model, batches, loss = make(name)
    batches = batches[:1]
    found = head_importance(model, batches, loss, "token")
    lengths = {"gpt": {"decoder self": (4, 6)}, "transformer": {"encoder self": (3, 5), "decoder self": (3, 5)}}[name]
    for (kind, size), layer, number in itertools.product(lengths.items(), range(2), range(3)):
        head = Head(kind, layer, number)
        total = 0.0
        for t in range(size[1]):
            total += slope(model, batches[0], loss, head, (*size, 3), (slice(None), t, number)).abs().sum().item()
        assert found[kind][layer, number].item() == pytest.approx(total / size[0], rel=1e-4, abs=1e-8)


@pytest.mark.parametrize("mode", ["example", "token"])
def test_the_formula_written_out(mode):
    """|Σ Att_hᵀ ∂L/∂Att_h| from what W_o reads and the gradient there, for the last layer of a GPT."""
    model, (batch, _), loss = make("gpt")
    layer, held = model.attention_layers()["decoder self"][1], []

    def keep(_, inputs):
        inputs[0].retain_grad()
        held.append(inputs[0])

    handle = layer.W_o.register_forward_pre_hook(keep)
    loss(model, batch).sum().backward()
    handle.remove()
    att, grad = (x.unflatten(-1, (3, 4)) for x in (held[0].detach(), held[0].grad))
    expected = torch.zeros(3, dtype=torch.float64)
    for head in range(3):
        for b in range(len(batch)):
            products = [att[b, t, head] @ grad[b, t, head] for t in range(6)]
            expected[head] += sum(products).abs() if mode == "example" else sum(x.abs() for x in products)
    found = head_importance(model, [batch], loss, mode)["decoder self"][1]
    torch.testing.assert_close(found, (expected / 4).to(found), rtol=1e-5, atol=1e-9)


def test_per_token_is_never_smaller():
    for name in ("gpt", "transformer"):
        model, batches, loss = make(name)
        example, token = (head_importance(model, batches, loss, mode) for mode in ("example", "token"))
        assert all((token[kind] >= example[kind]).all() for kind in token)
        assert all((token[kind] > 1.01 * example[kind]).any() for kind in token)


def test_examples_count_the_same_however_they_are_batched():
    model, (batch, _), loss = make("gpt")
    together = head_importance(model, [batch], loss)
    apart = head_importance(model, [batch[:1], batch[1:]], loss)
    torch.testing.assert_close(together, apart)
    summed = (
        head_importance(model, [example], loss)["decoder self"] for example in batch[:, None]
    )  # the mean of absolute values, not the absolute value of the mean
    torch.testing.assert_close(together["decoder self"], sum(summed) / 4)


def test_padding_of_the_source_adds_nothing():
    model, ((source, target, lens),), loss = make("transformer")
    other = source.clone()
    other[1, 3:] = 9
    other[2, 1:] = 5
    for mode in ("example", "token"):
        expected = head_importance(model, [(source, target, lens)], loss, mode)
        torch.testing.assert_close(head_importance(model, [(other, target, lens)], loss, mode), expected)


def test_normalised_by_layer():
    model, batches, loss = make("transformer")
    raw, scaled = (head_importance(model, batches, loss, normalise=on) for on in (False, True))
    for kind, table in raw.items():
        torch.testing.assert_close(scaled[kind], table / (table**2).sum(1, keepdim=True).sqrt())


def test_a_head_that_is_off_or_gone_has_0_and_the_others_their_places():
    model, batches, loss = make("gpt")
    off = [Head("decoder self", 0, 1), Head("decoder self", 1, 0), Head("decoder self", 1, 2)]
    with switched_off(model, off):
        expected = head_importance(model, batches, loss)["decoder self"]
    assert [expected[head.layer, head.head].item() for head in off] == [0, 0, 0]
    assert expected.count_nonzero() == 3
    pruned = prune_heads(copy.deepcopy(model), off)
    torch.testing.assert_close(head_importance(pruned, batches, loss)["decoder self"], expected)
    prune_heads(pruned, [Head("decoder self", 1, 1)])
    found = head_importance(pruned, batches, loss, normalise=True)["decoder self"]
    assert found.shape == (2, 3)
    assert found[1].count_nonzero() == 0


def test_the_model_is_left_as_it_was():
    torch.manual_seed(0)
    model = GPT(11, 12, 3, 2, 16, dropout=0.5, max_tokens=9).train()
    batch = torch.randint(11, (3, 7))
    token_losses(model, batch).sum().backward()
    before = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
    first, second = (head_importance(model, [batch], token_losses)["decoder self"] for _ in range(2))
    assert torch.equal(first, second)  # no dropout
    assert model.training
    after = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    assert all(map(torch.equal, before, after))
    assert not any(layer._head_functions for layer in model.attention_layers()["decoder self"])
    with torch.no_grad():
        assert torch.equal(head_importance(model, [batch], token_losses)["decoder self"], first)


def test_weights_may_be_frozen():
    model, batches, loss = make("gpt")
    expected = head_importance(model, batches, loss)
    model.requires_grad_(False)
    torch.testing.assert_close(head_importance(model, batches, loss), expected)


def test_a_classifier_of_pictures(device):
    torch.manual_seed(0)
    model = ViT(3, 4, 4, 2, 12, 3, 2, 16).to(device)
    images, labels = torch.randn(5, 4, 4, device=device), torch.tensor([0, 1, 2, 0, 1], device=device)

    def losses(model, batch):
        return F.cross_entropy(model(batch[0])[0], batch[1], reduction="none")

    found = head_importance(model, [(images, labels)], losses)["encoder self"]
    assert found.device.type == device.type
    assert (found > 0).all()


def test_wrong_arguments_are_named():
    model, batches, loss = make("gpt")
    with pytest.raises(ValueError, match="mode='tokens' must be one of"):
        head_importance(model, batches, loss, "tokens")
    with pytest.raises(ValueError, match="batches holds no example"):
        head_importance(model, [], loss)
    with pytest.raises(TypeError, match=r"model must be one of mhalib\.models"):
        head_importance(nn.Linear(2, 2), batches, loss)
    with pytest.raises(ValueError, match=r"one number per example.*got \(\)"):
        head_importance(model, batches, lambda model, batch: loss(model, batch).mean())
    with pytest.raises(ValueError, match=r"got \(1,\)"):
        head_importance(model, batches, lambda model, batch: loss(model, batch)[:1])
    with pytest.raises(ValueError, match="got float"):
        head_importance(model, batches, lambda model, batch: loss(model, batch).sum().item())
    with pytest.raises(ValueError, match="without a gradient"):
        head_importance(model, batches, torch.no_grad()(loss))
    assert not model.training
