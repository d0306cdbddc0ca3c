"""The encoder-decoder of Vaswani et al. 2017."""

from __future__ import annotations

from torch import Tensor, nn

from ._base import Decoder, Encoder, EncoderDecoder, Tokens


class Transformer(EncoderDecoder):
    """Reads a source sequence and writes a target sequence.

    Args:
        source_size, target_size: how many different tokens there are on each side.
        num_hiddens: D.
        num_heads: h, in every attention layer.
        num_layers: of the encoder, and of the decoder.
        ffn_num_hiddens: width inside the feed-forward networks.
        dropout: of each sublayer's result, in training.
        max_tokens: how long a sequence may be, with learned positions.
        norm: "pre" or "post", see `mhalib.blocks.SkipConnection`.
        positions: "learned", "sinusoidal" or "rotary".

    Raises:
        TypeError, ValueError: an argument is not of this kind.
    """

    def __init__(
        self,
        source_size: int,
        target_size: int,
        num_hiddens: int = 64,
        num_heads: int = 4,
        num_layers: int = 1,
        ffn_num_hiddens: int = 128,
        dropout: float = 0.0,
        *,
        max_tokens: int = 16,
        norm: str = "pre",
        positions: str = "learned",
    ) -> None:
        super().__init__()
        self._remember(locals())
        sizes = (num_layers, num_hiddens, num_heads, ffn_num_hiddens, dropout)
        rotary = positions == "rotary"
        self.source = Tokens(source_size, num_hiddens, max_tokens, positions, "source")
        self.target = Tokens(target_size, num_hiddens, max_tokens, positions, "target")
        self.encoder = Encoder(*sizes, norm=norm, rotary=rotary)
        self.decoder = Decoder(*sizes, norm=norm, rotary=rotary)
        self.readout = nn.Linear(num_hiddens, target_size)

    def embed_source(self, source: Tensor) -> Tensor:
        """(B, K) ids -> (B, K, D)."""
        return self.source(source)
