"""The package of the book "Attention, Head by Head": multi-head attention, its references and its pictures."""

from . import (
    bench,
    blocks,
    data,
    decoding,
    measures,
    models,
    positions,
    pretrained,
    reference,
    results,
    saved,
    scores,
    train,
)
from .attention import (
    MultiHeadAttention,
    attend,
    masked_softmax,
    merge_heads,
    split_heads,
    transpose_output,
    transpose_qkv,
)
from .cache import KeyValueCache
from .devices import best_device
from .gates import Head, gated, heads_of, switched_off
from .masks import causal_mask, padding_mask
from .overlays import attention_on_picture
from .plots import head_heatmap, head_heatmaps, head_wall, number_grid, score_grid
from .shapes import check_shape, ledger

__version__ = "0.3.0"

__all__ = [
    "Head",
    "KeyValueCache",
    "MultiHeadAttention",
    "attend",
    "attention_on_picture",
    "bench",
    "best_device",
    "blocks",
    "causal_mask",
    "check_shape",
    "data",
    "decoding",
    "gated",
    "head_heatmap",
    "head_heatmaps",
    "head_wall",
    "heads_of",
    "ledger",
    "masked_softmax",
    "measures",
    "merge_heads",
    "models",
    "number_grid",
    "padding_mask",
    "positions",
    "pretrained",
    "reference",
    "results",
    "saved",
    "score_grid",
    "scores",
    "split_heads",
    "switched_off",
    "train",
    "transpose_output",
    "transpose_qkv",
]
