"""Each framework's layers under one face, for `framework_case.py`: ours, and the framework's own.

A class here is one layer in one framework. It imports the framework when it is made, so each can run where the others
are not installed. Numbers go in and come out as NumPy arrays.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Arrays = dict[str, np.ndarray]


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
    has_weights: whether it returns weights per head.
    """

    name = ""
    own = False
    has_weights = True
    library: Any  # the module of `mhalib.reference`

    def make(self, arrays: Arrays, num_heads: int, dropout: float = 0.0) -> Any:
        """A layer with these weights, in their dtype, as it is used after training."""
        raise NotImplementedError

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

    def compiled(self, layer: Any, call: Call) -> tuple[Any, Any] | None:
        """`run`, compiled; `None` where there is no compiler for it."""
        return None

    def decode(self, layer: Any, x: np.ndarray) -> list[Any] | None:
        """The outputs for tokens of x (B, N, D), given one by one, with a cache; `None` where there is none."""
        return None


class Torch(Layer):
    name = "PyTorch"

    def __init__(self) -> None:
        import torch

        from mhalib import reference

        self.torch, self.library = torch, reference

    def make(self, arrays: Arrays, num_heads: int, dropout: float = 0.0) -> Any:
        return self.library.from_arrays(arrays, num_heads, dropout).eval()

    def tensor(self, array: np.ndarray) -> Any:
        return self.torch.tensor(array)

    def forward(self, layer: Any, inputs: list[Any], call: Call) -> tuple[Any, Any]:
        lens, mask = self.tensors(call.valid_lens, call.mask)
        if call.causal:
            from mhalib import Band

            mask = Band()
        return layer(*inputs, lens, mask=mask, need_weights=call.weights)

    def gradients(self, layer: Any, call: Call, cotangent: np.ndarray) -> tuple[tuple[np.ndarray, ...], Arrays]:
        inputs = [x.requires_grad_() for x in self.tensors(*call.inputs)]
        output = self.forward(layer, inputs, call)[0]
        (output * self.torch.tensor(cotangent)).sum().backward()
        for parameter in layer.parameters():
            parameter.data = parameter.grad
        return tuple(x.grad.numpy() for x in inputs), self.back(layer)

    def compiled(self, layer: Any, call: Call) -> tuple[Any, Any] | None:
        self.torch._dynamo.reset()
        compiled = self.torch.compile(layer, backend="aot_eager", fullgraph=True)
        return self.forward(compiled, self.tensors(*call.inputs), call)

    def decode(self, layer: Any, x: np.ndarray) -> list[Any] | None:
        cache, tokens = layer.new_cache(), self.torch.tensor(x).split(1, dim=1)
        return [layer(token, token, token, cache=cache)[0] for token in tokens]


class TorchOwn(Torch):
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

    def compiled(self, layer: Any, call: Call) -> tuple[Any, Any] | None:
        return None

    def decode(self, layer: Any, x: np.ndarray) -> list[Any] | None:
        return None


class TorchFunction(Torch):
    name = "torch scaled_dot_product_attention"
    own = True
    has_weights = False

    def forward(self, layer: Any, inputs: list[Any], call: Call) -> tuple[Any, Any]:
        (mask,) = self.tensors(call.full_mask(layer.num_heads))
        q, k, v = layer.project(*inputs)
        found = self.torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return layer.W_o(layer.merge(found)), None

    def compiled(self, layer: Any, call: Call) -> tuple[Any, Any] | None:
        return None

    def decode(self, layer: Any, x: np.ndarray) -> list[Any] | None:
        return None


class TorchD2L(Torch):
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

    def compiled(self, layer: Any, call: Call) -> tuple[Any, Any] | None:
        return None

    def decode(self, layer: Any, x: np.ndarray) -> list[Any] | None:
        return None


class UnableError(Exception):
    """What a layer cannot be asked for."""


class Jax(Layer):
    name = "JAX functions"

    def __init__(self) -> None:
        import jax

        from mhalib.reference import in_jax

        jax.config.update("jax_enable_x64", True)
        self.jax, self.library = jax, in_jax

    def make(self, arrays: Arrays, num_heads: int, dropout: float = 0.0) -> Any:
        self.num_heads, self.dropout = num_heads, dropout
        return self.library.from_arrays(arrays, num_heads)

    def tensor(self, array: np.ndarray) -> Any:
        return self.jax.numpy.asarray(array)

    def forward(self, layer: Any, inputs: Any, call: Call) -> tuple[Any, Any]:
        queries, keys, values = inputs
        output, weights, _ = self.library.multi_head_attention(
            layer,
            queries,
            keys,
            values,
            call.valid_lens,
            num_heads=self.num_heads,
            mask=call.mask,
            causal=call.causal,
            need_weights=call.weights,
            dropout=self.dropout,
        )
        return output, weights

    def loss(self, call: Call, cotangent: np.ndarray) -> Callable[..., Any]:
        """A function of the layer and its inputs, to be differentiated."""
        return lambda layer, *inputs: (self.forward(layer, inputs, call)[0] * cotangent).sum()

    def gradients(self, layer: Any, call: Call, cotangent: np.ndarray) -> tuple[tuple[np.ndarray, ...], Arrays]:
        gradients = self.jax.jit(self.jax.grad(self.loss(call, cotangent), argnums=(0, 1, 2, 3)))  # compiled: sooner
        of_weights, *of_inputs = gradients(layer, *call.inputs)
        return tuple(np.array(x) for x in of_inputs), self.back(of_weights)

    def compiled(self, layer: Any, call: Call) -> tuple[Any, Any] | None:
        return self.jax.jit(lambda layer, inputs: self.forward(layer, inputs, call))(layer, call.inputs)

    def decode(self, layer: Any, x: np.ndarray) -> list[Any] | None:
        B, N, D = x.shape
        cache = self.library.new_cache(B, self.num_heads, N, D // self.num_heads, x.dtype)
        step = self.jax.jit(self.library.multi_head_attention, static_argnames=("num_heads", "causal"))
        outputs = []
        for t in range(N):
            token = x[:, t : t + 1]
            output, _, cache = step(layer, token, token, token, num_heads=self.num_heads, causal=True, cache=cache)
            outputs.append(output)
        return outputs


class JaxFunction(Jax):
    name = "jax.nn.dot_product_attention"
    own = True
    has_weights = False

    def forward(self, layer: Any, inputs: Any, call: Call) -> tuple[Any, Any]:
        def project(name: str, x: Any) -> Any:  # (B, N, h, d): heads come after tokens here
            x = x @ layer[f"W_{name}"].T + layer.get(f"b_{name}", 0)
            return x if name == "o" else x.reshape(*x.shape[:2], self.num_heads, -1)

        q, k, v = (project(name, x) for name, x in zip("qkv", inputs, strict=True))
        found = self.jax.nn.dot_product_attention(q, k, v, mask=call.full_mask(self.num_heads))
        return project("o", found.reshape(*found.shape[:2], -1)), None

    def decode(self, layer: Any, x: np.ndarray) -> list[Any] | None:
        return None


class Linen(Jax):
    name = "flax.linen.MultiHeadDotProductAttention"
    own = True

    def __init__(self) -> None:
        super().__init__()
        from mhalib.reference import in_flax

        self.flax = in_flax

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

    def decode(self, layer: Any, x: np.ndarray) -> list[Any] | None:
        return None  # it has one, filled through variables of the module, for one token at a time


class Nnx(Jax):
    name = "Flax nnx"

    def __init__(self) -> None:
        super().__init__()
        from flax import nnx

        from mhalib.reference import in_flax

        self.nnx, self.library = nnx, in_flax

    def make(self, arrays: Arrays, num_heads: int, dropout: float = 0.0) -> Any:
        layer = self.library.from_arrays(arrays, num_heads, dropout)
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

    def compiled(self, layer: Any, call: Call) -> tuple[Any, Any] | None:
        return self.nnx.jit(lambda layer, inputs: self.forward(layer, inputs, call))(layer, call.inputs)

    def decode(self, layer: Any, x: np.ndarray) -> list[Any] | None:
        B, N, D = x.shape
        cache = self.library.Cache(B, layer.num_heads, N, D // layer.num_heads, x.dtype)
        step = self.nnx.jit(lambda layer, token, cache: layer(token, token, token, causal=True, cache=cache)[0])
        return [step(layer, x[:, t : t + 1], cache) for t in range(N)]


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

    def compiled(self, layer: Any, call: Call) -> tuple[Any, Any] | None:
        return super().compiled(layer, call._replace(weights=False))

    def decode(self, layer: Any, x: np.ndarray) -> list[Any] | None:
        layer.set_attributes(decode=True, raise_if_not_found=False)
        layer.init_cache(x.shape, dtype=x.dtype)
        outputs = [layer(x[:, t : t + 1]) for t in range(x.shape[1])]
        layer.set_attributes(decode=False, raise_if_not_found=False)
        return outputs


class Tensorflow(Layer):
    name = "TensorFlow functions (tf.nn)"

    def __init__(self) -> None:
        import tensorflow

        from mhalib.reference import in_tensorflow

        self.tf, self.library = tensorflow, in_tensorflow

    def make(self, arrays: Arrays, num_heads: int, dropout: float = 0.0) -> Any:
        self.num_heads = num_heads  # a function has no mode: dropout that is off is no dropout
        return self.library.from_arrays(arrays, num_heads)

    def tensor(self, array: np.ndarray) -> Any:
        return self.tf.constant(array)

    def forward(self, layer: Any, inputs: Any, call: Call) -> tuple[Any, Any]:
        queries, keys, values = inputs
        output, weights, _ = self.library.multi_head_attention(
            layer,
            queries,
            keys,
            values,
            call.valid_lens,
            num_heads=self.num_heads,
            mask=call.mask,
            causal=call.causal,
            need_weights=call.weights,
        )
        return output, weights

    def gradients(self, layer: Any, call: Call, cotangent: np.ndarray) -> tuple[tuple[np.ndarray, ...], Arrays]:
        inputs = [self.tf.Variable(x) for x in call.inputs]
        with self.tf.GradientTape() as tape:
            loss = self.tf.reduce_sum(self.forward(layer, inputs, call)[0] * cotangent)
        of_weights, of_inputs = tape.gradient(loss, (layer, inputs))
        return tuple(x.numpy() for x in of_inputs), {name: of_weights[name].numpy() for name in layer}

    def compiled(self, layer: Any, call: Call) -> tuple[Any, Any] | None:
        dtype, D = call.inputs[0].dtype, call.inputs[0].shape[-1]
        unknown = [self.tf.TensorSpec((None, None, D), dtype)] * 3  # one graph for all lengths
        step = self.tf.function(lambda *inputs: self.forward(layer, inputs, call), input_signature=unknown)
        return step(*self.tensors(*call.inputs))

    def decode(self, layer: Any, x: np.ndarray) -> list[Any] | None:
        cache, outputs = None, []
        for t in range(x.shape[1]):
            token = self.tf.constant(x[:, t : t + 1])
            output, _, cache = self.library.multi_head_attention(
                layer, token, token, token, num_heads=self.num_heads, causal=True, cache=cache
            )
            outputs.append(output)
        return outputs


class Keras(Layer):
    name = "Keras on {}"

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

    def make(self, arrays: Arrays, num_heads: int, dropout: float = 0.0) -> Any:
        self.in_dtype(arrays["W_o"].dtype)
        return self.library.from_arrays(arrays, num_heads, dropout)

    def tensor(self, array: np.ndarray) -> Any:
        return self.keras.ops.convert_to_tensor(array)

    def forward(self, layer: Any, inputs: Any, call: Call) -> tuple[Any, Any]:
        options = {"attention_mask": call.mask, "causal": call.causal, "need_weights": call.weights}
        return layer(*inputs, call.valid_lens, **options)

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

    def compiled(self, layer: Any, call: Call) -> tuple[Any, Any] | None:
        if self.backend == "jax":
            import jax

            return jax.jit(lambda inputs: self.forward(layer, inputs, call))(call.inputs)
        if self.backend == "tensorflow":
            import tensorflow as tf

            inputs = [tf.constant(x) for x in call.inputs]
            return tf.function(lambda *inputs: self.forward(layer, inputs, call))(*inputs)
        return None

    def decode(self, layer: Any, x: np.ndarray) -> list[Any] | None:
        cache, tokens = self.library.Cache(), self.keras.ops.split(self.tensor(x), x.shape[1], 1)
        return [layer(token, token, token, causal=True, cache=cache)[0] for token in tokens]


class KerasOwn(Keras):
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

    def decode(self, layer: Any, x: np.ndarray) -> list[Any] | None:
        return None


class Mxnet(Layer):
    name = "MXNet Gluon"

    def __init__(self) -> None:
        import mxnet

        from mhalib.reference import in_mxnet

        self.mx, self.library = mxnet, in_mxnet

    def make(self, arrays: Arrays, num_heads: int, dropout: float = 0.0) -> Any:
        return self.library.from_arrays(arrays, num_heads, dropout)

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

    def compiled(self, layer: Any, call: Call) -> tuple[Any, Any] | None:
        block = self.library.HybridMultiHeadAttention(layer)
        block.hybridize()
        mask = call.full_mask(layer.num_heads)
        return block(*self.tensors(*call.inputs), *([] if mask is None else self.tensors(mask)))

    def decode(self, layer: Any, x: np.ndarray) -> list[Any] | None:
        cache, tokens = self.library.Cache(), self.tensors(*np.split(x, x.shape[1], axis=1))
        return [layer(token, token, token, None, None, True, True, cache)[0] for token in tokens]


RUNS: dict[str, tuple[type[Layer], ...]] = {  # what runs in one process
    "torch": (Torch, TorchOwn, TorchFunction, TorchD2L),
    "jax": (Jax, Nnx, JaxFunction, Linen, NnxOwn),
    **dict.fromkeys(("keras-torch", "keras-jax", "keras-tensorflow"), (Keras, KerasOwn)),
    "tensorflow": (Tensorflow,),
    "mxnet": (Mxnet,),
}


def names_of(run: str) -> list[str]:
    """The names of the layers of one process, without its framework."""
    return [kind.name.format(run.removeprefix("keras-")) for kind in RUNS[run]]


def layers_of(run: str) -> list[Layer]:
    """Those of one process, which sets here what the frameworks read when they are imported."""
    if run.startswith("keras-"):
        os.environ["KERAS_BACKEND"] = run.removeprefix("keras-")
    return [kind() for kind in RUNS[run]]
