"""The weights of Hugging Face's BERT-like encoders under our names, in a `mhalib.models.BERT`. What a checkpoint has
outside its layers and embeddings, such as a pooler or what makes logits of a hidden word, is left out.

`FAMILIES` is the list of what is read. ModernBERT stands apart: norms before the sublayers, GEGLU, rotary positions of
two bases, windows to both sides in two layers of three, and as a rule no bias anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from torch import Tensor

from ..models import BERT
from . import settings
from .config import ELSEWHERE, Config
from .families import Family, half_of, rows_of
from .tensors import Origin

_AFTER_PADDING = ("roberta", "xlm-roberta", "camembert")
"""Their texts begin at the position after the padding's number."""
_SIZES = {
    "vocab_size": "vocab_size",
    "num_hiddens": "hidden_size",
    "num_heads": "num_attention_heads",
    "num_layers": "num_hidden_layers",
    "ffn_num_hiddens": "intermediate_size",
    "max_tokens": "max_position_embeddings",
    "num_segments": "type_vocab_size",
}
_PARTS = {
    "attention.W_q": "attention.self.query",
    "attention.W_k": "attention.self.key",
    "attention.W_v": "attention.self.value",
    "attention.W_o": "attention.output.dense",
    "attention_skip.norm": "attention.output.LayerNorm",
    "ffn.widen": "intermediate.dense",
    "ffn.narrow": "output.dense",
    "ffn_skip.norm": "output.LayerNorm",
}
_DISTIL_SIZES = {
    "vocab_size": "vocab_size",
    "num_hiddens": "dim",
    "num_heads": "n_heads",
    "num_layers": "n_layers",
    "ffn_num_hiddens": "hidden_dim",
    "max_tokens": "max_position_embeddings",
}
_DISTIL_PARTS = {
    "attention.W_q": "attention.q_lin",
    "attention.W_k": "attention.k_lin",
    "attention.W_v": "attention.v_lin",
    "attention.W_o": "attention.out_lin",
    "attention_skip.norm": "sa_layer_norm",
    "ffn.widen": "ffn.lin1",
    "ffn.narrow": "ffn.lin2",
    "ffn_skip.norm": "output_layer_norm",
}
_EMBEDDINGS = {
    "tokens.embedding.weight": "word_embeddings.weight",
    "tokens.positions.table": "position_embeddings.weight",
    "segments.weight": "token_type_embeddings.weight",
    "norm.weight": "LayerNorm.weight",
    "norm.bias": "LayerNorm.bias",
}
_MODERN = Family(
    BERT,
    settings.modernbert,
    {
        "encoder": (
            "layers",
            {
                **{f"attention.W_{name}": Origin(("attn.Wqkv",), rows_of(index)) for index, name in enumerate("qkv")},
                "attention.W_o": "attn.Wo",
                "attention_skip.norm": "attn_norm",
                "ffn.gate": Origin(("mlp.Wi",), half_of(0)),
                "ffn.widen": Origin(("mlp.Wi",), half_of(1)),
                "ffn.narrow": "mlp.Wo",
                "ffn_skip.norm": "mlp_norm",
            },
        )
    },
    {
        "tokens.embedding.weight": Origin(("embeddings.tok_embeddings.weight",)),
        **{f"norm.{kind}": Origin((f"embeddings.norm.{kind}",)) for kind in ("weight", "bias")},
        **{f"encoder.norm.{kind}": Origin((f"final_norm.{kind}",)) for kind in ("weight", "bias")},
    },
    unused=(r"^(?!.*\blayers\.\d)",),
)
_OLD = (("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias"))


def _settings(sizes: Mapping[str, str], config: Config) -> dict[str, Any]:
    """Settings of a `BERT`, whose `sizes` are called as it says."""
    _require_variant(config)
    told = {own: config.count(key) for own, key in sizes.items()}
    told["max_tokens"] -= _first(config)  # RoBERTa never uses the positions before
    return {"num_segments": 0, **told, "norm_eps": config.number("layer_norm_eps", 1e-12)}


def _require_variant(config: Config) -> None:
    """Raise ValueError if the architecture is a variant that our blocks do not have."""
    width = config.get("hidden_size")
    wanted = {
        "hidden_act": (config.get("hidden_act", config.get("activation", "gelu")), "gelu"),
        "position_embedding_type": (config.get("position_embedding_type", "absolute"), "absolute"),
        "is_decoder": (bool(config.get("is_decoder")), False),
        "embedding_size": (config.get("embedding_size", width), width),
    }
    for name, (has, needs) in wanted.items():
        if has != needs:
            raise ValueError(f"{name}={has!r:.80} in config.json: our blocks need {needs!r:.80}; {ELSEWHERE}")


def _first(config: Config) -> int:
    """The position at which texts begin."""
    return config.count("pad_token_id", minimum=0) + 1 if config.get("model_type") in _AFTER_PADDING else 0


def token_without_position(config: Config) -> int | None:
    """The id that RoBERTa leaves out when it counts positions, its padding; `None` for encoders that count all."""
    return _first(config) - 1 if _first(config) else None


def _instead(config: Config, model: BERT, tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Norms under today's names, and the positions from a text's first on."""
    result = {name.replace(old, new): tensors[name] for name in tensors for old, new in _OLD if name.endswith(old)}
    positions = f"{prefix}embeddings.position_embeddings.weight"
    if positions in tensors:
        result[positions] = tensors[positions][_first(config) :]
    return result


def _family(sizes: Mapping[str, str], layers: str, parts: Mapping[str, str]) -> Family:
    others = {own: Origin((f"embeddings.{theirs}",)) for own, theirs in _EMBEDDINGS.items()}
    unused = (r"^(?!.*\blayer\.\d)", r"\.LayerNorm\.(gamma|beta)$")
    return Family(
        BERT, partial(_settings, sizes), {"encoder": (layers, parts)}, others, unused=unused, instead=_instead
    )


FAMILIES = {
    **{name: _family(_SIZES, "encoder.layer", _PARTS) for name in ("bert", "electra", *_AFTER_PADDING)},
    "distilbert": _family(_DISTIL_SIZES, "transformer.layer", _DISTIL_PARTS),
    "modernbert": _MODERN,
}
"""The encoders that are read, by the `model_type` of their config.json."""
