"""TensorFlow: our functions of `tf.nn`. TensorFlow's layers are those of Keras."""

from __future__ import annotations

from typing import Any

import numpy as np

from tools.evidence.frameworks import Arrays, Call, Functions, Passes


class Tensorflow(Functions):
    name = "TensorFlow functions (tf.nn)"

    def __init__(self) -> None:
        import tensorflow

        from mhalib.reference import in_tensorflow

        self.tf, self.library = tensorflow, in_tensorflow

    def tensor(self, array: np.ndarray) -> Any:
        return self.tf.constant(array)

    def gradients(self, layer: Any, call: Call, cotangent: np.ndarray) -> tuple[tuple[np.ndarray, ...], Arrays]:
        inputs = [self.tf.Variable(x) for x in call.inputs]
        with self.tf.GradientTape() as tape:
            loss = self.tf.reduce_sum(self.forward(layer, inputs, call)[0] * cotangent)
        of_weights, of_inputs = tape.gradient(loss, (layer, inputs))
        return tuple(x.numpy() for x in of_inputs), self.back(of_weights)

    def compiled(self, layer: Any, call: Call) -> tuple[Any, Any]:
        dtype, D = call.inputs[0].dtype, call.inputs[0].shape[-1]
        unknown = [self.tf.TensorSpec((None, None, D), dtype)] * 3  # one graph for all lengths
        step = self.tf.function(lambda *inputs: self.forward(layer, inputs, call), input_signature=unknown)
        return step(*self.tensors(*call.inputs))

    def new_cache(self, layer: Any, x: np.ndarray) -> Any:
        return None

    def passes(self, layer: Any, x: np.ndarray) -> Passes:
        z = self.tensor(x)

        def attend(z: object) -> tuple:
            return self.library.multi_head_attention(layer, z, z, z, **self.options)[:2]

        graph, fused = self.tf.function(attend), self.tf.function(attend, jit_compile=True)
        return {
            "TensorFlow, eager": lambda: attend(z),
            "TensorFlow, tf.function": lambda: graph(z),
            "TensorFlow, XLA": lambda: fused(z),
        }


LAYERS = (Tensorflow,)
