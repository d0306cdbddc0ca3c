"""All heads of a model as a wall, layers down and heads across, and one of them large, with its strongest keys."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import traitlets
from numpy.typing import NDArray

from .. import style
from .._arrays import Array, Mask, real_array
from .._validate import require_at_most, require_choice, require_count, require_flag
from . import _levels
from ._head_numbers import HeadNumber, checked_numbers, head_number
from ._head_reader import MAX_HEADS, HeadReader, checked_heads, heads_of, layers_of
from ._instrument import Instrument
from ._token_lists import token_lists

POOLS = ("max", "mean")
VIEWS = ("maps", "number")
ORDERS = ("model", "highest", "lowest")
CONFIDENCE = "mean largest weight"
WIDE_TABLE = 32


class HeadWall(Instrument):
    """All heads of a model, each as a small picture of its map or as the colour of a number.

    Choose a head and it is shown large, with its numbers and the strongest keys of a query. Heads can be sorted within
    their layer by a number, and those with the highest or lowest numbers of the model are marked.

    Large models fit, because weights are carried on three levels:

    - Each map is pooled to at most `cells` by `cells` blocks, and each block to 6 bits: 62 steps on a scale of roots.
      A value w is kept to within (0.005 + √w) / 61, so to 0.017 near 1 and to 0.002 near 0.01.
    - Some heads have the `top_keys` strongest keys of each query, with weights to 3 digits and the share of the row
      that they hold: all heads where they fit into 400 kB, else the chosen head, those in `detail`, and those with the
      highest of each number, in turn.
    - Live, the kernel sends the same of any other head that is chosen, if `weights` was no iterator. On a page without
      a kernel the instrument says that it has only the map.

    Weights are read head by head, so an iterator that makes one layer at a time needs the memory of one layer.

    What the reader chooses can be read and set: `layer`, `head`, `query`, `view`, `number`, `order` and `marked`, how
    many heads are marked, a negative number for the lowest.

    Args:
        weights: (L, h, Q, K), or layers of (h, Q, K) or (1, h, Q, K) as a list or an iterator; rows are queries. An
            array (h, Q, K) is one layer.
        queries: Q tokens; `None` numbers them.
        keys: K tokens; `None` takes `queries` where Q = K.
        mask: boolean, broadcasts to (h, Q, K), `True` = may attend.
        causal: whether a query sees itself and what is before it, as in `causal_mask`, in place of `mask`.
        numbers: (L, h) by name, or L rows of h, such as `mhalib.measures` gives; NaN where a head has none. `None` is
            each head's mean over queries of its largest weight.
        pool: "max", the largest weight of a block: a single strong weight stays visible. "mean" is fairer to rows that
            are spread evenly, but thins out a diagonal by the side of the block.
        cells: at most how many blocks down and across, up to 64; `None` is what fits into 600 kB, at most 32. An
            iterator tells not how many layers there are: 24.
        detail: heads, as (layer, head), whose strongest keys are stored in any case.
        top_keys: of each query.
        layer, head, query: which are shown large.
        view: what fills the wall, "maps" or "number".
        number: its name; `None` is the first.
        order: "model", or within each layer "highest" or "lowest" first.

    Warns:
        UserWarning: rows that do not sum to 1, a weight that the mask should have hidden, or what is no weight.

    Raises:
        TypeError: weights are no arrays of real numbers, the mask is not boolean, tokens are one string.
        ValueError: layers of different shapes or with several examples, tokens, mask or numbers that do not fit, a
            choice outside the weights, or more than fits: 20,000 heads, 65,535 tokens.
    """

    script = "HeadWall"

    sizes = traitlets.List(traitlets.Int()).tag(sync=True)  # L, h, Q, K
    grid = traitlets.List(traitlets.Int()).tag(sync=True)  # blocks down and across, queries and keys of each
    pool = traitlets.Unicode().tag(sync=True)
    maps = traitlets.Unicode().tag(sync=True)  # a letter for each block: layer, head, row, column
    ramp = traitlets.List(traitlets.Unicode()).tag(sync=True)
    ramps = traitlets.List(traitlets.List(traitlets.Unicode())).tag(sync=True)
    query_tokens = traitlets.List(traitlets.Unicode()).tag(sync=True)
    key_tokens = traitlets.List(traitlets.Unicode()).tag(sync=True)
    number_names = traitlets.List(traitlets.Unicode()).tag(sync=True)
    numbers: traitlets.List[list[int | None]] = traitlets.List().tag(sync=True)  # of each, a whole number for each head
    places = traitlets.List(traitlets.Int()).tag(sync=True)  # of each, digits behind the point
    detailed = traitlets.List(traitlets.Int()).tag(sync=True)  # heads whose strongest keys are stored
    details = traitlets.List(traitlets.Unicode()).tag(sync=True)  # base64, for each of these
    top_keys = traitlets.Int().tag(sync=True)
    sent: traitlets.List[Any] = traitlets.List().tag(
        sync=True
    )  # the chosen head and its keys, where they are not stored
    kept = traitlets.Bool().tag(sync=True)  # whether Python holds the weights
    note = traitlets.Unicode().tag(sync=True)

    layer = traitlets.Int(0).tag(sync=True)
    head = traitlets.Int(0).tag(sync=True)
    query = traitlets.Int(0).tag(sync=True)
    view = traitlets.Unicode("maps").tag(sync=True)
    number = traitlets.Unicode().tag(sync=True)
    order = traitlets.Unicode("model").tag(sync=True)
    marked = traitlets.Int(5).tag(sync=True)

    _layers: list[Any] | None = None
    _seen: NDArray[np.bool_]

    def __init__(
        self,
        weights: Array | Iterable[Array],
        queries: Sequence[Any] | None = None,
        keys: Sequence[Any] | None = None,
        *,
        mask: Mask | None = None,
        causal: bool = False,
        numbers: Mapping[str, Array | Sequence[Array]] | None = None,
        pool: str = "max",
        cells: int | None = None,
        detail: Iterable[tuple[int, int]] = (),
        top_keys: int = 5,
        layer: int = 0,
        head: int = 0,
        query: int = 0,
        view: str = "maps",
        number: str | None = None,
        order: str = "model",
        marked: int = 5,
        **kwargs: Any,
    ) -> None:
        require_choice("pool", pool, POOLS)
        require_flag("causal", causal)
        if causal and mask is not None:
            raise ValueError("causal=True and mask are two masks: give one of them")
        for name, count in (("cells", 24 if cells is None else cells), ("top_keys", top_keys)):
            require_count(name, count)
            require_at_most(name, count, 64)
        tables = None if numbers is None else checked_numbers(numbers)
        named = checked_heads("detail", detail)
        layers, holds = layers_of(weights)
        num_layers = None if holds is None else len(holds)
        reader = HeadReader(mask, causal, pool, cells, top_keys, num_layers)
        highest = [head_number(name, one).highest() for name, one in (tables or {}).items()]
        reader.read(layers, [(layer, head), *named], highest)
        L, (h, Q, K) = reader.num_layers, reader.shape
        for name, value, size in (("layer", layer, L), ("head", head, h), ("query", query, Q)):
            require_count(name, value, minimum=0)
            if value >= size:
                raise ValueError(f"{name}={value} is outside the weights, which have {size}, counted from 0")
        self._told = _told(tables, L, h, reader.confidence)
        query_tokens = token_lists("queries", queries, 1, Q)[0]
        key_tokens = query_tokens if keys is None and Q == K else token_lists("keys", keys, 1, K)[0]
        said = reader.note()
        if said:
            warnings.warn(said, stacklevel=2)
        super().__init__(
            sizes=[L, h, Q, K],
            grid=list(reader.grid),
            pool=pool,
            maps="".join(reader.maps),
            ramp=style.stops("ink"),
            ramps=style.head_stops(),
            query_tokens=query_tokens,
            key_tokens=key_tokens,
            number_names=[one.name for one in self._told],
            numbers=[one.units for one in self._told],
            places=[one.places for one in self._told],
            detailed=list(reader.details),
            details=list(reader.details.values()),
            top_keys=top_keys,
            kept=holds is not None,
            note=said,
            layer=layer,
            head=head,
            query=query,
            view=view,
            number=number if number is not None else next((one.name for one in self._told), ""),
            order=order,
            marked=marked,
            **kwargs,
        )
        self._layers, self._seen = holds, reader.seen
        self._answer()

    @traitlets.validate("layer", "head", "query", "marked")
    def _inside(self, proposal: Any) -> Any:
        name, value = proposal["trait"].name, proposal["value"]
        L, h, Q, _ = self.sizes
        low, high = {"layer": (0, L - 1), "head": (0, h - 1), "query": (0, Q - 1)}.get(name, (-MAX_HEADS, MAX_HEADS))
        if not low <= value <= high:
            raise traitlets.TraitError(f"{name}={value} must lie from {low} to {high}")
        return value

    @traitlets.validate("view", "order", "number")
    def _known(self, proposal: Any) -> Any:
        name, value = proposal["trait"].name, proposal["value"]
        names = tuple(one.name for one in self._told)
        if name != "number" or names or value:
            require_choice(name, value, {"view": VIEWS, "order": ORDERS, "number": names}[name])
        if name == "view" and value == "number" and not names:
            raise ValueError("view='number' needs numbers, and there are none")
        return value

    @traitlets.observe("layer", "head")
    def _answer(self, _: Any = None) -> None:
        """Give the page the strongest keys of the chosen head, where it has not stored them."""
        index = self.layer * self.sizes[1] + self.head
        if self._layers is None or index in self.detailed or index in self.sent:
            return
        table = real_array(f"weights[{self.layer}]", heads_of("weights", self._layers[self.layer])[self.head], rank=2)
        self.sent = [index, _levels.strongest_keys(table, self._seen[self.head], self.top_keys)]

    def state(self) -> dict[str, Any]:
        """The traits of its own; a page has no kernel that could be asked."""
        return {**super().state(), "kept": False}

    def table(self) -> tuple[str, Sequence[str], Sequence[Sequence[str]]]:
        """The chosen number of all heads; of models with many heads, the three highest of each layer. Without numbers,
        the largest weight of each map."""
        L, h, _, _ = self.sizes
        size = f"{L} layers of {h} heads"
        if not self._told:
            top = self._largest()
            name, texts = "largest weight, about", [f"{weight:.2f}" for weight in top]
            ranks = np.argsort(-top, kind="stable").tolist()
        else:
            told = next(one for one in self._told if one.name == self.number)
            name, texts, ranks = told.name, [told.written(index) for index in range(L * h)], told.highest()
        if h <= WIDE_TABLE:
            rows = [[str(one), *texts[one * h : (one + 1) * h]] for one in range(L)]
            return f"{size}: {name}", ["layer", *(f"head {one}" for one in range(h))], rows
        best = [[index for index in ranks if index // h == one][:3] for one in range(L)]
        rows = [[str(one), ", ".join(f"head {i % h}: {texts[i]}" for i in best[one])] for one in range(L)]
        return f"{size}: {name}, the three highest of each layer", ["layer", "heads"], rows

    def _largest(self) -> NDArray[np.float64]:
        """The largest weight that each map shows."""
        L, h, _, _ = self.sizes
        weights = _levels.weights_of(_levels.codes_of(self.maps)).reshape(L * h, -1)
        top: NDArray[np.float64] = np.nan_to_num(weights).max(-1)
        return top


def _told(
    tables: Mapping[str, NDArray[np.float64]] | None, num_layers: int, num_heads: int, confidence: Sequence[float]
) -> list[HeadNumber]:
    """The numbers of the heads, or what the weights themselves say."""
    if tables is None:
        tables = {CONFIDENCE: np.array(confidence).reshape(num_layers, num_heads)}
    found = [head_number(name, table) for name, table in tables.items()]
    for name, table in tables.items():
        if table.shape != (num_layers, num_heads):
            raise ValueError(
                f"numbers[{name!r}] has shape {table.shape}, but there are {num_layers} layers of {num_heads} heads"
            )
    if len({one.name for one in found}) < len(found):
        raise ValueError(f"the names of numbers are the same when they are shown: {[one.name for one in found]}")
    return found
