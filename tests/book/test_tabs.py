"""The code in the tabs of chapter 29 is that of the library, or computes the same."""

from __future__ import annotations

import ast
import math
import re
from pathlib import Path
from typing import Any

import book_text
import pytest
import torch

import mhalib

PAGE = "\n".join(book_text.PAGES["29_four_frameworks"].markdown)
SETS = [part.split("\n::::\n")[0] for part in PAGE.split("::::{tab-set}")[1:]]
TAB = re.compile(r":::\{tab-item\} \w+\n:sync: (\w+)\n\n```python\n(.*?)\n```", re.DOTALL)
TABS = [(number, key, code) for number, one in enumerate(SETS) for key, code in TAB.findall(one)]
FRAMEWORKS = ["pytorch", "jax", "keras", "tensorflow", "mxnet"]


def bare(function: ast.FunctionDef) -> str:
    """A function without its docstring and types."""
    function.returns = None
    for argument in (*function.args.args, *function.args.kwonlyargs):
        argument.annotation = None
    body = [one for one in function.body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))]
    function.body = [
        ast.Assign([one.target], one.value, lineno=0) if isinstance(one, ast.AnnAssign) and one.value else one
        for one in body
    ]
    return ast.unparse(ast.fix_missing_locations(function))


def functions(source: str) -> dict[str, str]:
    """Name -> code, of all functions and methods; the last of those that have one name."""
    return {node.name: bare(node) for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)}


def test_each_set_has_every_framework_and_follows_the_others() -> None:
    assert len(SETS) == 3
    assert all(one.startswith("\n:sync-group: framework\n") for one in SETS)
    for number in range(3):
        keys = [key for place, key, _ in TABS if place == number]
        assert keys == FRAMEWORKS + ["einops"] * (number == 0)


@pytest.mark.parametrize(("number", "key", "code"), [tab for tab in TABS if tab[1] not in ("pytorch", "einops")])
def test_a_tab_shows_the_functions_of_the_library(number: int, key: str, code: str) -> None:
    path = Path(mhalib.__file__).parent / f"reference/in_{key}.py"
    library = functions(path.read_text(encoding="utf-8"))
    shown = functions(code)
    assert shown
    for name, text in shown.items():
        assert text == library[name]


def written(number: int, key: str) -> dict[str, Any]:
    """What a tab defines, executed."""
    from einops import rearrange
    from jaxtyping import Float

    namespace: dict[str, Any] = {"torch": torch, "math": math, "rearrange": rearrange, "Float": Float}
    namespace |= {"Tensor": torch.Tensor, "padding_mask": mhalib.padding_mask}
    (code,) = (code for place, name, code in TABS if (place, name) == (number, key))
    exec(code, namespace)
    return namespace


@pytest.mark.parametrize("key", ["pytorch", "einops"])
def test_the_trick_in_torch_and_einops_is_the_library_s(key: str) -> None:
    x, tab = torch.randn(2, 5, 12), written(0, key)
    assert torch.equal(tab["split_heads"](x, 3), mhalib.split_heads(x, 3))
    assert torch.equal(tab["merge_heads"](mhalib.split_heads(x, 3)), x)


def test_the_layer_in_torch_is_the_library_s() -> None:
    torch.manual_seed(0)
    layer = mhalib.MultiHeadAttention(12, 3)
    tab = written(0, "pytorch") | written(1, "pytorch")
    forward = written(2, "pytorch")["forward"]
    forward.__globals__.update({name: tab[name] for name in ("split_heads", "merge_heads", "masked_softmax")})
    queries, keys, values = torch.randn(2, 4, 12), torch.randn(2, 7, 12), torch.randn(2, 7, 12)
    mask, lens = torch.rand(2, 3, 4, 7) < 0.6, torch.tensor([5, 0])
    layer_of_tab = torch.nn.Module()
    for name in ("W_q", "W_k", "W_v", "W_o"):
        setattr(layer_of_tab, name, getattr(layer, name))
    layer_of_tab.num_heads, layer_of_tab.dropout = 3, torch.nn.Identity()
    for options in ({}, {"mask": mask}, {"valid_lens": lens}, {"mask": mask, "valid_lens": lens}):
        found = forward(layer_of_tab, queries, keys, values, **options)
        for ours, shown in zip(layer(queries, keys, values, **options), found, strict=True):
            torch.testing.assert_close(shown, ours)
