"""What is drawn on a canvas. A number for each pixel takes Playwright seconds to read, one text does not."""

from __future__ import annotations

import base64

import numpy as np
from playwright.sync_api import Locator

READ = """(canvas) => {
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const letters = [];
    for (let start = 0; start < data.length; start += 8192)
        letters.push(String.fromCharCode(...data.subarray(start, start + 8192)));
    return [canvas.height, canvas.width, btoa(letters.join(""))];
}"""


def of(canvas: Locator) -> np.ndarray:
    """(height, width, 4): red, green, blue and opacity, from 0 to 255."""
    height, width, letters = canvas.evaluate(READ)
    return np.frombuffer(base64.b64decode(letters), np.uint8).astype(int).reshape(height, width, 4)
