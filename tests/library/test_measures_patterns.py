"""How sharp a pattern is and where it lies: against loops over rows, by hand, and untouched by padding."""

import math
import re

import numpy as np
import pytest
import torch
from measured import random_weights, rows, spoilt

from mhalib import MultiHeadAttention, causal_mask
from mhalib.measures import (
    attention_to,
    confidence,
    diagonal_dominance,
    head_entropy,
    head_roles,
    head_similarity,
    js_distance,
    maximum_at,
    rarest_tokens,
    real_cells,
)

HAND = torch.tensor([[[[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.2, 0.3, 0.5]], [[0.0, 1.0, 0.0]] * 3]])
LENS = [(4, 2, 3), (5, 5, 5), (1, 5, 4)]
BOTH = pytest.mark.parametrize("causal", [False, True])


def loops(weights, mask, of_row):
    """Per head, the mean of `of_row(b, t, row)` over the rows for which it is a number."""
    means = []
    for head in range(weights.shape[1]):
        values = [of_row(b, t, row) for b, t, row in rows(weights, mask, head)]
        means.append(np.mean([value for value in values if value is not None]))
    return torch.tensor(np.array(means))


def entropy_of(b, t, row):
    return -sum(w * math.log(w) for w in row.values() if w > 0)


def relative_of(b, t, row):
    return None if len(row) == 1 else entropy_of(b, t, row) / math.log(len(row))


def near_of(width):
    def of_row(b, t, row):
        near = sum(w for j, w in row.items() if abs(j - t) <= width)
        return float(near >= sum(w for j, w in row.items() if abs(j - t) > width))

    return of_row


def given_to(offset):
    return lambda b, t, row: row.get(t + offset)


def largest_at(offset):
    return lambda b, t, row: float(max(row, key=row.get) == t + offset) if t + offset in row else None


MEASURES = {
    "entropy": (head_entropy, entropy_of),
    "relative entropy": (lambda w, m: head_entropy(w, m, relative=True), relative_of),
    "confidence": (confidence, lambda b, t, row: max(row.values())),
    "diagonal": (lambda w, m: diagonal_dominance(w, m), near_of(0)),
    "near the diagonal": (lambda w, m: diagonal_dominance(w, m, width=1), near_of(1)),
    "self": (lambda w, m: attention_to(w, "self", m), given_to(0)),
    "previous": (lambda w, m: attention_to(w, "previous", m), given_to(-1)),
    "two back": (lambda w, m: attention_to(w, -2, m), given_to(-2)),
    "first": (lambda w, m: attention_to(w, "first", m), lambda b, t, row: row.get(0)),
    "maximum at previous": (lambda w, m: maximum_at(w, "previous", m), largest_at(-1)),
    "maximum at self": (lambda w, m: maximum_at(w, 0, m), largest_at(0)),
}


@BOTH
@pytest.mark.parametrize("lens", LENS)
@pytest.mark.parametrize("name", MEASURES)
def test_measures_equal_loops_over_real_rows(name, lens, causal):
    measure, of_row = MEASURES[name]
    weights, mask = random_weights(lens, causal=causal)
    torch.testing.assert_close(measure(weights, mask), loops(weights, mask, of_row))


@pytest.mark.parametrize("lens", LENS)
def test_next_equals_loops_where_the_future_may_be_seen(lens):
    weights, mask = random_weights(lens)
    torch.testing.assert_close(attention_to(weights, "next", mask), loops(weights, mask, given_to(1)))
    torch.testing.assert_close(maximum_at(weights, "next", mask), loops(weights, mask, largest_at(1)))


EVERY = {name: measure for name, (measure, _) in MEASURES.items()} | {
    "similarity": head_similarity,
    "divergence": js_distance,
    "similarity of layers": lambda w, m: head_similarity([w, w.flip(1)], m),
    "roles": lambda w, m: torch.tensor(
        [[role.offset, role.offset_share, role.confidence, len(role.roles)] for role in head_roles(w, m)]
    ),
}


@BOTH
@pytest.mark.parametrize("name", EVERY)
def test_neither_content_nor_amount_of_padding_matters(name, causal):
    weights, mask = random_weights((4, 1, 3), causal=causal, seed=1)
    expected = EVERY[name](weights, mask)
    for more in (0, 3):
        torch.testing.assert_close(EVERY[name](*spoilt(weights, mask, more)), expected, rtol=0, atol=1e-12)
    fewer = EVERY[name](weights[..., :4, :4], mask[..., :4, :4])
    torch.testing.assert_close(fewer, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", EVERY)
def test_an_example_of_padding_alone_does_not_count(name):
    weights, mask = random_weights((4, 2, 3), seed=2)
    more = torch.cat([weights, torch.rand(2, *weights.shape[1:], dtype=torch.float64)])
    extended = torch.cat([mask, torch.zeros(2, *mask.shape[1:], dtype=torch.bool)])
    torch.testing.assert_close(EVERY[name](more, extended), EVERY[name](weights, mask), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", EVERY)
def test_no_mask_means_that_all_is_real(name):
    weights, mask = random_weights((5, 5), seed=3)
    torch.testing.assert_close(EVERY[name](weights, None), EVERY[name](weights, mask))


@pytest.mark.parametrize("name", EVERY)
def test_order_of_heads_is_kept_and_arguments_are_not_changed(name):
    weights, mask = random_weights(seed=4)
    kept, kept_mask = weights.clone(), mask.clone()
    result = EVERY[name](weights, mask)
    assert torch.equal(weights, kept)
    assert torch.equal(mask, kept_mask)
    if result.shape == (3,):
        torch.testing.assert_close(EVERY[name](weights[:, [2, 0, 1]], mask), result[[2, 0, 1]])
        assert EVERY[name](weights.half(), mask).dtype == torch.float32
        assert result.dtype == torch.float64


def test_by_hand():
    ln = math.log
    torch.testing.assert_close(
        head_entropy(HAND), torch.tensor([(ln(2) + 0.2 * ln(5) + 0.3 * ln(10 / 3) + 0.5 * ln(2)) / 3, 0.0])
    )
    torch.testing.assert_close(confidence(HAND), torch.tensor([2 / 3, 1.0]))
    torch.testing.assert_close(attention_to(HAND, "self"), torch.tensor([2 / 3, 1 / 3]))
    torch.testing.assert_close(attention_to(HAND, "previous"), torch.tensor([0.4, 0.5]))
    torch.testing.assert_close(attention_to(HAND, "next"), torch.tensor([0.0, 0.5]))
    torch.testing.assert_close(attention_to(HAND, "first"), torch.tensor([1.7 / 3, 0.0]))
    torch.testing.assert_close(maximum_at(HAND, "self"), torch.tensor([2 / 3, 1 / 3]))  # of equals, the first key
    torch.testing.assert_close(diagonal_dominance(HAND), torch.tensor([1.0, 1 / 3]))
    torch.testing.assert_close(diagonal_dominance(HAND, width=1), torch.tensor([1.0, 1.0]))


def test_an_even_head_reaches_the_upper_ends():
    lens = torch.tensor([2, 5, 4])
    for causal in (False, True):
        mask = real_cells(lens, 5, causal=causal).expand(-1, 2, -1, -1)
        even = mask / mask.sum(-1, keepdim=True).clamp(min=1)
        torch.testing.assert_close(head_entropy(even, mask, relative=True), torch.ones(2))
        counts = mask[:, 0].sum(-1)[mask[:, 0].any(-1)].float()
        torch.testing.assert_close(head_entropy(even, mask), counts.log().mean().expand(2))
        torch.testing.assert_close(confidence(even, mask), (1 / counts).mean().expand(2))


def test_attention_to_marked_tokens():
    marked = torch.tensor([[True, False, True]])
    torch.testing.assert_close(attention_to(HAND, marked), torch.tensor([(1 + 0.5 + 0.7) / 3, 0.0]))
    torch.testing.assert_close(maximum_at(HAND, marked), torch.tensor([1.0, 0.0]))
    pairs = torch.zeros(1, 3, 3, dtype=torch.bool)
    pairs[0, 2, 1] = pairs[0, 0, 2] = True  # two queries have a target
    torch.testing.assert_close(attention_to(HAND, pairs), torch.tensor([0.3 / 2, 0.5]))


def test_sentences_without_a_marked_token_do_not_count():
    weights, mask = random_weights((4, 4), seed=5)
    marked = torch.tensor([[False, True, False, True, False], [False, False, False, False, True]])
    expected = weights[0, :, :4][:, :, [1, 3]].sum(-1).mean(-1)  # in the second, only padding is marked
    torch.testing.assert_close(attention_to(weights, marked, mask), expected)


def test_a_mask_may_leave_a_key_out_and_nothing_is_scaled_up_for_it():
    mask = torch.tensor([True, True, False])
    torch.testing.assert_close(confidence(HAND, mask), torch.tensor([(1 + 0.5 + 0.3) / 3, 1.0]))
    entropy = math.log(2) + 0.4 * math.log(1 / 0.4) + 0.6 * math.log(1 / 0.6)  # of (0.2, 0.3) / 0.5
    torch.testing.assert_close(head_entropy(HAND, mask)[0], torch.tensor(entropy / 3))


def test_a_mask_may_differ_from_head_to_head():
    mask = torch.ones(1, 2, 3, 3, dtype=torch.bool)
    mask[0, 0, 2] = False
    torch.testing.assert_close(confidence(HAND, mask), torch.tensor([0.75, 1.0]))


def test_measures_of_a_layer_that_lost_all_heads_are_empty():
    weights, mask = random_weights()
    for name in ("entropy", "confidence", "previous", "maximum at self", "diagonal"):
        assert EVERY[name](weights[:, :0], mask).shape == (0,)
    assert head_roles(weights[:, :0], mask) == []
    assert js_distance(weights[:, :0], mask).shape == (0, 0)


def test_of_a_layer_with_the_masks_that_it_had(device):
    torch.manual_seed(0)
    layer = MultiHeadAttention(12, 3).to(device)
    x, lens = torch.randn(2, 5, 12, device=device), torch.tensor([5, 3], device=device)
    _, weights = layer(x, x, x, lens, mask=causal_mask(5, device=device))
    mask = real_cells(lens, 5, causal=True)
    assert confidence(weights, mask).device.type == device.type
    shares = attention_to(weights, torch.ones(2, 5, dtype=torch.bool, device=device), mask)
    torch.testing.assert_close(shares, torch.ones(3, device=device))


def test_real_cells():
    mask = real_cells(torch.tensor([2, 0]), 3, torch.tensor([1, 4]), 4)
    assert mask.shape == (2, 1, 3, 4)
    assert mask[0, 0].int().tolist() == [[1, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]]
    assert not mask[1].any()
    with pytest.raises(ValueError, match="key_lens has 1 entries, but query_lens has 2"):
        real_cells(torch.tensor([2, 0]), 3, torch.tensor([1]), 4)


def test_rarest_tokens():
    tokens = torch.tensor([[1, 2, 3, 1], [4, 4, 1, 0], [1, 1, 1, 2]])
    counts = torch.tensor([0, 90, 20, 7, 7])
    lens = torch.tensor([4, 3, 0])
    assert rarest_tokens(tokens, counts, lens).int().tolist() == [[0, 0, 1, 0], [1, 1, 0, 0], [0, 0, 0, 0]]
    assert rarest_tokens(tokens, counts, lens, 2).int().tolist() == [[0, 1, 1, 0], [1, 1, 0, 0], [0, 0, 0, 0]]
    assert rarest_tokens(tokens, counts, lens, 3).int().tolist() == [[1, 1, 1, 1], [1, 1, 1, 0], [0, 0, 0, 0]]
    assert rarest_tokens(tokens, counts, lens, 9).int().tolist() == [[1, 1, 1, 1], [1, 1, 1, 0], [0, 0, 0, 0]]
    assert rarest_tokens(tokens, counts).int().tolist() == [[0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 0, 1]]
    with pytest.raises(ValueError, match="counts has 4 entries, but tokens holds 0 to 4"):
        rarest_tokens(tokens, counts[:4])


WRONG = [
    (lambda: confidence(HAND[0]), ValueError, "weights must have 4 axes"),
    (lambda: confidence(HAND.numpy()), TypeError, "weights must be a torch.Tensor"),
    (lambda: confidence(HAND.long()), TypeError, "weights must hold floating-point"),
    (lambda: confidence(HAND - 1), ValueError, "finite and not negative inside the mask, got -1"),
    (lambda: confidence(HAND * torch.nan), ValueError, "got nan"),
    (lambda: confidence(HAND, torch.ones(3)), TypeError, "mask must be boolean"),
    (lambda: confidence(HAND, torch.ones(2, 1, 3, 3) > 0), ValueError, "does not broadcast"),
    (lambda: confidence(HAND, torch.zeros(3, 3) > 0), ValueError, "no query of some head has a key"),
    (lambda: head_entropy(HAND * 0), ValueError, "no query of some head"),
    (lambda: head_entropy(HAND, torch.eye(3) > 0, relative=True), ValueError, "and a choice"),
    (lambda: attention_to(HAND, "last"), ValueError, "what='last' must be one of"),
    (lambda: attention_to(HAND, 1.0), TypeError, "what must be a name"),
    (lambda: attention_to(HAND, True), TypeError, "what must be a name"),
    (lambda: attention_to(HAND, torch.ones(1, 3)), TypeError, "what must be boolean"),
    (lambda: attention_to(HAND, torch.ones(3) > 0), ValueError, r"needs \(1, 3\) or \(1, 3, 3\)"),
    (lambda: attention_to(HAND, "next", causal_mask(3)), ValueError, "what='next': no query"),
    (lambda: attention_to(HAND[..., :2], "self"), ValueError, "for self-attention, but there are 3 queries"),
    (lambda: maximum_at(HAND, 5), ValueError, "what=5: no query"),
    (lambda: diagonal_dominance(HAND[:, :, :2]), ValueError, "for self-attention"),
    (lambda: diagonal_dominance(HAND, width=-1), ValueError, "width=-1 must be at least 0"),
]


@pytest.mark.parametrize(("call", "error", "message"), WRONG)
def test_wrong_arguments_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize(
    ("lens", "error", "message"),
    [
        ([-1, 1, 1], ValueError, "valid_lens must not be negative, got -1"),
        ([99, 1, 1], ValueError, "valid_lens holds 99, but there are only num_kvpairs=4 keys"),
        ([1.5, 1.0, 1.0], TypeError, "valid_lens must hold integers, got torch.float32"),
        ([1, 2], ValueError, "valid_lens has shape (2,), but tokens has 3 sentences"),
    ],
)
def test_rarest_tokens_refuses_lengths_that_are_none(lens, error, message):
    with pytest.raises(error, match=re.escape(message)):
        rarest_tokens(torch.zeros(3, 4, dtype=torch.long), torch.tensor([1]), torch.tensor(lens))


@pytest.mark.parametrize("shape", [(3, 0), (0, 4)])
def test_rarest_tokens_of_nothing_are_none(shape):
    marked = rarest_tokens(torch.zeros(shape, dtype=torch.long), torch.tensor([1]), torch.zeros(shape[0]).long())
    assert marked.shape == shape
    assert marked.dtype == torch.bool
