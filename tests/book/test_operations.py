"""Operations of convolutions that take each channel by itself."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tools.evidence import operations

pytestmark = pytest.mark.tool("mhalib/results/")


def _counted(x: Tensor, weight: Tensor, groups: int) -> int:
    with operations.counter() as counted:
        F.conv1d(x, weight, groups=groups).sum().backward()  # type: ignore[no-untyped-call]
    return int(counted.get_total_flops())


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_a_gradient_takes_the_products_of_a_loop(groups: int) -> None:
    """Each product forward, of an input with a weight, is one of each gradient: all counted one by one."""
    samples, channels, length, reach = 3, 6, 10, 4
    x = torch.randn(samples, channels, length, requires_grad=True)
    weight = torch.randn(channels, channels // groups, reach, requires_grad=True)
    products = 0
    for _ in range(samples):
        for out in range(channels):
            for into in range(channels):
                alike = out // (channels // groups) == into // (channels // groups)
                products += alike * reach * (length - reach + 1)
    assert _counted(x, weight, groups) == 3 * 2 * products


@pytest.mark.parametrize("learns", ["x", "weight"])
def test_a_gradient_that_nobody_asks_for_costs_nothing(learns: str) -> None:
    x = torch.randn(2, 6, 10, requires_grad=learns == "x")
    weight = torch.randn(6, 1, 4, requires_grad=learns == "weight")
    assert _counted(x, weight, 6) == 2 * 2 * 2 * 6 * 4 * 7
