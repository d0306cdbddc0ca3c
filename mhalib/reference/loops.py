"""The definition, one query at a time. Slow and obvious on purpose: nothing here reshapes or broadcasts."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor, nn

from ..attention import MultiHeadAttention


def attend_loops(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """`attend` as loops over example, head and query.

    Args:
        q: (B, h, Q, d).
        k: (B, h, K, d).
        v: (B, h, K, d_v).
        mask: boolean (B, h, Q, K) or `None`; `True` = may attend.

    Returns:
        output (B, h, Q, d_v) and weights (B, h, Q, K).
    """
    batch_size, num_heads, num_queries, head_dim = q.shape
    output = q.new_zeros(batch_size, num_heads, num_queries, v.shape[-1])
    weights = q.new_zeros(batch_size, num_heads, num_queries, k.shape[2])
    for b, head, t in itertools.product(range(batch_size), range(num_heads), range(num_queries)):
        seen = [j for j in range(k.shape[2]) if mask is None or mask[b, head, t, j]]
        if not seen:
            continue
        scores = torch.stack([q[b, head, t] @ k[b, head, j] / math.sqrt(head_dim) for j in seen])
        exponentials = (scores - scores.max()).exp()
        for j, weight in zip(seen, exponentials / exponentials.sum(), strict=True):
            weights[b, head, t, j] = weight
            output[b, head, t] += weight * v[b, head, j]
    return output, weights


def multi_head_attention_loops(
    layer: MultiHeadAttention,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    valid_lens: Tensor | None = None,
    *,
    mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """What `layer` computes in evaluation mode, head after head: h_i = attend(W_i^q q, W_i^k k, W_i^v v).

    Head i owns the rows i*d to (i+1)*d of W_q, W_k and W_v, and the columns of the same numbers in W_o.
    The output is the sum of what each head contributes through its own columns of W_o.

    Args:
        layer: the layer whose weights are used.
        queries, keys, values, valid_lens, mask: as in `MultiHeadAttention.forward`.

    Returns:
        output (B, Q, D) and weights (B, h, Q, K).
    """
    batch_size, num_queries, num_kvpairs = queries.shape[0], queries.shape[1], keys.shape[1]
    allowed = torch.ones(batch_size, layer.num_heads, num_queries, num_kvpairs, dtype=torch.bool)
    if mask is not None:
        allowed &= mask.cpu()
    if valid_lens is not None:
        for b, t in itertools.product(range(batch_size), range(num_queries)):
            allowed[b, :, t, int(valid_lens[b] if valid_lens.dim() == 1 else valid_lens[b, t]) :] = False
    output = queries.new_zeros(batch_size, num_queries, layer.num_hiddens)
    weights = []
    for head in range(layer.num_heads):
        own = slice(head * layer.head_dim, (head + 1) * layer.head_dim)
        q, k, v = (
            _project(linear, own, x).unsqueeze(1)
            for linear, x in ((layer.W_q, queries), (layer.W_k, keys), (layer.W_v, values))
        )
        found, head_weights = attend_loops(q, k, v, allowed[:, head : head + 1])
        output = output + found[:, 0] @ layer.W_o.weight[:, own].T
        weights.append(head_weights)
    if layer.W_o.bias is not None:
        output = output + layer.W_o.bias
    return output, torch.cat(weights, dim=1)


def _project(linear: nn.Linear, rows: slice, x: Tensor) -> Tensor:
    """(B, N, width) -> (B, N, d), through some rows of the matrix only."""
    bias = 0 if linear.bias is None else linear.bias[rows]
    return x @ linear.weight[rows].T + bias
