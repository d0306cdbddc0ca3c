"""Small encoder-decoders of `transformers` with random weights, for `test_encoder_decoders.py`.

All sizes of a model are different, and no weight is 0 or 1, so that none can be forgotten or taken for another.
"""

import torch

SIZES = {"vocab_size": 53, "d_model": 12, "max_position_embeddings": 23, "pad_token_id": 1, "scale_embedding": True}
SIZES |= {"encoder_layers": 2, "encoder_attention_heads": 3, "encoder_ffn_dim": 17}
SIZES |= {"decoder_layers": 3, "decoder_attention_heads": 2, "decoder_ffn_dim": 19, "decoder_start_token_id": 2}
T5 = {"vocab_size": 53, "d_model": 12, "num_heads": 3, "d_kv": 5, "d_ff": 17, "decoder_start_token_id": 0}
T5 |= {"num_layers": 2, "num_decoder_layers": 3}
T5 |= {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 7}
SAME = {"decoder_layers": 2, "decoder_attention_heads": 3, "decoder_ffn_dim": 17}
CASES = {
    "bart": ("Bart", {**SIZES, "scale_embedding": False}),
    "bart, scaled, relu": ("Bart", {**SIZES, **SAME, "activation_function": "relu"}),
    "mbart": ("MBart", SIZES),
    "marian": ("Marian", {**SIZES, "activation_function": "swish"}),
    "marian, two vocabularies": (
        "Marian",
        {**SIZES, "share_encoder_decoder_embeddings": False, "decoder_vocab_size": 47, "scale_embedding": False},
    ),
    "pegasus": ("Pegasus", {**SIZES, "activation_function": "relu"}),
    "t5": ("T5", T5),
    "t5, 1.1": ("T5", {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
    "mt5": ("MT5", {**T5, "num_decoder_layers": 2, "layer_norm_epsilon": 1e-2}),
}
"""Name -> the class in `transformers`, and what its config says."""
FAMILIES = [name for name in CASES if "," not in name]
KINDS = ("encoder self", "decoder self", "cross")


def config_of(name):
    """A config of `transformers`."""
    import transformers

    kind, told = CASES[name]
    return getattr(transformers, f"{kind}Config")(**told)


def made(name, dtype=torch.float32):
    """A model of `transformers`, in evaluation mode, that computes all attention weights."""
    import transformers

    torch.manual_seed(len(name))
    config = config_of(name)
    config._attn_implementation = "eager"
    kind = CASES[name][0]
    suffix = "MTModel" if kind == "Marian" else "ForConditionalGeneration"
    model = getattr(transformers, kind + suffix)(config).to(dtype).eval()
    if name in ("t5, 1.1", "mt5"):  # as their checkpoints have it; transformers 5 ties what it makes anew
        model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.shared.weight))
    with torch.no_grad():
        for key, weight in model.named_parameters():
            if "embed_positions" in key and kind in ("Marian", "Pegasus"):
                continue  # sines and cosines
            std = 0.3 if weight.dim() == 1 else 1.5 * min(weight.shape) ** -0.5
            is_vectors = "embed" in key or "shared" in key or "relative" in key
            std *= 0.3 if key.endswith(".q.weight") else 1.0  # T5's scores are not divided by √d
            weight.copy_(torch.randn_like(weight) * (1.0 if is_vectors else std))
            if weight.dim() == 1 and key.endswith("weight"):
                weight.add_(1)
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.normal_()
    return model.requires_grad_(False)


@torch.no_grad()
def answer(model, source, target, source_is_real=None, target_is_real=None):
    """What the encoder makes (B, K, D), logits (B, Q, words), and weights by our names: kind -> one per layer."""
    source_is_real = torch.ones_like(source, dtype=torch.bool) if source_is_real is None else source_is_real
    found = model(
        input_ids=source,
        attention_mask=source_is_real.long(),
        decoder_input_ids=target,
        decoder_attention_mask=None if target_is_real is None else target_is_real.long(),
        output_attentions=True,
        use_cache=False,
    )
    weights = (found.encoder_attentions, found.decoder_attentions, found.cross_attentions)
    return found.encoder_last_hidden_state, found.logits, dict(zip(KINDS, map(list, weights), strict=True))
