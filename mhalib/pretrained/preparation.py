"""What is done to a picture before a model reads it, as its preprocessor_config.json says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from .._validate import (
    require_choice,
    require_count,
    require_kind,
    require_number,
    require_positive,
    require_tensor,
)
from .config import Config
from .files import PREPARATION

MODES = ("bilinear", "bicubic")
_RESAMPLED = {2: "bilinear", 3: "bicubic"}  # PIL's numbers
_HALF = (0.5, 0.5, 0.5)
_USUAL: dict[str, dict[str, Any]] = {
    "vit": {"size": {"height": 224, "width": 224}, "resample": 2, "image_mean": _HALF, "image_std": _HALF},
    "deit": {
        "size": {"height": 256, "width": 256},
        "resample": 3,
        "image_mean": _HALF,
        "image_std": _HALF,
        "do_center_crop": True,
    },
    "clip": {
        "size": {"shortest_edge": 224},
        "resample": 3,
        "image_mean": (0.48145466, 0.4578275, 0.40821073),
        "image_std": (0.26862954, 0.26130258, 0.27577711),
        "do_center_crop": True,
    },
}
_USUAL |= dict.fromkeys(("dinov2", "dinov2_with_registers"), _USUAL["clip"])
"""What a missing entry means in `transformers` 5."""


@dataclass(frozen=True)
class Preparation:
    """Resizes pictures, cuts their middle out and normalises them: call it with pictures (B, channels, height, width)
    whose numbers are from 0 to 1.

    mean, std: of each colour; a number x becomes (x - mean) / std.
    resize: height and width; or one number, which the shorter side becomes; `None` leaves pictures as large as they
        are.
    crop: height and width of the middle that is cut out; `None` means all.
    mode: "bilinear" or "bicubic", how pictures are resized.
    scale: what the numbers are multiplied by before that; 255 where a model was trained on pictures from 0 to 255.

    Resizing is that of `torch.nn.functional.interpolate` with `antialias=True`, first the width, then the height. It is
    close to PIL's, which prepared the pictures that models were trained on, and not equal: after each of the two, PIL
    also rounds to one of 256 values. The difference is at most about one of these steps.

    Raises:
        TypeError, ValueError: an entry is not of this kind.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    resize: tuple[int, int] | int | None = None
    crop: tuple[int, int] | None = None
    mode: str = "bicubic"
    scale: float = 1.0

    def __post_init__(self) -> None:
        for name, require in (("mean", require_number), ("std", require_positive)):
            require_kind(name, getattr(self, name), tuple)
            for number in getattr(self, name):
                require(f"each entry of {name}", number)
        if not self.mean or len(self.mean) != len(self.std):
            raise ValueError(f"mean={self.mean!r:.80} and std={self.std!r:.80} must have an entry for each colour")
        require_choice("mode", self.mode, MODES)
        require_positive("scale", self.scale)
        if isinstance(self.resize, int):
            require_count("resize", self.resize)
        else:
            _require_pair("resize", self.resize)
        _require_pair("crop", self.crop)

    def __call__(self, pictures: Tensor) -> Tensor:
        """(B, channels, height, width), numbers from 0 to 1 -> the same, as a model reads it.

        Raises:
            TypeError: they are no tensor of floating-point numbers.
            ValueError: they have not four axes, or not as many colours as `mean`; a number is below 0 or above 1; or
                they are smaller than what is to be cut out.
        """
        require_tensor("pictures", pictures, rank=4)
        if not pictures.is_floating_point():
            raise TypeError(f"pictures must hold floating-point numbers from 0 to 1, got {pictures.dtype}")
        if pictures.shape[1] != len(self.mean):
            raise ValueError(f"pictures have {pictures.shape[1]} colours, but the model reads {len(self.mean)}")
        if not pictures.numel():
            raise ValueError(f"pictures are empty: shape {tuple(pictures.shape)}")
        if not bool(((pictures >= 0) & (pictures <= 1)).all()):
            raise ValueError(
                f"pictures must hold numbers from 0 to 1, got some up to {float(pictures.abs().max()):.4g}"
            )
        return self._normalised(self._cut(self._resized(pictures)))

    def _resized(self, pictures: Tensor) -> Tensor:
        height, width = pictures.shape[-2:]
        if self.resize is None:
            return pictures
        if isinstance(self.resize, int):
            short = min(height, width)
            size = (int(self.resize * height / short), int(self.resize * width / short))
        else:
            size = self.resize
        if size == (height, width):
            return pictures
        for one_way in ((height, size[1]), size):  # as PIL does, which cuts off what is beyond after each
            pictures = interpolate(pictures, one_way, mode=self.mode, antialias=True).clamp(0, 1)
        return pictures

    def _cut(self, pictures: Tensor) -> Tensor:
        if self.crop is None:
            return pictures
        (height, width), found = self.crop, tuple(pictures.shape[-2:])
        if found[0] < height or found[1] < width:
            raise ValueError(f"pictures are {found[0]} x {found[1]}, but {height} x {width} are to be cut out of them")
        top, left = (found[0] - height) // 2, (found[1] - width) // 2
        return pictures[..., top : top + height, left : left + width]

    def _normalised(self, pictures: Tensor) -> Tensor:
        mean, std = (torch.tensor(one).to(pictures)[:, None, None] for one in (self.mean, self.std))
        return (pictures * self.scale - mean) / std


def _require_pair(name: str, value: object) -> None:
    """Raise unless `value` is `None` or a tuple (TypeError) of height and width (ValueError)."""
    if value is None:
        return
    require_kind(name, value, tuple)
    both = cast("tuple[object, ...]", value)
    for number in both:
        require_count(f"each entry of {name}", number)
    if len(both) != 2:
        raise ValueError(f"{name}={value!r:.80} must be height and width")


def preparation_of(told: Mapping[str, Any], kind: str) -> Preparation:
    """What a preprocessor_config.json says, of a model whose config.json has the `model_type` `kind`.

    Raises:
        ValueError: an entry is wrong, or asks for what is not done here.
    """
    given = {key: value for key, value in told.items() if value is not None}
    config = Config({**_USUAL[kind], **given}, PREPARATION)
    resample = config.get("resample")
    if isinstance(resample, bool) or not isinstance(resample, int) or resample not in _RESAMPLED:
        raise ValueError(f"resample={resample!r:.80} in {PREPARATION} must be 2, bilinear, or 3, bicubic")
    factor = config.number("rescale_factor", 1 / 255) if config.flag("do_rescale", True) else 1.0
    does_normalise = config.flag("do_normalize", True)
    mean, std = _numbers(config, "image_mean"), _numbers(config, "image_std")
    try:
        return Preparation(
            mean if does_normalise else tuple(0.0 for _ in mean),
            std if does_normalise else tuple(1.0 for _ in std),
            _size(config, is_square=kind in ("vit", "deit")) if config.flag("do_resize", True) else None,
            _pair(config, "crop_size", 224) if config.flag("do_center_crop", False) else None,
            _RESAMPLED[resample],
            _plain(255 * factor),
        )
    except TypeError as error:
        raise ValueError(f"{PREPARATION}: {error}") from error


def _plain(scale: float) -> float:
    """1, where 255 times a rounded 1/255 is not quite."""
    return 1.0 if abs(scale - 1) < 1e-6 else scale


def _numbers(config: Config, key: str) -> tuple[float, ...]:
    value = config.get(key)
    value = [value] * 3 if isinstance(value, (int, float)) else value
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"{key}={value!r:.80} in {PREPARATION} must be a list of numbers")
    return tuple(value)


def _pair(config: Config, key: str, usual: int) -> tuple[int, int]:
    """Height and width, as an object, a list, or one number for both."""
    value = config.get(key, usual)
    if not isinstance(value, Mapping):
        return config.pair(key, usual)
    both = config.part(key)
    return both.count("height"), both.count("width")


def _size(config: Config, is_square: bool) -> tuple[int, int] | int:
    """Height and width, or the shorter side alone, which one number means for CLIP."""
    value = config.get("size")
    if isinstance(value, Mapping) and "shortest_edge" in value:
        if value.get("longest_edge") is not None:
            raise ValueError(f"size={value!r:.80} in {PREPARATION}: longest_edge is not read")
        return config.part("size").count("shortest_edge")
    if isinstance(value, int) and not is_square:
        return config.count("size")
    return _pair(config, "size", 224)
