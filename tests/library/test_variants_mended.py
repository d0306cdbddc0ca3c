"""What kinds of head once did wrong: settings that were ignored, ways not taken, padding that was counted."""

import re

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from mhalib import Band, costs
from mhalib.attention import make_attention, padding_mask
from mhalib.variants import LatentAttention, MixtureOfHeads, OverlappingAttention

CLOSE = {"atol": 1e-5, "rtol": 1e-4}


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("out_bias", [None, False, True])
def test_overlapping_heads_have_the_bias_that_is_asked_for(bias, out_bias):
    layer = OverlappingAttention(24, 4, bias=bias, out_bias=out_bias)
    assert (layer.W_o.bias is not None) == (bias if out_bias is None else out_bias)
    assert (layer.W_q.bias is not None) == bias


def test_latent_attention_slows_its_rotary_positions_down():
    plain = LatentAttention(24, 4, positions="rotary")
    slow = LatentAttention(24, 4, positions="rotary", rotary_scaling={"name": "linear", "factor": 4.0})
    x = torch.randn(2, 4, 1, slow.rotary_size)
    torch.testing.assert_close(slow.place(x, 12), plain.place(x, 3))


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        (
            {"rotary_scaling": {"name": "linear", "factor": 4.0}},
            ValueError,
            "cannot be: positions='none' turns nothing",
        ),
        ({"positions": "rotary", "rotary_scaling": {"name": "spiral"}}, ValueError, "rotary_scaling['name']='spiral'"),
        (
            {"positions": "rotary", "rotary_dim": 4},
            ValueError,
            "rotary_dim=4 cannot be: latent attention turns channels",
        ),
        ({"positions": "rotary", "rotary_base": -1.0}, ValueError, "rotary_base=-1.0 must be"),
        ({"absorbed": 1}, TypeError, "absorbed must be True or False"),
    ],
)
def test_what_latent_attention_cannot_have_is_refused_by_its_own_name(settings, error, message):
    with pytest.raises(error, match=re.escape(message)):
        LatentAttention(24, 4, **settings)


def _decoding_flops(choice, num_cached=255):
    """Operations of one token that meets a cache."""
    with torch.device("meta"), torch.enable_grad():
        layer, x = make_attention(choice, 256, 8), torch.empty(1, num_cached, 256)
        cache = layer.new_cache()
        layer(x, x, x, cache=cache)
        one = x[:, :1]
        with FlopCounterMode(display=False) as counter:
            layer(one, one, one, cache=cache)
    return counter.get_total_flops()


def test_latent_attention_makes_nothing_of_old_tokens_where_one_query_meets_them():
    said = {one: _decoding_flops({"name": "latent", "absorbed": one}) for one in (None, False, True)}
    assert said[None] == said[True] < 0.3 * said[False]
    assert costs.variant_parts("latent", 256, 8) == costs.variant_parts({"name": "latent", "absorbed": False}, 256, 8)
    layer, x = LatentAttention(24, 4, positions="rotary"), torch.randn(2, 7, 24)
    whole, cache = layer(x, x, x, mask=Band())[0], layer.new_cache()
    with torch.no_grad():
        steps = [layer(x[:, i : i + 1], x[:, i : i + 1], x[:, i : i + 1], cache=cache)[0] for i in range(7)]
    torch.testing.assert_close(torch.cat(steps, 1), whole, **CLOSE)


def _told(lens, num_tokens):
    """Lengths of the texts, said in each way that a layer understands."""
    real = padding_mask(lens, num_tokens)
    return {
        "lengths": {"valid_lens": lens},
        "lengths for each query": {"valid_lens": lens[:, None].expand(-1, num_tokens)},
        "a mask": {"mask": real},
        "a causal mask": {"mask": real & Band().matrix(num_tokens)},
        "both": {"valid_lens": lens, "mask": Band()},
    }


@pytest.mark.parametrize("way", _told(torch.tensor([1]), 1))
def test_the_balance_loss_does_not_count_padding(way):
    torch.manual_seed(0)
    layer, lens, x = MixtureOfHeads(24, 6), torch.tensor([5, 2]), torch.randn(2, 5, 24)
    layer(x, x, x, **_told(lens, 5)[way])
    tokens = torch.cat([x[0], x[1, :2]])[None]
    assert layer.balance_loss.item() == pytest.approx(layer.route(tokens)[1].item(), rel=1e-5)
    changed = x.clone()
    changed[1, 2:] += 3
    before = layer.balance_loss
    layer(changed, changed, changed, **_told(lens, 5)[way])
    torch.testing.assert_close(layer.balance_loss, before)
    layer(x, x, x)
    torch.testing.assert_close(layer.balance_loss, layer.route(x)[1])


def test_the_balance_loss_of_cross_attention_counts_all_queries():
    layer, x, memory = MixtureOfHeads(24, 6), torch.randn(2, 5, 24), torch.randn(2, 5, 24)
    layer(x, memory, memory, torch.tensor([5, 2]))
    torch.testing.assert_close(layer.balance_loss, layer.route(x)[1])


def test_the_balance_loss_with_a_cache_counts_the_new_tokens_that_are_real():
    layer, x = MixtureOfHeads(24, 6), torch.randn(2, 5, 24)
    cache = layer.new_cache()
    layer(x[:, :3], x[:, :3], x[:, :3], cache=cache)
    new = x[:, 3:].contiguous()
    layer(new, new, new, torch.tensor([5, 4]), cache=cache)
    expected = layer.route(torch.cat([new[0], new[1, :1]])[None])[1]
    torch.testing.assert_close(layer.balance_loss, expected)
