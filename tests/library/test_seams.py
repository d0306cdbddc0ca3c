"""The layer's seams hold the variants of `mhalib.variants`, and seven in their shortest form.

Each must pass `check_variant`, say by name what it refuses, be written and read, and serve in a GPT and a Transformer.
What each computes is proved where it is taught.
"""

import re

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import mhalib
from mhalib import Band, MultiHeadAttention, measures, saved
from mhalib.attention import KINDS, make_attention, register
from mhalib.attention.functional import _split_heads
from mhalib.models import GPT, Transformer
from mhalib.reference import multi_head_attention_loops, to_torch
from mhalib.variants import check_variant

CLOSE = {"atol": 1e-5, "rtol": 1e-4}


class Talking(MultiHeadAttention):
    """Heads mixed before and after the softmax (Shazeer et al. 2020)."""

    rows_sum_to_one = False

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.P_scores = nn.Parameter(torch.eye(self.num_heads) + 0.1)
        self.P_weights = nn.Parameter(torch.eye(self.num_heads) + 0.1)

    def mix_scores(self, scores, queries, keys):
        return torch.einsum("bhqk,hg->bgqk", scores, self.P_scores)

    def mix_weights(self, weights, queries, keys):
        return torch.einsum("bhqk,hg->bgqk", weights, self.P_weights)


class Composed(MultiHeadAttention):
    """Scores mixed by what the query says (the query's part of Xiao et al. 2024)."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.W_mix = nn.Linear(self.query_size, self.num_heads**2)

    def mix_scores(self, scores, queries, keys):
        mixing = self.W_mix(queries).unflatten(-1, (self.num_heads, self.num_heads))
        return scores + torch.einsum("bhqk,bqhg->bgqk", scores, mixing)


class Routed(MultiHeadAttention):
    """Each query chooses two of the heads (Jin et al. 2024)."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.router = nn.Linear(self.query_size, self.num_heads)

    def gate(self, found, queries):
        gates = self.router(queries).softmax(-1)
        kept = torch.zeros_like(gates).scatter(-1, gates.topk(2).indices, 1.0)
        return found * (gates * kept).mT[..., None]

    def keep_heads(self, heads):
        kept = [self.head_slices(head).q.start // self.head_dim for head in heads]
        router = nn.Linear(self.query_size, len(kept))
        router.weight = nn.Parameter(self.router.weight[kept].detach())
        router.bias = nn.Parameter(self.router.bias[kept].detach())
        super().keep_heads(heads)
        self.router = router


class Collaborative(MultiHeadAttention):
    """W_q and W_k are shared; each head weighs their channels (Cordonnier et al. 2020)."""

    def __init__(self, *args, shared=6, **kwargs):
        super().__init__(*args, **kwargs)
        self.W_q = nn.Linear(self.query_size, shared, bias=False)
        self.W_k = nn.Linear(self.key_size, shared, bias=False)
        self.mixing = nn.Parameter(torch.randn(self.num_heads, shared))

    def project(self, queries, keys, values):
        q = self.W_q(queries)[:, None] * self.mixing[:, None]
        k = self.W_k(keys)[:, None].expand(-1, self.num_heads, -1, -1)
        return q, k, _split_heads(self.W_v(values), self.num_heads, self.value_dim)


class Latent(MultiHeadAttention):
    """Keys and values are made from a narrow latent, and the latent is what the cache holds (DeepSeek-V2)."""

    def __init__(self, *args, latent=5, **kwargs):
        super().__init__(*args, **kwargs)
        self.W_k = self.W_v = None
        self.down = nn.Linear(self.key_size, latent, bias=False)
        self.up_k = nn.Linear(latent, self.num_heads * self.head_dim, bias=False)
        self.up_v = nn.Linear(latent, self.num_heads * self.value_dim, bias=False)

    def project_with_cache(self, queries, keys, values, cache):
        start = 0 if cache is None else len(cache)
        latent = self.down(keys)
        if cache is not None:
            (latent,) = cache.append(latent)
        q = _split_heads(self.W_q(queries), self.num_heads, self.head_dim)
        k = _split_heads(self.up_k(latent), self.num_heads, self.head_dim)
        v = _split_heads(self.up_v(latent), self.num_heads, self.value_dim)
        return self.place(q, start), self.place(k, 0), v


class Overlapping(MultiHeadAttention):
    """Each head also sees a channel of each of its neighbours (Zhang et al., overlapping heads)."""

    def __init__(self, *args, overlap=1, **kwargs):
        super().__init__(*args, **kwargs)
        self.overlap = overlap
        self.value_dim = self.head_dim + 2 * overlap
        self.W_o = nn.Linear(self.num_heads * self.value_dim, self.num_hiddens, bias=self.W_o.bias is not None)

    def project(self, queries, keys, values):
        def widened(x):
            padded = F.pad(x, (self.overlap, self.overlap))
            return padded.unfold(-1, self.value_dim, self.head_dim).transpose(1, 2)

        return widened(self.W_q(queries)), widened(self.W_k(keys)), widened(self.W_v(values))


class Unnormalised(MultiHeadAttention):
    """A softmax with one more term in its denominator, so that a head may look at nothing (a seam of its own)."""

    rows_sum_to_one = False

    def softmax(self, scores, mask):
        scores = scores if mask is None else scores.masked_fill(~mask, -torch.inf)
        return torch.cat([scores, torch.zeros_like(scores[..., :1])], -1).softmax(-1)[..., :-1]


VARIANTS = [Talking, Composed, Routed, Collaborative, Latent, Overlapping, Unnormalised]
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
    "RelativeAttention": {"name": "relative", "num_buckets": 4, "max_distance": 3},
}
BETWEEN = {"Talking", "Composed", "Unnormalised", "TalkingHeads", "ComposedAttention", "DifferentialAttention"} | {
    "EntmaxAttention",
    "SpanAttention",
}
PRUNED = {Routed, Unnormalised, *(KINDS[name] for name in ("gated", "entmax", "span", "sparse", "qk-norm", "relative"))}
SETTINGS = {
    **{kind.__name__: {"name": f"a test's {kind.__name__}"} for kind in VARIANTS},
    **LIBRARY,
    "grouped": {"name": "multi-head", "num_kv_heads": 2},
    "one for all": {"name": "multi-head", "num_kv_heads": 1},
    "narrow": {"name": "multi-head", "head_dim": 6, "value_dim": 5, "scale": 0.3},
}


@pytest.fixture(autouse=True)
def _registered():
    for kind in VARIANTS:
        register(f"a test's {kind.__name__}")(kind)
    yield
    for kind in VARIANTS:
        del KINDS[f"a test's {kind.__name__}"]


def _layer(name, **more):
    torch.manual_seed(0)
    return make_attention({**SETTINGS[name], **more}, 16, 4, bias=True).eval()


@pytest.mark.parametrize("name", SETTINGS)
def test_it_does_what_every_kind_must(name):
    """Without a head, `Routed` chooses among those that are left: another function, which its chapter has to argue."""
    check_variant(SETTINGS[name], without=("pruning",) if name == "Routed" else ())


@pytest.mark.parametrize("name", SETTINGS)
def test_rows_sum_to_1_exactly_where_it_says_so(name):
    layer, x = _layer(name), torch.randn(2, 5, 16)
    sums = layer(x, x, x, mask=Band())[1].sum(-1)
    assert torch.allclose(sums, torch.ones(()), atol=1e-5) == layer.rows_sum_to_one


def test_what_a_cache_costs_is_what_it_holds():
    x = torch.randn(2, 7, 16)
    held = {}
    for name in ("grouped", "one for all", "Latent", "Routed"):
        layer = _layer(name)
        cache = layer.new_cache(max_tokens=20)
        with torch.no_grad():
            layer(x, x, x, cache=cache)
        held[name] = cache.num_bytes // (4 * 2 * 7)  # numbers for each token
    assert held == {"grouped": 2 * 2 * 4, "one for all": 2 * 4, "Latent": 5, "Routed": 2 * 4 * 4}


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
    assert any(("amax" if name == "EntmaxAttention" else "softmax") in step.operation for step in seen)


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
    layer, x = _layer("Talking"), torch.randn(2, 5, 16)
    _, weights = layer(x, x, x)
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
