"""One number per head: how sharp its pattern is, and where it lies."""

from __future__ import annotations

from torch import Tensor, special

from .._validate import require_count, require_flag
from .cells import maxima, mean_over_rows, real_weights, require_sums
from .targets import find_targets, offsets, require_square

NO_ROW = "no query of some head has a key to look at"


def head_entropy(weights: Tensor, mask: Tensor | None = None, *, relative: bool = False) -> Tensor:
    """How broadly each head looks: the mean over queries of -Σ_j w_tj ln w_tj, in nats.

    0 is one key, ln n an even look at n. A row is first divided by its sum inside the mask, so that it is a
    distribution; a row that sums to 0 is left out.

    Args:
        weights: (B, h, Q, K).
        mask: True where a real query may look at a real key, see `mhalib.measures`.
        relative: divide each row's entropy by ln n, n being the number of keys the query may look at, so that 1 is an
            even look. Rows with one key, which have no choice, are left out. Under a causal mask, early queries have
            few keys and little entropy by necessity; this takes that away.

    Returns:
        (h,), from 0 to ln K, or from 0 to 1.

    Raises:
        TypeError, ValueError: weights and mask do not fit, or a head has no row.

    Source: Clark et al. 2019, section 3.3, the entropy of each head. Their code first mixes each row with a little
    of an even one, because ln 0 is not finite; here 0 ln 0 is 0. That makes a difference of about 2e-4. The relative
    form is ours.
    """
    inside, cells = real_weights(weights, mask)
    require_flag("relative", relative)
    sums = inside.sum(-1, keepdim=True)
    rows = sums[..., 0] > 0
    entropy = special.entr(inside / sums.masked_fill(sums == 0, 1.0)).sum(-1)
    if relative:
        choices = cells.sum(-1)
        rows = rows & (choices > 1)
        entropy = entropy / choices.clamp(min=2).log()
    return mean_over_rows(entropy, rows, NO_ROW + (" and a choice" if relative else ""), weights.dtype)


def confidence(weights: Tensor, mask: Tensor | None = None) -> Tensor:
    """How sure each head is: the mean over queries of max_j w_tj.

    Args:
        weights: (B, h, Q, K).
        mask: True where a real query may look at a real key. Voita et al. leave out the token that ends the sentence
            as a key: say so in the mask. The weights of the others are not scaled up for it.

    Returns:
        (h,), from 0 to 1; from 1/K, where the mask is the one that the layer had.

    Raises:
        TypeError, ValueError: weights and mask do not fit, or a head has no row.

    Source: Voita et al. 2019, section 4.
    """
    inside, cells = real_weights(weights, mask)
    require_sums(weights, inside)
    return mean_over_rows(inside.amax(-1), cells.any(-1), NO_ROW, weights.dtype)


def attention_to(weights: Tensor, what: str | int | Tensor, mask: Tensor | None = None) -> Tensor:
    """How much of its attention each head gives to `what`: the mean over queries of the sum of w_tj over its keys.

    Only queries that may look at `what` count: no first word is asked for its previous one, and no sentence without
    a comma for its commas.

    Args:
        weights: (B, h, Q, K).
        what: "self", "previous", "next", "first" (key 0); an offset j - t, so that -1 is "previous"; or marked keys,
            boolean, (B, K), or (B, Q, K) if they differ from query to query. Separators and punctuation are marked by
            `torch.isin(tokens, ids)`, rare tokens by `rarest_tokens`.
        mask: True where a real query may look at a real key, see `mhalib.measures`.

    Returns:
        (h,), from 0 to 1.

    Raises:
        TypeError, ValueError: arguments do not fit, or no query may look at `what`, as at "next" under a causal mask.

    Source: Clark et al. 2019, sections 3.1 and 3.2. They average over all tokens, also those that have no such key.
    """
    inside, cells = real_weights(weights, mask)
    require_sums(weights, inside)
    targets = find_targets(what, cells) & cells
    given = inside.masked_fill(~targets, 0.0).sum(-1)
    return mean_over_rows(given, targets.any(-1), _no_target(what), weights.dtype)


def maximum_at(weights: Tensor, what: str | int | Tensor, mask: Tensor | None = None) -> Tensor:
    """How often each head looks most at `what`: the share of queries whose largest weight lies there.

    Arguments, errors and the queries that count are those of `attention_to`. Of several equal largest weights the
    first counts: a head that looks evenly at all keys has its maximum at the first one.

    Returns:
        (h,), from 0 to 1.

    Source: Voita et al. 2019, section 5, where roles are told from maxima.
    """
    inside, cells = real_weights(weights, mask)
    targets = find_targets(what, cells) & cells
    hits = targets.gather(-1, maxima(inside, cells)[..., None])[..., 0]
    return mean_over_rows(hits.double(), targets.any(-1), _no_target(what), weights.dtype)


def diagonal_dominance(weights: Tensor, mask: Tensor | None = None, width: int = 0) -> Tensor:
    """How often the diagonal outweighs the rest: the share of queries with Σ_{|j-t| ≤ width} w_tj ≥ all other weight.

    With `width=0` it is the share of rows that are diagonally dominant, as the word is used of matrices.

    Args:
        weights: (B, h, N, N), self-attention.
        mask: True where a real query may look at a real key, see `mhalib.measures`.
        width: how far from the diagonal still counts as near.

    Returns:
        (h,), from 0 to 1. Under a causal mask the first query has nowhere else to look and always counts.

    Raises:
        TypeError, ValueError: arguments do not fit, a head has no row, or there are not as many queries as keys.
    """
    inside, cells = real_weights(weights, mask)
    require_count("width", width, minimum=0)
    require_square("diagonal_dominance", cells)
    near = inside.masked_fill(offsets(cells).abs() > width, 0.0).sum(-1)
    dominates = 2 * near >= inside.sum(-1) - 1e-6  # 0.2 + 0.3 is more than 0.5
    return mean_over_rows(dominates.double(), cells.any(-1), NO_ROW, weights.dtype)


def _no_target(what: str | int | Tensor) -> str:
    named = "what" if isinstance(what, Tensor) else f"what={what!r}"
    return f"{named}: no query of some head has such a key inside the mask"
