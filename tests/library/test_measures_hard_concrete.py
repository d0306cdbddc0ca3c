"""The gates' distribution against torch.distributions, numpy, and what training does with them."""

import math

import numpy as np
import pytest
import torch
from torch.distributions import AffineTransform, SigmoidTransform, TransformedDistribution, Uniform

from mhalib import gated
from mhalib.measures import HardConcreteGate
from mhalib.models import GPT

LOG_A = [-8.0, -3.0, -0.8, 0.0, 0.5, 2.0, 8.0]


def make(values=LOG_A):
    gate = HardConcreteGate(len(values))
    with torch.no_grad():
        gate.log_a.copy_(torch.tensor(values))
    return gate


def test_training_is_the_formula_with_torchs_numbers():
    gate = make()
    torch.manual_seed(3)
    found = gate().detach().numpy()
    torch.manual_seed(3)
    u = torch.rand(len(LOG_A)).double().numpy()
    inner = 1 / (1 + np.exp(-(np.log(u) - np.log(1 - u) + np.array(LOG_A)) / 0.33))
    np.testing.assert_allclose(found, np.clip(1.2 * inner - 0.1, 0, 1), atol=1e-4)


def test_evaluation_has_no_chance_and_no_temperature():
    gate = make().eval()
    expected = [min(max(1.2 / (1 + math.exp(-a)) - 0.1, 0.0), 1.0) for a in LOG_A]
    torch.testing.assert_close(gate().tolist(), expected, rtol=0, atol=1e-6)
    assert torch.equal(gate(), gate())
    assert gate()[0] == 0
    assert gate()[-1] == 1


@pytest.mark.parametrize("log_a", LOG_A)
def test_probability_of_an_open_gate_is_that_of_the_distribution(log_a):
    """Before the stretch, a gate is the sigmoid of (logistic + log_a) / 0.33; it is 0 where that is below 0.1 / 1.2."""
    logistic = TransformedDistribution(Uniform(0.0, 1.0), [SigmoidTransform().inv])
    inner = TransformedDistribution(logistic, [AffineTransform(log_a / 0.33, 1 / 0.33), SigmoidTransform()])
    expected = 1 - inner.cdf(torch.tensor(0.1 / 1.2))
    torch.testing.assert_close(make([log_a]).open_probability[0].detach(), expected, rtol=1e-4, atol=1e-6)


def test_draws_have_that_probability_and_reach_both_ends():
    torch.manual_seed(0)
    gate = make()
    draws = gate(40_000).detach()
    assert draws.shape == (40_000, len(LOG_A))
    assert ((draws >= 0) & (draws <= 1)).all()
    torch.testing.assert_close((draws > 0).float().mean(0), gate.open_probability.detach(), rtol=0, atol=0.01)
    ones = torch.sigmoid(gate.log_a.detach() - 0.33 * math.log(1.1 / 0.1))  # by symmetry
    torch.testing.assert_close((draws == 1).float().mean(0), ones, rtol=0, atol=0.01)


def test_penalty_is_the_expected_number_of_open_gates():
    gate = make()
    expected = sum(1 / (1 + math.exp(-(a - 0.33 * math.log(0.1 / 1.1)))) for a in LOG_A)
    assert gate.penalty().item() == pytest.approx(expected, rel=1e-5)
    gate.penalty().backward()
    assert (gate.log_a.grad > 0).all()
    eval_penalty = gate.eval().penalty().item()
    assert eval_penalty == pytest.approx(expected, rel=1e-5)


def test_one_draw_for_all_examples_or_one_for_each():
    gate = make([0.0] * 5)
    assert gate().shape == (5,)
    assert gate(3).shape == (3, 5)
    assert len({tuple(row) for row in gate(3).tolist()}) == 3
    assert not torch.equal(gate(), gate())
    assert gate.eval()(3).shape == (3, 5)
    assert torch.equal(gate()[None].expand(3, -1), gate(3))


def test_start_and_state():
    gate = HardConcreteGate(4)
    assert (gate.open_probability > 0.9).all()
    assert gate.eval()().tolist() == pytest.approx([1.2 / (1 + math.exp(-2)) - 0.1] * 4)
    assert set(gate.state_dict()) == {"log_a"}
    assert "num_heads=4" in repr(gate)
    assert HardConcreteGate(2, log_a=-1.0).log_a.tolist() == [-1, -1]


def test_extreme_draws_have_finite_gradients(monkeypatch):
    for u in (0.0, 1.0, 1 - 2**-24):
        monkeypatch.setattr(torch, "rand", lambda *size, u=u, **options: torch.full(size[0], u))
        gate = make([0.0, 1.0])
        gate().sum().backward()
        assert gate().isfinite().all()
        assert gate.log_a.grad.isfinite().all()


@pytest.mark.parametrize("batch_size", [None, 3])
def test_in_a_model_gradients_reach_the_gates(batch_size, device):
    torch.manual_seed(0)
    model = GPT(11, 12, 3, 2, 16, max_tokens=9).to(device)
    gates = torch.nn.ModuleList([HardConcreteGate(3, log_a=0.0), HardConcreteGate(3, log_a=0.0)]).to(device)
    tokens = torch.randint(11, (3, 7), device=device)
    with gated(model, {"decoder self": [gate(batch_size) for gate in gates]}):
        loss = model(tokens)[0].square().mean() + 0.01 * sum(gate.penalty() for gate in gates)
    loss.backward()
    assert all(gate.log_a.grad.count_nonzero() == 3 for gate in gates)


def test_training_closes_what_is_useless_and_opens_what_is_needed():
    torch.manual_seed(0)
    gate = HardConcreteGate(4, log_a=0.0)
    needed = torch.tensor([1.0, 1.0, 0.0, 0.0])
    optimizer = torch.optim.Adam(gate.parameters(), 0.1)
    for _ in range(300):
        loss = ((gate(8) - 1) ** 2 * needed).sum(1).mean() + 0.05 * gate.penalty()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert gate.eval()().tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((0,), ValueError, "num_heads=0"),
        ((2.0,), TypeError, "num_heads must be an integer"),
        ((2, math.inf), ValueError, "log_a=inf must be finite"),
    ],
)
def test_wrong_arguments_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        HardConcreteGate(*arguments)
    with pytest.raises(ValueError, match="batch_size=0"):
        HardConcreteGate(2)(0)
