"""GGUF, the file format of llama.cpp: metadata, and tensors in blocks of few bits, read with NumPy alone.

A file is: the letters GGUF; version, number of tensors, number of metadata; the metadata, each a key, a type and a
value; a table of tensors, each a name, a shape with the fastest axis first, a type and an offset; then, from the next
multiple of `general.alignment`, the numbers. All is little-endian. The specification is `docs/gguf.md` of
https://github.com/ggml-org/ggml; the blocks of each type are in its `src/ggml-common.h`.

A file comes from a stranger: no size that it claims is believed before the file was found to be long enough for it.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

MAGIC = b"GGUF"
VERSIONS = (2, 3)
"""Version 1 counted with 32 bits, and nobody writes it any more."""
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT, _LIST = 8, 9
_MOST_AXES = 4


class Blocks(NamedTuple):
    """How a type stores its numbers: so many of them in so many bytes."""

    name: str
    numbers: int
    num_bytes: int


TYPES = {
    0: Blocks("F32", 1, 4),
    1: Blocks("F16", 1, 2),
    2: Blocks("Q4_0", 32, 18),
    3: Blocks("Q4_1", 32, 20),
    8: Blocks("Q8_0", 32, 34),
}
"""The types that are read, by their number in a file."""
_NOT_READ = {
    6: "Q5_0",
    7: "Q5_1",
    9: "Q8_1",
    10: "Q2_K",
    11: "Q3_K",
    12: "Q4_K",
    13: "Q5_K",
    14: "Q6_K",
    15: "Q8_K",
    16: "IQ2_XXS",
    17: "IQ2_XS",
    18: "IQ3_XXS",
    19: "IQ1_S",
    20: "IQ4_NL",
    21: "IQ3_S",
    22: "IQ2_S",
    23: "IQ4_XS",
    24: "I8",
    25: "I16",
    26: "I32",
    27: "I64",
    28: "F64",
    29: "IQ1_M",
    30: "BF16",
    34: "TQ1_0",
    35: "TQ2_0",
}


class Entry(NamedTuple):
    """Where a tensor is: its shape with the slowest axis first, as torch has it, its type, and its first byte."""

    shape: tuple[int, ...]
    blocks: Blocks
    start: int

    @property
    def num_bytes(self) -> int:
        """How many bytes it takes."""
        return math.prod(self.shape) // self.blocks.numbers * self.blocks.num_bytes


class GGUF:
    """A file, whose metadata and table are read and checked; tensors are read when they are asked for.

    Args:
        path: of the file.

    Attributes:
        metadata: key -> a number, a string, a bool, or a tuple of them.
        entries: a tensor's name -> where it is.

    Raises:
        ValueError: the file is damaged, of another version, or has tensors of a type that is not read, which is named.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            with self.path.open("rb") as file:
                self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:  # ValueError: it is empty
            raise ValueError(f"path={str(path)!r} cannot be read as a GGUF file: {error}") from error
        try:
            metadata, entries = _header(_Cursor(self._bytes))
        except _DamagedError as error:
            raise ValueError(f"path={str(path)!r} is no GGUF file that can be read: {error}") from error
        self.metadata: Mapping[str, Any] = MappingProxyType(metadata)
        self.entries: Mapping[str, Entry] = MappingProxyType(entries)

    def read(self, name: str) -> NDArray[np.float32]:
        """The numbers of a tensor, as float32 in the shape of its entry.

        Raises:
            KeyError: there is no such tensor.
        """
        entry = self.entries[name]
        raw = np.frombuffer(self._bytes, np.uint8, entry.num_bytes, entry.start)
        return _DECODERS[entry.blocks.name](raw.reshape(-1, entry.blocks.num_bytes)).reshape(entry.shape)


class _DamagedError(Exception):
    """What is wrong with a file; `GGUF` says which."""


class _Cursor:
    """Reads a file from its beginning, and not beyond its end."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.at = data, 0

    def require(self, num_bytes: int, what: str) -> None:
        left = len(self.data) - self.at
        if num_bytes > left:
            raise _DamagedError(
                f"{what} would take {num_bytes} bytes at byte {self.at}, and the file ends after {left}"
            )

    def take(self, code: str, what: str) -> Any:
        self.require(struct.calcsize("<" + code), what)
        (value,) = struct.unpack_from("<" + code, self.data, self.at)
        self.at += struct.calcsize("<" + code)
        return value

    def text(self, what: str) -> str:
        size = self.take("Q", what)
        self.require(size, what)
        self.at += size
        try:
            return self.data[self.at - size : self.at].decode("utf-8")
        except UnicodeDecodeError as error:
            raise _DamagedError(f"{what} is not UTF-8: {error}") from error

    def value(self, kind: int, what: str) -> Any:
        if kind == _TEXT:
            return self.text(what)
        if kind == _LIST:
            inner, count = self.take("I", what), self.take("Q", what)
            if inner != _TEXT and inner not in _NUMBERS:
                raise _DamagedError(f"{what} is a list of values of the unknown type {inner}")
            self.require(count * (8 if inner == _TEXT else struct.calcsize("<" + _NUMBERS[inner])), what)
            return tuple(self.value(inner, what) for _ in range(count))
        if kind not in _NUMBERS:
            raise _DamagedError(f"{what} has the unknown type {kind}")
        return self.take(_NUMBERS[kind], what)


_LEAST_METADATUM, _LEAST_TENSOR = 8 + 4 + 1, 8 + 4 + 4 + 8  # bytes: a length, a type and a value; of a tensor no axis


def _header(cursor: _Cursor) -> tuple[dict[str, Any], dict[str, Entry]]:
    """Metadata and table of tensors, each checked before it is believed."""
    cursor.require(len(MAGIC), "the letters GGUF")
    if cursor.data[: len(MAGIC)] != MAGIC:
        raise _DamagedError(f"it begins with {cursor.data[: len(MAGIC)]!r}, not {MAGIC!r}")
    cursor.at = len(MAGIC)
    version, num_tensors, num_metadata = (cursor.take(code, "the header") for code in "IQQ")
    if version not in VERSIONS:
        raise _DamagedError(f"its version is {version}, and {VERSIONS} are read")
    cursor.require(num_tensors * _LEAST_TENSOR + num_metadata * _LEAST_METADATUM, "the table that the header announces")
    metadata: dict[str, Any] = {}
    for _ in range(num_metadata):
        key = cursor.text("a key")
        if key in metadata:
            raise _DamagedError(f"the key {key!r:.80} comes twice")
        metadata[key] = cursor.value(cursor.take("I", f"the type of {key!r:.80}"), f"the value of {key!r:.80}")
    told = [_told(cursor) for _ in range(num_tensors)]
    alignment = metadata.get("general.alignment", 32)
    if isinstance(alignment, bool) or not isinstance(alignment, int) or not 8 <= alignment <= 2**20 or alignment % 8:
        raise _DamagedError(f"general.alignment={alignment!r:.80} must be a multiple of 8 up to {2**20}")
    start = -(-cursor.at // alignment) * alignment
    entries: dict[str, Entry] = {}
    for name, shape, blocks, offset in told:
        if name in entries:
            raise _DamagedError(f"the tensor {name!r:.80} comes twice")
        entry = Entry(shape, blocks, start + offset)
        if entry.start + entry.num_bytes > len(cursor.data):
            raise _DamagedError(f"the tensor {name!r:.80} of shape {shape} reaches beyond the end of the file")
        entries[name] = entry
    return metadata, entries


def _told(cursor: _Cursor) -> tuple[str, tuple[int, ...], Blocks, int]:
    """A line of the table of tensors."""
    name = cursor.text("a tensor's name")
    what = f"the tensor {name!r:.80}"
    num_axes = cursor.take("I", what)
    if not 1 <= num_axes <= _MOST_AXES:
        raise _DamagedError(f"{what} has {num_axes} axes, and 1 to {_MOST_AXES} are read")
    shape = tuple(cursor.take("Q", what) for _ in range(num_axes))[::-1]
    kind, offset = cursor.take("I", what), cursor.take("Q", what)
    if kind not in TYPES:
        known = ", ".join(blocks.name for blocks in TYPES.values())
        raise _DamagedError(f"{what} is stored as {_NOT_READ.get(kind, f'type {kind}')}, and {known} are read")
    blocks = TYPES[kind]
    if not all(shape) or shape[-1] % blocks.numbers:
        raise _DamagedError(f"{what} of shape {shape} has rows that are no blocks of {blocks.numbers} numbers")
    return name, shape, blocks, offset


def _half(blocks: NDArray[np.uint8], at: int) -> NDArray[np.float32]:
    """The float16 at byte `at` of each block, (blocks, 1)."""
    return blocks[:, at : at + 2].copy().view("<f2").astype(np.float32)


def _nibbles(blocks: NDArray[np.uint8]) -> NDArray[np.float32]:
    """4 bits each, (blocks, 32): the low ones of all 16 bytes are numbers 0 to 15, the high ones 16 to 31."""
    return np.concatenate([blocks & 15, blocks >> 4], axis=1).astype(np.float32)


def _q8_0(blocks: NDArray[np.uint8]) -> NDArray[np.float32]:
    """d, then 32 signed bytes q: d q."""
    return _half(blocks, 0) * blocks[:, 2:].view(np.int8).astype(np.float32)


def _q4_0(blocks: NDArray[np.uint8]) -> NDArray[np.float32]:
    """d, then 32 nibbles q: d (q − 8)."""
    return _half(blocks, 0) * (_nibbles(blocks[:, 2:]) - 8)


def _q4_1(blocks: NDArray[np.uint8]) -> NDArray[np.float32]:
    """d and m, then 32 nibbles q: d q + m."""
    return _half(blocks, 0) * _nibbles(blocks[:, 4:]) + _half(blocks, 2)


_DECODERS = {
    "F32": lambda raw: raw.copy().view("<f4"),
    "F16": lambda raw: raw.copy().view("<f2").astype(np.float32),
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q8_0": _q8_0,
}
