"""A decoder alone: it predicts the next token."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from typing_extensions import Unpack

from ..attention import Band, Cache, MultiHeadAttention
from ._base import DECODER, Encoder, Model, Tokens, Weights, num_cached, require_caches
from .description import Described, Description


class GPT(Model):
    """Layers of masked self-attention over one sequence, after Radford et al. 2018.

    Args:
        vocab_size: how many different tokens there are.
        sizes, described: what the layers are like, by place (num_hiddens, num_heads, num_layers, ffn_num_hiddens,
            dropout) or by name, see `mhalib.models.Description`. Usual are 64, 4, 2, 256, 0, and max_tokens=64.

    Raises:
        TypeError, ValueError: an argument is not of this kind.
    """

    usual = Description(num_layers=2, ffn_num_hiddens=256)

    def __init__(self, vocab_size: int, *sizes: float, **described: Unpack[Described]) -> None:
        super().__init__(sizes, described, vocab_size=vocab_size)
        self.tokens = Tokens(vocab_size, self.design)
        self.decoder = Encoder(self.design)
        self.readout = nn.Linear(self.design.num_hiddens, vocab_size)

    def forward(
        self, tokens: Tensor, *, need_weights: bool = False, caches: Sequence[Cache] | None = None
    ) -> tuple[Tensor, Weights | None]:
        """What comes after each token.

        Args:
            tokens: (B, N) ids; with `caches`, only the new ones.
            need_weights: whether weights are returned.
            caches: from `new_caches`, for generating step by step.

        Returns:
            logits (B, N, vocab_size), and {"decoder self": weights per layer} or `None`.
        """
        require_caches(caches, len(self.decoder.layers))
        start = num_cached(caches)
        x = self.tokens(tokens, start)
        x, weights = self.decoder(x, mask=Band(offset=start), need_weights=need_weights, caches=caches)
        return self.readout(x), {DECODER: weights} if need_weights else None

    def new_caches(self, max_tokens: int = 0) -> list[Cache]:
        """An empty cache for each layer, with memory for `max_tokens` taken ahead."""
        return [layer.new_cache(max_tokens) for layer in self.decoder.self_attention]

    def attention_layers(self) -> dict[str, list[MultiHeadAttention]]:
        return {DECODER: self.decoder.self_attention}
