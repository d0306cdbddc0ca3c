"""Latent attention: keys and values of all heads are made from one narrow vector per token, and that is cached."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from .._validate import require_choice, require_count, require_flag, require_positive
from ..attention import ROTARY, Cache, HeadSlices, MultiHeadAttention, register
from ..attention.functional import _split_heads
from ..attention.positions import Scaling, require_scaling, rotary_positions
from ._settings import refuse


@register("latent")
class LatentAttention(MultiHeadAttention):
    """c = RMSNorm(x W_down) is a token's latent; head i's key is c W_up_k and its value c W_up_v.

    With rotary positions, each query and key has `rotary_size` channels more, which alone are turned; the keys' are
    x W_rotary, one for all heads. Scores are scaled by 1/√(d + rotary_size). The cache holds latents and turned keys,
    latent_size + rotary_size numbers per token.

    The same function can be computed in two ways. One makes keys and values of every head from the latents. The other,
    `absorbed`, moves W_up_k to the queries and W_up_v behind the average: heads then share one key and one value, the
    latent itself. It makes nothing of old tokens, so the layer takes it where a single query meets all of them.

    Args:
        num_hiddens, num_heads, dropout, bias: as in `MultiHeadAttention`. `bias` gives one to W_down, W_rotary, W_o and
            the first of the queries' projections, where there are two.
        latent_size: width of the latents, DeepSeek's d_c; `None` means 2d.
        rotary_size: channels that are turned, with rotary positions; `None` means d/2, made even.
        query_latent_size: width of a latent that queries are made from; 0 means none, and one projection.
        absorbed: which way is taken; `None` means absorbed for one query, as in decoding, and otherwise not. May be
            set at any time.
        rotary_base, rotary_scaling: as in `MultiHeadAttention`, of the channels that are turned.
        settings: as in `MultiHeadAttention`, but for `num_kv_heads` and `rotary_dim`.

    Raises:
        TypeError, ValueError: an argument is not of this kind; `key_size` and `value_size` differ.

    Source: DeepSeek-AI 2024, DeepSeek-V2, section 2.1, and the program of DeepSeek-V3; norms have its epsilon, 1e-6.
    """

    def __init__(
        self,
        num_hiddens: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = False,
        *,
        latent_size: int | None = None,
        rotary_size: int | None = None,
        query_latent_size: int = 0,
        absorbed: bool | None = None,
        positions: str = "none",
        rotary_base: float = 10000.0,
        rotary_scaling: Scaling | None = None,
        **settings: Any,
    ) -> None:
        refuse(settings, "latent attention has keys and values for each head", num_kv_heads=None)
        refuse(settings, "latent attention turns channels of their own, rotary_size of them", rotary_dim=None)
        super().__init__(num_hiddens, num_heads, dropout, bias, **settings)
        if self.key_size != self.value_size:
            raise ValueError(f"key_size={self.key_size} and value_size={self.value_size}: one latent makes both")
        latent_size = 2 * self.head_dim if latent_size is None else latent_size
        require_count("latent_size", latent_size)
        require_count("query_latent_size", query_latent_size, minimum=0)
        if positions not in ROTARY:
            require_choice("positions", positions, ("none", *ROTARY))
            for name, given in (("rotary_size", rotary_size), ("rotary_scaling", rotary_scaling)):
                if given is not None:
                    raise ValueError(f"{name}={given!r:.80} cannot be: positions={positions!r} turns nothing")
            rotary_size = 0
        elif rotary_size is None:
            rotary_size = max(2, self.head_dim // 4 * 2)
        require_count("rotary_size", rotary_size, minimum=0)
        if rotary_size % 2:
            raise ValueError(f"rotary positions need an even rotary_size, got {rotary_size}")
        require_positive("rotary_base", rotary_base)
        require_scaling("rotary_scaling", rotary_scaling)
        if absorbed is not None:
            require_flag("absorbed", absorbed)
        self.latent_size, self.rotary_size = int(latent_size), int(rotary_size)
        self.query_latent_size = int(query_latent_size)
        if rotary_size:
            self.positions = rotary_positions(positions, rotary_base, None, rotary_scaling)
        if self._scale_given is None:
            self._scale_given = (self.head_dim + self.rotary_size) ** -0.5
        del self.W_k, self.W_v
        width = self.num_heads * (self.head_dim + self.rotary_size)
        if query_latent_size:
            self.W_q = nn.Sequential(  # type: ignore[assignment]
                nn.Linear(self.query_size, query_latent_size, bias=bias),
                nn.RMSNorm(query_latent_size, eps=1e-6),
                nn.Linear(query_latent_size, width, bias=False),
            )
        else:
            self.W_q = nn.Linear(self.query_size, width, bias=False)
        self.W_down = nn.Linear(self.key_size, self.latent_size, bias=bias)
        self.norm = nn.RMSNorm(self.latent_size, eps=1e-6)
        self.W_up_k = nn.Linear(self.latent_size, self.num_heads * self.head_dim, bias=False)
        self.W_up_v = nn.Linear(self.latent_size, self.num_heads * self.value_dim, bias=False)
        self.W_rotary = nn.Linear(self.key_size, self.rotary_size, bias=bias) if rotary_size else None
        self.absorbed = None if absorbed is None else bool(absorbed)

    @property
    def scale(self) -> float:
        """What scores are multiplied by."""
        assert self._scale_given is not None
        return self._scale_given

    def is_absorbed(self, num_queries: int) -> bool:
        """Whether so many queries are carried into the space of the latents, and averages out of it."""
        return num_queries == 1 if self.absorbed is None else self.absorbed

    def project_with_cache(
        self, queries: Tensor, keys: Tensor, values: Tensor, cache: Cache | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """q (B, h, Q, d + r), k (B, h, K, d + r) and v (B, h, K, value_dim); absorbed, q has latent_size + r channels,
        and k and v are the latents (B, 1, K, ·)."""
        if values is not keys and not torch.equal(values, keys):
            raise ValueError("latent attention makes keys and values from one latent: give keys as values, too")
        place = partial(self.place, start=0 if cache is None else len(cache))
        own, turned = self._queries(queries, place)
        kept = self._kept(keys, place)
        if cache is not None:
            kept = list(cache.append(*kept))
        latent, *rotary = kept
        if self.is_absorbed(queries.shape[1]):
            up = self.W_up_k.weight.unflatten(0, (self.num_heads, self.head_dim))
            q = torch.cat([torch.einsum("bhqd,hdc->bhqc", own, up), turned], -1)
            return q, torch.cat([latent, *rotary], -1) if rotary else latent, latent
        k = _split_heads(self.W_up_k(latent[:, 0]), self.num_heads, self.head_dim)
        v = _split_heads(self.W_up_v(latent[:, 0]), self.num_heads, self.value_dim)
        k = torch.cat([k, *(part.expand(-1, self.num_heads, -1, -1) for part in rotary)], -1)
        return torch.cat([own, turned], -1), k, v

    def project_apart(self, x: Tensor, place: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        return torch.cat(self._queries(x, place), -1), torch.cat(self._kept(x, place), -1)

    def keys_and_values(self, kept: Tensor, heads: range) -> tuple[Tensor, Tensor]:
        own = slice(heads.start, heads.stop)
        latent, turned = kept.split([self.latent_size, self.rotary_size], -1)
        up_k, up_v = (up.weight.unflatten(0, (self.num_heads, -1))[own] for up in (self.W_up_k, self.W_up_v))
        return torch.cat([latent @ up_k.mT, turned.expand(-1, len(heads), -1, -1)], -1), latent @ up_v.mT

    def _queries(self, x: Tensor, place: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        """(B, h, n, d), and those that are turned, (B, h, n, r)."""
        q = _split_heads(self.W_q(x), self.num_heads, self.head_dim + self.rotary_size)
        return q[..., : self.head_dim], place(q[..., self.head_dim :])

    def _kept(self, x: Tensor, place: Callable[[Tensor], Tensor]) -> list[Tensor]:
        """Latents (B, 1, n, latent_size), and turned keys (B, 1, n, r) where there are some."""
        latent = self.norm(self.W_down(x))[:, None]
        return [latent] if self.W_rotary is None else [latent, place(self.W_rotary(x)[:, None])]

    def place(self, x: Tensor, start: int) -> Tensor:
        """The channels (B, h, N, r) that are turned, of which the first token is `start`."""
        return super().place(x, start) if self.rotary_size else x

    def gate(self, outputs: Tensor, queries: Tensor) -> Tensor:
        """Absorbed, averages of latents (B, h, Q, latent_size) -> what each head found, (B, h, Q, value_dim)."""
        if not self.is_absorbed(queries.shape[1]):
            return outputs
        up = self.W_up_v.weight.unflatten(0, (self.num_heads, self.value_dim))
        return torch.einsum("bhqc,hdc->bhqd", outputs, up)

    def head_slices(self, head: int) -> HeadSlices:
        """Rows of W_q (of its second projection, where there are two), W_up_k and W_up_v, columns of W_o."""
        width = self.head_dim + self.rotary_size
        return super().head_slices(head)._replace(q=slice(head * width, (head + 1) * width))
