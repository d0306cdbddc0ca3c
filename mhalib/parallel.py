"""Heads on many devices: which process holds which heads, and models split accordingly, by torch's DTensor.

A split is that of Megatron-LM: W_q, W_k and W_v by rows of their weights, so that a process has whole heads, and W_o
by the columns that belong to these heads. Each process then computes its heads alone, and one sum over the processes,
an all-reduce, makes the layer's output. Processes are started by `torchrun`. For data parallel training, where each
process has the whole model and a part of each batch, see `mhalib.train.fit` and `mhalib.processes.share`.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module
from torch.nn import functional as F

from . import processes
from ._validate import require_count, require_flag, require_kind
from .attention import MultiHeadAttention
from .devices import best_device
from .models import GPT, FeedForward, MixtureFeedForward, SkipConnection

_AnyModel = TypeVar("_AnyModel", bound=nn.Module)


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


def mesh() -> DeviceMesh:
    """All processes that `torchrun` started, in a row; one where it started none.

    Raises:
        RuntimeError: this is no process of `torchrun`.
    """
    processes.start()
    if not dist.is_initialized():
        raise RuntimeError("there are no processes to split a model over: start the program with torchrun")
    return init_device_mesh(best_device().type, (dist.get_world_size(),))


def split(model: _AnyModel, over: DeviceMesh, *, sequence: bool = False) -> _AnyModel:
    """Split a layer, or the attention and feed-forward layers of a model, in place, over the processes of a mesh.

    Every process calls it with the same model; the weights of the mesh's first process count. Afterwards each layer
    has the heads of its process alone: `num_heads`, `head_numbers` and `kv_head_of` say which, and weights
    (B, h / G, Q, K) are theirs. What goes in and comes out of the layer is the same on all processes.

    Args:
        model: a `MultiHeadAttention`, a `FeedForward`, or a model that contains some.
        over: a mesh with one axis, G processes. Where G is larger than the number of keys, it holds all processes.
        sequence: for a GPT: between its layers each process has N / G of the tokens only, so that norms and skip
            connections are split, too (Korthikanti et al. 2022, section 4.2.2).

    Returns:
        the model.

    Raises:
        TypeError: an attention layer is a variant, a feed-forward network is a mixture, or `sequence` is asked of
            another model than a `GPT`.
        ValueError: the heads, keys or hidden units of a layer cannot be split evenly, see `places`, or `sequence` is
            asked of a GPT whose readout is tied.

    Source: Shoeybi et al. 2019, Megatron-LM, section 3.
    """
    require_kind("model", model, nn.Module)
    require_kind("over", over, DeviceMesh)
    require_flag("sequence", sequence)
    if over.ndim != 1:
        raise ValueError(f"over has {over.ndim} axes, but heads are split along one: write over['name of the axis']")
    if sequence and not isinstance(model, GPT):
        raise TypeError(f"sequence=True is for a GPT, got {type(model).__name__}")
    if isinstance(model, GPT) and sequence and model.readout is None:
        raise ValueError("sequence=True needs a readout of its own, but the model's is tied to the tokens' vectors")
    if any(isinstance(part, MixtureFeedForward) for part in model.modules()):
        raise TypeError("a MixtureFeedForward cannot be split: only one network for all tokens can")
    layers = [part for part in model.modules() if isinstance(part, (MultiHeadAttention, FeedForward))]
    for layer in layers:  # before anything is changed
        _check(layer, over)
    _follow_first(model, over)
    for layer in layers:
        if isinstance(layer, FeedForward):
            _split_feed_forward(layer, over, sequence)
        else:
            _split_attention(layer, over, sequence)
    if isinstance(model, GPT) and sequence:
        _split_tokens(model, over)
    return model


@torch.no_grad()
def _follow_first(model: nn.Module, over: DeviceMesh) -> None:
    """Give every process of the mesh the weights of its first."""
    first = int(over.mesh[0])
    for part in [*model.parameters(), *model.buffers()]:
        dist.broadcast(part.detach(), src=first, group=over.get_group())


def _check(layer: MultiHeadAttention | FeedForward, over: DeviceMesh) -> None:
    if isinstance(layer, FeedForward):
        if layer.widen.out_features % over.size():
            raise ValueError(
                f"ffn_num_hiddens={layer.widen.out_features} cannot be split evenly over {over.size()} processes"
            )
        return
    if layer.is_variant or {name for name, _ in layer.named_parameters()} - layer._HEADS_OWN:
        raise TypeError(f"a {type(layer).__name__} cannot be split: only multi-head attention can")
    if layer.num_heads != layer.num_heads_made:
        raise ValueError(
            f"layer has {layer.num_heads} of its {layer.num_heads_made} heads: split before removing heads"
        )
    places(layer.num_heads, layer.num_kv_heads, over.size())
    if over.size() > layer.num_kv_heads and over.size() != dist.get_world_size():
        raise ValueError(
            f"num_kv_heads={layer.num_kv_heads} is less than {over.size()} processes, and copies of keys need a mesh "
            f"of all {dist.get_world_size()} processes"
        )


def _between(sequence: bool) -> Shard | Replicate:
    """How vectors are held between the layers."""
    return Shard(1) if sequence else Replicate()


def _split_attention(layer: MultiHeadAttention, over: DeviceMesh, sequence: bool) -> None:
    place = places(layer.num_heads, layer.num_kv_heads, over.size())[over.get_local_rank()]
    plan: dict[str, Any] = {"W_q": ColwiseParallel(), "W_o": RowwiseParallel(output_layouts=_between(sequence))}
    if over.size() <= layer.num_kv_heads:
        plan |= {"W_k": ColwiseParallel(), "W_v": ColwiseParallel()}
    else:
        grid = DeviceMesh(over.device_type, over.mesh.view(layer.num_kv_heads, -1))
        layer.W_k, layer.W_v = _Copied(layer.W_k, grid), _Copied(layer.W_v, grid)
    parallelize_module(layer, over, plan)
    layer.hold_heads(place.heads, place.kv_heads)
    layer.is_split = True
    layer.register_forward_pre_hook(_Enter(over, _between(sequence), place.heads), with_kwargs=True)


class _Enter:
    """Turns the inputs of a split layer into DTensors: each tensor once, so that the gradients that its projections
    send back are summed over the processes once, and not once for each projection."""

    def __init__(self, over: DeviceMesh, between: Shard | Replicate, heads: range) -> None:
        self.over, self.between, self.heads = over, between, heads

    def __call__(self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        known: dict[int, DTensor] = {}
        args = (*(self._entered(x, known) for x in args[:3]), *args[3:])
        kwargs = {
            name: self._entered(x, known) if name in ("queries", "keys", "values") else x for name, x in kwargs.items()
        }
        mask = kwargs.get("mask")
        if isinstance(mask, Tensor) and mask.dim() == 4 and mask.shape[1] > 1:
            kwargs["mask"] = mask[:, self.heads.start : self.heads.stop]
        return args, kwargs

    def _entered(self, x: Any, known: dict[int, DTensor]) -> Any:
        if not isinstance(x, Tensor) or isinstance(x, DTensor):
            return x
        if id(x) not in known:
            part = DTensor.from_local(x, self.over, [self.between], run_check=False)
            known[id(x)] = part.redistribute(placements=[Replicate()])
        return known[id(x)]


class _Copied(nn.Linear):
    """A projection of fewer heads than processes: a grid of g rows of processes, each row with copies of one head.

    A copy sees the gradient of its own queries alone, so the gradients of a row are summed.
    """

    def __init__(self, whole: nn.Linear, grid: DeviceMesh) -> None:
        with torch.device("meta"):
            super().__init__(whole.in_features, whole.out_features, bias=whole.bias is not None)
        for name, part in whole.named_parameters():
            held = distribute_tensor(part.detach(), grid, [Shard(0), Replicate()])
            setattr(self, name, nn.Parameter(held, requires_grad=part.requires_grad))
            if part.requires_grad:
                getattr(self, name).register_hook(lambda grad: grad.redistribute(placements=[Shard(0), Replicate()]))

    def forward(self, x: Tensor) -> Tensor:
        if isinstance(x, DTensor):
            x = x.to_local(grad_placements=[Partial()])
        own = {
            name: part.to_local(grad_placements=[Shard(0), Partial()])
            for name, part in self.named_parameters()
            if isinstance(part, DTensor)
        }
        return F.linear(x, own["weight"], own.get("bias"))


def _split_feed_forward(layer: FeedForward, over: DeviceMesh, sequence: bool) -> None:
    between = _between(sequence)
    plan: dict[str, Any] = {
        "widen": ColwiseParallel(input_layouts=between),
        "narrow": RowwiseParallel(output_layouts=between),
    }
    if layer.gate is not None:
        plan["gate"] = ColwiseParallel(input_layouts=between)
    parallelize_module(layer, over, plan)


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
        whole = DTensor.from_local(x, over, [Replicate()], run_check=False)
        return whole.redistribute(placements=[Shard(1)]).to_local()

    def collect(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        parts = DTensor.from_local(inputs[0], over, [Shard(1)], run_check=False)
        return (parts.redistribute(placements=[Replicate()]).to_local(), *inputs[1:])

    assert model.readout is not None
    model.tokens.register_forward_hook(deal_out)
    model.readout.register_forward_pre_hook(collect)
