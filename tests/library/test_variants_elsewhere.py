"""Layers with shared keys, latent, gated, differential, talking and sparse attention, with sinks and with caps, against
those of transformers and x-transformers, with the same random numbers in both. The libraries are imported only by the
tests that call them, which skip where they are not installed.

Both libraries take some steps in float32, whatever their weights are: softmax, norms and angles. So each comparison is
made twice: with these steps in float64 too, to 1e-9, and once a week with the library as it is, to 1e-5.
"""

import math

import pytest
import torch
from torch import nn

from mhalib import Band, MultiHeadAttention, causal_mask, padding_mask, variants

B, N, D, H, d = 5, 7, 30, 6, 8  # h * d = 48 is not D
BASE = 37.0  # at the usual 10,000 the last pair of so few channels would hardly turn
HALVES = {"positions": "rotary-halves", "rotary_base": BASE}
EXACT = {"atol": 1e-9, "rtol": 1e-9}


pytestmark = pytest.mark.usefixtures("in_float64")


class Library:
    """How a library is called, and how near its results are."""

    def __init__(self, in_float64):
        self.in_float64 = in_float64
        self.close = EXACT if in_float64 else {"atol": 1e-5, "rtol": 1e-5}

    def __call__(self, function, *arguments, **options):
        with pytest.MonkeyPatch.context() as patch:
            if self.in_float64:
                patch.setattr(torch, "float32", torch.float64)
                patch.setattr(torch, "float", torch.float64)
                patch.setattr(torch.Tensor, "float", torch.Tensor.double)
            return function(*arguments, **options)


@pytest.fixture(params=[pytest.param("as it is", marks=pytest.mark.weekly), "in float64"])
def library(request):
    return Library(request.param == "in float64")


@pytest.fixture
def x():
    return torch.randn(B, N, D)


def _shaken(layer):
    """Other numbers in all parameters, so that maps have peaks and nothing that is 0 or 1 at first hides a mistake."""
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return layer


class Twin:
    """An attention layer of transformers, called as its model calls it: the model's program makes the angles from the
    places of the tokens, and the mask from which of them are real."""

    def __init__(self, library, name, family, weights, *, number=0, **settings):
        modeling = pytest.importorskip(f"transformers.models.{family}.modeling_{family}")
        self.transformers = pytest.importorskip("transformers")
        self.library, self.number = library, number
        self.combine = lambda weights: weights
        rope = {"rope_type": "default", "rope_theta": BASE}
        self.config = getattr(self.transformers, f"{name}Config")(
            hidden_size=D, num_attention_heads=H, rope_parameters=rope, attn_implementation="eager", **settings
        )
        self.layer = library(getattr(modeling, f"{name}Attention"), self.config, number).eval()
        self.angles = library(getattr(modeling, f"{name}RotaryEmbedding"), self.config)
        if "q_norm.weight" in self.layer.state_dict().keys() - weights.keys():  # our layer has no such norms
            self.layer.q_norm = self.layer.k_norm = nn.Identity()
        self.layer.load_state_dict(weights)  # nothing may be missing

    def new_cache(self):
        return self.transformers.DynamicCache(config=self.config)

    def __call__(self, x, *, real=None, places=None, cache=None, mask="create_causal_mask"):
        make = getattr(pytest.importorskip("transformers.masking_utils"), mask)
        start = 0 if cache is None else cache.get_seq_length(self.number)
        places = torch.arange(start, start + x.shape[1])[None] if places is None else places
        with torch.no_grad():
            given = make(
                config=self.config,
                inputs_embeds=x,
                attention_mask=real,
                past_key_values=cache,
                position_ids=None,
                layer_idx=self.number,
            )
            angles = self.library(self.angles, x, places)
            output, weights = self.library(
                self.layer, x, position_embeddings=angles, attention_mask=given, past_key_values=cache
            )
        return output, self.combine(weights)


def _linears(**projections):
    """State of a module whose parts are these projections; what has no bias adds none."""
    return {
        f"{name}.{part}": tensor.detach()
        for name, projection in projections.items()
        for part, tensor in projection.named_parameters()
    }


def _four(layer):
    return _linears(q_proj=layer.W_q, k_proj=layer.W_k, v_proj=layer.W_v, o_proj=layer.W_o)


def _agree(found, expected, close):
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, **close)


def _agree_in_steps(layer, twin, x, close, *, prefill=4, mask="create_causal_mask"):
    """The first tokens at once and the others one by one give what ours gives, with its cache and without."""
    whole, _ = layer(x, x, x, mask=Band())
    ours, theirs = layer.new_cache(), twin.new_cache()
    for start, stop in [(0, prefill), *((t, t + 1) for t in range(prefill, N))]:
        part = x[:, start:stop]
        with torch.no_grad():
            output, weights = layer(part, part, part, mask=Band(offset=start), cache=ours)
        expected, their_weights = twin(part, cache=theirs, mask=mask)
        _agree((output, output), (expected, whole[:, start:stop]), close)
        num_kept = their_weights.shape[-1]  # a sliding cache drops keys that no query sees again
        assert weights[..., : stop - num_kept].eq(0).all()
        torch.testing.assert_close(weights[..., stop - num_kept :], their_weights, **close)
    assert len(ours) == theirs.get_seq_length(twin.number) == N


# shared keys and values: LlamaAttention


def _llama(library, layer, weights=None):
    settings = {"num_key_value_heads": layer.num_kv_heads, "head_dim": d, "attention_bias": layer.W_q.bias is not None}
    return Twin(library, "Llama", "llama", _four(layer) if weights is None else weights, **settings)


def _grouped(num_kv_heads, bias=False, **positions):
    return _shaken(MultiHeadAttention(D, H, bias=bias, head_dim=d, num_kv_heads=num_kv_heads, **(positions or HALVES)))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("num_kv_heads", [1, 2, H])
def test_shared_keys_and_rotary_halves_are_llama_s(library, x, num_kv_heads, bias):
    layer = _grouped(num_kv_heads, bias)
    twin = _llama(library, layer)
    _agree(layer(x, x, x, mask=Band()), twin(x), library.close)
    _agree_in_steps(layer, twin, x, library.close)


@pytest.mark.parametrize("num_kv_heads", [1, 2, H])
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_on_either_side_is_llama_s(library, x, num_kv_heads, side):
    layer = _grouped(num_kv_heads)
    lens = torch.tensor([N, 3, 5, 1, 6])
    real = padding_mask(lens, N)[:, 0, 0]
    real = real.flip(-1) if side == "left" else real
    places = (real.cumsum(-1) - 1).clamp_min(0)  # as `generate` counts them: from the first real token
    twin = _llama(library, layer)
    expected, their_weights = twin(x, real=real.long(), places=places)
    if side == "right":
        output, weights = layer(x, x, x, lens, mask=Band())
        _agree((output, weights), layer(x, x, x, mask=causal_mask(N) & real[:, None, None]), EXACT)
    else:  # ours counts from the first token, and only distances matter
        output, weights = layer(x, x, x, mask=causal_mask(N) & real[:, None, None])
        assert weights.transpose(1, 2)[~real].eq(0).all()  # tokens before the first real one see nothing, in theirs all
    torch.testing.assert_close(output[real], expected[real], **library.close)
    torch.testing.assert_close(weights.transpose(1, 2)[real], their_weights.transpose(1, 2)[real], **library.close)
    assert weights.masked_select(~real[:, None, None]).eq(0).all()


@pytest.mark.parametrize("num_kv_heads", [1, 2, H])
def test_exchanged_pairs_are_what_llama_reads(library, x, num_kv_heads):
    layer = _grouped(num_kv_heads, positions="rotary", rotary_base=BASE)

    def permute(weight, heads):  # as transformers' convert_llama_weights_to_hf.py does
        return weight.view(heads, d // 2, 2, D).transpose(1, 2).reshape(heads * d, D)

    weights = _four(layer) | {
        "q_proj.weight": permute(layer.W_q.weight.detach(), H),
        "k_proj.weight": permute(layer.W_k.weight.detach(), num_kv_heads),
    }
    exchanged = variants.exchange_pairs(layer, "halves")
    assert _four(exchanged).keys() == weights.keys()
    assert all(torch.equal(part, weights[name]) for name, part in _four(exchanged).items())
    expected = _llama(library, layer, weights)(x)
    _agree(layer(x, x, x, mask=Band()), expected, library.close)
    _agree(exchanged(x, x, x, mask=Band()), expected, library.close)
    wrong = _llama(library, layer)(x)  # the numbers in Meta's order: no error, and another function
    assert (wrong[1] - expected[1]).abs().max() > 0.01


# latent attention: DeepseekV3Attention


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("query_latent_size", [0, 13])
def test_latent_attention_is_deepseek_s_and_prefill_is_decode(library, x, query_latent_size, interleaved, bias):
    latent, r, v = 11, 4, 9
    layer = _shaken(
        variants.LatentAttention(
            D,
            H,
            bias=bias,
            head_dim=d,
            value_dim=v,
            latent_size=latent,
            rotary_size=r,
            query_latent_size=query_latent_size,
            positions="rotary" if interleaved else "rotary-halves",
            rotary_base=BASE,
        )
    )
    weights = _linears(kv_a_layernorm=layer.norm, o_proj=layer.W_o)
    if query_latent_size:
        weights |= _linears(q_a_proj=layer.W_q[0], q_a_layernorm=layer.W_q[1], q_b_proj=layer.W_q[2])
    else:
        weights |= _linears(q_proj=layer.W_q)
    for part, tensor in layer.W_down.named_parameters():
        weights[f"kv_a_proj_with_mqa.{part}"] = torch.cat([tensor, getattr(layer.W_rotary, part)]).detach()
    up = [projection.weight.unflatten(0, (H, -1)) for projection in (layer.W_up_k, layer.W_up_v)]
    weights["kv_b_proj.weight"] = torch.cat(up, 1).flatten(0, 1).detach()
    twin = Twin(
        library,
        "DeepseekV3",
        "deepseek_v3",
        weights,
        num_key_value_heads=H,
        q_lora_rank=query_latent_size or None,
        kv_lora_rank=latent,
        qk_rope_head_dim=r,
        qk_nope_head_dim=d,
        v_head_dim=v,
        rope_interleave=interleaved,
        attention_bias=bias,
    )
    for absorbed in (False, True):
        layer.absorbed = absorbed
        _agree(layer(x, x, x, mask=Band()), twin(x), library.close)
        _agree_in_steps(layer, twin, x, library.close)


# gates: Qwen3NextAttention, x-transformers


@pytest.mark.parametrize("num_kv_heads", [1, 2, H])
def test_gates_of_channels_are_qwen_s_without_its_norms(library, x, num_kv_heads):
    settings = {"head_dim": d, "num_kv_heads": num_kv_heads, **HALVES}
    layer = _shaken(variants.GatedAttention(D, H, per_channel=True, **settings))
    both = [projection.weight.unflatten(0, (H, d)) for projection in (layer.W_q, layer.W_gate)]
    weights = _four(layer) | {"q_proj.weight": torch.cat(both, 1).flatten(0, 1).detach()}
    settings = {"num_key_value_heads": num_kv_heads, "head_dim": d, "partial_rotary_factor": 1.0}
    twin = Twin(
        library, "Qwen3Next", "qwen3_next", weights, layer_types=["full_attention"], num_hidden_layers=1, **settings
    )
    _agree(layer(x, x, x, mask=Band()), twin(x), library.close)
    _agree_in_steps(layer, twin, x, library.close)


# norms of queries and keys: Qwen3Attention


@pytest.mark.parametrize("num_kv_heads", [1, 2, H])
def test_normed_queries_and_keys_are_qwen_s(library, x, num_kv_heads):
    settings = {"head_dim": d, "num_kv_heads": num_kv_heads, **HALVES}
    layer = _shaken(variants.QKNormAttention(D, H, norm="rms", **settings))
    weights = _four(layer) | {f"{one}_norm.weight": getattr(layer, f"norm_{one}").weight.detach() for one in "qk"}
    twin = Twin(library, "Qwen3", "qwen3", weights, num_key_value_heads=num_kv_heads, head_dim=d)
    _agree(layer(x, x, x, mask=Band()), twin(x), library.close)
    _agree_in_steps(layer, twin, x, library.close)


# differences: DiffLlamaAttention


def _halves_first(weight, number):
    """Head 0's first, head 0's second, head 1's first … -> all first, then all second: theirs pairs i with i + h."""
    return weight.detach().unflatten(0, (number, 2, d)).transpose(0, 1).flatten(0, 2)


def _is_diff_llama(library, layer, number, x, q, k, v, **settings):
    weights = {f"lambda_{name}": getattr(layer, f"lambda_{name}").detach() for name in ("q1", "k1", "q2", "k2")}
    weights |= {"q_proj.weight": q, "k_proj.weight": k, "v_proj.weight": v, "o_proj.weight": layer.W_o.weight.detach()}
    twin = Twin(library, "DiffLlama", "diffllama", weights, number=number, head_dim=d, **settings)
    first, second = ((weights[f"lambda_q{i}"] @ weights[f"lambda_k{i}"]).exp() for i in (1, 2))
    share = first - second + 0.8 - 0.6 * math.exp(-0.3 * number)
    twin.combine = lambda maps: maps[:, : H // 2] - share * maps[:, H // 2 :]
    _agree(layer(x, x, x, mask=Band()), twin(x), library.close)
    _agree_in_steps(layer, twin, x, library.close)


@pytest.mark.parametrize("number", [0, 3])
@pytest.mark.parametrize("num_kv_heads", [1, H // 2])
def test_differential_heads_are_diff_llama_s(library, x, num_kv_heads, number):
    """Three heads of ours are six of theirs. Keys and values that ours share are written out for each of their heads,
    because which maps share a key is not the same in the two: see the next test."""
    h = H // 2
    layer = _shaken(
        variants.DifferentialAttention(D, h, head_dim=d, num_kv_heads=num_kv_heads, layer_number=number, **HALVES)
    )
    nn.init.ones_(layer.norm.weight)  # theirs has none
    k = layer.W_k.weight.unflatten(0, (2 * num_kv_heads, d)).repeat_interleave(h // num_kv_heads, 0).flatten(0, 1)
    v = layer.W_v.weight.unflatten(0, (num_kv_heads, 2 * d)).repeat_interleave(h // num_kv_heads, 0).flatten(0, 1)
    q, k, v = (_halves_first(rows, h) for rows in (layer.W_q.weight, k, v))
    _is_diff_llama(library, layer, number, x, q, k, v, num_key_value_heads=H)


def test_in_diff_llama_groups_share_two_keys(library, x):
    """There the heads of a group share two keys, one for each of their maps. Here, as in the authors' program, both
    maps of a head may share one key. So their sharing is written out for a layer of ours that shares nothing."""
    h = H // 2
    layer = _shaken(variants.DifferentialAttention(D, h, head_dim=d, layer_number=1, **HALVES))
    nn.init.ones_(layer.norm.weight)
    with torch.no_grad():
        for projection in (layer.W_k, layer.W_v):
            rows = projection.weight.view(h, 2 * d, D)
            rows[1:] = rows[0].clone()
    k, v = (projection.weight[: 2 * d].detach() for projection in (layer.W_k, layer.W_v))
    _is_diff_llama(library, layer, 1, x, _halves_first(layer.W_q.weight, h), k, v, num_key_value_heads=2)


# windows: MistralAttention


@pytest.mark.parametrize("window", [1, 2, 3, N])
@pytest.mark.parametrize("num_kv_heads", [1, 2, H])
def test_a_causal_window_is_mistral_s(library, x, num_kv_heads, window):
    layer = _shaken(variants.SparseAttention(D, H, window=window, head_dim=d, num_kv_heads=num_kv_heads, **HALVES))
    settings = {"num_key_value_heads": num_kv_heads, "head_dim": d, "sliding_window": window}
    twin = Twin(library, "Mistral", "mistral", _four(layer), **settings)
    sliding = "create_sliding_window_causal_mask"
    output, weights = layer(x, x, x, mask=Band())
    _agree((output, weights), twin(x, mask=sliding), library.close)
    assert weights.ne(0).sum(-1).max() == window  # with itself
    if window > 1:  # with a window of 1 their cache drops nothing, keys[-window + 1 :], which their mask does not know
        _agree_in_steps(layer, twin, x, library.close, mask=sliding)


@pytest.mark.parametrize("window", [1, 2, 3])
def test_windows_on_both_sides_are_one_token_wider_in_transformers(library, x, window):
    layer = _shaken(variants.SparseAttention(D, H, window=window + 1, head_dim=d, **HALVES))
    twin = Twin(library, "Mistral", "mistral", _four(layer), num_key_value_heads=H, head_dim=d, sliding_window=window)
    _agree(layer(x, x, x), twin(x, mask="create_bidirectional_sliding_window_mask"), library.close)


# x-transformers


def _x_attention(library, layer, **settings):
    kinds = pytest.importorskip("x_transformers.x_transformers")
    twin = library(kinds.Attention, D, heads=H, dim_head=d, **settings).eval()
    weights = {"to_q": layer.W_q, "to_k": layer.W_k, "to_v": layer.W_v, "to_out": layer.W_o}
    return twin, _linears(**weights)


def _x_call(library, twin, x, **given):
    with torch.no_grad():
        output, between = library(twin, x, return_intermediates=True, **given)
    return output, between.post_softmax_attn


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("before", "after"), [(True, True), (True, False), (False, True)])
def test_talking_heads_are_x_transformers(library, x, before, after, causal):
    """What is learned there before the softmax is added to the scores: the identity, with which its layer begins,
    doubles them. Ours, as in the paper, takes their place."""
    layer = _shaken(variants.TalkingHeads(D, H, head_dim=d, init="normal"))
    twin, weights = _x_attention(library, layer, causal=causal, pre_talking_heads=before, post_talking_heads=after)
    identity = torch.eye(H)
    with torch.no_grad():
        for used, own in ((before, layer.P_scores), (after, layer.P_weights)):
            own.copy_(own if used else identity)
        if before:
            weights["attend.pre_softmax_talking_heads.weight"] = (layer.P_scores - identity).T[..., None, None].clone()
        if after:
            weights["attend.post_softmax_talking_heads.weight"] = layer.P_weights.T[..., None, None].clone()
    twin.load_state_dict(weights)
    real = padding_mask(torch.tensor([N, 3, 5, 1, 6]), N)
    output, found = _x_call(library, twin, x, context_mask=real[:, 0, 0])
    with torch.no_grad():
        found = twin.attend.post_softmax_talking_heads(found) if after else found
    _agree(layer(x, x, x, mask=real & causal_mask(N) if causal else real), (output, found), library.close)


@pytest.mark.parametrize("setting", ["one_kv_head", "kv_heads"])
def test_one_key_for_all_heads_is_x_transformers(library, x, setting):
    layer = _shaken(MultiHeadAttention(D, H, head_dim=d, num_kv_heads=1))
    twin, weights = _x_attention(library, layer, causal=True, **{setting: 1})
    twin.load_state_dict(weights)
    _agree(layer(x, x, x, mask=Band()), _x_call(library, twin, x), library.close)


def test_groups_are_neighbours_and_in_x_transformers_every_other_head(library, x):
    """Query head i has there key i % num_kv_heads, and here, as in the authors' program and in LLaMA, i // group."""
    num_kv_heads = 2
    layer = _shaken(MultiHeadAttention(D, H, head_dim=d, num_kv_heads=num_kv_heads))
    twin, weights = _x_attention(library, layer, causal=True, kv_heads=num_kv_heads)
    twin.load_state_dict(weights)
    ours = layer(x, x, x, mask=Band())
    assert (_x_call(library, twin, x)[1] - ours[1]).abs().max() > 0.01
    order = torch.arange(H).view(num_kv_heads, -1).T.flatten()  # 0 3 1 4 2 5: which of our heads is theirs i
    weights["to_q.weight"] = weights["to_q.weight"].unflatten(0, (H, d))[order].flatten(0, 1)
    weights["to_out.weight"] = weights["to_out.weight"].unflatten(1, (H, d))[:, order].flatten(1)
    twin.load_state_dict(weights)
    output, found = _x_call(library, twin, x)
    _agree((ours[0], ours[1][:, order]), (output, found), library.close)


@pytest.mark.parametrize("per_channel", [True, False])
def test_gates_are_x_transformers(library, x, per_channel):
    layer = _shaken(variants.GatedAttention(D, H, head_dim=d, per_channel=per_channel))
    twin, weights = _x_attention(library, layer, gate_values=True, gate_values_headwise=not per_channel)
    twin.load_state_dict(weights | _linears(to_v_gate=layer.W_gate))
    _agree(layer(x, x, x), _x_call(library, twin, x), library.close)


@pytest.mark.parametrize("past", [1, 2, 3])
def test_a_window_counts_itself_and_in_x_transformers_the_past_only(library, x, past):
    layer = _shaken(variants.SparseAttention(D, H, head_dim=d, window=past + 1))
    twin, weights = _x_attention(library, layer, causal=True, max_attend_past=past)
    twin.load_state_dict(weights)
    _agree(layer(x, x, x, mask=Band()), _x_call(library, twin, x), library.close)


@pytest.mark.parametrize("number", [0, 1])
def test_sinks_are_those_of_gpt_oss(library, x, number):
    layer = _shaken(variants.SinkAttention(D, H, bias=True, head_dim=d, num_kv_heads=2, **HALVES))
    kinds = ["full_attention", "full_attention"]
    settings = {"num_key_value_heads": 2, "head_dim": d, "layer_types": kinds, "num_hidden_layers": 2}
    twin = Twin(
        library, "GptOss", "gpt_oss", {**_four(layer), "sinks": layer.sinks.detach()}, number=number, **settings
    )
    _agree(layer(x, x, x, mask=Band()), twin(x), library.close)
    _agree_in_steps(layer, twin, x, library.close)


@pytest.mark.parametrize("cap", [0.4, 50.0])
def test_capped_scores_are_gemma_2_s(library, x, cap):
    layer = _shaken(variants.SoftCapAttention(D, H, head_dim=d, num_kv_heads=2, scale=5**-0.5, cap=cap, **HALVES))
    settings = {"num_key_value_heads": 2, "head_dim": d, "query_pre_attn_scalar": 5, "attn_logit_softcapping": cap}
    kinds = ["full_attention"]
    twin = Twin(library, "Gemma2", "gemma2", _four(layer), layer_types=kinds, num_hidden_layers=1, **settings)
    _agree(layer(x, x, x, mask=Band()), twin(x), library.close)
    if cap < 1:  # and it bites
        plain = MultiHeadAttention(D, H, head_dim=d, num_kv_heads=2, scale=5**-0.5, **HALVES)
        plain.load_state_dict(layer.state_dict())
        assert (plain(x, x, x)[1] - layer(x, x, x)[1]).abs().max() > 0.01
