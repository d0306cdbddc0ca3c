"""Heads that read few keys, scores that count together, keys of another layer: against loops that are written from the
definitions, and the indexer against DeepseekV32Attention of transformers."""

import pytest
import test_variants_elsewhere as elsewhere
import torch
from test_variants import MASKS, B, D, H, K, Q, _holds, _mask, _output, _plain, _rows, _same, _scores_and_values
from test_variants import _shaken as _shaken_layer
from test_variants_elsewhere import BASE, Twin, _agree, _agree_in_steps, _linears, _shaken, library  # noqa: F401

from mhalib import Band, KeyValueCache, variants
from mhalib.models import GPT
from mhalib.train import fit

pytestmark = pytest.mark.usefixtures("in_float64")
EXACT = {"atol": 1e-12, "rtol": 1e-12}


def _place(t):
    """Query t of Q stands at this place among K keys."""
    return K - Q + t


# multi-token attention


def _convolved(layer, scores, mask, i):
    """Head i's scores (Q, K), where hidden ones count as 0: sum by sum."""
    queries, keys = layer.kernel_size
    result = torch.zeros(Q, K)
    for t in range(Q):
        for s in range(K):
            for a in range(queries):
                for b in range(keys):
                    row, column = t - (queries - 1) + a, s - keys // 2 + b
                    if row >= 0 and 0 <= column < K and mask[row, column]:
                        result[t, s] += layer.kernels[i, a, b] * scores[row, column]
    return result


@MASKS
@pytest.mark.parametrize("head_group", [1, 2])
def test_multi_token_attention_is_the_loop(kind, head_group):
    layer = _shaken_layer(variants.MultiTokenAttention(D, H, bias=True, kernel_size=(2, 3), head_group=head_group))

    def loop(x, y, mask):
        scores, values = _scores_and_values(layer, x, y)
        weights = _rows(torch.stack([_convolved(layer, scores[i], mask[i], i) for i in range(H)]), mask)
        mixed = weights
        if head_group > 1:
            mixed = torch.zeros_like(weights)
            for m in range(H):
                for n in range(head_group):
                    g = m // head_group
                    mixed[m] += layer.heads[g, n, m % head_group] * weights[g * head_group + n]
        return _output(layer, mixed, values), mixed

    _holds(layer, loop, kind)


def test_multi_token_attention_begins_as_multi_head_attention():
    plain = _plain()
    layer = variants.MultiTokenAttention(D, H, bias=True, head_group=2)
    layer.load_state_dict(plain.state_dict(), strict=False)
    _same(layer, plain)


@pytest.mark.parametrize("window", [None, 3])
def test_a_hidden_key_is_never_read_and_a_cache_knows_what_was_hidden(window):
    """A key that all masks hide may be anything; with a window, old rows were hidden other keys than new ones are."""
    layer = _shaken_layer(variants.MultiTokenAttention(D, H, kernel_size=(3, 5)))
    x, band = torch.randn(B, 9, D), Band(None if window is None else window - 1)
    whole = layer(x, x, x, mask=band)[0]
    cache, parts = layer.new_cache(), []
    for start, stop in ((0, 4), (4, 5), (5, 6), (6, 9)):
        part = x[:, start:stop]
        mask = Band(band.before, offset=start)
        parts.append(layer(part, part, part, mask=mask, cache=cache)[0])
    torch.testing.assert_close(torch.cat(parts, 1), whole, **EXACT)
    seen = band.matrix(9).clone()
    seen[:, 2] = False
    changed = torch.where(torch.arange(9)[:, None] == 2, 100 * x, x)
    before, after = (layer(x, one, one, mask=seen)[0] for one in (x, changed))
    assert torch.equal(before, after)


def test_only_its_own_cache_knows_earlier_rows():
    layer, x = variants.MultiTokenAttention(D, H), torch.randn(B, 3, D)
    with pytest.raises(ValueError, match="needs a cache from its own new_cache, not KeyValueCache"):
        layer(x, x, x, cache=KeyValueCache())
    with pytest.raises(TypeError, match="does not say how to remove heads"):
        variants.MultiTokenAttention(D, H, head_group=2).keep_heads([0, 1])
    with pytest.raises(ValueError, match="needs an odd number of keys"):
        variants.MultiTokenAttention(D, H, kernel_size=(2, 4))


# blocks


def _blocks(size):
    return [range(start, min(start + size, K)) for start in range(0, K, size)]


def _first(worth, number):
    """The `number` largest of a dict, as a set."""
    return set(sorted(worth, key=worth.get, reverse=True)[:number])


@MASKS
@pytest.mark.parametrize(("size", "number"), [(2, 2), (3, 1), (16, 3)])
def test_a_mixture_of_blocks_is_the_loop(kind, size, number):
    layer = _shaken_layer(variants.MixtureOfBlocks(D, H, bias=True, block_size=size, num_chosen=number))

    def loop(x, y, mask):
        scores, values = _scores_and_values(layer, x, y)
        seen = mask.clone()
        for i in range(H):
            for t in range(Q):
                worth = {}
                for b, block in enumerate(_blocks(size)):
                    own = [s for s in block if mask[i, t, s]]
                    if own:  # what the mean key scores
                        worth[b] = float("inf") if _place(t) in block else scores[i, t, own].mean().item()
                for b, block in enumerate(_blocks(size)):
                    if b not in _first(worth, number):
                        seen[i, t, list(block)] = False
        weights = _rows(scores, seen)
        return _output(layer, weights, values), weights

    _holds(layer, loop, kind)


def test_all_blocks_are_multi_head_attention():
    plain = _plain()
    layer = variants.MixtureOfBlocks(D, H, bias=True, block_size=2, num_chosen=4)
    layer.load_state_dict(plain.state_dict())
    _same(layer, plain)


@pytest.mark.parametrize(("kind", "num_kv_heads"), [("none", 2), ("causal", 2), ("causal", H), ("heads", H)])
def test_native_sparse_attention_is_the_loop(kind, num_kv_heads):
    """With values by the block's mean, as the paper says it, and not by the layer's map. (Where heads that share keys
    have masks of their own, two of them may see one block each: a tie.)"""
    size, number, window, group = 2, 2, 2, H // num_kv_heads
    layer = variants.NativeSparseAttention(
        D, H, bias=True, block_size=size, num_chosen=number, window=window, num_kv_heads=num_kv_heads
    )
    layer = _shaken_layer(layer)

    def loop(x, y, mask):
        q = layer.W_q(x).unflatten(-1, (H, -1)).transpose(0, 1)
        k, v = (
            projection(y).unflatten(-1, (num_kv_heads, -1)).transpose(0, 1).repeat_interleave(group, 0)
            for projection in (layer.W_k, layer.W_v)
        )
        d = q.shape[-1]
        gates = layer.W_gate(x).sigmoid().unflatten(-1, (3, H))
        blocks = [block for block in _blocks(size) if len(block) == size]
        whole = torch.tensor([[[bool(mask[i, t, list(b)].all()) for b in blocks] for t in range(Q)] for i in range(H)])
        means = [torch.stack([x[:, list(b)].mean(1) for b in blocks], 1) for x in (k, v)]
        of_blocks = _rows(q @ means[0].mT * d**-0.5, whole)
        compressed = of_blocks @ means[1]
        seen, near = mask.clone(), mask.clone()
        for i in range(H):
            heads = range(i // group * group, (i // group + 1) * group)
            for t in range(Q):
                worth = {
                    b: sum(of_blocks[j, t, b].item() for j in heads)
                    for b in range(len(blocks))
                    if any(whole[j, t, b] for j in heads)
                }
                worth[_place(t) // size] = float("inf")
                kept = _first(worth, number)
                for s in range(K):
                    seen[i, t, s] &= s // size in kept
                    near[i, t, s] &= abs(s - _place(t)) < window
        scores = q @ k.mT * d**-0.5
        chosen, windowed = _rows(scores, seen), _rows(scores, near)
        found = [gates[:, n].T[..., None] * one for n, one in enumerate((compressed, chosen @ v, windowed @ v))]
        output = layer.W_o(sum(found).transpose(0, 1).flatten(1))
        spread = torch.zeros_like(scores)
        for b, block in enumerate(blocks):
            spread[..., list(block)] = of_blocks[..., [b]] / size
        maps = (gates[:, n].T[..., None] * one for n, one in enumerate((spread, chosen, windowed)))
        return output, sum(maps)

    _holds(layer, loop, kind)


def test_blocks_need_their_own_tokens():
    for kind in (variants.MixtureOfBlocks, variants.NativeSparseAttention):
        with pytest.raises(ValueError, match="blocks are for self-attention: 5 queries, but 3 keys"):
            kind(D, H)(torch.randn(B, 5, D), torch.randn(B, 3, D), torch.randn(B, 3, D))


def test_a_window_does_not_move_the_blocks():
    torch.manual_seed(0)
    gpt = GPT(11, 16, 4, 2, 16, window=5, attention={"name": "blocks", "block_size": 3, "num_chosen": 2}).eval()
    ids, caches = torch.randint(11, (2, 12)), None
    with torch.no_grad():
        whole, caches = gpt(ids)[0], gpt.new_caches()
        parts = [gpt(ids[:, t : t + 1], caches=caches)[0] for t in range(12)]
    torch.testing.assert_close(torch.cat(parts, 1), whole, **EXACT)


# an indexer


@MASKS
def test_an_index_is_its_loop_and_hides_what_it_does_not_choose(kind):
    layer = _shaken_layer(variants.IndexedAttention(D, H, num_chosen=3, index_heads=8, index_size=5))
    dense = variants.LatentAttention(D, H)
    dense.load_state_dict(layer.state_dict(), strict=False)
    x, y = torch.randn(B, Q, D), torch.randn(B, K, D)
    mask, _ = _mask(kind)
    seen = torch.zeros_like(mask)
    for b in range(B):
        key = layer.index_norm(layer.index_k(y[b])).detach()
        for t in range(Q):
            q, w = layer.index_q(x[b, t]).detach().view(8, 5), layer.index_weights(x[b, t]).detach()
            index = [sum(w[a] * max(0.0, float(q[a] @ key[s])) for a in range(8)) / (5 * 8) ** 0.5 for s in range(K)]
            for i in range(H):
                kept = _first({s: float(index[s]) for s in range(K) if mask[b, i, t, s]}, 3)
                seen[b, i, t, list(kept)] = True
            assert len({float(one) for one in index}) == K  # no ties at 0
    for absorbed in (False, True):
        layer.absorbed = dense.absorbed = absorbed
        torch.testing.assert_close(layer(x, y, y, mask=mask), dense(x, y, y, mask=seen), **EXACT)


@pytest.mark.parametrize("num_chosen", [2, 4])
def test_the_indexer_is_deepseek_s(library, num_chosen):  # noqa: F811
    width, heads, d = elsewhere.D, elsewhere.H, elsewhere.d
    x, latent, r, v = torch.randn(elsewhere.B, elsewhere.N, width), 11, 4, 9
    layer = variants.IndexedAttention(
        width,
        heads,
        num_chosen=num_chosen,
        index_heads=3,
        index_size=6,
        head_dim=d,
        value_dim=v,
        latent_size=latent,
        rotary_size=r,
        query_latent_size=13,
        positions="rotary",
        rotary_base=BASE,
    )
    layer = _shaken(layer)
    weights = _linears(kv_a_layernorm=layer.norm, o_proj=layer.W_o)
    weights |= _linears(q_a_proj=layer.W_q[0], q_a_layernorm=layer.W_q[1], q_b_proj=layer.W_q[2])
    weights["kv_a_proj_with_mqa.weight"] = torch.cat([layer.W_down.weight, layer.W_rotary.weight]).detach()
    up = [projection.weight.unflatten(0, (heads, -1)) for projection in (layer.W_up_k, layer.W_up_v)]
    weights["kv_b_proj.weight"] = torch.cat(up, 1).flatten(0, 1).detach()
    own = {"wq_b": layer.index_q, "wk": layer.index_k, "k_norm": layer.index_norm, "weights_proj": layer.index_weights}
    weights |= _linears(**{f"indexer.{name}": part for name, part in own.items()})
    sizes = {"q_lora_rank": 13, "kv_lora_rank": latent, "qk_rope_head_dim": r, "qk_nope_head_dim": d, "v_head_dim": v}
    twin = Twin(
        library,
        "DeepseekV32",
        "deepseek_v32",
        weights,
        num_key_value_heads=heads,
        num_hidden_layers=1,
        index_topk=num_chosen,
        index_head_dim=6,
        index_n_heads=3,
        **sizes,
    )
    for layer.absorbed in (False, True):
        _agree(layer(x, x, x, mask=Band()), twin(x), library.close)
        _agree_in_steps(layer, twin, x, library.close)


def test_the_indexer_learns_where_the_heads_look_and_moves_nothing_else():
    torch.manual_seed(1)
    layer, x = variants.IndexedAttention(16, 2, num_chosen=2, index_heads=2, index_size=8), torch.randn(4, 12, 16)
    with torch.no_grad():
        layer.W_up_k.weight.mul_(6)
    before = {name: part.clone() for name, part in layer.state_dict().items()}

    def loss():
        return layer.index_loss(x, mask=Band())

    losses = fit(layer, loss, steps=200, max_lr=0.02).losses
    assert losses[-1] < 0.5 * losses[0]
    moved = {name.split(".")[0] for name, part in layer.state_dict().items() if not torch.equal(part, before[name])}
    assert moved == set(layer.learns_apart)
    assert layer.num_chosen == 2


def test_what_is_read_for_a_token_is_counted():
    few, all_of_it = (variants.IndexedAttention(64, 4, num_chosen=n, index_size=8) for n in (10, None))
    assert (few.numbers_read(1000), all_of_it.numbers_read(5)) == (1000 * 8 + 10 * 32, 5 * 8 + 5 * 32)
    blocks = variants.MixtureOfBlocks(64, 4, block_size=10, num_chosen=3)
    assert blocks.numbers_read(1000) == 4 * (99 * 16 + 30 * 32)
    three = variants.NativeSparseAttention(64, 4, block_size=10, num_chosen=3, window=20, num_kv_heads=2)
    assert three.numbers_read(1000) == 2 * 32 * (100 + 30 + 20)


# keys of another layer


def test_what_a_layer_reads_must_have_been_made():
    layer, x = variants.CrossLayerAttention(D, H, makes_keys=False), torch.randn(B, 3, D)
    with pytest.raises(ValueError, match="none has made any"):
        layer(x, x, x)


def test_the_upper_half_of_a_model_may_read_what_one_layer_made():
    """As in YOCO: windows below; then one layer makes keys for all above it."""
    torch.manual_seed(0)
    kinds = [{"name": "cross-layer", "makes_keys": makes} for makes in (True, True, True, False)]
    gpt = GPT(11, 16, 4, 4, 16, attention=kinds, window=[3, 3, None, None], positions="rotary").eval()
    ids, parts = torch.randint(11, (2, 9)), []
    caches = gpt.new_caches()
    with torch.no_grad():
        for t in range(9):
            parts.append(gpt(ids[:, t : t + 1], caches=caches)[0])
    torch.testing.assert_close(torch.cat(parts, 1), gpt(ids)[0], **EXACT)
    assert [cache.num_bytes // (2 * 2 * 16 * 8) for cache in caches] == [2, 2, 9, 0]
