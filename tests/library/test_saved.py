"""Files of weights: what comes back is what was stored, and nothing else is taken for it."""

import hashlib
import json
import os
import pickle
import re
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from mhalib import saved
from mhalib.models import CLIP, GPT, MODELS, Captioner, PictureReader, SentenceReader, Transformer, ViT

ABOUT = saved.About("a task", ("exact match", 0.75), "python -m tools.evidence.train some_name")


def _tokens(vocab_size, *shape):
    return torch.randint(vocab_size, shape)


EXAMPLES = {
    "GPT": (
        lambda: GPT(7, 12, 3, 2, 11, 0.1, max_tokens=13, norm="post", positions="learned"),
        lambda: (_tokens(7, 2, 5),),
    ),
    "Transformer": (
        lambda: Transformer(5, 7, 12, 2, 2, 11, max_tokens=9, positions="rotary"),
        lambda: (_tokens(5, 3, 4), _tokens(7, 3, 6), torch.tensor([4, 2, 1])),
    ),
    "ViT": (lambda: ViT(3, 6, 4, 2, 10, 5, 1, 7, norm="post"), lambda: (torch.randn(2, 6, 4),)),
    "Captioner": (
        lambda: Captioner(5, 4, 8, 4, 12, 3, 2, 11, max_tokens=6),
        lambda: (torch.randn(2, 4, 8), _tokens(5, 2, 3)),
    ),
    "PictureReader": (
        lambda: PictureReader(5, 3, 4, 8, 2, 12, 3, 2, 11, max_tokens=6),
        lambda: (torch.randn(2, 4, 8), _tokens(5, 2, 3), torch.tensor([3, 1])),
    ),
    "CLIP": (
        lambda: CLIP(5, 6, 10, 2, 2, 7, max_tokens=4, pictures={"norm_tokens": True, "num_heads": 8}),
        lambda: (torch.randn(2, 3, 8, 8), _tokens(5, 3, 4), torch.tensor([4, 1, 2])),
    ),
    "SentenceReader": (
        lambda: SentenceReader(7, 3, 12, 2, max_tokens=5, positions="rotary"),
        lambda: (_tokens(7, 3, 6), torch.tensor([6, 1, 3])),
    ),
}


def _model(name="GPT"):
    torch.manual_seed(0)
    return EXAMPLES[name][0]().eval()


@pytest.fixture
def path(tmp_path):
    """Of a GPT."""
    saved.write(_model(), tmp_path / "gpt.safetensors", ABOUT)
    return tmp_path / "gpt.safetensors"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A package with two models."""
    monkeypatch.setattr(saved, "FOLDER", tmp_path)
    hashes = {name: saved.write(_model(kind), tmp_path / f"{name}.safetensors", ABOUT) for name, kind in _SHIPPED}
    (tmp_path / saved.HASHES).write_text(json.dumps(hashes))
    return tmp_path


_SHIPPED = (("seer", "ViT"), ("babbler", "GPT"))


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_model_comes_back_within_half_precision(name, tmp_path, device):
    model, inputs = _model(name), EXAMPLES[name][1]()
    saved.write(model.to(device), tmp_path / "x", ABOUT)
    found = saved.read(tmp_path / "x")
    assert type(found) is type(model)
    assert found.settings == model.settings
    assert not found.training
    assert all(p.requires_grad and p.device.type == "cpu" and p.dtype == torch.float32 for p in found.parameters())
    for (key, x), (other, y) in zip(model.state_dict().items(), found.state_dict().items(), strict=True):
        assert key == other
        assert torch.equal(x.cpu().half().float(), y), key
    model.cpu().load_state_dict({key: value.half().float() for key, value in model.state_dict().items()})
    expected, weights = model(*inputs, need_weights=True)
    output, others = found(*inputs, need_weights=True)
    assert torch.equal(output, expected)
    assert weights.keys() == others.keys()


def test_every_small_model_is_tried_here():
    assert set(MODELS) - set(EXAMPLES) <= {"BERT"}


def test_a_model_that_came_back_can_be_trained_and_stored_again(path, tmp_path):
    model = saved.read(path)
    model(_tokens(7, 2, 5))[0].square().sum().backward()
    assert all(p.grad is not None for p in model.parameters())
    assert saved.write(model, tmp_path / "again", ABOUT) == hashlib.sha256(path.read_bytes()).hexdigest()


def test_reading_leaves_chance_alone(path):
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    saved.read(path)
    assert torch.equal(torch.rand(3), expected)


def test_a_file_is_half_precision_and_says_what_it_is(path):
    with safe_open(str(path), "pt") as file:
        assert {file.get_tensor(name).dtype for name in file.keys()} == {torch.float16}  # noqa: SIM118
        metadata = file.metadata()
    assert json.loads(metadata["mhalib"]) == {
        "model": "GPT",
        "settings": _model().settings,
        "removed heads": [],
        "about": {
            "task": "a task",
            "metric": ["exact match", 0.75],
            "command": "python -m tools.evidence.train some_name",
        },
    }


def test_equal_models_give_equal_files(tmp_path):
    hashes = {saved.write(_model(), tmp_path / name, ABOUT) for name in "ab"}
    assert hashes == {hashlib.sha256((tmp_path / "a").read_bytes()).hexdigest()}


def test_a_metric_may_be_a_tensor(tmp_path):
    about = saved.About("a task", ("accuracy", torch.tensor(0.5)), "a command")
    saved.write(_model(), tmp_path / "x", about)
    assert saved._read_header(tmp_path / "x").about.metric == ("accuracy", 0.5)


@pytest.mark.parametrize("moment", ["write_bytes", "replace"])
def test_writing_is_done_in_one_piece(moment, path, monkeypatch):
    """Broken off, it leaves the earlier file and nothing beside it."""
    before = path.read_bytes()

    def broken(*args):
        if moment == "write_bytes":
            with open(args[0], "wb") as file:
                file.write(b"half of it")
        raise KeyboardInterrupt

    monkeypatch.setattr(Path if moment == "write_bytes" else os, moment, broken)
    with pytest.raises(KeyboardInterrupt):
        saved.write(_model("ViT"), path, ABOUT)
    assert path.read_bytes() == before
    assert [x.name for x in path.parent.iterdir()] == [path.name]


class _Stranger(torch.nn.Module):
    pass


_FalseGPT = type("GPT", (GPT,), {})


@pytest.mark.parametrize("model", [_Stranger(), _FalseGPT(3, 4, 2)], ids=["Stranger", "GPT"])
def test_a_foreign_model_is_not_written(model, tmp_path):
    with pytest.raises(TypeError, match="model must be one of \\['"):
        saved.write(model, tmp_path / "x", ABOUT)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("value", [70000.0, float("nan"), -float("inf")])
def test_weights_beyond_half_precision_are_not_written(value, tmp_path):
    model = _model()
    model.readout.weight.data[1, 2] = value
    with pytest.raises(ValueError, match=re.escape("float16: ['readout.weight'] would hold numbers that are not")):
        saved.write(model, tmp_path / "x", ABOUT)
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_was_cut_is_not_written(tmp_path):
    """Its settings would make another one."""
    model = _model()
    del model.decoder.layers[1]
    with pytest.raises(ValueError, match=r"has not the shape that model\.settings=\{'vocab_size': 7"):
        saved.write(model, tmp_path / "x", ABOUT)
    assert list(tmp_path.iterdir()) == []


def _rewrite(path, change):
    """Store the file again after `change` has had its tensors and metadata."""
    with safe_open(str(path), "pt") as file:
        metadata, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    change(tensors, metadata)
    save_file(tensors, str(path), metadata or None)


def _header(change):
    """Change what the file says of itself, and leave its tensors."""

    def changed(tensors, metadata):
        told = json.loads(metadata["mhalib"])
        change(told)
        metadata["mhalib"] = json.dumps(told)

    return changed


def _settings(**settings):
    return _header(lambda told: told["settings"].update(settings))


DAMAGES = {
    "no metadata": (lambda t, m: m.clear(), "was not written by mhalib.saved: its header has no 'mhalib'"),
    "another's metadata": (lambda t, m: (m.clear(), m.update(format="pt")), "its header has no 'mhalib'"),
    "no JSON": (lambda t, m: m.update(mhalib="GPT"), "has a damaged header"),
    "broken JSON": (lambda t, m: m.update(mhalib=m["mhalib"][:-3]), "has a damaged header"),
    "a list": (lambda t, m: m.update(mhalib="[1, 2]"), "has a damaged header"),
    "no class": (_header(lambda told: told.pop("model")), "has a damaged header: KeyError('model')"),
    "no settings": (_header(lambda told: told.pop("settings")), "has a damaged header: KeyError('settings')"),
    "no about": (_header(lambda told: told.pop("about")), "has a damaged header: KeyError('about')"),
    "another class": (_header(lambda told: told.update(model="LSTM")), "holds a 'LSTM', which is none of ["),
    "a class that is a list": (_header(lambda told: told.update(model=["GPT"])), "holds a ['GPT'], which is none of ["),
    "one of ours": (_header(lambda told: told.update(model="ViT")), "does not hold a model of this package"),
    "settings are a list": (_header(lambda told: told.update(settings=[1, 2])), "has a damaged header"),
    "settings are a number": (_header(lambda told: told.update(settings=7)), "has a damaged header"),
    "about is a text": (_header(lambda told: told.update(about="a task")), "has a damaged header"),
    "about without metric": (_header(lambda told: told["about"].pop("metric")), "KeyError('metric')"),
    "a metric without value": (_header(lambda told: told["about"].update(metric=["a"])), "has a damaged header"),
    "a metric of words": (_header(lambda told: told["about"].update(metric=["a", "b"])), "has a damaged header"),
    "wider": (_settings(num_hiddens=24), "size mismatch"),
    "far wider": (_settings(num_hiddens=3 * 2**28), "size mismatch"),
    "deeper": (_settings(num_layers=3), "Missing key"),
    "flatter": (_settings(num_layers=1), "Unexpected key"),
    "unknown setting": (_settings(depth=1), "unexpected keyword argument 'depth'"),
    "a setting that is none": (_settings(num_heads=5), "not divisible by num_heads=5"),
    "a setting of another kind": (_settings(num_layers="2"), "num_layers must be an integer"),
    "a missing tensor": (lambda t, m: t.pop("readout.bias"), 'Missing key(s) in state_dict: "readout.bias"'),
    "an extra tensor": (lambda t, m: t.update(more=torch.ones(2)), 'Unexpected key(s) in state_dict: "more"'),
    "another shape": (lambda t, m: t.update({"readout.bias": torch.ones(8)}), "size mismatch for readout.bias"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_file_that_says_something_else_is_refused(damage, path):
    change, message = DAMAGES[damage]
    _rewrite(path, change)
    with pytest.raises(ValueError, match=re.escape(f"path={str(path)!r} ")) as caught:
        saved.read(path)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "kind", ["truncated", "header only", "empty", "text", "pickle", "torch", "zeros", "huge header"]
)
def test_a_file_of_another_kind_is_refused(kind, path, tmp_path):
    whole = path.read_bytes()
    if kind == "torch":
        torch.save({"model": _Evil(tmp_path / "loaded")}, path)
    else:
        path.write_bytes(
            {
                "truncated": whole[:-1],
                "header only": whole[: 8 + int.from_bytes(whole[:8], "little")],
                "empty": b"",
                "text": b"these are the weights",
                "pickle": pickle.dumps(_Evil(tmp_path / "loaded")),
                "zeros": bytes(1000),
                "huge header": (2**60).to_bytes(8, "little") + whole[8:],
            }[kind]
        )
    with pytest.raises(ValueError, match=re.escape(f"path={str(path)!r} is not a safetensors file: ")):
        saved.read(path)
    assert not (tmp_path / "loaded").exists()


class _Evil:
    """A pickle of it makes a folder as soon as it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("name", ["missing", ""])
def test_a_file_that_is_not_there_is_named(name, tmp_path):
    with pytest.raises(ValueError, match=re.escape(f"path={str(tmp_path / name)!r} is not a file")):
        saved.read(tmp_path / name)


def test_the_models_of_the_package_are_told_and_loaded(folder, device):
    assert saved.names() == ["babbler", "seer"]
    assert saved.about("seer") == ABOUT
    model = saved.load("seer", device)
    assert type(model) is ViT
    assert not model.training
    assert {p.device.type for p in model.parameters()} == {device.type}
    assert type(saved.load("babbler")) is GPT


@pytest.mark.parametrize("ask", [saved.load, saved.about])
@pytest.mark.parametrize("name", ["nobody", "../seer", "seer.safetensors", "", None])
def test_an_unknown_name_is_refused(ask, name, folder):
    with pytest.raises(ValueError, match=re.escape(f"name={name!r} must be one of ['babbler', 'seer']")):
        ask(name)


def test_a_file_with_another_hash_is_refused(folder):
    """Even one whose weights can be read: a bit has flipped in the last of them."""
    path = folder / "seer.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    saved.read(path)
    found, expected = hashlib.sha256(content).hexdigest(), json.loads((folder / saved.HASHES).read_text())["seer"]
    with pytest.raises(ValueError, match=f"the weights of 'seer' are damaged: sha256 is {found}, not {expected}"):
        saved.load("seer")
    saved.load("babbler")


@pytest.mark.parametrize("hashes", [None, "{}"])
def test_a_file_without_a_hash_is_refused(hashes, folder):
    (folder / saved.HASHES).unlink()
    if hashes:
        (folder / saved.HASHES).write_text(hashes)
    with pytest.raises(ValueError, match=r"the weights of 'seer' are damaged: sha256 is \w+, not None"):
        saved.load("seer")


@pytest.mark.parametrize("name", saved.names())
def test_what_the_package_brings_is_whole(name):
    """No model is trained here: its size, its hash, what it says of itself."""
    assert (saved.FOLDER / f"{name}.safetensors").stat().st_size < 1_000_000
    assert saved.load(name).num_weights > 0
    about = saved.about(name)
    assert about.command == f"python -m tools.evidence.train {name}"
    assert about.task
    assert about.metric[0]


def test_every_hash_has_its_file():
    hashes = saved.FOLDER / saved.HASHES
    assert sorted(json.loads(hashes.read_text()) if hashes.exists() else {}) == saved.names()


def test_the_tool_trains_stores_and_notes_the_hash(tmp_path, monkeypatch, capsys):
    from tools.evidence import train as tool

    monkeypatch.setattr(saved, "FOLDER", tmp_path / "weights")
    monkeypatch.setattr(tool, "RECIPES", {"tiny": lambda: (_model(), ABOUT), "other": lambda: (_model("ViT"), ABOUT)})
    for name in ("tiny", "other", "tiny"):
        monkeypatch.setattr("sys.argv", ["train.py", name])
        tool.main()
    assert saved.names() == ["other", "tiny"]
    assert type(saved.load("tiny")) is GPT
    assert "tiny.safetensors: " in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["train.py", "nobody"])
    with pytest.raises(SystemExit):
        tool.main()
