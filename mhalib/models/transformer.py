"""The encoder-decoder of Vaswani et al. 2017."""

from __future__ import annotations

from torch import Tensor, nn
from typing_extensions import Unpack

from ._base import Decoder, Encoder, EncoderDecoder, Tokens
from .description import Described, Description


class Transformer(EncoderDecoder):
    """Reads a source sequence and writes a target sequence.

    Args:
        source_vocab_size, target_vocab_size: how many different tokens there are on each side.
        sizes, described: what the layers are like, by place (num_hiddens, num_heads, num_layers, ffn_num_hiddens,
            dropout) or by name, see `mhalib.models.Description`. Usual are 64, 4, 1, 128, 0, and max_tokens=16.

    Raises:
        TypeError, ValueError: an argument is not of this kind.
    """

    usual = Description(max_tokens=16)

    def __init__(
        self, source_vocab_size: int, target_vocab_size: int, *sizes: float, **described: Unpack[Described]
    ) -> None:
        super().__init__(sizes, described, source_vocab_size=source_vocab_size, target_vocab_size=target_vocab_size)
        self.source = Tokens(source_vocab_size, self.design, "source")
        self.target = Tokens(target_vocab_size, self.design, "target")
        self.encoder = Encoder(self.design)
        self.decoder = Decoder(self.design)
        self.readout = nn.Linear(self.design.num_hiddens, target_vocab_size)

    def embed_source(self, source: Tensor) -> Tensor:
        """(B, K) ids -> (B, K, D)."""
        return self.source(source)
