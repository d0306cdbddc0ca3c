"""The package of the book "Attention, Head by Head": multi-head attention, its references and its pictures."""

from . import bench, data, reference, train
from .attention import (
    MultiHeadAttention,
    attend,
    masked_softmax,
    merge_heads,
    split_heads,
    transpose_output,
    transpose_qkv,
)
from .devices import best_device
from .masks import causal_mask, padding_mask
from .plots import head_heatmap, head_heatmaps, head_wall, number_grid
from .shapes import check_shape, ledger

__version__ = "0.2.0"

__all__ = [
    "MultiHeadAttention",
    "attend",
    "bench",
    "best_device",
    "causal_mask",
    "check_shape",
    "data",
    "head_heatmap",
    "head_heatmaps",
    "head_wall",
    "ledger",
    "masked_softmax",
    "merge_heads",
    "number_grid",
    "padding_mask",
    "reference",
    "split_heads",
    "train",
    "transpose_output",
    "transpose_qkv",
]
