"""Attention over a sequence that is split by tokens: heads as the unit of an exchange, and what each way sends."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.nn import functional as F

from .._validate import require_count, require_flag, require_kind, require_tensor
from ..attention import MultiHeadAttention
from ..variants import LatentAttention, QKNormAttention
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
    start, rank = over.get_local_rank() * x.shape[1], over.get_local_rank()
    if isinstance(layer, LatentAttention):
        q, k, v = _from_latents(layer, x, over, start, held[rank])
    else:
        q, k, v = layer.project(x, x, x)
        q, k = layer.place(q, start), layer.place(k, start)
        wanted = [key for place in held for key in place.kv_heads]  # a key that several need goes to each of them
        q, k, v = _to_heads(q, over), _to_heads(k[:, wanted], over), _to_heads(v[:, wanted], over)
    found = F.scaled_dot_product_attention(
        q, k, v, is_causal=causal, scale=layer.scale, enable_gqa=q.shape[1] != k.shape[1],
        dropout_p=layer.dropout if layer.training else 0.0,
    )  # fmt: skip
    return layer.W_o(layer.merge(_to_tokens(found, over)))  # type: ignore[no-any-return]


def _places(layer: MultiHeadAttention, num_ranks: int) -> list[Place]:
    """Which heads each process attends with; raises unless the layer is of a kind that can be exchanged."""
    require_kind("layer", layer, MultiHeadAttention)
    if type(layer) not in _KINDS:
        names = ", ".join(kind.__name__ for kind in _KINDS)
        raise ValueError(f"{type(layer).__name__} cannot be exchanged by heads: its steps are not those of {names}")
    if layer.is_split:
        raise ValueError("the layer is split over processes: heads are exchanged where each process has all weights")
    num_kv_heads = layer.num_heads if isinstance(layer, LatentAttention) else layer.num_kv_heads
    return places(layer.num_heads, num_kv_heads, num_ranks)


def _from_latents(
    layer: LatentAttention, x: Tensor, over: DeviceMesh, start: int, place: Place
) -> tuple[Tensor, Tensor, Tensor]:
    """x (B, N / G, D) -> q and k (B, h / G, N, d + r), v (B, h / G, N, value_dim) of the process's heads."""
    d, r, heads = layer.head_dim, layer.rotary_size, slice(place.heads.start, place.heads.stop)
    q = layer.W_q(x).unflatten(-1, (layer.num_heads, d + r)).transpose(1, 2)
    q = torch.cat([q[..., :d], layer.place(q[..., d:], start)], -1)
    kept = [layer.norm(layer.W_down(x))[:, None]]
    if layer.W_rotary is not None:
        kept.append(layer.place(layer.W_rotary(x)[:, None], start))
    to_all = torch.cat(kept, -1).expand(-1, over.size(), -1, -1)
    latent, turned = _to_heads(to_all, over).split([layer.latent_size, r], -1)  # (B, 1, N, ·)
    up_k = layer.W_up_k.weight.unflatten(0, (layer.num_heads, -1))[heads]
    up_v = layer.W_up_v.weight.unflatten(0, (layer.num_heads, -1))[heads]
    k = torch.cat([latent @ up_k.mT, turned.expand(-1, len(place.heads), -1, -1)], -1)
    return _to_heads(q, over), k, latent @ up_v.mT


def _to_heads(x: Tensor, over: DeviceMesh) -> Tensor:
    """(B, h, N / G, d) -> (B, h / G, N, d): all tokens of the process's own heads."""
    sent = torch.stack(x.chunk(over.size(), 1))  # (G, B, h / G, N / G, d)
    return _Exchange.apply(sent, over).permute(1, 2, 0, 3, 4).flatten(2, 3)  # type: ignore[no-any-return]


def _to_tokens(x: Tensor, over: DeviceMesh) -> Tensor:
    """(B, h / G, N, d) -> (B, h, N / G, d): all heads of the process's own tokens."""
    sent = torch.stack(x.chunk(over.size(), 2))  # (G, B, h / G, N / G, d)
    return _Exchange.apply(sent, over).transpose(0, 1).flatten(1, 2)  # type: ignore[no-any-return]


class _Exchange(torch.autograd.Function):
    """An all-to-all: (G, ...) -> (G, ...), where process r sends its part s to process s, which has it as its part r.
    A gradient goes the same way back."""

    @staticmethod
    def forward(ctx: Any, sent: Tensor, over: DeviceMesh) -> Tensor:
        ctx.over = over
        return _exchanged(sent, over)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return _exchanged(grads[0], ctx.over), None


def _exchanged(sent: Tensor, over: DeviceMesh) -> Tensor:
    sent = sent.contiguous()
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent, group=over.get_group())
    return received


class Sent(NamedTuple):
    """How many numbers one process sends in a forward pass of a layer: split by `heads`, with the keys in a `ring`, or
    with heads exchanged, as `ulysses` does."""

    heads: int
    ring: int
    ulysses: int


def numbers_sent(layer: MultiHeadAttention, num_tokens: int, num_ranks: int) -> Sent:
    """What each of G processes sends for N tokens, in three ways to split a layer.

    - Split by heads, an all-reduce of the output in a ring: 2 (G - 1) / G · N D.
    - In a ring, its keys and values, or its latents, G - 1 times: (G - 1) · N / G · 2 g d.
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
