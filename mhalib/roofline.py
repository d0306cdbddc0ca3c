"""What each step of the layer computes and moves, and how long a machine needs for it at least: the roofline model.

Williams, Waterman and Patterson 2009: a step with F additions and multiplications that moves M bytes takes at least
max(F / peak, M / bandwidth) seconds. Which of the two is larger depends on F / M, the step's arithmetic intensity.

Counted are the products and the softmax of self-attention without biases and masks, each of which reads its inputs once
and writes its result once. What a layer does beside them, such as copies that lay heads side by side, depends on how it
is written: the ledger of `mhalib.shapes` shows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from ._validate import require_choice, require_count, require_kind
from .attention import MultiHeadAttention
from .bench import Machine
from .costs import Sizes, _described
from .shapes import Ledger, ledger
from .variants import LatentAttention

STEPS = ("W_q", "W_k", "W_v", "scores", "softmax", "average", "W_o")
"""The steps of the layer, in order."""

LATENT_STEPS = ("W_q", "W_down", "W_rotary", "W_up_k", "W_up_v", "scores", "softmax", "average", "W_o")
"""The steps of latent attention, in order. Absorbed, it takes W_up_v after the average."""

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
    run = _Run.checked(phase, num_tokens, batch_size, bytes_per_number)
    (wide, shared), D, h = sizes.widths, int(sizes.num_hiddens), int(sizes.num_heads)
    d = wide // h
    projected = {"W_q": (1, run.rows, D, wide), "W_k": (1, run.rows, D, shared), "W_v": (1, run.rows, D, shared)}
    return run.costs({**projected, **run.attending(h, shared // d, d, d), "W_o": (1, run.rows, wide, D)}, h)


def latent_step_costs(
    choice: str | Mapping[str, Any],
    num_hiddens: int,
    num_heads: int,
    phase: str,
    num_tokens: int,
    batch_size: int = 1,
    bytes_per_number: int = 4,
) -> tuple[StepCost, ...]:
    """FLOPs and bytes of the `LATENT_STEPS` of a latent layer that stores its scores, in the order of the layer.

    It computes in one of two ways, see `mhalib.variants.LatentAttention`. `absorbed=False` makes keys and values of
    every head from latents: from those of the new tokens in prefill and training, and in decoding from all N in the
    cache. `absorbed=True` carries queries into the space of the latents by W_up_k, and averages out of it by W_up_v:
    all heads share one key of latent_size + rotary_size numbers, whose latent is their value. Where `absorbed` is not
    said, the layer takes the first way for prefill and training, and the second for decoding.

    As in `step_costs`, what heads share is counted as read once, and latents twice: with the scores and with the
    average. Where the layer returns weights, it copies shared latents for each head and reads the copies. Not counted
    either are its norms, the turning by rotary positions, the copies that join turned channels with others, and what
    the cache stores.

    Args:
        choice: "latent", or a mapping with this name and settings, as in `make_attention`. Without rotary positions
            there is no W_rotary; with `query_latent_size`, W_q_down and W_q_up take the place of W_q.
        num_hiddens: D.
        num_heads: h.
        phase: "prefill", "training" or "decoding", see `PHASES`.
        num_tokens: N.
        batch_size: B.
        bytes_per_number: of every number, weights too.

    Raises:
        TypeError, ValueError: the layer refuses its settings, has biases or inputs of several widths, or is not latent
            attention; a size is not a positive integer; there is no such phase.

    Source: DeepSeek-AI 2024, DeepSeek-V2, section 2.1.
    """
    run = _Run.checked(phase, num_tokens, batch_size, bytes_per_number)
    layer = _described(choice, num_hiddens, num_heads)
    if not isinstance(layer, LatentAttention):
        raise ValueError(f"choice={choice!r:.80} is a {type(layer).__name__}, and not latent attention")
    D, h, d, e = layer.num_hiddens, layer.num_heads, layer.head_dim, layer.value_dim
    c, r, narrow = layer.latent_size, layer.rotary_size, layer.query_latent_size
    queries = {"W_q_down": (D, narrow), "W_q_up": (narrow, h * (d + r))} if narrow else {"W_q": (D, h * (d + r))}
    new = queries | {"W_down": (D, c)} | ({"W_rotary": (D, r)} if r else {})
    projected = {name: (1, run.rows, *weight) for name, weight in new.items()}
    if layer.is_absorbed(run.new):
        up, down = {"W_up_k": (h, run.rows, d, c)}, {"W_up_v": (h, run.rows, c, e)}
        attending = {**up, **run.attending(h, 1, c + r, c), **down}
    else:
        made = run.batch_size * run.num_tokens
        up = {"W_up_k": (1, made, c, h * d), "W_up_v": (1, made, c, h * e)}
        attending = {**up, **run.attending(h, h, d + r, e)}
    return run.costs({**projected, **attending, "W_o": (1, run.rows, h * e, D)}, h)


def counted_step_costs(
    choice: str | Mapping[str, Any],
    num_hiddens: int,
    num_heads: int,
    phase: str,
    num_tokens: int,
    batch_size: int = 1,
    bytes_per_number: int = 4,
) -> tuple[StepCost, ...]:
    """FLOPs and bytes of the products and the softmax of any kind of attention, as the ledger lists them, in order.

    The layer runs on torch's meta device, where tensors have shapes and no numbers, so a kind needs no formula, and
    sizes cost nothing. Its weights are returned, as where it stores its scores. A step has the name that the ledger
    has for its operation, such as "linear". What heads share counts as often as the layer reads it.

    Args:
        choice: a name in `mhalib.attention.KINDS`, or a mapping with that "name" and settings.
        num_hiddens: D.
        num_heads: h.
        phase: "prefill", "training" or "decoding", see `PHASES`.
        num_tokens: N.
        batch_size: B.
        bytes_per_number: of every number, weights too.

    Raises:
        TypeError, ValueError: the layer refuses its settings, has biases or inputs of several widths, or looks at
            numbers; a size is not a positive integer; there is no such phase.
    """
    run = _Run.checked(phase, num_tokens, batch_size, bytes_per_number)
    layer = _described(choice, num_hiddens, num_heads)
    try:
        with torch.device("meta"), torch.enable_grad():
            steps = _run_without_numbers(layer, run)
    except (RuntimeError, NotImplementedError) as error:
        raise ValueError(f"choice={choice!r:.80} cannot be counted without numbers: {error}") from error
    counted = [step for step in steps if step.flops or "softmax" in step.operation]
    return tuple(StepCost(step.operation, step.flops, step.moved * run.bytes_per_number // 4) for step in counted)


def _run_without_numbers(layer: MultiHeadAttention, run: _Run) -> Ledger:
    """What a layer on the meta device does in a phase, in numbers of 4 bytes."""
    layer = layer.float().train(run.phase == "training")
    x = torch.empty(run.batch_size, run.new, layer.num_hiddens, requires_grad=run.phase == "training")
    if run.phase == "training":
        return ledger(lambda x, gradient: layer(x, x, x)[0].backward(gradient), x, torch.empty_like(x))
    if run.phase == "prefill":
        return ledger(layer, x, x, x)
    cache = layer.new_cache()
    old = torch.empty(run.batch_size, run.num_tokens - 1, layer.num_hiddens)
    layer(old, old, old, cache=cache)
    return ledger(layer, x, x, x, cache=cache)


_Product = tuple[int, int, int, int]  # how many products, of (n, k) times (k, m)


class _Run(NamedTuple):
    """What a layer is used for, and with how much."""

    phase: str
    num_tokens: int
    batch_size: int
    bytes_per_number: int

    @classmethod
    def checked(cls, phase: str, num_tokens: int, batch_size: int, bytes_per_number: int) -> _Run:
        """Raise unless there is such a phase and the counts are positive integers."""
        require_choice("phase", phase, PHASES)
        counts = {"num_tokens": num_tokens, "batch_size": batch_size, "bytes_per_number": bytes_per_number}
        for name, count in counts.items():
            require_count(name, count)
        return cls(phase, *map(int, counts.values()))  # an integer of numpy's would overflow

    @property
    def new(self) -> int:
        """Tokens of an example that the layer is given."""
        return 1 if self.phase == "decoding" else self.num_tokens

    @property
    def rows(self) -> int:
        """Tokens of all examples that the layer is given."""
        return self.batch_size * self.new

    def attending(self, heads: int, shared: int, key_width: int, value_width: int) -> dict[str, _Product | None]:
        """Scores, softmax and average. Queries of heads that share keys are one matrix, one below the other."""
        count, stacked = self.batch_size * shared, self.new * heads // shared
        scores, average = (count, stacked, key_width, self.num_tokens), (count, stacked, self.num_tokens, value_width)
        return {"scores": scores, "softmax": None, "average": average}

    def costs(self, steps: Mapping[str, _Product | None], heads: int) -> tuple[StepCost, ...]:
        """What the products take, and the softmax, which is none."""
        training = self.phase == "training"
        num_scores = heads * self.rows * self.num_tokens
        found = []
        for name, product in steps.items():
            if product is None:
                flops, numbers = 0, (5 if training else 2) * num_scores
            else:
                (count, n, k, m), passes = product, 3 if training else 1
                flops, numbers = passes * count * 2 * n * k * m, passes * count * (n * k + k * m + n * m)
            found.append(StepCost(name, flops, self.bytes_per_number * numbers))
        return tuple(found)
