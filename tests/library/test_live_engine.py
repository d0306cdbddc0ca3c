"""The engine of pages, `mhalib/live/*.js` in node, against PyTorch in float64 with hooks on the projections of each layer.

The engine computes in float64, too, so that both must agree to 1e-9, far below the 1e-5 that a page promises.
"""

import copy
import json
import re
import subprocess
from contextlib import ExitStack

import pytest
import torch

from mhalib import saved, switched_off
from mhalib.attention import MultiHeadAttention, rotate
from mhalib.attention.positions import Positions
from mhalib.data import BEGIN, END, ENGLISH
from mhalib.live import described, scripts
from mhalib.measures import head_means, heads_of, prune_heads
from mhalib.models import BERT, GPT, Transformer
from mhalib.saved import FOLDER, About
from tools.development import javascript

pytestmark = pytest.mark.skipif(javascript.node() is None, reason=f"there is no Node: {javascript.REMEDY}")

TOLERANCE = 1e-9
POSITIONS = ("learned", "sinusoidal", "rotary", "none")
ATTENTIONS = {
    "multi-head": "multi-head",
    "grouped": {"name": "multi-head", "num_kv_heads": 2},
    "talking": {"name": "talking", "init": "normal"},
}
SIZES = {"num_hiddens": 24, "num_heads": 4, "num_layers": 2, "ffn_num_hiddens": 19, "max_tokens": 17}
OTHERS = {
    "GPT, post-norm": (GPT, {"norm": "post"}),
    "GPT, no network": (GPT, {"ffn_num_hiddens": 0}),
    "GPT, tied": (GPT, {"readout": "tied", "embedding_scale": 2.5, "norm_eps": 1e-3}),
    "GPT, talking in groups": (GPT, {"attention": {"name": "talking", "init": "normal", "num_kv_heads": 2}}),
    "Transformer, post-norm": (Transformer, {"norm": "post", "ffn_bias": False}),
    "Transformer, tied": (Transformer, {"readout": "tied with bias", "embedding_scale": 0.5}),
}
SETTINGS = {
    f"{kind.__name__}, {positions}, {name}": (kind, {"positions": positions, "attention": attention})
    for kind in (GPT, Transformer)
    for positions in POSITIONS
    for name, attention in ATTENTIONS.items()
} | OTHERS
NAMES = [*saved.names(), *SETTINGS]
RUNNER = """
import fs from "node:fs";
import { LiveModel } from "./engine.js";
const { models, cases } = JSON.parse(fs.readFileSync(process.argv[2]));
const made = (name) => new LiveModel(fs.readFileSync(models[name].file), models[name].described);
const live = {};
function answer({ model, inputs, deeds, count, end }) {
  if (count === undefined && inputs === undefined) return made(model).heads;
  live[model] ??= made(model);
  const log = {};
  const run = { deeds, log };
  const [source, target] = inputs.length === 2 ? inputs : [null, inputs[0]];
  const memory = source ? live[model].encode(source, run) : undefined;
  if (count !== undefined) return live[model].write(target, count, { deeds, memory, end });
  const logits = memory ? live[model].decode(target, memory, run) : live[model].read(target, run);
  const heads = Object.entries(log).map(([name, { weights, values }]) => [name, { weights: [...weights], values: [...values] }]);
  return { logits: [...logits], heads: Object.fromEntries(heads) };
}
const answers = cases.map((one) => {
  try { return answer(one); } catch (error) { return { error: error.message }; }
});
fs.writeFileSync(process.argv[3], JSON.stringify(answers));
"""


def new_model(name):
    """A model with random weights, whose scores are large enough for heads that look somewhere."""
    kind, settings = SETTINGS[name]
    torch.manual_seed(NAMES.index(name))
    vocab = (11,) if kind is GPT else (13, 13)
    model = kind(*vocab, **{**SIZES, **settings})
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        for layer in (one for of_kind in model.attention_layers().values() for one in of_kind):
            layer.W_q.weight *= 2
    return model


def inputs_of(name, number):
    """Token ids of a text, or of a source and a target; texts of other numbers have other lengths."""
    generator = torch.Generator().manual_seed(number)
    sizes = {"repeater": [32], "translator": [153, 223]}.get(name) or ([11] if SETTINGS[name][0] is GPT else [13, 13])
    lengths = [5 + (3 * number + 2 * side) % 7 for side in range(len(sizes))]
    return [torch.randint(size, (n,), generator=generator).tolist() for size, n in zip(sizes, lengths, strict=True)]


def float64(numbers):
    return torch.tensor(numbers, dtype=torch.float64)


class Bench:
    """The models, each in a file for node and in float64 for PyTorch."""

    def __init__(self, folder):
        self.folder, self.models, self.told = folder, {}, {}
        for script in scripts():
            (folder / script.name).write_text(script.read_text(encoding="utf-8"), encoding="utf-8")
        (folder / "package.json").write_text('{"type": "module"}', encoding="utf-8")
        (folder / "runner.js").write_text(RUNNER, encoding="utf-8")
        for number, name in enumerate(NAMES):
            file = FOLDER / f"{name}.safetensors" if name in saved.names() else folder / f"{number}.safetensors"
            if name in SETTINGS:
                saved.write(new_model(name), file, About("none", ("none", 0.0), "none"))
            self.models[name] = saved.read(file).double().requires_grad_(False)
            self.told[name] = {"file": str(file), "described": described(self.models[name])}

    def ask(self, cases, told=None):
        """What the engine answers to each case, from one process."""
        asked, answered = self.folder / "asked.json", self.folder / "answered.json"
        asked.write_text(json.dumps({"models": {**self.told, **(told or {})}, "cases": cases}), encoding="utf-8")
        command = [str(javascript.node()), str(self.folder / "runner.js"), str(asked), str(answered)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert not done.returncode, done.stderr
        return json.loads(answered.read_text(encoding="utf-8"))

    def changed(self, folder, file, old, new):
        """The same with one place of a script changed."""
        other = copy.copy(self)
        other.folder = folder
        for script in (*self.folder.glob("*.js"), self.folder / "package.json"):
            text = script.read_text(encoding="utf-8")
            if script.name == file:
                assert text.count(old) == 1
                text = text.replace(old, new)
            (folder / script.name).write_text(text, encoding="utf-8")
        return other


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    return Bench(tmp_path_factory.mktemp("live"))


def own_weights(layer, q, k, is_causal):
    """Weights (h, Q, K) of what W_q and W_k gave, written out once more."""
    q, k = (x[0].unflatten(-1, (-1, layer.head_dim)).transpose(0, 1) for x in (q, k))
    if layer.positions is not None:
        q, k = rotate(q), rotate(k)
    k = k.repeat_interleave(len(q) // len(k), 0)
    scores = torch.einsum("hqd,hkd->hqk", q, k) / layer.head_dim**0.5
    is_talking = hasattr(layer, "P_scores")
    if is_talking:
        scores = torch.einsum("nqk,nm->mqk", scores, layer.P_scores)
    if is_causal:
        scores = scores.masked_fill(~torch.ones(scores.shape[1:], dtype=torch.bool).tril(), -torch.inf)
    weights = scores.softmax(-1)
    return torch.einsum("nqk,nm->mqk", weights, layer.P_weights) if is_talking else weights


def with_rows(own, deed, is_causal, rows_sum_to_one):
    """A head's weights (Q, K) as `rows` and `frozen` leave them."""
    weights = own.clone()
    for query, row in enumerate(weights):
        seen = query + 1 if is_causal else len(row)
        frozen = deed.get("frozen")
        given = [(deed.get("rows", {}).get(query), True)]
        if frozen and query < frozen["nq"]:
            given.append((frozen["weights"][query * frozen["nk"] : (query + 1) * frozen["nk"]], rows_sum_to_one))
        for numbers, divides in given:
            if numbers is None:
                continue
            new = torch.zeros_like(row)
            count = min(seen, len(numbers))
            new[:count] = float64(numbers[:count])
            if not divides or new.sum() > 1e-9:
                weights[query] = new / new.sum() if divides else new
                break
    return weights


def with_deeds(output, deed):
    """A head's output (Q, d) as `patch`, `mean` and `gate` leave it."""
    if "patch" in deed:
        patch = float64(deed["patch"]["values"]).view(deed["patch"]["nq"], -1)
        count = min(len(patch), len(output))
        output = torch.cat([patch[:count], output[count:]])
    if "mean" in deed:
        output = float64(deed["mean"]).expand_as(output)
    return output * deed.get("gate", 1)


def without_positions(model):
    model = copy.deepcopy(model)
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            module.positions = None
        elif hasattr(module, "positions"):
            module.positions = Positions()
    return model


def expect(model, inputs, deeds):
    """Logits (n, words), and weights and output of each head, with hooks on W_q, W_k, W_v and W_o."""
    model = without_positions(model) if deeds.get("positions") is False else model
    heads = {}

    def install(stack, kind, number, layer):
        projected = {}
        for name in "qkv":
            hook = lambda module, args, output, name=name: projected.__setitem__(name, output)  # noqa: E731
            stack.callback(getattr(layer, f"W_{name}").register_forward_hook(hook).remove)

        def change(module, args):
            is_causal, d = kind == "decoder self", layer.head_dim
            all_weights = own_weights(layer, projected["q"], projected["k"], is_causal)
            values = projected["v"][0].unflatten(-1, (-1, d)).transpose(0, 1)
            values = values.repeat_interleave(layer.num_heads // len(values), 0)
            torch.testing.assert_close((all_weights @ values).transpose(0, 1).flatten(1), args[0][0])
            outputs = []
            for head, own in enumerate(all_weights):
                name = f"{kind} {number} {head}"
                deed = deeds.get("heads", {}).get(name, {})
                weights = with_rows(own, deed, is_causal, layer.rows_sum_to_one)
                outputs.append(with_deeds(weights @ values[head], deed))
                heads[name] = {"weights": weights, "values": outputs[-1]}
            return (torch.cat(outputs, -1)[None],)

        stack.callback(layer.W_o.register_forward_pre_hook(change).remove)

    with ExitStack() as stack:
        for kind, layers in model.attention_layers().items():
            for number, layer in enumerate(layers):
                install(stack, kind, number, layer)
        logits, _ = model(*(torch.tensor([ids]) for ids in inputs))
    return {"logits": logits[0], "heads": heads}


def record(heads, name):
    """What a head did, as a deed takes it."""
    weights, values = heads[name]["weights"], heads[name]["values"]
    nq, nk = weights.shape
    return {"nq": nq, "nk": nk, "weights": weights.flatten().tolist(), "values": values.flatten().tolist()}


def some_deeds(bench, name, what, seed):
    """Deeds of one kind, or of all kinds at once, on random heads."""
    model, generator = bench.models[name], torch.Generator().manual_seed(seed)
    heads = [" ".join(map(str, head)) for head in heads_of(model)]
    d = SIZES["num_hiddens"] // SIZES["num_heads"] if name in SETTINGS else 16
    other = expect(model, inputs_of(name, seed + 1), {})["heads"]

    def number(limit):
        return int(torch.randint(limit, (), generator=generator))

    def rows():
        given = {query: torch.rand(1 + number(12), generator=generator).tolist() for query in range(number(9))}
        return given | {number(4): [0.0, 0.0, 1.0]}  # hidden from the first two queries, where the mask is causal

    makers = {
        "off": lambda head: {"gate": 0},
        "gate": lambda head: {"gate": number(100) / 40},
        "mean": lambda head: {"mean": torch.randn(d, generator=generator).tolist()},
        "frozen": lambda head: {"frozen": record(other, head)},
        "rows": lambda head: {"rows": rows()},
        "patch": lambda head: {"patch": record(other, head)},
    }
    if what in ("plain", "positions"):
        return {} if what == "plain" else {"positions": False}
    if what != "all":
        return {"heads": {head: makers[what](head) for head in heads if number(2) or what == "frozen"}}
    kinds = list(makers)
    each = {head: [kind for kind in kinds if not number(3)] for head in heads}
    deeds = {head: {k: v for kind in of_head for k, v in makers[kind](head).items()} for head, of_head in each.items()}
    return {"heads": deeds, "positions": bool(number(3))}


def as_case(name, inputs, deeds, **more):
    return {"model": name, "inputs": inputs, "deeds": deeds, **more}


def deviation(answer, expected):
    """The largest difference between logits, weights and outputs; NaN is infinite."""
    assert answer.get("error") is None, answer["error"]
    assert answer["heads"].keys() == expected["heads"].keys()
    pairs = [(answer["logits"], expected["logits"])]
    pairs += [(answer["heads"][h][part], expected["heads"][h][part]) for h in answer["heads"] for part in ("weights", "values")]
    found = [float64([torch.nan if x is None else x for x in numbers]) for numbers, _ in pairs]
    differences = [(one - wanted.flatten()).abs().max() for one, (_, wanted) in zip(found, pairs, strict=True)]
    return float(torch.stack(differences).nan_to_num(torch.inf).max())


KINDS_OF_DEEDS = ("plain", "off", "gate", "mean", "frozen", "rows", "patch", "positions", "all")


@pytest.fixture(scope="module")
def deviations(bench):
    """Of each model and kind of deeds, the largest difference."""
    cases, expected = [], []
    for name in NAMES:
        for number, what in enumerate(KINDS_OF_DEEDS):
            inputs, deeds = inputs_of(name, number), some_deeds(bench, name, what, number)
            cases.append(as_case(name, inputs, deeds))
            expected.append(expect(bench.models[name], inputs, deeds))
    keys = [(name, what) for name in NAMES for what in KINDS_OF_DEEDS]
    return dict(zip(keys, map(deviation, bench.ask(cases), expected), strict=True))


@pytest.mark.parametrize("what", KINDS_OF_DEEDS)
@pytest.mark.parametrize("name", NAMES)
def test_logits_weights_and_outputs_are_pytorchs(deviations, name, what):
    assert deviations[name, what] < TOLERANCE
