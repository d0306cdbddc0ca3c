"""Multi-head attention as a Gluon block of MXNet, with the steps of Dive into Deep Learning, section 11.5.

Heads go into the batch axis, (B*h, N, d), for `npx.batch_dot`, as in that book. A query without keys gets zeros, as in
this one. MXNet has been archived since 2023, and its last release, 1.9.1, needs NumPy 1.23, so it has an environment of
its own. To import this module calls `npx.set_np()` for the whole process: without it, blocks take only older arrays.
"""

from __future__ import annotations

import math
from typing import Any

import numpy

from .arrays import BIASES, MATRICES, Arrays, require_arrays, require_sizes

try:
    import mxnet as mx
    from mxnet import np, npx
    from mxnet.gluon import nn
except ModuleNotFoundError as error:
    raise ImportError("mhalib.reference.in_mxnet needs MXNet: pip install mxnet==1.9.1 numpy==1.23.5") from error

npx.set_np()
Tensor = Any  # mxnet.np.ndarray; MXNet ships no types
HIDDEN = -1e30  # a graph knows no dtype; float32 and float64 hold this number


class Cache:
    """Keys and values of earlier tokens, (B*h, N, d) each."""

    def __init__(self) -> None:
        self.kept: tuple[Tensor, Tensor] | None = None

    def __len__(self) -> int:
        return 0 if self.kept is None else self.kept[0].shape[1]

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Keep k and v, (B*h, N, d), and return all that is kept."""
        if self.kept is not None:
            k, v = np.concatenate((self.kept[0], k), axis=1), np.concatenate((self.kept[1], v), axis=1)
        self.kept = (k, v)
        return self.kept


def transpose_qkv(x: Tensor, num_heads: int) -> Tensor:
    """(B, N, D) -> (B*h, N, d): head i of example b is row b*h + i."""
    B, N, _ = x.shape
    return x.reshape(B, N, num_heads, -1).transpose(0, 2, 1, 3).reshape(B * num_heads, N, -1)


def transpose_output(x: Tensor, num_heads: int) -> Tensor:
    """(B*h, N, d) -> (B, N, D): the heads side by side again."""
    _, N, d = x.shape
    return x.reshape(-1, num_heads, N, d).transpose(0, 2, 1, 3).reshape(-1, N, num_heads * d)


def padding_mask(valid_lens: Tensor, num_kvpairs: int) -> Tensor:
    """valid_lens (B,) or (B, Q) -> boolean (B, 1, 1 or Q, K): the first so many keys may be seen."""
    lens = np.expand_dims(valid_lens, 1) if valid_lens.ndim == 1 else valid_lens
    return np.arange(num_kvpairs) < np.expand_dims(np.expand_dims(lens.astype("float32"), 1), 3)


def causal_mask(num_queries: int, num_kvpairs: int, offset: int = 0) -> Tensor:
    """Boolean (Q, K): the query at position `offset + i` may see the keys up to its own position."""
    return np.arange(num_kvpairs) <= offset + np.expand_dims(np.arange(num_queries), 1)


def masked_softmax(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """Softmax over the last axis; 0 where `mask` is False, and so a row of zeros where nothing may be seen."""
    if mask is None:
        return npx.softmax(scores, axis=-1)
    lowest = float(numpy.finfo(scores.dtype).min)
    weights = npx.softmax(np.where(mask, scores, np.full_like(scores, lowest)), axis=-1)
    return np.where(mask, weights, np.zeros_like(weights))


class MultiHeadAttention(nn.Block):
    """h heads, each with D / h channels; dropout is on inside `mxnet.autograd.record()` alone.

    Args:
        num_hiddens: D, width of inputs and output.
        num_heads: h; divides D.
        dropout: probability with which a weight is dropped in training.
        bias: whether the four projections have one.
        dtype: of the weights.

    Raises:
        TypeError, ValueError: a size is not a positive integer, or `num_heads` does not divide `num_hiddens`.
    """

    def __init__(
        self, num_hiddens: int, num_heads: int, dropout: float = 0.0, bias: bool = False, dtype: str = "float32"
    ) -> None:
        super().__init__()
        require_sizes(num_hiddens, num_heads)
        self.num_heads = num_heads
        options = {"use_bias": bias, "flatten": False, "in_units": num_hiddens, "dtype": dtype}
        self.W_q = nn.Dense(num_hiddens, **options)
        self.W_k = nn.Dense(num_hiddens, **options)
        self.W_v = nn.Dense(num_hiddens, **options)
        self.W_o = nn.Dense(num_hiddens, **options)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        valid_lens: Tensor | None = None,
        mask: Tensor | None = None,
        causal: bool = False,
        need_weights: bool = True,
        cache: Cache | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend from `queries` to `keys`, in every head. Blocks of Gluon take no argument by its name alone.

        Args:
            queries: (B, Q, D).
            keys, values: (B, K, D).
            valid_lens: integers (B,) or (B, Q), how many keys are real.
            mask: boolean, `True` = may attend, broadcastable to (B, h, Q, K).
            causal: whether a query sees only keys up to its own position.
            need_weights: whether to return the weights.
            cache: what earlier calls projected, which comes first and counts in K; the new is added to it.

        Returns:
            output (B, Q, D), and weights (B, h, Q, K), before dropout, or `None`.
        """
        B, Q, _ = queries.shape
        q = transpose_qkv(self.W_q(queries), self.num_heads)
        k = transpose_qkv(self.W_k(keys), self.num_heads)
        v = transpose_qkv(self.W_v(values), self.num_heads)
        start = 0
        if cache is not None:
            start = len(cache)
            k, v = cache.append(k, v)
        K = k.shape[1]
        if valid_lens is not None:
            mask = _both(mask, padding_mask(valid_lens, K))
        if causal:
            mask = _both(mask, causal_mask(Q, K, start))
        if mask is not None:
            mask = np.broadcast_to(mask, (B, self.num_heads, Q, K)).reshape(-1, Q, K)
        scores = npx.batch_dot(q, k, transpose_b=True) / math.sqrt(q.shape[-1])  # (B*h, Q, K)
        weights = masked_softmax(scores, mask)
        found = transpose_output(npx.batch_dot(self.dropout(weights), v), self.num_heads)
        return self.W_o(found), weights.reshape(B, self.num_heads, Q, K) if need_weights else None


class HybridMultiHeadAttention(nn.HybridBlock):
    """A layer as a block that `hybridize()` compiles into one graph; it has the projections of the layer, not copies.

    A graph knows no lengths, so reshapes say what becomes of each axis: -2 keeps one, -4 the rest, -5 joins two, and -6
    cuts one in two.

    Args:
        layer: whose weights it uses.
    """

    def __init__(self, layer: MultiHeadAttention) -> None:
        super().__init__()
        self.num_heads = layer.num_heads
        self.head_dim = layer.W_q.weight.shape[0] // layer.num_heads
        self.W_q, self.W_k, self.W_v, self.W_o = layer.W_q, layer.W_k, layer.W_v, layer.W_o
        self.dropout = layer.dropout

    def hybrid_forward(
        self, F: Any, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Attend from `queries` to `keys`, in every head.

        Args:
            F: the module of arrays, or of symbols while the graph is made; Gluon gives it.
            queries: (B, Q, D).
            keys, values: (B, K, D).
            mask: boolean (B, h, Q, K), `True` = may attend.

        Returns:
            output (B, Q, D), and weights (B, h, Q, K), before dropout.
        """

        def split(x: Tensor) -> Tensor:  # (B, N, D) -> (B*h, N, d)
            x = F.npx.reshape(x, (-2, -2, -6, self.num_heads, -1))
            return F.npx.reshape(F.np.transpose(x, (0, 2, 1, 3)), (-5, -4))

        q, k, v = split(self.W_q(queries)), split(self.W_k(keys)), split(self.W_v(values))
        scores = F.npx.batch_dot(q, k, transpose_b=True) / math.sqrt(self.head_dim)
        scores = F.npx.reshape(scores, (-6, -1, self.num_heads, -4))  # (B, h, Q, K)
        if mask is None:
            weights = F.npx.softmax(scores, axis=-1)
        else:
            lowest = F.np.full_like(scores, HIDDEN)
            weights = F.npx.softmax(F.np.where(mask, scores, lowest), axis=-1)
            weights = F.np.where(mask, weights, F.np.zeros_like(weights))
        found = F.npx.batch_dot(F.npx.reshape(self.dropout(weights), (-5, -4)), v)
        found = F.np.transpose(F.npx.reshape(found, (-6, -1, self.num_heads, -4)), (0, 2, 1, 3))
        return self.W_o(F.npx.reshape(found, (-2, -2, -5))), weights


def from_arrays(arrays: Arrays, num_heads: int, dropout: float = 0.0) -> MultiHeadAttention:
    """The block with these weights, in their dtype.

    Raises:
        TypeError, ValueError: `arrays` are not the weights of a layer with so many heads.
    """
    D, has_bias = require_arrays(arrays, num_heads)
    dtype = arrays["W_o"].dtype.name
    layer = MultiHeadAttention(D, num_heads, dropout, has_bias, dtype)
    layer.initialize(mx.init.Zero())  # the usual initialiser draws float32, and stops at float64
    for matrix, bias in zip(MATRICES, BIASES, strict=True):
        projection = getattr(layer, matrix)
        projection.weight.set_data(np.array(arrays[matrix], dtype=dtype))
        if has_bias:
            projection.bias.set_data(np.array(arrays[bias], dtype=dtype))
    return layer


def to_arrays(layer: MultiHeadAttention) -> Arrays:
    """The block's weights as NumPy arrays, see `mhalib.reference.Arrays`."""
    found = {}
    for matrix, bias in zip(MATRICES, BIASES, strict=True):
        projection = getattr(layer, matrix)
        found[matrix] = projection.weight.data().asnumpy()
        if projection.bias is not None:
            found[bias] = projection.bias.data().asnumpy()
    return found


def _both(one: Tensor | None, other: Tensor) -> Tensor:
    return other if one is None else one * other  # of booleans: this NumPy has no logical_and
