"""FLOPs and bytes of a product, and the least time of steps.

What a layer computes and moves for one new token, and how many it takes to keep a processor busy.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import torch
from torch import Tensor

from ._exercise import Case
from ._inputs import apart, own_sizes
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


def _caches(rng: random.Random) -> Iterator[Case]:
    yield {"batch_size": 4, "h": 6, "g": 2, "d": 3, "num_tokens": 5, "bytes_per_number": 2}
    drawn = apart(rng, 5, smallest=5, largest=30, of=lambda g, shared, B, d, N: [g, shared, B, d, N, g * shared])
    for width, (g, shared, batch_size, d, num_tokens) in zip((2, 4, 8), drawn, strict=True):
        sizes = {"batch_size": batch_size, "h": g * shared, "g": g, "d": d, "num_tokens": num_tokens}
        yield {**sizes, "bytes_per_number": width}


def _decoded(
    batch_size: int,
    h: int,
    g: int,
    d: int,
    num_tokens: int,
    bytes_per_number: int,
    *,
    queries: int = 1,
    q: int = 1,
    k: float = 1,
    s: int = 1,
) -> tuple[int, int]:
    """FLOPs and bytes where `queries` tokens ask; q, k and s: how often queries, keys and scores are moved."""
    pairs = batch_size * h * queries * num_tokens
    numbers = q * batch_size * h * queries * d + k * batch_size * g * num_tokens * d + s * pairs
    return 2 * pairs * d, round(bytes_per_number * numbers)


decoding_scores = exercise(
    "decoding_scores",
    reference=lambda batch_size, h, g, d, num_tokens, bytes_per_number: _decoded(
        batch_size, h, g, d, num_tokens, bytes_per_number
    ),
    cases=_caches,
    switches=_decoded,
)


@own_sizes("numbers have 2 or 4 bytes", "bytes_per_number")
def _machines(rng: random.Random) -> Iterator[Case]:
    """Ridges far from 0 and from what the width allows, none of them met exactly; and two that no batch reaches,
    the second by nothing."""
    yield {"num_hiddens": 100, "bytes_per_number": 4, "ridge": 10}
    yield {"num_hiddens": 4 * rng.randint(16, 20), "bytes_per_number": 2, "ridge": rng.randint(45, 60)}
    yield {"num_hiddens": 246, "bytes_per_number": 2, "ridge": 123}
    for width in (4, 2):
        ridge = rng.randint(30, 60)
        num_hiddens = round(width * ridge * rng.uniform(2.2, 2.8))
        while width * ridge * num_hiddens % (num_hiddens - width * ridge) == 0:
            num_hiddens += 1
        yield {"num_hiddens": num_hiddens, "bytes_per_number": width, "ridge": ridge}


def _batch(num_hiddens: int, needed: float, activations: int = 2) -> float | None:
    """B where 2 / (1 / B + activations / D) is `needed`: the ridge times the bytes of a number."""
    left = 2 / needed - activations / num_hiddens
    return 1 / left if left > 0 else None


def _up(batch: float | None) -> int | None:
    return None if batch is None else math.ceil(batch)


batch_to_fill = exercise(
    "batch_to_fill",
    reference=lambda num_hiddens, bytes_per_number, ridge: _up(_batch(num_hiddens, bytes_per_number * ridge)),
    cases=_machines,
)


def _texts(rng: random.Random) -> Iterator[Case]:
    yield {"num_tokens": 5, "h": 6, "g": 2, "d": 3, "bytes_per_number": 2}
    drawn = apart(rng, 4, smallest=5, largest=30, of=lambda g, shared, d, N: [g, shared, d, N, g * shared])
    for width, (g, shared, d, num_tokens) in zip((2, 4, 8), drawn, strict=True):
        yield {"num_tokens": num_tokens, "h": g * shared, "g": g, "d": d, "bytes_per_number": width}


def _fused(
    num_tokens: int,
    h: int,
    g: int,
    d: int,
    bytes_per_number: int,
    *,
    pairs: float | None = None,
    q: int = 2,
    k: float = 2,
    s: int = 0,
) -> tuple[int, int]:
    """FLOPs and bytes; q, k and s: how often arrays as large as queries, keys and scores are moved."""
    causal = num_tokens * (num_tokens + 1) // 2
    numbers = num_tokens * d * (q * h + k * g) + s * h * causal
    return round(4 * h * d * (causal if pairs is None else pairs)), round(bytes_per_number * numbers)


fused_causal = exercise("fused_causal", reference=lambda *given: _fused(*given), cases=_texts, switches=_fused)


def _trainings(rng: random.Random) -> Iterator[Case]:
    yield {
        "tokens_per_second": 100.0,
        "num_weights": 1000,
        "num_layers": 2,
        "width": 8,
        "num_tokens": 15,
        "peak": 1e6,
    }
    for long, (num_layers, width, words) in zip((1, 3, 20), apart(rng, 3, smallest=5, largest=60), strict=True):
        num_tokens = long * words
        num_weights = num_layers * width * rng.randint(400, 900)
        tokens_per_second = float(rng.randint(1000, 9000))
        needed = tokens_per_second * 6 * (num_weights + num_layers * width * (num_tokens + 1))
        yield {
            "tokens_per_second": tokens_per_second,
            "num_weights": num_weights,
            "num_layers": num_layers,
            "width": width,
            "num_tokens": num_tokens,
            "peak": float(round(needed * rng.uniform(1.6, 4))),
        }


def _used(
    tokens_per_second: float,
    num_weights: float,
    num_layers: int,
    width: int,
    num_tokens: int,
    peak: float,
    *,
    back: int = 2,
    layers: float | None = None,
    keys: float | None = None,
) -> float:
    """`back`: how much the way back takes, of the way forward. `keys`: that a token meets, on average."""
    met = (num_tokens + 1) / 2 if keys is None else keys
    attention = 2 * (num_layers if layers is None else layers) * width * met
    return tokens_per_second * (1 + back) * 2 * (num_weights + attention) / peak


utilisation = exercise("utilisation", reference=lambda *given: _used(*given), cases=_trainings, switches=_used)
