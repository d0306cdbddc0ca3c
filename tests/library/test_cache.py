"""The key/value cache: with it and without it, a layer and a model say the same, and project each token once."""

import re
from contextlib import contextmanager

import pytest
import torch

from mhalib import KeyValueCache, MultiHeadAttention, causal_mask
from mhalib.attention import Band, QuantisedCache, attend, kernels, make_attention
from mhalib.attention.kernels import fused
from mhalib.bench import peak_bytes
from mhalib.models import GPT, Captioner, DecoderCache, DecoderLayer, EncoderLayer, Transformer

CHUNKS = [(1, 1, 1, 1, 1, 1, 1), (7,), (3, 4), (2, 1, 4), (5, 1, 1)]  # all of 7 tokens
CLOSE = {"rtol": 0, "atol": 1e-6}


def _pieces(x, chunks):
    return torch.split(x, list(chunks), dim=1)


def _masked(num_new, cache):
    start = len(cache)
    return causal_mask(num_new, start + num_new, offset=start)


@contextmanager
def _counted(linear):
    """How many tokens pass through `linear`, in a list of one number per call."""
    tokens = []
    hook = linear.register_forward_hook(lambda _, inputs, __: tokens.append(inputs[0].shape[1]))
    try:
        yield tokens
    finally:
        hook.remove()


def test_a_cache_holds_what_it_was_given():
    torch.manual_seed(0)
    k, v = torch.randn(2, 3, 7, 5), torch.randn(2, 3, 7, 4)
    cache = KeyValueCache()
    assert len(cache) == 0
    cache.append(k[:, :, :2], v[:, :, :2])
    assert len(cache) == 2
    all_k, all_v = cache.append(k[:, :, 2:], v[:, :, 2:])
    assert len(cache) == 7
    assert torch.equal(all_k, k)
    assert torch.equal(all_v, v)


@pytest.mark.parametrize("rows", [[1, 0], [1, 1, 0, 1], [0]])
def test_reorder_picks_examples(rows):
    torch.manual_seed(0)
    k, v = torch.randn(2, 3, 7, 5), torch.randn(2, 3, 7, 4)
    cache = KeyValueCache()
    cache.append(k, v)
    cache.reorder(torch.tensor(rows))
    for place, row in enumerate(rows):
        assert torch.equal(cache.held[0][place], k[row])
        assert torch.equal(cache.held[1][place], v[row])


def test_reorder_of_an_empty_cache_does_nothing():
    cache = KeyValueCache()
    cache.reorder(torch.tensor([0, 0]))
    assert len(cache) == 0


@pytest.mark.parametrize(
    ("k", "v", "message"),
    [
        (
            (5, 3, 1, 5),
            (5, 3, 1, 4),
            "shapes [(5, 3, 1, 5), (5, 3, 1, 4)], but the cache holds [(2, 3, 7, 5), (",
        ),
        (
            (2, 1, 1, 5),
            (2, 1, 1, 4),
            "shapes [(2, 1, 1, 5), (2, 1, 1, 4)], but the cache holds [(2, 3, 7, 5), (",
        ),
        (
            (2, 3, 1, 6),
            (2, 3, 1, 4),
            "shapes [(2, 3, 1, 6), (2, 3, 1, 4)], but the cache holds [(2, 3, 7, 5), (",
        ),
        (
            (2, 3, 1, 5),
            (2, 3, 1, 6),
            "shapes [(2, 3, 1, 5), (2, 3, 1, 6)], but the cache holds [(2, 3, 7, 5), (",
        ),
    ],
)
def test_another_batch_or_layer_is_refused(k, v, message):
    cache = KeyValueCache()
    cache.append(torch.zeros(2, 3, 7, 5), torch.zeros(2, 3, 7, 4))
    with pytest.raises(ValueError, match=re.escape(message)):
        cache.append(torch.zeros(k), torch.zeros(v))
    assert len(cache) == 7


@pytest.mark.parametrize("chunks", CHUNKS)
@pytest.mark.parametrize("positions", ["none", "rotary"])
@pytest.mark.parametrize("need_weights", [True, False])
def test_attention_in_pieces_is_attention_at_once(positions, chunks, need_weights, device):
    torch.manual_seed(0)
    layer = MultiHeadAttention(12, 3, bias=True, positions=positions).to(device)
    x = torch.randn(2, 7, 12, device=device)
    whole, whole_weights = layer(x, x, x, mask=causal_mask(7, device=device))
    cache, outputs = KeyValueCache(), []
    for new in _pieces(x, chunks):
        mask = _masked(new.shape[1], cache).to(device)
        start = len(cache)
        output, weights = layer(new, new, new, mask=mask, need_weights=need_weights, cache=cache)
        outputs.append(output)
        if need_weights:
            stop = len(cache)
            torch.testing.assert_close(weights, whole_weights[:, :, start:stop, :stop], **CLOSE)
    torch.testing.assert_close(torch.cat(outputs, 1), whole, **CLOSE)


def test_attention_checks_the_mask_against_the_cache_too():
    layer, cache, x = MultiHeadAttention(12, 3), KeyValueCache(), torch.zeros(1, 2, 12)
    layer(x, x, x, cache=cache)
    with pytest.raises(ValueError, match=re.escape("does not broadcast to (1, 3, 2, 4)")):
        layer(x, x, x, mask=causal_mask(2, 3), cache=cache)


@pytest.mark.parametrize("chunks", CHUNKS)
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("positions", ["none", "rotary"])
def test_layers_in_pieces_are_layers_at_once(norm, positions, chunks):
    torch.manual_seed(0)
    encoder = EncoderLayer(12, 3, 20, norm=norm, positions=positions).eval()
    decoder = DecoderLayer(12, 3, 20, norm=norm, positions=positions).eval()
    x, memory, lens = torch.randn(2, 7, 12), torch.randn(2, 5, 12), torch.tensor([5, 3])
    own, both = KeyValueCache(), DecoderCache(KeyValueCache(), KeyValueCache())
    encoded, decoded = [], []
    for new in _pieces(x, chunks):
        encoded.append(encoder(new, mask=_masked(new.shape[1], own), cache=own)[0])
        decoded.append(decoder(new, memory, lens, mask=_masked(new.shape[1], both.own), cache=both)[0])
    torch.testing.assert_close(torch.cat(encoded, 1), encoder(x, mask=causal_mask(7))[0], **CLOSE)
    torch.testing.assert_close(torch.cat(decoded, 1), decoder(x, memory, lens, mask=causal_mask(7))[0], **CLOSE)
    assert (len(own), len(both.own), len(both.memory)) == (7, 7, 5)


def test_each_token_is_projected_once_and_the_memory_once_in_all():
    torch.manual_seed(0)
    layer = DecoderLayer(12, 3, 20)
    x, memory = torch.randn(2, 7, 12), torch.randn(2, 5, 12)
    cache = DecoderCache(KeyValueCache(), KeyValueCache())
    with _counted(layer.attention.W_k) as own, _counted(layer.cross_attention.W_k) as seen:
        for new in _pieces(x, (3, 1, 1, 2)):
            layer(new, memory, mask=_masked(new.shape[1], cache.own), cache=cache)
    assert own == [3, 1, 1, 2]
    assert seen == [5, 0, 0, 0]


@pytest.mark.parametrize("chunks", CHUNKS)
@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "rotary"])
def test_gpt_in_pieces_is_gpt_at_once(positions, chunks):
    torch.manual_seed(0)
    model = GPT(11, 12, 3, 2, 20, max_tokens=7, positions=positions).eval()
    tokens = torch.randint(11, (2, 7))
    caches = model.new_caches()
    logits = torch.cat([model(new, caches=caches)[0] for new in _pieces(tokens, chunks)], 1)
    torch.testing.assert_close(logits, model(tokens)[0], **CLOSE)


@pytest.mark.parametrize("chunks", CHUNKS)
@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "rotary"])
def test_decoding_in_pieces_is_decoding_at_once(positions, chunks):
    torch.manual_seed(0)
    model = Transformer(11, 13, 12, 3, 2, 20, positions=positions).eval()
    source, target, lens = torch.randint(11, (2, 5)), torch.randint(13, (2, 7)), torch.tensor([5, 3])
    memory, _ = model.encode(source, lens)
    caches = model.new_caches()
    logits = [model.decode(new, memory, lens, caches=caches)[0] for new in _pieces(target, chunks)]
    torch.testing.assert_close(torch.cat(logits, 1), model(source, target, lens)[0], **CLOSE)


def test_a_captioner_in_pieces_is_a_captioner_at_once():
    torch.manual_seed(0)
    model = Captioner(11, 4, 8, 4, 12, 3, 1, 20).eval()
    images, target = torch.rand(2, 4, 8), torch.randint(11, (2, 7))
    memory, _ = model.encode(images)
    caches = model.new_caches()
    logits = [model.decode(new, memory, caches=caches)[0] for new in _pieces(target, (3, 4))]
    torch.testing.assert_close(torch.cat(logits, 1), model(images, target)[0], **CLOSE)


def test_memory_taken_ahead_is_used_and_doubled_when_full():
    cache, places = KeyValueCache(max_tokens=4), set()
    for number in range(9):
        with torch.no_grad():
            k, v = cache.append(torch.full((2, 3, 1, 5), float(number)), torch.full((2, 3, 1, 4), float(number)))
        places.add(k.data_ptr())
        assert torch.equal(k[0, 0, :, 0], torch.arange(number + 1.0))
        assert torch.equal(v[1, 2, :, 3], torch.arange(number + 1.0))
        assert cache.num_bytes == 2 * 3 * (number + 1) * (5 + 4) * 4
    assert len(places) == 3  # for 4, 8 and 16 tokens, and no copy in between


def test_gradients_flow_through_a_cache():
    torch.manual_seed(0)
    layer, x = MultiHeadAttention(12, 3), torch.randn(2, 5, 12)
    whole, _ = layer(x, x, x, mask=causal_mask(5))
    whole.square().sum().backward()
    wanted = [parameter.grad.clone() for parameter in layer.parameters()]
    layer.zero_grad()
    cache = layer.new_cache()
    parts = [layer(new, new, new, mask=_masked(new.shape[1], cache), cache=cache)[0] for new in _pieces(x, (2, 1, 2))]
    torch.cat(parts, 1).square().sum().backward()
    torch.testing.assert_close([parameter.grad for parameter in layer.parameters()], wanted, **CLOSE)


def test_a_token_without_its_value_is_refused():
    cache = KeyValueCache()
    with pytest.raises(ValueError, match=re.escape("a token has one of each: got [3, 2] of them")):
        cache.append(torch.zeros(1, 2, 3, 4), torch.zeros(1, 2, 2, 4))
    assert len(cache) == 0


def test_what_is_taken_is_counted_apart_from_what_is_held():
    cache = KeyValueCache(max_tokens=4)
    assert cache.num_bytes_taken == 0
    with torch.no_grad():
        cache.append(torch.zeros(2, 3, 3, 5), torch.zeros(2, 3, 3, 4))
        assert (cache.num_bytes, cache.num_bytes_taken) == (2 * 3 * 3 * 9 * 4, 2 * 3 * 4 * 9 * 4)
        cache.append(torch.zeros(2, 3, 2, 5), torch.zeros(2, 3, 2, 4))  # 5 tokens do not fit: twice 3
    assert (cache.num_bytes, cache.num_bytes_taken) == (2 * 3 * 5 * 9 * 4, 2 * 3 * 6 * 9 * 4)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_a_quantised_vector_is_off_by_half_its_scale_at_most(dtype):
    torch.manual_seed(0)
    sizes = torch.logspace(-2, 1, 7)[:, None]  # each token on a scale of its own
    k, v = (torch.randn(2, 3, 7, 5) * sizes).to(dtype), (torch.randn(2, 3, 7, 4) * sizes).to(dtype)
    cache = QuantisedCache()
    for found, x in zip(cache.append(k, v), (k, v), strict=True):
        assert found.dtype == dtype
        largest = x.double().abs().amax(-1, keepdim=True)
        off = (found.double() - x.double()).abs()
        rounding = 1.5 * torch.finfo(dtype).eps  # of the scale and of the product
        assert bool((off <= largest * (0.5 / 127 + rounding)).all())
        assert off.max() > 0
    codes_k, codes_v, scales_k, scales_v = cache.held
    assert codes_k.dtype == codes_v.dtype == torch.int8
    assert scales_k.shape == scales_v.shape == (2, 3, 7, 1)
    assert bool((codes_k.abs().amax(-1) == 127).all())
    assert cache.num_bytes == 2 * 3 * 7 * (5 + 4 + 2 * k.element_size())


@pytest.mark.parametrize(
    ("dtype", "share"), [(torch.float64, 0.5), (torch.float32, 0.5001), (torch.bfloat16, 1.0), (torch.float16, 0.6)]
)
def test_small_vectors_lose_no_more_of_the_scale_that_is_held(dtype, share):
    """Down to the smallest number of float16, 6e-8, where a scale is rounded to a whole number of these."""
    torch.manual_seed(0)
    sizes = torch.logspace(-8, 0, 400, dtype=torch.float64)[:, None]
    x = (2 * torch.rand(3, 1, 400, 16, dtype=torch.float64) - 1).mul_(sizes).to(dtype)
    cache = QuantisedCache()
    found, _ = cache.append(x, x)
    scales = cache.held[2]
    assert scales.dtype == dtype
    assert bool(((found.double() - x.double()).abs() <= share * scales.double()).all())
    assert bool((scales == 0).eq((x == 0).all(-1, keepdim=True)).all())
    held = (127 * scales.double() <= 1.01 * x.double().abs().amax(-1, keepdim=True) + 127 * 6e-8).all()
    assert bool(held)  # and no larger than needed


def test_room_for_codes_and_scales_is_counted():
    cache = QuantisedCache(max_tokens=4)
    with torch.no_grad():
        cache.append(torch.ones(2, 3, 3, 5), torch.ones(2, 3, 3, 4))
    each = 2 * 3 * (5 + 4 + 2 * 4)  # two codes and two scales of a token
    assert (cache.num_bytes, cache.num_bytes_taken) == (3 * each, 4 * each)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_the_largest_number_stays_finite(dtype):
    largest = torch.finfo(dtype).max
    k, _ = QuantisedCache().append(torch.tensor([[[[largest, -largest]]]], dtype=dtype), torch.ones(1, 1, 1, 2))
    assert bool(k.isfinite().all())
    torch.testing.assert_close(k.double() / largest, torch.tensor([[[[1.0, -1.0]]]]).double(), rtol=0, atol=0.01)


def test_vectors_without_numbers_have_no_scale():
    with pytest.raises(ValueError, match=re.escape("new has shape (1, 1, 2, 0)")):
        QuantisedCache().append(torch.zeros(1, 1, 2, 0), torch.zeros(1, 1, 2, 3))


def test_zeros_are_kept_as_zeros():
    cache = QuantisedCache()
    k, v = cache.append(torch.zeros(1, 1, 2, 3), torch.tensor([[[[0.0, 0.0], [0.0, 127.0]]]]))
    assert torch.equal(k, torch.zeros(1, 1, 2, 3))
    assert torch.equal(v[0, 0], torch.tensor([[0.0, 0.0], [0.0, 127.0]]))


@pytest.mark.parametrize("chunks", CHUNKS)
@pytest.mark.parametrize("max_tokens", [0, 4])
def test_a_quantised_cache_says_the_same_however_it_grew(chunks, max_tokens):
    torch.manual_seed(0)
    k, v = torch.randn(2, 3, 7, 5), torch.randn(2, 3, 7, 4)
    at_once = QuantisedCache().append(k, v)
    cache = QuantisedCache(max_tokens)
    for part in zip(k.split(list(chunks), 2), v.split(list(chunks), 2), strict=True):
        found = cache.append(*part)
    assert len(cache) == 7
    for one, other in zip(found, at_once, strict=True):
        assert torch.equal(one, other)
    assert cache.num_bytes_taken >= cache.num_bytes
    cache.reorder(torch.tensor([1, 1, 0]))
    none = torch.zeros(3, 3, 0, 5), torch.zeros(3, 3, 0, 4)
    for one, other in zip(cache.append(*none), at_once, strict=True):
        assert torch.equal(one, other[[1, 1, 0]])


@pytest.mark.parametrize(
    "attention",
    ["multi-head", {"name": "multi-head", "num_kv_heads": 1}, "latent", "collaborative", "overlapping", "gated"],
)
def test_a_model_writes_on_with_a_quantised_cache(attention):
    torch.manual_seed(0)
    model = GPT(11, 12, 3, 2, 20, positions="rotary" if attention != "collaborative" else "sinusoidal").eval()
    if attention != "multi-head":
        model = GPT(11, 12, 3, 2, 20, positions="sinusoidal", attention=attention).eval()
    tokens = torch.randint(11, (2, 7))
    with torch.no_grad():
        whole, _ = model(tokens)
        caches = [QuantisedCache() for _ in range(2)]
        logits = torch.cat([model(new, caches=caches)[0] for new in _pieces(tokens, (3, 1, 1, 2))], 1)
        plain = model.new_caches()
        model(tokens, caches=plain)
    assert 0 < (logits - whole).abs().max() < 0.05 * whole.abs().max()
    assert sum(one.num_bytes for one in caches) < sum(one.num_bytes for one in plain)


def test_no_gradient_passes_a_quantised_cache_and_integers_are_refused():
    k = torch.randn(1, 1, 2, 3, requires_grad=True)
    assert not any(part.requires_grad for part in QuantisedCache().append(k, k))
    cache = QuantisedCache()
    with pytest.raises(TypeError, match=re.escape("new must hold floating-point numbers, got torch.int64")):
        cache.append(torch.zeros(1, 1, 2, 3), torch.zeros(1, 1, 2, 3, dtype=torch.long))
    assert len(cache) == 0
    with pytest.raises(ValueError, match="a token has one of each"):
        cache.append(torch.zeros(1, 2, 3, 4), torch.zeros(1, 2, 2, 4))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("num_heads", "num_kv_heads", "num_threads", "products"),
    [(6, 2, 1, 2), (6, 3, 1, 3), (6, 1, 1, 1), (5, 1, 2, 1), (6, 1, 3, 2), (6, 1, 5, 3), (6, 2, 7, 6), (5, 1, 64, 5)],
)
def test_one_query_of_heads_that_share_keys_reads_them_as_rows(
    num_heads, num_kv_heads, num_threads, products, masked, device, monkeypatch
):
    """The fused kernel gets one product for each key, or as many as keep the threads of a CPU at work for two examples,
    and says what the path with weights says."""
    products = products if device.type == "cpu" else num_kv_heads
    torch.manual_seed(0)
    layer = MultiHeadAttention(30, num_heads, num_kv_heads=num_kv_heads).to(device)
    x, new = torch.randn(2, 7, 30, device=device), torch.randn(2, 1, 30, device=device)
    one, other = layer.new_cache(), layer.new_cache()
    given = {"valid_lens": torch.tensor([8, 3], device=device)} if masked else {}
    seen = []
    kernel = torch.nn.functional.scaled_dot_product_attention
    for cache in (one, other):
        layer(x, x, x, cache=cache)
    expected, _ = layer(new, new, new, cache=one, **given)
    monkeypatch.setattr(torch, "get_num_threads", lambda: num_threads)
    monkeypatch.setattr(
        torch.nn.functional,
        "scaled_dot_product_attention",
        lambda q, k, v, **rest: seen.append((q.shape[1:3], k.shape[1], rest["enable_gqa"])) or kernel(q, k, v, **rest),
    )
    found, _ = layer(new, new, new, cache=other, need_weights=False, **given)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    assert seen == [((products, num_heads // products), num_kv_heads, products != num_kv_heads)]


def test_one_query_has_a_mask_for_each_head():
    torch.manual_seed(0)
    layer = MultiHeadAttention(30, 6, num_kv_heads=2)
    x, new = torch.randn(2, 7, 30), torch.randn(2, 1, 30)
    mask = torch.rand(2, 6, 1, 7) < 0.5
    mask[..., 0] = True
    found, _ = layer(new, x, x, mask=mask, need_weights=False)
    torch.testing.assert_close(found, layer(new, x, x, mask=mask)[0], rtol=0, atol=1e-5)


def test_one_causal_query_of_heads_that_share_keys_sees_the_first_key():
    """Heads that are laid in rows are not queries one after the other."""
    q, k, v = torch.randn(2, 6, 1, 5), torch.randn(2, 2, 7, 5), torch.randn(2, 2, 7, 4)
    found = fused(q, k, v, None, 0.0, None, is_causal=True)
    torch.testing.assert_close(found, v[:, :, :1].repeat_interleave(3, 1), rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_step_with_weights_copies_nothing_that_is_held(dtype):
    layer = MultiHeadAttention(64, 4).to(dtype).eval()
    cache, x = layer.new_cache(1100), torch.randn(2, 1000, 64, dtype=dtype)
    with torch.no_grad():
        layer(x, x, x, cache=cache, need_weights=False)
        one = x[:, :1]
        held = cache.num_bytes // 2  # keys alone
        assert held == x.numel() * x.element_size()
        assert peak_bytes(lambda: layer(one, one, one, cache=cache)) < held / 2


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("num_queries", [1, 3, 40])
def test_what_is_not_copied_gives_the_same_numbers(dtype, num_queries):
    torch.manual_seed(0)
    room = torch.randn(2, 3, 90, 16).to(dtype)
    q, k, v = torch.randn(2, 3, num_queries, 16).to(dtype), room[:, :, :67], room[:, :, 5:72]
    others = k.transpose(1, 2).contiguous().transpose(1, 2), v.mT.contiguous().mT  # as they come from elsewhere
    with torch.no_grad():
        expected = attend(q, k.clone(memory_format=torch.contiguous_format), v.contiguous())
        for found in (attend(q, k, v), attend(q, *others)):
            assert all(map(torch.equal, found, expected))


def test_what_a_product_would_copy_is_copied_by_rows():
    room = torch.randn(2, 3, 9, 5)
    in_rows = kernels.in_rows
    with torch.no_grad():
        for x in (room[:, :, :4], room[0, :, 2:6], room[:1], room[:, :1, :7].expand(2, 1, 7, 5)):
            assert in_rows(x) is x
        for x in (room.mT, room.transpose(1, 2), room[..., :4], room[:, :2], room[:, :1].expand(2, 3, 9, 5)):
            assert torch.equal(in_rows(x), x)
            assert in_rows(x).is_contiguous()
            assert in_rows(x) is not x
    assert in_rows(room[:, :, :4]).is_contiguous()  # autograd keeps it


@pytest.mark.parametrize("kind", ["composed", "indexed", "multi-token"])
def test_what_a_kind_keeps_beside_keys_is_counted_as_taken_and_is_missed_in_another_cache(kind):
    torch.manual_seed(0)
    layer, x = make_attention(kind, 12, 3), torch.randn(2, 5, 12)
    cache = layer.new_cache()
    with torch.no_grad():
        layer(x, x, x, mask=Band(), cache=cache)
        assert cache.num_bytes_taken >= cache.num_bytes
        for other in (KeyValueCache(), QuantisedCache()):
            with pytest.raises((TypeError, ValueError), match=f"cache.*{type(other).__name__}"):
                layer(x, x, x, mask=Band(), cache=other)


def test_a_band_that_does_not_count_what_the_cache_holds_is_refused():
    """It would hide keys of the past, and nobody would see it."""
    layer, x = MultiHeadAttention(12, 3).eval(), torch.randn(2, 5, 12)
    whole, cache = layer(x, x, x, mask=Band())[0], layer.new_cache()
    layer(x[:, :3], x[:, :3], x[:, :3], mask=Band(), cache=cache)
    new = x[:, 3:]
    for band in (Band(), Band(before=1)):
        with pytest.raises(ValueError, match=r"begins at the first of 3 cached tokens: give offset=3"):
            layer(new, new, new, mask=band, cache=cache)
    assert len(cache) == 3
    output, _ = layer(new, new, new, mask=Band(offset=3), cache=cache)
    torch.testing.assert_close(output, whole[:, 3:])
    layer(new, new, new, mask=Band(None, None), cache=cache)  # hides nothing, wherever it begins
