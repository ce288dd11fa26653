"""MNISTIter: idx files, plain and gzipped, shuffled, in parts; damage is refused."""

import gzip
import struct

import numpy as np
import pytest
from tritium.errors import FileError, ParameterError
from tritium.io import MNISTIter
from tritium.io.iterators.mnist_iter import read_idx


def idx(array):
    """Return the bytes of an idx file."""
    return struct.pack(f">{1 + array.ndim}I", 0x0800 + array.ndim, *array.shape) + array.tobytes()


IMAGES = (np.arange(10 * 4 * 5) % 251).astype(np.uint8).reshape(10, 4, 5)
LABELS = np.arange(10, dtype=np.uint8)


@pytest.fixture
def files(tmp_path):
    (tmp_path / "images").write_bytes(idx(IMAGES))
    (tmp_path / "labels.gz").write_bytes(gzip.compress(idx(LABELS)))
    return {"image": tmp_path / "images", "label": tmp_path / "labels.gz"}


def epoch(it):
    batches = [(b.data[0].asnumpy(), b.label[0].asnumpy(), b.pad) for b in it]
    it.reset()
    return batches


@pytest.mark.parametrize("flat, shape", [(False, (3, 1, 4, 5)), (True, (3, 20))])
def test_unshuffled_batches_are_mxnets(files, flat, shape):
    it = MNISTIter(**files, batch_size=3, shuffle=False, flat=flat, silent=True)
    assert it.provide_data == [("data", shape)] and it.provide_label == [("softmax_label", (3,))]
    for _ in range(2):
        batches = epoch(it)
        assert len(batches) == 3  # the tenth image is skipped
        for i, (data, label, pad) in enumerate(batches):
            assert np.array_equal(data, (IMAGES[3 * i : 3 * i + 3] / 256).astype(np.float32).reshape(shape))
            assert label.tolist() == [3 * i, 3 * i + 1, 3 * i + 2] and pad == 0


def test_each_epoch_has_a_new_order_that_the_seed_determines(files):
    def orders(seed):
        it = MNISTIter(**files, batch_size=5, seed=seed)
        return [[int(v) for _, label, _ in epoch(it) for v in label] for _ in range(4)]

    first = orders(3)
    assert all(sorted(o) == list(range(10)) for o in first)
    assert len({tuple(o) for o in first}) == 4
    assert first == orders(3) != orders(4)


def test_parts_are_disjoint_and_give_equally_many_batches(files):
    parts = [MNISTIter(**files, batch_size=1, num_parts=3, part_index=i) for i in range(3)]
    labels = [[int(label[0]) for _, label, _ in epoch(it)] for it in parts]
    assert [len(p) for p in labels] == [3, 3, 3]
    assert len({v for p in labels for v in p}) == 9


@pytest.mark.parametrize("parts, batch_size", [(1, 20), (3, 4), (4, 3), (12, 1), (12, 3)])
def test_a_part_smaller_than_a_batch_gives_one_padded_batch(files, parts, batch_size):
    iterators = [MNISTIter(**files, batch_size=batch_size, num_parts=parts, part_index=i) for i in range(parts)]
    for _ in range(2):
        epochs = [epoch(it) for it in iterators]
        assert [len(batches) for batches in epochs] == [1] * parts, "all parts give equally many batches"
        seen = [int(v) for (_, label, pad), in epochs for v in label[:batch_size - pad]]
        assert sorted(seen) == list(range(10))


@pytest.mark.parametrize("bytes_, message", [
    (b"", "not as an idx file of bytes"),
    (b"PNG!", "begins with 50 4e 47 21, not as an idx file"),
    (struct.pack(">II", 0x0803, 1), "ends inside its header, which takes 16 bytes"),
    (struct.pack(">IIII", 0x0803, 2**32 - 1, 2**32 - 1, 2**32 - 1), "and has 0"),
    (idx(IMAGES)[:-1], "200 bytes, and has 199"),
    (idx(IMAGES) + b"x", "200 bytes, and has more"),
    (gzip.compress(idx(IMAGES))[:-9], "is damaged"),
    (gzip.compress(struct.pack(">II", 0x0801, 2**31) + bytes(10)), r"2,147,483,648 bytes, and has 10"),
], ids=["empty", "no idx", "half a head", "no items", "one byte less", "one byte more", "half a gzip", "no room"])
def test_damaged_idx_files_are_refused(tmp_path, bytes_, message):
    (tmp_path / "f").write_bytes(bytes_)
    with pytest.raises(FileError, match=message):
        read_idx(tmp_path / "f")


def test_other_refusals(files):
    with pytest.raises(FileError, match=r"Images are \[n, rows, columns\], labels \[n\]"):
        MNISTIter(files["label"], files["image"], batch_size=1)
    with pytest.raises(ParameterError, match=r"dtype=.* is not supported\. Batches are float32"):
        MNISTIter(**files, batch_size=2, dtype="uint8")
