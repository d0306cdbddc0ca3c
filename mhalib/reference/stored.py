"""What `make frameworks` measured: how far the layers of all frameworks are from the loops of this book."""

from __future__ import annotations

import json
from pathlib import Path

FILE = Path(__file__).with_name("deviations.json")


def deviations() -> dict[str, dict[str, dict[str, float | str]]]:
    """The largest deviation of each layer in each property, as it was measured when the package was made.

    Returns:
        layer -> dtype -> property -> a number with one digit, "NaN", or "cannot" where the layer cannot be asked.
    """
    return json.loads(FILE.read_text(encoding="utf-8"))
