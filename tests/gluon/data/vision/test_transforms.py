"""Transforms that draw random numbers, and checks. tests/gluon/data/test_golden.py compares the others with MXNet's."""

import random

import numpy as np
import pytest
import tritium as mx
from tritium.errors import DTypeError, ParameterError
from tritium.gluon.data.vision import transforms

IMAGE = (np.arange(8 * 6 * 3) * 5 % 200 + 20).astype("float32").reshape(8, 6, 3)


def applied(transform, times=1):
    x = mx.nd.array(IMAGE)
    return [transform(x).asnumpy() for _ in range(times)]


@pytest.mark.parametrize("transform, turned", [(transforms.RandomFlipLeftRight(), IMAGE[:, ::-1]),
                                               (transforms.RandomFlipTopBottom(), IMAGE[::-1])])
def test_flips_are_made_half_of_the_time(transform, turned):
    mx.random.seed(3)
    flipped = [np.array_equal(x, turned) for x in applied(transform, 60) if np.array_equal(x, turned) or (x == IMAGE).all()]
    assert len(flipped) == 60 and 15 < sum(flipped) < 45


def test_brightness_multiplies_by_one_factor_in_its_range():
    ratios = [x / IMAGE for x in applied(transforms.RandomBrightness(0.3), 40)]
    assert all(np.ptp(r) < 1e-5 for r in ratios)
    factors = [r.mean() for r in ratios]
    assert 0.7 <= min(factors) < 0.85 and 1.15 < max(factors) <= 1.3


def test_contrast_and_saturation_keep_gray():
    weights = np.array([0.299, 0.587, 0.114])
    for x in applied(transforms.RandomContrast(0.5), 5):
        assert abs((x @ weights).mean() - (IMAGE @ weights).mean()) < 0.05  # of the image
    for x in applied(transforms.RandomSaturation(0.5), 5):
        np.testing.assert_allclose(x @ weights, IMAGE @ weights, rtol=1e-3)  # of each pixel; the weights sum to 1 in 3 digits


@pytest.mark.parametrize("transform", [transforms.RandomHue(0), transforms.RandomColorJitter(), transforms.RandomLighting(0),
                                       transforms.RandomContrast(0), transforms.RandomGray(0)])
def test_nothing_changes_at_zero(transform):
    np.testing.assert_allclose(applied(transform)[0], IMAGE, rtol=2e-3)


def test_gray_has_equal_channels():
    gray = applied(transforms.RandomGray(1))[0]
    np.testing.assert_allclose(gray, np.repeat(IMAGE @ np.array([[0.21], [0.72], [0.07]]), 3, axis=2), rtol=1e-5)


def test_random_crop_pads_first():
    random.seed(1)
    x = mx.nd.array(IMAGE.astype("uint8"), dtype="uint8")
    cropped = transforms.RandomCrop((6, 8), pad=3, pad_value=7)(x).asnumpy()
    padded = np.pad(IMAGE.astype("uint8"), ((3, 3), (3, 3), (0, 0)), constant_values=7)
    places = [(i, j) for i in range(7) for j in range(7) if np.array_equal(padded[i:i + 8, j:j + 6], cropped)]
    assert cropped.shape == (8, 6, 3) and places


def test_compose_joins_neighbours_that_are_hybrid():
    steps = [transforms.Resize(4), transforms.CenterCrop(3), transforms.ToTensor(), transforms.Normalize(0.5, 0.5)]
    whole = transforms.Compose(steps)
    assert [type(block).__name__ for block in whole] == ["Resize", "CenterCrop", "HybridSequential"] and len(steps) == 4
    together = transforms.HybridCompose(steps[2:])
    np.testing.assert_allclose(applied(together)[0], (IMAGE.transpose(2, 0, 1) / 255 - 0.5) / 0.5, rtol=1e-4, atol=1e-6)
    with pytest.raises(DTypeError, match=r"HybridCompose: CenterCrop is not a HybridBlock\. Use Compose"):
        transforms.HybridCompose(steps)


@pytest.mark.parametrize("make, message", [
    (lambda: transforms.RandomRotation((5, 5)), r"angle_limits=\(5, 5\) must be \(smaller, larger\)"),
    (lambda: transforms.RandomRotation((0, 5), rotate_with_proba=2), "rotate_with_proba=2 must be in 0 … 1")])
def test_parameters_are_checked(make, message):
    with pytest.raises(ParameterError, match=message):
        make()


def test_rotation_needs_floats():
    with pytest.raises(DTypeError, match=r"imrotate: src is uint8\[3,4,4\].*astype\('float32'\)"):
        transforms.Rotate(3)(mx.nd.zeros((3, 4, 4), dtype="uint8"))
