"""What a layer has projected once and need not project again."""

from __future__ import annotations

import torch
from torch import Tensor


class KeyValueCache:
    """Keys and values of the tokens that one layer has seen, per head. `len` counts those tokens.

    Decoding token by token, a layer with a cache projects each token once. A cache belongs to one layer and one batch.
    """

    def __init__(self) -> None:
        self.k: Tensor | None = None
        self.v: Tensor | None = None

    def __len__(self) -> int:
        return 0 if self.k is None else self.k.shape[2]

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append k and v (B, h, K_new, d), and return all that is held, (B, h, K, d) each.

        Raises:
            ValueError: they are of another batch or another layer than what is held.
        """
        if self.k is not None and self.v is not None:
            for name, new, held in (("k", k, self.k), ("v", v, self.v)):
                if new.shape[:2] != held.shape[:2] or new.shape[3] != held.shape[3]:
                    raise ValueError(
                        f"{name} has shape {tuple(new.shape)}, but the cache holds {tuple(held.shape)}: "
                        "a cache serves one layer and one batch"
                    )
            k, v = torch.cat([self.k, k], 2), torch.cat([self.v, v], 2)
        self.k, self.v = k, v
        return k, v

    def reorder(self, rows: Tensor) -> None:
        """Keep the examples `rows` (B_new,) of the batch, in that order: what a beam search needs."""
        if self.k is not None and self.v is not None:
            self.k, self.v = self.k[rows], self.v[rows]
