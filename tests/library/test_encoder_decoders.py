"""Encoder-decoders in our layers, against what `transformers` computes with the same random weights."""

import copy
import functools
import json
import re
import traceback
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import mhalib
from mhalib import Head, heads_of, ledger, pretrained, saved, switched_off
from mhalib.decoding import greedy
from mhalib.measures import head_importance, prune_heads
from mhalib.models import Transformer
from mhalib.pretrained import ENCODER_DECODERS
from mhalib.pretrained import memory as count
from mhalib.pretrained.convert import settings_of, with_weights
from mhalib.pretrained.memory_estimate import on_meta

theirs = pytest.importorskip("encoder_decoders_of_transformers")
write = pytest.importorskip("decoders_of_transformers").write
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("tokenizers", reason="tokenizers is not installed")

CLOSE = 1e-5
"""Of the largest number; of weights, of 1."""
EVERY = pytest.mark.parametrize("name", theirs.CASES)
FAMILY = pytest.mark.parametrize("name", theirs.FAMILIES)
TWO = pytest.mark.parametrize("name", ["bart", "t5"])
SIDES = pytest.mark.parametrize("side", ["left", "right"])
LENGTHS = {"source": [11, 7, 1], "target": [9, 2, 5]}


@pytest.fixture(autouse=True)
def _without_gradients():
    """With them, torch's kernels round otherwise."""
    with torch.no_grad():
        yield


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A case's model, and the folder that holds it; each is made once."""

    @functools.cache
    def make(name):
        model = theirs.made(name)
        return model, write(model, tmp_path_factory.mktemp("encoder-decoder"))

    return make


def _texts(num_sources=11, num_targets=9):
    """The tokens that pad in some families are tokens like all others here."""
    chance = torch.Generator().manual_seed(1)
    return torch.randint(53, (3, num_sources), generator=chance), torch.randint(47, (3, num_targets), generator=chance)


def _padded(side):
    """Texts of these lengths with padding: ids of each, and where they are real."""
    found = []
    for text, lengths in zip(_texts(), LENGTHS.values(), strict=True):
        is_real = torch.arange(text.shape[1]) < torch.tensor(lengths)[:, None]
        text = text.where(is_real, 5)
        found += [text, is_real] if side == "right" else [text.flip(1), is_real.flip(1)]
    return found


def _close(found, wanted, scale=None):
    assert found.shape == wanted.shape
    scale = wanted.abs().max() if scale is None else scale
    deviation = float((found - wanted).abs().max() / scale)
    assert deviation < CLOSE, deviation


def _same_weights(found, wanted):
    assert list(found) == list(wanted) == list(theirs.KINDS)
    for kind in wanted:
        for one, other in zip(found[kind], wanted[kind], strict=True):
            _close(one, other, 1.0)


# The same numbers


@EVERY
def test_vectors_logits_and_weights_are_those_of_transformers(name, stored, ours):
    memory, logits, weights = theirs.answer(stored(name)[0], *_texts())
    found, found_weights = ours(name)(*_texts(), need_weights=True)
    _close(ours(name).encode(_texts()[0])[0], memory)
    _close(found, logits)
    _same_weights(found_weights, weights)
    _close(ours(name)(*_texts())[0], logits)  # by torch's fused kernel, where there is one
    spread = min(float(layer.std(-1).mean()) for layer in (*weights["encoder self"], *weights["cross"]))
    assert spread > 0.02  # weights that are all alike would hide a wrong order of heads


@EVERY
def test_token_by_token_is_all_at_once(name, stored, ours):
    memory, logits, weights = theirs.answer(stored(name)[0], *_texts())
    memory, _ = ours(name).encode(_texts()[0])
    caches = ours(name).new_caches()
    for n in range(9):
        found, found_weights = ours(name).decode(_texts()[1][:, n : n + 1], memory, need_weights=True, caches=caches)
        _close(found, logits[:, n : n + 1], logits.abs().max())
        for kind, of_kind in found_weights.items():
            for one, other in zip(of_kind, weights[kind], strict=True):
                _close(one, other[:, :, n : n + 1, : one.shape[-1]], 1.0)


@pytest.fixture(scope="module")
def alone(stored):
    """What transformers answers to each of the padded texts, without its padding."""

    @functools.cache
    def answers(name, side):
        source, is_real, target, is_written = _padded(side)
        model, is_asked = stored(name)[0], zip(source, is_real, target, is_written, strict=True)
        return [theirs.answer(model, one[None, real], other[None, written]) for one, real, other, written in is_asked]

    return answers


@SIDES
@EVERY
def test_padding_on_either_side_changes_nothing(name, side, stored, ours, alone):
    """A text is read as if it were alone. That is what transformers does with padding behind it, and T5, which counts
    no positions, with padding before it too; the others' positions would be moved there by padding."""
    source, is_real, target, is_written = _padded(side)
    masks = {"source_is_real": is_real, "target_is_real": is_written}
    found, weights = ours(name)(source, target, **masks, need_weights=True)
    assert not found.isnan().any()
    memory, _ = ours(name).encode(source, source_is_real=is_real)
    caches, parts = ours(name).new_caches(), []
    for start, stop in ((0, 4), (4, 5), (5, 9)):
        so_far = {**masks, "target_is_real": is_written[:, :stop]}
        parts.append(ours(name).decode(target[:, start:stop], memory, **so_far, caches=caches)[0])
    for i, (vectors, logits, lone) in enumerate(alone(name, side)):
        real, written = is_real[i], is_written[i]
        _close(memory[i : i + 1, real], vectors)
        _close(found[i : i + 1, written], logits, logits.abs().max())
        _close(torch.cat(parts, 1)[i : i + 1, written], logits, logits.abs().max())
        for kind, seeing, seen in zip(theirs.KINDS, (real, written, written), (real, written, real), strict=True):
            for one, other in zip(weights[kind], lone[kind], strict=True):
                _close(one[i : i + 1, :, seeing][..., seen], other, 1.0)
                assert not one[i, :, seeing][..., ~seen].any()
    if side == "right" or name in ("t5", "mt5"):
        _, logits, _ = theirs.answer(stored(name)[0], source, target, is_real, is_written)
        _close(found[is_written], logits[is_written])
    if side == "right":
        by_length, _ = ours(name)(source, target, torch.tensor(LENGTHS["source"]))
        _close(by_length[is_written], found[is_written])


@TWO
def test_it_is_the_same_on_every_device(name, stored, ours, device):
    model = pretrained.load(stored(name)[1], device=device).model.requires_grad_(False)
    source, is_real, target, is_written = _padded("left")
    wanted, _ = ours(name)(source, target, source_is_real=is_real, target_is_real=is_written)
    masks = {"source_is_real": is_real.to(device), "target_is_real": is_written.to(device)}
    found, _ = model(source.to(device), target.to(device), **masks)
    _close(found[is_written].cpu(), wanted[is_written])


@TWO
def test_greedy_decoding_writes_what_transformers_writes(name, stored, ours):
    model, (source, _) = stored(name)[0], _texts()
    start = model.config.decoder_start_token_id
    expected = model.generate(
        source, attention_mask=torch.ones_like(source), do_sample=False, num_beams=1, max_new_tokens=8,
        min_new_tokens=8, eos_token_id=None, forced_eos_token_id=None, decoder_start_token_id=start, use_cache=False,
    )[:, 1:]  # fmt: skip
    found = greedy(ours(name), source, begin=start, end=99, padding=0, max_tokens=8)
    assert torch.equal(found, expected)


# Heads


@TWO
def test_a_head_that_is_off_is_one_whose_columns_are_nothing(name, stored, ours):
    """In each of the three kinds of attention, in the last layer."""
    patterns = {
        "bart": (r"encoder.layers.1.self_attn.out_", r"decoder.layers.2.self_attn.out_", r"layers.2.encoder_attn.out_"),
        "t5": (r"encoder.block.1.layer.0.*\.o\.", r"decoder.block.2.layer.0.*\.o\.", r"decoder.block.2.*EncDec.*\.o\."),
    }  # fmt: skip
    for kind, pattern in zip(theirs.KINDS, patterns[name], strict=True):
        model, layers = copy.deepcopy(stored(name)[0]), ours(name).attention_layers()[kind]
        number, d = len(layers) - 1, layers[-1].head_dim
        keys = [key for key, _ in model.named_parameters() if re.search(pattern, key) and key.endswith("weight")]
        assert len(keys) == 1
        model.get_parameter(keys[0])[:, d : 2 * d] = 0
        _, logits, _ = theirs.answer(model, *_texts())
        with switched_off(ours(name), [Head(kind, number, 1)]):
            _close(ours(name)(*_texts())[0], logits)
        assert (ours(name)(*_texts())[0] - logits).abs().max() > 1e-2


@FAMILY
def test_pruned_models_compute_what_switched_off_ones_do(name, ours, tmp_path):
    heads = [Head(kind, len(layers) - 1, 0) for kind, layers in ours(name).attention_layers().items()]
    heads += [Head("encoder self", 0, 1)]
    with switched_off(ours(name), heads):
        logits, _ = ours(name)(*_texts())
    pruned = prune_heads(copy.deepcopy(ours(name)), heads)
    _close(pruned(*_texts(), need_weights=True)[0], logits)
    assert pruned.num_weights < ours(name).num_weights
    (memory, _), caches = pruned.encode(_texts()[0]), pruned.new_caches()
    found = [pruned.decode(_texts()[1][:, n : n + 1], memory, caches=caches)[0] for n in range(9)]
    _close(torch.cat(found, 1), logits)
    saved.write(pruned, tmp_path / "own", saved.About("none", ("loss", 1.0), "none"))
    again = saved.read(tmp_path / "own")
    assert again.settings == ours(name).settings
    assert again.num_weights == pruned.num_weights  # what was one parameter is one
    pruned.load_state_dict({key: value.half().float() for key, value in pruned.state_dict().items()})
    assert torch.equal(again(*_texts())[0], pruned(*_texts())[0])
    saved.write(pruned.half(), tmp_path / "own", saved.About("none", ("loss", 1.0), "none"))
    assert torch.equal(saved.read(tmp_path / "own")(*_texts())[0], again(*_texts())[0])


@TWO
def test_importance_and_the_ledger_take_every_layer(name, ours):
    model = copy.deepcopy(ours(name)).requires_grad_(True)
    layers = model.attention_layers()
    assert [len(of_kind) for of_kind in layers.values()] == [2, 3, 3]
    assert len(heads_of(model)) == sum(layer.num_heads for of_kind in layers.values() for layer in of_kind)
    with torch.enable_grad():
        found = head_importance(model, [_texts()], lambda one, texts: one(*texts)[0].square().mean((1, 2)))
    assert all((of_kind > 0).all() for of_kind in found.values())
    x = torch.randn(2, 5, 12)
    for of_kind in layers.values():
        assert torch.equal(ledger(of_kind[0], x, x, x).output[0], of_kind[0](x, x, x)[0])


@FAMILY
def test_a_model_of_its_settings_can_be_trained(name, ours):
    torch.manual_seed(0)
    model = Transformer(**ours(name).settings)
    assert {key: x.shape for key, x in model.state_dict().items()} == {
        key: x.shape for key, x in ours(name).state_dict().items()
    }
    with torch.enable_grad():
        model(*_texts())[0].square().sum().backward()
    assert all(one.grad is not None and one.grad.abs().max() > 0 for one in model.parameters())


# Files and configs


def test_families_are_all_tried():
    assert set(theirs.FAMILIES) == set(ENCODER_DECODERS)


@TWO
def test_a_text_is_read_by_the_encoder(name, stored):
    model, folder = stored(name)
    found = pretrained.load(folder)("w5 w17 w17 w3 w40")
    memory, _, weights = theirs.answer(model, torch.tensor([[5, 17, 17, 3, 40]]), torch.tensor([[0]]))
    assert found.tokens == ("w5", "w17", "w17", "w3", "w40")
    _close(found.output, memory[0])
    _close(found.weights, torch.cat(weights["encoder self"]), 1.0)


@TWO
def test_a_text_and_what_is_written_are_read_together(name, stored):
    model, folder = stored(name)
    start = model.config.decoder_start_token_id
    found = pretrained.load(folder).pair("w5 w17 w3 w40", "w9 w8")
    memory, logits, weights = theirs.answer(model, torch.tensor([[5, 17, 3, 40]]), torch.tensor([[start, 9, 8]]))
    assert (found.target.tokens, found.target.ids) == ((f"w{start}", "w9", "w8"), (start, 9, 8))
    assert (found.source.text, found.target.text) == ("w5 w17 w3 w40", "w9 w8")
    _close(found.source.output, memory[0])
    _close(found.target.output, logits[0])
    maps = (found.source.weights, found.target.weights, found.cross)
    for one, kind in zip(maps, theirs.KINDS, strict=True):
        _close(one, torch.cat(weights[kind]), 1.0)


def test_a_pair_that_cannot_be_read_is_refused(stored, tmp_path):
    found = pretrained.load(stored("bart")[1])
    for texts, error, message in (
        (("w5", 3), TypeError, "written must be a string, got int: 3"),
        (("", "w5"), ValueError, "text='' has no tokens"),
        (("w5", " "), ValueError, "written=' ' has no tokens"),
        (("w5", "w5 " * 23), ValueError, "24 tokens, but the model has only max_tokens=23 positions"),
    ):
        with pytest.raises(error, match=re.escape(message)):
            found.pair(*texts)
    with pytest.raises(ValueError, match="it is not known which token begins"):
        replace(found, start=None).pair("w5", "w5")
    with pytest.raises(TypeError, match="model must be a Transformer, got Linear"):
        replace(found, model=torch.nn.Linear(1, 1)).pair("w5", "w5")
    with pytest.raises(ValueError, match="writes in another vocabulary than it reads"):
        pretrained.load(stored("marian, two vocabularies")[1]).pair("w5", "w5")


def test_a_model_without_a_tokenizer_takes_ids(stored, ours, tmp_path):
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((stored("marian")[1] / name).read_bytes())
    with pytest.raises(ValueError, match="with_tokenizer=False does without"):
        pretrained.load(tmp_path)
    found = pretrained.load(tmp_path, with_tokenizer=False)
    assert found.tokenizer is None
    assert torch.equal(found.model(*_texts())[0], ours("marian")(*_texts())[0])
    with pytest.raises(ValueError, match="text='w5' cannot be read without a tokenizer: model takes ids"):
        found("w5")
    with pytest.raises(TypeError, match="with_tokenizer must be True or False, got int: 0"):
        pretrained.load(tmp_path, with_tokenizer=0)


@TWO
def test_several_files_and_bfloat16(name, stored, ours, tmp_path):
    write(stored(name)[0], tmp_path, max_shard_size="9KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 2
    assert torch.equal(pretrained.load(tmp_path).model(*_texts())[0], ours(name)(*_texts())[0])
    narrow = pretrained.load(tmp_path, dtype=torch.bfloat16).model.requires_grad_(False)
    assert {one.dtype for one in narrow.parameters()} == {torch.bfloat16}
    logits = ours(name)(*_texts())[0]
    lost = (narrow(*_texts())[0].float() - logits).abs().mean() / logits.abs().mean()
    assert 0 < lost < 0.05


@FAMILY
def test_memory_is_counted_before_anything_is_read(name, stored, ours, monkeypatch, tmp_path):
    model, folder = stored(name)
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())  # and nothing else
    found = count(tmp_path, 9, batch_size=3, dtype=torch.bfloat16)
    learned = {key: one.numel() for key, one in model.named_parameters()}
    if name in ("marian", "pegasus"):  # sines and cosines
        learned = {key: number for key, number in learned.items() if "embed_positions" not in key}
    unused = 2 * 2 * 12 if "bart" in name else 0  # rows of positions before the first
    biases = 0 if "t5" in name else 53  # which transformers calls a buffer
    assert found.parameters == ours(name).num_weights == sum(learned.values()) - unused + biases
    source, target = _texts(9, 9)
    memory, caches = ours(name).encode(source)[0], ours(name).new_caches()
    ours(name).decode(target, memory, caches=caches)
    assert found.cache == sum(part.num_bytes for cache in caches for part in cache) // 2
    _, weights = ours(name)(source, target, need_weights=True)
    assert found.maps == 2 * sum(layer.numel() for of_kind in weights.values() for layer in of_kind)
    needed = count(tmp_path).weights
    (tmp_path / "tokenizer.json").write_bytes(b"never read")
    (tmp_path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    monkeypatch.delattr("mhalib.pretrained.files.Checkpoint.__getitem__")  # its header is read, and no weight
    with pytest.raises(ValueError, match=f"memory_limit={needed - 1}"):
        pretrained.load(tmp_path, memory_limit=needed - 1)


PUBLISHED = {
    "t5-small": (
        {"model_type": "t5", "vocab_size": 32128, "d_model": 512, "d_ff": 2048, "d_kv": 64, "num_heads": 8}
        | {"num_layers": 6},
        60_506_624,
    ),
    "flan-t5-small": (
        {"model_type": "t5", "vocab_size": 32128, "d_model": 512, "d_ff": 1024, "d_kv": 64, "num_heads": 6}
        | {"num_layers": 8, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
        76_961_152,
    ),
    "bart-large": (
        {"model_type": "bart", "vocab_size": 50265, "d_model": 1024, "max_position_embeddings": 1024}
        | {f"{side}_layers": 12 for side in ("encoder", "decoder")}
        | {f"{side}_attention_heads": 16 for side in ("encoder", "decoder")}
        | {f"{side}_ffn_dim": 4096 for side in ("encoder", "decoder")},
        406_291_456 - 2 * 2 * 1024 + 50265,  # without rows of positions that are never used, with biases of logits
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_real_models_have_as_many_weights_as_is_published(name, tmp_path):
    """What their config.json says, as far as it matters here; nothing is loaded."""
    config, published = PUBLISHED[name]
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert count(tmp_path).parameters == published


@FAMILY
def test_what_a_config_leaves_out_means_what_it_means_there(name):
    kind, _ = theirs.CASES[name]
    told = getattr(transformers, f"{kind}Config")().to_dict()
    known = {"vocab_size", "d_model", "d_ff", "num_layers", "num_heads", "max_position_embeddings"}
    known |= {f"{side}_{size}" for side in ("encoder", "decoder") for size in ("layers", "attention_heads", "ffn_dim")}
    sizes = {key: told[key] for key in known if key in told} | {"model_type": name}
    assert settings_of(sizes) == settings_of(told)


@pytest.mark.parametrize("name", ["marian", "t5"])
def test_a_config_with_any_wrong_entry_is_read_or_refused_by_name(name):
    told = theirs.config_of(name).to_dict()
    read = {*theirs.CASES[name][1], "tie_word_embeddings", "share_encoder_decoder_embeddings", "feed_forward_proj"}
    read |= {"scale_decoder_outputs", "layer_norm_epsilon", "quantization_config"} - {"decoder_start_token_id"}
    refused = []
    for change in [{key: value} for key in sorted(read) for value in (None, [[]], -1, float("nan"))]:
        try:
            on_meta({**told, **change})
        except (ValueError, TypeError) as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            refused.append((last.filename, last.line, change, error))
    package = str(Path(mhalib.__file__).parent)
    assert not [one for one in refused if not (one[0].startswith(package) and one[1].startswith("raise "))]
    assert len(refused) > 40


def _changed(stored, name, change):
    """The config and tensors of a stored model, after `change(tensors)`."""
    _, folder = stored(name)
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    return json.loads((folder / "config.json").read_text()), tensors


def test_what_files_may_leave_out_or_hold_twice(stored, ours):
    """Names without their prefix; vectors that are stored for each of their uses; biases of logits that are 0;
    positions that are computed; a T5 without a readout of its own; old T5's numbers that nothing used."""
    config, tensors = _changed(stored, "bart", lambda _: None)
    bare = {key.removeprefix("model."): value for key, value in tensors.items() if key != "final_logits_bias"}
    for key in ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"):
        bare[key] = bare["shared.weight"]
    bare["encoder.version"] = torch.ones(1)
    wanted = ours("bart")(*_texts())[0] - tensors["final_logits_bias"]
    _close(with_weights(config, bare)(*_texts())[0], wanted)
    del bare["shared.weight"]
    _close(with_weights(config, bare)(*_texts())[0], wanted)

    config, tensors = _changed(
        stored, "marian", lambda one: one.update({"model.encoder.embed_positions.weight": torch.ones(9, 12)})
    )
    tensors["model.decoder.version"] = torch.ones(1)
    assert torch.equal(with_weights(config, tensors)(*_texts())[0], ours("marian")(*_texts())[0])

    config, tensors = _changed(stored, "t5", lambda one: one.update({"lm_head.weight": one["shared.weight"].clone()}))
    tensors["decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"] = torch.ones(8, 3)
    assert torch.equal(with_weights(config, tensors)(*_texts())[0], ours("t5")(*_texts())[0])
    del tensors["lm_head.weight"]
    unscaled = with_weights({**config, "scale_decoder_outputs": False}, tensors)
    _close(unscaled(*_texts())[0], ours("t5")(*_texts())[0] * 12**0.5)


@pytest.mark.parametrize(
    ("name", "changed", "message"),
    [
        ("bart", {"model_type": "umt5"}, "(versions of transformers differ in what its last vectors are multipl"),
        ("bart", {"model_type": "m2m_100"}, "(its sinusoidal positions turn at rates of their own, and leave out the"),
        ("bart", {"tie_word_embeddings": False}, "tie_word_embeddings=False in config.json: our blocks need True"),
        ("bart", {"activation_function": "mish"}, "activation_function='mish' in config.json is none of"),
        ("bart", {"encoder_layers": 1}, "holds 16 tensors that the model of config.json has no place for"),
        ("bart", {"decoder_layers": 4}, "lacks 26 tensors of the model, such as ['model.decoder.layers.3"),
        ("bart", {"d_model": 18}, "of which config.json does not make"),
        ("bart", {"quantization_config": {"bits": 4}}, "our blocks need weights that are not quantised"),
        ("t5", {"feed_forward_proj": "gated-silu"}, "lacks 5 tensors of the model, such as ['decoder.b"),
        ("t5", {"feed_forward_proj": "gated-mish"}, "feed_forward_proj='mish' in config.json is none of"),
        ("t5", {"relative_attention_num_buckets": 7}, "num_buckets=7 must be even"),
        ("t5", {"relative_attention_max_distance": 2}, "max_distance=2 must be above 2, the buckets of a"),
        ("t5, 1.1", {"scale_decoder_outputs": True}, "holds 'shared.weight' and 'lm_head.weight' with different num"),
        ("t5, 1.1", {"feed_forward_proj": "relu"}, "holds 5 tensors that the model of config.json has no place for"),
    ],
)  # fmt: skip
def test_what_our_blocks_cannot_hold_is_refused_by_name(name, changed, message, stored, tmp_path):
    config, tensors = _changed(stored, name, lambda _: None)
    (tmp_path / "config.json").write_text(json.dumps(config | changed))
    (tmp_path / "tokenizer.json").write_bytes((stored(name)[1] / "tokenizer.json").read_bytes())
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=re.escape(message)):
        pretrained.load(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"source_is_real": torch.ones(3, 11)}, TypeError, "source_is_real must be boolean, got torch.float32"),
        ({"source_is_real": torch.ones(3, 9, dtype=torch.bool)}, ValueError, "source_is_real has shape (3, 9), but"),
        ({"target_is_real": torch.arange(9).expand(3, 9) != 4}, ValueError, "target_is_real has padding between"),
        ({"target_is_real": [[True]]}, TypeError, "target_is_real must be a torch.Tensor, got list"),
    ],
)
def test_padding_that_cannot_be_is_refused(arguments, error, message, ours):
    with pytest.raises(error, match=re.escape(message)):
        ours("t5")(*_texts(), **arguments)
