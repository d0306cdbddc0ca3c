"""ViT, DeiT, DINOv2 and CLIP in our layers, against what `transformers` computes with the same random weights."""

import copy
import functools
import json
import math
import re
import sys
import traceback
import types
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import mhalib
from mhalib import Head, gated, heads_of, pretrained, saved, switched_off
from mhalib.measures import head_importance, head_roles, prune_heads
from mhalib.models import CLIP
from mhalib.pretrained import PICTURES, PREPARATION, Preparation
from mhalib.pretrained import memory as count
from mhalib.pretrained.memory_estimate import on_meta
from mhalib.pretrained.preparation import preparation_of

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")

CLOSE = 1e-5
"""Of the largest number of an output; of weights, of 1."""
VIT = {"num_hidden_layers": 2, "hidden_size": 15, "num_attention_heads": 3, "intermediate_size": 37}
VIT |= {"image_size": [6, 10], "patch_size": 2, "num_labels": 4}
TEXT = {"num_hidden_layers": 3, "hidden_size": 20, "num_attention_heads": 4, "intermediate_size": 33}
TEXT |= {"vocab_size": 23, "max_position_embeddings": 11, "bos_token_id": 1, "pad_token_id": 0, "eos_token_id": 19}
VISION = {**VIT, "image_size": 6}
DINO = {key: VIT[key] for key in ("num_hidden_layers", "hidden_size", "num_attention_heads", "patch_size")}
DINO |= {"image_size": 6, "mlp_ratio": 3}
TOWERS = {"text_config": TEXT, "vision_config": VISION, "projection_dim": 7}
CASES = {
    "vit": ("ViTForImageClassification", VIT),
    "vit, bare": ("ViTModel", {**VIT, "qkv_bias": False, "num_channels": 2, "hidden_act": "gelu_new"}),
    "deit": ("DeiTForImageClassificationWithTeacher", VIT),
    "deit, bare": ("DeiTModel", VIT),
    "dinov2": ("Dinov2Model", DINO),
    "dinov2, gated": ("Dinov2Model", {**DINO, "use_swiglu_ffn": True, "qkv_bias": False}),
    "dinov2_with_registers": ("Dinov2WithRegistersModel", {**DINO, "num_register_tokens": 3}),
    "clip": ("CLIPModel", TOWERS),
    "clip, old": ("CLIPModel", {**TOWERS, "text_config": {**TEXT, "eos_token_id": 2, "hidden_act": "gelu"}}),
}
"""Name -> the class in `transformers`, and what its config says."""
EVERY = pytest.mark.parametrize("name", CASES)
FAMILY = pytest.mark.parametrize("name", PICTURES)
PREPARED = {
    "vit": {
        "size": {"height": 6, "width": 10},
        "resample": 2,
        "image_mean": [0.5, 0.4, 0.3],
        "image_std": [0.5, 0.6, 0.7],
    },
    "deit": {"size": {"height": 9, "width": 12}, "crop_size": {"height": 6, "width": 10}},
    "clip": {"size": {"shortest_edge": 6}, "crop_size": 6},
    **{key: {"size": {"shortest_edge": 7}, "crop_size": 6} for key in ("dinov2", "dinov2_with_registers")},
}
PROCESSORS = {"vit": ("vit", "ViT"), "deit": ("deit", "DeiT"), "clip": ("clip", "CLIP")}
"""Whose preparation `transformers` takes: of DINOv2, that of another model."""
WORDS = {f"w{number}": number for number in range(23)}
TOKENIZER = {
    **dict.fromkeys(("truncation", "padding", "normalizer", "decoder")),
    "version": "1.0",
    "added_tokens": [],
    "pre_tokenizer": {"type": "WhitespaceSplit"},
    "post_processor": {
        "type": "TemplateProcessing",
        "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "w19", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}],
        "special_tokens": {"w19": {"id": "w19", "ids": [19], "tokens": ["w19"]}},
    },
    "model": {"type": "WordLevel", "vocab": WORDS, "unk_token": "w0"},
}


def _made(name):
    """A model of `transformers`, with no weight that is 0 or 1, so that none can be forgotten."""
    torch.manual_seed(len(name))
    kind, told = CASES[name]
    family = re.match("ViT|DeiT|CLIP|Dinov2WithRegisters|Dinov2", kind)[0]
    config = getattr(transformers, f"{family}Config")(**told)
    config._attn_implementation = "eager"
    model = getattr(transformers, kind)(config).eval()
    with torch.no_grad():
        for key, weight in model.named_parameters():
            is_table = ("embedding" in key and "patch" not in key) or "token" in key
            std = 0.3 if weight.dim() < 2 else 1.0 if is_table else 1.5 * min(weight.flatten(1).shape) ** -0.5
            weight.copy_(
                torch.randn_like(weight) * std
                + (weight.dim() == 1 and (("norm" in key and "weight" in key) or "lambda" in key))
            )
    return model.requires_grad_(False)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A case's model, and the folder that holds it; each is made once."""

    @functools.cache
    def make(name):
        model, folder = _made(name), tmp_path_factory.mktemp("pictures")
        model.save_pretrained(folder)
        (folder / PREPARATION).write_text(json.dumps(PREPARED[name.split(",")[0]]))
        if name.startswith("clip"):
            (folder / "tokenizer.json").write_text(json.dumps(TOKENIZER))
        return model, folder

    return make


def _images(model, number=3):
    vit = model.pictures if isinstance(model, CLIP) else model
    return torch.randn(number, *vit.patches.size, generator=torch.Generator().manual_seed(1))


def _texts():
    """Texts of 9, 6 and 2 tokens, ended by 19, and in "clip, old" by 22; behind them anything."""
    tokens = torch.randint(3, 18, (3, 9), generator=torch.Generator().manual_seed(2))
    lens = torch.tensor([9, 6, 2])
    tokens[torch.arange(3), lens - 1] = 19
    return tokens, lens


def _inputs(name, model):
    if not name.startswith("clip"):
        return (_images(model),)
    tokens, _ = _texts()
    return _images(model, 2), tokens.where(tokens != 19, 22) if name == "clip, old" else tokens


@torch.no_grad()
def _answer(model, images, tokens=None, is_real=None):
    """What `transformers` makes of it, and all its attention weights: of pictures, then of texts."""
    texts = {} if tokens is None else {"input_ids": tokens, "attention_mask": is_real}
    found = model(pixel_values=images, output_attentions=True, **texts)
    if tokens is None:
        return found.get("logits", found.get("last_hidden_state")), [found.attentions]
    return found.logits_per_image, [found.vision_model_output.attentions, found.text_model_output.attentions]


def _close(found, wanted, scale=None):
    deviation = float((found - wanted).abs().max() / (wanted.abs().max() if scale is None else scale))
    assert deviation < CLOSE, deviation


# The same numbers


@EVERY
def test_outputs_and_weights_are_those_of_transformers(name, stored, ours):
    model = ours(name)
    assert type(model) is PICTURES[name.split(",")[0]].model
    inputs = _inputs(name, model)
    output, weights = _answer(stored(name)[0], *inputs)
    found, found_weights = model(*inputs, need_weights=True)
    _close(found, output)
    _close(model(*inputs)[0], output)  # by torch's fused kernel
    assert len(weights) == len(found_weights)
    for theirs, own in zip(weights, found_weights.values(), strict=True):
        assert len(theirs) == len(own)
        _close(torch.stack(own), torch.stack(theirs), 1.0)
        assert torch.stack(theirs)[:, :, :, -1].std(-1).mean() > 0.05  # weights alike would hide a wrong order of heads


def test_padding_behind_texts_is_that_of_transformers(stored, ours):
    theirs, model = stored("clip")[0], ours("clip")
    tokens, lens = _texts()
    is_real = torch.arange(9) < lens[:, None]
    output, (_, weights) = _answer(theirs, _images(model), tokens, is_real.long())
    for texts in (tokens, tokens.where(is_real, 19)):  # OpenAI's texts are filled up with the token that ends them
        found, found_weights = model(_images(model), texts, lens, need_weights=True)
        _close(found, output)
        for own, wanted in zip(found_weights["decoder self"], weights, strict=True):
            _close(own.movedim(1, -1)[is_real], wanted.movedim(1, -1)[is_real], 1.0)
    vectors = theirs.get_text_features(input_ids=tokens, attention_mask=is_real.long()).pooler_output
    _close(model.read_texts(tokens, lens)[0], vectors)
    _close(model.read_pictures(_images(model))[0], theirs.get_image_features(_images(model)).pooler_output)


def test_bfloat16_and_prefixes_make_no_difference(stored, ours, tmp_path):
    """ViT without a classifier is stored without "vit.", and here with it."""
    _, folder = stored("vit, bare")
    for name in ("config.json", PREPARATION):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    tensors = {f"vit.{key}": one.bfloat16() for key, one in load_file(folder / "model.safetensors").items()}
    save_file(tensors, tmp_path / "model.safetensors")
    images = _images(ours("vit, bare"))
    wide, narrow = (pretrained.load(tmp_path, dtype=dtype).model for dtype in (torch.float32, torch.bfloat16))
    expected = copy.deepcopy(stored("vit, bare")[0]).bfloat16().float()
    _close(wide.requires_grad_(False)(images)[0], _answer(expected, images)[0])
    assert narrow(images.bfloat16())[0].dtype == torch.bfloat16
    with pytest.raises(TypeError, match=r"images is torch.float32, but the model's weights are torch.bfloat16"):
        narrow(images)


# The house's own instruments


@pytest.mark.parametrize(
    ("name", "kind", "module"),
    [
        ("vit", "encoder self", "vit.layers.1.attention.o_proj"),
        ("clip", "encoder self", "vision_model.encoder.layers.1.self_attn.out_proj"),
        ("clip", "decoder self", "text_model.encoder.layers.1.self_attn.out_proj"),
    ],
)
def test_a_head_that_is_off_or_pruned_is_one_whose_columns_are_nothing(name, kind, module, stored, ours):
    theirs, model = copy.deepcopy(stored(name)[0]), ours(name)
    inputs, layer = _inputs(name, model), model.attention_layers()[kind][1]
    theirs.get_submodule(module).weight[:, layer.head_dim : 2 * layer.head_dim] = 0
    output, _ = _answer(theirs, *inputs)
    off = [Head(kind, 1, 1)]
    with switched_off(model, off):
        _close(model(*inputs)[0], output)
    assert (model(*inputs)[0] - output).abs().max() > 1e-2
    pruned = prune_heads(copy.deepcopy(model), off)
    _close(pruned(*inputs)[0], output)
    assert pruned.num_weights < model.num_weights
    assert pruned.attention_layers()[kind][1].num_heads == layer.num_heads - 1


def test_importance_gates_and_roles_know_the_heads_of_both_towers(ours):
    model = copy.deepcopy(ours("clip")).double().requires_grad_(True)
    tokens, images = _texts()[0][1:2], _images(model, 1).double()
    assert len(heads_of(model)) == 2 * 3 + 3 * 4

    def fit(one, batch):
        return one(images, batch)[0][:, 0]

    found = head_importance(model, [tokens], fit)
    for kind, layer, head in (("encoder self", 1, 2), ("decoder self", 2, 3)):
        values = []
        for by in (1e-5, -1e-5):
            gates = [torch.ones(one.num_heads).double() for one in model.attention_layers()[kind]]
            gates[layer][head] += by
            with torch.no_grad(), gated(model, {kind: gates}):
                values.append(float(fit(model, tokens)))
        assert float(found[kind][layer, head]) == pytest.approx(abs(values[0] - values[1]) / 2e-5, rel=1e-5, abs=1e-8)
    _, weights = model(images, tokens, need_weights=True)
    assert len(head_roles(torch.stack(weights["encoder self"])[0])) == 3


@EVERY
def test_a_model_of_its_settings_is_trained_stored_and_read(name, ours, tmp_path):
    model = ours(name)
    saved.write(model, tmp_path / "own", saved.About("none", ("loss", 1.0), "none"))
    again = saved.read(tmp_path / "own")
    assert again.settings == model.settings
    assert all(torch.equal(one, model.state_dict()[key].half()) for key, one in again.half().state_dict().items())
    new = type(model)(**model.settings)
    new(*_inputs(name, model))[0].square().sum().backward()
    assert all(one.grad is not None and one.grad.abs().max() > 0 for one in new.parameters())


# Pictures


def _picture(height, width):
    """A picture with smooth and with sharp places, and PIL's numbers of it from 0 to 255."""
    torch.manual_seed(3)
    rows, columns = torch.linspace(0, 7, height)[:, None], torch.linspace(0, 5, width)
    smooth = torch.stack([(rows * k).sin() * (columns * (4 - k)).cos() for k in (1, 2, 3)]) / 2 + 0.5
    whole = (smooth.where(torch.rand(height, width) < 0.9, torch.rand(3, height, width)) * 255).round().to(torch.uint8)
    return whole.float() / 255, whole


@pytest.mark.parametrize("size", [(97, 61), (40, 301), (13, 17)])
@FAMILY
def test_pictures_are_prepared_nearly_as_by_pil(name, size):
    """And exactly where nothing is resized. PIL rounds to 256 values after each of two passes."""
    pytest.importorskip("PIL", reason="PIL is not installed")
    family, kind = PROCESSORS.get(name, ("bit", "Bit"))
    module = __import__(f"transformers.models.{family}.image_processing_pil_{family}", fromlist=["x"])
    told = {"size": {"height": 30, "width": 22} if name in ("vit", "deit") else {"shortest_edge": 30}}
    told |= {"crop_size": {"height": 18, "width": 20}}
    picture, whole = _picture(*size)
    for change in ({}, {"do_resize": False, "do_center_crop": False}):
        processor = getattr(module, f"{kind}ImageProcessorPil")(**told, **change)
        wanted = processor(whole, return_tensors="pt").pixel_values
        prepare = preparation_of(json.loads(processor.to_json_string()), name)
        found = prepare(picture[None])
        steps = (found - wanted).abs() * torch.tensor(prepare.std)[:, None, None] * 255
        assert found.shape == wanted.shape
        assert steps.max() < (1e-3 if change else 1.3)
        assert steps.mean() < (1e-4 if change else 0.4)


@FAMILY
def test_what_a_file_leaves_out_means_what_it_means_there(name):
    pytest.importorskip("PIL", reason="PIL is not installed")
    family, kind = PROCESSORS.get(name, ("bit", "Bit"))
    module = __import__(f"transformers.models.{family}.image_processing_pil_{family}", fromlist=["x"])
    told = json.loads(getattr(module, f"{kind}ImageProcessorPil")().to_json_string())
    assert preparation_of({}, name) == preparation_of(told, name)
    old = {"size": 224, "crop_size": 224} if name != "deit" else {"size": 256, "crop_size": 224}
    assert preparation_of(old, name) == preparation_of(told, name)


@FAMILY
def test_a_picture_is_read_and_its_patches_are_named(name, stored):
    theirs, folder = stored(name)
    found = pretrained.load(folder)
    picture, _ = _picture(31, 47)
    reading = found(picture)
    size = (6, 10) if name in ("vit", "deit") else (6, 6)
    ready = found.prepare(picture[None])
    assert ready.shape == (1, 3, *size)
    more = {"deit": ("[DISTILLED]",), "dinov2_with_registers": ("[REG]",) * 3}
    first = ("[CLS]", *more.get(name, ()))
    assert reading.tokens == (*first, *(f"{i},{j}" for i in range(size[0] // 2) for j in range(size[1] // 2)))
    assert len(reading.ids) == len(reading.tokens) == reading.weights.shape[-1]
    assert reading.weights.shape == (2, 3, len(reading.tokens), len(reading.tokens))
    output = theirs.get_image_features(ready).pooler_output if name == "clip" else _answer(theirs, ready)[0]
    _close(reading.output, output[0])
    assert found(picture.half()).output.dtype == torch.float32


@pytest.mark.parametrize("size", [(4, 10), (12, 8)])
def test_a_dinov2_is_made_for_pictures_as_they_are_prepared(size, stored, tmp_path):
    """Its positions were learned on another grid; `transformers` stretches them for each picture."""
    theirs, folder = stored("dinov2")
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    told = {"size": {"shortest_edge": 13}, "crop_size": dict(zip(("height", "width"), size, strict=True))}
    (tmp_path / PREPARATION).write_text(json.dumps(told))
    found = pretrained.load(tmp_path)
    picture, _ = _picture(31, 47)
    output, (weights,) = _answer(theirs, found.prepare(picture[None]))
    reading = found(picture)
    _close(reading.output, output[0])
    _close(reading.weights, torch.stack(weights)[:, 0], 1.0)
    assert reading.tokens[-1] == f"{size[0] // 2 - 1},{size[1] // 2 - 1}"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda tensors, name: tensors.pop(name),
            "lacks 'encoder.layer.1.layer_scale2.lambda1', which multiplies what",
        ),
        (lambda tensors, name: tensors.update({name: torch.ones(14)}), "layer_scale2.lambda1' with shape (14,)"),
    ],
)
def test_what_multiplies_a_dinov2s_results_must_be_there(change, message, stored, tmp_path):
    _, folder = stored("dinov2")
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    tensors = load_file(folder / "model.safetensors")
    change(tensors, "encoder.layer.1.layer_scale2.lambda1")
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=re.escape(message)):
        pretrained.load(tmp_path)


def test_clip_reads_texts_too_and_a_vit_does_not(stored):
    theirs, folder = stored("clip")
    found = pretrained.load(folder)
    reading = found("w3 w17 w3")
    assert reading.tokens == ("w3", "w17", "w3", "w19")
    assert reading.weights.shape == (3, 4, 4, 4)
    _close(reading.output, theirs.get_text_features(input_ids=torch.tensor([reading.ids])).pooler_output[0])
    with pytest.raises(TypeError, match=r"text must be a string, got int: 3"):
        found(3)
    vit = pretrained.load(stored("vit")[1])
    assert vit.tokenizer is None
    with pytest.raises(TypeError, match=r"a ViT reads pictures, tensors of three axes, got str: 'a cat'"):
        vit("a cat")


@pytest.mark.parametrize(
    ("picture", "error", "message"),
    [
        (torch.rand(4, 9, 9), ValueError, "pictures have 4 colours, but the model reads 3"),
        (torch.rand(9, 9), ValueError, "a picture has three axes (channels, height, width), got shape (9, 9)"),
        (torch.rand(1, 3, 9, 9), ValueError, "a picture has three axes"),
        (torch.full((3, 9, 9), 255.0), ValueError, "pictures must hold numbers from 0 to 1, got some up to 255"),
        (torch.full((3, 9, 9), math.nan), ValueError, "pictures must hold numbers from 0 to 1"),
        (
            torch.zeros(3, 9, 9).byte(),
            TypeError,
            "pictures must hold floating-point numbers from 0 to 1, got torch.uin",
        ),
        (torch.rand(3, 0, 9), ValueError, "pictures are empty: shape (1, 3, 0, 9)"),
    ],
)
def test_a_picture_that_is_none_is_refused(picture, error, message, stored):
    with pytest.raises(error, match=re.escape(message)):
        pretrained.load(stored("vit")[1])(picture)


def test_what_is_prepared_for_another_size_is_refused(stored, ours):
    prepare = Preparation((0.5,) * 3, (0.5,) * 3, resize=8)
    with pytest.raises(ValueError, match=re.escape("images are (3, 8, 8), but the model was made for (3, 6, 10)")):
        ours("vit")(prepare(torch.rand(2, 3, 5, 5)))
    with pytest.raises(ValueError, match="pictures are 5 x 5, but 6 x 4 are to be cut out of them"):
        Preparation((0.5,) * 3, (0.5,) * 3, crop=(6, 4))(torch.rand(2, 3, 5, 5))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"resample": 1}, "resample=1 in preprocessor_config.json must be 2, bilinear, or 3, bicubic"),
        ({"size": {"shortest_edge": 5, "longest_edge": 9}}, "longest_edge is not read"),
        ({"size": "big"}, "size='big' in preprocessor_config.json must be one integer of at least 1, or two"),
        ({"size": {"height": 5}}, "width=None in preprocessor_config.json must be an integer of at least 1"),
        ({"image_mean": "x"}, "image_mean='x' in preprocessor_config.json must be a list of numbers"),
        ({"image_std": [0, 1, 1]}, "each entry of std=0 must be positive"),
        ({"image_mean": [None] * 3}, "preprocessor_config.json: each entry of mean must be a number"),
        ({"image_mean": [0.5]}, "must have an entry for each colour"),
        ({"do_resize": 1}, "do_resize=1 in preprocessor_config.json must be true or false"),
        ({"rescale_factor": 0}, "rescale_factor=0 in preprocessor_config.json must be a positive number"),
    ],
)
def test_a_preparation_that_cannot_be_is_refused_by_name(change, message, stored, tmp_path):
    _, folder = stored("vit")
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    (tmp_path / PREPARATION).write_text(json.dumps(PREPARED["vit"] | change))
    with pytest.raises(ValueError, match=re.escape(message)):
        pretrained.load(tmp_path)


def test_numbers_that_are_not_rescaled_or_normalised_are_left_alone():
    picture = torch.rand(2, 3, 4, 5)
    plain = {"do_resize": False, "do_center_crop": False, "do_normalize": False}
    assert torch.equal(preparation_of(plain, "clip")(picture), picture)
    torch.testing.assert_close(preparation_of({**plain, "do_rescale": False}, "vit")(picture), 255 * picture)


# Memory


@EVERY
def test_memory_is_counted_before_anything_is_read(name, stored, ours, tmp_path):
    model, folder = stored(name)
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())  # and nothing else
    found = count(tmp_path, 9, batch_size=2, dtype=torch.bfloat16)
    assert found.parameters == ours(name).num_weights
    unused = ("pooler", "mask_token", "lambda")
    left_out = sum(one.numel() for key, one in model.named_parameters() if any(part in key for part in unused))
    positions = 15 * (2 if name.startswith("deit") else 1)  # are part of the class tokens
    assert found.parameters == sum(one.numel() for one in model.parameters()) - left_out - positions
    assert (found.weights, found.cache) == (2 * found.parameters, 0)
    inputs = (_images(ours(name), 2), *([_texts()[0][:2]] if name == "clip" else [_inputs(name, ours(name))[-1][:2]]))
    _, weights = ours(name)(*inputs[: 2 if name.startswith("clip") else 1], need_weights=True)
    assert found.maps == 2 * sum(one.numel() for of_kind in weights.values() for one in of_kind)
    with pytest.raises(ValueError, match=f"the model has {found.parameters:,} weights, .*memory_limit=5"):
        pretrained.load(folder, memory_limit=5)


BASE = {"id2label": {str(i): "x" for i in range(1000)}, "image_size": 224, "patch_size": 16}
PUBLISHED = {
    "google/vit-base-patch16-224": (
        {"model_type": "vit", "architectures": ["ViTForImageClassification"], **BASE},
        86_567_656 - 768,
    ),
    "facebook/deit-base-distilled-patch16-224": (
        {"model_type": "deit", "architectures": ["DeiTForImageClassificationWithTeacher"], **BASE},
        87_338_192 - 2 * 768,
    ),
    "facebook/dinov2-base": (
        {"model_type": "dinov2", "image_size": 518},
        86_580_480 - 2 * 768 - 24 * 768,
    ),
    "openai/clip-vit-base-patch32": (
        {"model_type": "clip", "text_config_dict": None, "text_config": {"eos_token_id": 2}, "projection_dim": 512},
        151_277_313 - 768,
    ),
    "openai/clip-vit-large-patch14": (
        {"model_type": "clip", "projection_dim": 768, "vision_config": {"x": 1}}
        | {"text_config_dict": {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12}}
        | {"vision_config_dict": {"hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16}}
        | {"text_config": {"hidden_size": 3}},
        None,
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_real_models_have_as_many_weights_as_is_published(name, tmp_path):
    """Less the class tokens' positions, which are part of the class tokens here."""
    config, published = PUBLISHED[name]
    if name.endswith("large-patch14"):
        config["vision_config_dict"] |= {"num_hidden_layers": 24, "patch_size": 14}
        published = 427_616_513 - 1024
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert count(tmp_path).parameters == published


# Refusals


@pytest.mark.parametrize(
    ("name", "changed", "message"),
    [
        ("vit", {"architectures": ["ViTForMaskedImageModeling"]}, "our models hold ViTModel or ViTForImageClassifica"),
        (
            "vit",
            {"architectures": ["ViTModel"]},
            "holds 2 tensors that the model of config.json has no place for, such",
        ),
        ("vit", {"patch_size": [2, 3]}, "patch_size=[2, 3] in config.json: our patches are squares"),
        ("vit", {"patch_size": 4}, "patch_size=4 does not divide height=6 and width=10"),
        (
            "vit",
            {"image_size": [6, 8]},
            "of which config.json does not make 'patches.positions.table' with shape (12, 15",
        ),
        ("vit", {"num_channels": 4}, "projection.weight' with shape (15, 3, 2, 2), of which config.json does not make"),
        ("vit", {"hidden_size": 18}, "embeddings.cls_token' with shape "),
        ("vit", {"qkv_bias": False}, "holds 6 tensors that the model of config.json has no place for, such as"),
        (
            "vit",
            {"num_hidden_layers": 3},
            "lacks 16 tensors of the model, such as ['vit.encoder.layer.2.at",
        ),
        ("vit", {"head_dim": 7}, "head_dim=7 in config.json: our blocks need 5"),
        ("vit", {"hidden_act": "quick_gelu_"}, "hidden_act='quick_gelu_' in config.json is none of"),
        ("vit", {"quantization_config": {"bits": 4}}, "our blocks need weights that are not quantised"),
        (
            "vit, bare",
            {"model_type": "deit"},
            "architectures=['ViTModel'] in config.json: our models hold DeiTModel or",
        ),
        (
            "deit",
            {"architectures": ["DeiTForImageClassification"]},
            "our models hold DeiTModel or DeiTForImageClassifi",
        ),
        ("dinov2", {"architectures": ["Dinov2ForImageClassification"]}, "our models hold Dinov2Model or"),
        ("dinov2", {"apply_layernorm": False}, "apply_layernorm=False in config.json: our blocks need True"),
        ("dinov2", {"mlp_ratio": 2**23}, "mlp_ratio * hidden_size=125829120 in config.json is more than any model"),
        ("dinov2_with_registers", {"num_register_tokens": 4}, "of which config.json does not make 'registers' with"),
        ("clip", {"architectures": ["CLIPForImageClassification"]}, "our models hold CLIPModel"),
        ("clip", {"projection_dim": 8}, "of which config.json does not make 'projection.weight' with shape (8, 20)"),
        ("clip", {"text_config": 3}, "text_config=3 in config.json must be an object"),
        ("clip", {"text_config": {**TEXT, "eos_token_id": 23}}, "end_token=23 must be below vocab_size=23"),
        ("clip", {"text_config": {**TEXT, "eos_token_id": [1]}}, "eos_token_id=[1] in config.json must be an integer"),
    ],
)
def test_what_our_blocks_cannot_hold_is_refused_by_name(name, changed, message, stored, tmp_path):
    _, folder = stored(name)
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    config = json.loads((folder / "config.json").read_text()) | changed
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=re.escape(message)):
        pretrained.load(tmp_path)


def test_a_missing_file_is_named_and_transformers_is_not_asked(stored, tmp_path):
    _, folder = stored("clip")
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    names = re.escape(f"lacks ['model.safetensors', 'tokenizer.json', '{PREPARATION}']; transformers.AutoTokenizer")
    with pytest.raises(
        ValueError, match=names + ".*transformers.AutoImageProcessor.*writes a preprocessor_config.json"
    ):
        pretrained.load(tmp_path)
    with pytest.raises(ValueError, match=r"model_type='clip' in config\.json reads pictures, which only our layers do"):
        pretrained.load(folder, through="transformers")


@pytest.mark.parametrize(("name", "more"), [("vit", []), ("clip", ["tokenizer.json"])])
def test_the_hub_is_asked_for_what_the_model_needs(name, more, stored, monkeypatch):
    calls = []

    def hf_hub_download(repo_id, filename, *, revision):
        calls.append(filename)
        return str(stored(name)[1] / filename)

    module = types.ModuleType("huggingface_hub")
    module.hf_hub_download = hf_hub_download
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    pretrained.load("owner/name", revision="0123456789abcdef0123456789abcdef01234567")
    assert calls == ["config.json", PREPARATION, "model.safetensors", *more]  # each once, and what may be wrong first


WRONG = (None, "x", [[]], {"x": 1}, -1, 0, 1.5, math.nan)


@pytest.mark.parametrize("name", ["vit", "dinov2_with_registers", "clip"])
def test_a_config_with_any_wrong_entry_is_read_or_refused_by_name(name, stored):
    told = json.loads((stored(name)[1] / "config.json").read_text())
    changes = [{key: value} for key in told if key != "model_type" for value in WRONG]
    for part in ("text_config", "vision_config"):
        small = told.get(part, {}) | {"num_hidden_layers": 1}
        changes += [{part: {**small, key: value}} for key in told.get(part, {}) for value in WRONG[1:6:2]]
    calls = [lambda change=change: on_meta({**told, **change}) for change in changes]
    ready = PREPARED[name] | {"do_resize": True, "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True}
    calls += [lambda k=k, v=v: preparation_of({**ready, k: v}, name) for k in ready for v in WRONG]
    refused = []
    for call in calls:
        try:
            call()
        except (ValueError, TypeError) as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            refused.append((last.filename, last.line, error))
    package = str(Path(mhalib.__file__).parent)
    assert [one for one in refused if not (one[0].startswith(package) and one[1].startswith("raise "))] == []
    assert len(refused) > 50
