"""Operations of a training step, where a convolution takes each channel by itself."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode


def of_convolution_backward(
    grad_shape: Sequence[int], x_shape: Sequence[int], weight_shape: Sequence[int], *others: Any, **named: Any
) -> int:
    """Additions and multiplications of the gradients of a convolution, which is not transposed.

    Each gradient, of the input and of the weights, has the products of the pass forward. torch 2.13 counts those of the
    weights as if every channel met every other: 192 times too many for 192 channels apart (pytorch/pytorch#183405).
    """
    wanted = named["output_mask"] if "output_mask" in named else others[7]
    return 2 * grad_shape[0] * prod(grad_shape[2:]) * prod(weight_shape) * sum(map(bool, wanted[:2]))


def counter(*, display: bool = False) -> FlopCounterMode:
    """torch's counter of the operations in products of matrices and convolutions, mended."""
    mended: dict[Any, Any] = {torch.ops.aten.convolution_backward: of_convolution_backward}
    return FlopCounterMode(display=display, custom_mapping=mended)
