"""Layers in which heads share, talk, are chosen, are composed anew, are held in check, know distances and need not hand
out all of their weight. Each is a subclass of `MultiHeadAttention` that replaces some steps of its pass, and models
choose it by its name in `mhalib.attention.KINDS`.
"""

from .across import CrossLayerAttention
from .blocks import MixtureOfBlocks, NativeSparseAttention
from .capped import SoftCapAttention
from .collaborative import CollaborativeAttention, compress
from .composed import ComposedAttention, Composition
from .conformance import CHECKS, VariantError, check_variant
from .delta import DeltaAttention, delta_rule, delta_weights
from .differential import DifferentialAttention
from .entmax import EntmaxAttention, entmax
from .factored import TensorProductAttention
from .gated import GatedAttention
from .grouped import align_heads, exchange_pairs, group_heads
from .handing import HandsOn
from .indexed import IndexedAttention
from .latent import LatentAttention
from .mixture import MixtureOfHeads
from .multi_token import MultiTokenAttention
from .normed import QKNormAttention
from .overlapping import OverlappingAttention
from .relative import RelativeAttention, distance_buckets
from .sinks import SinkAttention
from .span import SpanAttention
from .sparse import SparseAttention, attend_in_windows
from .talking import TalkingHeads
from .unshared import SigmoidAttention, SoftpickAttention

__all__ = [
    "CHECKS",
    "CollaborativeAttention",
    "ComposedAttention",
    "Composition",
    "CrossLayerAttention",
    "DeltaAttention",
    "DifferentialAttention",
    "EntmaxAttention",
    "GatedAttention",
    "HandsOn",
    "IndexedAttention",
    "LatentAttention",
    "MixtureOfBlocks",
    "MixtureOfHeads",
    "MultiTokenAttention",
    "NativeSparseAttention",
    "OverlappingAttention",
    "QKNormAttention",
    "RelativeAttention",
    "SigmoidAttention",
    "SinkAttention",
    "SoftCapAttention",
    "SoftpickAttention",
    "SpanAttention",
    "SparseAttention",
    "TalkingHeads",
    "TensorProductAttention",
    "VariantError",
    "align_heads",
    "attend_in_windows",
    "check_variant",
    "compress",
    "delta_rule",
    "delta_weights",
    "distance_buckets",
    "entmax",
    "exchange_pairs",
    "group_heads",
]
