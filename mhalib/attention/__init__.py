"""Multi-head attention: pure functions, masks, positions, caches, and a layer with seams that variants replace."""

from .cache import Cache, KeyValueCache
from .functional import attend, masked_softmax, merge_heads, split_heads, transpose_output, transpose_qkv
from .layer import HeadSlices, MultiHeadAttention
from .masks import Band, causal_mask, padding_mask
from .positions import (
    POSITIONS,
    LearnedPositions,
    Positions,
    RotaryPositions,
    SinusoidalPositions,
    make_positions,
    rotate,
    sinusoidal_positions,
)
from .registry import KINDS, make_attention, register

__all__ = [
    "KINDS",
    "POSITIONS",
    "Band",
    "Cache",
    "HeadSlices",
    "KeyValueCache",
    "LearnedPositions",
    "MultiHeadAttention",
    "Positions",
    "RotaryPositions",
    "SinusoidalPositions",
    "attend",
    "causal_mask",
    "make_attention",
    "make_positions",
    "masked_softmax",
    "merge_heads",
    "padding_mask",
    "register",
    "rotate",
    "sinusoidal_positions",
    "split_heads",
    "transpose_output",
    "transpose_qkv",
]
