"""Chapter 21: the gates of a router, mended, and the loss that balances it."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor

from ._exercise import Case, Exercise, Mistake
from ._inputs import apart, draw


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


balance_loss = Exercise(
    "balance_loss",
    chapter=21,
    title="a loss that balances the heads",
    reference=_balance,
    cases=_choices,
    verified="four routers of three to seven heads; the loss is least where all heads are chosen alike.",
    points=2,
    mistakes=[
        Mistake(
            "no number of heads",
            "the factor h is missing. With it, the loss of a balanced layer does not depend on the number of heads.",
            lambda shares, chosen: _balance(shares, chosen) / shares.shape[-1],
        ),
        Mistake(
            "multiplied, then averaged",
            "you multiplied token by token and averaged then. That rewards a router that is unsure. Average both over "
            "all tokens first, and multiply then.",
            lambda shares, chosen: shares.shape[-1] * (shares * chosen).mean((0, 1)).sum(),
        ),
        Mistake(
            "loads only",
            "you squared the loads. They are counts, and no gradient passes through them: one factor must be the mean "
            "share.",
            lambda shares, chosen: shares.shape[-1] * _means(shares, chosen)[1].square().sum(),
        ),
        Mistake(
            "shares only",
            "you squared the mean shares. One factor must say how many words chose the head.",
            lambda shares, chosen: shares.shape[-1] * _means(shares, chosen)[0].square().sum(),
        ),
        Mistake(
            "shares of the chosen",
            "you averaged the shares of the chosen heads alone. Average over all tokens, whether they chose the head "
            "or not.",
            lambda shares, chosen: _balance(shares * chosen, chosen),
        ),
        Mistake(
            "summed over tokens",
            "you summed over the tokens. Average, or a longer text has a larger loss.",
            lambda shares, chosen: shares.shape[-1] * (shares.sum((0, 1)) * chosen.float().sum((0, 1))).sum(),
        ),
        Mistake(
            "words counted",
            "you counted the words that chose a head. Divide by the number of words, or a longer text has a larger "
            "loss.",
            lambda shares, chosen: shares.shape[-1] * (shares.mean((0, 1)) * chosen.float().sum((0, 1))).sum(),
        ),
        Mistake(
            "loads summing to 1",
            "your loads sum to 1 over the heads. A load is the part of all words that chose the head, and each word "
            "chooses more than one.",
            lambda shares, chosen: _balance(shares, chosen) / chosen.float().sum(-1).mean(),
        ),
        Mistake(
            "number of words for heads",
            "you multiplied by the number of words. The factor is the number of heads, the size of the last axis.",
            lambda shares, chosen: shares.shape[1] * _balance(shares, chosen) / shares.shape[-1],
        ),
        Mistake(
            "text by text",
            "you balanced each text for itself and averaged then. Average shares and loads over all texts of the "
            "batch first.",
            lambda shares, chosen: shares.shape[-1] * (shares.mean(1) * chosen.float().mean(1)).sum(-1).mean(),
        ),
        Mistake(
            "mean over heads",
            "you averaged over the heads, which undoes the factor h. Sum over them.",
            lambda shares, chosen: _balance(shares, chosen) / shares.shape[-1] ** 2,
        ),
        Mistake(
            "one number for each head",
            "your result has a number for each head. Sum over the heads.",
            lambda shares, chosen: shares.shape[-1] * _means(shares, chosen)[0] * _means(shares, chosen)[1],
        ),
    ],
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


mended_router = Exercise(
    "mended_router",
    chapter=21,
    given="nothing mended",
    title="mend a router's gates",
    reference=_gates,
    cases=_scores,
    verified="four routers of four to seven heads; the gates of a token sum to the number of chosen heads.",
    points=3,
    mistakes=[
        Mistake(
            "nothing mended",
            "the gates are still shares of a softmax over all heads. Those of the chosen heads must sum to their "
            "number, or the layer's output shrinks.",
            _kept,
        ),
        Mistake(
            "summing to 1",
            "the gates of a token sum to 1. With all heads on and equal scores, each gate must be 1: multiply by "
            "`num_chosen`.",
            lambda router_scores, num_chosen: _gates(router_scores, num_chosen) / num_chosen,
        ),
        Mistake(
            "multiplied only",
            "you multiplied by `num_chosen`, but did not divide by the sum of the chosen gates.",
            lambda router_scores, num_chosen: num_chosen * _kept(router_scores, num_chosen),
        ),
        Mistake(
            "multiplied by all heads",
            "you multiplied by the number of all heads. The gates must sum to the number of chosen ones.",
            lambda router_scores, num_chosen: router_scores.shape[-1] * _gates(router_scores, num_chosen) / num_chosen,
        ),
        Mistake(
            "multiplied by all heads, not divided",
            "you multiplied the shares by the number of all heads. That makes 1 of equal gates, but other gates do not "
            "sum to `num_chosen`: divide by the sum of the chosen ones first.",
            lambda router_scores, num_chosen: router_scores.shape[-1] * _kept(router_scores, num_chosen),
        ),
        Mistake(
            "divided by the largest",
            "you divided by the largest gate. Divide by the sum of the chosen gates, and multiply by their number.",
            lambda router_scores, num_chosen: (
                _kept(router_scores, num_chosen) / _kept(router_scores, num_chosen).amax(-1, keepdim=True)
            ),
        ),
        Mistake(
            "softmax after the choice",
            "you put 0 in the place of the other heads' scores and took the softmax then. Its exponential makes 1 of "
            "0, so heads that were not chosen get gates. Choose after the softmax, or fill in -inf.",
            lambda router_scores, num_chosen: (
                num_chosen * (router_scores * _chosen(router_scores, num_chosen)).softmax(-1)
            ),
        ),
        Mistake(
            "divided over all tokens",
            "you divided by a sum over more than one token. Each token has gates of its own: sum over the last axis.",
            lambda router_scores, num_chosen: (
                num_chosen * _kept(router_scores, num_chosen) / _kept(router_scores, num_chosen).sum()
            ),
        ),
        Mistake(
            "divided along the tokens",
            "you divided by sums along the tokens. Sum over the heads, the last axis.",
            lambda router_scores, num_chosen: (
                num_chosen
                * _kept(router_scores, num_chosen)
                / _kept(router_scores, num_chosen).sum(-2, keepdim=True).clamp_min(1e-12)
            ),
        ),
        Mistake(
            "gates of 1",
            "the chosen heads all have the gate 1, so the router gets no gradient. Keep their shares, divided by "
            "their sum.",
            _chosen,
        ),
        Mistake(
            "all heads on",
            "heads that were not chosen have gates, too. They must be 0.",
            lambda router_scores, num_chosen: num_chosen * router_scores.softmax(-1),
        ),
        Mistake(
            "the worst heads",
            "you kept the heads with the smallest scores.",
            lambda router_scores, num_chosen: (
                num_chosen
                * _kept(router_scores, num_chosen, largest=False)
                / _kept(router_scores, num_chosen, largest=False).sum(-1, keepdim=True)
            ),
        ),
        Mistake(
            "divided by scores",
            "you divided the chosen scores themselves by their sum, without a softmax. Scores may be negative.",
            lambda router_scores, num_chosen: (
                num_chosen
                * router_scores
                * _chosen(router_scores, num_chosen)
                / (router_scores * _chosen(router_scores, num_chosen)).sum(-1, keepdim=True)
            ),
        ),
    ],
)
