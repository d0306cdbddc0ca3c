"""Kinds with another softmax, or other scores in it: against loops, and where they are multi-head attention."""

import math

import pytest
import torch
from test_variants import (
    MASKS,
    D,
    H,
    _holds,
    _mask,
    _output,
    _plain,
    _rows,
    _same,
    _scores_and_values,
    _shaken,
    _with_weights_of,
)

from mhalib import variants

pytestmark = pytest.mark.usefixtures("in_float64")


def each_row(layer, row):
    """A loop over heads and queries: `row(i, scores, allowed)` gives the weights of one query in head i."""

    def loop(x, y, mask):
        scores, values = _scores_and_values(layer, x, y)
        weights = torch.zeros_like(scores)
        for i in range(H):
            for t in range(len(x)):
                weights[i, t] = row(i, scores[i, t], mask[i, t])
        return _output(layer, weights, values), weights

    return loop


@MASKS
def test_a_sink_takes_its_share_and_has_no_value(kind):
    layer = _shaken(variants.SinkAttention(D, H, bias=True, sink=0.5))

    def row(i, scores, allowed):
        powers = torch.where(allowed, scores.exp(), torch.zeros(()))
        return powers / (powers.sum() + layer.sinks[i].exp())

    _holds(layer, each_row(layer, row), kind)


@pytest.mark.parametrize("largest", [0.0, 800.0])
def test_large_scores_and_sinks_do_not_overflow(largest):
    layer = variants.SinkAttention(D, H, sink=largest)
    layer.score = lambda q, k: torch.full((*q.shape[:3], k.shape[2]), 800.0)
    x = torch.randn(1, 4, D)
    wanted = 0.2 if largest else 0.25
    torch.testing.assert_close(layer(x, x, x)[1], torch.full((1, H, 4, 4), wanted))


def test_without_sinks_it_is_multi_head_attention():
    plain = _plain()
    layer = _with_weights_of(variants.SinkAttention, plain)
    torch.nn.init.constant_(layer.sinks, -1e4)
    _same(layer, plain)


def test_a_sink_goes_with_its_head_and_stays_if_it_is_not_learned():
    layer = _shaken(variants.SinkAttention(D, H, learned=False))
    before = layer.sinks.detach().clone()
    layer.keep_heads([1, 3])
    assert torch.equal(layer.sinks, before[[1, 3]])
    assert not layer.sinks.requires_grad


@MASKS
def test_weights_of_a_sigmoid_do_not_compete(kind):
    layer = _shaken(variants.SigmoidAttention(D, H, bias=True))

    def row(_, scores, allowed):
        count = int(allowed.sum())
        weights = torch.tensor([1 / (1 + count * math.exp(-score)) for score in scores.tolist()])
        return weights.where(allowed, torch.zeros(()))

    _holds(layer, each_row(layer, row), kind)


@MASKS
def test_softpick_gives_nothing_to_scores_of_0_and_below(kind):
    layer = _shaken(variants.SoftpickAttention(D, H, bias=True))

    def row(_, scores, allowed):
        lifted = [math.expm1(s) if a else 0.0 for s, a in zip(scores.tolist(), allowed, strict=True)]
        total = sum(map(abs, lifted))
        return torch.tensor([max(one, 0.0) / total if total else 0.0 for one in lifted])

    _holds(layer, each_row(layer, row), kind, atol=1e-10, rtol=1e-10)
    mask, given = _mask(kind)
    x, y = torch.randn(2, 5, D), torch.randn(2, 7, D)
    weights = layer(x, y, y, mask=given)[1]
    assert ((weights == 0) & mask).any()


@MASKS
def test_no_score_passes_the_cap(kind):
    layer = _shaken(variants.SoftCapAttention(D, H, bias=True, cap=0.7))

    def loop(x, y, mask):
        scores, values = _scores_and_values(layer, x, y)
        capped = torch.tensor([[[0.7 * math.tanh(s / 0.7) for s in row] for row in head] for head in scores.tolist()])
        weights = _rows(capped, mask)
        return _output(layer, weights, values), weights

    _holds(layer, loop, kind)


def test_a_high_cap_changes_nothing():
    plain = _plain()
    layer = _with_weights_of(lambda *sizes, **settings: variants.SoftCapAttention(*sizes, cap=1e9, **settings), plain)
    x = torch.randn(2, 5, D)
    torch.testing.assert_close(layer(x, x, x), plain(x, x, x), atol=1e-8, rtol=1e-8)
