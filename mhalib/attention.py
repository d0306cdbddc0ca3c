"""Multi-head attention: pure functions on tensors, and one thin layer over them.

A public function checks its arguments, then calls the core of the same name with an underscore. The layer checks what
it is given once, and calls the cores.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ._validate import (
    require_attention,
    require_count,
    require_divisible,
    require_mask,
    require_probability,
    require_tensor,
)
from .cache import KeyValueCache
from .masks import padding_mask


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """(B, N, D) -> (B, h, N, d): head i gets columns i*d to (i+1)*d of every token. A view: no number moves."""
    require_tensor("x", x, rank=3)
    require_count("num_heads", num_heads)
    require_divisible("x.shape[-1]", x.shape[-1], num_heads)
    return _split_heads(x, num_heads, x.shape[-1] // num_heads)


def _split_heads(x: Tensor, num_heads: int, head_dim: int) -> Tensor:
    return x.unflatten(-1, (num_heads, head_dim)).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """(B, h, N, d) -> (B, N, D): the inverse of `split_heads`, the heads of a token side by side again."""
    require_tensor("x", x, rank=4)
    return x.transpose(1, 2).flatten(2)


def transpose_qkv(x: Tensor, num_heads: int) -> Tensor:
    """(B, N, D) -> (B*h, N, d): D2L's form of `split_heads`; example b, head i lands in row b*h + i.

    Source: Zhang et al., Dive into Deep Learning, section 11.5 (the function of that name there).
    """
    return split_heads(x, num_heads).flatten(0, 1)


def transpose_output(x: Tensor, num_heads: int) -> Tensor:
    """(B*h, N, d) -> (B, N, D): the inverse of `transpose_qkv`."""
    require_tensor("x", x, rank=3)
    require_count("num_heads", num_heads)
    require_divisible("x.shape[0]", x.shape[0], num_heads)
    return merge_heads(x.unflatten(0, (x.shape[0] // num_heads, num_heads)))


def attend(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, dropout: float = 0.0, need_weights: bool = True
) -> tuple[Tensor, Tensor | None]:
    """Scaled dot-product attention: softmax(q kᵀ / √d) v, for all heads at once.

    Args:
        q: (B, h, Q, d). Any axes may stand before the last two, or none; k and v have the same ones.
        k: (B, h, K, d).
        v: (B, h, K, d_v).
        mask: boolean, `True` = may attend, broadcastable to (B, h, Q, K).
        dropout: probability with which a weight is dropped on its way to the output, always applied:
            a layer passes 0 when it does not train.
        need_weights: `False` takes torch's fused kernel, which never stores the weights.

    Returns:
        output (B, h, Q, d_v), and weights (B, h, Q, K) before dropout, or `None`. Rows of weights sum to 1;
        a query that may attend to nothing has weights 0 and output 0.

    Raises:
        TypeError, ValueError: shapes, dtypes or devices do not fit.

    Source: Vaswani et al. 2017, equation 1.
    """
    require_attention(q, k, v, mask)
    require_probability("dropout", dropout)
    return _attend(q, k, v, mask, dropout, need_weights)


def _attend(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float, need_weights: bool
) -> tuple[Tensor, Tensor | None]:
    if not need_weights:
        if mask is not None and mask.dim() < 2:
            mask = torch.atleast_2d(mask)  # the kernel takes no mask of shape (K,) or ()
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout), None
    # A batched product copies each operand that does not lie in one piece, k by columns; by rows it is faster.
    weights = _masked_softmax_((q / math.sqrt(q.shape[-1])).contiguous() @ k.contiguous().mT, mask)
    kept = F.dropout(weights, dropout) if dropout else weights
    return kept @ v.contiguous(), weights


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Softmax over the last axis that gives 0 where `mask` is False, and a row of zeros where all of it is.

    Args:
        scores: (..., Q, K).
        mask: boolean, `True` = may attend, broadcastable to `scores`.

    What stands at a hidden place does not matter, be it infinite or NaN.
    """
    require_tensor("scores", scores)
    require_mask(mask, scores.shape, scores.device)
    return _masked_softmax_(scores.masked_fill(~mask, 0.0), mask)


def _masked_softmax_(scores: Tensor, mask: Tensor | None) -> Tensor:
    """`masked_softmax` that may write over `scores`: an array of (B, h, Q, K) numbers is what attention costs, and
    to fill a new one takes longer than to change an old one.

    A row of -inf has no softmax: 0/0. Such a row is opened before the softmax and zeroed after it, so that no NaN
    arises, neither in the result nor on the way back through its gradient.
    """
    if mask is None:
        return _softmax_(scores)
    row_sees = mask.any(-1, keepdim=True)  # something, that is
    all_rows_see = _surely_all(row_sees)
    hidden = ~mask if all_rows_see else ~mask & row_sees
    scores += torch.zeros_like(hidden, dtype=scores.dtype).masked_fill_(hidden, -math.inf)
    weights = _softmax_(scores)
    del scores
    return weights if all_rows_see else weights.masked_fill(~row_sees, 0.0)


def _softmax_(scores: Tensor) -> Tensor:
    """Softmax over the last axis, in the memory of `scores` itself where no gradient will ask for it."""
    if not (torch.is_grad_enabled() or torch.is_autocast_enabled(scores.device.type) or torch.compiler.is_compiling()):
        try:
            return torch.softmax(scores, -1, out=scores)
        except RuntimeError:  # vmap and forward-mode differentiation have no such softmax
            pass
    return scores.softmax(-1)


def _surely_all(flags: Tensor) -> bool:
    """Whether all `flags` are set and it costs nothing to know: a GPU would stop for it, a compiled graph cannot."""
    if torch.compiler.is_compiling() or not flags.is_cpu:
        return False
    try:
        return bool(flags.all())
    except RuntimeError:  # vmap
        return False


class MultiHeadAttention(nn.Module):
    """h heads look at the same tokens through projections of their own; W_o mixes what they found.

    Args:
        num_hiddens: D, the width of the output and of all heads together.
        num_heads: h; divides D.
        dropout: probability with which a weight is dropped in training.
        bias: whether the four projections have one.
        query_size, key_size, value_size: widths of the inputs; `None` means D.

    Raises:
        TypeError, ValueError: a size is not a positive integer, h does not divide D, dropout is outside [0, 1].

    Sources: Vaswani et al. 2017, section 3.2.2; the names of the projections follow D2L, section 11.5.
    """

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
    ) -> None:
        super().__init__()
        require_count("num_hiddens", num_hiddens)
        require_count("num_heads", num_heads)
        require_divisible("num_hiddens", num_hiddens, num_heads)
        require_probability("dropout", dropout)
        widths = {"query_size": query_size, "key_size": key_size, "value_size": value_size}
        for name, width in widths.items():
            require_count(name, num_hiddens if width is None else width)
        self.num_hiddens, self.num_heads, self.dropout = num_hiddens, num_heads, dropout
        self.head_dim = num_hiddens // num_heads
        self.head_numbers = tuple(range(num_heads))  # kept by the heads that `prune_heads` leaves
        self.W_q = nn.Linear(num_hiddens if query_size is None else query_size, num_hiddens, bias=bias)
        self.W_k = nn.Linear(num_hiddens if key_size is None else key_size, num_hiddens, bias=bias)
        self.W_v = nn.Linear(num_hiddens if value_size is None else value_size, num_hiddens, bias=bias)
        self.W_o = nn.Linear(num_hiddens, num_hiddens, bias=bias)

    def extra_repr(self) -> str:
        return (
            f"num_hiddens={self.num_hiddens}, num_heads={self.num_heads}, "
            f"head_dim={self.head_dim}, dropout={self.dropout}"
        )

    def forward(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        valid_lens: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        need_weights: bool = True,
        cache: KeyValueCache | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend from `queries` to `keys`, in every head.

        Args:
            queries: (B, Q, query_size).
            keys: (B, K, key_size).
            values: (B, K, value_size).
            valid_lens: integers, (B,) or (B, Q): how many keys are real; see `padding_mask`.
            mask: boolean, `True` = may attend, broadcastable to (B, h, Q, K). Three axes are refused, because they
                could be (B, Q, K) or (h, Q, K): write `mask[:, None]` for one matrix per example, `mask[None]` for
                one per head. With `valid_lens` too, both must allow.
            need_weights: `False` takes torch's fused kernel.
            cache: keys and values of earlier calls, which stand before those of this one and count in K; the new
                ones are added to it.

        Returns:
            output (B, Q, D), and weights (B, h, Q, K) or `None`.
        """
        self._check_inputs(queries, keys, values)
        num_kvpairs = keys.shape[1] + (0 if cache is None else len(cache))
        mask = self._join_masks(queries, num_kvpairs, valid_lens, mask)
        dropout = self.dropout if self.training else 0.0
        # q, k and v have no name here, so their memory is free again before W_o
        output, weights = _attend(*self._project(queries, keys, values, cache), mask, dropout, need_weights)
        return self.W_o(merge_heads(output)), weights

    def _project(
        self, queries: Tensor, keys: Tensor, values: Tensor, cache: KeyValueCache | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """q (B, h, Q, d), k and v (B, h, K, d): what `cache` holds, then what is new."""
        q = _split_heads(self.W_q(queries), self.num_heads, self.head_dim)
        k = _split_heads(self.W_k(keys), self.num_heads, self.head_dim)
        v = _split_heads(self.W_v(values), self.num_heads, self.head_dim)
        return (q, k, v) if cache is None else (q, *cache.extend(k, v))

    def _check_inputs(self, queries: Tensor, keys: Tensor, values: Tensor) -> None:
        checked = None
        for name, x, projection in (
            ("queries", queries, self.W_q),
            ("keys", keys, self.W_k),
            ("values", values, self.W_v),
        ):
            if x is not checked:  # self-attention gives one tensor three times
                require_tensor(name, x, rank=3)
                weight = projection.weight
                if x.device != weight.device:
                    raise ValueError(f"{name} is on {x.device}, but the layer's weights are on {weight.device}")
                if x.dtype != weight.dtype and not torch.is_autocast_enabled(x.device.type):
                    raise TypeError(f"{name} is {x.dtype}, but the layer's weights are {weight.dtype}")
                if x.shape[0] != queries.shape[0]:
                    raise ValueError(f"{name} holds {x.shape[0]} examples, but queries holds {queries.shape[0]}")
                checked = x
            if x.shape[-1] != projection.in_features:
                raise ValueError(f"{name} has width {x.shape[-1]}, but the layer was made for {projection.in_features}")
        if keys.shape[1] != values.shape[1]:
            raise ValueError(f"each key needs a value: {keys.shape[1]} keys, {values.shape[1]} values")

    def _join_masks(
        self, queries: Tensor, num_kvpairs: int, valid_lens: Tensor | None, mask: Tensor | None
    ) -> Tensor | None:
        """One mask that allows what `valid_lens` and `mask` both allow."""
        batch_size, num_queries = queries.shape[:2]
        if mask is not None:
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
        return real if mask is None else real & mask
