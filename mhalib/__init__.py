"""The package of the book "Attention, Head by Head": multi-head attention, its references and its pictures.

Everything here is loaded when it is first used: `import mhalib` takes little more than `import torch`.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

import mhalib._renamed as _renamed

__version__ = "0.4.0"

if TYPE_CHECKING:
    from . import (
        attention,
        bench,
        costs,
        data,
        decoding,
        drawings,
        evaluation,
        measures,
        models,
        moments,
        parallel,
        plots,
        pretrained,
        processes,
        reference,
        results,
        roofline,
        saved,
        serving,
        shapes,
        style,
        tables,
        train,
        variants,
        widgets,
    )
    from .attention import (
        Band,
        KeyValueCache,
        MultiHeadAttention,
        attend,
        causal_mask,
        masked_softmax,
        merge_heads,
        padding_mask,
        split_heads,
        transpose_output,
        transpose_qkv,
    )
    from .devices import best_device
    from .drawings import layer_drawing
    from .measures import Head, frozen, gated, heads_of, patched, rows, switched_off, without_future, without_positions
    from .overlays import attention_on_picture
    from .plots import head_heatmap, head_heatmaps, head_wall, number_grid, score_grid
    from .shapes import check_shape, ledger
    from .tables import number_table

_HOMES = {  # where a name comes from; those that are not here are modules
    **dict.fromkeys(("Band", "KeyValueCache", "MultiHeadAttention", "attend", "causal_mask"), "attention"),
    **dict.fromkeys(("masked_softmax", "merge_heads", "padding_mask", "split_heads"), "attention"),
    **dict.fromkeys(("transpose_output", "transpose_qkv"), "attention"),
    **dict.fromkeys(("Head", "frozen", "gated", "heads_of", "patched", "rows"), "measures"),
    **dict.fromkeys(("switched_off", "without_future", "without_positions"), "measures"),
    **dict.fromkeys(("head_heatmap", "head_heatmaps", "head_wall", "number_grid", "score_grid"), "plots"),
    **dict.fromkeys(("check_shape", "ledger"), "shapes"),
    "attention_on_picture": "overlays",
    "best_device": "devices",
    "layer_drawing": "drawings",
    "number_table": "tables",
}

__all__ = [
    "Band",
    "Head",
    "KeyValueCache",
    "MultiHeadAttention",
    "attend",
    "attention",
    "attention_on_picture",
    "bench",
    "best_device",
    "causal_mask",
    "check_shape",
    "costs",
    "data",
    "decoding",
    "drawings",
    "evaluation",
    "frozen",
    "gated",
    "head_heatmap",
    "head_heatmaps",
    "head_wall",
    "heads_of",
    "layer_drawing",
    "ledger",
    "masked_softmax",
    "measures",
    "merge_heads",
    "models",
    "moments",
    "number_grid",
    "number_table",
    "padding_mask",
    "parallel",
    "patched",
    "plots",
    "pretrained",
    "processes",
    "reference",
    "results",
    "roofline",
    "rows",
    "saved",
    "score_grid",
    "serving",
    "shapes",
    "split_heads",
    "style",
    "switched_off",
    "tables",
    "train",
    "transpose_output",
    "transpose_qkv",
    "variants",
    "widgets",
    "without_future",
    "without_positions",
]

sys.meta_path.append(_renamed.Finder)


def __getattr__(name: str) -> object:
    if name not in __all__ and name != "classroom":  # which has moved, and says so
        moved = f": it is {_renamed.MODULES[name]} now" if name in _renamed.MODULES else ""
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{moved}")
    if name not in _HOMES:
        return importlib.import_module(f"{__name__}.{name}")
    found = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
