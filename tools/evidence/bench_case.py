"""What `make bench` calls its contenders, and what it knows of each when it has measured them."""

from __future__ import annotations

import statistics
from typing import NamedTuple

PASSES = ("forward", "forward + backward")
MASKS = ("no mask", "with `valid_lens`", "causal")

FUSED = "fused kernel, bare"
AGAIN = "the same, a second time"
OURS, OURS_WEIGHTS = "ours", "ours, with weights"
TORCH, TORCH_WEIGHTS = "torch's layer", "torch's layer, with weights"
D2L, LOOP = "D2L's form", "loop over heads"

Size = tuple[int, int, int, int]
"""B, N, D, h."""


class Case(NamedTuple):
    """One size, one kind of mask, one pass, and what each contender took: seconds of each round, bytes at most."""

    size: Size
    mask: str
    passes: str
    seconds: dict[str, list[float]]
    peak: dict[str, int]

    def ratios(self, contender: str, against: str = FUSED) -> list[float]:
        """Of times, round by round."""
        return [mine / other for mine, other in zip(self.seconds[contender], self.seconds[against], strict=True)]

    def ratio(self, quantity: str, contender: str, against: str = FUSED) -> float:
        if quantity == "time":
            return statistics.median(self.ratios(contender, against))
        return self.peak[contender] / self.peak[against]
