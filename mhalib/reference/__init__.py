"""Trusted slow versions, the same layer in two other well-known forms, and weights carried between all of them."""

from .convert import from_d2l, from_harvard, from_torch, to_d2l, to_harvard, to_torch
from .layers import D2LMultiHeadAttention, HarvardMultiHeadAttention
from .loops import attend_loops, multi_head_attention_loops

__all__ = [
    "D2LMultiHeadAttention",
    "HarvardMultiHeadAttention",
    "attend_loops",
    "from_d2l",
    "from_harvard",
    "from_torch",
    "multi_head_attention_loops",
    "to_d2l",
    "to_harvard",
    "to_torch",
]
