"""An encoder alone: it reads a text and gives a vector for each token."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from .._validate import require_count
from ..attention import MultiHeadAttention
from ._base import ENCODER, Encoder, Model, Tokens, Weights, require_ids
from .blocks import make_norm
from .description import Described, Description


class BERT(Model):
    """Layers of self-attention over one text, normalised after each sublayer, after Devlin et al. 2019.

    Args:
        vocab_size: how many different tokens there are.
        sizes, described: what the layers are like, by place (num_hiddens, num_heads, num_layers, ffn_num_hiddens,
            dropout) or by name, see `mhalib.models.Description`; `norm` and `positions` are not open. Usual are
            64, 4, 2, 256, 0, max_tokens=64 and norm_eps=1e-12. The tokens' vectors are dropped too.
        num_segments: how many texts may stand side by side, each marked by a vector of its own.

    Raises:
        TypeError, ValueError: an argument is not of this kind.
    """

    usual = Description(num_layers=2, ffn_num_hiddens=256, norm="post", norm_eps=1e-12)
    fixed = ("norm", "positions", "parallel")

    def __init__(self, vocab_size: int, *sizes: float, num_segments: int = 2, **described: Unpack[Described]) -> None:
        super().__init__(sizes, described, vocab_size=vocab_size, num_segments=num_segments)
        require_count("num_segments", num_segments)
        self.tokens = Tokens(vocab_size, self.design)
        self.segments = nn.Embedding(num_segments, self.design.num_hiddens)
        self.norm = make_norm(self.design.num_hiddens, self.design.norm_kind, self.design.norm_eps)
        self.dropout = nn.Dropout(self.design.dropout)
        self.encoder = Encoder(self.design)

    def forward(
        self,
        tokens: Tensor,
        valid_lens: Tensor | None = None,
        *,
        segments: Tensor | None = None,
        need_weights: bool = False,
    ) -> tuple[Tensor, Weights | None]:
        """Read texts of which the first `valid_lens` tokens are real.

        Args:
            tokens: (B, N) ids.
            valid_lens: (B,).
            segments: (B, N) numbers of the texts that the tokens belong to; `None` puts all in text 0.
            need_weights: whether weights are returned.

        Returns:
            (B, N, D), and {"encoder self": weights per layer} or `None`.
        """
        x = self.tokens(tokens)
        if segments is None:
            segments = torch.zeros_like(tokens)
        require_ids("segments", segments, self.segments.num_embeddings)
        if segments.shape != tokens.shape:
            raise ValueError(f"segments has shape {tuple(segments.shape)}, but tokens has {tuple(tokens.shape)}")
        x = x + self.segments(segments)
        x, weights = self.encoder(self.dropout(self.norm(x)), valid_lens, need_weights=need_weights)
        return x, {ENCODER: weights} if need_weights else None

    def attention_layers(self) -> dict[str, list[MultiHeadAttention]]:
        return {ENCODER: self.encoder.self_attention}
