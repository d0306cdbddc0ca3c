"""A decoder alone: it predicts the next token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from typing_extensions import Unpack

from .._validate import require_choice, require_positive
from ..attention import Cache, MultiHeadAttention
from ._base import DECODER, Encoder, Model, Tokens, Weights, num_cached, require_caches
from ._padding import places_of
from ._window import Windows, masks_of, new_cache, over_all, require_windows, windows_of
from .description import Described, Description

READOUTS = ("with bias", "without bias", "tied")


class GPT(Model):
    """Layers of masked self-attention over one sequence, after Radford et al. 2018.

    Args:
        vocab_size: how many different tokens there are.
        sizes, described: what the layers are like, by place (num_hiddens, num_heads, num_layers, ffn_num_hiddens,
            dropout) or by name, see `mhalib.models.Description`. Usual are 64, 4, 2, 256, 0, and max_tokens=64.
        window: how many tokens each one sees, itself included; `None` means all before it. Or a list with one of these
            for each layer. Caches keep what a window can still see, and no more.
        readout: what makes logits of the last vectors: a linear map "with bias", or "without bias"; or "tied", the
            products with the tokens' own vectors.
        embedding_scale: what the tokens' vectors are multiplied by before the first layer; Vaswani et al. 2017 and
            Gemma have √D.
        logit_cap: c, where each logit z becomes c · tanh(z / c), as in Gemma 2; `None` leaves them as they are.

    Raises:
        TypeError, ValueError: an argument is not of this kind.

    Sources: Child et al. 2019 for windows, Press and Wolf 2017, Using the Output Embedding to Improve Language Models.
    """

    usual = Description(num_layers=2, ffn_num_hiddens=256)

    def __init__(
        self,
        vocab_size: int,
        *sizes: float,
        window: Windows = None,
        readout: str = "with bias",
        embedding_scale: float = 1.0,
        logit_cap: float | None = None,
        **described: Unpack[Described],
    ) -> None:
        window = require_windows(window)
        require_choice("readout", readout, READOUTS)
        require_positive("embedding_scale", embedding_scale)
        if logit_cap is not None:
            require_positive("logit_cap", logit_cap)
        own: dict[str, Any] = {
            "window": window,
            "readout": readout,
            "embedding_scale": embedding_scale,
            "logit_cap": logit_cap,
        }
        usual = {"window": None, "readout": "with bias", "embedding_scale": 1.0, "logit_cap": None}
        told = {name: value for name, value in own.items() if value != usual[name]}  # older files name none of them
        super().__init__(sizes, described, vocab_size=vocab_size, **told)
        self.window, self.logit_cap = window, logit_cap
        self.windows = windows_of(window, self.design.num_layers)  # of each layer
        self.tokens = Tokens(vocab_size, self.design, scale=embedding_scale)
        self.decoder = Encoder(self.design)
        self.readout = (
            None if readout == "tied" else nn.Linear(self.design.num_hiddens, vocab_size, bias=readout == "with bias")
        )

    def forward(
        self,
        tokens: Tensor,
        *,
        is_real: Tensor | None = None,
        need_weights: bool = False,
        caches: Sequence[Cache] | None = None,
    ) -> tuple[Tensor, Weights | None]:
        """What comes after each token.

        Args:
            tokens: (B, N) ids; with `caches`, only the new ones.
            is_real: (B, K) booleans, `False` where there is padding, which no token sees; K counts the tokens in
                `caches`, too. The real tokens of a text follow each other, with padding before or behind them, and
                their positions are counted from the first real one. What comes out at padding means nothing.
            need_weights: whether weights are returned.
            caches: from `new_caches`, for generating step by step.

        Returns:
            logits (B, N, vocab_size), and {"decoder self": weights per layer} or `None`.
        """
        require_caches(caches, len(self.decoder.layers))
        start = num_cached(caches)
        places = None if is_real is None else places_of("", tokens, is_real, start)
        mask = masks_of(self.windows, start, caches, is_real)
        x = self.tokens(tokens, start, places)
        x, weights = self.decoder(x, mask=mask, need_weights=need_weights, caches=caches)
        return self.read_out(x), {DECODER: over_all(weights, start + tokens.shape[1], caches)} if need_weights else None

    def read_out(self, x: Tensor) -> Tensor:
        """What the last layer makes, (B, N, D) -> logits (B, N, vocab_size)."""
        logits = nn.functional.linear(x, self.tokens.embedding.weight) if self.readout is None else self.readout(x)
        return logits if self.logit_cap is None else (logits / self.logit_cap).tanh() * self.logit_cap

    def new_caches(self, max_tokens: int = 0) -> list[Cache]:
        """An empty cache for each layer, with memory for `max_tokens` taken ahead, or for what its window sees."""
        layers = zip(self.decoder.self_attention, self.windows, strict=True)
        return [new_cache(layer, window, max_tokens) for layer, window in layers]

    def attention_layers(self) -> dict[str, list[MultiHeadAttention]]:
        return {DECODER: self.decoder.self_attention}
