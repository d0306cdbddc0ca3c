"""What our GPT is told so that it computes what a decoder of Hugging Face does, from that decoder's config.json.

An entry that is missing means what it means in `transformers` 5.
"""

from __future__ import annotations

from collections.abc import Mapping
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


def _rotary(config: Config, head_dim: int, usual_share: float | None = None) -> dict[str, Any]:
    """Settings of rotary positions. transformers 5 writes `rope_parameters`, older ones `rope_theta` and
    `rope_scaling`, and GPT-NeoX's `rotary_emb_base` and `rotary_pct`."""
    told: dict[str, Any] = {}
    for key in ("rope_scaling", "rope_parameters"):
        entry = config.get(key, {})
        if not isinstance(entry, Mapping):
            raise ValueError(f"{key}={entry!r:.80} in config.json must be an object")
        told |= entry
    old = {
        "rope_theta": config.get("rope_theta", config.get("rotary_emb_base")),
        "partial_rotary_factor": config.get("partial_rotary_factor", config.get("rotary_pct", usual_share)),
        "rope_type": told.get("type", "default"),
        "original_max_position_embeddings": config.get("max_position_embeddings"),
    }
    rope = Config({**old, **{key: value for key, value in told.items() if value is not None}})
    settings: dict[str, Any] = {"rotary_base": rope.number("rope_theta", 10000.0)}
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
    elif kind != "default":
        raise ValueError(
            f"rope_type={kind!r:.80} in config.json: our rotary positions are default, linear or llama3; {ELSEWHERE}"
        )
    return settings


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
    **attention: Any,
) -> dict[str, Any]:
    """RMS norms, a gated network, rotary positions, shared keys. `kv_heads`, `head_dim`, `activation` and `tied` are
    what a missing entry means."""
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
        "norm_eps": config.number("rms_norm_eps", 1e-6),
        "ffn_kind": GATED[activation_of(config, "hidden_act", activation)],
        "ffn_bias": ffn_bias,
        "positions": "rotary-halves",
        "attention": {
            "name": "multi-head",
            "head_dim": width,
            "num_kv_heads": config.count("num_key_value_heads", kv_heads),
            "bias": False,
            **_rotary(config, width),
            **attention,
        },
        "readout": _readout(config, tied),
    }


def llama(config: Config) -> dict[str, Any]:
    bias = config.flag("attention_bias", False)
    return _llama_like(config, bias=bias, ffn_bias=config.flag("mlp_bias", False))


def mistral(config: Config) -> dict[str, Any]:
    window = config.told.get("sliding_window", 4096)  # null is none, and not the usual one
    settings = _llama_like(config, kv_heads=8)
    return settings if window is None else {**settings, "window": config.count("sliding_window", 4096)}


def _qwen(config: Config) -> dict[str, Any]:
    """What Qwen2 and Qwen3 say of windows: our GPT has one for all layers, or none."""
    kinds = config.get("layer_types", [])
    if not isinstance(kinds, list):
        raise ValueError(f"layer_types={kinds!r:.80} in config.json must be a list")
    is_local = [kind == "sliding_attention" for kind in kinds]
    if not is_local and config.flag("use_sliding_window", False) and config.get("sliding_window", 4096) is not None:
        first = config.count("max_window_layers", 28, minimum=0)
        is_local = [number >= first for number in range(config.count("num_hidden_layers"))]
    if any(is_local) and not all(is_local):
        raise ValueError(
            f"layer_types in config.json: {sum(is_local)} of {len(is_local)} layers have a window, and our blocks need "
            f"one for all layers, or none; {ELSEWHERE}"
        )
    return {"window": config.count("sliding_window", 4096)} if any(is_local) else {}


def qwen2(config: Config) -> dict[str, Any]:
    return {**_llama_like(config, kv_heads=32, bias=True, out_bias=False), **_qwen(config)}


def qwen3(config: Config) -> dict[str, Any]:
    own: dict[str, Any] = {"name": "qk-norm", "norm": "rms", "norm_eps": config.number("rms_norm_eps", 1e-6)}
    bias = config.flag("attention_bias", False)
    return {**_llama_like(config, kv_heads=32, head_dim=128, bias=bias, **own), **_qwen(config)}


def gemma(config: Config) -> dict[str, Any]:
    config.require(use_bidirectional_attention=False)
    if config.get("hidden_act") == "gelu":  # what Google's first files say, and do not mean
        config = Config({**config.told, "hidden_act": "gelu_pytorch_tanh"})
    bias = config.flag("attention_bias", False)
    settings = _llama_like(config, kv_heads=16, head_dim=256, activation="gelu_pytorch_tanh", tied=True, bias=bias)
    return {**settings, "embedding_scale": settings["num_hiddens"] ** 0.5}
