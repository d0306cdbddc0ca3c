"""One description of what the layers of a model are like, which blocks, stacks and models share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, TypedDict

from .. import variants as variants  # so that their names are known
from .._validate import require_choice, require_count, require_flag, require_positive, require_probability
from ..attention import POSITIONS, ROTARY, MultiHeadAttention, kind_of, make_attention

NORMS = ("pre", "post", "after", "both")
NORM_KINDS = ("layer", "layer without bias", "rms")
FFN_KINDS = (
    *("gelu", "gelu_tanh", "gelu_sigmoid", "relu", "silu"),
    *("geglu", "geglu_tanh", "reglu", "swiglu", "swiglu_clamped"),
)
LATER = ("norm_kind", "norm_eps", "ffn_kind", "ffn_bias", "parallel", "cross", "mixture")
"""Entries that a model's `settings` name only where they are not as usual: files of weights are older than they."""
Choice = str | Mapping[str, Any]
"""One kind of attention, by its name or with settings."""
Choices = Choice | Sequence[Choice]
"""One kind for all layers of a model, or a list with one for each."""
Mixtures = Mapping[str, Any] | Sequence[Mapping[str, Any] | None] | None
"""Experts in place of feed-forward networks, in all layers of a model or in each; `None` means one network."""
_OF_MIXTURES = {
    *("ffn_num_hiddens", "num_experts", "num_chosen", "normalised", "shares", "choice_bias"),
    *("num_groups", "num_chosen_groups", "share_scale", "num_shared"),
}
BY_PLACE = ("num_hiddens", "num_heads", "num_layers", "ffn_num_hiddens", "dropout")


class LayerOptions(TypedDict, total=False):
    """What a layer may be told by name besides its sizes; what it means stands in `Description`."""

    norm: str
    positions: str
    attention: Choices
    norm_kind: str
    norm_eps: float
    ffn_kind: str
    ffn_bias: bool
    parallel: bool
    cross: str | Mapping[str, Any] | None
    mixture: Mixtures


class Described(LayerOptions, total=False):
    """What a model may be told by name; what it means stands in `Description`."""

    num_hiddens: int
    num_heads: int
    num_layers: int
    ffn_num_hiddens: int
    dropout: float
    max_tokens: int


@dataclass(frozen=True)
class Description:
    """What the layers of a model are like.

    num_hiddens: D.
    num_heads: h, in every attention layer.
    num_layers: how many layers; of the encoder, and of the decoder.
    ffn_num_hiddens: width inside the feed-forward networks; 0 leaves them out, for a model of attention alone.
    dropout: of each sublayer's result, in training.
    max_tokens: how long a sequence may be, with learned positions.
    norm: "pre", "post", "after" or "both", see `mhalib.models.SkipConnection`.
    positions: "none", "learned", "sinusoidal", "sinusoidal-halves", "rotary" or "rotary-halves", see
        `mhalib.attention.positions`.
    attention: which layer, by a name in `mhalib.attention.KINDS`, or a mapping with that "name" and settings of the
        layer, such as {"name": "multi-head", "num_kv_heads": 1}. Or a list with one of these for each layer: with
        [{"name": "multi-head", "rotary_base": 1e6}, "qk-norm"] the two layers differ in their rotary bases, too.
    norm_kind: "layer" subtracts the mean and divides by the standard deviation, then has gains and biases; "layer
        without bias" has gains alone; so has "rms", which only divides by the root mean square.
    norm_eps: what the normalisations add to a variance or a mean square.
    ffn_kind: the function in the feed-forward networks, and whether it gates, see `mhalib.models.FeedForward`.
    ffn_bias: whether the maps of the feed-forward networks have biases. Those of attention are settings of
        `attention`, "bias" and "out_bias".
    parallel: whether the feed-forward network reads what the attention reads, each through a norm of its own, and both
        results are added to x; otherwise it reads what attention has changed. Needs norm="pre".
    cross: which layer looks at a memory, as in `attention`; `None` means the same as `attention`, or multi-head
        attention where that one makes sense only among the tokens of one sequence.
    mixture: settings of a `mhalib.models.MixtureFeedForward` in place of each feed-forward network, such as
        {"num_experts": 8, "num_chosen": 2}; what it does not name is as elsewhere. Or a list with one of these, or
        `None`, for each layer; `None` means one network.

    Raises:
        TypeError, ValueError: an entry is not of this kind.

    Sources: Zhang and Sennrich 2019, Root Mean Square Layer Normalization; Wang and Komatsuzaki 2021, GPT-J-6B, for
    `parallel`.
    """

    num_hiddens: int = 64
    num_heads: int = 4
    num_layers: int = 1
    ffn_num_hiddens: int = 128
    dropout: float = 0.0
    max_tokens: int = 64
    norm: str = "pre"
    positions: str = "learned"
    attention: Choices = "multi-head"
    norm_kind: str = "layer"
    norm_eps: float = 1e-5
    ffn_kind: str = "gelu"
    ffn_bias: bool = True
    parallel: bool = False
    cross: str | Mapping[str, Any] | None = None
    mixture: Mixtures = None

    def __post_init__(self) -> None:
        for name in ("num_hiddens", "num_heads", "num_layers", "max_tokens"):
            require_count(name, getattr(self, name))
        require_count("ffn_num_hiddens", self.ffn_num_hiddens, minimum=0)
        require_probability("dropout", self.dropout)
        require_choice("norm", self.norm, NORMS)
        require_choice("positions", self.positions, POSITIONS)
        require_choice("norm_kind", self.norm_kind, NORM_KINDS)
        require_positive("norm_eps", self.norm_eps)
        require_choice("ffn_kind", self.ffn_kind, FFN_KINDS)
        require_flag("ffn_bias", self.ffn_bias)
        require_flag("parallel", self.parallel)
        for name in ("attention", "mixture"):
            entries = getattr(self, name)
            if isinstance(entries, (list, tuple)):
                object.__setattr__(self, name, list(entries))  # as a file of weights gives it back
                if len(entries) != self.num_layers:
                    raise ValueError(
                        f"{name}={entries!r:.200} has {len(entries)} entries, but num_layers={self.num_layers}"
                    )
        for number in range(self.num_layers if isinstance(self.mixture, list) else 1):
            if self.mixture_of(number) is not None and not self.ffn_num_hiddens:
                raise ValueError(f"mixture={self.mixture!r:.200} needs ffn_num_hiddens above 0")
        if self.parallel and self.norm != "pre":
            raise ValueError(f"parallel=True needs norm='pre', got norm={self.norm!r}")

    def changed(self, sizes: Sequence[float], described: Mapping[str, Any], fixed: Sequence[str] = ()) -> Description:
        """The description with other entries.

        Args:
            sizes: by their places: num_hiddens, num_heads, num_layers, ffn_num_hiddens, dropout.
            described: by their names.
            fixed: names that may not be given.

        Raises:
            TypeError: an entry is unknown, fixed, or given twice, or there are too many.
        """
        if len(sizes) > len(BY_PLACE):
            raise TypeError(f"at most {', '.join(BY_PLACE)} may be given without their names, got {len(sizes)} numbers")
        placed = dict(zip(BY_PLACE, sizes, strict=False))
        twice = sorted(placed.keys() & described.keys())
        if twice:
            raise TypeError(f"{twice} are given by their place and by their name")
        known = {field.name for field in fields(self)} - set(fixed)
        unknown = sorted(described.keys() - known)
        if unknown:
            raise TypeError(f"unexpected keyword argument {unknown[0]!r}: known are {sorted(known)}")
        return replace(self, **{**placed, **described})

    def without(self, *names: str) -> dict[str, Any]:
        """The entries as a dict, but for these."""
        return {name: value for name, value in asdict(self).items() if name not in names}

    def attention_of(self, layer_number: int) -> Choice:
        """The kind of layer `layer_number`, counted from 0.

        Raises:
            ValueError: there is no such layer.
        """
        choice: Choice = self._of_layer("attention", layer_number)
        return choice

    def mixture_of(self, layer_number: int) -> Mapping[str, Any] | None:
        """The experts of layer `layer_number`, counted from 0; `None` means one network.

        Raises:
            TypeError: they are neither `None` nor a mapping with settings of a `MixtureFeedForward`.
            ValueError: there is no such layer.
        """
        choice = self._of_layer("mixture", layer_number)
        if choice is not None and not (isinstance(choice, Mapping) and choice.keys() <= _OF_MIXTURES):
            raise TypeError(f"mixture={choice!r:.200} must be None or map from names among {sorted(_OF_MIXTURES)}")
        return choice

    def _of_layer(self, name: str, layer_number: int) -> Any:
        """The entry of that name, which may be a list with one for each layer."""
        entry = getattr(self, name)
        if not isinstance(entry, list):
            return entry
        if layer_number >= len(entry):
            raise ValueError(f"{name}={entry!r:.200} has no entry for layer_number={layer_number}")
        return entry[layer_number]

    def self_attention(self, layer_number: int = 0) -> MultiHeadAttention:
        """A layer for tokens that look at each other; it applies the positions, if they act in the heads."""
        choice = self.attention_of(layer_number)
        is_turned = self.positions in ROTARY and not kind_of(choice).keeps_state
        return self._attention(choice, layer_number, positions=self.positions if is_turned else "none")

    def cross_attention(self, layer_number: int = 0) -> MultiHeadAttention:
        """A layer for tokens that look at others, which have no position of theirs.

        Raises:
            ValueError: `cross` names a layer that makes sense only among the tokens of one sequence.
        """
        if self.cross is None:
            own = self.attention_of(layer_number)
            return self._attention("multi-head" if kind_of(own).looks_at_itself_only else own, layer_number)
        if kind_of(self.cross).looks_at_itself_only:
            raise ValueError(f"cross={self.cross!r:.200} cannot be: this layer looks at its own tokens only")
        return self._attention(self.cross, layer_number)

    def _attention(self, choice: Choice, layer_number: int, **more: Any) -> MultiHeadAttention:
        if kind_of(choice).takes_layer_number:
            more["layer_number"] = layer_number
        return make_attention(choice, self.num_hiddens, self.num_heads, bias=True, **more)
