"""The training loop: it reaches a minimum that is known, and does what a loop written by hand does."""

import re

import pytest
import torch
from torch import nn

from mhalib.train import fit


def _least_squares(device="cpu"):
    torch.manual_seed(0)
    model = nn.Linear(3, 1, bias=False).to(device)
    x = torch.randn(50, 3, device=device)
    y = x @ torch.tensor([[1.0], [-2.0], [0.5]], device=device)
    return model, lambda: (model(x) - y).square().mean()


def test_it_finds_the_known_minimum(device):
    model, loss = _least_squares(device)
    losses = fit(model, loss, steps=400, largest_rate=0.1).losses
    assert losses.shape == (400,)
    assert losses.device.type == "cpu"
    assert not losses.requires_grad
    assert losses[-1] < 1e-3 < losses[0]
    torch.testing.assert_close(
        model.weight.detach().cpu(), torch.tensor([[1.0, -2.0, 0.5]]), atol=0.03, rtol=0
    )  # weight decay pulls a little


def test_it_trains_in_training_mode_and_leaves_evaluation_mode():
    model, loss = _least_squares()
    seen = []
    fit(model.eval(), lambda: (seen.append(model.training), loss())[1], steps=3)
    assert seen == [True] * 3
    assert not model.training


def test_the_rate_rises_and_falls():
    """The first and the last step are small beside the largest."""
    model, loss = _least_squares()
    places = []
    fit(model, lambda: (places.append(model.weight.detach().clone()), loss())[1], steps=60, largest_rate=0.01)
    moves = torch.stack(places).diff(dim=0).abs().amax((1, 2))
    assert moves[0] < 0.1 * moves.max()
    assert moves[-1] < 0.1 * moves.max()
    assert 10 < int(moves.argmax()) < 30


def test_equal_seeds_give_equal_losses():
    runs = []
    for _ in range(2):
        torch.manual_seed(1)
        model = nn.Linear(3, 1)
        runs.append(fit(model, lambda model=model: model(torch.randn(5, 3)).square().mean(), steps=5).losses)
    assert torch.equal(*runs)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"steps": 0}, ValueError, "steps=0 must be at least 1"),
        ({"steps": 1.5}, TypeError, "steps must be an integer"),
        ({"largest_rate": 0}, ValueError, "largest_rate=0 must be positive"),
        ({"largest_rate": float("nan")}, ValueError, "largest_rate=nan must be positive"),
    ],
)
def test_wrong_settings_are_refused(settings, error, message):
    with pytest.raises(error, match=re.escape(message)):
        fit(*_least_squares(), **settings)
