"""The seven steps cost what the ledger of a layer sees, and a machine needs the longer of two times."""

import math
import re
from functools import partial

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from mhalib import MultiHeadAttention, costs, ledger, results
from mhalib.attention import make_attention
from mhalib.bench import Machine
from mhalib.costs import Sizes
from mhalib.roofline import (
    CHIPS,
    LATENT_STEPS,
    MACHINES,
    PHASES,
    STEPS,
    counted_step_costs,
    latent_step_costs,
    step_costs,
)

B, N = 3, 7
COUNTED = (costs.flops, costs.pair_flops, costs.score_bytes, costs.cache_bytes, partial(step_costs, phase="training"))
TURNED = {"positions": "rotary", "rotary_size": 4}
LATENT = [
    {"latent_size": 17, **TURNED},
    {"latent_size": 17},
    {"latent_size": 17, "query_latent_size": 19, **TURNED},
    {"latent_size": 9, "head_dim": 7, "value_dim": 11, **TURNED},
]
BUILT_OR_ABSORBED = pytest.mark.parametrize("absorbed", [False, True])
LATENT_TOO = pytest.mark.parametrize("settings", LATENT, ids=str)
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


def seen_steps(book):
    """FLOPs and bytes of products and softmax, one by one."""
    return [(step.flops, step.moved) for step in book if step.flops or "softmax" in step.operation]


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("bytes_per_number", [2, 4, 8])
def test_steps_that_are_counted_without_numbers_are_those_of_the_formulas(phase, bytes_per_number):
    found = counted_step_costs("multi-head", 60, 5, phase, N, B, bytes_per_number)
    expected = step_costs(Sizes(60, 5), phase, N, B, bytes_per_number)
    assert totals(found) == totals(expected)
    if phase != "training":
        assert [step[1:] for step in found] == [step[1:] for step in expected]


@pytest.mark.parametrize("phase", PHASES)
def test_steps_of_a_kind_without_a_formula_are_counted(phase):
    choice = {"name": "sparse", "window": 3}
    assert totals(counted_step_costs(choice, 60, 5, phase, N, B)) == totals(step_costs(Sizes(60, 5), phase, N, B))
    with pytest.raises(ValueError, match="phase='writing' must be one of"):
        counted_step_costs(choice, 60, 5, "writing", N)
    many = counted_step_costs("entmax", 4096, 32, "prefill", 10**6, 8, 2)
    assert sum(step.flops for step in many) == costs.variant_costs("entmax", 4096, 32, 10**6, 8).flops


def latent_choice(settings, absorbed):
    return {"name": "latent", "absorbed": absorbed, **settings}


def latent_by_hand(layer, x, past=()):
    """The latent layer, where heads that share a latent read it once. `past`: latents and turned keys of old tokens."""
    h, d, start = layer.num_heads, layer.head_dim, past[0].shape[1] if past else 0
    q = layer.W_q(x).unflatten(-1, (h, -1)).transpose(1, 2)
    kept = [layer.norm(layer.W_down(x))]
    if layer.rotary_size:
        kept.append(layer.place(layer.W_rotary(x)[:, None], start)[:, 0])
    kept = [torch.cat([old, new], 1) for old, new in zip(past, kept, strict=True)] if past else kept
    own, turned, latent = q[..., :d] * layer.scale, layer.place(q[..., d:], start) * layer.scale, kept[0]
    if layer.absorbed:
        up_k, up_v = (one.weight.unflatten(0, (h, -1)) for one in (layer.W_up_k, layer.W_up_v))
        own = (own.transpose(0, 1).flatten(1, 2) @ up_k).unflatten(1, (len(x), -1)).transpose(0, 1)
        folded = torch.cat([own, turned], -1).flatten(1, 2)
        found = (folded @ torch.cat(kept, -1).mT).softmax(-1) @ latent
        found = found.unflatten(1, (h, -1)).transpose(0, 1).reshape(h, -1, layer.latent_size)
        found = (found @ up_v.mT).unflatten(1, (len(x), -1)).transpose(0, 1)
    else:
        k, v = (up(latent).unflatten(-1, (h, -1)).transpose(1, 2) for up in (layer.W_up_k, layer.W_up_v))
        k = torch.cat([k, *(one[:, None].expand(-1, h, -1, -1) for one in kept[1:])], -1)
        weights = (torch.cat([own, turned], -1) @ k.mT).softmax(-1)
        found = weights @ v.contiguous()
    return layer.W_o(found.transpose(1, 2).flatten(2))


@LATENT_TOO
@BUILT_OR_ABSORBED
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_latent_steps_of_a_prompt_are_those_that_the_ledger_sees(settings, absorbed, dtype):
    choice = latent_choice(settings, absorbed)
    layer, x = make_attention(choice, 60, 5).to(dtype), torch.randn(B, N, 60, dtype=dtype)
    with torch.no_grad():
        book = ledger(latent_by_hand, layer, x)
        torch.testing.assert_close(book.output, layer(x, x, x)[0])
        own = seen_steps(ledger(layer, x, x, x))
    found = latent_step_costs(choice, 60, 5, "prefill", N, B, dtype.itemsize)
    assert sum(step.flops for step in found) == sum(flops for flops, _ in own) == book.flops
    assert sum(step.flops for step in found) == costs.variant_costs(choice, 60, 5, N, B).flops
    if not absorbed:  # the layer itself, step by step
        assert [(step.flops, step.moved) for step in found] == own
    assert [step.flops for step in found] == [flops for flops, _ in own]
    assert totals(found) == by_kind(book)


@LATENT_TOO
@BUILT_OR_ABSORBED
def test_latent_steps_of_one_token_are_those_that_the_ledger_sees(settings, absorbed, monkeypatch):
    choice = latent_choice(settings, absorbed)
    layer, x = make_attention(choice, 60, 5), torch.randn(B, N, 60)
    cache, again = layer.new_cache(N), layer.new_cache(N)  # full with the next token, so nothing is copied for a gap
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)  # with more, a CPU reads a shared latent several times
    old, one = x[:, :-1], x[:, -1:].contiguous()
    with torch.no_grad():
        kept = [layer.norm(layer.W_down(old))]
        if layer.rotary_size:
            kept.append(layer.place(layer.W_rotary(old)[:, None], 0)[:, 0])
        for each in (cache, again):
            layer(old, old, old, cache=each)
        book = ledger(latent_by_hand, layer, one, kept)
        own = ledger(layer, one, one, one, cache=cache)
        plain = ledger(layer, one, one, one, cache=again, need_weights=False)
    torch.testing.assert_close(book.output, own.output[0])
    torch.testing.assert_close(plain.output[0], own.output[0])
    found = latent_step_costs(choice, 60, 5, "decoding", N, B)
    assert totals(found) == by_kind(book)
    assert [step.flops for step in found] == [flops for flops, _ in seen_steps(own)]
    if not absorbed:
        assert [(step.flops, step.moved) for step in found] == seen_steps(own)
    elif layer.rotary_size:  # keys are wider than values, for which torch has no fused kernel on a CPU
        assert [(step.flops, step.moved) for step in found] == seen_steps(plain)


@LATENT_TOO
@BUILT_OR_ABSORBED
def test_latent_steps_of_training_are_those_that_the_ledger_sees(settings, absorbed):
    choice = latent_choice(settings, absorbed)
    layer, gradient = make_attention(choice, 60, 5), torch.randn(B, N, 60)
    x = torch.randn(B, N, 60, requires_grad=True)
    book = ledger(lambda x, gradient: latent_by_hand(layer, x).backward(gradient), x, gradient)
    found = latent_step_costs(choice, 60, 5, "training", N, B)
    assert totals(found) == by_kind(book)
    with FlopCounterMode(display=False) as counter:
        layer(x, x, x)[0].backward(gradient)
    assert sum(step.flops for step in found) == counter.get_total_flops()
    if not absorbed:
        own = ledger(lambda x, gradient: layer(x, x, x)[0].backward(gradient), x, gradient)
        assert totals(found) == by_kind(own)


def test_latent_steps_by_hand():
    """D = 12 and h = 3, so d = 4; c = 5, r = 2, and 2 examples of 7 tokens, in 2 bytes."""
    choice = {"name": "latent", "latent_size": 5, "positions": "rotary", "rotary_size": 2}
    built = latent_step_costs(choice, 12, 3, "prefill", 7, 2, 2)
    assert tuple(step.name for step in built) == LATENT_STEPS
    assert built[:3] == (
        ("W_q", 2 * 14 * 12 * 18, 2 * (14 * 12 + 12 * 18 + 14 * 18)),
        ("W_down", 2 * 14 * 12 * 5, 2 * (14 * 12 + 12 * 5 + 14 * 5)),
        ("W_rotary", 2 * 14 * 12 * 2, 2 * (14 * 12 + 12 * 2 + 14 * 2)),
    )
    assert built[3][1:] == built[4][1:] == (2 * 14 * 5 * 12, 2 * (14 * 5 + 5 * 12 + 14 * 12))
    assert built[5] == ("scores", 2 * 6 * 49 * 6, 2 * 6 * (7 * 6 + 7 * 6 + 49))
    one = latent_step_costs({**choice, "absorbed": True}, 12, 3, "decoding", 7, 2, 2)
    assert [step.name for step in one] == [*LATENT_STEPS[:4], *LATENT_STEPS[5:8], "W_up_v", "W_o"]
    assert one[3:8] == (
        ("W_up_k", 2 * 3 * 2 * 4 * 5, 2 * 3 * (2 * 4 + 4 * 5 + 2 * 5)),
        ("scores", 2 * 2 * 3 * 7 * 7, 2 * 2 * (3 * 7 + 7 * 7 + 3 * 7)),
        ("softmax", 0, 2 * 2 * 2 * 3 * 7),
        ("average", 2 * 2 * 3 * 7 * 5, 2 * 2 * (3 * 7 + 7 * 5 + 3 * 5)),
        ("W_up_v", 2 * 3 * 2 * 5 * 4, 2 * 3 * (2 * 5 + 5 * 4 + 2 * 4)),
    )


def test_latents_are_read_for_all_heads_at_once():
    """Of many tokens, absorbed scores approach 2 h / bytes whatever the batch: h queries for each key that is read."""
    choice = {"name": "latent", "latent_size": 512, "positions": "rotary", "rotary_size": 64, "absorbed": True}
    for batch_size in (1, 5):
        scores = latent_step_costs(choice, 4096, 32, "decoding", 10**6, batch_size, 2)[4]
        assert scores.name == "scores"
        assert scores.intensity == pytest.approx(32 / (1 + 32 / 576), rel=1e-3)


def test_scores_have_an_intensity_that_heads_decide():
    """Of many tokens it approaches 2 d / bytes, whatever N; of a decoding step 2 / bytes for each head that shares."""
    scores = step_costs(Sizes(1024, 16), "prefill", 10**6, 1, 2)[3]
    assert scores.intensity == pytest.approx(64, rel=1e-3)
    for shared in (1, 4, 16):
        scores = step_costs(Sizes(1024, 16, shared), "decoding", 10**6, 5, 2)[3]
        assert scores.intensity == pytest.approx(16 / shared / (1 + 16 / shared / 64), rel=1e-3)


def pairs_that_exist(phase, num_tokens, causal, window=None):
    """Queries and keys that meet, looked at one by one."""
    queries = [num_tokens - 1] if phase == "decoding" else range(num_tokens)
    return sum(
        (not causal or k <= q) and (window is None or k > q - window) for q in queries for k in range(num_tokens)
    )


KERNELS_TOO = pytest.mark.parametrize(
    ("causal", "window"), [(False, None), (True, None), (True, 3), (True, 1), (True, 9)], ids=str
)


@KERNELS_TOO
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("sizes", [Sizes(24, 6, 2), Sizes(20, 4, 4, 16)], ids=str)
def test_kernels_count_the_pairs_that_exist_and_each_array_by_its_own_bytes(sizes, phase, causal, window):
    """By loops over pairs, with other bytes for activations, weights and cache."""
    a, w, c, D, h = 2, 3, 5, sizes.num_hiddens, sizes.num_heads
    (wide, shared), T = sizes.widths, B * pairs_that_exist(phase, N, causal, window)
    n, tokens = (B, B * min(N, window or N)) if phase == "decoding" else (B * N, B * N)
    d, kept = wide // h, c if phase == "decoding" else a
    how = {"causal": causal, "window": window, "weight_bytes": w, "cache_bytes": c}
    stored = step_costs(sizes, phase, N, B, a, **how)
    fused = step_costs(sizes, phase, N, B, a, kernel="fused", **how)
    assert [one.name for one in fused] == ["W_q", "W_k", "W_v", "fused", "W_o"]
    assert (*fused[:3], fused[4]) == (*stored[:3], stored[6])
    passes = 3 if phase == "training" else 1
    for one, (rows, columns) in zip(
        (*stored[:3], stored[6]), [(D, wide), (D, shared), (D, shared), (wide, D)], strict=True
    ):
        moved = a * n * (rows + columns) + w * rows * columns
        assert one[1:] == (passes * 2 * n * rows * columns, passes * moved)
    for one in (stored[3], stored[5]):
        assert one[1:] == (passes * 2 * T * h * d, passes * (a * (n * wide + h * T) + kept * tokens * shared))
    assert stored[4][1:] == (0, a * h * T * (5 if phase == "training" else 2))
    forward = a * 2 * n * wide + kept * 2 * tokens * shared
    back = a * (4 * n * wide + 4 * tokens * shared) if phase == "training" else 0
    assert fused[3][1:] == ((14 if phase == "training" else 4) * T * h * d, forward + back)


def test_a_fused_kernel_computes_what_torch_counts_for_it():
    """torch's own count of its fused kernels, whose backward pass makes the scores again."""
    queries, keys = (B, 6, N, 4), (B, 2, N, 4)
    forward = sdpa_flop_count(queries, (B, 6, N, 4), (B, 6, N, 4))
    back = sdpa_backward_flop_count(queries, queries, queries, queries)
    count = partial(step_costs, Sizes(24, 6, keys[1]), num_tokens=N, batch_size=B, kernel="fused")
    assert count(phase="prefill")[3].flops == forward
    assert count(phase="training")[3].flops == forward + back


@pytest.mark.parametrize("phase", PHASES)
@BUILT_OR_ABSORBED
def test_a_fused_latent_kernel_reads_a_latent_once(phase, absorbed):
    choice, h = {"name": "latent", "latent_size": 17, "absorbed": absorbed, **TURNED}, 5
    stored, fused = (
        {one.name: one for one in latent_step_costs(choice, 60, h, phase, N, B, 2, kernel=kernel, cache_bytes=1)}
        for kernel in ("stored", "fused")
    )
    n, keys, values = B if phase == "decoding" else B * N, *((21, 17) if absorbed else (16, 12))
    assert {name for name in stored if name in fused} == set(stored) - {"scores", "softmax", "average"}
    once = B * N * (21 if absorbed else h * 28)
    kept = 1 if absorbed and phase == "decoding" else 2
    forward = 2 * h * n * (keys + values) + kept * once
    pairs = h * n * N
    assert fused["fused"].flops == 2 * pairs * (keys + values) * (1 if phase != "training" else 0) + (
        2 * pairs * (4 * keys + 3 * values) if phase == "training" else 0
    )
    assert fused["fused"].moved == forward + (2 * forward if phase == "training" else 0)


def test_absorbed_decoding_of_deepseek_v3_is_above_the_ridge_of_an_a100_and_an_h200():
    choice = {"name": "latent", "latent_size": 512, "head_dim": 128, "value_dim": 128, "absorbed": True}
    choice |= {"positions": "rotary", "rotary_size": 64, "query_latent_size": 1536}
    found = latent_step_costs(choice, 7168, 128, "decoding", 4096, 1, 2, kernel="fused")
    fused = next(one for one in found if one.name == "fused")
    assert round(fused.intensity) == 228
    assert fused.flops == 2 * 128 * 4096 * (576 + 512)
    assert fused.moved == 2 * (4096 * 576 + 128 * (576 + 512))  # each latent once
    assert MACHINES["NVIDIA A100 80 GB"].ridge < 228 > MACHINES["NVIDIA H200 SXM"].ridge


@pytest.mark.parametrize("num_tokens", [2048, 8192])
def test_an_h100_agrees_with_the_count_of_the_kernel_that_it_ran(num_tokens):
    """Stored times, bfloat16: of two counts, the kernel's own is nearer, as a ratio, than that of stored scores."""
    gpu = results.read("gpu")
    machine = Machine(gpu.device, gpu.median("peak"), gpu.median("bandwidth"), 2)

    def off(name, **kernel):
        least = sum(
            machine.seconds(*one[1:])
            for one in step_costs(Sizes(4096, 32), "prefill", num_tokens, 1, 2, **kernel)
            if not one.name.startswith("W_")
        )
        return abs(math.log(gpu.median(f"prompt of {num_tokens}: {name}") / least))

    assert off("fused", kernel="fused") < 0.3 < 1 < off("fused")
    own, stored = off("fused, causal", kernel="fused", causal=True), off("fused, causal", causal=True)
    assert own < 0.75 < stored
    stored_steps = sum(gpu.median(f"prompt of {num_tokens}: {name}") for name in ("scores", "softmax", "average"))
    assert stored_steps > 5 * gpu.median(f"prompt of {num_tokens}: fused")


def test_machines_have_two_limits():
    machine = Machine("mine", 100.0, 10.0, 4)
    assert machine.ridge == 10
    assert [machine.seconds(200, 5), machine.seconds(200, 30)] == [2, 3]
    assert [machine.bound(200, 5), machine.bound(200, 30), machine.bound(0, 1)] == ["arithmetic", "memory", "memory"]
    assert machine.bound(100, 10) == "memory"  # at the ridge both end together
    for name, published in MACHINES.items():
        assert published.name == CHIPS[name].name == name
        assert CHIPS[name].source
        assert 100 < published.ridge < 600 or name.startswith("Apple")  # FLOPs per byte, of all since 2018
        assert published.peak <= (CHIPS[name].fp8 or published.peak) <= (CHIPS[name].fp4 or 1e99)


@pytest.mark.parametrize(
    ("name", "units", "clock", "each", "lines", "rate"),
    [
        ("NVIDIA T4", 40, 1.59e9, 1024, 256, 10e9),
        ("NVIDIA RTX 4090", 128, 2.52e9, 512, 384, 21e9),
        ("NVIDIA A100 80 GB", 108, 1.41e9, 2048, 5120, 3.186e9),
        ("NVIDIA H100 SXM", 132, 1.83e9, 4096, 5120, 5.235e9),
        ("NVIDIA H200 SXM", 132, 1.83e9, 4096, 6144, 6.25e9),
        ("AMD MI300X", 304, 2.1e9, 2048, 8192, 5.2e9),
    ],
)
def test_published_limits_follow_from_the_chip(name, units, clock, each, lines, rate):
    """Multiprocessors, cycles a second, FLOPs in a cycle without sparsity; lines to the memory, bits a second."""
    assert MACHINES[name].peak == pytest.approx(units * clock * each, rel=2e-3)
    assert MACHINES[name].bandwidth == pytest.approx(lines * rate / 8, rel=5e-3)


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
        (lambda: latent_step_costs("latent", 12, 6, "writing", 7), ValueError, "phase='writing'"),
        (lambda: latent_step_costs("latent", 12, 5, "prefill", 7), ValueError, "num_hiddens=12 is not divisible by"),
        (lambda: latent_step_costs("latent", 12, 6, "prefill", 7.0), TypeError, "num_tokens must be an integer"),
        (lambda: latent_step_costs("latent", 12, 6, "prefill", 7, 0), ValueError, "batch_size=0 must be at least 1"),
        (lambda: latent_step_costs("latent", 12, 6, "prefill", 7, 1, 0), ValueError, "bytes_per_number=0"),
        (lambda: latent_step_costs("gated", 12, 6, "prefill", 7), ValueError, "is a GatedAttention, and not latent"),
        (
            lambda: latent_step_costs({"name": "latent", "latent_size": 0}, 12, 6, "prefill", 7),
            ValueError,
            "latent_size=0 must be at least 1",
        ),
        (
            lambda: latent_step_costs({"name": "latent", "bias": True}, 12, 6, "prefill", 7),
            ValueError,
            "has biases, which the formulas leave out",
        ),
        (lambda: step_costs(Sizes(12, 6), "writing", 7), ValueError, "phase='writing'"),
        (lambda: step_costs(Sizes(12, 6), "prefill", 7, kernel="flash"), ValueError, "kernel='flash' must be one of"),
        (lambda: step_costs(Sizes(12, 6), "prefill", 7, causal=1), TypeError, "causal must be"),
        (lambda: step_costs(Sizes(12, 6), "prefill", 7, window=3), ValueError, "window=3 is of the tokens before one"),
        (lambda: step_costs(Sizes(12, 6), "prefill", 7, cache_bytes=0), ValueError, "cache_bytes=0 must be at least 1"),
        (lambda: latent_step_costs("latent", 12, 6, "prefill", 7, weight_bytes=0.5), TypeError, "weight_bytes must be"),
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
