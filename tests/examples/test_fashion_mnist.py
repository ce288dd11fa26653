"""Fashion-MNIST from its idx files and packed by im2rec. These tests are nightly, and are skipped without the data."""

import hashlib
from pathlib import Path

import pytest
import tritium as mx
from click.testing import CliRunner
from tritium.cli import commands
from tritium.examples.train_fashion_mnist import idx_iterators, record_iterators, train
from tritium.io.image.codec import encode
from tritium.io.iterators.mnist_iter import read_idx

FOLDER = Path("/usr/share/datasets/fashion-mnist")


@pytest.mark.nightly
@pytest.mark.skipif(not FOLDER.exists(), reason="Debian's package dataset-fashion-mnist is not installed")
def test_batches_equal_those_of_mxnet():
    """Two epochs of the test images in order. MXNet 1.9.1 gave this digest for the same files, unpacked."""
    it = mx.io.MNISTIter(FOLDER / "t10k-images-idx3-ubyte.gz", FOLDER / "t10k-labels-idx1-ubyte.gz", 96, shuffle=False)
    digest = hashlib.sha256()
    for _ in range(2):
        for b in it:
            digest.update(b.data[0].asnumpy().tobytes() + b.label[0].asnumpy().tobytes() + str(b.pad).encode())
        it.reset()
    assert digest.hexdigest() == "7ffdfffb879e42d21b21fa640ae7697ea6dd4e5393319b21a85e077c4a4df5fb"


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.skipif(not FOLDER.exists(), reason="Debian's package dataset-fashion-mnist is not installed")
def test_lenet_learns_clothes_from_the_idx_files():
    assert train(idx_iterators(FOLDER, 64)) >= 0.88


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.skipif(not FOLDER.exists(), reason="Debian's package dataset-fashion-mnist is not installed")
def test_lenet_learns_clothes_from_packed_images(tmp_path):
    for name, short in (("train", "train"), ("t10k", "test")):
        images, labels = read_idx(FOLDER / f"{name}-images-idx3-ubyte.gz"), read_idx(FOLDER / f"{name}-labels-idx1-ubyte.gz")
        for label in range(10):
            (tmp_path / name / str(label)).mkdir(parents=True)
        for i, (image, label) in enumerate(zip(images, labels)):
            (tmp_path / name / str(label) / f"{i:05d}.png").write_bytes(encode(image, 1, ".png"))
        for flags in (["--list", "--recursive"], ["--pass-through"]):
            done = CliRunner().invoke(commands.main, ["im2rec", *flags, str(tmp_path / short), str(tmp_path / name)])
            assert done.exit_code == 0, done.output
    assert train(record_iterators(tmp_path, 64)) >= 0.88
