"""The page that helps to choose: every kind is in its table, and what models took is what their programs say."""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

import nbformat
import pytest

from mhalib import reference
from mhalib.attention import KINDS
from tools.notebooks import notebooks

PAGE = notebooks.CHAPTERS / "which_attention.ipynb"
CLASSES = {
    "GPT-2": "GPT2Config",
    "LLaMA": "LlamaConfig",
    "Mistral": "MistralConfig",
    "Gemma 2": "Gemma2Config",
    "DeepSeek-V3": "DeepseekV3Config",
    "Gemma 3": "Gemma3TextConfig",
    "gpt-oss": "GptOssConfig",
    "Olmo 3": "Olmo3Config",
    "Qwen3-Next": "Qwen3NextConfig",
    "DeepSeek-V3.2": "DeepseekV32Config",
}
NEVER = {"multi-head", "delta", "delta, Kimi", "sigmoid", "softpick"}
"""Kinds that are multi-head attention with no weights at all, and itself."""


def table(name: str) -> dict[str, Any]:
    """A table that a cell of the page makes."""
    cells = (one.source for one in nbformat.read(PAGE, as_version=4).cells)
    source = "\n".join(one for one in cells if f"\n{name} " in f"\n{one}")
    space: dict[str, Any] = {"KINDS": KINDS}
    if name != "FACTS":
        source = source.partition("\nassert ")[0]
    exec(source.partition("\nprint(")[0], space)
    return space[name]


def test_every_kind_is_in_the_zoo() -> None:
    facts = table("FACTS")
    assert {settings.get("name", name) for name, (settings, *_) in facts.items()} == set(KINDS)


def test_whose_program_a_kind_was_held_against_is_what_our_tests_say() -> None:
    """The test is there, in a file that names the program, of the pinned version or the commit that was run."""
    folder, known = notebooks.CHAPTERS.parent, table("FACTS")
    pinned = (folder / "requirements.txt").read_text("utf-8")
    programs = (folder / "tests/library/made_by_authors.py").read_text("utf-8")
    for kind, told in reference.kinds().items():
        assert kind in known, f"{kind} is no row of the zoo"
        if "program" not in told:
            continue
        told = told["program"]
        file, _, test = told["test"].partition(": ")
        tests = (folder / "tests/library" / file).read_text("utf-8")
        assert f"def {test}(" in tests, f"{kind}: {file} has no {test}"
        source, version = told["from"].split()
        if "/" in source:
            assert f'"{source}", "{version}"' in re.sub(r"\s+", " ", programs), f"{kind}: {told['from']} was not run"
        else:
            assert f"{source}=={version}\n" in pinned, f"{kind}: {told['from']} is not what is pinned"
            names = [told["name"], told["name"].partition("Att")[0]] if source == "transformers" else [source]
            assert any(name in tests for name in names), f"{kind}: {file} does not name {told['name']}"


def test_each_kind_was_held_against_a_loop_and_its_tests_are_there() -> None:
    """What they find is held by a fixture of tests/library, which fails a test that has moved away."""
    folder, known = notebooks.CHAPTERS.parent / "tests/library", table("FACTS")
    assert set(reference.kinds()) == set(known)
    for kind, told in reference.kinds().items():
        assert "loop" in told, kind
        for way in {"loop", "identity"} & set(told):
            file, _, test = told[way]["test"].partition(": ")
            assert f"def {test}(" in (folder / file).read_text("utf-8"), f"{kind}: {file} has no {test}"
            assert 0 <= told[way]["to"] < (1e-4 if (kind, way) == ("entmax", "identity") else 1e-12), (kind, way)
        assert ("where" in told["identity"]) if "identity" in told else kind in NEVER, kind


def test_a_model_that_has_a_kind_says_so_in_its_program() -> None:
    pytest.importorskip("transformers")
    for kind, told in reference.kinds().items():
        for model, where in told.get("shipped in", {}).items():
            folder, name, word = re.fullmatch(r"(\w+)\.(\w+): (\w+)", where).groups()  # type: ignore[union-attr]
            part = "configuration" if name.endswith("Config") else "modeling"
            program = importlib.import_module(f"transformers.models.{folder}.{part}_{folder}")
            assert word in inspect.getsource(getattr(program, name)), f"{kind}: {model} has no {where}"


@pytest.mark.parametrize("family", CLASSES)
def test_what_a_family_took_is_the_default_of_its_program(family: str) -> None:
    transformers = pytest.importorskip("transformers")
    config = getattr(transformers, CLASSES[family])()
    layers, num_kv_heads, d, windowed, window, said = table("SHIPPED")[family]
    kinds = getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers
    if family == "Mistral":
        kinds = ["sliding_attention"] * config.num_hidden_layers
    assert layers == len(kinds) - kinds.count("linear_attention")
    assert windowed == kinds.count("sliding_attention")
    assert window == (config.sliding_window if windowed else 0)
    if said.startswith("latents"):
        assert 2 * num_kv_heads * d == config.kv_lora_rank + config.qk_rope_head_dim
        return
    heads = config.num_attention_heads
    assert num_kv_heads == (getattr(config, "num_key_value_heads", None) or heads)
    assert d == (getattr(config, "head_dim", None) or config.hidden_size // heads)
    if num_kv_heads != heads:
        assert f"{num_kv_heads} " in said
        assert f"for {heads}" in said
    assert ("soft-capping" in said) == bool(getattr(config, "attn_logit_softcapping", None))


def test_the_chapter_that_the_zoo_names_has_the_kind() -> None:
    """A chapter that moved has another number: its text or code must name the kind, or the class of the kind."""
    for label, (settings, *_, chapter) in table("FACTS").items():
        if not chapter.isdigit():
            assert chapter == "–", f"{label}: {chapter} is no chapter"
            continue
        kind = settings.get("name", label)
        (path,) = notebooks.CHAPTERS.glob(f"{int(chapter):02}_*.ipynb")
        told = "\n".join(cell.source for cell in nbformat.read(path, as_version=4).cells)
        signs = (kind, KINDS[kind].__name__)
        assert any(re.search(rf"\b{sign}\b", told, re.I) for sign in signs), f"{label}: chapter {chapter} names none"
