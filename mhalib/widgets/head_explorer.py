"""What each head attends to: all heads of a layer on one scale, one of them large, and lines from queries to keys."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import traitlets
from numpy.typing import NDArray

from .. import style
from .._arrays import Array, Mask, real_array, require_length, seen_cells
from .._tokens import shown
from .._validate import as_list, require_count, require_flag, require_text
from . import _codes
from ._codes import LEVELS, MIXED, ORDINARY, as_base64, written
from ._head_facts import all_sharing, checked_gates, checked_groups, gate_of, sharing
from ._instrument import Instrument
from ._token_lists import token_lists

MAX_CELLS = 4_000_000
WIDE_TABLE = 32


class HeadExplorer(Instrument):
    """Small multiples of all heads of a layer on one scale from 0 to 1, one head large, and lines to its keys.

    Choose a query and its row is marked in every head; lock several to compare them. What the reader chooses can be
    read and set: `layer`, `head`, `example`, `query`, `locked` (query numbers), `off` (heads left out of the mean),
    `threshold` and `top` (which lines are drawn; `top=0` draws all), `key_start` (first key shown of a long input).
    All count from 0.

    Weights are carried and shown to 3 digits (rounded to thousandths; row sums are taken before that). What is no
    number between 0 and 1 keeps a sign of its own: NaN, inf, -inf, "< 0", "> 1".

    Weights of heads that are mixed, subtracted or composed may be negative or above 1, and their rows need not sum to
    1. They are drawn on a scale that goes from orange, below 0, by white to purple, above 0, as far on either side.

    With `pictures`, patches are keys, and the picture is drawn under the weights of the chosen query, in the place of
    lines.

    Args:
        weights: (h, Q, K), (B, h, Q, K), or a list with one of those per layer. Rows are queries, columns keys.
        queries: Q tokens, or B lists of Q tokens; `None` numbers them.
        keys: K tokens, or B lists of K tokens; `None` takes `queries` where Q = K.
        mask: boolean, broadcasts to the weights of one layer, `True` = may attend.
        pictures: (height, width), or one for each example (B, height, width); 0 is paper, the largest number black.
        patch_size: side of the patches of `pictures`; they are the last keys, row by row.
        layer, head, example: which to show large.
        layers: where `weights` holds no layers but models, moments or the like: a word for one of them, and the name of
            each. `None` numbers layers.
        mixed: whether the scale has two sides; `None` looks for a weight below 0 or above 1. `True` for a layer whose
            `rows_sum_to_one` is `False`; with `False`, such weights are signs.
        groups: the key of each head, h integers, such as a layer's `kv_head_of`; or a list with that or `None` for each
            layer. Heads with the same key are shown as a group.
        gates: what each head's output is multiplied by: (h,), (h, Q) or (B, h, Q), or a list with one of those for each
            layer.

    Warns:
        UserWarning: rows that do not sum to 1 (of mixed weights: to no number), or a weight that the mask should have
            hidden.

    Raises:
        TypeError: weights are no array of real numbers, the mask is not boolean, tokens are one string.
        ValueError: wrong rank, layers of different shapes, wrong number of tokens, a mask that does not fit, a choice
            outside the weights, pictures whose patches are not the last keys, groups, gates or names of layers that do
            not fit, or more than 4,000,000 weights.
    """

    script = "HeadExplorer"

    sizes = traitlets.List(traitlets.Int()).tag(sync=True)  # L, B, h, Q, K
    packed = traitlets.Unicode().tag(sync=True)  # base64 of the weights, 10 bits each, lowest bit first; mixed: int16
    sums = traitlets.Unicode().tag(sync=True)  # base64 of the row sums in thousandths, int16; mixed: int32
    span = traitlets.List(traitlets.Int()).tag(sync=True)  # mixed: end of the scale, extremes of weights and of sums
    seen = traitlets.Unicode().tag(sync=True)  # base64 of the mask of one layer, a bit each; empty: all is seen
    query_tokens = traitlets.List(traitlets.List(traitlets.Unicode())).tag(sync=True)
    key_tokens = traitlets.List(traitlets.List(traitlets.Unicode())).tag(sync=True)
    ramp = traitlets.List(traitlets.Unicode()).tag(sync=True)
    ramps = traitlets.List(traitlets.List(traitlets.Unicode())).tag(sync=True)
    note = traitlets.Unicode().tag(sync=True)
    pictures = traitlets.List(traitlets.Unicode()).tag(sync=True)  # base64 of a byte for each pixel, 255 is black
    picture_size = traitlets.List(traitlets.Int()).tag(sync=True)  # height, width, side of a patch
    groups = traitlets.List(traitlets.List(traitlets.Int())).tag(sync=True)  # the key of each head, of one layer or all
    gates = traitlets.List(traitlets.Int()).tag(sync=True)  # thousandths of layer or all, example, head, query
    gate_sizes = traitlets.List(traitlets.Int()).tag(sync=True)  # how many examples and queries these tell apart
    layer_names = traitlets.List(traitlets.Unicode()).tag(sync=True)  # a word for a layer, then the name of each

    layer = traitlets.Int(0).tag(sync=True)
    head = traitlets.Int(0).tag(sync=True)
    example = traitlets.Int(0).tag(sync=True)
    query = traitlets.Int(0).tag(sync=True)
    key_start = traitlets.Int(0).tag(sync=True)
    locked = traitlets.List(traitlets.Int()).tag(sync=True)
    off = traitlets.List(traitlets.Int()).tag(sync=True)
    threshold = traitlets.Float(0.05).tag(sync=True)
    top = traitlets.Int(3).tag(sync=True)

    axes: ClassVar[dict[str, int]] = {
        "layer": 0,
        "example": 1,
        "head": 2,
        "off": 2,
        "query": 3,
        "locked": 3,
        "key_start": 4,
    }

    def __init__(
        self,
        weights: Array | Sequence[Array],
        queries: Sequence[Any] | None = None,
        keys: Sequence[Any] | None = None,
        *,
        mask: Mask | None = None,
        pictures: Array | None = None,
        patch_size: int | None = None,
        layer: int = 0,
        head: int = 0,
        example: int = 0,
        layers: tuple[str, Sequence[str]] | None = None,
        mixed: bool | None = None,
        groups: Sequence[Any] | None = None,
        gates: Array | Sequence[Any] | None = None,
        **kwargs: Any,
    ) -> None:
        table, layer_shape = _stacked(weights)
        L, B, h, Q, K = table.shape
        for name, number, size in (("layer", layer, L), ("head", head, h), ("example", example, B)):
            require_count(name, number, minimum=0)
            if number >= size:
                raise ValueError(f"{name}={number} is outside the weights, which have {size}, counted from 0")
        query_tokens = token_lists("queries", queries, B, Q)
        key_tokens = query_tokens if keys is None and Q == K else token_lists("keys", keys, B, K)
        self._seen = seen_cells(mask, layer_shape).reshape(B, h, Q, K)
        if mixed is not None:
            require_flag("mixed", mixed)
        self._signs = MIXED if (_codes.is_mixed(table, self._seen) if mixed is None else mixed) else ORDINARY
        self._codes = _codes.coded(table, self._signs)
        with np.errstate(invalid="ignore"):
            self._sums: NDArray[np.float64] = table.sum(axis=-1)
        images, picture_size = _pictures(pictures, patch_size, B, K)
        gate_codes, gate_sizes = checked_gates(gates, L, B, h, Q)
        key_groups = checked_groups(groups, L, h)
        said = _codes.note(table, self._sums, self._seen, self._signs)
        if said:
            warnings.warn(said, stacklevel=2)
        super().__init__(
            sizes=[L, B, h, Q, K],
            packed=_codes.packed(self._codes, self._signs),
            sums=_codes.coded_sums(self._sums, self._signs),
            span=_codes.span(self._codes, self._sums, self._seen) if self._signs is MIXED else [],
            seen="" if self._seen.all() else as_base64(np.packbits(self._seen, bitorder="little")),
            query_tokens=query_tokens,
            key_tokens=key_tokens,
            ramp=style.stops("signed") if self._signs is MIXED else style.stops("ink"),
            ramps=[] if self._signs is MIXED else style.head_stops(),
            note=said,
            pictures=images,
            picture_size=picture_size,
            groups=key_groups,
            gates=gate_codes,
            gate_sizes=gate_sizes,
            layer_names=_names_of_layers(layers, L),
            layer=layer,
            head=head,
            example=example,
            **kwargs,
        )

    @traitlets.validate("layer", "head", "example", "query", "key_start", "locked", "off")
    def _inside(self, proposal: Any) -> Any:
        name, value = proposal["trait"].name, proposal["value"]
        size = self.sizes[self.axes[name]]
        numbers = value if isinstance(value, list) else [value]
        if any(not 0 <= number < size for number in numbers) or len(set(numbers)) < len(numbers):
            raise traitlets.TraitError(f"{name}={value} must lie from 0 to {size - 1}, and no number twice")
        return value

    @traitlets.validate("threshold", "top")
    def _not_negative(self, proposal: Any) -> Any:
        name, value = proposal["trait"].name, proposal["value"]
        if not value >= 0 or (name == "threshold" and value > 1):
            raise traitlets.TraitError(f"{name}={value} must not be negative, and a threshold at most 1")
        return value

    def state(self) -> dict[str, Any]:
        """The traits of its own; nothing is said of pictures, groups, gates, names and mixed weights where there are
        none."""
        some = {"pictures", "picture_size", "groups", "gates", "gate_sizes", "layer_names", "span"}
        return {name: value for name, value in super().state().items() if value or name not in some}

    def table(self) -> tuple[str, Sequence[str], Sequence[Sequence[str]]]:
        """The large head: all its weights, or the five strongest keys of each query where there are many keys."""
        layer, example, head = self.layer, self.example, self.head
        codes, seen = self._codes[layer, example, head], self._seen[example, head]
        queries = self.query_tokens[example % len(self.query_tokens)]
        keys = self.key_tokens[example % len(self.key_tokens)]
        after = [[_sum_text(total)] for total in self._sums[layer, example, head]]
        last = ["sum"]
        if self._gates_differ:
            after = [[*one, self._gate(head, query)] for query, one in enumerate(after)]
            last = ["sum", "gate"]
        name = self.layer_names[layer + 1] if self.layer_names else f"layer {layer}"
        place = f"head {head} of {name}, example {example}, to 3 digits{self._facts()}"
        if len(keys) <= WIDE_TABLE:
            cells = [[self._text(c, s) for c, s in zip(*pair, strict=True)] for pair in zip(codes, seen, strict=True)]
            rows = [[q, *row, *ends] for q, row, ends in zip(queries, cells, after, strict=True)]
            return f"Weights of {place}; rows are queries, columns keys", ["query", *keys, *last], rows
        rows = []
        for query, token in enumerate(queries):
            weight = np.where(seen[query] & (codes[query] <= self._signs.top), np.abs(codes[query]), -1)
            best = [k for k in np.argsort(-weight, kind="stable")[:5] if weight[k] >= 0]
            strongest = ", ".join(f"{keys[k]} {self._text(codes[query, k], True)}" for k in best)
            rows.append([token, strongest, *after[query]])
        return f"The five strongest keys of each query, {place}", ["query", "strongest keys", *last], rows

    def _text(self, code: int, seen: bool) -> str:
        """A weight as it is shown."""
        return self._signs.word(int(code)) if seen else "masked"

    @property
    def _gates_differ(self) -> bool:
        """Whether each query has gates of its own."""
        return bool(self.gates) and self.gate_sizes[1] > 1

    def _gate(self, head: int, query: int) -> str:
        examples, queries = self.gate_sizes
        place = (self.layer * examples + self.example % examples) * self.sizes[2] + head
        return gate_of(self.gates, place * queries + query % queries)

    def _facts(self) -> str:
        """What is said of the head beside its weights."""
        head = self.head
        keys = self.groups[self.layer % len(self.groups)] if self.groups else []
        found = []
        if self._signs is MIXED:
            low, high = map(written, self.span[1:3])
            found.append(f"mixed weights from {low} to {high}, whose rows need not sum to 1")
        if keys and sharing(keys, head):
            found.append(", ".join(all_sharing(keys)))
        if self.gates and not self._gates_differ:
            found.append(f"gates {', '.join(self._gate(one, 0) for one in range(self.sizes[2]))}")
        return "".join(f"; {one}" for one in found)


def _names_of_layers(given: Any, count: int) -> list[str]:
    """A word for a layer and the name of each; nothing where they are numbered."""
    if given is None:
        return []
    if not isinstance(given, (tuple, list)) or len(given) != 2:
        raise TypeError(f"layers must be a word and the names of the layers, got {given!r:.80}")
    require_text("the word of layers", given[0])
    names = as_list("the names of layers", given[1])
    require_length("the names of layers", names, count)
    for name in names:
        require_text("each of the names of layers", name)
    return [shown(one) for one in (given[0], *names)]


def _stacked(weights: Array | Sequence[Array]) -> tuple[NDArray[np.float64], tuple[int, ...]]:
    """All layers as (L, B, h, Q, K), and the shape of one layer as it was given."""
    if isinstance(weights, (list, tuple)):
        if not weights:
            raise ValueError(
                "weights is an empty list: it needs at least one layer "
                '(a model of transformers returns none, unless it has attn_implementation="eager")'
            )
        layers = [real_array(f"weights[{i}]", layer, rank=(3, 4)) for i, layer in enumerate(weights)]
    else:
        layers = [real_array("weights", weights, rank=(3, 4))]
    for i, layer in enumerate(layers):
        if layer.shape != layers[0].shape:
            raise ValueError(f"weights[{i}] has shape {layer.shape}, but weights[0] has {layers[0].shape}")
    if sum(layer.size for layer in layers) > MAX_CELLS:
        raise ValueError(f"weights hold {sum(layer.size for layer in layers):,} numbers, at most {MAX_CELLS:,} fit")
    shape = layers[0].shape
    return np.stack([layer.reshape((1,) * (4 - len(shape)) + shape) for layer in layers]), shape


def _pictures(
    pictures: Array | None, patch_size: int | None, num_examples: int, num_keys: int
) -> tuple[list[str], list[int]]:
    """The pictures as bytes, and their height, width and side of a patch."""
    if pictures is None or patch_size is None:
        if pictures is not patch_size:
            raise ValueError("pictures and patch_size go together: give both, or neither")
        return [], []
    images = np.nan_to_num(real_array("pictures", pictures, rank=(2, 3)))
    images = images.reshape(-1, *images.shape[-2:])
    require_count("patch_size", patch_size)
    count, height, width = images.shape
    if count not in (1, num_examples):
        raise ValueError(f"pictures holds {count} pictures, but there are {num_examples} examples")
    rows, columns = height // int(patch_size), width // int(patch_size)
    if (rows * patch_size, columns * patch_size) != (height, width) or not 0 < rows * columns <= num_keys:
        raise ValueError(
            f"patch_size={patch_size} does not cut pictures of {height} by {width} into whole patches, one for each "
            f"of the last of {num_keys} keys"
        )
    bytes_ = 255 * images.clip(0) / max(float(images.max()), 1e-9)
    return [as_base64(each.round().astype(np.uint8)) for each in bytes_], [height, width, int(patch_size)]


def _sum_text(total: float) -> str:
    return written(round(total * LEVELS)) if np.isfinite(total) else "no number"
