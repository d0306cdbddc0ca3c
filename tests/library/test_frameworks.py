"""One matrix: layer x property x dtype, each framework in a process of its own, against loops in float64.

Here, the frameworks of the book's environment, in float64, and the few properties that see most mistakes; of Keras, on
one backend. The whole matrix, with Keras on JAX, TensorFlow and MXNet, in float32 too, is what `make frameworks` runs
and holds against the same lists, once a week.
"""

import functools
import json
import re

import numpy as np
import pytest
import torch

from mhalib import reference
from tools.evidence.frameworks import RUNS, TIMED, Call, UnableError, kinds_of, measure, names_of
from tools.evidence.frameworks import __main__ as frameworks
from tools.evidence.frameworks.expected import DIFFERENT, EMPTY, EXACT, FLOAT32_INSIDE, SILENT, unexpected
from tools.evidence.frameworks.in_torch import Torch
from tools.evidence.frameworks.measure import NAN, PROPERTIES, SHARP, UNABLE, Case

pytestmark = pytest.mark.package

OURS = {"PyTorch", "JAX functions", "Flax nnx", "TensorFlow functions (tf.nn)", "MXNet Gluon"}
OURS |= {f"Keras on {backend}" for backend in ("torch", "jax", "tensorflow")}
HERE = ("torch", "jax", "keras-torch")  # what the environment of the book has, but for Keras on JAX


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Run a framework once, when the first of its layers is asked for."""
    cases = tmp_path_factory.mktemp("frameworks") / "cases.npz"
    frameworks.write_cases(cases)

    @functools.cache
    def of(run):
        return frameworks.run_cases(run, frameworks.python_of(run), cases, ("float64",), sharp=True)

    return of


@pytest.mark.parametrize(("run", "name"), [(run, name) for run in HERE for name in names_of(run)])
def test_the_layer_computes_what_loops_compute(found, run, name):
    deviations = found(run)[name]["float64"]
    assert set(SHARP) - set(deviations) <= {"causal"}
    assert not list(unexpected({name: {"float64": deviations}}))


def test_ours_differ_nowhere_from_the_book():
    kinds = [pair for run in RUNS for pair in zip(names_of(run), kinds_of(run), strict=True)]
    assert {name for name, kind in kinds if not kind.own} == OURS
    assert not OURS & {name for name, _ in (*FLOAT32_INSIDE, *DIFFERENT)}


def test_the_stored_table_has_every_layer_and_says_the_same():
    stored = reference.deviations()
    assert list(stored) == list(dict.fromkeys(name for run in RUNS for name in names_of(run)))
    for dtypes in stored.values():
        for properties in dtypes.values():
            assert sorted(properties) == sorted(PROPERTIES)
    assert not list(unexpected(stored))


def test_stored_times_are_of_the_versions_that_are_pinned():
    stored = reference.times()
    assert set(stored) == set(TIMED)
    for run, one in stored.items():
        environment = RUNS[run].environment
        pins = f"requirements-{environment}.txt" if environment else "requirements.txt"
        pinned = dict(
            re.findall(r"^(\w+)(?:-cpu)?==([\w.]+)", (frameworks.ROOT / pins).read_text("utf-8"), re.MULTILINE)
        )
        assert one["versions"].items() <= pinned.items()
        assert list(one["times"]) == list(measure.SIZES)
        assert all(0 < ratio < 100 for times in one["times"].values() for ratio in times.values())


class Unscaled(Torch):
    def make(self, arrays, num_heads, dropout=0.0):
        return super().make({**arrays, "W_q": arrays["W_q"] * 2}, num_heads, dropout)


def test_what_computes_something_else_is_not_timed():
    found = measure.time_passes(Torch(), (2, 3), 1)
    assert list(found) == ["PyTorch, eager"]
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        measure.time_passes(Unscaled(), (2, 3), 1)


def test_a_deviation_that_nobody_expects_is_named():
    known = {"torch.nn.MultiheadAttention": {"float64": {EMPTY: NAN, "forward": 1e-15, "cache": UNABLE}}}
    assert list(unexpected(known)) == []
    for name, where, deviation in (
        ("torch.nn.MultiheadAttention", EMPTY, 0.0),  # better than is known is worth a look, too
        ("torch.nn.MultiheadAttention", "forward", 1e-9),
        ("torch.nn.MultiheadAttention", "cache", 0.0),
        ("PyTorch", "forward", NAN),
        ("PyTorch", "forward", UNABLE),
        ("PyTorch", EMPTY, 1.0),
        ("D2L's layer in PyTorch", EMPTY, 1e-16),
    ):
        assert list(unexpected({name: {"float64": {where: deviation}}})) == [f"{name}, float64, {where}: {deviation}"]
    assert list(unexpected({"PyTorch": {"float32": {"forward": 1e-9}}})) == []


def test_the_tool_stores_only_if_asked_and_never_what_is_wrong(tmp_path, monkeypatch):
    found = {"PyTorch": {dtype: {"forward": 1.26e-16} for dtype in ("float32", "float64")}}
    timed = {"torch": {"date": "2026-01-02", "versions": {}, "times": {"1 × 16": {"PyTorch, eager": 1.2345}}}}
    monkeypatch.setattr(frameworks, "measure", lambda runs: (found, timed, []))
    monkeypatch.setattr(frameworks, "FILE", tmp_path / "deviations.json")
    monkeypatch.setattr(frameworks, "TIMES", tmp_path / "times.json")
    frameworks.main(["torch"])
    assert not [*tmp_path.iterdir()]
    frameworks.main(["--store", "torch"])
    assert json.loads((tmp_path / "deviations.json").read_text("utf-8"))["PyTorch"]["float64"] == {"forward": 1e-16}
    assert json.loads((tmp_path / "times.json").read_text("utf-8"))["torch"]["times"]["1 × 16"]["PyTorch, eager"] == 1.2
    stored = (tmp_path / "deviations.json").read_bytes()
    found["PyTorch"]["float64"]["forward"] = 1e-3
    with pytest.raises(SystemExit, match=r"not as .*says:\nPyTorch, float64, forward: 0.001"):
        frameworks.main(["--store", "torch"])
    assert (tmp_path / "deviations.json").read_bytes() == stored


class Broken(Torch):
    """Ours, with a mistake that ports have, and without what takes long."""

    def compiled(self, layer, call):
        raise UnableError("takes long")

    def new_cache(self, layer, x):
        raise UnableError("takes long")


class HeadsFromTokens(Broken):  # reshape(B, h, N, d): the right shape, and heads made of tokens
    def forward(self, layer, inputs, call):
        layer.project = lambda *x: tuple(
            part(one).reshape(len(one), layer.num_heads, one.shape[1], -1)
            for part, one in zip((layer.W_q, layer.W_k, layer.W_v), x, strict=True)
        )
        return super().forward(layer, inputs, call)


class ValuesBeforeKeys(Broken):  # as Keras has them
    def forward(self, layer, inputs, call):
        queries, keys, values = inputs
        return super().forward(layer, [queries, values, keys], call)


class MaskUpsideDown(Broken):  # as torch has it
    def forward(self, layer, inputs, call):
        return super().forward(layer, inputs, call._replace(mask=None if call.mask is None else ~call.mask))


class WeightsNotTransposed(Broken):  # as Keras and Flax multiply
    def make(self, arrays, num_heads, dropout=0.0):
        turned = {name: array.T.copy() for name, array in arrays.items()}
        return super().make(turned, num_heads, dropout)


class EvenWithoutKeys(Broken):  # as D2L has it
    def forward(self, layer, inputs, call):
        layer.softmax = lambda scores, mask: (
            scores.masked_fill(~mask, -1e6).softmax(-1) if mask is not None else (scores.softmax(-1))
        )
        return super().forward(layer, inputs, call._replace(weights=True))


@pytest.fixture(scope="module")
def broken_cases(tmp_path_factory):
    path = tmp_path_factory.mktemp("broken") / "cases.npz"
    frameworks.write_cases(path)
    return {name: Case(case, "float64") for name, case in measure.read(path).items()}


ALWAYS = {"forward", "gradients of inputs", "gradients of weights", "no bias", "mask", "valid_lens", "all at once"}
ALWAYS |= {"valid_lens per query", "causal", "D2L's check", "without weights", EMPTY, SILENT}


@pytest.mark.parametrize(
    ("broken", "places"),
    [
        (Broken, set()),
        (HeadsFromTokens, ALWAYS | {"weights", "dropout off"}),
        (ValuesBeforeKeys, ALWAYS | {"weights", "dropout off"}),
        (MaskUpsideDown, {"mask", "all at once"}),
        (WeightsNotTransposed, ALWAYS | {"weights", "dropout off", "there and back"}),
        (EvenWithoutKeys, {EMPTY, SILENT}),
    ],
)
def test_a_mistake_in_a_port_is_seen_where_it_is(broken, places, broken_cases):
    layer = broken()
    deviations = measure.measure(layer, broken_cases)
    seen = {name for name, one in deviations.items() if one != UNABLE and not (one != NAN and one <= EXACT)}
    assert seen == places
    assert {name for name, one in deviations.items() if one == UNABLE} == {"cache", "compiled"}
    sharply = measure.measure_sharply(layer, broken_cases)
    assert {name for name, one in sharply.items() if one == NAN or one > EXACT} == places & set(SHARP)
    assert bool(places) == bool(places & set(SHARP))  # the few see each of these


def test_another_shape_or_dtype_is_no_answer():
    expected = np.zeros((2, 3), np.float64)
    for wrong in (np.zeros((3, 2)), np.zeros((2, 3), np.float32), torch.zeros(2, 3)):
        with pytest.raises(AssertionError, match="instead of"):
            measure.deviation(wrong, expected)
    assert measure.largest([0.0, float("nan")]) == NAN


def test_a_call_joins_its_masks():
    x, mask = np.zeros((2, 3, 6)), np.ones((2, 1, 3, 3), bool)
    mask[:, :, :, 1] = False
    joined = Call((x, x, x), np.array([3, 2]), mask, causal=True).full_mask(2)
    assert joined.shape == (2, 2, 3, 3)
    np.testing.assert_array_equal(joined[0, 0], [[1, 0, 0], [1, 0, 0], [1, 0, 1]])
    np.testing.assert_array_equal(joined[1, 1], [[1, 0, 0], [1, 0, 0], [1, 0, 0]])
    assert Call((x, x, x)).full_mask(2) is None


def test_a_failing_framework_is_reported_with_what_it_printed(tmp_path):
    with pytest.raises(RuntimeError, match=r"torch failed(.|\n)*No such file"):
        frameworks.run_cases("torch", frameworks.python_of("torch"), tmp_path / "none.npz")


def test_the_table_shows_a_line_for_each_layer():
    found = {"A": {"float64": {"forward": 0.0, "weights": NAN}}, "B": {"float64": {"forward": 1.23e-7}}}
    assert frameworks.table(found, "float64").splitlines() == [
        "|  | forward | weights |",
        "| --- | ---: | ---: |",
        "| A | 0 | NaN |",
        "| B | 1e-07 | – |",
    ]


@pytest.fixture
def commands(tmp_path, monkeypatch):
    """What would be run to make an environment in an empty folder."""
    ran = []

    def run(command, **options):
        ran.append([str(part) for part in command])
        frameworks.FOLDER.joinpath("mxnet").mkdir(parents=True, exist_ok=True)

    monkeypatch.setattr(frameworks, "ROOT", tmp_path)
    monkeypatch.setattr(frameworks, "FOLDER", tmp_path / ".frameworks")
    monkeypatch.setattr(frameworks, "KERNELS", tmp_path / ".frameworks/jupyter/share/jupyter")
    monkeypatch.setattr(frameworks.subprocess, "run", run)
    (tmp_path / "requirements-mxnet.txt").write_text("mxnet==1.9.1\n", encoding="utf-8")
    return ran


def test_an_environment_is_made_once_and_again_when_its_pins_change(commands, tmp_path, monkeypatch):
    monkeypatch.setattr(frameworks.sys, "version_info", (3, 11, 9))
    frameworks.install("mxnet")
    assert [command[1:3] for command in commands] == [["-m", "venv"], ["-m", "pip"], ["-m", "ipykernel"]]
    assert commands[1][0] == commands[2][0] == str(tmp_path / ".frameworks/mxnet/bin/python")
    assert commands[1][-2:] == ["-r", str(tmp_path / "requirements-mxnet.txt")]
    said = " ".join(commands[2])
    assert f"--prefix {tmp_path / '.frameworks/jupyter'} --name mhalib-mxnet " in said  # not in the user's home
    assert "--env JAX_PLATFORMS cpu" in said
    frameworks.install("mxnet")  # as a kernel is missing, which nothing has made here
    assert len(commands) == 6
    (frameworks.KERNELS / "kernels/mhalib-mxnet").mkdir(parents=True)
    frameworks.install("mxnet")
    assert len(commands) == 6
    (tmp_path / "requirements-mxnet.txt").write_text("mxnet==1.9.2\n", encoding="utf-8")
    frameworks.install("mxnet")
    assert len(commands) == 9


def test_mxnet_gets_the_python_that_its_numpy_has(monkeypatch):
    monkeypatch.setattr(frameworks.sys, "version_info", (3, 13, 0))
    monkeypatch.setattr(frameworks.shutil, "which", {"python3.11": "/there/python3.11"}.get)
    assert frameworks.base_python("mxnet") == "/there/python3.11"
    assert frameworks.base_python("tensorflow") == frameworks.sys.executable
    monkeypatch.setattr(frameworks.shutil, "which", lambda name: None)
    with pytest.raises(SystemExit, match=r"there is no python3.11 on the PATH"):
        frameworks.base_python("mxnet")


def test_only_frameworks_that_there_are_can_be_asked_for(capsys):
    with pytest.raises(SystemExit):
        frameworks.main(["torhc"])
    assert "unknown: torhc; there are torch, jax" in capsys.readouterr().err
