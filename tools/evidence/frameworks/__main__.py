"""The layer in all frameworks against one answer: a table of layer x property x largest deviation, and its time.

    python -m tools.evidence.frameworks [--install] [--store] [RUN ...]

With no names it runs every framework for which there is an environment: those of `.venv`, and those of the two that
`--install` makes, in `.frameworks/tensorflow` and `.frameworks/mxnet`, from the requirements of the same names. Each of
the two is registered as a kernel of Jupyter in `.frameworks/jupyter`, where `make lab` and `tabs.py` find it.

What is measured is held against `expected.py`, and the run fails where it differs. `--store` writes
`mhalib/reference/deviations.json` and `times.json`, from which chapter 34 makes its tables.

The answer is that of `mhalib.reference.multi_head_attention_loops` in float64, with gradients by autograd.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mhalib import Band, MultiHeadAttention
from mhalib._write import write_whole
from mhalib.reference import deviations, multi_head_attention_loops, times, to_arrays
from mhalib.reference.stored import FILE, TIMES
from tools import ROOT
from tools.evidence.frameworks import RUNS, TIMED, names_of
from tools.evidence.frameworks.expected import unexpected
from tools.evidence.frameworks.measure import DTYPES, NAN, UNABLE

FOLDER = ROOT / ".frameworks"
B, Q, K, h, d = 2, 4, 7, 3, 5
D = h * d
SECONDS = 1800
KERNELS = FOLDER / "jupyter/share/jupyter"
TITLES = {"tensorflow": "TensorFlow", "mxnet": "MXNet"}
QUIET = {
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "--xla_backend_optimization_level=0",  # small sums, once each: compiling takes the time
    "KERAS_TORCH_DEVICE": "cpu",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "CUDA_VISIBLE_DEVICES": "",
    "PYTHONPATH": str(ROOT),
}
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"),
    "1",
)
Found = dict[str, dict[str, dict[str, float | str]]]
"""Layer -> dtype -> property -> the largest deviation, or a word."""


def make_case(
    seed: int,
    *,
    sizes: tuple[int, int, int, int, int] = (B, Q, K, D, h),
    bias: bool = True,
    valid_lens: list | None = None,
    mask: np.ndarray | None = None,
    causal: bool = False,
) -> dict[str, np.ndarray]:
    """Weights, inputs and options of a call, and its answers by loops: output, weights, and gradients of each input."""
    batch_size, num_queries, num_kvpairs, num_hiddens, num_heads = sizes
    chance = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=chance, dtype=torch.float64)

    layer = MultiHeadAttention(num_hiddens, num_heads, bias=bias).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(draw(*parameter.shape) / num_hiddens**0.5)
    queries, cotangent = draw(batch_size, num_queries, num_hiddens), draw(batch_size, num_queries, num_hiddens)
    keys, values = (draw(batch_size, num_kvpairs, num_hiddens) for _ in range(2))
    inputs = {"queries": queries, "keys": queries, "values": queries} if causal else {}
    inputs = inputs or {"queries": queries, "keys": keys, "values": values}
    leaves = {name: x.clone().requires_grad_() for name, x in inputs.items()}
    lens = None if valid_lens is None else torch.tensor(valid_lens)
    seen = Band() if causal else None if mask is None else torch.from_numpy(mask)
    q, k, v = leaves.values()
    output, weights = multi_head_attention_loops(layer, q, k, v, lens, mask=seen)
    (output * cotangent).sum().backward()
    case = to_arrays(layer)
    for name, parameter in layer.named_parameters():
        matrix, part = name.split(".")
        assert parameter.grad is not None
        case[f"d_{matrix if part == 'weight' else 'b' + matrix[1:]}"] = parameter.grad.numpy()
    for name, leaf in leaves.items():
        case[name] = leaf.detach().numpy()
        case[f"d_{name}"] = np.zeros(leaf.shape) if leaf.grad is None else leaf.grad.numpy()
    case |= {"output": output.detach().numpy(), "weights": weights.detach().numpy(), "cotangent": cotangent.numpy()}
    case["num_heads"] = np.array(num_heads)
    case["causal"] = np.array(causal)
    if valid_lens is not None:
        case["valid_lens"] = np.array(valid_lens, np.int32)
    if mask is not None:
        case["mask"] = mask
    return case


def make_cases() -> dict[str, dict[str, np.ndarray]]:
    """Property -> a case for it. All sizes differ, so that no axis can be taken for another."""
    mask = np.random.default_rng(0).random((B, h, Q, K)) < 0.6
    mask[..., 0] = True
    return {
        "forward": make_case(1),
        "no bias": make_case(2, bias=False),
        "mask": make_case(3, mask=mask),
        "all at once": make_case(9, mask=mask, valid_lens=[[3, 4, 5, 6], [7, 5, 3, 2]]),
        "valid_lens": make_case(4, valid_lens=[3, 5]),
        "valid_lens per query": make_case(5, valid_lens=[[1, 2, 3, 4], [7, 5, 3, 1]]),
        "causal": make_case(6, causal=True, sizes=(B, Q, Q, D, h)),
        "no keys": make_case(7, valid_lens=[3, 0]),
        "D2L's check": make_case(8, sizes=(2, 4, 6, 100, 5), bias=False, valid_lens=[3, 2]),
    }


def write_cases(path: Path) -> None:
    cases = make_cases().items()
    arrays: dict[str, Any] = {f"{name}/{field}": array for name, case in cases for field, array in case.items()}
    np.savez(path, **arrays)


def python_in(environment: str) -> Path:
    """Where a virtual environment of that name has its interpreter."""
    return FOLDER / environment / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def python_of(run: str) -> Path | None:
    """The interpreter that has the framework, or `None`."""
    asked_for = RUNS[run]
    python = python_in(asked_for.environment) if asked_for.environment else Path(sys.executable)
    if not python.exists():
        return None
    asked = f"import sys; from importlib.util import find_spec; sys.exit(find_spec({asked_for.needs!r}) is None)"
    return python if subprocess.run([python, "-c", asked], check=False).returncode == 0 else None


def run_cases(run: str, python: Path, cases: Path, dtypes: Sequence[str] = DTYPES, sharp: bool = False) -> Found:
    """Run the layers of one framework in a process of its own; `sharp`, only what sees most mistakes.

    Raises:
        RuntimeError: it failed; the message has what it printed.
    """
    options = ["--sharp"] if sharp else []
    quiet = {**QUIET, "KERAS_HOME": str(cases.parent / "keras")}
    return _said(run, [python, "-m", "tools.evidence.frameworks.measure", run, cases, *options, *dtypes], quiet)


def run_times(run: str, python: Path) -> dict[str, Any]:
    """Versions and times of our layer in one framework, and the day; every library gets one thread.

    Raises:
        RuntimeError: it failed; the message has what it printed.
    """
    environment = {name: value for name, value in QUIET.items() if name != "XLA_FLAGS"} | ONE_THREAD
    found = _said(run, [python, "-m", "tools.evidence.frameworks.measure", run, "--times"], environment)
    return {"date": time.strftime("%Y-%m-%d", time.gmtime()), **found}


def _said(run: str, command: Sequence[str | Path], environment: dict[str, str]) -> Any:
    """What a process prints in its last line, as JSON."""
    done = subprocess.run(
        [str(word) for word in command],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{run} failed:\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def base_python(environment: str) -> str:
    """The interpreter to make an environment with: this one, or 3.11 for MXNet, whose NumPy has no later wheels."""
    if environment != "mxnet" or sys.version_info[:2] == (3, 11):
        return sys.executable
    python = shutil.which("python3.11")
    if python is None:
        sys.exit("MXNet 1.9.1 needs NumPy 1.23, which needs Python 3.11, and there is no python3.11 on the PATH")
    return python


def install(environment: str) -> None:
    """Make one of the two environments, from its requirements, unless it is there as they say; and its kernel."""
    needs = ROOT / f"requirements-{environment}.txt"
    folder = FOLDER / environment
    stamp = folder / "installed.txt"
    known = stamp.exists() and stamp.read_text(encoding="utf-8") == needs.read_text(encoding="utf-8")
    if known and (KERNELS / f"kernels/mhalib-{environment}").exists():
        return
    print(f"== environment: .frameworks/{environment} (once; a few minutes)", flush=True)
    subprocess.run([base_python(environment), "-m", "venv", "--clear", str(folder)], check=True)
    python = str(python_in(environment))
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "-r", str(needs)], check=True)
    # Its kernel, in a folder of this repository and not in the user's home
    name = ["--name", f"mhalib-{environment}", "--display-name", f"{TITLES[environment]} (make frameworks)"]
    quiet = [word for pair in QUIET.items() for word in ("--env", *pair)]
    subprocess.run(
        [python, "-m", "ipykernel", "install", "--prefix", str(FOLDER / "jupyter"), *name, *quiet], check=True
    )
    stamp.write_text(needs.read_text(encoding="utf-8"), encoding="utf-8")


def shown(value: float | str) -> str:
    """0 is 0: only sums in another order leave 1e-16."""
    if isinstance(value, str):
        return "–" if value == UNABLE else value
    return "0" if value == 0 else f"{value:.0e}"


def table(found: Found, dtype: str) -> str:
    """Markdown: a line for each layer, a column for each property."""
    properties = list(dict.fromkeys(name for one in found.values() for name in one[dtype]))
    rows = [[name, *(shown(one[dtype].get(column, UNABLE)) for column in properties)] for name, one in found.items()]
    lines = [["", *properties], ["---", *["---:"] * len(properties)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write(found: Found) -> None:
    """One digit is kept: another machine sums in another order, and only the size of a deviation says something."""
    kept = {
        name: {
            dtype: {key: one if isinstance(one, str) else float(f"{one:.0e}") for key, one in properties.items()}
            for dtype, properties in dtypes.items()
        }
        for name, dtypes in found.items()
    }
    order = [name for run in RUNS for name in names_of(run)]
    kept = dict(sorted(kept.items(), key=lambda item: order.index(item[0])))
    write_whole(FILE, json.dumps(kept, indent=1, ensure_ascii=False) + "\n")


def write_times(found: dict[str, Any]) -> None:
    """Two digits are kept; a quiet machine measures no more."""
    for one in found.values():
        one["times"] = {
            size: {name: float(f"{ratio:.2g}") for name, ratio in ratios.items()}
            for size, ratios in one["times"].items()
        }
    write_whole(TIMES, json.dumps(dict(sorted(found.items())), indent=1, ensure_ascii=False) + "\n")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", metavar="RUN", help=f"of {', '.join(RUNS)}; all, unless you say")
    parser.add_argument("--install", action="store_true", help="make the environments of TensorFlow and MXNet first")
    parser.add_argument("--store", action="store_true", help="write what is measured into the package")
    asked = parser.parse_args(arguments)
    if unknown := set(asked.runs) - set(RUNS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(RUNS)}")
    runs = asked.runs or list(RUNS)
    if asked.install:
        for environment in dict.fromkeys(filter(None, (RUNS[run].environment for run in runs))):
            install(environment)
    found, timed, missing = measure(runs)
    for dtype in DTYPES:
        print(f"\n{dtype}\n\n{table(found, dtype)}")
    print(f"\n{NAN}: not a number. –: the layer cannot, or does not return it.\n")
    for one in timed.values():
        for size, ratios in one["times"].items():
            for name, ratio in ratios.items():
                print(f"{size} tokens: {name} takes {ratio:.2f} times as long as NumPy")
    if wrong := list(unexpected(found)):
        sys.exit("not as tools/evidence/frameworks/expected.py says:\n" + "\n".join(wrong))
    if asked.store:
        write({**(deviations() if FILE.exists() else {}), **found})
        write_times({**(times() if TIMES.exists() else {}), **timed})
    if missing and asked.install:
        sys.exit(f"no environment has {', '.join(missing)}")


def measure(runs: Sequence[str]) -> tuple[Found, dict[str, Any], list[str]]:
    """Deviations and times of those frameworks that are installed, and the names of those that are not."""
    found: Found = {}
    timed, missing = {}, []
    with tempfile.TemporaryDirectory() as folder:
        cases = Path(folder) / "cases.npz"
        write_cases(cases)
        for run in runs:
            python = python_of(run)
            if python is None:
                missing.append(run)
                print(f"{run}: not installed")
                continue
            begin = time.perf_counter()
            found |= run_cases(run, python, cases)
            if run in TIMED:
                timed[run] = run_times(run, python)
            print(f"{run}: {time.perf_counter() - begin:.0f} s", flush=True)
    return found, timed, missing


if __name__ == "__main__":
    main()
