"""Distances between heads against scipy's and numpy's, and maps of them against scikit-learn's."""

import math

import numpy as np
import pytest
import torch
from measured import random_weights, rows

from mhalib.measures import head_map, head_similarity, js_distance

LENS = [(4, 2, 3), (5, 5, 5)]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lens", LENS)
def test_divergence_is_scipys_distance_squared(lens, causal):
    distance = pytest.importorskip("scipy.spatial.distance")
    weights, mask = random_weights(lens, causal=causal)
    expected = np.zeros((3, 3))
    for i in range(3):
        for k in range(3):
            pairs = zip(rows(weights, mask, i), rows(weights, mask, k), strict=True)
            expected[i, k] = np.mean(
                [distance.jensenshannon(list(a.values()), list(b.values())) ** 2 for (_, _, a), (_, _, b) in pairs]
            )
    torch.testing.assert_close(js_distance(weights, mask), torch.tensor(expected), rtol=0, atol=1e-9)


def test_divergence_by_hand_and_its_ends():
    weights = torch.tensor([[[[1.0, 0, 0]], [[0, 0.5, 0.5]], [[0.5, 0.5, 0]]]])
    found = js_distance(weights)
    middle = 0.5 * (math.log(1 / 0.75) + 0.5 * math.log(0.5 / 0.75) + 0.5 * math.log(0.5 / 0.25))
    torch.testing.assert_close(found[0], torch.tensor([0, math.log(2), middle]))
    assert torch.equal(found, found.T)
    assert found.diagonal().count_nonzero() == 0


def test_divergence_reads_a_row_as_a_distribution_and_leaves_empty_rows_out():
    weights, mask = random_weights(seed=1)
    scaled = weights * torch.rand(3, 3, 5, 1, dtype=torch.float64).add(0.1)
    torch.testing.assert_close(js_distance(scaled, mask), js_distance(weights, mask))
    weights[0, 1, 0] = 0.0
    without = mask.expand(weights.shape).clone()
    without[0, 1, 0] = False
    found = js_distance(weights, mask)
    torch.testing.assert_close(found, js_distance(weights, without))
    rest = mask.clone()
    rest[0, 0, 0] = False
    torch.testing.assert_close(found[1], js_distance(weights, rest)[1])  # compared where both have a row
    torch.testing.assert_close(found[0, 2], js_distance(weights[:, [0, 2]], mask)[0, 1])


@pytest.mark.parametrize("lens", LENS)
def test_similarity_is_numpys_cosine(lens):
    weights, mask = random_weights(lens, seed=2)
    flat = [np.concatenate([list(row.values()) for _, _, row in rows(weights, mask, i)]) for i in range(3)]
    expected = [[a @ b / np.linalg.norm(a) / np.linalg.norm(b) for b in flat] for a in flat]
    torch.testing.assert_close(head_similarity(weights, mask), torch.tensor(np.array(expected)))


def test_similarity_by_hand():
    weights = torch.tensor([[[[1.0, 0], [1, 0]], [[0, 1], [0, 1]], [[0.5, 0.5], [0.5, 0.5]], [[0, 0], [0, 0]]]])
    root = math.sqrt(0.5)
    expected = [[1, 0, root, 0], [0, 1, root, 0], [root, root, 1, 0], [0, 0, 0, 0]]
    torch.testing.assert_close(head_similarity(weights), torch.tensor(expected))


@pytest.mark.parametrize("measure", [head_similarity, js_distance])
def test_layers_are_put_side_by_side(measure):
    (one, mask), (two, _) = random_weights(seed=3), random_weights(seed=4, num_heads=2)
    found = measure([one, two], mask)
    assert found.shape == (5, 5)
    torch.testing.assert_close(found, measure(torch.cat([one, two], 1), mask))
    torch.testing.assert_close(found[:3, :3], measure(one, mask))
    torch.testing.assert_close(found[3:, 3:], measure(two, mask))
    torch.testing.assert_close(measure([one, one], mask)[:3, 3:], measure(one, mask))


def test_a_map_of_points_in_the_plane_has_their_distances():
    points = torch.randn(7, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * torch.tensor([3, 1])
    distances = torch.cdist(points, points)
    found = head_map(distances)
    torch.testing.assert_close(torch.cdist(found, found), distances)
    torch.testing.assert_close(found.mean(0), torch.zeros(2, dtype=torch.float64))
    assert found[:, 0].var() > found[:, 1].var()
    assert all(found[found[:, axis].abs().argmax(), axis] > 0 for axis in range(2))
    torch.testing.assert_close(found[:, :1], head_map(distances, num_axes=1))
    torch.testing.assert_close(
        head_map(distances, num_axes=4)[:, 2:], torch.zeros(7, 2, dtype=torch.float64), atol=1e-6, rtol=0
    )


def test_a_map_is_that_of_scikit_learn():
    manifold = pytest.importorskip("sklearn.manifold")
    if not hasattr(manifold, "ClassicalMDS"):
        pytest.skip("scikit-learn is too old")
    weights, mask = random_weights(num_heads=7, seed=5)
    distances = js_distance(weights, mask)
    expected = manifold.ClassicalMDS(n_components=3, metric="precomputed").fit_transform(distances.numpy())
    found = head_map(distances, num_axes=3).numpy()
    np.testing.assert_allclose(found * np.sign((found * expected).sum(0)), expected, atol=1e-8)
    assert np.array_equal(found, head_map(distances, num_axes=3).numpy())


def test_an_axis_of_distances_that_no_points_have_is_0():
    detour = torch.tensor([[0.0, 1, 5], [1, 0, 1], [5, 1, 0]])  # longer than the way over the second
    assert head_map(detour, num_axes=3)[:, 2].count_nonzero() == 0


def test_a_map_of_heads_that_are_all_alike_is_one_point():
    assert head_map(torch.zeros(4, 4)).count_nonzero() == 0


WEIGHTS = torch.full((2, 3, 5, 5), 0.2)
WRONG = [
    (lambda: js_distance([]), ValueError, "weights is an empty list"),
    (lambda: head_similarity([WEIGHTS, WEIGHTS[:1]]), ValueError, r"weights\[1\] has shape \(1, 3, 5, 5\)"),
    (lambda: head_similarity([WEIGHTS, 1]), TypeError, r"weights\[1\] must be a torch.Tensor"),
    (lambda: head_map(torch.zeros(3, 2)), ValueError, r"must be \(n, n\)"),
    (lambda: head_map(torch.zeros(2, 2), 3), ValueError, "at least 3"),
    (lambda: head_map(torch.tensor([[0.0, 1], [2, 0]])), ValueError, "symmetric"),
    (lambda: head_map(torch.tensor([[0.0, -1], [-1, 0]])), ValueError, "not negative"),
    (lambda: head_map(torch.eye(3)), ValueError, "0 on the diagonal"),
    (lambda: head_map(torch.zeros(3, 3), 0), ValueError, "num_axes=0"),
]


@pytest.mark.parametrize(("call", "error", "message"), WRONG)
def test_wrong_arguments_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_two_heads_without_a_common_row_cannot_be_compared():
    mask = torch.zeros(2, 3, 5, 5, dtype=torch.bool)
    mask[0, :, 0] = mask[1, 2, 1] = True
    mask[0, 2, 0] = False
    with pytest.raises(ValueError, match="heads 0 and 2 have no row in common"):
        js_distance(WEIGHTS, mask)


def test_distances_without_values_are_refused():
    with pytest.raises(ValueError, match="distances is on the device meta, where tensors have shapes and no values"):
        head_map(torch.zeros(3, 3, device="meta"))
