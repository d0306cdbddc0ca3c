"""PyTorch: ours, torch's layer, torch's function, and the layer of Dive into Deep Learning."""

from __future__ import annotations

from typing import Any

import numpy as np

from tools.evidence.frameworks import Arrays, Call, Layer, Passes, UnableError


class InTorch(Layer):
    """What the layers below share."""

    def __init__(self) -> None:
        import torch

        from mhalib import reference

        self.torch, self.library = torch, reference

    def make(self, arrays: Arrays, num_heads: int, dropout: float = 0.0) -> Any:
        return super().make(arrays, num_heads, dropout).eval()

    def tensor(self, array: np.ndarray) -> Any:
        return self.torch.tensor(array)

    def gradients(self, layer: Any, call: Call, cotangent: np.ndarray) -> tuple[tuple[np.ndarray, ...], Arrays]:
        inputs = [x.requires_grad_() for x in self.tensors(*call.inputs)]
        output = self.forward(layer, inputs, call)[0]
        (output * self.torch.tensor(cotangent)).sum().backward()
        for parameter in layer.parameters():
            parameter.data = parameter.grad
        return tuple(x.grad.numpy() for x in inputs), self.back(layer)


class Torch(InTorch):
    name = "PyTorch"

    def forward(self, layer: Any, inputs: list[Any], call: Call) -> tuple[Any, Any]:
        lens, mask = self.tensors(call.valid_lens, call.mask)
        if call.causal:
            from mhalib import Band

            mask = Band()
        return layer(*inputs, lens, mask=mask, need_weights=call.weights)

    def compiled(self, layer: Any, call: Call) -> tuple[Any, Any]:
        self.torch._dynamo.reset()
        compiled = self.torch.compile(layer, backend="aot_eager", fullgraph=True)
        return self.forward(compiled, self.tensors(*call.inputs), call)

    def new_cache(self, layer: Any, x: np.ndarray) -> Any:
        return layer.new_cache()

    def step(self, layer: Any, token: Any, cache: Any) -> tuple[Any, Any]:
        return layer(token, token, token, cache=cache)[0], cache

    def passes(self, layer: Any, x: np.ndarray) -> Passes:
        z = self.tensor(x)
        layer.requires_grad_(False)
        return {"PyTorch, eager": lambda: layer(z, z, z, need_weights=True)}


class TorchOwn(InTorch):
    name = "torch.nn.MultiheadAttention"
    own = True

    def make(self, arrays: Arrays, num_heads: int, dropout: float = 0.0) -> Any:
        return self.library.to_torch(super().make(arrays, num_heads, dropout))

    def back(self, layer: Any) -> Arrays:
        return self.library.to_arrays(self.library.from_torch(layer))

    def forward(self, layer: Any, inputs: list[Any], call: Call) -> tuple[Any, Any]:
        mask = call.full_mask(layer.num_heads)
        hides = None if mask is None else ~self.torch.tensor(mask).flatten(0, 1)
        return layer(*inputs, attn_mask=hides, need_weights=call.weights, average_attn_weights=False)


class TorchFunction(InTorch):
    name = "torch scaled_dot_product_attention"
    own = True

    def forward(self, layer: Any, inputs: list[Any], call: Call) -> tuple[Any, Any]:
        (mask,) = self.tensors(call.full_mask(layer.num_heads))
        q, k, v = layer.project(*inputs)
        found = self.torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return layer.W_o(layer.merge(found)), None


class TorchD2L(InTorch):
    name = "D2L's layer in PyTorch"
    own = True

    def make(self, arrays: Arrays, num_heads: int, dropout: float = 0.0) -> Any:
        state = self.library.to_d2l(self.library.from_arrays(arrays, num_heads))
        D = arrays["W_o"].shape[0]
        layer = self.library.D2LMultiHeadAttention(D, num_heads, dropout, bias="b_o" in arrays)
        layer.to(state["W_o.weight"].dtype).load_state_dict(state)
        return layer.eval()

    def back(self, layer: Any) -> Arrays:
        return self.library.to_arrays(self.library.from_d2l(layer.state_dict(), layer.num_heads))

    def forward(self, layer: Any, inputs: list[Any], call: Call) -> tuple[Any, Any]:
        lens = call.valid_lens
        if call.causal:
            lens = np.tile(1 + np.arange(call.inputs[0].shape[1]), (len(call.inputs[0]), 1))
        if call.mask is not None:
            raise UnableError("knows no masks")
        output = layer(*inputs, self.tensors(lens)[0])
        return output, layer.attention_weights.unflatten(0, (-1, layer.num_heads))


LAYERS = (Torch, TorchOwn, TorchFunction, TorchD2L)
