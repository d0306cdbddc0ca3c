"""Checkers for the exercises: they say which mistake was made.

`checks.split_heads(your_function)` draws inputs from a seed, compares with the reference, and, where the result is
wrong, names the known mistake that does the same. It prints what was verified, or raises `CheckFailed` with a message.
"""

from . import _markdown
from ._exercise import CheckFailed, Exercise, Finding, Mistake
from ._report import keep_going, report
from .all_targets_at_once import shifted, target_loss
from .are_heads_different import head_cosines, js_divergence
from .bake_off import choose_rates, equal_width, holm, not_dominated, paired_interval
from .counting import (
    batch_to_fill,
    decoding_scores,
    fused_causal,
    least_seconds,
    product_intensity,
    utilisation,
)
from .each_word_chooses_its_heads import balance_loss, head_loads, mended_router, weighted_heads
from .few_keys import chosen_blocks, index_scores, kept_keys, numbers_read
from .four_frameworks import mended_kernels, mended_rows, named_bug, ported_layer
from .heads_composed_anew import composed_scores, composed_weights, differential_weights, gated_output, second_weight
from .heads_that_talk import output_matrices, shared_scores, talk, talked_weights, widened
from .induction_circuit import copying_table, estimated_effects, logit_attribution, patched_key
from .looking_at_fewer_words import heard_of, span_shares, sparsemax_gradient, window_mask
from .many_devices import (
    added_vectors,
    all_reduce_bytes,
    all_to_all,
    batch_gradient,
    idle_share,
    key_gradient,
    own_keys,
    own_weights,
    sent_to,
    summed_output,
    zigzag_rows,
)
from .masks import attend, causal_mask, masked_softmax, mended_filling, padding_mask
from .mathematics import head_terms, winners_without
from .never_write_the_scores import (
    mended_lazy,
    mended_pass,
    merged,
    needed_tiles,
    numbered,
    score_gradient,
    updated,
)
from .open_a_model_you_know import (
    chance_share,
    config_bytes,
    readable_tokens,
    recovered_share,
    sink_share,
    slowed_rates,
)
from .per_head_heatmaps import head_entropy, mended_axis, offset_weight
from .positions import pairs_to_halves, rotate, sinusoidal_positions
from .reshape_trick import fold_heads, mended_merge, merge_heads, row_of_fold, split_heads, strides_of_heads
from .scale_temperature_dropout import mended_scale, with_dropout
from .seeing_with_heads import mended_patches, patches
from .serving import found_drafts, kept_by_top_p, next_chunks, passes_needed, rest, ring_slot, tokens_read
from .shape_checks import converted_mask, first_wrong_step, folded_lens, mended_layer, mended_tiling
from .sharing_keys_and_values import absorbed_scores, keys_for_heads, pooled, to_halves, tokens_that_fit
from .small_gpt import induction_weight, longest_ago, mended_loss, mended_step, next_token_probabilities, rule_shares
from .the_whole_layer import count_flops, multi_head
from .three_uses import cross_shapes, decoder_mask, mended_masks
from .token_by_token import grown, mended_rotary_step, read_pages, rounded_keys, step_bytes
from .training_that_holds import (
    capped_weights,
    clipped,
    in_8_bits,
    in_mxfp4,
    mended_update,
    mup_rates,
    next_scale,
    normed_scores,
    orthogonalised,
    qk_clipped,
    rate_at,
    with_z_loss,
)
from .translator import alignment_share, mended_accuracy, share_exact
from .two_modalities import mended_picture_mask, weight_on_the_left, weight_on_the_symbol
from .weighted_average import scores, weighted_average
from .what_comes_next import decayed_state, delta_state, escaping_weights, fading_state, hybrid_bytes
from .what_heads_look_at import mended_words, positional_role, sink_weight, written_share
from .which_heads_matter import hard_gate, head_importance, mended_pruning, open_gates, prune
from .which_measure_is_right import attribution_estimate, shapley_values
from .why_more_than_one_head import same_average, two_heads

EXERCISES: dict[str, Exercise] = _markdown.in_order(globals())
"""Every exercise by its name, in the order of the chapters."""

__all__ = [
    "EXERCISES",
    "CheckFailed",
    "Exercise",
    "Finding",
    "Mistake",
    "absorbed_scores",
    "added_vectors",
    "alignment_share",
    "all_reduce_bytes",
    "all_to_all",
    "attend",
    "attribution_estimate",
    "balance_loss",
    "batch_gradient",
    "batch_to_fill",
    "capped_weights",
    "causal_mask",
    "chance_share",
    "choose_rates",
    "chosen_blocks",
    "clipped",
    "composed_scores",
    "composed_weights",
    "config_bytes",
    "converted_mask",
    "copying_table",
    "count_flops",
    "cross_shapes",
    "decayed_state",
    "decoder_mask",
    "decoding_scores",
    "delta_state",
    "differential_weights",
    "equal_width",
    "escaping_weights",
    "estimated_effects",
    "fading_state",
    "first_wrong_step",
    "fold_heads",
    "folded_lens",
    "found_drafts",
    "fused_causal",
    "gated_output",
    "grown",
    "hard_gate",
    "head_cosines",
    "head_entropy",
    "head_importance",
    "head_loads",
    "head_terms",
    "heard_of",
    "holm",
    "hybrid_bytes",
    "idle_share",
    "in_8_bits",
    "in_mxfp4",
    "index_scores",
    "induction_weight",
    "js_divergence",
    "keep_going",
    "kept_by_top_p",
    "kept_keys",
    "key_gradient",
    "keys_for_heads",
    "least_seconds",
    "logit_attribution",
    "longest_ago",
    "masked_softmax",
    "mended_accuracy",
    "mended_axis",
    "mended_filling",
    "mended_kernels",
    "mended_layer",
    "mended_lazy",
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
    "mup_rates",
    "named_bug",
    "needed_tiles",
    "next_chunks",
    "next_scale",
    "next_token_probabilities",
    "normed_scores",
    "not_dominated",
    "numbered",
    "numbers_read",
    "offset_weight",
    "open_gates",
    "orthogonalised",
    "output_matrices",
    "own_keys",
    "own_weights",
    "padding_mask",
    "paired_interval",
    "pairs_to_halves",
    "passes_needed",
    "patched_key",
    "patches",
    "pooled",
    "ported_layer",
    "positional_role",
    "product_intensity",
    "prune",
    "qk_clipped",
    "rate_at",
    "read_pages",
    "readable_tokens",
    "recovered_share",
    "report",
    "rest",
    "ring_slot",
    "rotate",
    "rounded_keys",
    "row_of_fold",
    "rule_shares",
    "same_average",
    "score_gradient",
    "scores",
    "second_weight",
    "sent_to",
    "shapley_values",
    "share_exact",
    "shared_scores",
    "shifted",
    "sink_share",
    "sink_weight",
    "sinusoidal_positions",
    "slowed_rates",
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
    "tokens_read",
    "tokens_that_fit",
    "two_heads",
    "updated",
    "utilisation",
    "weight_on_the_left",
    "weight_on_the_symbol",
    "weighted_average",
    "weighted_heads",
    "widened",
    "window_mask",
    "winners_without",
    "with_dropout",
    "with_z_loss",
    "written_share",
    "zigzag_rows",
]
