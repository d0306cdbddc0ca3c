"""What processes send each other, with a gradient that goes the same way back: an all-to-all, a step round a ring."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh


def exchanged(rows: Tensor, over: DeviceMesh, sent: list[int] | None = None, come: list[int] | None = None) -> Tensor:
    """An all-to-all of rows: (n, ...) -> (m, ...).

    `sent[s]` rows go to process s, after those for the processes before it, and `come[s]` rows come from it, in the
    same order. `None` is equally many for each process.
    """
    return _Exchange.apply(rows, over, sent, come)  # type: ignore[no-any-return]


def from_left(x: Tensor, over: DeviceMesh) -> Tensor:
    """What the left neighbour in the ring of processes has, for what the right one gets."""
    return _ToRight.apply(x, over)  # type: ignore[no-any-return]


class _Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, over: DeviceMesh, sent: list[int] | None, come: list[int] | None) -> Tensor:
        ctx.way_back = over, come, sent
        return _all_to_all(rows, over, sent, come)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        return _all_to_all(grads[0], *ctx.way_back), None, None, None


def _all_to_all(rows: Tensor, over: DeviceMesh, sent: list[int] | None, come: list[int] | None) -> Tensor:
    found = rows.new_empty(len(rows) if come is None else sum(come), *rows.shape[1:])
    dist.all_to_all_single(found, rows.contiguous(), come, sent, group=over.get_group())
    return found


class _ToRight(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, sent: Tensor, over: DeviceMesh) -> Tensor:
        ctx.over = over
        return _moved_on(sent, over, 1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return _moved_on(grads[0], ctx.over, -1), None


def _moved_on(sent: Tensor, over: DeviceMesh, by: int) -> Tensor:
    sent, group, n, rank = sent.contiguous(), over.get_group(), over.size(), over.get_local_rank()
    received = torch.empty_like(sent)
    giving = dist.P2POp(dist.isend, sent, group=group, group_peer=(rank + by) % n)
    taking = dist.P2POp(dist.irecv, received, group=group, group_peer=(rank - by) % n)
    for work in dist.batch_isend_irecv([giving, taking]):
        work.wait()
    return received
