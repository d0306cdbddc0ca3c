"""Chapter 24: FLOPs and bytes of a product, and the least time of steps."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor

from ._exercise import Case
from ._inputs import apart
from ._markdown import exercises_of

exercise = exercises_of(globals())


def _products(rng: random.Random) -> Iterator[Case]:
    yield {"rows": 2, "inner": 3, "columns": 5, "bytes_per_number": 4}
    for width, (n, k, m) in zip((2, 4, 8), apart(rng, 3, smallest=9, largest=59), strict=True):
        yield {"rows": n, "inner": k, "columns": m, "bytes_per_number": width}


def _intensity(n: int, k: int, m: int, moved: float) -> float:
    return 2 * n * k * m / moved


product_intensity = exercise(
    "product_intensity",
    reference=lambda n, k, m, bytes_per_number: _intensity(n, k, m, bytes_per_number * (n * k + k * m + n * m)),
    cases=_products,
)


def _timed(rng: random.Random) -> Iterator[Case]:
    """Steps of both kinds, so that the sum of the longer times is not the longer sum, which is now that of the bytes,
    now that of the FLOPs."""
    yield {
        "flops": torch.tensor([80.0, 0.0, 16.0]),
        "moved": torch.tensor([6.0, 10.0, 12.0]),
        "peak": 8.0,
        "bandwidth": 2.0,
    }
    for number, (num_steps,) in enumerate(apart(rng, 1, smallest=3, largest=6)):
        peak, bandwidth = rng.randint(30, 90), rng.randint(3, 12)
        computing = [rng.randint(10, 60) / 10 for _ in range(num_steps)]
        moving = [time * (rng.choice((0.3, 0.6)) if i % 2 else rng.choice((2, 3))) for i, time in enumerate(computing)]
        if number % 2:
            computing[1] += 2 * sum(moving)
        yield {
            "flops": torch.tensor([time * peak for time in computing]),
            "moved": torch.tensor([time * bandwidth for time in moving]),
            "peak": float(peak),
            "bandwidth": float(bandwidth),
        }


def _both(flops: Tensor, moved: Tensor, peak: float, bandwidth: float) -> tuple[Tensor, Tensor]:
    return flops / peak, moved / bandwidth


least_seconds = exercise(
    "least_seconds",
    reference=lambda *given: torch.maximum(*_both(*given)).sum(),
    cases=_timed,
)
