"""Tokens as the pieces of text that they cover, by tokenizers of every kind."""

import pytest

from mhalib import pretrained
from mhalib.pretrained import pieces
from mhalib.pretrained.convert import require_known

tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")


class Encoded:
    """What a tokenizer returns."""

    def __init__(self, *spans, special=(), tokens=None):
        self.offsets = list(spans)
        self.tokens = tokens or [f"t{n}" for n in range(len(spans))]
        self.special_tokens_mask = [int(n in special) for n in range(len(spans))]


def byte_level(trim_offsets=False, merges=()):
    names = [*sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()), *("".join(pair) for pair in merges)]
    found = tokenizers.Tokenizer(tokenizers.models.BPE({name: n for n, name in enumerate(names)}, list(merges)))
    found.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    found.post_processor = tokenizers.processors.ByteLevel(trim_offsets=trim_offsets)
    return found


def byte_fallback():
    """As LLaMA 2: a byte stands in for what the vocabulary lacks."""
    names = ["<unk>", "<s>", *(f"<0x{n:02X}>" for n in range(256)), *"▁ t h e ▁t he ▁the".split()]
    merges = [("▁", "t"), ("h", "e"), ("▁t", "he")]
    model = tokenizers.models.BPE(
        {name: n for n, name in enumerate(names)}, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True
    )
    found = tokenizers.Tokenizer(model)
    found.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    found.post_processor = tokenizers.processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
    return found


def word_pieces():
    words = {"[UNK]": 0, "[CLS]": 1, "ax": 2, "##olo": 3, "##tl": 4, "cafe": 5}
    found = tokenizers.Tokenizer(tokenizers.models.WordPiece(words, unk_token="[UNK]"))
    found.normalizer = tokenizers.normalizers.BertNormalizer()  # lower case, no accents
    found.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    found.post_processor = tokenizers.processors.TemplateProcessing("[CLS] $A", special_tokens=[("[CLS]", 1)])
    return found


CAT = "猫(1/3) 猫(2/3) 猫(3/3)"
THE = (("Ġ", "t"), ("h", "e"), ("Ġt", "he"))
CASES = {
    "bytes": (byte_level(merges=THE), "In the 猫\n\n é", f"I n the ␣ {CAT} ⏎ ⏎ ␣ é(1/2) é(2/2)"),
    "bytes, blanks trimmed off": (byte_level(True, THE), "In the 猫 a\tb", f"I n the ␣ {CAT} ␣ a ⇥ b"),
    "a letter and half of the next": (byte_level(merges=[("f", "Ã")]), "fé", "fé(1/2) é(2/2)"),
    "a blank and half of a letter": (byte_level(merges=[("Ġ", "Ã")]), "x é", "x é(1/2) é(2/2)"),
    "four bytes": (byte_level(), "🙂", "🙂(1/4) 🙂(2/4) 🙂(3/4) 🙂(4/4)"),
    "a byte for what is not known": (byte_fallback(), "the 猫 the", f"<s> the ␣ {CAT} the"),
    "parts of words": (word_pieces(), "Axolotl CAFÉ xyz", "[CLS] Ax olo tl CAFÉ xyz"),
}


@pytest.mark.parametrize("name", CASES)
def test_each_token_shows_the_text_that_it_covers(name):
    tokenizer, text, wanted = CASES[name]
    assert pieces(text, tokenizer.encode(text)) == tuple(wanted.split(" "))


def test_runs_of_blanks_are_counted_and_other_blanks_are_shown():
    assert pieces("a   b\u3000", Encoded((0, 1), (1, 4), (4, 5), (5, 6))) == ("a", "␣␣␣", "b", "␣")
    assert pieces(" a  b c ", Encoded((0, 4), (4, 8))) == ("a", "b␣c")


def test_what_covers_nothing_keeps_its_name():
    encoded = Encoded((0, 0), (0, 1), (1, 1), special=(0,), tokens=["[CLS]", "x", "odd"])
    assert pieces("x", encoded) == ("[CLS]", "x", "odd")


def test_an_offset_outside_the_text_is_named():
    with pytest.raises(ValueError, match=r"encoded has the offset \(0, 3\), but text has 2 characters"):
        pieces("ab", Encoded((0, 3)))


def test_stored_maps_can_be_read_as_they_are():
    for reading in pretrained.load_maps():
        assert reading.pieces == reading.tokens


def test_what_is_supported_is_what_is_not_refused():
    listed = [kind for kinds in pretrained.supported().values() for kind in kinds]
    assert len(set(listed)) == len(listed) >= 14
    for kind in listed:
        require_known({"model_type": kind})
    with pytest.raises(ValueError, match="bloom") as refusal:
        require_known({"model_type": "bloom"})
    assert str(sorted(listed)) in str(refusal.value)
    assert set(listed).isdisjoint(pretrained.UNREAD)
    assert set(pretrained.DECODERS) == set(pretrained.supported()["decoder"])
    assert set(pretrained.FAMILIES) == set(pretrained.supported()["encoder"])
