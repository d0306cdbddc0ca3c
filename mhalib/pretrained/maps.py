"""Attention maps of a real encoder that come with the package, so that a page needs neither its weights nor a network.

`python -m tools.evidence.pretrained_maps` makes them. A weight is stored as a whole number of 1/65535, rounded so that
each row still sums to 1: it differs from the weight that the model gave by less than `ERROR`. The file leaves out the
last weight of each row, which follows from the others, and keeps the numbers' high bytes apart from their low ones:
high bytes of neighbours are alike, and this is a sixth smaller.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .._validate import as_list, as_path, require_kind, require_text
from .._write import write_whole

FOLDER = Path(__file__).parent
UNITS = 65535
ERROR = 1 / UNITS
"""How far a stored weight may be from what the model gave."""


@dataclass(frozen=True, eq=False)
class Reading:
    """What a model made of one text, or of one picture.

    text: as it was given; "" of a picture.
    tokens: N names, the special ones included; of a picture, the patches' rows and columns.
    ids: N numbers, the tokens' places in the vocabulary. BERT's is in the order of frequency, nearly. Of a picture, the
        tokens' places in their row.
    weights: (layers, h, N, N); `weights[2, 5]` is head 5 of layer 2, its rows are queries.
    output: (N, D), a vector for each token, or a decoder's logits, or what the model makes of a picture, see
        `Pretrained`; `None` where only the maps are stored.
    pieces: what each token covers of the text, see `mhalib.pretrained.pieces`; of stored maps and of pictures, the
        tokens.
    """

    text: str
    tokens: tuple[str, ...]
    ids: tuple[int, ...]
    weights: Tensor
    output: Tensor | None = None
    pieces: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class PairReading:
    """What an encoder-decoder made of a text and of what is written for it.

    source: the encoder's, N tokens.
    target: the decoder's, M tokens, of which the first is the one that begins what is written; its `output` is logits
        for the token after each, (M, vocab_size).
    cross: (layers, h, M, N); rows are the target's tokens, columns the source's.
    """

    source: Reading
    target: Reading
    cross: Tensor


@dataclass(frozen=True)
class About:
    """What made the stored maps.

    model, revision: the encoder on the Hugging Face hub, and its commit.
    sha256: of its model.safetensors.
    command: makes the maps anew.
    """

    model: str
    revision: str
    sha256: str
    command: str


def load_maps() -> list[Reading]:
    """The maps of all-MiniLM-L6-v2, 6 layers of 12 heads, for about twenty sentences of ours.

    Raises:
        ValueError: a file of the package is missing or damaged.
    """
    return read_maps(FOLDER / "minilm_maps.json")


def about_maps() -> About:
    """Which weights and which command made the maps of `load_maps`; errors as there."""
    told = _read_json(FOLDER / "minilm_maps.json")
    return About(**{name: str(told[name]) for name in ("model", "revision", "sha256", "command")})


def stacked(readings: Sequence[Reading]) -> tuple[Tensor, Tensor]:
    """Texts of different lengths as one batch, for `mhalib.measures`.

    Returns:
        weights (layers, B, h, N, N), 0 behind a text's end, and the lengths (B,), from which
        `mhalib.measures.real_cells(lengths, N)` makes the mask.

    Raises:
        ValueError: there are none, or they are of encoders of different sizes.
    """
    readings = _as_readings(readings)
    if len({reading.weights.shape[:2] for reading in readings}) != 1:
        shapes = [tuple(reading.weights.shape) for reading in readings]
        raise ValueError(f"readings must be of one encoder, got weights of shapes {shapes}")
    longest = max(len(reading.tokens) for reading in readings)
    missing = [longest - len(reading.tokens) for reading in readings]
    padded = [
        torch.nn.functional.pad(reading.weights, (0, lacks, 0, lacks))
        for reading, lacks in zip(readings, missing, strict=True)
    ]
    return torch.stack(padded, 1), torch.tensor([longest - lacks for lacks in missing])


def marked(readings: Sequence[Reading], tokens: Collection[str]) -> Tensor:
    """Where one of `tokens` stands: boolean (B, N), for `mhalib.measures`, in the places of `stacked`.

    Raises:
        TypeError: `tokens` is one string.
    """
    if isinstance(tokens, str):
        raise TypeError(f"tokens must be several strings, got one: {tokens!r}")
    readings, tokens = _as_readings(readings), as_list("tokens", tokens)
    for token in tokens:
        require_text("each token", token)
    longest = max((len(reading.tokens) for reading in readings), default=0)
    return torch.tensor(
        [[i < len(one.tokens) and one.tokens[i] in tokens for i in range(longest)] for one in readings]
    ).reshape(len(readings), longest)


def _as_readings(readings: object) -> list[Reading]:
    found = as_list("readings", readings)
    for reading in found:
        require_kind("each reading", reading, Reading)
    return found


def write_maps(path: str | Path, readings: Sequence[Reading], about: About) -> None:
    """Write the tokens to `path`, a .json file, and the weights beside it, to .npz.

    Raises:
        ValueError: the rows of some weights do not sum to 1, or a token is empty or holds a space.
    """
    path = as_path("path", path)
    if path.is_dir() or not path.parent.is_dir():
        raise ValueError(f"path={str(path)!r} is a folder, or in one that does not exist")
    readings = _as_readings(readings)
    require_kind("about", about, About)
    unfit = [token for reading in readings for token in reading.tokens if not token or " " in token]
    if unfit:
        raise ValueError(f"readings hold the token {unfit[0]!r}, but a token must not be empty or hold a space")
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:  # what np.savez writes, packed a twentieth smaller
        for name, array in _as_bytes([pack(reading.weights) for reading in readings]).items():
            entry = zipfile.ZipInfo(f"{name}.npy")  # of no date, so that the same maps make the same bytes
            entry.compress_type = zipfile.ZIP_LZMA
            with archive.open(entry, "w") as file:
                np.lib.format.write_array(file, np.asanyarray(array), allow_pickle=False)
    write_whole(path.with_suffix(".npz"), content.getvalue())
    texts = [{"text": one.text, "tokens": " ".join(one.tokens), "ids": " ".join(map(str, one.ids))} for one in readings]
    told = {
        "model": about.model,
        "revision": about.revision,
        "sha256": about.sha256,
        "command": about.command,
        "maps_sha256": hashlib.sha256(content.getvalue()).hexdigest(),
        "texts": texts,
    }
    write_whole(path, json.dumps(told, indent=1, ensure_ascii=False) + "\n")


def read_maps(path: str | Path) -> list[Reading]:
    """What `write_maps` wrote.

    Raises:
        ValueError: a file is missing or damaged.
    """
    path = as_path("path", path)
    told, maps = _read_json(path), path.with_suffix(".npz")
    if not maps.is_file():
        raise ValueError(f"path={str(maps)!r} is not a file")
    content = maps.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != told["maps_sha256"]:
        raise ValueError(f"the attention maps are damaged: sha256 is {found}, not {told['maps_sha256']}")
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return [_reading(*both) for both in zip(told["texts"], _from_bytes(arrays), strict=True)]
    except (KeyError, ValueError, zipfile.BadZipFile) as error:
        raise ValueError(f"path={str(path)!r} does not fit its maps: {error}") from error


def _reading(text: dict[str, str], units: NDArray[np.uint16]) -> Reading:
    tokens, ids = tuple(text["tokens"].split(" ")), tuple(int(number) for number in text["ids"].split(" "))
    if units.ndim != 4 or units.shape[2:] != (len(tokens), len(ids)):
        raise ValueError(f"{len(tokens)} tokens and {len(ids)} ids, but weights of shape {units.shape}")
    return Reading(text["text"], tokens, ids, unpack(units), pieces=tokens)


def pack(weights: Tensor) -> NDArray[np.uint16]:
    """Weights as whole numbers of 1/65535 that sum to 65535 in each row.

    Each is rounded down; the units that a row then lacks go to the weights that lost most.
    """
    exact = weights.detach().cpu().double().numpy() * UNITS
    if not np.allclose(exact.sum(-1), UNITS, rtol=1e-5):
        raise ValueError("the rows of weights must sum to 1")
    exact *= UNITS / exact.sum(-1, keepdims=True)
    units = np.floor(exact)
    lacks = np.rint(UNITS - units.sum(-1, keepdims=True))
    rank = np.argsort(np.argsort(units - exact, axis=-1, kind="stable"), axis=-1, kind="stable")  # 0 lost most
    return (units + (rank < lacks)).astype(np.uint16)


def _as_bytes(tables: list[NDArray[np.uint16]]) -> dict[str, Any]:
    """Tables of `pack`'s numbers, (layers, h, N, N) each, as bytes without the last column, and their shapes."""
    short = [table[..., :-1].swapaxes(-1, -2).ravel() for table in tables]  # weights of one key side by side
    numbers = np.concatenate([np.zeros(0, np.uint16), *short])
    shapes = np.array([table.shape for table in tables], np.int32).reshape(-1, 4)
    return {"high": (numbers >> 8).astype(np.uint8), "low": (numbers & 255).astype(np.uint8), "shapes": shapes}


def _from_bytes(arrays: Any) -> list[NDArray[np.uint16]]:
    """The tables in the arrays of `_as_bytes`, or in those that 0.3.0 wrote, one for each text."""
    if "shapes" not in arrays:
        return [arrays[name] for name in sorted(arrays, key=lambda name: int(name.removeprefix("text_")))]
    numbers = (arrays["high"].astype(np.uint16) << 8) | arrays["low"]
    tables, start = [], 0
    for layers, heads, rows, columns in arrays["shapes"]:
        end = start + layers * heads * rows * (columns - 1)
        short = numbers[start:end].reshape(layers, heads, columns - 1, rows).swapaxes(-1, -2)
        last = UNITS - short.sum(-1, keepdims=True, dtype=np.int64)
        tables.append(np.concatenate([short, last.astype(np.uint16)], axis=-1))
        start = end
    return tables


def unpack(units: NDArray[np.uint16]) -> Tensor:
    """The weights in `pack`'s whole numbers, as float32."""
    return torch.from_numpy((units.astype(np.float64) / UNITS).astype(np.float32))


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ValueError(f"path={str(path)!r} is not a file")
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        missing = {"model", "revision", "sha256", "command", "maps_sha256", "texts"} - told.keys()
    except (json.JSONDecodeError, UnicodeDecodeError, AttributeError) as error:
        raise ValueError(f"path={str(path)!r} is damaged: {error}") from error
    if missing:
        raise ValueError(f"path={str(path)!r} does not tell its {sorted(missing)}")
    return dict(told)
