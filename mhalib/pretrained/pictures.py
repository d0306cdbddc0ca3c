"""The weights of Hugging Face's models of pictures under our names: ViT and DeiT in a `mhalib.models.ViT`, CLIP in a
`mhalib.models.CLIP`.

`PICTURES` is the list of what is read. Their convolution of patches is our linear map of a patch, and their class token
and its position are one vector: in the first layer, nothing but the sum of both is ever seen.

| family | norm | feed-forward network | what is read |
|---|---|---|---|
| vit | before each sublayer, and last | GELU | the class token, by a classifier; or all tokens |
| deit | before each sublayer, and last | GELU | two class tokens, by a classifier each; or all tokens |
| clip | before each sublayer, and last; of pictures also first | quick GELU | the class token, and the end of a text |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..attention import MultiHeadAttention
from ..models import CLIP, ViT
from . import settings
from .config import Config
from .tensors import Origin, Told, as_origin


@dataclass(frozen=True)
class Tower:
    """How a stack of layers, what it reads and what is made of it are named.

    names: our tensors, or what holds a weight and a bias -> theirs; with a function where ours is not just theirs.
    layers: what stands before a layer's number.
    parts: of a layer, our names -> theirs.
    class_tokens: their names of the class tokens, which become one tensor of ours with the positions.
    positions: their name of the table of positions, class tokens first; "" in a tower without class tokens.
    unused: patterns of tensors that our model leaves out.
    """

    names: Mapping[str, str | Origin]
    layers: str
    parts: Mapping[str, str]
    class_tokens: tuple[str, ...] = ()
    positions: str = ""
    unused: tuple[str, ...] = ()

    def origin(self, own: str) -> Origin:
        """Where a tensor of ours comes from."""
        if own in self.names:
            return as_origin(self.names[own])
        if own.startswith("encoder.layers."):
            number, rest = own.removeprefix("encoder.layers.").split(".", 1)
            part, kind = rest.rsplit(".", 1)
            return Origin((f"{self.layers}.{number}.{self.parts[part]}.{kind}",))
        part, kind = own.rsplit(".", 1)
        theirs = as_origin(self.names[part])
        return theirs._replace(names=(f"{theirs.names[0]}.{kind}",))

    def with_positions(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The class tokens, each with its position added, under the name of the first."""
        if not self.class_tokens or not {*self.class_tokens, self.positions} <= tensors.keys():
            return {}  # what is missing is named when it is looked for
        tokens = [tensors[name].double().flatten() for name in self.class_tokens]
        table = tensors[self.positions].double()
        rows = table.reshape(-1, table.shape[-1])[: len(tokens)]
        if {one.shape for one in tokens} != {table.shape[-1:]} or len(rows) < len(tokens):
            return {}
        return {self.class_tokens[0]: torch.stack(tokens) + rows}


def _flat(tensor: Tensor, layer: MultiHeadAttention) -> Tensor:
    """A convolution's (D, channels, p, p) as a linear map of patches, (D, channels * p * p); a bias is left alone."""
    return tensor.flatten(1) if tensor.dim() == 4 else tensor


def _tokens(tensor: Tensor, layer: MultiHeadAttention) -> Tensor:
    """(D,), (tokens, D) or (1, tokens, D) -> (1, tokens, D)."""
    return tensor.reshape(1, -1, tensor.shape[-1])


def _rest(num_class_tokens: int) -> Callable[[Tensor, MultiHeadAttention], Tensor]:
    """The positions of patches, which follow those of class tokens."""
    return lambda tensor, layer: tensor.reshape(-1, tensor.shape[-1])[num_class_tokens:]


_VIT_PARTS = {
    **{f"attention.W_{name[0]}": f"attention.attention.{name}" for name in ("query", "key", "value")},
    "attention.W_o": "attention.output.dense",
    "attention_skip.norm": "layernorm_before",
    "ffn.widen": "intermediate.dense",
    "ffn.narrow": "output.dense",
    "ffn_skip.norm": "layernorm_after",
}
_CLIP_PARTS = {
    **{f"attention.W_{name}": f"self_attn.{name}_proj" for name in "qkv"},
    "attention.W_o": "self_attn.out_proj",
    "attention_skip.norm": "layer_norm1",
    "ffn.widen": "mlp.fc1",
    "ffn.narrow": "mlp.fc2",
    "ffn_skip.norm": "layer_norm2",
}


def _vit_tower(prefix: str, is_distilled: bool) -> Tower:
    """A ViT's names. `prefix` is what stands before all but the classifiers."""
    tokens = ("cls_token", "distillation_token") if is_distilled else ("cls_token",)
    class_tokens = tuple(f"{prefix}embeddings.{name}" for name in tokens)
    positions = f"{prefix}embeddings.position_embeddings"
    return Tower(
        {
            "class_token": Origin((class_tokens[0],), _tokens),
            "patches.embedding": Origin((f"{prefix}embeddings.patch_embeddings.projection",), _flat),
            "patches.positions.table": Origin((positions,), _rest(len(tokens))),
            "encoder.norm": f"{prefix}layernorm",
            "readout": "cls_classifier" if is_distilled else "classifier",
            "second_readout": "distillation_classifier",
        },
        f"{prefix}encoder.layer",
        _VIT_PARTS,
        class_tokens,
        positions,
        (r"(^|\.)pooler\.dense\.(weight|bias)$", r"embeddings\.distillation_token$"),
    )


_CLIP_PICTURES = Tower(
    {
        "class_token": Origin(("vision_model.embeddings.class_embedding",), _tokens),
        "patches.embedding": Origin(("vision_model.embeddings.patch_embedding",), _flat),
        "patches.positions.table": Origin(("vision_model.embeddings.position_embedding.weight",), _rest(1)),
        "norm": "vision_model.pre_layrnorm",
        "encoder.norm": "vision_model.post_layernorm",
        "readout": "visual_projection",
    },
    "vision_model.encoder.layers",
    _CLIP_PARTS,
    ("vision_model.embeddings.class_embedding",),
    "vision_model.embeddings.position_embedding.weight",
    (r"\.position_ids$",),
)
_CLIP_TEXTS = Tower(
    {
        "tokens.embedding": "text_model.embeddings.token_embedding",
        "tokens.positions.table": "text_model.embeddings.position_embedding.weight",
        "encoder.norm": "text_model.final_layer_norm",
        "projection": "text_projection",
        "logit_scale": "logit_scale",
    },
    "text_model.encoder.layers",
    _CLIP_PARTS,
)


def _layers(config: Config, sizes: Mapping[str, int], activation: str) -> dict[str, Any]:
    """What both kinds call by the same names. `sizes` are hidden_size, num_hidden_layers, num_attention_heads and
    intermediate_size where the file does not say them."""
    names = ("num_hiddens", "num_layers", "num_heads", "ffn_num_hiddens")
    told = {own: config.count(key, sizes[key]) for own, key in zip(names, sizes, strict=True)}
    is_quick = config.get("hidden_act", activation) == "quick_gelu"
    kind = "gelu_sigmoid" if is_quick else settings.activation_of(config, "hidden_act", activation)
    return {**told, "ffn_kind": kind, "dropout": 0.0}


def _picture(config: Config, patch_size: int) -> dict[str, Any]:
    """Height, width, colours and the side of a patch."""
    height, width = config.pair("image_size", 224)
    rows, columns = config.pair("patch_size", patch_size)
    if rows != columns:
        raise ValueError(f"patch_size={[rows, columns]} in {config.file}: our patches are squares")
    channels = config.count("num_channels", 3)
    return {"height": height, "width": width, "patch_size": rows, "channels": channels}


_BASE = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
_TEXT = {"hidden_size": 512, "num_hidden_layers": 12, "num_attention_heads": 8, "intermediate_size": 2048}


def _architecture(config: Config, known: tuple[str, ...]) -> str:
    """The class that the weights were stored of; without a word, the first of `known`."""
    names = config.get("architectures") or [known[0]]
    if not isinstance(names, (list, tuple)) or names[0] not in known:
        raise ValueError(f"architectures={names!r:.80} in {config.file}: our models hold {' or '.join(known)}")
    return str(names[0])


def _vit(config: Config, known: tuple[str, str]) -> dict[str, Any]:
    """Settings of a `ViT`. `known` are the classes without and with a classifier."""
    labels = config.get("id2label", {})
    usual = len(labels) if isinstance(labels, Mapping) and labels else 2
    layers = _layers(config, _BASE, "gelu")
    config.require(head_dim=layers["num_hiddens"] // layers["num_heads"])
    return {
        **layers,
        **_picture(config, 16),
        "num_classes": config.count("num_labels", usual) if _architecture(config, known) == known[1] else None,
        "norm_eps": config.number("layer_norm_eps", 1e-12),
        "attention": {"name": "multi-head", "bias": config.flag("qkv_bias", True), "out_bias": True},
    }


def vit(config: Config) -> dict[str, Any]:
    return _vit(config, ("ViTModel", "ViTForImageClassification"))


def deit(config: Config) -> dict[str, Any]:
    return {**_vit(config, ("DeiTModel", "DeiTForImageClassificationWithTeacher")), "distilled": True}


def clip(config: Config) -> dict[str, Any]:
    """Settings of a `CLIP`. What `text_config_dict` and `vision_config_dict` of older files say replaces the rest."""
    _architecture(config, ("CLIPModel",))
    text, vision = (
        config.part(f"{name}_config{'_dict' if config.get(f'{name}_config_dict') is not None else ''}")
        for name in ("text", "vision")
    )
    end_token = text.count("eos_token_id", 49407, minimum=0)
    return {
        "vocab_size": text.count("vocab_size", 49408),
        "num_features": config.count("projection_dim", 512),
        **_layers(text, _TEXT, "quick_gelu"),
        "max_tokens": text.count("max_position_embeddings", 77),
        "norm_eps": text.number("layer_norm_eps", 1e-5),
        "end_token": None if end_token == 2 else end_token,  # 2 was written by mistake, and means none
        "pictures": {
            **_layers(vision, _BASE, "quick_gelu"),
            **_picture(vision, 32),
            "norm_eps": vision.number("layer_norm_eps", 1e-5),
            "patch_bias": False,
            "norm_tokens": True,
        },
    }


def _vit_towers(config: Config, tensors: Mapping[str, Tensor]) -> dict[str, Tower]:
    anchor = "embeddings.cls_token"
    prefix = next((key.removesuffix(anchor) for key in tensors if key.endswith(anchor)), "")
    return {"": _vit_tower(prefix, config.get("model_type") == "deit")}


def _clip_towers(config: Config, tensors: Mapping[str, Tensor]) -> dict[str, Tower]:
    return {"pictures.": _CLIP_PICTURES, "": _CLIP_TEXTS}


@dataclass(frozen=True)
class PictureFamily:
    """How one kind of model that reads pictures names its parts. A ViT's pooler is left out.

    model: `ViT` or `CLIP`.
    settings: from a config.json to what the model is made with.
    towers: told config.json and the tensors: what the names of a stack's tensors begin with in our model -> the stack.
    """

    model: type[ViT] | type[CLIP]
    settings: Callable[[Config], dict[str, Any]]
    towers: Callable[[Config, Mapping[str, Tensor]], dict[str, Tower]]

    def told(self, config: Config, model: Any, tensors: Mapping[str, Tensor]) -> Told:
        """Where each of our model's tensors is in this checkpoint."""
        towers = self.towers(config, tensors)

        def origin(own: str) -> Origin:
            begins = next(begins for begins in towers if own.startswith(begins))
            return towers[begins].origin(own.removeprefix(begins))

        instead = {name: one for tower in towers.values() for name, one in tower.with_positions(tensors).items()}
        return Told(origin, instead, tuple(pattern for tower in towers.values() for pattern in tower.unused))


PICTURES = {
    "vit": PictureFamily(ViT, vit, _vit_towers),
    "deit": PictureFamily(ViT, deit, _vit_towers),
    "clip": PictureFamily(CLIP, clip, _clip_towers),
}
"""The models of pictures that are read, by the `model_type` of their config.json."""
