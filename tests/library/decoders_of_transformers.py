"""Small decoders of `transformers` with random weights, stored as that library stores them, for `test_decoders.py`.

All sizes of a model are different, and no weight is 0 or 1, so that none can be forgotten or taken for another.
"""

import json

import torch

SIZES = {"vocab_size": 53, "num_hidden_layers": 2, "hidden_size": 30, "max_position_embeddings": 19}
LLAMA = {**SIZES, "num_attention_heads": 6, "num_key_value_heads": 2, "intermediate_size": 37}
ROPE_3 = {
    "rope_type": "llama3",
    "rope_theta": 700.0,
    "factor": 3.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 500.0,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
    "beta_fast": 8.0,
}
SOFT = {"head_dim": 8, "query_pre_attn_scalar": 5, "attn_logit_softcapping": 2.0, "pad_token_id": 0}
TWO_ROPES = {
    "full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 700.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
}
EXPERTS = {"num_experts": 5, "num_experts_per_tok": 3, "moe_intermediate_size": 11}
DEEPSEEK = {
    **SIZES,
    "num_attention_heads": 3,
    "num_key_value_heads": 3,
    "intermediate_size": 37,
    "kv_lora_rank": 11,
    "q_lora_rank": 13,
    "qk_nope_head_dim": 7,
    "qk_rope_head_dim": 4,
    "v_head_dim": 9,
    "n_routed_experts": 8,
    "n_group": 4,
    "topk_group": 2,
    "num_experts_per_tok": 3,
    "n_shared_experts": 2,
    "first_k_dense_replace": 1,
    "moe_intermediate_size": 17,
    "pad_token_id": 0,
}
GPT2 = {"vocab_size": 53, "n_layer": 2, "n_embd": 15, "n_head": 3, "n_inner": 37, "n_positions": 19}
OPT = {**SIZES, "hidden_size": 15, "num_attention_heads": 3, "ffn_dim": 37, "pad_token_id": 1}
NEOX = {**SIZES, "hidden_size": 48, "num_attention_heads": 3, "intermediate_size": 37}
CASES = {
    "gpt2": ("GPT2", GPT2),
    "gpt2, relu, own readout": ("GPT2", {**GPT2, "activation_function": "relu", "tie_word_embeddings": False}),
    "opt": ("OPT", OPT),
    "opt, post-norm, no biases": ("OPT", {**OPT, "do_layer_norm_before": False, "enable_bias": False}),
    "gpt_neox": ("GPTNeoX", NEOX),
    "gpt_neox, one after the other": (
        "GPTNeoX",
        {**NEOX, "use_parallel_residual": False, "attention_bias": False, "tie_word_embeddings": True}
        | {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 99.0, "partial_rotary_factor": 0.5}},
    ),
    "llama": ("Llama", {**LLAMA, "num_key_value_heads": 6, "num_attention_heads": 6, "hidden_size": 36}),
    "llama, scaled": ("Llama", {**LLAMA, "head_dim": 8, "tie_word_embeddings": True, "rope_parameters": ROPE_3}),
    "llama, biases": ("Llama", {**LLAMA, "head_dim": 4, "attention_bias": True, "mlp_bias": True}
                      | {"hidden_act": "gelu"}),
    "mistral": ("Mistral", {**LLAMA, "head_dim": 8, "sliding_window": 4}),
    "mistral, no window": ("Mistral", {**LLAMA, "head_dim": 8, "sliding_window": None}),
    "qwen2": ("Qwen2", {**LLAMA, "hidden_size": 36}),
    "qwen2, a window": ("Qwen2", {**LLAMA, "hidden_size": 36, "use_sliding_window": True, "sliding_window": 3}
                        | {"max_window_layers": 0, "tie_word_embeddings": True}),
    "qwen3": ("Qwen3", {**LLAMA, "head_dim": 8, "rms_norm_eps": 1e-3}),
    "qwen3, windows in later layers": ("Qwen3", {**LLAMA, "head_dim": 8, "use_sliding_window": True}
                                       | {"sliding_window": 3, "max_window_layers": 1}),
    "llama, yarn": ("Llama", {**LLAMA, "head_dim": 8, "rope_parameters": YARN}),
    "phi3": ("Phi3", {**LLAMA, "hidden_size": 48, "pad_token_id": 0}
             | {"rope_parameters": {"rope_type": "default", "rope_theta": 99.0, "partial_rotary_factor": 0.5}}),
    "phi3, a window": ("Phi3", {**LLAMA, "hidden_size": 36, "sliding_window": 4, "pad_token_id": 0}),
    "granite": ("Granite", {**LLAMA, "hidden_size": 36, "embedding_multiplier": 3.0, "logits_scaling": 1.7}
                | {"residual_multiplier": 0.6, "attention_multiplier": 0.3, "mlp_bias": True, "attention_bias": True}),
    "granite, tied": ("Granite", {**LLAMA, "hidden_size": 36, "logits_scaling": 2.5, "tie_word_embeddings": True}),
    "smollm3": ("SmolLM3", {**LLAMA, "hidden_size": 36, "num_hidden_layers": 4, "pad_token_id": 0}),
    "smollm3, windows": ("SmolLM3", {**LLAMA, "hidden_size": 36, "no_rope_layers": [0, 1], "pad_token_id": 0}
                         | {"use_sliding_window": True, "sliding_window": 3}),
    "olmo2": ("Olmo2", {**LLAMA, "hidden_size": 36, "rms_norm_eps": 1e-3}),
    "olmo2, biases": ("Olmo2", {**LLAMA, "hidden_size": 36, "attention_bias": True, "tie_word_embeddings": True}),
    "olmo3": ("Olmo3", {**LLAMA, "hidden_size": 36, "num_hidden_layers": 4, "sliding_window": 3, "pad_token_id": 0}
              | {"rope_parameters": {"full_attention": YARN, "sliding_attention": {"rope_type": "default"}
                                     | {"rope_theta": 50.0}}}),
    "mixtral": ("Mixtral", {**LLAMA, "head_dim": 8, "num_local_experts": 5, "num_experts_per_tok": 2}),
    "mixtral, a window": ("Mixtral", {**LLAMA, "head_dim": 8, "num_local_experts": 3, "num_experts_per_tok": 3}
                          | {"sliding_window": 4, "tie_word_embeddings": True}),
    "qwen3_moe": ("Qwen3Moe", {**LLAMA, "head_dim": 8, "rms_norm_eps": 1e-3, **EXPERTS, "norm_topk_prob": True}),
    "qwen3_moe, one plain layer": ("Qwen3Moe", {**LLAMA, "head_dim": 8, **EXPERTS, "decoder_sparse_step": 2}
                                   | {"use_sliding_window": True, "sliding_window": 3, "attention_bias": True}),
    "gpt_oss": ("GptOss", {**LLAMA, "head_dim": 8, "num_local_experts": 5, "num_experts_per_tok": 2}
                | {"sliding_window": 3, "pad_token_id": 0, "rope_parameters": {**YARN, "truncate": False}}),
    "deepseek_v3": ("DeepseekV3", {**DEEPSEEK, "rope_parameters": {**YARN, "mscale": 0.7, "mscale_all_dim": 1.3}}),
    "deepseek_v3, no latents of queries": ("DeepseekV3", {**DEEPSEEK, "q_lora_rank": None, "attention_bias": True}
                                           | {"rope_interleave": False, "norm_topk_prob": False, "n_group": 1}
                                           | {"topk_group": 1, "first_k_dense_replace": 0}),
    "llama, dynamic": ("Llama", {**LLAMA, "head_dim": 8, "rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}),
    "gemma2": ("Gemma2", {**LLAMA, **SOFT, "sliding_window": 4}),
    "gemma2, no caps": ("Gemma2", {**LLAMA, **SOFT, "attn_logit_softcapping": None, "final_logit_softcapping": None}),
    "gemma3_text": ("Gemma3Text", {**LLAMA, "head_dim": 8, "query_pre_attn_scalar": 5, "sliding_window": 3}
                    | {"pad_token_id": 0, "num_hidden_layers": 6, "rms_norm_eps": 1e-3, "rope_parameters": TWO_ROPES}),
    "gemma": ("Gemma", {**LLAMA, "head_dim": 8, "num_key_value_heads": 1, "pad_token_id": 0}),
}  # fmt: skip
"""Name -> the class in `transformers`, and what its config says."""
FAMILIES = [name for name in CASES if "," not in name]


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
    config._attn_implementation = config._experts_implementation = "eager"  # its fast experts need widths of 8
    kind = CASES[name][0]
    suffix = "LMHeadModel" if kind == "GPT2" else "ForCausalLM"
    model = getattr(transformers, kind.removesuffix("Text") + suffix)(config).to(dtype).eval()
    with torch.no_grad():
        for key, weight in model.named_parameters():
            std = 0.3 if weight.dim() == 1 else 1.5 * min(weight.shape) ** -0.5
            weight.copy_(torch.randn_like(weight) * (1.0 if "embed" in key or "wte" in key else std))
            if weight.dim() == 1 and key.endswith("weight") and not kind.startswith("Gemma"):
                weight.add_(1)
        for key, held in model.named_buffers():
            if key.endswith("e_score_correction_bias"):
                held.copy_(0.3 * torch.randn_like(held))  # changes who is chosen
    return model.requires_grad_(False)


def write(model, folder, **settings):
    """As `save_pretrained` writes it, with a tokenizer whose words are numbers."""
    model.save_pretrained(folder, **settings)
    words = {f"w{number}": number for number in range(53)}
    told = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "w0"},
    }
    (folder / "tokenizer.json").write_text(json.dumps(told), encoding="utf-8")
    return folder


def places_of(is_real):
    """The positions that generation gives to tokens, from the mask."""
    return (is_real.long().cumsum(1) - 1).clamp(min=0)


@torch.no_grad()
def answer(model, tokens, is_real=None):
    """Logits (B, N, words), and weights (layers, B, h, N, N)."""
    is_real = torch.ones_like(tokens, dtype=torch.bool) if is_real is None else is_real
    found = model(
        input_ids=tokens,
        attention_mask=is_real.long(),
        position_ids=places_of(is_real),
        output_attentions=True,
        use_cache=False,
    )
    return found.logits, torch.stack(list(found.attentions))
