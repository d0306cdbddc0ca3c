"""What `make frameworks` measured: how far the layers of all frameworks are from loops, and how long ours take. And
whose programs our kinds of attention were held against."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("deviations.json")
TIMES = Path(__file__).with_name("times.json")
KINDS = Path(__file__).with_name("kinds.json")


def deviations() -> dict[str, dict[str, dict[str, float | str]]]:
    """The largest deviation of each layer in each property, as it was measured when the package was made.

    Returns:
        layer -> dtype -> property -> a number with one digit, "NaN", or "cannot" where the layer cannot be asked.
    """
    return json.loads(FILE.read_text(encoding="utf-8"))


def times() -> dict[str, dict[str, Any]]:
    """How long a pass of our layer takes in PyTorch, TensorFlow and MXNet, as a multiple of the same steps in NumPy.

    Each framework ran in a process of its own, beside a NumPy of its environment, and everything had one thread.

    Returns:
        framework -> `date`, `versions` (package -> version), and `times`: size (`"1 × 16"`, examples × tokens) -> way,
        such as `"TensorFlow, eager"` -> ratio, with two digits.
    """
    return json.loads(TIMES.read_text(encoding="utf-8"))


def kinds() -> dict[str, dict[str, Any]]:
    """What each kind of attention was held against, how near it was, and which models have it.

    Returns:
        kind -> up to three comparisons in float64, "loop", "identity", which is multi-head attention in the one case
        `where` the two are equal, and "program", which has a `name` and where it is `from`; each with the `test` that
        compares, and `to`, the largest deviation. And "shipped in", by model the place in the library transformers that
        shows it, as "folder.class: word".
    """
    return json.loads(KINDS.read_text(encoding="utf-8"))
