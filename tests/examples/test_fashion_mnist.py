"""Fashion-MNIST as its package installs it: long, so nightly, and only where the data are."""

from pathlib import Path

import pytest
from tritium.examples.train_fashion_mnist import idx_iterators, train

FOLDER = Path("/usr/share/datasets/fashion-mnist")


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.skipif(not FOLDER.exists(), reason="Debian's package dataset-fashion-mnist is not installed")
def test_lenet_learns_clothes_from_the_idx_files():
    assert train(idx_iterators(FOLDER, 64)) >= 0.88
