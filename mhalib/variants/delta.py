"""The delta rule: a head keeps a state of fixed size in place of keys and values, and writes what is missing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .._validate import require_attention, require_choice, require_count, require_kind, require_tensor
from ..attention import Band, Cache, HeadSlices, MultiHeadAttention, StateCache, causal_mask, register
from ..attention._arguments import check_inputs
from ..attention.heads import changed_by, reduced
from ..attention.masks import Mask, is_symbolic
from ._settings import refuse

DECAYS = ("none", "head", "channel")
"""What fades of a state at each token: nothing, all of it by one factor, or each of its d rows by its own."""


def delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rates: Tensor,
    log_decays: Tensor,
    state: Tensor | None = None,
    *,
    chunk_size: int = 64,
) -> tuple[Tensor, Tensor]:
    """What queries read from a state that keys and values are written to, token after token.

    At each token the state S (d, d_v) fades, S ← diag(exp(log_decay)) S; is corrected, S ← S + rate k (v − Sᵀk)ᵀ; and
    is read, Sᵀq. With `chunk_size=1` it is computed just so. Larger chunks give the same in products of matrices.

    Args:
        q, k: (B, h, N, d).
        v: (B, h, N, d_v).
        rates: (B, h, N), how much of what is missing is written, from 0 to 1 as a rule.
        log_decays: (B, h, N, 1), of the whole state, or (B, h, N, d), of each of its rows; 0 or less.
        state: (B, h, d, d_v), what was written before; `None` is a state of zeros.
        chunk_size: how many tokens are taken at once.

    Returns:
        (B, h, N, d_v), and the state after the last token. Both are computed in float32 at least.

    Raises:
        TypeError, ValueError: an argument is not of this kind, or shapes do not fit.

    Sources: Yang et al. 2025, Gated Delta Networks, of a decay for each head; Kimi Team 2025, Kimi Linear, for each
    channel; of the chunks, Yang et al. 2024, Parallelizing Linear Transformers with the Delta Rule.
    """
    _require_rule(q, k, v, rates, log_decays)
    require_count("chunk_size", chunk_size)
    shape = (*k.shape[:2], k.shape[-1], v.shape[-1])
    if state is not None:
        _require_like("state", state, v, shape)
    wide = torch.promote_types(v.dtype, torch.float32)
    q, k, v, rates, log_decays = (x.to(wide) for x in (q, k, v, rates, log_decays))
    state = v.new_zeros(shape) if state is None else state.to(wide)
    found = []
    for start in range(0, v.shape[2], chunk_size):
        q_t, k_t, v_t, decay_t = (x[:, :, start : start + chunk_size] for x in (q, k, v, log_decays))
        rates_t = rates[:, :, start : start + chunk_size, None]
        total = decay_t.cumsum(-2)  # of the chunk up to each token
        missing = rates_t * (v_t - (k_t * total.exp()) @ state)
        written = torch.linalg.solve_triangular(  # what earlier tokens of the chunk write is not missing any more
            rates_t * _faded_products(k_t, k_t, total), missing, upper=False, unitriangular=True
        )
        found.append((q_t * total.exp()) @ state + _faded_products(q_t, k_t, total) @ written)
        last = total[..., -1:, :]
        state = last.exp().mT * state + (k_t * (last - total).exp()).mT @ written
    return torch.cat(found, 2) if found else v.new_zeros(v.shape), state


def delta_weights(q: Tensor, k: Tensor, rates: Tensor, log_decays: Tensor) -> Tensor:
    """The map that the delta rule is: (B, h, N, N), so that weights @ v is what `delta_rule` finds, from no state.

    Weights may be negative, and rows sum to anything. Arguments and errors as in `delta_rule`.
    """
    _require_rule(q, k, k, rates, log_decays)
    wide = torch.promote_types(q.dtype, torch.float32)
    q, k, rates, total = (x.to(wide) for x in (q, k, rates, log_decays.cumsum(-2)))
    corrections = rates[..., None] * _faded_products(k, k, total)
    read = _faded_products(q, k, total)
    weights = torch.linalg.solve_triangular(corrections, read, upper=False, left=False, unitriangular=True)
    return weights.tril() * rates[..., None, :]


@register("delta")
class DeltaAttention(MultiHeadAttention):
    """Each head keeps a state (d, value_dim), and no keys and values: gated DeltaNet, and Kimi's KDA.

    Queries, keys and values pass a short convolution over tokens and a SiLU; queries and keys are then made 1 long. At
    each token the state fades, takes a share of what is missing from it, and is read: see `delta_rule`. What was read
    is normalised in each head and gated by its token.

    The layer is causal by itself. Its cache keeps the same number of bytes for any number of tokens, and its weights
    are those of `delta_weights`; of tokens that a cache has seen it has none. It takes masks that hide later tokens,
    and padding; any other is refused, since a state cannot tell what it holds from whom.

    Args:
        num_hiddens, num_heads, bias: as in `MultiHeadAttention`. There are no weights to drop: `dropout` is 0.
        decay: what fades: "head" all of a head's state, as in Qwen3-Next; "channel" each of its d rows by itself, as in
            Kimi Linear, where decays and gates go through d channels; "none" nothing, as in DeltaNet.
        convolution: how many tokens it sees, itself included; 0 means no convolution and no SiLU.
        num_key_heads: heads with queries and keys of their own; divides h. `None` means h.
        chunk_size: how many tokens are computed at once.
        settings: as in `MultiHeadAttention`, but for `positions` and `num_kv_heads`.

    Raises:
        TypeError, ValueError: an argument is not of this kind.

    Sources: Yang et al. 2025, Gated Delta Networks; Qwen Team 2025, Qwen3-Next, in its program; Kimi Team 2025, Kimi
    Linear. Decays begin as in the program flash-linear-attention.
    """

    rows_sum_to_one = False
    looks_at_itself_only = True
    keeps_state = True

    def __init__(
        self,
        num_hiddens: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = False,
        *,
        decay: str = "head",
        convolution: int = 4,
        num_key_heads: int | None = None,
        chunk_size: int = 64,
        **settings: Any,
    ) -> None:
        refuse(settings, "a state is written in order, and needs no positions", positions="none")
        refuse(settings, "heads with a state share queries and keys by num_key_heads", num_kv_heads=None)
        super().__init__(num_hiddens, num_heads, dropout, bias, **settings)
        if self.dropout:
            raise ValueError(f"dropout={dropout} cannot be: a state has no weights to drop")
        if not self.query_size == self.key_size == self.value_size:
            raise ValueError(
                f"query_size={self.query_size}, key_size={self.key_size} and value_size={self.value_size} "
                "must be equal: a layer with a state reads one sequence"
            )
        require_choice("decay", decay, DECAYS)
        require_count("convolution", convolution, minimum=0)
        require_count("chunk_size", chunk_size)
        h, d, width = self.num_heads, self.head_dim, self.value_dim
        shared = h if num_key_heads is None else num_key_heads
        require_count("num_key_heads", shared)
        if h % shared:
            raise ValueError(f"num_heads={h} is not divisible by num_key_heads={shared}")
        self.decay, self.num_key_heads, self.chunk_size = decay, int(shared), int(chunk_size)
        if shared != h:
            self.W_q, self.W_k = (nn.Linear(self.query_size, shared * d, bias=bias) for _ in range(2))
        self.W_rate = nn.Linear(self.query_size, h, bias=False)
        self.W_gate = self._through(width, h * width)
        if decay != "none":
            self.W_decay = self._through(d, h * d if decay == "channel" else h)
            self.decay_log = nn.Parameter(torch.empty(h).uniform_(1, 16).log())
            begin = torch.empty(h * d if decay == "channel" else h).uniform_(-6.9, -2.3).exp()  # 0.001 to 0.1
            self.decay_bias = nn.Parameter(begin.expm1().log())
        self.norm = nn.RMSNorm(width, eps=1e-6)
        channels = 2 * shared * d + h * width
        self.convolution = (
            nn.Conv1d(channels, channels, convolution, groups=channels, bias=False) if convolution else None
        )

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
        """As in `MultiHeadAttention`, for one sequence: `queries`, `keys` and `values` are the same. Weights
        (B, h, N, N) are those of `delta_weights`.

        Raises:
            ValueError: they are not the same, the mask hides more than later tokens and padding, or weights are asked
                for behind a cache that has seen tokens.
            TypeError: the cache is not one for a state.
        """
        check_inputs(self, queries, keys, values, need_weights, cache)
        if any(x is not queries and (x.shape != queries.shape or not torch.equal(x, queries)) for x in (keys, values)):
            raise ValueError("a layer with a state reads one sequence: give queries as keys and values, too")
        if cache is not None:
            require_kind("cache", cache, StateCache)
        assert cache is None or isinstance(cache, StateCache)
        seen = 0 if cache is None else len(cache)
        needs_weights = need_weights or bool(self._weight_functions)
        if needs_weights and seen:
            raise ValueError(f"the cache has seen {seen} tokens: a state does not keep them apart, and has no weights")
        real = self._real(self._join_masks(queries, seen + queries.shape[1], valid_lens, mask), seen, queries)

        held = () if cache is None else cache.held
        self._require_own(held, len(queries))
        q, k, v, tail = self._convolved(queries, real, held[1] if held else None)
        rates, log_decays = self.rates(queries), self.log_decays(queries)
        if real is not None:
            rates, log_decays = rates * real[:, None], log_decays * real[:, None, :, None]
        weights = None
        if needs_weights:
            weights = delta_weights(q, k, rates, log_decays).to(v.dtype)
            if self._weight_functions:
                weights = changed_by(self._weight_functions, weights, causal_mask(queries.shape[1], device=q.device))
            outputs = self.average(weights, v)
        if not needs_weights or cache is not None:
            state = held[0] if held else None
            read, state = delta_rule(q, k, v, rates, log_decays, state, chunk_size=self.chunk_size)
            outputs = outputs if needs_weights else read.to(v.dtype)
            if cache is not None:
                cache.replace(queries.shape[1], state, tail.to(state.dtype))
        outputs = self.gate(outputs, queries)
        if self._head_functions:
            outputs = changed_by(self._head_functions, outputs)
        return self.W_o(self.merge(outputs)), weights if need_weights else None

    def rates(self, x: Tensor) -> Tensor:
        """The layer's input (B, N, D) -> how much of what is missing each head writes, (B, h, N), from 0 to 1."""
        return self.W_rate(x).sigmoid().transpose(1, 2)

    def log_decays(self, x: Tensor) -> Tensor:
        """The layer's input (B, N, D) -> logarithms of what is left of a state, (B, h, N, 1) or (B, h, N, d)."""
        if self.decay == "none":
            return x.new_zeros(x.shape[0], self.num_heads, x.shape[1], 1)
        raw = F.softplus(self.W_decay(x) + self.decay_bias).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        return -self.decay_log.exp()[:, None, None] * raw

    def gate(self, outputs: Tensor, queries: Tensor) -> Tensor:
        """What was read, (B, h, N, value_dim), normalised in each head and gated by its token."""
        gates = self.W_gate(queries).unflatten(-1, (self.num_heads, self.value_dim)).transpose(1, 2)
        return self.norm(outputs).to(gates.dtype) * (gates.sigmoid() if self.decay == "channel" else F.silu(gates))

    def new_cache(self, max_tokens: int = 0) -> StateCache:
        """An empty cache for the states and for the last tokens that a convolution sees; of one size for any text."""
        require_count("max_tokens", max_tokens, minimum=0)
        return StateCache()

    def head_slices(self, head: int) -> HeadSlices:
        """As in `MultiHeadAttention`; heads may share rows of W_q and W_k."""
        slices = super().head_slices(head)
        shared = head * self.num_key_heads // self.num_heads
        rows = slice(shared * self.head_dim, (shared + 1) * self.head_dim)
        return slices._replace(q=rows, k=rows)

    def keep_heads(self, heads: Iterable[int]) -> None:
        """As in `MultiHeadAttention`; TypeError where heads share queries and keys."""
        heads = list(heads)
        if self.num_key_heads != self.num_heads:
            raise TypeError(f"num_key_heads={self.num_key_heads}: heads that share queries and keys cannot be removed")
        old = self.num_heads
        super().keep_heads(heads)
        self.num_key_heads = self.num_heads
        self.W_rate = reduced(self.W_rate, [slice(head, head + 1) for head in heads], 0)
        self.W_gate = _of_heads(self.W_gate, heads, old)
        if self.decay != "none":
            self.W_decay = _of_heads(self.W_decay, heads, old)
            for name in ("decay_log", "decay_bias"):
                own = getattr(self, name)
                kept = own.detach().unflatten(0, (old, -1))[heads].flatten()
                setattr(self, name, nn.Parameter(kept, own.requires_grad))
        if self.convolution is not None:
            filters, d, width = self.convolution.weight, self.head_dim, self.value_dim
            parts = filters.detach().split([old * d, old * d, old * width])
            kept = torch.cat([part.unflatten(0, (old, -1))[heads].flatten(0, 1) for part in parts])
            self.convolution = nn.Conv1d(len(kept), len(kept), kept.shape[-1], groups=max(1, len(kept)), bias=False)
            self.convolution.weight = nn.Parameter(kept, filters.requires_grad)

    def on_scores(self, function: object) -> NoReturn:
        """Refused: there are no scores, since no softmax follows."""
        raise TypeError("DeltaAttention has no scores: on_weights shows the weights that its state amounts to")

    def _require_own(self, held: tuple[Tensor, ...], batch_size: int) -> None:
        """Raise ValueError unless a cache that holds something is of this layer and of so many examples."""
        before = 0 if self.convolution is None else self.convolution.kernel_size[0] - 1
        channels = 2 * self.num_key_heads * self.head_dim + self.num_heads * self.value_dim
        own = [(batch_size, self.num_heads, self.head_dim, self.value_dim), (batch_size, before, channels)]
        if held and [tuple(part.shape) for part in held] != own:
            raise ValueError(
                f"the cache holds {[tuple(part.shape) for part in held]}, but the layer needs {own}: "
                "a cache serves one layer and one batch"
            )

    def _through(self, narrow: int, wide: int) -> nn.Module:
        """A projection of the input, in Kimi Linear by way of a few channels."""
        if self.decay != "channel":
            return nn.Linear(self.query_size, wide, bias=False)
        return nn.Sequential(nn.Linear(self.query_size, narrow, bias=False), nn.Linear(narrow, wide, bias=False))

    def _convolved(
        self, x: Tensor, real: Tensor | None, before: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """q and k (B, h, N, d), 1 long but for the scale, v (B, h, N, value_dim), and what the convolution of the next
        tokens will see of these, (B, its width - 1, channels)."""
        mixed = torch.cat([self.W_q(x), self.W_k(x), self.W_v(x)], -1)
        if real is not None:
            mixed = mixed * real[..., None]
        tail = mixed[:, :0]
        if self.convolution is not None:
            width = self.convolution.kernel_size[0]
            old = mixed.new_zeros(len(x), width - 1, mixed.shape[-1]) if before is None else before.to(mixed.dtype)
            both = torch.cat([old, mixed], 1)
            tail = both[:, both.shape[1] - width + 1 :]
            mixed = F.silu(self.convolution(both.mT).mT)
        shared = self.num_key_heads * self.head_dim
        q, k, v = mixed.split([shared, shared, self.num_heads * self.value_dim], -1)
        q, k = (_unit(one.unflatten(-1, (self.num_key_heads, self.head_dim))).transpose(1, 2) for one in (q, k))
        group = self.num_heads // self.num_key_heads if self.num_key_heads else 1
        if group > 1:
            q, k = q.repeat_interleave(group, 1), k.repeat_interleave(group, 1)
        v = v.unflatten(-1, (self.num_heads, self.value_dim)).transpose(1, 2)
        return self.scale * q, k, v, tail

    def _real(self, mask: Mask | None, seen: int, queries: Tensor) -> Tensor | None:
        """Which of the new tokens are no padding, (B, N) or (1, N), or `None` for all; `seen` tokens came before."""
        num_new = queries.shape[1]
        if mask is None or not num_new:
            return None
        if isinstance(mask, Band):
            sees_past = mask.before is None or mask.before >= seen + num_new - 1
            if sees_past and (mask.after is None or mask.offset + mask.after >= seen):
                return None
        if is_symbolic(mask):
            mask = mask.matrix(num_new, seen + num_new, device=queries.device)
        mask = mask.expand(*mask.shape[:-2], num_new, seen + num_new) if mask.dim() > 1 else mask.expand(num_new, -1)
        mask = mask[(None,) * (4 - mask.dim())]
        own = causal_mask(num_new, seen + num_new, offset=seen, device=mask.device)
        real = mask[:, :1, -1:]  # the last token's row: it may see all that is real
        if not (torch.compiler.is_compiling() or mask.is_meta) and bool(((mask & own) != (real & own)).any()):
            raise ValueError("mask hides more than later tokens and padding: a state cannot leave out what it holds")
        return real[:, 0, 0, seen:]


def _unit(x: Tensor) -> Tensor:
    """(..., d) -> (..., d), divided by its length."""
    return x * (x.square().sum(-1, keepdim=True) + 1e-6).rsqrt()


def _faded_products(x: Tensor, y: Tensor, total: Tensor) -> Tensor:
    """(..., N, d) twice, and sums of logarithms (..., N, 1) or (..., N, d) -> (..., N, N): the product of row i of x
    and row j of y after what fades between them, and 0 where j is later."""
    later = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool, device=x.device).triu(1)
    left = (total[..., :, None, :] - total[..., None, :, :]).masked_fill(later[..., None], -torch.inf).exp()
    if total.shape[-1] == 1:
        return (x @ y.mT) * left[..., 0]
    return ((left * y[..., None, :, :]) @ x[..., None])[..., 0]


def _of_heads(projection: nn.Module, heads: list[int], num_heads: int) -> nn.Module:
    """The rows of some heads of a projection, or of the last one of several in a row."""
    if isinstance(projection, nn.Sequential):
        *first, last = projection.children()
        return nn.Sequential(*first, _of_heads(last, heads, num_heads))
    assert isinstance(projection, nn.Linear)
    width = projection.out_features // num_heads
    return reduced(projection, [slice(head * width, (head + 1) * width) for head in heads], 0)


def _require_rule(q: Tensor, k: Tensor, v: Tensor, rates: Tensor, log_decays: Tensor) -> None:
    require_attention(q, k, v, None)
    if q.shape != k.shape or q.dim() != 4:
        raise ValueError(f"q has shape {tuple(q.shape)}, but k {tuple(k.shape)}: both must be (B, h, N, d)")
    _require_like("rates", rates, k, k.shape[:3])
    _require_like("log_decays", log_decays, k, (*k.shape[:3], 1), k.shape)


def _require_like(name: str, x: Tensor, other: Tensor, *shapes: tuple[int, ...]) -> None:
    """Raise unless x holds floating-point numbers (TypeError) where `other` does, in one of these shapes."""
    require_tensor(name, x)
    if not x.is_floating_point():
        raise TypeError(f"{name} must hold floating-point numbers, got {x.dtype}")
    if x.device != other.device:
        raise ValueError(f"{name} is on {x.device}, but k is on {other.device}")
    if tuple(x.shape) not in map(tuple, shapes):
        raise ValueError(f"{name} has shape {tuple(x.shape)}, not {' or '.join(str(tuple(one)) for one in shapes)}")
