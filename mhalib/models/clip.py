"""A model that says how well texts fit pictures."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from .._validate import require_count, require_kind, seen_extremes
from ..attention import Band, MultiHeadAttention
from ._base import DECODER, ENCODER, Encoder, Model, Tokens, Weights
from .description import Choices, Described, Description
from .pictures import ViT

_WITHIN = ("num_classes", "readout_bias", "distilled")


class CLIP(Model):
    """Two towers: one makes a vector of a picture, the other of a text, and the cosine of both says how well they fit.

    A text is read by masked self-attention, as in a `GPT`, and its vector is that of the token that ends it. A picture
    is read by a `ViT`, and its vector is that of the class token.

    Args:
        vocab_size: how many different tokens texts have.
        num_features: width of the space that both vectors are in.
        sizes, described: what the layers for texts are like, by place (num_hiddens, num_heads, num_layers,
            ffn_num_hiddens, dropout) or by name, see `mhalib.models.Description`. Usual are 64, 4, 2, 256, 0,
            max_tokens=77 and ffn_kind="gelu_sigmoid".
        pictures: what a `ViT` is told of the pictures and its layers, by name, `None` for nothing; its readout is not
            open.
        end_token: the token that ends a text, of which the first counts; `None` means the token with the highest
            number of a text, as in the files of the first models.

    Raises:
        TypeError, ValueError: an argument is not of this kind.

    Source: Radford et al. 2021, Learning Transferable Visual Models From Natural Language Supervision.
    """

    usual = Description(num_layers=2, ffn_num_hiddens=256, max_tokens=77, ffn_kind="gelu_sigmoid")

    def __init__(
        self,
        vocab_size: int,
        num_features: int = 64,
        *sizes: float,
        pictures: Mapping[str, Any] | None = None,
        end_token: int | None = None,
        **described: Unpack[Described],
    ) -> None:
        own: dict[str, Any] = {"vocab_size": vocab_size, "num_features": num_features, "end_token": end_token}
        told = {} if pictures is None else pictures
        require_kind("pictures", told, Mapping)
        super().__init__(sizes, described, **own, pictures=dict(told))
        require_count("num_features", num_features)
        wrong = [name for name in told if not isinstance(name, str) or name in _WITHIN]
        if wrong:
            raise TypeError(f"pictures must not say {wrong[0]!r:.80}: that is not open")
        self.end_token = end_token
        self.tokens = Tokens(vocab_size, self.design)
        if end_token is not None:
            require_count("end_token", end_token, minimum=0)
            if end_token >= vocab_size:
                raise ValueError(f"end_token={end_token} must be below vocab_size={vocab_size}")
        self.encoder = Encoder(self.design)
        self.projection = nn.Linear(self.design.num_hiddens, num_features, bias=False)
        self.pictures = ViT(**{"channels": 3, **told, "num_classes": num_features, "readout_bias": False})
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))

    def read_pictures(self, images: Tensor, *, need_weights: bool = False) -> tuple[Tensor, Weights | None]:
        """Pictures (B, channels, height, width) -> vectors (B, num_features), and {"encoder self": weights per layer}
        or `None`. The vectors are not divided by their lengths."""
        result: tuple[Tensor, Weights | None] = self.pictures(images, need_weights=need_weights)
        return result

    def read_texts(
        self, tokens: Tensor, valid_lens: Tensor | None = None, *, need_weights: bool = False
    ) -> tuple[Tensor, Weights | None]:
        """Read texts of which the first `valid_lens` tokens are real.

        Args:
            tokens: (B, N) ids, in each text one that ends it.
            valid_lens: (B,).
            need_weights: whether weights are returned.

        Returns:
            vectors (B, num_features), not divided by their lengths, and {"decoder self": weights per layer} or `None`.

        Raises:
            TypeError, ValueError: an argument is not of this kind, or a text has no token that ends it.
        """
        x = self.tokens(tokens)
        x, weights = self.encoder(x, valid_lens, mask=Band(), need_weights=need_weights)
        last = x[torch.arange(len(x), device=x.device), self._ends(tokens)]
        return self.projection(last), {DECODER: weights} if need_weights else None

    def _ends(self, tokens: Tensor) -> Tensor:
        """Where each text ends: (B,)."""
        if not tokens.shape[1]:
            raise ValueError(f"tokens must have at least one token in each text, got shape {tuple(tokens.shape)}")
        if self.end_token is None:
            return tokens.argmax(1)
        is_end = (tokens == self.end_token).long()
        fewest = seen_extremes(is_end.sum(1))
        if fewest is not None and not fewest[0]:
            raise ValueError(f"tokens have a text without end_token={self.end_token}")
        return is_end.argmax(1)

    def forward(
        self, images: Tensor, tokens: Tensor, valid_lens: Tensor | None = None, *, need_weights: bool = False
    ) -> tuple[Tensor, Weights | None]:
        """How well each picture fits each text.

        Args:
            images: (P, channels, height, width).
            tokens: (T, N) ids, see `read_texts`.
            valid_lens: (T,).
            need_weights: whether weights are returned.

        Returns:
            logits (P, T), cosines times exp(logit_scale); and weights or `None`, in each layer (P, h, N, N) of a
            picture's tokens, "encoder self", and (T, h, N, N) of a text's, "decoder self".
        """
        of_pictures, seen = self.read_pictures(images, need_weights=need_weights)
        of_texts, read = self.read_texts(tokens, valid_lens, need_weights=need_weights)
        unit = nn.functional.normalize
        logits = self.logit_scale.exp() * unit(of_pictures, dim=-1) @ unit(of_texts, dim=-1).mT
        return logits, {**seen, **read} if seen is not None and read is not None else None

    def settings_with(self, attention: Choices) -> dict[str, Any]:
        told = super().settings_with(attention)
        return {**told, "pictures": {**told["pictures"], "attention": attention}}

    def attention_layers(self) -> dict[str, list[MultiHeadAttention]]:
        return {ENCODER: self.pictures.encoder.self_attention, DECODER: self.encoder.self_attention}
