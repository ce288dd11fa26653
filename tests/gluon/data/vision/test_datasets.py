"""Datasets of images from local files: MNIST's and CIFAR's formats, record files, folders, lists. Oracle: the written values."""

import gzip
import io
import struct
import tarfile

import numpy as np
import pytest
import tritium as mx
from tritium.errors import FileError
from tritium.gluon.data import vision

PIXELS = (np.arange(3 * 28 * 28) * 7 % 251).astype(np.uint8).reshape(3, 28, 28)
LABELS = np.array([4, 9, 0], np.uint8)


def idx(values):
    return struct.pack(f">{1 + values.ndim}I", 0x0800 + values.ndim, *values.shape) + values.tobytes()


@pytest.mark.parametrize("dataset", [vision.MNIST, vision.FashionMNIST])
@pytest.mark.parametrize("kind", ["train", "t10k"])
def test_mnist_files(tmp_path, dataset, kind):
    (tmp_path / f"{kind}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(PIXELS)))
    (tmp_path / f"{kind}-labels-idx1-ubyte").write_bytes(idx(LABELS))  # unpacked files serve too
    data = dataset(str(tmp_path), train=kind == "train")
    assert len(data) == 3
    image, label = data[1]
    assert isinstance(image, mx.nd.NDArray) and image.dtype == np.uint8 and label.dtype == np.int32 and label == 9
    np.testing.assert_array_equal(image.asnumpy(), PIXELS[1][..., None])
    halved = dataset(str(tmp_path), kind == "train", lambda x, y: (x.astype("float32") / 2, y + 1))
    assert halved[2][0].dtype == np.float32 and halved[2][1] == 1


@pytest.mark.parametrize("dataset, train, names, labels", [
    (vision.CIFAR10, True, [f"data_batch_{i}.bin" for i in range(1, 6)], 1), (vision.CIFAR10, False, ["test_batch.bin"], 1),
    (vision.CIFAR100, True, ["train.bin"], 2), (vision.CIFAR100, False, ["test.bin"], 2)])
@pytest.mark.parametrize("packed", [False, True], ids=["files", "archive"])
def test_cifar_files(tmp_path, dataset, train, names, labels, packed):
    row = labels + 3072
    contents = {name: (np.arange(2 * row) * 11 % 253 + i).astype(np.uint8).reshape(2, row) for i, name in enumerate(names)}
    if packed:
        with tarfile.open(tmp_path / dataset._archive, "w:gz") as tar:
            for name, rows in contents.items():
                member = tarfile.TarInfo(f"a-folder/{name}")
                member.size = rows.size
                tar.addfile(member, io.BytesIO(rows.tobytes()))
    else:
        for name, rows in contents.items():
            (tmp_path / name).write_bytes(rows.tobytes())
    rows = np.concatenate(list(contents.values()))
    for column in range(labels):
        data = dataset(str(tmp_path), train=train, **({"fine_label": bool(column)} if labels == 2 else {}))
        assert len(data) == len(rows)
        for i in range(len(rows)):
            image, label = data[i]
            assert label == rows[i, column] and label.dtype == np.int32 and image.shape == (32, 32, 3)
            for c in range(3):
                np.testing.assert_array_equal(image.asnumpy()[..., c].ravel(), rows[i, labels + 1024 * c:labels + 1024 * (c + 1)])


@pytest.mark.parametrize("dataset, message", [
    (vision.MNIST, r"MNIST: there is no file .*train-labels-idx1-ubyte\.gz\. Nothing is downloaded: get it from http"),
    (vision.CIFAR10, r"CIFAR10: there is no file .*data_batch_1\.bin or .*cifar-10-binary\.tar\.gz\. Nothing is downloaded")])
def test_a_missing_file_is_named(tmp_path, dataset, message):
    with pytest.raises(FileError, match=message):
        dataset(str(tmp_path / "new"))


def test_damaged_files_are_refused(tmp_path):
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx(PIXELS))
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(LABELS[:2]))
    with pytest.raises(FileError, match=r"MNIST: .* holds uint8\[3, 28, 28\] and .* uint8\[2\]"):
        vision.MNIST(str(tmp_path))
    (tmp_path / "test.bin").write_bytes(b"\0" * 3073)
    with pytest.raises(FileError, match="has 3,073 bytes, which is not a number of samples of 3,074 bytes"):
        vision.CIFAR100(str(tmp_path), train=False)
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(b"no archive")
    with pytest.raises(FileError, match="cannot be read as a tar archive"):
        vision.CIFAR10(str(tmp_path))


IMAGE = np.stack([np.full((6, 5), v, np.uint8) for v in (30, 90, 200)], axis=2)


def png(pixels):
    cv2 = pytest.importorskip("cv2")
    return cv2.imencode(".png", pixels[..., ::-1])[1].tobytes()


def test_image_records(tmp_path):
    record = mx.recordio.MXIndexedRecordIO(str(tmp_path / "a.idx"), str(tmp_path / "a.rec"), "w")
    record.write_idx(7, mx.recordio.pack(mx.recordio.IRHeader(0, 3.0, 7, 0), png(IMAGE)))
    record.write_idx(9, mx.recordio.pack(mx.recordio.IRHeader(0, [1.0, 2.0], 9, 0), png(IMAGE[::-1])))
    record.close()
    data = vision.ImageRecordDataset(str(tmp_path / "a.rec"))
    assert len(data) == 2 and data[0][1] == 3 and list(data[1][1]) == [1, 2]
    np.testing.assert_array_equal(data[1][0].asnumpy(), IMAGE[::-1])
    gray = vision.ImageRecordDataset(str(tmp_path / "a.rec"), flag=0, transform=lambda x, y: (x.shape, y))
    assert gray[0] == ((6, 5, 1), 3)
    images = vision.ImageRecordDataset(str(tmp_path / "a.rec"), transform=lambda x, y: x)
    loader = mx.gluon.data.DataLoader(images, 2, num_workers=1)
    np.testing.assert_array_equal(next(iter(loader)).asnumpy(), [IMAGE, IMAGE[::-1]])  # the worker reads the file by itself


def test_image_folders(tmp_path):
    for folder, name in (("dogs", "b.png"), ("dogs", "a.PNG"), ("cats", "c.png")):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / name).write_bytes(png(IMAGE))
    (tmp_path / "dogs" / "notes.txt").write_text("")
    (tmp_path / "list.txt").write_text("")
    with pytest.warns(UserWarning) as caught:
        data = vision.ImageFolderDataset(str(tmp_path))
    assert [str(w.message).partition(": ")[2].replace(f"{tmp_path}/", "") for w in caught] == [
        "dogs/notes.txt is skipped: its name does not end with .jpg, .jpeg, .png.", "list.txt is not a folder, and is skipped."]
    assert data.synsets == ["cats", "dogs"]
    assert [(path.rpartition("/")[2], label) for path, label in data.items] == [("c.png", 0), ("a.PNG", 1), ("b.png", 1)]
    np.testing.assert_array_equal(data[2][0].asnumpy(), IMAGE)


def test_image_lists(tmp_path):
    (tmp_path / "x.png").write_bytes(png(IMAGE))
    (tmp_path / "all.lst").write_text("0\t5\tx.png\n1\t1\t2\tx.png\n")
    for given in ("all.lst", [[5, "x.png"], [1, 2, "x.png"]], [[5, "x.png"], [[1, 2], "x.png"]]):
        data = vision.ImageListDataset(str(tmp_path), given)
        assert len(data) == 2 and data[0][1] == 5.0 and data[1][1].tolist() == [1, 2]
        np.testing.assert_array_equal(data[1][0].asnumpy(), IMAGE)
