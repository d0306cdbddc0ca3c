"""The weights of Hugging Face's decoders and encoder-decoders under our names, in a `mhalib.models.GPT` or
`Transformer`.

`DECODERS` and `ENCODER_DECODERS` are the lists of what is read. A family says two things: what our model is told so
that it computes what theirs does, from their config.json; and which of their tensors holds each of ours.

| decoder | norm | feed-forward network | positions | attention | logits |
|---|---|---|---|---|---|
| gpt2 | layer | GELU with tanh | learned | one matrix for q, k and v, stored transposed | tied |
| opt | layer, before or after | ReLU | learned, two unused places before the first | biases may be missing | tied |
| gpt_neox (Pythia) | layer | GELU, beside attention | rotary, a quarter of a head | q, k, v of a head adjacent | own |
| llama (2, 3) | rms | SwiGLU | rotary, slowed down in 3.1 | shared keys | own or tied |
| mistral | rms | SwiGLU | rotary | shared keys, a window | own or tied |
| qwen2 (also 2.5) | rms | SwiGLU | rotary | shared keys, biases for q, k and v | own or tied |
| qwen3 | rms | SwiGLU | rotary | shared keys, q and k normalised | own or tied |
| gemma (1) | rms, stored less 1 | GEGLU with tanh | rotary | shared keys, wide heads | tied, vectors times √D |
| gemma2 | as gemma, two for each sublayer | GEGLU with tanh | rotary | scores capped, windows | tied, capped |
| gemma3_text | as gemma2 | GEGLU with tanh | rotary, two bases | q and k normalised, windows | tied |
| phi3 (also Phi-4) | rms | SwiGLU, two maps in one | rotary | shared keys, three maps in one | own |
| granite | rms | SwiGLU, results scaled | rotary | shared keys, results scaled | own or tied, divided |
| smollm3 | rms | SwiGLU | rotary in three layers of four | shared keys | tied |
| olmo2 | rms, of results | SwiGLU | rotary | q and k normalised over all heads | own |
| olmo3 | rms, of results | SwiGLU | rotary, two ways | as olmo2, windows | own |
| mixtral | rms | mixture, SwiGLU | rotary | shared keys | own |
| qwen3_moe | rms | mixture, SwiGLU | rotary | as qwen3 | own |
| gpt_oss | rms | mixture, SwiGLU, clamped | rotary, slowed down | shared keys, sinks, windows, biases | own |
| deepseek_v3 (also R1) | rms | SwiGLU, then mixtures | rotary, slowed down | latents, also of queries | own |

| encoder-decoder | norm | feed-forward network | positions | before the first layer | logits |
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

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..attention import MultiHeadAttention
from ..models import BERT, GPT, Transformer
from . import encoder_decoder_settings as both
from . import settings
from .config import Config
from .tensors import Change, Origin, Told, as_origin, multiplied, unchanged

Parts = Mapping[str, str | Origin]
"""Our names -> theirs, or where ours come from if it is not just theirs."""


@dataclass(frozen=True)
class Family:
    """How one kind of model names its parts. Names of single tensors are whole; of parts they lack `.weight`.

    model: `GPT`, `Transformer` or `BERT`.
    settings: from a config.json to what the model is made with.
    stacks: "encoder", "decoder" -> what stands before the number of its layers, and what a layer's parts are called,
        where * is the number of an expert.
    others: of what is in no layer, our tensors -> where they come from.
    prefix: what stands before every name but those of `outside`; some checkpoints leave it out.
    outside: names that have no prefix.
    unused: patterns of tensors that hold nothing learned.
    instead: told config.json, our model, the tensors and what stands before their names: what a checkpoint need not
        hold, or holds in another form, by their names.
    """

    model: type[GPT] | type[Transformer] | type[BERT]
    settings: Callable[[Config], dict[str, Any]]
    stacks: Mapping[str, tuple[str, Parts]]
    others: Mapping[str, Origin]
    prefix: str = ""
    outside: tuple[str, ...] = ("lm_head.weight", "final_logits_bias")
    unused: tuple[str, ...] = ()
    instead: Callable[[Config, Any, Mapping[str, Tensor], str], dict[str, Tensor]] = lambda *_: {}

    def told(self, config: Config, model: Any, tensors: Mapping[str, Tensor]) -> Told:
        """Where each of our model's tensors is in this checkpoint."""
        anchor = self.origin(f"{next(iter(self.stacks))}.layers.0.attention.W_o.weight").names[0]
        prefix = next((key.removesuffix(anchor) for key in tensors if key.endswith(anchor)), self.prefix)

        def origin(own: str) -> Origin:
            theirs = self.origin(own)
            names = (name if name in self.outside else prefix + name for name in theirs.names)
            return theirs._replace(names=tuple(names))

        return Told(origin, self.instead(config, model, tensors, prefix), self.unused)

    def origin(self, own: str) -> Origin:
        """Where a tensor of ours comes from, without the prefix."""
        if own in self.others:
            return self.others[own]
        stack, _, number, rest = own.split(".", 3)
        layers, parts = self.stacks[stack]
        expert = re.search(r"\.experts\.(\d+)\.", rest)  # "*" stands for its number
        rest = rest if expert is None else rest.replace(expert[0], ".experts.*.")
        part, dot, kind = (rest, "", "") if rest in parts else rest.rpartition(".")
        theirs = as_origin(parts[part])
        names = (f"{layers}.{number}.{name}{dot}{kind}" for name in theirs.names)
        return theirs._replace(names=tuple(names if expert is None else (n.replace("*", expert[1]) for n in names)))


def _transposed(tensor: Tensor, layer: MultiHeadAttention) -> Tensor:
    """GPT-2's maps are stored as (in, out), torch's as (out, in)."""
    return tensor.mT if tensor.dim() == 2 else tensor


def _third(index: int) -> Change:
    """GPT-2's queries, keys or values, of the columns that hold all three one behind the other."""
    return lambda tensor, layer: _transposed(tensor, layer).chunk(3)[index]


def _of_each_head(index: int) -> Change:
    """GPT-NeoX's queries, keys or values, of rows (h, 3, d): those of a head stand side by side."""
    return lambda tensor, layer: tensor.unflatten(0, (layer.num_heads, 3, -1))[:, index].flatten(0, 1)


def _less_two(tensor: Tensor, layer: MultiHeadAttention) -> Tensor:
    """Positions begin at row 2, in OPT and BART."""
    return tensor[2:]


def _plus_one(tensor: Tensor, layer: MultiHeadAttention) -> Tensor:
    """Gemma stores gains less 1."""
    return tensor.float() + 1


def rows_of(index: int) -> Change:
    """Phi-3's and ModernBERT's queries, keys or values, of rows that hold all three one behind the other."""

    def change(tensor: Tensor, layer: MultiHeadAttention) -> Tensor:
        d, kv = layer.head_dim, layer.num_kv_heads
        return tensor.split([layer.num_heads * d, kv * d, kv * d])[index]

    return change


def half_of(index: int) -> Change:
    """Phi-3's and ModernBERT's gate, or what it multiplies, of rows that hold both."""
    return lambda tensor, layer: tensor.chunk(2)[index]


def _of_latent(rotary: bool) -> Change:
    """DeepSeek's map to latents, or to the keys that are turned, of rows that hold both."""
    return lambda tensor, layer: tensor[layer.latent_size :] if rotary else tensor[: layer.latent_size]  # type: ignore[index,misc]


def _of_pair(index: int) -> Change:
    """DeepSeek's keys or values made of latents, of rows (h, d + value_dim): those of a head stand side by side."""

    def change(tensor: Tensor, layer: MultiHeadAttention) -> Tensor:
        widths = [layer.head_dim, layer.value_dim]
        return tensor.unflatten(0, (layer.num_heads, sum(widths))).split(widths, 1)[index].flatten(0, 1)

    return change


def _as_bias(tensor: Tensor, layer: MultiHeadAttention) -> Tensor:
    """BART's logits have a bias of shape (1, words)."""
    return tensor[0]


_GPT2_PARTS: Parts = {
    **{f"attention.W_{name}": Origin(("attn.c_attn",), _third(index)) for index, name in enumerate("qkv")},
    "attention.W_o": Origin(("attn.c_proj",), _transposed),
    "attention_skip.norm": "ln_1",
    "ffn.widen": Origin(("mlp.c_fc",), _transposed),
    "ffn.narrow": Origin(("mlp.c_proj",), _transposed),
    "ffn_skip.norm": "ln_2",
}
_BART_PARTS: Parts = {  # and OPT's
    **{f"attention.W_{name}": f"self_attn.{name}_proj" for name in "qkv"},
    "attention.W_o": "self_attn.out_proj",
    "attention_skip.norm": "self_attn_layer_norm",
    "ffn.widen": "fc1",
    "ffn.narrow": "fc2",
    "ffn_skip.norm": "final_layer_norm",
}
_BART_CROSS: Parts = {
    **{f"cross_attention.W_{name}": f"encoder_attn.{name}_proj" for name in "qkv"},
    "cross_attention.W_o": "encoder_attn.out_proj",
    "cross_skip.norm": "encoder_attn_layer_norm",
}
_NEOX_PARTS: Parts = {
    **{f"attention.W_{n}": Origin(("attention.query_key_value",), _of_each_head(i)) for i, n in enumerate("qkv")},
    "attention.W_o": "attention.dense",
    "attention_skip.norm": "input_layernorm",
    "ffn.widen": "mlp.dense_h_to_4h",
    "ffn.narrow": "mlp.dense_4h_to_h",
    "ffn_skip.norm": "post_attention_layernorm",
}
_LLAMA_PARTS: Parts = {
    **{f"attention.W_{name}": f"self_attn.{name}_proj" for name in "qkvo"},
    "attention.norm_q": "self_attn.q_norm",
    "attention.norm_k": "self_attn.k_norm",
    "attention_skip.norm": "input_layernorm",
    "ffn.gate": "mlp.gate_proj",
    "ffn.widen": "mlp.up_proj",
    "ffn.narrow": "mlp.down_proj",
    "ffn_skip.norm": "post_attention_layernorm",
}


_PHI3_PARTS: Parts = {
    **_LLAMA_PARTS,
    **{f"attention.W_{name}": Origin(("self_attn.qkv_proj",), rows_of(index)) for index, name in enumerate("qkv")},
    "ffn.gate": Origin(("mlp.gate_up_proj",), half_of(0)),
    "ffn.widen": Origin(("mlp.gate_up_proj",), half_of(1)),
}
_OLMO2_PARTS: Parts = {
    **_LLAMA_PARTS,
    "attention_skip.norm": "post_attention_layernorm",
    "ffn_skip.norm": "post_feedforward_layernorm",
}
_MIXTRAL_PARTS: Parts = {
    **_LLAMA_PARTS,
    "ffn.router": "block_sparse_moe.gate",
    "ffn.experts.*.gate": "block_sparse_moe.experts.*.w1",
    "ffn.experts.*.widen": "block_sparse_moe.experts.*.w3",
    "ffn.experts.*.narrow": "block_sparse_moe.experts.*.w2",
}
_QWEN_MOE_PARTS: Parts = {
    **_LLAMA_PARTS,
    "ffn.router": "mlp.gate",
    "ffn.experts.*.gate": "mlp.experts.*.gate_proj",
    "ffn.experts.*.widen": "mlp.experts.*.up_proj",
    "ffn.experts.*.narrow": "mlp.experts.*.down_proj",
}
_GPT_OSS_PARTS: Parts = {**_QWEN_MOE_PARTS, "ffn.router": "mlp.router", "attention.sinks": "self_attn.sinks"}
_DEEPSEEK_PARTS: Parts = {
    **_QWEN_MOE_PARTS,
    "attention.W_q.0": "self_attn.q_a_proj",
    "attention.W_q.1": "self_attn.q_a_layernorm",
    "attention.W_q.2": "self_attn.q_b_proj",
    "attention.W_down": Origin(("self_attn.kv_a_proj_with_mqa",), _of_latent(rotary=False)),
    "attention.W_rotary": Origin(("self_attn.kv_a_proj_with_mqa",), _of_latent(rotary=True)),
    "attention.norm": "self_attn.kv_a_layernorm",
    "attention.W_up_k": Origin(("self_attn.kv_b_proj",), _of_pair(0)),
    "attention.W_up_v": Origin(("self_attn.kv_b_proj",), _of_pair(1)),
    "ffn.choice_bias": "mlp.gate.e_score_correction_bias",
    "ffn.shared.gate": "mlp.shared_experts.gate_proj",
    "ffn.shared.widen": "mlp.shared_experts.up_proj",
    "ffn.shared.narrow": "mlp.shared_experts.down_proj",
}
_GEMMA2_PARTS: Parts = {
    **_LLAMA_PARTS,
    "attention_skip.norm_result": "post_attention_layernorm",
    "ffn_skip.norm": "pre_feedforward_layernorm",
    "ffn_skip.norm_result": "post_feedforward_layernorm",
}


def _t5_parts(network: str) -> Parts:
    """A layer's parts but for cross-attention, where `network` is the feed-forward network's place in it."""
    return {
        **{f"attention.W_{name}": f"layer.0.SelfAttention.{name}" for name in "qkvo"},
        "attention.distance_scores": "layer.0.SelfAttention.relative_attention_bias.weight",
        "attention_skip.norm": "layer.0.layer_norm",
        "ffn.gate": f"{network}.DenseReluDense.wi_0",
        "ffn.widen": Origin((f"{network}.DenseReluDense.wi", f"{network}.DenseReluDense.wi_1")),
        "ffn.narrow": f"{network}.DenseReluDense.wo",
        "ffn_skip.norm": f"{network}.layer_norm",
    }


_T5_CROSS: Parts = {
    **{f"cross_attention.W_{name}": f"layer.1.EncDecAttention.{name}" for name in "qkvo"},
    "cross_skip.norm": "layer.1.layer_norm",
}


def _decoder(
    told: Callable[[Config], dict[str, Any]],
    prefix: str,
    layers: str,
    parts: Parts,
    tokens: str,
    norm: str,
    *,
    readout: str = "lm_head",
    unused: str = r"rotary_emb\.inv_freq$",
) -> Family:
    """A family of decoders, told the names of its tokens' vectors, of its last norm and of the logits' map."""
    others = {
        "tokens.embedding.weight": Origin((f"{tokens}.weight",)),
        "readout.weight": Origin((f"{readout}.weight",)),
        **{f"decoder.norm.{kind}": Origin((f"{norm}.{kind}",)) for kind in ("weight", "bias")},
    }
    outside, stacks = (f"{readout}.weight",), {"decoder": (layers, parts)}
    return Family(GPT, told, stacks, others, prefix, outside, (unused, rf"^{readout}\.weight$"))  # a tied one


def _with_positions(family: Family, name: str, change: Change = unchanged) -> Family:
    """The family with a table of learned positions."""
    return replace(family, others={**family.others, "tokens.positions.table": Origin((f"{name}.weight",), change)})


def _with_norms(family: Family, change: Change) -> Family:
    """The family with gains of its norms that are stored in another way."""

    def changed(parts: Mapping[str, str | Origin], *endings: str) -> dict[str, Any]:
        return {
            own: as_origin(theirs)._replace(change=change) if own.endswith(endings) else theirs
            for own, theirs in parts.items()
        }

    in_layers = ("skip.norm", "skip.norm_result", "attention.norm_q", "attention.norm_k")
    stacks = {stack: (layers, changed(parts, *in_layers)) for stack, (layers, parts) in family.stacks.items()}
    return replace(family, stacks=stacks, others=changed(family.others, ".norm.weight"))


def _as_llama(told: Callable[[Config], dict[str, Any]], parts: Parts = _LLAMA_PARTS, **more: Any) -> Family:
    return _decoder(told, "model.", "layers", parts, "embed_tokens", "norm", **more)


def _multiplied(config: Config, model: Any, tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Granite multiplies what each sublayer makes, and divides the logits: the last maps of sublayers, and the gains of
    the last norm, are made larger and smaller in their place, in float32."""
    times = config.number("residual_multiplier", 1.0)
    last = ("self_attn.o_proj", "mlp.down_proj")
    parts = [f"{prefix}layers.{number}.{part}" for number in range(model.design.num_layers) for part in last]
    norm = {f"{prefix}norm": 1 / config.number("logits_scaling", 1.0)}
    return multiplied(tensors, norm | dict.fromkeys(parts, times))


def _experts_apart(config: Config, model: GPT, tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """A gpt-oss has one tensor for all experts, whose maps are stored as (in, out), and whose columns are in turn of
    the gate and of what it multiplies. Here each map has a name of its own, as in Qwen3's mixtures."""
    result = {}
    for number in range(model.design.num_layers):
        start = f"{prefix}layers.{number}.mlp.experts."
        for whole, parts in (("gate_up_proj", ("gate_proj", "up_proj")), ("down_proj", ("down_proj",))):
            for kind, name in (("weight", start + whole), ("bias", f"{start}{whole}_bias")):
                held = tensors[name] if name in tensors else torch.empty(0, 0)
                for expert, one in enumerate(held if held.dim() > 1 else ()):
                    for index, part in enumerate(parts):
                        own = one[..., index :: len(parts)]
                        result[f"{start}{expert}.{part}.{kind}"] = own.mT if own.dim() == 2 else own
    return result


DECODERS = {
    "gpt2": _with_positions(
        _decoder(settings.gpt2, "transformer.", "h", _GPT2_PARTS, "wte", "ln_f", unused=r"attn\.(bias|masked_bias)$"),
        "wpe",
    ),
    "opt": _with_positions(
        _decoder(settings.opt, "model.decoder.", "layers", _BART_PARTS, "embed_tokens", "final_layer_norm"),
        "embed_positions",
        _less_two,
    ),
    "gpt_neox": _decoder(
        settings.gpt_neox,
        "gpt_neox.",
        "layers",
        _NEOX_PARTS,
        "embed_in",
        "final_layer_norm",
        readout="embed_out",
        unused=r"attention\.(bias|masked_bias|rotary_emb\.inv_freq)$",
    ),
    "llama": _as_llama(settings.llama),
    "mistral": _as_llama(settings.mistral),
    "qwen2": _as_llama(settings.qwen2),
    "qwen3": _as_llama(settings.qwen3),
    "gemma": _with_norms(_as_llama(settings.gemma), _plus_one),
    "gemma2": _with_norms(_as_llama(settings.gemma2, _GEMMA2_PARTS), _plus_one),
    "gemma3_text": _with_norms(_as_llama(settings.gemma3_text, _GEMMA2_PARTS), _plus_one),
    "phi3": _as_llama(settings.phi3, _PHI3_PARTS),
    "granite": replace(_as_llama(settings.granite), instead=_multiplied),
    "smollm3": _as_llama(settings.smollm3),
    "olmo2": _as_llama(settings.olmo2, _OLMO2_PARTS),
    "olmo3": _as_llama(settings.olmo3, _OLMO2_PARTS),
    "mixtral": _as_llama(settings.mixtral, _MIXTRAL_PARTS),
    "qwen3_moe": _as_llama(settings.qwen3_moe, _QWEN_MOE_PARTS),
    "gpt_oss": replace(
        _as_llama(settings.gpt_oss, _GPT_OSS_PARTS, unused=r"(experts\.(gate_up|down)_proj(_bias)?|inv_freq)$"),
        instead=_experts_apart,
    ),
    "deepseek_v3": _as_llama(  # layer 61 guesses a second token ahead; transformers leaves it out, too
        settings.deepseek_v3, _DEEPSEEK_PARTS, unused=r"(rotary_emb\.inv_freq$|layers\.61\.)"
    ),
}
"""The decoders that are read, by the `model_type` of their config.json."""
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
    "source.positions.table": Origin(("encoder.embed_positions.weight",), _less_two),
    "target.positions.table": Origin(("decoder.embed_positions.weight",), _less_two),
}
_T5_OTHERS = {
    **_TOKENS,
    "encoder.norm.weight": Origin(("encoder.final_layer_norm.weight",)),
    "decoder.norm.weight": Origin(("decoder.final_layer_norm.weight",)),
}


def _left_out(config: Config, model: Transformer, tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """What a checkpoint need not hold. Without biases, BART's logits have none but 0. Without a readout of its own, a
    T5 reads logits out by its tokens' vectors, and its config.json does not say so."""
    result = {}
    if model.readout.bias is not None and "final_logits_bias" not in tensors:
        result["final_logits_bias"] = torch.zeros(1, model.target.vocab_size)
    shared = f"{prefix}shared.weight"
    if not model.is_tied and "lm_head.weight" not in tensors and shared in tensors:
        result["lm_head.weight"] = tensors[shared]
    return result


def _as_bart(told: Callable[[Config], dict[str, Any]], *unused: str) -> Family:
    stacks = {"encoder": ("encoder.layers", _BART_PARTS), "decoder": ("decoder.layers", {**_BART_PARTS, **_BART_CROSS})}
    unused = (r"^(model\.)?(en|de)coder\.version$", *unused)
    return Family(Transformer, told, stacks, _BART_OTHERS, "model.", unused=unused, instead=_left_out)


def _as_t5(told: Callable[[Config], dict[str, Any]]) -> Family:
    decoder = {**_t5_parts("layer.2"), **_T5_CROSS}
    stacks = {"encoder": ("encoder.block", _t5_parts("layer.1")), "decoder": ("decoder.block", decoder)}
    unused = (r"EncDecAttention\.relative_attention_bias\.weight$",)
    return Family(Transformer, told, stacks, _T5_OTHERS, unused=unused, instead=_left_out)


ENCODER_DECODERS = {
    "bart": _as_bart(both.bart),
    "mbart": _as_bart(both.mbart),
    "marian": _as_bart(both.marian, r"embed_positions\.weight$"),
    "pegasus": _as_bart(both.pegasus, r"embed_positions\.weight$"),
    "t5": _as_t5(both.t5),
    "mt5": _as_t5(both.mt5),
}
"""The encoder-decoders that are read, by the `model_type` of their config.json."""
