"""ImageDetIter: batches against MXNet 1.9.1's (mxnet_det_image.npz), shapes, damage; random batches with the same seeds."""

import hashlib
import json
import random
from pathlib import Path

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close
from support.image_files import picture, write_records
from tritium.errors import FileError, ParameterError, ShapeError
from tritium.io.image.codec import encode
from tritium.io.records.framing import MAGIC_BYTES

HERE = Path(__file__).parent
GIVEN = dict(np.load(HERE / "mxnet_det_image.npz"))
SAID = json.loads(str(GIVEN["json"]))
JPEGS = [np.load(HERE / "mxnet_images.npz")[f"jpeg{i}"].tobytes() for i in range(10)]


def objects_of(i):
    return [4, 6, 9, 9] + [v for k in range(1 + i % 3) for v in (k, 0.113 + 0.1 * k, 0.217, 0.523 + 0.1 * k, 0.611 + 0.03 * i, i)]


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    path = tmp_path_factory.mktemp("records") / "a.rec"
    write_records(path, JPEGS, [objects_of(i) for i in range(10)])
    return path


def iterator(path, **kw):
    return mx.image.ImageDetIter(**{"path_imgrec": path, "batch_size": 4, "data_shape": (3, 24, 28), "inter_method": 1, **kw})


@pytest.mark.parametrize("case", SAID["iterators"])
def test_batches_are_mxnets(records, case):
    random.seed(5)
    np.random.seed(5)
    it = iterator(records, **SAID["iterators"][case])
    got = []
    for _ in range(2):
        for b in it:
            assert_close(b.label[0], GIVEN[f"batch.{case}.{len(got)}"])
            got.append([hashlib.sha256(b.data[0].asnumpy().tobytes()).hexdigest()[:16], b.pad])
        it.reset()
    want = SAID["batches"][case]
    if case == "roll_over":  # MXNet counts the images that rolled over as pad
        want = [[digest, 0] for digest, _ in want]
    assert got == want


def test_labels_are_the_objects_padded_with_minus_one(records):
    it = iterator(records)
    assert it.provide_label == [("label", (4, 3, 6))] and it.label_shape == (3, 6)
    for b, first in zip(it, (0, 4, 8)):
        for row, objects in enumerate(b.label[0].asnumpy()):
            i = (first + row) % 10
            count = 1 + i % 3
            assert np.allclose(objects[:count].ravel(), objects_of(i)[4:]) and (objects[count:] == -1).all()


def test_reshape_and_sync_label_shape(records, tmp_path):
    it = iterator(records)
    it.reshape(data_shape=(3, 30, 32), label_shape=(5, 6))
    batch = next(it)
    assert batch.data[0].shape == (4, 3, 30, 32) == it.provide_data[0].shape and batch.label[0].shape == (4, 5, 6)
    write_records(tmp_path / "b.rec", JPEGS[:1], [objects_of(0)])
    other = iterator(tmp_path / "b.rec", batch_size=1)
    assert other.label_shape == (1, 6)
    assert it.sync_label_shape(other) is other and other.label_shape == (5, 6) == it.label_shape
    assert other.sync_label_shape(it).label_shape == (5, 6)
    for wrong in ((4, 6), (7, 5), (7,)):
        with pytest.raises(ShapeError, match=r"label_shape=.* must be \(objects, 6\) with 5 objects or more"):
            it.reshape(label_shape=wrong)
    with pytest.raises(ParameterError, match="it is a ImageIter, not an ImageDetIter"):
        it.sync_label_shape(mx.image.ImageIter(4, (3, 24, 28), label_width=10, path_imgrec=tmp_path / "b.rec"))


def test_from_files_and_lists(records, tmp_path):
    for i in range(3):
        (tmp_path / f"{i}.png").write_bytes(encode(picture(i, 24, 28), 1, ".png"))
    lines = [f"{i}\t" + "\t".join(map(str, objects_of(i))) + f"\t{i}.png\n" for i in range(3)]
    (tmp_path / "a.lst").write_text("".join(lines))
    for given in ({"path_imglist": tmp_path / "a.lst"}, {"imglist": [[objects_of(i), f"{i}.png"] for i in range(3)]}):
        it = iterator(None, path_root=tmp_path, batch_size=3, **given)
        batch = next(it)
        assert it.label_shape == (3, 6)
        assert np.array_equal(batch.data[0].asnumpy()[2], picture(2, 24, 28).transpose(2, 0, 1))
    listed = iterator(records, path_imglist=tmp_path / "a.lst", on_error="skip", batch_size=3)
    assert next(listed).label[0].asnumpy()[:, 0, 5].tolist() == [0, 1, 2] and listed.label_shape == (3, 6)


def test_long_labels_and_split_records_are_counted(tmp_path):
    magic = np.frombuffer(MAGIC_BYTES, "f")[0]
    many = [2, 5] + [1, 0.1, 0.1, 0.5, 0.5] * 400
    split = [3, 5, magic, 1, 0.1, 0.2, 0.5, 0.6]  # the bytes of a label are the magic, so the record is split there
    write_records(tmp_path / "a.rec", JPEGS[:1], [many])
    assert iterator(tmp_path / "a.rec", batch_size=1).label_shape == (400, 5)
    write_records(tmp_path / "a.rec", JPEGS[:1], [split])
    assert_close(next(iterator(tmp_path / "a.rec", batch_size=1)).label[0], np.array(split[3:], "f").reshape(1, 1, 5))


def test_labels_that_are_not_objects_are_named_or_skipped(tmp_path):
    good = objects_of(0)
    bad = {"its 6 labels are not objects": [2, 4, 1, 1, 1, 1], "its 2 labels are not": [1, 5],
           "its 3 labels are not": [float("nan"), 5, 1],
           "none of its objects has a width and a height": [2, 5, 1, 0.5, 0.1, 0.1, 0.5]}
    for message, labels in bad.items():
        offsets = write_records(tmp_path / "a.rec", JPEGS[:3], [good, labels, good])
        with pytest.raises(FileError, match=rf"^ImageDetIter: .*a\.rec: record 1 at byte {offsets[1]:,}: {message}"):
            iterator(tmp_path / "a.rec")
        it = iterator(tmp_path / "a.rec", on_error="skip")
        batch = next(it)
        assert batch.pad == 2 and len(it.skipped) == 1 and message in it.skipped[0]
    write_records(tmp_path / "a.rec", JPEGS[:1], [[2, 4, 1]])
    with pytest.raises(FileError, match=r"no image has objects\. .*record 0 at byte 0: its 3 labels are not objects"):
        iterator(tmp_path / "a.rec", on_error="skip")
    write_records(tmp_path / "a.rec", JPEGS[:2], [good, [2, 5, 1, 0.1, 0.1, 0.5, 0.5]])
    with pytest.raises(FileError, match=r"record 1 at byte .*: its objects have 5 numbers, other objects 6"):
        iterator(tmp_path / "a.rec")


def test_a_damaged_image_is_named(tmp_path):
    offsets = write_records(tmp_path / "a.rec", [JPEGS[0], JPEGS[1][:300]], [objects_of(0), objects_of(1)])
    with pytest.raises(FileError, match=rf"^ImageDetIter: .*record 1 at byte {offsets[1]:,}: imdecode: the JPEG image of"):
        next(iterator(tmp_path / "a.rec"))


def test_drawn(records):
    shown = list(iterator(records, mean=True, std=True).draw_next(color=(255, 0, 0), thickness=1, mean=True, std=True,
                                                                  id2labels={0: "a"}))
    assert len(shown) == 10 and all(s.shape == (24, 28, 3) and s.dtype == np.uint8 for s in shown)
    plain = next(iterator(records)).data[0].asnumpy()[0].transpose(1, 2, 0)
    changed = np.abs(shown[0].astype(int) - plain).max(axis=2) > 2
    rows, columns = np.nonzero(changed)
    assert (rows.min(), columns.min()) == (int(0.217 * 24), int(0.113 * 28)), "the frame is drawn around the object"
    assert shown[0][rows.min(), columns.min()].tolist() == [255, 0, 0]
