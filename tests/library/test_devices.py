"""The same answer on every device, in every floating-point type, under autocast and compiled."""

import shutil

import pytest
import torch

from mhalib import MultiHeadAttention, attend, bench, best_device, causal_mask, models

BOTH = pytest.mark.parametrize("need_weights", [True, False])
TOLERANCES = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 4e-2}
QUIET = pytest.mark.filterwarnings(  # of torch's own warnings, while it traces
    "ignore::DeprecationWarning", "ignore:Guards may run slower on Python 3.13.0:RuntimeWarning"
)
can_compile = any(map(shutil.which, ("c++", "g++", "clang++", "cl")))


@pytest.mark.parametrize("has_gpu", [True, False])
def test_a_gpu_is_taken_where_there_is_one(has_gpu, monkeypatch):
    monkeypatch.delenv("MHALIB_DEVICE", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    assert best_device() == torch.device("cuda" if has_gpu else "cpu")


def test_the_environment_overrides_the_choice(monkeypatch):
    monkeypatch.setenv("MHALIB_DEVICE", "cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert best_device() == torch.device("cpu")


def test_an_empty_variable_is_no_choice(monkeypatch):
    monkeypatch.setenv("MHALIB_DEVICE", "")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert best_device() == torch.device("cpu")


@pytest.mark.parametrize("asked", ["", "mps"])
def test_an_apple_gpu_is_taken_only_where_it_is_asked_for(asked, monkeypatch):
    monkeypatch.setenv("MHALIB_DEVICE", asked)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch, "empty", lambda *size, device: None)  # what stands for a machine that has one
    assert best_device() == torch.device(asked or "cpu")


@pytest.mark.parametrize("name", ["mps", "mps:0"])
def test_an_apple_gpu_that_is_not_there_is_named_in_plain_words(name, monkeypatch):
    monkeypatch.setenv("MHALIB_DEVICE", name)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(ValueError, match=f"MHALIB_DEVICE='{name}' cannot be used here: torch finds no Apple GPU"):
        best_device()


def test_what_is_timed_waits_for_an_apple_gpu(monkeypatch):
    waits = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.mps, "synchronize", lambda: waits.append(None))
    bench.median_seconds({"nothing": lambda: None}, rounds=3)
    assert len(waits) >= 3


def test_the_peak_of_an_apple_gpu_is_not_made_up():
    with pytest.raises(ValueError, match="device='mps': torch tells no peak of an Apple GPU's memory"):
        bench.peak_bytes(lambda: None, torch.device("mps"))


@pytest.mark.parametrize("name", ["gpu", "cuda:99", "cuda:x", " ", "hpu"])
def test_a_device_that_is_not_there_is_named(name, monkeypatch):
    monkeypatch.setenv("MHALIB_DEVICE", name)
    with pytest.raises(ValueError, match=f"MHALIB_DEVICE='{name}' cannot be used here: "):
        best_device()


@pytest.mark.parametrize("dtype", TOLERANCES)
@BOTH
def test_every_type_gives_nearly_what_float64_gives(dtype, need_weights, device):
    layer, x, lengths = _layer_and_input(device)
    expected, expected_weights = layer.double()(x.double(), x.double(), x.double(), lengths)
    output, weights = layer.to(dtype)(*[x.to(dtype)] * 3, lengths, need_weights=need_weights)
    close = {"rtol": TOLERANCES[dtype], "atol": TOLERANCES[dtype]}
    assert output.dtype == dtype
    torch.testing.assert_close(output.double(), expected, **close)
    if need_weights:
        assert weights.dtype == dtype
        torch.testing.assert_close(weights.double(), expected_weights, **close)


@pytest.mark.parametrize("dtype", TOLERANCES)
@BOTH
def test_large_scores_do_not_overflow(dtype, need_weights, device):
    q = torch.full((1, 3, 5, 64), 60.0, dtype=dtype, device=device)  # q·k = 230,400 is beyond float16, q·k / 8 is not
    v = torch.randn(1, 3, 5, 7, device=device).to(dtype)
    output, _ = attend(q, q, v, need_weights=need_weights)
    close = {"rtol": TOLERANCES[dtype], "atol": TOLERANCES[dtype]}
    torch.testing.assert_close(output, v.mean(-2, keepdim=True).expand_as(v), **close)


@BOTH
def test_autocast(need_weights, device):
    layer, x, lengths = _layer_and_input(device)
    expected, _ = layer(x, x, x, lengths)
    with torch.autocast(device.type, torch.bfloat16):
        output, _ = layer(x, x, x, lengths, need_weights=need_weights)
    assert output.dtype == torch.bfloat16
    assert output[1].count_nonzero() == 0
    torch.testing.assert_close(output.float(), expected, rtol=2e-2, atol=2e-2)


@pytest.mark.weekly("mhalib/attention/")
@pytest.mark.skipif(not can_compile, reason="torch.compile needs a C++ compiler")
@QUIET
@BOTH
def test_one_compiled_graph_gives_the_same(need_weights, device):
    layer, x, lengths = _layer_and_input(device)
    call = {"mask": causal_mask(7, device=device), "need_weights": need_weights}
    output, weights = torch.compile(layer, fullgraph=True)(x, x, x, lengths, **call)
    expected, expected_weights = layer(x, x, x, lengths, **call)
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(weights, expected_weights)


def _compiled(module, inputs, options):
    torch.compiler.reset()
    return torch.compile(module, backend="eager", fullgraph=True)  # without the compiler of C++


def _exported(module, inputs, options):
    return torch.export.export(module, inputs, options).module()


X, IDS = torch.linspace(-1, 1, 60).reshape(2, 3, 10), torch.tensor([[3, 1, 4, 1], [5, 9, 2, 6]])
TRACED = {  # what is called, with what
    "a layer": (lambda: MultiHeadAttention(10, 5), (X, X, X), {"mask": causal_mask(3)}),
    "a rotary GPT": (lambda: models.GPT(11, positions="rotary"), (IDS,), {}),
    "a GPT": (lambda: models.GPT(11), (IDS,), {"need_weights": True}),
    "a Transformer": (lambda: models.Transformer(11, 13), (IDS, IDS[:, :3], torch.tensor([4, 2])), {}),
}


@QUIET
@pytest.mark.parametrize("trace", [_compiled, _exported])
@pytest.mark.parametrize("name", TRACED)
def test_a_mask_of_few_axes_can_be_traced(name, trace):
    torch.manual_seed(0)
    make, inputs, options = TRACED[name]
    module = make().eval()
    torch.testing.assert_close(trace(module, inputs, options)(*inputs, **options), module(*inputs, **options))


def _layer_and_input(device):
    """A float32 layer, x (3, 7, 10) and lengths, one of which is 0."""
    torch.manual_seed(0)
    x = torch.randn(3, 7, 10)
    return MultiHeadAttention(10, 5).to(device), x.to(device), torch.tensor([7, 0, 3], device=device)
