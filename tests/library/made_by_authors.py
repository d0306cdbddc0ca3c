"""What the authors' own programs give for numbers that a formula makes.

    python tests/library/made_by_authors.py CLONES

CLONES holds clones of SkyworkAI/MoH, Caiyun-AI/DCFormer and epfml/collaborative-attention, each in a folder of its name
after the slash, with the commits of `PROGRAMS`. Of each file only the named classes and functions are run, in float64,
so no other version of a library is needed. The outputs go into made_by_authors.json, which test_variants_authors.py
holds our layers against.
"""

import ast
import json
import math
import subprocess
import sys
import types
import typing
from pathlib import Path
from zlib import crc32

import torch

HERE = Path(__file__).parent
STORED = HERE / "made_by_authors.json"
B, N, D, H = 1, 5, 24, 4
PROGRAMS = {  # repository, commit, file, what of it is run
    "MoH, vision": ("SkyworkAI/MoH", "2cefd57b", "MoH-ViT/attention.py", ["Attention"]),
    "MoH, LLaMA-3": (
        "SkyworkAI/MoH",
        "2cefd57b",
        "MoH-LLaMA3/Inference_code/modeling_llama.py",
        ["LlamaAttention", "LlamaRotaryEmbedding", "rotate_half", "apply_rotary_pos_emb", "repeat_kv"],
    ),
    "DCMHA": (
        "Caiyun-AI/DCFormer",
        "22671b3e",
        "pytorch/dcformer/modeling_dcformer.py",
        [
            *("DCMHAttention", "DynamicWeightProjection", "CrossHeadProjection"),
            *("RMSnormNoscale", "unbind", "apply_rotary_emb"),
        ],
    ),
    "collaborative": (
        "epfml/collaborative-attention",
        "5b054086",
        "src/collaborative_attention/collaborative_attention.py",
        ["MixingMatrixInit", "CollaborativeAttention"],
    ),
}


def numbers(name, *shape):
    """A tensor whose numbers depend on its name and places, and look like noise."""
    places = torch.arange(1, math.prod(shape) + 1, dtype=torch.float64)
    return torch.sin(places * 1.7 + places.square() * 0.313 + crc32(name.encode()) % 1000).view(shape)


def filled(module):
    """The module in float64, with `numbers` in all parameters."""
    with torch.no_grad():
        for name, parameter in module.double().named_parameters():
            parameter.copy_(numbers(name, *parameter.shape))
    return module


def defined(clones, program):
    """The named classes and functions of a program, by name."""
    repository, commit, file, names = PROGRAMS[program]
    folder = clones / repository.split("/")[1]
    source = subprocess.run(
        ["git", "-C", str(folder), "show", f"{commit}:{file}"], check=True, capture_output=True, text=True
    ).stdout
    tree = ast.parse(source)
    tree.body = [node for node in tree.body if getattr(node, "name", None) in names]
    from enum import Enum

    import numpy

    known = {"torch": torch, "nn": torch.nn, "F": torch.nn.functional, "np": numpy, "math": math, "Enum": Enum}
    known |= {"Tensor": torch.Tensor, **{name: getattr(typing, name) for name in ("Optional", "Tuple", "List")}}
    known |= dict.fromkeys(("LlamaConfig", "DCFormerConfig", "Cache", "logger"))
    exec(compile(tree, file, "exec"), known)
    return types.SimpleNamespace(**{name: known[name] for name in names})


def moh_vision(program):
    """Without its norms, query embedding, length scale and distances: the mixture around plain scores."""
    layer = filled(program.Attention(D, (2, 3), H, shared_head=2, routed_head=1).eval())
    with torch.no_grad():
        layer.query_embedding.zero_()
        layer.cpb_fc2.weight.zero_()
        layer.cpb_fc2.bias.zero_()
        layer.seq_length_scale.fill_(1.0)
    places, table = torch.zeros(N * N, dtype=torch.long), torch.zeros(1, 2, dtype=torch.float64)
    return layer(numbers("x", B, N, D), 1, N, places, table)


def moh_llama(program):
    config = types.SimpleNamespace(
        attention_dropout=0.0, hidden_size=D, num_attention_heads=H, num_key_value_heads=2, pretraining_tp=1
    )
    config.max_position_embeddings, config.rope_theta, config.attention_bias, config.rope_scaling = N, 37.0, False, None
    layer = filled(program.LlamaAttention(config, 0).eval())
    hidden = torch.full((N, N), -math.inf, dtype=torch.float64).triu(1).expand(B, 1, N, N)
    return layer(numbers("x", B, N, D), hidden, torch.arange(N)[None])[0]


def dcmha(program, static):
    config = types.SimpleNamespace(dim=D, n_head=H, n_local_heads=H, head_dim=D // H, is_training=False)
    config.use_dcmha, config.q_chunk_size, config.use_qk_norm, config.query_wise = True, N, False, False
    config.window_type, config.window_size = None, None
    layer = filled(program.DCMHAttention(config, 1, use_sw=static).eval())
    turns = torch.tensor([1.0, 0.0]).expand(N, D // H // 2, 2)  # cos and sin: nothing is turned
    return layer(numbers("x", B, N, D), turns, torch.ones(N, N, dtype=torch.bool).tril()[None, None])


def collaborative(program):
    layer = program.CollaborativeAttention(D, D, 10, D, H, False, 0.0, True, False)
    return filled(layer.eval())(numbers("x", B, N, D))[0]


RUNS = {
    "MoH, vision": moh_vision,
    "MoH, LLaMA-3": moh_llama,
    "DCMHA": lambda program: dcmha(program, False),
    "DCMHA, static": lambda program: dcmha(program, True),
    "collaborative": collaborative,
}


@torch.no_grad()
def main():
    torch.set_default_dtype(torch.float64)
    torch.Tensor.float, torch.float32 = torch.Tensor.double, torch.float64
    clones, made = Path(sys.argv[1]), {}
    for name, run in RUNS.items():
        program = name.split(", static")[0]
        made[name] = [float(f"{one:.13g}") for one in run(defined(clones, program)).flatten().tolist()]
    STORED.write_text(json.dumps(made, indent=None, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
