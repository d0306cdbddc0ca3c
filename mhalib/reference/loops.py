"""The definition, one query at a time. Slow and obvious on purpose: nothing here reshapes or broadcasts."""

from __future__ import annotations

import cmath
import itertools

import torch
from torch import Tensor, nn

from .._validate import require_attention, require_mask, require_scale, require_tensor
from ..attention import MultiHeadAttention
from ..attention._arguments import check_inputs
from ..attention.masks import Mask
from ._known import require_known

_KNOWN_TURNS = ("interleaved", 10000.0, None, None)


def attend_loops(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *, scale: float | None = None
) -> tuple[Tensor, Tensor]:
    """`attend` as loops over example, head and query.

    Args:
        q: (B, h, Q, d).
        k: (B, h, K, d).
        v: (B, h, K, d_v).
        mask: boolean, broadcastable to (B, h, Q, K), or `None`; `True` = may attend.
        scale: what scores are multiplied by; `None` means 1/√d.

    Returns:
        output (B, h, Q, d_v) and weights (B, h, Q, K).

    Raises:
        TypeError, ValueError: shapes, dtypes or devices do not fit.
    """
    require_attention(q, k, v, None)
    require_tensor("q", q, rank=4)
    require_scale(scale)
    batch_size, num_heads, num_queries, head_dim = q.shape
    if mask is not None:
        require_mask(mask, (batch_size, num_heads, num_queries, k.shape[2]), q.device)
        mask = mask.expand(batch_size, num_heads, num_queries, k.shape[2])
    scale = head_dim**-0.5 if scale is None else scale
    output = q.new_zeros(batch_size, num_heads, num_queries, v.shape[-1])
    weights = q.new_zeros(batch_size, num_heads, num_queries, k.shape[2])
    for b, head, t in itertools.product(range(batch_size), range(num_heads), range(num_queries)):
        seen = [j for j in range(k.shape[2]) if mask is None or mask[b, head, t, j]]
        if not seen:
            continue
        scores = torch.stack([q[b, head, t] @ k[b, head, j] * scale for j in seen])
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
    mask: Mask | None = None,
) -> tuple[Tensor, Tensor]:
    """What `layer` computes in evaluation mode, head after head: h_i = attend(W_i^q q, W_i^k k, W_i^v v).

    A head owns rows of W_q, W_k and W_v, and columns of W_o, as `layer.head_slices` says; with rotary positions, its
    queries and keys are turned. The output is the sum of what each head contributes through its own columns of W_o.

    Args:
        layer: the layer whose weights are used.
        queries, keys, values, valid_lens, mask: as in `MultiHeadAttention.forward`.

    Returns:
        output (B, Q, D) and weights (B, h, Q, K).

    Raises:
        TypeError: the layer is a variant, whose steps these loops do not know.
        ValueError: its rotary positions are others than those of RoFormer.
        TypeError, ValueError: inputs or masks do not fit, as in `MultiHeadAttention.forward`.
    """
    require_known("layer", layer)
    turns = layer.positions
    if turns is not None and (turns.pairs, turns.base, turns.width, turns.scaling) != _KNOWN_TURNS:
        raise ValueError(
            f"layer turns its heads with pairs={turns.pairs!r}, base={turns.base}, width={turns.width} and "
            f"scaling={turns.scaling}: these loops know {_KNOWN_TURNS} alone"
        )
    check_inputs(layer, queries, keys, values)
    layer._join_masks(queries, keys.shape[1], valid_lens, mask)  # raises where they do not fit
    batch_size, num_queries, num_kvpairs = queries.shape[0], queries.shape[1], keys.shape[1]
    allowed = torch.ones(batch_size, layer.num_heads, num_queries, num_kvpairs, dtype=torch.bool)
    if mask is not None:
        matrix = mask if isinstance(mask, Tensor) else mask.matrix(num_queries, num_kvpairs)
        allowed &= matrix.cpu()
    if valid_lens is not None:
        for b, t in itertools.product(range(batch_size), range(num_queries)):
            allowed[b, :, t, int(valid_lens[b] if valid_lens.dim() == 1 else valid_lens[b, t]) :] = False
    output = queries.new_zeros(batch_size, num_queries, layer.num_hiddens)
    weights = []
    for head in range(layer.num_heads):
        own = layer.head_slices(head)
        q = _project(layer.W_q, own.q, queries)
        k = _project(layer.W_k, own.k, keys)
        v = _project(layer.W_v, own.v, values)
        if layer.positions is not None:
            q, k = _turned(q), _turned(k)
        found, head_weights = attend_loops(
            q[:, None], k[:, None], v[:, None], allowed[:, head : head + 1], scale=layer.scale
        )
        output = output + found[:, 0] @ layer.W_o.weight[:, own.o].T
        weights.append(head_weights)
    if layer.W_o.bias is not None:
        output = output + layer.W_o.bias
    return output, torch.cat(weights, dim=1)


def _project(linear: nn.Linear, rows: slice, x: Tensor) -> Tensor:
    """(B, N, width) -> (B, N, d), through some rows of the matrix only."""
    bias = 0 if linear.bias is None else linear.bias[rows]
    return x @ linear.weight[rows].T + bias


def _turned(x: Tensor) -> Tensor:
    """(B, N, d) -> (B, N, d): channels 2i and 2i + 1 of token n are the parts of one complex number, which is
    multiplied by exp(i n 10000^(-2i/d))."""
    pairs = []
    for n, c in itertools.product(range(x.shape[1]), range(0, x.shape[2], 2)):
        turn = cmath.exp(1j * n * 10000.0 ** (-c / x.shape[2]))
        real, imaginary = x[:, n, c], x[:, n, c + 1]
        pairs += [real * turn.real - imaginary * turn.imag, real * turn.imag + imaginary * turn.real]
    return torch.stack(pairs, -1).unflatten(-1, (x.shape[1], x.shape[2])) if pairs else x
