"""Scores, against counts made by hand."""

from types import SimpleNamespace

import pytest
import torch

from mhalib.evaluation import exact_match, token_accuracy, token_loss
from mhalib.measures import maximum_at
from mhalib.models import Transformer


def _model_and_data():
    torch.manual_seed(0)
    model = Transformer(7, 9, num_hiddens=8, num_heads=2, ffn_num_hiddens=8, max_tokens=6).eval()
    torch.nn.init.normal_(model.readout.weight, std=2.0)  # so that it writes more than one word
    source = torch.randint(1, 7, (11, 5))
    return model, SimpleNamespace(source=source, source_lens=torch.full((11,), 5), target=torch.zeros(11, 6).long())


@torch.no_grad()
def _continue(model, data, i):
    """Greedy, one example, word by word, without caches; ends at 2."""
    written = [1]
    while len(written) < 6 and written[-1] != 2:
        logits, _ = model(data.source[i : i + 1], torch.tensor([written]), data.source_lens[i : i + 1])
        written.append(int(logits[0, -1].argmax()))
    return written + [0] * (6 - len(written))


def test_exact_match_counts_whole_targets():
    model, data = _model_and_data()
    for i in range(11):
        data.target[i] = torch.tensor(_continue(model, data, i))
    assert exact_match(model, data) == 1.0
    assert exact_match(model, data, batch_size=3) == 1.0
    for i, place in ((2, 1), (5, 2), (6, 1)):  # one wrong word each, in the middle
        data.target[i, place] = data.target[i, place] % 6 + 3
    assert exact_match(model, data, batch_size=4) == 8 / 11


def test_token_accuracy_leaves_padding_out():
    model, data = _model_and_data()
    data.target[:, 0] = 1
    data.target[:, 1:] = torch.randint(3, 9, (11, 5))
    data.target[4, 3:] = 0
    with torch.no_grad():
        guesses = model(data.source, data.target[:, :-1], data.source_lens)[0].argmax(-1).tolist()
    wanted = data.target[:, 1:].tolist()
    real = [(g, w) for row in zip(guesses, wanted, strict=True) for g, w in zip(*row, strict=True) if w]
    assert len(real) == 52
    expected = sum(g == w for g, w in real) / 52
    assert token_accuracy(model, data, batch_size=4) == pytest.approx(expected)
    with torch.no_grad():
        logs = model(data.source, data.target[:, :-1], data.source_lens)[0].log_softmax(-1)
    by_hand = [-logs[i, t, w] for i, row in enumerate(wanted) for t, w in enumerate(row) if w]
    torch.testing.assert_close(token_loss(model, data), torch.stack(by_hand).mean())


def test_token_loss_can_be_trained():
    model, data = _model_and_data()
    data.target[:] = torch.tensor([1, 3, 4, 5, 2, 0])
    token_loss(model, data).backward()
    assert model.readout.weight.grad.abs().sum() > 0


def test_alignment_by_hand():
    weights = torch.tensor(
        [
            [[[0.6, 0.4, 0.0], [0.1, 0.8, 0.1], [0.2, 0.3, 0.5]], [[0.3, 0.4, 0.3], [0.5, 0.4, 0.1], [1.0, 0.0, 0.0]]],
            [[[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]], [[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]],
        ]
    )
    alignments = torch.tensor(
        [
            [[1, 0, 0], [0, 1, 1], [0, 0, 0]],  # the last word comes from none
            [[0, 0, 1], [1, 0, 0], [0, 0, 0]],
        ]
    ).bool()
    # head 0: right, right; right, wrong.  head 1: wrong, wrong; right, wrong
    torch.testing.assert_close(maximum_at(weights, alignments), torch.tensor([3 / 4, 1 / 4]))


def test_empty_data_and_batches_are_refused():
    model, data = _model_and_data()
    with pytest.raises(ValueError, match="batch_size=0 must be at least 1"):
        token_accuracy(model, data, batch_size=0)
    data.source = data.source[:0]
    with pytest.raises(ValueError, match="data is empty"):
        exact_match(model, data)
