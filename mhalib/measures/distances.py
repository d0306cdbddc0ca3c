"""How much heads differ from each other, and a map of them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, special
from torch.nn import functional as F

from .._validate import as_list, require_count, require_tensor, require_values
from .cells import real_weights, result_dtype


def head_similarity(weights: Tensor | Sequence[Tensor], mask: Tensor | None = None) -> Tensor:
    """The cosine between the patterns of each two heads, each pattern flattened to one vector over B, Q and K.

    Weights are not negative, so two heads that look evenly at everything have 1, and two that never look at the same
    key 0. The rows of a head that looks sharply are longer vectors and count more than those of a broad one.

    Args:
        weights: (B, h, Q, K), or a list of such tensors, the layers of a model.
        mask: True where a real query may look at a real key, for all layers; see `mhalib.measures`.

    Returns:
        (h, h), or all pairs of all heads, the first layer's first; from 0 to 1. A head whose weights inside the mask
        are all 0 has 0 with every head.

    Raises:
        TypeError, ValueError: weights and mask do not fit, or a head has no row.
    """
    weights = _joined(weights)
    inside, _ = real_weights(weights, mask)
    patterns = F.normalize(inside.transpose(0, 1).flatten(1), dim=1)
    return (patterns @ patterns.T).clamp(0, 1).to(result_dtype(weights.dtype))


def js_distance(weights: Tensor | Sequence[Tensor], mask: Tensor | None = None) -> Tensor:
    """The Jensen-Shannon divergence between each two heads: the mean over queries of
    (KL(w_i || m) + KL(w_j || m)) / 2 with m = (w_i + w_j) / 2, w_i and w_j being the two heads' rows, in nats.

    It is the divergence, as in the paper, not its square root, which `scipy.spatial.distance.jensenshannon` returns.
    A row is first divided by its sum inside the mask. A pair is compared where both heads have a row that does not
    sum to 0.

    Args:
        weights: (B, h, Q, K), or a list of such tensors, the layers of a model.
        mask: True where a real query may look at a real key, for all layers; see `mhalib.measures`.

    Returns:
        (h, h), or all pairs of all heads, the first layer's first; from 0, the same rows, to ln 2, no key in common.

    Raises:
        TypeError, ValueError: weights and mask do not fit, or two heads have no row in common.

    Source: Clark et al. 2019, section 6. They sum over the tokens of the data, which is this mean times the number of
    tokens; and their code mixes each row with 0.1 % of an even one, which is not needed here.
    """
    weights = _joined(weights)
    inside, _ = real_weights(weights, mask)
    sums = inside.sum(-1, keepdim=True)
    rows = sums[..., 0] > 0
    shares = inside / sums.masked_fill(sums == 0, 1.0)
    entropies = special.entr(shares).sum(-1)
    distances = inside.new_zeros(weights.shape[1], weights.shape[1])
    for i in range(weights.shape[1]):
        one = slice(i, i + 1)
        both = rows & rows[:, one]
        counts = both.sum((0, 2))
        if not counts.all():
            raise ValueError(f"heads {i} and {int(counts.argmin())} have no row in common inside the mask")
        middle = special.entr((shares + shares[:, one]) / 2).sum(-1)
        divergence = (middle - (entropies + entropies[:, one]) / 2).masked_fill(~both, 0.0)
        distances[i] = divergence.sum((0, 2)) / counts
    return distances.clamp(min=0.0).to(result_dtype(weights.dtype))


def head_map(distances: Tensor, num_axes: int = 2) -> Tensor:
    """Points whose distances are as near to `distances` as few axes allow: classical multidimensional scaling.

    The squared distances are centred by rows and columns; the map is made of the leading eigenvectors, each times the
    root of its eigenvalue (0 where that is negative), the one that spreads most first. Of an axis's two directions the
    one is taken in which its farthest point has a positive sign. So the map is the same on every run. The MDS that
    scikit-learn has in all its versions, and that Clark et al. 2019 use, starts at random places; `ClassicalMDS`, which
    newer ones add, does what is done here.

    Args:
        distances: (n, n), symmetric, with 0 on the diagonal: from `js_distance`, or `1 - head_similarity(weights)`.
        num_axes: how many coordinates a point gets, at most n.

    Returns:
        (n, num_axes).

    Raises:
        TypeError, ValueError: `distances` is no such matrix, or `num_axes` is not from 1 to n.

    Source: Torgerson 1952.
    """
    require_tensor("distances", distances, rank=2)
    require_values("distances", distances)
    require_count("num_axes", num_axes)
    size = len(distances)
    if distances.shape[1] != size or num_axes > size:
        raise ValueError(f"distances must be (n, n) with n of at least {num_axes}, got {tuple(distances.shape)}")
    table = distances.detach().double()
    if not (table >= 0).all() or not torch.allclose(table, table.T, atol=1e-5) or (table.diagonal() > 1e-5).any():
        raise ValueError("distances must be symmetric, not negative, and 0 on the diagonal")
    squares = ((table + table.T) / 2).square()
    centred = squares - squares.mean(0) - squares.mean(1, keepdim=True) + squares.mean()
    values, vectors = torch.linalg.eigh(centred / -2)  # ascending
    points = vectors.flip(1)[:, :num_axes] * values.flip(0)[:num_axes].clamp(min=0.0).sqrt()
    farthest = points.gather(0, points.abs().argmax(0, keepdim=True))
    return (points * torch.where(farthest < 0, -1.0, 1.0)).to(result_dtype(distances.dtype))


def _joined(weights: Tensor | Sequence[Tensor]) -> Tensor:
    """The heads of all layers side by side: (B, all heads, Q, K)."""
    if isinstance(weights, Tensor):
        return weights
    layers = as_list("weights", weights)
    if not layers:
        raise ValueError("weights is an empty list")
    for number, layer in enumerate(layers):
        require_tensor(f"weights[{number}]", layer, rank=4)
        if (layer.shape[0], *layer.shape[2:]) != (layers[0].shape[0], *layers[0].shape[2:]):
            raise ValueError(
                f"weights[{number}] has shape {tuple(layer.shape)}, which differs from {tuple(layers[0].shape)} "
                "in more than the number of heads"
            )
    return torch.cat(layers, 1)
