"""Which of Hugging Face's models our blocks can hold, and ours with their weights."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..models import Model
from .config import ELSEWHERE, Config
from .encoders import FAMILIES
from .families import DECODERS, ENCODER_DECODERS, Family
from .pictures import PICTURES, PictureFamily
from .tensors import filled

_NO_ATTENTION = "it has no attention"
UNREAD = {
    **dict.fromkeys(("umt5",), "versions of transformers differ in what its last vectors are multiplied by"),
    **dict.fromkeys(
        ("m2m_100",), "its sinusoidal positions turn at rates of their own, and leave out the padding token"
    ),
    **dict.fromkeys(("siglip", "siglip2"), "a last layer of attention reads its patches with a query of its own"),
    **dict.fromkeys(("bloom", "mpt"), "its positions are a number for each distance and head, ALiBi"),
    **dict.fromkeys(("gemma3",), "it reads pictures, too; its decoder alone is gemma3_text"),
    **dict.fromkeys(("gptj", "phi"), "one norm before attention and feed-forward network, which stand side by side"),
    **dict.fromkeys(("falcon_mamba", "fnet", "mamba", "mamba2", "rwkv", "xlstm"), _NO_ATTENTION),
}
"""Well-known models that our blocks cannot hold, by `model_type`, and why not; of others, `_SIGNS` says it."""
_SIGNS = (
    ("it reads or makes sounds", False, "audio|mel_bins|^sampling_rate|conv_dim|codebook|speech|^feat_|asr|ctc|scribe"),
    ("it reads pictures", False, "vision|visual|image|patch|num_channels|backbone|video"),
    ("it reads no texts", False, "^act_dim"),
    ("nobody has compared its mixture of feed-forward networks with ours yet", True, "expert|^moe_"),
    ("some of its layers have a state in place of attention", True, "mamba|ssm|state_size|linear_(key|attn|num)|lru_"),
    ("its keys and values come from latents", True, "kv_lora_rank"),
)
"""Of a family that nobody has written down here: why our blocks cannot hold it, whether it reads texts alone, and what
it, or one of the entries of its config.json, is called then."""


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
        why, is_run = _refusal(config)
        route = ELSEWHERE if is_run else "transformers itself runs it, and no function of ours"
        raise ValueError(
            f"model_type={kind!r:.80} in config.json is not one of {sorted(known)}, "
            f"which our blocks can hold ({why}); {route}"
        )


def _refusal(config: Mapping[str, Any]) -> tuple[str, bool]:
    """Why our blocks cannot hold a model, and whether it reads one text, nothing else, and has weights to return."""
    kind = config.get("model_type")
    names = [kind, *(name for name, value in config.items() if value is not None)]
    signs = [
        (why, reads_text) for why, reads_text, pattern in _SIGNS if any(re.search(pattern, str(name)) for name in names)
    ]
    reads_text = all(reads for _, reads in signs) and (
        any(str(name).endswith("vocab_size") for name in config) or config.keys() <= {"model_type"}
    )
    is_run = reads_text and not config.get("is_encoder_decoder")
    if isinstance(kind, str) and kind in UNREAD:
        return UNREAD[kind], is_run and UNREAD[kind] != _NO_ATTENTION
    unknown = "nobody has written down yet which of its tensors is which of ours" if reads_text else "it reads no texts"
    return signs[0][0] if signs else unknown, is_run


def _family(config: Mapping[str, Any]) -> Family | PictureFamily:
    every: dict[str, Family | PictureFamily] = {**FAMILIES, **DECODERS, **ENCODER_DECODERS, **PICTURES}
    return every[str(config["model_type"])]


def settings_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """What our model is made with so that it computes what the model of this config.json does.

    Raises:
        KeyError: the family is not `supported`.
        ValueError: an entry is missing or wrong, the weights are quantised, or our blocks do not have what it asks for.
    """
    if config.get("quantization_config"):
        raise ValueError(
            f"quantization_config in config.json: our blocks need weights that are not quantised; {ELSEWHERE}"
        )
    return _family(config).settings(Config(config))


def without_weights(config: Mapping[str, Any]) -> Model:
    """Our model of a config.json on the device "meta", where it takes no memory.

    Raises:
        KeyError, ValueError: as `settings_of`.
    """
    with torch.device("meta"):
        return _family(config).model(**settings_of(config))


def with_weights(
    config: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> Model:
    """Our model with a checkpoint's weights, in evaluation mode. One tensor after the other is read.

    Args:
        config: what config.json says.
        tensors: what the files of weights hold.
        dtype: of the model.
        device: where it is put.

    Raises:
        ValueError: as `settings_of`; or a tensor is missing, has another shape than the config says, or belongs to
            nothing that the config speaks of; or tensors that are one have different numbers.
    """
    model = without_weights(config)
    return filled(model, _family(config).told(Config(config), model, tensors), tensors, dtype, device)
