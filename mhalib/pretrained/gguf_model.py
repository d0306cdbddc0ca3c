"""A model in a GGUF file, as if it were a folder: a config.json, a tokenizer.json, and tensors under LLaMA's names."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .gguf import GGUF

SUFFIX = ".gguf"
_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_NAMES_IN_LAYERS = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_TURNED = {"attn_q": "num_attention_heads", "attn_k": "num_key_value_heads"}
"""What llama.cpp stores with the two rows of each rotary pair side by side, and of how many heads."""
_DIGITS = {"type": "Digits", "individual_digits": True}
_BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
_SPLITS = {"smollm": [_DIGITS, _BYTES], "gpt-2": [_BYTES]}
"""How a text is cut before subwords are joined, by `tokenizer.ggml.pre`. SmolLM's rule cuts digits one by one."""
_CONTROL = 3  # of `tokenizer.ggml.token_type`: a token that no text makes, such as <|endoftext|>


class GGUFModel(Mapping[str, Tensor]):
    """The tensors of a LLaMA in a GGUF file, float32, under the names and in the order that transformers gives them.

    Args:
        path: of the file.

    Attributes:
        config: what a config.json would say.

    Raises:
        ValueError: the file is damaged; or its architecture, its positions or a tensor is none that is read here.
    """

    def __init__(self, path: Path) -> None:
        self._file = GGUF(path)
        self.config = _config(self._file)
        self._names = {_name(self._file, name): name for name in self._file.entries}

    def count_numbers(self) -> int:
        """How many numbers all tensors have."""
        return sum(math.prod(entry.shape) for entry in self._file.entries.values())

    def tokenizer(self) -> str:
        """What a tokenizer.json would say.

        Raises:
            ValueError: the tokenizer is damaged, or none that is read here.
        """
        return json.dumps(_tokenizer(self._file))

    def __getitem__(self, name: str) -> Tensor:
        theirs = self._names[name]
        tensor = torch.from_numpy(self._file.read(theirs))
        part = theirs.split(".")[-2]
        return _in_halves(tensor, self.config[_TURNED[part]]) if part in _TURNED else tensor

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _in_halves(rows: Tensor, num_heads: int) -> Tensor:
    """llama.cpp turns rows 2i and 2i + 1 of a head together, transformers i and i + d/2: (h d, D) in the latter's
    order."""
    return rows.unflatten(0, (num_heads, -1, 2)).transpose(1, 2).reshape(rows.shape)


def _name(file: GGUF, theirs: str) -> str:
    """A tensor's name in transformers."""
    where, _, kind = theirs.rpartition(".")
    if where in _NAMES and kind == "weight":
        return f"{_NAMES[where]}.{kind}"
    block, _, rest = where.partition(".")
    number, _, part = rest.partition(".")
    if block == "blk" and number.isascii() and number.isdigit() and part in _NAMES_IN_LAYERS and kind == "weight":
        return f"model.layers.{int(number)}.{_NAMES_IN_LAYERS[part]}.{kind}"
    raise ValueError(f"path={str(file.path)!r} holds the tensor {theirs!r:.80}, which no LLaMA that is read here has")


def _entry(file: GGUF, key: str, kind: type, usual: Any = None) -> Any:
    value = file.metadata.get(key, usual)
    if isinstance(value, bool) is not (kind is bool) or not isinstance(value, kind):
        raise ValueError(f"path={str(file.path)!r} has {key}={value!r:.80}, which must be of type {kind.__name__}")
    return value


def _config(file: GGUF) -> dict[str, Any]:
    """The config.json that transformers would write for the same model."""
    if file.metadata.get("general.architecture") != "llama":
        raise ValueError(
            f"path={str(file.path)!r} has general.architecture={file.metadata.get('general.architecture')!r:.80}: "
            "of GGUF files, those of 'llama' are read"
        )
    scaled = sorted(key for key in file.metadata if key.startswith("llama.rope.scaling."))
    if scaled:
        raise ValueError(f"path={str(file.path)!r} has {scaled[0]}: rotary positions that are scaled are not read")
    heads = _entry(file, "llama.attention.head_count", int)
    width = _entry(file, "llama.embedding_length", int)
    turned = _entry(file, "llama.rope.dimension_count", int, width // max(1, heads))
    if heads < 1 or width % heads or turned * heads != width:
        raise ValueError(
            f"path={str(file.path)!r} has {heads} heads in {width} dimensions, of which rotary positions turn {turned} "
            "of a head: all of a head must be turned"
        )
    kv_heads = _entry(file, "llama.attention.head_count_kv", int, heads)
    for key, name, count in (("attn_q", "head_count", heads), ("attn_k", "head_count_kv", kv_heads)):
        for theirs, entry in file.entries.items():
            if theirs.endswith(f".{key}.weight") and (count < 1 or entry.shape[0] != count * turned):
                raise ValueError(
                    f"path={str(file.path)!r} has llama.attention.{name}={count}, and {theirs!r:.80} of shape "
                    f"{entry.shape}, which is not {count} heads of {turned} rows"
                )
    tokens = file.entries.get("token_embd.weight")
    last = _entry(file, "tokenizer.ggml.eos_token_id", int, -1)
    return {
        **({"eos_token_id": last} if last >= 0 else {}),
        "model_type": "llama",
        "vocab_size": tokens.shape[0] if tokens else 0,
        "hidden_size": width,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "num_hidden_layers": _entry(file, "llama.block_count", int),
        "intermediate_size": _entry(file, "llama.feed_forward_length", int),
        "max_position_embeddings": _entry(file, "llama.context_length", int),
        "rms_norm_eps": _entry(file, "llama.attention.layer_norm_rms_epsilon", float),
        "rope_theta": _entry(file, "llama.rope.freq_base", float, 10000.0),
        "tie_word_embeddings": "output.weight" not in file.entries,
    }


def _texts(file: GGUF, key: str) -> tuple[str, ...]:
    value = file.metadata.get(key)
    if not isinstance(value, tuple) or not all(isinstance(one, str) for one in value):
        raise ValueError(f"path={str(file.path)!r} has no list of strings {key}")
    return value


def _tokenizer(file: GGUF) -> dict[str, Any]:
    """The tokenizer.json of subwords that are joined pair by pair."""
    model, split = file.metadata.get("tokenizer.ggml.model"), file.metadata.get("tokenizer.ggml.pre")
    if model != "gpt2" or split not in _SPLITS:
        raise ValueError(
            f"path={str(file.path)!r} has tokenizer.ggml.model={model!r:.80} and tokenizer.ggml.pre={split!r:.80}: "
            f"'gpt2' with one of {sorted(_SPLITS)} is read"
        )
    tokens, merges = _texts(file, "tokenizer.ggml.tokens"), _texts(file, "tokenizer.ggml.merges")
    ids = {token: place for place, token in enumerate(tokens)}
    kinds = file.metadata.get("tokenizer.ggml.token_type")
    if len(ids) < len(tokens) or not isinstance(kinds, tuple) or len(kinds) != len(tokens):
        raise ValueError(f"path={str(file.path)!r} has a damaged tokenizer: a token comes twice, or has no type")
    pairs = [merge.split(" ") for merge in merges]
    strange = [pair for pair in pairs if len(pair) != 2 or pair[0] not in ids or "".join(pair) not in ids]
    if strange:
        raise ValueError(f"path={str(file.path)!r} has a damaged tokenizer: {strange[0]!r:.80} joins no two tokens")
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": place, "content": token, **special} for place, token in enumerate(tokens) if kinds[place] == _CONTROL
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": _SPLITS[split]},
        "post_processor": None,
        "decoder": {**_BYTES, "add_prefix_space": True},
        "model": {"type": "BPE", "vocab": ids, "merges": pairs, "fuse_unk": False, "byte_fallback": False},
    }
