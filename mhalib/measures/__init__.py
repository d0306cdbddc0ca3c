"""What heads do, in numbers: where they look, how much they differ, how much they matter, and how to do without them.

Every measure of patterns takes weights (B, h, Q, K) and one `mask`, boolean, broadcastable to (B, h, Q, K): `True`
where a real query may look at a real key. `real_cells` makes it from lengths. What stands elsewhere does not count,
whatever it is; a query that may look at nothing is left out, and each query that is left counts the same.

A mask of the model's, (B, 1, 1, K), knows which keys are real, not which queries: with it, padding would be measured
as if it looked at something.
"""

from .card import HeadCard, head_card, stored_card
from .cells import real_cells
from .deeds import frozen, patched, rows, without_future, without_positions
from .distances import head_map, head_similarity, js_distance
from .gates import Head, gated, heads_of, layers_of, switched_off
from .hard_concrete import HardConcreteGate
from .importance import head_importance
from .induction import induction_score, induction_targets
from .means import head_means
from .mixing import mixed
from .outputs import head_outputs
from .patterns import attention_to, confidence, diagonal_dominance, head_entropy, maximum_at
from .pruning import prune_heads, removed_heads
from .roles import HeadRole, head_roles
from .targets import rarest_tokens

__all__ = [
    "HardConcreteGate",
    "Head",
    "HeadCard",
    "HeadRole",
    "attention_to",
    "confidence",
    "diagonal_dominance",
    "frozen",
    "gated",
    "head_card",
    "head_entropy",
    "head_importance",
    "head_map",
    "head_means",
    "head_outputs",
    "head_roles",
    "head_similarity",
    "heads_of",
    "induction_score",
    "induction_targets",
    "js_distance",
    "layers_of",
    "maximum_at",
    "mixed",
    "patched",
    "prune_heads",
    "rarest_tokens",
    "real_cells",
    "removed_heads",
    "rows",
    "stored_card",
    "switched_off",
    "without_future",
    "without_positions",
]
