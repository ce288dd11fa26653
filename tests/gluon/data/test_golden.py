"""Samplers, datasets, batches and image transforms. Oracle: MXNet 1.9.1, in tests/golden/gluon/data_cases.json and .npz."""

import json
from pathlib import Path

import numpy as np
import pytest
import tritium as mx
from golden.gluon import data_cases as cases
from support.helpers import assert_close

STORED = json.loads(Path(cases.__file__).with_suffix(".json").read_text())
IMAGES = np.load(Path(cases.__file__).with_suffix(".npz"))


def test_batches_of_three_epochs_are_mxnets():
    assert json.loads(json.dumps(cases.batches(mx), default=int)) == STORED["batches"]


def test_datasets_hold_mxnets_samples():
    assert json.loads(json.dumps(cases.datasets(mx), default=int)) == STORED["datasets"]


def test_batches_have_mxnets_shapes_and_dtypes():
    assert cases.batch_forms(mx) == STORED["forms"]


@pytest.mark.parametrize("name", IMAGES.files)
def test_transforms_give_mxnets_images(name):
    found, wanted = cases.transformed(mx, name), IMAGES[name]
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    if name in ("resize 2", "resize 4"):  # versions of OpenCV round the weights of cubic and Lanczos interpolation differently
        assert np.abs(found.astype(int) - wanted).max() <= 1
    elif wanted.dtype == np.uint8:
        np.testing.assert_array_equal(found, wanted)
    else:
        assert_close(found, wanted)


RANDOM = np.load(Path(cases.__file__).with_name("random_transforms.npz"))

#: {name of the transform: (operator, the range of its one factor)}
FACTORS = {"brightness": ("random_brightness", 0.7, 1.3), "contrast": ("random_contrast", 0.5, 1.5),
           "hue": ("random_hue", 0.7, 1.3), "color_jitter": ("random_brightness", 0.6, 1.4)}


def nearest_factor(image_of, wanted, low, high):
    """Return the factor whose image is the nearest, found on finer and finer grids."""
    for _ in range(6):
        grid = np.linspace(low, high, 33)
        best = grid[np.argmin([np.abs(image_of(a).astype("float64") - wanted).sum() for a in grid])]
        step = (high - low) / 32
        low, high = max(low, best - step), min(high, best + step)
    return best


@pytest.mark.parametrize("name", [n for n in RANDOM.files if n.split()[0] in FACTORS])
def test_images_of_mxnets_random_transforms_are_those_of_a_factor_in_the_range(name):
    operator, low, high = FACTORS[name.split()[0]]
    x = mx.nd.array(cases.picture(8, 6), dtype=name.split()[1])

    def image_of(a):
        return getattr(mx.nd.image, operator)(x, float(a), float(a)).asnumpy()

    for wanted in RANDOM[name]:
        found = image_of(nearest_factor(image_of, wanted, low, high))
        assert found.dtype == wanted.dtype
        # the factor is known to 1e-6 of its range, and the image has values up to 255
        np.testing.assert_allclose(found.astype("float64"), wanted, rtol=0, atol=1 if found.dtype == np.uint8 else 1e-3)


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_mxnets_random_light_is_a_sum_of_three_components(dtype):
    x = mx.nd.array(cases.picture(8, 6), dtype="float32")
    plain = mx.nd.image.adjust_lighting(x, alpha=(0, 0, 0)).asnumpy()
    parts = np.stack([mx.nd.image.adjust_lighting(x, alpha=tuple(float(i == k) for i in range(3))).asnumpy() - plain
                      for k in range(3)])[:, 4, 3]
    for wanted in RANDOM[f"lighting {dtype}"]:
        inner = ((wanted > 3) & (wanted < 252)).all(axis=2)  # not clipped
        added = (wanted.astype("float64") - plain)[inner].mean(axis=0)
        alpha = np.linalg.solve(parts.T.astype("float64"), added)
        found = mx.nd.image.adjust_lighting(x.astype(dtype), alpha=tuple(alpha.tolist())).asnumpy()
        assert found.dtype == wanted.dtype and np.abs(alpha).max() < 1  # five deviations of 0.2
        np.testing.assert_allclose(found.astype("float64"), wanted, rtol=0, atol=1 if dtype == "uint8" else 1e-3)


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("name, axis", [("flip_left_right", 1), ("flip_top_bottom", 0)])
def test_mxnets_flips_are_ours(name, axis, dtype):
    image = cases.picture(8, 6, dtype)
    x = mx.nd.array(image, dtype=dtype)
    flip = getattr(mx.nd.image, name)(x).asnumpy()
    turned = [np.array_equal(wanted, flip) for wanted in RANDOM[f"{name} {dtype}"]]
    assert all(is_turned or np.array_equal(wanted, image) for is_turned, wanted in zip(turned, RANDOM[f"{name} {dtype}"]))
    assert any(turned) and not np.array_equal(flip, image)
