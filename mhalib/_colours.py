"""Colours as numbers: sRGB, light, luminance and OKLab (Ottosson 2020), for what draws figures and what reads them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

EVEN = 0.18
"""The luminance on which black letters and white ones have the same contrast, by WCAG."""
_TO_CONES = np.array(
    [[1, 0.3963377774, 0.2158037573], [1, -0.1055613458, -0.0638541728], [1, -0.0894841775, -1.2914855480]]
)
_TO_LIGHT = np.array(
    [
        [4.0767416621, -3.3077115913, 0.2309699292],
        [-1.2684380046, 2.6097574011, -0.3413193965],
        [-0.0041960863, -0.7034186147, 1.7076147010],
    ]
)


def light_of(colours: ArrayLike) -> NDArray[Any]:
    """Linear light (..., 3) of sRGB colours (..., 3), both from 0 to 1."""
    share = np.asarray(colours, dtype=float)
    return np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)


def colours_of(light: NDArray[Any]) -> NDArray[Any]:
    """The sRGB colours (..., 3) of linear light (..., 3), both from 0 to 1."""
    return np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)


def luminance(light: NDArray[Any]) -> NDArray[Any]:
    """The relative luminance (...) of WCAG of linear light (..., 3), from 0 for black to 1 for white."""
    return light @ np.array([0.2126, 0.7152, 0.0722])


def light_of_lab(lab: NDArray[Any]) -> NDArray[Any]:
    """Linear light (..., 3) of OKLab (..., 3); what no screen shows is cut to what it shows."""
    return np.clip((lab @ _TO_CONES.T) ** 3 @ _TO_LIGHT.T, 0.0, 1.0)


def lab_of_light(light: NDArray[Any]) -> NDArray[Any]:
    """OKLab (..., 3), lightness first, of linear light (..., 3)."""
    return np.cbrt(light @ np.linalg.inv(_TO_LIGHT).T) @ np.linalg.inv(_TO_CONES).T
