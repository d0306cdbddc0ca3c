"""An encoder alone: it reads a text and gives a vector for each token."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from .._validate import require_count
from ..attention import MultiHeadAttention
from ._base import ENCODER, Encoder, Model, Tokens, Weights, require_ids
from ._padding import places_of
from ._window import Windows, masks_of, require_windows, windows_of
from .blocks import SkipConnection, make_norm
from .description import Described, Description


class BERT(Model):
    """Layers of self-attention over one text, after Devlin et al. 2019 and, with norm="pre", ModernBERT.

    Args:
        vocab_size: how many different tokens there are.
        sizes, described: what the layers are like, by place (num_hiddens, num_heads, num_layers, ffn_num_hiddens,
            dropout) or by name, see `mhalib.models.Description`; `parallel` is not open. Usual are 64, 4, 2, 256, 0,
            max_tokens=64, norm="post" and norm_eps=1e-12. The tokens' vectors are normalised and dropped, too; with
            norm="pre" the first attention then reads them as they are.
        num_segments: how many texts may stand side by side, each marked by a vector of its own; 0 marks none.
        window: how many tokens each one sees, itself and as many on both sides: an odd number. `None` means all. Or a
            list with one of these for each layer.

    Raises:
        TypeError, ValueError: an argument is not of this kind.

    Source of windows and norm="pre": Warner et al. 2024, Smarter, Better, Faster, Longer, section 2.1.
    """

    usual = Description(num_layers=2, ffn_num_hiddens=256, norm="post", norm_eps=1e-12)
    fixed = ("parallel",)

    def __init__(
        self,
        vocab_size: int,
        *sizes: float,
        num_segments: int = 2,
        window: Windows = None,
        **described: Unpack[Described],
    ) -> None:
        window = require_windows(window, two_sided=True)
        own: dict[str, Any] = {"vocab_size": vocab_size, "num_segments": num_segments}
        super().__init__(sizes, described, **own | ({} if window is None else {"window": window}))
        require_count("num_segments", num_segments, minimum=0)
        self.windows = windows_of(window, self.design.num_layers)  # of each layer
        self.tokens = Tokens(vocab_size, self.design)
        self.segments = nn.Embedding(num_segments, self.design.num_hiddens) if num_segments else None
        self.norm = make_norm(self.design.num_hiddens, self.design.norm_kind, self.design.norm_eps)
        self.dropout = nn.Dropout(self.design.dropout)
        self.encoder = Encoder(self.design)
        if self.design.norm == "pre":  # what it reads is normalised already
            first = SkipConnection(self.design.num_hiddens, self.design.dropout, "none")
            self.encoder.layers[0].attention_skip = first

    def forward(
        self,
        tokens: Tensor,
        valid_lens: Tensor | None = None,
        *,
        segments: Tensor | None = None,
        is_real: Tensor | None = None,
        need_weights: bool = False,
    ) -> tuple[Tensor, Weights | None]:
        """Read texts of which the first `valid_lens` tokens are real.

        Args:
            tokens: (B, N) ids.
            valid_lens: (B,).
            segments: (B, N) numbers of the texts that the tokens belong to; `None` puts all in text 0.
            is_real: (B, N) booleans, `False` where there is padding, before a text or behind it, as in `GPT.forward`.
            need_weights: whether weights are returned.

        Returns:
            (B, N, D), and {"encoder self": weights per layer} or `None`.
        """
        x = self.tokens(tokens, 0, None if is_real is None else places_of("", tokens, is_real))
        if self.segments is not None:
            x = x + self.segments(self._segments(tokens, segments))
        elif segments is not None:
            raise ValueError("segments cannot be told apart: the model was made with num_segments=0")
        mask = masks_of(self.windows, 0, None, is_real, two_sided=True)
        x = self.dropout(self.norm(x))
        x, weights = self.encoder(x, valid_lens, mask=mask, need_weights=need_weights)
        return x, {ENCODER: weights} if need_weights else None

    def _segments(self, tokens: Tensor, segments: Tensor | None) -> Tensor:
        assert self.segments is not None
        if segments is None:
            return torch.zeros_like(tokens)
        require_ids("segments", segments, self.segments.num_embeddings)
        if segments.shape != tokens.shape:
            raise ValueError(f"segments has shape {tuple(segments.shape)}, but tokens has {tuple(tokens.shape)}")
        return segments

    def attention_layers(self) -> dict[str, list[MultiHeadAttention]]:
        return {ENCODER: self.encoder.self_attention}
