"""The head card against forwards by hand: a head's columns of W_o zeroed, its output exchanged, its gate moved."""

import math

import pytest
import torch
from torch.nn import functional as F

from mhalib.attention import rotate
from mhalib.measures import Head, head_card, head_importance, induction_score, prune_heads
from mhalib.measures.card import MEASURES
from mhalib.models import BERT, GPT, Transformer

H, D_HEAD = 3, 4


@pytest.fixture
def model():
    torch.manual_seed(3)
    return GPT(13, 12, H, num_layers=2, ffn_num_hiddens=17, positions="rotary").double()


@pytest.fixture
def tokens():
    return torch.randint(0, 13, (5, 7), generator=torch.Generator().manual_seed(1))


def by_hand(model, tokens, give=None):
    """Logits, and by layer heads' outputs (B, h, N, d) and maps, written out; give(layer, z) changes outputs."""
    x, outputs, maps = model.tokens(tokens), [], []
    seen_keys = torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool).tril()
    for number, block in enumerate(model.decoder.layers):
        layer, seen = block.attention, block.attention_skip.norm(x)
        q, k, v = (w(seen).view(*seen.shape[:2], H, D_HEAD).transpose(1, 2) for w in (layer.W_q, layer.W_k, layer.W_v))
        weights = (rotate(q) @ rotate(k).mT / 2.0).masked_fill(~seen_keys, -math.inf).softmax(-1)
        z = weights @ v
        maps.append(weights)
        outputs.append(z)
        z = z if give is None else give(number, z)
        x = x + layer.W_o(z.transpose(1, 2).flatten(-2))
        x = x + block.ffn(block.ffn_skip.norm(x))
    return model.read_out(model.decoder.norm(x)), outputs, maps


def losses(logits, tokens):
    chosen = logits.log_softmax(-1)[:, :-1].gather(-1, tokens[:, 1:, None])
    return -chosen[..., 0].mean(-1)


def exchanged(head, by):
    """give(layer, z) that puts by(z) in the place of one head's output."""

    def give(layer, z):
        if layer != head.layer:
            return z
        return torch.where(torch.arange(H)[:, None, None] == head.head, by(z), z)

    return give


@torch.no_grad()
def expected_rises(model, tokens, by):
    whole = losses(by_hand(model, tokens)[0], tokens)
    heads = [Head("decoder self", layer, head) for layer in range(2) for head in range(H)]
    found = [losses(by_hand(model, tokens, exchanged(head, by))[0], tokens) - whole for head in heads]
    return torch.stack(found, -1)  # (B, rows)


@pytest.mark.parametrize(
    ("name", "by"),
    [
        ("mean", lambda z: z.mean((0, 2), keepdim=True).expand(z.shape)),
        ("resample", lambda z: z.roll(1, 0)),
    ],
)
def test_ablations_are_those_of_a_forward_by_hand(model, tokens, name, by):
    expected = expected_rises(model, tokens, by)
    card = head_card(model, tokens, measures=[name], control=False)
    torch.testing.assert_close(card.values[name], expected.mean(0))
    torch.testing.assert_close(card.spread[name], expected.std(0))
    assert expected.abs().min() > 1e-6


@torch.no_grad()
def test_zero_is_the_heads_columns_of_w_o_set_to_zero(model, tokens):
    found = head_card(model, tokens, measures=["zero"], control=False).values["zero"]
    before = losses(model(tokens)[0], tokens)
    for row, (layer, head) in enumerate((layer, head) for layer in range(2) for head in range(H)):
        W_o = model.decoder.layers[layer].attention.W_o.weight
        kept = W_o.clone()
        W_o[:, head * D_HEAD : (head + 1) * D_HEAD] = 0
        torch.testing.assert_close(found[row], (losses(model(tokens)[0], tokens) - before).mean())
        W_o.copy_(kept)


@torch.no_grad()
def test_path_holds_all_other_heads(model, tokens):
    """The last layer's heads have only the direct path; of the first layer's, later heads must give what they gave."""
    found = head_card(model, tokens, measures=["path", "resample"], control=False).values
    torch.testing.assert_close(found["path"][H:], found["resample"][H:])
    logits, outputs, _ = by_hand(model, tokens)
    for head in range(H):
        first = exchanged(Head("decoder self", 0, head), lambda z: z.roll(1, 0))
        changed, *_ = by_hand(model, tokens, lambda layer, z, first=first: first(0, z) if layer == 0 else outputs[1])
        expected = (losses(changed, tokens) - losses(logits, tokens)).mean()
        torch.testing.assert_close(found["path"][head], expected)
    assert (found["path"][:H] - found["resample"][:H]).abs().min() > 1e-6


def test_slopes_are_differences_of_a_small_step(model, tokens):
    """A gate of 1 ± 1e-4 for the slope, a step of 1e-4 of the way to the other text for attribution."""
    step = 1e-4
    up = expected_rises(model, tokens, lambda z: z * (1 + step))
    down = expected_rises(model, tokens, lambda z: z * (1 - step))
    on_the_way = expected_rises(model, tokens, lambda z: z + step * (z.roll(1, 0) - z))
    back = expected_rises(model, tokens, lambda z: z - step * (z.roll(1, 0) - z))
    card = head_card(model, tokens, measures=["slope", "attribution"], control=False)
    torch.testing.assert_close(card.values["slope"], ((up - down) / (2 * step)).abs().mean(0), rtol=1e-4, atol=1e-8)
    expected = ((on_the_way - back) / (2 * step)).mean(0)
    torch.testing.assert_close(card.values["attribution"], expected, rtol=1e-4, atol=1e-8)


def test_slope_is_the_books_importance(model, tokens):
    def loss(model, batch):
        return losses(model(batch)[0], batch)

    expected = head_importance(model, [tokens], loss)["decoder self"].flatten()
    found = head_card(model, tokens, measures=["slope"], control=False).values["slope"]
    torch.testing.assert_close(found, expected)


def test_optimal_costs_no_more_than_the_mean_and_less_than_others(model, tokens):
    found = head_card(model, tokens, measures=["optimal", "mean"], control=False).values
    assert (found["optimal"] <= found["mean"] + 1e-12).all()
    assert (found["optimal"] < found["mean"] - 1e-7).any()


@torch.no_grad()
def test_patterns_are_those_of_the_maps(model, tokens):
    card = head_card(model, tokens, control=False)
    _, outputs, maps = by_hand(model, tokens)
    previous = torch.cat([w.diagonal(-1, -2, -1).mean((0, 2)) for w in maps])
    torch.testing.assert_close(card.values["previous"], previous)
    torch.testing.assert_close(card.values["first"], torch.cat([w[:, :, 1:, 0].mean((0, 2)) for w in maps]))
    alone = torch.tensor([[1, 2, 3, 1, 2, 3, 1], [4, 5, 6, 4, 5, 6, 4]])  # as many queries count in each text
    expected = torch.cat([induction_score(w, alone) for w in by_hand(model, alone)[2]])
    found = head_card(model, alone, measures=["induction"], control=False)
    torch.testing.assert_close(found.values["induction"], expected)
    for row in range(2 * H):
        layer, head = divmod(row, H)
        W_o = model.decoder.layers[layer].attention.W_o.weight[:, head * D_HEAD : (head + 1) * D_HEAD]
        written = (outputs[layer][:, head] @ W_o.T).norm(dim=-1).mean()
        torch.testing.assert_close(card.values["written"][row], written)


@torch.no_grad()
def test_weights_times_lengths_by_loops(model, tokens):
    found = head_card(model, tokens, measures=["first x length"], control=False).values["first x length"]
    seen = model.decoder.layers[0].attention_skip.norm(model.tokens(tokens))
    layer, maps = model.decoder.layers[0].attention, by_hand(model, tokens)[2][0]
    for head in range(H):
        columns = slice(head * D_HEAD, (head + 1) * D_HEAD)
        shares = []
        for text in range(len(tokens)):
            for query in range(1, tokens.shape[1]):
                parts = []
                for key in range(query + 1):
                    v = layer.W_v(seen[text, key])[columns]
                    parts.append(float(maps[text, head, query, key] * (layer.W_o.weight[:, columns] @ v).norm()))
                shares.append(parts[0] / sum(parts))
        assert float(found[head]) == pytest.approx(sum(shares) / len(shares))


@torch.no_grad()
def test_a_head_that_copies_by_construction_has_score_1_and_its_opposite_0():
    model = GPT(8, 16, 2, num_layers=1, ffn_num_hiddens=0, positions="rotary", readout="without bias")
    layer = model.decoder.layers[0].attention
    model.tokens.embedding.weight.copy_(F.normalize(torch.randn(8, 16, generator=torch.Generator().manual_seed(0))))
    model.readout.weight.copy_(model.tokens.embedding.weight)
    basis = torch.linalg.svd(model.tokens.embedding.weight, full_matrices=False).Vh  # what 8 tokens span
    layer.W_v.weight.copy_(torch.cat([basis, basis]))
    layer.W_o.weight.copy_(torch.cat([basis.T, -basis.T], 1))
    copying = head_card(model, torch.arange(6).view(2, 3), measures=["copying"], control=False).values["copying"]
    torch.testing.assert_close(copying, torch.tensor([1.0, 0.0]), atol=0.05, rtol=0)


def test_controls_are_of_shuffled_tokens_and_of_another_texts_targets(model):
    tokens = torch.tensor([[1, 2, 3, 1, 2, 3, 1], [4, 4, 5, 6, 7, 8, 4]])
    card = head_card(model, tokens, measures=["zero", "induction"], seed=5)
    order = torch.rand(tokens.shape, generator=torch.Generator().manual_seed(5)).argsort(-1)
    alone = head_card(model, tokens.gather(1, order), measures=["zero"], control=False)
    torch.testing.assert_close(card.control["zero"], alone.values["zero"])
    weights = by_hand(model, tokens)[2]
    # of text 1 the targets of text 0 that are not its own, and the reverse
    other = {0: {1: [1], 6: [2]}, 1: {3: [1], 4: [2], 5: [3], 6: [4]}}
    shares = [
        torch.stack([weights[0][text, :, t, keys].sum(-1) for t, keys in rows.items()]).mean(0)
        for text, rows in other.items()
    ]
    torch.testing.assert_close(card.control["induction"][:H], torch.stack(shares).mean(0))


def test_an_encoder_is_measured_by_how_far_its_mean_vector_turns():
    torch.manual_seed(1)
    model, tokens = BERT(13, 12, H, num_layers=2), torch.randint(0, 13, (3, 6))
    card = head_card(model, tokens)
    assert {"slope", "attribution", "optimal", "copying"}.isdisjoint(card.values)
    with torch.no_grad():
        model.eval()
        whole = model(tokens)[0].mean(1)
        model.encoder.layers[1].attention.W_o.weight[:, :D_HEAD] = 0
        turned = 1 - F.cosine_similarity(model(tokens)[0].mean(1), whole, dim=-1)
    torch.testing.assert_close(card.values["zero"][H], turned.mean())


def test_rows_have_each_number_beside_its_head(model, tokens):
    card = head_card(model.train(), tokens, measures=["zero", "copying"])
    assert model.training
    rows = card.as_rows()
    assert [(row["layer"], row["head"]) for row in rows] == [(layer, head) for layer in range(2) for head in range(H)]
    assert rows[4]["zero"] == float(card.values["zero"][4])
    assert set(rows[0]) == {"kind", "layer", "head"} | {
        f"{name}{what}" for name in ("zero", "copying") for what in ("", " ±", " control")
    }
    best = card.ranked("zero")[0]
    assert card.values["zero"][card.heads.index(best)] == card.values["zero"].max()
    assert card.passes == {"zero": 7, "copying": 1}


def test_what_no_card_can_read_is_refused(model, tokens):
    with pytest.raises(ValueError, match="a decoder or an encoder alone"):
        head_card(Transformer(9, 9, 12, 3), tokens)
    with pytest.raises(ValueError, match="at least two texts of three tokens"):
        head_card(model, tokens[:1])
    with pytest.raises(ValueError, match="a name in measures"):
        head_card(BERT(13, 12, H), tokens, measures=["slope"])
    with pytest.raises(ValueError, match="one number per text"):
        head_card(model, tokens, loss=lambda logits, tokens: logits.mean())
    prune_heads(model, [Head("decoder self", 0, 1)])
    with pytest.raises(ValueError, match="pruned"):
        head_card(model, tokens)


def test_grouped_heads_share_values():
    """Of 4 heads with 2 heads of values, each key's vector is that of the group's values."""
    torch.manual_seed(0)
    model = GPT(13, 12, 4, num_layers=1, ffn_num_hiddens=0, attention={"name": "multi-head", "num_kv_heads": 2})
    tokens = torch.randint(0, 13, (3, 6))
    card = head_card(model, tokens, control=False)
    assert set(card.values) == set(MEASURES)
    assert all(values.shape == (4,) and values.isfinite().all() for values in card.values.values())
