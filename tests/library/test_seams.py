"""The layer's seams hold the variants of `mhalib.variants`, and those of `throwaway_kinds.py` in their shortest form.

Each must say by name what it refuses, be written and read, and serve in a GPT and a Transformer. That each passes
`check_variant` is in test_conformance.py; what each computes is proved where it is taught.
"""

import re

import pytest
import torch
from throwaway_kinds import THROWAWAY, QKClip
from torch.nn import functional as F

import mhalib
from mhalib import Band, measures, saved
from mhalib.attention import KINDS, make_attention, register
from mhalib.models import GPT, Transformer
from mhalib.reference import multi_head_attention_loops, to_torch

CLOSE = {"atol": 1e-5, "rtol": 1e-4}


LIBRARY = {
    "TalkingHeads": {"name": "talking", "init": "normal"},
    "CollaborativeAttention": {"name": "collaborative", "shared_size": 6, "init": "normal"},
    "OverlappingAttention": {"name": "overlapping", "overlap": 1},
    "MixtureOfHeads": {"name": "mixture", "num_shared": 1, "num_chosen": 2},
    "ComposedAttention": {"name": "composed"},
    "DifferentialAttention": {"name": "differential"},
    "GatedAttention": {"name": "gated", "per_channel": True},
    "QKNormAttention": {"name": "qk-norm"},
    "QKNormAttention, rms": {"name": "qk-norm", "norm": "rms"},
    "LatentAttention": {"name": "latent", "latent_size": 5},
    "latent, absorbed": {"name": "latent", "latent_size": 5, "absorbed": True},
    "EntmaxAttention": {"name": "entmax"},
    "SpanAttention": {"name": "span", "max_span": 3, "ramp": 2.0},
    "SparseAttention": {"name": "sparse", "window": 2, "stride": 3},
    "SinkAttention": {"name": "sinks", "sink": 0.5},
    "SigmoidAttention": {"name": "sigmoid"},
    "SoftpickAttention": {"name": "softpick"},
    "SoftCapAttention": {"name": "soft-cap", "cap": 1.5},
    "GatedAttention, as Qwen3-Next": {"name": "gated", "per_channel": True, "norm": "rms", "num_kv_heads": 2},
    "DeltaAttention": {"name": "delta"},
    "TensorProductAttention": {"name": "tensor-product", "rank": 1},
    "DeltaAttention, by channels": {"name": "delta", "decay": "channel"},
    "MultiTokenAttention": {"name": "multi-token", "kernel_size": [2, 3]},
    "MixtureOfBlocks": {"name": "blocks", "block_size": 2, "num_chosen": 2},
    "NativeSparseAttention": {"name": "native-sparse", "block_size": 2, "num_chosen": 1, "window": 2},
    "IndexedAttention": {"name": "indexed", "num_chosen": 2, "index_size": 8},
    "CrossLayerAttention": {"name": "cross-layer", "num_layers_per_key": 1},
    "RelativeAttention": {"name": "relative", "num_buckets": 4, "max_distance": 3},
}
BETWEEN = {"TalkingHeads", "ComposedAttention", "DifferentialAttention", "EntmaxAttention", "SpanAttention"}
BETWEEN |= {"SinkAttention", "SigmoidAttention", "SoftpickAttention", "SoftCapAttention", "qk-clip"}
BETWEEN |= {"MultiTokenAttention", "MixtureOfBlocks", "NativeSparseAttention", "IndexedAttention"}
BETWEEN |= {"DeltaAttention", "DeltaAttention, by channels"}
PRUNED = {QKClip}
PRUNED |= {KINDS[name] for name in ("gated", "entmax", "span", "sparse", "qk-norm", "relative")}
PRUNED |= {KINDS[name] for name in ("sinks", "sigmoid", "softpick", "soft-cap", "delta")}
PRUNED |= {KINDS[name] for name in ("multi-token", "blocks")}
SETTINGS = {
    **{name: {"name": f"a test's {name}"} for name in THROWAWAY},
    **LIBRARY,
    "grouped": {"name": "multi-head", "num_kv_heads": 2},
    "one for all": {"name": "multi-head", "num_kv_heads": 1},
    "narrow": {"name": "multi-head", "head_dim": 6, "value_dim": 5, "scale": 0.3},
}


def test_each_kind_of_the_book_is_held_to_its_seams():
    assert {one["name"] for one in LIBRARY.values()} == set(KINDS) - {"multi-head"} - {
        f"a test's {name}" for name in THROWAWAY
    }


@pytest.fixture(autouse=True)
def _registered():
    for name, kind in THROWAWAY.items():
        register(f"a test's {name}")(kind)
    yield
    for name in THROWAWAY:
        del KINDS[f"a test's {name}"]


def _layer(name, **more):
    torch.manual_seed(0)
    return make_attention({**SETTINGS[name], **more}, 16, 4, bias=True).eval()


@pytest.mark.parametrize("name", SETTINGS)
def test_rows_sum_to_1_exactly_where_it_says_so(name):
    layer, x = _layer(name), torch.randn(2, 5, 16)
    sums = layer(x, x, x, mask=Band())[1].sum(-1)
    assert torch.allclose(sums, torch.ones(()), atol=1e-5) == layer.rows_sum_to_one


def test_what_a_cache_costs_is_what_it_holds():
    x = torch.randn(2, 7, 16)
    held = {}
    names = "grouped", "one for all", "LatentAttention", "MixtureOfHeads", "TensorProductAttention"
    for name in names:
        layer = _layer(name)
        cache = layer.new_cache(max_tokens=20)
        with torch.no_grad():
            layer(x, x, x, cache=cache)
        held[name] = cache.num_bytes // (4 * 2 * 7)  # numbers for each token
    assert held == {"grouped": 2 * 2 * 4, "one for all": 2 * 4, "LatentAttention": 5, "MixtureOfHeads": 2 * 4 * 4} | {
        "TensorProductAttention": 2 * (4 + 4)
    }


@pytest.mark.parametrize("name", SETTINGS)
def test_heads_are_removed_or_that_is_refused_by_name(name):
    layer = _layer(name)
    if layer.is_variant and type(layer) not in PRUNED:
        with pytest.raises(TypeError, match=f"{type(layer).__name__}.* does not say how to remove heads"):
            layer.keep_heads([0, 2])
        return
    layer.keep_heads([0, 2, 3])
    assert layer.head_numbers == (0, 2, 3)


@pytest.mark.parametrize("name", SETTINGS)
def test_the_ledger_sees_its_softmax(name):
    layer, x = _layer(name), torch.randn(2, 5, 16)
    seen = mhalib.ledger(layer, x, x, x)
    others = {"EntmaxAttention": "amax", "SigmoidAttention": "sigmoid", "SoftpickAttention": "exp"}
    own = "triangular" if name.startswith("Delta") else others.get(name, "softmax")
    assert any(own in step.operation for step in seen)


@pytest.mark.parametrize("name", SETTINGS)
def test_models_take_it_by_its_name_and_are_read_as_they_were_written(name, tmp_path):
    about = saved.About("a test", ("nothing", 0.0), "none")
    ids = torch.randint(7, (2, 5))
    for positions in ("learned", "rotary"):
        gpt = GPT(7, 16, 4, 2, 8, max_tokens=9, attention=SETTINGS[name], positions=positions)
        transformer = Transformer(7, 7, 16, 4, 1, 8, attention=SETTINGS[name], positions=positions)
        for model, inputs in ((gpt, (ids,)), (transformer, (ids, ids))):
            model = model.half().float().eval()
            saved.write(model, tmp_path / "model.safetensors", about)
            again = saved.read(tmp_path / "model.safetensors")
            assert again.settings == model.settings
            assert torch.equal(again(*inputs)[0], model(*inputs)[0])
            layers = [layer for of_kind in measures.layers_of(again).values() for layer in of_kind]
            kind = KINDS[SETTINGS[name]["name"]]
            cross = measures.layers_of(again).get("cross", [])
            assert {type(layer) for layer in layers if not (kind.looks_at_itself_only and layer in cross)} == {kind}
        caches = gpt.eval().new_caches()
        with torch.no_grad():
            steps = [gpt(ids[:, i : i + 1], caches=caches)[0] for i in range(5)]
            torch.testing.assert_close(torch.cat(steps, 1), gpt(ids)[0], **CLOSE)


@pytest.mark.parametrize("name", SETTINGS)
def test_importance_is_measured_of_it(name):
    torch.manual_seed(0)
    gpt = GPT(7, 16, 4, 1, 8, attention=SETTINGS[name])

    def loss(model, batch):
        logits, _ = model(batch)
        return (
            F.cross_entropy(logits[:, :-1].flatten(0, 1), batch[:, 1:].flatten(), reduction="none").view(2, -1).sum(1)
        )

    found = measures.head_importance(gpt, [torch.randint(7, (2, 5))], loss)
    assert found["decoder self"].shape == (1, 4)
    assert (found["decoder self"] > 0).any()


@pytest.mark.parametrize("name", SETTINGS)
def test_loops_and_converters_know_it_or_refuse_it_by_name(name):
    layer, x = _layer(name), torch.randn(2, 5, 16)
    if layer.is_variant:
        for refuse in (lambda: multi_head_attention_loops(layer, x, x, x), lambda: to_torch(layer)):
            with pytest.raises(TypeError, match=f"layer is a {type(layer).__name__}, a variant"):
                refuse()
        return
    output, weights = layer(x, x, x, mask=Band(before=1))
    by_loops = multi_head_attention_loops(layer, x, x, x, mask=Band(before=1))
    torch.testing.assert_close((output, weights), by_loops, **CLOSE)
    if name == "narrow":
        with pytest.raises(ValueError, match=re.escape("needs heads that fill num_hiddens=16")):
            to_torch(layer)
    else:
        found, _ = to_torch(layer)(x, x, x, attn_mask=~Band(before=1).matrix(5))
        torch.testing.assert_close(found, output, **CLOSE)


def test_a_measure_that_needs_rows_of_1_refuses_mixed_weights():
    weights = torch.full((2, 4, 5, 5), 0.2)
    with pytest.raises(ValueError, match="rows of weights must sum to 1"):
        measures.confidence(weights * 2)
    with pytest.raises(ValueError, match="rows of weights must sum to 1"):
        measures.attention_to(weights * 2, "self")


def test_the_fused_kernel_is_taken_exactly_where_nothing_stands_between(monkeypatch):
    taken = []
    kernel = F.scaled_dot_product_attention
    monkeypatch.setattr(F, "scaled_dot_product_attention", lambda *a, **k: taken.append(k) or kernel(*a, **k))
    x = torch.randn(2, 5, 16)
    for name in SETTINGS:
        taken.clear()
        _layer(name)(x, x, x, mask=Band(), need_weights=False)
        assert len(taken) == (name not in BETWEEN), name
        if taken:
            has_matrix = name in {"SparseAttention", "RelativeAttention"}
            assert taken[0]["is_causal"] == (not has_matrix)
            assert (taken[0]["attn_mask"] is None) == (not has_matrix)
        taken.clear()
        _layer(name)(x, x, x)
        assert not taken
