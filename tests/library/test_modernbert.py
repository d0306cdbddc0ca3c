"""ModernBERT in our BERT, against what `transformers` computes with the same random weights."""

import functools
import json
import re

import pytest
import torch

from mhalib import Head, pretrained, saved, switched_off
from mhalib.models import BERT
from mhalib.pretrained import memory as count
from mhalib.pretrained.convert import settings_of
from mhalib.pretrained.memory_estimate import on_meta

pytestmark = pytest.mark.package

theirs = pytest.importorskip("decoders_of_transformers")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("tokenizers", reason="tokenizers is not installed")

KIND, TOKENS, CLOSE = "encoder self", 13, 1e-5
SIZES = {"vocab_size": 53, "hidden_size": 36, "intermediate_size": 37, "num_hidden_layers": 5, "num_attention_heads": 3}
SIZES |= {"max_position_embeddings": 19, "pad_token_id": 0, "local_attention": 5}
KINDS = ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "full_attention"]
ROPES = {
    "full_attention": theirs.YARN,
    "sliding_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 50.0},
}
CASES = {
    "modernbert": SIZES,
    "biases": {**SIZES, "norm_bias": True, "attention_bias": True, "mlp_bias": True, "norm_eps": 1e-2},
    "other layers": {**SIZES, "layer_types": KINDS, "local_attention": 7, "rope_parameters": ROPES}
    | {"hidden_activation": "gelu_pytorch_tanh"},
}
EVERY = pytest.mark.parametrize("name", CASES)
PUBLISHED = {  # answerdotai/ModernBERT-base
    "model_type": "modernbert",
    "vocab_size": 50368,
    "hidden_size": 768,
    "intermediate_size": 1152,
    "num_hidden_layers": 22,
    "num_attention_heads": 12,
    "max_position_embeddings": 8192,
    "local_attention": 128,
    "global_attn_every_n_layers": 3,
    "global_rope_theta": 160000.0,
    "local_rope_theta": 10000.0,
    "layer_norm_eps": 1e-05,
    "norm_eps": 1e-05,
    "position_embedding_type": "absolute",
}


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A case's model, with its head for hidden words, and the folder that holds it; each is made once."""

    @functools.cache
    def make(name):
        torch.manual_seed(len(name))
        config = transformers.ModernBertConfig(**CASES[name])
        config._attn_implementation = "eager"
        model = transformers.ModernBertForMaskedLM(config).eval().requires_grad_(False)
        for key, weight in model.named_parameters():
            std = 0.3 if weight.dim() == 1 else 1.5 * min(weight.shape) ** -0.5
            weight.copy_(std * torch.randn_like(weight) + (weight.dim() == 1 and key.endswith("weight")))
        return model, theirs.write(model, tmp_path_factory.mktemp("encoder"))

    return make


def _tokens():
    return torch.randint(53, (3, TOKENS), generator=torch.Generator().manual_seed(1))


def _close(found, wanted, scale=None):
    """The largest deviation, in units of the largest number."""
    deviation = float((found - wanted).abs().max() / (wanted.abs().max() if scale is None else scale))
    assert deviation < CLOSE, deviation


def _layers(model, tokens, is_real):
    """What each layer makes, the last one also normalised, and weights (layers, B, h, N, N)."""
    made = []
    hooks = [layer.register_forward_hook(lambda *given: made.append(given[2][0])) for layer in model.encoder.layers]
    x, weights = model(tokens, is_real=is_real, need_weights=True)
    for hook in hooks:
        hook.remove()
    return [*made[:-1], x], torch.stack(weights[KIND])


@pytest.mark.parametrize("side", [None, "left", "right"])
@EVERY
def test_layers_weights_and_logits_are_those_of_transformers(name, side, stored, ours):
    """Texts of 13, 8 and 2 tokens: longer and shorter than a window of 5, with padding on either side."""
    model, _ = stored(name)
    is_real = torch.arange(TOKENS) < torch.tensor([TOKENS, 8, 2] if side else [TOKENS] * 3)[:, None]
    is_real = is_real.flip(1) if side == "left" else is_real
    wanted = model(_tokens(), attention_mask=is_real.long(), output_attentions=True, output_hidden_states=True)
    found, weights = _layers(ours(name), _tokens().where(is_real, 7), is_real)
    for one, other in zip(found, wanted.hidden_states[1:], strict=True):
        _close(one[is_real], other[is_real])
    attentions = torch.stack(wanted.attentions)
    _close(weights.movedim(2, -1)[:, is_real], attentions.movedim(2, -1)[:, is_real], 1.0)
    _close(model.decoder(model.head(found[-1]))[is_real], wanted.logits[is_real])
    fused, _ = ours(name)(_tokens(), is_real=is_real)
    _close(fused[is_real], wanted.hidden_states[-1][is_real])
    assert not fused.isnan().any()
    if side == "right":
        by_length, _ = ours(name)(_tokens(), is_real.sum(1))
        _close(by_length[is_real], fused[is_real])
    assert attentions[:, 0].std(-1).mean() > 0.05  # weights that are all alike would hide a wrong order of heads


def test_windows_reach_as_far_to_both_sides(ours):
    """`local_attention` of 5 or 4 is two tokens before and two behind."""
    assert ours("modernbert").windows == [None, 5, 5, None, 5]
    assert settings_of({**CASES["biases"], "model_type": "modernbert", "local_attention": 4})["window"][1] == 5
    weights = torch.stack(ours("modernbert")(_tokens(), need_weights=True)[1][KIND])
    places = torch.arange(TOKENS)
    is_near = (places[:, None] - places).abs() <= 2
    for one, window in zip(weights, ours("modernbert").windows, strict=True):
        assert torch.equal((one > 0).all((0, 1)), is_near if window else torch.ones_like(is_near))


def test_a_text_is_read_as_transformers_reads_it(stored):
    own, other = (
        pretrained.load(stored("modernbert")[1], through=way)("w3 w5 w7 w11 w13 w17 w2")
        for way in ("mhalib", "transformers")
    )
    _close(own.output, other.output.detach())
    _close(own.weights, other.weights.detach(), 1.0)


def test_a_head_that_is_off_is_one_whose_columns_are_nothing(stored, ours):
    model = stored("modernbert")[0]
    columns = ours("modernbert").attention_layers()[KIND][1].head_slices(2).o
    kept = model.model.layers[1].attn.Wo.weight[:, columns].clone()
    model.model.layers[1].attn.Wo.weight[:, columns] = 0
    with switched_off(ours("modernbert"), [Head(KIND, 1, 2)]):
        _close(ours("modernbert")(_tokens())[0], model.model(_tokens()).last_hidden_state)
    model.model.layers[1].attn.Wo.weight[:, columns] = kept
    _close(ours("modernbert")(_tokens())[0], model.model(_tokens()).last_hidden_state)


@EVERY
def test_a_model_of_its_settings_is_trained_stored_and_read(name, ours, tmp_path):
    model = BERT(**ours(name).settings)
    model.load_state_dict(ours(name).state_dict())
    model(_tokens())[0].square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in model.parameters())
    saved.write(model, tmp_path / "own.safetensors", saved.About("none", ("loss", 1.0), "none"))
    again = saved.read(tmp_path / "own.safetensors")
    assert again.settings == ours(name).settings
    torch.testing.assert_close(again(_tokens())[0], model(_tokens())[0], rtol=0, atol=0.2)  # of float16


def test_the_published_model_has_as_many_weights_as_transformers_makes(tmp_path):
    """149 million. Files on the hub name two bases and how many layers have no window; newer ones name each."""
    (tmp_path / "config.json").write_text(json.dumps(PUBLISHED))
    with torch.device("meta"):
        model = transformers.ModernBertModel(transformers.ModernBertConfig())
    found = count(tmp_path, 1024, dtype=torch.bfloat16)
    assert found.parameters == sum(one.numel() for one in model.parameters()) == 149_014_272
    assert (found.cache, found.maps) == (0, 22 * 12 * 1024**2 * 2)
    newer = transformers.ModernBertConfig(**PUBLISHED).to_dict()
    assert newer["rope_parameters"]["full_attention"]["rope_theta"] == 160000
    assert settings_of(newer) == settings_of(PUBLISHED)
    sizes = {key: newer[key] for key in (*SIZES, "model_type") if key != "local_attention"}
    assert settings_of(sizes) == settings_of(newer)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"rope_scaling": {"rope_type": "yarn"}}, "rope_scaling={'rope_type': 'yarn'} in config.json: our blocks need"),
        ({"hidden_activation": "mish"}, "hidden_activation='mish' in config.json is none of ['gelu', "),
        ({"local_attention": 0}, "local_attention=0 in config.json must be an integer of at least 1"),
        ({"layer_types": ["full_attention"]}, "layer_types=['full_attention'] in config.json must be a list of 5"),
        ({"hidden_size": 35}, "hidden_size=35 in config.json is not divisible by num_attention_heads=3"),
        ({"norm_bias": True}, "lacks 11 tensors of the model, such as ['model.embeddings.norm.bias', 'model.final_no"),
        ({"num_hidden_layers": 4, "layer_types": None}, "holds 6 tensors that the model of config.json has no place"),
        ({"intermediate_size": 38}, "with shape (74, 36), of which config.json does not make 'encoder.layers.0.ffn"),
    ],
)
def test_what_our_blocks_cannot_hold_is_refused_by_name(changed, message, stored, tmp_path):
    for path in stored("modernbert")[1].iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    config = json.loads((tmp_path / "config.json").read_text()) | changed
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=re.escape(message)):
        pretrained.load(tmp_path)


@pytest.mark.parametrize("wrong", ["x", [[]], {"x": 1}, -1, 1.5, float("nan")], ids=str)
@pytest.mark.parametrize("key", [*SIZES, "global_attn_every_n_layers", "layer_types", "norm_eps", "rope_parameters"])
def test_a_wrong_entry_is_refused_by_name(key, wrong):
    if key == "pad_token_id" or (key, wrong) in (("norm_eps", 1.5), ("rope_parameters", {"x": 1})):
        return  # what is not read, and what is right
    with pytest.raises(ValueError, match=rf"{key}=.* in config\.json"):
        on_meta({**PUBLISHED, key: wrong})
