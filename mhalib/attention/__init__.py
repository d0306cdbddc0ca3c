"""Multi-head attention: pure functions, masks, positions, caches, and a layer with seams that variants replace."""

from .cache import Cache, KeyValueCache, QuantisedCache, StateCache
from .functional import attend, masked_softmax, merge_heads, split_heads, transpose_output, transpose_qkv
from .heads import HeadSlices
from .layer import MultiHeadAttention
from .masks import Band, SymbolicMask, causal_mask, padding_mask
from .patterns import AllOf, AnyOf, GlobalTokens, Strided, num_pairs
from .positions import (
    POSITIONS,
    ROTARY,
    LearnedPositions,
    Positions,
    RotaryPositions,
    SinusoidalPositions,
    make_positions,
    rotate,
    sinusoidal_positions,
)
from .registry import KINDS, kind_of, make_attention, register
from .window_cache import WindowCache

__all__ = [
    "KINDS",
    "POSITIONS",
    "ROTARY",
    "AllOf",
    "AnyOf",
    "Band",
    "Cache",
    "GlobalTokens",
    "HeadSlices",
    "KeyValueCache",
    "LearnedPositions",
    "MultiHeadAttention",
    "Positions",
    "QuantisedCache",
    "RotaryPositions",
    "SinusoidalPositions",
    "StateCache",
    "Strided",
    "SymbolicMask",
    "WindowCache",
    "attend",
    "causal_mask",
    "kind_of",
    "make_attention",
    "make_positions",
    "masked_softmax",
    "merge_heads",
    "num_pairs",
    "padding_mask",
    "register",
    "rotate",
    "sinusoidal_positions",
    "split_heads",
    "transpose_output",
    "transpose_qkv",
]
