"""Multi-head attention in JAX, as pure functions: what goes in decides what comes out, and nothing is changed.

The weights are one argument, the arrays of `mhalib.reference.Arrays` as they are. Shapes that depend on numbers are
unknown under `jax.jit`, so `num_heads`, `causal` and `need_weights` are static there, and a cache has a fixed length.
Arrays are float32 unless `jax.config.update("jax_enable_x64", True)` came first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from .arrays import Arrays, require_arrays

try:
    import jax
    import jax.numpy as jnp
except ModuleNotFoundError as error:
    raise ImportError("mhalib.reference.in_jax needs JAX: pip install jax") from error


class Cache(NamedTuple):
    """Keys and values of earlier tokens, (B, h, M, d) each, of which the first `length` are filled."""

    k: jax.Array
    v: jax.Array
    length: jax.Array


def split_heads(x: jax.Array, num_heads: int) -> jax.Array:
    """(B, N, D) -> (B, h, N, d): head i gets columns i*d to (i+1)*d of every token."""
    return x.reshape(*x.shape[:2], num_heads, -1).swapaxes(1, 2)


def merge_heads(x: jax.Array) -> jax.Array:
    """(B, h, N, d) -> (B, N, D): the heads side by side again."""
    x = x.swapaxes(1, 2)
    return x.reshape(*x.shape[:2], -1)


def padding_mask(valid_lens: jax.Array, num_kvpairs: int) -> jax.Array:
    """valid_lens (B,) or (B, Q) -> boolean (B, 1, 1 or Q, K): the first so many keys may be seen."""
    lens = valid_lens[:, None] if valid_lens.ndim == 1 else valid_lens
    return jnp.arange(num_kvpairs) < lens[:, None, :, None]


def causal_mask(num_queries: int, num_kvpairs: int, offset: jax.Array | int = 0) -> jax.Array:
    """Boolean (Q, K): the query at position `offset + i` may see the keys up to its own position."""
    return jnp.arange(num_kvpairs) <= offset + jnp.arange(num_queries)[:, None]


def masked_softmax(scores: jax.Array, mask: jax.Array | None = None) -> jax.Array:
    """Softmax over the last axis; 0 where `mask` is False, and so a row of zeros where nothing may be seen."""
    if mask is None:
        return jax.nn.softmax(scores, axis=-1)
    lowest = jnp.finfo(scores.dtype).min  # -inf would make an empty row NaN, and its gradient too
    return jnp.where(mask, jax.nn.softmax(jnp.where(mask, scores, lowest), axis=-1), 0)


def attend(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    mask: jax.Array | None = None,
    dropout: float = 0.0,
    dropout_key: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
    """q (B, h, Q, d), k and v (B, h, K, d) -> output (B, h, Q, d) and weights (B, h, Q, K), before dropout."""
    scores = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    weights = masked_softmax(scores, mask)
    kept = weights
    if dropout and dropout_key is not None:
        kept = weights * jax.random.bernoulli(dropout_key, 1 - dropout, weights.shape) / (1 - dropout)
    return kept @ v, weights


def multi_head_attention(
    weights: Mapping[str, jax.Array],
    queries: jax.Array,
    keys: jax.Array,
    values: jax.Array,
    valid_lens: jax.Array | None = None,
    *,
    num_heads: int,
    mask: jax.Array | None = None,
    causal: bool = False,
    need_weights: bool = True,
    cache: Cache | None = None,
    dropout: float = 0.0,
    dropout_key: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array | None, Cache | None]:
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
        cache: what earlier calls projected; K is then M, the length of the cache.
        dropout, dropout_key: the probability with which a weight is dropped, and the chance it comes from. Without a
            key nothing is dropped.

    Returns:
        output (B, Q, D), weights (B, h, Q, K) or `None`, and the cache with the new keys and values or `None`.

    Raises:
        ValueError: the cache is full. Under `jax.jit` nobody can tell, and the last places are written over.
    """
    q = split_heads(_project(weights, "q", queries), num_heads)
    k = split_heads(_project(weights, "k", keys), num_heads)
    v = split_heads(_project(weights, "v", values), num_heads)
    start: jax.Array | int = 0
    if cache is not None:
        start, cache = cache.length, extended(cache, k, v)
        k, v = cache.k, cache.v
        mask = both(mask, jnp.arange(k.shape[2]) < cache.length)
    if valid_lens is not None:
        mask = both(mask, padding_mask(valid_lens, k.shape[2]))
    if causal:
        mask = both(mask, causal_mask(q.shape[2], k.shape[2], start))
    found, attention = attend(q, k, v, mask, dropout, dropout_key)
    return _project(weights, "o", merge_heads(found)), attention if need_weights else None, cache


def new_cache(
    batch_size: int, num_heads: int, max_tokens: int, head_dim: int, dtype: np.dtype | type = np.float32
) -> Cache:
    """An empty cache for `max_tokens` tokens. One that grows would be compiled anew at each length by `jax.jit`."""
    empty = jnp.zeros((batch_size, num_heads, max_tokens, head_dim), dtype)
    return Cache(empty, empty, jnp.zeros((), jnp.int32))


def extended(cache: Cache, k: jax.Array, v: jax.Array) -> Cache:
    """The cache with k and v, (B, h, N, d), behind what it holds."""
    length, room = cache.length + k.shape[2], cache.k.shape[2]
    if not isinstance(length, jax.core.Tracer) and length > room:
        raise ValueError(f"the cache has max_tokens={room}, and these would be {int(length)}")
    put = jax.lax.dynamic_update_slice_in_dim
    k = put(cache.k, k.astype(cache.k.dtype), cache.length, axis=2)
    v = put(cache.v, v.astype(cache.v.dtype), cache.length, axis=2)
    return Cache(k, v, length)


def both(one: jax.Array | None, other: jax.Array) -> jax.Array:
    """Where both masks allow."""
    return other if one is None else one & other


def from_arrays(arrays: Arrays, num_heads: int) -> dict[str, jax.Array]:
    """The weights that `multi_head_attention` takes.

    Raises:
        TypeError, ValueError: `arrays` are not the weights of a layer with so many heads.
    """
    require_arrays(arrays, num_heads)
    return {name: jnp.asarray(array) for name, array in arrays.items()}


def to_arrays(weights: Mapping[str, jax.Array]) -> Arrays:
    """The weights as NumPy arrays, see `mhalib.reference.Arrays`."""
    return {name: np.array(array) for name, array in weights.items()}


def _project(weights: Mapping[str, jax.Array], name: str, x: jax.Array) -> jax.Array:
    """(B, N, D) -> (B, N, D)."""
    x = x @ weights[f"W_{name}"].T
    return x + weights[f"b_{name}"] if f"b_{name}" in weights else x
