"""Multi-head attention as a layer: one forward pass with named steps, each of which a variant may replace."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from . import kernels
from ._arguments import (
    ALL,
    Allowed,
    check_inputs,
    join_masks,
    require_rotary,
    require_settings,
    resolve,
    sizes_of_heads,
    takes_mask,
)
from ._other_names import names_of_arguments, names_of_this_book, refuse_other_names, require_three
from .cache import Cache, KeyValueCache
from .heads import HeadsOfLayer, changed_by
from .masks import Mask
from .positions import ROTARY, Scaling, rotary_positions

_SCORE_STEPS = frozenset(("score", "added", "mix_scores", "softmax"))
_BETWEEN_STEPS = frozenset(("score", "mix_scores", "softmax", "mix_weights", "average"))
_MIXING_STEPS = frozenset(("mix_scores", "mix_weights"))
_OTHER_STEPS = ("forward", "_join_masks", "project", "project_with_cache", "place", "note_keys", "gate", "merge")
_STEPS = _SCORE_STEPS.union(_BETWEEN_STEPS, _OTHER_STEPS)
_HEAD_BY_HEAD = frozenset(("_join_masks", "score", "added", "softmax", "average", "gate"))


class MultiHeadAttention(HeadsOfLayer):
    """h heads look at the same tokens through projections of their own; W_o mixes what they found.

    A pass goes through *project → mix_scores → softmax → mix_weights → average → gate → merge → W_o*. A variant of the
    layer is a subclass that replaces some of these methods; where none between the scores and the average is replaced,
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

    takes_layer_number = False
    """Whether the layer wants to know, as `layer_number`, which of its model's layers it is, counted from 0."""

    looks_at_itself_only = False
    """Whether the layer makes no sense where queries and keys are other tokens. Models then take multi-head attention
    for their cross-attention."""

    keeps_state = False
    """Whether a state of fixed size stands in for keys and values. Such a layer is causal by itself, and models give it
    no rotary positions. It has no weights for tokens that a cache has seen, and refuses masks that hide more than later
    tokens and padding."""

    learns_apart: tuple[str, ...] = ()
    """Names of parts that no gradient of the output reaches, since they choose; the kind says how they learn."""

    shared_by_layers: tuple[str, ...] = ()
    """Names of parameters that a model has once for all its layers of one kind."""

    _replaced: frozenset[str] = frozenset()  # steps that the class has of its own
    _given_masks = _MIXING_STEPS  # steps that take an argument `mask`

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = {step: getattr(cls, step) for step in _STEPS}
        cls._replaced = frozenset(step for step in own if own[step] is not getattr(MultiHeadAttention, step))
        cls._given_masks = frozenset(step for step in _MIXING_STEPS if takes_mask(own[step]))
        cls.is_variant = bool(cls._replaced)
        cls._mixes_heads = not cls._replaced <= _HEAD_BY_HEAD

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
        require_settings(dropout, bias, out_bias, scale)
        sizes = sizes_of_heads(
            num_hiddens,
            num_heads,
            query_size=query_size,
            key_size=key_size,
            value_size=value_size,
            head_dim=head_dim,
            value_dim=value_dim,
            num_kv_heads=num_kv_heads,
        )
        require_rotary(positions, sizes["head_dim"], rotary_base, rotary_dim, rotary_scaling)
        self.num_hiddens, self.dropout = sizes["num_hiddens"], float(dropout)
        self.query_size, self.key_size, self.value_size = (sizes[f"{name}_size"] for name in ("query", "key", "value"))
        self.head_dim, self.value_dim = sizes["head_dim"], sizes["value_dim"]
        self._number_heads(sizes["num_heads"], sizes["num_kv_heads"])
        self._scale_given = None if scale is None else float(scale)
        is_rotary = positions in ROTARY
        self.positions = rotary_positions(positions, rotary_base, rotary_dim, rotary_scaling) if is_rotary else None
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
        check_inputs(self, queries, keys, values, need_weights, cache, mask)
        replaced = self._replaced | (self.__dict__.keys() & _STEPS)  # by the class, or on this layer alone
        needs_weights = need_weights or not replaced.isdisjoint(_BETWEEN_STEPS) or bool(self._weight_functions)
        num_kvpairs = keys.shape[1] + (0 if cache is None else len(cache))
        mask = self._join_masks(queries, num_kvpairs, valid_lens, mask)

        q, k, v = self.project_with_cache(queries, keys, values, cache)
        allowed = ALL
        if mask is not None:
            needs_matrix = needs_weights or "added" in replaced or bool(self._score_functions)
            allowed = resolve(mask, queries, num_kvpairs, needs_matrix)
        if needs_weights:
            if self.num_kv_heads != self.num_heads:
                k, v = self._for_each_head(k), self._for_each_head(v)
            noted = self.note_keys(keys, cache)
            if replaced.isdisjoint(_SCORE_STEPS) and not self._score_functions:
                weights = kernels.weights(q, k, allowed.matrix, self._scale_given)  # score and softmax, in less memory
            else:
                # scores have no name, so that their memory is free again, or used again, as soon as can be
                weights = self.softmax(self._scores(q, k, allowed.matrix, queries, noted), allowed.matrix)
            if "mix_weights" in replaced:
                weights = self._mixed("mix_weights", weights, queries, noted, allowed.matrix)
            if self._weight_functions:
                weights = changed_by(self._weight_functions, weights, allowed.matrix)
            outputs = self.average(weights, v)
        else:
            outputs, weights = self._fused(q, k, v, allowed), None
        del q, k, v
        outputs = self.gate(outputs, queries)
        if self._head_functions:
            outputs = changed_by(self._head_functions, outputs)
        return self.W_o(self.merge(outputs)), weights if need_weights else None

    if TYPE_CHECKING:
        __call__ = forward
    else:

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            """`forward`, after a look at what is given. A decorator would do, but torch.fx takes none."""
            if not _INPUTS.issuperset(kwargs) and "forward" not in self._replaced:
                refuse_other_names(kwargs, _INPUTS)
            if len(args) < 3 and "forward" not in self._replaced:
                require_three(len(args), kwargs)
            return super().__call__(*args, **kwargs)

    def project(self, queries: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q (B, h, Q, d), k (B, num_kv_heads, K, d) and v (B, num_kv_heads, K, value_dim)."""
        q = self.W_q(queries).unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2)
        k = self.W_k(keys).unflatten(-1, (self.num_kv_heads, self.head_dim)).transpose(1, 2)
        v = self.W_v(values).unflatten(-1, (self.num_kv_heads, self.value_dim)).transpose(1, 2)
        return q, k, v

    def project_apart(self, x: Tensor, place: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        """Tokens (B, n, D), whose positions `place` gives to vectors (B, ·, n, ·) -> queries (B, h, n, ·), and what
        `keys_and_values` makes keys and values of, (B, num_kv_heads or 1, n, ·): what processes send each other."""
        q, k, v = self.project(x, x, x)
        return place(q), torch.cat([place(k), v], -1)

    def keys_and_values(self, kept: Tensor, heads: range) -> tuple[Tensor, Tensor]:
        """What `project_apart` made, of any tokens -> the keys and values in it; latents give those of `heads`."""
        return kept[..., : self.head_dim], kept[..., self.head_dim :]

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
        return kernels.scores(q, k, self._scale_given)

    def added(self, num_queries: int, num_kvpairs: int) -> Tensor | None:
        """What is added to all examples' scores, broadcastable to (h, Q, K); `None` is nothing. Torch's fused kernel
        takes it, too."""
        return None

    def mix_scores(self, scores: Tensor, queries: Tensor, keys: Tensor, *, mask: Tensor | None = None) -> Tensor:
        """Scores (B, h, Q, K) -> scores. `queries` is the layer's input, `keys` what `note_keys` made of that.

        `mask` is boolean and broadcastable to (B, h, Q, K), or `None`. Scores that it hides are still in place: a step
        that takes scores of other queries or keys together must leave them out, or it reads what it may not see. A
        variant whose step has no argument `mask` is called without it.
        """
        return scores

    def softmax(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        """Scores (B, h, Q, K) -> weights, 0 where `mask` is False. May write over `scores`."""
        return kernels.softmax_(scores, mask)

    def mix_weights(self, weights: Tensor, queries: Tensor, keys: Tensor, *, mask: Tensor | None = None) -> Tensor:
        """Weights (B, h, Q, K) -> weights; arguments as in `mix_scores`. Set `rows_sum_to_one` to what is true of
        them."""
        return weights

    def average(self, weights: Tensor, v: Tensor) -> Tensor:
        """Weights (B, h, Q, K) and v (B, h, K, value_dim) -> what each head found, (B, h, Q, value_dim)."""
        if self.training and self.dropout:
            weights = F.dropout(weights, self.dropout)
        return weights @ kernels.in_rows(v)

    def gate(self, outputs: Tensor, queries: Tensor) -> Tensor:
        """What each head found, (B, h, Q, value_dim) -> the same, turned up or down. `queries` is the layer's input."""
        return outputs

    def merge(self, outputs: Tensor) -> Tensor:
        """(B, h, Q, value_dim) -> (B, Q, h * value_dim), what W_o reads."""
        return outputs.transpose(1, 2).flatten(2)

    def new_cache(self, max_tokens: int = 0) -> Cache:
        """An empty cache that fits the layer, with memory for `max_tokens` taken ahead."""
        return KeyValueCache(max_tokens)

    def _join_masks(
        self, queries: Tensor, num_kvpairs: int, valid_lens: Tensor | None, mask: Mask | None
    ) -> Mask | None:
        """One mask that allows what `valid_lens` and `mask` both allow; a symbolic one stays so as long as it can."""
        if mask is None and valid_lens is None:
            return None
        return join_masks(self, queries, num_kvpairs, valid_lens, mask)

    def _scores(self, q: Tensor, k: Tensor, mask: Tensor | None, queries: Tensor, keys: Tensor) -> Tensor:
        """q (B, h, Q, d) and k (B, h, K, d) -> scores (B, h, Q, K) as they enter the softmax."""
        scores = self._mixed("mix_scores", self._plus_added(self.score(q, k)), queries, keys, mask)
        if self._score_functions:
            self._show_scores(scores, mask)
            scores = scores.clone()  # the softmax may write over them, and somebody may have kept them
        return scores

    def _plus_added(self, scores: Tensor) -> Tensor:
        added = self.added(*scores.shape[-2:])
        return scores if added is None else scores + added.to(scores.dtype)

    def _mixed(self, step: str, x: Tensor, queries: Tensor, keys: Tensor, mask: Tensor | None) -> Tensor:
        """Scores or weights (B, h, Q, K), mixed by the step of that name, which is given the mask if it takes one."""
        mix = getattr(self, step)
        is_given_mask = takes_mask(mix) if step in self.__dict__ else step in self._given_masks
        return mix(x, queries, keys, mask=mask) if is_given_mask else mix(x, queries, keys)

    def _fused(self, q: Tensor, k: Tensor, v: Tensor, allowed: Allowed) -> Tensor:
        """What each head found, (B, h, Q, value_dim), by torch's kernel."""
        if self.num_kv_heads != self.num_heads and not self._has_equal_groups():
            k, v = self._for_each_head(k), self._for_each_head(v)
        dropout = self.dropout if self.training else 0.0
        if self._score_functions:  # beside the kernel, so that watching changes no number
            self._show_scores(self._plus_added(self.score(q, self._for_each_head(k))), allowed.matrix)
        added = self.added(q.shape[2], k.shape[2])
        if added is not None:
            return kernels.fused_with(q, k, v, added.to(q.dtype), allowed.matrix, dropout, self._scale_given)
        return kernels.fused(q, k, v, allowed.matrix, dropout, self._scale_given, allowed.is_causal)


_INPUTS = names_of_arguments(MultiHeadAttention.forward)
