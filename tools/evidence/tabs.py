"""Run the code in the tabs of chapter 34, each in its own framework, and hold what it prints against the page.

    python -m tools.evidence.tabs [--store] [FRAMEWORK ...]

All tabs of one framework run in one kernel of Jupyter, from the first set on the page to the last: that of the book for
PyTorch, JAX, Keras and einops, those that `make frameworks` has registered for TensorFlow and MXNet. The
kernel begins with the module of `mhalib.reference`, so that a tab finds the helpers that it does not show, and its own
functions take the places of the module's. It fails where the page shows something else than was printed, and where a
kernel is missing. `--store` writes the page's outputs instead.

A tab of the page is Markdown: `:::{tab-item}`, a block of Python, and a block of text with what it prints.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import os
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import nbformat
import numpy as np
import torch
from nbclient import NotebookClient

from mhalib import MultiHeadAttention
from mhalib._write import write_whole
from mhalib.reference import to_arrays
from tools import ROOT
from tools.evidence.frameworks.__main__ import KERNELS, QUIET
from tools.notebooks import statements

PAGE = ROOT / "chapters/34_four_frameworks.ipynb"
ELSEWHERE = ("tensorflow", "mxnet")  # whose environments the book's tests do not have
FRAMEWORKS = ("pytorch", "jax", "keras", *ELSEWHERE, "einops")
TAB = re.compile(
    r":::\{tab-item\} (?P<title>\w+)\n:sync: (?P<key>\w+)\n\n```python\n(?P<code>.*?)\n```\n"
    r"(?:\n```text\n(?P<output>.*?)\n```\n)?",
    re.DOTALL,
)
ROUNDED = statements.measured({"measured": {"tolerance": 0.0002}})
"""Numbers with four digits: each framework sums in an order of its own."""
CODES = "tabs"  # in a cell's metadata: framework -> the hash of what its stored outputs were made from

OWN_IMPORTS = {
    "pytorch": "import math\nimport torch\nfrom torch import nn\nfrom mhalib import padding_mask",
    "einops": (
        "import torch\nfrom torch import Tensor\nfrom beartype import beartype\nfrom einops import rearrange\n"
        "from jaxtyping import Float, jaxtyped"
    ),
}
BEFORE_MODULE = "import os\nos.environ.setdefault('KERAS_BACKEND', 'torch')\n__package__ = 'mhalib.reference'"
GIVEN = """\
import numpy
numpy.set_printoptions(precision=4, suppress=True)
with numpy.load({path!r}) as given:
    check = given["queries"], given["pairs"], given["lens"]
    arrays = {{name: given[name] for name in given if name.startswith("W_")}}
"""
NO_GRADIENTS = "import torch\ntorch.set_grad_enabled(False)\n"


class Tab(NamedTuple):
    """A tab of the page. number: which set it is in; key: its framework; output: what the page says that it prints."""

    number: int
    key: str
    code: str
    output: str


def cells_with_tabs(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "markdown" and "{tab-set}" in cell.source]


def tabs_of(notebook: nbformat.NotebookNode) -> list[Tab]:
    """Every tab, in the order of the page."""
    text = "\n".join(cell.source for cell in cells_with_tabs(notebook))
    sets = text.split("::::{tab-set}")[1:]
    return [
        Tab(number, found["key"], found["code"], found["output"] or "")
        for number, one in enumerate(sets)
        for found in TAB.finditer(one)
    ]


def of_key(key: str, tabs: Sequence[Tab]) -> list[Tab]:
    return [tab for tab in tabs if tab.key == key]


def code_key(key: str, tabs: Sequence[Tab]) -> str:
    """A hash of what a framework's outputs are made from: its tabs, its module without comments, and its pins."""
    made_from = hashlib.sha256()
    for tab in of_key(key, tabs):
        made_from.update(tab.code.encode())
    made_from.update(ast.unparse(ast.parse(module_source(key))).encode())
    made_from.update((ROOT / f"requirements-{key}.txt").read_bytes())
    return made_from.hexdigest()[:16]


def module_source(key: str) -> str:
    return (ROOT / f"mhalib/reference/in_{key}.py").read_text(encoding="utf-8")


def write_inputs(path: Path) -> None:
    """The weights and inputs of D2L's check, as the page draws them."""
    torch.manual_seed(0)
    arrays = to_arrays(MultiHeadAttention(100, 5))
    torch.manual_seed(1)
    queries, pairs = torch.randn(2, 4, 100).numpy(), torch.randn(2, 6, 100).numpy()
    given: dict[str, Any] = {**arrays, "queries": queries, "pairs": pairs, "lens": np.array([3, 2])}
    np.savez(path, **given)


def preambles(key: str, inputs: Path) -> list[str]:
    """What runs before the tabs: imports, or the framework's module, and the inputs."""
    begin = [OWN_IMPORTS[key]] if key in OWN_IMPORTS else [BEFORE_MODULE, module_source(key)]
    given = GIVEN.format(path=str(inputs))
    return [*begin, given + (NO_GRADIENTS if key in ("pytorch", "keras", "einops") else "")]


def printed(key: str, tabs: Sequence[Tab], inputs: Path) -> list[str]:
    """What each tab of one framework prints, executed in its kernel.

    Raises:
        nbclient.exceptions.CellExecutionError: the code of a tab failed.
        jupyter_client.kernelspec.NoSuchKernel: the framework has no kernel here.
    """
    before = preambles(key, inputs)
    codes = [*before, *(tab.code for tab in of_key(key, tabs))]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code in codes])
    kernel = f"mhalib-{key}" if key in ELSEWHERE else "python3"
    os.environ["JUPYTER_PATH"] = os.pathsep.join((str(KERNELS), os.environ.get("JUPYTER_PATH", "")))
    client = NotebookClient(
        notebook,
        timeout=300,
        kernel_name=kernel,
        extra_arguments=["--IPKernelApp.log_level=ERROR"],
        resources={"metadata": {"path": str(ROOT)}},
    )
    client.execute(env={**os.environ, **QUIET})
    return [
        "".join(output.text for output in cell.outputs if output.get("name") == "stdout").rstrip()
        for cell in notebook.cells[len(before) :]
    ]


def stale(tab: Tab, text: str) -> list[str]:
    """Why the page does not show what the tab prints; empty if it does."""
    return statements.differences(tab.output, text, ROUNDED, f"set {tab.number + 1}, {tab.key}")


def with_outputs(source: str, outputs: Sequence[str]) -> str:
    """Markdown whose tabs show these outputs, one for each tab in the order of the page."""
    following = iter(outputs)

    def shown(found: re.Match[str]) -> str:
        head = found[0].partition("\n```\n")[0]
        return f"{head}\n```\n\n```text\n{next(following)}\n```\n"

    return TAB.sub(shown, source)


def store(notebook: nbformat.NotebookNode, outputs: dict[tuple[int, str], str]) -> None:
    """Write outputs into the page, and what they were made from beside them."""
    tabs = tabs_of(notebook)
    every = iter([outputs.get((tab.number, tab.key), tab.output) for tab in tabs])
    for cell in cells_with_tabs(notebook):
        cell.source = with_outputs(cell.source, [next(every) for _ in TAB.finditer(cell.source)])
    ran = {key for _, key in outputs}
    for cell in cells_with_tabs(notebook)[:1]:
        keys = {key: code_key(key, tabs) for key in ELSEWHERE if key in ran}
        cell.metadata[CODES] = {**cell.metadata.get(CODES, {}), **keys}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("frameworks", nargs="*", metavar="FRAMEWORK", help=f"of {', '.join(FRAMEWORKS)}; all, if none")
    parser.add_argument("--store", action="store_true", help="write what is printed into the page")
    asked = parser.parse_args(arguments)
    if unknown := set(asked.frameworks) - set(FRAMEWORKS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(FRAMEWORKS)}")
    notebook = nbformat.read(PAGE, as_version=4)
    tabs = tabs_of(notebook)
    outputs: dict[tuple[int, str], str] = {}
    with tempfile.TemporaryDirectory() as folder:
        inputs = Path(folder) / "inputs.npz"
        write_inputs(inputs)
        for key in asked.frameworks or FRAMEWORKS:
            texts = printed(key, tabs, inputs)
            outputs |= {(tab.number, key): text for tab, text in zip(of_key(key, tabs), texts, strict=True)}
            print(f"{key}: {len(texts)} tabs", flush=True)
    if asked.store:
        store(notebook, outputs)
        write_whole(PAGE, nbformat.writes(notebook).rstrip("\n") + "\n")
        return
    wrong = [
        line for tab in tabs if (tab.number, tab.key) in outputs for line in stale(tab, outputs[tab.number, tab.key])
    ]
    if wrong:
        sys.exit(
            "the page does not show what its tabs print; python -m tools.evidence.tabs --store does\n"
            + "\n".join(wrong)
        )


if __name__ == "__main__":
    main()
