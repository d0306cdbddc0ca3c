"""The weights of one layer as NumPy arrays: the form through which they go from one framework to every other.

`W_q`, `W_k`, `W_v` and `W_o` have shape (D, D) and multiply from the left, as `torch.nn.Linear` has it: a projection
is `x @ W.T + b`. Head i owns the rows i*d to (i+1)*d of the first three and the same columns of `W_o`. The biases
`b_q`, `b_k`, `b_v` and `b_o`, each (D,), are all there or all missing.

This module needs NumPy alone.
"""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

Arrays: TypeAlias = dict[str, np.ndarray]
"""`W_q`, `W_k`, `W_v` and `W_o`, each (D, D), and `b_q`, `b_k`, `b_v` and `b_o`, each (D,), or none of these four."""

MATRICES = ("W_q", "W_k", "W_v", "W_o")
BIASES = ("b_q", "b_k", "b_v", "b_o")
KERNELS = ("query", "key", "value", "out")


def require_sizes(num_hiddens: object, num_heads: object) -> None:
    """Raise unless both are integers (TypeError), positive, and `num_heads` divides `num_hiddens` (ValueError)."""
    for name, size in (("num_hiddens", num_hiddens), ("num_heads", num_heads)):
        if isinstance(size, bool) or not isinstance(size, numbers.Integral):
            raise TypeError(f"{name} must be an integer, got {type(size).__name__}: {size!r:.80}")
        if size < 1:
            raise ValueError(f"{name}={size} must be at least 1")
    if num_hiddens % num_heads:  # type: ignore[operator]
        raise ValueError(f"num_hiddens={num_hiddens} is not divisible by num_heads={num_heads}")


def require_arrays(arrays: Mapping[str, np.ndarray], num_heads: int) -> tuple[int, bool]:
    """The width D of the layer whose weights these are, and whether it has biases.

    Args:
        arrays: what `Arrays` describes.
        num_heads: h, which the arrays do not say.

    Raises:
        TypeError: `arrays` is no mapping, or an entry is no array of floating-point numbers.
        ValueError: an entry is missing, unknown or of the wrong shape, or `num_heads` does not divide D.
    """
    if not isinstance(arrays, Mapping):
        raise TypeError(f"arrays must be a mapping, got {type(arrays).__name__}: {arrays!r:.80}")
    has_bias = any(name in arrays for name in BIASES)
    expected = {*MATRICES, *(BIASES if has_bias else ())}
    if set(arrays) != expected:
        missing, unknown = sorted(expected - set(arrays)), sorted(set(arrays) - expected, key=str)
        raise ValueError(f"arrays do not fit: missing {missing}, unknown {unknown}")
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray) or array.dtype.kind != "f":
            kind = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
            raise TypeError(f"{name} must be a NumPy array of floating-point numbers, got {kind}")
    if arrays["W_o"].ndim != 2:
        raise ValueError(f"W_o must have 2 axes, got shape {arrays['W_o'].shape}")
    D = arrays["W_o"].shape[0]
    for name, array in arrays.items():
        shape = (D, D) if name in MATRICES else (D,)
        if array.shape != shape:
            raise ValueError(f"{name} must have shape {shape}, got {array.shape}")
    require_sizes(D, num_heads)
    return D, has_bias


def to_kernels(arrays: Mapping[str, np.ndarray], num_heads: int) -> dict[str, Arrays]:
    """The layout of Keras and Flax: `query`, `key`, `value` and `out`, each with `kernel` and, if there are, `bias`.

    Args:
        arrays: what `Arrays` describes.
        num_heads: h.

    Returns:
        kernels (D, h, d), and (h, d, D) for `out`; biases (h, d), and (D,) for `out`.

    Raises:
        TypeError, ValueError: `arrays` are not the weights of a layer with so many heads.
    """
    D, has_bias = require_arrays(arrays, num_heads)
    found = {}
    for name, matrix, bias in zip(KERNELS, MATRICES, BIASES, strict=True):
        last = name == "out"
        found[name] = {"kernel": arrays[matrix].T.reshape((num_heads, -1, D) if last else (D, num_heads, -1)).copy()}
        if has_bias:
            found[name]["bias"] = arrays[bias].reshape((D,) if last else (num_heads, -1)).copy()
    return found


def from_kernels(kernels: Mapping[str, Mapping[str, np.ndarray]]) -> Arrays:
    """What `to_kernels` made of arrays, back again.

    Raises:
        TypeError: `kernels` is no mapping of mappings, or an entry is no array.
        ValueError: an entry is missing or of the wrong shape.
    """
    if not isinstance(kernels, Mapping) or not all(isinstance(part, Mapping) for part in kernels.values()):
        raise TypeError(f"kernels must be a mapping of mappings, got {type(kernels).__name__}: {kernels!r:.80}")
    if set(kernels) != set(KERNELS) or not all("kernel" in part for part in kernels.values()):
        raise ValueError(f"kernels must be {KERNELS}, each with an entry 'kernel', got {sorted(kernels, key=str)}")
    for name, part in kernels.items():
        shape = np.shape(part["kernel"]) if isinstance(part["kernel"], np.ndarray) else ()
        if len(shape) != 3:
            raise ValueError(f"the kernel of {name!r} must be an array with 3 axes, got shape {shape}")
    out = kernels["out"]["kernel"]
    num_heads, _, D = out.shape
    found = {}
    for name, matrix, bias in zip(KERNELS, MATRICES, BIASES, strict=True):
        part = kernels[name]
        if part["kernel"].size != D * D:
            raise ValueError(f"the kernel of {name!r} has shape {part['kernel'].shape}, which is no ({D}, {D}) matrix")
        found[matrix] = part["kernel"].reshape(D, D).T.copy()
        if part.get("bias") is not None:
            found[bias] = np.asarray(part["bias"]).reshape(-1).copy()
    require_arrays(found, num_heads)
    return found
