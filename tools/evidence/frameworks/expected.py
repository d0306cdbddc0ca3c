"""What each layer's deviations must be: rounding, or one of the differences that are known and that chapter 34 tells.

`make frameworks` holds what it measures against these lists, and `tests/library/test_frameworks.py` what is stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tools.evidence.frameworks.measure import NAN, PROPERTIES, UNABLE

EXACT, SINGLE = 1e-10, 1e-5
"""How far float64 may be off, and float32."""
EMPTY, SILENT = "no keys", "no keys, without weights"
KERAS = [f"keras.layers.MultiHeadAttention on {backend}" for backend in ("torch", "jax", "tensorflow")]
FUNCTION, LINEN = "jax.nn.dot_product_attention", "flax.linen.MultiHeadDotProductAttention"
NNX, D2L = "flax.nnx.MultiHeadAttention", "D2L's layer in PyTorch"
TORCH, TORCH_FUNCTION = "torch.nn.MultiheadAttention", "torch scaled_dot_product_attention"
FLOAT32_INSIDE = {  # float64 goes in and comes out, and float32 is somewhere between
    **{(FUNCTION, name): 3e-6 for name in PROPERTIES},
    **{(NNX, name): 3e-6 for name in PROPERTIES},
    **{(KERAS[2], name): 3e-6 for name in PROPERTIES},
    **{(name, "without weights"): 3e-6 for name in KERAS},
}
EVEN = "spreads its weight evenly"
DIFFERENT = {  # what a query without keys gets elsewhere
    (TORCH, EMPTY): NAN,
    **{(name, place): EVEN for name in (D2L, FUNCTION, LINEN, NNX) for place in (EMPTY, SILENT)},
    **{(name, SILENT): EVEN for name in KERAS},
}
CANNOT = {
    *((name, "weights") for name in (TORCH_FUNCTION, FUNCTION)),
    *((D2L, name) for name in ("mask", "all at once")),
    *((name, "cache") for name in (TORCH, TORCH_FUNCTION, LINEN, D2L, FUNCTION, *KERAS)),
    *((name, "compiled") for name in (TORCH, TORCH_FUNCTION, D2L, "Keras on torch", KERAS[0])),
}


def is_as_expected(name: str, dtype: str, where: str, deviation: float | str) -> bool:
    """Whether the deviation of the layer `name` in the property `where` is what the lists above say."""
    expected = DIFFERENT.get((name, where))
    if (name, where) in CANNOT or expected == NAN:
        return deviation == (UNABLE if (name, where) in CANNOT else NAN)
    if isinstance(deviation, str):
        return False
    if expected == EVEN:
        return 0.1 < deviation < 10
    return deviation <= (SINGLE if dtype == "float32" else FLOAT32_INSIDE.get((name, where), EXACT))


def unexpected(found: Mapping[str, Mapping[str, Mapping[str, float | str]]]) -> Iterator[str]:
    """A line for each deviation that is not what it must be."""
    for name, dtypes in found.items():
        for dtype, properties in dtypes.items():
            for where, deviation in properties.items():
                if not is_as_expected(name, dtype, where, deviation):
                    yield f"{name}, {dtype}, {where}: {deviation}"
