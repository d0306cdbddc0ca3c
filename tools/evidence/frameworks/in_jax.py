"""JAX: our functions, our module of Flax nnx, and the layers of JAX, linen and nnx."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tools.evidence.frameworks import Arrays, Call, Functions, Layer


class InJax(Layer):
    """What the layers below share."""

    def __init__(self) -> None:
        import jax

        from mhalib.reference import in_flax, in_jax

        jax.config.update("jax_enable_x64", True)
        self.jax, self.flax, self.library = jax, in_flax, in_jax

    def tensor(self, array: np.ndarray) -> Any:
        return self.jax.numpy.asarray(array)

    def loss(self, call: Call, cotangent: np.ndarray) -> Callable[..., Any]:
        """A function of the layer and its inputs, to be differentiated."""
        return lambda layer, *inputs: (self.forward(layer, inputs, call)[0] * cotangent).sum()

    def gradients(self, layer: Any, call: Call, cotangent: np.ndarray) -> tuple[tuple[np.ndarray, ...], Arrays]:
        gradients = self.jax.jit(self.jax.grad(self.loss(call, cotangent), argnums=(0, 1, 2, 3)))  # compiled: sooner
        of_weights, *of_inputs = gradients(layer, *call.inputs)
        return tuple(np.array(x) for x in of_inputs), self.back(of_weights)

    def compiled(self, layer: Any, call: Call) -> tuple[Any, Any]:
        return self.jax.jit(lambda layer, inputs: self.forward(layer, inputs, call))(layer, call.inputs)


class Jax(InJax, Functions):
    name = "JAX functions"

    def make(self, arrays: Arrays, num_heads: int, dropout: float = 0.0) -> Any:
        made = super().make(arrays, num_heads)
        self.options["dropout"] = dropout  # without a key nothing is dropped
        return made

    def new_cache(self, layer: Any, x: np.ndarray) -> Any:
        B, N, D = x.shape
        num_heads = self.options["num_heads"]
        self.attend = self.jax.jit(self.library.multi_head_attention, static_argnames=("num_heads", "causal"))
        return self.library.new_cache(B, num_heads, N, D // num_heads, x.dtype)

    def step(self, layer: Any, token: Any, cache: Any) -> tuple[Any, Any]:
        num_heads = self.options["num_heads"]
        output, _, cache = self.attend(layer, token, token, token, num_heads=num_heads, causal=True, cache=cache)
        return output, cache


class JaxFunction(InJax):
    name = "jax.nn.dot_product_attention"
    own = True

    def make(self, arrays: Arrays, num_heads: int, dropout: float = 0.0) -> Any:
        self.num_heads = num_heads
        return self.library.from_arrays(arrays, num_heads)

    def forward(self, layer: Any, inputs: Any, call: Call) -> tuple[Any, Any]:
        def project(name: str, x: Any) -> Any:  # (B, N, h, d): heads come after tokens here
            x = x @ layer[f"W_{name}"].T + layer.get(f"b_{name}", 0)
            return x if name == "o" else x.reshape(*x.shape[:2], self.num_heads, -1)

        q, k, v = (project(name, x) for name, x in zip("qkv", inputs, strict=True))
        found = self.jax.nn.dot_product_attention(q, k, v, mask=call.full_mask(self.num_heads))
        return project("o", found.reshape(*found.shape[:2], -1)), None


class Linen(InJax):
    """Its cache, filled through variables of the module, is left alone."""

    name = "flax.linen.MultiHeadDotProductAttention"
    own = True

    def make(self, arrays: Arrays, num_heads: int, dropout: float = 0.0) -> Any:
        self.num_heads = num_heads
        self.module, weights = self.flax.to_linen(arrays, num_heads)
        self.module = self.module.clone(dropout_rate=dropout, deterministic=True)
        return weights

    def back(self, layer: Any) -> Arrays:
        return self.flax.from_linen(layer)

    def forward(self, layer: Any, inputs: Any, call: Call) -> tuple[Any, Any]:
        mask = call.full_mask(self.num_heads)
        if not call.weights:
            return self.module.apply({"params": layer}, *inputs, mask=mask), None
        options = {"mask": mask, "sow_weights": True, "mutable": "intermediates"}
        output, state = self.module.apply({"params": layer}, *inputs, **options)
        return output, state["intermediates"]["attention_weights"][0]


class Nnx(InJax):
    name = "Flax nnx"

    def __init__(self) -> None:
        super().__init__()
        from flax import nnx

        self.nnx, self.library = nnx, self.flax

    def make(self, arrays: Arrays, num_heads: int, dropout: float = 0.0) -> Any:
        layer = super().make(arrays, num_heads, dropout)
        layer.eval()
        return layer

    def forward(self, layer: Any, inputs: Any, call: Call) -> tuple[Any, Any]:
        options = {"mask": call.mask, "causal": call.causal, "need_weights": call.weights}
        return layer(*inputs, call.valid_lens, **options)

    def gradients(self, layer: Any, call: Call, cotangent: np.ndarray) -> tuple[tuple[np.ndarray, ...], Arrays]:
        gradients = self.nnx.jit(self.nnx.grad(self.loss(call, cotangent), argnums=(0, 1, 2, 3)))
        of_weights, *of_inputs = gradients(layer, *call.inputs)
        self.nnx.update(layer, of_weights)
        return tuple(np.array(x) for x in of_inputs), self.back(layer)

    def compiled(self, layer: Any, call: Call) -> tuple[Any, Any]:
        return self.nnx.jit(lambda layer, inputs: self.forward(layer, inputs, call))(layer, call.inputs)

    def new_cache(self, layer: Any, x: np.ndarray) -> Any:
        B, N, D = x.shape
        self.attend = self.nnx.jit(lambda layer, token, cache: layer(token, token, token, causal=True, cache=cache)[0])
        return self.library.Cache(B, layer.num_heads, N, D // layer.num_heads, x.dtype)

    def step(self, layer: Any, token: Any, cache: Any) -> tuple[Any, Any]:
        return self.attend(layer, token, cache), cache


class NnxOwn(Nnx):
    name = "flax.nnx.MultiHeadAttention"
    own = True

    def make(self, arrays: Arrays, num_heads: int, dropout: float = 0.0) -> Any:
        layer = self.library.to_nnx(arrays, num_heads)
        layer.dropout_rate, layer.deterministic = dropout, True
        return layer

    def back(self, layer: Any) -> Arrays:
        return self.library.from_nnx(layer)

    def forward(self, layer: Any, inputs: Any, call: Call) -> tuple[Any, Any]:
        mask = call.full_mask(layer.num_heads)
        if not call.weights:
            return layer(*inputs, mask=mask), None
        output, state = self.nnx.capture(layer, self.nnx.Intermediate)(*inputs, mask=mask, sow_weights=True)
        return output, self.nnx.to_pure_dict(state)["attention_weights"][0]

    def gradients(self, layer: Any, call: Call, cotangent: np.ndarray) -> tuple[tuple[np.ndarray, ...], Arrays]:
        return super().gradients(layer, call._replace(weights=False), cotangent)

    def compiled(self, layer: Any, call: Call) -> tuple[Any, Any]:
        return super().compiled(layer, call._replace(weights=False))

    def decode(self, layer: Any, x: np.ndarray) -> list[Any]:
        layer.set_attributes(decode=True, raise_if_not_found=False)
        layer.init_cache(x.shape, dtype=x.dtype)
        outputs = [layer(x[:, t : t + 1]) for t in range(x.shape[1])]
        layer.set_attributes(decode=False, raise_if_not_found=False)
        return outputs


LAYERS = (Jax, Nnx, JaxFunction, Linen, NnxOwn)
