"""Heads that find what came after an earlier occurrence of their token."""

from __future__ import annotations

from torch import Tensor

from .._validate import require_tensor
from .patterns import attention_to


def induction_targets(tokens: Tensor) -> Tensor:
    """Where an induction head should look: (B, N) ids -> boolean (B, N, N), `True` at [b, t, j] if token j follows an
    earlier occurrence of token t, that is `tokens[b, j - 1] == tokens[b, t]` and 0 < j <= t.

    Raises:
        TypeError, ValueError: `tokens` is no tensor of two axes.
    """
    require_tensor("tokens", tokens, rank=2)
    is_same = (tokens[:, :, None] == tokens[:, None, :]).tril(-1)  # [b, t, j]: token j comes earlier and is the same
    return is_same.roll(1, -1)  # the last column is empty, so nothing comes round


def induction_score(weights: Tensor, tokens: Tensor) -> Tensor:
    """How much of its attention each head gives to the tokens that followed earlier occurrences of its query's token.

    The mean over queries of the sum of w_tj over `induction_targets`. Queries whose token has not occurred before do
    not count. A head that looks evenly at all it may see has no score of 0: compare with a model that is not trained.

    Args:
        weights: (B, h, N, N), self-attention with a causal mask; every token real.
        tokens: (B, N) ids that the layer's tokens stand for.

    Returns:
        (h,) in [0, 1].

    Raises:
        TypeError, ValueError: an argument is no such tensor, they do not fit, or no token occurs twice.

    Source: the prefix matching of Olsson et al. 2022, which sums over all earlier occurrences too, on repeated random
    tokens. The name is from Elhage et al. 2021.
    """
    require_tensor("weights", weights, rank=4)
    targets = induction_targets(tokens)
    if weights.shape[0] != len(tokens) or weights.shape[2:] != targets.shape[1:]:
        raise ValueError(f"tokens has shape {tuple(tokens.shape)}, but weights has {tuple(weights.shape)}")
    if not targets.any():
        raise ValueError("tokens has no token that occurs twice")
    return attention_to(weights, targets)
