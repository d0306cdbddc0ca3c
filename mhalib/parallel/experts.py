"""Experts of a mixture on many processes: tokens travel to the experts they have chosen, and back."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from .._validate import require_kind
from ..models import MixtureFeedForward
from ..models.feed_forward import require_vectors
from .exchanges import exchanged


def expert_parallel(mixture: MixtureFeedForward, x: Tensor, over: DeviceMesh) -> Tensor:
    """What a mixture of feed-forward networks makes of tokens that are split over processes, and so are its experts.

    Of E experts, process r computes numbers r E / G to (r + 1) E / G - 1, and no other. It routes its own tokens,
    sends each to the processes of the experts that the token has chosen, computes what arrives for its own experts,
    and sends the results back, where they are added, times their shares. Router and shared experts work on the
    process's own tokens. How many vectors go to which process is decided by the router, anew for each batch.

    Gradients flow through both exchanges. A process has the whole gradient of its own experts and none of others'; of
    router and shared experts it has that of its own tokens: sum gradients over processes.

    Args:
        mixture: with the same weights everywhere. Only the own experts' are used.
        x: (B, n, D), this process's tokens; processes may have different numbers of them.
        over: a mesh with one axis, G processes, see `mesh`.

    Returns:
        (B, n, D), the mixture's output for these tokens.

    Raises:
        TypeError, ValueError: `mixture` is of another kind, x does not fit it, or G does not divide E.

    Source: Lepikhin et al. 2020, GShard.
    """
    require_kind("mixture", mixture, MixtureFeedForward)
    require_vectors("x", x, mixture.router.weight[0])
    num_ranks, num_experts = over.size(), len(mixture.experts)
    if num_experts % num_ranks:
        raise ValueError(f"num_experts={num_experts} cannot be dealt out evenly to {num_ranks} processes")
    each = num_experts // num_ranks
    own = mixture.experts[over.get_local_rank() * each : (over.get_local_rank() + 1) * each]

    shares, chosen = mixture.route(x)
    order = chosen.flatten().argsort(stable=True)  # of (token, choice), by experts
    tokens = order // mixture.num_chosen
    to_send = chosen.flatten().bincount(minlength=num_experts).view(num_ranks, each)
    to_come = torch.empty_like(to_send)
    dist.all_to_all_single(to_come, to_send, group=over.get_group())
    sizes = to_send.sum(1).tolist(), to_come.sum(1).tolist()

    arrived = exchanged(x.flatten(0, 1)[tokens], over, *sizes)  # by processes, then by experts
    expert_of = torch.arange(each, device=x.device).repeat(num_ranks).repeat_interleave(to_come.flatten())
    by_expert = expert_of.argsort(stable=True)
    parts = arrived[by_expert].split(to_come.sum(0).tolist())
    # an expert that nobody chose is called, too: all processes must take part in the exchanges of the backward pass
    found = torch.cat([expert(part[None])[0] for expert, part in zip(own, parts, strict=True)])
    returned = exchanged(found[by_expert.argsort()], over, *reversed(sizes))

    result = torch.zeros_like(x) if mixture.shared is None else mixture.shared(x)
    weighed = shares.flatten()[order, None] * returned
    return result + torch.zeros_like(x).flatten(0, 1).index_add(0, tokens, weighed.to(x.dtype)).view_as(x)
