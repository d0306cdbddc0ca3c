"""Multi-head attention as a module of Flax nnx: weights live in it, and the functions of `in_jax` do the work.

Flax's own two layers take the same weights here: `to_nnx` and `to_linen`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .arrays import BIASES, KERNELS, MATRICES, Arrays, from_kernels, require_arrays, require_sizes, to_kernels

try:
    import jax
    import jax.numpy as jnp
    from flax import linen, nnx
except ModuleNotFoundError as error:
    raise ImportError("mhalib.reference.in_flax needs Flax and JAX: pip install flax") from error

from . import in_jax
from .in_jax import attend, both, causal_mask, merge_heads, padding_mask, split_heads


class Cache(nnx.Module):
    """An `in_jax.Cache` that a call fills, also inside `nnx.jit`, which carries what changed out again.

    Args:
        batch_size, num_heads, max_tokens, head_dim: B, h, M and d of the keys and values, (B, h, M, d).
        dtype: theirs.
    """

    def __init__(
        self, batch_size: int, num_heads: int, max_tokens: int, head_dim: int, dtype: np.dtype | type = np.float32
    ) -> None:
        empty = in_jax.new_cache(batch_size, num_heads, max_tokens, head_dim, dtype)
        self.k, self.v, self.length = nnx.Cache(empty.k), nnx.Cache(empty.v), nnx.Cache(jnp.zeros((), jnp.int32))

    def append(self, k: jax.Array, v: jax.Array) -> in_jax.Cache:
        """Keep k and v, (B, h, N, d), and return all that is kept."""
        kept = in_jax.extended(in_jax.Cache(self.k[...], self.v[...], self.length[...]), k, v)
        self.k[...], self.v[...], self.length[...] = kept
        return kept


class MultiHeadAttention(nnx.Module):
    """h heads, each with D / h channels; `eval()` switches dropout off, `train()` on.

    Args:
        num_hiddens: D, width of inputs and output.
        num_heads: h; divides D.
        dropout: probability with which a weight is dropped in training.
        bias: whether the four projections have one.
        param_dtype: of the weights.
        rngs: where the weights, and what is dropped, come from.

    Raises:
        TypeError, ValueError: a size is not a positive integer, or `num_heads` does not divide `num_hiddens`.
    """

    def __init__(
        self,
        num_hiddens: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = False,
        *,
        param_dtype: Any = jnp.float32,
        rngs: nnx.Rngs,
    ) -> None:
        require_sizes(num_hiddens, num_heads)
        options: dict[str, Any] = {"use_bias": bias, "param_dtype": param_dtype, "rngs": rngs}
        self.num_heads = num_heads
        self.W_q = nnx.Linear(num_hiddens, num_hiddens, **options)
        self.W_k = nnx.Linear(num_hiddens, num_hiddens, **options)
        self.W_v = nnx.Linear(num_hiddens, num_hiddens, **options)
        self.W_o = nnx.Linear(num_hiddens, num_hiddens, **options)
        self.dropout = nnx.Dropout(dropout, rngs=rngs)

    def __call__(
        self,
        queries: jax.Array,
        keys: jax.Array,
        values: jax.Array,
        valid_lens: jax.Array | None = None,
        *,
        mask: jax.Array | None = None,
        causal: bool = False,
        need_weights: bool = True,
        cache: Cache | None = None,
    ) -> tuple[jax.Array, jax.Array | None]:
        """Attend from `queries` to `keys`, in every head.

        Args:
            queries: (B, Q, D).
            keys, values: (B, K, D).
            valid_lens: integers (B,) or (B, Q), how many keys are real.
            mask: boolean, `True` = may attend, broadcastable to (B, h, Q, K).
            causal: whether a query sees only keys up to its own position.
            need_weights: whether to return the weights.
            cache: what earlier calls projected; the new keys and values are written into it, and K is its length M.

        Returns:
            output (B, Q, D), and weights (B, h, Q, K), before dropout, or `None`.

        Raises:
            ValueError: the cache is full.
        """
        q = split_heads(self.W_q(queries), self.num_heads)
        k = split_heads(self.W_k(keys), self.num_heads)
        v = split_heads(self.W_v(values), self.num_heads)
        start: jax.Array | int = 0
        if cache is not None:
            start = cache.length[...]
            k, v, length = cache.append(k, v)
            mask = both(mask, jnp.arange(k.shape[2]) < length)
        if valid_lens is not None:
            mask = both(mask, padding_mask(valid_lens, k.shape[2]))
        if causal:
            mask = both(mask, causal_mask(q.shape[2], k.shape[2], start))
        weights = attend(q, k, v, mask)[1]
        found = self.dropout(weights) @ v
        return self.W_o(merge_heads(found)), weights if need_weights else None


def from_arrays(arrays: Arrays, num_heads: int, dropout: float = 0.0) -> MultiHeadAttention:
    """The module with these weights, in their dtype.

    Raises:
        TypeError, ValueError: `arrays` are not the weights of a layer with so many heads.
    """
    D, has_bias = require_arrays(arrays, num_heads)
    dtype = arrays["W_o"].dtype
    layer = MultiHeadAttention(D, num_heads, dropout, has_bias, param_dtype=dtype, rngs=nnx.Rngs(0))
    for matrix, bias in zip(MATRICES, BIASES, strict=True):
        projection = getattr(layer, matrix)
        projection.kernel[...] = jnp.asarray(arrays[matrix].T)  # x @ kernel: transposed
        if has_bias:
            projection.bias[...] = jnp.asarray(arrays[bias])
    return layer


def to_arrays(layer: MultiHeadAttention) -> Arrays:
    """The module's weights as NumPy arrays, see `mhalib.reference.Arrays`."""
    found = {}
    for matrix, bias in zip(MATRICES, BIASES, strict=True):
        projection = getattr(layer, matrix)
        found[matrix] = np.array(projection.kernel[...]).T.copy()
        if projection.bias is not None:
            found[bias] = np.array(projection.bias[...])
    return found


def to_nnx(arrays: Arrays, num_heads: int) -> nnx.MultiHeadAttention:
    """Flax's own `nnx.MultiHeadAttention` with these weights.

    Raises:
        TypeError, ValueError: `arrays` are not the weights of a layer with so many heads.
    """
    D, has_bias = require_arrays(arrays, num_heads)
    options: dict[str, Any] = {"use_bias": has_bias, "decode": False, "param_dtype": arrays["W_o"].dtype}
    twin = nnx.MultiHeadAttention(num_heads, D, rngs=nnx.Rngs(0), **options)
    for name, part in to_kernels(arrays, num_heads).items():
        for field, array in part.items():
            getattr(getattr(twin, name), field)[...] = jnp.asarray(array)
    return twin


def from_nnx(twin: nnx.MultiHeadAttention) -> Arrays:
    """The weights of Flax's `nnx.MultiHeadAttention`, see `mhalib.reference.Arrays`."""
    parts = {name: getattr(twin, name) for name in KERNELS}
    kernels = {name: {"kernel": np.array(part.kernel[...])} for name, part in parts.items()}
    for name, part in parts.items():
        if part.bias is not None:
            kernels[name]["bias"] = np.array(part.bias[...])
    return from_kernels(kernels)


def to_linen(arrays: Arrays, num_heads: int) -> tuple[linen.MultiHeadDotProductAttention, dict[str, Any]]:
    """Flax's own `linen.MultiHeadDotProductAttention`, and its weights, for `module.apply({"params": weights}, ...)`.

    Raises:
        TypeError, ValueError: `arrays` are not the weights of a layer with so many heads.
    """
    _, has_bias = require_arrays(arrays, num_heads)
    module = linen.MultiHeadDotProductAttention(num_heads, use_bias=has_bias, param_dtype=arrays["W_o"].dtype)
    return module, jax.tree.map(jnp.asarray, to_kernels(arrays, num_heads))


def from_linen(weights: dict[str, Any]) -> Arrays:
    """The weights of `linen.MultiHeadDotProductAttention`, see `mhalib.reference.Arrays`."""
    return from_kernels(jax.tree.map(np.array, weights))
