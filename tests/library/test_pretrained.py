"""Real encoders. A checkpoint is written here by hand, and what our layers make of it compared with torch's own encoder
layer. The real MiniLM is tested in tests/real."""

import hashlib
import io
import json
import re
import subprocess
import sys
import time
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from mhalib import Head, gated, heads_of, pretrained, saved, switched_off
from mhalib.models import BERT
from mhalib.pretrained import MINILM, PINS, SENTENCES, About, Reading
from mhalib.pretrained.maps import FOLDER, pack, unpack

D, H, LAYERS, INNER, PLACES, EPS = 15, 3, 2, 22, 11, 1e-3
WORDS = "[PAD] [UNK] [CLS] [SEP] the cat sat on mat .".split()
TEXT, TOKENS = "the cat sat on the mat .", "[CLS] the cat sat on the mat . [SEP]".split()
IDS = [WORDS.index(token) for token in TOKENS]
KINDS = ("bert", "roberta", "distilbert")
PARTS = {
    "bert": (
        "encoder.layer.{}.",
        "attention.self.query attention.self.key attention.self.value attention.output.dense",
        "attention.output.LayerNorm intermediate.dense output.dense output.LayerNorm",
    ),
    "distilbert": (
        "transformer.layer.{}.",
        "attention.q_lin attention.k_lin attention.v_lin attention.out_lin",
        "sa_layer_norm ffn.lin1 ffn.lin2 output_layer_norm",
    ),
}
PARTS["roberta"] = PARTS["bert"]


class Checkpoint:
    """A folder as Hugging Face lays it out, and torch's layers with the same weights."""

    def __init__(self, folder, kind="bert", prefix=""):
        pytest.importorskip("tokenizers", reason="tokenizers is not installed")
        torch.manual_seed(KINDS.index(kind))
        self.folder, self.kind = folder, kind
        self.first = 2 if kind == "roberta" else 0  # its padding has id 1 and position 1, and the text starts behind
        self.words, self.places = torch.randn(len(WORDS), D), torch.randn(PLACES + self.first, D)
        self.segments = torch.zeros(2, D) if kind == "distilbert" else torch.randn(2, D)
        self.eps = 1e-12 if kind == "distilbert" else EPS
        self.norm = self._norm()
        self.layers = [self._layer() for _ in range(LAYERS)]
        self.config = self._config()
        self.tensors = {prefix + name: value.contiguous() for name, value in self._tensors().items()}
        self.write()

    def write(self):
        save_file(self.tensors, self.folder / "model.safetensors")
        (self.folder / "config.json").write_text(json.dumps(self.config), encoding="utf-8")
        (self.folder / "tokenizer.json").write_text(json.dumps(_tokenizer()), encoding="utf-8")

    def sha256(self):
        return hashlib.sha256((self.folder / "model.safetensors").read_bytes()).hexdigest()

    @torch.no_grad()
    def output(self, ids, segments=0):
        """torch's answer for one text: output (N, D), weights (layers, h, N, N)."""
        x = self.words[ids] + self.places[self.first : self.first + len(ids)] + self.segments[segments]
        x, weights = self.norm(x)[None], []
        for layer in self.layers:
            weights.append(layer.self_attn(x, x, x, average_attn_weights=False)[1][0])
            x = layer(x)
        return x[0], torch.stack(weights)

    def _norm(self):
        norm = nn.LayerNorm(D, eps=self.eps)
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
        return norm.requires_grad_(False)

    def _layer(self):
        layer = nn.TransformerEncoderLayer(D, H, INNER, 0.0, "gelu", self.eps, batch_first=True)
        for parameter in layer.parameters():
            nn.init.normal_(parameter, std=0.4)
        return layer.requires_grad_(False).train()  # in training, torch takes no path of its own; dropout is 0

    def _config(self):
        if self.kind == "distilbert":
            sizes = {"vocab_size": len(WORDS), "dim": D, "n_heads": H, "n_layers": LAYERS, "hidden_dim": INNER}
            return {"model_type": self.kind, "max_position_embeddings": PLACES, "activation": "gelu", **sizes}
        return {
            "model_type": self.kind,
            "vocab_size": len(WORDS),
            "hidden_size": D,
            "num_attention_heads": H,
            "num_hidden_layers": LAYERS,
            "intermediate_size": INNER,
            "max_position_embeddings": PLACES + self.first,
            "type_vocab_size": 2,
            "layer_norm_eps": EPS,
            "hidden_act": "gelu",
            "pad_token_id": 1 if self.kind == "roberta" else 0,
        }

    def _tensors(self):
        tensors = {
            "embeddings.word_embeddings.weight": self.words,
            "embeddings.position_embeddings.weight": self.places,
            "embeddings.token_type_embeddings.weight": self.segments,
            "embeddings.LayerNorm.weight": self.norm.weight,
            "embeddings.LayerNorm.bias": self.norm.bias,
            "pooler.dense.weight": torch.randn(D, D),  # what an encoder does not need is left out
        }
        if self.kind == "distilbert":
            del tensors["embeddings.token_type_embeddings.weight"]
        start, attention, rest = PARTS[self.kind]
        for i, layer in enumerate(self.layers):
            names = f"{attention} {rest}".split()
            for kind in ("weight", "bias"):
                q, k, v = getattr(layer.self_attn, f"in_proj_{kind}").chunk(3)
                modules = (layer.self_attn.out_proj, layer.norm1, layer.linear1, layer.linear2, layer.norm2)
                values = (q, k, v, *(getattr(module, kind) for module in modules))
                tensors |= {f"{start.format(i)}{name}.{kind}": one for name, one in zip(names, values, strict=True)}
        return tensors


def _tokenizer():
    """One word, one token; [CLS] before, [SEP] behind. It cuts and pads, as MiniLM's own does."""
    special = [{"id": token, "ids": [WORDS.index(token)], "tokens": [token]} for token in ("[CLS]", "[SEP]")]
    template = [
        {"SpecialToken": {"id": "[CLS]", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": "[SEP]", "type_id": 0}},
    ]
    return {
        "version": "1.0",
        "truncation": {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0},
        "padding": {
            "strategy": {"Fixed": 10},
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 0,
            "pad_type_id": 0,
            "pad_token": "[PAD]",
        },
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": template,
            "pair": template,
            "special_tokens": {one["id"]: one for one in special},
        },
        "decoder": None,
        "model": {
            "type": "WordLevel",
            "vocab": {word: number for number, word in enumerate(WORDS)},
            "unk_token": "[UNK]",
        },
    }


@pytest.fixture
def checkpoint(tmp_path):
    return Checkpoint(tmp_path)


# Encoders


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("prefix", ["", "base."])
def test_a_checkpoint_gives_what_torch_gives(tmp_path, kind, prefix, device):
    checkpoint = Checkpoint(tmp_path, kind, prefix)
    encoder = pretrained.load(tmp_path, device=device)
    reading = encoder(TEXT)
    output, weights = checkpoint.output(IDS)
    assert (reading.text, reading.tokens, reading.ids) == (TEXT, tuple(TOKENS), tuple(IDS))
    assert reading.weights.shape == (LAYERS, H, len(IDS), len(IDS))
    torch.testing.assert_close(reading.output.cpu(), output, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(reading.weights.cpu(), weights, rtol=1e-5, atol=1e-6)
    assert not reading.output.requires_grad
    assert not encoder.model.training
    assert encoder.sha256 == checkpoint.sha256()


def test_a_padded_batch_gives_what_its_texts_give_alone(checkpoint):
    model = pretrained.load(checkpoint.folder).model
    short = IDS[:4]
    batch, segments = torch.zeros(2, len(IDS), dtype=torch.long), torch.zeros(2, len(IDS), dtype=torch.long)
    batch[0], batch[1, :4] = torch.tensor(IDS), torch.tensor(short)
    segments[1, :4] = 1
    with torch.no_grad():
        x, weights = model(batch, torch.tensor([len(IDS), 4]), segments=segments, need_weights=True)
        fused, none = model(batch, torch.tensor([len(IDS), 4]), segments=segments)
    torch.testing.assert_close(x[0], checkpoint.output(IDS)[0], rtol=1e-5, atol=1e-5)
    output, alone = checkpoint.output(short, segments=1)
    torch.testing.assert_close(x[1, :4], output, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(torch.stack(weights["encoder self"])[:, 1, :, :4, :4], alone, rtol=1e-5, atol=1e-6)
    assert none is None
    torch.testing.assert_close(fused[0], x[0], rtol=1e-5, atol=1e-5)


def test_the_model_is_put_where_it_is_asked_for(checkpoint):
    model = pretrained.load(checkpoint.folder, device="meta").model
    assert {parameter.device.type for parameter in model.parameters()} == {"meta"}


def test_old_names_of_the_normalisations_are_known(checkpoint):
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    checkpoint.tensors = {
        name.replace("LayerNorm.weight", old["LayerNorm.weight"]).replace("LayerNorm.bias", old["LayerNorm.bias"]): one
        for name, one in checkpoint.tensors.items()
    }
    checkpoint.write()
    reading = pretrained.load(checkpoint.folder)(TEXT)
    torch.testing.assert_close(reading.output, checkpoint.output(IDS)[0], rtol=1e-5, atol=1e-5)


def test_half_precision_is_loaded_as_float32(checkpoint):
    checkpoint.tensors = {name: one.half() for name, one in checkpoint.tensors.items()}
    checkpoint.write()
    reading = pretrained.load(checkpoint.folder)(TEXT)
    assert reading.output.dtype == torch.float32
    torch.testing.assert_close(reading.output, checkpoint.output(IDS)[0], rtol=0, atol=0.05)


def test_an_encoder_may_be_in_several_files_and_of_another_type(checkpoint):
    """Decoders of all families are, in test_decoders.py."""
    names = sorted(checkpoint.tensors)
    for file, held in {"a": names[::2], "b": names[1::2]}.items():
        save_file({name: checkpoint.tensors[name] for name in held}, checkpoint.folder / f"{file}.safetensors")
    index = {"weight_map": {name: f"{'ab'[place % 2]}.safetensors" for place, name in enumerate(names)}}
    (checkpoint.folder / pretrained.INDEX).write_text(json.dumps(index), encoding="utf-8")
    (checkpoint.folder / "model.safetensors").unlink()
    found = pretrained.load(checkpoint.folder)(TEXT).output
    torch.testing.assert_close(found, checkpoint.output(IDS)[0], rtol=1e-5, atol=1e-5)
    exact = pretrained.load(checkpoint.folder, dtype=torch.float64)(TEXT).output
    assert exact.dtype == torch.float64
    torch.testing.assert_close(exact.float(), found, rtol=1e-5, atol=1e-5)


def test_a_head_that_is_switched_off_is_one_whose_values_are_nothing(checkpoint):
    encoder = pretrained.load(checkpoint.folder)
    assert heads_of(encoder.model) == [Head("encoder self", i, j) for i in range(LAYERS) for j in range(H)]
    with switched_off(encoder.model, [Head("encoder self", 1, 2)]):
        found = encoder(TEXT).output
    own = slice(2 * D + 2 * D // H, 3 * D)  # head 2's part of W_v, in torch's way to store it
    checkpoint.layers[1].self_attn.in_proj_weight[own] = 0.0
    checkpoint.layers[1].self_attn.in_proj_bias[own] = 0.0
    torch.testing.assert_close(found, checkpoint.output(IDS)[0], rtol=1e-5, atol=1e-5)


def test_gates_on_an_encoder_have_gradients(checkpoint):
    model = pretrained.load(checkpoint.folder).model
    gates = [torch.ones(H, requires_grad=True) for _ in range(LAYERS)]
    with gated(model, {"encoder self": gates}):
        model(torch.tensor([IDS]))[0].square().sum().backward()
    assert all(gate.grad.abs().min() > 0 for gate in gates)


def test_an_encoder_can_be_stored_and_read(checkpoint, tmp_path):
    model = pretrained.load(checkpoint.folder).model
    saved.write(model, tmp_path / "own.safetensors", saved.About("none", ("loss", 1.0), "none"))
    again = saved.read(tmp_path / "own.safetensors")
    assert type(again) is BERT
    assert {module.eps for module in again.modules() if isinstance(module, nn.LayerNorm)} == {EPS}
    with torch.no_grad():
        torch.testing.assert_close(again(torch.tensor([IDS]))[0][0], checkpoint.output(IDS)[0], rtol=0, atol=0.05)


def test_a_model_that_is_new_trains():
    torch.manual_seed(0)
    model = BERT(7, 8, 2, 2, 16, dropout=0.5)
    tokens = torch.randint(7, (3, 5))
    assert not torch.equal(model(tokens)[0], model(tokens)[0])
    model.eval()
    assert torch.equal(model(tokens)[0], model(tokens)[0])
    assert not BERT(7, 8, 2, 2, 16, dropout=1.0)(tokens)[0].any()  # the tokens' vectors too are dropped
    model(tokens)[0].square().sum().backward()
    assert all(p.grad is not None for name, p in model.named_parameters() if name != "segments.weight")


def test_texts_are_neither_cut_nor_padded_and_too_long_ones_are_refused(checkpoint):
    encoder = pretrained.load(checkpoint.folder)
    assert encoder("cat").tokens == ("[CLS]", "cat", "[SEP]")
    assert len(encoder("cat " * (PLACES - 2)).tokens) == PLACES
    with pytest.raises(ValueError, match=re.escape(f"{PLACES + 1} tokens, but the model has only max_tokens={PLACES}")):
        encoder("cat " * (PLACES - 1))
    with pytest.raises(TypeError, match=re.escape("text must be a string, got list: ['cat']")):
        encoder(["cat"])


def test_roberta_is_not_given_the_token_whose_position_it_does_not_count(tmp_path):
    checkpoint = Checkpoint(tmp_path, "roberta", "")
    encoder = pretrained.load(tmp_path)
    pad = checkpoint.config["pad_token_id"]
    with pytest.raises(ValueError, match=f"text holds the token that pads, {pad}, .*through="):
        encoder(f"cat {WORDS[pad]}")


# The folder, the hub, and what may be wrong with them


def test_the_weights_may_be_held_to_a_hash(checkpoint):
    assert pretrained.load(checkpoint.folder, sha256=checkpoint.sha256()).sha256 == checkpoint.sha256()
    wrong = "0" * 64
    with pytest.raises(ValueError, match=rf"is not what was asked for: sha256 is {checkpoint.sha256()}, not {wrong}"):
        pretrained.load(checkpoint.folder, sha256=wrong)


@pytest.mark.parametrize("name", pretrained.FILES)
def test_a_missing_file_is_named(checkpoint, name):
    (checkpoint.folder / name).unlink()
    with pytest.raises(ValueError, match=re.escape(f"lacks ['{name}']")):
        pretrained.load(checkpoint.folder)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("model.gguf", "it has model.gguf: load that file itself"),
        ("pytorch_model.bin", "it has pytorch_model.bin, a pickle"),
        ("pytorch_model-00001-of-00002.bin", "it has pytorch_model.bin, a pickle"),
    ],
)
def test_weights_of_another_format_say_what_to_do(checkpoint, name, message):
    (checkpoint.folder / "model.safetensors").rename(checkpoint.folder / name)
    with pytest.raises(ValueError, match=re.escape(message)):
        pretrained.load(checkpoint.folder)


def test_a_family_that_is_refused_is_so_before_its_weights_are_missed(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "mamba"}')
    with pytest.raises(ValueError, match=r"model_type='mamba' in config\.json is not one of"):
        pretrained.load(tmp_path)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("config.json", "config.json' is damaged"),
        ("model.safetensors", "model.safetensors' is not a safetensors file"),
        ("tokenizer.json", "tokenizer.json' does not hold a tokenizer"),
    ],
)
def test_a_damaged_file_is_named(checkpoint, name, message):
    (checkpoint.folder / name).write_bytes(b"{\xff")
    with pytest.raises(ValueError, match=message):
        pretrained.load(checkpoint.folder)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"model_type": "mpnet"}, "model_type='mpnet' in config.json is not one of ['bart', 'bert', 'camembert', "),
        ({"model_type": None}, "model_type=None in config.json is not one of"),
        ({"hidden_act": "relu"}, "hidden_act='relu' in config.json: our blocks need 'gelu'"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type='relative_key' in config.json"),
        ({"is_decoder": True}, "is_decoder=True in config.json: our blocks need False"),
        ({"embedding_size": 5}, "embedding_size=5 in config.json: our blocks need 15"),
        ({"num_hidden_layers": None}, "num_hidden_layers=None in config.json must be an integer of at least 1"),
        (
            {"num_hidden_layers": 1},
            "holds 16 tensors that the model of config.json has no place for, such as ['en",
        ),
        ({"quantization_config": {"bits": 4}}, "our blocks need weights that are not quantised"),
        ({"layer_norm_eps": -1.0}, "layer_norm_eps=-1.0 in config.json must be a positive number"),
        ({"layer_norm_eps": float("nan")}, "layer_norm_eps=nan in config.json must be a positive number"),
        ({"num_attention_heads": 4}, "num_hiddens=15 is not divisible by num_heads=4"),
        (
            {"num_hidden_layers": 3},
            "lacks 16 tensors of the model, such as ['encoder.layer.2.attention.output",
        ),
        (
            {"intermediate_size": 23},
            "holds 'encoder.layer.0.intermediate.dense.weight' with shape (22, 15), of which config.json does not make",
        ),
        (
            {"max_position_embeddings": 7},
            "holds 'embeddings.position_embeddings.weight' with shape (11, 15), of which config.json does not",
        ),
    ],
)
def test_what_our_blocks_cannot_hold_is_refused_by_name(checkpoint, changed, message):
    checkpoint.config |= changed
    checkpoint.write()
    with pytest.raises(ValueError, match=re.escape(message)):
        pretrained.load(checkpoint.folder)


HOSTILE = {  # what a config.json may claim of weights of a few kilobytes
    "layers": {"num_hidden_layers": 10**6},
    "many layers": {"num_hidden_layers": 10**9},
    "as many layers as are thinkable": {"num_hidden_layers": 900},
    "width": {"hidden_size": 2**40},
    "network": {"intermediate_size": 2**23},
    "vocabulary": {"vocab_size": 2**62},
    "positions": {"max_position_embeddings": 2**62},
    "heads": {"num_attention_heads": 2**62},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_config_that_claims_more_than_the_weights_hold_is_refused_at_once(checkpoint, name):
    ((key, value),) = HOSTILE[name].items()
    checkpoint.config |= HOSTILE[name]
    checkpoint.write()
    pretrained.supported()  # what is imported late is imported
    start = time.process_time()
    with pytest.raises(ValueError, match=f"{key}={value} in config.json"):
        pretrained.load(checkpoint.folder)
    assert time.process_time() - start < 0.5


@pytest.mark.parametrize(
    "name", [name for name in HOSTILE if name not in ("network", "as many layers as are thinkable")]
)
@pytest.mark.parametrize("kind", ["bert", "llama", "bart", "vit"])
def test_what_no_model_has_is_not_counted(tmp_path, kind, name):
    """`memory` reads config.json alone: the hub's weights are not there yet."""
    sizes = {"vocab_size": 30, "hidden_size": 24, "intermediate_size": 40, "max_position_embeddings": 16}
    sizes |= {"num_hidden_layers": 2, "num_attention_heads": 6, "type_vocab_size": 2, "num_labels": 3}
    bart = {"d_model": 24, "vocab_size": 30, "max_position_embeddings": 16, "model_type": "bart"}
    for side in ("encoder", "decoder"):
        bart |= {f"{side}_attention_heads": 6, f"{side}_layers": 2, f"{side}_ffn_dim": 40}
    names = {"num_hidden_layers": "decoder_layers", "hidden_size": "d_model", "intermediate_size": "encoder_ffn_dim"}
    names |= {"num_attention_heads": "decoder_attention_heads"}
    ((key, value),) = HOSTILE[name].items()
    key = names.get(key, key) if kind == "bart" else key
    told = bart if kind == "bart" else {**sizes, "model_type": kind}
    (tmp_path / "config.json").write_text(json.dumps(told), encoding="utf-8")
    assert pretrained.memory(tmp_path).parameters > 1000
    (tmp_path / "config.json").write_text(json.dumps({**told, key: value}), encoding="utf-8")
    if kind == "vit" and key in ("vocab_size", "max_position_embeddings"):
        return  # a picture has neither
    start = time.process_time()
    with pytest.raises(ValueError, match=f"{key}={value} in config.json"):
        pretrained.memory(tmp_path)
    assert time.process_time() - start < 0.5


def test_sizes_that_overflow_only_together_are_named(tmp_path):
    sizes = {"vocab_size": 30, "hidden_size": 2**24, "intermediate_size": 40, "max_position_embeddings": 16}
    sizes |= {"num_hidden_layers": 2, "num_attention_heads": 2**23, "head_dim": 2**22, "model_type": "llama"}
    (tmp_path / "config.json").write_text(json.dumps(sizes), encoding="utf-8")
    with pytest.raises(ValueError, match=r"hidden_size=16777216.* num_attention_heads=8388608, head_dim=4194304"):
        pretrained.memory(tmp_path)


def test_a_config_that_is_nested_too_deep_is_damaged(checkpoint):
    deep = '{"model_type": ' + "[" * 100_000 + "]" * 100_000 + "}"
    for text in (deep, '{"vocab_size": 1' + "0" * 5000 + "}"):
        (checkpoint.folder / "config.json").write_text(text, encoding="utf-8")
        for read in (pretrained.load, pretrained.memory):
            with pytest.raises(ValueError, match=r"config.json' is damaged: "):
                read(checkpoint.folder)


def test_a_config_must_be_an_object(checkpoint):
    (checkpoint.folder / "config.json").write_text("[]", encoding="utf-8")
    with pytest.raises(ValueError, match="must hold an object, got list"):
        pretrained.load(checkpoint.folder)


@pytest.mark.parametrize("name", ["embeddings.LayerNorm.bias", "encoder.layer.1.output.dense.weight"])
def test_missing_tensors_are_named(checkpoint, name):
    del checkpoint.tensors[name]
    checkpoint.write()
    with pytest.raises(ValueError, match=re.escape(f"lacks 1 tensors of the model, such as ['{name}']")):
        pretrained.load(checkpoint.folder)


COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"source": 3}, TypeError, "source must be a string or a Path, got int: 3"),
        (
            {"source": "nowhere"},
            ValueError,
            "source='nowhere' is neither a folder, nor a .gguf file, nor a name on the hub",
        ),
        ({"source": Path("a/b")}, ValueError, "is neither a folder, nor a .gguf file, nor a name on the hub"),
        ({"source": "a/b"}, ValueError, "revision must be given for source='a/b'"),
        ({"source": "a/b", "revision": "main"}, ValueError, "revision='main' must be 40 hexadecimal digits"),
        ({"sha256": "53aa"}, ValueError, "sha256='53aa' must be 64 hexadecimal digits"),
        ({"through": "keras"}, ValueError, "through='keras' must be one of ('mhalib', 'transformers')"),
        ({"source": ".", "revision": COMMIT}, ValueError, "belongs to the hub, but source='.' is here"),
    ],
)
def test_bad_arguments_are_named(arguments, error, message):
    with pytest.raises(error, match=re.escape(message)):
        pretrained.load(**arguments)


@pytest.fixture
def hub(checkpoint, monkeypatch):
    """In place of the hub, a function that gives the checkpoint's files at one commit, and a list of its calls."""
    calls = []

    def hf_hub_download(repo_id, filename, *, revision):
        calls.append((repo_id, filename, revision))
        if revision not in (COMMIT, PINS[MINILM].revision):
            raise RuntimeError("no such commit")
        return str(checkpoint.folder / filename)

    module = types.ModuleType("huggingface_hub")
    module.hf_hub_download = hf_hub_download
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    return calls


def test_the_hub_is_asked_for_one_commit(hub, checkpoint):
    reading = pretrained.load("owner/name", revision=COMMIT)(TEXT)
    assert hub == [("owner/name", name, COMMIT) for name in ("config.json", "model.safetensors", "tokenizer.json")]
    torch.testing.assert_close(reading.output, checkpoint.output(IDS)[0], rtol=1e-5, atol=1e-5)


def test_minilm_is_pinned_by_commit_and_hash(hub, checkpoint):
    pin = PINS[MINILM]
    with pytest.raises(ValueError, match=f"sha256 is {checkpoint.sha256()}, not {pin.sha256}"):
        pretrained.load()
    assert {revision for _, _, revision in hub} == {pin.revision}
    pretrained.load(MINILM, revision=COMMIT)  # another commit may have other weights


def test_a_hub_that_does_not_answer_is_an_oserror(hub):
    with pytest.raises(OSError, match=r"source='a/b' is not a folder here.*revision='f{40}'.*no such commit"):
        pretrained.load("a/b", revision="f" * 40)


def test_a_package_that_is_missing_is_named(checkpoint, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError, match="this needs the package huggingface_hub: pip install huggingface_hub"):
        pretrained.load()
    with pytest.raises(ImportError, match="this needs the package transformers"):
        pretrained.load(checkpoint.folder, through="transformers")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ImportError, match="this needs the package tokenizers"):
        pretrained.load(checkpoint.folder)


def test_the_package_and_its_maps_need_none_of_them():
    check = (
        "import sys; from mhalib import pretrained; pretrained.load_maps();"
        "print({'tokenizers', 'transformers', 'huggingface_hub'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize("kind", KINDS)
def test_through_transformers_it_is_the_same(tmp_path, kind):
    pytest.importorskip("transformers", reason="transformers is not installed")
    Checkpoint(tmp_path, kind)
    own, theirs = (pretrained.load(tmp_path, through=route)(TEXT) for route in ("mhalib", "transformers"))
    torch.testing.assert_close(own.output, theirs.output, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(own.weights, theirs.weights, rtol=1e-5, atol=1e-6)
    assert own.tokens == theirs.tokens


# The stored maps


def test_the_maps_are_of_our_sentences():
    maps = pretrained.load_maps()
    assert tuple(one.text for one in maps) == SENTENCES
    assert len(SENTENCES) == len(set(SENTENCES)) >= 20
    for one in maps:
        n = len(one.tokens)
        assert one.weights.shape == (6, 12, n, n)
        assert one.weights.dtype == torch.float32
        assert len(one.ids) == n
        assert (one.tokens[0], one.tokens[-1]) == ("[CLS]", "[SEP]")
        joined = "".join(token.removeprefix("##") for token in one.tokens[1:-1])
        assert joined == one.text.lower().replace(" ", "")
        assert one.output is None
        with pytest.raises(AttributeError):
            one.text = ""


def test_rows_of_the_maps_sum_to_1():
    for one in pretrained.load_maps():
        assert (one.weights >= 0).all()
        torch.testing.assert_close(
            one.weights.double().sum(-1), torch.ones(one.weights.shape[:3]).double(), atol=1e-6, rtol=0
        )


def test_the_maps_say_what_made_them_and_are_small():
    about = pretrained.about_maps()
    assert (about.model, about.revision, about.sha256) == (MINILM, *PINS[MINILM])
    module = about.command.removeprefix("python -m ").split()[0]
    assert (Path(__file__).parents[2] / f"{module.replace('.', '/')}.py").is_file()
    assert sum(path.stat().st_size for path in FOLDER.glob("minilm_maps.*")) < 1_000_000


def test_the_maps_have_the_heads_that_were_measured():
    """Numbers from a program of our own that shares no code with the package, on other sentences."""
    weights, lens = pretrained.stacked(pretrained.load_maps())
    rows = torch.arange(weights.shape[-1]) < lens[:, None]
    on_first = (weights[..., 0] * rows[:, None]).sum((1, 3)) / lens.sum()
    before = weights.diagonal(-1, -2, -1).sum((1, 3)) / (lens - 1).sum()
    behind = weights.diagonal(1, -2, -1).sum((1, 3)) / (lens - 1).sum()
    assert before[0, 2] > 0.99
    assert (before > 0.5).sum() == 1
    assert (behind.argmax(), (behind > 0.5).sum()) == (12 + 8, 1)
    assert on_first.argmax() == 4 * 12 + 5
    assert on_first[4, 5] > 0.8
    assert 25 <= (on_first > 0.5).sum() <= 40


# Packing


@pytest.mark.parametrize("sharpness", [0.0, 1.0, 30.0])
@pytest.mark.parametrize("width", [1, 2, 7, 512])
def test_packing_keeps_each_weight_and_each_sum(sharpness, width):
    torch.manual_seed(0)
    weights = (sharpness * torch.randn(2, 3, 5, width)).softmax(-1)
    units = pack(weights)
    assert units.dtype == np.uint16
    assert (units.sum(-1, dtype=np.int64) == 65535).all()
    assert (unpack(units) - weights).abs().max() < pretrained.ERROR + 1e-6
    assert np.array_equal(pack(unpack(units)), units)


def test_packing_gives_the_units_to_those_that_lost_most():
    weights = torch.tensor([10.7, 20.6, 65503.7], dtype=torch.float64) / 65535
    assert pack(weights[None])[0].tolist() == [11, 20, 65504]


def test_what_does_not_sum_to_1_is_not_packed():
    with pytest.raises(ValueError, match="the rows of weights must sum to 1"):
        pack(torch.tensor([[0.5, 0.4]]))


def _readings():
    torch.manual_seed(0)
    return [
        Reading(text, tuple(text.split()), tuple(range(n)), torch.randn(2, 3, n, n).softmax(-1))
        for text, n in (("é a b", 3), ("a a a a c", 5))
    ]


ABOUT = About("owner/name", COMMIT, "0" * 64, "none")


def test_maps_can_be_written_and_read(tmp_path):
    readings = _readings()
    pretrained.write_maps(tmp_path / "maps.json", readings, ABOUT)
    first = (tmp_path / "maps.npz").read_bytes()
    for one, again in zip(readings, pretrained.read_maps(tmp_path / "maps.json"), strict=True):
        assert (one.text, one.tokens, one.ids) == (again.text, again.tokens, again.ids)
        torch.testing.assert_close(one.weights, again.weights, rtol=0, atol=pretrained.ERROR)
    pretrained.write_maps(tmp_path / "maps.json", readings, ABOUT)
    assert (tmp_path / "maps.npz").read_bytes() == first


def test_stored_maps_keep_every_unit_of_every_size(tmp_path):
    torch.manual_seed(1)
    sizes = ((1, 2, 1), (3, 5, 2), (2, 1, 7))  # layers, heads, tokens
    given = [
        Reading("", tuple("abcdefg"[:n]), tuple(range(n)), (9 * torch.randn(layers, heads, n, n)).softmax(-1))
        for layers, heads, n in sizes
    ]
    pretrained.write_maps(tmp_path / "maps.json", given, ABOUT)
    for one, again in zip(given, pretrained.read_maps(tmp_path / "maps.json"), strict=True):
        torch.testing.assert_close(again.weights, unpack(pack(one.weights)), rtol=0, atol=0)


def test_maps_that_version_0_3_0_wrote_are_read(maps):
    content = io.BytesIO()
    np.savez_compressed(content, **{f"text_{i:02}": pack(one.weights) for i, one in enumerate(_readings())})
    maps.with_suffix(".npz").write_bytes(content.getvalue())
    told = json.loads(maps.read_text(encoding="utf-8"))
    told["maps_sha256"] = hashlib.sha256(content.getvalue()).hexdigest()
    maps.write_text(json.dumps(told), encoding="utf-8")
    for one, again in zip(_readings(), pretrained.read_maps(maps), strict=True):
        torch.testing.assert_close(again.weights, unpack(pack(one.weights)), rtol=0, atol=0)


@pytest.mark.parametrize("token", ["", "a b"])
def test_a_token_that_would_not_come_back_is_not_written(tmp_path, token):
    reading = Reading("a", (token,), (0,), torch.ones(1, 1, 1, 1))
    with pytest.raises(ValueError, match="must not be empty or hold a space"):
        pretrained.write_maps(tmp_path / "maps.json", [reading], ABOUT)
    assert not list(tmp_path.iterdir())


@pytest.fixture
def maps(tmp_path):
    pretrained.write_maps(tmp_path / "maps.json", _readings(), ABOUT)
    return tmp_path / "maps.json"


def test_damaged_maps_are_refused(maps):
    content = maps.with_suffix(".npz").read_bytes()
    maps.with_suffix(".npz").write_bytes(content[:-1] + b"!")
    with pytest.raises(ValueError, match=r"the attention maps are damaged: sha256 is \w{64}, not \w{64}"):
        pretrained.read_maps(maps)


@pytest.mark.parametrize("suffix", [".json", ".npz"])
def test_missing_maps_are_named(maps, suffix):
    maps.with_suffix(suffix).unlink()
    with pytest.raises(ValueError, match=re.escape(f"maps{suffix}' is not a file")):
        pretrained.read_maps(maps)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda told: told.pop("texts"), "does not tell its ['texts']"),
        (lambda told: told["texts"].append(told["texts"][0]), "does not fit its maps"),
        (lambda told: told["texts"].reverse(), "5 tokens and 5 ids, but weights of shape (2, 3, 3, 3)"),
        (lambda told: told["texts"][0].update(ids="0 1 x"), "does not fit its maps"),
    ],
)
def test_tokens_that_do_not_fit_the_maps_are_refused(maps, change, message):
    told = json.loads(maps.read_text(encoding="utf-8"))
    change(told)
    maps.write_text(json.dumps(told), encoding="utf-8")
    with pytest.raises(ValueError, match=re.escape(message)):
        pretrained.read_maps(maps)


@pytest.mark.parametrize("content", ["", "[", "[]", "3"])
def test_a_list_of_texts_that_is_none_is_refused(maps, content):
    maps.write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match="is damaged"):
        pretrained.read_maps(maps)


# Batches for measures


def test_stacked_readings_stand_in_one_batch():
    readings = _readings()
    weights, lens = pretrained.stacked(readings)
    assert weights.shape == (2, 2, 3, 5, 5)
    assert lens.tolist() == [3, 5]
    assert torch.equal(weights[:, 0, :, :3, :3], readings[0].weights)
    assert torch.equal(weights[:, 1], readings[1].weights)
    assert weights[:, 0].sum() == pytest.approx(2 * 3 * 3)  # nothing behind the end
    with pytest.raises(ValueError, match="readings must be of one encoder, got weights of shapes"):
        pretrained.stacked([*readings, Reading("a", ("a",), (0,), torch.ones(1, 1, 1, 1))])
    with pytest.raises(ValueError, match="readings must be of one encoder"):
        pretrained.stacked([])


def test_marked_tokens_stand_in_the_places_of_the_batch():
    marks = pretrained.marked(_readings(), {"a", "c"})
    assert marks.tolist() == [[False, True, False, False, False], [True] * 5]
    assert pretrained.marked([], {"a"}).shape == (0, 0)
    with pytest.raises(TypeError, match="tokens must be several strings, got one: 'a'"):
        pretrained.marked(_readings(), "a")
