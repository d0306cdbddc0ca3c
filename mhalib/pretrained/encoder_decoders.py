"""The weights of Hugging Face's encoder-decoders under our names, in a `mhalib.models.Transformer`.

`ENCODER_DECODERS` is the list of what is read.

| family | norm | feed-forward network | positions | before the first layer | logits |
|---|---|---|---|---|---|
| bart | layer, after | GELU | learned, two unused places before the first | a norm | tied, with biases |
| mbart | layer, before | GELU | learned, two unused places before the first | a norm | tied, with biases |
| marian | layer, after | SiLU | sinusoidal, sines before cosines | vectors times √D | tied, with biases |
| pegasus | layer, before | ReLU | sinusoidal, sines before cosines | vectors times √D | tied, with biases |
| t5 1.0 | rms, before | ReLU | a number for each distance and head | | tied, times 1/√D |
| t5 1.1, flan-t5, mt5 | rms, before | GEGLU with tanh | a number for each distance and head | | own |

Source and target have the same vectors for their tokens, but for a Marian whose config.json says otherwise. Of BART,
mBART and Pegasus, too, config.json may scale the vectors, and of all it names the function in the networks.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from ..attention import MultiHeadAttention
from ..models import Transformer
from . import encoder_decoder_settings as settings
from .config import Config
from .decoders import less_two, require_plain
from .tensors import Origin, filled

Names = str | tuple[str, ...]
"""What a checkpoint calls a part, or what it may call it."""


@dataclass(frozen=True)
class EncoderDecoderFamily:
    """How one kind of encoder-decoder names its parts.

    settings: from a config.json to what `Transformer` is made with.
    layers: what stands before a layer's number, in the encoder and in the decoder.
    encoder, decoder: of a layer, our names -> theirs.
    others: of what is in no layer, our names -> where they come from.
    prefix: what stands before every name but those of `outside`; some checkpoints leave it out.
    outside: names that have no prefix.
    unused: patterns of tensors that hold nothing learned.
    """

    settings: Callable[[Config], dict[str, Any]]
    layers: str
    encoder: Mapping[str, Names]
    decoder: Mapping[str, Names]
    others: Mapping[str, Origin]
    prefix: str = ""
    outside: tuple[str, ...] = ("lm_head.weight", "final_logits_bias")
    unused: tuple[str, ...] = ()


def _as_bias(tensor: Tensor, layer: MultiHeadAttention) -> Tensor:
    """BART's logits have a bias of shape (1, words)."""
    return tensor[0]


_BART_ENCODER: dict[str, Names] = {
    **{f"attention.W_{name}": f"self_attn.{name}_proj" for name in "qkv"},
    "attention.W_o": "self_attn.out_proj",
    "attention_skip.norm": "self_attn_layer_norm",
    "ffn.widen": "fc1",
    "ffn.narrow": "fc2",
    "ffn_skip.norm": "final_layer_norm",
}
_BART_DECODER: dict[str, Names] = {
    **_BART_ENCODER,
    **{f"cross_attention.W_{name}": f"encoder_attn.{name}_proj" for name in "qkv"},
    "cross_attention.W_o": "encoder_attn.out_proj",
    "cross_skip.norm": "encoder_attn_layer_norm",
}
_TOKENS: dict[str, Origin] = {
    "source.embedding.weight": Origin(("shared.weight", "encoder.embed_tokens.weight")),
    "target.embedding.weight": Origin(("decoder.embed_tokens.weight",)),
    "readout.weight": Origin(("lm_head.weight",)),
}
_BART_OTHERS: dict[str, Origin] = {
    **_TOKENS,
    "readout.bias": Origin(("final_logits_bias",), _as_bias),
    **{
        f"{ours}.{kind}": Origin((f"{theirs}.{kind}",))
        for kind in ("weight", "bias")
        for ours, theirs in (
            ("source.norm", "encoder.layernorm_embedding"),
            ("target.norm", "decoder.layernorm_embedding"),
            ("encoder.norm", "encoder.layer_norm"),
            ("decoder.norm", "decoder.layer_norm"),
        )
    },
    "source.positions.table": Origin(("encoder.embed_positions.weight",), less_two),
    "target.positions.table": Origin(("decoder.embed_positions.weight",), less_two),
}


def _as_bart(told: Callable[[Config], dict[str, Any]], *unused: str) -> EncoderDecoderFamily:
    unused = (r"^(model\.)?(en|de)coder\.version$", *unused)
    return EncoderDecoderFamily(
        told, "layers", _BART_ENCODER, _BART_DECODER, _BART_OTHERS, prefix="model.", unused=unused
    )


def _t5_parts(network: str) -> dict[str, Names]:
    """A layer's parts but for cross-attention, where `network` is the feed-forward network's place in it."""
    return {
        **{f"attention.W_{name}": f"layer.0.SelfAttention.{name}" for name in "qkvo"},
        "attention.distance_scores": "layer.0.SelfAttention.relative_attention_bias.weight",
        "attention_skip.norm": "layer.0.layer_norm",
        "ffn.gate": f"{network}.DenseReluDense.wi_0",
        "ffn.widen": (f"{network}.DenseReluDense.wi", f"{network}.DenseReluDense.wi_1"),
        "ffn.narrow": f"{network}.DenseReluDense.wo",
        "ffn_skip.norm": f"{network}.layer_norm",
    }


_T5_CROSS: dict[str, Names] = {
    **{f"cross_attention.W_{name}": f"layer.1.EncDecAttention.{name}" for name in "qkvo"},
    "cross_skip.norm": "layer.1.layer_norm",
}
_T5_OTHERS = {
    **_TOKENS,
    "encoder.norm.weight": Origin(("encoder.final_layer_norm.weight",)),
    "decoder.norm.weight": Origin(("decoder.final_layer_norm.weight",)),
}


def _as_t5(told: Callable[[Config], dict[str, Any]]) -> EncoderDecoderFamily:
    unused = (r"EncDecAttention\.relative_attention_bias\.weight$",)
    decoder = {**_t5_parts("layer.2"), **_T5_CROSS}
    return EncoderDecoderFamily(told, "block", _t5_parts("layer.1"), decoder, _T5_OTHERS, unused=unused)


ENCODER_DECODERS = {
    "bart": _as_bart(settings.bart),
    "mbart": _as_bart(settings.mbart),
    "marian": _as_bart(settings.marian, r"embed_positions\.weight$"),
    "pegasus": _as_bart(settings.pegasus, r"embed_positions\.weight$"),
    "t5": _as_t5(settings.t5),
    "mt5": _as_t5(settings.mt5),
}
"""The encoder-decoders that are read, by the `model_type` of their config.json."""


def encoder_decoder_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """What a `Transformer` is made with so that it computes what the encoder-decoder of this config.json does.

    Raises:
        KeyError: the family is not in `ENCODER_DECODERS`.
        ValueError: an entry is missing or wrong, or our blocks do not have what it asks for.
    """
    require_plain(config)
    return ENCODER_DECODERS[str(config["model_type"])].settings(Config(config))


def build_encoder_decoder(
    config: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> Transformer:
    """Our model with a checkpoint's weights, in evaluation mode. One tensor after the other is read.

    Args:
        config: what config.json says.
        tensors: what the files of weights hold. Without `final_logits_bias`, it is 0.
        dtype: of the model.
        device: where it is put.

    Raises:
        ValueError: as `encoder_decoder_settings`; or a tensor is missing, has another shape than the config says, or
            belongs to nothing that the config speaks of; or tensors that are one have different numbers.
    """
    family = ENCODER_DECODERS[str(config["model_type"])]
    with torch.device("meta"):  # made without memory, and given the checkpoint's
        model = Transformer(**encoder_decoder_settings(config))
    prefix = _prefix(family, tensors)
    left_out = _left_out(model, tensors, prefix)

    def origin(own: str) -> Origin:
        found = _origin(family, own)
        names = (name if name in family.outside else prefix + name for name in found.names)
        return found._replace(names=tuple(names))

    return filled(
        model,
        origin,
        ChainMap(left_out, cast("dict[str, Tensor]", tensors)),  # of which it only reads
        what="encoder-decoder",
        layer=model.encoder.self_attention[0],
        unused=family.unused,
        dtype=dtype,
        device=device,
    )


def _origin(family: EncoderDecoderFamily, own: str) -> Origin:
    """Where our tensor comes from, without the prefix."""
    if own in family.others:
        return family.others[own]
    stack, _, number, rest = own.split(".", 3)
    parts = family.encoder if stack == "encoder" else family.decoder
    part, dot, kind = (rest, "", "") if rest in parts else rest.rpartition(".")
    names = parts[part]
    before, after = f"{stack}.{family.layers}.{number}.", dot + kind
    return Origin(tuple(before + name + after for name in ([names] if isinstance(names, str) else names)))


def _prefix(family: EncoderDecoderFamily, tensors: Mapping[str, Tensor]) -> str:
    """What stands before their names in this checkpoint."""
    anchor = _origin(family, "encoder.layers.0.attention.W_q.weight").names[0]
    return next((key.removesuffix(anchor) for key in tensors if key.endswith(anchor)), family.prefix)


def _left_out(model: Transformer, tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """What a checkpoint need not hold. Without biases, BART's logits have none but 0. Without a readout of its own, a
    T5 reads logits out by its tokens' vectors, and its config.json does not say so."""
    found = {}
    if model.readout.bias is not None and "final_logits_bias" not in tensors:
        found["final_logits_bias"] = torch.zeros(1, model.target.vocab_size)
    shared = f"{prefix}shared.weight"
    if not model.is_tied and "lm_head.weight" not in tensors and shared in tensors:
        found["lm_head.weight"] = tensors[shared]
    return found
