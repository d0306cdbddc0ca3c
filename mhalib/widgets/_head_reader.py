"""Reads the weights of all heads of a model once, head by head, and keeps what a page shall carry of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, zip_longest
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from .._arrays import Mask, real_array, seen_cells
from .._validate import as_list, require_at_most, require_count, require_tensor
from ..attention import causal_mask
from . import _codes, _levels
from ._codes import ORDINARY

MAX_TOKENS = 65_535
MAX_HEADS = 20_000
EAGER = '(a model of transformers returns none, unless it has attn_implementation="eager")'


def layers_of(weights: object) -> tuple[Iterator[Any], list[Any] | None]:
    """The layers one by one, and all of them where they can be read again."""
    if isinstance(weights, (torch.Tensor, np.ndarray)):
        if weights.ndim not in (3, 4):
            raise ValueError(f"weights must have 3 or 4 axes, got shape {tuple(weights.shape)}")
        held = list(weights) if weights.ndim == 4 else [weights]
        return iter(held), held
    if isinstance(weights, (list, tuple)):
        return iter(weights), list(weights)
    if isinstance(weights, (str, bytes)) or not isinstance(weights, Iterable):
        raise TypeError(
            f"weights must be an array (L, h, Q, K), or layers of (h, Q, K), got {type(weights).__name__}: "
            f"{weights!r:.80}"
        )
    return iter(weights), None


def heads_of(name: str, layer: Any) -> Any:
    """A layer's weights as (h, Q, K), not copied."""
    if isinstance(layer, torch.Tensor):
        require_tensor(name, layer)
    elif not isinstance(layer, np.ndarray):
        none = f" {EAGER}" if layer is None else ""
        raise TypeError(f"{name} must be a torch.Tensor or numpy.ndarray, got {type(layer).__name__}{none}")
    shape = tuple(layer.shape)
    if len(shape) == 4 and shape[0] != 1:
        raise ValueError(f"{name} has shape {shape}, so {shape[0]} examples: give one, such as layer[0]")
    if len(shape) not in (3, 4) or 0 in shape:
        raise ValueError(f"{name} has shape {shape}, but a layer needs (h, Q, K) or (1, h, Q, K)")
    return layer[0] if len(shape) == 4 else layer


def checked_heads(name: str, heads: object) -> list[tuple[int, int]]:
    """Pairs of a layer and a head."""
    found = []
    for i, pair in enumerate(as_list(name, heads)):
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            raise TypeError(f"{name}[{i}] must be a pair (layer, head), got {pair!r:.80}")
        for number in pair:
            require_count(f"a number in {name}[{i}]", number, minimum=0)
        found.append((int(pair[0]), int(pair[1])))
    return found


class HeadReader:
    """What a page carries of weights that are read once.

    num_layers, shape: L and (h, Q, K).
    seen: (h, Q, K), the mask in full.
    grid: the blocks of a map.
    maps: for each head, its blocks as letters.
    details: by the head's place in the model, its strongest keys.
    confidence: for each head, the mean over queries of the largest weight.
    """

    def __init__(
        self, mask: Mask | None, causal: bool, pool: str, cells: int | None, top_keys: int, known_layers: int | None
    ) -> None:
        self.mask, self.causal, self.pool, self.cells = mask, causal, pool, cells
        self.top_keys, self.known_layers = top_keys, known_layers
        self.num_layers = 0
        self.shape = (0, 0, 0)
        self.maps: list[str] = []
        self.details: dict[int, str] = {}
        self.confidence: list[float] = []
        self.wrong = self.leaks = self.odd = 0

    def read(self, layers: Iterable[Any], named: Sequence[tuple[int, int]], highest: Sequence[Sequence[int]]) -> None:
        """All layers.

        Args:
            named: heads whose strongest keys are kept.
            highest: lists of further ones, by their place in the model, the most important first.

        Raises:
            TypeError, ValueError: a layer is no (h, Q, K), is of another shape than the first, or there is none; a head
                that is named does not exist; more than fits.
        """
        wanted: set[int] = set()
        fits, all_fit = 0, True
        for number, layer in enumerate(layers):
            name = f"weights[{number}]"
            heads = heads_of(name, layer)
            if number == 0:
                self._begin(tuple(heads.shape))
                fits = _levels.DETAIL_LETTERS // _levels.detail_letters(heads.shape[1], self.top_keys)
                wanted = self._wanted(named, highest, fits)
            if tuple(heads.shape) != self.shape:
                raise ValueError(f"{name} has shape {tuple(heads.shape)}, but weights[0] has {self.shape}")
            self._require_room()
            for head in range(self.shape[0]):
                index = len(self.maps)
                table = real_array(f"{name}[{head}]", heads[head], rank=2)
                self._one(table, self.seen[head])
                if all_fit or index in wanted:
                    self.details[index] = _levels.strongest_keys(table, self.seen[head], self.top_keys)
                if all_fit and len(self.details) > fits:
                    all_fit = False
                    self.details = {one: text for one, text in self.details.items() if one in wanted}
            self.num_layers += 1
        if not self.num_layers:
            raise ValueError(f"weights is empty: it needs at least one layer {EAGER}")
        for layer, _ in named[1:]:
            if layer >= self.num_layers:
                raise ValueError(f"detail names layer {layer}, but there are {self.num_layers}, counted from 0")

    def note(self) -> str:
        """What is odd about the weights, in a sentence for each oddity."""
        said = _codes.in_sentences(self.wrong, self.leaks, len(self.maps) * self.shape[1], ORDINARY)
        odd = f"{self.odd:,} of {len(self.maps):,} heads have what is no weight from 0 to 1." if self.odd else ""
        return " ".join(filter(None, (said, odd)))

    def _begin(self, shape: tuple[int, int, int]) -> None:
        h, Q, K = self.shape = shape
        require_at_most("the number of tokens in weights", max(Q, K), MAX_TOKENS)
        mask = causal_mask(Q, K) if self.causal else self.mask
        self.seen = seen_cells(mask, shape)
        fits = 24 if self.known_layers is None else _levels.cells_that_fit(h * self.known_layers)
        self.grid = _levels.grid_of(Q, K, self.cells or fits)

    def _require_room(self) -> None:
        """Raise where the heads, the next layer's too, are too many for the page."""
        count = self.shape[0] * (self.known_layers or self.num_layers + 1)
        require_at_most("the number of heads in weights", count, MAX_HEADS)
        letters = count * self.grid.rows * self.grid.columns
        if letters > _levels.MAP_LETTERS:
            raise ValueError(
                f"the maps of {count:,} heads in {self.grid.rows} by {self.grid.columns} cells take {letters:,} "
                f"letters, at most {_levels.MAP_LETTERS:,} fit: give cells={_levels.cells_that_fit(count)}"
                + ("" if self.known_layers else ", or fewer if more layers follow")
            )

    def _wanted(self, named: Sequence[tuple[int, int]], highest: Sequence[Sequence[int]], fits: int) -> set[int]:
        h = self.shape[0]
        for _, head in named[1:]:
            if head >= h:
                raise ValueError(f"detail names head {head}, but layers have {h}, counted from 0")
        first = list(dict.fromkeys(layer * h + head for layer, head in named))
        if len(named) > 1 and len(first) > fits:
            raise ValueError(
                f"detail names {len(named) - 1} heads, but with the chosen one at most {fits} fit into "
                f"{_levels.DETAIL_LETTERS:,} letters: name fewer, or give a smaller top_keys"
            )
        in_turn = [index for index in chain.from_iterable(zip_longest(*highest)) if index is not None]
        return set(list(dict.fromkeys([*first, *in_turn]))[:fits])

    def _one(self, table: NDArray[np.float64], seen: NDArray[np.bool_]) -> None:
        codes = _levels.pooled(table, seen, self.grid, self.pool)
        self.maps.append(_levels.lettered(codes))
        with np.errstate(invalid="ignore"):
            sums = table.sum(-1)
        wrong, leaks = _codes.oddities(table, sums, seen, ORDINARY)
        self.wrong, self.leaks = self.wrong + wrong, self.leaks + leaks
        self.odd += int((codes == _levels.ODD).any())
        rows = np.where(seen, table, -np.inf).max(-1)[seen.any(-1)]
        self.confidence.append(float(rows.mean()) if rows.size else np.nan)
