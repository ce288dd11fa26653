"""The bundled digits: their bytes, and the split."""

import hashlib

import numpy as np
import pytest
from tritium.examples.digits import RECORDS, load_digits
from tritium.examples.pack_digits import write_digits
from tritium.io import read_arrays


def test_the_file_has_the_documented_checksum():
    document = RECORDS.with_name("digits.md").read_text()
    assert hashlib.sha256(RECORDS.read_bytes()).hexdigest() in document


def test_packing_the_digits_again_gives_the_same_bytes(tmp_path):
    images, labels, _ = read_arrays(RECORDS, (8, 8))
    write_digits(tmp_path, images.astype(float), labels)
    for name in ("digits.rec", "digits.idx"):
        assert (tmp_path / name).read_bytes() == RECORDS.with_name(name).read_bytes()


def test_the_digits_equal_those_of_scikit_learn():
    datasets = pytest.importorskip("sklearn.datasets")
    digits = datasets.load_digits()
    images, labels, _ = read_arrays(RECORDS, (8, 8))
    assert np.array_equal(images, digits.images) and np.array_equal(labels, digits.target)


def test_the_split_is_fixed_disjoint_and_balanced():
    training, held_out = load_digits()
    assert training.images.shape == (1437, 1, 8, 8) and held_out.images.shape == (360, 1, 8, 8)
    assert training.images.min() >= 0 and training.images.max() == 1
    assert set(np.bincount(held_out.labels.astype(int))) <= {35, 36, 37}
    # images 0, 5, 10, ... of the sorted list are held out
    images, labels, _ = read_arrays(RECORDS, (1, 8, 8))
    ranked = sorted(range(1797), key=lambda i: (labels[i], i))
    kept = sorted(ranked[::5])
    assert np.array_equal(held_out.images, images[kept] / np.float32(16))
    assert np.array_equal(held_out.labels, labels[kept])
