"""The layer in all frameworks, ours and the frameworks' own, under one face: a module for each, and `Layer` for all.

A class in `in_torch.py`, `in_jax.py` and so on is one layer. It imports the framework when it is made, so each can run
where the others are not installed. Numbers go in and come out as NumPy arrays.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Arrays = dict[str, np.ndarray]
Passes = dict[str, Callable[[], tuple]]
"""Name -> computes the layer once: output and weights."""


class UnableError(Exception):
    """What a layer cannot be asked for."""


class Call(NamedTuple):
    """What a layer is called with: inputs (B, Q, D), (B, K, D) twice, lengths, mask (broadcast to (B, h, Q, K)).

    weights: whether weights are asked for.
    """

    inputs: tuple[np.ndarray, np.ndarray, np.ndarray]
    valid_lens: np.ndarray | None = None
    mask: np.ndarray | None = None
    causal: bool = False
    weights: bool = True

    def full_mask(self, num_heads: int) -> np.ndarray | None:
        """All three as one boolean (B, h, Q, K), for layers that know masks alone; `None` if everything may be seen."""
        queries, keys, _ = self.inputs
        B, Q, K = queries.shape[0], queries.shape[1], keys.shape[1]
        if self.mask is None and self.valid_lens is None and not self.causal:
            return None
        allowed = np.ones((B, num_heads, Q, K), bool)
        if self.mask is not None:
            allowed &= self.mask
        if self.valid_lens is not None:
            lens = self.valid_lens[:, None] if self.valid_lens.ndim == 1 else self.valid_lens
            allowed &= np.arange(K) < lens[:, None, :, None]
        return allowed & np.tri(Q, K, dtype=bool) if self.causal else allowed


class Layer:
    """One layer in one framework.

    name: as the table has it.
    own: whether it is the framework's own layer, and not ours.
    """

    name = ""
    own = False
    library: Any  # the module of `mhalib.reference`

    def make(self, arrays: Arrays, num_heads: int, dropout: float = 0.0) -> Any:
        """A layer with these weights, in their dtype, as it is used after training."""
        return self.library.from_arrays(arrays, num_heads, dropout)

    def back(self, layer: Any) -> Arrays:
        """Its weights."""
        return self.library.to_arrays(layer)

    def tensor(self, array: np.ndarray) -> Any:
        """An array as the framework has it."""
        raise NotImplementedError

    def tensors(self, *arrays: np.ndarray | None) -> list[Any]:
        """Several; what is missing stays missing."""
        return [None if array is None else self.tensor(array) for array in arrays]

    def forward(self, layer: Any, inputs: Any, call: Call) -> tuple[Any, Any]:
        """Output, and weights or `None`, of `inputs` in the place of those of the call; all the framework's own."""
        raise NotImplementedError

    def run(self, layer: Any, call: Call) -> tuple[Any, Any]:
        """Output, and weights or `None`, as the framework's own tensors."""
        return self.forward(layer, self.tensors(*call.inputs), call)

    def gradients(self, layer: Any, call: Call, cotangent: np.ndarray) -> tuple[tuple[np.ndarray, ...], Arrays]:
        """Those of sum(output * cotangent), for the three inputs and for the weights, which it may write over."""
        raise NotImplementedError

    def compiled(self, layer: Any, call: Call) -> tuple[Any, Any]:
        """`run`, compiled. Raises UnableError where there is no compiler for it."""
        raise UnableError("no compiler")

    def new_cache(self, layer: Any, x: np.ndarray) -> Any:
        """An empty cache for the tokens of x (B, N, D). Raises UnableError where the layer has none."""
        raise UnableError("no cache")

    def step(self, layer: Any, token: Any, cache: Any) -> tuple[Any, Any]:
        """The output (B, 1, D) for one more token (B, 1, D), and the cache with it."""
        return layer(token, token, token, causal=True, cache=cache)[0], cache

    def decode(self, layer: Any, x: np.ndarray) -> list[Any]:
        """The outputs for tokens of x (B, N, D), given one by one, with a cache."""
        cache, outputs = self.new_cache(layer, x), []
        for t in range(x.shape[1]):
            output, cache = self.step(layer, self.tensor(x[:, t : t + 1]), cache)
            outputs.append(output)
        return outputs

    def passes(self, layer: Any, x: np.ndarray) -> Passes:
        """The ways to compute self-attention over x (B, N, D), for `make frameworks` to time; none if it is not."""
        return {}


class Functions(Layer):
    """Ours as functions: the weights are one argument, and the number of heads is another."""

    options: dict[str, Any]

    def make(self, arrays: Arrays, num_heads: int, dropout: float = 0.0) -> Any:
        self.options = {"num_heads": num_heads}  # a function has no mode: dropout that is off is no dropout
        return self.library.from_arrays(arrays, num_heads)

    def forward(self, layer: Any, inputs: Any, call: Call) -> tuple[Any, Any]:
        options = {"mask": call.mask, "causal": call.causal, "need_weights": call.weights, **self.options}
        return self.library.multi_head_attention(layer, *inputs, call.valid_lens, **options)[:2]

    def step(self, layer: Any, token: Any, cache: Any) -> tuple[Any, Any]:
        attend = self.library.multi_head_attention
        output, _, cache = attend(layer, token, token, token, causal=True, cache=cache, **self.options)
        return output, cache


class Run(NamedTuple):
    """What runs in one process: a module of this folder, the package it needs, and the environment that has it.

    environment: of `requirements-ENVIRONMENT.txt`; empty for that of the book.
    """

    module: str
    needs: str
    environment: str = ""


RUNS = {
    "torch": Run("in_torch", "torch"),
    "jax": Run("in_jax", "flax"),
    "keras-torch": Run("in_keras", "keras"),
    "keras-jax": Run("in_keras", "keras"),
    "keras-tensorflow": Run("in_keras", "tensorflow", "tensorflow"),
    "tensorflow": Run("in_tensorflow", "tensorflow", "tensorflow"),
    "mxnet": Run("in_mxnet", "mxnet", "mxnet"),
}
TIMED = ("torch", "tensorflow", "mxnet")  # the first layer of each


def kinds_of(run: str) -> tuple[type[Layer], ...]:
    """The layers of one process, without its framework."""
    return importlib.import_module(f"{__name__}.{RUNS[run].module}").LAYERS


def names_of(run: str) -> list[str]:
    """Their names in the table."""
    return [kind.name.format(run.removeprefix("keras-")) for kind in kinds_of(run)]


def layers_of(run: str) -> list[Layer]:
    """Those of one process, which sets here what the frameworks read when they are imported."""
    if run.startswith("keras-"):
        os.environ["KERAS_BACKEND"] = run.removeprefix("keras-")
    return [kind() for kind in kinds_of(run)]
