"""Which process holds what: heads and keys of a layer, and for each kind of attention the parts that it has besides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from torch import nn

from .. import variants
from .._validate import require_count, require_flag, require_kind
from ..attention import MultiHeadAttention
from ..models import GPT, FeedForward, MixtureFeedForward

ROWS, COLUMNS, COPIES, PICKED, WHOLE, SPREAD = "rows", "columns", "copies", "picked", "whole", "spread"
"""How a parameter is held: its G-th part by rows or by columns; the rows of one key, which neighbours hold, too; whole,
with some rows used, or all; whole, with the G-th part of its numbers used, which one sum puts together."""


class Place(NamedTuple):
    """What a process holds: `heads` of the layer's queries, `kv_heads` of its keys and values."""

    heads: range
    kv_heads: range


def places(num_heads: int, num_kv_heads: int, num_ranks: int) -> list[Place]:
    """Which heads each process holds: neighbours, equally many everywhere.

    Where there are fewer keys than processes, several neighbours hold a copy of one.

    Args:
        num_heads: h.
        num_kv_heads: heads with keys and values of their own, g; divides h.
        num_ranks: how many processes there are, G.

    Raises:
        TypeError, ValueError: a size is no positive integer, `num_ranks` does not divide h, or of `num_ranks` and g
            none divides the other.

    Source: Shoeybi et al. 2019, Megatron-LM, section 3.
    """
    for name, size in (("num_heads", num_heads), ("num_kv_heads", num_kv_heads), ("num_ranks", num_ranks)):
        require_count(name, size)
    if num_heads % num_kv_heads:
        raise ValueError(f"num_heads={num_heads} is not divisible by num_kv_heads={num_kv_heads}")
    if num_heads % num_ranks:
        raise ValueError(f"num_heads={num_heads} cannot be split evenly over {num_ranks} processes")
    if num_kv_heads % num_ranks and num_ranks % num_kv_heads:
        raise ValueError(
            f"num_kv_heads={num_kv_heads} cannot be split evenly over {num_ranks} processes, "
            f"nor {num_ranks} processes evenly over them"
        )
    each, kv_each = num_heads // num_ranks, max(1, num_kv_heads // num_ranks)
    return [
        Place(
            range(rank * each, (rank + 1) * each),
            range(rank * num_kv_heads // num_ranks, rank * num_kv_heads // num_ranks + kv_each),
        )
        for rank in range(num_ranks)
    ]


class Plan(NamedTuple):
    """What a kind of attention has beside four projections, and how it is held. Names are those of parameters, or of
    modules with several; what a process uses of them are its own heads.

    rows: parts whose first axis goes head by head: a process holds the rows of its own.
    whole: parts that all heads use. Every process holds them, and their gradients are summed.
    picked: parts whose rows of a head do not lie together. Every process holds them, and uses those rows that the
        function (layer, heads) names.
    why_not: (layer, num_ranks) -> why the layer cannot be split over so many processes, or "".
    then: (layer, num_ranks): what the layer must be told besides, once it is split.
    """

    rows: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()
    picked: Mapping[str, Callable[[Any, range], list[int]]] = MappingProxyType({})
    why_not: Callable[[Any, int], str] = lambda layer, num_ranks: ""
    then: Callable[[Any, int], None] = lambda layer, num_ranks: None


def _never(why: str) -> Plan:
    return Plan(why_not=lambda layer, num_ranks: why)


def _normed_together(layer: variants.QKNormAttention, num_ranks: int) -> str:
    return "with together=True a token's queries of all heads have one norm" if layer.together else ""


def _groups_apart(layer: variants.NativeSparseAttention, num_ranks: int) -> str:
    apart = num_ranks > layer.num_kv_heads
    return "heads that share a key choose its blocks together, and would come apart" if apart else ""


def _mixed_apart(layer: variants.MultiTokenAttention, num_ranks: int) -> str:
    apart = (layer.num_heads // num_ranks) % layer.head_group
    return f"head_group={layer.head_group} heads mix their weights, and would come apart" if apart else ""


def _maps_apart(layer: variants.DifferentialAttention, num_ranks: int) -> str:
    apart = num_ranks > layer.num_kv_heads
    return "the two maps of a head may look at different keys, which are not copied head by head" if apart else ""


def _keys_apart(layer: variants.DeltaAttention, num_ranks: int) -> str:
    apart = layer.num_key_heads % num_ranks
    return f"num_key_heads={layer.num_key_heads} queries and keys are not split evenly" if apart else ""


def _fewer_channels(layer: variants.DeltaAttention, num_ranks: int) -> None:
    layer.num_key_heads //= num_ranks
    if layer.convolution is not None:
        layer.convolution.groups //= num_ranks


def _filters(layer: variants.DeltaAttention, heads: range) -> list[int]:
    """The convolution has filters of all queries, then of all keys, then of all values."""
    rows: list[int] = []
    first = 0
    for all_rows in (layer.W_q.out_features, layer.W_k.out_features, layer.W_v.out_features):
        own = (first + end * all_rows // layer.num_heads_made for end in (heads.start, heads.stop))
        rows += range(*own)
        first += all_rows
    return rows


def _factors(products: str, width: str) -> Callable[[Any, range], list[int]]:
    """Of each product the numbers of some heads, then all vectors."""

    def rows(layer: variants.TensorProductAttention, heads: range) -> list[int]:
        many, h = getattr(layer, products), layer.num_heads_made
        vectors = range(many * h, many * (h + getattr(layer, width)))
        return [*(product * h + head for product in range(many) for head in heads), *vectors]

    return rows


def _gates(layer: variants.NativeSparseAttention, heads: range) -> list[int]:
    """All heads' gates of one map, then those of the next."""
    return [one * layer.num_heads_made + head for one in range(3) for head in heads]


_LATENT = Plan(rows=("W_up_k", "W_up_v"), whole=("W_q.0", "W_q.1", "W_down", "norm", "W_rotary"))

PLANS: dict[type[MultiHeadAttention], Plan] = {
    MultiHeadAttention: Plan(),
    variants.CollaborativeAttention: Plan(whole=("W_q", "W_k"), rows=("mixing", "content_bias")),
    variants.ComposedAttention: _never("each token mixes the scores of all heads, and then their weights"),
    variants.CrossLayerAttention: Plan(),
    variants.DeltaAttention: Plan(
        rows=("W_rate", "W_gate", "W_decay", "decay_log", "decay_bias"),
        whole=("W_gate.0", "W_decay.0", "norm"),
        picked={"convolution": _filters},
        why_not=_keys_apart,
        then=_fewer_channels,
    ),
    variants.DifferentialAttention: Plan(
        whole=("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2", "norm"), why_not=_maps_apart
    ),
    variants.EntmaxAttention: Plan(rows=("alpha_logits",)),
    variants.GatedAttention: Plan(rows=("W_gate",), whole=("norm_q", "norm_k")),
    variants.IndexedAttention: _LATENT._replace(
        whole=(*_LATENT.whole, "index_q", "index_k", "index_norm", "index_weights")
    ),
    variants.LatentAttention: _LATENT,
    variants.MixtureOfBlocks: Plan(),
    variants.MixtureOfHeads: Plan(whole=("W_shared", "W_routed", "W_kinds")),
    variants.MultiTokenAttention: Plan(rows=("kernels", "heads"), why_not=_mixed_apart),
    variants.NativeSparseAttention: Plan(picked={"W_gate": _gates}, why_not=_groups_apart),
    variants.OverlappingAttention: _never("a head reads channels of its neighbours, whose rows another process holds"),
    variants.QKNormAttention: Plan(whole=("norm_q", "norm_k"), why_not=_normed_together),
    variants.RelativeAttention: Plan(whole=("distance_scores",)),
    variants.SigmoidAttention: Plan(),
    variants.SinkAttention: Plan(rows=("sinks",)),
    variants.SoftCapAttention: Plan(),
    variants.SoftpickAttention: Plan(),
    variants.SpanAttention: Plan(rows=("span_shares",)),
    variants.SparseAttention: Plan(),
    variants.TalkingHeads: _never("each head's scores and weights are sums over all heads"),
    variants.TensorProductAttention: Plan(
        picked={
            "W_q": _factors("query_rank", "head_dim"),
            "W_k": _factors("rank", "head_dim"),
            "W_v": _factors("rank", "value_dim"),
        }
    ),
}
"""How each kind of attention is split. A kind of your own takes its place here: `PLANS[MyAttention] = Plan(...)`."""


def plan_of(layer: MultiHeadAttention, num_ranks: int) -> Plan:
    """How a layer is split over so many processes.

    Raises:
        ValueError: it cannot be; the message names the kind and says why.
    """
    kind = type(layer)
    known = kind if kind.is_variant else MultiHeadAttention
    plan = PLANS.get(known) or _never("PLANS does not say how its heads are held")
    why_not = plan.why_not(layer, num_ranks)
    if why_not:
        raise ValueError(f"{kind.__name__} cannot be split over {num_ranks} processes: {why_not}")
    if layer.num_heads != layer.num_heads_made:
        raise ValueError(
            f"layer has {layer.num_heads} of its {layer.num_heads_made} heads: split before removing heads"
        )
    places(layer.num_heads, layer.num_kv_heads, num_ranks)
    return plan


def ways(part: nn.Module, num_ranks: int) -> dict[str, str]:
    """How the parameters of an attention layer or of feed-forward networks are held, by their names.

    Raises:
        ValueError: the layer cannot be split over so many processes; the message says why.
    """
    if isinstance(part, MultiHeadAttention):
        plan, names = plan_of(part, num_ranks), [name for name, _ in part.named_parameters()]
        return {name: _way(name, part, plan, num_ranks) for name in names}
    for network in part.experts if isinstance(part, MixtureFeedForward) else [part]:
        assert isinstance(network, FeedForward)
        hidden = network.widen.out_features
        if hidden % num_ranks:
            raise ValueError(f"ffn_num_hiddens={hidden} cannot be split evenly over {num_ranks} processes")
    found = {}
    for name, _ in part.named_parameters():
        if "narrow." in name:
            found[name] = COLUMNS if name.endswith("weight") else SPREAD
        else:
            found[name] = WHOLE if name.startswith("router.") else ROWS
    return found


def _way(name: str, layer: MultiHeadAttention, plan: Plan, num_ranks: int) -> str:
    """How one parameter of an attention layer is held."""

    def is_of(parts: Any) -> bool:
        return any(name == part or name.startswith(f"{part}.") for part in parts)

    if is_of(plan.whole):
        return WHOLE
    if is_of(plan.picked):
        return PICKED
    if is_of(("W_k", "W_v")) and num_ranks > layer.num_kv_heads:
        return COPIES
    if is_of((*plan.rows, "W_q", "W_k", "W_v")):
        return ROWS
    if is_of(("W_o",)):
        return COLUMNS if name.endswith("weight") else WHOLE
    raise ValueError(
        f"{type(layer).__name__} cannot be split over {num_ranks} processes: no plan says how {name!r} is held"
    )


def split_parts(model: nn.Module) -> dict[str, nn.Module]:
    """The layers of a model that are split, by their names: attention and feed-forward networks, or whole mixtures of
    such networks."""
    mixtures = [name for name, part in model.named_modules() if isinstance(part, MixtureFeedForward)]
    return {
        name: part
        for name, part in model.named_modules()
        if isinstance(part, (MultiHeadAttention, FeedForward, MixtureFeedForward))
        and not any(name.startswith(f"{mixture}." if mixture else "experts.") for mixture in mixtures)
    }


def require_vocabulary(model: nn.Module, num_ranks: int) -> GPT:
    """The model; raises unless its vocabulary can be split over so many processes."""
    if not isinstance(model, GPT):
        raise TypeError(f"vocabulary=True is for a GPT, got {type(model).__name__}")
    if model.tokens.vocab_size % num_ranks:
        raise ValueError(f"vocab_size={model.tokens.vocab_size} cannot be split evenly over {num_ranks} processes")
    return model


def weights_held(model: nn.Module, num_ranks: int, *, vocabulary: bool = False) -> int:
    """How many weights each process holds of a model that is split: no process is needed to know it, nor memory, if
    the model is on the device "meta".

    Args:
        model: as in `split`.
        num_ranks: how many processes there are, G.
        vocabulary: as in `split`.

    Raises:
        TypeError, ValueError: as in `split`.
    """
    require_kind("model", model, nn.Module)
    require_count("num_ranks", num_ranks)
    require_flag("vocabulary", vocabulary)
    shares = {}
    for name, part in split_parts(model).items():
        for own, way in ways(part, num_ranks).items():
            copies = num_ranks // part.num_kv_heads if way == COPIES and isinstance(part, MultiHeadAttention) else 1
            divided = num_ranks // copies if way in (ROWS, COLUMNS, COPIES) else 1
            shares[f"{name}.{own}" if name else own] = divided
    if vocabulary:
        require_vocabulary(model, num_ranks)
        shares |= dict.fromkeys(("tokens.embedding.weight", "readout.weight", "readout.bias"), num_ranks)
    return sum(part.numel() // shares.get(name, 1) for name, part in model.named_parameters())
