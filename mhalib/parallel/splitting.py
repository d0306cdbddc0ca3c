"""Layers and models that are split over processes, by torch's DTensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module
from torch.nn import functional as F

from .. import processes
from .._validate import require_flag, require_kind
from ..attention import MultiHeadAttention
from ..devices import best_device
from ..models import GPT, FeedForward, MixtureFeedForward, SkipConnection
from .plans import COPIES, PICKED, SPREAD, WHOLE, places, plan_of, require_vocabulary, split_parts, ways

_AnyModel = TypeVar("_AnyModel", bound=nn.Module)


def mesh() -> DeviceMesh:
    """All processes that `torchrun` started, in a row; one where it started none.

    Raises:
        RuntimeError: this is no process of `torchrun`.
    """
    processes.start()
    if not dist.is_initialized():
        raise RuntimeError("there are no processes to split a model over: start the program with torchrun")
    return init_device_mesh(best_device().type, (dist.get_world_size(),))


def split(model: _AnyModel, over: DeviceMesh, *, sequence: bool = False, vocabulary: bool = False) -> _AnyModel:
    """Split a layer, or the attention and feed-forward layers of a model, in place, over the processes of a mesh.

    Every process calls it with the same model; the weights of the mesh's first process count. Afterwards each layer
    has the heads of its process alone: `num_heads`, `head_numbers` and `kv_head_of` say which, and weights
    (B, h / G, Q, K) are theirs. What goes in and comes out of the layer is the same on all processes.

    Args:
        model: an attention layer, a feed-forward network, a mixture of these, or a model that contains some. `PLANS`
            has the kinds of attention. Of a mixture, every process has a part of each expert, and the whole router.
        over: a mesh with one axis, G processes. Where G is larger than the number of keys, it holds all processes.
        sequence: for a GPT: between its layers each process has N / G of the tokens only, so that norms and skip
            connections are split, too (Korthikanti et al. 2022, section 4.2.2).
        vocabulary: for a GPT: each process has the vectors of its own vocab_size / G tokens, and makes their logits.
            One sum puts the vectors together, and the logits are gathered: B N vocab_size numbers.

    Returns:
        the model.

    Raises:
        TypeError: `sequence` or `vocabulary` is asked of another model than a `GPT`.
        ValueError: a layer cannot be split over so many processes, and the message says why: its kind, or sizes that
            do not come out even, see `places`. Or `sequence` is asked of a GPT whose readout is tied.

    Source: Shoeybi et al. 2019, Megatron-LM, section 3.
    """
    require_kind("model", model, nn.Module)
    require_kind("over", over, DeviceMesh)
    require_flag("sequence", sequence)
    require_flag("vocabulary", vocabulary)
    if over.ndim != 1:
        raise ValueError(f"over has {over.ndim} axes, but heads are split along one: write over['name of the axis']")
    if sequence and not isinstance(model, GPT):
        raise TypeError(f"sequence=True is for a GPT, got {type(model).__name__}")
    if isinstance(model, GPT) and sequence and model.readout is None:
        raise ValueError("sequence=True needs a readout of its own, but the model's is tied to the tokens' vectors")
    gpt = require_vocabulary(model, over.size()) if vocabulary else None
    layers = list(split_parts(model).values())
    for layer in layers:  # before anything is changed
        held = ways(layer, over.size())
        if COPIES in held.values() and over.size() != dist.get_world_size():
            raise ValueError(
                f"num_kv_heads={layer.num_kv_heads} is less than {over.size()} processes, and copies of keys need a "
                f"mesh of all {dist.get_world_size()} processes"
            )
    _follow_first(model, over)
    splitter = _Splitter(over, Shard(1) if sequence else Replicate())
    for layer in layers:
        if isinstance(layer, MultiHeadAttention):
            splitter.attention(layer)
        elif isinstance(layer, MixtureFeedForward):
            splitter.mixture(layer)
        else:
            assert isinstance(layer, FeedForward)
            splitter.feed_forward(layer)
    if isinstance(model, GPT) and sequence:
        _split_tokens(model, over)
    if gpt is not None:
        _split_vocabulary(gpt, over)
    return model


@torch.no_grad()
def _follow_first(model: nn.Module, over: DeviceMesh) -> None:
    """Give every process of the mesh the weights of its first."""
    first = int(over.mesh[0])
    for part in [*model.parameters(), *model.buffers()]:
        dist.broadcast(part.detach(), src=first, group=over.get_group())


class _Part(NamedTuple):
    """A parameter of a split layer, and how its own numbers are taken in a pass."""

    owner: nn.Module
    name: str
    whole: nn.Parameter
    own: Callable[[], Tensor]


class _Splitter:
    """Splits layers over a mesh, between which vectors are whole, or split by tokens."""

    def __init__(self, over: DeviceMesh, between: Shard | Replicate) -> None:
        self.over, self.between = over, between
        self.known: dict[int, nn.Parameter] = {}  # parameters that layers share stay shared
        self.grids: dict[int, DeviceMesh] = {}

    def attention(self, layer: MultiHeadAttention) -> None:
        num_ranks = self.over.size()
        plan, held = plan_of(layer, num_ranks), ways(layer, num_ranks)
        place = places(layer.num_heads, layer.num_kv_heads, num_ranks)[self.over.get_local_rank()]
        rows = {name: pick(layer, place.heads) for name, pick in plan.picked.items()}
        parts = [
            self._part(layer, name, way, layer.num_kv_heads, rows.get(name.rpartition(".")[0]))
            for name, way in held.items()
            if not name.startswith("W_o.")
        ]
        parallelize_module(layer.W_o, self.over, RowwiseParallel(output_layouts=self.between))
        layer.hold_heads(place.heads, place.kv_heads)
        plan.then(layer, num_ranks)
        layer.is_split = True
        _Pass(self.over, self.between, parts, heads=place.heads).follow(layer)

    def mixture(self, layer: MixtureFeedForward) -> None:
        parts = [self._part(layer, name, way) for name, way in ways(layer, self.over.size()).items()]
        _Pass(self.over, self.between, parts, is_summed=True).follow(layer)

    def feed_forward(self, layer: FeedForward) -> None:
        plan: dict[str, Any] = {
            "widen": ColwiseParallel(input_layouts=self.between),
            "narrow": RowwiseParallel(output_layouts=self.between),
        }
        if layer.gate is not None:
            plan["gate"] = ColwiseParallel(input_layouts=self.between)
        parallelize_module(layer, self.over, plan)

    def _part(
        self, layer: nn.Module, name: str, way: str, num_kv_heads: int = 1, rows: list[int] | None = None
    ) -> _Part:
        """Give a parameter of the layer up to the processes, and say how this one's own numbers are taken."""
        *path, last = name.split(".")
        owner = layer.get_submodule(".".join(path))
        whole, num_ranks = getattr(owner, last), self.over.size()
        mesh = self.over
        stored: list[Placement] = [Replicate()]
        grads: list[Placement] = [Partial()]
        if way == COPIES:  # a grid of g rows of processes, each row with copies of one key
            mesh = self.grids.setdefault(
                num_kv_heads, DeviceMesh(self.over.device_type, self.over.mesh.view(num_kv_heads, -1))
            )
            stored, grads = [Shard(0), Replicate()], [Shard(0), Partial()]
        elif way not in (WHOLE, PICKED, SPREAD):
            stored = grads = [Shard(1 if way == "columns" else 0)]
        if id(whole) not in self.known:
            self.known[id(whole)] = _given_up(whole, mesh, stored)
        held = self.known[id(whole)]
        setattr(owner, last, held)

        def own() -> Tensor:
            mine: Tensor = held.to_local(grad_placements=grads)  # type: ignore[attr-defined]
            if way == SPREAD:
                return mine / num_ranks
            return mine if rows is None else mine[rows]

        return _Part(owner, last, held, own)


def _given_up(whole: nn.Parameter, mesh: DeviceMesh, stored: list[Placement]) -> nn.Parameter:
    """A parameter of which each process holds its part. Where it holds copies, their gradients are summed: each has
    that of its own heads alone."""
    held = nn.Parameter(distribute_tensor(whole.detach(), mesh, stored), requires_grad=whole.requires_grad)
    if held.requires_grad and any(placement.is_replicate() for placement in stored):
        held.register_hook(lambda grad: grad.redistribute(placements=stored))  # type: ignore[no-untyped-call]
    return held


class _Pass:
    """A pass of a split layer: all that it reads is plain and this process's own.

    Each input enters once, so that the gradients that its projections send back are summed over the processes once, and
    not once for each projection.
    """

    def __init__(
        self,
        over: DeviceMesh,
        between: Shard | Replicate,
        parts: list[_Part],
        *,
        heads: range | None = None,
        is_summed: bool = False,
    ) -> None:
        self.over, self.between, self.parts, self.heads, self.is_summed = over, between, parts, heads, is_summed

    def follow(self, layer: nn.Module) -> None:
        layer.register_forward_pre_hook(self.enter, with_kwargs=True)
        layer.register_forward_hook(self.leave, always_call=True)

    def enter(self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        known: dict[int, Tensor] = {}
        args = (*(self._entered(x, known) for x in args[:3]), *args[3:])
        names = ("x", "queries", "keys", "values")
        kwargs = {name: self._entered(x, known) if name in names else x for name, x in kwargs.items()}
        mask = kwargs.get("mask")
        if self.heads is not None and isinstance(mask, Tensor) and mask.dim() == 4 and mask.shape[1] > 1:
            kwargs["mask"] = mask[:, self.heads.start : self.heads.stop]
        for part in self.parts:
            part.owner._parameters[part.name] = part.own()  # type: ignore[assignment]
        return args, kwargs

    def leave(self, layer: nn.Module, args: Any, result: Any) -> Any:
        for part in self.parts:
            part.owner._parameters[part.name] = part.whole
        if not self.is_summed or not isinstance(result, Tensor):
            return None
        return _moved(result, self.over, Partial(), self.between).to_local()

    def _entered(self, x: Any, known: dict[int, Tensor]) -> Any:
        if not isinstance(x, Tensor):
            return x
        if id(x) not in known:
            whole = _moved(x, self.over, self.between, Replicate())
            known[id(x)] = whole.to_local(grad_placements=[Partial()])
        return known[id(x)]


def _moved(x: Tensor, over: DeviceMesh, come: Placement, go: Placement) -> DTensor:
    """A process's own numbers, which lie over the mesh in one way, in another way."""
    return DTensor.from_local(x, over, [come], run_check=False).redistribute(placements=[go])


def _split_tokens(model: GPT, over: DeviceMesh) -> None:
    """Deal the tokens out before the first layer, and collect them after the last."""
    norms = [part.norm for part in model.modules() if isinstance(part, SkipConnection)]
    if not isinstance(model.decoder.norm, nn.Identity):
        norms.append(model.decoder.norm)
    for norm in norms:
        parallelize_module(norm, over, SequenceParallel(use_local_output=True))

    def deal_out(_: nn.Module, inputs: Any, x: Tensor) -> Tensor:
        if x.shape[1] % over.size():
            raise ValueError(f"tokens has {x.shape[1]} of them, which {over.size()} processes cannot share evenly")
        return _moved(x, over, Replicate(), Shard(1)).to_local()

    def collect(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (_moved(inputs[0], over, Shard(1), Replicate()).to_local(), *inputs[1:])

    assert model.readout is not None
    model.tokens.register_forward_hook(deal_out)
    model.readout.register_forward_pre_hook(collect)


def _split_vocabulary(model: GPT, over: DeviceMesh) -> None:
    """Each process looks up its own tokens' vectors, and one sum has them all; it makes their logits, and gathers."""
    parallelize_module(model.tokens.embedding, over, RowwiseParallel(input_layouts=Replicate()))
    if model.readout is None:
        model.readout = _Tied(model.tokens.embedding, over)  # type: ignore[assignment]
    else:
        parallelize_module(model.readout, over, ColwiseParallel(output_layouts=Replicate()))


class _Tied(nn.Module):
    """A readout by the tokens' own vectors, of which a process has some: (B, N, D) -> (B, N, vocab_size)."""

    def __init__(self, embedding: nn.Embedding, over: DeviceMesh) -> None:
        super().__init__()
        self.tied = (embedding,)  # in a tuple, so that its weight is no second parameter
        self.over = over

    def forward(self, x: Tensor) -> Tensor:
        entered = DTensor.from_local(x, self.over, [Replicate()], run_check=False)
        logits = cast(DTensor, F.linear(entered, self.tied[0].weight))
        return logits.redistribute(placements=[Replicate()]).to_local()
