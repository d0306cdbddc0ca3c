"""The kernel that stores the weights, against scores, softmax and the backward pass of autograd."""

import pytest
import torch
from torch.autograd import forward_ad

from mhalib import MultiHeadAttention, attend
from mhalib.attention import kernels
from mhalib.bench import peak_bytes
from mhalib.variants import LatentAttention


def formulas(q, k, mask=None, scale=None):
    return kernels.softmax_(kernels.scores(q, k, scale), mask)


@pytest.fixture(autouse=True)
def _nothing_is_small(monkeypatch):
    monkeypatch.setattr(kernels, "SMALL", -1)


def problem(shape=(2, 3, 5, 4), num_keys=7, dtype=torch.float64, seed=0):
    draw = torch.Generator().manual_seed(seed)
    *leading, num_queries, width = shape
    q = torch.randn(*leading, num_queries, width, generator=draw, dtype=dtype)
    k = torch.randn(*leading, num_keys, width, generator=draw, dtype=dtype)
    mask = torch.rand(num_queries, num_keys, generator=draw) < 0.6
    mask[0] = False
    return q, k, mask


def weights_and_gradients(function, q, k, mask, scale):
    q, k = q.clone().requires_grad_(), k.clone().requires_grad_()
    weights = function(q, k, mask, scale)
    weights.retain_grad()
    upstream = torch.linspace(-1, 1, weights.numel(), dtype=q.dtype).view_as(weights)
    (weights * upstream).sum().backward()
    return weights, weights.grad, q.grad, k.grad


@pytest.mark.parametrize("scale", [None, 0.3])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("shape", "num_keys", "dtype"),
    [
        ((2, 3, 5, 6), 7, torch.float32),
        ((5, 4), 6, torch.float64),
        ((2, 9, 150, 16), 130, torch.float32),  # in pieces of three matrices
        ((1, 2, 300, 8), 260, torch.bfloat16),  # one by one
        ((0, 3, 5, 4), 5, torch.float32),
        ((2, 3, 0, 4), 5, torch.float32),
    ],
)
def test_numbers_and_gradients_are_the_formulas_bit_for_bit(shape, num_keys, dtype, masked, scale):
    """One matrix alone has another product than stacked ones, which rounds otherwise on some processors."""
    q, k, mask = problem(shape, num_keys, dtype) if shape[-2] else (torch.ones(shape), torch.ones(2, 3, 5, 4), None)
    mask = mask if masked else None
    for ours, theirs in zip(
        weights_and_gradients(kernels.weights, q, k, mask, scale),
        weights_and_gradients(formulas, q, k, mask, scale),
        strict=True,
    ):
        if len(shape) == 2:
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-14)
        else:
            assert torch.equal(ours, theirs)


@pytest.mark.parametrize(
    ("of_queries", "of_keys"), [((2, 3), (2, 1)), ((1, 3), (2, 3)), ((2, 3), (3,)), ((3,), (2, 3))]
)
def test_one_key_may_serve_several_heads(of_queries, of_keys):
    q, k, mask = torch.randn(*of_queries, 5, 4), torch.randn(*of_keys, 7, 4), problem()[2]
    for ours, theirs in zip(
        weights_and_gradients(kernels.weights, q, k, mask, None),
        weights_and_gradients(formulas, q, k, mask, None),
        strict=True,
    ):
        assert torch.equal(ours, theirs)


def test_absorbed_latents_learn_with_weights():
    torch.manual_seed(0)
    layer = LatentAttention(24, 3, latent_size=10).double()
    x, found = torch.randn(2, 5, 24, dtype=torch.float64), []
    for layer.absorbed in (False, True):
        layer.zero_grad()
        output, weights = layer(x, x, x)
        (output.square().sum() + weights.square().sum()).backward()
        found.append([part.grad.clone() for part in layer.parameters()])
    for built, absorbed in zip(*found, strict=True):
        torch.testing.assert_close(absorbed, built)


def test_queries_and_keys_may_be_one_tensor():
    q, _, _ = problem()
    once, twice = q.clone().requires_grad_(), q.clone().requires_grad_()
    for x, function in ((once, kernels.weights), (twice, formulas)):
        (gradient,) = torch.autograd.grad(function(x, x, None, None).square().sum(), x, create_graph=True)
        gradient.square().sum().backward()
    assert torch.allclose(once.grad, twice.grad, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("wanted", [(True, True), (True, False), (False, True)])
def test_the_gradient_has_a_gradient(wanted):
    q, k, mask = problem((1, 2, 3, 2), 4)
    mask[0, 0] = True
    q, k = q.requires_grad_(wanted[0]), k.requires_grad_(wanted[1])
    assert torch.autograd.gradcheck(lambda q, k: kernels.weights(q, k, mask, None), (q, k))
    assert torch.autograd.gradgradcheck(lambda q, k: kernels.weights(q, k, mask, None), (q, k))


def test_gradients_of_a_loss_for_its_weights():
    """What attributions ask for: weights stand between q and the output, not beside it."""
    q, k, _ = problem()
    v = torch.randn(2, 3, 7, 2, dtype=q.dtype)
    output, weights = attend(q.requires_grad_(), k, v)
    (gradient,) = torch.autograd.grad(output.sum(), weights)
    assert torch.allclose(gradient, v.sum(-1)[:, :, None].expand_as(weights))


@pytest.mark.filterwarnings("ignore:`torch.jit.script`:DeprecationWarning")  # torch looks up its own derivatives so
def test_transforms_of_functions_take_the_formulas():
    q, k, _ = problem()

    def loss(q):
        return kernels.weights(q, k, None, None).square().sum()

    leaf = q.clone().requires_grad_()
    loss(leaf).backward()
    assert torch.allclose(torch.func.grad(loss)(q), leaf.grad)
    by_example = torch.func.vmap(lambda q, k: kernels.weights(q, k, None, None))(q.requires_grad_(), k)
    assert torch.allclose(by_example, formulas(q, k))
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(q.detach(), torch.ones_like(q))
        tangent = forward_ad.unpack_dual(loss(dual.requires_grad_())).tangent
    assert torch.allclose(tangent, leaf.grad.sum())


def test_two_arrays_of_weights_there_and_back():
    """Scores beside weights, or gradients of all scores beside those of all weights, would be a third."""
    layer, x = MultiHeadAttention(16, 16), torch.randn(1, 256, 16)
    one = 4 * 16 * 256 * 256

    def both():
        output, _ = layer(x, x, x)
        output.sum().backward()
        layer.zero_grad()

    assert 2 * one < peak_bytes(both) < 2.5 * one
    assert one < peak_bytes(lambda: layer(x, x, x)) < 1.5 * one


def test_a_step_that_is_replaced_on_one_layer_is_taken():
    layer, x = MultiHeadAttention(8, 2), torch.randn(1, 3, 8)
    layer.softmax = lambda scores, mask: torch.zeros_like(scores)
    assert not layer(x, x, x)[1].any()


def test_autocast_decides_about_types_itself():
    layer, x = MultiHeadAttention(8, 2), torch.randn(1, 3, 8)
    with torch.autocast("cpu", torch.bfloat16):
        _, weights = layer(x, x, x)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        _, again = layer(x, x, x)
    assert weights.dtype == again.dtype
    assert torch.equal(weights, again)


@pytest.mark.parametrize(("num_keys", "name"), [(64, "_WeightsBackward"), (63, "SoftmaxBackward0")])
def test_small_weights_take_the_formulas(num_keys, name, monkeypatch):
    monkeypatch.setattr(kernels, "SMALL", 4 * 2 * 3 * 63)
    q, k, _ = problem((2, 3, 4), num_keys, torch.float32)
    assert kernels.weights(q.requires_grad_(), k, None, None).grad_fn.name() == name


@pytest.mark.parametrize("mask", [None, torch.ones(1, 1, 3, 3, dtype=torch.bool)], ids=["all seen", "masked"])
def test_no_heads_never_reach_torchs_kernel(mask, monkeypatch):
    """Of no heads, that of torch 2.11 raises in its backward pass on a GPU, and kills the process on a CPU."""
    monkeypatch.setattr(kernels.F, "scaled_dot_product_attention", lambda *_, **__: pytest.fail("called without heads"))
    q, k, v = (torch.randn(2, 0, 3, width, requires_grad=True) for width in (4, 4, 5))
    output = kernels.fused(q, k, v, mask, 0.0, None)
    output.sum().backward()
    assert output.shape == (2, 0, 3, 5)
    assert [x.grad.shape for x in (q, k, v)] == [x.shape for x in (q, k, v)]
