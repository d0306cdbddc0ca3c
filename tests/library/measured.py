"""Patterns for the tests of measures, and their rows as lists: what the loops of an independent answer go through."""

import torch

from mhalib.measures import real_cells


def random_weights(lens=(4, 2, 3), num_heads=3, num_tokens=5, causal=False, seed=0, num_kvpairs=None, key_lens=None):
    """Softmax of random scores inside the mask, 0 outside: weights (B, h, Q, K) and the mask (B, 1, Q, K)."""
    generator = torch.Generator().manual_seed(seed)
    lens = torch.tensor(lens)
    key_lens = None if key_lens is None else torch.tensor(key_lens)
    mask = real_cells(lens, num_tokens, key_lens, num_kvpairs, causal=causal)
    size = (len(lens), num_heads, num_tokens, num_kvpairs or num_tokens)
    scores = 2 * torch.randn(size, generator=generator, dtype=torch.float64)
    weights = scores.masked_fill(~mask, -torch.inf).softmax(-1).nan_to_num(0.0)
    return weights, mask


def rows(weights, mask, head):
    """For each real query of a head: its place t, and its weights by key, as a dict."""
    mask = torch.ones(weights.shape, dtype=torch.bool) if mask is None else mask.expand(weights.shape)
    found = []
    for b in range(weights.shape[0]):
        for t in range(weights.shape[2]):
            keys = [j for j in range(weights.shape[3]) if mask[b, head, t, j]]
            if keys:
                found.append((b, t, {j: weights[b, head, t, j].item() for j in keys}))
    return found


def spoilt(weights, mask, more=2):
    """The same patterns with wild numbers wherever the mask is False, and `more` queries and keys of padding."""
    wild = torch.full_like(weights, torch.nan)
    wild[..., ::2] = -7.0
    wild[..., 1::3] = 1e9
    inside = torch.where(mask, weights, wild)
    padded = torch.nn.functional.pad(inside, (0, more, 0, more), value=123.0)
    return padded, torch.nn.functional.pad(mask, (0, more, 0, more), value=False)
