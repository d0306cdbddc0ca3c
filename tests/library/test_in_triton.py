"""The kernel of chapter 30 in Triton, run by Triton's interpreter where it is installed, against torch's formula."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[2]
COMPARED = """
import torch
from torch.nn.functional import scaled_dot_product_attention
from mhalib.reference.in_triton import triton_attention
torch.manual_seed(0)
for dtype, N, d, causal in (
    (torch.float32, 150, 32, True), (torch.float32, 150, 32, False), (torch.float32, 300, 16, True),
    (torch.float16, 64, 64, True),
):
    q, k, v = (torch.randn(2, 3, N, d).to(dtype) for _ in range(3))
    exact = scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=causal)
    print(float((triton_attention(q, k, v, causal) - exact).norm() / exact.norm()))
for wrong in ((q, k[:, :2], v), (q.mT, k.mT, v.mT), (q[..., :24].contiguous(),) * 3):
    try:
        triton_attention(*wrong)
    except ValueError:
        print("refused")
"""


@pytest.mark.skipif(not find_spec("triton"), reason="no Triton here")
def test_tiles_give_the_formula() -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", COMPARED], env=environment, capture_output=True, text=True, check=True)
    *errors, one, two, three = done.stdout.split()
    assert [one, two, three] == ["refused"] * 3
    assert all(float(error) < limit for error, limit in zip(errors, (1e-6, 1e-6, 1e-6, 1e-3), strict=True))


def test_the_page_shows_the_kernel_letter_by_letter() -> None:
    source = (ROOT / "mhalib/reference/in_triton.py").read_text(encoding="utf-8")
    kernel = source[source.index("@triton.jit") : source.index("def triton_attention")]
    kernel = kernel.replace("  # type: ignore[no-untyped-def]", "").strip()
    notebook = nbformat.read(ROOT / "chapters/30_never_write_the_scores.ipynb", as_version=4)
    assert any(kernel in cell.source for cell in notebook.cells if cell.cell_type == "markdown")
