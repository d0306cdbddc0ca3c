"""Many processes do what one does: heads, tokens or batches are split, and nothing but rounding changes.

What several processes do stands in `parallel_worker.py`. They are started three times: two of them, then, where it is
asked for, four, which go on from the checkpoints of the two, and two of which one is killed.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import parallel_worker as worker
import pytest
import torch
import torch.distributed as dist

from mhalib import _distributed, parallel, processes
from mhalib.attention import KINDS, MultiHeadAttention
from mhalib.models import GPT
from mhalib.parallel import places
from mhalib.train import fit
from mhalib.variants import LatentAttention

pytestmark = pytest.mark.package

CLOSE = 1e-13  # float64, numbers near 1
TRAINED = 1e-10  # Adam divides by gradients that are nearly 0
needs_torchrun = pytest.mark.skipif(
    sys.platform == "win32" or not dist.is_available() or not dist.is_gloo_available() or torch.__version__ < "2.6",
    reason="gloo, torchrun and torch's second FSDP are needed",
)


def _torchrun(many, task, folder):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={many}"]
    return subprocess.run(
        [*command, worker.__file__, task, str(folder)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "MHALIB_DEVICE": "cpu"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("processes")


@pytest.fixture(scope="module")
def runs(folder):
    """What two processes found, and if it is asked for, what four did, which go on from the checkpoints of the two."""
    _broken_off_alone(folder)

    class Runs(dict):
        def __missing__(self, many):
            result = _torchrun(many, {2: "begin", 4: "end"}[many], folder)
            assert result.returncode == 0, result.stderr
            self[many] = json.loads((folder / "found.json").read_text())
            return self[many]

    found = Runs()
    assert found[2]
    found["left alone"] = _on_alone(folder)
    return found


def _broken_off_alone(folder):
    """One process saves, in a file."""
    one = worker.model()
    draw, calls = worker.loss_of(one, shared=False), []

    def loss():
        calls.append(None)
        if len(calls) > 7:
            raise KeyboardInterrupt
        return draw()

    with pytest.raises(KeyboardInterrupt):
        fit(one, loss, worker.STEPS, worker.RATE, seed=3, checkpoint=folder / "file", checkpoint_every=5)
    assert (folder / "file").is_file()


def _on_alone(folder):
    """One process goes on from what two have saved."""
    one = worker.model()
    history = fit(
        one, worker.loss_of(one, shared=False), worker.STEPS, worker.RATE, seed=3, checkpoint=folder / "one",
        checkpoint_every=3,
    )  # fmt: skip
    expected = worker.model()
    losses = worker.by_hand(expected, worker.loss_of(expected, shared=False))
    return float((history.losses - losses).abs().max()), worker.apart(expected, one), (folder / "one").exists()


FOUR = pytest.mark.weekly(
    "mhalib/parallel", "mhalib/processes", "mhalib/_distributed", "tests/library/parallel_worker.py"
)
BOTH = pytest.mark.parametrize("many", [2, pytest.param(4, marks=FOUR)])


@needs_torchrun
@BOTH
@pytest.mark.parametrize("shared", ["4", "2", "1"])
def test_a_split_layer_is_the_layer(runs, many, shared):
    found = runs[many]["attention"][shared]
    assert found["output"] < CLOSE
    assert found["gradients"] < CLOSE
    assert found["cross"] < CLOSE  # other keys than queries, a mask for each head; weights; gradients of the inputs


@needs_torchrun
@BOTH
@pytest.mark.parametrize("shared", ["4", "2", "1"])
def test_it_sends_one_sum_each_way(runs, many, shared):
    copies = int(shared) < many
    # a copied key has its gradients summed: of weight and bias, of keys and values
    assert runs[many]["attention"][shared]["counts"] == [1, 1 + 4 * copies]


@needs_torchrun
@BOTH
@pytest.mark.parametrize("shared", [4, 2, 1])
def test_each_process_holds_its_own_heads(runs, many, shared):
    held = runs[many]["attention"][str(shared)]["held"]
    each = 4 // many
    assert [numbers for numbers, _, _ in held] == [list(range(r * each, (r + 1) * each)) for r in range(many)]
    for numbers, groups, rows in held:
        kv_heads = sorted({head * shared // 4 for head in numbers})
        assert groups == [kv_heads.index(head * shared // 4) for head in numbers]
        assert rows == 6 * len(kv_heads)  # d = 6


@needs_torchrun
@BOTH
@pytest.mark.parametrize(
    ("name", "counts"), [("heads", 2), ("sequence", 5), ("heads, gated", 2), ("sequence, gated", 6)]
)
def test_a_split_gpt_is_the_gpt(runs, many, name, counts):
    found = runs[many]["models"][name]
    assert found["output"] < CLOSE
    assert found["gradients"] < CLOSE
    assert found["counts"][0] == counts  # two of the layer, and gathered before the readout


@needs_torchrun
@BOTH
@pytest.mark.parametrize("name", ["data", "heads", "sequence", "fsdp"])
def test_it_trains_as_one_process_does(runs, many, name):
    losses, parameters = runs[many]["models"][f"trained: {name}"]
    assert losses < CLOSE
    assert parameters < TRAINED


REFUSED = {
    "composed": "each token mixes the scores of all heads, and then their weights",
    "overlapping": "a head reads channels of its neighbours, whose rows another process holds",
    "talking": "each head's scores and weights are sums over all heads",
    "qk-norm: together": "with together=True a token's queries of all heads have one norm",
    "delta: few keys": "num_key_heads=1 queries and keys are not split evenly",
    "native-sparse: few keys": "heads that share a key choose its blocks together, and would come apart",
    "differential: few keys": "the two maps of a head may look at different keys, which are not copied head by head",
    "multi-token: all": "head_group=8 heads mix their weights, and would come apart",
}


@needs_torchrun
@BOTH
@pytest.mark.parametrize("name", worker.KINDS)
def test_every_kind_is_split_or_says_why_not(runs, many, name):
    """Forward with weights and without, token by token, backward; no third case."""
    found = runs[many]["kinds"][name]
    if name in REFUSED:
        kind = KINDS[worker.KINDS[name]["name"]].__name__
        assert found == f"{kind} cannot be split over {many} processes: {REFUSED[name]}"
        return
    output, gradients, uncounted = found
    assert output < CLOSE
    assert gradients < CLOSE
    assert uncounted == 0  # of the weights that a process holds, by `weights_held`


def test_no_kind_is_left_out():
    mine = {name for name, kind in KINDS.items() if kind.__module__.startswith("mhalib.")}
    assert mine <= {choice["name"] for choice in worker.KINDS.values()}
    assert {KINDS[name] for name in mine} == set(parallel.PLANS)


@needs_torchrun
@BOTH
@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("vocabulary", 6),  # two of each layer, one of the tokens' vectors, one that gathers logits
        ("vocabulary, tied", 6),
        ("vocabulary, sequence", 11),
        ("experts", 4),  # one sum for a mixture, however many experts it has
        ("experts, sequence", 9),
        ("cross-layer", 4),
        ("relative", 4),
    ],
)
def test_models_that_share_vocabularies_and_mixtures_are_split(runs, many, name, counts):
    found = runs[many]["more models"][name]
    assert found["output"] < CLOSE
    assert found["gradients"] < 1e-11  # of logits that are squared
    assert found["counts"][0] == counts
    assert found["held"] == 0


def test_the_plan_counts_what_each_process_holds():
    """SmolLM2-135M over three processes: 134,515,008 weights, of which 28,311,552 are the tokens' vectors."""
    with torch.device("meta"):
        attention = {"name": "multi-head", "num_kv_heads": 3, "bias": False}
        llama = {"norm_kind": "rms", "ffn_kind": "swiglu", "ffn_bias": False, "positions": "rotary", "norm": "pre"}
        model = GPT(49152, 576, 9, 30, 1536, attention=attention, readout="tied", **llama)
    norms = 61 * 576
    halves = (134515008 - 28311552 - norms) // 3
    assert parallel.weights_held(model, 1) == 134515008
    assert parallel.weights_held(model, 3) == halves + norms + 28311552 == 63736128
    assert parallel.weights_held(model, 3, vocabulary=True) == halves + norms + 28311552 // 3 == 44861760
    with pytest.raises(ValueError, match="num_heads=9 cannot be split evenly over 2 processes"):
        parallel.weights_held(model, 2)


@needs_torchrun
@BOTH
@pytest.mark.parametrize("way", ["ulysses", "ring"])
@pytest.mark.parametrize("name", ["multi-head", "few keys", "shared keys", "qk-norm", "latent", "latent, plain"])
def test_tokens_on_several_processes_make_the_layer(runs, many, name, way):
    """Causal and not, with the gradients of the tokens and, summed over processes, of the weights."""
    off, sent, counted = runs[many]["sequences"][f"{name}: {way}"]
    assert off < CLOSE
    assert sent == [counted] * many


@needs_torchrun
@BOTH
@pytest.mark.parametrize("name", ["two of eight", "one of four, that all tokens choose", "as DeepSeek-V3"])
def test_experts_on_several_processes_make_the_mixture(runs, many, name):
    """With all gradients; each process calls its own experts, and together they compute each choice once."""
    off, calls, rows = runs[many]["experts apart"][name]
    num_experts, num_chosen = {"two": (8, 2), "one": (4, 1), "as ": (16, 3)}[name[:3]]
    assert off < CLOSE
    assert calls == [num_experts // many] * many
    assert sum(rows) == 2 * 12 * num_chosen
    if name.startswith("one"):
        assert rows == [*[0] * (many - 1), 24]


def test_in_a_zigzag_all_processes_have_the_same_work():
    """Counted pair by pair, at each step of the ring, where neighbours in the text would have none or all."""
    places = parallel.zigzag(24, 3)
    assert places.tolist()[1] == [4, 5, 6, 7, 16, 17, 18, 19]
    assert sorted(places.flatten().tolist()) == list(range(24))
    for step in range(1, 3):
        seen = [int((places[(rank - step) % 3] <= places[rank][:, None]).sum()) for rank in range(3)]
        assert seen == [32] * 3
    with pytest.raises(ValueError, match="num_tokens=20 cannot be cut into 8 equal pieces, two a process"):
        parallel.zigzag(20, 4)


def test_what_three_ways_to_split_send():
    """By hand, for 64 tokens of D = 48, h = 8, d = 6 on four processes, which have 16 tokens each."""
    many = parallel.numbers_sent(MultiHeadAttention(48, 8), 64, 4)
    assert many == (2 * 3 * 16 * 48, 3 * 16 * 2 * 48, 3 * 16 * (4 * 2 * 6))
    shared = parallel.numbers_sent(MultiHeadAttention(48, 8, num_kv_heads=2), 64, 4)  # each key for two processes
    assert shared == (2 * 3 * 16 * 48, 3 * 16 * 2 * 2 * 6, 3 * 16 * (2 * 2 * 6 + 2 * 6))
    latent = LatentAttention(48, 8, latent_size=10, rotary_size=2, positions="rotary")
    assert parallel.numbers_sent(latent, 64, 4) == (2 * 3 * 16 * 48, 3 * 16 * 12, 3 * 16 * (2 * (8 + 6) + 12))
    with pytest.raises(ValueError, match="num_tokens=63 cannot be split evenly over 4 processes"):
        parallel.numbers_sent(latent, 63, 4)


@needs_torchrun
@BOTH
def test_data_are_shared_as_torch_does(runs, many):
    losses, parameters = runs[many]["as torch does"]
    assert losses < CLOSE
    assert parameters < TRAINED


@needs_torchrun
@BOTH
def test_processes_that_start_apart_end_alike_and_together(runs, many):
    assert runs[many]["different starts"] == [True, 4]  # all stop when process 0 has reached the goal


@needs_torchrun
@BOTH
def test_gradients_are_means_and_what_is_not_averaged_is_that_of_the_first(runs, many):
    everyone, rows = runs[many]["gradients"]
    assert all(each == everyone[0] for each in everyone)
    found, begun, buffer, goals = everyone[0]
    mean = (1 + many) / 2
    assert found.pop("wide") == pytest.approx([mean / 3] * 3, rel=1e-15)  # float64 is not sent as float32
    assert found == {"single": [mean] * 2, "unused": None, "of_one": [1 / many] * 2, "frozen": None}
    assert begun == [0]  # of process 0
    assert buffer == 0
    assert goals == [[1, 0.1]]  # to the last digit
    assert rows == torch.arange(8).view(many, -1).tolist()  # `share` deals neighbours out, in order


@needs_torchrun
@FOUR
def test_rows_of_processes_split_a_layer_each(runs):
    everyone, refused = runs[4]["in pairs"]
    assert [numbers for _, numbers in everyone] == [[0, 1], [2, 3]] * 2
    assert max(apart for apart, _ in everyone) < CLOSE
    assert refused == {
        "rows and columns": "ValueError: over has 2 axes, but heads are split along one: "
        "write over['name of the axis']",
        "copies": "ValueError: num_kv_heads=1 is less than 2 processes, and copies of keys need a mesh "
        "of all 4 processes",
    }


@needs_torchrun
@BOTH
def test_what_cannot_be_split_is_refused(runs, many):
    found, was_split = runs[many]["refusals"]
    assert found == {
        "keep": "ValueError: the layer is split over processes: remove heads before it is split",
        "again": f"ValueError: layer has {4 // many} of its 4 heads: split before removing heads",
        "kind": f"ValueError: Louder cannot be split over {many} processes: PLANS does not say how its heads are held",
        "with one more": f"ValueError: MultiHeadAttention cannot be split over {many} processes: "
        "no plan says how 'bonus' is held",
        "hidden": f"ValueError: ffn_num_hiddens=41 cannot be split evenly over {many} processes",
        "width": found["width"],  # whatever the layer says of it
        "experts": f"ValueError: ffn_num_hiddens=41 cannot be split evenly over {many} processes",
        "indexer": "ValueError: the layer is split over processes: the indexer learns from the weights of all heads",
        "sequence": "TypeError: sequence=True is for a GPT, got MultiHeadAttention",
        "tied": "ValueError: sequence=True needs a readout of its own, but the model's is tied to the tokens' vectors",
        "vocabulary": "TypeError: vocabulary=True is for a GPT, got MultiHeadAttention",
        "words": f"ValueError: vocab_size=11 cannot be split evenly over {many} processes",
        "exchange": "ValueError: GatedAttention cannot be exchanged by heads: its steps are not those of "
        "MultiHeadAttention, QKNormAttention, LatentAttention",
        "exchange of a part": "ValueError: the layer is split over processes: heads are exchanged where each process "
        "has all weights",
        "odd": "ValueError: x has 3 tokens, and must have two pieces of the same length, see `zigzag`",
        "experts not dealt out": f"ValueError: num_experts=3 cannot be dealt out evenly to {many} processes",
        "tokens": f"ValueError: tokens has 7 of them, which {many} processes cannot share evenly",
        "share": f"ValueError: a batch of 5 cannot be dealt out evenly to {many} processes",
        "infinite": "FloatingPointError: the loss of step 1 is inf: try a smaller rate",
    }
    assert not was_split


@needs_torchrun
@FOUR
@pytest.mark.parametrize("name", ["data", "heads"])
def test_four_go_on_where_two_were_broken_off(runs, name):
    steps, losses, parameters = runs[4]["broken"][name]
    assert steps == worker.STEPS - 5  # two of the seven that were done were not saved
    assert losses < CLOSE
    assert parameters < TRAINED


@needs_torchrun
def test_two_go_on_where_one_was_broken_off(runs):
    steps, losses, parameters = runs[2]["broken"]["file"]
    assert steps == worker.STEPS - 5
    assert losses < CLOSE
    assert parameters < TRAINED


@needs_torchrun
def test_what_one_has_saved_is_for_models_that_are_whole(runs):
    assert runs[2]["file"] == (
        "ValueError: checkpoint='/file' was saved by one process, but the model is split over several"
    )


@needs_torchrun
def test_one_goes_on_where_two_were_broken_off(runs):
    losses, parameters, is_left = runs["left alone"]
    assert losses < CLOSE
    assert parameters < TRAINED
    assert not is_left


@needs_torchrun
@FOUR
def test_the_end_leaves_no_checkpoint(runs, folder):
    assert runs[4]
    assert sorted(path.name for path in folder.iterdir() if path.name != "killed") == ["found.json"]


@needs_torchrun
def test_a_killed_process_ends_all_with_a_message(tmp_path):
    result = _torchrun(2, "killed", tmp_path)
    assert result.returncode != 0
    assert "Signal 9 (SIGKILL)" in result.stderr  # of torchrun
    assert "ConnectionError: process 0 of 2 stops: another one has ended" in result.stderr
    assert (tmp_path / "killed" / "own.safetensors").exists()


def test_places_of_heads_and_keys():
    assert places(8, 4, 2) == [(range(4), range(2)), (range(4, 8), range(2, 4))]
    assert [place.kv_heads for place in places(8, 2, 4)] == [range(1), range(1), range(1, 2), range(1, 2)]
    assert [place.heads for place in places(6, 1, 3)] == [range(2), range(2, 4), range(4, 6)]


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((6, 6, 4), "num_heads=6 cannot be split evenly over 4 processes"),
        ((12, 4, 6), "num_kv_heads=4 cannot be split evenly over 6 processes, nor 6 processes evenly over them"),
        ((8, 3, 2), "num_heads=8 is not divisible by num_kv_heads=3"),
        ((8, 8, 0), "num_ranks=0 must be at least 1"),
    ],
)
def test_places_that_there_are_not(sizes, message):
    with pytest.raises(ValueError, match=message):
        places(*sizes)


def test_alone_there_is_nobody_to_share_with():
    x, y = torch.randn(5, 2), torch.arange(5)
    assert processes.start() == 1
    assert processes.rank() == 0
    assert processes.share(x) is not None
    assert torch.equal(processes.share(x), x)
    assert all(map(torch.equal, processes.share(x, y), (x, y)))
    with pytest.raises(ValueError, match=r"tensors\[1\] has shape \(4,\), but tensors\[0\] \(5, 2\)"):
        processes.share(x, y[:4])
    with pytest.raises(ValueError, match=r"tensors\[0\] has shape \(\), but a batch has an axis"):
        processes.share(torch.tensor(3))
    with pytest.raises(TypeError, match="at least one tensor"):
        processes.share()
    with pytest.raises(RuntimeError, match="start the program with torchrun"):
        parallel.mesh()


def test_a_folder_that_was_being_replaced_is_found_again(tmp_path):
    """A process may end between any two of the moves."""
    path = tmp_path / "run"
    for left, expected in (({"part"}, "part"), ({"old"}, "old"), ({"part", "old"}, "part"), ({"run", "old"}, "run")):
        for end in left:
            at = path if end == "run" else path.with_name(f"run.{end}")
            at.mkdir()
            (at / "own.safetensors").write_text(end)
        _distributed.settle(path)
        assert (path / "own.safetensors").read_text() == expected
        assert [each.name for each in tmp_path.iterdir()] == ["run"]
        _distributed.remove(path)
    half = Path(f"{path}.part")
    half.mkdir()  # without its last file
    _distributed.settle(path)
    assert not list(tmp_path.iterdir())
