"""The seven steps cost what the ledger of a layer sees, and a machine needs the longer of two times."""

import re
from functools import partial

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from mhalib import MultiHeadAttention, costs, ledger
from mhalib.bench import Machine
from mhalib.costs import Sizes
from mhalib.roofline import MACHINES, PHASES, STEPS, step_costs

B, N = 3, 7
COUNTED = (costs.flops, costs.pair_flops, costs.score_bytes, costs.cache_bytes, partial(step_costs, phase="training"))
SIZES = [Sizes(60, 5), Sizes(24, 1), Sizes(24, 6, 2), Sizes(24, 6, 1), Sizes(20, 4, 2, 16)]
SHARED_TOO = pytest.mark.parametrize("sizes", SIZES, ids=str)


def steps_by_hand(sizes, x, past=None):
    """Self-attention in seven calls, where heads that share keys read them once: h/g queries stand in one column."""
    wide, shared = sizes.widths
    d = wide // sizes.num_heads
    W_q, W_k, W_v = (
        torch.randn(width, sizes.num_hiddens, dtype=x.dtype, requires_grad=x.requires_grad)
        for width in (wide, shared, shared)
    )
    W_o = torch.randn(sizes.num_hiddens, wide, dtype=x.dtype, requires_grad=x.requires_grad)
    q, k, v = x @ W_q.T, x @ W_k.T, x @ W_v.T
    q, k, v = (part.unflatten(-1, (-1, d)).transpose(1, 2).contiguous() for part in (q, k, v))
    if past is not None:
        k, v = (torch.cat([old, new], 2) for old, new in zip(past, (k, v), strict=True))
    folded = q.unflatten(1, (k.shape[1], -1)).flatten(2, 3)
    found = (folded @ k.mT).softmax(-1) @ v
    heads = found.unflatten(2, (-1, x.shape[1])).flatten(1, 2)
    return heads.transpose(1, 2).flatten(2) @ W_o.T


def by_kind(book):
    """FLOPs and bytes of the steps that are one of the seven: products and softmax."""
    known = [step for step in book if "linear" in step.operation or "matmul" in step.operation]
    soft = [step for step in book if "softmax" in step.operation]
    return sum(step.flops for step in known), sum(step.moved for step in (*known, *soft))


def totals(found):
    return sum(step.flops for step in found), sum(step.moved for step in found)


@SHARED_TOO
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_prefill_costs_what_the_ledger_sees(sizes, dtype):
    x = torch.randn(B, N, sizes.num_hiddens, dtype=dtype)
    with torch.no_grad():
        book = ledger(lambda x: steps_by_hand(sizes, x), x)
    found = step_costs(sizes, "prefill", N, B, dtype.itemsize)
    assert totals(found) == by_kind(book)
    assert sum(step.flops for step in found) == costs.flops(sizes, N, B) == book.flops


@SHARED_TOO
def test_decoding_costs_what_the_ledger_sees(sizes):
    wide, shared = sizes.widths
    past = [torch.randn(B, shared * sizes.num_heads // wide, N - 1, wide // sizes.num_heads) for _ in range(2)]
    x = torch.randn(B, 1, sizes.num_hiddens)
    with torch.no_grad():
        book = ledger(lambda x: steps_by_hand(sizes, x, past), x)
    assert totals(step_costs(sizes, "decoding", N, B)) == by_kind(book)


@SHARED_TOO
def test_training_costs_what_the_ledger_sees(sizes):
    x = torch.randn(B, N, sizes.num_hiddens, requires_grad=True)
    gradient = torch.randn(B, N, sizes.num_hiddens)

    def there_and_back(x, gradient):
        steps_by_hand(sizes, x).backward(gradient)

    book = ledger(there_and_back, x, gradient)
    found = step_costs(sizes, "training", N, B)
    assert totals(found) == by_kind(book)
    assert sum(step.flops for step in found) == 3 * costs.flops(sizes, N, B)


def test_each_step_is_the_one_of_its_name():
    layer = MultiHeadAttention(60, 5)
    x = torch.randn(B, N, 60)
    with torch.no_grad():
        book = ledger(layer, x, x, x)
    seen = [(step.flops, step.moved) for step in book if step.flops or "softmax" in step.operation]
    found = step_costs(Sizes(60, 5), "prefill", N, B)
    assert tuple(step.name for step in found) == STEPS
    assert [(step.flops, step.moved) for step in found] == seen
    cache = layer.new_cache()
    with torch.no_grad():
        layer(x, x, x, cache=cache)
        one = torch.randn(B, 1, 60)
        book = ledger(layer, one, one, one, cache=cache)
    seen = [(step.flops, step.moved) for step in book if step.flops or "softmax" in step.operation]
    assert [(step.flops, step.moved) for step in step_costs(Sizes(60, 5), "decoding", N + 1, B)] == seen


def test_flops_are_those_that_torch_counts_in_all_phases():
    layer = MultiHeadAttention(60, 5)
    x = torch.randn(B, N, 60, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        layer(x, x, x)[0].backward(torch.randn(B, N, 60))
    assert sum(step.flops for step in step_costs(Sizes(60, 5), "training", N, B)) == counter.get_total_flops()


def test_scores_have_an_intensity_that_heads_decide():
    """Of many tokens it approaches 2 d / bytes, whatever N; of a decoding step 2 / bytes for each head that shares."""
    scores = step_costs(Sizes(1024, 16), "prefill", 10**6, 1, 2)[3]
    assert scores.intensity == pytest.approx(64, rel=1e-3)
    for shared in (1, 4, 16):
        scores = step_costs(Sizes(1024, 16, shared), "decoding", 10**6, 5, 2)[3]
        assert scores.intensity == pytest.approx(16 / shared / (1 + 16 / shared / 64), rel=1e-3)


def test_machines_have_two_limits():
    machine = Machine("mine", 100.0, 10.0, 4)
    assert machine.ridge == 10
    assert [machine.seconds(200, 5), machine.seconds(200, 30)] == [2, 3]
    assert [machine.bound(200, 5), machine.bound(200, 30), machine.bound(0, 1)] == ["arithmetic", "memory", "memory"]
    assert machine.bound(100, 10) == "memory"  # at the ridge both end together
    for name, published in MACHINES.items():
        assert published.name == name
        assert 100 < published.ridge < 400  # FLOPs per byte, of all GPUs since 2018


@pytest.mark.parametrize(
    ("name", "units", "clock", "each", "lines", "rate"),
    [
        ("NVIDIA T4", 40, 1.59e9, 1024, 256, 10e9),
        ("NVIDIA RTX 4090", 128, 2.52e9, 512, 384, 21e9),
        ("NVIDIA A100 80 GB", 108, 1.41e9, 2048, 5120, 3.186e9),
        ("NVIDIA H100 SXM", 132, 1.83e9, 4096, 5120, 5.235e9),
        ("NVIDIA H200 SXM", 132, 1.83e9, 4096, 6144, 6.25e9),
    ],
)
def test_published_limits_follow_from_the_chip(name, units, clock, each, lines, rate):
    """Multiprocessors, cycles a second, FLOPs in a cycle without sparsity; lines to the memory, bits a second."""
    assert MACHINES[name].peak == pytest.approx(units * clock * each, rel=2e-3)
    assert MACHINES[name].bandwidth == pytest.approx(lines * rate / 8, rel=2e-3)


@pytest.mark.parametrize("count", COUNTED)
def test_integers_of_numpy_do_not_overflow(count):
    sizes = Sizes(np.int32(60_000), np.int32(5))
    assert count(sizes, num_tokens=np.int32(10**7)) == count(Sizes(60_000, 5), num_tokens=10**7)
    assert costs.parameters(sizes) == costs.parameters(Sizes(60_000, 5))


@pytest.mark.parametrize("count", [costs.parameters, *(partial(one, num_tokens=3) for one in COUNTED)])
def test_what_is_no_sizes_is_refused(count):
    with pytest.raises(TypeError, match=re.escape("sizes must be a Sizes, got tuple: (60, 5)")):
        count((60, 5))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: step_costs(Sizes(12, 6), "writing", 7), ValueError, "phase='writing'"),
        (lambda: step_costs(Sizes(100, 6), "prefill", 7), ValueError, "num_hiddens=100 is not divisible by"),
        (lambda: step_costs(Sizes(12, 6), "prefill", 0), ValueError, "num_tokens=0 must be at least 1"),
        (lambda: step_costs(Sizes(12, 6), "prefill", 7, 1.5), TypeError, "batch_size must be an integer"),
        (lambda: step_costs(Sizes(12, 6), "prefill", 7, 1, 0), ValueError, "bytes_per_number=0 must be at least 1"),
    ],
)
def test_bad_calls_are_refused(call, error, message):
    assert PHASES == ("prefill", "training", "decoding")
    with pytest.raises(error, match=re.escape(message)):
        call()
