"""What our GPT is told so that it computes what a decoder of Hugging Face does, from that decoder's config.json; and
our BERT, for a ModernBERT, whose config.json speaks of rotary positions and windows as decoders' do.

An entry that is missing means what it means in `transformers` 5.
"""

from __future__ import annotations

import math
from typing import Any

from .config import ELSEWHERE, Config

_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
GATED = {"gelu": "geglu", "gelu_tanh": "geglu_tanh", "relu": "reglu", "silu": "swiglu"}


def activation_of(config: Config, key: str, usual: str) -> str:
    value = config.get(key, usual)
    if not isinstance(value, str) or value not in _ACTIVATIONS:
        raise ValueError(f"{key}={value!r:.80} in config.json is none of {sorted(_ACTIVATIONS)}; {ELSEWHERE}")
    return _ACTIVATIONS[value]


def _readout(config: Config, usual: bool) -> str:
    return "tied" if config.flag("tie_word_embeddings", usual) else "without bias"


def _rotary(
    config: Config, head_dim: int, usual_share: float | None = None, usual_base: float = 10000.0
) -> dict[str, Any]:
    """Settings of rotary positions. transformers 5 writes `rope_parameters`, older ones `rope_theta` and
    `rope_scaling`, and GPT-NeoX's `rotary_emb_base` and `rotary_pct`."""
    told = _told_of_rope(config)
    old = {
        "rope_theta": config.get("rope_theta", config.get("rotary_emb_base")),
        "partial_rotary_factor": config.get("partial_rotary_factor", config.get("rotary_pct", usual_share)),
        "rope_type": told.get("type", "default"),
        "original_max_position_embeddings": config.get("max_position_embeddings"),
    }
    rope = Config({**old, **{key: value for key, value in told.items() if value is not None}})
    settings: dict[str, Any] = {"rotary_base": rope.number("rope_theta", usual_base)}
    share = rope.number("partial_rotary_factor", 1.0)
    if usual_share is None:
        rope.require(partial_rotary_factor=1.0)
    elif share != 1:
        settings["rotary_dim"] = int(head_dim * share)
    kind = rope.get("rope_type")
    if kind == "linear":
        settings["rotary_scaling"] = {"name": "linear", "factor": rope.number("factor", 0.0)}
    elif kind == "llama3":
        settings["rotary_scaling"] = {
            "name": "llama3",
            "factor": rope.number("factor", 0.0),
            "low_freq_factor": rope.number("low_freq_factor", 0.0),
            "high_freq_factor": rope.number("high_freq_factor", 0.0),
            "original_max_tokens": rope.count("original_max_position_embeddings"),
        }
    elif kind == "yarn":
        settings["rotary_scaling"] = _yarn(rope)
    elif kind == "dynamic":
        told = {"factor": rope.number("factor", 0.0), "original_max_tokens": config.count("max_position_embeddings")}
        settings["rotary_scaling"] = {"name": "dynamic", **told}
    elif kind != "default":
        raise ValueError(
            f"rope_type={kind!r:.80} in config.json: our rotary positions are default, linear, llama3, yarn or "
            f"dynamic; "
            f"{ELSEWHERE}"
        )
    return settings


def _told_of_rope(config: Config) -> dict[str, Any]:
    """What `rope_scaling` says, and what `rope_parameters` says besides or instead."""
    return {**config.part("rope_scaling").told, **config.part("rope_parameters").told}


def _lengthened(factor: float, weight: float) -> float:
    """YaRN's factor for texts that are `factor` times as long, where the logarithm counts `weight` times."""
    return 0.1 * weight * math.log(factor) + 1 if factor > 1 else 1.0


def _yarn(rope: Config) -> dict[str, Any]:
    """What slows rotary positions down by YaRN; the factor of queries and keys as transformers takes it."""
    factor = rope.number("factor", 0.0)
    usual = _lengthened(factor, 1.0)
    if rope.get("mscale") and rope.get("mscale_all_dim"):
        usual = _lengthened(factor, rope.number("mscale", 1.0))
        usual /= _lengthened(factor, rope.number("mscale_all_dim", 1.0))
    return {
        "name": "yarn" if rope.flag("truncate", True) else "yarn-untruncated",
        "factor": factor,
        "beta_slow": rope.number("beta_slow", 1.0),
        "beta_fast": rope.number("beta_fast", 32.0),
        "original_max_tokens": rope.count("original_max_position_embeddings"),
        "attention_factor": rope.number("attention_factor", usual),
    }


def _sizes(config: Config) -> dict[str, Any]:
    """What most families call by the same names."""
    return {
        "vocab_size": config.count("vocab_size"),
        "num_hiddens": config.count("hidden_size"),
        "num_heads": config.count("num_attention_heads"),
        "num_layers": config.count("num_hidden_layers"),
        "max_tokens": config.count("max_position_embeddings"),
    }


def gpt2(config: Config) -> dict[str, Any]:
    config.require(scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False, add_cross_attention=False)
    num_hiddens = config.count("n_embd")
    return {
        "vocab_size": config.count("vocab_size"),
        "num_hiddens": num_hiddens,
        "num_heads": config.count("n_head"),
        "num_layers": config.count("n_layer"),
        "ffn_num_hiddens": config.count("n_inner", 4 * num_hiddens),
        "max_tokens": config.count("n_positions"),
        "norm_eps": config.number("layer_norm_epsilon", 1e-5),
        "ffn_kind": activation_of(config, "activation_function", "gelu_new"),
        "readout": _readout(config, True),
    }


def opt(config: Config) -> dict[str, Any]:
    sizes = _sizes(config)
    config.require(
        word_embed_proj_dim=sizes["num_hiddens"], layer_norm_elementwise_affine=True, _remove_final_layer_norm=False
    )
    bias = config.flag("enable_bias", True)
    return {
        **sizes,
        "ffn_num_hiddens": config.count("ffn_dim"),
        "norm": "pre" if config.flag("do_layer_norm_before", True) else "post",
        "ffn_kind": activation_of(config, "activation_function", "relu"),
        "ffn_bias": bias,
        "attention": {"name": "multi-head", "bias": bias},
        "readout": _readout(config, True),
    }


def gpt_neox(config: Config) -> dict[str, Any]:
    sizes = _sizes(config)
    rotary = _rotary(config, sizes["num_hiddens"] // sizes["num_heads"], usual_share=0.25)
    return {
        **sizes,
        "ffn_num_hiddens": config.count("intermediate_size"),
        "norm_eps": config.number("layer_norm_eps", 1e-5),
        "ffn_kind": activation_of(config, "hidden_act", "gelu"),
        "parallel": config.flag("use_parallel_residual", True),
        "positions": "rotary-halves",
        "attention": {"name": "multi-head", "bias": config.flag("attention_bias", True), **rotary},
        "readout": _readout(config, False),
    }


def _llama_like(
    config: Config,
    *,
    kv_heads: int | None = None,
    head_dim: int | None = None,
    activation: str = "silu",
    tied: bool = False,
    ffn_bias: bool = False,
    share: float | None = None,
    base: float = 10000.0,
    usual_eps: float = 1e-6,
    activation_key: str = "hidden_act",
    **attention: Any,
) -> dict[str, Any]:
    """RMS norms, a gated network, rotary positions, shared keys. `kv_heads`, `head_dim`, `activation`, `tied`,
    `share`, of a head's channels that are turned, `base` and `usual_eps` are what a missing entry means."""
    sizes = _sizes(config)
    if head_dim is None and config.get("head_dim") is None and sizes["num_hiddens"] % sizes["num_heads"]:
        raise ValueError(
            f"hidden_size={sizes['num_hiddens']} in config.json is not divisible by "
            f"num_attention_heads={sizes['num_heads']}"
        )
    width = config.count("head_dim", head_dim or sizes["num_hiddens"] // sizes["num_heads"])
    is_silent = "num_key_value_heads" not in config.told  # null means as many as heads
    kv_heads = kv_heads if is_silent and kv_heads else sizes["num_heads"]
    return {
        **sizes,
        "ffn_num_hiddens": config.count("intermediate_size"),
        "norm_kind": "rms",
        "norm_eps": config.number("rms_norm_eps", usual_eps),
        "ffn_kind": GATED[activation_of(config, activation_key, activation)],
        "ffn_bias": ffn_bias,
        "positions": "rotary-halves",
        "attention": {
            "name": "multi-head",
            "head_dim": width,
            "num_kv_heads": config.count("num_key_value_heads", kv_heads),
            "bias": False,
            **_rotary(config, width, share, base),
            **attention,
        },
        "readout": _readout(config, tied),
    }


def llama(config: Config) -> dict[str, Any]:
    bias = config.flag("attention_bias", False)
    return _llama_like(config, bias=bias, ffn_bias=config.flag("mlp_bias", False))


def _one_window(config: Config, usual: int | None) -> dict[str, Any]:
    """A window for all layers; null is none, and not the usual one."""
    window = config.told.get("sliding_window", usual)
    return {} if window is None else {"window": config.count("sliding_window", usual)}


def _unturned(attention: dict[str, Any]) -> dict[str, Any]:
    """Settings of a layer, but for those of rotary positions."""
    return {key: value for key, value in attention.items() if not key.startswith("rotary")}


def mistral(config: Config) -> dict[str, Any]:
    return {**_llama_like(config, kv_heads=8), **_one_window(config, 4096)}


def _local_layers(config: Config, usual: list[bool]) -> list[bool]:
    """Which layers have a window: as `layer_types` says, or as usual."""
    kinds = config.get("layer_types")
    if kinds is None:
        return usual
    if not isinstance(kinds, list) or len(kinds) != len(usual):
        raise ValueError(f"layer_types={kinds!r:.80} in config.json must be a list of {len(usual)} entries")
    for kind in kinds:
        if kind not in ("sliding_attention", "full_attention"):
            raise ValueError(
                f"layer_types in config.json has {kind!r:.80}: our layers are of 'sliding_attention' or "
                f"'full_attention'; {ELSEWHERE}"
            )
    return [kind == "sliding_attention" for kind in kinds]


def _windows(config: Config, is_local: list[bool], usual: int) -> dict[str, Any]:
    """A window for each layer that has one; one number where all have."""
    if not any(is_local):
        return {}
    window = config.count("sliding_window", usual)
    return {"window": window if all(is_local) else [window if local else None for local in is_local]}


def _qwen(config: Config) -> dict[str, Any]:
    """What Qwen2 and Qwen3 say of windows: the first layers may be without."""
    has_window = config.flag("use_sliding_window", False) and config.get("sliding_window", 4096) is not None
    first = config.count("max_window_layers", 28, minimum=0)
    usual = [has_window and number >= first for number in range(config.count("num_hidden_layers"))]
    return _windows(config, _local_layers(config, usual), 4096)


def qwen2(config: Config) -> dict[str, Any]:
    return {**_llama_like(config, kv_heads=32, bias=True, out_bias=False), **_qwen(config)}


def _normed(config: Config, usual_eps: float = 1e-6, **more: Any) -> dict[str, Any]:
    """Attention whose queries and keys are normalised as the layers are."""
    return {"name": "qk-norm", "norm": "rms", "norm_eps": config.number("rms_norm_eps", usual_eps), **more}


def qwen3(config: Config) -> dict[str, Any]:
    bias = config.flag("attention_bias", False)
    return {**_llama_like(config, kv_heads=32, head_dim=128, bias=bias, **_normed(config)), **_qwen(config)}


def gemma(config: Config) -> dict[str, Any]:
    config.require(use_bidirectional_attention=False)
    if config.get("hidden_act") == "gelu":  # what Google's first files say, and do not mean
        config = Config({**config.told, "hidden_act": "gelu_pytorch_tanh"})
    bias = config.flag("attention_bias", False)
    settings = _llama_like(config, kv_heads=16, head_dim=256, activation="gelu_pytorch_tanh", tied=True, bias=bias)
    return {**settings, "embedding_scale": settings["num_hiddens"] ** 0.5}


def phi3(config: Config) -> dict[str, Any]:
    return {**_llama_like(config, share=1.0, usual_eps=1e-5), **_one_window(config, None)}


def granite(config: Config) -> dict[str, Any]:
    """As LLaMA, with four numbers more; those of results and logits are put into the weights, see `families`."""
    settings = llama(config)
    settings["attention"]["scale"] = config.number("attention_multiplier", 1.0)
    return {**settings, "embedding_scale": config.number("embedding_multiplier", 1.0)}


def smollm3(config: Config) -> dict[str, Any]:
    """As LLaMA, but each fourth layer is told no positions."""
    bias, num_layers = config.flag("attention_bias", False), config.count("num_hidden_layers")
    settings = _llama_like(config, kv_heads=4, tied=True, bias=bias, base=2e6, ffn_bias=config.flag("mlp_bias", False))
    every = config.count("no_rope_layer_interval", 4)
    turned = config.get("no_rope_layers", [int((number + 1) % every != 0) for number in range(num_layers)])
    if not isinstance(turned, list) or len(turned) != num_layers or any(one not in (0, 1) for one in turned):
        raise ValueError(f"no_rope_layers={turned!r:.80} in config.json must be a list of {num_layers} zeros and ones")
    rotary = settings["attention"]
    plain = _unturned(rotary) | {"positions": "none"}
    settings["attention"] = [rotary if one else plain for one in turned]
    has_window = config.flag("use_sliding_window", False) and config.get("sliding_window") is not None
    usual = [has_window and not one for one in turned]
    return {**settings, **_windows(config, _local_layers(config, usual), 4096)}


def _gemma_later(config: Config, usual_cap: float | None = None, **own: Any) -> dict[str, Any]:
    """What Gemma 2 and 3 share: norms before and behind each sublayer, a scale of the scores that the file names, and
    logits that may be capped, where a missing entry means `usual_cap` and null means none."""
    config.require(use_bidirectional_attention=False)
    settings = _llama_like(
        config,
        kv_heads=4,
        head_dim=256,
        activation="gelu_pytorch_tanh",
        activation_key="hidden_activation",
        tied=True,
        bias=config.flag("attention_bias", False),
        scale=config.number("query_pre_attn_scalar", 256.0) ** -0.5,
        **own,
    )
    cap = config.told.get("final_logit_softcapping", usual_cap)
    capped = {} if cap is None else {"logit_cap": config.number("final_logit_softcapping", cap)}
    return {**settings, "norm": "both", "embedding_scale": settings["num_hiddens"] ** 0.5, **capped}


def gemma2(config: Config) -> dict[str, Any]:
    cap = config.told.get("attn_logit_softcapping", 50.0)
    own: dict[str, Any] = (
        {} if cap is None else {"name": "soft-cap", "cap": config.number("attn_logit_softcapping", 50.0)}
    )
    settings = _gemma_later(config, usual_cap=30.0, **own)
    usual = [number % 2 == 0 for number in range(settings["num_layers"])]
    return {**settings, **_windows(config, _local_layers(config, usual), 4096)}


def gemma3_text(config: Config) -> dict[str, Any]:
    """Layers with a window turn by another base than the others."""
    if config.get("attn_logit_softcapping") is not None:
        raise ValueError(
            f"attn_logit_softcapping={config.get('attn_logit_softcapping')!r:.80} in config.json: our queries and keys "
            f"are normalised, and their scores not capped; {ELSEWHERE}"
        )
    everywhere, nearby = _two_ropes(config, 1e6, 1e4)
    every = config.count("sliding_window_pattern", 6)
    return _turned_in_two_ways(_gemma_later(everywhere, **_normed(config)), nearby, every, 4096)


def _two_ropes(
    config: Config, base: float, local_base: float, keys: tuple[str, str] = ("rope_theta", "rope_local_base_freq")
) -> tuple[Config, Config]:
    """A config.json for layers that see all, and one for those with a window, where these turn in another way; what a
    missing base means, and under which `keys` older files have both."""
    rope = config.part("rope_parameters")
    old = {"full_attention": (keys[0], base), "sliding_attention": (keys[1], local_base)}
    names = ("rope_parameters", "rope_scaling", "rope_theta")
    bare = {key: value for key, value in config.told.items() if key not in names}
    made = []
    for kind, (key, usual) in old.items():
        told = {"rope_theta": config.number(key, usual), **rope.part(kind).told}
        if kind == "full_attention" and "rope_parameters" not in config.told:
            told |= config.part("rope_scaling").told
        made.append(Config({**bare, "rope_parameters": told}))
    return made[0], made[1]


def _turned_in_two_ways(settings: dict[str, Any], local: Config, every: int, window: int) -> dict[str, Any]:
    """Settings with windows in all but each `every`th layer, or as the config says; with a window, layers turn as
    `local` says. `window` is what a missing one means."""
    usual = [bool((number + 1) % every) for number in range(settings["num_layers"])]
    is_local, one = _local_layers(local, usual), settings["attention"]
    turned = {**_unturned(one), **_rotary(local, one["head_dim"])}
    attention = [turned if each else one for each in is_local]
    return {**settings, "attention": attention, **_windows(local, is_local, window)}


def olmo2(config: Config) -> dict[str, Any]:
    """Norms behind sublayers, and one over the queries of all heads, and over their keys."""
    own, bias = _normed(config, 1e-5, together=True), config.flag("attention_bias", False)
    return {**_llama_like(config, usual_eps=1e-5, bias=bias, **own), "norm": "after"}


def olmo3(config: Config) -> dict[str, Any]:
    everywhere, nearby = _two_ropes(config, 5e5, 5e5)
    return _turned_in_two_ways(olmo2(everywhere), nearby, 4, 4096)


def modernbert(config: Config) -> dict[str, Any]:
    """An encoder; `local_attention` is how many others a token sees in layers with a window, on both sides together."""
    config.require(rope_scaling=None)
    keys = ("global_rope_theta", "local_rope_theta")
    every = config.count("global_attn_every_n_layers", 3)
    everywhere, nearby = _two_ropes(config, 160000.0, 10000.0, keys)
    as_decoders = Config({**everywhere.told, "head_dim": None, "num_key_value_heads": None})
    bias, key = config.flag("attention_bias", False), "hidden_activation"
    settings = _llama_like(
        as_decoders, activation="gelu", activation_key=key, bias=bias, ffn_bias=config.flag("mlp_bias", False)
    )
    del settings["readout"]
    settings |= {"norm": "pre", "norm_eps": config.number("norm_eps", 1e-5), "num_segments": 0}
    settings["norm_kind"] = "layer" if config.flag("norm_bias", False) else "layer without bias"
    kinds = ["sliding_attention" if number % every else "full_attention" for number in range(settings["num_layers"])]
    window = 2 * (config.count("local_attention", 128) // 2) + 1
    local = Config({**nearby.told, "layer_types": nearby.get("layer_types", kinds), "sliding_window": window})
    return _turned_in_two_ways(settings, local, 1, window)


def _mixture(
    config: Config, experts: int, chosen: int, normalised: bool = True, key: str = "num_experts", **more: Any
) -> dict[str, Any]:
    """Settings of experts; `experts` and `chosen` are what missing entries mean. Files have other names for the
    first, than `key`, too."""
    num_experts = config.count(key, config.get("num_local_experts", experts))
    num_chosen = config.count("num_experts_per_tok", chosen)
    if num_chosen > num_experts:
        raise ValueError(
            f"num_experts_per_tok={num_chosen} in config.json is more than the {num_experts} experts that there are"
        )
    return {"num_experts": num_experts, "num_chosen": num_chosen, "normalised": normalised, **more}


def mixtral(config: Config) -> dict[str, Any]:
    settings = _llama_like(config, kv_heads=8, base=1e6, usual_eps=1e-5)
    return {**settings, **_one_window(config, None), "mixture": _mixture(config, 8, 2)}


def qwen3_moe(config: Config) -> dict[str, Any]:
    """As Qwen3; some layers may have one network in place of experts, of another width."""
    one = _mixture(config, 128, 8, config.flag("norm_topk_prob", False))
    one["ffn_num_hiddens"] = config.count("moe_intermediate_size", 768)
    every, without = config.count("decoder_sparse_step", 1), config.get("mlp_only_layers", [])
    if not isinstance(without, list) or any(not isinstance(number, int) for number in without):
        raise ValueError(f"mlp_only_layers={without!r:.80} in config.json must be a list of the numbers of layers")
    num_layers = config.count("num_hidden_layers")
    mixture = [None if n in without or (n + 1) % every else one for n in range(num_layers)]
    settings = _llama_like(config, kv_heads=4, bias=config.flag("attention_bias", False), **_normed(config))
    windows = _one_window(config, 4096) if config.flag("use_sliding_window", False) else {}
    return {**settings, **windows, "mixture": mixture}


def gpt_oss(config: Config) -> dict[str, Any]:
    """Heads with sinks, a window in every other layer, and experts whose gates and values are clamped."""
    config.require(swiglu_alpha=1.702, swiglu_limit=7.0)
    if config.get("rope_parameters") is None and config.get("rope_scaling") is None:
        told = {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096, "truncate": False}
        config = Config({**config.told, "rope_parameters": told})
    bias = config.flag("attention_bias", True)
    settings = _llama_like(config, kv_heads=8, head_dim=64, base=150000.0, usual_eps=1e-5, name="sinks", bias=bias)
    usual = [number % 2 == 0 for number in range(settings["num_layers"])]
    settings |= {"ffn_kind": "swiglu_clamped", "ffn_bias": True, "mixture": _mixture(config, 128, 4)}
    return {**settings, **_windows(config, _local_layers(config, usual), 128)}


def deepseek_v3(config: Config) -> dict[str, Any]:
    """Latents in place of keys and values, and mixtures behind a few layers with one network."""
    config.require(scoring_func="sigmoid", topk_method="noaux_tc", moe_layer_freq=1)
    d, turned = config.count("qk_nope_head_dim", 128), config.count("qk_rope_head_dim", 64)
    settings = _llama_like(Config({**config.told, "head_dim": turned}), bias=config.flag("attention_bias", False))
    config.require(num_key_value_heads=settings["num_heads"])
    del settings["attention"]["num_kv_heads"]
    has_query_latents = config.told.get("q_lora_rank", 1536) is not None
    settings["attention"] |= {
        "name": "latent",
        "head_dim": d,
        "value_dim": config.count("v_head_dim", 128),
        "latent_size": config.count("kv_lora_rank", 512),
        "rotary_size": turned,
        "query_latent_size": config.count("q_lora_rank", 1536) if has_query_latents else 0,
        "scale": (d + turned) ** -0.5 * _growth_of_scores(config),
    }
    one = _mixture(config, 256, 8, config.flag("norm_topk_prob", True), "n_routed_experts")
    one |= {
        "ffn_num_hiddens": config.count("moe_intermediate_size", 2048),
        "shares": "sigmoid",
        "choice_bias": True,
        "num_groups": config.count("n_group", 8),
        "num_chosen_groups": config.count("topk_group", 4),
        "share_scale": config.number("routed_scaling_factor", 2.5),
        "num_shared": config.count("n_shared_experts", 1),
    }
    first = config.count("first_k_dense_replace", 3, minimum=0)
    mixture = [None if number < first else one for number in range(settings["num_layers"])]
    positions = "rotary" if config.flag("rope_interleave", True) else "rotary-halves"
    return {**settings, "positions": positions, "mixture": mixture}


def _growth_of_scores(config: Config) -> float:
    """DeepSeek's YaRN makes all channels of queries and keys longer, not only those that are turned: by the scale."""
    rope = Config(_told_of_rope(config))
    if not rope.get("mscale_all_dim") or rope.get("rope_type", rope.get("type", "default")) == "default":
        return 1.0
    return _lengthened(rope.number("factor", 0.0), rope.number("mscale_all_dim", 1.0)) ** 2
