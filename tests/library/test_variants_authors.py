"""Four layers against what the authors' own programs gave, in float64. Where an author's program has a matrix that is
stored another way, the test says how it is read."""

import json

import pytest
import torch
from made_by_authors import STORED, B, D, H, N, numbers

from mhalib import causal_mask, variants

EXACT = {"atol": 1e-11, "rtol": 1e-11}
pytestmark = pytest.mark.usefixtures("in_float64")


def _agrees(name, layer, mask):
    x = numbers("x", B, N, D)
    expected = torch.tensor(json.loads(STORED.read_text("utf-8"))[name]).view(B, N, D)
    with torch.no_grad():
        torch.testing.assert_close(layer.eval()(x, x, x, mask=mask)[0], expected, **EXACT)


def _fill(layer, **parts):
    """Parameters by name, with "weight" where none is said; all that the layer has."""
    own = dict(layer.named_parameters())
    assert {name if name in own else f"{name}.weight" for name in parts} == set(own)
    with torch.no_grad():
        for name, part in parts.items():
            own[name if name in own else f"{name}.weight"].copy_(part)
    return layer


def test_a_mixture_s_gates_are_those_of_the_authors_vision_transformer():
    """Its scores are cosines; here queries and keys of length 1 and a scale give the same."""
    q, k, v = numbers("qkv.weight", 3 * D, D).chunk(3)
    bq, bk, bv = numbers("qkv.bias", 3 * D).chunk(3)

    class Cosines(variants.MixtureOfHeads):
        def score(self, q, k):
            unit = torch.nn.functional.normalize
            temperature = torch.nn.functional.softplus(numbers("temperature", H, 1, 1))
            return temperature * unit(q, dim=-1) @ unit(k, dim=-1).mT

    layer = _fill(
        Cosines(D, H, bias=True, num_shared=2, num_chosen=1),
        **{"W_q": q, "W_k": k, "W_v": v, "W_q.bias": bq, "W_k.bias": bk, "W_v.bias": bv},
        **{"W_o": numbers("proj.weight", D, D), "W_o.bias": numbers("proj.bias", D)},
        W_routed=numbers("wg.weight", 2, D),
        W_kinds=numbers("wg_0.weight", 2, D),
        W_shared=numbers("wg_1.weight", 2, D),
    )
    _agrees("MoH, vision", layer, None)


def test_a_mixture_by_the_norm_of_the_query_is_the_authors_llama():
    settings = {"num_shared": 2, "num_chosen": 1, "router": "query norm", "num_kv_heads": 2}
    layer = _fill(
        variants.MixtureOfHeads(D, H, positions="rotary-halves", rotary_base=37.0, **settings),
        W_q=numbers("q_proj.weight", D, D),
        W_k=numbers("k_proj.weight", D // 2, D),
        W_v=numbers("v_proj.weight", D // 2, D),
        W_o=numbers("o_proj.weight", D, D),
    )
    _agrees("MoH, LLaMA-3", layer, causal_mask(N))


@pytest.mark.parametrize("static", [False, True])
def test_composed_heads_are_the_authors(static):
    """Theirs has one tensor for all four places: before and after, by queries and by keys."""
    q, k, v = numbers("wqkv.weight", 3 * D, D).chunk(3)
    first = numbers("dyn_w_proj.dw1", D, 1, 4, 4 * H)[:, 0]
    second = numbers("dyn_w_proj.qkw", 1, 4, 4 * H, 4, H)[0].flatten(2)
    gates = numbers("dyn_w_proj.dd", D, 1, 4 * H)[:, 0].unflatten(-1, (4, H))
    parts = {"W_q": q, "W_k": k, "W_v": v, "W_o": numbers("wo.weight", D, D)}
    for place, (when, side) in enumerate([(w, s) for w in ("before", "after") for s in ("query", "key")]):
        parts[f"{when}.{side}.W_1"] = first[:, place]
        parts[f"{when}.{side}.W_2"] = second[place]
        parts[f"{when}.{side}.W_gate"] = gates[:, place]
    if static:
        parts |= {
            "S_before": numbers("dyn_w_proj.pre_proj.w", 1, H, H)[0],
            "S_after": numbers("dyn_w_proj.post_proj.w", 1, H, H)[0],
        }
    layer = _fill(variants.ComposedAttention(D, H, static=static), **parts)
    _agrees("DCMHA, static" if static else "DCMHA", layer, causal_mask(N))


def test_collaborative_heads_are_the_authors_package_s():
    layer = variants.CollaborativeAttention(D, H, bias=True, shared_size=10, scale=(10 / H) ** -0.5)
    _fill(
        layer,
        W_q=numbers("query.weight", 10, D),
        W_k=numbers("key.weight", 10, D),
        W_v=numbers("value.weight", D, D),
        W_o=numbers("dense.weight", D, D),
        content_bias=numbers("content_bias.weight", H, D),
        mixing=numbers("mixing", H, 10),
        **{"W_v.bias": numbers("value.bias", D), "W_o.bias": numbers("dense.bias", D)},
    )
    _agrees("collaborative", layer, None)
