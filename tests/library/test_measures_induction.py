"""Previous-token and induction scores: heads that do nothing else, loops, and a look by hand."""

import pytest
import torch

from mhalib.data import repeats
from mhalib.evaluation import next_token_accuracy
from mhalib.measures import attention_to, induction_score, induction_targets

TOKENS = repeats(7, seed=2, num_tokens=23, num_symbols=11, periods=(3, 6)).tokens


def causal_weights(num_heads=5):
    torch.manual_seed(0)
    scores = torch.randn(*TOKENS.shape[:1], num_heads, TOKENS.shape[1], TOKENS.shape[1])
    return scores.masked_fill(~torch.ones_like(scores).tril().bool(), -torch.inf).softmax(-1)


def test_targets_by_hand():
    found = induction_targets(torch.tensor([[4, 9, 4, 9, 9]]))[0]
    expected = torch.zeros(5, 5, dtype=torch.bool)
    expected[2, 1] = True  # after the first 4 came 9
    expected[3, 2] = True  # after the first 9 came 4
    expected[4, 2] = expected[4, 4] = True  # after the first 9 came 4, after the second this very token
    assert torch.equal(found, expected)


def test_targets_hold_the_symbol_that_comes_next():
    for row, targets in zip(TOKENS.tolist(), induction_targets(TOKENS), strict=True):
        for t, j in targets[:-1].nonzero().tolist():
            assert row[j] == row[t + 1]


def test_scores_are_what_loops_find():
    weights = causal_weights()
    for head in range(weights.shape[1]):
        before, after = [], []
        for b, row in enumerate(TOKENS.tolist()):
            for t in range(len(row)):
                if t > 0:
                    before.append(float(weights[b, head, t, t - 1]))
                places = [j for j in range(1, t + 1) if row[j - 1] == row[t]]
                if places:
                    after.append(sum(float(weights[b, head, t, j]) for j in places))
        assert float(attention_to(weights, "previous")[head]) == pytest.approx(sum(before) / len(before), abs=1e-6)
        assert float(induction_score(weights, TOKENS)[head]) == pytest.approx(sum(after) / len(after), abs=1e-6)


def test_heads_that_do_nothing_else_score_1():
    batch_size, num_tokens = TOKENS.shape
    previous = torch.eye(num_tokens).roll(-1, 1).expand(batch_size, 1, -1, -1).clone()
    previous[:, :, 0] = 0
    previous[:, :, 0, 0] = 1
    targets = induction_targets(TOKENS).float()
    looked = targets / targets.sum(-1, keepdim=True).clamp(min=1)
    weights = torch.cat([previous, looked[:, None]], 1)
    torch.testing.assert_close(attention_to(weights, "previous"), torch.tensor([1.0, 0.0]))
    torch.testing.assert_close(induction_score(weights, TOKENS), torch.tensor([0.0, 1.0]))


def test_bad_arguments():
    weights = causal_weights()
    with pytest.raises(ValueError, match="tokens has shape"):
        induction_score(weights, TOKENS[:, :-1])
    with pytest.raises(ValueError, match="occurs twice"):
        induction_score(weights, torch.arange(23).expand(7, -1))
    with pytest.raises(ValueError, match="tokens must have 2 axes"):
        induction_targets(TOKENS[0])
    with pytest.raises(ValueError, match="weights must have 4 axes"):
        induction_score(weights[0], TOKENS)
    with pytest.raises(ValueError, match="22 queries, 23 keys"):
        attention_to(weights[:, :, :-1], "previous")


class Successor(torch.nn.Module):
    """Always says the next number, of 10."""

    def forward(self, tokens):
        return torch.nn.functional.one_hot((tokens + 1) % 10, 10).float(), None


def test_next_token_accuracy_by_hand():
    tokens = torch.tensor([[1, 2, 3, 5], [9, 0, 7, 8]])
    assert next_token_accuracy(Successor(), tokens) == pytest.approx(4 / 6)
    where = torch.tensor([[True, True, True], [False, True, False]])
    assert next_token_accuracy(Successor(), tokens, where, batch_size=1) == pytest.approx(2 / 4)
    with pytest.raises(ValueError, match="where has shape"):
        next_token_accuracy(Successor(), tokens, where[:, :2])
    with pytest.raises(ValueError, match="where marks no prediction"):
        next_token_accuracy(Successor(), tokens, torch.zeros_like(where))
    with pytest.raises(TypeError, match="where must be boolean"):
        next_token_accuracy(Successor(), tokens, where.float())
