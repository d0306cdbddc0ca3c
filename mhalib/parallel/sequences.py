"""Attention over tokens that are split over processes: heads exchanged for tokens, keys in a ring, what each sends."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.nn import functional as F

from .._validate import require_count, require_flag, require_kind, require_tensor
from ..attention import MultiHeadAttention, causal_mask
from ..variants import LatentAttention, QKNormAttention
from .exchanges import exchanged, from_left
from .plans import Place, places

_KINDS = (MultiHeadAttention, QKNormAttention, LatentAttention)


def ulysses(layer: MultiHeadAttention, x: Tensor, over: DeviceMesh, *, causal: bool = False) -> Tensor:
    """What a layer makes of a sequence whose tokens are split over processes, each of which has the whole layer.

    Each process projects its own tokens. One exchange gives it the queries, keys and values of all tokens for its own
    heads, and it attends there; a second one brings the averages back to the processes of their tokens, where W_o reads
    them. Where there are fewer keys than processes, a key goes to every process that has a head of its group. Latent
    attention sends each token's latent to all processes, which make their own heads' keys and values.

    Gradients flow through both exchanges. That of a weight is of the process's own tokens: sum them over processes.

    Args:
        layer: multi-head attention, QK-norm or latent attention, whole, with the same weights everywhere.
        x: (B, N / G, D), this process's tokens, neighbours; process r has those from r N / G on.
        over: a mesh with one axis, G processes, see `mesh`.
        causal: whether tokens see only themselves and tokens before them.

    Returns:
        (B, N / G, D), the layer's output for these tokens.

    Raises:
        TypeError, ValueError: the layer is of another kind or split already, or its heads cannot be dealt out evenly,
            see `places`.

    Source: Jacobs et al. 2023, DeepSpeed Ulysses: two exchanges in a layer, heads as their unit.
    """
    held = _places(layer, over.size())
    require_tensor("x", x, rank=3)
    require_flag("causal", causal)
    rank = over.get_local_rank()

    def place(vectors: Tensor) -> Tensor:
        return layer.place(vectors, rank * x.shape[1])

    q, kept = layer.project_apart(x, place)
    of_a_key = layer.num_kv_heads // kept.shape[1]  # 1, or a latent is of all
    wanted = [one for process in held for one in dict.fromkeys(key // of_a_key for key in process.kv_heads)]
    q, kept = _to_heads(q, over), _to_heads(kept[:, wanted], over)  # what several need goes to each of them
    k, v = layer.keys_and_values(kept, held[rank].heads)
    found = F.scaled_dot_product_attention(
        q, k, v, is_causal=causal, scale=layer.scale, enable_gqa=q.shape[1] != k.shape[1],
        dropout_p=layer.dropout if layer.training else 0.0,
    )  # fmt: skip
    return layer.W_o(layer.merge(_to_tokens(found, over)))  # type: ignore[no-any-return]


def zigzag(num_tokens: int, num_ranks: int) -> Tensor:
    """Which tokens each process has in a `ring`: of 2 G pieces of the text, process r has pieces r and 2 G - 1 - r.

    Under a causal mask late tokens see more keys than early ones. With one piece from each end every process has the
    same work, at every step of the ring.

    Returns:
        (G, N / G), the places of each process's tokens, in order.

    Raises:
        TypeError, ValueError: a size is no positive integer, or 2 G does not divide N.

    Source: Llama Team 2024, The Llama 3 Herd of Models, section 3.3.2; torch's `context_parallel` does the same.
    """
    require_count("num_tokens", num_tokens)
    require_count("num_ranks", num_ranks)
    if num_tokens % (2 * num_ranks):
        raise ValueError(f"num_tokens={num_tokens} cannot be cut into {2 * num_ranks} equal pieces, two a process")
    pieces = torch.arange(num_tokens).view(2 * num_ranks, -1)
    return torch.cat([pieces[:num_ranks], pieces[num_ranks:].flip(0)], 1)


def ring(layer: MultiHeadAttention, x: Tensor, over: DeviceMesh, *, causal: bool = False) -> Tensor:
    """What a layer makes of a sequence whose tokens are split over processes, while keys and values go round a ring.

    Each process projects its own tokens, attends to their keys, and hands keys and values to its right neighbour,
    G - 1 times; latent attention hands on latents. Averages over some keys are put together by their sums of
    exponentials, as in an online softmax. With `causal`, blocks that the mask hides wholly are not computed.

    Gradients flow back round the ring. That of a weight is of the process's own tokens: sum them over processes. What
    each step computed is kept for the backward pass, so this shows the exchange; it does not save memory.

    Args:
        layer: as in `ulysses`.
        x: (B, N / G, D), this process's tokens, those of `zigzag(N, G)[r]`.
        over: a mesh with one axis, G processes, see `mesh`.
        causal: whether tokens see only themselves and tokens before them.

    Returns:
        (B, N / G, D), the layer's output for these tokens.

    Raises:
        TypeError, ValueError: the layer is of another kind or split already, or x has an odd number of tokens.

    Source: Liu et al. 2023, Ring Attention with Blockwise Transformers.
    """
    _require_kind(layer)
    require_tensor("x", x, rank=3)
    require_flag("causal", causal)
    if x.shape[1] % 2:
        raise ValueError(f"x has {x.shape[1]} tokens, and must have two pieces of the same length, see `zigzag`")
    n, rank, length, h = over.size(), over.get_local_rank(), x.shape[1] // 2, layer.num_heads
    own = _pieces(rank, n)

    def place(vectors: Tensor) -> Tensor:
        early, late = vectors.split(length, -2)
        return torch.cat([layer.place(early, own[0] * length), layer.place(late, own[1] * length)], -2)

    q, moving = layer.project_apart(x, place)
    found: dict[int, _Partial] = {}
    for step in range(n):
        if step:
            moving = from_left(moving, over)
        k, v = (one.repeat_interleave(h // one.shape[1], 1) for one in layer.keys_and_values(moving, range(h)))
        theirs = _pieces((rank - step) % n, n)
        for piece, queries in zip(own, q.split(length, 2), strict=True):
            for other, keys, values in zip(theirs, k.split(length, 2), v.split(length, 2), strict=True):
                if causal and other > piece:
                    continue
                new = _partial(layer, queries, keys, values, causal and other == piece)
                found[piece] = found[piece].joined(new) if piece in found else new
    averages = torch.cat([found[piece].average for piece in own], 2)
    return layer.W_o(layer.merge(averages))  # type: ignore[no-any-return]


def _pieces(rank: int, num_ranks: int) -> tuple[int, int]:
    """Which pieces of the text a process has in a `zigzag`."""
    return rank, 2 * num_ranks - 1 - rank


class _Partial(NamedTuple):
    """Attention to some of the keys: averages (B, h, n, value_dim), and ln of the sum of exponentials (B, h, n, 1)."""

    average: Tensor
    total: Tensor

    def joined(self, other: _Partial) -> _Partial:
        """Attention to both keys."""
        total = torch.logaddexp(self.total, other.total)
        average = (self.total - total).exp() * self.average + (other.total - total).exp() * other.average
        return _Partial(average, total)


def _partial(layer: MultiHeadAttention, q: Tensor, k: Tensor, v: Tensor, is_causal: bool) -> _Partial:
    scores = layer.score(q, k)
    if is_causal:
        scores = scores.masked_fill(~causal_mask(q.shape[2], device=q.device), -torch.inf)
    total = scores.logsumexp(-1, keepdim=True)
    weights = F.dropout((scores - total).exp(), layer.dropout, layer.training)
    return _Partial(weights @ v, total)


def _require_kind(layer: MultiHeadAttention) -> None:
    """Raises unless the layer is whole, and of a kind whose queries, keys and values can be sent."""
    require_kind("layer", layer, MultiHeadAttention)
    if type(layer) not in _KINDS:
        names = ", ".join(kind.__name__ for kind in _KINDS)
        raise ValueError(f"{type(layer).__name__} cannot be exchanged by heads: its steps are not those of {names}")
    if layer.is_split:
        raise ValueError("the layer is split over processes: heads are exchanged where each process has all weights")


def _places(layer: MultiHeadAttention, num_ranks: int) -> list[Place]:
    """Which heads each process attends with; raises unless the layer is of a kind that can be exchanged."""
    _require_kind(layer)
    return places(layer.num_heads, layer.num_kv_heads, num_ranks)


def _to_heads(x: Tensor, over: DeviceMesh) -> Tensor:
    """(B, h, N / G, d) -> (B, h / G, N, d): all tokens of the process's own heads."""
    sent = torch.stack(x.chunk(over.size(), 1))  # (G, B, h / G, N / G, d)
    return exchanged(sent, over).permute(1, 2, 0, 3, 4).flatten(2, 3)


def _to_tokens(x: Tensor, over: DeviceMesh) -> Tensor:
    """(B, h / G, N, d) -> (B, h, N / G, d): all heads of the process's own tokens."""
    sent = torch.stack(x.chunk(over.size(), 2))  # (G, B, h / G, N / G, d)
    return exchanged(sent, over).transpose(0, 1).flatten(1, 2)


class Sent(NamedTuple):
    """How many numbers one process sends in a forward pass of a layer: split by `heads`, with the keys in a `ring`, or
    with heads exchanged, as `ulysses` does."""

    heads: int
    ring: int
    ulysses: int


def numbers_sent(layer: MultiHeadAttention, num_tokens: int, num_ranks: int) -> Sent:
    """What each of G processes sends for N tokens, in three ways to split a layer.

    - Split by heads, an all-reduce of the output in a ring: 2 (G - 1) / G · N D.
    - In a `ring`, its keys and values, or its latents, G - 1 times: (G - 1) · N / G · 2 g d.
    - Exchanged: of its N / G tokens, queries and averages of the other processes' heads, (G - 1) / G of h d each, and
      for each other process the keys and values, or the latents, that its heads need.

    Args:
        layer: as in `ulysses`; its weights are not looked at.
        num_tokens: N, which G divides; of all examples.
        num_ranks: G.

    Raises:
        TypeError, ValueError: as in `ulysses`, or G does not divide N.

    Sources: Shoeybi et al. 2019; Liu et al. 2023; Jacobs et al. 2023.
    """
    require_count("num_tokens", num_tokens)
    place = _places(layer, num_ranks)[0]
    if num_tokens % num_ranks:
        raise ValueError(f"num_tokens={num_tokens} cannot be split evenly over {num_ranks} processes")
    own, others, mine = num_tokens // num_ranks, num_ranks - 1, len(place.heads)
    both = layer.head_dim + layer.value_dim
    kept, wanted, queries = layer.num_kv_heads * both, len(place.kv_heads) * both, layer.head_dim
    if isinstance(layer, LatentAttention):
        kept = wanted = layer.latent_size + layer.rotary_size
        queries += layer.rotary_size
    return Sent(
        heads=2 * others * own * layer.num_hiddens,
        ring=others * own * kept,
        ulysses=others * own * (mine * (queries + layer.value_dim) + wanted),
    )
