"""What chapter 18 stores of the sinks of two real models is what their weights give."""

import pytest
import torch
from real_weights import place

from mhalib import pretrained
from mhalib.results import read
from tools.evidence import real_sinks


def test_what_is_stored_of_minilm_is_what_the_weights_give():
    place("minilm")
    found, stored = real_sinks.minilm(), read("minilm_sinks")
    for name, values in stored.values.items():
        assert found[name] == pytest.approx(values, rel=2e-3)
    lengths = torch.tensor(found["length"])[torch.tensor(found["weight"]) > 0.5]
    assert len(lengths) == 33
    assert lengths.max() < 0.2


def test_the_length_is_that_of_what_a_head_writes():
    """Against the layer itself: one head alone, and all the weight on one token."""
    place("minilm")
    model = pretrained.load("minilm").model
    layer, x = model.attention_layers()["encoder self"][2], torch.randn(1, 5, 384)
    lengths = real_sinks.written(layer, x)

    def one_head(found):
        kept = torch.zeros_like(found)
        kept[:, 3] = found[:, 3]
        return kept

    with torch.no_grad(), layer.on_heads(one_head):
        for n in range(5):
            alone = layer(x, x[:, n : n + 1], x[:, n : n + 1])[0] - layer.W_o.bias
            assert alone.norm(dim=-1) == pytest.approx(float(lengths[3, n]), rel=1e-4)


def test_what_is_stored_of_smollm2_is_what_the_weights_give():
    place("smollm2-135m")
    model, stored = pretrained.load("smollm2-135m"), read("smollm2_sinks")
    chosen = torch.tensor([model.tokenizer.encode(real_sinks.CHOOSING).ids])
    pair = real_sinks.loudest(model.model, chosen)
    assert pair == [int(neuron) for neuron in stored["neurons"]]
    tokens = real_sinks.texts_of(model)[0]
    before = real_sinks.measured(model.model, tokens)
    assert (float(before[0][0]), before[1]) == pytest.approx((stored["first"][0], stored["nats"][0]), rel=2e-3)
    with real_sinks.neurons_off(model.model, pair):
        on_key, nats = real_sinks.measured(model.model, tokens)
    assert (float(on_key[0]), nats) == pytest.approx(
        (stored["both off/first"][0], stored["both off/nats"][0]), rel=2e-3
    )
    with real_sinks.hidden(model.model, 0):
        on_key = real_sinks.measured(model.model, tokens)[0]
    assert float(on_key[1]) == pytest.approx(stored["hidden/second"][0], rel=2e-3)
    assert float(on_key[0]) == 0  # no query from place 8 on sees it
    assert torch.equal(real_sinks.measured(model.model, tokens)[0], before[0])  # and no hook is left
