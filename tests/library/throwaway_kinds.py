"""Kinds of head from papers, each in its shortest form on the seams of the layer. Cross-layer keys and value residuals
are in test_kinds_by_layer.py, ALiBi is in the page of the API; what else was here is in the package now."""

import torch

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


THROWAWAY = {"qk-clip": QKClip}
