"""Pictures, tested on what is drawn: the numbers in the mesh, the scale, the names. Warnings are errors here too."""

import re

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.text import Text

from mhalib import attention_on_picture, head_heatmap, head_heatmaps, head_wall, number_grid, score_grid, style
from mhalib.plots import OWNER_COLOURS

pytestmark = pytest.mark.package

QUERIES = "the small cat sleeps now".split()
KEYS = "le petit chat dort maintenant ici .".split()
HOSTILE = {
    "mathematics": "$x^$",
    "one dollar": "\\$",
    "markup": "</script>",
    "control characters": "\x00\x1b\n\t",
    "emoji": "🤖🙂",
    "family emoji": "👨‍👩‍👧‍👦",
    "right to left": "שלום",
    "joined script": "مرحبا",
    "override": "\u202egnp.exe",
    "Japanese": "日本語のとても長い単語です",
    "Devanagari": "हिन्दी",
    "surrogate": "\ud800",
    "10,000 letters": "x" * 10_000,
    "10,000 emoji": "🤖" * 10_000,
    "nothing": "",
}


def _weights(*shape):
    torch.manual_seed(0)
    return torch.randn(*shape).softmax(-1)


def _mesh(ax):
    """The cells that seaborn drew, (Q, K), and what they are drawn with."""
    (mesh,) = [artist for artist in ax.collections if hasattr(artist, "get_coordinates")]
    return mesh


def _hatched(ax):
    """The (row, column) of all cells under hatched patches, in order; a cell under two of them is there twice."""
    cells = []
    for patch in ax.patches:
        assert patch.get_hatch()
        assert patch.get_height() == 1
        assert float(patch.get_width()).is_integer()
        cells += [(patch.get_y(), patch.get_x() + i) for i in range(int(patch.get_width()))]
    return sorted(cells)


def _names(axis):
    return [text.get_text() for text in axis.get_ticklabels()]


DRAW = {
    "head_heatmap": lambda **options: head_heatmap(_weights(5, 7), **options),
    "head_heatmaps": lambda **options: head_heatmaps(_weights(3, 5, 7), **options),
    "head_wall": lambda **options: head_wall(_weights(2, 3, 5, 7), **options),
    "number_grid": lambda **options: number_grid(torch.arange(35).view(5, 7), torch.ones(5, 7), **options),
    "score_grid": lambda **options: score_grid(_weights(5, 7), **options),
}


@pytest.mark.parametrize("name", DRAW)
def test_makes_one_figure_and_does_not_show_it(name, monkeypatch):
    monkeypatch.setattr(plt, "show", lambda *_, **__: pytest.fail("plt.show was called"))
    drawn = DRAW[name]()
    axes = drawn if isinstance(drawn, list) else [drawn]
    assert all(isinstance(ax, Axes) for ax in axes)
    assert plt.get_fignums() == [axes[0].figure.number]
    axes[0].figure.canvas.draw()


@pytest.mark.parametrize("name", ["head_heatmap", "head_wall", "number_grid", "score_grid"])
def test_draws_on_the_axes_it_is_given(name):
    figure, (mine, other) = plt.subplots(1, 2)
    assert DRAW[name](ax=mine) is mine
    assert plt.get_fignums() == [figure.number]
    assert mine.has_data()
    assert not other.has_data()


def test_heatmaps_draw_on_the_axes_they_are_given():
    figure, mine = plt.subplots(2, 2)
    assert head_heatmaps(_weights(4, 5, 7), ax=mine) == list(mine.flat)
    assert plt.get_fignums() == [figure.number]
    assert [ax.get_ylabel() for ax in mine.flat] == ["query"] * 4  # how they stand is the caller's business


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, "numpy", "requires_grad"])
def test_rows_are_queries_and_columns_are_keys(dtype):
    weights = _weights(5, 7)
    given = {
        "numpy": lambda: weights.numpy(),
        "requires_grad": lambda: weights.clone().requires_grad_() * 1,
    }.get(dtype, lambda: weights.to(dtype))()
    ax = head_heatmap(given, queries=QUERIES, keys=KEYS, title="head 3")
    expected = weights.bfloat16().float() if dtype == torch.bfloat16 else weights
    np.testing.assert_allclose(_mesh(ax).get_array().reshape(5, 7), expected, rtol=1e-6)
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_title()) == ("key", "query", "head 3")
    assert (_names(ax.xaxis), _names(ax.yaxis)) == (KEYS, QUERIES)
    assert ax.get_xticks().tolist() == [0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5]
    assert ax.get_yticks().tolist() == [0.5, 1.5, 2.5, 3.5, 4.5]
    assert ax.get_xlim() == (0, 7)
    assert ax.get_ylim() == (5, 0)  # the first query is at the top


def test_tokens_without_names_are_numbered_and_equal_names_all_shown():
    ax = head_heatmap(_weights(2, 3), queries=["the", "the"])
    assert (_names(ax.xaxis), _names(ax.yaxis)) == (["0", "1", "2"], ["the", "the"])


@pytest.mark.parametrize("kind", [torch.tensor, np.array])
def test_hidden_cells_are_hatched_and_not_coloured(kind):
    seen = np.tri(5, 7, dtype=bool)
    ax = head_heatmap(_weights(5, 7), mask=kind(seen))
    assert (_mesh(ax).get_array().mask.reshape(5, 7) == ~seen).all()
    assert _hatched(ax) == [(row, column) for row, column in np.argwhere(~seen)]


def test_neighbours_that_are_hidden_are_one_piece_and_others_are_not():
    seen = torch.tensor([[False, False, True, False], [True, True, True, True], [False, True, False, False]])
    ax = head_heatmap(_weights(3, 4), mask=seen)
    assert _hatched(ax) == [(0, 0), (0, 1), (0, 3), (2, 0), (2, 2), (2, 3)]
    assert len(ax.patches) == 4


def test_a_weight_of_0_that_is_seen_is_not_hatched():
    ax = head_heatmap(torch.eye(3))
    assert not ax.patches
    assert not np.ma.getmaskarray(_mesh(ax).get_array()).any()


def test_a_picture_with_nothing_to_see_is_drawn():
    head_heatmap(torch.zeros(2, 3), mask=torch.zeros(2, 3) > 0).figure.canvas.draw()


def test_annotations_are_the_weights_that_are_seen():
    weights, seen = _weights(2, 3), torch.tensor([[True, False, True], [True, True, True]])
    ax = head_heatmap(weights, mask=seen, annotate=True)
    assert [text.get_text() for text in ax.texts] == [f"{weight:.2f}" for weight in weights[seen]]


@pytest.mark.parametrize("colorbar", [True, False])
def test_the_scale_of_one_head(colorbar):
    ax = head_heatmap(_weights(2, 3), vmax=0.7, colorbar=colorbar)
    assert _mesh(ax).get_clim() == (0, 0.7)
    assert [other.get_ylabel() for other in ax.figure.axes if other is not ax] == ["attention weight"] * colorbar


@pytest.mark.parametrize("vmax", [1.0, 0.25])
def test_all_heads_share_one_scale_which_one_bar_states(vmax):
    weights = _weights(3, 5, 7) * torch.tensor([1.0, 0.1, 0.01])[:, None, None]
    axes = head_heatmaps(weights, vmax=vmax)
    assert {_mesh(ax).get_clim() for ax in axes} == {(0, vmax)}
    (bar,) = [other for other in axes[0].figure.axes if other not in axes]
    assert bar.get_xlabel() == f"attention weight, one scale for all heads: 0 to {vmax:g}"
    assert bar.get_xlim() == (0, vmax)


@pytest.mark.parametrize(("num_heads", "ncols"), [(1, None), (3, 2), (5, None)])
def test_each_head_has_its_own_picture_in_order(num_heads, ncols):
    weights, mask = _weights(num_heads, 2, 3), torch.rand(num_heads, 2, 3) < 0.7
    axes = head_heatmaps(weights, keys=KEYS[:3], queries=QUERIES[:2], mask=mask, ncols=ncols)
    assert [ax.get_title() for ax in axes] == [f"head {i}" for i in range(num_heads)]
    for ax, expected, seen in zip(axes, weights, mask, strict=True):
        cells = _mesh(ax).get_array().reshape(2, 3)
        np.testing.assert_allclose(cells.filled(-1), expected.masked_fill(~seen, -1))
        assert _names(ax.xaxis) == KEYS[:3]
        is_left = ax.get_subplotspec().is_first_col()
        assert (_names(ax.yaxis), ax.get_ylabel()) == ((QUERIES[:2], "query") if is_left else ([], ""))
    assert ncols is None or axes[0].get_gridspec().ncols == ncols


def test_each_head_keeps_its_colour_and_the_ninth_begins_anew():
    axes = head_heatmaps(_weights(9, 2, 3))
    for head, ax in enumerate(axes):
        assert _mesh(ax).cmap == style.head_map(head)
        assert _mesh(head_heatmap(_weights(2, 3), head=head)).cmap == style.head_map(head)
    ninth, first = (to_hex(_mesh(axes[i]).cmap(0.5)) for i in (8, 0))
    assert ninth == first
    assert len({to_hex(_mesh(ax).cmap(0.5)) for ax in axes}) == 8
    assert _mesh(head_heatmap(_weights(2, 3))).cmap.name == "weights"


def test_titles_replace_the_numbers():
    axes = head_heatmaps(_weights(2, 2, 3), titles=["previous", "next"], mask=torch.ones(2, 3) > 0)
    assert [ax.get_title() for ax in axes] == ["previous", "next"]


def _coloured(weights, head, vmax):
    """(Q, K, 4): weights in their head's colours."""
    return style.head_map(head)(np.clip(np.asarray(weights, dtype=float) / vmax, 0, 1))


@pytest.mark.parametrize("shape", [(2, 3, 5, 7), (3, 7, 5), (1, 1, 1, 1), (2, 3, 13, 17)])
def test_the_wall_shows_layers_from_top_to_bottom_and_heads_from_left_to_right(shape):
    weights = _weights(*shape) + 0.001 * torch.arange(torch.Size(shape).numel()).view(shape)
    ax = head_wall(weights, vmax=0.5, title="all heads")
    (image,) = ax.images
    mosaic = image.get_array()
    *_, num_queries, num_kvpairs = shape
    layers = weights if weights.dim() == 4 else weights[None]
    assert (_names(ax.xaxis), _names(ax.yaxis)) == tuple([str(i) for i in range(n)] for n in layers.shape[1::-1])
    for layer, y in enumerate(ax.get_yticks()):  # a tick stands in the middle of what it names
        for head, x in enumerate(ax.get_xticks()):
            top, left = round(y - (num_queries - 1) / 2), round(x - (num_kvpairs - 1) / 2)
            cells = mosaic[top : top + num_queries, left : left + num_kvpairs]
            np.testing.assert_array_equal(cells, _coloured(layers[layer, head], head, vmax=0.5))
    assert (mosaic[..., 3] == 1).sum() == weights.numel()
    assert set(mosaic[..., 3].ravel()) <= {0, 1}  # what is left are gaps, which show the ground
    assert ax.figure.axes[1].get_ylim() == (0, 0.5)
    assert ax.get_ylim()[0] > ax.get_ylim()[1]
    assert ax.get_title() == "all heads"
    assert ax.figure.axes[1].get_ylabel() == "attention weight"


def test_a_wall_without_titles_has_no_ticks():
    ax = head_wall(_weights(2, 3, 5, 7), titles=False)
    assert (_names(ax.xaxis), _names(ax.yaxis)) == ([], [])


def test_marked_heads_of_a_wall_have_frames_around_their_cells():
    weights = torch.arange(2 * 3 * 5 * 7).view(2, 3, 5, 7) / 210
    ax = head_wall(weights, marked=[(0, 2), (1, 0)])
    mosaic = ax.images[0].get_array()
    framed = []
    for patch in ax.patches:
        left, top = patch.get_x() + 0.5, patch.get_y() + 0.5  # a cell's middle is a whole number
        assert left.is_integer()
        assert top.is_integer()
        assert not patch.get_fill()
        rows, columns = slice(int(top), int(top + patch.get_height())), slice(int(left), int(left + patch.get_width()))
        framed.append(mosaic[rows, columns])
    for (layer, head), cells in zip([(0, 2), (1, 0)], framed, strict=True):
        np.testing.assert_array_equal(cells, _coloured(weights[layer, head], head, vmax=1.0))
    assert not head_wall(weights).patches


def test_72_heads_are_drawn_in_one_go():
    ax = head_wall(_weights(6, 12, 13, 13))
    assert len(ax.images) == 1
    assert len(ax.figure.axes) == 2  # and not one for each head, which took half a minute
    ax.figure.canvas.draw()


@pytest.mark.parametrize("kind", [torch.tensor, np.array])
def test_scores_stand_at_their_layer_and_head(kind):
    scores = kind([[0.1, 0.25, 0.5], [0.0, 1.0, 0.75]])
    ax = score_grid(scores, title="previous token", label="mean weight")
    mesh = _mesh(ax)
    np.testing.assert_allclose(mesh.get_array().reshape(2, 3), np.asarray(scores), rtol=1e-6)
    assert mesh.get_clim() == (0, 1.0)
    written = {text.get_position(): text.get_text() for text in ax.texts}
    assert written == {
        (0.5, 0.5): "0.10",
        (1.5, 0.5): "0.25",
        (2.5, 0.5): "0.50",
        (0.5, 1.5): "0.00",
        (1.5, 1.5): "1.00",
        (2.5, 1.5): "0.75",
    }
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_title()) == ("head", "layer", "previous token")
    assert (_names(ax.xaxis), _names(ax.yaxis)) == (["0", "1", "2"], ["0", "1"])
    assert (ax.get_xticks().tolist(), ax.get_yticks().tolist()) == ([0.5, 1.5, 2.5], [0.5, 1.5])
    assert ax.get_ylim() == (2, 0)  # the first layer is at the top
    assert ax.figure.axes[1].get_ylabel() == "mean weight"


READABLE = {
    "scores": lambda: score_grid(torch.linspace(-1, 3, 60).view(5, 12), vmin=-1),
    "weights lost": lambda: head_heatmap(
        torch.linspace(0, 0.3, 60).view(5, 12), vmax=0.3, annotate=True, colours="lost"
    ),
    "lost": lambda: score_grid(torch.linspace(-1, 3, 60).view(5, 12), vmin=-1, colours="lost"),
    "kept": lambda: score_grid(torch.linspace(-1, 3, 60).view(5, 12), vmin=-1, colours="kept"),
    "weights": lambda: head_heatmap(torch.linspace(0, 0.7, 60).view(10, 6), vmax=0.7, annotate=True),
    **{
        f"head {i}": lambda i=i: head_heatmap(torch.linspace(0, 1, 60).view(10, 6), annotate=True, head=i)
        for i in range(8)
    },
}


@pytest.mark.parametrize("name", READABLE)
def test_numbers_can_be_read_on_their_colours(name):
    ax = READABLE[name]()
    mesh = _mesh(ax)
    cells = mesh.to_rgba(mesh.get_array().ravel())[:, :3]
    assert len(ax.texts) == 60
    for text, cell in zip(ax.texts, cells, strict=True):
        linear = np.where(cell <= 0.04045, cell / 12.92, ((cell + 0.055) / 1.055) ** 2.4)
        luminance = np.dot([0.2126, 0.7152, 0.0722], linear)
        ink = {style.ON_PALE: 0.0006, style.ON_DARK: 0.991}[text.get_color()]  # by WCAG 2.2
        light, dark = max(luminance, ink), min(luminance, ink)
        assert (light + 0.05) / (dark + 0.05) > 4.3, text.get_text()


def test_a_score_loses_its_0_where_cells_are_narrow_and_only_where_it_leads():
    written = [text.get_text() for text in score_grid(torch.tensor([[0.25, 10.25, 1.0] * 3]), vmax=11).texts]
    assert written == [".25", "10.25", "1.00"] * 3
    assert [text.get_text() for text in head_heatmap(torch.tensor([[0.5] * 9]), annotate=True).texts] == [".50"] * 9
    assert [text.get_text() for text in head_heatmap(torch.tensor([[0.5] * 8]), annotate=True).texts] == ["0.50"] * 8


def test_losses_are_drawn_in_the_colours_that_are_asked_for():
    assert _mesh(score_grid(_weights(2, 3), colours="lost")).cmap.name == "lost"
    assert _mesh(score_grid(_weights(2, 3))).cmap.name == "weights"


def test_a_head_without_a_score_is_hatched():
    ax = score_grid(torch.tensor([[0.5, np.nan], [0.25, 0.75]]), layers=["encoder 0", "cross 1"], vmax=2)
    assert [text.get_text() for text in ax.texts] == ["0.50", "0.25", "0.75"]
    assert [(patch.get_y(), patch.get_x()) for patch in ax.patches if patch.get_hatch()] == [(0, 1)]
    assert np.ma.getmaskarray(_mesh(ax).get_array()).reshape(2, 2).tolist() == [[False, True], [False, False]]
    assert _names(ax.yaxis) == ["encoder 0", "cross 1"]
    assert _mesh(ax).get_clim() == (0, 2)
    ax.figure.canvas.draw()
    assert not score_grid(torch.ones(2, 2), annotate=False).texts


def test_each_number_stands_on_the_colour_of_its_owner():
    numbers, owners = torch.arange(6).view(2, 3), torch.tensor([[0, 1, 5], [5, 0, 1]])
    ax = number_grid(numbers, owners, digits=2, title="t", xlabel="x", ylabel="y")
    written = {(round(text.get_position()[1]), round(text.get_position()[0])): text.get_text() for text in ax.texts}
    assert written == {(0, 0): "00", (0, 1): "01", (0, 2): "02", (1, 0): "03", (1, 1): "04", (1, 2): "05"}
    (image,) = ax.images
    for cell, owner in np.ndenumerate(owners.numpy()):
        assert to_hex(image.cmap(image.norm(image.get_array()[cell]))) == OWNER_COLOURS[owner]
    assert (ax.get_title(), ax.get_xlabel(), ax.get_ylabel()) == ("t", "x", "y")


@pytest.mark.parametrize("head", [None, 0, 5])
def test_more_weight_is_darker_in_grey_in_even_steps(head):
    red, green, blue = _mesh(head_heatmap(_weights(2, 3), head=head)).cmap(np.linspace(0, 1, 11))[:, :3].T
    linear = [np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4) for c in (red, green, blue)]
    lightness = 116 * np.cbrt(np.dot([0.2126, 0.7152, 0.0722], linear)) - 16  # CIE L*, 100 is white
    steps = -np.diff(lightness)
    assert lightness[0] - lightness[-1] > 68  # the darkest still shows its hue
    assert (steps > 5.5).all()
    assert (steps < 14).all()


@pytest.mark.parametrize("token", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("family", ["sans-serif", "serif"])
def test_any_token_can_be_drawn(token, family, monkeypatch):
    monkeypatch.setitem(plt.rcParams, "font.family", [family])
    ax = head_heatmap(_weights(1, 1), queries=[token], keys=[token])
    ax.figure.canvas.draw()  # the missing glyph, the bad formula and the collapsed picture warn here


@pytest.mark.parametrize(
    ("token", "drawn"),
    [
        ("$x^$", r"\$x^\$"),
        ("</script>", "</script>"),
        ("fourteen chars", "fourteen chars"),
        ("fifteen letters", "fifteen lette…"),
        ("x" * 10_000, "x" * 13 + "…"),
        ("\x00\x1b", r"\x00\x1b"),
        ("a\x01\x02\x03\x7f", r"a\x01\x02\x03…"),  # a code is never cut in two
        ("a\n\tb", r"a\n\tb"),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        ("\ud800", r"\ud800"),
    ],
)
def test_what_cannot_be_drawn_is_spelt_and_what_is_long_is_cut(token, drawn):
    assert _names(head_heatmap(_weights(1, 1), queries=[token]).yaxis) == [drawn]


@given(tokens=st.lists(st.text(), min_size=5, max_size=5))
@settings(max_examples=15)
def test_any_text_can_be_drawn(tokens):
    ax = head_heatmap(_weights(5, 5), queries=tokens, keys=tokens)
    ax.figure.canvas.draw()
    assert max(len(name.replace(r"\$", "$")) for name in _names(ax.yaxis)) <= 14
    plt.close(ax.figure)


def test_any_tokens_can_be_drawn_for_many_heads():
    tokens = list(HOSTILE.values())
    axes = head_heatmaps(_weights(2, len(tokens), len(tokens)), queries=tokens, keys=tokens)
    axes[0].figure.canvas.draw()
    assert len(_names(axes[1].xaxis)) == len(tokens)


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (7, 1), (3, 2)])
@pytest.mark.parametrize("name", ["head_heatmap", "head_heatmaps"])
def test_long_names_leave_room_for_the_cells(name, shape):
    weights = _weights(*shape) if name == "head_heatmap" else _weights(1, *shape)
    names = {"queries": ["WESTMINSTERABBEY"] * shape[0], "keys": ["characteristically"] * shape[1]}
    drawn = {"head_heatmap": head_heatmap, "head_heatmaps": head_heatmaps}[name](weights, **names)
    ax = drawn[0] if isinstance(drawn, list) else drawn
    ax.figure.canvas.draw()
    assert ax.get_window_extent().width / ax.figure.dpi / shape[1] > 0.2  # inches for each cell


BAD = [
    (head_heatmap, {"weights": [[1.0]]}, TypeError, "weights must be a torch.Tensor or numpy.ndarray, got list"),
    (head_heatmap, {"weights": torch.ones(3, 5, 7)}, ValueError, "weights must have 2 axes, got shape (3, 5, 7)"),
    (head_heatmap, {"weights": np.array([["a"]])}, TypeError, "weights must hold real numbers, got <U1"),
    (number_grid, {"numbers": torch.full((5, 7), 1.5)}, ValueError, "numbers must hold whole numbers, got 1.5"),
    (head_heatmap, {"weights": torch.ones(0, 7)}, ValueError, "weights is empty: shape (0, 7)"),
    (head_heatmap, {"queries": ["a"]}, ValueError, "queries has 1 entries, but the weights need 5"),
    (head_heatmap, {"keys": "abcdefg"}, TypeError, "keys must be a sequence of strings, got one string: 'abcdefg'"),
    (head_heatmap, {"mask": torch.ones(5, 7)}, TypeError, "mask must be boolean (True = may attend), got float32"),
    (head_heatmap, {"mask": torch.ones(7, 5) > 0}, ValueError, "shape (7, 5), which does not broadcast to (5, 7)"),
    (head_heatmap, {"vmax": 0.0}, ValueError, "vmax=0.0 must be positive"),
    (head_heatmap, {"vmax": float("nan")}, ValueError, "vmax=nan must be positive"),
    (head_heatmaps, {"weights": torch.ones(5, 7)}, ValueError, "weights must have 3 axes, got shape (5, 7)"),
    (head_heatmaps, {"weights": torch.ones(0, 5, 7)}, ValueError, "weights is empty: shape (0, 5, 7)"),
    (head_heatmaps, {"queries": ["a"]}, ValueError, "queries has 1 entries, but the weights need 5"),
    (head_heatmaps, {"keys": ["a"]}, ValueError, "keys has 1 entries, but the weights need 7"),
    (head_heatmaps, {"titles": ["a"]}, ValueError, "titles has 1 entries, but the weights need 3"),
    (head_heatmaps, {"mask": np.ones((2, 5, 7)) > 0}, ValueError, "(2, 5, 7), which does not broadcast to (3, 5, 7)"),
    (head_heatmaps, {"vmax": -1}, ValueError, "vmax=-1 must be positive"),
    (head_heatmaps, {"ncols": 0}, ValueError, "ncols=0 must be at least 1"),
    (head_heatmaps, {"ncols": 1.5}, TypeError, "ncols must be an integer, got float: 1.5"),
    (head_heatmaps, {"ax": []}, ValueError, "ax has 0 entries, but the weights need 3"),
    (head_wall, {"weights": torch.ones(5, 7)}, ValueError, "weights must have 3 or 4 axes, got shape (5, 7)"),
    (head_wall, {"vmax": 0}, ValueError, "vmax=0 must be positive"),
    (head_wall, {"marked": [(0, 3)]}, ValueError, "marked holds (0, 3), but there are 2 layers of 3 heads"),
    (head_wall, {"marked": [(-1, 0)]}, ValueError, "marked holds (-1, 0), but there are 2 layers of 3 heads"),
    (score_grid, {"scores": torch.ones(7)}, ValueError, "scores must have 2 axes, got shape (7,)"),
    (score_grid, {"scores": torch.full((5, 7), torch.nan)}, ValueError, "scores holds no number"),
    (score_grid, {"scores": torch.zeros(5, 7)}, ValueError, "vmin=0 must be below vmax=0"),
    (score_grid, {"vmax": -1.0}, ValueError, "vmin=0 must be below vmax=-1"),
    (score_grid, {"colours": "mint"}, ValueError, "colours='mint' is no colour map that matplotlib knows"),
    (score_grid, {"colours": 1}, TypeError, "colours must be a string, got int: 1"),
    (head_heatmap, {"colours": "mint"}, ValueError, "colours='mint' is no colour map that matplotlib knows"),
    (head_heatmap, {"head": -1}, ValueError, "head=-1 must be at least 0"),
    (score_grid, {"layers": ["a"]}, ValueError, "layers has 1 entries, but the weights need 5"),
    (number_grid, {"owners": torch.ones(7, 5)}, ValueError, "owners has shape (7, 5), but numbers has (5, 7)"),
    (number_grid, {"owners": torch.full((5, 7), 8)}, ValueError, "owners must lie in 0..7, got 8..8"),
    (number_grid, {"numbers": torch.ones(7)}, ValueError, "numbers must have 2 axes, got shape (7,)"),
]


@pytest.mark.parametrize(("draw", "changed", "error", "message"), BAD)
def test_bad_input_is_named_and_leaves_no_figure(draw, changed, error, message):
    good = {
        head_heatmap: {"weights": torch.ones(5, 7)},
        head_heatmaps: {"weights": torch.ones(3, 5, 7)},
        head_wall: {"weights": torch.ones(2, 3, 5, 7)},
        number_grid: {"numbers": torch.ones(5, 7), "owners": torch.ones(5, 7)},
        score_grid: {"scores": torch.ones(5, 7)},
    }
    with pytest.raises(error, match=re.escape(message)):
        draw(**good[draw] | changed)
    assert plt.get_fignums() == []


@pytest.mark.parametrize("text", ["$$", "a$$", r"a $\nothing$", r"$\frac$"])
@pytest.mark.parametrize(
    "draw",
    [
        lambda text: head_heatmap(np.eye(3), title=text),
        lambda text: head_heatmaps(np.ones((2, 3, 3)), titles=["a", text])[1],
        lambda text: head_wall(np.ones((2, 3, 3)), title=text),
        lambda text: score_grid(np.eye(3), label=text),
        lambda text: number_grid(np.eye(3, dtype=int), np.eye(3, dtype=int), xlabel=text),
        lambda text: attention_on_picture(np.ones((4, 4)), np.ones(4), title=text),
    ],
)
def test_mathematics_that_cannot_be_drawn_is_drawn_as_text(draw, text):
    """As it was: an error of matplotlib's, without a word of whose text it was, when the figure was drawn."""
    figure = draw(text).figure
    figure.canvas.draw()
    assert text.replace("$", r"\$") in [one.get_text() for one in figure.findobj(Text)]
    plt.close("all")


def test_mathematics_and_dollars_are_drawn():
    ax = head_heatmap(np.eye(3), title=r"$d_k = 4$, 5\$ and 6\$ or $7")
    ax.figure.canvas.draw()
    plt.close("all")
