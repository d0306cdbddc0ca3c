"""Pruned models compute what switched-off ones do, with less: in every model, with caches, on disk, in training."""

import copy

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from mhalib import Head, KeyValueCache, MultiHeadAttention, gated, heads_of, switched_off
from mhalib.decoding import greedy, sample
from mhalib.measures import layers_of, prune_heads, removed_heads
from mhalib.models import GPT, Captioner, PictureReader, SentenceReader, Transformer, ViT
from mhalib.saved import About, read, write

EXACT = {"rtol": 0, "atol": 1e-10}


def transformer(positions="learned"):
    lens = torch.tensor([5, 2, 4])
    return Transformer(11, 7, 12, 3, 2, 16, max_tokens=9, positions=positions), (
        torch.randint(11, (3, 5)),
        torch.randint(7, (3, 6)),
        lens,
    )


MODELS = {
    "transformer": transformer,
    "transformer, rotary": lambda: transformer("rotary"),
    "gpt": lambda: (GPT(11, 12, 3, 2, 16, max_tokens=9), (torch.randint(11, (3, 7)),)),
    "gpt, rotary": lambda: (GPT(11, 12, 3, 2, 16, positions="rotary"), (torch.randint(11, (3, 7)),)),
    "gpt, attention alone": lambda: (GPT(11, 12, 3, 2, 0, max_tokens=9), (torch.randint(11, (3, 7)),)),
    "vit": lambda: (ViT(3, 4, 4, 2, 12, 3, 2, 16), (torch.randn(3, 4, 4),)),
    "captioner": lambda: (Captioner(9, 4, 4, 2, 12, 3, 2), (torch.randn(3, 4, 4), torch.randint(9, (3, 5)))),
    "reader": lambda: (
        PictureReader(9, 4, 4, 4, 2, 12, 3),
        (torch.randn(3, 4, 4), torch.randint(9, (3, 5)), torch.tensor([5, 1, 3])),
    ),
    "sentences": lambda: (SentenceReader(9, 4, 12, 3), (torch.randint(9, (3, 5)), torch.tensor([5, 1, 3]))),
}
EVERY = pytest.mark.parametrize("name", MODELS)


def make(name, device="cpu"):
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)  # biases too
    moved = [x.to(device, torch.float64) if x.is_floating_point() else x.to(device) for x in inputs]
    return model.double().eval().to(device), moved


def some(model, seed):
    """About half of all heads, at random."""
    generator = torch.Generator().manual_seed(seed)
    return [head for head in heads_of(model) if torch.rand((), generator=generator) < 0.5]


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("which", ["one", "half", "all of a layer", "all"])
@EVERY
def test_outputs_and_weights_are_those_of_masking(name, which, need_weights, device):
    model, inputs = make(name, device)
    every = heads_of(model)
    heads = {
        "one": every[1:2],
        "half": some(model, 1),
        "all of a layer": [head for head in every if head[:2] == every[-1][:2]],
        "all": every,
    }[which]
    with torch.no_grad():
        with switched_off(model, heads):
            expected, expected_weights = model(*inputs, need_weights=need_weights)
        pruned = prune_heads(copy.deepcopy(model), heads)
        output, weights = pruned(*inputs, need_weights=need_weights)
    torch.testing.assert_close(output, expected, **EXACT)
    assert (weights is not None) == need_weights
    if need_weights:
        for kind, layers in layers_of(pruned).items():
            for number, layer in enumerate(layers):
                kept = [head.head for head in every if head[:2] == (kind, number) and head not in heads]
                assert layer.head_numbers == tuple(kept)
                torch.testing.assert_close(weights[kind][number], expected_weights[kind][number][:, kept], **EXACT)


@EVERY
def test_pruning_in_steps_is_pruning_at_once(name):
    model, inputs = make(name)
    heads = some(model, 2)
    at_once, in_steps = prune_heads(copy.deepcopy(model), heads), copy.deepcopy(model)
    for head in reversed(heads):
        prune_heads(in_steps, [head])
    with torch.no_grad():
        assert torch.equal(at_once(*inputs)[0], in_steps(*inputs)[0])
    assert heads_of(at_once) == heads_of(in_steps) == [head for head in heads_of(model) if head not in heads]
    assert removed_heads(in_steps) == heads


@EVERY
def test_the_numbers_of_heads_stay_when_others_are_gone(name):
    model, inputs = make(name)
    heads, rest = some(model, 3), [head for head in heads_of(model) if head not in some(model, 3)]
    pruned = prune_heads(copy.deepcopy(model), heads)
    with torch.no_grad():
        for head in rest:
            with switched_off(model, [*heads, head]):
                expected = model(*inputs)[0]
            with switched_off(pruned, [head]):
                torch.testing.assert_close(pruned(*inputs)[0], expected, **EXACT)


def test_it_happens_in_place_and_only_where_asked():
    model, _ = make("transformer")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert prune_heads(model, [Head("cross", 1, 1)]) is model
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    layer = "decoder.layers.1.cross_attention"
    parts = ("W_q.weight", "W_q.bias", "W_k.weight", "W_k.bias", "W_v.weight", "W_v.bias", "W_o.weight")
    assert changed == {f"{layer}.{part}" for part in parts}
    kept = [0, 1, 2, 3, 8, 9, 10, 11]
    state = model.state_dict()
    assert torch.equal(state[f"{layer}.W_v.weight"], before[f"{layer}.W_v.weight"][kept])
    assert torch.equal(state[f"{layer}.W_q.bias"], before[f"{layer}.W_q.bias"][kept])
    assert torch.equal(state[f"{layer}.W_o.weight"], before[f"{layer}.W_o.weight"][:, kept])
    assert "num_heads=2" in repr(layers_of(model)["cross"][1])
    assert "in_features=12, out_features=8" in repr(layers_of(model)["cross"][1].W_k)
    assert "in_features=8, out_features=12" in repr(layers_of(model)["cross"][1].W_o)


def test_each_head_takes_its_weights_and_its_work_with_it():
    model, inputs = make("gpt")
    pruned = prune_heads(copy.deepcopy(model), [Head("decoder self", 0, 0), Head("decoder self", 1, 2)])
    width, d = 12, 4
    assert model.num_weights - pruned.num_weights == 2 * (4 * width * d + 3 * d)

    def flops(model):
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            model(*inputs, need_weights=True)
        return counter.get_total_flops()

    per_head = 2 * 3 * 7 * 4 * width * d + 2 * 3 * 2 * 7 * 7 * d  # four projections, scores and averages
    assert flops(model) - flops(pruned) == 2 * per_head


def test_a_layer_without_heads_gives_the_bias(device):
    torch.manual_seed(0)
    for positions in ("none", "rotary"):
        model = nn.Module()
        layer = MultiHeadAttention(12, 3, bias=True, positions=positions).to(device)
        model.attention_layers = lambda layer=layer: {"self": [layer]}
        prune_heads(model, heads_of(model))
        x = torch.randn(2, 5, 12, device=device)
        cache = KeyValueCache()
        for options in ({}, {"cache": cache}, {"valid_lens": torch.tensor([5, 0], device=device)}):
            for need_weights in (False, True):
                output, weights = layer(x, x, x, need_weights=need_weights, **options)
                torch.testing.assert_close(output, layer.W_o.bias.expand(2, 5, 12))
                num_kvpairs = len(cache) if "cache" in options else 5
                assert weights is None or weights.shape == (2, 0, 5, num_kvpairs)
        assert len(cache) == 10
        output.sum().backward()
        assert (layer.W_o.bias.grad == 10).all()


@pytest.mark.parametrize("name", ["transformer", "transformer, rotary", "captioner"])
@pytest.mark.parametrize("all_of_a_layer", [False, True])
def test_decoding_with_caches_is_decoding_without(name, all_of_a_layer):
    model, inputs = make(name)
    whole = [head for head in heads_of(model) if head[:2] in (("decoder self", 0), ("cross", 1))]
    prune_heads(model, whole if all_of_a_layer else some(model, 4))
    lens = inputs[2] if len(inputs) > 2 else None
    texts = [greedy(model, inputs[0], lens, begin=1, end=2, max_tokens=6, use_cache=on) for on in (True, False)]
    assert torch.equal(*texts)


@pytest.mark.parametrize("name", ["gpt", "gpt, rotary"])
def test_a_gpt_generates_with_caches_as_without(name):
    model, inputs = make(name)
    prune_heads(model, [Head("decoder self", 0, 0), *(Head("decoder self", 1, head) for head in range(3))])
    texts = [sample(model, inputs[0][:, :3], 5, temperature=0, use_cache=on) for on in (True, False)]
    assert torch.equal(*texts)


def test_gates_and_training_after_pruning():
    model, inputs = make("gpt")
    prune_heads(model, [Head("decoder self", 0, 1), *(Head("decoder self", 1, head) for head in range(3))])
    gates = [torch.ones(2, dtype=torch.float64, requires_grad=True), torch.ones(0, dtype=torch.float64)]
    with gated(model, {"decoder self": gates}):
        model(*inputs)[0].square().mean().backward()
    assert gates[0].grad.count_nonzero() == 2
    before = model(*inputs)[0].detach()
    torch.optim.AdamW(model.parameters(), 0.01).step()
    assert not torch.allclose(model(*inputs)[0], before)
    with (
        pytest.raises(ValueError, match=r"has shape \(3,\), but needs \(2,\)"),
        gated(model, {"decoder self": [torch.ones(3), None]}),
    ):
        pass


def test_frozen_stays_frozen_and_dtype_stays():
    model, _ = make("gpt")
    model.half().requires_grad_(False)
    prune_heads(model, heads_of(model)[:1])
    assert all(p.dtype == torch.float16 and not p.requires_grad for p in model.parameters())


@pytest.mark.parametrize("which", ["half", "all"])
@EVERY
def test_a_pruned_model_is_read_as_it_was_written(name, which, tmp_path):
    model, inputs = make(name)
    prune_heads(model, some(model, 5) if which == "half" else heads_of(model))
    write(model, tmp_path / "pruned.safetensors", About("none", ("none", 0.0), "none"))
    found = read(tmp_path / "pruned.safetensors")
    assert heads_of(found) == heads_of(model)
    assert removed_heads(found) == removed_heads(model)
    with torch.no_grad():
        expected, got = model.half().float()(*_single(inputs))[0], found(*_single(inputs))[0]
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-6)


def _single(inputs):
    return [x.float() if x.is_floating_point() else x for x in inputs]


def test_what_is_not_there_is_refused_and_nothing_changed():
    model, inputs = make("transformer")
    prune_heads(model, [Head("cross", 1, 1)])
    before = copy.deepcopy(model)
    there = Head("cross", 0, 0)
    for heads, message in [
        ([there, Head("cross", 1, 1)], r"\('cross', 1, 1\)\], which are removed already"),
        ([there, Head("cross", 1, 3)], r"\('cross', 1, 3\)\], which the model does not have"),
        ([there, Head("cross", 2, 0)], "does not have"),
        ([there, Head("self", 0, 0)], "does not have"),
        ([there, Head("cross", 0, -1)], "does not have"),
    ]:
        with pytest.raises(ValueError, match=message):
            prune_heads(model, heads)
        assert heads_of(model) == heads_of(before)
    with pytest.raises(ValueError, match="does not have"):
        switched_off(model, [Head("cross", 1, 1)])
    with pytest.raises(TypeError, match=r"model must be one of mhalib\.models"):
        prune_heads(nn.Linear(2, 2), [])
    assert torch.equal(prune_heads(model, [])(*inputs)[0], before(*inputs)[0])
    prune_heads(model, [there, there, tuple(there)])
    assert removed_heads(model) == [Head("cross", 0, 0), Head("cross", 1, 1)]
