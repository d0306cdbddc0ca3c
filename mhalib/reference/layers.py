"""Multi-head attention as two other well-known texts build it, written anew for comparison.

They exist to be measured and converted against `mhalib.MultiHeadAttention`; new code should use that.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from .._validate import require_count, require_divisible, require_flag, require_probability
from ..attention import transpose_output, transpose_qkv


class D2LMultiHeadAttention(nn.Module):
    """The design of Dive into Deep Learning, section 11.5: heads stand in the batch axis, (B*h, N, d), for `torch.bmm`.

    Hidden scores are set to -1e6, so a query without any key spreads its weight evenly instead of getting 0.
    `forward` returns the output alone; `attention_weights`, (B*h, Q, K), is left on the layer, as in the book.
    """

    def __init__(self, num_hiddens: int, num_heads: int, dropout: float = 0.0, bias: bool = False) -> None:
        super().__init__()
        require_count("num_hiddens", num_hiddens)
        require_count("num_heads", num_heads)
        require_probability("dropout", dropout)
        require_flag("bias", bias)
        require_divisible("num_hiddens", num_hiddens, num_heads)
        self.num_heads = num_heads
        self.dropout = nn.Dropout(dropout)
        self.W_q = nn.Linear(num_hiddens, num_hiddens, bias=bias)
        self.W_k = nn.Linear(num_hiddens, num_hiddens, bias=bias)
        self.W_v = nn.Linear(num_hiddens, num_hiddens, bias=bias)
        self.W_o = nn.Linear(num_hiddens, num_hiddens, bias=bias)

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor, valid_lens: Tensor | None) -> Tensor:
        """queries (B, Q, D), keys and values (B, K, D), valid_lens (B,) or (B, Q) -> (B, Q, D)."""
        q, k, v = (
            transpose_qkv(projection(x), self.num_heads)
            for projection, x in ((self.W_q, queries), (self.W_k, keys), (self.W_v, values))
        )
        scores = torch.bmm(q, k.transpose(1, 2)) / math.sqrt(q.shape[-1])  # (B*h, Q, K)
        if valid_lens is not None:
            lens = torch.repeat_interleave(valid_lens, self.num_heads, dim=0)  # row b*h + i is of example b
            lens = lens[:, None] if lens.dim() == 1 else lens
            hidden = torch.arange(scores.shape[-1], device=scores.device) >= lens[..., None]
            scores = scores.masked_fill(hidden, -1e6)
        self.attention_weights = scores.softmax(-1)
        output = torch.bmm(self.dropout(self.attention_weights), v)  # (B*h, Q, d)
        return self.W_o(transpose_output(output, self.num_heads))


class HarvardMultiHeadAttention(nn.Module):
    """The design of The Annotated Transformer: one list of four linear layers with biases, a mask where 0 hides.

    Hidden scores are set to -1e9. `forward` returns the output alone; `attn`, (B, h, Q, K), is left on the layer.
    """

    def __init__(self, h: int, d_model: int, dropout: float = 0.1) -> None:
        super().__init__()
        require_count("h", h)
        require_count("d_model", d_model)
        require_probability("dropout", dropout)
        require_divisible("d_model", d_model, h)
        self.h, self.d_k = h, d_model // h
        self.linears = nn.ModuleList(nn.Linear(d_model, d_model) for _ in range(4))  # query, key, value, output
        self.dropout = nn.Dropout(dropout)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
        """query (B, Q, D), key and value (B, K, D), mask (B, 1, K) or (B, Q, K) -> (B, Q, D)."""
        batch_size = query.shape[0]
        q, k, v = (
            linear(x).view(batch_size, -1, self.h, self.d_k).transpose(1, 2)
            for linear, x in zip(self.linears[:3], (query, key, value), strict=True)
        )
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.d_k)
        if mask is not None:
            scores = scores.masked_fill(mask.unsqueeze(1) == 0, -1e9)
        self.attn = scores.softmax(dim=-1)
        output = (self.dropout(self.attn) @ v).transpose(1, 2).reshape(batch_size, -1, self.h * self.d_k)
        return self.linears[3](output)
