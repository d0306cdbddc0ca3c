"""An encoder alone: it reads a text and gives a vector for each token."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..attention import MultiHeadAttention
from ._base import ENCODER, Encoder, Model, Tokens, Weights


class BERT(Model):
    """Layers of self-attention over one text, normalised after each sublayer, after Devlin et al. 2019.

    Args:
        num_words: how many different tokens there are.
        num_hiddens: D.
        num_heads: h.
        num_layers: how many layers.
        ffn_num_hiddens: width inside the feed-forward networks.
        dropout: of the tokens' vectors and of each sublayer's result, in training.
        max_tokens: how long a text may be.
        num_segments: how many texts may stand side by side, each marked by a vector of its own.
        norm_eps: what the normalisations add to a variance.

    Raises:
        TypeError, ValueError: an argument is not of this kind.
    """

    def __init__(
        self,
        num_words: int,
        num_hiddens: int = 64,
        num_heads: int = 4,
        num_layers: int = 2,
        ffn_num_hiddens: int = 256,
        dropout: float = 0.0,
        *,
        max_tokens: int = 64,
        num_segments: int = 2,
        norm_eps: float = 1e-12,
    ) -> None:
        super().__init__()
        self._remember(locals())
        self.tokens = Tokens(num_words, num_hiddens, max_tokens, "learned")
        self.segments = nn.Embedding(num_segments, num_hiddens)
        self.norm = nn.LayerNorm(num_hiddens)
        self.dropout = nn.Dropout(dropout)
        self.encoder = Encoder(num_layers, num_hiddens, num_heads, ffn_num_hiddens, dropout, norm="post")
        for module in self.modules():
            if isinstance(module, nn.LayerNorm):
                module.eps = norm_eps

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
        x = x + self.segments(torch.zeros_like(tokens) if segments is None else segments)
        x, weights = self.encoder(self.dropout(self.norm(x)), valid_lens, need_weights=need_weights)
        return x, {ENCODER: weights} if need_weights else None

    def attention_layers(self) -> dict[str, list[MultiHeadAttention]]:
        return {ENCODER: self.encoder.attention_layers}
