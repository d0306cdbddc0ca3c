"""The handwritten digits: what scikit-learn has, split without overlap."""

import builtins

import pytest
import torch
from torch.nn import functional as F

from mhalib.data import Digits, digits, shifted

TRAIN, TEST = digits()


def test_every_image_is_in_one_part_as_scikit_learn_has_it():
    from sklearn.datasets import load_digits

    loaded = load_digits()
    numbers = torch.cat([TRAIN.numbers, TEST.numbers])
    assert sorted(numbers.tolist()) == list(range(1797))
    for part in (TRAIN, TEST):
        assert part.labels.tolist() == loaded.target[part.numbers].tolist()
        assert (part.images * 16).double().equal(torch.from_numpy(loaded.images[part.numbers]))


def test_no_two_images_are_alike_so_that_the_parts_share_none():
    as_rows = torch.cat([TRAIN.images, TEST.images]).flatten(1)
    assert len(as_rows.unique(dim=0)) == 1797


def test_sizes_types_and_values():
    assert (len(TRAIN), len(TEST)) == (1347, 450)
    assert TRAIN.images.shape == (1347, 8, 8)
    assert (TRAIN.images.dtype, TRAIN.labels.dtype) == (torch.float32, torch.int64)
    assert (float(TRAIN.images.min()), float(TRAIN.images.max())) == (0.0, 1.0)


def test_each_digit_gives_a_quarter_to_the_test():
    for label in range(10):
        train, test = int((TRAIN.labels == label).sum()), int((TEST.labels == label).sum())
        assert abs(test - (train + test) / 4) < 1


def test_the_seed_decides_and_chance_elsewhere_does_not():
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    again, other = digits()[1], digits(seed=1)[1]
    assert torch.equal(torch.rand(1), expected)
    assert torch.equal(again.numbers, TEST.numbers)
    assert not torch.equal(other.numbers, TEST.numbers)


def test_the_order_tells_nothing_of_the_digit():
    assert TRAIN.labels[:20].unique().numel() > 5


def test_a_part_a_batch_a_device(device):
    batch = TEST.to(device)[torch.tensor([7, 2], device=device)]
    assert isinstance(batch, Digits)
    assert batch.numbers.tolist() == TEST.numbers[[7, 2]].tolist()
    assert batch.images.device.type == device.type
    assert len(TEST[:11]) == 11


def test_without_scikit_learn_the_error_says_what_to_install(monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name.startswith("sklearn"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match="pip install scikit-learn"):
        digits()


def test_shifted_moves_each_image_to_one_of_nine_places():
    image = torch.arange(1.0, 36.0).view(5, 7)
    moved = shifted(image.expand(900, 5, 7), torch.Generator().manual_seed(0))
    padded = F.pad(image, (1, 1, 1, 1))
    places = [padded[row : row + 5, column : column + 7] for row in range(3) for column in range(3)]
    counts = [int((moved == place).all((1, 2)).sum()) for place in places]
    assert sum(counts) == 900
    assert min(counts) > 60


def test_shifted_is_seeded_and_stays_on_its_device(device):
    images = TEST.images[:6].to(device)
    first, second = (shifted(images, torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(first, second)
    assert first.device.type == device.type


@pytest.mark.parametrize(
    ("images", "error", "message"),
    [(torch.zeros(8, 8), ValueError, "images must have 3 axes, got shape"), ([1], TypeError, "images must be a torch")],
)
def test_shifted_refuses_what_is_no_batch_of_images(images, error, message):
    with pytest.raises(error, match=message):
        shifted(images)


@pytest.mark.parametrize(("seed", "error"), [(-1, ValueError), (0.5, TypeError)])
def test_digits_refuses_a_bad_seed(seed, error):
    with pytest.raises(error, match="seed"):
        digits(seed)
