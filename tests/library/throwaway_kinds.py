"""Kinds of head from papers, each in its shortest form on the seams of the layer. Cross-layer keys and value residuals
are in test_kinds_by_layer.py, ALiBi is in the page of the API; sigmoid and softpick are in the package now."""

import torch
from torch import nn

from mhalib import MultiHeadAttention


class QKClip(MultiHeadAttention):
    """After a step, heads whose largest score passed `tau` get smaller W_q and W_k (Kimi Team 2025)."""

    tau = 20.0

    def score(self, q, k):
        scores = super().score(q, k)
        self.largest = scores.detach().abs().amax((0, 2, 3))
        return scores

    @torch.no_grad()
    def clip(self):
        for head, factor in enumerate((self.tau / self.largest).clamp(max=1).sqrt()):
            own = self.head_slices(head)
            self.W_q.weight[own.q] *= factor
            self.W_k.weight[own.k] *= factor


class TensorProduct(MultiHeadAttention):
    """Queries, keys and values are means of `rank` products, a number for each head times a shared vector; the
    cache keeps the factors (Zhang et al. 2025)."""

    def __init__(self, *args, rank=2, **settings):
        super().__init__(*args, **settings)
        self.rank, width = rank, rank * (self.num_heads + self.head_dim)
        self.W_q, self.W_k, self.W_v = (nn.Linear(self.num_hiddens, width, bias=False) for _ in range(3))

    def _heads(self, factors):
        """(B, 1, N, rank * (h + d)) -> (B, h, N, d)."""
        of_heads, shared = factors[:, 0].unflatten(-1, (self.rank, -1)).split([self.num_heads, self.head_dim], -1)
        return torch.einsum("bnrh,bnrd->bhnd", of_heads, shared) / self.rank

    def project_with_cache(self, queries, keys, values, cache):
        start, kept = 0 if cache is None else len(cache), (self.W_k(keys)[:, None], self.W_v(values)[:, None])
        k, v = kept if cache is None else cache.append(*kept)
        return self.place(self._heads(self.W_q(queries)[:, None]), start), self.place(self._heads(k), 0), self._heads(v)


THROWAWAY = {"qk-clip": QKClip, "tensor product": TensorProduct}
