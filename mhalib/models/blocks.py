"""What stands around attention in a transformer: skip connections with normalisation, and a feed-forward network."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor, nn
from typing_extensions import Self, Unpack

from .._validate import (
    require_choice,
    require_count,
    require_kind,
    require_positive,
    require_probability,
    require_tensor,
)
from ..attention import Cache
from ..attention.masks import Mask
from ..variants import HandsOn
from .description import NORM_KINDS, NORMS, Description, LayerOptions
from .feed_forward import FeedForward, MixtureFeedForward, require_vectors


def make_norm(num_hiddens: int, kind: str = "layer", eps: float = 1e-5) -> nn.LayerNorm | nn.RMSNorm:
    """The normalisation of a kind in `NORM_KINDS`, see `Description`."""
    if kind == "rms":
        return nn.RMSNorm(num_hiddens, eps)
    return nn.LayerNorm(num_hiddens, eps, bias=kind == "layer")


class SkipConnection(nn.Module):
    """What a sublayer reads, and what becomes of its result.

    | `norm` | the sublayer reads | what goes on | as in |
    |---|---|---|---|
    | "pre" | norm(x) | x + dropout(result) | GPT-2 |
    | "post" | x | norm(x + dropout(result)) | Vaswani et al. 2017 |
    | "after" | x | x + dropout(norm(result)) | OLMo 2 |
    | "both" | norm(x) | x + dropout(norm_result(result)) | Gemma 2 |
    | "none" | x | x + dropout(result) | the first attention of ModernBERT |

    `norm_kind` and `norm_eps` say which normalisation, see `Description`.

    Sources: Xiong et al. 2020, On Layer Normalization in the Transformer Architecture, for "pre"; OLMo Team 2024, 2
    OLMo 2 Furious, for "after"; Gemma Team 2024, Gemma 2, for "both".
    """

    def __init__(
        self,
        num_hiddens: int,
        dropout: float = 0.0,
        norm: str = "pre",
        norm_kind: str = "layer",
        norm_eps: float = 1e-5,
    ) -> None:
        super().__init__()
        require_count("num_hiddens", num_hiddens)
        require_probability("dropout", dropout)
        require_choice("norm", norm, (*NORMS, "none"))
        require_choice("norm_kind", norm_kind, NORM_KINDS)
        require_positive("norm_eps", norm_eps)
        self.way, self.is_pre = norm, norm in ("pre", "both")
        self.norm = nn.Identity() if norm == "none" else make_norm(num_hiddens, norm_kind, norm_eps)
        self.norm_result = make_norm(num_hiddens, norm_kind, norm_eps) if norm == "both" else None
        self.dropout = nn.Dropout(dropout)

    def before(self, x: Tensor) -> Tensor:
        """What the sublayer reads: (B, N, D)."""
        self._require_vectors("x", x)
        return self.norm(x) if self.is_pre else x

    def after(self, x: Tensor, result: Tensor) -> Tensor:
        """What goes on, from what came in and what the sublayer made of it: (B, N, D)."""
        self._require_vectors("x", x)
        self._require_vectors("result", result)
        if x.shape != result.shape:
            raise ValueError(f"result has shape {tuple(result.shape)}, but x has {tuple(x.shape)}")
        if self.norm_result is not None:
            result = self.norm_result(result)
        elif self.way == "after":
            result = self.norm(result)
        x = x + self.dropout(result)
        return self.norm(x) if self.way == "post" else x

    def _require_vectors(self, name: str, x: Tensor) -> None:
        require_vectors(name, x, getattr(self.norm, "weight", None))


class _Layer(nn.Module):
    """What the layers of encoders and decoders are made of; a decoder's looks elsewhere, too, in between."""

    def __init__(
        self,
        num_hiddens: int,
        num_heads: int,
        ffn_num_hiddens: int,
        dropout: float = 0.0,
        layer_number: int = 0,
        **described: Unpack[LayerOptions],
    ) -> None:
        super().__init__()
        design = Description(num_hiddens, num_heads, 1, ffn_num_hiddens, dropout).changed((), described)
        require_count("layer_number", layer_number, minimum=0)
        self.layer_number = layer_number
        self.attention = design.self_attention(layer_number)
        self.attention_skip = _skip(design)
        self.parallel = design.parallel
        self._look_elsewhere(design)
        self.ffn, self.ffn_skip = _feed_forward(design)

    def _look_elsewhere(self, design: Description) -> None:
        """Make what stands between self-attention and the feed-forward network."""

    @classmethod
    def described(cls, design: Description, layer_number: int = 0) -> Self:
        """Layer `layer_number` of a model, counted from 0."""
        told = design.without("num_layers", "max_tokens") | {"attention": design.attention_of(layer_number)}
        return cls(**told | {"mixture": design.mixture_of(layer_number)}, layer_number=layer_number)

    def _look_at_own(
        self,
        seen: Tensor,
        valid_lens: Tensor | None,
        mask: Mask | None,
        need_weights: bool,
        cache: Cache | None,
        handed_on: dict[str, Any] | None,
    ) -> tuple[Tensor, Tensor | None]:
        """Self-attention; a layer that hands something on to the next is given the dict that is for that."""
        more = {"handed_on": handed_on} if isinstance(self.attention, HandsOn) else {}
        return self.attention(seen, seen, seen, valid_lens, mask=mask, need_weights=need_weights, cache=cache, **more)


class EncoderLayer(_Layer):
    """Self-attention, then a feed-forward network. With a causal mask, it is the layer of a GPT.

    Args:
        num_hiddens: D.
        num_heads: h.
        ffn_num_hiddens: width inside the feed-forward network; 0 leaves that network out.
        dropout: of each sublayer's result, in training.
        layer_number: which of its model's layers it is, counted from 0; some attention layers ask.
        described: `norm`, `positions` (of which rotary ones act here), `attention`, `norm_kind`, `norm_eps`,
            `ffn_kind`, `ffn_bias`, `mixture`, `parallel` and `cross` (of which a decoder's layer takes note), see
            `Description`.

    Raises:
        TypeError, ValueError: an argument is not of this kind.
    """

    def forward(
        self,
        x: Tensor,
        valid_lens: Tensor | None = None,
        *,
        mask: Mask | None = None,
        need_weights: bool = False,
        cache: Cache | None = None,
        handed_on: dict[str, Any] | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """x (B, N, D) -> (B, N, D), and weights (B, h, N, K) or `None`; K counts the tokens in `cache` too. `handed_on`
        is what layers below have handed on, see `mhalib.variants.HandsOn`."""
        seen = self.attention_skip.before(x)
        output, weights = self._look_at_own(seen, valid_lens, mask, need_weights, cache, handed_on)
        changed = self.attention_skip.after(x, output)
        return _apply(self.ffn, self.ffn_skip, changed, x if self.parallel else changed), weights


class DecoderCache(NamedTuple):
    """What a `DecoderLayer` has projected: its own tokens, and the memory (once)."""

    own: Cache
    memory: Cache


class DecoderLayer(_Layer):
    """Masked self-attention, cross-attention to a memory, feed-forward network. Arguments as in `EncoderLayer`."""

    def _look_elsewhere(self, design: Description) -> None:
        if design.parallel:
            raise ValueError("parallel=True cannot be: a decoder's layer looks at a memory in between")
        self.cross_attention = design.cross_attention(self.layer_number)
        self.cross_skip = _skip(design)

    def new_cache(self, max_tokens: int = 0) -> DecoderCache:
        """Empty caches for the layer's own tokens and for the memory."""
        return DecoderCache(self.attention.new_cache(max_tokens), self.cross_attention.new_cache())

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        memory_lens: Tensor | None = None,
        *,
        mask: Mask | None = None,
        memory_mask: Mask | None = None,
        need_weights: bool = False,
        cache: DecoderCache | None = None,
        handed_on: dict[str, Any] | None = None,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Decode `x` with a look at `memory`.

        Args:
            x: (B, N, D).
            memory: (B, K, D), what the encoder made; with a cache that has seen it, it is not projected again.
            memory_lens: (B,) how many tokens of the memory are real.
            mask: what each token may see of its own sequence; a causal mask, as a rule.
            memory_mask: what each token may see of the memory; with `memory_lens` too, both must allow.
            need_weights: whether weights are returned.
            cache: of the earlier tokens.
            handed_on: what the self-attention of layers below has handed on, see `mhalib.variants.HandsOn`.

        Returns:
            (B, N, D), weights of the self-attention (B, h, N, N) and of the cross-attention (B, h, N, K), or `None`.
        """
        require_tensor("memory", memory, rank=3)
        if cache is not None:
            require_kind("cache", cache, DecoderCache)
        own, seen_memory = (None, None) if cache is None else cache
        seen = self.attention_skip.before(x)
        output, self_weights = self._look_at_own(seen, None, mask, need_weights, own, handed_on)
        x = self.attention_skip.after(x, output)
        new = memory[:, :0] if seen_memory else memory  # an empty cache is false
        output, cross_weights = self.cross_attention(
            self.cross_skip.before(x),
            new,
            new,
            memory_lens,
            mask=memory_mask,
            need_weights=need_weights,
            cache=seen_memory,
        )
        x = self.cross_skip.after(x, output)
        return _apply(self.ffn, self.ffn_skip, x, x), self_weights, cross_weights


def _feed_forward(design: Description) -> tuple[FeedForward | MixtureFeedForward | None, SkipConnection | None]:
    if not design.ffn_num_hiddens:
        return None, None
    told: dict[str, Any] = {"ffn_num_hiddens": design.ffn_num_hiddens, "kind": design.ffn_kind, "bias": design.ffn_bias}
    mixture = design.mixture_of(0)
    if mixture is None:
        return FeedForward(design.num_hiddens, **told), _skip(design)
    return MixtureFeedForward(design.num_hiddens, **{**told, **mixture}), _skip(design)


def _skip(design: Description) -> SkipConnection:
    return SkipConnection(design.num_hiddens, design.dropout, design.norm, design.norm_kind, design.norm_eps)


def _apply(ffn: nn.Module | None, skip: SkipConnection | None, x: Tensor, read: Tensor) -> Tensor:
    """x with what the network makes of `read`."""
    return x if ffn is None or skip is None else skip.after(x, ffn(skip.before(read)))
