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
