"""The simulations of FlashAttention's versions, against torch's attention in float64 and counts made by hand."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from mhalib.reference import flash


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return scaled_dot_product_attention(q[None], k[None], v[None])[0]


@pytest.mark.parametrize("outside", ["keys", "queries"])
@pytest.mark.parametrize("size", [1, 4, 7, 50])
def test_both_orders_give_attention(outside: str, size: int) -> None:
    q, k, v = draw(13, 5), 3 * draw(11, 5), draw(11, 6)
    torch.testing.assert_close(flash.in_order(q, k, v, size, outside=outside)[0], attention(q, k, v))


def test_what_the_orders_move_is_counted_by_hand() -> None:
    q, k, v = draw(12, 5), draw(8, 5), draw(8, 7)  # 3 blocks of queries, 2 of keys
    averages, inputs = 2 * 12 * (7 + 2), 8 * (5 + 7)  # there and back; every key and value once
    assert flash.in_order(q, k, v, 4, outside="keys")[1] == (2 * 12 * 5 + inputs + 2 * averages, 2 * 2 * 12 * 7)
    assert flash.in_order(q, k, v, 4, outside="queries")[1] == (12 * 5 + 3 * inputs + 12 * 8, 3 * 12 * 7)


def test_another_loop_is_refused() -> None:
    with pytest.raises(ValueError, match="outside='rows' must be one of"):
        flash.in_order(draw(3, 2), draw(3, 2), draw(3, 2), 2, outside="rows")


@pytest.mark.parametrize(("groups", "product", "softmax", "end"), [(1, 5, 4, 42), (2, 5, 4, 60), (2, 2, 7, 46)])
def test_a_schedule_ends_when_counted_by_hand(groups: int, product: int, softmax: int, end: int) -> None:
    """One group waits for each step; two keep the products busy, or, where these are short, the exponentials."""
    assert max(task.end for task in flash.schedule(groups, 3, product=product, softmax=softmax)) == end


@pytest.mark.parametrize("groups", [1, 2, 3])
def test_no_unit_and_no_group_does_two_things_at_once(groups: int) -> None:
    tasks = flash.schedule(groups, 4, product=3, softmax=5)
    assert len(tasks) == groups * 4 * 3
    for same in ("group", "unit"):
        for one in {getattr(task, same) for task in tasks}:
            mine = [task for task in tasks if getattr(task, same) == one]
            assert all(after.start >= before.end for before, after in pairwise(mine))


def test_8_bits_have_three_after_the_point_and_a_scale_for_each_block() -> None:
    x = torch.tensor([[448.0, 17.0], [1.0, 2**-20]], dtype=torch.float64)
    torch.testing.assert_close(flash.in_8_bits(x), torch.tensor([[448.0, 16.0], [1.0, 0.0]], dtype=torch.float64))
    assert float(flash.in_8_bits(x, 1)[1, 1]) == 0  # 448 / 2**20 is below half of the smallest number
    small = torch.tensor([[448.0, 0.0], [2**-20, 2**-21]], dtype=torch.float64)
    torch.testing.assert_close(flash.in_8_bits(small, 1), small)
    assert not flash.in_8_bits(small)[1].any()


@pytest.mark.parametrize("d", [1, 2, 64])
def test_a_rotation_keeps_scores_and_spreads_one_channel(d: int) -> None:
    torch.manual_seed(1)
    rotation = flash.spread(d)
    torch.testing.assert_close(rotation @ rotation.T, torch.eye(d, dtype=torch.float64))
    torch.testing.assert_close(rotation.abs(), torch.full((d, d), d**-0.5, dtype=torch.float64))


def test_a_width_that_is_no_power_of_2_is_refused() -> None:
    with pytest.raises(ValueError, match="d=48 is not a power of 2"):
        flash.spread(48)


@pytest.mark.parametrize("threshold", [0.0, 1.0, math.log(256)])
@pytest.mark.parametrize("size", [1, 16, 100])
def test_late_corrections_give_the_softmax(threshold: float, size: int) -> None:
    scores, values = 4 * draw(9, 70), draw(70, 3)
    averages, corrected = flash.lazy_pass(scores, values, size, threshold)
    torch.testing.assert_close(averages, scores.softmax(-1) @ values)
    by_hand = 0
    for row in scores.tolist():
        base = max(row[:size])
        for start in range(size, 70, size):
            largest = max(row[start : start + size])
            if largest > base + threshold:
                base, by_hand = largest, by_hand + 1
    assert corrected == by_hand


@pytest.mark.parametrize(("degree", "error"), [(1, 0.05), (2, 3e-3), (3, 1e-4), (5, 1e-7)])
def test_a_polynomial_gives_powers_of_two(degree: int, error: float) -> None:
    x = torch.linspace(-90, 3, 9973, dtype=torch.float64)
    off = (flash.exp2_polynomial(x, degree) / x.exp2() - 1).abs().max()
    assert error / 10 < off < error
    whole = torch.tensor([-3.0, 0.0, 5.0], dtype=torch.float64)
    assert flash.exp2_polynomial(whole, degree).tolist() == [0.125, 1.0, 32.0]
