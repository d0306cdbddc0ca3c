"""A router: its gates, mended and put to work, the loss that balances it, the loads it gives."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor

from ._exercise import Case
from ._inputs import apart, draw
from ._markdown import exercises_of

exercise = exercises_of(globals())


def _choices(rng: random.Random) -> Iterator[Case]:
    shares = torch.tensor([[[0.5, 0.25, 0.25], [0.25, 0.5, 0.25]]])
    yield {"shares": shares, "chosen": torch.tensor([[[True, True, False], [False, True, True]]])}
    for batch_size, num_tokens, num_heads in apart(rng, 3, smallest=3):
        scores = draw(rng, batch_size, num_tokens, num_heads) + draw(rng, num_heads)
        chosen = torch.zeros_like(scores).scatter(-1, scores.topk(2).indices, 1.0) > 0
        yield {"shares": scores.softmax(-1), "chosen": chosen}


def _means(shares: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
    return shares.mean((0, 1)), chosen.float().mean((0, 1))


def _balance(shares: Tensor, chosen: Tensor) -> Tensor:
    mean_share, load = _means(shares, chosen)
    return shares.shape[-1] * (mean_share * load).sum()


balance_loss = exercise(
    "balance_loss",
    reference=_balance,
    cases=_choices,
)


def _scores(rng: random.Random) -> Iterator[Case]:
    yield {"router_scores": torch.tensor([[[1.0, 3.0, 2.0, 0.0]]]), "num_chosen": 2}
    for batch_size, num_tokens, more in apart(rng, 3, largest=6, of=lambda B, N, more: [B, N, more, 3 + more]):
        num_heads, num_chosen = 3 + more, rng.choice((2, 3))
        yield {"router_scores": draw(rng, batch_size, num_tokens, num_heads), "num_chosen": num_chosen}


def _chosen(router_scores: Tensor, num_chosen: int, *, largest: bool = True, dim: int = -1) -> Tensor:
    best = router_scores.topk(num_chosen, dim, largest=largest).indices
    return torch.zeros_like(router_scores).scatter(dim, best, 1.0)


def _kept(router_scores: Tensor, num_chosen: int, *, largest: bool = True) -> Tensor:
    """Shares of a softmax over all heads, 0 for those that are not chosen."""
    return router_scores.softmax(-1) * _chosen(router_scores, num_chosen, largest=largest)


def _gates(router_scores: Tensor, num_chosen: int) -> Tensor:
    kept = _kept(router_scores, num_chosen)
    return num_chosen * kept / kept.sum(-1, keepdim=True)


mended_router = exercise(
    "mended_router",
    reference=_gates,
    cases=_scores,
)


def _with_padding(rng: random.Random) -> Iterator[Case]:
    gates = torch.tensor([[[1.5, 0.5, 0.0], [0.0, 1.25, 0.75]], [[1.25, 0.0, 0.75], [0.0, 1.0, 1.0]]])
    yield {"gates": gates, "is_real": torch.tensor([[True, True], [True, False]])}
    for batch_size, num_tokens, more in apart(rng, 3, smallest=2, of=lambda B, N, more: [B, N, more, 3 + more]):
        scores = draw(rng, batch_size, num_tokens, 3 + more) + draw(rng, 3 + more)
        lengths = torch.tensor([rng.randint(1, num_tokens) for _ in range(batch_size)])
        lengths[0], lengths[1] = num_tokens, 1
        is_real = torch.arange(num_tokens) < lengths[:, None]
        yield {"gates": _gates(scores, 2), "is_real": is_real}


def _loads(gates: Tensor, is_real: Tensor) -> Tensor:
    return (gates[is_real] > 0).float().mean(0)


head_loads = exercise(
    "head_loads",
    reference=_loads,
    cases=_with_padding,
)


def _found(rng: random.Random) -> Iterator[Case]:
    heads = torch.tensor([[[[1.0], [2.0], [3.0]], [[10.0], [20.0], [30.0]]]])
    gates = torch.tensor([[[2.0, 0.0], [0.0, 2.0], [1.5, 0.5]]])
    yield {"heads": heads, "gates": gates, "W_o": torch.tensor([[1.0, 2.0], [0.0, 1.0]])}
    sizes = apart(rng, 5, of=lambda B, h, N, d, more: [B, h, N, d, h * d, h * d + more])
    for batch_size, num_heads, num_tokens, head_dim, more in sizes:
        yield {
            "heads": draw(rng, batch_size, num_heads, num_tokens, head_dim),
            "gates": _gates(draw(rng, batch_size, num_tokens, num_heads), num_heads - num_heads // 2),
            "W_o": draw(rng, num_heads * head_dim + more, num_heads * head_dim),
        }


def _merged(heads: Tensor) -> Tensor:
    return heads.transpose(1, 2).flatten(2)


def _weighted(heads: Tensor, gates: Tensor, W_o: Tensor) -> Tensor:
    return _merged(heads * gates.mT[..., None]) @ W_o.mT


weighted_heads = exercise(
    "weighted_heads",
    reference=_weighted,
    cases=_found,
)
