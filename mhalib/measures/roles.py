"""What a head is for, told from where its maxima lie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from .._validate import require_integers, require_kind, require_probability, require_tensor
from .cells import maxima, real_weights
from .patterns import confidence, maximum_at
from .targets import offsets

POSITIONAL, SYNTACTIC, RARE, OTHER = "positional", "syntactic", "rare token", "other"
_ROUNDING = 1e-9  # 0.3 - 0.2 is less than 0.1


@dataclass(frozen=True)
class HeadRole:
    """What one head does. The numbers are shares of queries whose largest weight lies there.

    roles: all roles that it has, "positional", "syntactic", "rare token" in this order; may be empty.
    confidence: see `mhalib.measures.confidence`.
    offset: j - t where its maximum lies most often: -1 is the previous token.
    offset_share: how often it lies there, of the queries that have such a key; 0 if no offset is one that half of the
        queries have.
    link: the relation by which the head is farthest above the best fixed offset, or `None` if none was given.
    link_accuracy: how often its maximum is the linked token, of the queries that have one.
    link_baseline: how often the linked token lies at its commonest offset: what a fixed offset can reach.
    rare_share: how often its maximum is one of the rare tokens; `None` if none were given.
    """

    roles: tuple[str, ...]
    confidence: float
    offset: int
    offset_share: float
    link: str | None
    link_accuracy: float | None
    link_baseline: float | None
    rare_share: float | None

    @property
    def name(self) -> str:
        """The first of its roles, or "other"."""
        return self.roles[0] if self.roles else OTHER


def head_roles(
    weights: Tensor,
    mask: Tensor | None = None,
    *,
    links: Mapping[str, Tensor] | None = None,
    rare: Tensor | None = None,
    positional_share: float = 0.9,
    syntactic_margin: float = 0.1,
    rare_share: float = 0.5,
) -> list[HeadRole]:
    """The roles of the heads of one layer.

    positional: its maximum lies at one fixed offset for at least `positional_share` of the queries.
    syntactic: its maximum is the linked token for a share of the queries that is at least `syntactic_margin` above
    what the best fixed offset reaches.
    rare token: its maximum is a rare token for more than `rare_share` of the queries.

    Args:
        weights: (B, h, Q, K).
        mask: True where a real query may look at a real key, see `mhalib.measures`. For syntactic
            heads, Voita et al. leave out the token that ends the sentence as a key.
        links: by name of a relation, integers (B, Q): the key to which query t is linked, or -1. A relation that is
            looked at in both directions is two entries.
        rare: boolean, (B, K), such as `rarest_tokens`. Sentences without one do not count.

    Returns:
        one `HeadRole` for each head.

    Raises:
        TypeError, ValueError: arguments do not fit, or no query has what is looked for.

    Source: Voita et al. 2019, section 5. Where this differs:

    - They count all tokens; here, only queries that have a key at the offset count, and only offsets that at least
      half of the queries have compete. In short sentences this decides: of 6 words, one has no previous one.
    - "At least 10 % higher" is read as 10 points of 100, the stricter reading.
    - The paper gives no threshold for rare tokens. It reports one head that points to the rarest token in 66 % of the
      sentences (one of the two rarest: 83 %) that have a token outside the 500 commonest.
    """
    for name, share in {
        "positional_share": positional_share,
        "syntactic_margin": syntactic_margin,
        "rare_share": rare_share,
    }.items():
        require_probability(name, share)
    if links is not None:
        require_kind("links", links, Mapping)
    inside, cells = real_weights(weights, mask)
    best = maxima(inside, cells)
    shares, best_offsets = _best_offsets(best, cells)
    sure = confidence(inside, cells).tolist()
    seen_rare = None if rare is None else maximum_at(inside, rare, cells).tolist()
    relations = {name: _link_accuracy(name, key, best, cells) for name, key in (links or {}).items()}
    result = []
    for i in range(weights.shape[1]):
        link, accuracy, baseline = _best_link(relations, i)
        margin = None if accuracy is None or baseline is None else accuracy - baseline
        roles = {
            POSITIONAL: shares[i] >= positional_share,
            SYNTACTIC: margin is not None and margin >= syntactic_margin - _ROUNDING,
            RARE: seen_rare is not None and seen_rare[i] > rare_share,
        }
        result.append(
            HeadRole(
                roles=tuple(role for role, holds in roles.items() if holds),
                confidence=sure[i],
                offset=best_offsets[i],
                offset_share=shares[i],
                link=link,
                link_accuracy=accuracy,
                link_baseline=baseline,
                rare_share=None if seen_rare is None else seen_rare[i],
            )
        )
    return result


def _best_offsets(best: Tensor, cells: Tensor) -> tuple[list[float], list[int]]:
    """For each head, the largest share of maxima at one offset, and that offset; of equals the nearest to 0."""
    rows = cells.any(-1).sum((0, 2))
    offset = offsets(cells)
    shares, best_offsets = torch.full_like(rows, -1, dtype=torch.float64), torch.zeros_like(rows)
    for one in sorted(range(int(offset.min()), int(offset.max()) + 1), key=lambda one: (abs(one), one)):
        there = cells & (offset == one)
        have = there.any(-1).sum((0, 2))
        hits = there.gather(-1, best[..., None]).sum((0, 2, 3))
        share = torch.where(2 * have >= rows, hits.double() / have.clamp(min=1), -1.0)
        better = (share > shares) & (have > 0)
        shares, best_offsets = torch.where(better, share, shares), torch.where(better, one, best_offsets)
    return shares.clamp(min=0.0).tolist(), best_offsets.tolist()


def _best_link(
    relations: Mapping[str, tuple[list[float], list[float]]], i: int
) -> tuple[str | None, float | None, float | None]:
    """The relation by which head i is farthest above the baseline, its accuracy there, and the baseline."""
    margins = [(accuracy[i] - baseline[i], name) for name, (accuracy, baseline) in relations.items()]
    if not margins:
        return None, None, None
    name = max(margins, key=lambda pair: pair[0])[1]
    return name, relations[name][0][i], relations[name][1][i]


def _link_accuracy(name: str, keys: Tensor, best: Tensor, cells: Tensor) -> tuple[list[float], list[float]]:
    """For each head, how often its maximum is the linked key, and how often that lies at its commonest offset."""
    batch_size, num_heads, num_queries, num_kvpairs = cells.shape
    require_tensor(f"links[{name!r}]", keys)
    require_integers(f"links[{name!r}]", keys)
    if keys.shape != (batch_size, num_queries):
        raise ValueError(f"links[{name!r}] has shape {tuple(keys.shape)}, but needs ({batch_size}, {num_queries})")
    if keys.numel() and not -1 <= int(keys.min()) <= int(keys.max()) < num_kvpairs:
        raise ValueError(f"links[{name!r}] holds {keys.min()} to {keys.max()}, but keys are 0 to {num_kvpairs - 1}")
    linked = keys.long()[:, None].expand(-1, num_heads, -1)
    counts = cells.gather(-1, linked.clamp(min=0)[..., None])[..., 0] & (linked >= 0)
    distance = linked - torch.arange(num_queries, device=keys.device)
    accuracies, baselines = [], []
    for i in range(num_heads):
        there = counts[:, i]
        if not there.any():
            raise ValueError(f"links[{name!r}]: no query of head {i} has a linked key inside the mask")
        accuracies.append((best[:, i] == linked[:, i])[there].double().mean().item())
        baselines.append(distance[:, i][there].unique(return_counts=True)[1].max().item() / int(there.sum()))
    return accuracies, baselines
