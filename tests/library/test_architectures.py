"""What decoders of others are made of, in our layers: each choice against its formula, written out here."""

import math
import re

import pytest
import torch
from torch import nn

from mhalib import MultiHeadAttention, costs, reference, variants
from mhalib.attention import LearnedPositions, SinusoidalPositions, make_positions, rotate, sinusoidal_positions
from mhalib.models import (
    BERT,
    GPT,
    DecoderLayer,
    Description,
    EncoderLayer,
    FeedForward,
    MixtureFeedForward,
    SkipConnection,
    Transformer,
    ViT,
)
from mhalib.models.description import NORMS

D, WIDE = 12, 20
LLAMA_3 = {
    "name": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_tokens": 64,
}
EXACT = {"rtol": 0, "atol": 1e-10}
IDS = torch.tensor([[1, 2]])
pytestmark = pytest.mark.usefixtures("in_float64")


def _shaken(module):
    """No weight is 0 or 1, as norms and biases begin."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return module.eval()


def _grouped(**told):
    return MixtureFeedForward(D, WIDE, **told)


# Positions


@pytest.mark.parametrize("pairs", ["interleaved", "halves"])
def test_a_part_of_a_head_is_turned_and_the_rest_stays(pairs):
    x = torch.randn(2, 3, 5, 10)
    found = rotate(x, 3, pairs=pairs, width=4)
    assert torch.equal(found[..., 4:], x[..., 4:])
    assert torch.equal(found[..., :4], rotate(x[..., :4], 3, pairs=pairs))
    layer = MultiHeadAttention(20, 2, positions="rotary-halves", rotary_dim=4)
    assert torch.equal(layer.place(x, 2), rotate(x, 2, pairs="halves", width=4))


def _meta(rate):
    """Meta's function of LLaMA 3.1, for one frequency, with its own names."""
    wavelen = 2 * math.pi / rate
    low_freq_wavelen, high_freq_wavelen = 64 / 1.0, 64 / 4.0
    if wavelen < high_freq_wavelen:
        return rate
    if wavelen > low_freq_wavelen:
        return rate / 8.0
    smooth = (64 / wavelen - 1.0) / (4.0 - 1.0)
    return (1 - smooth) * rate / 8.0 + smooth * rate


def _yarn(rate):
    """Width 8, base 100, 64 tokens, turns from 1 to 4: pairs 0.81 and 2.02 bound what is in between."""
    first, last = (8 * math.log(64 / (turns * 2 * math.pi)) / (2 * math.log(100)) for turns in (4.0, 1.0))
    slowed = min(max((-4 * math.log(rate) / math.log(100) - first) / (last - first), 0), 1)
    return (1 - slowed) * rate + slowed * rate / 8


YARN = {"name": "yarn-untruncated", "factor": 8.0, "beta_slow": 1.0, "beta_fast": 4.0, "original_max_tokens": 64}
YARN["attention_factor"] = 1.0
DYNAMIC = {"name": "dynamic", "factor": 2.0, "original_max_tokens": 11}  # 33 tokens are three times as many


@pytest.mark.parametrize(
    ("scaling", "slowed"),
    [
        ({"name": "linear", "factor": 4.0}, lambda rate: rate / 4),
        (LLAMA_3, _meta),
        (YARN, _yarn),
        (DYNAMIC, lambda rate: rate * (2 * 3 - 1) ** (math.log(rate) / math.log(100) * 8 / 6)),
        ({**DYNAMIC, "original_max_tokens": 33}, lambda rate: rate),
    ],
)
def test_positions_are_slowed_down_as_written(scaling, slowed):
    """Each channel pair is a complex number, which is multiplied by e^(i place rate)."""
    width, base, start = 8, 100.0, 30
    x = torch.randn(3, width)
    rates = [slowed(base ** (-2 * i / width)) for i in range(width // 2)]
    if scaling is LLAMA_3:
        kept = [rate == base ** (-2 * i / width) for i, rate in enumerate(rates)]
        assert kept == [True, False, False, False]
        assert rates[1] * 8 != pytest.approx(base ** (-2 / width))  # in between
        assert rates[3] * 8 == pytest.approx(base ** (-6 / width))
    places = torch.arange(start, start + 3).double()
    unit = torch.polar(torch.ones(()), places[:, None] * torch.tensor(rates))
    expected = torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * unit).flatten(-2)
    torch.testing.assert_close(rotate(x, start, base=base, scaling=scaling), expected, **EXACT)
    layer = MultiHeadAttention(16, 2, positions="rotary", rotary_base=base, rotary_scaling=scaling)
    torch.testing.assert_close(layer.place(x, start), expected, **EXACT)


def test_tokens_may_have_places_of_their_own():
    x, places = torch.randn(2, 3, 6), torch.tensor([[0, 0, 1], [2, 5, 3]])
    learned = LearnedPositions(6, 6)
    torch.testing.assert_close(learned(x, 9, places), x + learned.table[places])
    table = sinusoidal_positions(6, 6).double()
    torch.testing.assert_close(SinusoidalPositions()(x, 3, places), x + table[places])
    with pytest.raises(ValueError, match="6 tokens, but the model has only max_tokens=5 positions"):
        LearnedPositions(5, 6)(x, 0, places)


def test_all_sines_may_stand_before_all_cosines():
    table, x = torch.zeros(7, 6), torch.randn(2, 4, 6)
    for place in range(7):
        for i in range(3):
            angle = (3 + place) / 10000 ** (2 * i / 6)
            table[place, i], table[place, i + 3] = math.sin(angle), math.cos(angle)
    close = {"rtol": 0, "atol": 1e-6}
    torch.testing.assert_close(sinusoidal_positions(7, 6, 3, "halves").double(), table, **close)
    positions = make_positions("sinusoidal-halves", 1, 6)
    torch.testing.assert_close(positions(x, 3), x + table[:4], **close)
    places = torch.tensor([[3, 3, 4, 9], [5, 6, 7, 8]])
    torch.testing.assert_close(positions(x, 0, places), x + table[places - 3], **close)


def test_pairs_are_exchanged_in_the_part_that_is_turned():
    layer = MultiHeadAttention(20, 2, bias=True, positions="rotary", rotary_dim=6, rotary_scaling=LLAMA_3)
    halves = variants.exchange_pairs(layer, "halves")
    x = torch.randn(2, 5, 20)
    torch.testing.assert_close(halves(x, x, x), layer(x, x, x), **EXACT)
    assert (halves.positions.width, halves.positions.scaling) == (6, LLAMA_3)
    assert not torch.equal(halves.W_q.weight, layer.W_q.weight)


# An encoder-decoder


def test_a_decoder_may_be_other_than_its_encoder():
    model = _shaken(Transformer(7, 9, D, 3, 2, WIDE, decoder={"num_layers": 1, "num_heads": 4, "ffn_num_hiddens": 5}))
    layers = model.attention_layers()
    assert {kind: [layer.num_heads for layer in of_kind] for kind, of_kind in layers.items()} == {
        "encoder self": [3, 3],
        "decoder self": [4],
        "cross": [4],
    }
    assert model.decoder.layers[0].ffn.widen.out_features == 5
    assert Transformer(**model.settings).settings == model.settings
    assert "decoder" not in Transformer(7, 9, D, 3, decoder={}).settings  # as older files say


def test_what_tokens_and_readout_share_is_one_parameter():
    model = _shaken(
        Transformer(7, 7, D, 3, 1, WIDE, share_tokens=True, embedding_scale=3.0, embedding_norm=True,
                    readout="tied with bias", readout_scale=0.5, positions="none", max_tokens=5)
    )  # fmt: skip
    vectors, ids = model.source.embedding.weight, torch.tensor([[3, 5, 0]])
    assert vectors is model.target.embedding.weight is model.readout.weight
    assert model.num_weights == sum(one.numel() for one in {id(one): one for one in model.parameters()}.values())
    x, norm = 3 * vectors[ids], model.source.norm
    expected = (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, correction=0) + 1e-5).sqrt()
    torch.testing.assert_close(model.embed_source(ids), expected * norm.weight + norm.bias, **EXACT)
    assert norm is not model.target.norm
    torch.testing.assert_close(model.read_out(x), x @ vectors.T / 2 + model.readout.bias, **EXACT)
    usual = {"share_tokens", "embedding_scale", "embedding_norm", "readout", "readout_scale", "decoder", "cross"}
    assert not usual & Transformer(7, 7, D, 3).settings.keys()


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"share_tokens": True}, ValueError, "share_tokens=True needs one vocabulary, got sizes [7, 9]"),
        ({"share_tokens": 1}, TypeError, "share_tokens must be True or False"),
        ({"readout": "none"}, ValueError, "readout='none' must be one of ('with bias', 'without bias', 'tied', 'tie"),
        ({"readout_scale": 0}, ValueError, "readout_scale=0 must be positive"),
        ({"embedding_norm": None}, TypeError, "embedding_norm must be True or False"),
        ({"decoder": 3}, TypeError, "decoder must be a Mapping, got int: 3"),
        ({"decoder": {"num_hiddens": 8}}, TypeError, "unexpected keyword argument 'num_hiddens'"),
        ({"decoder": {"num_layers": 0}}, ValueError, "num_layers=0 must be at least 1"),
    ],
)  # fmt: skip
def test_an_encoder_decoder_that_cannot_be_is_refused_by_name(given, error, message):
    with pytest.raises(error, match=re.escape(message)):
        Transformer(7, 9, D, 3, **given)


# Biases


def test_the_last_projection_may_be_the_only_one_without_a_bias():
    layer = _shaken(MultiHeadAttention(D, 3, bias=True, out_bias=False))
    assert [name for name, _ in layer.named_parameters() if "bias" in name] == ["W_q.bias", "W_k.bias", "W_v.bias"]
    assert MultiHeadAttention(D, 3, out_bias=True).W_o.bias is not None
    x = torch.randn(2, 5, D)
    expected = reference.multi_head_attention_loops(layer, x, x, x)
    torch.testing.assert_close(layer(x, x, x), expected, **EXACT)
    torch.testing.assert_close(reference.to_torch(layer)(x, x, x)[0], expected[0], **EXACT)
    for there, back in ((reference.to_d2l, reference.from_d2l), (reference.to_harvard, reference.from_harvard)):
        torch.testing.assert_close(back(there(layer), 3)(x, x, x)[0], expected[0], **EXACT)
    grouped = variants.group_heads(layer, 3)
    torch.testing.assert_close(grouped(x, x, x), expected, **EXACT)
    with pytest.raises(ValueError, match="has biases, which the formulas leave out"):
        costs.variant_parts({"name": "multi-head", "bias": True, "out_bias": False}, D, 3)


def test_loops_refuse_positions_that_they_do_not_know():
    x = torch.randn(2, 5, D)
    for settings in ({"positions": "rotary-halves"}, {"positions": "rotary", "rotary_base": 500.0}):
        with pytest.raises(ValueError, match="these loops know"):
            reference.multi_head_attention_loops(MultiHeadAttention(D, 3, **settings), x, x, x)


@pytest.mark.parametrize(("norm", "usual"), [("layer", 1e-5), ("rms", 1e-6)])
def test_norms_of_heads_add_what_they_are_told(norm, usual):
    for eps in (None, 0.5):
        layer = variants.QKNormAttention(D, 3, norm=norm, norm_eps=eps)
        assert layer.norm_q.eps == layer.norm_k.eps == (usual if eps is None else eps)


# Blocks

FUNCTIONS = {
    "gelu": lambda x: x * (1 + torch.erf(x / 2**0.5)) / 2,
    "gelu_sigmoid": lambda x: x / (1 + torch.exp(-1.702 * x)),
    "gelu_tanh": lambda x: x * (1 + torch.tanh((2 / math.pi) ** 0.5 * (x + 0.044715 * x**3))) / 2,
    "relu": lambda x: x.clamp(min=0),
    "silu": lambda x: x / (1 + torch.exp(-x)),
}
GATED = {"geglu": "gelu", "geglu_tanh": "gelu_tanh", "reglu": "relu", "swiglu": "silu"}
ROUTE = {"num_experts": 5, "num_chosen": 2}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", [*FUNCTIONS, *GATED])
def test_feed_forward_networks_are_as_written(kind, bias):
    ffn = _shaken(FeedForward(D, WIDE, kind, bias))
    x = torch.randn(2, 5, D)

    def through(linear, x):
        return x @ linear.weight.T + (linear.bias if bias else 0)

    inside = through(ffn.widen, x)
    inside = FUNCTIONS[GATED[kind]](through(ffn.gate, x)) * inside if kind in GATED else FUNCTIONS[kind](inside)
    torch.testing.assert_close(ffn(x), through(ffn.narrow, inside), **EXACT)
    assert len(list(ffn.parameters())) == (3 if kind in GATED else 2) * (2 if bias else 1)


def test_a_clamped_network_is_as_written():
    ffn = _shaken(FeedForward(D, WIDE, "swiglu_clamped"))
    x = 30 * torch.randn(2, 5, D)
    gate, wide = ffn.gate(x), ffn.widen(x)
    assert (gate.abs() > 7).any()
    assert (wide.abs() > 7).any()
    gate, wide = gate.minimum(torch.tensor(7.0)), wide.minimum(torch.tensor(7.0)).maximum(torch.tensor(-7.0))
    torch.testing.assert_close(ffn(x), ffn.narrow(gate * torch.sigmoid(1.702 * gate) * (1 + wide)), **EXACT)


@pytest.mark.parametrize("normalised", [True, False])
def test_a_mixture_is_the_sum_over_the_experts_that_each_token_chose(normalised):
    layer = _shaken(MixtureFeedForward(D, WIDE, "swiglu", True, **ROUTE, normalised=normalised))
    seen = [0] * 5
    for number, expert in enumerate(layer.experts):
        expert.register_forward_hook(lambda _, given, __, number=number: seen.__setitem__(number, given[0].shape[1]))
    x = torch.randn(3, 7, D)
    found = layer(x)
    assert sum(seen) == 3 * 7 * 2  # nothing else is computed
    for row, result in zip(x.flatten(0, 1), found.flatten(0, 1), strict=True):
        shares = (row @ layer.router.weight.T + layer.router.bias).softmax(0)
        best = sorted(range(5), key=lambda i, shares=shares: -shares[i])[:2]
        whole = shares[best].sum() if normalised else 1
        expected = sum(shares[i] / whole * layer.experts[i](row[None, None])[0, 0] for i in best)
        torch.testing.assert_close(result, expected, **EXACT)
    found.square().sum().backward()
    assert all(one.grad.abs().max() > 0 for one in layer.parameters())


@pytest.mark.parametrize("normalised", [True, False])
def test_a_mixture_of_deepseek_s_is_the_loop(normalised):
    told = {"shares": "sigmoid", "choice_bias": True, "num_groups": 4, "num_chosen_groups": 2, "share_scale": 2.5}
    told |= {"num_experts": 12, "num_chosen": 4, "num_shared": 2, "normalised": normalised}
    layer, x = _shaken(MixtureFeedForward(D, 5, **told)), torch.randn(3, 7, D)
    assert not layer.choice_bias.requires_grad
    assert layer.shared.widen.out_features == 10
    layer, without_bias, without_groups = layer.requires_grad_(False), 0, 0
    for row, result in zip(x.flatten(0, 1), layer(x).flatten(0, 1), strict=True):
        shares = [float(torch.sigmoid(row @ layer.router.weight[i])) for i in range(12)]
        wanted = [share + float(bias) for share, bias in zip(shares, layer.choice_bias, strict=True)]
        groups = [range(3 * g, 3 * g + 3) for g in range(4)]
        groups.sort(key=lambda group: -sum(sorted((wanted[i] for i in group), reverse=True)[:2]))
        best = sorted((i for group in groups[:2] for i in group), key=lambda i: -wanted[i])[:4]
        without_groups += set(best) != set(sorted(range(12), key=lambda i: -wanted[i])[:4])
        without_bias += set(best) != set(sorted((i for g in groups[:2] for i in g), key=lambda i: -shares[i])[:4])
        whole = sum(shares[i] for i in best) if normalised else 1
        each = [2.5 * shares[i] / whole * layer.experts[i](row[None, None])[0, 0] for i in best]
        torch.testing.assert_close(result, sum(each) + layer.shared(row[None, None])[0, 0], **EXACT)
    assert min(without_bias, without_groups) > 2  # both change who is chosen


def test_shares_that_are_all_nothing_are_no_nan():
    layer = MixtureFeedForward(D, 5, shares="sigmoid", num_shared=1)
    with torch.no_grad():
        layer.router.weight.fill_(-1e3)
    x = torch.ones(1, 2, D)
    torch.testing.assert_close(layer(x), layer.shared(x), **EXACT)


def test_a_model_may_have_experts_in_some_layers():
    one = {**ROUTE, "ffn_num_hiddens": 7}
    model = GPT(7, D, 3, 2, WIDE, mixture=[None, one], ffn_kind="swiglu")
    assert isinstance(model.decoder.layers[0].ffn, FeedForward)
    assert [expert.widen.out_features for expert in model.decoder.layers[1].ffn.experts] == [7] * 5
    again = GPT(**model.settings)
    again.load_state_dict(model.state_dict())
    tokens = torch.randint(7, (2, 6))
    torch.testing.assert_close(again(tokens)[0], model(tokens)[0], **EXACT)
    assert all(layer.ffn.num_chosen == 2 for layer in GPT(7, mixture=ROUTE).decoder.layers)


def _rms(x, norm, eps):
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * norm.weight


@pytest.mark.parametrize("norm", [*NORMS, "none"])
def test_a_skip_connection_normalises_where_it_is_told(norm):
    skip = _shaken(SkipConnection(D, norm=norm, norm_kind="rms", norm_eps=0.1))
    x, result = torch.randn(2, 5, D), torch.randn(2, 5, D)
    names = {"both": ["norm.weight", "norm_result.weight"], "none": []}.get(norm, ["norm.weight"])
    assert [name for name, _ in skip.named_parameters()] == names
    read = _rms(x, skip.norm, 0.1) if norm in ("pre", "both") else x
    goes_on = {
        "pre": lambda: x + result,
        "post": lambda: _rms(x + result, skip.norm, 0.1),
        "after": lambda: x + _rms(result, skip.norm, 0.1),
        "both": lambda: x + _rms(result, skip.norm_result, 0.1),
        "none": lambda: x + result,
    }
    torch.testing.assert_close(skip.before(x), read, **EXACT)
    torch.testing.assert_close(skip.after(x, result), goes_on[norm](), **EXACT)


@pytest.mark.parametrize("parallel", [False, True])
def test_a_layer_is_put_together_as_written(parallel):
    described = {"norm_kind": "rms", "norm_eps": 0.1, "ffn_kind": "swiglu", "ffn_bias": False, "parallel": parallel}
    layer = _shaken(EncoderLayer(D, 3, WIDE, positions="rotary-halves", **described))
    x = torch.randn(2, 5, D)
    seen = _rms(x, layer.attention_skip.norm, 0.1)
    changed = x + layer.attention(seen, seen, seen)[0]
    read = x if parallel else changed
    expected = changed + layer.ffn(_rms(read, layer.ffn_skip.norm, 0.1))
    torch.testing.assert_close(layer(x)[0], expected, **EXACT)


# Models


def test_a_gpt_with_all_of_it_is_put_together_as_written():
    model = _shaken(
        GPT(7, D, 3, 2, WIDE, positions="rotary", norm_kind="rms", norm_eps=0.1, ffn_kind="geglu", ffn_bias=False)
    )
    own = _shaken(GPT(**{**model.settings, "window": 2, "readout": "tied", "embedding_scale": 3.0}))
    tokens = torch.randint(7, (2, 6))
    x = 3 * own.tokens.embedding.weight[tokens]
    mask = torch.ones(6, 6, dtype=torch.bool).tril().triu(-1)
    for layer in own.decoder.layers:
        x = layer(x, mask=mask)[0]
    expected = _rms(x, own.decoder.norm, 0.1) @ own.tokens.embedding.weight.T
    logits, weights = own(tokens, need_weights=True)
    torch.testing.assert_close(logits, expected, **EXACT)
    torch.testing.assert_close(own(tokens)[0], expected, **EXACT)
    assert ((weights["decoder self"][1] > 0) == mask).all()
    assert own.num_weights == sum(one.numel() for one in own.state_dict().values()) < model.num_weights
    assert str(GPT(**own.settings)) == str(own)
    caches = own.new_caches()
    found = torch.cat([own(tokens[:, n : n + 1], caches=caches)[0] for n in range(6)], 1)
    torch.testing.assert_close(found, expected, **EXACT)
    assert GPT(7, D, 3, readout="without bias").readout.bias is None


@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "rotary", "none"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_padded_text_is_read_as_it_is_alone(positions, side):
    model = _shaken(GPT(7, D, 3, 2, WIDE, positions=positions, max_tokens=6))
    tokens, lens = torch.randint(7, (3, 6)), (6, 4, 1)
    is_real = torch.arange(6) < torch.tensor(lens)[:, None]
    is_real = is_real.flip(1) if side == "left" else is_real
    logits, weights = model(tokens, is_real=is_real, need_weights=True)
    for number, length in enumerate(lens):
        own = slice(6 - length, 6) if side == "left" else slice(length)
        alone, kept = model(tokens[number : number + 1, own], need_weights=True)
        torch.testing.assert_close(logits[number, own], alone[0], **EXACT)
        torch.testing.assert_close(weights["decoder self"][1][number, :, own, own], kept["decoder self"][1][0], **EXACT)
    assert (weights["decoder self"][0].movedim(1, -1)[~is_real[:, None].expand(-1, 6, -1)] == 0).all()
    torch.testing.assert_close(model(tokens, is_real=torch.ones_like(is_real))[0], model(tokens)[0], **EXACT)


@pytest.mark.parametrize("positions", ["learned", "rotary"])
@pytest.mark.parametrize("norm", NORMS)
def test_an_encoder_has_windows_to_both_sides_and_padding_on_either(norm, positions):
    """Each text of a batch is as it is alone, where a loop says what each token sees."""
    model = _shaken(BERT(9, D, 3, 3, WIDE, window=[3, None, 7], norm=norm, positions=positions, num_segments=0))
    tokens, is_real = torch.randint(9, (2, 6)), torch.ones(2, 6, dtype=torch.bool)
    is_real[0, :2] = is_real[1, 4:] = False
    x, weights = model(tokens, is_real=is_real, need_weights=True)
    for number, own in enumerate((slice(2, 6), slice(0, 4))):
        alone, kept = model(tokens[number : number + 1, own], need_weights=True)
        torch.testing.assert_close(x[number, own], alone[0], **EXACT)
        for one, other, reach in zip(weights["encoder self"], kept["encoder self"], (1, 6, 3), strict=True):
            torch.testing.assert_close(one[number, :, own, own], other[0], **EXACT)
            for query in range(4):
                assert [int(key) for key in other[0, 0, query].nonzero()] == [
                    key for key in range(4) if abs(query - key) <= reach
                ]
    reads_all = all(block.attention_skip.before(x).ne(x).any() for block in model.encoder.layers)
    assert reads_all == (norm == "both")  # with "pre" the first one reads what is normalised already
    torch.testing.assert_close(model(tokens, torch.tensor([6, 4]))[0][1, :4], x[1, :4], **EXACT)


def test_settings_name_what_is_not_as_usual_and_nothing_else():
    """Files of weights, and their hashes, are older than these entries."""
    later = {"norm_kind", "norm_eps", "ffn_kind", "ffn_bias", "parallel", "window", "readout", "embedding_scale"}
    later |= {"mixture", "channels", "patch_bias", "readout_bias", "norm_tokens", "distilled"}
    for model in (GPT(7), BERT(7), ViT(), Transformer(7, 7)):
        assert not later & model.settings.keys()
    given = {"norm_kind": "rms", "parallel": True, "ffn_kind": "relu", "window": 3}
    assert GPT(7, **given).settings == GPT(7).settings | given
    assert BERT(7, norm_eps=1e-5).settings == BERT(7).settings | {"norm_eps": 1e-5}
    assert BERT(**BERT(7).settings).norm.eps == 1e-12
    assert BERT(7, window=3).settings == BERT(7).settings | {"window": 3}
    given = {"channels": 3, "patch_bias": False, "readout_bias": False, "norm_tokens": True, "distilled": True}
    assert ViT(**given).settings == ViT().settings | given


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: rotate(torch.ones(3, 4), width=6), ValueError, "width=6 channels cannot be turned, a head has 4"),
        (lambda: rotate(torch.ones(3, 4), width=3), ValueError, "positions by angles need an even width, got 3"),
        (lambda: rotate(torch.ones(3, 4), scaling=2.0), TypeError, "scaling must be a mapping, got float: 2.0"),
        (lambda: rotate(torch.ones(3, 4), scaling={"name": "never"}), ValueError, "scaling['name']='never' must be"),
        (lambda: rotate(torch.ones(3, 4), scaling={"name": "linear"}), ValueError, "just the entries ['name', 'f"),
        (
            lambda: rotate(torch.ones(3, 4), scaling={"name": "linear", "factor": -1}),
            ValueError,
            "scaling['factor']=-1 must be positive and finite",
        ),
        (
            lambda: rotate(torch.ones(3, 4), scaling={**LLAMA_3, "low_freq_factor": 4}),
            ValueError,
            "must have a low_freq_factor below its high_freq_factor",
        ),
        (
            lambda: MultiHeadAttention(D, 3, rotary_dim=2),
            ValueError,
            "rotary_dim=2 cannot be: positions='none' turns nothing",
        ),
        (lambda: MultiHeadAttention(D, 3, rotary_scaling=LLAMA_3), ValueError, "cannot be: positions='none' turns"),
        (
            lambda: MultiHeadAttention(D, 3, positions="rotary", rotary_dim=3),
            ValueError,
            "rotary positions need an even rotary_dim, got 3",
        ),
        (lambda: MultiHeadAttention(D, 3, out_bias="no"), TypeError, "out_bias must be True or False, got str: 'no'"),
        (lambda: variants.QKNormAttention(D, 3, norm_eps=0), ValueError, "norm_eps=0 must be positive and finite"),
        (lambda: FeedForward(D, WIDE, "mish"), ValueError, "kind='mish' must be one of ('gelu', "),
        (lambda: MixtureFeedForward(D, WIDE, num_chosen=9), ValueError, "num_chosen=9 is more than num_experts=8"),
        (lambda: _grouped(num_groups=3), ValueError, "num_experts=8 do not make num_groups=3 of the same size"),
        (lambda: _grouped(num_groups=8), ValueError, "num_experts=8 do not make num_groups=8 of the same size, 2 or"),
        (lambda: _grouped(num_chosen_groups=2), ValueError, "num_chosen_groups=2 is more than num_groups=1"),
        (lambda: _grouped(num_groups=4, num_chosen=3), ValueError, "num_chosen=3 is more than the 2 experts of each"),
        (lambda: _grouped(shares="relu"), ValueError, "shares='relu' must be one of ('softmax', 'sigmoid')"),
        (lambda: _grouped(share_scale=0), ValueError, "share_scale=0 must be positive and finite"),
        (lambda: GPT(7, mixture=8), TypeError, "mixture=8 must be None or map from names among ['choice_bias', 'ffn_"),
        (lambda: GPT(7, mixture={"top": 2}), TypeError, "mixture={'top': 2} must be None or map from names among"),
        (lambda: GPT(7, mixture=[None]), ValueError, "mixture=[None] has 1 entries, but num_layers=2"),
        (lambda: GPT(7, mixture=ROUTE, ffn_num_hiddens=0), ValueError, "needs ffn_num_hiddens above 0"),
        (lambda: FeedForward(D, WIDE, bias=1), TypeError, "bias must be True or False, got int: 1"),
        (lambda: SkipConnection(D, norm_kind="batch"), ValueError, "norm_kind='batch' must be one of ('layer', 'laye"),
        (lambda: SkipConnection(D, norm_eps=0.0), ValueError, "norm_eps=0.0 must be positive and finite"),
        (lambda: Description(norm="post", parallel=True), ValueError, "parallel=True needs norm='pre', got norm='po"),
        (lambda: DecoderLayer(D, 3, WIDE, parallel=True), ValueError, "parallel=True cannot be: a decoder's layer lo"),
        (lambda: BERT(7, parallel=True), TypeError, "unexpected keyword argument 'parallel'"),
        (lambda: BERT(7, window=[3, 4]), ValueError, "window=4 must be odd: a token, and as many before it as behind"),
        (lambda: BERT(7, window=[3]), ValueError, "window=[3] has 1 entries, but num_layers=2"),
        (lambda: BERT(7, num_segments=0)(IDS, segments=IDS), ValueError, "segments cannot be told apart: the model"),
        (lambda: GPT(7, window=0), ValueError, "window=0 must be at least 1"),
        (lambda: GPT(7, readout="none"), ValueError, "readout='none' must be one of ('with bias', 'without bias', "),
        (lambda: GPT(7, embedding_scale=0), ValueError, "embedding_scale=0 must be positive and finite"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_by_name(call, error, message):
    with pytest.raises(error, match=re.escape(message)):
        call()


def test_a_norm_is_torch_s_with_biases_or_without():
    assert isinstance(GPT(7, norm_kind="rms").decoder.norm, nn.RMSNorm)
    assert isinstance(GPT(7).decoder.norm, nn.LayerNorm)
    assert [GPT(7, norm_kind=f"layer{end}").decoder.norm.bias is None for end in ("", " without bias")] == [False, True]


def test_a_wrong_type_is_told_where_there_are_no_numbers():
    """Autocast knows nothing of the device "meta", and asking it raises."""
    layer, x = EncoderLayer(12, 3, 20).to("meta", torch.float32), torch.zeros(1, 2, 12, device="meta").double()
    with pytest.raises(TypeError, match=r"x is torch\.float64, but the layer's weights are torch\.float32"):
        layer(x)
