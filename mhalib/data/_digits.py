"""Handwritten digits of 8 by 8 pixels: those that come with scikit-learn, so nothing is downloaded."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .._validate import require_kind, require_seed, require_tensor
from ._examples import Examples

DIGIT_SIZE = 8


@dataclass(frozen=True)
class Digits(Examples):
    """n images of handwritten digits.

    images: (n, 8, 8), 0 is paper and 1 is ink.
    labels: (n,) which digit it is, 0 to 9.
    numbers: (n,) which of scikit-learn's images it is, 0 to 1796.
    """

    images: Tensor
    labels: Tensor
    numbers: Tensor


def digits(seed: int = 0) -> tuple[Digits, Digits]:
    """1347 digits to learn from and 450 to be tested with. No image is in both, and both have all digits alike.

    Args:
        seed: which images are in which part.

    Raises:
        ImportError: scikit-learn is not installed.

    Source: Alpaydin and Kaynak 1998, Optical Recognition of Handwritten Digits, whose test set scikit-learn carries.
    """
    require_seed("seed", seed)
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ImportError("the digits come with scikit-learn: pip install scikit-learn") from error
    loaded = load_digits()
    labels = torch.tensor(loaded.target, dtype=torch.long)
    every = Digits(torch.tensor(loaded.images / 16, dtype=torch.float32), labels, torch.arange(len(labels)))
    # Shuffled, then sorted by digit: of every four neighbours one is for the test, so each digit gives a quarter.
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(int(seed)))
    order = order[labels[order].argsort(stable=True)]
    is_test = torch.arange(len(order)) % 4 == 0
    return every[order[~is_test].sort().values], every[order[is_test].sort().values]


def shifted(images: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Each image moved by at most one pixel, up or down and left or right: 9 places, all as likely.

    Args:
        images: (B, height, width); what comes in at an edge is 0, and what goes out is lost.
        generator: of random numbers, on the CPU; `None` means torch's own.

    Raises:
        TypeError, ValueError: `images` has not three axes, or `generator` is none.
    """
    require_tensor("images", images, rank=3)
    if generator is not None:
        require_kind("generator", generator, torch.Generator)
    batch_size, height, width = images.shape
    padded = torch.nn.functional.pad(images, (1, 1, 1, 1))
    moves = torch.randint(3, (2, batch_size, 1), generator=generator).to(images.device)
    rows = moves[0] + torch.arange(height, device=images.device)  # (B, height)
    columns = moves[1] + torch.arange(width, device=images.device)
    examples = torch.arange(batch_size, device=images.device)
    return padded[examples[:, None, None], rows[:, :, None], columns[:, None, :]]
