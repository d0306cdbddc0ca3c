"""Names that are gone since version 0.3: who uses one is told the new one."""

import inspect
import subprocess
import sys

import pytest

import mhalib
from mhalib import _renamed, models
from mhalib.train import fit


@pytest.mark.parametrize("said", ["import mhalib.{0}", "from mhalib import {0}", "from mhalib.{0} import x"])
@pytest.mark.parametrize("name", _renamed.MODULES)
def test_a_module_that_has_moved_is_imported_by_nobody_without_a_word(name, said):
    with pytest.raises(ModuleNotFoundError, match=f"mhalib.{name} is {_renamed.MODULES[name]} now"):
        exec(said.format(name))


def test_a_script_says_where_a_module_is_now():
    ran = subprocess.run([sys.executable, "-c", "import mhalib.scores"], capture_output=True, text=True)
    assert "ModuleNotFoundError: mhalib.scores is mhalib.measures and mhalib.evaluation now" in ran.stderr


@pytest.mark.parametrize("name", _renamed.MODULES)
def test_an_attribute_that_has_moved_says_so_and_is_not_there(name):
    with pytest.raises(AttributeError, match=f"no attribute '{name}': it is {_renamed.MODULES[name]} now"):
        getattr(mhalib, name)
    assert not hasattr(mhalib, name)


def test_what_was_never_there_is_not_found_as_always():
    with pytest.raises(ImportError, match="cannot import name 'nothing'"):
        exec("from mhalib import nothing")
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'mhalib\.nothing'"):
        exec("import mhalib.nothing")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: models.GPT(num_words=7), "GPT: num_words is called vocab_size now"),
        (lambda: models.BERT(num_words=7), "BERT: num_words is called vocab_size now"),
        (lambda: models.Transformer(source_size=7), "Transformer: source_size is called source_vocab_size now"),
        (lambda: models.Transformer(7, target_size=7), "Transformer: target_size is called target_vocab_size now"),
        (lambda: fit(None, None, largest_rate=0.1), "fit: largest_rate is called max_lr now"),
    ],
)
def test_an_argument_of_the_old_name_is_told_the_new_one(call, said):
    with pytest.raises(TypeError, match=f"^{said}$"):
        call()


def test_a_signature_is_what_it_was():
    assert "max_lr" in inspect.signature(fit).parameters
    assert "vocab_size" in inspect.signature(models.GPT).parameters


def test_a_cache_says_what_extend_is_called_now():
    cache = mhalib.MultiHeadAttention(4, 2).new_cache()
    with pytest.raises(AttributeError, match="extend is called append now"):
        cache.extend(1)
    assert not hasattr(cache, "extend")


def test_old_names_go_when_it_was_said():
    """`handbooks/tools_and_release.md`, What a version promises."""
    version = tuple(map(int, mhalib.__version__.split(".")[:2]))
    assert version < (0, 5), "remove mhalib/classroom.py, mhalib/_renamed.py and Cache.extend, with what tests them"
