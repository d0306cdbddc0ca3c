"""Roles are told from maxima: heads made for a role, thresholds met exactly, and loops."""

from collections import Counter

import pytest
import torch
from measured import random_weights, rows

from mhalib.data import sentences
from mhalib.measures import HeadRole, head_roles, real_cells


def looks_at(places, num_kvpairs, weight=0.7):
    """(B, Q) places -> (B, 1, Q, K): `weight` there, the rest even."""
    rest = (1 - weight) / (num_kvpairs - 1)
    hit = torch.nn.functional.one_hot(places, num_kvpairs).double()
    return (hit * (weight - rest) + rest)[:, None]


def test_heads_that_were_made_for_a_role_have_it():
    made = sentences(200, seed=0)
    batch_size, num_tokens = made.tokens.shape
    mask = real_cells(made.valid_lens, num_tokens)
    first = torch.zeros(batch_size, num_tokens, dtype=torch.long)
    rare = torch.zeros(batch_size, num_tokens, dtype=torch.bool)
    rare[torch.arange(0, batch_size, 2), made.valid_lens[::2] - 1] = True  # the last word, in every other sentence
    last = (made.valid_lens - 1)[:, None].expand(-1, num_tokens)
    heads = [made.positions[..., 0], made.positions[..., 1], made.positions[..., 2], last, first]
    weights = torch.cat([looks_at(places, num_tokens) for places in heads], 1)
    links = {"previous word": made.positions[..., 0], "subject": made.positions[..., 2]}
    roles = head_roles(weights, mask, links=links, rare=rare)
    assert [role.name for role in roles] == ["positional", "positional", "syntactic", "rare token", "other"]
    assert [role.offset for role in roles[:2]] == [-1, 1]
    assert [role.offset_share for role in roles[:2]] == [1.0, 1.0]
    assert (roles[2].link, roles[2].link_accuracy) == ("subject", 1.0)
    assert roles[2].link_baseline < 0.5
    assert roles[3].rare_share == 1.0
    assert all(role.confidence == pytest.approx(0.7) for role in roles)
    assert roles[4].roles == ()


@pytest.mark.parametrize("causal", [False, True])
def test_numbers_equal_loops(causal):
    weights, mask = random_weights((5, 3, 4, 2), causal=causal, seed=1, num_heads=4)
    generator = torch.Generator().manual_seed(2)
    keys = torch.randint(-1, 5, (4, 5), generator=generator)
    rare = torch.rand(4, 5, generator=generator) < 0.3
    roles = head_roles(weights, mask, links={"link": keys}, rare=rare)
    for head, role in enumerate(roles):
        seen = rows(weights, mask, head)
        best = {(b, t): max(row, key=row.get) for b, t, row in seen}
        have = Counter(j - t for _, t, row in seen for j in row)
        hits = Counter(j - t for (_, t), j in best.items())
        shares = {offset: hits[offset] / count for offset, count in have.items() if 2 * count >= len(seen)}
        assert role.offset_share == pytest.approx(max(shares.values()))
        assert shares[role.offset] == pytest.approx(role.offset_share)
        linked = [(b, t, int(keys[b, t])) for b, t, row in seen if int(keys[b, t]) in row]
        assert role.link_accuracy == pytest.approx(sum(best[b, t] == j for b, t, j in linked) / len(linked))
        commonest = Counter(j - t for _, t, j in linked).most_common(1)[0][1]
        assert role.link_baseline == pytest.approx(commonest / len(linked))
        targets = [any(rare[b, j] for j in row) for b, _, row in seen]
        points = [bool(rare[b, best[b, t]]) for b, t, _ in seen]
        assert role.rare_share == pytest.approx(sum(points) / sum(targets))
        assert role.confidence == pytest.approx(sum(max(row.values()) for _, _, row in seen) / len(seen))


def test_thresholds_are_met_exactly():
    """10 queries that all have a next token; one number decides each role."""
    places = torch.arange(1, 11)[None]
    links = {"link": torch.tensor([[2, 3, 4, 9, 9, 9, 9, 9, 9, 9]])}  # offsets 2, 2, 2, 6, 5, 4, 3, 2, 1, 0: 4 at 2
    for off, expected in ((1, True), (2, False)):
        moved = places.clone()
        moved[0, :off] = 0
        (role,) = head_roles(looks_at(moved, 11), positional_share=0.9)
        assert ("positional" in role.roles) == expected
    for right, expected in ((5, True), (4, False)):
        moved = torch.zeros(1, 10, dtype=torch.long)
        moved[0, 10 - right :] = 9
        (role,) = head_roles(looks_at(moved, 11), links=links)
        assert role.link_baseline == pytest.approx(0.4)
        assert role.link_accuracy == pytest.approx(right / 10)
        assert ("syntactic" in role.roles) == expected
    rare = torch.zeros(1, 11, dtype=torch.bool)
    rare[0, 9] = True
    for right, expected in ((6, True), (5, False)):
        moved = torch.zeros(1, 10, dtype=torch.long)
        moved[0, :right] = 9
        (role,) = head_roles(looks_at(moved, 11), rare=rare)
        assert ("rare token" in role.roles) == expected


def test_a_first_token_head_is_not_positional_for_the_last_query_alone():
    weights = looks_at(torch.zeros(1, 6, dtype=torch.long), 6)
    (role,) = head_roles(weights)  # at offset -5 its share is 1 of 1, but only one query has it
    assert role.name == "other"
    assert role.offset_share < 0.5


def test_the_relation_with_the_largest_margin_is_told():
    weights = looks_at(torch.tensor([[2, 2, 2, 2]]), 5)
    fixed = torch.tensor([[1, 2, 3, 4]])
    exact = torch.tensor([[2, 2, -1, 2]])
    easy = torch.tensor([[-1, 2, -1, -1]])  # as accurate, but so is a fixed offset
    (role,) = head_roles(weights, links={"easy": easy, "fixed": fixed, "exact": exact})
    assert (role.link, role.link_accuracy) == ("exact", 1.0)
    assert role.link_baseline == pytest.approx(1 / 3)
    assert role.roles == ("syntactic",)


def test_links_outside_the_mask_do_not_count():
    weights, mask = random_weights((3, 2), num_tokens=4)
    keys = torch.tensor([[0, 1, 3, 0], [-1, 1, 1, 1]])  # (0, 2) -> 3, padding; (1, 2) and (1, 3) are padding
    spared = torch.tensor([[0, 1, -1, -1], [-1, 1, -1, -1]])
    assert head_roles(weights, mask, links={"a": keys}) == head_roles(weights, mask, links={"a": spared})


def test_what_is_not_asked_for_is_none():
    weights, mask = random_weights()
    role = head_roles(weights, mask)[0]
    assert isinstance(role, HeadRole)
    assert (role.link, role.link_accuracy, role.link_baseline, role.rare_share) == (None, None, None, None)


def test_several_roles_are_told_in_order():
    places = torch.tensor([[1, 2, 3, 4]])
    links = {"link": torch.tensor([[1, 0, 3, 0]])}  # offsets 1, -1, 1, -3
    role = head_roles(looks_at(places, 5), links=links, rare=torch.ones(1, 5, dtype=torch.bool), syntactic_margin=0.0)[
        0
    ]
    assert role.roles == ("positional", "syntactic", "rare token")
    assert role.name == "positional"


def test_cross_attention_has_roles_too():
    weights, mask = random_weights((3, 2), num_tokens=3, num_kvpairs=4, key_lens=(4, 3))
    roles = head_roles(weights, mask, links={"a": torch.tensor([[0, 3, 1], [2, 0, -1]])})
    assert all(0 <= role.link_accuracy <= 1 for role in roles)


WEIGHTS = torch.full((2, 3, 5, 4), 0.25)
LINK = torch.zeros(2, 5, dtype=torch.long)
WRONG = [
    ({"links": {"a": LINK.float()}}, TypeError, r"links\['a'\] must hold integers"),
    ({"links": {"a": LINK[:1]}}, ValueError, r"links\['a'\] has shape \(1, 5\)"),
    ({"links": {"a": LINK + 4}}, ValueError, "holds 4 to 4, but keys are 0 to 3"),
    ({"links": {"a": LINK - 2}}, ValueError, "holds -2 to -2"),
    ({"links": {"a": LINK - 1}}, ValueError, "no query of head 0 has a linked key"),
    ({"rare": torch.zeros(2, 4)}, TypeError, "what must be boolean"),
    ({"rare": torch.zeros(2, 4) > 0}, ValueError, "no query of some head has such a key"),
    ({"positional_share": 1.5}, ValueError, "positional_share=1.5"),
    ({"syntactic_margin": -0.1}, ValueError, "syntactic_margin=-0.1"),
    ({"rare_share": "half"}, TypeError, "rare_share must be a number"),
]


@pytest.mark.parametrize(("options", "error", "message"), WRONG)
def test_wrong_arguments_are_named(options, error, message):
    with pytest.raises(error, match=message):
        head_roles(WEIGHTS, **options)
