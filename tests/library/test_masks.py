"""Masks: True = may attend. Checked by hand, against their definition, and against torch's own."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F
from torch.nn.attention.bias import causal_lower_right

from mhalib import Band, MultiHeadAttention, attend, causal_mask, padding_mask


def test_padding_mask_of_examples_by_hand():
    expected = [[0, 0, 0, 0, 0], [1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]
    mask = padding_mask(torch.tensor([0, 3, 5]), 5)
    torch.testing.assert_close(mask, torch.tensor(expected, dtype=torch.bool)[:, None, None, :])


def test_padding_mask_of_queries_by_hand():
    expected = [[[1, 0, 0], [1, 1, 1]], [[0, 0, 0], [1, 1, 0]]]
    mask = padding_mask(torch.tensor([[1, 3], [0, 2]]), 3)
    torch.testing.assert_close(mask, torch.tensor(expected, dtype=torch.bool)[:, None])


@given(
    valid_lens=st.lists(st.lists(st.integers(0, 11), min_size=3, max_size=3), min_size=2, max_size=5),
    dtype=st.sampled_from([torch.uint8, torch.int32, torch.int64]),
)
def test_padding_mask_shows_key_j_when_j_is_below_the_length(valid_lens, dtype):
    mask = padding_mask(torch.tensor(valid_lens, dtype=dtype), 11)
    assert mask.shape == (len(valid_lens), 1, 3, 11)
    assert mask[:, 0].tolist() == [[[j < length for j in range(11)] for length in row] for row in valid_lens]


@pytest.mark.parametrize("valid_lens", [torch.empty(0, dtype=torch.long), torch.zeros(2, dtype=torch.long)])
def test_padding_mask_without_examples_or_keys(valid_lens):
    mask = padding_mask(valid_lens, 0)
    assert mask.shape == (len(valid_lens), 1, 1, 0)
    assert mask.dtype == torch.bool


@pytest.mark.parametrize(
    ("valid_lens", "num_kvpairs", "error", "message"),
    [
        ([3, 1], 4, TypeError, r"valid_lens must be a torch.Tensor, got list: \[3, 1\]"),
        (torch.tensor([3.0]), 4, TypeError, "valid_lens must hold integers, got torch.float32"),
        (torch.tensor([True]), 4, TypeError, "valid_lens must hold integers, got torch.bool"),
        (torch.tensor([1j]), 4, TypeError, "valid_lens must hold integers, got torch.complex64"),
        (torch.tensor(3), 4, ValueError, r"valid_lens must have shape \(B,\) or \(B, Q\), got \(\)"),
        (torch.ones(2, 3, 5, dtype=torch.long), 4, ValueError, r"\(B, Q\), got \(2, 3, 5\)"),
        (torch.tensor([2, -1]), 4, ValueError, "valid_lens must not be negative, got -1"),
        (torch.tensor([2, 5]), 4, ValueError, "valid_lens holds 5, but there are only num_kvpairs=4 keys"),
        (torch.tensor([0]), -2, ValueError, "num_kvpairs=-2 must be at least 0"),
        (torch.tensor([0]), 4.0, TypeError, "num_kvpairs must be an integer, got float: 4.0"),
    ],
)
def test_padding_mask_names_the_bad_argument(valid_lens, num_kvpairs, error, message):
    with pytest.raises(error, match=message):
        padding_mask(valid_lens, num_kvpairs)


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (0, [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0]]),
        (2, [[1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]),
        (7, [[1, 1, 1, 1, 1]] * 3),
    ],
)
def test_causal_mask_by_hand(offset, expected):
    torch.testing.assert_close(causal_mask(3, 5, offset=offset), torch.tensor(expected, dtype=torch.bool))


@pytest.mark.parametrize(("num_queries", "num_kvpairs"), [(1, 1), (5, 5), (3, 7), (7, 3)])
def test_causal_mask_is_what_torch_calls_causal(num_queries, num_kvpairs, device):
    q, k, v = _qkv(num_queries, num_kvpairs, device)
    output, _ = attend(q, k, v, causal_mask(num_queries, num_kvpairs, device=device))
    torch.testing.assert_close(output, F.scaled_dot_product_attention(q, k, v, is_causal=True))


@pytest.mark.parametrize(("num_queries", "num_kvpairs"), [(1, 7), (3, 5), (5, 5)])
def test_causal_mask_with_offset_is_torchs_lower_right(num_queries, num_kvpairs, device):
    q, k, v = _qkv(num_queries, num_kvpairs, device)
    mask = causal_mask(num_queries, num_kvpairs, offset=num_kvpairs - num_queries, device=device)
    lower_right = causal_lower_right(num_queries, num_kvpairs)
    torch.testing.assert_close(attend(q, k, v, mask)[0], F.scaled_dot_product_attention(q, k, v, attn_mask=lower_right))


def test_offset_lets_the_newest_tokens_attend_as_they_did_in_the_whole_sequence():
    q, k, v = _qkv(7, 7, torch.device("cpu"))
    whole, _ = attend(q, k, v, causal_mask(7))
    newest, _ = attend(q[:, :, 5:], k, v, causal_mask(2, 7, offset=5))
    torch.testing.assert_close(newest, whole[:, :, 5:])


@given(now=st.integers(0, 6), seed=st.integers(0, 99), need_weights=st.booleans())
def test_causal_outputs_do_not_change_when_the_future_does(now, seed, need_weights):
    q, k, v = _qkv(7, 7, torch.device("cpu"))
    before, _ = attend(q, k, v, causal_mask(7), need_weights=need_weights)
    torch.manual_seed(seed)
    k[:, :, now + 1 :], v[:, :, now + 1 :] = 10 * torch.randn(2, 2, 3, 6 - now, 5, dtype=k.dtype)
    after, _ = attend(q, k, v, causal_mask(7), need_weights=need_weights)
    torch.testing.assert_close(after[:, :, : now + 1], before[:, :, : now + 1], rtol=0, atol=1e-12)
    assert now == 6 or not torch.allclose(after[:, :, now + 1 :], before[:, :, now + 1 :])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"num_queries": -1}, ValueError, "num_queries=-1 must be at least 0"),
        ({"num_queries": 2.0}, TypeError, "num_queries must be an integer, got float: 2.0"),
        ({"num_queries": True}, TypeError, "num_queries must be an integer, got bool: True"),
        ({"num_queries": 2, "num_kvpairs": -3}, ValueError, "num_kvpairs=-3 must be at least 0"),
        ({"num_queries": 2, "offset": -1}, ValueError, "offset=-1 must be at least 0"),
    ],
)
def test_causal_mask_names_the_bad_argument(arguments, error, message):
    with pytest.raises(error, match=message):
        causal_mask(**arguments)


def _qkv(num_queries, num_kvpairs, device):
    """Random q (2, 3, Q, 5), k and v (2, 3, K, 5) in float64."""
    torch.manual_seed(0)
    sizes = (num_queries, num_kvpairs, num_kvpairs)
    return [torch.randn(2, 3, size, 5, dtype=torch.float64, device=device) for size in sizes]


@pytest.mark.parametrize("offset", [0, 1, 4])
@pytest.mark.parametrize("after", [None, 0, 2])
@pytest.mark.parametrize("before", [None, 0, 3])
def test_a_band_is_what_its_words_say(before, after, offset):
    band = Band(before, after, offset)
    matrix = band.matrix(5, 7)
    for i in range(5):
        for j in range(7):
            place = offset + i
            allowed = (before is None or j >= place - before) and (after is None or j <= place + after)
            assert bool(matrix[i, j]) == allowed
    assert band.hides_nothing(5, 7) == bool(matrix.all())
    assert band.is_causal() == torch.equal(matrix, causal_mask(5, 7))


def test_a_layer_takes_a_band_where_it_takes_its_matrix():
    torch.manual_seed(0)
    layer, x = MultiHeadAttention(12, 3), torch.randn(2, 6, 12)
    lens = torch.tensor([6, 3])
    for band in (Band(), Band(before=2), Band(1, 1), Band(None, None)):
        for need_weights in (True, False):
            for valid_lens in (None, lens):
                given = layer(x, x, x, valid_lens, mask=band, need_weights=need_weights)
                wanted = layer(x, x, x, valid_lens, mask=band.matrix(6), need_weights=need_weights)
                torch.testing.assert_close(given, wanted)


@pytest.mark.parametrize(
    ("band", "error", "message"),
    [
        (Band(before=-1), ValueError, "before=-1 must be at least 0"),
        (Band(after=1.5), TypeError, "after must be an integer"),
        (Band(offset=-2), ValueError, "offset=-2 must be at least 0"),
    ],
)
def test_a_band_of_other_numbers_is_refused(band, error, message):
    with pytest.raises(error, match=message):
        band.matrix(3)
