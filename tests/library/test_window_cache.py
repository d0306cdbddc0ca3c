"""What a cache takes back, and what one keeps of a window and of the first tokens: equal to masks over all of it."""

import re

import pytest
import torch

from mhalib.attention import KINDS, KeyValueCache, QuantisedCache, StateCache, WindowCache, causal_mask, make_attention
from mhalib.models import GPT

CLOSE = {"atol": 1e-5, "rtol": 1e-4}
SETTINGS = {"sparse": {"window": 3}, "latent": {"latent_size": 5}, "mixture": {"num_shared": 1, "num_chosen": 2}}


def _gpt(**described):
    torch.manual_seed(0)
    return GPT(11, 12, 3, 2, 20, **{"positions": "rotary", "max_tokens": 60, **described}).eval()


@torch.no_grad()
def _over_all(model, ids, window, sinks, is_real=None):
    """The plain way: all keys, and a mask. Logits (B, N, V), and the mask."""
    i = torch.arange(ids.shape[1])
    mask = (i[:, None] >= i) & ((i[:, None] - i < window) | (i < sinks))
    mask = mask if is_real is None else mask & is_real[:, None, None]
    return model.read_out(model.decoder(model.tokens(ids), mask=mask)[0]), mask


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("sinks", [0, 1, 4])
@pytest.mark.parametrize("window", [1, 6, 50])
@pytest.mark.parametrize(
    "sizes", [(1,) * 40, (40,), (9, 1, 1, 20, 1, 1, 7), (2, 1) * 13 + (1,), (7,) * 5 + (5,)], ids=len
)
def test_a_window_with_sinks_is_a_mask_over_all(window, sinks, sizes, grad):
    model, ids = _gpt(), torch.randint(11, (2, 40))
    caches = [WindowCache(window, sinks=sinks) for _ in range(2)]
    with torch.set_grad_enabled(grad):
        found = torch.cat([model(part, caches=caches)[0] for part in ids.split(list(sizes), 1)], 1)
    torch.testing.assert_close(found, _over_all(model, ids, window, sinks)[0], **CLOSE)
    held = min(40, window - 1 + sinks)
    for cache in caches:
        assert (len(cache), cache.num_held) == (40, held)
        assert cache.held[0].shape == (2, 3, held, 4)
        assert cache.num_bytes == 2 * held * 2 * 12 * 4
        assert cache.num_bytes_taken <= 2 * (sinks + window + max(8, window // 8)) * 2 * 12 * 4


def test_weights_say_which_tokens_were_dropped():
    model, ids = _gpt(), torch.randint(11, (2, 20))
    caches = [WindowCache(4, sinks=2) for _ in range(2)]
    with torch.no_grad():
        model(ids[:, :19], caches=caches)
        weights = model(ids[:, 19:], caches=caches, need_weights=True)[1]["decoder self"]
    seen = _over_all(model, ids, 4, 2)[1][19]
    for one in weights:
        assert one.shape == (2, 3, 1, 20)
        assert ((one > 0) == seen).all()


def test_a_large_window_takes_an_eighth_more_than_it_holds():
    """Of a layer like Mistral's, at a sixteenth of its width: 4,095 of 32,768 tokens."""
    cache, all_of_it = WindowCache(4096), KeyValueCache()
    k = torch.zeros(1, 1, 32_768, 8)
    with torch.no_grad():
        for part in k.split(1024, 2):
            cache.append(part, part)
        all_of_it.append(k, k)
    assert cache.num_bytes * 32_768 == all_of_it.num_bytes * 4095
    assert cache.num_bytes_taken * 8 == all_of_it.num_bytes * 9 / 8
    with torch.no_grad():
        moved = set()
        for _ in range(1100):
            moved.add(cache.append(k[:, :, :1], k[:, :, :1])[0].untyped_storage().data_ptr())
    assert len(moved) <= 4  # 512 steps for each move
    assert cache.num_bytes_taken * 8 == all_of_it.num_bytes * 9 / 8


def test_what_padding_hides_stays_hidden():
    model, ids = _gpt(), torch.randint(11, (2, 20))
    is_real = torch.ones(2, 20, dtype=torch.bool)
    is_real[1, 15:] = False
    caches = [WindowCache(4, sinks=2) for _ in range(2)]
    with torch.no_grad():
        parts = [model(ids[:, n : n + 2], is_real=is_real[:, : n + 2], caches=caches)[0] for n in range(0, 20, 2)]
    expected = _over_all(model, ids, 4, 2, is_real)[0]
    torch.testing.assert_close(torch.cat(parts, 1)[is_real], expected[is_real], **CLOSE)


@pytest.mark.parametrize("name", sorted(KINDS))
def test_what_was_taken_back_might_never_have_been(name):
    """Every kind, not as it begins: tokens, wrong ones, taken back, and the right ones give what the right ones give.
    States refuse, and what keeps only the latest scores."""
    torch.manual_seed(0)
    if name.startswith("a test's") or name == "handing":
        pytest.skip("not a kind of the library")
    layer = make_attention({"name": name, **SETTINGS.get(name, {})}, 12, 3).eval()
    x, cache = torch.randn(2, 9, 12), layer.new_cache()
    outputs = []
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
        for start, stop in ((0, 4), (4, 5), (5, 9)):
            for new in (torch.randn(2, 3, 12), x[:, start:stop]):
                mask = causal_mask(new.shape[1], start + new.shape[1], offset=start)
                output, _ = layer(new, new, new, mask=mask, need_weights=False, cache=cache)
                if new.shape[1] == 3 and (layer.keeps_state or name == "multi-token"):
                    with pytest.raises(TypeError, match="cannot forget the last 3 tokens"):
                        cache.crop(start)
                    return
                if new is not x[:, start:stop] and new.shape[1] == 3:
                    cache.crop(start)
                else:
                    outputs.append(output)
        whole, _ = layer(x, x, x, mask=causal_mask(9))
    torch.testing.assert_close(torch.cat(outputs, 1), whole, **CLOSE)
    assert len(cache) == 9


@pytest.mark.parametrize(
    "make", [KeyValueCache, QuantisedCache, lambda: WindowCache(5), lambda: WindowCache(5, sinks=2)]
)
def test_a_cropped_cache_goes_on(make):
    torch.manual_seed(0)
    k, v = torch.randn(2, 3, 30, 4), torch.randn(2, 3, 30, 5)
    cropped, plain = make(), make()
    with torch.no_grad():
        for n in range(0, 30, 2):
            wrong = torch.randn(2, 3, 3, 4), torch.randn(2, 3, 3, 5)
            cropped.append(*wrong)
            cropped.crop(n)
            found = cropped.append(k[:, :, n : n + 2], v[:, :, n : n + 2])
            expected = plain.append(k[:, :, n : n + 2], v[:, :, n : n + 2])
            for one, other in zip(found, expected, strict=True):
                assert torch.equal(one, other)
    assert cropped.num_bytes == plain.num_bytes


def test_gradients_are_not_written_over():
    cache, k = KeyValueCache(), torch.randn(1, 1, 4, 3, requires_grad=True)
    (held,) = cache.append(k * 2)
    loss = held.square().sum()
    cache.crop(2)
    with torch.no_grad():
        cache.append(torch.ones(1, 1, 1, 3))
    loss.backward()
    torch.testing.assert_close(k.grad, 8 * k.detach())


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: KeyValueCache().crop(1), ValueError, "num_tokens=1, but the cache holds 0"),
        (lambda: KeyValueCache().crop(-1), ValueError, "num_tokens=-1 must be at least 0"),
        (lambda: KeyValueCache().crop(1.0), TypeError, "num_tokens must be an integer"),
        (lambda: StateCache().crop(1), ValueError, "num_tokens=1, but the cache holds 0"),
        (lambda: WindowCache(0), ValueError, "window=0 must be at least 1"),
        (lambda: WindowCache(3, sinks=-1), ValueError, "sinks=-1 must be at least 0"),
        (lambda: WindowCache(3).append(torch.zeros(1, 1, 2, 3), torch.zeros(1, 1, 1, 3)), ValueError, "one of each"),
    ],
)
def test_wrong_calls_are_told(call, error, message):
    with pytest.raises(error, match=re.escape(message)):
        call()


def test_a_window_does_not_take_back_what_it_has_dropped():
    cache = WindowCache(4, sinks=1)
    with torch.no_grad():
        cache.append(torch.zeros(1, 1, 100, 2))
    with pytest.raises(ValueError, match=re.escape("num_tokens=90, but of what these would see the cache has dropped")):
        cache.crop(90)
    with torch.no_grad():
        cache.append(torch.zeros(1, 1, 3, 2))
    cache.crop(100)
    assert (len(cache), cache.num_held) == (100, 4)
