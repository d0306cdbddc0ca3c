"""One matrix: layer x property x dtype, each framework in a process of its own, against loops in float64.

`make frameworks` runs the same with TensorFlow and MXNet, and in float32 everywhere; here, what is not installed skips.
"""

import framework_case
import frameworks
import numpy as np
import pytest
import torch
from framework_case import NAN, PROPERTIES, UNABLE, Case
from framework_layers import RUNS, Call, Torch, names_of

from mhalib import reference

EXACT, SINGLE = 1e-10, 1e-5
DTYPES = {run: ("float32", "float64") if run == "torch" else ("float64",) for run in RUNS}
EMPTY, SILENT = "no keys", "no keys, without weights"
OURS = {"PyTorch", "JAX functions", "Flax nnx", "TensorFlow functions (tf.nn)", "MXNet Gluon"}
OURS |= {f"Keras on {backend}" for backend in ("torch", "jax", "tensorflow")}
KERAS = [f"keras.layers.MultiHeadAttention on {backend}" for backend in ("torch", "jax", "tensorflow")]
FUNCTION, LINEN = "jax.nn.dot_product_attention", "flax.linen.MultiHeadDotProductAttention"
NNX = "flax.nnx.MultiHeadAttention"
FLOAT32_INSIDE = {  # float64 goes in and comes out, and float32 is somewhere between
    **{(FUNCTION, name): 3e-6 for name in PROPERTIES},
    **{(NNX, name): 3e-6 for name in PROPERTIES},
    **{(KERAS[2], name): 3e-6 for name in PROPERTIES},
    **{(name, "without weights"): 3e-6 for name in KERAS},
}
EVEN = "spreads its weight evenly"
DIFFERENT = {  # what a query without keys gets elsewhere
    ("torch.nn.MultiheadAttention", EMPTY): NAN,
    **{(name, place): EVEN for name in ("D2L's layer in PyTorch", FUNCTION, LINEN, NNX) for place in (EMPTY, SILENT)},
    **{(name, SILENT): EVEN for name in KERAS},
}
CANNOT = {
    ("torch scaled_dot_product_attention", "weights"),
    (FUNCTION, "weights"),
    ("D2L's layer in PyTorch", "mask"),
    *((name, "cache") for name in ("torch.nn.MultiheadAttention", "torch scaled_dot_product_attention", LINEN)),
    *((name, "cache") for name in ("D2L's layer in PyTorch", FUNCTION, *KERAS)),
    *((name, "compiled") for name in ("torch.nn.MultiheadAttention", "torch scaled_dot_product_attention")),
    *((name, "compiled") for name in ("D2L's layer in PyTorch", "Keras on torch", KERAS[0], "MXNet Gluon")),
}
MATRIX = [(run, name, dtype) for run in RUNS for name in names_of(run) for dtype in DTYPES[run]]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Run a framework once, when the first of its layers is asked for."""
    cases = tmp_path_factory.mktemp("frameworks") / "cases.npz"
    frameworks.write_cases(cases)
    kept = {}

    def of(run):
        if run not in kept:
            python = frameworks.python_of(run)
            if python is None:
                pytest.skip(f"no environment has {run}: make frameworks")
            kept[run] = frameworks.run_cases(run, python, cases, DTYPES[run])
        return kept[run]

    return of


def judge(name, dtype, where, deviation):
    """Raise unless a deviation is what the lists above say."""
    expected = DIFFERENT.get((name, where))
    if (name, where) in CANNOT:
        assert deviation == UNABLE
    elif expected == NAN:
        assert deviation == NAN
    elif expected == EVEN:
        assert 0.1 < deviation < 10
    else:
        bound = SINGLE if dtype == "float32" else FLOAT32_INSIDE.get((name, where), EXACT)
        assert deviation <= bound


@pytest.mark.parametrize(("run", "name", "dtype"), MATRIX)
@pytest.mark.parametrize("where", PROPERTIES)
def test_the_layer_computes_what_loops_compute(found, run, name, dtype, where):
    judge(name, dtype, where, found(run)[name][dtype][where])


def test_ours_differ_nowhere_from_the_book():
    kinds = [pair for run in RUNS for pair in zip(names_of(run), RUNS[run], strict=True)]
    assert {name for name, kind in kinds if not kind.own} == OURS
    assert not OURS & {name for name, _ in (*FLOAT32_INSIDE, *DIFFERENT)}


def test_the_stored_table_has_every_layer_and_says_the_same():
    stored = reference.deviations()
    assert list(stored) == list(dict.fromkeys(name for run in RUNS for name in names_of(run)))
    for name, dtypes in stored.items():
        for dtype, properties in dtypes.items():
            assert sorted(properties) == sorted(PROPERTIES)
            for where, deviation in properties.items():
                judge(name, dtype, where, deviation)


class Broken(Torch):
    """Ours, with a mistake that ports have, and without what takes long."""

    def compiled(self, layer, call):
        return None

    def decode(self, layer, x):
        return None


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


ALWAYS = {"forward", "gradients of inputs", "gradients of weights", "no bias", "mask", "valid_lens"}
ALWAYS |= {"valid_lens per query", "causal", "D2L's check", "without weights", EMPTY, SILENT}


@pytest.mark.parametrize(
    ("broken", "places"),
    [
        (Broken, set()),
        (HeadsFromTokens, ALWAYS | {"weights", "dropout off"}),
        (ValuesBeforeKeys, ALWAYS | {"weights", "dropout off"}),
        (MaskUpsideDown, {"mask"}),
        (WeightsNotTransposed, ALWAYS | {"weights", "dropout off", "there and back"}),
        (EvenWithoutKeys, {EMPTY, SILENT}),
    ],
)
def test_a_mistake_in_a_port_is_seen_where_it_is(broken, places, tmp_path):
    frameworks.write_cases(tmp_path / "cases.npz")
    cases = framework_case.read(tmp_path / "cases.npz")
    layer = broken()
    deviations = framework_case.measure(layer, {name: Case(case, "float64") for name, case in cases.items()})
    seen = {name for name, one in deviations.items() if one != UNABLE and not (one != NAN and one <= EXACT)}
    assert seen == places
    assert {name for name, one in deviations.items() if one == UNABLE} == {"cache", "compiled"}


def test_another_shape_or_dtype_is_no_answer():
    expected = np.zeros((2, 3), np.float64)
    for wrong in (np.zeros((3, 2)), np.zeros((2, 3), np.float32), torch.zeros(2, 3)):
        with pytest.raises(AssertionError, match="instead of"):
            framework_case.deviation(wrong, expected)
    assert framework_case.largest([0.0, float("nan")]) == NAN


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
    monkeypatch.setattr(frameworks.subprocess, "run", run)
    (tmp_path / "requirements-mxnet.txt").write_text("mxnet==1.9.1\n", encoding="utf-8")
    return ran


def test_an_environment_is_made_once_and_again_when_its_pins_change(commands, tmp_path, monkeypatch):
    monkeypatch.setattr(frameworks.sys, "version_info", (3, 11, 9))
    frameworks.install("mxnet")
    assert [command[1:3] for command in commands] == [["-m", "venv"], ["-m", "pip"]]
    assert commands[1][0].startswith(str(tmp_path / ".frameworks/mxnet"))
    assert commands[1][-2:] == ["-r", str(tmp_path / "requirements-mxnet.txt")]
    frameworks.install("mxnet")
    assert len(commands) == 2
    (tmp_path / "requirements-mxnet.txt").write_text("mxnet==1.9.2\n", encoding="utf-8")
    frameworks.install("mxnet")
    assert len(commands) == 4


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
