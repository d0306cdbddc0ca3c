"""The drawing of the layer: what is lit has its colours and its words, and the rest is pale."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex

from mhalib import drawings, layer_drawing, saved, style
from mhalib.attention import KINDS, layer
from mhalib.data import read_sentences


def words(ax):
    return " ".join(text.get_text() for text in ax.texts)


def boxes(ax, colour):
    """How dense each box of this colour is drawn."""
    return [patch.get_alpha() for patch in ax.patches if to_hex(patch.get_facecolor()) == colour and patch.get_fill()]


@pytest.mark.parametrize("part", drawings.PARTS)
def test_one_part_is_lit_and_has_its_words(part):
    ax = layer_drawing(part)
    for other, (said, *_) in drawings.STEPS.items():
        assert (said in words(ax)) == (other == part)


@pytest.mark.parametrize(
    ("part", "colour", "lit"),
    [("project", style.QUERY, 1), ("split", style.head_colour(2), 3), ("merge", style.head_colour(2), 1)],
)
def test_a_lit_part_is_dense_and_the_others_are_pale(part, colour, lit):
    densities = boxes(layer_drawing(part), colour)
    assert densities.count(1.0) == lit
    assert set(densities) <= {1.0, drawings.PALE}
    assert set(boxes(layer_drawing("scores"), colour)) == {drawings.PALE}


def test_the_maps_are_those_given_each_in_its_heads_colour():
    reader = saved.load("reader").eval()
    batch = read_sentences([("the", "fox", "sees", "my", "bear")])
    with torch.no_grad():
        maps = reader(batch.tokens, batch.valid_lens, need_weights=True)[1]["encoder self"][0][0, :, :5, :5]
    ax = layer_drawing(maps=maps)
    assert len(ax.images) == 4
    for head, image in enumerate(ax.images):
        np.testing.assert_allclose(image.get_array(), maps[head])
        assert image.get_cmap() == style.head_map(head)
    left = [image.get_extent()[0] for image in ax.images]
    assert left == sorted(left)


def test_sizes_are_written_where_they_are_asked_for():
    assert "(h, N, d)" in words(layer_drawing("average", sizes=True))
    assert "(h, N, d)" not in words(layer_drawing("average"))


def test_of_one_head_alone_there_are_ways_and_the_others_are_pale():
    ax = layer_drawing(head=1)
    ways = {to_hex(line.get_color()) for line in ax.lines}
    assert ways == {style.head_colour(1)}
    edges = [to_hex(patch.get_edgecolor()) for patch in ax.patches]
    assert [edges.count(style.head_colour(i)) for i in range(drawings.NUM_HEADS)] == [0, 2, 0, 0]


def test_it_borrows_an_axes_and_fits_a_phone():
    ax = plt.subplots()[1]
    assert layer_drawing(ax=ax) is ax
    assert layer_drawing().figure.get_figwidth() <= style.WIDEST


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"lit": "soft"}, "lit='soft'"),
        ({"lit": ["scores", "W_o"]}, "lit='W_o'"),
        ({"maps": torch.zeros(3, 5, 5)}, r"maps has the shape \(3, 5, 5\)"),
        ({"maps": torch.zeros(4, 5, 6)}, r"maps has the shape \(4, 5, 6\)"),
        ({"sizes": 1}, "sizes"),
        ({"head": 4}, "head=4"),
    ],
)
def test_what_cannot_be_drawn_is_refused_by_name(arguments, said):
    with pytest.raises((ValueError, TypeError), match=said):
        layer_drawing(**arguments)


def test_a_map_is_made_of_its_heads_queries_and_keys_and_values_go_past_it():
    """In each head's colour three ways begin at the cut: two end below its map, the values' at what it brings back."""
    ax = layer_drawing()
    for head in range(drawings.NUM_HEADS):
        colour, left = style.head_colour(head), drawings.LEFT + drawings.STEP * head
        ways = [
            text
            for text in ax.texts
            if getattr(text, "arrow_patch", None) and to_hex(text.arrow_patch.get_edgecolor()) == colour
        ]
        ends = sorted((*way.xyann, *way.xy) for way in ways)
        cut = [end for end in ends if end[1] < drawings.MAP[0] - 0.2]
        starts = [left + 1.8 * (head + 0.5) / 4 for left in (0.0, 2.1, 4.2)]
        assert [start for start, *_ in cut] == pytest.approx(starts[:2])
        assert all(left < x < left + drawings.SIDE and y < drawings.MAP[0] for *_, x, y in cut)
        (line,) = (line for line in ax.lines if to_hex(line.get_color()) == colour)
        assert line.get_xdata()[0] == pytest.approx(starts[2])
        past = line.get_xdata()[-1]
        assert left + drawings.SIDE < past < left + drawings.STEP - 0.2
        assert any(x == past and drawings.MAP[1] < y < drawings.HEAD[0] for *_, x, y in ends)


STEPS_BY_PAPER = {  # what each definition changes, written from the papers and programs, and not read off our classes
    "multi-head": "",
    "talking": "scores softmax",
    "collaborative": "project",
    "overlapping": "project",
    "entmax": "softmax",
    "span": "softmax",
    "sparse": "mask",
    "mixture": "average",
    "composed": "scores softmax",
    "differential": "project softmax average",
    "gated": "project average",
    "latent": "project average",
    "relative": "scores",
    "qk-norm": "project",
    "soft-cap": "scores",
    "sinks": "softmax",
    "sigmoid": "softmax",
    "softpick": "softmax",
    "multi-token": "scores softmax",
    "tensor-product": "project",
    "blocks": "softmax",
    "native-sparse": "softmax",
    "indexed": "project scores average",
    "cross-layer": "project",
    "delta": "scores mask softmax average",
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_lights_the_parts_that_it_changes(kind):
    found = drawings.changed_steps(kind)
    assert " ".join(found) == STEPS_BY_PAPER[kind]
    for steps in found.values():
        assert all(hasattr(KINDS[kind], step) for step in steps)


def test_heads_that_share_keys_are_made_by_other_projections():
    assert drawings.changed_steps({"name": "multi-head", "num_kv_heads": 2}) == {"project": ("num_kv_heads",)}
    with pytest.raises(ValueError, match="must name one of"):
        drawings.changed_steps("sink")


def test_every_step_of_the_layer_has_its_part():
    """Steps that only prepare or take notes have none; a new one of the layer must be put into one of the two."""
    notes = {"forward", "_join_masks", "place", "note_keys"}
    assert set(drawings.STEPS_OF) | notes == layer._STEPS
    assert set(drawings.STEPS_OF.values()) < set(drawings.PARTS)


def test_what_stood_in_the_axes_keeps_its_name():
    ax = plt.subplots()[1]
    mine = ax.text(0, 0, "mine", gid="mine")
    layer_drawing(ax=ax)
    assert mine.get_gid() == "mine"
    assert all(one.get_gid() in (None, "mine") for one in ax.get_children())


def test_arrows_too_come_with_their_step_and_what_stood_there_does_not():
    ax = plt.subplots()[1]
    stood = ax.text(0, 0, "before")
    with drawings.comes_with(ax, 3):
        arrow = ax.annotate("", (0, 0), (1, 1), arrowprops={})
        (line,) = ax.plot([0, 1])
    assert [one.get_gid() for one in (arrow, arrow.arrow_patch, line, stood)] == ["from-3"] * 3 + [None]
    with pytest.raises(ValueError, match="step"), drawings.comes_with(ax, 0):
        pass
