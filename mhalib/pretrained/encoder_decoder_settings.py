"""What our Transformer is told so that it computes what an encoder-decoder of Hugging Face does, from its config.json.

An entry that is missing means what it means in `transformers` 5.
"""

from __future__ import annotations

from typing import Any

from .config import Config
from .settings import GATED, activation_of


def _as_bart(config: Config, usual_ffn: str = "gelu", **more: Any) -> dict[str, Any]:
    """What BART, mBART, Marian and Pegasus call by the same names."""
    config.require(tie_word_embeddings=True)
    num_hiddens, vocab_size = config.count("d_model"), config.count("vocab_size")
    both = [
        {
            "num_heads": config.count(f"{side}_attention_heads"),
            "num_layers": config.count(f"{side}_layers"),
            "ffn_num_hiddens": config.count(f"{side}_ffn_dim"),
        }
        for side in ("encoder", "decoder")
    ]
    settings: dict[str, Any] = {
        "source_vocab_size": vocab_size,
        "target_vocab_size": vocab_size,
        "num_hiddens": num_hiddens,
        **both[0],
        "max_tokens": config.count("max_position_embeddings"),
        "norm": "post",
        "ffn_kind": activation_of(config, "activation_function", usual_ffn),
        "share_tokens": True,
        "readout": "tied with bias",
        **more,
    }
    if config.flag("scale_embedding", False):
        settings["embedding_scale"] = num_hiddens**0.5
    other = {name: value for name, value in both[1].items() if value != both[0][name]}
    return {**settings, "decoder": other} if other else settings


def bart(config: Config) -> dict[str, Any]:
    return _as_bart(config, embedding_norm=True)


def mbart(config: Config) -> dict[str, Any]:
    return _as_bart(config, embedding_norm=True, norm="pre")


def marian(config: Config) -> dict[str, Any]:
    settings = _as_bart(config, positions="sinusoidal-halves")
    if config.flag("share_encoder_decoder_embeddings", True):
        return settings
    target = config.count("decoder_vocab_size", settings["source_vocab_size"])
    return {**settings, "share_tokens": False, "target_vocab_size": target}


def pegasus(config: Config) -> dict[str, Any]:
    return _as_bart(config, positions="sinusoidal-halves", norm="pre")


def _as_t5(config: Config, feed_forward: str, **more: Any) -> dict[str, Any]:
    """What T5 and mT5 share. `feed_forward` is what a missing entry means."""
    vocab_size, num_layers = config.count("vocab_size"), config.count("num_layers")
    own = {"bias": False, "head_dim": config.count("d_kv", 64), "scale": 1.0}
    relative = {
        "name": "relative",
        **own,
        "num_buckets": config.count("relative_attention_num_buckets", 32),
        "max_distance": config.count("relative_attention_max_distance", 128),
    }
    decoder: dict[str, Any] = {"attention": {**relative, "one_sided": True}}
    num_decoder_layers = config.count("num_decoder_layers", num_layers)
    return {
        "source_vocab_size": vocab_size,
        "target_vocab_size": vocab_size,
        "num_hiddens": config.count("d_model"),
        "num_heads": config.count("num_heads"),
        "num_layers": num_layers,
        "ffn_num_hiddens": config.count("d_ff"),
        "norm_kind": "rms",
        "norm_eps": config.number("layer_norm_epsilon", 1e-6),
        "ffn_kind": _feed_forward(config, feed_forward),
        "ffn_bias": False,
        "positions": "none",
        "attention": relative,
        "cross": {"name": "multi-head", **own},
        "share_tokens": True,
        "decoder": decoder if num_decoder_layers == num_layers else {**decoder, "num_layers": num_decoder_layers},
        "readout": "without bias",
        **more,
    }


def _feed_forward(config: Config, usual: str) -> str:
    """T5 writes "relu" or "gated-gelu", of which the GELU has tanh."""
    told = config.get("feed_forward_proj", usual)
    if told == "gated-gelu":
        return "geglu_tanh"
    is_gated = isinstance(told, str) and told.startswith("gated-")
    if is_gated:
        config = Config({**config.told, "feed_forward_proj": told.removeprefix("gated-")})
    kind = activation_of(config, "feed_forward_proj", usual)
    return GATED[kind] if is_gated else kind


def t5(config: Config) -> dict[str, Any]:
    """Version 1.0 reads logits out by the tokens' own vectors, and makes the last ones smaller; 1.1 does neither.
    `transformers` 5 calls that `scale_decoder_outputs`, and earlier ones `tie_word_embeddings`."""
    if not config.flag("scale_decoder_outputs", config.flag("tie_word_embeddings", True)):
        return _as_t5(config, "relu")
    return _as_t5(config, "relu", readout="tied", readout_scale=config.count("d_model") ** -0.5)


def mt5(config: Config) -> dict[str, Any]:
    return _as_t5(config, "gated-gelu")
