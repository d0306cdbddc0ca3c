"""Attention in tiles as one kernel of a GPU, in Triton: the loop of chapter 30, and where each number lives.

Without a GPU, the variable `TRITON_INTERPRET=1`, set before the import, runs the kernel by Triton's interpreter.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ModuleNotFoundError as error:
    raise ImportError("mhalib.reference.in_triton needs Triton: pip install triton") from error

ROWS, COLS = tl.constexpr(128), tl.constexpr(64)
"""Queries and keys of a tile."""


@triton.jit
def _forward(q, k, v, out, N, scale, CAUSAL: tl.constexpr, D: tl.constexpr):  # type: ignore[no-untyped-def]
    """One program of many at once: ROWS queries of a head meet the keys they see."""
    head = tl.program_id(1).to(tl.int64) * N * D  # where its numbers begin
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols, width = tl.arange(0, COLS), tl.arange(0, D)
    own = head + rows[:, None] * D + width
    queries = tl.load(q + own, mask=rows[:, None] < N, other=0.0)  # read once
    largest = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    found = tl.zeros([ROWS, D], tl.float32)
    end = tl.minimum(N, (tl.program_id(0) + 1) * ROWS) if CAUSAL else N
    for first in range(0, end, COLS):
        here = first + cols
        keys = k + head + here[None, :] * D + width[:, None]  # (D, COLS)
        keys = tl.load(keys, mask=here[None, :] < N, other=0.0)
        values = v + head + here[:, None] * D + width  # (COLS, D)
        values = tl.load(values, mask=here[:, None] < N, other=0.0)
        seen = here[None, :] < N
        if CAUSAL:
            seen = seen & (here[None, :] <= rows[:, None])
        scores = tl.dot(queries, keys, input_precision="ieee") * scale
        scores = tl.where(seen, scores, float("-inf"))  # (ROWS, COLS), never stored
        new = tl.maximum(largest, tl.max(scores, 1))
        correction, terms = tl.exp(largest - new), tl.exp(scores - new[:, None])
        total = correction * total + tl.sum(terms, 1)
        terms = terms.to(values.dtype)
        found = correction[:, None] * found
        found = tl.dot(terms, values, found, input_precision="ieee")
        largest = new
    average = (found / total[:, None]).to(out.dtype.element_ty)
    tl.store(out + own, average, mask=rows[:, None] < N)


def triton_attention(q: Tensor, k: Tensor, v: Tensor, causal: bool = False) -> Tensor:
    """The weighted averages of scaled dot-product attention, computed in tiles by a kernel of our own.

    Args:
        q: (B, h, N, d), contiguous, d a power of two from 16 on.
        k: (B, h, N, d).
        v: (B, h, N, d).
        causal: whether query t sees keys 0 to t alone.

    Returns:
        (B, h, N, d), of q's type. Sums are kept in float32.

    Raises:
        ValueError: the three differ in shape, type or device, are not contiguous, or d is no power of two from 16 on.

    Source: Dao 2023, FlashAttention-2, algorithm 1: one division at the end, and programs that share queries out.
    """
    for name, other in (("k", k), ("v", v)):
        if (other.shape, other.dtype, other.device) != (q.shape, q.dtype, q.device):
            raise ValueError(f"{name} has shape {tuple(other.shape)}, q {tuple(q.shape)}: they must be alike in all")
    if not all(one.is_contiguous() for one in (q, k, v)):
        raise ValueError("q, k and v must be contiguous: this kernel steps through memory row by row")
    B, h, N, d = q.shape
    if d < 16 or d & (d - 1):
        raise ValueError(f"q has width d={d}: it must be a power of two from 16 on")
    out = torch.empty_like(q)
    programs = (triton.cdiv(N, ROWS.value), B * h)
    _forward[programs](q, k, v, out, N, 1 / math.sqrt(d), causal, d, num_warps=4 if d < 128 else 8)
    return out
