"""GGUF files: against the package `gguf`, against transformers, and against files that a stranger made to hurt."""

import random
import struct
import subprocess
import sys
import tracemalloc

import gguf_files as made
import numpy as np
import pytest
import torch

from mhalib import pretrained
from mhalib.pretrained.gguf import GGUF, TYPES
from mhalib.pretrained.gguf_model import GGUFModel

gguf = pytest.importorskip("gguf", reason="gguf is not installed")
KIND = {blocks.name: kind for kind, blocks in TYPES.items()}


@pytest.mark.parametrize("name", sorted(KIND))
def test_numbers_are_those_that_the_package_gguf_makes_bit_for_bit(name, tmp_path):
    kind = gguf.GGMLQuantizationType[name]
    numbers = np.random.default_rng(0).normal(size=(6, 128)).astype(np.float32)
    packed = gguf.quants.quantize(numbers, kind)
    path = tmp_path / "one.gguf"
    path.write_bytes(made.file({}, {"before": ((2,), 0, bytes(8)), "x": ((6, 128), KIND[name], packed.tobytes())}))
    found = GGUF(path).read("x")
    assert found.dtype == np.float32
    assert found.tobytes() == gguf.quants.dequantize(packed, kind).astype(np.float32).tobytes()
    assert np.abs(found - numbers).max() < (0.4 if "4" in name else 0.03)  # and they are the right ones


def test_a_file_that_the_package_gguf_wrote_is_read(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "theirs.gguf", "llama")
    writer.add_uint32("llama.block_count", 3)
    writer.add_array("words", ["ein", "Ünïcode", ""])
    writer.add_array("numbers", [1, -2, 3])
    writer.add_bool("yes", True)
    writer.add_float32("half", 0.5)
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    writer.add_tensor("x", x)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = GGUF(tmp_path / "theirs.gguf")
    told = {key: file.metadata[key] for key in ("llama.block_count", "words", "numbers", "yes", "half")}
    assert told == {
        "llama.block_count": 3,
        "words": ("ein", "Ünïcode", ""),
        "numbers": (1, -2, 3),
        "yes": True,
        "half": 0.5,
    }
    assert np.array_equal(file.read("x"), x)


def test_a_llama_gives_the_logits_that_transformers_gives(tmp_path):
    """transformers turns rows i and i + d/2 together; the file's rows are put into that order here by a loop."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    tensors = made.llama(tmp_path / "small.gguf")
    ours = pretrained.load(tmp_path / "small.gguf")
    theirs = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**GGUFModel(tmp_path / "small.gguf").config, attn_implementation="eager")
    ).eval()
    names = {"blk.": "model.layers.", "token_embd": "model.embed_tokens", "output_norm": "model.norm"}
    names |= {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_output": "self_attn.o_proj"}
    names |= {f"attn_{one}": f"self_attn.{one}_proj" for one in "qkv"}
    names |= {f"ffn_{one}": f"mlp.{one}_proj" for one in ("gate", "up", "down")}
    state = {}
    for name, numbers in tensors.items():
        rows = torch.tensor(numbers)
        if "attn_q" in name or "attn_k" in name:
            d = made.D // made.HEADS
            order = [head * d + 2 * (i % (d // 2)) + i // (d // 2) for head in range(len(rows) // d) for i in range(d)]
            rows = rows[order]
        for old, new in names.items():
            name = name.replace(old, new)
        state[name] = rows
    assert theirs.load_state_dict(state, strict=False).missing_keys == ["lm_head.weight"]
    theirs.tie_weights()
    text = "the cat 12 the 345"
    ids = torch.tensor([ours(text).ids])
    with torch.no_grad():
        there = theirs(ids, output_attentions=True)
    torch.testing.assert_close(ours(text).output, there.logits[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(ours(text).weights, torch.cat(there.attentions), rtol=1e-5, atol=1e-6)


def test_digits_are_cut_one_by_one_and_control_tokens_are_one_token(tmp_path):
    made.llama(tmp_path / "small.gguf")
    tokenizer = pretrained.load(tmp_path / "small.gguf").tokenizer
    assert tokenizer.encode("the 12<|end|>the").tokens == ["the", "Ġ", "1", "2", "<|end|>", "the"]
    made.llama(tmp_path / "other.gguf", **{"tokenizer.ggml.pre": "gpt-2"})
    assert pretrained.load(tmp_path / "other.gguf").tokenizer.encode("the 12").tokens == ["the", "Ġ", "12"]
    text = "the cat ünï 12\n\n  345 \t🙂"
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_memory_is_counted_without_reading_tensors(tmp_path):
    tensors = made.llama(tmp_path / "small.gguf")
    assert pretrained.memory(tmp_path / "small.gguf").parameters == sum(one.size for one in tensors.values())


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"general.architecture": "falcon"}, "general.architecture='falcon'"),
        ({"general.architecture": None}, "general.architecture=None"),
        ({"llama.rope.scaling.type": "yarn"}, "llama.rope.scaling.type"),
        ({"llama.attention.head_count": 3}, "3 heads in 32 dimensions"),
        ({"llama.attention.head_count": 0}, "0 heads"),
        ({"llama.attention.head_count_kv": 4}, "llama.attention.head_count_kv=4"),
        ({"llama.attention.head_count_kv": 0}, "llama.attention.head_count_kv=0"),
        ({"llama.rope.dimension_count": 4}, "turn 4 of a head"),
        ({"llama.block_count": "two"}, "llama.block_count='two', which must be of type int"),
        ({"llama.block_count": True}, "llama.block_count=True"),
        ({"llama.block_count": 10**6}, "num_hidden_layers=1000000"),
        ({"llama.block_count": 3}, "lacks"),
        ({"llama.feed_forward_length": 2**31}, "intermediate_size"),
        ({"tokenizer.ggml.model": "llama"}, "tokenizer.ggml.model='llama'"),
        ({"tokenizer.ggml.pre": "qwen2"}, "tokenizer.ggml.pre='qwen2'"),
        ({"tokenizer.ggml.tokens": ["a", "a"]}, "a token comes twice"),
        ({"tokenizer.ggml.tokens": None}, "no list of strings tokenizer.ggml.tokens"),
        ({"tokenizer.ggml.merges": ["t h e"]}, "joins no two tokens"),
        ({"tokenizer.ggml.merges": ["q zz"]}, "joins no two tokens"),
    ],
)
def test_what_a_file_says_wrongly_is_named(changed, said, tmp_path):
    path = tmp_path / "wrong.gguf"
    made.llama(path, **changed)
    with pytest.raises(ValueError, match="(?s)" + said.replace("(", r"\(")):
        pretrained.load(path)


def test_other_arguments_that_do_not_belong_to_a_file_are_refused(tmp_path):
    made.llama(tmp_path / "small.gguf")
    with pytest.raises(ValueError, match="belongs to the hub"):
        pretrained.load(tmp_path / "small.gguf", revision="0" * 40)
    with pytest.raises(ValueError, match="is a GGUF file, which only our layers do here"):
        pretrained.load(tmp_path / "small.gguf", through="transformers")
    with pytest.raises(ValueError, match="sha256 is"):
        pretrained.load(tmp_path / "small.gguf", sha256="0" * 64)
    with pytest.raises(ValueError, match=r"neither a folder, nor a \.gguf file"):
        pretrained.load(tmp_path / "none.gguf")


HUGE = 2**62
HEAD = b"GGUF" + struct.pack("<I", 3)
HOSTILE = {
    "nothing": b"",
    "other letters": b"GGML" + bytes(100),
    "only letters": b"GGUF",
    "version 1": b"GGUF" + struct.pack("<IQQ", 1, 0, 0),
    "2^62 tensors": HEAD + struct.pack("<QQ", HUGE, 0) + bytes(100),
    "2^62 keys": HEAD + struct.pack("<QQ", 0, HUGE) + bytes(100),
    "a key of a gigabyte": HEAD + struct.pack("<QQQ", 0, 1, 2**30) + bytes(100),
    "a string of 2^63": HEAD + struct.pack("<QQ", 0, 1) + made.text("k") + struct.pack("<IQ", 8, 2**63) + bytes(64),
    "a list of 2^62 bytes": HEAD
    + struct.pack("<QQ", 0, 1)
    + made.text("k")
    + struct.pack("<IIQ", 9, 0, HUGE)
    + bytes(64),
    "a list of 2^61 texts": HEAD
    + struct.pack("<QQ", 0, 1)
    + made.text("k")
    + struct.pack("<IIQ", 9, 8, 2**61)
    + bytes(64),
    "a list of lists": HEAD + struct.pack("<QQ", 0, 1) + made.text("k") + struct.pack("<IIQ", 9, 9, 1) + bytes(64),
    "an unknown type": HEAD + struct.pack("<QQ", 0, 1) + made.text("k") + struct.pack("<I", 77) + bytes(64),
    "no UTF-8": HEAD + struct.pack("<QQ", 0, 1) + made.text(b"\xff\xfe") + struct.pack("<II", 4, 1) + bytes(64),
    "a key twice": HEAD + struct.pack("<QQ", 0, 2) + made.metadatum("k", 1) * 2,
    "alignment 0": made.file({"general.alignment": 0}, {}),
    "alignment 2^31": made.file({"general.alignment": 2**31}, {}),
    "alignment of words": made.file({"general.alignment": "32"}, {}),
    "a tensor twice": HEAD + struct.pack("<QQ", 2, 0) + made.line("x", (2,), 0, 0) * 2 + bytes(128),
    "no axis": HEAD + struct.pack("<QQ", 1, 0) + made.text("x") + struct.pack("<IIQ", 0, 0, 0) + bytes(64),
    "2^31 axes": HEAD + struct.pack("<QQ", 1, 0) + made.text("x") + struct.pack("<I", 2**31) + bytes(64),
    "2^62 numbers": HEAD + struct.pack("<QQ", 1, 0) + made.line("x", (2**31, 2**31), 0, 0) + bytes(64),
    "an axis of 0": HEAD + struct.pack("<QQ", 1, 0) + made.line("x", (0, 4), 0, 0) + bytes(64),
    "half a block": HEAD + struct.pack("<QQ", 1, 0) + made.line("x", (4, 33), 8, 0) + bytes(640),
    "an offset behind the end": HEAD + struct.pack("<QQ", 1, 0) + made.line("x", (4,), 0, 2**40) + bytes(64),
    "Q6_K": HEAD + struct.pack("<QQ", 1, 0) + made.line("x", (1, 256), 14, 0) + bytes(640),
    "type 99": HEAD + struct.pack("<QQ", 1, 0) + made.line("x", (1, 256), 99, 0) + bytes(640),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_header_is_refused_before_anything_is_allocated(name, tmp_path):
    path = tmp_path / "hostile.gguf"
    path.write_bytes(HOSTILE[name])
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"hostile\.gguf"):
            GGUF(path)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("name", "said"), [("Q6_K", "stored as Q6_K"), ("type 99", "stored as type 99")])
def test_a_type_that_is_not_read_is_named(name, said, tmp_path):
    (tmp_path / "x.gguf").write_bytes(HOSTILE[name])
    with pytest.raises(ValueError, match=f"{said}, and F32, F16, Q4_0, Q4_1, Q8_0 are read"):
        GGUF(tmp_path / "x.gguf")


def test_each_file_that_is_cut_or_has_a_byte_turned_is_read_or_refused(tmp_path):
    """Nothing but ValueError comes of 400 damages to the header of a good file."""
    path = tmp_path / "small.gguf"
    made.llama(path)
    good = path.read_bytes()
    end = good.index(b"output_norm") + 200
    chance = random.Random(0)
    refused = 0
    for _ in range(400):
        bad = bytearray(good)
        if chance.random() < 0.3:
            del bad[chance.randrange(end) :]
        else:
            bad[chance.randrange(end)] ^= 1 << chance.randrange(8)
        path.write_bytes(bad)
        try:
            model = GGUFModel(path)
            model.tokenizer()
            for name in model:
                model[name]
        except ValueError:
            refused += 1
    assert refused > 100


@pytest.mark.about("mhalib/pretrained/")
def test_a_file_is_read_without_the_packages_that_write_it(tmp_path):
    """`load` with a GGUF file imports neither gguf nor transformers."""
    made.llama(tmp_path / "small.gguf")
    code = (
        "import sys; from mhalib import pretrained; pretrained.load(sys.argv[1])('the');"
        "assert not {'gguf', 'transformers', 'huggingface_hub'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "small.gguf")], check=True)
