"""MXNet: our block of Gluon, which has no layer of attention of its own."""

from __future__ import annotations

from typing import Any

import numpy as np

from tools.evidence.frameworks import Arrays, Call, Layer, Passes


class Mxnet(Layer):
    name = "MXNet Gluon"

    def __init__(self) -> None:
        import mxnet

        from mhalib.reference import in_mxnet

        self.mx, self.library = mxnet, in_mxnet

    def tensor(self, array: np.ndarray) -> Any:
        return self.mx.np.array(array, dtype=array.dtype)

    def forward(self, layer: Any, inputs: Any, call: Call) -> tuple[Any, Any]:
        return layer(*inputs, *self.tensors(call.valid_lens, call.mask), call.causal, call.weights)

    def gradients(self, layer: Any, call: Call, cotangent: np.ndarray) -> tuple[tuple[np.ndarray, ...], Arrays]:
        inputs = self.tensors(*call.inputs)
        for x in inputs:
            x.attach_grad()
        with self.mx.autograd.record(train_mode=False):
            loss = (self.forward(layer, inputs, call)[0] * self.tensor(cotangent)).sum()
        loss.backward()
        for parameter in layer.collect_params().values():
            parameter.set_data(parameter.grad())
        return tuple(x.grad.asnumpy() for x in inputs), self.back(layer)

    def compiled(self, layer: Any, call: Call) -> tuple[Any, Any]:
        block = self.library.HybridMultiHeadAttention(layer)
        block.hybridize()
        mask = call.full_mask(layer.num_heads)
        return block(*self.tensors(*call.inputs), *([] if mask is None else self.tensors(mask)))

    def new_cache(self, layer: Any, x: np.ndarray) -> Any:
        return self.library.Cache()

    def step(self, layer: Any, token: Any, cache: Any) -> tuple[Any, Any]:
        return layer(token, token, token, None, None, True, True, cache)[0], cache  # blocks take no names

    def passes(self, layer: Any, x: np.ndarray) -> Passes:
        z, block = self.tensor(x), self.library.HybridMultiHeadAttention(layer)
        block.hybridize(static_alloc=True, static_shape=True)

        def waited(found: tuple) -> tuple:
            for one in found:
                one.wait_to_read()  # MXNet returns before it has computed
            return found

        return {
            "MXNet, imperative": lambda: waited(layer(z, z, z)),
            "MXNet, hybridized": lambda: waited(block(z, z, z)),
        }


LAYERS = (Mxnet,)
