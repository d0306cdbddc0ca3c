"""The weights of Hugging Face's decoders under our names, in a `mhalib.models.GPT`.

`DECODERS` is the list of what is read. A family says two things: what a GPT is told so that it computes what theirs
does, from their config.json; and which of their tensors holds each of ours.

| family | norm | feed-forward network | positions | attention | logits |
|---|---|---|---|---|---|
| gpt2 | layer | GELU with tanh | learned | one matrix for q, k and v, stored transposed | tied |
| opt | layer, before or after | ReLU | learned, two unused places before the first | biases may be missing | tied |
| gpt_neox (Pythia) | layer | GELU, beside attention | rotary, a quarter of a head | q, k, v of a head adjacent | own |
| llama (2, 3) | rms | SwiGLU | rotary, slowed down in 3.1 | shared keys | own or tied |
| mistral | rms | SwiGLU | rotary | shared keys, a window | own or tied |
| qwen2 (also 2.5) | rms | SwiGLU | rotary | shared keys, biases for q, k and v | own or tied |
| qwen3 | rms | SwiGLU | rotary | shared keys, q and k normalised | own or tied |
| gemma (1) | rms, stored less 1 | GEGLU with tanh | rotary | shared keys, wide heads | tied, vectors times √D |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..attention import MultiHeadAttention
from ..models import GPT
from . import settings
from .config import ELSEWHERE, Config
from .tensors import Change, Origin, Source, as_source, filled, unchanged


@dataclass(frozen=True)
class Decoder:
    """How one kind of decoder names its parts.

    settings: from a config.json to what `GPT` is made with.
    prefix: what stands before every name but the readout's; some checkpoints leave it out.
    layers: what stands between the prefix and a layer's number.
    tokens, norm, readout: the names of the tokens' vectors, of the last normalisation and of the logits' map.
    parts: of a layer, our names -> theirs; with a function where ours is not just theirs.
    positions: the table of learned positions.
    unused: patterns of tensors that hold nothing learned.
    norms: how our gains are made of theirs.
    """

    settings: Callable[[Config], dict[str, Any]]
    prefix: str
    layers: str
    tokens: str
    norm: str
    parts: Mapping[str, str | Source]
    readout: str = "lm_head"
    positions: str | Source | None = None
    unused: tuple[str, ...] = (r"rotary_emb\.inv_freq$",)
    norms: Change = field(default=lambda tensor, _: tensor)


def _transposed(tensor: Tensor, layer: MultiHeadAttention) -> Tensor:
    """GPT-2's maps are stored as (in, out), torch's as (out, in)."""
    return tensor.mT if tensor.dim() == 2 else tensor


def _third(place: int) -> Change:
    """GPT-2's queries, keys or values, of the columns that hold all three one behind the other."""
    return lambda tensor, layer: _transposed(tensor, layer).chunk(3)[place]


def _of_each_head(place: int) -> Change:
    """GPT-NeoX's queries, keys or values, of rows (h, 3, d): those of a head stand side by side."""
    return lambda tensor, layer: tensor.unflatten(0, (layer.num_heads, 3, -1))[:, place].flatten(0, 1)


def less_two(tensor: Tensor, layer: MultiHeadAttention) -> Tensor:
    """Positions begin at row 2, in OPT and BART."""
    return tensor[2:]


def _plus_one(tensor: Tensor, layer: MultiHeadAttention) -> Tensor:
    """Gemma stores gains less 1."""
    return tensor.float() + 1


_GPT2_PARTS: dict[str, str | Source] = {
    **{f"attention.W_{name}": ("attn.c_attn", _third(place)) for place, name in enumerate("qkv")},
    "attention.W_o": ("attn.c_proj", _transposed),
    "attention_skip.norm": "ln_1",
    "ffn.widen": ("mlp.c_fc", _transposed),
    "ffn.narrow": ("mlp.c_proj", _transposed),
    "ffn_skip.norm": "ln_2",
}
_OPT_PARTS: dict[str, str | Source] = {
    **{f"attention.W_{name}": f"self_attn.{name}_proj" for name in "qkv"},
    "attention.W_o": "self_attn.out_proj",
    "attention_skip.norm": "self_attn_layer_norm",
    "ffn.widen": "fc1",
    "ffn.narrow": "fc2",
    "ffn_skip.norm": "final_layer_norm",
}
_NEOX_PARTS: dict[str, str | Source] = {
    **{f"attention.W_{name}": ("attention.query_key_value", _of_each_head(i)) for i, name in enumerate("qkv")},
    "attention.W_o": "attention.dense",
    "attention_skip.norm": "input_layernorm",
    "ffn.widen": "mlp.dense_h_to_4h",
    "ffn.narrow": "mlp.dense_4h_to_h",
    "ffn_skip.norm": "post_attention_layernorm",
}
_LLAMA_PARTS: dict[str, str | Source] = {
    **{f"attention.W_{name}": f"self_attn.{name}_proj" for name in "qkvo"},
    "attention.norm_q": "self_attn.q_norm",
    "attention.norm_k": "self_attn.k_norm",
    "attention_skip.norm": "input_layernorm",
    "ffn.gate": "mlp.gate_proj",
    "ffn.widen": "mlp.up_proj",
    "ffn.narrow": "mlp.down_proj",
    "ffn_skip.norm": "post_attention_layernorm",
}


def _as_llama(told: Callable[[Config], dict[str, Any]], **more: Any) -> Decoder:
    return Decoder(told, "model.", "layers", "embed_tokens", "norm", _LLAMA_PARTS, **more)


DECODERS = {
    "gpt2": Decoder(
        settings.gpt2,
        "transformer.",
        "h",
        "wte",
        "ln_f",
        _GPT2_PARTS,
        positions="wpe",
        unused=(r"attn\.(bias|masked_bias)$",),
    ),
    "opt": Decoder(
        settings.opt,
        "model.decoder.",
        "layers",
        "embed_tokens",
        "final_layer_norm",
        _OPT_PARTS,
        positions=("embed_positions", less_two),
    ),
    "gpt_neox": Decoder(
        settings.gpt_neox,
        "gpt_neox.",
        "layers",
        "embed_in",
        "final_layer_norm",
        _NEOX_PARTS,
        readout="embed_out",
        unused=(r"attention\.(bias|masked_bias|rotary_emb\.inv_freq)$",),
    ),
    "llama": _as_llama(settings.llama),
    "mistral": _as_llama(settings.mistral),
    "qwen2": _as_llama(settings.qwen2),
    "qwen3": _as_llama(settings.qwen3),
    "gemma": _as_llama(settings.gemma, norms=_plus_one),
}
"""The decoders that are read, by the `model_type` of their config.json."""


def settings_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """What a `GPT` is made with so that it computes what the decoder of this config.json does.

    Raises:
        KeyError: the family is not in `DECODERS`.
        ValueError: an entry is missing or wrong, or our blocks do not have what it asks for.
    """
    require_plain(config)
    return DECODERS[str(config["model_type"])].settings(Config(config))


def require_plain(config: Mapping[str, Any]) -> None:
    """Raise ValueError if the weights are quantised."""
    if config.get("quantization_config"):
        raise ValueError(
            f"quantization_config in config.json: our blocks need weights that are not quantised; {ELSEWHERE}"
        )


def build_decoder(
    config: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> GPT:
    """Our model with a checkpoint's weights, in evaluation mode. One tensor after the other is read.

    Args:
        config: what config.json says.
        tensors: what the files of weights hold.
        dtype: of the model.
        device: where it is put.

    Raises:
        ValueError: as `settings_of`; or a tensor is missing, has another shape than the config says, or belongs to
            nothing that the config speaks of.
    """
    family = DECODERS[str(config["model_type"])]
    with torch.device("meta"):  # made without memory, and given the checkpoint's
        model = GPT(**settings_of(config))
    prefix = _prefix(family, tensors)

    def origin(own: str) -> Origin:
        name, change = _source(family, own)
        return Origin((_theirs(family, prefix, name),), change)

    unused = (*family.unused, rf"^{family.readout}\.weight$") if model.readout is None else family.unused
    layer = model.decoder.self_attention[0]
    return filled(model, origin, tensors, what="decoder", layer=layer, unused=unused, dtype=dtype, device=device)


def _source(family: Decoder, own: str) -> Source:
    """Their name for our tensor, without the prefix, and how ours is made of it."""
    if own == "tokens.embedding.weight":
        return f"{family.tokens}.weight", unchanged
    if own == "tokens.positions.table":
        assert family.positions is not None
        name, change = as_source(family.positions)
        return f"{name}.weight", change
    if own == "readout.weight":
        return f"{family.readout}.weight", unchanged
    if own.startswith("decoder.norm."):
        return f"{family.norm}.{own.removeprefix('decoder.norm.')}", family.norms
    number, rest = own.removeprefix("decoder.layers.").split(".", 1)
    part, kind = rest.rsplit(".", 1)
    name, change = as_source(family.parts[part])
    return f"{family.layers}.{number}.{name}.{kind}", family.norms if part.endswith("skip.norm") else change


def _prefix(family: Decoder, tensors: Mapping[str, Tensor]) -> str:
    """What stands before their names in this checkpoint."""
    anchor = f"{family.tokens}.weight"
    return next((key.removesuffix(anchor) for key in tensors if key.endswith(anchor)), family.prefix)


def _theirs(family: Decoder, prefix: str, name: str) -> str:
    return name if name == f"{family.readout}.weight" else prefix + name
