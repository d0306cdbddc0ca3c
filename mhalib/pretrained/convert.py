"""The weights of Hugging Face's BERT-like encoders under our names, and which models are read at all."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from ..models import BERT
from .config import ELSEWHERE, Config
from .families import DECODERS, ENCODER_DECODERS
from .pictures import PICTURES


@dataclass(frozen=True)
class Family:
    """How one kind of encoder names its parts. What a checkpoint has besides, such as a pooler, is left out.

    sizes: our arguments -> keys of config.json.
    layers: what stands before a layer's number.
    parts: of a layer, our names -> theirs.
    has_segments: whether there is a vector for each segment.
    first_position: adds this to `pad_token_id`, and the text starts at that position; `None`: at position 0.
    """

    sizes: Mapping[str, str]
    layers: str
    parts: Mapping[str, str]
    has_segments: bool = True
    first_position: int | None = None


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
_ROBERTA = Family(_SIZES, "encoder.layer", _PARTS, first_position=1)
FAMILIES: dict[str, Family] = {
    "bert": Family(_SIZES, "encoder.layer", _PARTS),
    "electra": Family(_SIZES, "encoder.layer", _PARTS),
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "camembert": _ROBERTA,
    "distilbert": Family(_DISTIL_SIZES, "transformer.layer", _DISTIL_PARTS, has_segments=False),
}
"""The encoders that are read, by the `model_type` of their config.json."""
_EMBEDDINGS = {
    "tokens.embedding.weight": "embeddings.word_embeddings.weight",
    "tokens.positions.table": "embeddings.position_embeddings.weight",
    "segments.weight": "embeddings.token_type_embeddings.weight",
    "norm.weight": "embeddings.LayerNorm.weight",
    "norm.bias": "embeddings.LayerNorm.bias",
}


UNREAD = {
    **dict.fromkeys(("umt5",), "versions of transformers differ in what its last vectors are multiplied by"),
    **dict.fromkeys(
        ("m2m_100",), "its sinusoidal positions turn at rates of their own, and leave out the padding token"
    ),
    **dict.fromkeys(("siglip", "siglip2"), "a last layer of attention reads its patches with a query of its own"),
    **dict.fromkeys(("gemma2",), "its scores are capped, and it has norms behind its sublayers, too"),
    **dict.fromkeys(("gemma3", "gemma3_text"), "its layers have different windows and rotary bases"),
    **dict.fromkeys(("bloom", "mpt"), "its positions are a number for each distance and head, ALiBi"),
    **dict.fromkeys(
        ("mixtral", "qwen2_moe", "qwen3_moe", "deepseek_v2", "deepseek_v3"), "a mixture of feed-forward networks"
    ),
    **dict.fromkeys(("gptj", "phi"), "one norm before attention and feed-forward network, which stand side by side"),
    **dict.fromkeys(("mamba", "mamba2", "rwkv"), "it has no attention"),
}
"""Well-known models that our blocks cannot hold, by `model_type`, and why not."""


def supported() -> dict[str, tuple[str, ...]]:
    """What our blocks can hold: kind of model -> each `model_type` that a config.json may say."""
    kinds: dict[str, Mapping[str, Any]] = {
        "encoder": FAMILIES,
        "decoder": DECODERS,
        "encoder-decoder": ENCODER_DECODERS,
        "pictures": PICTURES,
    }
    return {kind: tuple(sorted(families)) for kind, families in kinds.items()}


def require_known(config: Mapping[str, Any]) -> None:
    """Raise ValueError unless the model of this config.json is `supported`."""
    kind, known = config.get("model_type"), {one for families in supported().values() for one in families}
    if not isinstance(kind, str) or kind not in known:
        why = f" ({UNREAD[kind]})" if isinstance(kind, str) and kind in UNREAD else ""
        raise ValueError(
            f"model_type={kind!r:.80} in config.json is not one of {sorted(known)}, "
            f"which our blocks can hold{why}; {ELSEWHERE}"
        )


def encoder(config: Mapping[str, Any]) -> BERT:
    """Our model of an encoder's config.json on the device "meta", where it takes no memory.

    Raises:
        ValueError: an entry is missing or wrong, or our blocks do not have what it asks for.
    """
    family, told = _family(config), Config(config)
    sizes = {name: told.count(key) for name, key in family.sizes.items()}
    sizes["max_tokens"] -= _first(family, told)  # RoBERTa never uses the positions before
    with torch.device("meta"):
        return BERT(**cast("Any", {"num_segments": 1, **sizes}), norm_eps=told.number("layer_norm_eps", 1e-12))


def _first(family: Family, config: Config) -> int:
    """The position at which texts begin."""
    return 0 if family.first_position is None else config.count("pad_token_id", minimum=0) + family.first_position


def build(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> BERT:
    """Our model with a checkpoint's weights, in evaluation mode.

    Args:
        config: what config.json says.
        tensors: what the files of weights hold.

    Raises:
        ValueError: the architecture is a variant that our blocks do not have, the config lacks a size or counts fewer
            layers than the checkpoint has, its epsilon is not positive, or a tensor is missing or has another shape
            than the config says.
    """
    family, model = _family(config), encoder(config)  # without memory, and given the checkpoint's
    names = _names(family, model)
    found = _find(tensors, names)
    _require_all_layers(tensors, family, model.design.num_layers)
    first = _first(family, Config(config))
    found["tokens.positions.table"] = found["tokens.positions.table"][first:]
    if not family.has_segments:
        found["segments.weight"] = torch.zeros(1, model.design.num_hiddens)
    for own, wanted in model.state_dict().items():
        if found[own].shape != wanted.shape:
            raise ValueError(
                f"model.safetensors holds {names[own]!r} with shape {tuple(found[own].shape)}, "
                f"but config.json makes it {tuple(wanted.shape)}"
            )
    model.load_state_dict({own: tensor.float() for own, tensor in found.items()}, assign=True)
    return model.eval()


def token_without_position(config: Mapping[str, Any]) -> int | None:
    """The id that RoBERTa leaves out when it counts positions, its padding; `None` for encoders that count all."""
    return None if _family(config).first_position is None else Config(config).count("pad_token_id", minimum=0)


def _family(config: Mapping[str, Any]) -> Family:
    activation = config.get("hidden_act", config.get("activation", "gelu"))
    wanted = {
        "hidden_act": (activation, "gelu"),
        "position_embedding_type": (config.get("position_embedding_type") or "absolute", "absolute"),
        "is_decoder": (bool(config.get("is_decoder")), False),
        "embedding_size": (config.get("embedding_size", config.get("hidden_size")), config.get("hidden_size")),
    }
    for name, (has, needs) in wanted.items():
        if has != needs:
            raise ValueError(f"{name}={has!r} in config.json: our blocks need {needs!r}; {ELSEWHERE}")
    return FAMILIES[str(config["model_type"])]


def _require_all_layers(tensors: Mapping[str, Tensor], family: Family, num_layers: int) -> None:
    """Raise ValueError if the checkpoint has layers that the config does not count."""
    pattern = re.compile(rf"(?:.*\.)?{re.escape(family.layers)}\.(\d+)\.")
    numbers = [int(match[1]) for match in map(pattern.match, tensors) if match]
    if max(numbers, default=0) >= num_layers:
        raise ValueError(
            f"model.safetensors holds {max(numbers) + 1} layers, but config.json has only {num_layers} of them"
        )


def _names(family: Family, model: BERT) -> dict[str, str]:
    """The checkpoint's name of each of our tensors."""
    names = {}
    for own in model.state_dict():
        if own in _EMBEDDINGS:
            names[own] = _EMBEDDINGS[own]
        else:
            number, rest = own.removeprefix("encoder.layers.").split(".", 1)
            part, kind = rest.rsplit(".", 1)
            names[own] = f"{family.layers}.{number}.{family.parts[part]}.{kind}"
    if not family.has_segments:
        del names["segments.weight"]
    return names


def _find(tensors: Mapping[str, Tensor], names: Mapping[str, str]) -> dict[str, Tensor]:
    """The tensors by our names. In the checkpoint a prefix such as `bert.` may stand before theirs."""
    anchor = _EMBEDDINGS["tokens.embedding.weight"]
    prefix = next((key.removesuffix(anchor) for key in tensors if key.endswith(anchor)), "")
    found = {own: tensors.get(prefix + theirs, tensors.get(prefix + _old(theirs))) for own, theirs in names.items()}
    missing = [names[own] for own, tensor in found.items() if tensor is None]
    if missing:
        raise ValueError(f"model.safetensors lacks {len(missing)} tensors of the encoder, such as {missing[:3]}")
    return {own: tensor for own, tensor in found.items() if tensor is not None}


def _old(name: str) -> str:
    """What old checkpoints call a tensor."""
    return name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
