"""What each step of the layer computes and moves, and how long a machine needs for it at least: the roofline model.

Williams, Waterman and Patterson 2009: a step with F additions and multiplications that moves M bytes takes at least
max(F / peak, M / bandwidth) seconds. Which of the two is larger depends on F / M, the step's arithmetic intensity.

Counted are the products and the softmax of self-attention without biases, each of which reads its inputs once and
writes its result once; or, with a fused kernel, what that reads and writes. What a layer does beside them, such as
copies that lay heads side by side, depends on how it is written: the ledger of `mhalib.shapes` shows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from ._validate import require_choice, require_count, require_flag, require_kind
from .attention import MultiHeadAttention
from .bench import Machine
from .costs import Sizes, _described
from .shapes import Ledger, ledger
from .variants import LatentAttention

STEPS = ("W_q", "W_k", "W_v", "scores", "softmax", "average", "W_o")
"""The steps of a layer that stores its scores, in order. With a fused kernel, `FUSED` takes the place of three."""

LATENT_STEPS = ("W_q", "W_down", "W_rotary", "W_up_k", "W_up_v", "scores", "softmax", "average", "W_o")
"""The steps of latent attention, in order. Absorbed, it takes W_up_v after the average."""

FUSED = "fused"
"""Scores, softmax and average in one kernel that never writes the scores."""

KERNELS = ("stored", "fused")
"""stored: scores and weights are written to memory and read again. fused: they stay inside one kernel, tile by tile."""

PHASES = ("prefill", "training", "decoding")
"""prefill: N tokens, forward. training: N tokens, forward and backward, with gradients of the weights and of the input.
decoding: one token, whose query meets a cache of N keys and values, its own among them."""


class Chip(NamedTuple):
    """What the maker of a chip states: FLOPs per second without sparsity, bytes per second, and bytes of memory."""

    name: str
    peak: float  # of 16-bit numbers, summed in 32 bits
    bandwidth: float
    memory: float
    fp8: float | None = None  # peaks of narrower numbers; `None` where it has none, or none is stated
    fp4: float | None = None
    source: str = ""  # what was read, and which numbers are from somewhere else than the maker


_SHEET = "NVIDIA's data sheet, read in tables that quote it; peak and bandwidth follow from the chip's units and clock"
_NEMO = "16-bit peak: NVIDIA's own code (NeMo RL, flops_tracker.py), half of the number with sparsity, read"
_TABLES = "read in tables that quote NVIDIA, not in its text"

CHIPS = {
    chip.name: chip
    for chip in (
        Chip("NVIDIA T4", 65e12, 320e9, 16e9, source=_SHEET),
        Chip("NVIDIA RTX 4090", 165.2e12, 1008e9, 24e9, 330.3e12, source=_SHEET + "; FP8: twice 16 bits"),
        Chip("NVIDIA A100 80 GB", 312e12, 2039e9, 80e9, source=_SHEET),
        Chip("NVIDIA H100 SXM", 989.5e12, 3350e9, 80e9, 1979e12, source=f"{_NEMO}; the rest {_TABLES}"),
        Chip(
            "NVIDIA H200 SXM",
            989.5e12,
            4800e9,
            141e9,
            1979e12,
            source=f"memory and its bandwidth: NVIDIA's TensorRT-LLM (H200launch.md), read; the rest {_TABLES}",
        ),
        Chip("NVIDIA B200", 2250e12, 8000e9, 180e9, 4500e12, 9000e12, f"{_NEMO}; the rest {_TABLES}"),
        Chip(
            "NVIDIA B300",
            2250e12,
            8000e9,
            288e9,
            4500e12,
            15000e12,
            f"{_NEMO}; FP4: NVIDIA's article on Blackwell Ultra (2025), of the full chip, read; the rest {_TABLES}",
        ),
        Chip(
            "AMD MI300X",
            1307.4e12,
            5300e9,
            192e9,
            2614.9e12,
            source="AMD's ROCm documentation (MI300 series microarchitecture), read; memory: tables that quote AMD",
        ),
        Chip(
            "Google TPU v6e",
            918e12,
            1638e9,
            32e9,
            918e12,
            source="Google Cloud's documentation (TPU v6e, and TPU7x for FP8), read",
        ),
        Chip(
            "Apple M1 Max",
            10.4e12,
            400e9,
            64e9,
            source="Apple's announcements of 2020 and 2021 as newspapers quote them: 2.6 trillion FLOPs for M1, a GPU "
            "four times as fast, 400 GB/s; for 32-bit numbers. Of later chips no peak was found",
        ),
    )
}
"""What a maker states, and where it was read. No program reaches these limits."""

MACHINES = {name: Machine(name, chip.peak, chip.bandwidth, 2) for name, chip in CHIPS.items()}
"""The two limits of each of `CHIPS`, for 16-bit numbers."""


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
    sizes: Sizes,
    phase: str,
    num_tokens: int,
    batch_size: int = 1,
    bytes_per_number: int = 4,
    *,
    kernel: str = "stored",
    causal: bool = False,
    weight_bytes: int | None = None,
    cache_bytes: int | None = None,
    window: int | None = None,
) -> tuple[StepCost, ...]:
    """FLOPs and bytes of the steps of a layer: the seven of `STEPS`, or with a fused kernel five.

    Heads that share keys and values are counted as reading them once. The exponentials of a softmax are no FLOPs here,
    as in torch's `FlopCounterMode`, so its intensity is 0. With T pairs of a query and a key in each head, n queries
    of N tokens, wide = h d and shared = g d:

    - a projection from D to m: 2 n D m FLOPs; n D + D m + n m numbers.
    - stored: scores and average 2 T wide FLOPs each, and n wide + N shared + h T numbers each; the softmax 2 h T.
      Backward, each product takes two more that move the same three arrays, and the softmax reads two and writes one.
    - fused: 4 T wide FLOPs; queries, keys, values and output once, 2 n wide + 2 N shared numbers, and none of scores.
      Backward, five products, since it makes the scores again: 10 T wide FLOPs more. It reads queries, output, its
      gradient, keys and values, and writes three gradients: 4 n wide + 4 N shared. One number for each row, which it
      keeps for that, is not counted.

    All N keys are there for each of n queries: T = n N. `causal` counts only pairs that exist, one by one: T =
    N (N + 1) / 2. A kernel computes whole tiles, so on the diagonal it does a little more; and one that stores scores
    and hides half of them afterwards, as torch does, computes T = N². A new token sees all N: decoding is the same.

    Args:
        sizes: D, h, and how many heads have keys and values of their own.
        phase: "prefill", "training" or "decoding", see `PHASES`.
        num_tokens: N.
        batch_size: B.
        bytes_per_number: of activations: what goes into a step and comes out of it.
        kernel: "stored" or "fused", see `KERNELS`.
        causal: whether a token sees itself and those before it only.
        weight_bytes: of a weight and its gradient; `None` means `bytes_per_number`.
        cache_bytes: of a number in the cache, which only decoding reads; `None` means `bytes_per_number`.
        window: w, if a token sees only itself and the w - 1 before it: of w N - w (w - 1) / 2 pairs, and of a cache of
            min(N, w) tokens. Needs `causal`.

    Raises:
        TypeError, ValueError: a size is not a positive integer, or does not divide, or there is no such phase or
            kernel; `causal` is no bool; a window is not causal.

    Source: Dao et al. 2022, FlashAttention, for the bytes of a fused kernel; Dao 2023, FlashAttention-2, for its
    backward pass.
    """
    require_kind("sizes", sizes, Sizes)
    run = _Run.checked(
        phase, num_tokens, batch_size, bytes_per_number, kernel, causal, weight_bytes, cache_bytes, window
    )
    (wide, shared), D, h = sizes.widths, int(sizes.num_hiddens), int(sizes.num_heads)
    d = wide // h
    projected = {
        "W_q": _product(run.rows, D, wide),
        "W_k": _product(run.rows, D, shared),
        "W_v": _product(run.rows, D, shared),
    }
    return run.costs({**projected, **run.attending(h, shared // d, d, d), "W_o": _product(run.rows, wide, D)})


def latent_step_costs(
    choice: str | Mapping[str, Any],
    num_hiddens: int,
    num_heads: int,
    phase: str,
    num_tokens: int,
    batch_size: int = 1,
    bytes_per_number: int = 4,
    *,
    kernel: str = "stored",
    causal: bool = False,
    weight_bytes: int | None = None,
    cache_bytes: int | None = None,
) -> tuple[StepCost, ...]:
    """FLOPs and bytes of the `LATENT_STEPS` of a latent layer, or of those with a fused kernel, in the layer's order.

    It computes in one of two ways, see `mhalib.variants.LatentAttention`. `absorbed=False` makes keys and values of
    every head from latents: from those of the new tokens in prefill and training, and in decoding from all N in the
    cache. `absorbed=True` carries queries into the space of the latents by W_up_k, and averages out of it by W_up_v:
    all heads share one key of latent_size + rotary_size numbers, whose latent is their value. Where `absorbed` is not
    said, the layer takes the first way for prefill and training, and the second for decoding.

    As in `step_costs`, what heads share is counted as read once. Stored, latents are read twice: with the scores and
    with the average. A fused kernel that is absorbed reads them once, for a latent is key and value. Where the layer
    returns weights, it copies shared latents for each head and reads the copies. Not counted
    either are its norms, the turning by rotary positions, the copies that join turned channels with others, and what
    the cache stores.

    Args:
        choice: "latent", or a mapping with this name and settings, as in `make_attention`. Without rotary positions
            there is no W_rotary; with `query_latent_size`, W_q_down and W_q_up take the place of W_q.
        num_hiddens: D.
        num_heads: h.
        phase: "prefill", "training" or "decoding", see `PHASES`.
        num_tokens: N.
        batch_size, bytes_per_number, kernel, causal, weight_bytes, cache_bytes: as in `step_costs`.

    Raises:
        TypeError, ValueError: the layer refuses its settings, has biases or inputs of several widths, or is not latent
            attention; a size is not a positive integer; there is no such phase or kernel.

    Source: DeepSeek-AI 2024, DeepSeek-V2, section 2.1.
    """
    run = _Run.checked(phase, num_tokens, batch_size, bytes_per_number, kernel, causal, weight_bytes, cache_bytes)
    layer = _described(choice, num_hiddens, num_heads)
    if not isinstance(layer, LatentAttention):
        raise ValueError(f"choice={choice!r:.80} is a {type(layer).__name__}, and not latent attention")
    D, h, d, e = layer.num_hiddens, layer.num_heads, layer.head_dim, layer.value_dim
    c, r, narrow = layer.latent_size, layer.rotary_size, layer.query_latent_size
    queries = {"W_q_down": (D, narrow), "W_q_up": (narrow, h * (d + r))} if narrow else {"W_q": (D, h * (d + r))}
    new = queries | {"W_down": (D, c)} | ({"W_rotary": (D, r)} if r else {})
    projected = {name: _product(run.rows, *weight) for name, weight in new.items()}
    if layer.is_absorbed(run.new):
        up, down = {"W_up_k": _product(run.rows, d, c, h)}, {"W_up_v": _product(run.rows, c, e, h)}
        attending = {**up, **run.attending(h, 1, c + r, c, one_array=True), **down}
    else:
        made = run.batch_size * run.num_tokens
        up = {"W_up_k": _product(made, c, h * d), "W_up_v": _product(made, c, h * e)}
        if phase == "decoding":
            up = {k: one._replace(activations=one.activations - made * c, cached=made * c) for k, one in up.items()}
        attending = {**up, **run.attending(h, h, d + r, e, cached=False)}
    return run.costs({**projected, **attending, "W_o": _product(run.rows, h * e, D)})


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


class _Work(NamedTuple):
    """What a step takes, forward or in all of a training step, in FLOPs and in numbers of three kinds."""

    flops: int
    activations: int
    weights: int = 0
    cached: int = 0
    trained: _Work | None = None  # where training is not three times as much


def _product(rows: int, inner: int, columns: int, count: int = 1) -> _Work:
    """`count` products of activations (rows, inner) with weights (inner, columns)."""
    moved = count * rows * (inner + columns)
    return _Work(2 * count * rows * inner * columns, moved, count * inner * columns)


class _Run(NamedTuple):
    """What a layer is used for, and with how much."""

    phase: str
    num_tokens: int
    batch_size: int
    bytes_per_number: int
    kernel: str
    causal: bool
    weight_bytes: int
    cache_bytes: int
    window: int

    @classmethod
    def checked(
        cls,
        phase: str,
        num_tokens: int,
        batch_size: int,
        bytes_per_number: int,
        kernel: str = "stored",
        causal: bool = False,
        weight_bytes: int | None = None,
        cache_bytes: int | None = None,
        window: int | None = None,
    ) -> _Run:
        """Raise unless there is such a phase and kernel, and the counts are positive integers."""
        require_choice("phase", phase, PHASES)
        require_choice("kernel", kernel, KERNELS)
        require_flag("causal", causal)
        counts = {"num_tokens": num_tokens, "batch_size": batch_size, "bytes_per_number": bytes_per_number}
        counts["weight_bytes"] = bytes_per_number if weight_bytes is None else weight_bytes
        counts["cache_bytes"] = bytes_per_number if cache_bytes is None else cache_bytes
        counts["window"] = num_tokens if window is None else window
        for name, count in counts.items():
            require_count(name, count)
        if window is not None and not causal:
            raise ValueError(f"window={window} is of the tokens before one, so it needs causal=True")
        N, B, a, w, c, seen = map(int, counts.values())  # an integer of numpy's would overflow
        return cls(phase, N, B, a, kernel, bool(causal), w, c, min(seen, N))

    @property
    def new(self) -> int:
        """Tokens of an example that the layer is given."""
        return 1 if self.phase == "decoding" else self.num_tokens

    @property
    def rows(self) -> int:
        """Tokens of all examples that the layer is given."""
        return self.batch_size * self.new

    @property
    def pairs(self) -> int:
        """Queries and keys that meet, of one head and all examples."""
        N, w = self.num_tokens, self.window
        if self.phase == "decoding":
            return self.batch_size * w
        return self.batch_size * (w * N - w * (w - 1) // 2 if self.causal else N * N)

    def attending(
        self, heads: int, shared: int, key_width: int, value_width: int, *, one_array: bool = False, cached: bool = True
    ) -> dict[str, _Work]:
        """Scores, softmax and average of `heads` queries for each token, and of `shared` keys.

        one_array: a value is a part of its key. cached: keys and values are read from the cache, if there is one.
        """
        kept_tokens = self.window if self.phase == "decoding" else self.num_tokens
        pairs, tokens = heads * self.pairs, self.batch_size * kept_tokens * shared
        query, output = self.rows * heads * key_width, self.rows * heads * value_width
        key, value = tokens * key_width, tokens * value_width
        from_cache = cached and self.phase == "decoding"

        def work(flops: int, own: int, kept: int, trained: _Work | None = None) -> _Work:
            return _Work(flops, own if from_cache else own + kept, cached=kept if from_cache else 0, trained=trained)

        if self.kernel == "fused":
            once = key if one_array else key + value
            flops = 2 * pairs * (key_width + value_width)
            again = 2 * pairs * (3 * key_width + 2 * value_width)  # the scores anew, and four gradients
            back = 2 * query + 2 * output + 2 * once
            return {FUSED: work(flops, query + output, once, _Work(flops + again, query + output + once + back))}
        return {
            "scores": work(2 * pairs * key_width, query + pairs, key),
            "softmax": _Work(0, 2 * pairs, trained=_Work(0, 5 * pairs)),
            "average": work(2 * pairs * value_width, pairs + output, value),
        }

    def costs(self, steps: Mapping[str, _Work]) -> tuple[StepCost, ...]:
        """What the steps take in this phase, in bytes."""
        found = []
        for name, work in steps.items():
            passes = 1
            if self.phase == "training":
                work, passes = (work, 3) if work.trained is None else (work.trained, 1)
            moved = work.activations * self.bytes_per_number + work.weights * self.weight_bytes
            found.append(StepCost(name, passes * work.flops, passes * (moved + work.cached * self.cache_bytes)))
        return tuple(found)
