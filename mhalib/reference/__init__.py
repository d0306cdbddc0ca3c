"""Trusted slow versions, the same layer in other texts and other frameworks, and weights carried between all of them.

Five modules hold the layer in other frameworks. Each is imported by its full name and needs its framework, which
nothing else here does:

- `mhalib.reference.in_jax`: pure functions, in JAX;
- `mhalib.reference.in_flax`: a module of Flax nnx over them, and Flax's own layers;
- `mhalib.reference.in_keras`: a Keras 3 layer, on each of its backends, and Keras' own layer;
- `mhalib.reference.in_tensorflow`: functions of TensorFlow, with `tf.nn` by hand;
- `mhalib.reference.in_mxnet`: a Gluon block, with the steps of Dive into Deep Learning.

Weights go from one to every other through `Arrays`: NumPy arrays under the names of this book.

`mhalib.reference.flash` has what FlashAttention's versions changed, as simulations that count.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .arrays import Arrays
    from .convert import from_arrays, from_d2l, from_harvard, from_torch, to_arrays, to_d2l, to_harvard, to_torch
    from .layers import D2LMultiHeadAttention, HarvardMultiHeadAttention
    from .loops import attend_loops, multi_head_attention_loops
    from .stored import deviations, kinds, times

_HOMES = {  # torch is imported with the first name that needs it: MXNet's environment has none
    "Arrays": "arrays",
    **dict.fromkeys(("from_arrays", "from_d2l", "from_harvard", "from_torch"), "convert"),
    **dict.fromkeys(("to_arrays", "to_d2l", "to_harvard", "to_torch"), "convert"),
    **dict.fromkeys(("D2LMultiHeadAttention", "HarvardMultiHeadAttention"), "layers"),
    **dict.fromkeys(("attend_loops", "multi_head_attention_loops"), "loops"),
    **dict.fromkeys(("deviations", "kinds", "times"), "stored"),
}

__all__ = [
    "Arrays",
    "D2LMultiHeadAttention",
    "HarvardMultiHeadAttention",
    "attend_loops",
    "deviations",
    "from_arrays",
    "from_d2l",
    "from_harvard",
    "from_torch",
    "kinds",
    "multi_head_attention_loops",
    "times",
    "to_arrays",
    "to_d2l",
    "to_harvard",
    "to_torch",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
