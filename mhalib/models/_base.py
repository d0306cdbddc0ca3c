"""What the models share: their settings, their tokens' vectors, stacks of layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from typing_extensions import Self

from .._renamed import require_new_names
from .._validate import require_count, require_kind, require_tensor, seen_extremes
from ..attention import Band, Cache, MultiHeadAttention, make_positions
from ..attention.cache import require_cache
from ..attention.masks import Mask
from ._padding import only_real, without_padding
from .blocks import DecoderCache, DecoderLayer, EncoderLayer, make_norm
from .description import LATER, Choices, Described, Description

Weights = dict[str, list[Tensor]]
"""Kind -> one tensor (B, h, Q, K) for each layer."""
ENCODER, DECODER, CROSS = "encoder self", "decoder self", "cross"


class Model(nn.Module):
    """A model of the book.

    settings: what it was made with, so that `type(model)(**model.settings)` is a new one of the same shape.
    """

    settings: dict[str, Any]
    usual: ClassVar[Description] = Description()
    """What its layers are like, unless it is told otherwise."""
    fixed: ClassVar[tuple[str, ...]] = ()
    """Entries of the description that it does not leave open."""

    def __new__(cls, *_: Any, **named: Any) -> Self:
        require_new_names(cls.__name__, named)
        return super().__new__(cls)

    def __init__(self, sizes: Sequence[float], described: Described, **own: Any) -> None:
        """Keep what the model is made with: `sizes` and `described` of its layers, `own` besides."""
        super().__init__()
        self.design = self.usual.changed(sizes, described, self.fixed)
        as_usual = [name for name in LATER if getattr(self.design, name) == getattr(self.usual, name)]
        self.settings = {**own, **self.design.without(*self.fixed, *as_usual)}

    def attention_layers(self) -> dict[str, list[MultiHeadAttention]]:
        """The attention layers by kind, in the places in which their weights are returned."""
        raise NotImplementedError

    def share(self) -> None:
        """Give all places of the model that share a parameter the same one. The constructor calls it, and so does
        `load_state_dict`, which with `assign=True` puts a new parameter into each place."""
        for module in self.modules():
            if isinstance(module, _Stack):
                module.share()

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """As in `torch.nn.Module`; what is shared stays shared with `assign`, too."""
        result = super().load_state_dict(state_dict, strict, assign)
        self.share()
        return result

    def settings_with(self, attention: Choices) -> dict[str, Any]:
        """The settings of a model like this one, all of whose attention layers are of another kind, or each
        of its own."""
        return {**self.settings, "attention": attention}

    @property
    def num_weights(self) -> int:
        """How many numbers were learned; what several places share counts once."""
        return sum(parameter.numel() for parameter in self.parameters())


class Tokens(nn.Module):
    """A vector for each token, times `scale`, with its position where positions act on vectors. With `norm`, a
    normalisation follows. Errors call the tokens by `name`."""

    def __init__(
        self, vocab_size: int, design: Description, name: str = "tokens", scale: float = 1.0, norm: bool = False
    ) -> None:
        super().__init__()
        require_count("vocab_size", vocab_size)
        self.vocab_size, self.name, self.scale = vocab_size, name, scale
        self.embedding = nn.Embedding(vocab_size, design.num_hiddens)
        self.positions = make_positions(design.positions, design.max_tokens, design.num_hiddens)
        self.norm = make_norm(design.num_hiddens, design.norm_kind, design.norm_eps) if norm else None

    def forward(self, tokens: Tensor, start: int = 0, places: Tensor | None = None) -> Tensor:
        """(B, N) ids -> (B, N, D); the first stands at `start`, or each at its own of `places` (B, N)."""
        require_ids(self.name, tokens, self.vocab_size)
        x = self.embedding(tokens)
        x = self.positions(x if self.scale == 1 else x * self.scale, start, places)
        return x if self.norm is None else self.norm(x)


def require_ids(name: str, tokens: Tensor, vocab_size: int) -> None:
    """Raise unless `tokens` is (B, N), of integers (TypeError), each the id of a word (ValueError)."""
    require_tensor(name, tokens, rank=2)
    if tokens.dtype not in (torch.int64, torch.int32):
        raise TypeError(f"{name} must hold integers, int64 or int32, got {tokens.dtype}")
    extremes = seen_extremes(tokens)
    if extremes is None:
        return
    # on a GPU, a wrong id would break off everything that the process does there later
    smallest, largest = extremes
    if smallest < 0 or largest >= vocab_size:
        wrong = smallest if smallest < 0 else largest
        raise ValueError(f"{name} holds {wrong}, but ids go from 0 to {vocab_size - 1}")


class _Stack(nn.Module):
    """Layers in a row; but with norm="post", a last normalisation."""

    kind: type[EncoderLayer] | type[DecoderLayer]

    def __init__(self, design: Description) -> None:
        super().__init__()
        self.layers = nn.ModuleList(self.kind.described(design, number) for number in range(design.num_layers))
        has_norm = design.norm != "post"
        self.norm = make_norm(design.num_hiddens, design.norm_kind, design.norm_eps) if has_norm else nn.Identity()
        self.share()

    def share(self) -> None:
        """Give the layers of a kind those parameters of the first one that its kind of attention has once for all."""
        for layers in self._by_kind():
            owners: dict[tuple[type, str, torch.Size], MultiHeadAttention] = {}
            for layer in layers:
                for name in layer.shared_by_layers:
                    owner = owners.setdefault((type(layer), name, getattr(layer, name).shape), layer)
                    setattr(layer, name, getattr(owner, name))

    def _by_kind(self) -> list[list[MultiHeadAttention]]:
        return [self.self_attention]

    @property
    def self_attention(self) -> list[MultiHeadAttention]:
        return [cast(MultiHeadAttention, layer.attention) for layer in self.layers]


class Encoder(_Stack):
    """Encoder layers in a row; but with norm="post", a last normalisation."""

    kind = EncoderLayer

    def forward(
        self,
        x: Tensor,
        valid_lens: Tensor | None = None,
        *,
        mask: Mask | list[Mask] | None = None,
        need_weights: bool = False,
        caches: Sequence[Cache] | None = None,
    ) -> tuple[Tensor, list[Tensor]]:
        """(B, N, D) -> (B, N, D), and the layers' weights, an empty list unless asked for. `mask` is one for all
        layers, or a list with one for each."""
        kept = []
        handed_on: dict[str, Any] = {}
        for number, layer in enumerate(self.layers):
            cache = None if caches is None else caches[number]
            own = mask[number] if isinstance(mask, list) else mask
            x, weights = layer(x, valid_lens, mask=own, need_weights=need_weights, cache=cache, handed_on=handed_on)
            kept.append(weights)
        return self.norm(x), kept if need_weights else []


class Decoder(_Stack):
    """Decoder layers in a row; but with norm="post", a last normalisation."""

    kind = DecoderLayer

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        memory_lens: Tensor | None = None,
        *,
        mask: Mask | None = None,
        memory_mask: Mask | None = None,
        need_weights: bool = False,
        caches: list[DecoderCache] | None = None,
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """(B, N, D) -> (B, N, D), and the layers' weights over their own tokens and over the memory."""
        own, cross = [], []
        handed_on: dict[str, Any] = {}
        for number, layer in enumerate(self.layers):
            cache = None if caches is None else caches[number]
            x, self_weights, cross_weights = layer(
                x,
                memory,
                memory_lens,
                mask=mask,
                memory_mask=memory_mask,
                need_weights=need_weights,
                cache=cache,
                handed_on=handed_on,
            )
            own.append(self_weights)
            cross.append(cross_weights)
        return self.norm(x), *((own, cross) if need_weights else ([], []))

    def new_caches(self, max_tokens: int = 0) -> list[DecoderCache]:
        """An empty cache for each layer, with memory for `max_tokens` taken ahead."""
        return [cast(DecoderLayer, layer).new_cache(max_tokens) for layer in self.layers]

    @property
    def cross_attention(self) -> list[MultiHeadAttention]:
        return [cast(MultiHeadAttention, layer.cross_attention) for layer in self.layers]

    def _by_kind(self) -> list[list[MultiHeadAttention]]:
        return [self.self_attention, self.cross_attention]


class EncoderDecoder(Model):
    """A model that encodes a source and decodes a target. Subclasses make the parts, and say how to read a source."""

    encoder: Encoder
    decoder: Decoder
    target: Tokens
    readout: nn.Linear

    def embed_source(self, source: Tensor, is_real: Tensor | None = None) -> Tensor:
        """A vector for each part of the source: (B, K, D). Where the source is a text with padding, `is_real` (B, K),
        its positions are counted from the first real token."""
        raise NotImplementedError

    def read_out(self, x: Tensor) -> Tensor:
        """What the decoder makes, (B, Q, D) -> logits (B, Q, words)."""
        return self.readout(x)

    def encode(
        self,
        source: Tensor,
        source_lens: Tensor | None = None,
        *,
        source_is_real: Tensor | None = None,
        need_weights: bool = False,
    ) -> tuple[Tensor, Weights]:
        """Read the source.

        Args:
            source: (B, K) ids, or whatever else the model reads.
            source_lens: (B,) how many tokens are real, where padding is behind them.
            source_is_real: (B, K) booleans, `False` where there is padding, before a text or behind it. No token sees
                padding, and positions are counted from the first real token. What comes out at padding means nothing.
            need_weights: whether weights are returned.

        Returns:
            memory (B, K, D), and weights, whose list is empty unless asked for.
        """
        x = self.embed_source(source, source_is_real)
        mask = only_real(source_is_real, x)
        memory, weights = self.encoder(x, source_lens, mask=mask, need_weights=need_weights)
        return memory, {ENCODER: weights}

    def decode(
        self,
        target: Tensor,
        memory: Tensor,
        source_lens: Tensor | None = None,
        *,
        source_is_real: Tensor | None = None,
        target_is_real: Tensor | None = None,
        need_weights: bool = False,
        caches: list[DecoderCache] | None = None,
    ) -> tuple[Tensor, Weights]:
        """What comes after each target token.

        Args:
            target: (B, Q) ids; with `caches`, only the new ones.
            memory: (B, K, D) from `encode`.
            source_lens, source_is_real: as in `encode`.
            target_is_real: as `source_is_real`, of the target; its length counts the tokens in `caches`, too.
            need_weights: whether weights are returned.
            caches: from `new_caches`, for decoding step by step.

        Returns:
            logits (B, Q, words), and weights; their lists are empty unless asked for.
        """
        require_caches(caches, len(self.decoder.layers), DecoderCache)
        start = num_cached(caches)
        mask, places = without_padding(Band(offset=start), target_is_real, target, start, "target")
        x, own, cross = self.decoder(
            self.target(target, start, places),
            memory,
            source_lens,
            mask=mask,
            memory_mask=only_real(source_is_real, memory),
            need_weights=need_weights,
            caches=caches,
        )
        return self.read_out(x), {DECODER: own, CROSS: cross}

    def forward(
        self,
        source: Tensor,
        target: Tensor,
        source_lens: Tensor | None = None,
        *,
        source_is_real: Tensor | None = None,
        target_is_real: Tensor | None = None,
        need_weights: bool = False,
    ) -> tuple[Tensor, Weights | None]:
        """A source, target ids (B, Q) -> logits (B, Q, words) for the token after each, and weights or `None`.
        Arguments as in `encode` and `decode`."""
        memory, encoder_weights = self.encode(
            source, source_lens, source_is_real=source_is_real, need_weights=need_weights
        )
        logits, decoder_weights = self.decode(
            target,
            memory,
            source_lens,
            source_is_real=source_is_real,
            target_is_real=target_is_real,
            need_weights=need_weights,
        )
        return logits, {**encoder_weights, **decoder_weights} if need_weights else None

    def new_caches(self, max_tokens: int = 0) -> list[DecoderCache]:
        """Empty caches for `decode`, with memory for `max_tokens` taken ahead."""
        return self.decoder.new_caches(max_tokens)

    def attention_layers(self) -> dict[str, list[MultiHeadAttention]]:
        return {
            ENCODER: self.encoder.self_attention,
            DECODER: self.decoder.self_attention,
            CROSS: self.decoder.cross_attention,
        }


def num_cached(caches: list[DecoderCache] | Sequence[Cache] | None) -> int:
    """How many tokens the first layer has seen."""
    if caches is None:
        return 0
    first = caches[0]
    return len(first.own if isinstance(first, DecoderCache) else first)


def require_caches(caches: object, num_layers: int, kind: type | None = None) -> None:
    """Raise unless `caches` is `None` or a list (TypeError) of a cache for each layer (ValueError)."""
    if caches is None:
        return
    if not isinstance(caches, (list, tuple)):
        raise TypeError(f"caches must be a list from new_caches, got {type(caches).__name__}: {caches!r:.80}")
    if len(caches) != num_layers:
        raise ValueError(f"caches holds {len(caches)} entries, but the model has {num_layers} layers")
    for number, cache in enumerate(caches):
        if kind is None:
            require_cache(f"caches[{number}]", cache)
        else:
            require_kind(f"caches[{number}]", cache, kind)
