"""What a pretrained model takes of a machine's memory, counted before a single weight is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from .._validate import require_count, require_flag
from ..costs import parts_of
from ..models import CLIP, GPT, Model, Transformer, ViT
from ..models._base import CROSS, DECODER, ENCODER
from .convert import require_known, without_weights
from .files import Place
from .header_check import whole_numbers
from .wheels import here

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


@dataclass(frozen=True)
class Memory:
    """What a model takes. Bytes, but for `parameters`.

    parameters: how many numbers were learned; a readout that is tied to the tokens' vectors counts once.
    weights: of the parameters.
    cache: of the keys and values of all tokens, or of those in a window, in all layers; in DeepSeek-V3, of the latents
        and turned keys that stand for them. An encoder keeps none, nor does what reads pictures; an encoder-decoder
        keeps those of the written tokens, and those that cross-attention makes of the text.
    maps: of all attention weights, which reading a text returns: layers * h * N * N of them; an encoder-decoder counts
        its encoder's layers once, and its decoder's twice.
    """

    parameters: int
    weights: int
    cache: int
    maps: int

    @property
    def total(self) -> int:
        """Weights, cache and maps."""
        return self.weights + self.cache + self.maps


def memory(
    source: str | Path,
    num_tokens: int = 0,
    *,
    batch_size: int = 1,
    dtype: torch.dtype = torch.float32,
    revision: str | None = None,
    offline: bool = False,
) -> Memory:
    """What a model takes in our layers. Only its config.json is read, and for a name on the hub fetched.

    While `load` reads, the files are mapped into memory, too: pages that the system takes back where it needs them.

    Args:
        source, revision, offline: as in `load`.
        num_tokens: N, how long a text is; and of an encoder-decoder, how long what it writes is. A picture always has
            as many tokens as its patches and class tokens.
        batch_size: how many texts or pictures there are, of CLIP of each.
        dtype: of the model.

    Raises:
        TypeError, ValueError: an argument is not of this kind, the file is missing or damaged, or the architecture is
            not supported.
        ImportError: a package is missing.
        OSError: the hub did not give the file.
    """
    require_count("num_tokens", num_tokens, minimum=0)
    require_count("batch_size", batch_size)
    require_dtype("dtype", dtype)
    require_flag("offline", offline)
    model = on_meta(Place(here(source, offline), revision, offline=offline).config())
    lengths, by_kind = _lengths(model, num_tokens), model.attention_layers()
    maps = sum(layer.num_heads * lengths[kind] ** 2 for kind, of_kind in by_kind.items() for layer in of_kind)
    keeps = isinstance(model, (GPT, Transformer))
    keeping = [layer for kind in (DECODER, CROSS) for layer in by_kind.get(kind, [])] if keeps else []
    windows = model.windows if isinstance(model, GPT) else [None] * len(keeping)
    kept = sum(
        parts_of(layer).cached * min(num_tokens, num_tokens if window is None else window - 1)
        for layer, window in zip(keeping, windows, strict=True)
    )
    return Memory(
        model.num_weights,
        model.num_weights * dtype.itemsize,
        batch_size * kept * dtype.itemsize,
        batch_size * maps * dtype.itemsize,
    )


def _lengths(model: Model, num_tokens: int) -> dict[str, int]:
    """How many tokens the layers of a kind read: of a text `num_tokens`, of a picture always as many."""
    lengths = dict.fromkeys(model.attention_layers(), num_tokens)
    if isinstance(model, (ViT, CLIP)):
        lengths[ENCODER] = (model.pictures if isinstance(model, CLIP) else model).num_tokens
    return lengths


def on_meta(config: Mapping[str, Any]) -> Model:
    """Our model of a config.json, without memory.

    Raises:
        ValueError: an entry is missing or wrong, or the sizes make tensors that are too large to be counted.
    """
    require_known(config)
    try:
        return without_weights(config)
    except RuntimeError as error:
        sizes = ", ".join(f"{key}={value}" for key, value in whole_numbers(config))
        raise ValueError(f"the sizes in config.json make tensors too large to be counted: {sizes}; {error}") from error


def require_dtype(name: str, dtype: object) -> None:
    """Raise unless `dtype` is a type of numbers (TypeError) that our layers compute with (ValueError)."""
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"{name} must be a torch.dtype, got {type(dtype).__name__}: {dtype!r:.80}")
    if dtype not in DTYPES:
        raise ValueError(f"{name}={dtype} must be one of {[str(one) for one in DTYPES]}")


def require_room(model: Model, dtype: torch.dtype, device: torch.device | str, room: int | None) -> None:
    """Raise ValueError if the weights take more bytes than `room`, or than are free on the device, where it can be
    known."""
    free = free_bytes(torch.device(device)) if room is None else room
    needed = model.num_weights * dtype.itemsize
    if free is not None and needed > free:
        said = f"memory_limit={room}" if room is not None else f"{free / 1e9:.1f} GB are free on {device}"
        half = "" if dtype.itemsize <= 2 else f"; with dtype=torch.bfloat16 it takes {model.num_weights * 2 / 1e9:.1f}"
        raise ValueError(
            f"the model has {model.num_weights:,} weights, which take {needed / 1e9:.1f} GB as {dtype}, "
            f"but {said}{half}"
        )


def free_bytes(device: torch.device) -> int | None:
    """How much memory is free; `None` where nobody says."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    told = Path("/proc/meminfo")
    if device.type != "cpu" or not told.is_file():
        return None
    lines = [line.split() for line in told.read_text(encoding="ascii").splitlines()]
    return next((int(line[1]) * 1024 for line in lines if line and line[0] == "MemAvailable:"), None)
