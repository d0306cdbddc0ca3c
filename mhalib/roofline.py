"""What each step of the layer computes and moves, and how long a machine needs for it at least: the roofline model.

Williams, Waterman and Patterson 2009: a step with F additions and multiplications that moves M bytes takes at least
max(F / peak, M / bandwidth) seconds. Which of the two is larger depends on F / M, the step's arithmetic intensity.

Counted are the seven steps of self-attention without biases and masks, each of which reads its inputs once and writes
its result once. What a layer does beside them, such as copies that lay heads side by side, depends on how it is
written: the ledger of `mhalib.shapes` shows it.
"""

from __future__ import annotations

from typing import NamedTuple

from ._validate import require_choice, require_count, require_kind
from .bench import Machine
from .costs import Sizes

STEPS = ("W_q", "W_k", "W_v", "scores", "softmax", "average", "W_o")
"""The steps of the layer, in order."""

PHASES = ("prefill", "training", "decoding")
"""prefill: N tokens, forward. training: N tokens, forward and backward, with gradients of the weights and of the input.
decoding: one token, whose query meets a cache of N keys and values, its own among them."""

MACHINES = {
    "NVIDIA T4": Machine("NVIDIA T4", 65e12, 320e9, 2),
    "NVIDIA RTX 4090": Machine("NVIDIA RTX 4090", 165.2e12, 1008e9, 2),
    "NVIDIA A100 80 GB": Machine("NVIDIA A100 80 GB", 312e12, 2039e9, 2),
    "NVIDIA H100 SXM": Machine("NVIDIA H100 SXM", 989.5e12, 3350e9, 2),
    "NVIDIA H200 SXM": Machine("NVIDIA H200 SXM", 989.5e12, 4800e9, 2),
}
"""Limits that NVIDIA publishes, for 16-bit numbers, without sparsity, summed in 32 bits: the data sheets of T4 (2019),
A100 80 GB SXM (2021), H100 SXM (2023) and H200 SXM (2024), which name twice the H100's and H200's peak, with sparsity;
the white paper on the Ada architecture (2022) for the RTX 4090. No program reaches them."""


class StepCost(NamedTuple):
    """What one step takes: additions and multiplications, and bytes read and written."""

    name: str
    flops: int
    moved: int

    @property
    def intensity(self) -> float:
        """FLOPs for each byte."""
        return self.flops / self.moved


def step_costs(
    sizes: Sizes, phase: str, num_tokens: int, batch_size: int = 1, bytes_per_number: int = 4
) -> tuple[StepCost, ...]:
    """FLOPs and bytes of the seven `STEPS` of a layer that stores its scores.

    Heads that share keys and values are counted as reading them once. The exponentials of a softmax are no FLOPs here,
    as in torch's `FlopCounterMode`, so its intensity is 0. Backward, each product takes two more that move the same
    three arrays, and the softmax reads two arrays and writes one.

    Args:
        sizes: D, h, and how many heads have keys and values of their own.
        phase: "prefill", "training" or "decoding", see `PHASES`.
        num_tokens: N.
        batch_size: B.
        bytes_per_number: of every number, weights too.

    Raises:
        TypeError, ValueError: a size is not a positive integer, or does not divide, or there is no such phase.
    """
    require_kind("sizes", sizes, Sizes)
    require_choice("phase", phase, PHASES)
    for name, count in (("num_tokens", num_tokens), ("batch_size", batch_size), ("bytes_per_number", bytes_per_number)):
        require_count(name, count)
    num_tokens, batch_size, bytes_per_number = int(num_tokens), int(batch_size), int(bytes_per_number)
    (wide, shared), D, h = sizes.widths, int(sizes.num_hiddens), int(sizes.num_heads)
    g, d = shared * h // wide, wide // h
    new = 1 if phase == "decoding" else num_tokens  # tokens that the layer is given
    rows, stacked = batch_size * new, new * h // g  # queries that meet the same keys, one below the other
    products = {
        "W_q": (1, rows, D, wide),
        "W_k": (1, rows, D, shared),
        "W_v": (1, rows, D, shared),
        "scores": (batch_size * g, stacked, d, num_tokens),
        "average": (batch_size * g, stacked, num_tokens, d),
        "W_o": (1, rows, wide, D),
    }
    passes = 3 if phase == "training" else 1
    num_scores = batch_size * h * new * num_tokens
    found = []
    for name in STEPS:
        if name == "softmax":
            flops, numbers = 0, (5 if phase == "training" else 2) * num_scores
        else:
            count, n, k, m = products[name]  # (n, k) times (k, m)
            flops, numbers = passes * count * 2 * n * k * m, passes * count * (n * k + k * m + n * m)
        found.append(StepCost(name, flops, bytes_per_number * numbers))
    return tuple(found)
