"""Whole models: what they keep, compute and need, held against configs, published numbers and torch's counter."""

import json
import math
import re

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from mhalib import pretrained
from mhalib.bench import Machine
from mhalib.roofline import CHIPS, Chip, latent_step_costs
from mhalib.serving import ATTENTIONS, MODELS, PRECISIONS, LanguageModel, serving_costs

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
    "max_position_embeddings": 8192,
}
QWEN = {**LLAMA, "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 128}


def config(base, D, L, h, g, F, V, **more):
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
    sizes = dict(zip(names, (D, L, h, g), strict=True))
    return {**base, **sizes, "intermediate_size": F, "vocab_size": V, **more}


CONFIGS = {  # of the published config.json
    "LLaMA-3 8B": config(LLAMA, 4096, 32, 32, 8, 14336, 128256),
    "LLaMA-3 70B": config(LLAMA, 8192, 80, 64, 8, 28672, 128256),
    "Qwen3-8B": config(QWEN, 4096, 36, 32, 8, 12288, 151936),
    "SmolLM2-135M": config(LLAMA, 576, 30, 9, 3, 1536, 49152, tie_word_embeddings=True),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_models_have_what_the_book_counts_from_their_configs(name, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS[name]))
    model, held = MODELS[name], pretrained.memory(tmp_path, 1000, batch_size=3, dtype=torch.bfloat16)
    assert held.parameters == model.parameters == model.active
    assert held.cache == model.cache_bytes(1000, 3)


@pytest.mark.parametrize(
    ("name", "experts", "settings"),
    [
        ("gpt-oss-20b", ".experts.", {"num_hidden_layers": 24, "num_local_experts": 32}),
        ("DeepSeek-V3", ".experts.", {}),
    ],
)
def test_mixtures_have_what_transformers_makes_of_their_configs(name, experts, settings):
    transformers = pytest.importorskip("transformers")
    kind = {"gpt-oss-20b": "GptOssConfig", "DeepSeek-V3": "DeepseekV3Config"}[name]
    with torch.device("meta"):
        made = transformers.AutoModelForCausalLM.from_config(getattr(transformers, kind)(**settings))
    sizes = {name: part.numel() for name, part in made.named_parameters()}
    sizes |= {name: part.numel() for name, part in made.named_buffers() if name.endswith("correction_bias")}
    model = MODELS[name]
    assert sum(sizes.values()) == model.parameters
    assert sum(size for part, size in sizes.items() if experts in part) == model.experts
    products = sum(
        size for part, size in sizes.items() if re.search(r"self_attn\.\w*(?:proj|proj_with_mqa)\.weight", part)
    )
    assert products == model.attention


def test_published_numbers():
    """Bytes of cache for each token, in 16 bits; parameters and those that are active, as makers round them."""
    kept = {name: model.cache_bytes(1) for name, model in MODELS.items()}
    assert (kept["LLaMA-3 8B"], kept["LLaMA-3 70B"]) == (131_072, 327_680)
    assert (kept["Qwen3-8B"], kept["DeepSeek-V3"]) == (147_456, 70_272)
    billions = {name: round(model.parameters / 1e9, 1) for name, model in MODELS.items()}
    assert billions == {
        "SmolLM2-135M": 0.1,
        "LLaMA-3 8B": 8.0,
        "LLaMA-3 70B": 70.6,
        "Qwen3-8B": 8.2,
        "gpt-oss-20b": 20.9,
        "DeepSeek-V3": 671.0,
    }
    assert MODELS["gpt-oss-20b"].multiplied / 1e9 == pytest.approx(3.61, abs=0.005)  # OpenAI 2025: without embedding
    assert MODELS["DeepSeek-V3"].active / 1e9 == pytest.approx(37, abs=0.6)  # DeepSeek-AI 2024: 37B


def test_a_window_keeps_no_more_than_its_tokens():
    model = MODELS["gpt-oss-20b"]
    assert model.cache_bytes(100) == 100 * 49_152
    assert model.cache_bytes(1000) == 2048 * (12 * 1000 + 12 * 128)


@pytest.mark.parametrize(
    ("attention", "keys"), [("a key for each head", 32), ("a key for 8 heads", 4), ("one key for all heads", 1)]
)
def test_with_other_keys_it_is_the_model_whose_config_says_so(attention, keys, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({**CONFIGS["LLaMA-3 8B"], "num_key_value_heads": keys}))
    model = MODELS["LLaMA-3 8B"].with_attention(attention)
    held = pretrained.memory(tmp_path, 1000, dtype=torch.bfloat16)
    assert (held.parameters, held.cache) == (model.parameters, model.cache_bytes(1000))


def test_latents_are_those_of_a_deepseek_without_a_latent_for_queries():
    transformers = pytest.importorskip("transformers")
    sizes = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128}
    sizes |= {"hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 32, "num_hidden_layers": 1}
    with torch.device("meta"):
        made = transformers.AutoModelForCausalLM.from_config(
            transformers.DeepseekV3Config(**sizes, q_lora_rank=None, first_k_dense_replace=1)
        )
    maps = made.model.layers[0].self_attn
    products = sum(part.numel() for name, part in maps.named_parameters() if "norm" not in name)
    model = MODELS["LLaMA-3 8B"].with_attention("latents of 512 + 64")
    assert model.attention == 32 * products
    assert model.cache_bytes(1) == 32 * (512 + 64) * 2


def test_windows_keep_their_tokens_and_whole_layers_all():
    model = MODELS["LLaMA-3 8B"].with_attention("windows in 5 of 6 layers")
    assert model.cache_bytes(5000) == 4096 * (6 * 5000 + 26 * 1024)
    assert model.parameters == MODELS["LLaMA-3 8B"].parameters


def test_of_each_model_every_attention_can_be_served():
    for model in MODELS.values():
        assert model.with_attention("its own") == model
        for attention in ATTENTIONS:
            other = model.with_attention(attention)
            assert other.num_heads % other.num_kv_heads == 0
            assert serving_costs(other, CHIPS["NVIDIA B200"], 4096).step > 0
    with pytest.raises(ValueError, match="attention='linear' must be one of"):
        model.with_attention("linear")


TINY = LanguageModel("tiny", 24, 3, 6, 2, 8, 50, 0)


def tiny(tied=False):
    """A small LLaMA of transformers, whose products torch counts, and its description."""
    transformers = pytest.importorskip("transformers")
    settings = {"attn_implementation": "eager", "tie_word_embeddings": tied, "head_dim": 8, "vocab_size": 50}
    sizes = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2}
    made = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, **settings, intermediate_size=40))
    return made.eval(), TINY._replace(parameters=sum(part.numel() for part in made.parameters()), tied=tied)


@pytest.mark.parametrize("tied", [False, True])
def test_flops_of_training_are_those_that_torch_counts(tied):
    """Torch multiplies no gains of norms, and computes all pairs."""
    made, model = tiny(tied)
    ids = torch.randint(50, (2, 7), generator=torch.Generator().manual_seed(0))
    with FlopCounterMode(display=False) as counter:
        made(ids, labels=ids, use_cache=False).loss.backward()
    gains = 24 * (2 * 3 + 1)
    every, causal = (12 * 3 * 48 * 2 * pairs for pairs in (49, 28))
    assert model.attention_flops("training", 7, 2) == causal
    assert counter.get_total_flops() == model.training_flops(7, 2) - 6 * 14 * gains - causal + every


def test_flops_of_serving_are_those_that_torch_counts():
    made, model = tiny()
    ids = torch.randint(50, (2, 7), generator=torch.Generator().manual_seed(0))
    found = serving_costs(model, CHIPS["NVIDIA T4"], 7, 2)
    with torch.no_grad(), FlopCounterMode(display=False) as prompt:
        made(ids, use_cache=False, logits_to_keep=1)
    pairs = 4 * 3 * 48 * 2 * (49 - 28)
    layers = 2 * 2 * 24 * (7 * 6 + 7)  # of gains, one of them before the readout
    assert prompt.get_total_flops() == found.prompt_flops + pairs - layers
    with torch.no_grad():
        cache = made(ids[:, :-1]).past_key_values
        with FlopCounterMode(display=False) as step:
            made(ids[:, -1:], past_key_values=cache)
    assert step.get_total_flops() == found.step_flops - 2 * 2 * 24 * 7


def test_times_follow_from_the_limits_by_hand():
    """A machine of round numbers; a model whose attention is one head of width 4."""
    model = LanguageModel("small", 4, 2, 1, 1, 4, 10, 1000)
    chip = Chip("mine", 1e4, 1e3, 10_000, 2e4)
    assert (model.multiplied, model.attention, model.cached) == (960, 2 * 4 * 4 * 4, 8)
    found = serving_costs(model, chip, 8, 3)
    assert (found.weight_bytes, found.cache_bytes, found.fits) == (2000, 2 * 3 * 8 * 2 * 8, True)
    assert found.step_flops == 2 * 3 * 960 + 2 * 4 * 3 * 8 * 4
    attending = 2 * max(4 * 3 * 8 * 4 / 1e4, 2 * (2 * 3 * 4 + 2 * 3 * 8 * 4) / 1e3)
    assert found.step == pytest.approx(max(2 * 3 * 960 / 1e4, 2 * 960 / 1e3) + attending)
    assert found.attending_share == pytest.approx(attending / found.step)
    assert found.tokens_per_second == pytest.approx(3 / found.step)
    assert found.prompt_flops == 2 * 3 * (8 * 920 + 40) + 2 * 4 * 3 * 36 * 4
    narrow = serving_costs(model, chip, 8, 3, precision="8 bits")
    assert (narrow.weight_bytes, narrow.cache_bytes) == (1000, found.cache_bytes / 2)
    attending = 2 * max(4 * 3 * 8 * 4 / 1e4, (2 * 2 * 3 * 4 + 2 * 3 * 8 * 4) / 1e3)
    assert narrow.step == pytest.approx(960 / 1e3 + attending)
    four = serving_costs(model, chip, 8, 3, num_chips=4)
    assert four.step == pytest.approx(found.step / 4)
    assert four.step_share == pytest.approx(found.step_share)
    assert not serving_costs(model, chip, 100, 30).fits


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_nothing_is_faster_than_its_limits(name, chip, precision):
    fused, stored = (
        serving_costs(MODELS[name], CHIPS[chip], 500, 3, precision=precision, kernel=kernel)
        for kernel in ("fused", "stored")
    )
    assert 0 < fused.step_share <= 1 + 1e-9 > fused.prompt_share > 0
    assert stored.first_token > fused.first_token
    assert stored.step > fused.step
    bytes_of_weights = PRECISIONS[precision].weight_bytes * MODELS[name].weights_read(3)
    assert fused.step >= bytes_of_weights / CHIPS[chip].bandwidth


def test_more_tokens_read_more_experts():
    """Chosen by chance, as many as a simulation chooses; all of them in the end."""
    model = MODELS["DeepSeek-V3"]
    always = model.multiplied - model.experts * 8 // 256
    assert model.weights_read(1) == pytest.approx(model.multiplied)
    generator = torch.Generator().manual_seed(0)
    chosen = torch.rand(200, 16, 256, generator=generator).topk(8, -1).indices.flatten(1)
    share = sum(len(set(one.tolist())) for one in chosen) / 200 / 256
    assert (model.weights_read(16) - always) / model.experts == pytest.approx(share, rel=0.02)
    assert model.weights_read(10_000) == pytest.approx(always + model.experts)
    assert MODELS["LLaMA-3 8B"].weights_read(1) == MODELS["LLaMA-3 8B"].weights_read(99) == 7_504_924_672


def test_utilisation_is_what_a_second_of_training_needs_of_the_peak():
    """PaLM 540B, 238.3 thousand tokens a second on 6,144 chips of 275 trillion FLOPs: 46.2 %. These numbers are quoted
    from memory, and were not checked against the paper; that they fit its formula is what this test shows."""
    palm = LanguageModel("PaLM", 18_432, 118, 48, 1, 256, 256_000, 540_350_000_000, tied=True)
    peak = 6144 * 275e12
    with_all_pairs = 6 * palm.parameters + 12 * 118 * 48 * 256 * 2048
    assert 238_300 * with_all_pairs / peak == pytest.approx(0.462, abs=0.002)
    assert palm.utilisation(238_300, 2048, peak) == pytest.approx(0.462, abs=0.006)


def test_absorbed_decoding_counts_the_latent_once():
    model = MODELS["DeepSeek-V3"]
    ((layers, step),) = model.attending("decoding", 4096)
    assert (layers, step.name, round(step.intensity)) == (61, "fused", 228)
    choice = {"name": "latent", "latent_size": 512, "head_dim": 128, "value_dim": 128, "absorbed": True}
    choice |= {"positions": "rotary", "rotary_size": 64, "query_latent_size": 1536}
    found = latent_step_costs(choice, 7168, 128, "decoding", 4096, 1, 2, kernel="fused", causal=True)
    assert step in found


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: serving_costs("LLaMA-3 8B", CHIPS["NVIDIA T4"], 7), TypeError, "model must be a LanguageModel"),
        (lambda: serving_costs(TINY, Machine("x", 1.0, 1.0, 2), 7), TypeError, "chip must be a Chip"),
        (lambda: serving_costs(TINY, CHIPS["NVIDIA T4"], 0), ValueError, "num_tokens=0 must be at least 1"),
        (lambda: serving_costs(TINY, CHIPS["NVIDIA T4"], 7, num_chips=0), ValueError, "num_chips=0"),
        (lambda: serving_costs(TINY, CHIPS["NVIDIA T4"], 7, precision="int8"), ValueError, "precision='int8' must be"),
        (lambda: serving_costs(TINY, CHIPS["NVIDIA T4"], 7, kernel="flash"), ValueError, "kernel='flash' must be"),
        (lambda: TINY.cache_bytes(1.5), TypeError, "num_tokens must be an integer"),
        (lambda: TINY.weights_read(0), ValueError, "num_tokens=0"),
        (lambda: TINY.training_flops(7, 0), ValueError, "batch_size=0"),
        (lambda: TINY.utilisation(-1.0, 7, 1.0), ValueError, "tokens_per_second=-1.0"),
        (lambda: TINY.utilisation(1.0, 7, math.inf), ValueError, "peak=inf"),
    ],
)
def test_bad_calls_are_refused(call, error, message):
    with pytest.raises(error, match=re.escape(message)):
        call()
