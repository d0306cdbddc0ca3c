"""Keras on each of its backends: our layer, and Keras' own."""

from __future__ import annotations

from typing import Any

import numpy as np

from tools.evidence.frameworks import Arrays, Call, Layer


class InKeras(Layer):
    """What the layers below share; the backend is in their names."""

    def __init__(self) -> None:
        import keras

        from mhalib.reference import in_keras

        self.keras, self.library, self.backend = keras, in_keras, keras.backend.backend()
        if self.backend == "jax":
            import jax

            jax.config.update("jax_enable_x64", True)
        self.name = self.name.format(self.backend)

    def in_dtype(self, dtype: np.dtype) -> None:
        """Both switches of Keras: the default for tensors and that for layers."""
        self.keras.config.set_floatx(dtype.name)
        self.keras.config.set_dtype_policy(dtype.name)

    def tensor(self, array: np.ndarray) -> Any:
        return self.keras.ops.convert_to_tensor(array)

    def gradients(self, layer: Any, call: Call, cotangent: np.ndarray) -> tuple[tuple[np.ndarray, ...], Arrays]:
        variables = layer.trainable_variables
        of_inputs, of_weights = getattr(self, f"_gradients_{self.backend}")(layer, variables, call, cotangent)
        for variable, gradient in zip(variables, of_weights, strict=True):
            variable.assign(gradient)
        return tuple(np.array(self.keras.ops.convert_to_numpy(x)) for x in of_inputs), self.back(layer)

    def _gradients_torch(self, layer: Any, variables: Any, call: Call, cotangent: np.ndarray) -> Any:
        inputs = [x.clone().requires_grad_() for x in self.tensors(*call.inputs)]
        loss = (self.forward(layer, inputs, call)[0] * self.tensor(cotangent)).sum()
        loss.backward()
        return [x.grad for x in inputs], [variable.value.grad for variable in variables]

    def _gradients_jax(self, layer: Any, variables: Any, call: Call, cotangent: np.ndarray) -> Any:
        import jax

        def loss(values: Any, inputs: Any) -> Any:
            def stateless(*arguments: Any, **options: Any) -> Any:
                rest = [variable.value for variable in layer.non_trainable_variables]
                return layer.stateless_call(values, rest, *arguments, **options)[0]

            return (self.forward(stateless, inputs, call)[0] * cotangent).sum()

        of_weights, of_inputs = jax.jit(jax.grad(loss, argnums=(0, 1)))(
            [variable.value for variable in variables], [jax.numpy.asarray(x) for x in call.inputs]
        )
        return of_inputs, of_weights

    def _gradients_tensorflow(self, layer: Any, variables: Any, call: Call, cotangent: np.ndarray) -> Any:
        import tensorflow as tf

        inputs = [tf.Variable(x) for x in call.inputs]
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(self.forward(layer, [tf.identity(x) for x in inputs], call)[0] * cotangent)
        return tape.gradient(loss, (inputs, [variable.value for variable in variables]))

    def compiled(self, layer: Any, call: Call) -> tuple[Any, Any]:
        if self.backend == "jax":
            import jax

            return jax.jit(lambda inputs: self.forward(layer, inputs, call))(call.inputs)
        if self.backend == "tensorflow":
            import tensorflow as tf

            inputs = [tf.constant(x) for x in call.inputs]
            return tf.function(lambda *inputs: self.forward(layer, inputs, call))(*inputs)
        return super().compiled(layer, call)


class Keras(InKeras):
    name = "Keras on {}"

    def make(self, arrays: Arrays, num_heads: int, dropout: float = 0.0) -> Any:
        self.in_dtype(arrays["W_o"].dtype)
        return super().make(arrays, num_heads, dropout)

    def forward(self, layer: Any, inputs: Any, call: Call) -> tuple[Any, Any]:
        options = {"attention_mask": call.mask, "causal": call.causal, "need_weights": call.weights}
        return layer(*inputs, call.valid_lens, **options)

    def new_cache(self, layer: Any, x: np.ndarray) -> Any:
        return self.library.Cache()


class KerasOwn(InKeras):
    name = "keras.layers.MultiHeadAttention on {}"
    own = True

    def make(self, arrays: Arrays, num_heads: int, dropout: float = 0.0) -> Any:
        self.in_dtype(arrays["W_o"].dtype)
        self.num_heads = num_heads
        layer = self.library.to_keras(arrays, num_heads)
        if dropout:
            again = type(layer).from_config({**layer.get_config(), "dropout": dropout})
            again.build(*[(None, None, arrays["W_o"].shape[0])] * 3)
            again.set_weights(layer.get_weights())
            return again
        return layer

    def back(self, layer: Any) -> Arrays:
        return self.library.from_keras(layer)

    def forward(self, layer: Any, inputs: Any, call: Call) -> tuple[Any, Any]:
        queries, keys, values = inputs
        options = {"attention_mask": call.full_mask(self.num_heads), "return_attention_scores": call.weights}
        found = layer(queries, values, keys, **options)
        return found if call.weights else (found, None)


LAYERS = (Keras, KerasOwn)
