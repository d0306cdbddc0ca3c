"""Multi-head attention as a layer: one forward pass with named steps, each of which a variant may replace."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from .._validate import (
    as_list,
    require_choice,
    require_count,
    require_divisible,
    require_flag,
    require_function,
    require_mask,
    require_positive,
    require_probability,
    require_scale,
    require_tensor,
)
from . import _fast, _kept
from ._foreign import names_of_this_book
from .cache import Cache, KeyValueCache, require_cache
from .functional import _merge_heads, _split_heads
from .masks import SymbolicMask, is_symbolic, padding_mask
from .positions import ROTARY, Scaling, require_rotary_width, require_scaling, rotary_positions

Mask = Tensor | SymbolicMask
_STEPS = (
    "forward",
    "_join_masks",
    "project",
    "project_with_cache",
    "place",
    "note_keys",
    "score",
    "added",
    "mix_scores",
    "softmax",
    "mix_weights",
    "average",
    "gate",
    "merge",
)
_SCORE_STEPS = ("score", "mix_scores", "softmax")
HeadFunction = Callable[[Tensor], "Tensor | None"]


class HeadSlices(NamedTuple):
    """What belongs to one head: rows of W_q, W_k and W_v (and of their biases), columns of W_o."""

    q: slice
    k: slice
    v: slice
    o: slice


class MultiHeadAttention(nn.Module):
    """h heads look at the same tokens through projections of their own; W_o mixes what they found.

    A pass goes through *project → mix_scores → softmax → mix_weights → average → gate → merge → W_o*. A variant of the
    layer is a subclass that replaces some of these methods; where neither scores nor weights are touched on their way,
    `need_weights=False` takes torch's fused kernel.

    Args:
        num_hiddens: D, the width of the output.
        num_heads: h; divides D, unless `head_dim` is given.
        dropout: probability with which a weight is dropped in training.
        bias: whether the four projections have one.
        query_size, key_size, value_size: widths of the inputs; `None` means D.
        head_dim: d, width of a head's queries and keys; `None` means D / h.
        value_dim: width of a head's values; `None` means d.
        num_kv_heads: heads that have keys and values of their own; divides h. Head i takes those of head
            i * num_kv_heads / h, rounded down. `None` means h, and 1 is multi-query attention.
        scale: what scores are multiplied by; `None` means 1/√d.
        positions: "rotary" turns queries and keys by their positions, "rotary-halves" with other pairs, see
            `mhalib.attention.rotate`; or "none".
        rotary_base: how slowly the last pair of rotary positions turns.
        rotary_dim: how many channels of a head rotary positions turn; `None` means all.
        rotary_scaling: how rotary positions are slowed down, see `mhalib.attention.rotate`.
        out_bias: whether W_o has a bias, where that is not as `bias` says; `None` means as `bias` says.

    Raises:
        TypeError, ValueError: a size is not a positive integer, one does not divide the other, dropout is outside
            [0, 1], `scale` is not a positive number, `positions` is unknown, or a setting of rotary positions is given
            without them.

    Sources: Vaswani et al. 2017, section 3.2.2; the names of the projections follow D2L, section 11.5. Shared keys and
    values: Shazeer 2019 (one for all heads), Ainslie et al. 2023 (one for each group).
    """

    rows_sum_to_one = True
    """Whether a row of the weights that are returned sums to 1 (0, where nothing may be seen). Not where a variant
    mixes weights; measures that need it refuse those."""

    is_variant = False
    """Whether a subclass has replaced a step of the pass. What must know the steps, such as a converter, refuses it."""

    is_split = False
    """Whether it has the heads of one process alone, see `mhalib.parallel.split`."""

    takes_layer_number = False
    """Whether the layer wants to know, as `layer_number`, which of its model's layers it is, counted from 0."""

    looks_at_itself_only = False
    """Whether the layer makes no sense where queries and keys are other tokens. Models then take multi-head attention
    for their cross-attention."""

    shared_by_layers: tuple[str, ...] = ()
    """Names of parameters that a model has once for all its layers of one kind."""

    _looks_at_scores = False
    _looks_between = False
    _adds = False
    _mixes_heads = False
    _HEADS_OWN = frozenset(f"{name}.{part}" for name in ("W_q", "W_k", "W_v", "W_o") for part in ("weight", "bias"))

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        replaced = {step for step in _STEPS if getattr(cls, step) is not getattr(MultiHeadAttention, step)}
        cls.is_variant = bool(replaced)
        cls._adds = "added" in replaced
        cls._mixes_heads = not replaced <= {"_join_masks", "score", "added", "softmax", "average", "gate"}
        cls._looks_at_scores = not replaced.isdisjoint(_SCORE_STEPS)
        cls._looks_between = cls._looks_at_scores or not replaced.isdisjoint(("mix_weights", "average"))

    @names_of_this_book
    def __init__(
        self,
        num_hiddens: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = False,
        *,
        query_size: int | None = None,
        key_size: int | None = None,
        value_size: int | None = None,
        head_dim: int | None = None,
        value_dim: int | None = None,
        num_kv_heads: int | None = None,
        scale: float | None = None,
        positions: str = "none",
        rotary_base: float = 10000.0,
        rotary_dim: int | None = None,
        rotary_scaling: Scaling | None = None,
        out_bias: bool | None = None,
    ) -> None:
        super().__init__()
        require_count("num_hiddens", num_hiddens)
        require_count("num_heads", num_heads)
        if head_dim is None:
            require_divisible("num_hiddens", num_hiddens, num_heads)
            head_dim = num_hiddens // num_heads
        sizes = {
            "query_size": num_hiddens if query_size is None else query_size,
            "key_size": num_hiddens if key_size is None else key_size,
            "value_size": num_hiddens if value_size is None else value_size,
            "head_dim": head_dim,
            "value_dim": head_dim if value_dim is None else value_dim,
            "num_kv_heads": num_heads if num_kv_heads is None else num_kv_heads,
        }
        for name, size in sizes.items():
            require_count(name, size)
        require_probability("dropout", dropout)
        require_scale(scale)
        require_flag("bias", bias)
        require_choice("positions", positions, ("none", *ROTARY))
        require_positive("rotary_base", rotary_base)
        if num_heads % sizes["num_kv_heads"]:
            raise ValueError(f"num_heads={num_heads} is not divisible by num_kv_heads={num_kv_heads}")
        if out_bias is not None:
            require_flag("out_bias", out_bias)
        if positions in ROTARY and rotary_dim is None and head_dim % 2:
            raise ValueError(f"rotary positions need an even head_dim, got {head_dim}")
        if rotary_dim is not None:
            require_rotary_width("rotary_dim", rotary_dim, head_dim)
            if rotary_dim % 2:
                raise ValueError(f"rotary positions need an even rotary_dim, got {rotary_dim}")
        require_scaling("rotary_scaling", rotary_scaling)
        for name, given in (("rotary_dim", rotary_dim), ("rotary_scaling", rotary_scaling)):
            if given is not None and positions not in ROTARY:
                raise ValueError(f"{name}={given!r:.80} cannot be: positions={positions!r} turns nothing")
        self.num_hiddens, self.num_heads, self.dropout = int(num_hiddens), int(num_heads), float(dropout)
        self.query_size, self.key_size, self.value_size, self.head_dim, self.value_dim, self.num_kv_heads = (
            int(size) for size in sizes.values()
        )
        self._scale_given = None if scale is None else float(scale)
        is_rotary = positions in ROTARY
        self.positions = rotary_positions(positions, rotary_base, rotary_dim, rotary_scaling) if is_rotary else None
        self.num_heads_made = self.num_heads
        self.head_numbers = tuple(range(num_heads))  # kept by the heads that `keep_heads` leaves
        self.kv_head_of = tuple(i * self.num_kv_heads // num_heads for i in range(num_heads))
        self._head_functions: OrderedDict[int, HeadFunction] = OrderedDict()
        self.W_q = nn.Linear(self.query_size, self.num_heads * self.head_dim, bias=bias)
        self.W_k = nn.Linear(self.key_size, self.num_kv_heads * self.head_dim, bias=bias)
        self.W_v = nn.Linear(self.value_size, self.num_kv_heads * self.value_dim, bias=bias)
        out_bias = bias if out_bias is None else out_bias
        self.W_o = nn.Linear(self.num_heads * self.value_dim, self.num_hiddens, bias=out_bias)

    def extra_repr(self) -> str:
        shown = ["num_hiddens", "num_heads", "head_dim", "dropout"]
        shown += ["value_dim"] * (self.value_dim != self.head_dim)
        shown += ["num_kv_heads"] * (self.num_kv_heads != self.num_heads)
        shown += ["scale"] * (self.scale != self.head_dim**-0.5)
        return ", ".join(f"{name}={getattr(self, name)}" for name in shown)

    @property
    def scale(self) -> float:
        """What scores are multiplied by."""
        return self.head_dim**-0.5 if self._scale_given is None else self._scale_given

    @names_of_this_book
    def forward(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        valid_lens: Tensor | None = None,
        *,
        mask: Mask | None = None,
        need_weights: bool = True,
        cache: Cache | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend from `queries` to `keys`, in every head.

        Args:
            queries: (B, Q, query_size).
            keys: (B, K, key_size).
            values: (B, K, value_size).
            valid_lens: integers, (B,) or (B, Q): how many keys are real; see `padding_mask`.
            mask: boolean, `True` = may attend, broadcastable to (B, h, Q, K). Three axes are refused, because they
                could be (B, Q, K) or (h, Q, K): write `mask[:, None]` for one matrix per example, `mask[None]` for
                one per head. Or a `Band`, which needs no matrix. With `valid_lens` too, both must allow.
            need_weights: `False` takes torch's fused kernel, where nothing stands between scores and average.
            cache: from `new_cache`: what earlier calls projected, which stands before the keys and values of this one
                and counts in K; the new ones are added to it.

        Returns:
            output (B, Q, D), and weights (B, h, Q, K), what multiplies the values, before dropout; or `None`.
        """
        self._check_inputs(queries, keys, values)
        require_flag("need_weights", need_weights)
        if cache is not None:
            require_cache("cache", cache)
        num_kvpairs = keys.shape[1] + (0 if cache is None else len(cache))
        mask = self._join_masks(queries, num_kvpairs, valid_lens, mask)
        q, k, v = self.project_with_cache(queries, keys, values, cache)
        if need_weights or self._looks_between:
            if self.num_kv_heads != self.num_heads:
                k, v = self._for_each_head(k), self._for_each_head(v)
            noted = self.note_keys(keys, cache)
            weights = self._weigh(q, k, _matrix(mask, q, num_kvpairs), queries, noted)
            weights = self.mix_weights(weights, queries, noted)
            found = self.average(weights, v)
        else:
            found, weights = self._fused(q, k, v, mask), None
        del q, k, v
        found = self.gate(found, queries)
        for function in self._head_functions.values():
            changed = function(found)
            found = found if changed is None else changed
        return self.W_o(self.merge(found)), weights if need_weights else None

    if TYPE_CHECKING:
        __call__ = forward

    def project(self, queries: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q (B, h, Q, d), k (B, num_kv_heads, K, d) and v (B, num_kv_heads, K, value_dim)."""
        return (
            _split_heads(self.W_q(queries), self.num_heads, self.head_dim),
            _split_heads(self.W_k(keys), self.num_kv_heads, self.head_dim),
            _split_heads(self.W_v(values), self.num_kv_heads, self.value_dim),
        )

    def project_with_cache(
        self, queries: Tensor, keys: Tensor, values: Tensor, cache: Cache | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """`project`, then positions, then what `cache` holds before what is new: K counts both."""
        q, k, v = self.project(queries, keys, values)
        start = 0 if cache is None else len(cache)
        q, k = self.place(q, start), self.place(k, start)
        if cache is not None:
            k, v = cache.append(k, v)
        return q, k, v

    def place(self, x: Tensor, start: int) -> Tensor:
        """Queries or keys (B, h, N, d) with the layer's positions, of which the first is `start`."""
        return x if self.positions is None else self.positions.turn(x, start)

    def note_keys(self, keys: Tensor, cache: Cache | None) -> Tensor:
        """What the mixing steps are told of the keys: the layer's input. A variant that mixes by what keys say, and
        must know that of keys in `cache` too, notes it there."""
        return keys

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        """q (B, h, Q, d) and k (B, h, K, d) -> scores (B, h, Q, K)."""
        return _fast.scores(q, k, self._scale_given)

    def added(self, num_queries: int, num_kvpairs: int) -> Tensor | None:
        """What is added to all examples' scores, broadcastable to (h, Q, K); `None` is nothing. Torch's fused kernel
        takes it, too."""
        return None

    def mix_scores(self, scores: Tensor, queries: Tensor, keys: Tensor) -> Tensor:
        """Scores (B, h, Q, K) -> scores. `queries` is the layer's input, `keys` what `note_keys` made of that."""
        return scores

    def softmax(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        """Scores (B, h, Q, K) -> weights, 0 where `mask` is False. May write over `scores`."""
        return _fast.softmax_(scores, mask)

    def mix_weights(self, weights: Tensor, queries: Tensor, keys: Tensor) -> Tensor:
        """Weights (B, h, Q, K) -> weights. Set `rows_sum_to_one` to what is true of them."""
        return weights

    def average(self, weights: Tensor, v: Tensor) -> Tensor:
        """Weights (B, h, Q, K) and v (B, h, K, value_dim) -> what each head found, (B, h, Q, value_dim)."""
        return _fast.average(weights, v, self.dropout if self.training else 0.0)

    def gate(self, found: Tensor, queries: Tensor) -> Tensor:
        """What each head found, (B, h, Q, value_dim) -> the same, turned up or down. `queries` is the layer's input."""
        return found

    def merge(self, found: Tensor) -> Tensor:
        """(B, h, Q, value_dim) -> (B, Q, h * value_dim), what W_o reads."""
        return _merge_heads(found)

    def new_cache(self, max_tokens: int = 0) -> Cache:
        """An empty cache that fits the layer, with memory for `max_tokens` taken ahead."""
        return KeyValueCache(max_tokens)

    def head_slices(self, head: int) -> HeadSlices:
        """Which rows of W_q, W_k and W_v and which columns of W_o belong to a head.

        Args:
            head: its place among the heads that the layer has, from 0; see `head_numbers`.

        Raises:
            TypeError, ValueError: it is no integer, or there is no such head.
        """
        require_count("head", head, minimum=0)
        if head >= self.num_heads:
            raise ValueError(f"head={head}, but the layer has num_heads={self.num_heads}")
        d, width, shared = self.head_dim, self.value_dim, self.kv_head_of[head]
        return HeadSlices(
            slice(head * d, (head + 1) * d),
            slice(shared * d, (shared + 1) * d),
            slice(shared * width, (shared + 1) * width),
            slice(head * width, (head + 1) * width),
        )

    def keep_heads(self, heads: Iterable[int]) -> None:
        """Reduce the layer to these heads: the others' rows of W_q, W_k and W_v and columns of W_o go. Keys and values
        that heads share stay as long as one of these heads is left.

        The projections are new modules with new parameters. `head_numbers` says which heads are left.

        Args:
            heads: their places among the heads that the layer has, from 0, in order. None leaves a layer that returns
                the bias of W_o.

        Raises:
            ValueError: there is no such head, or the order is another.
            TypeError: the layer is a variant that replaces steps or has weights that do not belong to one head, and has
                no `keep_heads` of its own. One that has calls this one for the four projections.
        """
        heads = as_list("heads", heads)
        if self.is_split:
            raise ValueError("the layer is split over processes: remove heads before it is split")
        for head in heads:
            self.head_slices(head)
        if heads != sorted(set(heads)):
            raise ValueError(f"heads={heads} must be in order, each once")
        others = {name for name, _ in self.named_parameters()} - self._HEADS_OWN
        if (others or self._mixes_heads) and type(self).keep_heads is MultiHeadAttention.keep_heads:
            raise TypeError(
                f"{type(self).__name__} replaces steps or has weights that are not one head's own, {sorted(others)}, "
                "and does not say how to remove heads: it needs a method keep_heads"
            )
        shared = sorted({self.kv_head_of[head] for head in heads})
        owner = {self.kv_head_of[head]: head for head in reversed(heads)}
        slices = [self.head_slices(head) for head in heads]
        kv_slices = [self.head_slices(owner[kv_head]) for kv_head in shared]
        self.W_q = _reduced(self.W_q, [one.q for one in slices], 0)
        self.W_k = _reduced(self.W_k, [one.k for one in kv_slices], 0)
        self.W_v = _reduced(self.W_v, [one.v for one in kv_slices], 0)
        self.W_o = _reduced(self.W_o, [one.o for one in slices], 1)
        self.hold_heads(heads, shared)

    def hold_heads(self, heads: Sequence[int], shared: Sequence[int]) -> None:
        """Say that the projections now have the rows of these heads alone, and of these keys and values: what
        `keep_heads` and `mhalib.parallel.split` call when they have changed them.

        Args:
            heads: their places among the heads that the layer had, in order.
            shared: the places of the keys and values among those that it had, in order; all that the heads use.
        """
        self.head_numbers = tuple(self.head_numbers[head] for head in heads)
        self.kv_head_of = tuple(shared.index(self.kv_head_of[head]) for head in heads)
        self.num_heads, self.num_kv_heads = len(heads), len(shared)

    def on_heads(self, function: HeadFunction) -> RemovableHandle:
        """Let `function` see what the heads found, (B, h, Q, value_dim), at each pass, before W_o mixes it.

        What it returns, if not `None`, goes on instead: so heads are watched, gated and switched off.

        Returns:
            a handle; its `remove()` ends it, and it may stand in a `with`.
        """
        require_function("function", function)
        handle = RemovableHandle(self._head_functions)
        self._head_functions[handle.id] = function
        return handle

    def _weigh(self, q: Tensor, k: Tensor, mask: Tensor | None, queries: Tensor, keys: Tensor) -> Tensor:
        if self._looks_at_scores or self._adds or any(step in self.__dict__ for step in _SCORE_STEPS):
            # scores have no name here, so that their memory is free again, or used again, as soon as can be
            return self.softmax(self.mix_scores(self._add(self.score(q, k)), queries, keys), mask)
        return _kept.weights(q, k, mask, self._scale_given)

    def _add(self, scores: Tensor) -> Tensor:
        added = self.added(*scores.shape[-2:]) if self._adds else None
        return scores if added is None else scores + added.to(scores.dtype)

    def _for_each_head(self, x: Tensor) -> Tensor:
        """(B, num_kv_heads, K, width) -> (B, h, K, width)."""
        if x.shape[1] == self.num_heads:
            return x
        if not self._has_equal_groups():
            return x[:, list(self.kv_head_of)]
        group = self.num_heads // self.num_kv_heads
        return x[:, :, None].expand(-1, -1, group, -1, -1).flatten(1, 2)

    def _fused(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | None) -> Tensor:
        if not self._has_equal_groups():
            k, v = self._for_each_head(k), self._for_each_head(v)
        added = self.added(q.shape[2], k.shape[2]) if self._adds else None
        if added is not None:
            matrix = _matrix(mask, q, k.shape[2])
            return _fast.fused_with(
                q, k, v, added.to(q.dtype), matrix, self.dropout if self.training else 0.0, self._scale_given
            )
        is_causal = is_symbolic(mask) and mask.is_causal()
        matrix = None if is_causal else _matrix(mask, q, k.shape[2])
        return _fast.fused(q, k, v, matrix, self.dropout if self.training else 0.0, self._scale_given, is_causal)

    def _has_equal_groups(self) -> bool:
        if self.num_heads == self.num_kv_heads:
            return True
        group = self.num_heads // self.num_kv_heads
        return self.kv_head_of == tuple(i // group for i in range(self.num_heads))

    def _check_inputs(self, queries: Tensor, keys: Tensor, values: Tensor) -> None:
        weight = self.W_o.weight
        checked: Tensor | None = None
        batch_size = width = 0
        for name, x, own_width in (
            ("queries", queries, self.query_size),
            ("keys", keys, self.key_size),
            ("values", values, self.value_size),
        ):
            if x is None or x is not checked:  # self-attention gives one tensor three times
                require_tensor(name, x, rank=3)
                if isinstance(weight, Tensor):  # a quantized projection has none
                    if x.device != weight.device:
                        raise ValueError(f"{name} is on {x.device}, but the layer's weights are on {weight.device}")
                    if x.dtype != weight.dtype and not torch.is_autocast_enabled(x.device.type):
                        raise TypeError(f"{name} is {x.dtype}, but the layer's weights are {weight.dtype}")
                num_examples, _, width = x.shape
                batch_size = num_examples if checked is None else batch_size
                if num_examples != batch_size:
                    raise ValueError(f"{name} holds {num_examples} examples, but queries holds {batch_size}")
                checked = x
            if width != own_width:
                raise ValueError(f"{name} has width {width}, but the layer was made for {own_width}")
        if values is not keys and keys.shape[1] != values.shape[1]:
            raise ValueError(f"each key needs a value: {keys.shape[1]} keys, {values.shape[1]} values")
        if self.positions is not None and queries.shape[1] != keys.shape[1]:
            raise ValueError(
                f"rotary positions are for self-attention: {queries.shape[1]} queries, but {keys.shape[1]} keys"
            )

    def _join_masks(
        self, queries: Tensor, num_kvpairs: int, valid_lens: Tensor | None, mask: Mask | None
    ) -> Mask | None:
        """One mask that allows what `valid_lens` and `mask` both allow; a band stays one as long as it can."""
        if mask is None and valid_lens is None:
            return None
        batch_size, num_queries = queries.shape[:2]
        if is_symbolic(mask):
            mask.check()
            mask = None if mask.hides_nothing(num_queries, num_kvpairs) else mask
        elif mask is not None:
            require_tensor("mask", mask)
            if mask.dim() == 3:
                raise ValueError(
                    f"mask has three axes, {tuple(mask.shape)}, and does not say which is missing: "
                    "write mask[:, None] for one matrix per example, mask[None] for one per head"
                )
            require_mask(mask, (batch_size, self.num_heads, num_queries, num_kvpairs), queries.device)
        if valid_lens is None:
            return mask
        real = padding_mask(valid_lens, num_kvpairs)
        if valid_lens.shape not in ((batch_size,), (batch_size, num_queries)):
            raise ValueError(
                f"valid_lens has shape {tuple(valid_lens.shape)}, but needs ({batch_size},) for each example "
                f"or ({batch_size}, {num_queries}) for each query"
            )
        if real.device != queries.device:
            raise ValueError(f"valid_lens is on {real.device}, but queries is on {queries.device}")
        matrix = _matrix(mask, queries, num_kvpairs)
        return real if matrix is None else real & matrix


def _matrix(mask: Mask | None, queries: Tensor, num_kvpairs: int) -> Tensor | None:
    """The mask as booleans, for `queries` (..., Q, width)."""
    if is_symbolic(mask):
        return mask.matrix(queries.shape[-2], num_kvpairs, device=queries.device)
    return mask


def _reduced(projection: nn.Linear, kept: list[slice], axis: int) -> nn.Linear:
    """The rows (axis 0) or columns (axis 1) in `kept` of a projection, as a new one."""
    weight, bias = projection.weight, projection.bias
    own = torch.tensor([i for one in kept for i in range(one.start, one.stop)], dtype=torch.long, device=weight.device)
    with torch.device("meta"), warnings.catch_warnings():  # the weights come from the old one
        warnings.filterwarnings("ignore", "Initializing zero-element tensors")
        new = nn.Linear(
            len(own) if axis else projection.in_features,
            projection.out_features if axis else len(own),
            bias=bias is not None,
        )
    new.weight = nn.Parameter(weight.detach().index_select(axis, own), requires_grad=weight.requires_grad)
    if bias is not None:
        kept_bias = bias.detach().clone() if axis else bias.detach().index_select(0, own)
        new.bias = nn.Parameter(kept_bias, requires_grad=bias.requires_grad)
    return new.train(projection.training)
