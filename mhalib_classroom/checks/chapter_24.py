"""Chapter 24: FLOPs and bytes of a product, and the least time of steps."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor

from ._exercise import Case, Exercise, Mistake
from ._inputs import apart


def _products(rng: random.Random) -> Iterator[Case]:
    yield {"rows": 2, "inner": 3, "columns": 5, "bytes_per_number": 4}
    for width, (n, k, m) in zip((2, 4, 8), apart(rng, 3, smallest=9, largest=59), strict=True):
        yield {"rows": n, "inner": k, "columns": m, "bytes_per_number": width}


def _intensity(n: int, k: int, m: int, moved: float) -> float:
    return 2 * n * k * m / moved


product_intensity = Exercise(
    "product_intensity",
    chapter=24,
    title="FLOPs for each byte of a product",
    reference=lambda n, k, m, bytes_per_number: _intensity(n, k, m, bytes_per_number * (n * k + k * m + n * m)),
    cases=_products,
    verified="four products, in numbers of 2, 4 and 8 bytes.",
    mistakes=[
        Mistake(
            "no factor 2",
            "you counted each multiplication together with its addition as one operation. They are two FLOPs.",
            lambda n, k, m, bytes_per_number: n * k * m / (bytes_per_number * (n * k + k * m + n * m)),
        ),
        Mistake(
            "numbers for bytes",
            "you counted numbers. Each has `bytes_per_number` bytes.",
            lambda n, k, m, bytes_per_number: _intensity(n, k, m, n * k + k * m + n * m),
        ),
        Mistake(
            "no factor 2, numbers for bytes",
            "you counted a multiplication and its addition as one, and numbers instead of bytes.",
            lambda n, k, m, bytes_per_number: n * k * m / (n * k + k * m + n * m),
        ),
        Mistake(
            "result not written",
            "you counted what is read. The result, rows times columns numbers, has to be written, too.",
            lambda n, k, m, bytes_per_number: _intensity(n, k, m, bytes_per_number * (n * k + k * m)),
        ),
        Mistake(
            "second matrix not read",
            "the second matrix, inner times columns, is missing from the bytes. A projection has to read its W.",
            lambda n, k, m, bytes_per_number: _intensity(n, k, m, bytes_per_number * (n * k + n * m)),
        ),
        Mistake(
            "first matrix not read",
            "the first matrix, rows times inner, is missing from the bytes.",
            lambda n, k, m, bytes_per_number: _intensity(n, k, m, bytes_per_number * (k * m + n * m)),
        ),
        Mistake(
            "only the result",
            "you counted the bytes of the result alone. Both matrices have to be read.",
            lambda n, k, m, bytes_per_number: 2 * k / bytes_per_number,
        ),
        Mistake(
            "upside down",
            "this is bytes for each FLOP. Turn it round.",
            lambda n, k, m, bytes_per_number: bytes_per_number * (n * k + k * m + n * m) / (2 * n * k * m),
        ),
        Mistake(
            "read for each FLOP",
            "you let every multiplication read its two numbers again. A number is read once and used many times: that "
            "is what makes products fast.",
            lambda n, k, m, bytes_per_number: 2 * n * k * m / (bytes_per_number * (2 * n * k * m + n * m)),
        ),
        Mistake(
            "FLOPs alone",
            "these are the FLOPs. Divide them by the bytes.",
            lambda n, k, m, bytes_per_number: 2 * n * k * m,
        ),
    ],
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


least_seconds = Exercise(
    "least_seconds",
    chapter=24,
    title="the least time of a layer",
    reference=lambda *given: torch.maximum(*_both(*given)).sum(),
    cases=_timed,
    verified="four layers; some of their steps wait for memory and some for arithmetic.",
    mistakes=[
        Mistake(
            "the longer of two sums",
            "you added up all FLOPs and all bytes, and took the longer time at the end. A step that waits for memory "
            "cannot use the time in which another computes: decide for each step, then add.",
            lambda *given: torch.maximum(*(part.sum() for part in _both(*given))),
        ),
        Mistake(
            "both added",
            "you added the time of the arithmetic and that of the memory. Both go on at the same time, so the longer "
            "one decides.",
            lambda *given: sum(_both(*given)).sum(),  # type: ignore[union-attr]
        ),
        Mistake(
            "the shorter",
            "you took the shorter of the two times of each step. A step has to wait for the longer one.",
            lambda *given: torch.minimum(*_both(*given)).sum(),
        ),
        Mistake(
            "arithmetic alone",
            "you counted the arithmetic alone. A step that moves many bytes takes longer.",
            lambda *given: _both(*given)[0].sum(),
        ),
        Mistake(
            "memory alone",
            "you counted the bytes alone. A step with many FLOPs takes longer.",
            lambda *given: _both(*given)[1].sum(),
        ),
        Mistake(
            "limits exchanged",
            "you divided the FLOPs by the bandwidth and the bytes by the peak.",
            lambda flops, moved, peak, bandwidth: torch.maximum(flops / bandwidth, moved / peak).sum(),
        ),
        Mistake(
            "not added up",
            "these are the times of the steps. One comes after the other: add them up.",
            lambda *given: torch.maximum(*_both(*given)),
        ),
        Mistake(
            "the longest step",
            "you took the longest step. One comes after the other: add them up.",
            lambda *given: torch.maximum(*_both(*given)).max(),
        ),
        Mistake(
            "the mean",
            "this is the mean time of a step. Add them up.",
            lambda *given: torch.maximum(*_both(*given)).mean(),
        ),
    ],
)
