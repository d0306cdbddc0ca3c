"""The encoder-decoder of Vaswani et al. 2017, and what later ones change in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from typing_extensions import Unpack

from .._validate import require_choice, require_flag, require_kind, require_positive
from ._base import Decoder, Encoder, EncoderDecoder, Tokens
from ._padding import places_of
from .description import Described, Description

READOUTS = ("with bias", "without bias", "tied", "tied with bias")
_USUAL = {
    "share_tokens": False,
    "embedding_scale": 1.0,
    "embedding_norm": False,
    "readout": "with bias",
    "readout_scale": 1.0,
    "decoder": None,
}
"""What older files of weights do not name, since it was not open when they were written."""


class Transformer(EncoderDecoder):
    """Reads a source sequence and writes a target sequence.

    Args:
        source_vocab_size, target_vocab_size: how many different tokens there are on each side.
        sizes, described: what the layers are like, by place (num_hiddens, num_heads, num_layers, ffn_num_hiddens,
            dropout) or by name, see `mhalib.models.Description`. Usual are 64, 4, 1, 128, 0, and max_tokens=16.
        share_tokens: whether source and target have the same vectors for their tokens; BART and T5 have.
        embedding_scale: what the tokens' vectors are multiplied by before their positions are added; Vaswani et al.
            2017 and Marian have √D.
        embedding_norm: whether a normalisation stands before the first layer, on each side, as in BART.
        readout: what makes logits of the last vectors: a linear map "with bias" or "without bias"; "tied", the
            products with the target tokens' own vectors; or "tied with bias".
        readout_scale: what the last vectors are multiplied by before that; T5 has 1/√D.
        decoder: entries of the description that are other in the decoder, such as {"num_layers": 2}.

    Raises:
        TypeError, ValueError: an argument is not of this kind, or `share_tokens` is told of vocabularies of two sizes.

    Sources: Lewis et al. 2020, BART; Junczys-Dowmunt et al. 2018, Marian; Raffel et al. 2020, T5; Press and Wolf 2017,
    Using the Output Embedding to Improve Language Models.
    """

    usual = Description(max_tokens=16)

    def __init__(
        self,
        source_vocab_size: int,
        target_vocab_size: int,
        *sizes: float,
        share_tokens: bool = False,
        embedding_scale: float = 1.0,
        embedding_norm: bool = False,
        readout: str = "with bias",
        readout_scale: float = 1.0,
        decoder: Mapping[str, Any] | None = None,
        **described: Unpack[Described],
    ) -> None:
        require_flag("share_tokens", share_tokens)
        require_positive("embedding_scale", embedding_scale)
        require_flag("embedding_norm", embedding_norm)
        require_choice("readout", readout, READOUTS)
        require_positive("readout_scale", readout_scale)
        if decoder is not None:
            require_kind("decoder", decoder, Mapping)
            decoder = dict(decoder)
        own: dict[str, Any] = {
            "share_tokens": share_tokens,
            "embedding_scale": embedding_scale,
            "embedding_norm": embedding_norm,
            "readout": readout,
            "readout_scale": readout_scale,
            "decoder": decoder or None,
        }
        told = {name: value for name, value in own.items() if value != _USUAL[name]}
        vocab_sizes = {"source_vocab_size": source_vocab_size, "target_vocab_size": target_vocab_size}
        super().__init__(sizes, described, **vocab_sizes, **told)
        if share_tokens and source_vocab_size != target_vocab_size:
            raise ValueError(f"share_tokens=True needs one vocabulary, got sizes {[*vocab_sizes.values()]}")
        self.shares_tokens, self.is_tied, self.readout_scale = share_tokens, readout.startswith("tied"), readout_scale
        design = self.design.changed((), decoder or {}, ("num_hiddens",))
        self.source = Tokens(source_vocab_size, self.design, "source", embedding_scale, embedding_norm)
        self.target = Tokens(target_vocab_size, design, "target", embedding_scale, embedding_norm)
        self.encoder = Encoder(self.design)
        self.decoder = Decoder(design)
        self.readout = nn.Linear(design.num_hiddens, target_vocab_size, bias=readout.endswith("with bias"))
        self.share()

    def share(self) -> None:
        super().share()
        if self.shares_tokens:
            self.target.embedding.weight = self.source.embedding.weight
        if self.is_tied:
            self.readout.weight = self.target.embedding.weight

    def embed_source(self, source: Tensor, is_real: Tensor | None = None) -> Tensor:
        """(B, K) ids -> (B, K, D)."""
        if is_real is None:
            return self.source(source)
        return self.source(source, places=places_of("source", source, is_real))

    def read_out(self, x: Tensor) -> Tensor:
        """(B, Q, D) -> logits (B, Q, target_vocab_size)."""
        return self.readout(x if self.readout_scale == 1 else x * self.readout_scale)
