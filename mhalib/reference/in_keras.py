"""Multi-head attention as a Keras 3 layer. It is written in `keras.ops`, so it runs on torch, JAX and TensorFlow alike.

The environment variable `KERAS_BACKEND` chooses between them before Keras is imported. Keras' own layer takes the same
weights here: `to_keras` and `from_keras`.

Products are written with `einsum`, as in Keras' own layer. On torch, `keras.ops.matmul`, and `Dense` with it, compute
in float32 what they are given in float64, as measured with Keras 3.15.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .arrays import BIASES, KERNELS, MATRICES, Arrays, from_kernels, require_arrays, require_sizes, to_kernels

try:
    import keras
    from keras import ops
except ModuleNotFoundError as error:
    raise ImportError(
        "mhalib.reference.in_keras needs Keras and its backend: pip install keras, and set KERAS_BACKEND to torch, jax "
        f"or tensorflow, which has to be installed, too ({error})"
    ) from error

Tensor = Any  # of the backend


class Cache:
    """Keys and values of earlier tokens, (B, h, N, d) each; it grows, so it is for eager calls."""

    def __init__(self) -> None:
        self.kept: tuple[Tensor, Tensor] | None = None

    def __len__(self) -> int:
        return 0 if self.kept is None else self.kept[0].shape[2]

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Keep k and v, (B, h, N, d), and return all that is kept."""
        if self.kept is not None:
            k, v = ops.concatenate((self.kept[0], k), axis=2), ops.concatenate((self.kept[1], v), axis=2)
        self.kept = (k, v)
        return self.kept


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """(B, N, D) -> (B, h, N, d): head i gets columns i*d to (i+1)*d of every token."""
    B, N, D = ops.shape(x)
    return ops.transpose(ops.reshape(x, (B, N, num_heads, D // num_heads)), (0, 2, 1, 3))


def merge_heads(x: Tensor) -> Tensor:
    """(B, h, N, d) -> (B, N, D): the heads side by side again."""
    B, h, N, d = ops.shape(x)
    return ops.reshape(ops.transpose(x, (0, 2, 1, 3)), (B, N, h * d))


def padding_mask(valid_lens: Tensor, num_kvpairs: int) -> Tensor:
    """valid_lens (B,) or (B, Q) -> boolean (B, 1, 1 or Q, K): the first so many keys may be seen."""
    lens = ops.cast(valid_lens, "int32")
    lens = lens[:, None] if len(lens.shape) == 1 else lens
    return ops.arange(num_kvpairs, dtype="int32") < lens[:, None, :, None]


def causal_mask(num_queries: int, num_kvpairs: int, offset: int = 0) -> Tensor:
    """Boolean (Q, K): the query at position `offset + i` may see the keys up to its own position."""
    return ops.arange(num_kvpairs) <= offset + ops.arange(num_queries)[:, None]


def masked_softmax(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """Softmax over the last axis; 0 where `mask` is False, and so a row of zeros where nothing may be seen."""
    if mask is None:
        return ops.softmax(scores, axis=-1)
    lowest = -3e4 if keras.backend.standardize_dtype(scores.dtype) == "float16" else -1e30
    weights = ops.softmax(ops.where(mask, scores, ops.full_like(scores, lowest)), axis=-1)
    return ops.where(mask, weights, ops.zeros_like(weights))


@keras.saving.register_keras_serializable("mhalib")
class MultiHeadAttention(keras.layers.Layer):
    """h heads, each with D / h channels; `training=True` in a call switches dropout on.

    Args:
        num_hiddens: D, width of inputs and output.
        num_heads: h; divides D.
        dropout: probability with which a weight is dropped in training.
        bias: whether the four projections have one.
        options: what each Keras layer takes, such as `dtype` and `name`.

    Raises:
        TypeError, ValueError: a size is not a positive integer, or `num_heads` does not divide `num_hiddens`.
    """

    def __init__(
        self, num_hiddens: int, num_heads: int, dropout: float = 0.0, bias: bool = False, **options: Any
    ) -> None:
        super().__init__(**options)
        require_sizes(num_hiddens, num_heads)
        self.num_hiddens, self.num_heads, self.bias = num_hiddens, num_heads, bias
        for name in MATRICES:
            options = {"bias_axes": "e" if bias else None, "dtype": self.dtype_policy, "name": name}
            setattr(self, name, keras.layers.EinsumDense("bnd,de->bne", (None, num_hiddens), **options))
        self.dropout = keras.layers.Dropout(dropout, dtype=self.dtype_policy)

    def build(self, queries_shape: tuple, keys_shape: tuple, values_shape: tuple) -> None:
        """Make the weights, for inputs of these shapes."""
        shapes = (queries_shape, keys_shape, values_shape, (*queries_shape[:-1], self.num_hiddens))
        for name, shape in zip(MATRICES, shapes, strict=True):
            getattr(self, name).build(shape)

    def call(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        valid_lens: Tensor | None = None,
        *,
        attention_mask: Tensor | None = None,
        causal: bool = False,
        need_weights: bool = True,
        cache: Cache | None = None,
        training: bool | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend from `queries` to `keys`, in every head.

        Args:
            queries: (B, Q, D).
            keys, values: (B, K, D). Keras' own layer takes the values before the keys.
            valid_lens: integers (B,) or (B, Q), how many keys are real.
            attention_mask: boolean, `True` = may attend, broadcastable to (B, h, Q, K). Were it named `mask`, Keras
                would fill it by itself with what an `Embedding` says of its padding.
            causal: whether a query sees only keys up to its own position.
            need_weights: whether to return the weights.
            cache: what earlier calls projected, which comes first and counts in K; the new is added to it.
            training: whether dropout is on.

        Returns:
            output (B, Q, D), and weights (B, h, Q, K), before dropout, or `None`.
        """
        q = split_heads(self.W_q(queries), self.num_heads)
        k = split_heads(self.W_k(keys), self.num_heads)
        v = split_heads(self.W_v(values), self.num_heads)
        start = 0
        if cache is not None:
            start = len(cache)
            k, v = cache.append(k, v)
        mask = attention_mask
        if valid_lens is not None:
            mask = _both(mask, padding_mask(valid_lens, ops.shape(k)[2]))
        if causal:
            mask = _both(mask, causal_mask(ops.shape(q)[2], ops.shape(k)[2], start))
        scores = ops.einsum("bhqd,bhkd->bhqk", q, k) / math.sqrt(q.shape[-1])
        weights = masked_softmax(scores, mask)
        found = ops.einsum("bhqk,bhkd->bhqd", self.dropout(weights, training=training), v)
        return self.W_o(merge_heads(found)), weights if need_weights else None

    def get_config(self) -> dict[str, Any]:
        """What rebuilds the layer."""
        own = {"num_hiddens": self.num_hiddens, "num_heads": self.num_heads, "bias": self.bias}
        return {**super().get_config(), **own, "dropout": self.dropout.rate}


def from_arrays(arrays: Arrays, num_heads: int, dropout: float = 0.0) -> MultiHeadAttention:
    """The layer with these weights, in their dtype.

    Raises:
        TypeError, ValueError: `arrays` are not the weights of a layer with so many heads.
    """
    D, has_bias = require_arrays(arrays, num_heads)
    layer = MultiHeadAttention(D, num_heads, dropout, has_bias, dtype=arrays["W_o"].dtype.name)
    layer.build(*[(None, None, D)] * 3)
    for matrix, bias in zip(MATRICES, BIASES, strict=True):
        projection = getattr(layer, matrix)
        projection.kernel.assign(arrays[matrix].T.copy())  # x @ kernel: transposed
        if has_bias:
            projection.bias.assign(arrays[bias])
    return layer


def to_arrays(layer: MultiHeadAttention) -> Arrays:
    """The layer's weights as NumPy arrays, see `mhalib.reference.Arrays`."""
    found = {}
    for matrix, bias in zip(MATRICES, BIASES, strict=True):
        projection = getattr(layer, matrix)
        found[matrix] = _numpy(projection.kernel).T.copy()
        if projection.bias is not None:
            found[bias] = _numpy(projection.bias)
    return found


def to_keras(arrays: Arrays, num_heads: int) -> keras.layers.MultiHeadAttention:
    """Keras' own `keras.layers.MultiHeadAttention` with these weights.

    Raises:
        TypeError, ValueError: `arrays` are not the weights of a layer with so many heads.
    """
    D, has_bias = require_arrays(arrays, num_heads)
    twin = keras.layers.MultiHeadAttention(num_heads, D // num_heads, use_bias=has_bias, dtype=arrays["W_o"].dtype.name)
    twin.build(*[(None, None, D)] * 3)
    for part, values in zip(_parts(twin), to_kernels(arrays, num_heads).values(), strict=True):
        for field, array in values.items():
            getattr(part, field).assign(array)
    return twin


def from_keras(twin: keras.layers.MultiHeadAttention) -> Arrays:
    """The weights of Keras' own layer, see `mhalib.reference.Arrays`.

    Raises:
        ValueError: its heads do not fill the width of the output.
    """
    kernels = {name: {"kernel": _numpy(part.kernel)} for name, part in zip(KERNELS, _parts(twin), strict=True)}
    for values, part in zip(kernels.values(), _parts(twin), strict=True):
        if part.bias is not None:
            values["bias"] = _numpy(part.bias)
    return from_kernels(kernels)


def _parts(twin: keras.layers.MultiHeadAttention) -> tuple[Any, ...]:
    return twin.query_dense, twin.key_dense, twin.value_dense, twin.output_dense


def _numpy(variable: Any) -> np.ndarray:
    return np.array(ops.convert_to_numpy(variable))


def _both(one: Tensor | None, other: Tensor) -> Tensor:
    return other if one is None else ops.logical_and(one, other)
