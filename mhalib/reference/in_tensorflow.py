"""Multi-head attention in TensorFlow, as functions: `tf.nn.softmax` and products of matrices, by hand.

TensorFlow's layers are those of Keras, see `mhalib.reference.in_keras`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from .arrays import Arrays, require_arrays

try:
    import tensorflow as tf
except ModuleNotFoundError as error:
    raise ImportError("mhalib.reference.in_tensorflow needs TensorFlow: pip install tensorflow") from error

Tensor = Any  # tf.Tensor or tf.Variable; TensorFlow ships no types
Cache = tuple[Tensor, Tensor]
"""Keys and values of earlier tokens, (B, h, N, d) each."""


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """(B, N, D) -> (B, h, N, d): head i gets columns i*d to (i+1)*d of every token."""
    B, N = tf.shape(x)[0], tf.shape(x)[1]  # x.shape has None here where tf.function was not told
    return tf.transpose(tf.reshape(x, (B, N, num_heads, x.shape[-1] // num_heads)), (0, 2, 1, 3))


def merge_heads(x: Tensor) -> Tensor:
    """(B, h, N, d) -> (B, N, D): the heads side by side again."""
    B, N = tf.shape(x)[0], tf.shape(x)[2]
    return tf.reshape(tf.transpose(x, (0, 2, 1, 3)), (B, N, x.shape[1] * x.shape[3]))


def padding_mask(valid_lens: Tensor, num_kvpairs: Tensor) -> Tensor:
    """valid_lens (B,) or (B, Q) -> boolean (B, 1, 1 or Q, K): the first so many keys may be seen."""
    lens = valid_lens[:, None] if len(valid_lens.shape) == 1 else valid_lens
    return tf.range(num_kvpairs) < tf.cast(lens, tf.int32)[:, None, :, None]


def causal_mask(num_queries: Tensor, num_kvpairs: Tensor, offset: Tensor | int = 0) -> Tensor:
    """Boolean (Q, K): the query at position `offset + i` may see the keys up to its own position."""
    return tf.range(num_kvpairs) <= offset + tf.range(num_queries)[:, None]


def masked_softmax(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """Softmax over the last axis; 0 where `mask` is False, and so a row of zeros where nothing may be seen."""
    if mask is None:
        return tf.nn.softmax(scores, axis=-1)
    zero = tf.zeros((), scores.dtype)
    return tf.where(mask, tf.nn.softmax(tf.where(mask, scores, scores.dtype.min), axis=-1), zero)


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, dropout: float = 0.0) -> tuple[Tensor, Tensor]:
    """q (B, h, Q, d), k and v (B, h, K, d) -> output (B, h, Q, d) and weights (B, h, Q, K), before dropout."""
    scores = tf.matmul(q, k, transpose_b=True) / math.sqrt(q.shape[-1])
    weights = masked_softmax(scores, mask)
    kept = tf.nn.dropout(weights, dropout) if dropout else weights
    return tf.matmul(kept, v), weights


def multi_head_attention(
    weights: Mapping[str, Tensor],
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    valid_lens: Tensor | None = None,
    *,
    num_heads: int,
    mask: Tensor | None = None,
    causal: bool = False,
    need_weights: bool = True,
    cache: Cache | None = None,
    dropout: float = 0.0,
) -> tuple[Tensor, Tensor | None, Cache]:
    """The layer: project, split, attend, merge, project.

    Args:
        weights: `W_q`, `W_k`, `W_v`, `W_o`, each (D, D), and their biases or none.
        queries: (B, Q, D).
        keys, values: (B, K, D).
        valid_lens: integers (B,) or (B, Q), how many keys are real.
        num_heads: h.
        mask: boolean, `True` = may attend, broadcastable to (B, h, Q, K).
        causal: whether a query sees only keys up to its own position.
        need_weights: whether to return the weights.
        cache: what the call before returned; its keys and values come first and count in K.
        dropout: the probability with which a weight is dropped. A function does not know training from use: pass 0.

    Returns:
        output (B, Q, D), weights (B, h, Q, K) or `None`, and keys and values for the next call.
    """
    q = split_heads(_project(weights, "q", queries), num_heads)
    k = split_heads(_project(weights, "k", keys), num_heads)
    v = split_heads(_project(weights, "v", values), num_heads)
    start = 0
    if cache is not None:
        start = tf.shape(cache[0])[2]
        k, v = tf.concat((cache[0], k), axis=2), tf.concat((cache[1], v), axis=2)
    num_queries, num_kvpairs = tf.shape(q)[2], tf.shape(k)[2]
    if valid_lens is not None:
        mask = _both(mask, padding_mask(valid_lens, num_kvpairs))
    if causal:
        mask = _both(mask, causal_mask(num_queries, num_kvpairs, start))
    found, attention = attend(q, k, v, mask, dropout)
    return _project(weights, "o", merge_heads(found)), attention if need_weights else None, (k, v)


def from_arrays(arrays: Arrays, num_heads: int) -> dict[str, Tensor]:
    """The weights that `multi_head_attention` takes, as variables, which training can change.

    Raises:
        TypeError, ValueError: `arrays` are not the weights of a layer with so many heads.
    """
    require_arrays(arrays, num_heads)
    return {name: tf.Variable(array, name=name) for name, array in arrays.items()}


def to_arrays(weights: Mapping[str, Tensor]) -> Arrays:
    """The weights as NumPy arrays, see `mhalib.reference.Arrays`."""
    return {name: np.array(variable) for name, variable in weights.items()}


def _both(one: Tensor | None, other: Tensor) -> Tensor:
    return other if one is None else one & other


def _project(weights: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
    """(B, N, D) -> (B, N, D)."""
    x = tf.matmul(x, weights[f"W_{name}"], transpose_b=True)
    return x + weights[f"b_{name}"] if f"b_{name}" in weights else x
