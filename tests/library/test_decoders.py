"""Decoders in our layers, against what `transformers` computes with the same random weights."""

import contextlib
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
from safetensors.torch import load_file
from torch.nn import functional as F

import mhalib
from mhalib import Head, gated, heads_of, ledger, pretrained, saved, switched_off
from mhalib.decoding import sample
from mhalib.measures import head_importance, head_roles, induction_score, prune_heads
from mhalib.models import GPT
from mhalib.pretrained import DECODERS, FAMILIES, PICTURES, UNREAD
from mhalib.pretrained import memory as count
from mhalib.pretrained.convert import require_known, settings_of, with_weights
from mhalib.pretrained.memory_estimate import on_meta

pytestmark = pytest.mark.package

theirs = pytest.importorskip("decoders_of_transformers")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("tokenizers", reason="tokenizers is not installed")

WRONG = (None, "x", [[]], {"x": 1}, -1, 0, 1.5, math.nan)
CLOSE = 1e-5
"""Of the largest logit; of weights, of 1."""
KIND = "decoder self"
EVERY = pytest.mark.parametrize("name", theirs.CASES)
FAMILY = pytest.mark.parametrize("name", theirs.FAMILIES)
TWO = pytest.mark.parametrize("name", ["gpt2", "llama, scaled"])
SIDES = pytest.mark.parametrize("side", ["left", "right"])


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A case's model, and the folder that holds it; each is made once."""

    @functools.cache
    def make(name):
        model = theirs.made(name)
        return model, theirs.write(model, tmp_path_factory.mktemp("decoder"))

    return make


def _tokens(batch_size=3, num_tokens=9):
    """The tokens that pad in some families, 0 and 1, are tokens like all others here."""
    return torch.randint(53, (batch_size, num_tokens), generator=torch.Generator().manual_seed(1))


def _padding(side, num_tokens=9):
    """Texts of 9, 6 and 1 tokens."""
    is_real = torch.arange(num_tokens) < torch.tensor([9, 6, 1])[:, None]
    return is_real.flip(1) if side == "left" else is_real


def _close(found, wanted, scale=None):
    """The largest deviation, in units of the largest number."""
    scale = wanted.abs().max() if scale is None else scale
    deviation = float((found - wanted).abs().max() / scale)
    assert deviation < CLOSE, deviation
    return deviation


def _read(model, tokens, **arguments):
    logits, weights = model(tokens, need_weights=True, **arguments)
    return logits, torch.stack(weights[KIND])


# The same numbers


@EVERY
def test_logits_and_weights_are_those_of_transformers(name, stored, ours):
    logits, weights = theirs.answer(stored(name)[0], _tokens())
    found, found_weights = _read(ours(name), _tokens())
    _close(found, logits)
    _close(found_weights, weights, 1.0)
    _close(ours(name)(_tokens())[0], logits)  # by torch's fused kernel
    spread = weights[:, :, :, -1].std(-1).mean()
    assert spread > 0.05  # weights that are all alike would hide a wrong order of heads


@SIDES
@EVERY
def test_padding_on_either_side_changes_nothing(name, side, stored, ours):
    is_real = _padding(side)
    logits, weights = theirs.answer(stored(name)[0], _tokens(), is_real)
    for tokens in (_tokens(), _tokens().where(is_real, 7)):
        found, found_weights = _read(ours(name), tokens, is_real=is_real)
        _close(found[is_real], logits[is_real])
        _close(found_weights.movedim(2, -1)[:, is_real], weights.movedim(2, -1)[:, is_real], 1.0)
        _close(ours(name)(tokens, is_real=is_real)[0][is_real], logits[is_real])
    assert not found.isnan().any()
    alone, _ = ours(name)(_tokens()[1:2, -6:] if side == "left" else _tokens()[1:2, :6])
    _close(found[1][is_real[1]], alone[0])


@EVERY
def test_token_by_token_is_all_at_once(name, stored, ours):
    logits, weights = theirs.answer(stored(name)[0], _tokens())
    caches = ours(name).new_caches()
    for n in range(9):
        found, found_weights = _read(ours(name), _tokens()[:, n : n + 1], caches=caches)
        _close(found, logits[:, n : n + 1], logits.abs().max())
        _close(found_weights, weights[..., n : n + 1, : n + 1], 1.0)


@torch.no_grad()
def test_dynamic_positions_grow_with_the_text_as_they_do_there(tmp_path):
    """All at once and step by step differ, here and there: what is cached is not turned again."""
    config = {**theirs.LLAMA, "head_dim": 8, "max_position_embeddings": 5}
    rope = {"rope_parameters": {"rope_type": "dynamic", "factor": 3.0, "rope_theta": 100.0}}
    torch.manual_seed(0)
    their_model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**config, **rope)).eval()
    for weight in their_model.parameters():
        weight.copy_(torch.randn_like(weight) * (1.5 * min(weight.shape) ** -0.5))
    model = pretrained.load(theirs.write(their_model, tmp_path)).model
    cache, caches, steps, own_steps = transformers.DynamicCache(), model.new_caches(), [], []
    for n in range(9):
        token = _tokens()[:, n : n + 1]
        steps.append(their_model(token, past_key_values=cache, use_cache=True).logits)
        own_steps.append(model(token, caches=caches)[0])
    _close(torch.cat(own_steps, 1), torch.cat(steps, 1))
    at_once = their_model(_tokens()).logits
    _close(model(_tokens())[0], at_once)
    assert (at_once - torch.cat(steps, 1)).abs().max() > 1e-2


@FAMILY
def test_a_cache_goes_with_padding_before_the_text(name, stored, ours):
    is_real = _padding("left")
    logits, _ = theirs.answer(stored(name)[0], _tokens(), is_real)
    caches, found = ours(name).new_caches(), []
    for start, stop in ((0, 4), (4, 8), (8, 9)):
        found.append(ours(name)(_tokens()[:, start:stop], is_real=is_real[:, :stop], caches=caches)[0])
    _close(torch.cat(found, 1)[is_real], logits[is_real])


@TWO
def test_it_is_the_same_on_every_device(name, stored, device):
    """With padding, and with a cache."""
    model = pretrained.load(stored(name)[1], device=device).model.requires_grad_(False)
    assert {one.device.type for one in model.parameters()} == {device.type}
    is_real, tokens = _padding("left").to(device), _tokens().to(device)
    logits, _ = theirs.answer(stored(name)[0], _tokens(), _padding("left"))
    caches = model.new_caches()
    parts = [model(tokens[:, a:b], is_real=is_real[:, :b], caches=caches)[0] for a, b in ((0, 5), (5, 9))]
    for found in (model(tokens, is_real=is_real)[0], torch.cat(parts, 1)):
        _close(found[is_real].cpu(), logits[_padding("left")])


@FAMILY
def test_a_head_that_is_off_is_one_whose_columns_are_nothing(name, stored, ours):
    model = copy.deepcopy(stored(name)[0])
    heads, layer = ours(name).design.num_heads, 1
    own = ours(name).attention_layers()[KIND][layer]
    columns = own.head_slices(heads - 2).o
    for key, weight in model.named_parameters():
        if re.search(rf"\.{layer}\..*(o_proj|out_proj|attention\.dense)\.weight$", key):
            weight[:, columns] = 0
        elif re.search(rf"\.{layer}\.attn\.c_proj\.weight$", key):
            weight[columns] = 0
    with switched_off(ours(name), [Head(KIND, layer, heads - 2)]):
        _close(ours(name)(_tokens())[0], theirs.answer(model, _tokens())[0])
    assert (ours(name)(_tokens())[0] - theirs.answer(model, _tokens())[0]).abs().max() > 1e-2


def test_families_are_all_tried():
    assert set(theirs.FAMILIES) == set(DECODERS)


@FAMILY
def test_what_a_config_leaves_out_means_what_it_means_there(name):
    """Old files name sizes alone."""
    kind, _ = theirs.CASES[name]
    config = getattr(transformers, f"{kind}Config")()
    known = ("vocab_size", "n_embd", "n_head", "n_layer", "n_positions", "hidden_size", "num_attention_heads")
    known += ("num_hidden_layers", "intermediate_size", "ffn_dim", "max_position_embeddings")
    told = config.to_dict()
    sizes = {key: told[key] for key in known if key in told} | {"model_type": name}
    assert settings_of(sizes) == settings_of(told)


@pytest.mark.parametrize(
    ("name", "old"),
    [
        (
            "llama, scaled",
            {
                "rope_theta": 700.0,
                "rope_scaling": {key: value for key, value in theirs.ROPE_3.items() if key != "rope_theta"},
            },
        ),
        (
            "gpt_neox, one after the other",
            {"rotary_emb_base": 99.0, "rotary_pct": 0.5, "rope_scaling": {"type": "linear", "factor": 2.0}},
        ),
        ("gemma", {"hidden_act": "gelu", "hidden_activation": None, "rope_theta": 10000.0}),
        ("gpt_neox", {"rotary_emb_base": 10000, "rotary_pct": 0.25}),
        (
            "gemma3_text",
            {"rope_theta": 700.0, "rope_local_base_freq": 50.0, "layer_types": None}
            | {"rope_scaling": {"rope_type": "linear", "factor": 2.0}, "sliding_window_pattern": 6},
        ),
        (
            "deepseek_v3",
            {"rope_theta": 500.0, "head_dim": None}
            | {
                "rope_scaling": {
                    "type": "yarn",
                    "factor": 4.0,
                    "original_max_position_embeddings": 64,
                    "beta_fast": 8.0,
                }
                | {"mscale": 0.7, "mscale_all_dim": 1.3}
            },
        ),
        ("olmo3", {"rope_theta": 500.0, "rope_local_base_freq": 50.0, "rope_scaling": theirs.YARN}),
    ],
)
def test_configs_of_older_versions_say_the_same(name, old):
    told = theirs.config_of(name).to_dict()
    older = {key: value for key, value in told.items() if key != "rope_parameters"} | old
    assert settings_of(older) == settings_of(told)


LLAMA_32_1B = {
    "model_type": "llama",
    "vocab_size": 128256,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-05,
    "rope_theta": 500000.0,
    "rope_scaling": {
        "factor": 32.0,
        "high_freq_factor": 4.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "tie_word_embeddings": True,
}
PUBLISHED = {
    "gpt2": (
        {"model_type": "gpt2", "vocab_size": 50257, "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024},
        124_439_808,
    ),
    "pythia-70m": (
        {"model_type": "gpt_neox", "vocab_size": 50304, "hidden_size": 512, "num_attention_heads": 8}
        | {"num_hidden_layers": 6, "intermediate_size": 2048, "max_position_embeddings": 2048, "rotary_pct": 0.25},
        70_426_624,
    ),
    "opt-125m": (
        {"model_type": "opt", "vocab_size": 50272, "hidden_size": 768, "num_attention_heads": 12, "ffn_dim": 3072}
        | {"num_hidden_layers": 12, "max_position_embeddings": 2048, "word_embed_proj_dim": 768},
        125_239_296 - 2 * 768,  # two rows of positions are never used
    ),
    "Llama-2-7b": (
        {"model_type": "llama", "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008}
        | {"num_attention_heads": 32, "num_hidden_layers": 32, "max_position_embeddings": 4096, "rope_scaling": None},
        6_738_415_616,
    ),
    "Llama-3.2-1B": (LLAMA_32_1B, 1_235_814_400),
    "Mistral-7B-v0.1": (
        {"model_type": "mistral", "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336}
        | {"num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 32, "sliding_window": 4096}
        | {"max_position_embeddings": 32768, "tie_word_embeddings": False},
        7_241_732_096,
    ),
    "Qwen2-0.5B": (
        {"model_type": "qwen2", "vocab_size": 151936, "hidden_size": 896, "intermediate_size": 4864}
        | {"num_attention_heads": 14, "num_key_value_heads": 2, "num_hidden_layers": 24, "sliding_window": 131072}
        | {"max_position_embeddings": 131072, "max_window_layers": 24, "use_sliding_window": False}
        | {"tie_word_embeddings": True, "rope_theta": 1000000.0},
        494_032_768,
    ),
    "Qwen3-0.6B": (
        {"model_type": "qwen3", "vocab_size": 151936, "hidden_size": 1024, "intermediate_size": 3072, "head_dim": 128}
        | {"num_attention_heads": 16, "num_key_value_heads": 8, "num_hidden_layers": 28, "sliding_window": None}
        | {"max_position_embeddings": 40960, "max_window_layers": 28, "use_sliding_window": False}
        | {"tie_word_embeddings": True, "rope_theta": 1000000, "attention_bias": False},
        596_049_920,
    ),
    "OLMo-2-0425-1B": (
        {"model_type": "olmo2", "vocab_size": 100352, "hidden_size": 2048, "intermediate_size": 8192}
        | {"num_attention_heads": 16, "num_key_value_heads": 16, "num_hidden_layers": 16, "rms_norm_eps": 1e-6}
        | {"max_position_embeddings": 4096, "rope_theta": 500000, "tie_word_embeddings": False},
        1_484_916_736,
    ),
    "gemma-2b": (
        {"model_type": "gemma", "vocab_size": 256000, "hidden_size": 2048, "intermediate_size": 16384, "head_dim": 256}
        | {"num_attention_heads": 8, "num_key_value_heads": 1, "num_hidden_layers": 18, "hidden_act": "gelu"}
        | {"max_position_embeddings": 8192},
        2_506_172_416,
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_real_models_have_as_many_weights_as_is_published(name, tmp_path):
    """What their config.json says, as far as it matters here; nothing is loaded."""
    config, published = PUBLISHED[name]
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert count(tmp_path).parameters == published


def test_a_cache_of_a_real_model_takes_what_its_sizes_say(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_32_1B))
    found = count(tmp_path, 1000, batch_size=2, dtype=torch.bfloat16)
    assert found.cache == 2 * 1000 * 16 * 2 * 8 * 64 * 2  # texts, tokens, layers, k and v, heads, channels, bytes
    assert found.maps == 2 * 16 * 32 * 1000 * 1000 * 2


DEEPSEEK_V3 = {
    "model_type": "deepseek_v3",
    "vocab_size": 129280,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "num_hidden_layers": 61,
    "first_k_dense_replace": 3,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "n_group": 8,
    "topk_group": 4,
    "topk_method": "noaux_tc",
    "scoring_func": "sigmoid",
    "moe_layer_freq": 1,
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
    "num_nextn_predict_layers": 1,
    "rope_theta": 10000,
    "max_position_embeddings": 163840,
    "rope_scaling": {
        "type": "yarn",
        "factor": 40,
        "beta_fast": 32,
        "beta_slow": 1,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
    }
    | {"original_max_position_embeddings": 4096},
}
"""The entries of DeepSeek-V3's own config.json, but for "quantization_config"."""


def test_deepseek_v3_is_as_large_as_is_published(tmp_path):
    """transformers counts no biases that only choose: it has them as buffers."""
    (tmp_path / "config.json").write_text(json.dumps(DEEPSEEK_V3))
    found = count(tmp_path, 1, dtype=torch.bfloat16)
    with torch.device("meta"):
        model = transformers.DeepseekV3ForCausalLM(transformers.DeepseekV3Config())
    biases = sum(one.numel() for key, one in model.named_buffers() if key.endswith("correction_bias"))
    assert biases == 58 * 256
    assert found.parameters == sum(one.numel() for one in model.parameters()) + biases == 671_026_419_200
    assert found.cache == 61 * (512 + 64) * 2 == 70_272
    (tmp_path / "config.json").write_text(json.dumps({**DEEPSEEK_V3, "quantization_config": {"quant_method": "fp8"}}))
    with pytest.raises(ValueError, match=r"quantization_config in config\.json: our blocks need weights that are not"):
        count(tmp_path)


def test_deepseek_v3_grows_its_scores_as_its_report_says():
    """By the square of 0.1 ln 40 + 1, on every channel; those that are turned are no longer than the others."""
    attention = settings_of(DEEPSEEK_V3)["attention"]
    assert attention["scale"] == pytest.approx(192**-0.5 * (0.1 * math.log(40) + 1) ** 2)
    assert attention["rotary_scaling"]["attention_factor"] == 1


def test_a_layer_that_guesses_a_second_token_is_left_out(stored, ours):
    """DeepSeek-V3's files hold it as layer 61; a layer with any other number is missed."""
    _, folder = stored("deepseek_v3")
    config, tensors = json.loads((folder / "config.json").read_text()), load_file(folder / "model.safetensors")
    guess = {key.replace("layers.1.", "layers.61."): one for key, one in tensors.items() if "layers.1." in key}
    found = with_weights(config, tensors | guess)(_tokens())[0]
    assert torch.equal(found, ours("deepseek_v3")(_tokens())[0])
    other = {key.replace("layers.61.", "layers.2."): one for key, one in guess.items()}
    with pytest.raises(ValueError, match=r"tensors that the model of config\.json has no place for, such as"):
        with_weights(config, tensors | other)


def test_scales_of_fp8_weights_are_not_forgotten(stored):
    """Without "quantization_config", too: the scales have no place."""
    _, folder = stored("deepseek_v3")
    config, tensors = json.loads((folder / "config.json").read_text()), load_file(folder / "model.safetensors")
    name = "model.layers.0.self_attn.o_proj.weight"
    tensors |= {name: tensors[name].to(torch.float8_e4m3fn), f"{name}_scale_inv": torch.ones(1, 1)}
    with pytest.raises(ValueError, match=r"holds 1 tensors .* has no place for, such as .*o_proj\.weight_scale_inv"):
        with_weights(config, tensors)


# Files


@FAMILY
def test_several_files_are_one(name, stored, ours, tmp_path):
    model, _ = stored(name)
    theirs.write(model, tmp_path, max_shard_size="9KB")
    files = sorted(tmp_path.glob("model-*.safetensors"))
    assert len(files) > 2
    found = pretrained.load(tmp_path)
    assert torch.equal(found.model(_tokens())[0], ours(name)(_tokens())[0])
    assert found.sha256 == pretrained.load(tmp_path, sha256=found.sha256).sha256
    with pytest.raises(ValueError, match=rf"the {len(files)} files of weights of .* sha256 is {found.sha256}, not 0"):
        pretrained.load(tmp_path, sha256="0" * 64)
    files[1].unlink()
    with pytest.raises(ValueError, match=re.escape(f"lacks ['{files[1].name}']")):
        pretrained.load(tmp_path)


@FAMILY
def test_bfloat16_is_read_as_float32_or_as_it_is(name, tmp_path):
    theirs.write(theirs.made(name, torch.bfloat16), tmp_path)
    assert {one.dtype for one in load_file(tmp_path / "model.safetensors").values()} == {torch.bfloat16}
    kind, eager = type(theirs.made(name)), {"attn_implementation": "eager", "experts_implementation": "eager"}
    wide = kind.from_pretrained(tmp_path, dtype=torch.float32, **eager).eval()
    model = pretrained.load(tmp_path).model
    logits, _ = theirs.answer(wide, _tokens())
    assert {one.dtype for one in model.parameters()} == {torch.float32}
    with torch.no_grad():
        _close(model(_tokens())[0], logits)
        narrow = pretrained.load(tmp_path, dtype=torch.bfloat16).model
        assert {one.dtype for one in narrow.parameters()} == {torch.bfloat16}
        found = narrow(_tokens())[0]
        assert found.dtype == torch.bfloat16
        # as far as transformers itself is from float32, or nearly: 8 bits for each number on the way
        own, _ = theirs.answer(kind.from_pretrained(tmp_path, dtype=torch.bfloat16, **eager), _tokens())
    lost = float((own.float() - logits).abs().mean())
    assert (found.float() - logits).abs().mean() < 1.5 * lost


def test_names_may_lack_their_prefix(stored, tmp_path):
    model, folder = stored("gpt2")
    theirs.write(model.transformer, tmp_path)
    assert "h.0.ln_1.weight" in load_file(tmp_path / "model.safetensors")
    found = pretrained.load(tmp_path).model(_tokens())[0]
    assert torch.equal(found, pretrained.load(folder).model(_tokens())[0])


def test_what_holds_nothing_learned_is_left_out(stored, ours):
    _, folder = stored("gpt2")
    tensors = load_file(folder / "model.safetensors")
    tensors |= {"transformer.h.0.attn.bias": torch.ones(1), "transformer.h.1.attn.masked_bias": torch.ones(1)}
    tensors["lm_head.weight"] = tensors["transformer.wte.weight"]
    config = json.loads((folder / "config.json").read_text())
    assert torch.equal(with_weights(config, tensors)(_tokens())[0], ours("gpt2")(_tokens())[0])


# The house's own instruments


@TWO
def test_a_text_is_read_as_transformers_reads_it(name, stored):
    _, folder = stored(name)
    text = "w5 w17 w17 w3 w40"
    own, other = (pretrained.load(folder, through=route)(text) for route in ("mhalib", "transformers"))
    assert own.tokens == own.pieces == other.tokens == tuple(text.split())
    assert own.output.shape == (5, 53)
    assert own.weights.shape == other.weights.shape
    _close(own.output, other.output)
    _close(own.weights, other.weights, 1.0)


@TWO
def test_greedy_sampling_writes_what_transformers_writes(name, stored, ours):
    model, _ = stored(name)
    prompt = _tokens()[:1, :5]
    with torch.no_grad():
        expected = model.generate(
            prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=9, eos_token_id=None
        )
    assert torch.equal(sample(ours(name), prompt, 9, temperature=0), expected)


@TWO
def test_gates_and_importance_find_the_heads(name, ours):
    model = copy.deepcopy(ours(name)).double().requires_grad_(True)
    heads = model.design.num_heads
    assert heads_of(model) == [Head(KIND, i, j) for i in range(2) for j in range(heads)]

    def losses(one, tokens):
        logits, _ = one(tokens[:, :-1])
        return F.cross_entropy(logits.mT, tokens[:, 1:], reduction="none").mean(1)

    found = head_importance(model, [_tokens()[:1]], losses)[KIND]
    step = 1e-5
    for layer, head in ((0, heads - 1), (1, 1)):
        values = []
        for by in (step, -step):
            gates = [torch.ones(heads, dtype=torch.float64) for _ in range(2)]
            gates[layer][head] += by
            with torch.no_grad(), gated(model, {KIND: gates}):
                values.append(float(losses(model, _tokens()[:1])))
        assert float(found[layer, head]) == pytest.approx(abs(values[0] - values[1]) / (2 * step), rel=1e-5, abs=1e-8)


@FAMILY
def test_pruned_models_compute_what_switched_off_ones_do(name, ours):
    """Of the LLaMA-like, a group of heads loses one, and another goes with its keys."""
    model = ours(name)
    heads = [Head(KIND, 0, 0), *(Head(KIND, 1, head) for head in range(model.design.num_heads - 1))]
    if name.startswith("olmo"):  # one norm over the queries of all heads
        with pytest.raises(TypeError, match="together=True mixes heads, and does not say how to remove heads"):
            prune_heads(copy.deepcopy(model), heads)
        return
    if name == "deepseek_v3":  # what its latents are made by belongs to all heads
        with pytest.raises(TypeError, match=r"LatentAttention replaces steps .* does not say how to remove heads"):
            prune_heads(copy.deepcopy(model), heads)
        return
    with switched_off(model, heads):
        logits, _ = _read(model, _tokens())
    pruned = prune_heads(copy.deepcopy(model), heads)
    _close(pruned(_tokens(), need_weights=True)[0], logits)
    assert pruned.num_weights < model.num_weights
    layers = pruned.attention_layers()[KIND]
    assert layers[1].num_heads == layers[1].num_kv_heads == 1
    caches = pruned.new_caches()
    found = [pruned(_tokens()[:, n : n + 1], caches=caches)[0] for n in range(9)]
    _close(torch.cat(found, 1), logits)


@TWO
def test_the_ledger_names_what_a_layer_does(name, ours):
    layer = ours(name).attention_layers()[KIND][0]
    x = torch.randn(3, 9, layer.num_hiddens, generator=torch.Generator().manual_seed(0))
    steps = ledger(layer, x, x, x)
    assert torch.equal(steps.output[0], layer(x, x, x)[0])
    found = {step.axes for step in steps.steps}
    assert ("B", "h", "N", "N") in found or ("B", "h", "Q", "K") in found, found
    maps = sum(one.numel() for one in (layer.W_q.weight, layer.W_k.weight, layer.W_v.weight, layer.W_o.weight))
    scores = 2 * layer.num_heads * 9 * layer.head_dim  # and averages, for each token
    assert sum(step.flops for step in steps.steps) == 3 * 9 * 2 * (maps + scores)


@TWO
def test_roles_and_induction_are_measured(name, ours):
    tokens = torch.cat([_tokens()[:, :4], _tokens()[:, :4]], 1)
    _, weights = _read(ours(name), tokens)
    scores = torch.stack([induction_score(layer, tokens) for layer in weights])
    assert scores.shape == (2, ours(name).design.num_heads)
    assert (scores > 0).all()
    mask = torch.ones(8, 8, dtype=torch.bool).tril()
    assert len(head_roles(weights[0], mask=mask)) == ours(name).design.num_heads


@FAMILY
def test_a_model_of_its_settings_is_stored_and_read(name, ours, tmp_path):
    model = ours(name)
    saved.write(model, tmp_path / "own", saved.About("none", ("loss", 1.0), "none"))
    again = saved.read(tmp_path / "own")
    assert again.settings == model.settings
    narrow = copy.deepcopy(model)
    narrow.load_state_dict({key: value.half().float() for key, value in model.state_dict().items()})
    assert torch.equal(again(_tokens())[0], narrow(_tokens())[0])


@EVERY
def test_a_model_of_its_settings_can_be_trained(name, ours):
    torch.manual_seed(0)
    model = GPT(**ours(name).settings)
    assert {key: x.shape for key, x in model.state_dict().items()} == {
        key: x.shape for key, x in ours(name).state_dict().items()
    }
    model(_tokens())[0].square().sum().backward()
    learned = [one for one in model.parameters() if one.requires_grad]
    assert all(one.grad is not None and one.grad.abs().max() > 0 for one in learned)
    apart = {key for key, one in model.named_parameters() if not one.requires_grad}
    assert apart == {f"decoder.layers.{n}.ffn.choice_bias" for n, one in enumerate(_chosen_by_bias(model)) if one}


def _chosen_by_bias(model):
    return [getattr(layer.ffn, "choice_bias", None) is not None for layer in model.decoder.layers]


# Memory


@EVERY
def test_memory_is_counted_before_anything_is_read(name, stored, ours, tmp_path):
    model, folder = stored(name)
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())  # and nothing else
    found = count(tmp_path, 9, batch_size=3, dtype=torch.bfloat16)
    theirs_learned = [*model.parameters(), *(one for key, one in model.named_buffers() if key.endswith("_bias"))]
    assert found.parameters == sum(one.numel() for one in theirs_learned) - _unused(name)
    assert found.weights == 2 * found.parameters
    caches = ours(name).new_caches()
    _, weights = _read(ours(name), _tokens(), caches=caches)
    assert found.cache == sum(cache.num_bytes for cache in caches) // 2
    assert found.maps == 2 * weights.numel()
    assert found.total == found.weights + found.cache + found.maps
    assert count(tmp_path).weights == sum(one.numel() * one.element_size() for one in ours(name).parameters())
    assert count(tmp_path).cache == count(tmp_path).maps == 0


def _unused(name):
    return 2 * 15 if name.startswith("opt") else 0  # two rows of positions before the first


def test_an_encoder_keeps_no_cache(tmp_path):
    config = transformers.BertConfig(**theirs.SIZES, num_attention_heads=6, intermediate_size=37)
    config.save_pretrained(tmp_path)
    model = transformers.BertModel(config, add_pooling_layer=False)
    found = count(tmp_path, 9)
    assert found.parameters == sum(one.numel() for one in model.parameters())
    assert (found.cache, found.maps) == (0, 4 * 2 * 6 * 81)


def test_what_does_not_fit_is_refused_before_it_is_read(stored, monkeypatch, tmp_path):
    _, folder = stored("llama")
    needed = count(folder).weights
    assert pretrained.load(folder, memory_limit=needed).model.num_weights * 4 == needed
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    (tmp_path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    monkeypatch.delattr("mhalib.pretrained.files.Checkpoint.__getitem__")  # its header is read, and no weight
    (tmp_path / "tokenizer.json").write_bytes(b"never read")
    parameters = f"{needed // 4:,}"
    with pytest.raises(ValueError, match=rf"has {parameters} weights, .*memory_limit={needed - 1}.*bfloat16"):
        pretrained.load(tmp_path, memory_limit=needed - 1)
    monkeypatch.setattr("mhalib.pretrained.memory_estimate.free_bytes", lambda device: 1)
    with pytest.raises(ValueError, match=r"as torch.float32, but 0.0 GB are free on cpu; with dtype=torch.bfloat16"):
        pretrained.load(tmp_path)
    with pytest.raises(ValueError, match=r"are free on cpu$"):
        pretrained.load(tmp_path, dtype=torch.float16)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_free_memory_is_what_the_machine_says():
    from mhalib.pretrained.memory_estimate import free_bytes

    assert 10**7 < free_bytes(torch.device("cpu")) < 10**14
    assert free_bytes(torch.device("meta")) is None


# Refusals


@pytest.mark.parametrize(
    ("name", "changed", "message"),
    [
        ("llama", {"model_type": "gemma3", "vision_config": {}}, "alone is gemma3_text); transformers itself"),
        ("llama", {"model_type": "olmoe", "num_experts": 8}, "its mixture of feed-forward networks with ours yet); "),
        ("llama", {"model_type": "umt5"}, "model_type='umt5' in config.json is not one of ['bart', 'bert', 'cam"),
        ("llama", {"model_type": "siglip"}, "a last layer of attention reads its patches with a query of its own"),
        ("llama", {"model_type": "never_heard_of"}, "nobody has written down yet which of its tensors is which of"),
        ("llama", {"model_type": ["llama"]}, "model_type=['llama'] in config.json is not one of"),
        ("llama", {"quantization_config": {"bits": 4}}, "our blocks need weights that are not quantised"),
        ("llama", {"hidden_act": "mish"}, "hidden_act='mish' in config.json is none of ['gelu', 'gelu_fast'"),
        ("llama", {"rms_norm_eps": 0}, "rms_norm_eps=0 in config.json must be a positive number"),
        ("llama", {"num_key_value_heads": 4}, "num_heads=6 is not divisible by num_kv_heads=4"),
        ("llama", {"head_dim": 5}, "rotary positions need an even head_dim, got 5"),
        ("llama", {"hidden_size": 35, "head_dim": None}, "hidden_size=35 in config.json is not divisible by num_att"),
        ("llama", {"vocab_size": None}, "vocab_size=None in config.json must be an integer of at least 1"),
        ("llama", {"vocab_size": True}, "vocab_size=True in config.json must be an integer of at least 1"),
        ("llama", {"attention_bias": 1}, "attention_bias=1 in config.json must be true or false"),
        ("llama", {"rope_parameters": 3}, "rope_parameters=3 in config.json must be an object"),
        ("llama", {"rope_parameters": {"rope_type": "longrope"}}, "rope_type='longrope' in config.json: our rotary po"),
        ("llama", {"rope_parameters": {**theirs.YARN, "truncate": 1}}, "truncate=1 in config.json must be true or f"),
        ("mixtral", {"num_experts_per_tok": 6}, "num_experts_per_tok=6 in config.json is more than the 5 experts that"),
        ("mixtral", {"num_local_experts": 6}, "lacks 6 tensors of the model, such as ['model.layers.0.block_sparse_m"),
        ("mixtral", {"num_local_experts": 4}, "holds 6 tensors that the model of config.json has no place for, such "),
        ("qwen3_moe", {"mlp_only_layers": [0]}, "lacks 3 tensors of the model, such as ['model.layers.0.mlp.down_pro"),
        ("qwen3_moe", {"mlp_only_layers": 0}, "mlp_only_layers=0 in config.json must be a list of the numbers of l"),
        ("gpt_oss", {"swiglu_limit": 5.0}, "swiglu_limit=5.0 in config.json: our blocks need 7.0"),
        ("gpt_oss", {"num_local_experts": 6}, "lacks 12 tensors of the model, such as ['model.layers.0.mlp.experts.5"),
        ("deepseek_v3", {"scoring_func": "softmax"}, "scoring_func='softmax' in config.json: our blocks need 'sigm"),
        ("deepseek_v3", {"num_key_value_heads": 1}, "num_key_value_heads=1 in config.json: our blocks need 3"),
        ("deepseek_v3", {"topk_group": 5}, "num_chosen_groups=5 is more than num_groups=4"),
        ("deepseek_v3", {"n_shared_experts": 1}, "of which config.json does not make 'decoder.layers.1.ffn.shared"),
        ("deepseek_v3", {"q_lora_rank": None}, "lacks 2 tensors of the model, such as ['model.layers.0.self_attn.q_"),
        ("deepseek_v3", {"first_k_dense_replace": 2}, "lacks 3 tensors of the model, such as ['model.layers.1.mlp.do"),
        ("llama", {"rope_parameters": {"rope_type": "linear"}}, "factor=0.0 in config.json must be a positive number"),
        ("llama", {"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor=0.5 in config.json: our"),
        ("llama, scaled", {"rope_parameters": {**theirs.ROPE_3, "low_freq_factor": 5}}, "low_freq_factor below its hi"),
        ("llama", {"tie_word_embeddings": True, "attention_bias": True}, "lacks 8 tensors of the model, such as"),
        ("llama, biases", {"attention_bias": False}, "holds 8 tensors that the model of config.json has no place for"),
        ("llama", {"num_hidden_layers": 1}, "holds 9 tensors that the model of config.json has no place for, such as "),
        ("llama", {"num_hidden_layers": 3}, "lacks 9 tensors of the model, such as ['model.layers.2.input_layern"),
        ("llama", {"intermediate_size": 38}, "with shape (37, 36), of which config.json does not make 'decoder.layers"),
        ("gpt2", {"scale_attn_weights": False}, "scale_attn_weights=False in config.json: our blocks need True"),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx=True in config.json: our"),
        ("gpt2", {"add_cross_attention": True}, "add_cross_attention=True in config.json: our blocks need False"),
        ("gpt2", {"tie_word_embeddings": False}, "lacks 1 tensors of the model, such as ['lm_head.weight']"),
        ("gpt2", {"n_embd": 18}, "of which config.json does not make"),
        ("opt", {"word_embed_proj_dim": 7}, "word_embed_proj_dim=7 in config.json: our blocks need 15"),
        ("opt", {"layer_norm_elementwise_affine": False}, "layer_norm_elementwise_affine=False in config.json"),
        ("opt", {"_remove_final_layer_norm": True}, "_remove_final_layer_norm=True in config.json"),
        ("gpt_neox", {"num_attention_heads": 5}, "num_hiddens=48 is not divisible by num_heads=5"),
        ("gpt_neox", {"num_attention_heads": 4}, "rotary positions need an even rotary_dim, got 3"),
        ("qwen2", {"layer_types": ["full_attention", "linear_attention"]}, "layer_types in config.json has 'linear_a"),
        ("qwen2", {"layer_types": ["full_attention"]}, "layer_types=['full_attention'] in config.json must be a list"),
        ("gemma3_text", {"attn_logit_softcapping": 5.0}, "attn_logit_softcapping=5.0 in config.json: our queries"),
        ("smollm3", {"no_rope_layers": [1, 2, 1, 1]}, "no_rope_layers=[1, 2, 1, 1] in config.json must be a list of 4"),
        ("gemma", {"use_bidirectional_attention": True}, "use_bidirectional_attention=True in config.json: our blocks"),
        ("mistral", {"sliding_window": 0}, "sliding_window=0 in config.json must be an integer of at least 1"),
    ],
)  # fmt: skip
def test_what_our_blocks_cannot_hold_is_refused_by_name(name, changed, message, stored, tmp_path):
    _, folder = stored(name)
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    config = json.loads((folder / "config.json").read_text()) | changed
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=re.escape(message)):
        pretrained.load(tmp_path)


@FAMILY
def test_a_config_with_any_wrong_entry_is_read_or_refused_by_name(name):
    told = theirs.config_of(name).to_dict()
    rope = told.get("rope_parameters") or {}
    changes = [{key: value} for key in (*told, "quantization_config", "rope_scaling") for value in WRONG]
    changes += [{"rope_parameters": {**rope, key: value}} for key in rope for value in WRONG]
    refused = []
    for change in changes:
        try:
            on_meta({**told, **change})
        except (ValueError, TypeError) as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            refused.append((last.filename, last.line, change, error))
    package = str(Path(mhalib.__file__).parent)
    leaks = [one for one in refused if not (one[0].startswith(package) and one[1].startswith("raise "))]
    assert not leaks
    assert len(refused) > 50


@pytest.mark.parametrize("kind", UNREAD)
def test_well_known_models_that_are_not_read_are_told_why(kind, tmp_path):
    assert kind not in {*FAMILIES, *DECODERS, *PICTURES, *pretrained.ENCODER_DECODERS}
    for name in pretrained.FILES:
        (tmp_path / name).write_text(json.dumps({"model_type": kind}))
    way = "transformers itself" if "no attention" in UNREAD[kind] else "through="
    with pytest.raises(ValueError, match=re.escape(f"({UNREAD[kind]}); {way}")):
        pretrained.load(tmp_path)
    with pytest.raises(ValueError, match=re.escape(UNREAD[kind])):
        count(tmp_path)


def test_whatever_else_transformers_knows_is_refused_with_a_reason_and_a_way():
    """Nobody is sent to `through="transformers"` with what reads pictures or sounds, writes another text, or has no
    attention."""
    mapping, known = transformers.CONFIG_MAPPING, {one for kinds in pretrained.supported().values() for one in kinds}
    told, why = {}, {}
    for kind in set(mapping) - known:
        with contextlib.suppress(Exception):  # some have no usual settings, or need packages that are not here
            told[kind] = mapping[kind]().to_dict()
    for kind, config in told.items():
        with pytest.raises(ValueError, match=f"model_type='{kind}'.*which our blocks can hold ") as refusal:
            require_known({**config, "model_type": kind})
        why[kind] = re.search(r"can hold \((.+)\); (through|transformers)", str(refusal.value)).groups()
    assert len(why) > 300
    writes = {kind for kind, config in told.items() if config.get("is_encoder_decoder")}
    assert {why[kind][1] for kind in writes} == {"transformers"}
    assert {why[kind][0] for kind in why.keys() - writes if why[kind][1] == "transformers"} <= {
        *("it reads pictures", "it reads or makes sounds", "it reads no texts"),
        *(UNREAD[kind] for kind in ("gemma3", "siglip", "mamba")),
    }
    unheard = ("parakeet_ctc", "gemma3n_audio", "gemma3n_vision", "imagegpt", "lxmert", "decision_transformer", "fnet")
    assert {why[kind][1] for kind in unheard} == {"transformers"}
    few = {kind: why[kind] for kind in ("whisper", "detr", "olmoe", "qwen2_moe", "falcon", "zamba2", "minicpm3")}
    assert [(one.split()[-1], way) for one, way in few.values()] == [
        *(("sounds", "transformers"), ("pictures", "transformers"), ("yet", "through"), ("yet", "through")),
        *(("ours", "through"), ("attention", "through"), ("latents", "through")),
    ]


def test_transformers_is_not_asked_for_what_reads_two_texts(tmp_path):
    sizes = {"d_model": 8, "d_ff": 8, "num_layers": 1, "num_heads": 2, "vocab_size": 53, "d_kv": 4}
    theirs.write(transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes)), tmp_path)
    with pytest.raises(ValueError, match="model_type='t5' reads one text and writes another"):
        pretrained.load(tmp_path, through="transformers")


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ("{}", "is damaged: it has no weight_map"),
        ("[]", "must hold an object, got list"),
        ('{"weight_map": {"a": "../a.safetensors"}}', "'../a.safetensors' is not a file of weights beside it"),
        ('{"weight_map": {"a": "a.safetensors", "b": "b.safetensors"}}', "holds 'lm_head.weight', which another file"),
    ],
)
def test_an_index_that_leads_nowhere_is_refused(index, message, stored, tmp_path):
    _, folder = stored("llama")
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    for name in "ab":
        (tmp_path / f"{name}.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    (tmp_path / pretrained.INDEX).write_text(index)
    with pytest.raises(ValueError, match=re.escape(message)):
        pretrained.load(tmp_path)


def test_a_folder_without_a_tokenizer_is_told_how_to_make_one(stored, tmp_path):
    _, folder = stored("opt")
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    (tmp_path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    with pytest.raises(ValueError, match=r"lacks \['tokenizer.json'\]; transformers.AutoTokenizer.*writes a tokenizer"):
        pretrained.load(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"dtype": "float32"}, TypeError, "dtype must be a torch.dtype, got str: 'float32'"),
        ({"dtype": torch.int64}, ValueError, "dtype=torch.int64 must be one of ['torch.float32', 'torch.bfloat16'"),
        ({"offline": 1}, TypeError, "offline must be True or False, got int: 1"),
        ({"memory_limit": 0}, ValueError, "memory_limit=0 must be at least 1"),
    ],
)
def test_bad_arguments_are_named(arguments, error, message, stored):
    with pytest.raises(error, match=re.escape(message)):
        pretrained.load(stored("llama")[1], **arguments)


@pytest.mark.parametrize("arguments", [{"num_tokens": -1}, {"batch_size": 0}])
def test_bad_arguments_of_memory_are_named(arguments, stored):
    (name, value) = next(iter(arguments.items()))
    with pytest.raises(ValueError, match=f"{name}={value} must be at least"):
        count(stored("llama")[1], **arguments)


def test_a_text_without_tokens_is_refused(stored):
    with pytest.raises(ValueError, match="text='' has no tokens"):
        pretrained.load(stored("llama")[1])("")


@pytest.mark.parametrize(
    ("is_real", "error", "message"),
    [
        (torch.ones(3, 9), TypeError, "is_real must be boolean, got torch.float32"),
        (
            torch.ones(3, 8, dtype=torch.bool),
            ValueError,
            "is_real has shape (3, 8), but tokens and caches make it (3, 9",
        ),
        (torch.arange(9).expand(3, 9) != 4, ValueError, "is_real has padding between the real tokens of a text"),
        ([[True]], TypeError, "is_real must be a torch.Tensor, got list"),
    ],
)
def test_padding_that_cannot_be_is_refused(is_real, error, message, ours):
    with pytest.raises(error, match=re.escape(message)):
        ours("gpt2")(_tokens(), is_real=is_real)


# The hub


COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def hub(stored, tmp_path, monkeypatch):
    """In place of the hub, a function that gives a model's files, and a list of what it was asked for."""
    model, _ = stored("llama")
    theirs.write(model, tmp_path, max_shard_size="9KB")
    calls = []

    def hf_hub_download(repo_id, filename, *, revision, local_files_only=False):
        calls.append((filename, local_files_only))
        if not (tmp_path / filename).is_file():
            raise RuntimeError("no such file")
        return str(tmp_path / filename)

    module = types.ModuleType("huggingface_hub")
    module.hf_hub_download = hf_hub_download
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    return tmp_path, calls


def test_the_hub_is_asked_for_each_file_of_weights(hub, ours):
    folder, calls = hub
    found = pretrained.load("owner/name", revision=COMMIT)
    assert torch.equal(found.model(_tokens())[0], ours("llama")(_tokens())[0])
    shards = sorted(path.name for path in folder.glob("model-*.safetensors"))
    names = ["config.json", "model.safetensors", pretrained.INDEX, *shards, "tokenizer.json"]
    assert calls == [(name, False) for name in names]


def test_offline_nothing_is_fetched(hub):
    folder, calls = hub
    pretrained.load("owner/name", revision=COMMIT, offline=True)
    assert {is_offline for _, is_offline in calls} == {True}
    (folder / pretrained.INDEX).unlink()
    with pytest.raises(OSError, match=r"model\.safetensors is not on this machine: RuntimeError: no such file"):
        pretrained.load("owner/name", revision=COMMIT, offline=True)


def test_no_weights_are_fetched_of_what_is_not_read(hub):
    folder, calls = hub
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "bloom"}))
    with pytest.raises(ValueError, match="its positions are a number for each distance and head, ALiBi"):
        pretrained.load("owner/name", revision=COMMIT)
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="memory_limit=5"):
        pretrained.load("owner/name", revision=COMMIT, memory_limit=5)
    assert count("owner/name", revision=COMMIT).parameters > 0
    assert {name for name, _ in calls} == {"config.json"}
