"""What one of several processes does for `test_parallel.py`: `torchrun parallel_worker.py TASK FOLDER`.

Process 0 writes what was found into FOLDER/found.json.
"""

import copy
import json
import os
import signal
import sys
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode

import mhalib
from mhalib import _distributed, parallel, processes
from mhalib.attention import KINDS as KINDS_OF_THE_BOOK
from mhalib.attention import Band, make_attention
from mhalib.models import GPT, MixtureFeedForward
from mhalib.train import fit

STEPS, RATE = 9, 0.01


GATED = {"norm_kind": "rms", "ffn_kind": "swiglu", "ffn_bias": False}


def model(**described):
    """The same on all processes; two heads share a key."""
    torch.manual_seed(0)
    return GPT(11, 24, 4, 1, 40, norm="pre", attention={"name": "multi-head", "num_kv_heads": 2}, **described).double()


def loss_of(model, *, shared, forward=None):
    torch.manual_seed(7)
    data = torch.randint(11, (50, 9))

    def loss():
        ids = data[torch.randint(50, (8,))]
        if shared:
            ids = processes.share(ids)
        logits, _ = (forward or model)(ids[:, :-1])
        return nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())

    return loss


def by_hand(model, loss, clip=None):
    """Training in one process, without `fit`."""
    torch.manual_seed(3)
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.01)
    rates = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, STEPS, pct_start=0.3)
    losses = []
    for _ in range(STEPS):
        value = loss()
        optimizer.zero_grad()
        value.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        rates.step()
        losses.append(value.detach())
    return torch.stack(losses)


def whole(x):
    return x.full_tensor() if isinstance(x, DTensor) else x


def apart(one, other):
    """The largest difference of their parameters."""
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return max(float((a - whole(b)).detach().abs().max()) for a, b in pairs)


def apart_in_gradients(one, other):
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return max(float((a.grad - whole(b.grad)).abs().max()) for a, b in pairs)


def compare(reference, part, call):
    """A pass of both, forward and backward."""
    expected = call(reference)
    sum(x.square().sum() for x in expected[:-1]).backward()
    with CommDebugMode() as counter:
        found = call(part)
        forward = counter.get_total_counts()
        sum(x.square().sum() for x in found[:-1]).backward()
    both = counter.get_total_counts()
    return {
        "output": max(float((a - b).detach().abs().max()) for a, b in zip(expected, found, strict=True)),
        "gradients": apart_in_gradients(reference, part),
        "counts": [forward, both - forward],
    }


def attention(over, **settings):
    torch.manual_seed(1)
    layer = mhalib.MultiHeadAttention(24, 4, **settings).double()
    queries, other = torch.randn(2, 5, 24).double(), torch.randn(2, 7, 24).double()
    part = copy.deepcopy(layer)
    part.register_buffer("mark", torch.zeros(1))
    with torch.no_grad():
        for x in [*part.parameters(), part.mark]:
            x += processes.rank()  # those of the first count
    parallel.split(part, over)
    frozen = copy.deepcopy(layer)
    frozen.W_k.weight.requires_grad_(False)
    parallel.split(frozen, over)
    alike = [float(part.mark), float(frozen.W_k.weight.requires_grad), float(not frozen.W_v.weight.requires_grad)]
    for_each, shared = torch.rand(1, 4, 5, 7) < 0.7, torch.rand(2, 1, 5, 7) < 0.7
    held = list(part.head_numbers)

    def call(one, mask):
        x, y, z = (each.clone().requires_grad_() for each in (queries, other, other))
        output, weights = one(x, y, values=z, mask=mask)
        grads = torch.autograd.grad(output.square().sum(), (x, y, z), retain_graph=True)
        return output, *grads, weights if len(weights[0]) == len(held) else weights[:, held]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for mask in (for_each, shared):
            both = zip(call(layer, mask), call(part, mask), strict=True)
            alike += [float((a - b).detach().abs().max()) for a, b in both]
        x = queries.requires_grad_()  # or nothing is sent back
        own = compare(layer, part, lambda one: (*one(x, x, x)[:1], torch.zeros(1)))
    everyone = [None] * over.size()
    held = part.head_numbers, part.kv_head_of, part.W_k.weight.to_local().shape[0]
    dist.all_gather_object(everyone, (max(alike), held))
    return {**own, "cross": max(most for most, _ in everyone), "held": [held for _, held in everyone]}


KINDS = {
    **{name: {"name": name} for name in KINDS_OF_THE_BOOK},
    "sparse": {"name": "sparse", "window": 3},
    "multi-head: few keys": {"name": "multi-head", "num_kv_heads": 1},
    "qk-norm: few keys": {"name": "qk-norm", "num_kv_heads": 2, "norm": "rms", "positions": "rotary"},
    "qk-norm: together": {"name": "qk-norm", "together": True},
    "gated: channels, few keys": {"name": "gated", "per_channel": True, "norm": "rms", "num_kv_heads": 1},
    "latent: turned": {"name": "latent", "positions": "rotary", "query_latent_size": 10},
    "latent: absorbed": {"name": "latent", "absorbed": True},
    "delta: channels": {"name": "delta", "decay": "channel"},
    "delta: shared": {"name": "delta", "decay": "none", "num_key_heads": 4},
    "delta: few keys": {"name": "delta", "num_key_heads": 1},
    "native-sparse: few keys": {"name": "native-sparse", "num_kv_heads": 1},
    "native-sparse: shared": {"name": "native-sparse", "num_kv_heads": 4, "block_size": 2, "num_chosen": 2},
    "differential: few keys": {"name": "differential", "num_kv_heads": 1},
    "differential: shared": {"name": "differential", "num_kv_heads": 4},
    "multi-token: pairs": {"name": "multi-token", "head_group": 2},
    "multi-token: all": {"name": "multi-token", "head_group": 8},
    "indexed: chosen": {"name": "indexed", "num_chosen": 3, "positions": "rotary"},
    "mixture: few keys": {"name": "mixture", "num_kv_heads": 1, "num_shared": 2},
    "collaborative: narrow": {"name": "collaborative", "shared_size": 10},
}
"""Every registered kind, and settings under which a kind holds other parts, or refuses."""


def kinds(over):
    """How far each kind is from the whole layer, with its gradients, or why it cannot be split."""
    found = {}
    for name, choice in KINDS.items():
        torch.manual_seed(5)
        layer = make_attention(choice, 48, 8, bias=True).double()
        with torch.no_grad():
            for x in layer.parameters():
                x += 0.1 * torch.randn_like(x)  # gains, sinks and gates that differ
        part, x = copy.deepcopy(layer), torch.randn(2, 6, 48).double()
        try:
            parallel.split(part, over)
        except ValueError as error:
            found[name] = str(error)
            continue
        held = sum((x.to_local() if isinstance(x, DTensor) else x).numel() for x in part.parameters())
        outputs = {}
        for one in (layer, part):
            own = x.clone().requires_grad_()
            output, weights = one(own, own, own, mask=Band())
            loss = output.square().sum()
            for extra in ("balance_loss", "span_loss"):
                loss = loss + getattr(one, extra, 0)
            loss.backward()
            without = one(own, own, own, mask=Band(), need_weights=False)[0]
            heads = weights[:, list(part.head_numbers)] if one is layer else weights
            cache, pieces = one.new_cache(), []
            with torch.no_grad():
                for start, end in ((0, 5), (5, 6)):
                    piece, seen = x[:, start:end], Band(offset=start)
                    pieces.append(one(piece, piece, piece, mask=seen, cache=cache, need_weights=False)[0])
            outputs[one] = (output, without, heads, own.grad, torch.cat(pieces, 1))
        pairs = zip(outputs[layer], outputs[part], strict=True)
        off = max(float((a - b).detach().abs().max()) for a, b in pairs)
        grads = [(a.grad, b.grad) for a, b in zip(layer.parameters(), part.parameters(), strict=True)]
        assert all((a is None) == (b is None) for a, b in grads)
        off_grads = max(float((a - whole(b)).abs().max() / (1 + a.abs().max())) for a, b in grads if a is not None)
        everyone = [None] * over.size()
        dist.all_gather_object(everyone, (off, off_grads))
        found[name] = [max(each) for each in zip(*everyone, strict=True)]
        found[name].append(held - parallel.weights_held(layer, over.size()))
    return found


def in_pairs(over):
    """Four processes in two rows: each row splits a layer, and the rows share nothing."""
    rows = init_device_mesh(over.device_type, (2, over.size() // 2), mesh_dim_names=("data", "heads"))
    torch.manual_seed(2)
    layers = [mhalib.MultiHeadAttention(24, 4, num_kv_heads=2).double() for _ in range(2)]
    x = torch.randn(2, 5, 24).double()
    layer = layers[rows["data"].get_local_rank()]  # another in each row
    part = parallel.split(copy.deepcopy(layer), rows["heads"])
    apart = float((layer(x, x, x)[0] - part(x, x, x)[0]).detach().abs().max())
    everyone = [None] * over.size()
    dist.all_gather_object(everyone, (apart, part.head_numbers))
    refused = _refused(
        {
            "rows and columns": lambda: parallel.split(mhalib.MultiHeadAttention(24, 4), rows),
            "copies": lambda: parallel.split(mhalib.MultiHeadAttention(24, 4, num_kv_heads=1), rows["heads"]),
        }
    )
    return everyone, refused


def gradients():
    """Parameters of two types, one that is frozen, one that nobody uses, one that process 0 alone uses, a buffer."""
    one = nn.ParameterDict({name: torch.ones(2) for name in ("single", "unused", "of_one", "frozen")})
    one["wide"] = torch.ones(3, dtype=torch.float64)
    one["frozen"].requires_grad_(False)
    one.register_buffer("buffer", torch.zeros(1))
    rank, begun = processes.rank(), []
    one.buffer += rank

    def loss():
        begun.append(float(one.buffer))
        one.buffer += rank  # as running means, which each process has of its own batch
        value = one["single"].sum() * (1 + rank) + one["wide"].sum() / 3 * (1 + rank) + one["frozen"].sum()
        return value + (one["of_one"].sum() if rank == 0 else 0.0)

    history = fit(one, loss, 1, weight_decay=0.0, goal=lambda: 0.1, enough=2.0)
    grads = {name: None if x.grad is None else x.grad.tolist() for name, x in one.named_parameters()}
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, (grads, begun, float(one.buffer), history.goals))
    rows = [None] * dist.get_world_size()
    dist.all_gather_object(rows, processes.share(torch.arange(8)).tolist())
    return everyone, rows


def models(over):
    found = {}
    cases = {
        "heads": ({}, {}),
        "sequence": ({"sequence": True}, {}),
        "heads, gated": ({}, {**GATED, "parallel": True}),
        "sequence, gated": ({"sequence": True}, GATED),
    }
    for name, (settings, described) in cases.items():
        reference, part = model(**described), model(**described)
        with torch.no_grad():
            for x in part.parameters():
                x += processes.rank()  # those of the first count
        parallel.split(part, over, **settings)
        ids = torch.randint(11, (3, 8), generator=torch.Generator().manual_seed(0))
        found[name] = compare(reference, part, lambda one, ids=ids: (one(ids)[0], torch.zeros(1)))
    reference = model()
    losses = by_hand(reference, loss_of(reference, shared=False), clip=0.5)
    for name in ("data", "heads", "sequence", "fsdp"):
        part = model()
        if name in ("heads", "sequence"):
            parallel.split(part, over, sequence=name == "sequence")
        elif name == "fsdp":
            from torch.distributed.fsdp import fully_shard  # since torch 2.6

            for layer in part.decoder.layers:
                fully_shard(layer, mesh=over)
            fully_shard(part, mesh=over)
        history = fit(part, loss_of(part, shared=name in ("data", "fsdp")), STEPS, RATE, seed=3, clip=0.5)
        found[f"trained: {name}"] = [float((history.losses - losses).abs().max()), apart(reference, part)]
    return found


def sequences(over):
    """What `ulysses` and `ring` make of the process's own tokens: how far from the whole layer, and the bytes sent."""
    found, n, rank = {}, over.size(), over.get_local_rank()
    own_tokens = {"ulysses": torch.arange(16).chunk(n)[rank], "ring": parallel.zigzag(16, n)[rank]}
    for name, choice in {
        "multi-head": {"name": "multi-head", "positions": "rotary"},
        "few keys": {"name": "multi-head", "num_kv_heads": 1, "positions": "rotary"},
        "shared keys": {"name": "multi-head", "num_kv_heads": 4, "value_dim": 5},
        "qk-norm": {"name": "qk-norm", "num_kv_heads": 2, "together": True},
        "latent": {"name": "latent", "positions": "rotary"},
        "latent, plain": {"name": "latent"},
    }.items():
        torch.manual_seed(6)
        layer = make_attention(choice, 48, 8, bias=True).double()
        x = torch.randn(2, 16, 48).double()
        for way, tokens in own_tokens.items():
            off, sent = 0.0, 0
            for causal in (False, True):
                now, sent = _one_way(layer, x, tokens, getattr(parallel, way), over, causal)
                off = max(off, now)
            everyone = [None] * n
            dist.all_gather_object(everyone, (off, sent))
            counted = 8 * getattr(parallel.numbers_sent(layer, 2 * 16, n), way)
            found[f"{name}: {way}"] = [max(off for off, _ in everyone), [sent for _, sent in everyone], counted]
    return found


def _one_way(layer, x, tokens, way, over, causal):
    """How far outputs and gradients are from those of one process, and how many bytes the forward pass sends."""
    whole, part = copy.deepcopy(layer), copy.deepcopy(layer)
    every, own = x.clone().requires_grad_(), x[:, tokens].clone().requires_grad_()
    output = whole(every, every, every, mask=Band() if causal else None)[0]
    output.square().sum().backward()
    with Exchanges() as exchanges:
        found = way(part, own, over, causal=causal)
    found.square().sum().backward()
    return max(
        far(output[:, tokens], found), far(every.grad[:, tokens], own.grad), summed(whole, part)
    ), exchanges.bytes


def experts(over):
    """What `expert_parallel` makes of a mixture, how far from one process; how many rows of its experts it computed."""
    found, n, rank = {}, over.size(), over.get_local_rank()
    for name, choice in {
        "two of eight": {},
        "one of four, that all tokens choose": {"num_experts": 4, "num_chosen": 1, "bias": True},
        "as DeepSeek-V3": {
            "shares": "sigmoid", "choice_bias": True, "num_groups": 4, "num_chosen_groups": 2, "num_shared": 1,
            "num_experts": 16, "num_chosen": 3, "share_scale": 2.5,
        },
    }.items():  # fmt: skip
        torch.manual_seed(7)
        whole = MixtureFeedForward(24, 20, **choice).double()
        if "all tokens" in name:
            nn.init.zeros_(whole.router.weight)
            whole.router.bias.data = torch.tensor([0.0, 0.0, 0.0, 9.0]).double()
        part, x = copy.deepcopy(whole), torch.randn(2, 12, 24).double()
        lengths = [3, 12 - 3 * (n - 1), *[3] * n][:n]  # not alike
        every, own = x.clone().requires_grad_(), x.split(lengths, 1)[rank].clone().requires_grad_()
        output = whole(every)
        output.square().sum().backward()
        computed = []
        for expert in part.experts:
            expert.register_forward_hook(lambda expert, given, out, to=computed: to.append(out.shape[1]))
        result = parallel.expert_parallel(part, own, over)
        result.square().sum().backward()
        here = [(output, result), (every.grad, own.grad)]
        off = max(*(far(a.split(lengths, 1)[rank], b) for a, b in here), summed(whole, part))
        everyone = [None] * n
        dist.all_gather_object(everyone, (off, len(computed), sum(computed)))
        found[name] = [max(off for off, _, _ in everyone), *zip(*(counts for _, *counts in everyone), strict=True)]
    return found


def far(a, b):
    return float((a - b).detach().abs().max())


def summed(whole, part):
    """How far the sum over processes of the gradients of `part` is from those of `whole`."""
    off = 0.0
    for a, b in zip(whole.parameters(), part.parameters(), strict=True):
        if a.requires_grad:
            both = [torch.zeros_like(a) if x.grad is None else x.grad for x in (a, b)]
            dist.all_reduce(both[1])
            off = max(off, far(*both) / (1 + float(both[0].abs().max())))
    return off


class Exchanges(TorchDispatchMode):
    """Bytes that this process sends to others in all-to-alls and to neighbours, as torch is given them."""

    bytes = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if str(function).startswith("c10d.alltoall_base_"):
            self.bytes += args[1].nbytes * (dist.get_world_size() - 1) // dist.get_world_size()
        if str(function).startswith("c10d.send."):
            self.bytes += sum(part.nbytes for part in args[0])
        return function(*args, **(kwargs or {}))


def more_models(over):
    """Models whose layers share something, mixtures of networks, and vocabularies that are split."""
    found = {}
    cases = {
        "vocabulary": ({"vocabulary": True}, {}),
        "vocabulary, tied": ({"vocabulary": True}, {"readout": "tied"}),
        "vocabulary, sequence": ({"vocabulary": True, "sequence": True}, {}),
        "experts": ({}, {"mixture": {"num_experts": 3}, "ffn_bias": True}),
        "experts, sequence": ({"sequence": True}, {"mixture": {"num_experts": 3}}),
        "cross-layer": ({}, {"attention": {"name": "cross-layer", "num_kv_heads": 2}}),
        "relative": ({}, {"attention": "relative"}),
    }
    for name, (settings, described) in cases.items():
        made = {"norm": "pre", "attention": {"name": "multi-head", "num_kv_heads": 2}, **described}
        models = []
        for _ in range(2):
            torch.manual_seed(0)
            models.append(GPT(12, 24, 4, 2, 40, **made).double())
        reference, part = models
        expected = parallel.weights_held(part, over.size(), vocabulary=settings.get("vocabulary", False))
        parallel.split(part, over, **settings)
        held = sum((x.to_local() if isinstance(x, DTensor) else x).numel() for x in part.parameters())
        ids = torch.randint(12, (3, 8), generator=torch.Generator().manual_seed(0))
        found[name] = compare(reference, part, lambda one, ids=ids: (one(ids)[0], torch.zeros(1)))
        found[name]["held"] = held - expected
    return found


def as_torch_does():
    """`fit` against torch's own data parallelism."""
    one, other = model(), model()
    history = fit(one, loss_of(one, shared=True), STEPS, RATE, seed=3)
    wrapped = DistributedDataParallel(other)
    losses = by_hand(other, loss_of(other, shared=True, forward=wrapped))
    _distributed.average([losses])
    return [float((history.losses - losses).abs().max()), apart(one, other)]


def different_starts():
    """Each process begins with other weights, draws other batches, and measures another goal."""
    torch.manual_seed(processes.rank())
    one = nn.Linear(3, 1)
    x = torch.randn(4, 3)
    seen = []

    def goal():
        seen.append(one.weight.tolist())
        return float(processes.rank() == 0)

    history = fit(one, lambda: one(x).square().mean().sqrt(), 6, goal=goal, goal_every=4)
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, (seen, one.weight.tolist(), history.losses.tolist(), history.goals))
    return all(each == everyone[0] for each in everyone), len(history)


def broken_off(over, folder, name, steps):
    """A run that stops after some steps, as if it had been killed, and what an unbroken one would end with."""
    part = model()
    if name == "heads":
        parallel.split(part, over)
    draw, calls = loss_of(part, shared=name == "data"), []

    def loss():
        calls.append(None)
        if len(calls) > steps:
            raise KeyboardInterrupt
        return draw()

    try:
        history = fit(part, loss, STEPS, RATE, seed=3, checkpoint=folder / name, checkpoint_every=5)
    except KeyboardInterrupt:
        return sorted(each.name for each in (folder / name).iterdir() if each.suffix == ".pt")
    reference = model()
    losses = by_hand(reference, loss_of(reference, shared=False))
    return [len(calls), float((history.losses - losses).abs().max()), apart(reference, part)]


class Louder(mhalib.MultiHeadAttention):
    """A variant."""

    def gate(self, found, queries):
        return 2 * found


def refusals(over):
    part = parallel.split(mhalib.MultiHeadAttention(24, 4), over)
    odd = GPT(11, 24, 4, 1, 41)
    indexed = parallel.split(mhalib.variants.IndexedAttention(24, 4), over)
    more = mhalib.MultiHeadAttention(24, 4)
    more.bonus = nn.Parameter(torch.ones(4))
    tried = {
        "keep": lambda: part.keep_heads([0]),
        "again": lambda: parallel.split(part, over),
        "kind": lambda: parallel.split(Louder(24, 4), over),
        "with one more": lambda: parallel.split(more, over),
        "hidden": lambda: parallel.split(odd, over),
        "width": lambda: part(torch.zeros(1, 3, 23), torch.zeros(1, 3, 24), torch.zeros(1, 3, 24)),
        "experts": lambda: parallel.split(MixtureFeedForward(24, 41), over),
        "indexer": lambda: indexed.index_loss(torch.zeros(1, 3, 24)),
        "sequence": lambda: parallel.split(mhalib.MultiHeadAttention(24, 4), over, sequence=True),
        "tied": lambda: parallel.split(model(readout="tied"), over, sequence=True),
        "vocabulary": lambda: parallel.split(mhalib.MultiHeadAttention(24, 4), over, vocabulary=True),
        "words": lambda: parallel.split(model(), over, vocabulary=True),
        "exchange": lambda: parallel.ulysses(mhalib.variants.GatedAttention(24, 4), torch.zeros(1, 3, 24), over),
        "exchange of a part": lambda: parallel.ulysses(part, torch.zeros(1, 3, 24), over),
        "odd": lambda: parallel.ring(mhalib.MultiHeadAttention(24, 4), torch.zeros(1, 3, 24), over),
        "experts not dealt out": lambda: parallel.expert_parallel(
            MixtureFeedForward(24, 8, num_experts=3), torch.zeros(1, 3, 24), over
        ),
        "tokens": lambda: parallel.split(model(), over, sequence=True)(torch.zeros(1, 7, dtype=torch.long)),
        "share": lambda: processes.share(torch.zeros(5)),
        "infinite": lambda: fit(odd, lambda: odd.readout.weight.square().sum() / (processes.rank() or 0.0), 3),
    }
    found = _refused(tried)
    assert isinstance(part.W_q.weight, DTensor)  # a pass that raised has put it back
    return found, isinstance(odd.decoder.layers[0].attention.W_q.weight, DTensor)


def _refused(tried):
    found = {}
    for name, call in tried.items():
        try:
            call()
        except (ValueError, TypeError, FloatingPointError) as error:
            found[name] = f"{type(error).__name__}: {error}"
    return found


def killed(folder):
    """Process 1 is killed at step 8; the others must not wait for it for ever."""
    one = model()
    draw, calls = loss_of(one, shared=True), []

    def loss():
        calls.append(None)
        if len(calls) == 8 and processes.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return draw()

    fit(one, loss, STEPS, RATE, seed=3, checkpoint=folder / "killed", checkpoint_every=5)


def main(task, folder):
    if task == "killed":
        killed(folder)
        return
    over = parallel.mesh()
    found = {"file": None}
    if task == "begin":  # what one process has saved, all parameters whole
        whole = {
            "file": lambda: fit(parallel.split(model(), over), int, STEPS, RATE, seed=3, checkpoint=folder / "file")
        }
        found["file"] = _refused(whole)["file"].replace(str(folder), "")
    found |= {
        "attention": {str(g): attention(over, num_kv_heads=g, bias=True) for g in (4, 2, 1)},
        "models": models(over),
        "more models": more_models(over),
        "kinds": kinds(over),
        "sequences": sequences(over),
        "experts apart": experts(over),
        "as torch does": as_torch_does(),
        "different starts": different_starts(),
        "gradients": gradients(),
        "in pairs": in_pairs(over) if over.size() == 4 else None,
        "refusals": refusals(over),
        "broken": {name: broken_off(over, folder, name, 7 if task == "begin" else STEPS) for name in ("data", "heads")},
    }
    if task == "begin":
        found["broken"]["one"] = broken_off(over, folder, "one", 7)
        found["broken"]["file"] = broken_off(over, folder, "file", STEPS)
    if processes.rank() == 0:
        (folder / "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module|Full backward hook")
    main(sys.argv[1], Path(sys.argv[2]))
