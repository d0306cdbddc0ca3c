"""What attention costs: parameters, operations, memory of scores and caches, as functions of sizes and of a layer.

A multiplication and its addition count as two operations. Softmax, scaling and masks are left out: they are a few
operations for each score, where scores and averages take 4 d. Formulas are for self-attention without biases unless
they say otherwise.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from . import variants
from ._validate import require_count, require_divisible, require_kind
from .attention import MultiHeadAttention, make_attention


class Sizes(NamedTuple):
    """The sizes that costs depend on.

    num_hiddens: D.
    num_heads: h.
    num_kv_heads: heads with keys and values of their own; `None` means h.
    head_dim: d; `None` means D / h.
    """

    num_hiddens: int
    num_heads: int
    num_kv_heads: int | None = None
    head_dim: int | None = None

    @property
    def widths(self) -> tuple[int, int]:
        """How wide all queries of a token are together, h d, and all its keys, num_kv_heads d.

        Raises:
            TypeError, ValueError: a size is not a positive integer, or one does not divide the other.
        """
        for name in ("num_hiddens", "num_heads"):
            require_count(name, getattr(self, name))
        if self.head_dim is None:
            require_divisible("num_hiddens", self.num_hiddens, self.num_heads)
        d = self.num_hiddens // self.num_heads if self.head_dim is None else self.head_dim
        shared = self.num_heads if self.num_kv_heads is None else self.num_kv_heads
        require_count("head_dim", d)
        require_count("num_kv_heads", shared)
        if self.num_heads % shared:
            raise ValueError(f"num_heads={self.num_heads} is not divisible by num_kv_heads={shared}")
        return int(self.num_heads) * int(d), int(shared) * int(d)  # an integer of numpy's would overflow


def parameters(sizes: Sizes, *, bias: bool = False) -> int:
    """Weights of W_q, W_k, W_v, W_o: 2 D h d + 2 D g d, with g = `num_kv_heads`; biases are h d + 2 g d + D more."""
    require_kind("sizes", sizes, Sizes)
    (wide, shared), D = sizes.widths, int(sizes.num_hiddens)
    return 2 * D * (wide + shared) + (wide + 2 * shared + D if bias else 0)


def pair_flops(sizes: Sizes, num_tokens: int, batch_size: int = 1) -> int:
    """Operations of scores and averages, where every token meets every token: 4 N² h d for each example."""
    require_kind("sizes", sizes, Sizes)
    _require(num_tokens=num_tokens, batch_size=batch_size)
    return int(batch_size) * 4 * int(num_tokens) ** 2 * sizes.widths[0]


def flops(sizes: Sizes, num_tokens: int, batch_size: int = 1) -> int:
    """Operations of a forward pass: 2 N for each weight of the projections, and `pair_flops`, for each example."""
    _require(num_tokens=num_tokens, batch_size=batch_size)
    return int(batch_size) * 2 * int(num_tokens) * parameters(sizes) + pair_flops(sizes, num_tokens, batch_size)


def score_bytes(sizes: Sizes, num_tokens: int, batch_size: int = 1, bytes_per_number: int = 4) -> int:
    """Memory of the scores, where they are stored: B h N² numbers."""
    require_kind("sizes", sizes, Sizes)
    _require(num_tokens=num_tokens, batch_size=batch_size, bytes_per_number=bytes_per_number)
    require_count("num_heads", sizes.num_heads)
    return int(batch_size) * int(sizes.num_heads) * int(num_tokens) ** 2 * int(bytes_per_number)


def cache_bytes(sizes: Sizes, num_tokens: int, batch_size: int = 1, bytes_per_number: int = 4) -> int:
    """Memory of the keys and values that one layer keeps for writing on: 2 B N g d numbers."""
    require_kind("sizes", sizes, Sizes)
    _require(num_tokens=num_tokens, batch_size=batch_size, bytes_per_number=bytes_per_number)
    return 2 * int(batch_size) * int(num_tokens) * sizes.widths[1] * int(bytes_per_number)


class Costs(NamedTuple):
    """What a layer has and one pass took: its weights, its operations, and what a cache would keep."""

    parameters: int
    flops: int
    cache_bytes: int


@torch.no_grad()
def measured(layer: MultiHeadAttention, x: Tensor) -> Costs:
    """The costs of a layer, a variant too, counted while it attends from `x` (B, N, D) to itself.

    Operations are those that torch's `FlopCounterMode` knows: products of matrices, in the layer and its kernels. A
    layer that keeps a state makes no weights here, which would cost it the square of N.
    """
    cache = layer.new_cache()
    with FlopCounterMode(display=False) as counter:
        layer(x, x, x, need_weights=not layer.keeps_state, cache=cache)
    return Costs(sum(part.numel() for part in layer.parameters()), counter.get_total_flops(), cache.num_bytes)


class Parts(NamedTuple):
    """What the costs of a layer without biases are sums of, in self-attention.

    each_token: weights that a token is multiplied by; each is an addition and a multiplication for each token. Of a
        kind that is counted and has no formula: all additions and multiplications for each token.
    others: weights of which that is not true, so that both together are the layer's weights; below 0 where a counted
        kind multiplies more than its weights.
    each_pair: additions and multiplications for each query and key, of all heads.
    cached: numbers that a cache keeps of each token.
    state: numbers that it keeps of all tokens together, in float32 at least.
    """

    each_token: int
    others: int
    each_pair: int
    cached: int
    state: int = 0

    def flops(self, num_tokens: int, batch_size: int = 1) -> int:
        """Operations of a forward pass: 2 N for each weight that a token meets, and 2 N² for each pair's."""
        return batch_size * (2 * num_tokens * self.each_token + 2 * num_tokens**2 * self.each_pair)


def variant_parts(choice: str | Mapping[str, Any], num_hiddens: int, num_heads: int) -> Parts:
    """The parts of which the costs of multi-head attention or a variant are made.

    The book's variants have formulas. Of any other kind, the operations and the cache of two short texts are counted
    on torch's meta device, where nothing is computed, and a third text must agree: see `counted_parts`.

    Args:
        choice: the layer's name, or a mapping with its name and settings, as in `make_attention`.
        num_hiddens: D.
        num_heads: h.

    Raises:
        TypeError, ValueError: the layer refuses its settings, has biases or inputs of several widths, or has no formula
            and cannot be counted.
    """
    return parts_of(_described(choice, num_hiddens, num_heads))


def parts_of(layer: MultiHeadAttention) -> Parts:
    """As `variant_parts`, of a layer; its biases are left out. Raises as `counted_parts`."""
    formula = _FORMULAS.get(type(layer))
    return counted_parts(layer) if formula is None else formula(layer)


def counted_parts(layer: MultiHeadAttention) -> Parts:
    """The parts of any layer that attends from tokens to themselves, without a formula.

    Operations of N tokens must be 2 a N + 2 b N². Two numbers of tokens give a and b, and a third one must agree: 16,
    32 and 64, or one, two and four chunks of a layer that has a `chunk_size`. The layer runs as a copy on torch's meta
    device, where tensors have shapes and no numbers.

    Raises:
        TypeError: `layer` is no `MultiHeadAttention`.
        ValueError: it cannot run without numbers, or its operations or its cache are no such sums.
    """
    require_kind("layer", layer, MultiHeadAttention)
    name = type(layer).__name__
    layer = copy.deepcopy(layer).to("meta").eval()
    first = getattr(layer, "chunk_size", 16)
    told = (first, 2 * first, 4 * first)
    try:
        (one, cached), (two, cached_of_two), (four, last) = (_counted(layer, num_tokens) for num_tokens in told)
    except (RuntimeError, NotImplementedError) as error:  # something looks at numbers
        raise ValueError(f"{name} has no formula, and cannot be counted without numbers: {error}") from error
    pair, rest = divmod(two - 2 * one, 4 * first**2)
    each_token = one // (2 * first) - first * pair
    of_token = (cached_of_two - cached) // first
    weights = sum(part.numel() for part in layer.parameters())
    parts = Parts(each_token, weights - each_token, pair, of_token, cached - first * of_token)
    if rest or [parts.flops(n) for n in told] != [one, two, four] or last != told[2] * of_token + parts.state:
        raise ValueError(
            f"{name} has no formula, and what it takes is no sum of tokens and pairs: {one}, {two} and {four} "
            f"operations for {told[0]}, {told[1]} and {told[2]} tokens, and {cached} and {last} numbers in the cache "
            f"for {told[0]} and {told[2]}"
        )
    return parts


def _counted(layer: MultiHeadAttention, num_tokens: int) -> tuple[int, int]:
    """Operations of a layer on the meta device, and the numbers that its cache holds then."""
    weight, cache = layer.W_o.weight, layer.new_cache()
    x = torch.empty(1, num_tokens, layer.num_hiddens, device="meta", dtype=weight.dtype)
    with torch.device("meta"), torch.no_grad(), FlopCounterMode(display=False) as counter:
        layer(x, x, x, need_weights=not layer.keeps_state, cache=cache)
    return counter.get_total_flops(), cache.num_bytes // weight.itemsize


def variant_costs(
    choice: str | Mapping[str, Any],
    num_hiddens: int,
    num_heads: int,
    num_tokens: int,
    batch_size: int = 1,
    bytes_per_number: int = 4,
) -> Costs:
    """What `measured` finds, of a layer that is not made: by formulas, or by counting, as in `variant_parts`.

    Only sums of one term are counted here and not by torch: of talking heads with h = 1, of composed ones with rank 1.

    Args:
        choice, num_hiddens, num_heads: as in `variant_parts`.
        num_tokens: N.
        batch_size: B.
        bytes_per_number: of what is cached.

    Raises:
        TypeError, ValueError: as `variant_parts`; a size is not a positive integer.
    """
    _require(num_tokens=num_tokens, batch_size=batch_size, bytes_per_number=bytes_per_number)
    parts = variant_parts(choice, num_hiddens, num_heads)
    cached = num_tokens * parts.cached * bytes_per_number + parts.state * max(4, bytes_per_number)
    cached *= batch_size
    return Costs(parts.each_token + parts.others, parts.flops(num_tokens, batch_size), cached)


def chosen_flops(
    choice: Mapping[str, Any], num_hiddens: int, num_heads: int, num_tokens: int, batch_size: int = 1
) -> int:
    """Operations of a mixture of heads if those that a token did not choose were skipped, which the layer does not do.

    Skipped are a head's query, scores, average and columns of W_o; its keys and values are there for other tokens.

    Args:
        choice, num_hiddens, num_heads, num_tokens, batch_size: as in `variant_costs`.

    Raises:
        TypeError, ValueError: as `variant_costs`; the layer is no mixture of heads.
    """
    _require(num_tokens=num_tokens, batch_size=batch_size)
    layer = _described(choice, num_hiddens, num_heads)
    if not isinstance(layer, variants.MixtureOfHeads):
        raise ValueError(f"choice={choice!r:.80} is no mixture of heads: nobody chooses")
    every, off = _mixture(layer), layer.num_heads - layer.num_shared - layer.num_chosen
    skipped = off * (layer.head_dim + layer.value_dim)
    kept = every._replace(
        each_token=every.each_token - layer.num_hiddens * skipped, each_pair=every.each_pair - skipped
    )
    return kept.flops(num_tokens, batch_size)


def _described(choice: str | Mapping[str, Any], num_hiddens: int, num_heads: int) -> MultiHeadAttention:
    """The layer, with all its sizes and no memory."""
    with torch.device("meta"):
        layer = make_attention(choice, num_hiddens, num_heads)
    if not {"W_q.bias", "W_o.bias"}.isdisjoint(dict(layer.named_parameters())):
        raise ValueError(f"choice={choice!r:.80} has biases, which the formulas leave out")
    if {layer.query_size, layer.key_size, layer.value_size} != {layer.num_hiddens}:
        raise ValueError(f"choice={choice!r:.80} has inputs of several widths, and the formulas are for one")
    return layer


def _multi_head(layer: MultiHeadAttention) -> Parts:
    D, h, g, d, e = layer.num_hiddens, layer.num_heads, layer.num_kv_heads, layer.head_dim, layer.value_dim
    return Parts(D * (h * d + g * (d + e) + h * e), 0, h * (d + e), g * (d + e))


def _latent(layer: variants.LatentAttention) -> Parts:
    D, h, d, e = layer.num_hiddens, layer.num_heads, layer.head_dim, layer.value_dim
    c, r = layer.latent_size, layer.rotary_size
    wide, narrow = h * (d + r), layer.query_latent_size
    queries = narrow * (D + wide) if narrow else D * wide
    pair = h * (c + r + c) if layer.absorbed else h * (d + r + e)
    return Parts(queries + D * (c + r) + c * h * (d + e) + h * e * D, c + narrow, pair, c + r)


def _talking(layer: variants.TalkingHeads) -> Parts:
    plain, between = _multi_head(layer), 2 * layer.num_heads**2
    biases = 0 if layer.mix_bias is None else layer.num_heads
    return plain._replace(others=between + biases, each_pair=plain.each_pair + between)


def _collaborative(layer: variants.CollaborativeAttention) -> Parts:
    D, h, shared, values = layer.num_hiddens, layer.num_heads, layer.shared_size, layer.num_heads * layer.value_dim
    return Parts(2 * D * (shared + values), h * shared, h * shared + values, shared + values)


def _overlapping(layer: variants.OverlappingAttention) -> Parts:
    D, own, wide = layer.num_hiddens, layer.num_heads * layer.head_dim, layer.num_heads * layer.value_dim
    return Parts(D * (3 * own + wide), 0, 2 * wide, 2 * wide)


def _mixture(layer: variants.MixtureOfHeads) -> Parts:
    both = 0 < layer.num_shared < layer.num_heads
    plain, routers = _multi_head(layer), layer.num_hiddens * (layer.num_heads + 2 * both)
    if layer.router == "query norm":  # queries are made once more
        again = layer.num_hiddens * layer.num_heads * layer.head_dim * (layer.num_shared < layer.num_heads)
        return plain._replace(each_token=plain.each_token + again, others=-again)
    return plain._replace(each_token=plain.each_token + routers)


def _composed(layer: variants.ComposedAttention) -> Parts:
    D, h, hidden = layer.num_hiddens, layer.num_heads, 2 * layer.rank * layer.num_heads
    plain, places = _multi_head(layer), 4 if layer.by_keys else 2
    static = 0 if layer.S_before is None else 2 * h**2
    return Parts(
        plain.each_token + places * (D * hidden + hidden**2 + D * h),
        static,
        plain.each_pair + places * hidden + static,
        plain.cached + (2 * (hidden + h) if layer.by_keys else 0),
    )


def _differential(layer: variants.DifferentialAttention) -> Parts:
    D, h, g, d = layer.num_hiddens, layer.num_heads, layer.num_kv_heads, layer.head_dim
    norm = 0 if layer.norm is None else 2 * d
    return Parts(4 * D * d * (h + g), 4 * d + norm, 4 * h * d, 4 * g * d)


def _gated(layer: variants.GatedAttention) -> Parts:
    plain = _multi_head(layer)
    gates = layer.num_heads * (layer.value_dim if layer.per_channel else 1)
    return plain._replace(each_token=plain.each_token + layer.num_hiddens * gates)


def _normed(layer: variants.QKNormAttention) -> Parts:
    plain, width = _multi_head(layer), layer.head_dim
    return plain._replace(others=width * (layer.num_heads + layer.num_kv_heads if layer.together else 2))


def _relative(layer: variants.RelativeAttention) -> Parts:
    plain = _multi_head(layer)
    return plain._replace(others=layer.num_buckets * layer.num_heads)


_FORMULAS: dict[type[MultiHeadAttention], Callable[[Any], Parts]] = {
    MultiHeadAttention: _multi_head,
    variants.LatentAttention: _latent,
    variants.TalkingHeads: _talking,
    variants.CollaborativeAttention: _collaborative,
    variants.OverlappingAttention: _overlapping,
    variants.MixtureOfHeads: _mixture,
    variants.ComposedAttention: _composed,
    variants.DifferentialAttention: _differential,
    variants.GatedAttention: _gated,
    variants.QKNormAttention: _normed,
    variants.RelativeAttention: _relative,
    variants.SinkAttention: lambda layer: _multi_head(layer)._replace(others=layer.num_heads),
    variants.SoftCapAttention: _multi_head,
}


def _require(**sizes: int) -> None:
    for name, size in sizes.items():
        require_count(name, size)
