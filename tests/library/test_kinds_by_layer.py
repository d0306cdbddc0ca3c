"""A model has a kind of attention, a window and rotary positions for each layer, and layers hand something on."""

import re

import pytest
import torch

from mhalib import Band, attend, saved, split_heads
from mhalib.attention import KINDS, QuantisedCache, register
from mhalib.decoding import sample
from mhalib.models import BERT, GPT, Description, EncoderLayer, Transformer, recomposed
from mhalib.variants import HandsOn, RelativeAttention, SparseAttention, check_variant

CLOSE = {"atol": 1e-5, "rtol": 1e-4}
LOCAL, FAR = {"name": "sparse", "window": 3}, {"name": "multi-head", "rotary_base": 37.0}
MIXED = [LOCAL, "qk-norm", FAR]
ABOUT = saved.About("a test", ("nothing", 0.0), "none")


def _gpt(**described):
    torch.manual_seed(0)
    return GPT(11, 16, 4, 3, 8, **{"max_tokens": 40, "positions": "rotary", **described}).eval()


def _step_by_step(model, ids, sizes):
    caches, parts, start = model.new_caches(), [], 0
    with torch.no_grad():
        for size in sizes:
            parts.append(model(ids[:, start : start + size], caches=caches)[0])
            start += size
    return torch.cat(parts, 1), caches


def test_each_layer_has_the_kind_and_the_settings_that_are_listed():
    first, second, third = _gpt(attention=MIXED).decoder.self_attention
    assert (type(first), first.window) == (SparseAttention, 3)
    assert type(second) is KINDS["qk-norm"]
    assert (second.positions.base, third.positions.base) == (10000.0, 37.0)


@pytest.mark.parametrize("listed", [MIXED, tuple(MIXED)], ids=["list", "tuple"])
def test_a_model_of_several_kinds_is_read_as_it_was_written(listed, tmp_path):
    ids = torch.randint(11, (2, 5))
    gpt = _gpt(attention=listed).half().float()
    both = Transformer(11, 11, 16, 4, 3, 8, attention=listed, positions="rotary").eval().half().float()
    for model, inputs in ((gpt, (ids,)), (both, (ids, ids))):
        saved.write(model, tmp_path / "model.safetensors", ABOUT)
        again = saved.read(tmp_path / "model.safetensors")
        assert again.settings == model.settings
        assert again.settings["attention"] == MIXED
        assert torch.equal(again(*inputs)[0], model(*inputs)[0])
    kinds = [type(layer) for layer in both.attention_layers()["cross"]]
    assert kinds == [KINDS["multi-head"], KINDS["qk-norm"], KINDS["multi-head"]]  # no pattern among other tokens


def test_a_model_of_several_kinds_writes_on_with_a_cache():
    model, ids = _gpt(attention=MIXED), torch.randint(11, (2, 9))
    parts, _ = _step_by_step(model, ids, (4, 1, 1, 3))
    torch.testing.assert_close(parts, model(ids)[0], **CLOSE)


def test_parameters_are_shared_by_layers_of_one_kind_wherever_they_are():
    distances = {"name": "relative", "num_buckets": 4, "max_distance": 3}
    model = BERT(11, 16, 4, 4, 8, attention=["multi-head", distances, "qk-norm", distances])
    _, first, _, second = model.encoder.self_attention
    assert type(first) is RelativeAttention
    assert first.distance_scores is second.distance_scores
    other = {**distances, "num_buckets": 6}
    first, second = BERT(11, 16, 4, 2, 8, attention=[distances, other]).encoder.self_attention
    assert first.distance_scores.shape != second.distance_scores.shape


def test_a_model_is_recomposed_into_several_kinds():
    model = GPT(11, 16, 4, 2, 8)
    turned = recomposed(model, ["multi-head", "multi-head"], lambda layer: layer)
    ids = torch.randint(11, (2, 5))
    assert torch.equal(turned(ids)[0], model(ids)[0])
    assert turned.settings["attention"] == ["multi-head", "multi-head"]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: _gpt(attention=["multi-head"]),
            ValueError,
            "attention=['multi-head'] has 1 entries, but num_layers=3",
        ),
        (lambda: _gpt(attention=[]), ValueError, "attention=[] has 0 entries"),
        (lambda: _gpt(attention=["multi-head", "local", "qk-norm"]), ValueError, "{'name': 'local'} must name one of"),
        (lambda: _gpt(attention=["multi-head", 3, "qk-norm"]), TypeError, "must be a name or a mapping, got int: 3"),
        (
            lambda: EncoderLayer(16, 4, 8, attention=["multi-head"], layer_number=1),
            ValueError,
            "attention=['multi-head'] has no entry for layer_number=1",
        ),
        (lambda: _gpt(window=[3, None]), ValueError, "window=[3, None] has 2 entries, but num_layers=3"),
        (lambda: _gpt(window=[3, 0, 3]), ValueError, "window[1]=0 must be at least 1"),
        (lambda: Description(attention=[["multi-head"]]).self_attention(), TypeError, "got list: ['multi-head']"),
    ],
)
def test_kinds_and_windows_that_do_not_fit_are_refused(call, error, message):
    with pytest.raises(error, match=re.escape(message)):
        call()


@pytest.mark.parametrize("window", [1, 3, 8, 40, [2, None, 5]], ids=str)
@pytest.mark.parametrize(
    "attention", ["multi-head", {"name": "multi-head", "num_kv_heads": 2}, "latent", MIXED], ids=str
)
@pytest.mark.parametrize("sizes", [(1,) * 21, (9, 1, 1, 6, 1, 1, 2), (2, 19)], ids=str)
def test_a_window_with_a_cache_is_the_window_without(window, attention, sizes):
    model, ids = _gpt(attention=attention, window=window), torch.randint(11, (2, 21))
    parts, caches = _step_by_step(model, ids, sizes)
    torch.testing.assert_close(parts, model(ids)[0], **CLOSE)
    assert [len(cache) for cache in caches] == [21] * 3


def test_a_cache_keeps_what_the_window_sees_and_no_more():
    model, ids = _gpt(window=8), torch.randint(11, (2, 30))
    _, caches = _step_by_step(model, ids, (1,) * 30)
    for cache in caches:
        assert cache.held[0].shape == (2, 4, 7, 4)
        assert cache.num_bytes == 2 * 7 * 2 * 16 * 4
        assert cache.num_bytes_taken <= 2 * 8 * 2 * 2 * 16 * 4
    _, whole = _step_by_step(_gpt(), ids, (1,) * 30)
    assert whole[0].held[0].shape == (2, 4, 30, 4)
    assert model.new_caches(1000)[0].num_bytes_taken == 0


def test_tokens_that_the_cache_has_dropped_have_weight_0():
    model, ids = _gpt(window=[2, None, 4]), torch.randint(11, (2, 9))
    caches = model.new_caches()
    model(ids[:, :8], caches=caches)
    _, found = model(ids[:, 8:], caches=caches, need_weights=True)
    _, whole = model(ids, need_weights=True)
    for one, expected in zip(found["decoder self"], whole["decoder self"], strict=True):
        torch.testing.assert_close(one, expected[:, :, 8:], **CLOSE)


def test_layers_have_windows_of_their_own():
    model, ids = _gpt(window=[1, 1, 4]), torch.randint(11, (1, 9))
    changed = ids.clone()
    changed[:, 0] = (ids[:, 0] + 1) % 11
    moved = (model(ids)[0] - model(changed)[0]).abs().amax(-1)[0] > 1e-6
    assert moved.tolist() == [True] * 4 + [False] * 5  # only the last layer looks back, at three tokens
    weights = model(ids, need_weights=True)[1]["decoder self"]
    for window, one in zip((1, 1, 4), weights, strict=True):
        assert torch.equal(one[0, 0] > 0, Band(window - 1).matrix(9))


def test_windows_padding_and_beams_go_together(tmp_path):
    model, ids = _gpt(window=[3, None, 4]), torch.randint(11, (2, 12))
    is_real = torch.ones(2, 12, dtype=torch.bool)
    is_real[1, :3] = False
    whole, _ = model(ids, is_real=is_real)
    caches = model.new_caches()
    with torch.no_grad():
        parts = [model(ids[:, :5], is_real=is_real[:, :5], caches=caches)[0]]
        for cache in caches:
            cache.reorder(torch.tensor([1, 0]))
        turned = ids.flip(0), is_real.flip(0)
        for i in range(5, 12):
            parts.append(model(turned[0][:, i : i + 1], is_real=turned[1][:, : i + 1], caches=caches)[0].flip(0))
    found = torch.cat(parts, 1)
    torch.testing.assert_close(found[is_real], whole[is_real], **CLOSE)
    saved.write(model, tmp_path / "model.safetensors", ABOUT)
    assert saved.read(tmp_path / "model.safetensors").settings["window"] == [3, None, 4]
    assert sample(model, ids[:, :5], 4, caches=[QuantisedCache() for _ in range(3)]).shape[0] == 2


class ValueResidual(HandsOn):
    """Values are half the first layer's (Zhou et al. 2024)."""

    def project(self, queries, keys, values):
        q, k, v = super().project(queries, keys, values)
        return q, k, (v + self.handed_on.setdefault("first values", v)) / 2


@pytest.fixture
def handing():
    kinds = {"value residual": ValueResidual}
    for name, kind in kinds.items():
        register(name)(kind)
    yield
    for name in kinds:
        del KINDS[name]


@pytest.mark.parametrize("kind", ["cross-layer", "value residual"])
def test_a_kind_that_hands_on_does_what_every_kind_must(kind, handing, tmp_path):
    check_variant(kind)
    model, ids = _gpt(attention=kind), torch.randint(11, (2, 9))
    parts, _ = _step_by_step(model, ids, (4, 1, 1, 3))
    torch.testing.assert_close(parts, model(ids)[0], **CLOSE)
    model = model.half().float()
    saved.write(model, tmp_path / "model.safetensors", ABOUT)
    assert torch.equal(saved.read(tmp_path / "model.safetensors")(ids)[0], model(ids)[0])
    assert all(layer.handed_on == {} for layer in model.decoder.self_attention)
    both = Transformer(11, 11, 16, 4, 2, 8, attention=[kind, kind], cross="multi-head").eval()
    assert both(ids, ids)[0].shape == (2, 9, 11)


def _seen(model, ids):
    """What the layers read, and what their heads found."""
    read, found = [], []
    layers = model.decoder.self_attention
    handles = [layer.register_forward_pre_hook(lambda _, args: read.append(args[0])) for layer in layers]
    handles += [layer.on_heads(lambda one: found.append(one)) for layer in layers]
    model(ids)
    for handle in handles:
        handle.remove()
    return read, found


def test_a_layer_reads_the_keys_and_values_of_the_one_below(handing):
    model, ids = _gpt(attention="cross-layer", positions="learned"), torch.randint(11, (2, 7))
    read, found = _seen(model, ids)
    below, layer, _ = model.decoder.self_attention
    q, (k, v) = layer.W_q(read[1]), (below.W_k(read[0]), below.W_v(read[0]))
    expected, _ = attend(*(split_heads(part, 4) for part in (q, k, v)), mask=Band().matrix(7))
    torch.testing.assert_close(found[1], expected, **CLOSE)
    whole = _gpt(attention="multi-head", positions="learned")
    assert whole.num_weights - model.num_weights == 2 * (16 * 16 + 16)
    held = _step_by_step(model, ids, (3, 1, 3))[1]
    assert [cache.num_bytes for cache in held] == [2 * 7 * 2 * 16 * 4, 0, 2 * 7 * 2 * 16 * 4]


def test_a_layer_adds_the_values_of_the_first(handing):
    model, ids = _gpt(attention="value residual", positions="learned"), torch.randint(11, (2, 7))
    read, found = _seen(model, ids)
    first, _, layer = model.decoder.self_attention
    q, k = layer.W_q(read[2]), layer.W_k(read[2])
    v = (layer.W_v(read[2]) + first.W_v(read[0])) / 2
    expected, _ = attend(*(split_heads(part, 4) for part in (q, k, v)), mask=Band().matrix(7))
    torch.testing.assert_close(found[2], expected, **CLOSE)
