"""Mixture of heads: some heads always work, of the others each token chooses some."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .._validate import require_choice, require_count, require_flag
from ..attention import Cache, MultiHeadAttention, register
from ..attention.masks import Mask


@register("mixture")
class MixtureOfHeads(MultiHeadAttention):
    """The output is a sum of heads, each times a gate that the token's router gives it; most gates are 0.

    The first `num_shared` heads are always on and divide a softmax of `W_shared`. Of the others, the `num_chosen` with
    the largest gate are on, by a softmax of `W_routed`. A softmax of `W_kinds` weighs the two kinds. The router reads
    the layer's input of the queries.

    The weights that are returned are those before the gates. `last_gates` (B, Q, h) and `balance_loss` are those of the
    last pass; add `balance_loss` times 0.01, say, to a training's loss, so that no head is chosen by all or by none.

    Args:
        num_hiddens, num_heads, dropout, bias: as in `MultiHeadAttention`, like all others. Routers have no bias.
        num_shared: heads that are always on, 0 to h.
        num_chosen: how many of the others a token chooses; `None` means half of them, rounded up.
        paper_scaling: gates as in the paper's equations 5 and 6. Otherwise as in the authors' code: the gates of the
            chosen heads are divided by their sum and multiplied by their number, those of the shared heads are
            multiplied by theirs, and the weights of the two kinds are doubled; with all routers 0 and all heads on, the
            gates are then 1, and the layer is multi-head attention. `balance_loss` follows: sum_i P_i f_i over the
            routed heads in the paper, times their number in the code, where P_i is head i's mean gate before the choice
            and f_i the share of tokens that choose it. Tokens that no query may see are padding, and do not count.
        router: "learned", as above, or "query norm", which has no weights: a token chooses the routed heads in which
            its query, before positions, is longest, and all heads that are on have gate 1. P_i is then a softmax of the
            lengths, divided by their standard deviation over the routed heads.

    Raises:
        TypeError, ValueError: an argument is not of this kind, or there are not so many heads.

    Source: Jin et al. 2024, MoH: multi-head attention as mixture-of-head attention, section 3.2, and the authors'
    programs, for vision transformers and, by the norm, for LLaMA-3.
    """

    balance_loss: Tensor
    last_gates: Tensor
    _given: tuple[Tensor | None, Mask | None, Cache | None] | None = None  # to the pass that is under way

    def __init__(
        self,
        num_hiddens: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = False,
        *,
        num_shared: int = 1,
        num_chosen: int | None = None,
        paper_scaling: bool = False,
        router: str = "learned",
        **settings: Any,
    ) -> None:
        super().__init__(num_hiddens, num_heads, dropout, bias, **settings)
        require_count("num_shared", num_shared, minimum=0)
        if num_shared > num_heads:
            raise ValueError(f"num_shared={num_shared}, but there are num_heads={num_heads}")
        num_routed = self.num_heads - int(num_shared)
        num_chosen = (num_routed + 1) // 2 if num_chosen is None else num_chosen
        require_count("num_chosen", num_chosen, minimum=min(1, num_routed))
        if num_chosen > num_routed:
            raise ValueError(f"num_chosen={num_chosen}, but only {num_routed} heads are left to choose from")
        require_flag("paper_scaling", paper_scaling)
        require_choice("router", router, ("learned", "query norm"))
        self.num_shared, self.num_chosen, self.paper_scaling = int(num_shared), int(num_chosen), bool(paper_scaling)
        self.router, learned = router, router == "learned"
        self.W_shared = nn.Linear(self.query_size, self.num_shared, bias=False) if learned and num_shared else None
        self.W_routed = nn.Linear(self.query_size, num_routed, bias=False) if learned and num_routed else None
        self.W_kinds = nn.Linear(self.query_size, 2, bias=False) if learned and num_shared and num_routed else None

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
        """As in `MultiHeadAttention`; where tokens look at themselves, the mask says which of them are padding."""
        self._given = (valid_lens, mask, cache) if keys is queries else None
        try:
            return super().forward(queries, keys, values, valid_lens, mask=mask, need_weights=need_weights, cache=cache)
        finally:
            self._given = None

    def route(self, queries: Tensor, is_real: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The layer's input (B, Q, query_size) -> gates (B, Q, h), and the loss that balances the routed heads, over
        the tokens that are real: `is_real` (B, Q) or `None`, which is all."""
        if self.router == "query norm":
            return self._by_norm(queries, is_real)
        kinds = queries.new_ones(*queries.shape[:2], 2)
        if self.W_kinds is not None:
            kinds = self.W_kinds(queries).softmax(-1) * (1 if self.paper_scaling else 2)
        parts, loss = [], queries.new_zeros(())
        if self.W_shared is not None:
            shared = self.W_shared(queries).softmax(-1) * (1 if self.paper_scaling else self.num_shared)
            parts.append(shared * kinds[..., :1])
        if self.W_routed is not None:
            routed = self.W_routed(queries).softmax(-1)
            chosen, loss = self._chosen(routed, is_real)
            gates = routed * chosen
            if not self.paper_scaling:
                total = gates.sum(-1, keepdim=True).clamp_min(torch.finfo(gates.dtype).eps)
                gates = gates / total * self.num_chosen
            parts.append(gates * kinds[..., 1:])
        return torch.cat(parts, -1), loss

    def _by_norm(self, queries: Tensor, is_real: Tensor | None) -> tuple[Tensor, Tensor]:
        """As `route`, by the lengths of the heads' queries."""
        if self.is_split or self.num_heads != self.num_heads_made:
            raise ValueError("router='query norm' compares the queries of all heads, and some are not here")
        on = queries.new_ones(*queries.shape[:2], self.num_heads)
        if self.num_shared == self.num_heads:
            return on, queries.new_zeros(())
        lengths = self.W_q(queries).unflatten(-1, (self.num_heads, self.head_dim)).norm(dim=-1)[..., self.num_shared :]
        spread = lengths.std(-1, keepdim=True) if lengths.shape[-1] > 1 else 1.0
        chosen, loss = self._chosen((lengths / spread).softmax(-1), is_real)
        return torch.cat([on[..., : self.num_shared], chosen], -1), loss

    def _chosen(self, routed: Tensor, is_real: Tensor | None) -> tuple[Tensor, Tensor]:
        """Shares of the routed heads (B, Q, n) -> 1 for those that are chosen and 0 for others, and the loss."""
        chosen = torch.zeros_like(routed).scatter(-1, routed.topk(self.num_chosen).indices, 1.0)
        loss = (_mean(routed, is_real) * _mean(chosen, is_real)).sum()
        return chosen, loss if self.paper_scaling else loss * routed.shape[-1]

    def gate(self, outputs: Tensor, queries: Tensor) -> Tensor:
        """(B, h, Q, value_dim) -> (B, h, Q, value_dim)."""
        self.last_gates, loss = self.route(queries, self._is_real(queries))
        gates = self.last_gates
        if self.is_split:  # each process adds its share of the loss's gradient
            share = self.num_heads / self.num_heads_made
            gates, loss = gates[..., list(self.head_numbers)], loss * share + (loss * (1 - share)).detach()
        self.balance_loss = loss
        return outputs * gates.mT[..., None]

    def _is_real(self, queries: Tensor) -> Tensor | None:
        """(B, Q): whether some query may see the token, which is padding otherwise; `None` where all count."""
        valid_lens, mask, cache = self._given or (None, None, None)
        batch_size, num_queries = queries.shape[:2]
        if not num_queries or (valid_lens is None and not isinstance(mask, Tensor)):
            return None
        is_real = torch.ones(batch_size, num_queries, dtype=torch.bool, device=queries.device)
        if isinstance(mask, Tensor):
            is_seen = mask.reshape((1,) * (4 - mask.dim()) + mask.shape).any(2).any(1)  # (B, K), or 1 in place of each
            is_real &= is_seen[:, -num_queries:]
        if valid_lens is not None:
            num_kvpairs = num_queries if cache is None else len(cache)
            places = torch.arange(num_kvpairs - num_queries, num_kvpairs, device=queries.device)
            is_real &= places < (valid_lens if valid_lens.dim() == 1 else valid_lens.amax(1))[:, None]
        return is_real

    def __getstate__(self) -> dict[str, Any]:
        """Without what the last pass left, so that a layer can be copied in the middle of a training."""
        return {name: part for name, part in self.__dict__.items() if name not in ("last_gates", "balance_loss")}


def _mean(x: Tensor, is_real: Tensor | None) -> Tensor:
    """Mean over the real tokens of x (B, Q, n): (n,)."""
    if is_real is None:
        return x.flatten(0, 1).mean(0)
    counted = is_real.to(x.dtype)[..., None]
    return (x * counted).sum((0, 1)) / counted.sum().clamp_min(1)
