"""The training loop: it reaches a minimum that is known, does what a loop written by hand does, and survives."""

import io
import math
import os
import pickle
import re
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from mhalib import _distributed, _plain, _trainer
from mhalib.models import GPT
from mhalib.train import fit

pytestmark = pytest.mark.package


def _least_squares(device="cpu"):
    torch.manual_seed(0)
    model = nn.Linear(3, 1, bias=False).to(device)
    x = torch.randn(50, 3, device=device)
    y = x @ torch.tensor([[1.0], [-2.0], [0.5]], device=device)
    return model, lambda: (model(x) - y).square().mean()


def _drawing(device="cpu", start=0):
    """A model with dropout and running means, whose loss draws its batches."""
    torch.manual_seed(start)
    model = nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.Dropout(0.3), nn.Linear(7, 1)).to(device)

    def loss():
        x = torch.randn(11, 5, device=device)
        return (model(x) - x.sum(1, keepdim=True)).square().mean()

    return model, loss


def _stopping(loss, at, error=KeyboardInterrupt):
    """`loss`, but the call number `at` raises, after the batch was drawn."""
    calls = []

    def stopped():
        calls.append(None)
        value = loss()
        if len(calls) == at:
            raise error
        return value

    return stopped


def _assert_equal_models(one, other):
    for (name, x), (_, y) in zip(one.state_dict().items(), other.state_dict().items(), strict=True):
        assert torch.equal(x, y), name


def _by_hand(model, loss, steps, max_lr, *, warm_up=0.3, weight_decay=0.01, clip=None):
    """The loop without any of the extras."""
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=weight_decay)
    rates = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr, total_steps=steps, pct_start=warm_up)
    losses = []
    for _ in range(steps):
        value = loss()
        optimizer.zero_grad()
        value.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        rates.step()
        losses.append(value.detach())
    return torch.stack(losses).cpu()


def test_it_finds_the_known_minimum(device):
    model, loss = _least_squares(device)
    history = fit(model, loss, steps=400, max_lr=0.1)
    losses = history.losses
    assert losses.shape == (400,)
    assert len(history) == 400
    assert (history.goals, history.reached) == ([], False)
    assert losses.device.type == "cpu"
    assert not losses.requires_grad
    assert losses[-1] < 1e-3 < losses[0]
    torch.testing.assert_close(
        model.weight.detach().cpu(), torch.tensor([[1.0, -2.0, 0.5]]), atol=0.03, rtol=0
    )  # weight decay pulls a little


@pytest.mark.parametrize(
    "settings",
    [{}, {"warm_up": 0.13}, {"weight_decay": 0.3}, {"clip": 0.05}, {"warm_up": 0.71, "weight_decay": 0.0, "clip": 0.7}],
)
def test_it_does_what_a_loop_by_hand_does(settings, device):
    runs = []
    for run in (fit, _by_hand):
        model, loss = _drawing(device)
        runs.append((model.train(), run(model, loss, 37, 0.03, **settings)))
    (mine, history), (hand, losses) = runs
    assert torch.equal(history.losses, losses)
    _assert_equal_models(mine, hand)


def test_the_defaults_are_those_of_the_first_chapters():
    runs = []
    for run in (fit, lambda model, loss: _by_hand(model, loss, 400, 0.02)):
        model, loss = _drawing()
        run(model.train(), loss)
        runs.append(model)
    _assert_equal_models(*runs)


def test_it_trains_in_training_mode_and_leaves_evaluation_mode():
    model, loss = _least_squares()
    seen = []
    fit(model.eval(), lambda: (seen.append(model.training), loss())[1], steps=3)
    assert seen == [True] * 3
    assert not model.training


def test_a_run_that_breaks_off_leaves_evaluation_mode_too():
    model, loss = _least_squares()
    with pytest.raises(KeyboardInterrupt):
        fit(model, _stopping(loss, 2), steps=3)
    assert not model.training


def _rates(**settings):
    """The learning rate of each step."""
    model, loss = _least_squares()
    rates = []
    hook = register_optimizer_step_pre_hook(lambda optimizer, *_: rates.append(optimizer.param_groups[0]["lr"]))
    try:
        fit(model, loss, max_lr=0.01, **settings)
    finally:
        hook.remove()
    return torch.tensor(rates)


def test_the_rate_rises_and_falls():
    rates = _rates(steps=60)
    assert rates[0] == pytest.approx(0.01 / 25)
    assert rates[-1] < 1e-6
    assert 0.0099 < rates.max() <= 0.01
    peak = int(rates.argmax())
    assert abs(peak - 0.3 * 60) <= 1
    assert (rates[: peak + 1].diff() > 0).all()
    assert (rates[peak:].diff() < 0).all()


@pytest.mark.parametrize("warm_up", [0.1, 0.5, 0.9])
def test_warm_up_moves_the_peak(warm_up):
    assert abs(int(_rates(steps=60, warm_up=warm_up).argmax()) - 60 * warm_up) <= 1


@pytest.mark.parametrize(("steps", "warm_up"), [(10, 0.1), (2, 0.5), (4, 0.25), (3, 0.001)])
def test_a_warm_up_of_a_step_or_less_is_none(steps, warm_up):
    """Torch's schedule alone divides by zero where the warm-up is one step long."""
    rates = _rates(steps=steps, warm_up=warm_up)
    assert (rates.diff() < 0).all()
    assert 0.005 < rates[0] <= 0.01


@pytest.mark.parametrize("warm_up", [0.001, 0.3, 0.999])
def test_one_step_is_enough(warm_up):
    assert len(_rates(steps=1, warm_up=warm_up)) == 1


def test_weight_decay_pulls_towards_zero():
    """Where the loss is flat, weights shrink, the more the larger weight_decay is."""
    sizes = []
    for weight_decay in (0.0, 0.01, 1.0):
        model = nn.Linear(3, 1, bias=False)
        nn.init.ones_(model.weight)
        fit(model, lambda model=model: 0.0 * model.weight.sum(), 20, weight_decay=weight_decay)
        sizes.append(float(model.weight.detach().norm()))
    assert sizes[0] == pytest.approx(math.sqrt(3))
    assert sizes[0] > sizes[1] > sizes[2]


def test_clip_limits_the_norm_of_all_gradients_together(device):
    """Only the first step's gradient is clear to see: it is what the parameters still hold."""
    norms = {}
    for clip in (None, 1e9, 0.5, 0.01):
        model, loss = _drawing(device)
        fit(model, lambda loss=loss: 100 * loss(), 1, clip=clip)
        norms[clip] = float(torch.cat([p.grad.flatten() for p in model.parameters()]).norm())
    assert norms[None] == norms[1e9] > 1
    assert norms[0.5] == pytest.approx(0.5, rel=1e-4)
    assert norms[0.01] == pytest.approx(0.01, rel=1e-4)


def test_equal_seeds_give_equal_losses(device):
    runs = []
    for seed in (1, 1, 2):
        model, loss = _drawing(device)
        runs.append(fit(model, loss, steps=5, seed=seed).losses)
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])


def test_without_a_seed_random_numbers_go_on():
    model, loss = _drawing()
    torch.manual_seed(3)
    first = fit(model, loss, steps=2).losses
    model, loss = _drawing()
    torch.manual_seed(3)
    torch.rand(1)
    assert not torch.equal(first, fit(model, loss, steps=2).losses)


def test_a_goal_is_measured_in_evaluation_mode_without_gradient():
    model, loss = _drawing()
    seen = []

    def goal():
        seen.append((model.training, torch.is_grad_enabled()))
        return 0.25

    history = fit(model, loss, 23, goal=goal, goal_every=5)
    assert history.goals == [(step, 0.25) for step in (5, 10, 15, 20, 23)]
    assert seen == [(False, False)] * 5
    assert not history.reached
    assert len(history) == 23


def test_a_goal_does_not_change_the_training():
    plain, loss = _drawing()
    losses = fit(plain, loss, 12).losses
    measured, loss = _drawing()
    assert torch.equal(losses, fit(measured, loss, 12, goal=lambda: 0.0, goal_every=1).losses)
    _assert_equal_models(plain, measured)


@pytest.mark.parametrize(("values", "stop"), [([0.1, 0.7, 0.9], 6), ([0.1, 0.69, 0.71], 9), ([math.nan, 0.8], 6)])
def test_training_stops_once_it_is_enough(values, stop, tmp_path):
    model, loss = _drawing()
    given = iter(values)
    history = fit(model, loss, 90, goal=lambda: next(given), enough=0.7, goal_every=3, checkpoint=tmp_path / "run.pt")
    assert history.reached
    assert len(history) == stop == history.goals[-1][0]
    assert not model.training
    assert list(tmp_path.iterdir()) == []


def test_enough_at_the_last_step_is_reached():
    model, loss = _drawing()
    assert fit(model, loss, 4, goal=lambda: 1.0).reached


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("at", [1, 2, 5, 6, 7, 17])
def test_an_interrupted_run_ends_as_if_nothing_had_happened(at, error, tmp_path, device):
    """Losses, weights, running means, what is drawn by dropout and for the batches, and what `goal` measured."""
    settings = {"steps": 17, "clip": 0.5, "seed": 5, "goal_every": 2, "mixed_precision": True}
    whole, loss = _drawing(device)
    expected = fit(whole, loss, goal=lambda: -float(whole[0].weight.norm()), **settings)
    after = torch.rand(3)

    settings |= {"checkpoint": tmp_path / "run.pt", "checkpoint_every": 5}
    model, loss = _drawing(device)
    with pytest.raises(error):
        fit(model, _stopping(loss, at, error), goal=lambda: -float(model[0].weight.norm()), **settings)
    assert [path.name for path in tmp_path.iterdir()] == ["run.pt"]
    again, loss = _drawing(device, start=1)  # it starts elsewhere: all comes from the checkpoint
    calls = []
    found = fit(
        again,
        lambda: (calls.append(None), loss())[1],
        goal=lambda: -float(again[0].weight.norm()),
        **settings,
    )
    assert len(calls) == 17 - (at - 1) // 5 * 5
    assert torch.equal(found.losses, expected.losses)
    assert found.goals == expected.goals
    assert torch.equal(torch.rand(3), after)
    _assert_equal_models(whole, again)
    assert list(tmp_path.iterdir()) == []


def test_without_a_seed_a_run_goes_on_too(tmp_path):
    whole, loss = _drawing()
    expected = fit(whole, loss, 9)
    model, loss = _drawing()
    with pytest.raises(KeyboardInterrupt):
        fit(model, _stopping(loss, 8), 9, checkpoint=tmp_path / "run.pt", checkpoint_every=3)
    again, loss = _drawing(start=1)
    assert torch.equal(expected.losses, fit(again, loss, 9, checkpoint=tmp_path / "run.pt", checkpoint_every=3).losses)
    _assert_equal_models(whole, again)


def test_a_run_may_break_off_again_and_again(tmp_path):
    whole, loss = _drawing()
    expected = fit(whole, loss, 13, seed=7)
    settings = {"seed": 7, "checkpoint": str(tmp_path / "run.pt"), "checkpoint_every": 2}
    for _ in range(6):
        model, loss = _drawing()
        with pytest.raises(KeyboardInterrupt):
            fit(model, _stopping(loss, 3), 13, **settings)
    model, loss = _drawing()
    assert torch.equal(expected.losses, fit(model, loss, 13, **settings).losses)
    _assert_equal_models(whole, model)


def test_a_run_that_goes_on_can_reach_its_goal(tmp_path):
    settings = {"checkpoint": tmp_path / "run.pt", "checkpoint_every": 4, "goal_every": 3, "enough": 0.7}
    model, loss = _drawing()
    with pytest.raises(KeyboardInterrupt):
        fit(model, _stopping(loss, 8), 40, goal=lambda: 0.1, **settings)
    model, loss = _drawing()
    history = fit(model, loss, 40, goal=lambda: 0.9, **settings)
    assert history.goals == [(3, 0.1), (6, 0.9)]
    assert history.reached
    assert len(history) == 6
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["zero_grad", "step"])
def test_an_interruption_in_the_middle_of_a_step_is_forgotten(place, tmp_path, monkeypatch):
    """Half of the parameters may have moved by then."""
    whole, loss = _drawing()
    expected = fit(whole, loss, 9, seed=3)
    model, loss = _drawing()
    original, calls = getattr(torch.optim.AdamW, place), []

    def broken(self, *args, **kwargs):
        calls.append(None)
        if len(calls) == 6:
            for parameter in list(model.parameters())[:2]:
                parameter.data.fill_(math.inf)
            raise KeyboardInterrupt
        return original(self, *args, **kwargs)

    settings = {"seed": 3, "checkpoint": tmp_path / "run.pt", "checkpoint_every": 2}
    with monkeypatch.context() as patch:
        patch.setattr(torch.optim.AdamW, place, broken)
        with pytest.raises(KeyboardInterrupt):
            fit(model, loss, 9, **settings)
    assert torch.equal(fit(model, loss, 9, **settings).losses, expected.losses)
    _assert_equal_models(whole, model)


@pytest.mark.parametrize("at", [2, 3, 4])
def test_an_interruption_while_saving_leaves_the_earlier_checkpoint(at, tmp_path, monkeypatch):
    whole, loss = _drawing()
    expected = fit(whole, loss, 9, seed=3)
    original, calls = os.fsync, []

    def broken(number):
        calls.append(None)
        if len(calls) == at:
            os.ftruncate(number, 100)
            raise KeyboardInterrupt
        original(number)

    model, loss = _drawing()
    settings = {"seed": 3, "checkpoint": tmp_path / "run.pt", "checkpoint_every": 2}
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", broken)
        with pytest.raises(KeyboardInterrupt):
            fit(model, loss, 9, **settings)
    assert len(calls) == at
    settings["checkpoint_every"] = 100  # so that no saving cleans up
    assert torch.equal(fit(model, loss, 9, **settings).losses, expected.losses)
    _assert_equal_models(whole, model)
    assert list(tmp_path.iterdir()) == []


KILLED = """
    import os, signal
    import torch
    from torch import nn
    from mhalib.train import fit

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7), nn.Dropout(0.3), nn.Linear(7, 1))
    calls = 0

    def loss():
        global calls
        calls += 1
        if place == "step" and calls == 11:
            os.kill(os.getpid(), signal.SIGKILL)
        return (model(torch.randn(11, 5)) - 1).square().mean()

    if place == "saving":
        written = os.fsync

        def fsync(number):
            if calls == 9:
                os.ftruncate(number, 100)
                os.kill(os.getpid(), signal.SIGKILL)
            written(number)

        os.fsync = fsync
    settings = {"checkpoint": path, "checkpoint_every": 3} if path else {}
    losses = fit(model, loss, 14, seed=1, **settings).losses
    torch.save({"losses": losses, "first step": 15 - calls, **model.state_dict()}, result)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL on this system")
def test_a_killed_process_leaves_a_valid_checkpoint(tmp_path):
    """What is killed runs in a process of its own, what is not in this one."""
    code = textwrap.dedent(KILLED)

    def run(place, path, result):
        names = {"place": place, "path": path and str(tmp_path / path), "result": str(tmp_path / result)}
        if place == "nowhere":
            exec(code, names)
            return 0
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
        told = "".join(f"{name} = {value!r}\n" for name, value in names.items())
        return subprocess.run([sys.executable, "-c", told + code], env=environment, timeout=300).returncode

    assert run("nowhere", "", "whole") == 0
    expected = torch.load(tmp_path / "whole", weights_only=True)
    assert expected.pop("first step") == 1
    for place, first_step in (("step", 10), ("saving", 7)):
        assert run(place, place + ".pt", "unused") == -signal.SIGKILL
        assert (tmp_path / (place + ".pt")).exists()
        assert (tmp_path / (place + ".pt.part")).exists() == (place == "saving")
        assert run("nowhere", place + ".pt", place) == 0
        found = torch.load(tmp_path / place, weights_only=True)
        assert found.pop("first step") == first_step
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert not [path.name for path in tmp_path.iterdir() if ".pt" in path.name]
    assert not (tmp_path / "unused").exists()


def _interrupted(path, **settings):
    model, loss = _drawing()
    with pytest.raises(KeyboardInterrupt):
        fit(model, _stopping(loss, 4), **{"steps": 6, "checkpoint": path, "checkpoint_every": 2, **settings})
    return path


@pytest.mark.parametrize("damage", ["truncated", "empty", "text", "pickle", "list", "state", "folder"])
def test_a_damaged_or_foreign_checkpoint_is_refused(damage, tmp_path):
    path = _interrupted(tmp_path / "run.pt")
    if damage == "truncated":
        path.write_bytes(path.read_bytes()[:-100])
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "text":
        path.write_text("steps: 6")
    elif damage == "pickle":
        torch.save({"settings": _Evil(tmp_path / "loaded")}, path)
    elif damage == "list":
        torch.save([torch.ones(3)], path)
    elif damage == "state":
        torch.save(_drawing()[0].state_dict(), path)
    else:
        path.unlink()
        path.mkdir()
    model, loss = _drawing()
    with pytest.raises(ValueError, match=rf"checkpoint='{re.escape(str(path))}' is damaged, or was not saved"):
        fit(model, loss, 6, checkpoint=path)
    assert not (tmp_path / "loaded").exists()
    assert path.exists()


class _Evil:
    """A pickle of it makes a file as soon as it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"steps": 7}, "steps=6, not 7"),
        ({"max_lr": 0.05}, "max_lr=0.02, not 0.05"),
        ({"warm_up": 0.5}, "warm_up=0.3, not 0.5"),
        ({"weight_decay": 0.5}, "weight_decay=0.01, not 0.5"),
        ({"clip": 1}, "clip=None, not 1.0"),
        ({"seed": 1}, "seed=0, not 1"),
        ({"seed": None}, "seed=0, not None"),
        ({"mixed_precision": True, "steps": 5}, "steps=6, not 5; mixed_precision=False, not True"),
    ],
)
def test_a_checkpoint_of_other_arguments_is_refused(changed, message, tmp_path):
    path = _interrupted(tmp_path / "run.pt", seed=0)
    model, loss = _drawing()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(ValueError, match=re.escape(f"checkpoint='{path}' was made with {message}")):
        fit(model, loss, **{"steps": 6, "seed": 0, "checkpoint": path, **changed})
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_checkpoint_of_another_model_is_refused_and_the_model_left_alone(tmp_path):
    path = _interrupted(tmp_path / "run.pt")
    model = nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.Dropout(0.3), nn.Linear(7, 2))
    before = model[0].weight.clone()
    with pytest.raises(ValueError, match=re.escape(f"checkpoint='{path}' is of another model")):
        fit(model, lambda: model(torch.randn(3, 5)).sum(), 6, checkpoint=path)
    assert torch.equal(model[0].weight, before)


def test_a_checkpoint_of_a_model_with_other_heads_is_refused(tmp_path):
    """All shapes are the same; only the settings tell."""
    path, tokens = tmp_path / "run.pt", torch.randint(7, (2, 5))
    model = GPT(7, num_hiddens=12, num_heads=3)
    with pytest.raises(KeyboardInterrupt):
        fit(model, _stopping(lambda: model(tokens)[0].sum(), 1), 6, checkpoint=path)
    other = GPT(7, num_hiddens=12, num_heads=2)
    with pytest.raises(ValueError, match=r"made with model\.settings=\{.*'num_heads': 3"):
        fit(other, lambda: other(tokens)[0].sum(), 6, checkpoint=path)


def test_numbers_of_numpy_are_numbers(tmp_path):
    """They could be pickled, but not unpickled safely."""
    settings = {
        "steps": np.int64(6),
        "max_lr": np.float64(0.02),
        "warm_up": np.float32(0.25),
        "weight_decay": np.float64(0.01),
        "clip": np.float32(1.0),
        "seed": np.int64(0),
    }
    _interrupted(tmp_path / "run.pt", **settings)
    model, loss = _drawing()
    assert len(fit(model, loss, checkpoint=tmp_path / "run.pt", goal=lambda: np.float32(0.5), **settings)) == 6


def test_a_checkpoint_in_no_folder_is_refused_at_once(tmp_path):
    model, loss = _drawing()
    path = tmp_path / "nowhere" / "run.pt"
    with pytest.raises(ValueError, match=re.escape(f"checkpoint='{path}' lies in a folder that does not exist")):
        fit(model, _stopping(loss, 1), 3, checkpoint=path)


def test_a_checkpoint_does_not_change_the_training(tmp_path):
    plain, loss = _drawing()
    losses = fit(plain, loss, 12).losses
    model, loss = _drawing()
    assert torch.equal(losses, fit(model, loss, 12, checkpoint=tmp_path / "a", checkpoint_every=1).losses)
    _assert_equal_models(plain, model)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("order", [("cpu", "cuda"), ("cuda", "cpu")])
def test_parameters_may_lie_on_two_devices(order, tmp_path):
    def made():
        torch.manual_seed(0)
        model = nn.ModuleList([nn.Linear(3, 5).to(order[0]), nn.Linear(5, 1).to(order[1])])

        def loss():
            x = torch.randn(7, 3)
            return (model[1](model[0](x.to(order[0])).to(order[1])) - 1).square().mean()

        return model, loss

    settings = {"seed": 1, "clip": 1.0, "mixed_precision": True}
    whole, loss = made()
    expected = fit(whole, loss, 7, **settings)
    settings |= {"checkpoint": tmp_path / "run.pt", "checkpoint_every": 3}
    model, loss = made()
    with pytest.raises(KeyboardInterrupt):
        fit(model, _stopping(loss, 5), 7, **settings)
    torch.testing.assert_close(fit(model, loss, 7, **settings).losses, expected.losses)
    assert model[0].weight.device.type == order[0]


def test_a_double_model_keeps_double_losses():
    model = _least_squares()[0].double()
    data = torch.randn(5, 3, dtype=torch.float64)
    assert fit(model, lambda: model(data).square().mean(), 3).losses.dtype == torch.float64


def test_progress_is_a_bar_on_stderr(capsys):
    model, loss = _drawing()
    fit(model, loss, 7)
    assert capsys.readouterr() == ("", "")
    fit(model, loss, 7, progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "7/7" in err
    assert "step/s" in err or "s/step" in err


def test_the_bar_of_a_run_that_goes_on_counts_all_steps(tmp_path, capsys):
    path = _interrupted(tmp_path / "run.pt")
    model, loss = _drawing()
    fit(model, loss, 6, checkpoint=path, progress=True)
    err = capsys.readouterr().err
    assert "2/6" in err
    assert "6/6" in err


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_ends_training_before_the_weights_are_spoilt(value):
    model, loss = _least_squares()
    calls = []

    def broken():
        calls.append(model.weight.detach().clone())
        return loss() * (value if len(calls) == 4 else 1.0)

    with pytest.raises(FloatingPointError, match=f"the loss of step 4 is {value}"):
        fit(model, broken, 9)
    assert torch.equal(model.weight.detach(), calls[-1])
    assert not model.training


@pytest.mark.parametrize(
    ("result", "error", "message"),
    [
        (lambda loss: loss.expand(3), ValueError, "the result of loss must have 0 axes, got shape (3,)"),
        (lambda loss: loss.item(), TypeError, "the result of loss must be a torch.Tensor, got float"),
    ],
)
def test_a_loss_must_be_one_tensor_without_axes(result, error, message):
    model, loss = _least_squares()
    with pytest.raises(error, match=re.escape(message)):
        fit(model, lambda: result(loss()), 2)


def test_mixed_precision_changes_nothing_on_a_cpu():
    runs = []
    for mixed_precision in (False, True):
        model, loss = _drawing()
        types = set()

        def watched(model=model, loss=loss, types=types):
            types.add(model[0](torch.ones(1, 5)).dtype)
            return loss()

        runs.append((model, fit(model, watched, 5, mixed_precision=mixed_precision).losses))
        assert types == {torch.float32}
    assert torch.equal(runs[0][1], runs[1][1])
    _assert_equal_models(runs[0][0], runs[1][0])


@pytest.mark.skipif(
    not (torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)),
    reason="no GPU with bfloat16 here",
)
def test_mixed_precision_computes_in_bfloat16_on_a_gpu():
    model, loss = _drawing("cuda")
    types = set()
    fit(model, lambda: (types.add(model[0](torch.ones(1, 5, device="cuda")).dtype), loss())[1], 5, mixed_precision=True)
    assert types == {torch.bfloat16}
    assert {p.dtype for p in model.parameters()} == {torch.float32}


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"steps": 0}, ValueError, "steps=0 must be at least 1"),
        ({"steps": 1.5}, TypeError, "steps must be an integer"),
        ({"max_lr": 0}, ValueError, "max_lr=0 must be positive"),
        ({"max_lr": math.nan}, ValueError, "max_lr=nan must be positive"),
        ({"max_lr": math.inf}, ValueError, "max_lr=inf must be positive and finite"),
        ({"warm_up": 0}, ValueError, "warm_up=0 must lie between 0 and 1"),
        ({"warm_up": 1.0}, ValueError, "warm_up=1.0 must lie between 0 and 1"),
        ({"weight_decay": -1}, ValueError, "weight_decay=-1 must not be negative"),
        ({"clip": 0.0}, ValueError, "clip=0.0 must be positive"),
        ({"goal_every": 0}, ValueError, "goal_every=0 must be at least 1"),
        ({"checkpoint_every": -3}, ValueError, "checkpoint_every=-3 must be at least 1"),
    ],
)
def test_wrong_settings_are_refused(settings, error, message):
    with pytest.raises(error, match=re.escape(message)):
        fit(*_least_squares(), **settings)


def test_the_part_beside_a_checkpoint_has_its_folder(tmp_path):
    """Moving a file in one piece needs one file system."""
    assert _distributed.beside(tmp_path / "run.pt").parent == tmp_path


class Hostile:
    """Makes a folder when it is read."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def _saved_in_a_folder(path, lr=None):
    """What several processes save, saved by one. lr: a learning rate that is none."""
    model = nn.Linear(3, 2)
    settings = {"steps": 6, "max_lr": 0.02, "warm_up": 0.3, "weight_decay": 0.01, "clip": None}
    run = _trainer.Run(model, {**settings, "seed": None, "mixed_precision": False, "model.settings": None})
    run.step(model(torch.ones(1, 3)).square().sum())
    run.optimizer.param_groups[0]["lr"] = run.optimizer.param_groups[0]["lr"] if lr is None else lr
    path.mkdir()
    run.save(path)


def test_a_checkpoint_is_no_pickle(tmp_path):
    """As it was: torch's own file. Before torch 2.6, `weights_only=True` could be got round: CVE-2025-32434."""
    path = _interrupted(tmp_path / "run.pt")
    with safe_open(str(path), "pt") as file:
        assert len(list(file.keys())) > 5
    _saved_in_a_folder(tmp_path / "saved")
    with safe_open(str(tmp_path / "saved" / _distributed.OWN), "pt") as file:
        assert list(file.keys())


def test_plain_values_come_back_as_they_were():
    x = torch.arange(6.0).view(2, 3)
    value = {
        "a": [1, 2.5, math.inf, "é", None, True],
        3: (x.shape, (1, -1)),
        "t": [x, x.T, torch.tensor(7), x[:0]],
        "u": x,
    }
    again = _plain.unpacked(_plain.packed(value))
    assert again["a"] == value["a"]
    assert again[3] == value[3]
    assert type(again[3][0]) is torch.Size
    assert all(map(torch.equal, [*again["t"], again["u"]], [*value["t"], value["u"]]))
    assert again["u"] is again["t"][0]  # stored once
    x += 1
    assert again["u"][0, 0] == 0


@pytest.mark.parametrize("value", [{1, 2}, np.float64(1), b"x", torch.float32])
def test_what_is_not_plain_is_not_stored(value):
    with pytest.raises(TypeError, match="cannot be stored without a pickle"):
        _plain.packed({"a": [value]})


@pytest.mark.parametrize(
    "told",
    [
        "[" * 100_000,
        '{"dict": ' * 60 + "1" + "}" * 60,
        '{"os.system": ["true"]}',
        '{"tensor": "7"}',
        '{"dict": [1], "list": []}',
        "[1]",
        '{"dict": [[{"list": []}, 1]]}',
    ],
)
def test_a_forged_file_of_plain_values_is_refused(told):
    with pytest.raises((ValueError, KeyError, TypeError, RecursionError)):
        _plain.unpacked(save({"0": torch.ones(1)}, {_plain.KEY: told}))


def test_one_process_goes_on_from_a_folder(tmp_path):
    _saved_in_a_folder(tmp_path / "saved")
    model = nn.Linear(3, 2)
    assert len(fit(model, lambda: model(torch.ones(1, 3)).square().sum(), 6, checkpoint=tmp_path / "saved")) == 6


@pytest.mark.parametrize("where", ["description", "value"])
def test_a_stranger_s_folder_runs_no_code(where, tmp_path):
    """As it was: `.metadata` and each value that is no tensor were unpickled as they are."""
    path, ran = tmp_path / "saved", tmp_path / "ran"
    _saved_in_a_folder(path, Hostile(ran) if where == "value" else None)
    if where == "description":
        (path / ".metadata").write_bytes(pickle.dumps(Hostile(ran)))
    model = nn.Linear(3, 2)
    with pytest.raises(ValueError, match=re.escape(f"checkpoint='{path}' is damaged, or was not saved by mhalib")):
        fit(model, lambda: model(torch.ones(1, 3)).square().sum(), 6, checkpoint=path)
    assert not ran.exists()


@pytest.mark.parametrize("name", ["torch.load", "torch.serialization.load", "builtins.eval", "os.system", "torch.hub"])
def test_a_description_of_tensors_names_nothing_else(name):
    module, _, what = name.rpartition(".")
    code = (
        b"\x80\x04\x8c"
        + bytes([len(module)])
        + module.encode()
        + b"\x8c"
        + bytes([len(what)])
        + what.encode()
        + b"\x93."
    )
    with pytest.raises(pickle.UnpicklingError, match=re.escape(f"{name} is no part of a checkpoint")):
        _distributed._Described(io.BytesIO(code)).load()
