"""Collaborative heads: all share the projections of queries and keys, and each weighs their channels."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from .._validate import require_choice, require_count, require_kind
from ..attention import Cache, HeadSlices, MultiHeadAttention, register
from ..attention.functional import _split_heads
from ._settings import plain, refuse, sizes_of


@register("collaborative")
class CollaborativeAttention(MultiHeadAttention):
    """Head i compares (x W_q) * mixing[i] with x W_k, where W_q and W_k are the same for all heads.

    Values are as in multi-head attention. With `bias`, what a bias of the queries would do is a number for each key
    and head, `content_bias`, which is added before scaling; a bias of the keys would do nothing.

    Args:
        num_hiddens, num_heads, dropout, bias: as in `MultiHeadAttention`.
        shared_size: D~, width of the shared projections; `None` means h * d, as wide as those of multi-head attention.
        init: of `mixing`: "block" gives each head channels of its own, so that with shared_size = h * d the layer is
            multi-head attention; "normal" mixes all, with the authors' deviation 0.2.
        settings: as in `MultiHeadAttention`, but for `num_kv_heads`. Rotary positions turn the shared channels.

    Raises:
        TypeError, ValueError: an argument is not of this kind.

    Source: Cordonnier, Loukas and Jaggi 2020, Multi-head attention: collaborate instead of concatenate. Scores are
    scaled by 1/√d, as in the authors' DeiT and fairseq; their own package divides by √(D~/h), so that a smaller D~
    changes the temperature, too: `scale` sets that.
    """

    content_bias: nn.Linear | None

    def __init__(
        self,
        num_hiddens: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = False,
        *,
        shared_size: int | None = None,
        init: str = "block",
        **settings: Any,
    ) -> None:
        refuse(settings, "collaborative heads share their keys", num_kv_heads=None)
        super().__init__(num_hiddens, num_heads, dropout, bias, **settings)
        shared_size = self.num_heads * self.head_dim if shared_size is None else shared_size
        require_count("shared_size", shared_size)
        require_choice("init", init, ("block", "normal"))
        if self.positions is not None and shared_size % 2:
            raise ValueError(f"rotary positions need an even shared_size, got {shared_size}")
        self.shared_size = int(shared_size)
        self._scale_given = self.scale
        self.W_q = nn.Linear(self.query_size, self.shared_size, bias=False)
        self.W_k = nn.Linear(self.key_size, self.shared_size, bias=False)
        blocks = _blocks(self.num_heads, self.shared_size)
        self.mixing = nn.Parameter(blocks if init == "block" else 0.2 * torch.randn_like(blocks))
        self.content_bias = nn.Linear(self.key_size, self.num_heads, bias=False) if bias else None

    def project(self, queries: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q (B, h, Q, D~), k (B, 1, K, D~) and v (B, h, K, value_dim)."""
        q, k = self.W_q(queries)[:, None] * self.mixing[:, None], self.W_k(keys)[:, None]
        return q, k, _split_heads(self.W_v(values), self.num_heads, self.value_dim)

    def project_with_cache(
        self, queries: Tensor, keys: Tensor, values: Tensor, cache: Cache | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """As in `MultiHeadAttention`; the content bias is h more channels of k, of which each head's q picks one."""
        q, k, v = self.project(queries, keys, values)
        start = 0 if cache is None else len(cache)
        q, k = self.place(q, start), self.place(k, start)
        if self.content_bias is not None:
            own = torch.eye(self.num_heads, dtype=q.dtype, device=q.device)[:, None]
            q = torch.cat([q, own.expand(len(q), -1, q.shape[2], -1)], -1)
            k = torch.cat([k, self.content_bias(keys)[:, None].to(k.dtype)], -1)
        if cache is not None:
            k, v = cache.append(k, v)
        return q, k.expand(-1, self.num_heads, -1, -1), v

    def head_slices(self, head: int) -> HeadSlices:
        """As in `MultiHeadAttention`; the rows of W_q and W_k are all heads' own."""
        whole = slice(0, self.shared_size)
        return super().head_slices(head)._replace(q=whole, k=whole)

    @classmethod
    def from_multi_head(cls, layer: MultiHeadAttention) -> CollaborativeAttention:
        """The same function as `layer`, with shared_size = h * d; `compress` narrows it.

        Raises:
            TypeError: `layer` is no `MultiHeadAttention`, or a variant.
            ValueError: it has rotary positions, or its heads share keys.
        """
        plain(layer, rotary=False, grouped=False)
        new = cls(**sizes_of(layer)).to(layer.W_o.weight)
        with torch.no_grad():
            new.W_q.weight.copy_(layer.W_q.weight)
            new.W_k.weight.copy_(layer.W_k.weight)
            new.W_v.load_state_dict(layer.W_v.state_dict())
            new.W_o.load_state_dict(layer.W_o.state_dict())
            if new.content_bias is not None:
                rows = layer.W_k.weight.unflatten(0, (layer.num_heads, layer.head_dim))
                bias = layer.W_q.bias.unflatten(0, (layer.num_heads, layer.head_dim))
                new.content_bias.weight.copy_(torch.einsum("hdi,hd->hi", rows, bias))
        return new.train(layer.training)


def compress(layer: CollaborativeAttention, shared_size: int, *, num_rounds: int = 200) -> CollaborativeAttention:
    """A layer with a narrower W_q and W_k whose scores are as near as can be: what the heads compare is written as a
    sum of `shared_size` terms, a canonical polyadic decomposition of the tensor (h, query_size, key_size) with the
    matrices W_qᵀ diag(mixing[i]) W_k. Needs the package tensorly.

    Args:
        layer: from `CollaborativeAttention.from_multi_head`, say.
        shared_size: D~ of the new layer.
        num_rounds: of alternating least squares, at most.

    Raises:
        TypeError, ValueError: an argument is not of this kind, D~ would grow, or the layer has rotary positions.
        ImportError: there is no tensorly.

    Source: Cordonnier et al. 2020, section 4.3, whose package calls tensorly, too.
    """
    require_kind("layer", layer, CollaborativeAttention)
    require_count("shared_size", shared_size)
    require_count("num_rounds", num_rounds)
    if shared_size > layer.shared_size:
        raise ValueError(f"shared_size={shared_size}, but the layer has {layer.shared_size}")
    if layer.positions is not None:
        raise ValueError("layer has rotary positions, which the sum of terms cannot keep")
    try:
        import tensorly
        from tensorly.decomposition import parafac
    except ImportError as error:
        raise ImportError("to compress a layer takes tensorly: pip install tensorly") from error
    with torch.no_grad(), tensorly.backend_context("pytorch"):
        q, k = layer.W_q.weight.double().cpu(), layer.W_k.weight.double().cpu()
        compared = torch.einsum("hr,ri,rj->hij", layer.mixing.double().cpu(), q, k)
        _, (mixing, left, right) = parafac(
            compared, shared_size, n_iter_max=num_rounds, init="random", normalize_factors=False, random_state=0
        )
        sizes = mixing.norm(dim=0), left.norm(dim=0), right.norm(dim=0)
        even = (sizes[0] * sizes[1] * sizes[2]) ** (1 / 3)  # the three share what a term's length is
        new = type(layer)(**sizes_of(layer), shared_size=shared_size).to(layer.W_o.weight)
        narrowed = ("W_q.weight", "W_k.weight", "mixing")
        kept = {name: part for name, part in layer.state_dict().items() if name not in narrowed}
        new.load_state_dict(kept, strict=False)
        for target, factor, size in (
            (new.mixing, mixing, sizes[0]),
            (new.W_q.weight, left, sizes[1]),
            (new.W_k.weight, right, sizes[2]),
        ):
            part = factor / size.clamp_min(1e-30) * even
            target.copy_(part if target is new.mixing else part.T)
    return new.train(layer.training)


def _blocks(num_heads: int, shared_size: int) -> Tensor:
    """(h, D~): ones where a channel belongs to a head; the last heads get fewer where it does not come out even."""
    width = math.ceil(shared_size / num_heads)
    return (torch.arange(shared_size) // width == torch.arange(num_heads)[:, None]).to(torch.get_default_dtype())
