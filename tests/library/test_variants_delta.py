"""Heads that keep a state: against a loop over tokens, against the programs of Qwen3-Next and Kimi Linear in
transformers, and in models whose layers are of several kinds."""

import re

import pytest
import torch
from test_variants_elsewhere import EXACT, Library, _linears, _shaken
from torch import nn
from torch.nn import functional as F

from mhalib import Band, KeyValueCache, MultiHeadAttention, causal_mask, costs, saved
from mhalib.attention import QuantisedCache, StateCache, make_attention
from mhalib.decoding import sample
from mhalib.models import GPT
from mhalib.train import fit
from mhalib.variants import DeltaAttention, GatedAttention, check_variant, delta_rule, delta_weights

B, N, D, H, d, e = 3, 9, 24, 4, 5, 7
pytestmark = [pytest.mark.package, pytest.mark.usefixtures("in_float64")]
HYBRID = ["delta", "delta", "delta", "gated"]


def _given(decay="head", heads=H):
    """q, k, v, rates and logarithms of decays, as a layer might give them to the rule."""
    q, k = F.normalize(torch.randn(2, B, heads, N, d), dim=-1)
    log_decays = -torch.rand(B, heads, N, d if decay == "channel" else 1)
    return q, k, torch.randn(B, heads, N, e), torch.rand(B, heads, N), log_decays


def rule_by_loops(q, k, v, rates, log_decays):
    """One head of one example, number by number: forget, read, write what is missing, read."""
    state, found = torch.zeros(d, v.shape[-1]), []
    for t in range(len(q)):
        for row in range(d):
            state[row] *= log_decays[t, row if log_decays.shape[-1] > 1 else 0].exp()
        missing = v[t] - sum(k[t, row] * state[row] for row in range(d))
        for row in range(d):
            state[row] += rates[t] * k[t, row] * missing
        found.append(sum(q[t, row] * state[row] for row in range(d)))
    return torch.stack(found), state


@pytest.mark.parametrize("decay", ["head", "channel"])
@pytest.mark.parametrize("chunk_size", [1, 4, 64])
def test_the_rule_is_its_loop_in_chunks_of_any_size(decay, chunk_size):
    given = _given(decay)
    found, state = delta_rule(*given, chunk_size=chunk_size)
    for b in range(B):
        for i in range(H):
            expected = rule_by_loops(*(part[b, i] for part in given))
            torch.testing.assert_close((found[b, i], state[b, i]), expected, **EXACT)


@pytest.mark.parametrize("decay", ["head", "channel"])
def test_what_the_rule_finds_is_a_map_times_the_values(decay):
    q, k, v, rates, log_decays = _given(decay)
    weights = delta_weights(q, k, rates, log_decays)
    torch.testing.assert_close(weights @ v, delta_rule(q, k, v, rates, log_decays)[0], **EXACT)
    assert not weights.triu(1).any()


def test_a_state_goes_on_where_another_stopped():
    given = _given("channel")
    whole, last = delta_rule(*given)
    _, state = delta_rule(*(part[:, :, :4] for part in given))
    found, state = delta_rule(*(part[:, :, 4:] for part in given), state, chunk_size=2)
    torch.testing.assert_close((found, state), (whole[:, :, 4:], last), **EXACT)


def test_with_a_rate_of_1_the_latest_pair_is_read_exactly_and_nothing_is_read_of_no_tokens():
    q, k, v, _, _ = _given()
    ones, zeros = torch.ones(B, H, N), torch.zeros(B, H, N, 1)
    torch.testing.assert_close(delta_rule(k, k, v, ones, zeros)[0], v, **EXACT)
    found, state = delta_rule(q[:, :, :0], k[:, :, :0], v[:, :, :0], ones[:, :, :0], zeros[:, :, :0])
    assert found.shape == (B, H, 0, e)
    assert not state.any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_numbers_are_summed_in_float32(dtype):
    given = [part.to(dtype) for part in _given()]
    found, state = delta_rule(*given)
    expected, _ = delta_rule(*(part.float() for part in given))
    assert found.dtype == state.dtype == torch.float32
    torch.testing.assert_close(found, expected)


def layer_by_loops(layer, x):
    """One example (N, D) through a layer, one token and one channel of the convolution after the other."""
    width = layer.convolution.kernel_size[0]
    mixed = torch.cat([layer.W_q(x), layer.W_k(x), layer.W_v(x)], -1)
    padded = torch.cat([torch.zeros(width - 1, mixed.shape[1]), mixed])
    filters = layer.convolution.weight[:, 0]
    passed = torch.stack([(padded[t : t + width] * filters.T).sum(0) for t in range(len(x))])
    passed = passed * passed.sigmoid()
    shared, group = layer.num_key_heads * layer.head_dim, layer.num_heads // layer.num_key_heads
    outputs = []
    for i in range(layer.num_heads):
        rows = layer.head_slices(i)
        assert rows.q == rows.k == slice(i // group * layer.head_dim, (i // group + 1) * layer.head_dim)
        q, k = passed[:, rows.q], passed[:, shared + rows.k.start : shared + rows.k.stop]
        v = passed[:, 2 * shared + rows.v.start : 2 * shared + rows.v.stop]
        q, k = (one / (one.square().sum(-1, keepdim=True) + 1e-6).sqrt() for one in (q, k))
        rates = 1 / (1 + (-x @ layer.W_rate.weight[i]).exp())
        raw = (layer.W_decay(x) + layer.decay_bias).unflatten(-1, (layer.num_heads, -1))[:, i]
        log_decays = -layer.decay_log[i].exp() * (1 + raw.exp()).log()
        read, _ = rule_by_loops(q / layer.head_dim**0.5, k, v, rates, log_decays)
        read = read / (read.square().mean(-1, keepdim=True) + 1e-6).sqrt() * layer.norm.weight
        gates = layer.W_gate(x)[:, rows.o]
        outputs.append(read * (gates.sigmoid() if layer.decay == "channel" else gates * gates.sigmoid()))
    return torch.cat(outputs, -1) @ layer.W_o.weight.T + layer.W_o.bias


@pytest.mark.parametrize("decay", ["head", "channel"])
@pytest.mark.parametrize("num_key_heads", [None, 2])
def test_a_layer_is_its_loop(decay, num_key_heads):
    sizes = {"head_dim": d, "value_dim": e, "num_key_heads": num_key_heads}
    layer = _shaken(DeltaAttention(D, H, bias=True, decay=decay, **sizes))
    x = torch.randn(B, N, D)
    expected = torch.stack([layer_by_loops(layer, one) for one in x])
    for need_weights in (True, False):
        output, _ = layer(x, x, x, need_weights=need_weights)
        torch.testing.assert_close(output, expected, **EXACT)


CHOICES = [
    {"decay": "channel"},
    {"decay": "none"},
    {"num_key_heads": 2, "value_dim": 3},
    {"convolution": 0, "chunk_size": 3},
]


@pytest.mark.parametrize("choice", CHOICES, ids=str)
def test_other_settings_do_what_every_kind_must(choice):
    torch.set_default_dtype(torch.float32)
    check_variant({"name": "delta", **choice})


def test_padding_on_either_side_changes_nothing_of_a_text():
    layer, x = _shaken(DeltaAttention(D, H)), torch.randn(2, N, D)
    alone, _ = layer(x[:1, :6], x[:1, :6], x[:1, :6])
    for real in (torch.arange(N) < 6, torch.arange(N) >= 3):
        padded = torch.full((1, N, D), 7.0)
        padded[:, real] = x[:1, :6]
        output, weights = layer(padded, padded, padded, mask=causal_mask(N) & real)
        torch.testing.assert_close(output[:, real], alone, **EXACT)
        assert not weights[..., ~real].any()
    torch.testing.assert_close(layer(x, x, x, torch.tensor([6, N]))[0][:1, :6], layer(x, x, x)[0][:1, :6], **EXACT)


REFUSED = [
    (lambda layer, x: layer(x, x + 1, x), ValueError, "a layer with a state reads one sequence"),
    (lambda layer, x: layer(x, x[:, :3], x[:, :3]), ValueError, "a layer with a state reads one sequence"),
    (lambda layer, x: layer(x, x, x, mask=Band(before=2)), ValueError, "mask hides more than later tokens and padding"),
    (lambda layer, x: layer(x, x, x, mask=torch.rand(N, N) > 0.5), ValueError, "mask hides more than later tokens"),
    (lambda layer, x: layer(x, x, x, cache=KeyValueCache()), TypeError, "cache must be a StateCache"),
    (lambda layer, x: layer(x, x, x, cache=QuantisedCache()), TypeError, "cache must be a StateCache"),
    (lambda layer, x: layer.on_scores(print), TypeError, "DeltaAttention has no scores: on_weights shows"),
    (lambda layer, x: MultiHeadAttention(D, H)(x, x, x, cache=StateCache()), TypeError, "a StateCache keeps no tokens"),
    (lambda layer, x: DeltaAttention(D, H, positions="rotary"), ValueError, "positions='rotary' cannot be: a state is"),
    (lambda layer, x: DeltaAttention(D, H, num_kv_heads=2), ValueError, "share queries and keys by num_key_heads"),
    (lambda layer, x: DeltaAttention(D, H, 0.1), ValueError, "dropout=0.1 cannot be: a state has no weights to drop"),
    (lambda layer, x: DeltaAttention(D, H, key_size=5), ValueError, "must be equal: a layer with a state reads one"),
    (lambda layer, x: DeltaAttention(D, H, num_key_heads=3), ValueError, "is not divisible by num_key_heads=3"),
    (lambda layer, x: DeltaAttention(D, H, num_key_heads=2).keep_heads([0]), TypeError, "heads that share queries and"),
]


@pytest.mark.parametrize(("call", "error", "message"), REFUSED)
def test_what_a_state_cannot_do_is_refused_by_name(call, error, message):
    with pytest.raises(error, match=re.escape(message)):
        call(DeltaAttention(D, H), torch.randn(2, N, D))


def test_weights_of_tokens_that_are_gone_are_refused():
    layer, x = DeltaAttention(D, H), torch.randn(2, N, D)
    cache = layer.new_cache()
    layer(x, x, x, cache=cache)  # from no tokens there are weights, and the state is kept, too
    assert len(cache) == N
    with pytest.raises(ValueError, match=f"the cache has seen {N} tokens: a state does not keep them apart"):
        layer(x, x, x, cache=cache)


def test_a_cache_is_reordered_and_keeps_its_size():
    layer, x = DeltaAttention(D, H), torch.randn(3, 6, D)
    cache, one = layer.new_cache(), layer.new_cache()
    with torch.no_grad():
        layer(x[:, :4], x[:, :4], x[:, :4], cache=cache, need_weights=False)
        layer(x[2:, :4], x[2:, :4], x[2:, :4], cache=one, need_weights=False)
        size = cache.num_bytes
        cache.reorder(torch.tensor([2, 2, 0]))
        found, _ = layer(*[x[[2, 2, 0], 4:]] * 3, cache=cache, need_weights=False)
        expected, _ = layer(*[x[2:, 4:]] * 3, cache=one, need_weights=False)
    torch.testing.assert_close(found[:1], expected, **EXACT)
    assert cache.num_bytes == cache.num_bytes_taken == size == 8 * 3 * (H * 6 * 6 + 3 * 3 * D)
    with pytest.raises(ValueError, match="rows holds 5 to 5, but the cache holds 3 examples"):
        cache.reorder(torch.tensor([5]))
    with pytest.raises(ValueError, match="a cache serves one layer and one batch"):
        layer(*[x[:2]] * 3, cache=cache, need_weights=False)


def test_costs_do_not_grow_with_the_square_of_the_length():
    parts = costs.variant_parts("delta", 24, 4)
    d, C = 6, 64
    products = 4 * (C * 3 * d + 3 * d * d)  # inside chunks, and with the state
    assert parts == (24 * (5 * 24 + 2 * 4) + 4 * 3 * 24 + products, parts.others, 0, 0, 4 * d * d + 3 * 3 * 24)
    layer = make_attention("delta", 24, 4).float()
    assert costs.variant_costs("delta", 24, 4, 256, 2) == costs.measured(layer, torch.randn(2, 256, 24).float())
    half = costs.measured(layer.bfloat16(), torch.randn(2, 256, 24).bfloat16())
    assert half.cache_bytes == costs.variant_costs("delta", 24, 4, 256, 2, bytes_per_number=2).cache_bytes


# gates that begin as multi-head attention


@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_a_gated_layer_may_begin_as_multi_head_attention(per_channel, bias):
    torch.manual_seed(1)
    plain = MultiHeadAttention(D, H, bias=bias)
    torch.manual_seed(1)
    layer = GatedAttention(D, H, bias=bias, per_channel=per_channel, init="multi-head")
    x = torch.randn(B, N, D)
    for found, expected in zip(layer(x, x, x, mask=Band()), plain(x, x, x, mask=Band()), strict=True):
        torch.testing.assert_close(found, expected, **EXACT)
    layer(x, x, x)[0].square().sum().backward()
    assert layer.W_gate.weight.grad.abs().max() > 0  # and it can leave


# Qwen3-Next and Kimi Linear


@pytest.fixture(params=[pytest.param(False, marks=pytest.mark.weekly), True], ids=["as it is", "in float64"])
def library(request):
    return Library(request.param)


@pytest.mark.parametrize("rule", ["torch_recurrent_gated_delta_rule", "torch_chunk_gated_delta_rule"])
def test_the_rule_is_that_of_qwen_s_program(library, rule):
    program = pytest.importorskip("transformers.models.qwen3_next.modeling_qwen3_next")
    q, k, v, rates, log_decays = _given()
    turned = [part.transpose(1, 2) for part in (q, k, v, log_decays[..., 0], rates)]
    function = getattr(getattr(program, rule), "__wrapped__", getattr(program, rule))
    found, state = library(function, *turned, output_final_state=True)
    expected = delta_rule(q * d**-0.5, k, v, rates, log_decays)
    torch.testing.assert_close((found.transpose(1, 2), state), expected, check_dtype=False, **library.close)


@pytest.mark.parametrize("rule", ["recurrent_kimi_delta_attention", "chunk_kimi_delta_attention"])
def test_the_rule_is_that_of_kimi_s_program(library, rule):
    program = pytest.importorskip("transformers.models.kimi_linear.modeling_kimi_linear")
    q, k, v, rates, log_decays = _given("channel")
    turned = [part.transpose(1, 2) for part in (q, k, v, log_decays, rates)]
    function = getattr(getattr(program, rule), "__wrapped__", getattr(program, rule))
    found, state = (
        library(function, *turned, None, output_final_state=True)
        if "recurrent" in rule
        else library(function, *turned, output_final_state=True)
    )
    expected = delta_rule(q * d**-0.5, k, v, rates, log_decays)
    torch.testing.assert_close((found.transpose(1, 2), state), expected, check_dtype=False, **library.close)


def _qwen_delta(layer):
    """The weights of a layer of ours as Qwen3-Next's program has them: q, k, v and z of each key head together."""
    shared, group = layer.num_key_heads, layer.num_heads // layer.num_key_heads
    parts = [layer.W_q.weight, layer.W_k.weight, layer.W_v.weight, layer.W_gate.weight]
    mixed = torch.cat([part.unflatten(0, (shared, -1)) for part in parts], 1).flatten(0, 1)
    rates = [part.weight.unflatten(0, (shared, group)) for part in (layer.W_rate, layer.W_decay)]
    return {
        "in_proj_qkvz.weight": mixed.detach(),
        "in_proj_ba.weight": torch.cat(rates, 1).flatten(0, 1).detach(),
        "A_log": layer.decay_log.detach(),
        "dt_bias": layer.decay_bias.detach(),
        **_linears(conv1d=layer.convolution, norm=layer.norm, out_proj=layer.W_o),
    }


def _kimi_delta(layer):
    f, g = layer.W_decay, layer.W_gate
    weights = _linears(q_proj=layer.W_q, k_proj=layer.W_k, v_proj=layer.W_v, b_proj=layer.W_rate, o_proj=layer.W_o)
    weights |= _linears(conv1d=layer.convolution, o_norm=layer.norm, g_a_proj=g[0], g_b_proj=g[1])
    weights |= {f"forget_gate.{name}": part for name, part in _linears(f_a_proj=f[0], f_b_proj=f[1]).items()}
    weights["forget_gate.dt_bias"] = layer.decay_bias.detach()
    return weights | {"forget_gate.A_log": layer.decay_log.detach().view(1, 1, -1, 1)}


def _with_steps(library, layer, twin, transformers, config):
    """The whole, with padding before the text, and a text in steps."""
    x = torch.randn(B, N, D)
    with torch.no_grad():
        torch.testing.assert_close(layer(x, x, x)[0], library(twin, x), **library.close)
        real = torch.arange(N) >= torch.tensor([[0], [2], [5]])
        expected = library(twin, x, attention_mask=real.to(x.dtype))
        found, _ = layer(x, x, x, mask=real[:, None, None] & causal_mask(N))
        torch.testing.assert_close(found[real], expected[real], **library.close)
        ours, theirs = layer.new_cache(), transformers.DynamicCache(config=config)
        for start, stop in [(0, 4), (4, 5), (5, 6), (6, N)]:
            part = x[:, start:stop]
            found, _ = layer(part, part, part, cache=ours, need_weights=False)
            expected = library(twin, part, cache_params=theirs)
            torch.testing.assert_close(found, expected, **library.close)


@pytest.mark.parametrize("num_key_heads", [1, 2, H])
def test_a_layer_is_qwen_s_gated_delta_net(library, num_key_heads):
    transformers = pytest.importorskip("transformers")
    program = pytest.importorskip("transformers.models.qwen3_next.modeling_qwen3_next")
    layer = _shaken(DeltaAttention(D, H, head_dim=d, value_dim=e, num_key_heads=num_key_heads))
    config = transformers.Qwen3NextConfig(
        hidden_size=D,
        linear_num_key_heads=num_key_heads,
        linear_num_value_heads=H,
        linear_key_head_dim=d,
        linear_value_head_dim=e,
        layer_types=["linear_attention"],
        num_hidden_layers=1,
    )
    twin = library(program.Qwen3NextGatedDeltaNet, config, 0).eval()
    twin.load_state_dict(_qwen_delta(layer))
    _with_steps(library, layer, twin, transformers, config)


def test_a_layer_with_a_decay_for_each_channel_is_kimi_s(library):
    transformers = pytest.importorskip("transformers")
    program = pytest.importorskip("transformers.models.kimi_linear.modeling_kimi_linear")
    layer = _shaken(DeltaAttention(D, H, head_dim=d, decay="channel"))
    config = transformers.KimiLinearConfig(
        hidden_size=D,
        linear_num_heads=H,
        linear_head_dim=d,
        rms_norm_eps=1e-6,
        layer_types=["linear_attention"],
        num_hidden_layers=1,
    )
    twin = library(program.KimiLinearDeltaAttention, config, 0).eval()
    twin.load_state_dict(_kimi_delta(layer))
    _with_steps(library, layer, twin, transformers, config)


def _tiny_qwen(layers=4):
    """Our settings of a tiny Qwen3-Next without experts, and those of transformers."""
    delta = {"name": "delta", "bias": False, "num_key_heads": 2, "head_dim": d, "value_dim": e}
    gated = {"name": "gated", "bias": False, "per_channel": True, "norm": "rms", "num_kv_heads": 2, "head_dim": 8}
    gated |= {"rotary_dim": 2, "rotary_base": 37.0}
    ours = {
        "attention": ([delta] * 3 + [gated])[-layers:],
        "positions": "rotary-halves",
        "norm_kind": "rms",
        "norm_eps": 1e-6,
        "ffn_kind": "swiglu",
        "ffn_bias": False,
        "readout": "without bias",
    }
    theirs = {
        "vocab_size": 31,
        "hidden_size": D,
        "intermediate_size": 17,
        "num_hidden_layers": layers,
        "num_attention_heads": H,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": H,
        "linear_key_head_dim": d,
        "linear_value_head_dim": e,
        "mlp_only_layers": list(range(layers)),
        "rope_parameters": {"rope_type": "default", "rope_theta": 37.0, "partial_rotary_factor": 0.25},
        "attn_implementation": "eager",
    }
    return ours, theirs


def _qwen_model(gpt):
    """The weights of our GPT as Qwen3-Next's program has them; its norms have gains of 1 + w."""
    weights = {"model.embed_tokens.weight": gpt.tokens.embedding.weight.detach()}
    weights |= {
        "lm_head.weight": gpt.readout.weight.detach(),
        "model.norm.weight": gpt.decoder.norm.weight.detach() - 1,
    }
    for i, block in enumerate(gpt.decoder.layers):
        layer = block.attention
        if layer.keeps_state:
            own = {f"linear_attn.{name}": part for name, part in _qwen_delta(layer).items()}
        else:
            both = [projection.weight.unflatten(0, (H, -1)) for projection in (layer.W_q, layer.W_gate)]
            own = {"q_proj.weight": torch.cat(both, 1).flatten(0, 1).detach()}
            own |= _linears(k_proj=layer.W_k, v_proj=layer.W_v, o_proj=layer.W_o)
            own |= {f"{one}_norm.weight": getattr(layer, f"norm_{one}").weight.detach() - 1 for one in "qk"}
            own = {f"self_attn.{name}": part for name, part in own.items()}
        ffn = {"gate_proj": block.ffn.gate, "up_proj": block.ffn.widen, "down_proj": block.ffn.narrow}
        own |= {f"mlp.{name}": part for name, part in _linears(**ffn).items()}
        own["input_layernorm.weight"] = block.attention_skip.norm.weight.detach() - 1
        own["post_attention_layernorm.weight"] = block.ffn_skip.norm.weight.detach() - 1
        weights |= {f"model.layers.{i}.{name}": part for name, part in own.items()}
    return weights


def test_a_tiny_qwen3_next_of_ours_is_that_of_transformers(library):
    """Three layers with a state and one with gates, norms, feed-forward networks and readout; a text at once, and
    written on token by token with both caches."""
    transformers = pytest.importorskip("transformers")
    ours, theirs = _tiny_qwen()
    gpt = _shaken(GPT(31, D, H, 4, 17, **ours)).eval()
    twin = library(transformers.Qwen3NextForCausalLM, transformers.Qwen3NextConfig(**theirs)).eval()
    twin.load_state_dict(_qwen_model(gpt))
    ids, close = torch.randint(31, (B, N)), {name: 5 * by for name, by in library.close.items()}  # many layers
    with torch.no_grad():
        whole, _ = gpt(ids)
        torch.testing.assert_close(whole, library(twin, ids).logits, **close)
        caches, past, parts = gpt.new_caches(), None, []
        for start, stop in [(0, 4), *((t, t + 1) for t in range(4, N))]:
            parts.append(gpt(ids[:, start:stop], caches=caches)[0])
            their = library(twin, ids[:, start:stop], past_key_values=past, use_cache=True)
            past = their.past_key_values
            torch.testing.assert_close(parts[-1], their.logits, **close)
    torch.testing.assert_close(torch.cat(parts, 1), whole, **close)


# hybrids


def _hybrid(**more):
    torch.manual_seed(0)
    return GPT(11, 16, 4, 4, 24, attention=HYBRID, positions="rotary", **more)


def test_a_hybrid_is_trained_and_read_as_it_was_written_and_writes_token_by_token(tmp_path):
    torch.set_default_dtype(torch.float32)
    gpt = _hybrid()
    ids = torch.randint(11, (16, 1), generator=torch.Generator().manual_seed(0)) + torch.arange(12)
    ids = ids % 11  # it counts

    def loss():
        logits, _ = gpt(ids[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())

    history = fit(gpt, loss, steps=60, max_lr=0.01)
    assert history.losses[-1] < 0.1 < 2 < history.losses[0]
    saved.write(gpt.half().float(), tmp_path / "hybrid.safetensors", saved.About("a test", ("nothing", 0.0), "none"))
    again = saved.read(tmp_path / "hybrid.safetensors")
    assert again.settings["attention"] == HYBRID
    with torch.no_grad():
        assert torch.equal(again(ids)[0], gpt(ids)[0])
    written = sample(again, ids[:2, :3], 8, temperature=0.0)
    assert torch.equal(written, sample(again, ids[:2, :3], 8, temperature=0.0, use_cache=False))
    assert torch.equal(written, ids[:2, :11])


def test_states_stay_and_keys_grow_in_the_caches_of_a_hybrid():
    gpt, ids = _hybrid().eval(), torch.randint(11, (2, 9))
    caches, sizes, parts = gpt.new_caches(), [], []
    with torch.no_grad():
        for t in range(9):
            parts.append(gpt(ids[:, t : t + 1], caches=caches)[0])
            sizes.append([cache.num_bytes for cache in caches])
        torch.testing.assert_close(torch.cat(parts, 1), gpt(ids)[0], **EXACT)
    assert [len({one[i] for one in sizes}) for i in range(4)] == [1, 1, 1, 9]
    assert [type(cache) for cache in caches] == [StateCache] * 3 + [KeyValueCache]


def test_padding_before_and_behind_changes_nothing_in_a_hybrid():
    gpt, ids = _hybrid().eval(), torch.randint(11, (1, 6))
    with torch.no_grad():
        alone, _ = gpt(ids)
        for before, behind in ((3, 0), (0, 3)):
            padded = F.pad(ids, (before, behind), value=5)
            real = F.pad(torch.ones(1, 6, dtype=torch.bool), (before, behind))
            found, _ = gpt(padded, is_real=real)
            torch.testing.assert_close(found[real], alone[0], **EXACT)


def test_a_window_is_refused_where_a_layer_keeps_a_state():
    gpt = _hybrid(window=[None, 3, None, 3]).eval()
    with pytest.raises(ValueError, match="mask hides more than later tokens and padding"):
        gpt(torch.randint(11, (2, 9)))


def test_rotary_positions_go_to_the_layers_that_keep_tokens():
    assert [layer.positions is not None for layer in _hybrid().decoder.self_attention] == [False] * 3 + [True]
    assert not isinstance(_hybrid().decoder.self_attention[3].norm_q, nn.RMSNorm)
