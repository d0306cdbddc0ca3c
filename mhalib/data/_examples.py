"""What all data of the book can do: be counted, cut, batched and moved."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TypeVar

import torch
from torch import Tensor

E = TypeVar("E", bound="Examples")


@dataclass(frozen=True)
class Examples:
    """n examples. Every field of a subclass is a tensor whose first axis counts them."""

    def __len__(self) -> int:
        return len(getattr(self, fields(self)[0].name))

    def __getitem__(self: E, index: slice | Tensor) -> E:
        """A part of them: `train, test = made[:20000], made[20000:]`, or a batch by a tensor of indices."""
        return type(self)(*(getattr(self, field.name)[index] for field in fields(self)))

    def to(self: E, device: torch.device | str) -> E:
        """The same examples on `device`."""
        return type(self)(*(getattr(self, field.name).to(device) for field in fields(self)))
