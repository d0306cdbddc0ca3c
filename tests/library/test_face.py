"""What `import mhalib` shows: every name, quickly, with types, and with an answer to other libraries' names."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import mhalib
from mhalib import MultiHeadAttention

FACE = Path(mhalib.__file__)


def _run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_every_name_is_there_and_none_besides():
    assert set(mhalib.__all__) <= set(dir(mhalib))
    for name in mhalib.__all__:
        assert getattr(mhalib, name) is not None
    with pytest.raises(AttributeError, match="module 'mhalib' has no attribute 'attentoin'"):
        _ = mhalib.attentoin


def test_type_checkers_see_the_names_that_are_loaded_when_used():
    tree = ast.parse(FACE.read_text(encoding="utf-8"))
    seen = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen - {"TYPE_CHECKING", "annotations"} == set(mhalib.__all__)


@pytest.mark.package
def test_a_name_is_loaded_with_what_it_needs_and_no_more():
    code = """
import sys, mhalib
def loaded(): print(*(name in sys.modules for name in ("torch", "matplotlib", "mhalib.data")))
loaded()
mhalib.MultiHeadAttention; loaded()
mhalib.head_heatmap; loaded()
"""
    assert _run(code).splitlines() == ["False False False", "True False False", "True True False"]


@pytest.mark.package
def test_the_layer_is_imported_in_little_more_time_than_torch():
    code = """
import time
start = time.process_time(); import torch; middle = time.process_time()
import mhalib; mhalib.MultiHeadAttention, mhalib.models, mhalib.measures
print((time.process_time() - start) / (middle - start))
"""
    assert any(float(_run(code)) <= 1.3 for _ in range(3))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x, layer: MultiHeadAttention(embed_dim=12, num_heads=3), "embed_dim is another library's name: here"),
        (lambda x, layer: MultiHeadAttention(12, 3, batch_first=True), "inputs are always (B, N, D), batch first"),
        (lambda x, layer: layer(query=x, key=x, value=x), "query is another library's name: here it is queries"),
        (lambda x, layer: layer(x, x, x, key_padding_mask=x), "the opposite, True = may attend"),
        (lambda x, layer: layer(x, x, x, attn_mask=x), "mask=~attn_mask"),
        (lambda x, layer: layer(x, x, x, is_causal=True), "mask=mhalib.Band()"),
        (lambda x, layer: layer(x, x, x, average_attn_weights=False), "weights are always per head"),
        (lambda x, layer: layer(x, x, x, nonsense=1), "unexpected keyword argument 'nonsense'"),
        (lambda x, layer: layer(x), "keys and values must be given: self-attention is layer(x, x, x)"),
        (lambda x, layer: layer(x, values=x), "keys must be given: self-attention"),
        (lambda x, layer: layer(x.numpy(), x, x), "; torch.as_tensor(queries) makes one"),
    ],
)
def test_names_of_other_libraries_are_answered_with_ours(call, message):
    with pytest.raises(TypeError, match=re.escape(message)):
        call(torch.zeros(1, 2, 12), MultiHeadAttention(12, 3))


@pytest.mark.parametrize("key_size", [12, 8])
def test_weights_of_torchs_layer_are_told_how_they_are_read(key_size):
    model = torch.nn.Sequential(MultiHeadAttention(12, 3, key_size=key_size))
    theirs = torch.nn.Sequential(torch.nn.MultiheadAttention(12, 3, kdim=key_size))
    with pytest.raises(RuntimeError, match=re.escape("mhalib.reference.from_torch(layer) reads it")):
        model.load_state_dict(theirs.state_dict())
