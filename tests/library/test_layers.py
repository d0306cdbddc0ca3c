"""The layer owns its heads: who else touches its projections, or divides by the number of heads, is listed here.

Which room of the package may import which is held by the contracts in pyproject.toml, see `make lint`.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import mhalib

PACKAGE = Path(mhalib.__file__).parent
PROJECTIONS = {"W_q", "W_k", "W_v", "W_o"}
OWNERS = ("attention/", "variants/")
ALLOWED = {
    "reference/convert.py": "projections",  # carries the weights over
    "reference/in_flax.py": "projections",  # layers of other frameworks have projections of the same names
    "reference/in_keras.py": "division projections",
    "reference/in_mxnet.py": "division projections",
    "reference/in_tensorflow.py": "division",
    "reference/layers.py": "projections",  # so has D2L's
    "reference/loops.py": "projections",  # computes them again, head by head
    "measures/card.py": "projections",  # what a head writes: values through its own columns
    "measures/importance.py": "projections",  # asks for their dtype and device
    **dict.fromkeys(
        (f"parallel/{name}.py" for name in ("plans", "sequences", "splitting")), "projections"
    ),  # splits them
    "widgets/worked_example.py": "projections",  # its own: W_o is one of its arguments
    "costs.py": "division projections",  # counts for sizes alone, without a layer; asks one for its dtype and device
}


def touches(source: str) -> set[str]:
    """Whether a file reads `layer.W_q` or its like ("projections"), or computes `... // num_heads` ("division")."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("getattr", "setattr"):
            if any(isinstance(given, ast.Constant) and given.value in PROJECTIONS for given in node.args):
                found.add("projections")
        elif isinstance(node, ast.Attribute) and node.attr in PROJECTIONS:
            found.add("projections")
        elif isinstance(node, (ast.BinOp, ast.AugAssign)) and isinstance(node.op, ast.FloorDiv):
            divisor = node.right if isinstance(node, ast.BinOp) else node.value
            if getattr(divisor, "attr", getattr(divisor, "id", "")) == "num_heads":
                found.add("division")
    return found


def test_only_the_layer_touches_its_projections_and_divides_by_its_heads() -> None:
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if not name.startswith(OWNERS) and (touched := touches(path.read_text(encoding="utf-8"))):
            found[name] = " ".join(sorted(touched))
    assert found == ALLOWED, "ask the layer: head_slices, keep_heads, head_dim, or give it a method"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("layer.W_q.weight[:3]", {"projections"}),
        ("getattr(layer, 'W_o')", {"projections"}),
        ("d = D // num_heads", {"division"}),
        ("D //= layer.num_heads", {"division"}),
        ("d = x.shape[-1] // model.layer.num_heads", {"division"}),
        ("d = num_heads // 2; n = D // heads; w = 'W_q'; layer.W_queries", set()),
        ("print('W_q'); h / num_heads", set()),
    ],
)
def test_what_counts_as_touching(source: str, found: set[str]) -> None:
    assert touches(source) == found
