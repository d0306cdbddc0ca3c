"""Chapter 35 with a reader's model: its one cell names a folder, and the whole page runs."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import nbformat
import pytest
import torch

from mhalib import pretrained
from tools.notebooks import notebooks

tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")

pytestmark = pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning")  # pages draw tensors
OF_THE_PAGE = pytest.mark.weekly("chapters/35_open_a_model_you_know.ipynb", "mhalib/pretrained/")
CHAPTER = notebooks.CHAPTERS / "35_open_a_model_you_know.ipynb"
CELL = "MODEL = None  #"
LETTERS = 'SENTENCE = "d {k|z} w c a p m d k"'
PAIR = "Anna met John, and {John|Anna} thanked"
SIZES = {"vocab_size": 300, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 6}
SIZES |= {"max_position_embeddings": 128, "pad_token_id": 0}
KINDS = {  # family -> what is its own, what the page says of its heads, and the type it is loaded as
    "gpt2": ({}, "h=6, g=6, d=4: 12 heads", "float32"),
    "llama": (
        {"num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 40},
        "h=6, g=2, d=8: 12 heads",
        "bfloat16",
    ),
    "bert": ({"intermediate_size": 40}, "h=6, g=6, d=4: 12 heads", "float16"),
}


def tokenizer_for(family: str) -> Any:
    """Bytes for the decoders; for the encoder whole words between [CLS] and [SEP]."""
    if family != "bert":
        letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
        found = tokenizers.Tokenizer(tokenizers.models.BPE({letter: n for n, letter in enumerate(letters)}, []))
        found.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        found.decoder = tokenizers.decoders.ByteLevel()
        return found
    said = " ".join(pretrained.SENTENCES).split()
    words = dict.fromkeys(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"Anna met John, and John thanked".split(), *said])
    model = tokenizers.models.WordLevel({word: n for n, word in enumerate(words)}, unk_token="[UNK]")
    found = tokenizers.Tokenizer(model)
    found.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    special = [("[CLS]", 2), ("[SEP]", 3)]
    found.post_processor = tokenizers.processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=special)
    return found


def write(family: str, folder: Path) -> None:
    """A checkpoint with random weights, as `transformers` stores it, with its tokenizer."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    transformers.utils.logging.disable_progress_bar()
    config = transformers.AutoConfig.for_model(family, **SIZES, **KINDS[family][0])
    kind = transformers.AutoModel if family == "bert" else transformers.AutoModelForCausalLM
    torch.manual_seed(0)
    model = kind.from_config(config)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.2 * torch.randn_like(weight))
    model.save_pretrained(folder)
    tokenizer_for(family).save(str(folder / "tokenizer.json"))


def run(model: str, sentence: str, dtype: str) -> str:
    """What the page prints, all its code run in this process: above the exercises, but for what installs packages."""
    space: dict[str, Any] = {"__name__": "page"}
    said = io.StringIO()
    for cell in nbformat.read(CHAPTER, as_version=4).cells:
        tags = cell.metadata.get("tags", [])
        if cell.cell_type != "code" or {"set-up", "exercise"} & {*tags}:
            continue
        source = cell.source.replace(CELL, f"MODEL = {model!r}  #").replace(LETTERS, f"SENTENCE = {sentence!r}")
        source = source.replace("best_device(), torch.float32", f"best_device(), torch.{dtype}")
        source = source.replace(
            "for _ in range(200)", "for _ in range(20)"
        )  # fewer random groups of heads, to be quick
        with contextlib.redirect_stdout(said):
            exec(compile(source, cell.id, "exec"), space)
    plt.close("all")
    return said.getvalue()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    matplotlib.use("agg")
    monkeypatch.setenv("MHALIB_DEVICE", "cpu")
    few = {
        "encoder": ("bert",),
        "decoder": ("gpt2",),
        "encoder-decoder": ("t5",),
    }  # of those that the page compares with transformers
    monkeypatch.setattr(pretrained, "supported", lambda: few)


@pytest.mark.parametrize(
    "family", [pytest.param("gpt2", marks=OF_THE_PAGE), pytest.param("llama", marks=OF_THE_PAGE), "bert"]
)
def test_one_cell_names_another_model(family: str, tmp_path: Path) -> None:
    write(family, tmp_path)
    said = run(str(tmp_path), PAIR, KINDS[family][2])
    assert f"model: {tmp_path}" in said
    assert f"to test: 2 layers with {KINDS[family][1]}" in said
    assert "to look at: 24 texts in 2 layers" in said
    assert "nothing and everything put back: (2, 12, " in said
    found = next(line for line in said.splitlines() if line.startswith(f"{tmp_path} "))
    assert float(found.rpartition(" ")[2]) < 1e-5  # against transformers, on the reader's sentence


def test_there_is_one_such_cell() -> None:
    cells = nbformat.read(CHAPTER, as_version=4).cells
    assert [cell.source.count(CELL) for cell in cells if CELL in cell.source] == [1]
    assert [cell.source.count(LETTERS) for cell in cells if "SENTENCE = " in cell.source] == [1]
    assert sum(cell.source.count("best_device(), torch.float32") for cell in cells) == 1


@pytest.mark.parametrize(
    ("sentence", "said"),
    [
        ("a b {c|d e} f", "4 and 5 tokens: "),
        ("a b {c|d}", "change a token before the last one: "),
        ("a b c", "change a token before the last one: "),
    ],
)
def test_a_sentence_that_cannot_be_patched_is_refused(sentence: str, said: str) -> None:
    cells = [cell.source for cell in nbformat.read(CHAPTER, as_version=4).cells if cell.cell_type == "code"]
    space: dict[str, Any] = {"SENTENCE": sentence, "device": "cpu"}
    for sign in ("import re\n", "def symbols(", "twins = "):
        (source,) = (cell for cell in cells if sign in cell)
        if sign == "twins = ":
            space["tokenizer"] = space["symbols"]()
            with pytest.raises(ValueError, match=said):
                exec(source, space)
        else:
            exec(source, space)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_rows_are_divided_only_where_rounding_made_them_differ_from_1(dtype: torch.dtype) -> None:
    """Rows that are half gone, or twice there, are a fault that the page must not hide."""
    (source,) = (cell.source for cell in nbformat.read(CHAPTER, as_version=4).cells if "def in_full(" in cell.source)
    space: dict[str, Any] = {"torch": torch}
    exec(source.partition("\n\n\n")[0], space)
    generator = torch.Generator().manual_seed(0)
    exact = torch.randn(64, 37, generator=generator, dtype=torch.float64).mul(3).softmax(-1)
    in_full = space["in_full"](exact.to(dtype))
    torch.testing.assert_close(in_full.sum(-1), torch.ones(64), atol=1e-6, rtol=0)
    torch.testing.assert_close(in_full.double(), exact, atol=1e-6 + torch.finfo(dtype).eps, rtol=0)
    for factor in (0, 0.5, 0.97, 1.03, 2):
        wrong = (factor * exact).to(dtype)
        assert torch.equal(space["in_full"](wrong), wrong.float()), factor


def test_what_a_row_gives_to_no_key_is_in_view() -> None:
    """As in gpt-oss, whose heads have a place to look at that is no key."""
    sources = [cell.source for cell in nbformat.read(CHAPTER, as_version=4).cells if cell.cell_type == "code"]
    space: dict[str, Any] = {"torch": torch}
    for sign in ("def in_full(", "def on_no_key("):
        (source,) = (source for source in sources if sign in source)
        exec(sign + source.partition(sign)[2].partition("\n\n\n")[0], space)
    scores = torch.randn(2, 3, 4, 7, 8, generator=torch.Generator().manual_seed(0))
    weights = scores.softmax(-1)[..., :-1]  # the last column is the place that is no key
    mask = torch.ones(3, 1, 7, 7, dtype=torch.bool)
    mask[0, :, 5:] = False  # padding: two rows that do not count
    rows = [scores.softmax(-1)[:, 0, :, :5, -1], scores.softmax(-1)[:, 1:, :, :, -1].transpose(1, 2).flatten(2)]
    wanted = torch.cat([rows[0], rows[1]], -1).mean(-1)  # (layers, h)
    found = space["on_no_key"](space["in_full"](weights), mask)
    torch.testing.assert_close(found, wanted)
    assert float(space["on_no_key"](space["in_full"](scores.softmax(-1)), mask).max()) < 1e-6
