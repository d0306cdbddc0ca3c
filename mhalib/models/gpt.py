"""A decoder alone: it predicts the next token."""

from __future__ import annotations

from torch import Tensor, nn

from ..attention import MultiHeadAttention
from ..cache import KeyValueCache
from ..masks import causal_mask
from ._base import DECODER, Encoder, Model, Tokens, Weights, num_cached


class GPT(Model):
    """Layers of masked self-attention over one sequence, after Radford et al. 2018.

    Args:
        num_words: how many different tokens there are.
        num_hiddens: D.
        num_heads: h.
        num_layers: how many layers.
        ffn_num_hiddens: width inside the feed-forward networks; 0 makes a model of attention alone.
        dropout: of each sublayer's result, in training.
        max_tokens: how long a sequence may be, with learned positions.
        norm: "pre" or "post", see `mhalib.blocks.SkipConnection`.
        positions: "learned", "sinusoidal" or "rotary".

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
        norm: str = "pre",
        positions: str = "learned",
    ) -> None:
        super().__init__()
        self._remember(locals())
        self.tokens = Tokens(num_words, num_hiddens, max_tokens, positions)
        self.decoder = Encoder(
            num_layers, num_hiddens, num_heads, ffn_num_hiddens, dropout, norm=norm, rotary=positions == "rotary"
        )
        self.readout = nn.Linear(num_hiddens, num_words)

    def forward(
        self, tokens: Tensor, *, need_weights: bool = False, caches: list[KeyValueCache] | None = None
    ) -> tuple[Tensor, Weights | None]:
        """What comes after each token.

        Args:
            tokens: (B, N) ids; with `caches`, only the new ones.
            need_weights: whether weights are returned.
            caches: from `new_caches`, for generating step by step.

        Returns:
            logits (B, N, num_words), and {"decoder self": weights per layer} or `None`.
        """
        start = num_cached(caches)
        x = self.tokens(tokens, start)
        mask = causal_mask(x.shape[1], start + x.shape[1], offset=start, device=x.device)
        x, weights = self.decoder(x, mask=mask, need_weights=need_weights, caches=caches)
        return self.readout(x), {DECODER: weights} if need_weights else None

    def new_caches(self) -> list[KeyValueCache]:
        """An empty cache for each layer."""
        return [KeyValueCache() for _ in self.decoder.layers]

    def attention_layers(self) -> dict[str, list[MultiHeadAttention]]:
        return {DECODER: self.decoder.attention_layers}
