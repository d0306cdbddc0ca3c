"""SmolLM2 in our layers: bit for bit the package gguf's numbers, transformers' logits, and a tokenizer that is written
here a second time, by the standard library alone."""

import json
import random
import re
import unicodedata
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from real_weights import place

from mhalib import Head, pretrained, switched_off
from mhalib.pretrained.gguf import GGUF
from mhalib.results import read
from tools.evidence import real_induction

CHAPTERS = Path(__file__).parents[2] / "chapters"
TEXTS = [
    "The capital of France is",
    "x =  7 and 12345",
    "def f(a):\n    return a + 1",
    "<|im_start|>user\nHello!<|im_end|>\n",
    "日本語 ünïcode x²+½=Ⅷ 🙂🙂",
    "She said: \"don't we'll\"",
]


@pytest.fixture(scope="module")
def path():
    return place("smollm2-135m")


@pytest.fixture(scope="module")
def ours(path):
    return pretrained.load(path)


def test_each_of_134_515_008_numbers_is_what_the_package_gguf_reads(path):
    gguf = pytest.importorskip("gguf")
    file, count = GGUF(path), 0
    for theirs in gguf.GGUFReader(str(path)).tensors:
        wanted = gguf.quants.dequantize(theirs.data, theirs.tensor_type).astype(np.float32)
        found = file.read(theirs.name)
        assert found.shape == wanted.shape
        assert (found.view(np.uint32) == wanted.view(np.uint32)).all(), theirs.name
        count += found.size
    assert count == 134_515_008


def test_logits_and_maps_are_those_of_transformers(path, ours):
    """Read by transformers' own route for GGUF, so that names, sizes and the order of rows are its, too."""
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("gguf")
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    told = load_gguf_checkpoint(str(path))["config"]
    config = transformers.LlamaConfig(**{key: one for key, one in told.items() if key != "model_type"})
    config._attn_implementation = "eager"
    with torch.device("meta"):
        empty = transformers.LlamaForCausalLM(config)
    tensors = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=empty)["tensors"]
    theirs = transformers.LlamaForCausalLM(config).eval()
    assert theirs.load_state_dict(tensors, strict=False).missing_keys == ["lm_head.weight"]
    theirs.tie_weights()
    for text in TEXTS:
        reading = ours(text)
        with torch.no_grad():
            there = theirs(torch.tensor([reading.ids]), output_attentions=True)
        logits = there.logits[0]
        assert (reading.output - logits).abs().max() <= 1e-5 * logits.abs().max()
        assert (reading.output.argmax(-1) == logits.argmax(-1)).all()
        torch.testing.assert_close(reading.weights, torch.cat(there.attentions), rtol=0, atol=1e-4)


def test_it_knows_the_capital_of_france(ours):
    reading = ours("The capital of France is")
    assert ours.tokenizer.decode([int(reading.output[-1].argmax())]) == " Paris"


class ByHand:
    """Byte-level pairs by the standard library: digits one by one, GPT-2's rule for the rest, the best pair first."""

    def __init__(self, metadata):
        self.tokens = metadata["tokenizer.ggml.tokens"]
        self.ids = {token: place for place, token in enumerate(self.tokens)}
        self.rank = {tuple(merge.split(" ")): rank for rank, merge in enumerate(metadata["tokenizer.ggml.merges"])}
        special = [t for t, kind in zip(self.tokens, metadata["tokenizer.ggml.token_type"], strict=True) if kind == 3]
        self.special = re.compile("(" + "|".join(map(re.escape, sorted(special, key=len, reverse=True))) + ")")
        keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
        others = [byte for byte in range(256) if byte not in keep]
        self.letters = {byte: chr(byte) for byte in keep} | {byte: chr(256 + n) for n, byte in enumerate(others)}

    RULE = re.compile(r"_?L+|_?N+|_?P+|[_s]+(?![^_s])|[_s]+")
    SHORT = re.compile("'(?:s|t|re|ve|m|ll|d)")

    @staticmethod
    def kind(letter):
        """L letter, N number, _ the blank, s other white space, P anything else."""
        category = unicodedata.category(letter)[0]
        if category in "LN":
            return category
        return "_" if letter == " " else "s" if letter.isspace() and letter not in "\x1c\x1d\x1e\x1f" else "P"

    def words(self, text):
        for part in re.findall(r"\d|\D+", "".join("0" if self.kind(one) == "N" else "x" for one in text)):
            piece, text = text[: len(part)], text[len(part) :]
            kinds, at = "".join(map(self.kind, piece)), 0
            while at < len(piece):
                short = self.SHORT.match(piece, at)
                end = short.end() if short else self.RULE.match(kinds, at).end()
                yield piece[at:end]
                at = end

    def encode(self, text):
        for part in self.special.split(text):
            if self.special.fullmatch(part):
                yield self.ids[part]
                continue
            for word in self.words(part):
                pieces = [self.letters[byte] for byte in word.encode()]
                while len(pieces) > 1:
                    rank, at = min((self.rank.get(pair, 10**9), at) for at, pair in enumerate(pairwise(pieces)))
                    if rank == 10**9:
                        break
                    pieces[at : at + 2] = ["".join(pieces[at : at + 2])]
                yield from (self.ids[piece] for piece in pieces)


def texts():
    """All cells of all chapters, and 500 texts of random signs."""
    found = list(TEXTS)
    for notebook in sorted(CHAPTERS.glob("[0-9]*.ipynb")):
        found += ["".join(cell["source"]) for cell in json.loads(notebook.read_text("utf-8"))["cells"]]
    chance = random.Random(0)
    for _ in range(500):
        kinds = (
            lambda: chance.randrange(32, 127),
            lambda: chance.randrange(160, 0x2000),
            lambda: ord(chance.choice("\t\n\r  '019")),
        )
        found.append("".join(chr(chance.choice(kinds)()) for _ in range(60)))
    return found


def test_each_text_is_cut_as_by_hand_and_put_together_again(path, ours):
    by_hand, wrong = ByHand(GGUF(path).metadata), []
    for text in texts():
        ids = ours.tokenizer.encode(text).ids
        if ids != list(by_hand.encode(text)) or ours.tokenizer.decode(ids, skip_special_tokens=False) != text:
            wrong.append(text)
    assert not wrong


def test_the_rule_for_digits_is_kept(ours):
    """transformers' own route for GGUF loses it, and joins blanks and digits."""
    assert ours.tokenizer.encode("x =  712").tokens == ["x", "Ġ=", "ĠĠ", "7", "1", "2"]


def test_what_is_stored_of_induction_is_what_the_weights_give(ours):
    stored, model, tokens = read("smollm2_induction"), ours.model, real_induction.drawn(0)
    first, second, backs, matches = real_induction.measured(model, tokens)
    found = {"first": first, "second": second, "previous/16.0": backs[16, 0], "induction/18.6": matches[18, 6]}
    with switched_off(model, [Head("decoder self", 16, 0)]):
        found["off/16.0"] = real_induction.measured(model, tokens)[1]
    for reader in ("query", "key"):
        with real_induction.unread(model, 16, 0, reader):
            found[f"unread/{reader}"] = real_induction.measured(model, tokens)[1]
    assert {name: float(value) for name, value in found.items()} == pytest.approx(
        {name: stored[name][0] for name in found}, rel=2e-3
    )


@pytest.mark.parametrize("reader", real_induction.READERS)
def test_nothing_is_taken_from_readers_of_a_head_that_is_off(ours, reader):
    model, tokens = ours.model, real_induction.drawn(0)[:2]
    with switched_off(model, [Head("decoder self", 16, 0)]):
        off = real_induction.measured(model, tokens)[1]
        with real_induction.unread(model, 16, 0, reader):
            assert real_induction.measured(model, tokens)[1] == pytest.approx(off, rel=1e-5)
        assert real_induction.measured(model, tokens)[1] == off  # no hook is left
