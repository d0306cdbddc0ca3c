"""Small GGUF files, written by hand from the format's specification, for tests of what reads them."""

import struct

import numpy as np

TEXT, LIST = 8, 9
CODES = {"I": 4, "f": 6, "?": 7, "Q": 10, "i": 5}


def text(value):
    data = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(data)) + data


def metadatum(key, value):
    """A key, a type and a value: a string, a bool, an int, a float, or a list of one of them."""
    return text(key) + _typed(value)


def _typed(value):
    if isinstance(value, str):
        return struct.pack("<I", TEXT) + text(value)
    if isinstance(value, list):
        inner = [_typed(one) for one in value]
        return (
            struct.pack("<I", LIST) + inner[0][:4] + struct.pack("<Q", len(inner)) + b"".join(one[4:] for one in inner)
        )
    code = "?" if isinstance(value, bool) else "I" if isinstance(value, int) else "f"
    return struct.pack("<I" + code, CODES[code], value)


def line(name, shape, kind, offset):
    """A line of the table of tensors; the fastest axis comes first."""
    axes = tuple(shape)[::-1]
    return text(name) + struct.pack(f"<I{len(axes)}QIQ", len(axes), *axes, kind, offset)


def file(metadata, tensors, alignment=32, version=3):
    """A whole file. tensors: name -> (shape, type, bytes)."""
    table, data = b"", b""
    for name, (shape, kind, raw) in tensors.items():
        table += line(name, shape, kind, len(data))
        data += raw + bytes(-len(raw) % alignment)
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    head += b"".join(metadatum(key, value) for key, value in metadata.items()) + table
    return head + bytes(-len(head) % alignment) + data


VOCAB, D, HEADS, KV_HEADS, INNER, LAYERS = 300, 32, 4, 2, 64, 2
LLAMA = {
    "general.architecture": "llama",
    "llama.block_count": LAYERS,
    "llama.context_length": 64,
    "llama.embedding_length": D,
    "llama.feed_forward_length": INNER,
    "llama.attention.head_count": HEADS,
    "llama.attention.head_count_kv": KV_HEADS,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.rope.freq_base": 10000.0,
}


def tokenizer():
    """Metadata of a tokenizer: a control token, the 256 bytes' letters, and a few joined pairs."""
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in keep]
    letters = [chr(byte) for byte in keep] + [chr(256 + place) for place in range(len(others))]
    merges = ["t h", "th e", "Ġ the", "1 2", "Ġ a"]
    tokens = ["<|end|>", *letters, *(merge.replace(" ", "") for merge in merges)]
    tokens += [f"unused {place}" for place in range(VOCAB - len(tokens))]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3] + [1] * (VOCAB - 1),
        "tokenizer.ggml.merges": merges,
    }


def llama_tensors(seed=0):
    """The tensors of a small LLaMA with tied logits: name -> (out, in) or (D,), float32."""
    random = np.random.default_rng(seed)
    width = D // HEADS
    shapes = {"token_embd": (VOCAB, D), "output_norm": (D,)}
    for layer in range(LAYERS):
        shapes |= {
            f"blk.{layer}.{part}": shape
            for part, shape in {
                "attn_norm": (D,),
                "ffn_norm": (D,),
                "attn_q": (D, D),
                "attn_k": (KV_HEADS * width, D),
                "attn_v": (KV_HEADS * width, D),
                "attn_output": (D, D),
                "ffn_gate": (INNER, D),
                "ffn_up": (INNER, D),
                "ffn_down": (D, INNER),
            }.items()
        }
    return {f"{name}.weight": random.normal(size=shape).astype(np.float32) / 4 for name, shape in shapes.items()}


def llama(path, **metadata):
    """Writes a small LLaMA to `path`; returns its tensors."""
    tensors = llama_tensors()
    whole = {**LLAMA, **tokenizer(), **metadata}
    told = {key: value for key, value in whole.items() if value is not None}
    path.write_bytes(file(told, {name: (one.shape, 0, one.tobytes()) for name, one in tensors.items()}))
    return tensors
