"""Means of heads, taken apart by hand; mean ablation against a bias of W_o, and against a head that is constant."""

import copy
import re

import pytest
import torch

from mhalib import Head, heads_of, switched_off
from mhalib.measures import head_means, layers_of, prune_heads
from mhalib.models import GPT, Transformer

KINDS = ("encoder self", "decoder self", "cross")


def _model(device="cpu"):
    torch.manual_seed(0)
    model = Transformer(11, 13, 12, 3, 2, 20).eval().to(device)
    batches = [
        (torch.randint(11, (2, 5)), torch.randint(13, (2, 7)), torch.tensor([5, 3])),
        (torch.randint(11, (5, 4)), torch.randint(13, (5, 6)), torch.tensor([4, 1, 2, 3, 4])),
    ]
    return model, [tuple(x.to(device) for x in batch) for batch in batches]


def _real(batch):
    """The last query of each target is left out, and the source's padding."""
    source, target, lens = batch
    written = torch.ones_like(target, dtype=torch.bool)
    written[:, -1] = False
    read = torch.arange(source.shape[1], device=source.device) < lens[:, None]
    return {"encoder self": read, "decoder self": written, "cross": written}


def _run(model, batch):
    model(*batch)
    return _real(batch)


def _by_hand(model, batches):
    """What goes into each W_o, (queries, D), joined over batches where it is real; then means of slices."""
    found = {}
    for kind, layers in layers_of(model).items():
        for number, layer in enumerate(layers):
            rows = []
            for batch in batches:
                seen = []
                hook = layer.W_o.register_forward_pre_hook(lambda _, given, seen=seen: seen.append(given[0].detach()))
                model(*batch)
                hook.remove()
                rows += [
                    row for row, real in zip(seen[0].flatten(0, 1), _real(batch)[kind].flatten(), strict=True) if real
                ]
            joined = torch.stack(rows).mean(0)
            found[kind, number] = joined.reshape(layer.num_heads, layer.value_dim)
    return found


def test_means_are_those_of_what_goes_into_w_o(device):
    model, batches = _model(device)
    means = head_means(model, batches, _run)
    assert list(means) == list(KINDS)
    for (kind, number), expected in _by_hand(model, batches).items():
        torch.testing.assert_close(means[kind][number], expected, rtol=1e-4, atol=1e-6)


def test_without_word_of_it_every_query_counts():
    model, batches = _model()
    all_of_them = head_means(model, batches, lambda model, batch: (model(*batch), None)[1])
    some = head_means(model, batches, lambda model, batch: (model(*batch), {"cross": _real(batch)["cross"]})[1])
    torch.testing.assert_close(some["decoder self"][1], all_of_them["decoder self"][1])
    assert not torch.allclose(some["cross"][1], all_of_them["cross"][1], atol=1e-4)


@pytest.mark.parametrize("head", [Head("encoder self", 1, 0), Head("decoder self", 0, 2), Head("cross", 1, 1)])
def test_a_mean_is_a_bias_of_w_o(head):
    """The head is cut out for real, and W_o's columns times the mean are added to its bias."""
    model, batches = _model()
    means = head_means(model, batches, _run)
    folded = copy.deepcopy(model)
    layer = layers_of(folded)[head.kind][head.layer]
    d = layer.head_dim
    with torch.no_grad():
        layer.W_o.bias += layer.W_o.weight[:, head.head * d :][:, :d] @ means[head.kind][head.layer][head.head]
    prune_heads(folded, [head])
    with switched_off(model, [head], means):
        ablated, _ = model(*batches[0])
    torch.testing.assert_close(ablated, folded(*batches[0])[0])
    with switched_off(model, [head]):
        assert not torch.allclose(ablated, model(*batches[0])[0], atol=1e-5)
    assert not torch.allclose(ablated, model(*batches[0])[0], atol=1e-5)


def test_a_head_that_is_constant_is_its_mean():
    """Head 1 copies nothing but a bias, the same from everywhere: to replace it by its mean changes nothing."""
    model, batches = _model()
    layer = layers_of(model)["decoder self"][1]
    d = layer.head_dim
    with torch.no_grad():
        layer.W_v.weight[d : 2 * d] = 0
        layer.W_v.bias[d : 2 * d] = torch.randn(d)
    before, _ = model(*batches[0])
    means = head_means(model, batches, _run)
    torch.testing.assert_close(means["decoder self"][1][1], layer.W_v.bias[d : 2 * d])
    with switched_off(model, [Head("decoder self", 1, 1)], means):
        torch.testing.assert_close(model(*batches[0])[0], before)
    with switched_off(model, [Head("decoder self", 1, 1)]):
        assert not torch.allclose(model(*batches[0])[0], before, atol=1e-4)


def test_zeros_for_means_switch_off():
    model, batches = _model()
    zeros = {kind: [torch.zeros(3, 4)] * 2 for kind in KINDS}
    off = [Head("cross", 0, 1), Head("encoder self", 1, 2)]
    with switched_off(model, off):
        expected, _ = model(*batches[0])
    with switched_off(model, off, zeros):
        torch.testing.assert_close(model(*batches[0])[0], expected)


def test_a_pruned_layer_has_the_means_of_the_heads_that_are_left():
    model, batches = _model()
    prune_heads(model, [Head("cross", 1, 0), *(Head("encoder self", 0, head) for head in range(3))])
    means = head_means(model, batches, _run)
    assert means["cross"][1].shape == (2, 4)
    assert means["encoder self"][0].shape == (0, 4)
    torch.testing.assert_close(means["cross"][1], _by_hand(model, batches)["cross", 1], rtol=1e-4, atol=1e-6)
    with switched_off(model, [Head("cross", 1, 2)], means):
        ablated, _ = model(*batches[0])
    means["cross"][1][0] = 9  # of head 1, which stays on
    with switched_off(model, [Head("cross", 1, 2)], means):
        torch.testing.assert_close(model(*batches[0])[0], ablated)


def test_nothing_is_left_behind():
    model, batches = _model()
    model.train()
    means = head_means(model, batches, _run)
    assert model.training
    model.eval()
    before, _ = model(*batches[0])
    with switched_off(model, heads_of(model), means):
        assert not torch.allclose(model(*batches[0])[0], before)
    torch.testing.assert_close(model(*batches[0])[0], before)
    hooks = [len(layer._head_functions) for layers in layers_of(model).values() for layer in layers]
    assert hooks == [0] * 6


def test_half_precision_sums_in_single():
    torch.manual_seed(0)
    model = GPT(5, 12, 3, 1, 8).to(torch.bfloat16)
    ids = torch.randint(5, (300, 8))
    means = head_means(model, [ids], lambda model, batch: (model(batch), None)[1])
    assert means["decoder self"][0].dtype == torch.float32
    single = head_means(model.float(), [ids], lambda model, batch: (model(batch), None)[1])
    torch.testing.assert_close(means["decoder self"][0], single["decoder self"][0], rtol=0.05, atol=0.01)


HEAD = [Head("cross", 0, 1)]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda m: switched_off(m, HEAD, [1]), TypeError, "means must be a mapping from kinds to means, got list"),
        (
            lambda m: switched_off(m, HEAD, {"self": []}),
            ValueError,
            "heads names the kind 'cross', but means has ['self']",
        ),
        (
            lambda m: switched_off(m, HEAD, {"cross": [torch.ones(3, 4)]}),
            ValueError,
            "means['cross'] has 1 entries for 2",
        ),
        (
            lambda m: switched_off(m, HEAD, {"cross": [torch.ones(3, 4), torch.ones(4, 3)]}),
            ValueError,
            "means['cross'][1] has shape (4, 3), but needs (3, 4)",
        ),
        (
            lambda m: switched_off(m, HEAD, {"cross": [None, None]}),
            TypeError,
            "means['cross'][0] must be a torch.Tensor",
        ),
        (
            lambda m: head_means(m, [], _run),
            ValueError,
            "batches holds no query that counts for 'encoder self', layer 0",
        ),
        (lambda m: head_means(m, "x", _run), TypeError, "batches must be several batches, got str"),
        (lambda m: head_means(m, [1], None), TypeError, "run must be a function, got NoneType"),
        (lambda m: head_means(m, [1], lambda *_: 3), TypeError, "run must return a mapping or None, got int: 3"),
        (
            lambda m: head_means(m, [1], lambda *_: {"self": 3}),
            ValueError,
            "run returned the kind 'self', but the model",
        ),
        (
            lambda m: head_means(m, _model()[1], lambda m, b: (m(*b), {"cross": torch.ones(2, 5).bool()})[1]),
            ValueError,
            "run returned shape (2, 5) for 'cross', whose queries are (2, 7)",
        ),
        (
            lambda m: head_means(m, [1], lambda *_: {"cross": torch.ones(2, 5)}),
            TypeError,
            "run's 'cross' must be boolean",
        ),
    ],
)
def test_errors_name_argument_and_value(call, error, message):
    model, _ = _model()
    with pytest.raises(error, match=re.escape(message)):
        call(model)
