"""The heads of a layer: which rows and columns are theirs, how they are removed, and how they are watched."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from .._validate import as_list, require_count, require_function

HeadFunction = Callable[[Tensor], "Tensor | None"]
ScoreFunction = Callable[[Tensor, "Tensor | None"], None]
WeightFunction = Callable[[Tensor, "Tensor | None"], "Tensor | None"]


class HeadSlices(NamedTuple):
    """What belongs to one head: rows of W_q, W_k and W_v (and of their biases), columns of W_o."""

    q: slice
    k: slice
    v: slice
    o: slice


class HeadsOfLayer(nn.Module):
    """What a layer knows of its heads. Only it knows which rows and columns are a head's; all others ask.

    num_heads: heads that it has.
    num_kv_heads: how many keys and values they share.
    head_dim, value_dim: widths of a head's queries and keys, and of its values.
    num_heads_made: heads that it was made with.
    head_numbers: those of the heads that `keep_heads` has left, among the heads that it was made with.
    kv_head_of: which of the shared keys and values each head takes.
    """

    is_split = False
    """Whether it has the heads of one process alone, see `mhalib.parallel.split`."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    value_dim: int
    W_q: nn.Linear
    W_k: nn.Linear
    W_v: nn.Linear
    W_o: nn.Linear

    _HEADS_OWN = frozenset(f"{name}.{part}" for name in ("W_q", "W_k", "W_v", "W_o") for part in ("weight", "bias"))
    _mixes_heads = False

    def _number_heads(self, num_heads: int, num_kv_heads: int) -> None:
        """Count them anew: for a layer that is being made."""
        self.num_heads, self.num_kv_heads, self.num_heads_made = num_heads, num_kv_heads, num_heads
        self.head_numbers = tuple(range(num_heads))
        self.kv_head_of = tuple(i * num_kv_heads // num_heads for i in range(num_heads))
        self._head_functions: OrderedDict[int, tuple[int, HeadFunction]] = OrderedDict()
        self._weight_functions: OrderedDict[int, tuple[int, WeightFunction]] = OrderedDict()
        self._score_functions: OrderedDict[int, ScoreFunction] = OrderedDict()

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *told: Any) -> None:
        if f"{prefix}in_proj_weight" in state_dict or f"{prefix}q_proj_weight" in state_dict:
            told[-1].append("torch.nn.MultiheadAttention has these names: mhalib.reference.from_torch(layer) reads it")
        super()._load_from_state_dict(state_dict, prefix, *told)

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
        if (others or self._mixes_heads) and type(self).keep_heads is HeadsOfLayer.keep_heads:
            raise TypeError(
                f"{type(self).__name__} replaces steps or has weights that are not one head's own, {sorted(others)}, "
                "and does not say how to remove heads: it needs a method keep_heads"
            )
        shared = sorted({self.kv_head_of[head] for head in heads})
        owner = {self.kv_head_of[head]: head for head in reversed(heads)}
        slices = [self.head_slices(head) for head in heads]
        kv_slices = [self.head_slices(owner[kv_head]) for kv_head in shared]
        self.W_q = reduced(self.W_q, [one.q for one in slices], 0)
        self.W_k = reduced(self.W_k, [one.k for one in kv_slices], 0)
        self.W_v = reduced(self.W_v, [one.v for one in kv_slices], 0)
        self.W_o = reduced(self.W_o, [one.o for one in slices], 1)
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

    def on_heads(self, function: HeadFunction, *, stage: int = 0) -> RemovableHandle:
        """Let `function` see what the heads found, (B, h, Q, value_dim), at each pass, before W_o mixes it.

        What it returns, if not `None`, goes on instead: so heads are watched, patched, gated and switched off.
        Functions of a lower `stage` come first; those of one stage, in the order in which they were added.

        Returns:
            a handle; its `remove()` ends it, and it may stand in a `with`.
        """
        return _added(self._head_functions, function, stage)

    def on_weights(self, function: WeightFunction, *, stage: int = 0) -> RemovableHandle:
        """Let `function` see the weights (B, h, Q, K) that multiply the values, at each pass, and beside them the mask,
        boolean and broadcastable to them, or `None`: `function(weights, mask)`.

        What it returns, if not `None`, goes on instead, and is what the layer returns as its weights. It must keep
        hidden keys at 0, and not write over what it is given. While there is such a function, the layer computes
        weights with `need_weights=False`, too. `stage` as in `on_heads`.

        Returns:
            a handle; its `remove()` ends it, and it may stand in a `with`.
        """
        return _added(self._weight_functions, function, stage)

    def on_scores(self, function: ScoreFunction) -> RemovableHandle:
        """Let `function` see the scores (B, h, Q, K) as they enter the softmax, at each pass, and beside them the mask,
        boolean and broadcastable to them, or `None`: `function(scores, mask)`. Hidden scores are still in place.

        It watches, and must return `None`: to change scores, replace the step `mix_scores`. No number of the pass
        changes. With `need_weights=False` the layer still takes torch's fused kernel, and computes scores beside it.

        Returns:
            a handle; its `remove()` ends it, and it may stand in a `with`.
        """
        require_function("function", function)
        handle = RemovableHandle(self._score_functions)
        self._score_functions[handle.id] = function
        return handle

    def _show_scores(self, scores: Tensor, mask: Tensor | None) -> None:
        for function in self._score_functions.values():
            if function(scores, mask) is not None:
                raise TypeError("a function of on_scores must return None: to change scores, replace mix_scores")

    def _for_each_head(self, x: Tensor) -> Tensor:
        """(B, num_kv_heads, K, width) -> (B, h, K, width)."""
        if isinstance(x, Tensor) and x.shape[1] == self.num_heads:  # torch.fx knows no sizes
            return x
        if not self._has_equal_groups():
            return x[:, list(self.kv_head_of)]
        group = self.num_heads // self.num_kv_heads
        return x[:, :, None].expand(-1, -1, group, -1, -1).flatten(1, 2)

    def _has_equal_groups(self) -> bool:
        if self.num_heads == self.num_kv_heads:
            return True
        group = self.num_heads // self.num_kv_heads
        return self.kv_head_of == tuple(i // group for i in range(self.num_heads))


def _added(functions: OrderedDict[int, tuple[int, Any]], function: object, stage: int) -> RemovableHandle:
    """Put a function behind those of its stage and of earlier ones."""
    require_function("function", function)
    handle = RemovableHandle(functions)
    functions[handle.id] = stage, function
    for number in sorted(functions, key=lambda number: functions[number][0]):
        functions.move_to_end(number)
    return handle


def changed_by(functions: OrderedDict[int, tuple[int, Any]], x: Tensor, *more: Any) -> Tensor:
    """What becomes of x as each function, which is given `more`, too, returns something else or `None`."""
    for _, function in functions.values():
        changed = function(x, *more)
        x = x if changed is None else changed
    return x


def reduced(projection: nn.Linear, kept: list[slice], axis: int) -> nn.Linear:
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
