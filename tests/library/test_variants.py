"""Each variant against a slow loop that is written from its formula, against multi-head attention where the two are the
same, and against real implementations where there is one."""

import copy
import math

import pytest
import torch
from torch import nn

from mhalib import Band, MultiHeadAttention, attend, causal_mask, variants
from mhalib.attention import rotate
from mhalib.models import GPT, Transformer, ViT, recomposed

D, H, d, Q, K, B = 24, 4, 6, 5, 7, 2
EXACT = {"atol": 1e-12, "rtol": 1e-12}


pytestmark = pytest.mark.usefixtures("in_float64")


def _inputs():
    return torch.randn(B, Q, D), torch.randn(B, K, D)


def _shaken(layer):
    """The layer with other numbers in all parameters, so that nothing that is 0 or 1 at first hides a mistake."""
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return layer


def _of_head(projection, i, width, x):
    """x times head i's rows of a projection, plus its bias: (N, width)."""
    rows = slice(i * width, (i + 1) * width)
    bias = 0 if projection.bias is None else projection.bias[rows]
    return x @ projection.weight[rows].T + bias


def _mask(kind):
    """(B, H, Q, K) booleans, and what is given to the layer."""
    if kind == "none":
        return torch.ones(B, H, Q, K, dtype=torch.bool), None
    if kind == "heads":
        mask = torch.rand(B, H, Q, K) > 0.4
        mask[0, 1, 2] = False  # sees nothing
        return mask, mask
    mask = causal_mask(Q, K, offset=2)
    return mask.expand(B, H, Q, K), mask


MASKS = pytest.mark.parametrize("kind", ["none", "causal", "heads"])


def _softmax(scores, allowed):
    """One row, in the plainest way."""
    if not allowed.any():
        return torch.zeros_like(scores)
    powers = torch.where(allowed, (scores - scores[allowed].max()).exp(), torch.zeros(()))
    return powers / powers.sum()


def _scores_and_values(layer, x, y, scale=None):
    """Multi-head attention's scores and values of one example: (H, Q, K) and (H, K, width)."""
    scores = torch.stack(
        [_of_head(layer.W_q, i, layer.head_dim, x) @ _of_head(layer.W_k, i, layer.head_dim, y).T for i in range(H)]
    )
    values = torch.stack([_of_head(layer.W_v, i, layer.value_dim, y) for i in range(H)])
    return scores * (layer.head_dim**-0.5 if scale is None else scale), values


def _rows(scores, mask):
    """The softmax of each row of (H, Q, K)."""
    rows = [_softmax(scores[i, t], mask[i, t]) for i in range(len(scores)) for t in range(scores.shape[1])]
    return torch.stack(rows).unflatten(0, scores.shape[:2])


def _output(layer, weights, values):
    found = torch.cat([weights[i] @ values[i] for i in range(H)], -1)
    return found @ layer.W_o.weight.T + (0 if layer.W_o.bias is None else layer.W_o.bias)


def _holds(layer, loop, kind, **close):
    """The layer and the loop give the same output and weights, with and without asking for weights."""
    x, y = _inputs()
    mask, given = _mask(kind)
    output, weights = layer(x, y, y, mask=given)
    expected = [loop(x[b], y[b], mask[b]) for b in range(B)]
    torch.testing.assert_close(output, torch.stack([one for one, _ in expected]), **(close or EXACT))
    torch.testing.assert_close(weights, torch.stack([one for _, one in expected]), **(close or EXACT))
    torch.testing.assert_close(layer(x, y, y, mask=given, need_weights=False)[0], output, **EXACT)


def _gradients(layer, **settings):
    """The layer's own parameters have the gradients that finite differences give."""
    x, y = torch.randn(1, 3, D), torch.randn(1, 4, D)
    own = {name for name, _ in layer.named_parameters()} - {name for name, _ in _plain().named_parameters()}
    names = sorted(own)
    assert names

    def output(*values):
        return torch.func.functional_call(layer, dict(zip(names, values, strict=True)), (x, y, y))[0].sin().sum()

    values = [dict(layer.named_parameters())[name].detach().clone().requires_grad_() for name in names]
    assert torch.autograd.gradcheck(output, values, fast_mode=True, atol=1e-6, **settings)


def _plain(**settings):
    return MultiHeadAttention(D, H, bias=True, **settings)


def _same(layer, plain):
    """The layer is multi-head attention."""
    x, y = _inputs()
    for mask in (None, causal_mask(Q, K, offset=2)):
        found, expected = layer(x, y, y, mask=mask), plain(x, y, y, mask=mask)
        torch.testing.assert_close(found, expected, **EXACT)


def _with_weights_of(kind, plain, **settings):
    """A variant with the four projections of `plain`."""
    layer = kind(D, H, bias=True, **settings)
    layer.load_state_dict(plain.state_dict(), strict=False)
    return layer


# talking


@MASKS
@pytest.mark.parametrize("mix_bias", [False, True])
def test_talking_heads_are_the_loop(kind, mix_bias):
    layer = _shaken(variants.TalkingHeads(D, H, bias=True, init="normal", mix_bias=mix_bias))

    def loop(x, y, mask):
        scores, values = _scores_and_values(layer, x, y)
        mixed = torch.zeros_like(scores)
        for m in range(H):
            for n in range(H):
                mixed[m] += layer.P_scores[n, m] * scores[n]
        weights = _rows(mixed, mask)
        mixed = torch.zeros_like(scores)
        for m in range(H):
            for n in range(H):
                mixed[m] += layer.P_weights[n, m] * weights[n]
            if mix_bias:
                mixed[m] += layer.mix_bias[m] * mask[m]
        return _output(layer, mixed, values), mixed

    _holds(layer, loop, kind)
    _gradients(layer)


def test_talking_heads_that_do_not_talk_are_multi_head_attention():
    plain = _plain()
    _same(_with_weights_of(variants.TalkingHeads, plain), plain)


# collaborative


@MASKS
@pytest.mark.parametrize("bias", [True, False])
def test_collaborative_heads_are_the_loop(kind, bias):
    layer = _shaken(variants.CollaborativeAttention(D, H, bias=bias, shared_size=10, init="normal"))

    def loop(x, y, mask):
        scores = torch.zeros(H, Q, K)
        for i in range(H):
            for t in range(Q):
                for s in range(K):
                    q, k = layer.W_q.weight @ x[t], layer.W_k.weight @ y[s]
                    scores[i, t, s] = (q * layer.mixing[i] * k).sum()
                    if bias:
                        scores[i, t, s] += layer.content_bias.weight[i] @ y[s]
        weights = _rows(scores * d**-0.5, mask)
        values = torch.stack([_of_head(layer.W_v, i, d, y) for i in range(H)])
        return _output(layer, weights, values), weights

    _holds(layer, loop, kind)
    _gradients(layer)


def test_a_multi_head_layer_becomes_collaborative_and_stays_what_it_is():
    for plain in (
        _plain(),
        _plain(head_dim=5, value_dim=3, scale=0.7),
        MultiHeadAttention(D, H, key_size=9, value_size=9),
    ):
        layer = variants.CollaborativeAttention.from_multi_head(plain)
        x, y = torch.randn(B, Q, D), torch.randn(B, K, plain.key_size)
        torch.testing.assert_close(layer(x, y, y), plain(x, y, y), **EXACT)


def test_with_ones_everywhere_collaborative_heads_are_equal():
    layer = variants.CollaborativeAttention(D, H)
    layer.mixing.data.fill_(1)
    x, y = _inputs()
    weights = layer(x, y, y)[1]
    torch.testing.assert_close(weights, weights[:, :1].expand_as(weights))


def test_what_a_few_shared_channels_can_say_is_found_by_compression():
    pytest.importorskip("tensorly")
    narrow = variants.CollaborativeAttention(D, H, bias=True, shared_size=5, init="normal")
    wide = variants.CollaborativeAttention(D, H, bias=True, shared_size=9, init="normal")
    with torch.no_grad():  # the same function with channels to spare
        for name in ("W_q.weight", "W_k.weight"):
            wide.get_parameter(name).zero_()[:5] = narrow.get_parameter(name)
        wide.mixing.zero_()[:, :5] = narrow.mixing
        for name in ("W_v", "W_o", "content_bias"):
            getattr(wide, name).load_state_dict(getattr(narrow, name).state_dict())
    x, y = _inputs()
    found = variants.compress(wide, 5, num_rounds=2000)
    assert found.shared_size == 5
    torch.testing.assert_close(found(x, y, y)[0], wide(x, y, y)[0], atol=1e-3, rtol=0)


# overlapping


@MASKS
@pytest.mark.parametrize("overlap", [1, 4, 9])  # d is 6: the last reaches past the neighbours
def test_overlapping_heads_are_the_loop(kind, overlap):
    layer = _shaken(variants.OverlappingAttention(D, H, bias=True, overlap=overlap))

    def channels(projection, i, x):
        all_of_them = x @ projection.weight.T + projection.bias
        columns = []
        for c in range(i * d - overlap, (i + 1) * d + overlap):
            columns.append(all_of_them[:, c] if 0 <= c < D else torch.zeros(len(x)))
        return torch.stack(columns, -1)

    def loop(x, y, mask):
        scores = torch.stack([channels(layer.W_q, i, x) @ channels(layer.W_k, i, y).T for i in range(H)])
        weights = _rows(scores * d**-0.5, mask)
        return _output(layer, weights, torch.stack([channels(layer.W_v, i, y) for i in range(H)])), weights

    _holds(layer, loop, kind)


def test_heads_that_do_not_overlap_are_multi_head_attention():
    plain = _plain()
    _same(_with_weights_of(variants.OverlappingAttention, plain, overlap=0), plain)


# mixture


@MASKS
@pytest.mark.parametrize("paper_scaling", [True, False])
@pytest.mark.parametrize(("shared", "chosen"), [(1, 2), (0, 2), (2, 1), (4, 0), (1, 3)])
def test_a_mixture_of_heads_is_the_loop(kind, paper_scaling, shared, chosen):
    layer = variants.MixtureOfHeads(D, H, bias=True, num_shared=shared, num_chosen=chosen, paper_scaling=paper_scaling)
    _shaken(layer)

    def gates(x):
        result = torch.zeros(H)
        a = (layer.W_kinds.weight @ x).softmax(-1) if shared and chosen else torch.ones(2)
        if shared:
            result[:shared] = a[0] * (layer.W_shared.weight @ x).softmax(-1)
        if chosen:
            probabilities = (layer.W_routed.weight @ x).softmax(-1)
            best = probabilities.argsort(descending=True)[:chosen]
            total = probabilities[best].sum()
            for j in best:
                share = probabilities[j] if paper_scaling else chosen * probabilities[j] / total
                result[shared + j] = a[1] * share
        if not paper_scaling:
            result[:shared] *= shared
            if shared and chosen:
                result *= 2
        return result

    def loop(x, y, mask):
        scores, values = _scores_and_values(layer, x, y)
        weights = _rows(scores, mask)
        output = torch.zeros(Q, D)
        for t in range(Q):
            g = gates(x[t])
            for i in range(H):
                part = layer.W_o.weight[:, i * d : (i + 1) * d] @ (weights[i, t] @ values[i])
                output[t] += g[i] * part
        return output + layer.W_o.bias, weights

    _holds(layer, loop, kind)


@MASKS
@pytest.mark.parametrize(("shared", "chosen"), [(2, 1), (0, 2), (1, 3), (4, 0)])
def test_a_mixture_by_the_norm_of_the_query_is_the_loop(kind, shared, chosen):
    settings = {"num_shared": shared, "num_chosen": chosen, "router": "query norm"}
    layer = _shaken(variants.MixtureOfHeads(D, H, bias=True, **settings))

    def loop(x, y, mask):
        scores, values = _scores_and_values(layer, x, y)
        weights = _rows(scores, mask)
        output = torch.zeros(Q, D)
        for t in range(Q):
            lengths = [_of_head(layer.W_q, i, d, x)[t].pow(2).sum() for i in range(shared, H)]
            best = sorted(range(shared, H), key=lambda i: -lengths[i - shared])[:chosen]
            for i in [*range(shared), *best]:
                output[t] += layer.W_o.weight[:, i * d : (i + 1) * d] @ (weights[i, t] @ values[i])
        return output + layer.W_o.bias, weights

    _holds(layer, loop, kind)
    assert layer.last_gates.sum(-1).eq(shared + chosen).all()


def test_a_mixture_whose_routers_say_nothing_is_multi_head_attention_in_the_codes_scaling_only():
    plain = _plain()
    for shared in (0, 1, 4):
        settings = {"num_shared": shared, "num_chosen": H - shared}
        layer = _with_weights_of(variants.MixtureOfHeads, plain, **settings)
        for router in (layer.W_shared, layer.W_routed, layer.W_kinds):
            if router is not None:
                nn.init.zeros_(router.weight)
        _same(layer, plain)
        assert layer.last_gates.eq(1).all()
    layer.paper_scaling = True
    x, y = _inputs()
    assert not torch.allclose(layer(x, y, y)[0], plain(x, y, y)[0], atol=1e-3)


def test_the_balance_loss_is_least_where_heads_are_chosen_alike():
    layer = variants.MixtureOfHeads(D, H, num_shared=1, num_chosen=1)
    x, y = torch.randn(1, 300, D), torch.randn(1, K, D)
    layer(x, y, y)
    probabilities = (x[0] @ layer.W_routed.weight.T).softmax(-1)
    share = torch.stack([(probabilities.argmax(-1) == j).double().mean() for j in range(3)])
    torch.testing.assert_close(layer.balance_loss, 3 * (probabilities.mean(0) * share).sum())
    layer.W_routed.weight.data[0] += 10 * x[0, 0]
    x = x[:, :1].expand(-1, 300, -1)
    layer(x, y, y)
    assert layer.balance_loss > 2.9  # one head for all: as many as there are, where equal shares give 1
    layer.paper_scaling = True
    layer(x, y, y)
    assert 0.9 < layer.balance_loss < 1.01
    layer.balance_loss.backward()
    assert layer.W_routed.weight.grad is not None
    copy.deepcopy(layer)


# composed


@MASKS
@pytest.mark.parametrize(("by_keys", "static"), [(True, False), (False, False), (True, True)])
def test_composed_heads_are_the_loop(kind, by_keys, static):
    layer = _shaken(variants.ComposedAttention(D, H, bias=True, by_keys=by_keys, static=static))

    def said(composition, token):
        hidden = torch.nn.functional.gelu(token @ composition.W_1)
        both = (hidden @ composition.W_2).view(2 * layer.rank, H)
        w1, w2 = both[: layer.rank], both[layer.rank :]
        w1 = w1 / (w1.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt()
        return w1, w2, (token @ composition.W_gate).tanh()

    def composed(a, S, compositions, x, y):
        """Also the second of the authors' ways: a matrix for each pair of tokens, times the heads."""
        result = torch.zeros_like(a)
        for t in range(Q):
            for s in range(K):
                tokens = {"query": x[t], "key": y[s]}
                matrix = torch.eye(H) + (S if static else 0)
                for side, composition in compositions.items():
                    w1, w2, gate = said(composition, tokens[side])
                    matrix = matrix + sum(torch.outer(w1[r], w2[r]) for r in range(layer.rank)) + torch.diag(gate)
                result[:, t, s] = a[:, t, s] @ matrix
        return result

    def loop(x, y, mask):
        scores, values = _scores_and_values(layer, x, y)
        weights = _rows(composed(scores, layer.S_before, layer.before, x, y), mask)
        weights = composed(weights, layer.S_after, layer.after, x, y)
        return _output(layer, weights, values), weights

    _holds(layer, loop, kind, atol=1e-9, rtol=1e-9)
    _gradients(layer)


def test_heads_that_are_not_composed_are_multi_head_attention():
    plain = _plain()
    layer = _with_weights_of(variants.ComposedAttention, plain)
    for composition in (*layer.before.values(), *layer.after.values()):
        nn.init.zeros_(composition.W_2)
        nn.init.zeros_(composition.W_gate)
    _same(layer, plain)


def test_composed_heads_have_as_many_weights_as_the_paper_counts():
    extra = sum(p.numel() for p in variants.ComposedAttention(D, H).parameters()) - 4 * D * D
    assert extra == 20 * H * D + 64 * H * H


# differential


@MASKS
@pytest.mark.parametrize("normalise", [True, False])
def test_differential_heads_are_the_loop(kind, normalise):
    layer = _shaken(variants.DifferentialAttention(D, H, bias=True, layer_number=3, normalise=normalise))
    width = D // H // 2
    assert layer.lambda_init == pytest.approx(0.8 - 0.6 * math.exp(-0.9))

    def loop(x, y, mask):
        first = math.exp((layer.lambda_q1 @ layer.lambda_k1).item())
        second = math.exp((layer.lambda_q2 @ layer.lambda_k2).item())
        share = first - second + layer.lambda_init
        weights, parts = [], []
        for i in range(H):
            maps = []
            for j in (2 * i, 2 * i + 1):
                scores = _of_head(layer.W_q, j, width, x) @ _of_head(layer.W_k, j, width, y).T * width**-0.5
                maps.append(_rows(scores[None], mask[i : i + 1])[0])
            weights.append(maps[0] - share * maps[1])
            found = weights[-1] @ _of_head(layer.W_v, i, 2 * width, y)
            if normalise:
                found = found / (found.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * layer.norm.weight
                found = found * (1 - layer.lambda_init)
            parts.append(found)
        output = torch.cat(parts, -1) @ layer.W_o.weight.T + layer.W_o.bias
        return output, torch.stack(weights)

    _holds(layer, loop, kind)
    _gradients(layer)


def test_a_difference_from_nothing_is_multi_head_attention():
    plain = MultiHeadAttention(D, H, head_dim=3, value_dim=6)
    layer = variants.DifferentialAttention(D, H, lambda_init=0.0, normalise=False)
    with torch.no_grad():
        for name in ("lambda_q1", "lambda_q2"):
            getattr(layer, name).zero_()
        for name in ("W_q", "W_k"):
            rows = getattr(layer, name).weight.view(H, 2, 3, D)
            rows[:, 0] = getattr(plain, name).weight.view(H, 3, D)
        layer.W_v.weight.copy_(plain.W_v.weight)
        layer.W_o.weight.copy_(plain.W_o.weight)
    _same(layer, plain)


# gated


@MASKS
@pytest.mark.parametrize("per_channel", [True, False])
def test_gated_heads_are_the_loop(kind, per_channel):
    layer = _shaken(variants.GatedAttention(D, H, bias=True, per_channel=per_channel))

    def loop(x, y, mask):
        scores, values = _scores_and_values(layer, x, y)
        weights = _rows(scores, mask)
        gates = 1 / (1 + (-(x @ layer.W_gate.weight.T)).exp())
        parts = [
            weights[i] @ values[i] * (gates[:, i * d : (i + 1) * d] if per_channel else gates[:, i : i + 1])
            for i in range(H)
        ]
        return torch.cat(parts, -1) @ layer.W_o.weight.T + layer.W_o.bias, weights

    _holds(layer, loop, kind)
    _gradients(layer)


def test_gates_of_a_half_halve_the_output():
    plain = _plain()
    layer = _with_weights_of(variants.GatedAttention, plain)
    nn.init.zeros_(layer.W_gate.weight)
    layer.W_o.weight.data.mul_(2)
    _same(layer, plain)


# qk-norm


@MASKS
@pytest.mark.parametrize("norm", ["layer", "rms"])
@pytest.mark.parametrize("settings", [{}, {"num_kv_heads": 2, "head_dim": 7, "value_dim": 5, "scale": 0.3}])
def test_normed_queries_and_keys_are_the_loop(kind, norm, settings):
    layer = _shaken(variants.QKNormAttention(D, H, bias=True, norm=norm, **settings))
    width, group = layer.head_dim, H // layer.num_kv_heads
    assert layer.norm_q.weight is not layer.norm_k.weight

    def normed(vector, gain):
        middle = vector.mean() if norm == "layer" else 0.0
        epsilon = 1e-5 if norm == "layer" else 1e-6
        return (vector - middle) / ((vector - middle).pow(2).mean() + epsilon).sqrt() * gain

    def loop(x, y, mask):
        scores, values = torch.zeros(H, len(x), len(y)), []
        for i in range(H):
            q, k = _of_head(layer.W_q, i, width, x), _of_head(layer.W_k, i // group, width, y)
            values.append(_of_head(layer.W_v, i // group, layer.value_dim, y))
            for t in range(len(x)):
                for s in range(len(y)):
                    pair = normed(q[t], layer.norm_q.weight), normed(k[s], layer.norm_k.weight)
                    scores[i, t, s] = pair[0] @ pair[1] * layer.scale
        weights = _rows(scores, mask)
        return _output(layer, weights, values), weights

    _holds(layer, loop, kind)
    if not settings:
        _gradients(layer)


@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_no_score_of_normed_queries_and_keys_exceeds_the_root_of_d(norm):
    layer = variants.QKNormAttention(D, H, norm=norm)
    layer.W_q.weight.data.mul_(1e6)
    layer.W_k.weight.data.mul_(1e6)
    x, y = _inputs()
    q, k, _ = layer.project(x, y, y)
    largest = layer.score(q, k).abs().max()
    assert 0.5 * d**0.5 < largest <= d**0.5 + 1e-12
    layer.W_k.weight.data.mul_(1e3)  # lengths do not matter
    torch.testing.assert_close(layer.score(*layer.project(x, y, y)[:2]), layer.score(q, k), rtol=0, atol=1e-9)


def test_queries_and_keys_that_are_normal_already_are_left_alone():
    plain = _plain()
    layer = _with_weights_of(variants.QKNormAttention, plain, norm="rms")
    x, y = _inputs()
    with torch.no_grad():  # as long as q and k are, the gains undo it for one token
        q, k, _ = plain.project(x[:, :1], y[:, :1], y[:, :1])
    found = layer.project(x[:, :1], y[:, :1], y[:, :1])
    for ours, theirs in zip(found, (q, k), strict=False):
        torch.testing.assert_close(ours * theirs.pow(2).mean(-1, keepdim=True).sqrt(), theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_normed_scores_know_distances_only(norm):
    """Norm, gains, then rotation: with the rotation first, gains and means would depend on the place."""
    layer = _shaken(variants.QKNormAttention(D, H, norm=norm, positions="rotary"))
    x = torch.randn(1, 6, D)
    scores = []
    for start in (0, 50):
        q, k, _ = layer.project(x, x, x)
        scores.append(layer.score(layer.place(q, start), layer.place(k, start)))
    torch.testing.assert_close(*scores, atol=1e-9, rtol=0)


@pytest.mark.parametrize("model", ["gpt", "transformer", "vit"])
def test_models_choose_normed_queries_and_keys(model):
    choice = {"name": "qk-norm", "norm": "rms"}
    made = {
        "gpt": lambda: GPT(5, D, H, attention=choice),
        "transformer": lambda: Transformer(5, 7, D, H, attention=choice),
        "vit": lambda: ViT(10, D, H, attention=choice),
    }[model]()
    layers = [layer for kind in made.attention_layers().values() for layer in kind]
    assert layers
    for layer in layers:
        assert isinstance(layer.norm_q, nn.RMSNorm)
        assert layer.norm_q.weight.shape == (layer.head_dim,)


# latent


@pytest.mark.parametrize("positions", ["none", "rotary", "rotary-halves"])
@pytest.mark.parametrize("query_latent_size", [0, 9])
def test_latent_attention_is_the_loop_and_both_of_its_ways_agree(positions, query_latent_size):
    layer = _shaken(
        variants.LatentAttention(
            D, H, bias=True, latent_size=7, query_latent_size=query_latent_size, positions=positions
        )
    )
    r = layer.rotary_size
    assert r == (0 if positions == "none" else 2)
    pairs = "halves" if positions == "rotary-halves" else "interleaved"

    def rms(norm, x):
        return x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * norm.weight

    def loop(x, mask):
        if query_latent_size:
            down, norm, up = layer.W_q
            q_all = rms(norm, x @ down.weight.T + down.bias) @ up.weight.T
        else:
            q_all = x @ layer.W_q.weight.T
        latent = rms(layer.norm, x @ layer.W_down.weight.T + layer.W_down.bias)
        weights, parts = [], []
        for i in range(H):
            q = q_all[:, i * (d + r) : (i + 1) * (d + r)]
            k = latent @ layer.W_up_k.weight[i * d : (i + 1) * d].T
            scores = q[:, :d] @ k.T
            if r:
                k_turned = rotate(x @ layer.W_rotary.weight.T + layer.W_rotary.bias, pairs=pairs)
                scores = scores + rotate(q[:, d:], pairs=pairs) @ k_turned.T
            weights.append(_rows(scores[None] * (d + r) ** -0.5, mask[None])[0])
            parts.append(weights[-1] @ latent @ layer.W_up_v.weight[i * d : (i + 1) * d].T)
        return torch.cat(parts, -1) @ layer.W_o.weight.T + layer.W_o.bias, torch.stack(weights)

    x = torch.randn(B, 6, D)
    expected = [loop(one, causal_mask(6)) for one in x]
    for absorbed in (False, True):
        layer.absorbed = absorbed
        output, weights = layer(x, x, x, mask=Band())
        torch.testing.assert_close(output, torch.stack([one for one, _ in expected]), **EXACT)
        torch.testing.assert_close(weights, torch.stack([one for _, one in expected]), **EXACT)
        torch.testing.assert_close(layer(x, x, x, mask=Band(), need_weights=False)[0], output, **EXACT)
        cache = layer.new_cache()
        with torch.no_grad():
            steps = [layer(x[:, [t]], x[:, [t]], x[:, [t]], mask=Band(offset=t), cache=cache)[0] for t in range(6)]
        torch.testing.assert_close(torch.cat(steps, 1), output, **EXACT)
        assert cache.num_bytes == 8 * B * 6 * (7 + r)


# entmax and spans


@pytest.mark.parametrize("alpha", [1.2, 1.5, 2.0])
def test_entmax_maximises_what_it_is_defined_by(alpha):
    scores = torch.randn(3, 6)

    def worth(p, z):
        return (p * z).sum(-1) + (p - p**alpha).sum(-1) / (alpha * (alpha - 1))

    found = variants.entmax(scores, alpha)
    torch.testing.assert_close(found.sum(-1), torch.ones(3))
    best = worth(found, scores)
    for _ in range(200):
        other = (found + 0.05 * torch.rand(3, 6)).clamp_min(0)
        other = other / other.sum(-1, keepdim=True)
        assert (worth(other, scores) <= best + 1e-9).all()


def test_entmax_is_the_library_s_and_has_its_gradients():
    library = pytest.importorskip("entmax")
    scores = torch.randn(4, 9, requires_grad=True)
    torch.testing.assert_close(variants.entmax(scores, 1.5), library.entmax15(scores), atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(variants.entmax(scores, 2.0), library.sparsemax(scores), atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(
        variants.entmax(scores, 1.3), library.entmax_bisect(scores, 1.3, n_iter=80), atol=1e-9, rtol=1e-9
    )


def test_entmax_has_exact_gradients_for_scores_and_alpha_and_ends_at_the_softmax():
    scores = torch.randn(3, 5, requires_grad=True)
    alpha = torch.tensor([[1.3], [1.5], [1.9]], requires_grad=True)
    assert torch.autograd.gradcheck(variants.entmax, (scores, alpha))
    torch.testing.assert_close(variants.entmax(scores, 1.0001), scores.softmax(-1), atol=1e-3, rtol=0)
    hidden = torch.tensor([[0.3, -torch.inf, 0.1], [-torch.inf] * 3])
    assert variants.entmax(hidden)[1].eq(0).all()
    assert variants.entmax(hidden)[0, 1] == 0


@MASKS
def test_entmax_heads_are_the_loop(kind):
    layer = _shaken(variants.EntmaxAttention(D, H, bias=True, alpha=1.4))

    def loop(x, y, mask):
        scores, values = _scores_and_values(layer, x, y)
        weights = torch.zeros(H, Q, K)
        for i in range(H):
            alpha = 1 + 1 / (1 + math.exp(-layer.alpha_logits[i].item()))
            for t in range(Q):
                seen = mask[i, t]
                if seen.any():
                    weights[i, t, seen] = variants.entmax(scores[i, t, seen], alpha)
        return _output(layer, weights, values), weights

    _holds(layer, loop, kind, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("kind", ["causal", "heads"])
def test_spans_are_the_loop(kind):
    layer = variants.SpanAttention(D, H, bias=True, max_span=5, ramp=1.7)
    layer.span_shares.data = torch.tensor([0.0, 0.3, 0.61, 1.4])

    def loop(x, y, mask):
        scores, values = _scores_and_values(layer, x, y)
        weights = torch.zeros(H, Q, K)
        for i in range(H):
            span = min(max(layer.span_shares[i].item(), 0), 1) * 5
            for t in range(Q):
                for s in range(K):
                    distance = max(t + K - Q - s, 0)
                    kept = min(max((1.7 + span - distance) / 1.7, 0), 1)
                    weights[i, t, s] = kept * scores[i, t, s].exp() * mask[i, t, s]
        weights = weights / weights.sum(-1, keepdim=True).clamp_min(1e-300)
        return _output(layer, weights, values), weights

    _holds(layer, loop, kind)
    layer.span_shares.data = torch.tensor([0.1, 0.3, 0.61, 0.78])
    x = torch.randn(1, 6, D)
    assert torch.autograd.gradcheck(
        lambda shares: torch.func.functional_call(layer, {"span_shares": shares}, (x, x, x), {"mask": Band()})[0],
        (layer.span_shares.detach().clone().requires_grad_(),),
    )


def test_spans_of_the_whole_sequence_are_multi_head_attention():
    plain = _plain()
    layer = _with_weights_of(variants.SpanAttention, plain, max_span=K)
    _same(layer, plain)
    x, y = _inputs()
    with pytest.raises(ValueError, match="spans are for self-attention: 7 queries, but 5 keys"):
        layer(y, x, x)


# grouped


@pytest.mark.parametrize("num_kv_heads", [1, 2, 4])
def test_grouped_keys_are_the_means_of_what_they_were(num_kv_heads):
    plain = _plain(positions="rotary", scale=0.3)
    layer = variants.group_heads(plain, num_kv_heads)
    assert (layer.num_kv_heads, layer.scale, layer.positions.pairs) == (num_kv_heads, 0.3, "interleaved")
    expected = _plain(positions="rotary", scale=0.3)
    expected.load_state_dict(plain.state_dict())
    group = H // num_kv_heads
    with torch.no_grad():
        for projection in (expected.W_k, expected.W_v):
            for part in projection.parameters():
                for first in range(0, H, group):
                    rows = [part[i * d : (i + 1) * d].clone() for i in range(first, first + group)]
                    for i in range(first, first + group):
                        part[i * d : (i + 1) * d] = sum(rows) / group
    x = torch.randn(B, Q, D)
    torch.testing.assert_close(layer(x, x, x), expected(x, x, x), **EXACT)


@pytest.mark.parametrize("positions", ["none", "rotary"])
def test_turned_heads_compute_the_same(positions):
    plain = _plain(positions=positions, value_dim=5)
    layer = variants.align_heads(plain, 2)
    x = torch.randn(B, Q, D)
    for found, expected in zip(layer(x, x, x), plain(x, x, x), strict=True):
        torch.testing.assert_close(found, expected, **EXACT)
    assert torch.equal(layer.W_q.weight, plain.W_q.weight) == (positions == "rotary")
    assert not torch.equal(layer.W_v.weight, plain.W_v.weight)
    apart = [_apart(one.W_v.weight.unflatten(0, (2, 2, -1))) for one in (layer, plain)]
    assert apart[0] < apart[1]


def _apart(rows):
    return (rows - rows.mean(1, keepdim=True)).norm()


def test_heads_with_the_same_keys_in_other_channels_share_them_without_loss():
    shared, plain = _plain(num_kv_heads=2, value_dim=5), _plain(value_dim=5)
    with torch.no_grad():
        for name, width in (("W_k", shared.head_dim), ("W_v", 5)):
            for new, old in zip(getattr(plain, name).parameters(), getattr(shared, name).parameters(), strict=True):
                new.copy_(old.unflatten(0, (2, width)).repeat_interleave(H // 2, 0).flatten(0, 1))
        for name in ("W_q", "W_o"):
            getattr(plain, name).load_state_dict(getattr(shared, name).state_dict())
        for head in range(H):  # turn each, which changes no output
            turn = {width: torch.linalg.qr(torch.randn(width, width))[0] for width in (shared.head_dim, 5)}
            q, k, v, o = plain.head_slices(head)
            for projection, own in ((plain.W_q, q), (plain.W_k, k), (plain.W_v, v)):
                for part in projection.parameters():
                    part[own] = turn[own.stop - own.start] @ part[own]
            plain.W_o.weight[:, o] = plain.W_o.weight[:, o] @ turn[5].T
    x = torch.randn(B, Q, D)
    torch.testing.assert_close(plain(x, x, x), shared(x, x, x), **EXACT)
    assert not torch.allclose(variants.group_heads(plain, 2)(x, x, x)[0], shared(x, x, x)[0], atol=1e-3)
    found = variants.group_heads(variants.align_heads(plain, 2), 2)
    torch.testing.assert_close(found(x, x, x), shared(x, x, x), **EXACT)


@pytest.mark.parametrize("num_kv_heads", [2, 4])
def test_pairs_are_exchanged_without_changing_the_function(num_kv_heads):
    plain = _plain(positions="rotary", num_kv_heads=num_kv_heads, rotary_base=500.0)
    halves = variants.exchange_pairs(plain, "halves")
    x = torch.randn(B, Q, D)
    assert not torch.equal(halves.W_q.weight, plain.W_q.weight)
    torch.testing.assert_close(halves(x, x, x), plain(x, x, x), **EXACT)
    back = variants.exchange_pairs(halves, "interleaved")
    for found, expected in zip(back.parameters(), plain.parameters(), strict=True):
        assert torch.equal(found, expected)
    wrong = _plain(positions="rotary-halves", num_kv_heads=num_kv_heads, rotary_base=500.0)
    wrong.load_state_dict(plain.state_dict())
    assert not torch.allclose(wrong(x, x, x)[1], plain(x, x, x)[1], atol=1e-3)
    assert variants.exchange_pairs(plain, "interleaved") is not plain


def test_pairs_are_exchanged_in_a_layer_that_lost_heads():
    pruned = _plain(positions="rotary", num_kv_heads=2)
    pruned.keep_heads([0, 2, 3])
    found = variants.exchange_pairs(pruned, "halves")
    x = torch.randn(B, Q, D)
    assert found.head_numbers == (0, 2, 3)
    torch.testing.assert_close(found(x, x, x), pruned(x, x, x), **EXACT)


# what cannot be


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: variants.TalkingHeads(D, H, init="ones"), "init='ones' must be one of"),
        (lambda: variants.CollaborativeAttention(D, H, num_kv_heads=2), "num_kv_heads=2 cannot be"),
        (lambda: variants.CollaborativeAttention(D, H, shared_size=0), "shared_size=0"),
        (lambda: variants.CollaborativeAttention(D, H, shared_size=5, positions="rotary"), "even shared_size, got 5"),
        (lambda: variants.CollaborativeAttention.from_multi_head(_plain(positions="rotary")), "rotary positions"),
        (lambda: variants.CollaborativeAttention.from_multi_head(_plain(num_kv_heads=1)), "num_kv_heads=1"),
        (lambda: variants.compress(variants.CollaborativeAttention(D, H, shared_size=4), 5), "shared_size=5"),
        (
            lambda: variants.compress(variants.CollaborativeAttention(D, H, shared_size=4, positions="rotary"), 2),
            "rotary positions",
        ),
        (lambda: variants.OverlappingAttention(D, H, overlap=-1), "overlap=-1"),
        (lambda: variants.MixtureOfHeads(D, H, router="norm"), "router='norm' must be one of"),
        (lambda: variants.OverlappingAttention(D, H, value_dim=3), "value_dim=3 cannot be"),
        (lambda: variants.MixtureOfHeads(D, H, num_shared=5), "num_shared=5, but there are num_heads=4"),
        (lambda: variants.MixtureOfHeads(D, H, num_shared=2, num_chosen=3), "only 2 heads are left"),
        (lambda: variants.MixtureOfHeads(D, H, num_chosen=0), "num_chosen=0"),
        (lambda: variants.ComposedAttention(D, H, rank=0), "rank=0"),
        (lambda: variants.DifferentialAttention(12, 4), "num_hiddens=12 is not divisible by 2 \\* num_heads=8"),
        (lambda: variants.DifferentialAttention(D, H, value_dim=3), "value_dim=3 cannot be"),
        (lambda: variants.LatentAttention(D, H, num_kv_heads=2), "num_kv_heads=2 cannot be"),
        (lambda: variants.QKNormAttention(D, H, norm="batch"), "norm='batch' must be one of"),
        (lambda: variants.LatentAttention(D, H, rotary_size=2), "rotary_size=2 cannot be"),
        (lambda: variants.LatentAttention(D, H, rotary_size=3, positions="rotary"), "even rotary_size, got 3"),
        (lambda: variants.LatentAttention(D, H, key_size=5), "key_size=5 and value_size=24"),
        (lambda: variants.EntmaxAttention(D, H, alpha=1.0), "alpha=1.0 must be above 1"),
        (lambda: variants.entmax(torch.zeros(3), 2.5), "alpha=2.5"),
        (lambda: variants.SpanAttention(D, H, begin=2.0), "begin=2.0 must be at most 1"),
        (lambda: variants.group_heads(_plain(), 3), "num_kv_heads=3 does not divide the 4"),
        (lambda: variants.align_heads(_plain(), 3), "num_groups=3 does not divide the 4"),
        (lambda: variants.align_heads(_plain(num_kv_heads=2), 2), "num_kv_heads=2"),
        (lambda: variants.exchange_pairs(_plain(), "halves"), "no rotary positions"),
        (lambda: variants.exchange_pairs(_plain(positions="rotary"), "pairs"), "pairs='pairs' must be one of"),
        (lambda: MultiHeadAttention(D, H, positions="rotary", rotary_base=0.0), "rotary_base=0.0 must be positive"),
    ],
)
def test_what_cannot_be_is_refused_by_name(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# sparse


@pytest.mark.parametrize("given", [None, Band(), "matrix", "lengths"])
@pytest.mark.parametrize(
    "settings", [{"window": 2}, {"stride": 3}, {"num_global": 2}, {"window": 2, "stride": 4, "num_global": 1}]
)
def test_a_sparse_pattern_is_that_mask(given, settings):
    plain = _plain()
    layer = _with_weights_of(variants.SparseAttention, plain, **settings)
    assert layer.is_variant
    x = torch.randn(B, K, D)
    allowed = torch.zeros(K, K, dtype=torch.bool)
    for t in range(K):
        for s in range(K):
            near = "window" in settings and abs(t - s) < settings["window"]
            regular = "stride" in settings and (t - s) % settings["stride"] == 0
            allowed[t, s] = near or regular or min(t, s) < settings.get("num_global", 0)
    lens = torch.tensor([4, 7]) if given == "lengths" else None
    mask = {"matrix": torch.rand(K, K) > 0.3, "lengths": None}.get(given, given)
    if isinstance(mask, Band):
        allowed = allowed & causal_mask(K)
    elif mask is not None:
        allowed = allowed & mask
    expected = plain(x, x, x, lens, mask=allowed)
    torch.testing.assert_close(layer(x, x, x, lens, mask=mask), expected, **EXACT)
    torch.testing.assert_close(layer(x, x, x, lens, mask=mask, need_weights=False)[0], expected[0], **EXACT)


def test_a_sparse_layer_with_a_cache_gives_what_the_whole_gives():
    layer = variants.SparseAttention(D, H, window=2, stride=3, num_global=1)
    x = torch.randn(B, K, D)
    cache = layer.new_cache()
    with torch.no_grad():
        steps = [layer(x[:, [t]], x[:, [t]], x[:, [t]], mask=Band(offset=t), cache=cache)[0] for t in range(K)]
    torch.testing.assert_close(torch.cat(steps, 1), layer(x, x, x, mask=Band())[0], **EXACT)


@pytest.mark.parametrize("num_tokens", [1, 2, 6, 7, 13])
@pytest.mark.parametrize("before", [1, 2, 3, 20])
def test_windows_leave_out_what_the_mask_hides(num_tokens, before):
    q, k, v = torch.randn(3, B, H, num_tokens, d)
    expected, _ = attend(q, k, v, Band(before=before).matrix(num_tokens))
    torch.testing.assert_close(variants.attend_in_windows(q, k, v, before), expected, **EXACT)


# in a model


def test_a_model_s_layers_are_exchanged_and_its_settings_say_so(tmp_path):
    model = GPT(7, 24, 4, 2, 8, positions="rotary").eval()
    choice = {"name": "multi-head", "num_kv_heads": 2}
    grouped = recomposed(model, choice, lambda layer: variants.group_heads(layer, 2))
    assert grouped.settings["attention"] == choice
    assert {layer.num_kv_heads for layer in grouped.attention_layers()["decoder self"]} == {2}
    assert torch.equal(next(grouped.parameters()), next(model.parameters()))
    ids = torch.randint(7, (2, 5))
    again = type(grouped)(**grouped.settings).eval()
    again.load_state_dict(grouped.state_dict())
    assert torch.equal(again(ids)[0], grouped(ids)[0])
    same = recomposed(model, "multi-head", copy.deepcopy)
    assert torch.equal(same(ids)[0], model(ids)[0])


def test_the_collaborative_translator_is_the_translator_it_was():
    model = Transformer(7, 9, 24, 4, 1, 8).eval()
    made = recomposed(model, "collaborative", variants.CollaborativeAttention.from_multi_head)
    source, target = torch.randint(7, (2, 5)), torch.randint(9, (2, 4))
    torch.testing.assert_close(made(source, target)[0], model(source, target)[0], **EXACT)
    with pytest.raises(ValueError, match=r"convert makes Coll.*\), but attention='talking' says TalkingHeads\("):
        recomposed(model, "talking", variants.CollaborativeAttention.from_multi_head)


def test_layers_are_told_their_number_in_the_model():
    for choice, read in (("differential", "lambda_init"), ("overlapping", "overlap")):
        model = Transformer(7, 9, 24, 4, 3, 8, attention=choice)
        for layers in model.attention_layers().values():
            found = [getattr(layer, read) for layer in layers]
            assert len(set(found)) == 3
            assert found == sorted(found)
    assert found == [0, 1, 2]


@pytest.mark.parametrize("choice", ["span", {"name": "sparse", "window": 2}])
def test_what_looks_at_itself_only_leaves_cross_attention_alone(choice):
    model = Transformer(7, 9, 24, 4, 1, 8, attention=choice)
    kinds = {kind: type(layers[0]) for kind, layers in model.attention_layers().items()}
    assert kinds["cross"] is MultiHeadAttention
    assert kinds["encoder self"] is kinds["decoder self"] is not MultiHeadAttention
