"""Whether the weights can hold what a config.json claims: asked of their headers, before a model is made of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .config import LAYERS
from .files import Checkpoint
from .gguf_model import GGUFModel

WIDTHS = {  # each is the length of an axis of some weights
    *("vocab_size", "decoder_vocab_size", "hidden_size", "d_model", "dim", "n_embd"),
    *("intermediate_size", "hidden_dim", "n_inner", "ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim", "d_ff"),
}


def require_held(config: Mapping[str, Any], tensors: Checkpoint | GGUFModel) -> None:
    """Raise ValueError if the config.json has more layers than the files of weights have tensors, or a width larger
    than the number of all weights. Whether each shape is right is asked later, of each tensor."""
    numbers = tensors.count_numbers()
    for key, value in whole_numbers(config):
        for keys, most, what in ((LAYERS, len(tensors), "tensors"), (WIDTHS, numbers, "numbers")):
            if key in keys and value > most:
                raise ValueError(f"{key}={value} in config.json, but the weights hold {most} {what} in all")


def whole_numbers(config: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """The entries that are integers, also of the parts for text and pictures, by their names."""
    for key, value in config.items():
        if isinstance(value, Mapping) and key.endswith("_config"):
            yield from whole_numbers(value)
        elif isinstance(value, int) and not isinstance(value, bool):
            yield key, value
