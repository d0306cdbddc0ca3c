"""Attention on a picture: what lies where, and how dense."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from mhalib import attention_on_picture

IMAGE = torch.rand(4, 6, generator=torch.Generator().manual_seed(0))
WEIGHTS = torch.tensor([0.1, 0.0, 0.4, 0.2, 0.9, 0.05])  # 2 by 3 squares


def test_the_picture_lies_below_and_each_patch_s_veil_in_its_place():
    ax = attention_on_picture(IMAGE, WEIGHTS, vmax=0.5, title="a head")
    picture, veil = ax.images
    np.testing.assert_allclose(picture.get_array(), IMAGE, rtol=1e-6)
    expected = 0.85 * np.array([[0.2, 0.0, 0.8], [0.4, 1.0, 0.1]])  # of 0.5, and never more
    np.testing.assert_allclose(veil.get_array()[..., 3], expected, rtol=1e-5)
    assert picture.get_extent() == veil.get_extent()
    assert ax.get_title() == "a head"


def test_it_draws_where_it_is_told_and_on_a_figure_of_its_own(device):
    _, axes = plt.subplots(1, 2)
    assert attention_on_picture(IMAGE.to(device), WEIGHTS.to(device), ax=axes[1]) is axes[1]
    assert not axes[0].images
    assert attention_on_picture(IMAGE, WEIGHTS).figure is not axes[0].figure


@pytest.mark.parametrize(
    ("image", "weights", "vmax", "error", "message"),
    [
        (IMAGE, WEIGHTS[:5], 1.0, ValueError, "weights has 5 numbers, but so many squares do not tile a 4 by 6 image"),
        (IMAGE, torch.ones(25), 1.0, ValueError, "weights has 25 numbers"),
        (torch.ones(2, 8), torch.ones(1), 1.0, ValueError, "1 numbers, but so many squares do not tile a 2 by 8"),
        (IMAGE, WEIGHTS[None], 1.0, ValueError, "weights must have 1 axes"),
        (IMAGE[None], WEIGHTS, 1.0, ValueError, "image must have 2 axes"),
        ([[1.0]], WEIGHTS, 1.0, TypeError, "image must be a torch.Tensor"),
        (IMAGE, WEIGHTS, 0.0, ValueError, "vmax"),
    ],
)
def test_bad_arguments_are_named(image, weights, vmax, error, message):
    with pytest.raises(error, match=message):
        attention_on_picture(image, weights, vmax=vmax)
