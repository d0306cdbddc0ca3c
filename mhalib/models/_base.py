"""What the models share: their settings, their tokens' vectors, stacks of layers."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from .._validate import require_count, require_tensor
from ..attention import MultiHeadAttention
from ..blocks import DecoderCache, DecoderLayer, EncoderLayer
from ..cache import KeyValueCache
from ..masks import causal_mask
from ..positions import LearnedPositions, SinusoidalPositions

Weights = dict[str, list[Tensor]]
ENCODER, DECODER, CROSS = "encoder self", "decoder self", "cross"
POSITIONS = ("learned", "sinusoidal", "rotary")


class Model(nn.Module):
    """A model of the book.

    settings: what it was made with, so that `type(model)(**model.settings)` is a new one of the same shape.
    """

    settings: dict[str, Any]

    def _remember(self, arguments: dict[str, Any]) -> None:
        """Keep the arguments of `__init__`, given as `locals()`."""
        self.settings = {name: value for name, value in arguments.items() if name not in ("self", "__class__")}

    def attention_layers(self) -> dict[str, list[MultiHeadAttention]]:
        """The attention layers by kind, in the places in which their weights are returned."""
        raise NotImplementedError

    @property
    def num_weights(self) -> int:
        """How many numbers were learned."""
        return sum(parameter.numel() for parameter in self.parameters())


class Tokens(nn.Module):
    """A vector for each token, and, unless they are rotary, its position. Errors call the tokens by `name`."""

    def __init__(self, num_words: int, num_hiddens: int, max_tokens: int, positions: str, name: str = "tokens") -> None:
        super().__init__()
        require_count("num_words", num_words)
        self.num_words, self.name = num_words, name
        self.embedding = nn.Embedding(num_words, num_hiddens)
        self.positions = position_module(positions, max_tokens, num_hiddens)

    def forward(self, tokens: Tensor, start: int = 0) -> Tensor:
        """(B, N) ids -> (B, N, D)."""
        require_ids(self.name, tokens, self.num_words)
        x = self.embedding(tokens)
        return x if self.positions is None else self.positions(x, start)


def require_ids(name: str, tokens: Tensor, num_words: int) -> None:
    """Raise unless `tokens` is (B, N), of integers (TypeError), each the id of a word (ValueError)."""
    require_tensor(name, tokens, rank=2)
    if tokens.dtype not in (torch.int64, torch.int32):
        raise TypeError(f"{name} must hold integers, int64 or int32, got {tokens.dtype}")
    if torch.compiler.is_compiling() or not tokens.numel():
        return
    # on a GPU, a wrong id would break off everything that the process does there later
    smallest, largest = (int(edge) for edge in tokens.aminmax())
    if smallest < 0 or largest >= num_words:
        wrong = smallest if smallest < 0 else largest
        raise ValueError(f"{name} holds {wrong}, but ids go from 0 to {num_words - 1}")


def position_module(positions: str, max_tokens: int, num_hiddens: int) -> LearnedPositions | SinusoidalPositions | None:
    """What adds positions to tokens; `None` for rotary ones, which the layers themselves apply."""
    if positions not in POSITIONS:
        raise ValueError(f"positions={positions!r} must be one of {POSITIONS}")
    if positions == "learned":
        return LearnedPositions(max_tokens, num_hiddens)
    return SinusoidalPositions() if positions == "sinusoidal" else None


class _Stack(nn.Module):
    """Layers in a row; with norm="pre", a last normalisation."""

    kind: type[EncoderLayer] | type[DecoderLayer]

    def __init__(
        self,
        num_layers: int,
        num_hiddens: int,
        num_heads: int,
        ffn_num_hiddens: int,
        dropout: float,
        *,
        norm: str = "pre",
        rotary: bool = False,
    ) -> None:
        super().__init__()
        require_count("num_layers", num_layers)
        self.layers = nn.ModuleList(
            self.kind(num_hiddens, num_heads, ffn_num_hiddens, dropout, norm=norm, rotary=rotary)
            for _ in range(num_layers)
        )
        self.norm = nn.LayerNorm(num_hiddens) if norm == "pre" else nn.Identity()

    @property
    def attention_layers(self) -> list[MultiHeadAttention]:
        return [cast(MultiHeadAttention, layer.attention) for layer in self.layers]


class Encoder(_Stack):
    """Encoder layers in a row; with norm="pre", a last normalisation."""

    kind = EncoderLayer

    def forward(
        self,
        x: Tensor,
        valid_lens: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        need_weights: bool = False,
        caches: list[KeyValueCache] | None = None,
    ) -> tuple[Tensor, list[Tensor]]:
        """(B, N, D) -> (B, N, D), and the layers' weights, an empty list unless asked for."""
        kept = []
        for number, layer in enumerate(self.layers):
            cache = None if caches is None else caches[number]
            x, weights = layer(x, valid_lens, mask=mask, need_weights=need_weights, cache=cache)
            kept.append(weights)
        return self.norm(x), kept if need_weights else []


class Decoder(_Stack):
    """Decoder layers in a row; with norm="pre", a last normalisation."""

    kind = DecoderLayer

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        memory_lens: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        need_weights: bool = False,
        caches: list[DecoderCache] | None = None,
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """(B, N, D) -> (B, N, D), and the layers' weights over their own tokens and over the memory."""
        own, cross = [], []
        for number, layer in enumerate(self.layers):
            cache = None if caches is None else caches[number]
            x, self_weights, cross_weights = layer(
                x, memory, memory_lens, mask=mask, need_weights=need_weights, cache=cache
            )
            own.append(self_weights)
            cross.append(cross_weights)
        return self.norm(x), *((own, cross) if need_weights else ([], []))

    def new_caches(self) -> list[DecoderCache]:
        """An empty cache for each layer."""
        return [DecoderCache(KeyValueCache(), KeyValueCache()) for _ in self.layers]

    @property
    def cross_attention_layers(self) -> list[MultiHeadAttention]:
        return [cast(MultiHeadAttention, layer.cross_attention) for layer in self.layers]


class EncoderDecoder(Model):
    """A model that encodes a source and decodes a target. Subclasses make the parts, and say how to read a source."""

    encoder: Encoder
    decoder: Decoder
    target: Tokens
    readout: nn.Linear

    def embed_source(self, source: Tensor) -> Tensor:
        """A vector for each part of the source: (B, K, D)."""
        raise NotImplementedError

    def encode(
        self, source: Tensor, source_lens: Tensor | None = None, *, need_weights: bool = False
    ) -> tuple[Tensor, Weights]:
        """Read the source, of which the first `source_lens` (B,) tokens are real.

        Returns:
            memory (B, K, D), and weights, whose list is empty unless asked for.
        """
        memory, weights = self.encoder(self.embed_source(source), source_lens, need_weights=need_weights)
        return memory, {ENCODER: weights}

    def decode(
        self,
        target: Tensor,
        memory: Tensor,
        source_lens: Tensor | None = None,
        *,
        need_weights: bool = False,
        caches: list[DecoderCache] | None = None,
    ) -> tuple[Tensor, Weights]:
        """What comes after each target token.

        Args:
            target: (B, Q) ids; with `caches`, only the new ones.
            memory: (B, K, D) from `encode`.
            source_lens: (B,).
            need_weights: whether weights are returned.
            caches: from `new_caches`, for decoding step by step.

        Returns:
            logits (B, Q, words), and weights; their lists are empty unless asked for.
        """
        start = num_cached(caches)
        x = self.target(target, start)
        mask = causal_mask(x.shape[1], start + x.shape[1], offset=start, device=x.device)
        x, own, cross = self.decoder(x, memory, source_lens, mask=mask, need_weights=need_weights, caches=caches)
        return self.readout(x), {DECODER: own, CROSS: cross}

    def forward(
        self, source: Tensor, target: Tensor, source_lens: Tensor | None = None, *, need_weights: bool = False
    ) -> tuple[Tensor, Weights | None]:
        """A source, target ids (B, Q) -> logits (B, Q, words) for the token after each, and weights or `None`."""
        memory, encoder_weights = self.encode(source, source_lens, need_weights=need_weights)
        logits, decoder_weights = self.decode(target, memory, source_lens, need_weights=need_weights)
        return logits, {**encoder_weights, **decoder_weights} if need_weights else None

    def new_caches(self) -> list[DecoderCache]:
        """Empty caches for `decode`."""
        return self.decoder.new_caches()

    def attention_layers(self) -> dict[str, list[MultiHeadAttention]]:
        return {
            ENCODER: self.encoder.attention_layers,
            DECODER: self.decoder.attention_layers,
            CROSS: self.decoder.cross_attention_layers,
        }


def num_cached(caches: list[DecoderCache] | list[KeyValueCache] | None) -> int:
    """How many tokens the first layer has seen."""
    if not caches:
        return 0
    first = caches[0]
    return len(first.own if isinstance(first, DecoderCache) else first)
