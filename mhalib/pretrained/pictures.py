"""The weights of Hugging Face's models of pictures under our names: ViT, DeiT and DINOv2 in a `mhalib.models.ViT`, CLIP
in a `mhalib.models.CLIP`.

`PICTURES` is the list of what is read. Their convolution of patches is our linear map of a patch, and their class token
and its position are one vector: in the first layer, nothing but the sum of both is ever seen.

| family | norm | feed-forward network | what is read |
|---|---|---|---|
| vit | before each sublayer, and last | GELU | the class token, by a classifier; or all tokens |
| deit | before each sublayer, and last | GELU | two class tokens, by a classifier each; or all tokens |
| dinov2, and with_registers | before each sublayer, and last | GELU or SwiGLU, results scaled | all tokens |
| clip | before each sublayer, and last; of pictures also first | quick GELU | the class token, and the end of a text |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from ..attention import MultiHeadAttention
from ..models import CLIP, ViT
from . import settings
from .config import Config
from .tensors import Origin, Told, as_origin, multiplied


@dataclass(frozen=True)
class Tower:
    """How a stack of layers, what it reads and what is made of it are named.

    names: our tensors, or what holds a weight and a bias -> theirs; with a function where ours is not just theirs.
    layers: what stands before a layer's number.
    parts: of a layer, our names -> theirs.
    class_tokens: their names of the class tokens, which become one tensor of ours with the positions.
    positions: their name of the table of positions, class tokens first; "" in a tower without class tokens.
    unused: patterns of tensors that our model leaves out.
    scales: of a layer, their names of last maps -> of what multiplies their results, channel by channel. Here it is
        part of the maps.
    """

    names: Mapping[str, str | Origin]
    layers: str
    parts: Mapping[str, str | Origin]
    class_tokens: tuple[str, ...] = ()
    positions: str = ""
    unused: tuple[str, ...] = ()
    scales: Mapping[str, str] = field(default_factory=dict)

    def origin(self, own: str) -> Origin:
        """Where a tensor of ours comes from."""
        if own in self.names:
            return as_origin(self.names[own])
        if own.startswith("encoder.layers."):
            number, rest = own.removeprefix("encoder.layers.").split(".", 1)
            part, kind = rest.rsplit(".", 1)
            theirs = as_origin(self.parts[part])
            return theirs._replace(names=(f"{self.layers}.{number}.{theirs.names[0]}.{kind}",))
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

    def scaled(self, tensors: Mapping[str, Tensor], num_layers: int) -> dict[str, Tensor]:
        """The last maps of sublayers with what multiplies their results. Raises ValueError where that is missing."""
        factors: dict[str, float | Tensor] = {}
        for number in range(num_layers if self.scales else 0):
            for part, by in self.scales.items():
                start, name = f"{self.layers}.{number}.{part}", f"{self.layers}.{number}.{by}"
                if name not in tensors:
                    raise ValueError(f"the checkpoint lacks {name!r}, which multiplies what {start!r} makes")
                scale = factors[start] = tensors[name].float()
                for whole in (tensors[key] for key in (f"{start}.weight", f"{start}.bias") if key in tensors):
                    if scale.shape != whole.shape[:1]:
                        raise ValueError(f"the checkpoint holds {name!r} with shape {tuple(scale.shape)}")
        return multiplied(tensors, factors)


def _flat(tensor: Tensor, layer: MultiHeadAttention) -> Tensor:
    """A convolution's (D, channels, p, p) as a linear map of patches, (D, channels * p * p); a bias is left alone."""
    return tensor.flatten(1) if tensor.dim() == 4 else tensor


def _tokens(tensor: Tensor, layer: MultiHeadAttention) -> Tensor:
    """(D,), (tokens, D) or (1, tokens, D) -> (1, tokens, D)."""
    return tensor.reshape(1, -1, tensor.shape[-1])


def _rest(num_class_tokens: int) -> Callable[[Tensor, MultiHeadAttention], Tensor]:
    """The positions of patches, which follow those of class tokens."""
    return lambda tensor, layer: tensor.reshape(-1, tensor.shape[-1])[num_class_tokens:]


def _on(grid: tuple[int, int]) -> Callable[[Tensor, MultiHeadAttention], Tensor]:
    """The positions of patches that were learned on a square, on another grid as `transformers` makes them."""

    def change(tensor: Tensor, layer: MultiHeadAttention) -> Tensor:
        table = _rest(1)(tensor, layer)
        side = math.isqrt(len(table))
        if grid == (side, side) or side * side != len(table):
            return table
        square = table.float().mT.reshape(1, -1, side, side)
        return interpolate(square, grid, mode="bicubic", align_corners=False).flatten(2)[0].mT.to(table.dtype)

    return change


_VIT_PARTS: Mapping[str, str | Origin] = {
    **{f"attention.W_{name[0]}": f"attention.attention.{name}" for name in ("query", "key", "value")},
    "attention.W_o": "attention.output.dense",
    "attention_skip.norm": "layernorm_before",
    "ffn.widen": "intermediate.dense",
    "ffn.narrow": "output.dense",
    "ffn_skip.norm": "layernorm_after",
}
_DINO_PARTS: Mapping[str, str | Origin] = {
    **_VIT_PARTS,
    "attention_skip.norm": "norm1",
    "ffn.widen": "mlp.fc1",
    "ffn.narrow": "mlp.fc2",
    "ffn_skip.norm": "norm2",
}
_DINO_GATED: Mapping[str, str | Origin] = {
    **_DINO_PARTS,
    "ffn.gate": Origin(("mlp.weights_in",), lambda tensor, layer: tensor.chunk(2)[0]),
    "ffn.widen": Origin(("mlp.weights_in",), lambda tensor, layer: tensor.chunk(2)[1]),
    "ffn.narrow": "mlp.weights_out",
}
_CLIP_PARTS: Mapping[str, str | Origin] = {
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


def _dino_tower(prefix: str, parts: Mapping[str, str | Origin], grid: tuple[int, int]) -> Tower:
    """A DINOv2's names, whose positions are made for so many rows and columns of patches."""
    vit = _vit_tower(prefix, False)
    positions = f"{prefix}embeddings.position_embeddings"
    own: dict[str, str | Origin] = {
        "registers": f"{prefix}embeddings.register_tokens",
        "patches.positions.table": Origin((positions,), _on(grid)),
    }
    unused = (r"embeddings\.mask_token$", r"\.layer_scale[12]\.lambda1$")
    last = {"attention.output.dense": "layer_scale1.lambda1", str(parts["ffn.narrow"]): "layer_scale2.lambda1"}
    return replace(vit, names={**vit.names, **own}, parts=parts, unused=unused, scales=last)


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


def dinov2(config: Config) -> dict[str, Any]:
    """Settings of a `ViT` that gives its tokens' vectors."""
    _architecture(config, ("Dinov2Model", "Dinov2WithRegistersModel"))
    config.require(apply_layernorm=True)
    width, is_gated = config.count("hidden_size", 768), config.flag("use_swiglu_ffn", False)
    inside = width * config.count("mlp_ratio", 4)
    inside = (int(inside * 2 / 3) + 7) // 8 * 8 if is_gated else inside
    layers = _layers(config, _BASE, "gelu")
    config.require(head_dim=layers["num_hiddens"] // layers["num_heads"])
    has_registers = config.get("model_type") == "dinov2_with_registers"
    return {
        **layers,
        **_picture(config, 14),
        "ffn_num_hiddens": Config({"mlp_ratio * hidden_size": inside}, config.file).count("mlp_ratio * hidden_size"),
        "ffn_kind": "swiglu" if is_gated else layers["ffn_kind"],
        "num_classes": None,
        "num_registers": config.count("num_register_tokens", 4, minimum=0) if has_registers else 0,
        "norm_eps": config.number("layer_norm_eps", 1e-6),
        "attention": {"name": "multi-head", "bias": config.flag("qkv_bias", True), "out_bias": True},
    }


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


def _prefix(tensors: Mapping[str, Tensor]) -> str:
    """What stands before a ViT's names."""
    anchor = "embeddings.cls_token"
    return next((key.removesuffix(anchor) for key in tensors if key.endswith(anchor)), "")


def _vit_towers(config: Config, model: ViT, tensors: Mapping[str, Tensor]) -> dict[str, Tower]:
    return {"": _vit_tower(_prefix(tensors), config.get("model_type") == "deit")}


def _dino_towers(config: Config, model: ViT, tensors: Mapping[str, Tensor]) -> dict[str, Tower]:
    height, width = (length // model.patches.patch_size for length in model.patches.size[-2:])
    parts = _DINO_GATED if config.flag("use_swiglu_ffn", False) else _DINO_PARTS
    return {"": _dino_tower(_prefix(tensors), parts, (height, width))}


def _clip_towers(config: Config, model: CLIP, tensors: Mapping[str, Tensor]) -> dict[str, Tower]:
    return {"pictures.": _CLIP_PICTURES, "": _CLIP_TEXTS}


@dataclass(frozen=True)
class PictureFamily:
    """How one kind of model that reads pictures names its parts. A ViT's pooler is left out.

    model: `ViT` or `CLIP`.
    settings: from a config.json to what the model is made with.
    towers: told config.json, our model and the tensors: what the names of a stack's tensors begin with in our model
        -> the stack.
    takes_any_size: whether a model is made for pictures as they are prepared, whatever its config.json says.
    """

    model: type[ViT] | type[CLIP]
    settings: Callable[[Config], dict[str, Any]]
    towers: Callable[[Config, Any, Mapping[str, Tensor]], dict[str, Tower]]
    takes_any_size: bool = False

    def told(self, config: Config, model: Any, tensors: Mapping[str, Tensor]) -> Told:
        """Where each of our model's tensors is in this checkpoint."""
        towers = self.towers(config, model, tensors)

        def origin(own: str) -> Origin:
            begins = next(begins for begins in towers if own.startswith(begins))
            return towers[begins].origin(own.removeprefix(begins))

        instead: dict[str, Tensor] = {}
        for tower in towers.values():
            instead |= tower.with_positions(tensors) | tower.scaled(tensors, model.design.num_layers)
        return Told(origin, instead, tuple(pattern for tower in towers.values() for pattern in tower.unused))


PICTURES = {
    "vit": PictureFamily(ViT, vit, _vit_towers),
    "deit": PictureFamily(ViT, deit, _vit_towers),
    "dinov2": PictureFamily(ViT, dinov2, _dino_towers, takes_any_size=True),
    "dinov2_with_registers": PictureFamily(ViT, dinov2, _dino_towers, takes_any_size=True),
    "clip": PictureFamily(CLIP, clip, _clip_towers),
}
"""The models of pictures that are read, by the `model_type` of their config.json."""
