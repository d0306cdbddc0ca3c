"""Checkers for the exercises: they say which mistake was made.

`checks.split_heads(your_function)` draws inputs from a seed, compares with the reference, and, where the result is
wrong, names the known mistake that does the same. It prints what was verified, or raises `CheckFailed` with a message.
"""

from . import _markdown
from ._exercise import CheckFailed, Exercise, Finding, Mistake
from .chapter_01 import scores, weighted_average
from .chapter_02 import attend, masked_softmax
from .chapter_02_masks import causal_mask, padding_mask
from .chapter_02_repairs import mended_filling, mended_scale
from .chapter_03 import two_heads
from .chapter_04 import cache_numbers, count_flops, count_weights, multi_head
from .chapter_05 import fold_heads, mended_merge, merge_heads, row_of_fold, split_heads, strides_of_heads
from .chapter_06 import first_wrong_step, folded_lens
from .chapter_06_repairs import converted_mask, mended_layer, mended_tiling
from .chapter_07 import head_entropy, mended_axis, offset_weight
from .chapter_08 import cross_shapes, decoder_mask
from .chapter_08_repairs import mended_masks
from .chapter_09 import pairs_to_halves, rotate, sinusoidal_positions
from .chapter_10 import shifted, target_loss
from .chapter_11 import alignment_share, mended_accuracy, share_exact
from .chapter_12 import induction_weight, next_token_probabilities
from .chapter_12_repairs import mended_loss, mended_step
from .chapter_13 import copying_table, logit_attribution
from .chapter_14 import mended_patches, patches
from .chapter_15 import weight_on_the_left, weight_on_the_symbol
from .chapter_15_repairs import mended_picture_mask
from .chapter_16 import mended_words, positional_role, sink_weight
from .chapter_17 import head_cosines, js_divergence
from .chapter_18 import hard_gate, head_importance, open_gates, prune
from .chapter_18_repairs import mended_pruning
from .chapter_19 import absorbed_scores, keys_for_heads, tokens_that_fit
from .chapter_19_weights import pooled, to_halves
from .chapter_20 import output_matrices, talk
from .chapter_20_repairs import talked_weights
from .chapter_20_shared import shared_scores, widened
from .chapter_21 import span_shares, window_mask
from .chapter_21_routers import balance_loss, mended_router
from .chapter_21_sparsemax import sparsemax_gradient
from .chapter_22 import composed_scores, composed_weights
from .chapter_22_differential import differential_weights, second_weight
from .chapter_22_gates import gated_output
from .chapter_23 import equal_width, not_dominated
from .chapter_23_corrections import holm
from .chapter_23_seeds import choose_rates, paired_interval
from .chapter_24 import least_seconds, product_intensity
from .chapter_24_decoding import batch_to_fill, decoding_scores
from .chapter_25 import grown, read_pages, step_bytes
from .chapter_25_keys import mended_rotary_step, rounded_keys
from .chapter_26 import merged, updated
from .chapter_26_tiles import mended_pass, needed_tiles, score_gradient
from .chapter_27 import clipped, normed_scores, rate_at
from .chapter_27_scales import mended_update, next_scale
from .chapter_28 import own_keys, own_weights, summed_output
from .chapter_28_messages import all_reduce_bytes, batch_gradient
from .chapter_29 import named_bug, ported_layer
from .chapter_29_repairs import mended_kernels, mended_rows
from .chapter_30 import config_bytes, readable_tokens
from .chapter_30_claims import chance_share, recovered_share, sink_share
from .chapter_31 import escaping_weights, kept_keys
from .chapter_31_states import decayed_state, delta_state

EXERCISES: dict[str, Exercise] = _markdown.in_order(globals())
"""Every exercise by its name, in the order of the chapters."""

__all__ = [
    "EXERCISES",
    "CheckFailed",
    "Exercise",
    "Finding",
    "Mistake",
    "absorbed_scores",
    "alignment_share",
    "all_reduce_bytes",
    "attend",
    "balance_loss",
    "batch_gradient",
    "batch_to_fill",
    "cache_numbers",
    "causal_mask",
    "chance_share",
    "choose_rates",
    "clipped",
    "composed_scores",
    "composed_weights",
    "config_bytes",
    "converted_mask",
    "copying_table",
    "count_flops",
    "count_weights",
    "cross_shapes",
    "decayed_state",
    "decoder_mask",
    "decoding_scores",
    "delta_state",
    "differential_weights",
    "equal_width",
    "escaping_weights",
    "first_wrong_step",
    "fold_heads",
    "folded_lens",
    "gated_output",
    "grown",
    "hard_gate",
    "head_cosines",
    "head_entropy",
    "head_importance",
    "holm",
    "induction_weight",
    "js_divergence",
    "kept_keys",
    "keys_for_heads",
    "least_seconds",
    "logit_attribution",
    "masked_softmax",
    "mended_accuracy",
    "mended_axis",
    "mended_filling",
    "mended_kernels",
    "mended_layer",
    "mended_loss",
    "mended_masks",
    "mended_merge",
    "mended_pass",
    "mended_patches",
    "mended_picture_mask",
    "mended_pruning",
    "mended_rotary_step",
    "mended_router",
    "mended_rows",
    "mended_scale",
    "mended_step",
    "mended_tiling",
    "mended_update",
    "mended_words",
    "merge_heads",
    "merged",
    "multi_head",
    "named_bug",
    "needed_tiles",
    "next_scale",
    "next_token_probabilities",
    "normed_scores",
    "not_dominated",
    "offset_weight",
    "open_gates",
    "output_matrices",
    "own_keys",
    "own_weights",
    "padding_mask",
    "paired_interval",
    "pairs_to_halves",
    "patches",
    "pooled",
    "ported_layer",
    "positional_role",
    "product_intensity",
    "prune",
    "rate_at",
    "read_pages",
    "readable_tokens",
    "recovered_share",
    "rotate",
    "rounded_keys",
    "row_of_fold",
    "score_gradient",
    "scores",
    "second_weight",
    "share_exact",
    "shared_scores",
    "shifted",
    "sink_share",
    "sink_weight",
    "sinusoidal_positions",
    "span_shares",
    "sparsemax_gradient",
    "split_heads",
    "step_bytes",
    "strides_of_heads",
    "summed_output",
    "talk",
    "talked_weights",
    "target_loss",
    "to_halves",
    "tokens_that_fit",
    "two_heads",
    "updated",
    "weight_on_the_left",
    "weight_on_the_symbol",
    "weighted_average",
    "widened",
    "window_mask",
]
