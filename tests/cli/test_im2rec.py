"""`tritium im2rec`: lists as MXNet's im2rec writes them, records, damage, the same bytes with any number of threads."""

import errno
import os
import random
import subprocess
import sys

import numpy as np
import pytest
import tritium as mx
from click.testing import CliRunner
from support.image_files import picture
from tritium.cli import commands
from tritium.io.image import codec as decoding
from tritium.io.image.codec import decode, encode
from tritium.io.records import appender
from tritium.recordio import IRHeader, MXIndexedRecordIO, pack, unpack


def run(*arguments):
    result = CliRunner().invoke(commands.main, ["im2rec", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.fixture
def folder(tmp_path):
    """root/b/{0,1}.jpg, root/a/{0,1,2}.png, root/a/deep/0.jpg, and a text."""
    root = tmp_path / "root"
    for i, name in enumerate(["a/0.png", "a/1.png", "a/2.png", "a/deep/0.jpg", "b/0.jpg", "b/1.JPG"]):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        form = name[-4:].lower()
        (root / name).write_bytes(encode(picture(i), 90 if form == ".jpg" else 1, form))
    (root / "a" / "notes.txt").write_text("no image")
    return root


def test_lists(folder, tmp_path):
    assert run("--list", "--recursive", tmp_path / "p", folder).exit_code == 0
    rows = [line.split("\t") for line in (tmp_path / "p.lst").read_text().splitlines()]
    names = ["a/0.png", "a/1.png", "a/2.png", "a/deep/0.jpg", "b/0.jpg", "b/1.JPG"]
    want = list(zip(range(6), [0, 0, 0, 1, 2, 2], names))
    random.seed(100)
    random.shuffle(want)
    assert rows == [[str(i), f"{label:.6f}", name] for i, label, name in want], "MXNet's order"
    run("--list", "--no-shuffle", tmp_path / "flat", folder / "a")
    assert (tmp_path / "flat.lst").read_text() == "".join(f"{i}\t0.000000\t{i}.png\n" for i in range(3))
    run("--list", "--recursive", "--exts", ".png", "--train-ratio", 0.34, "--test-ratio", 0.34, tmp_path / "q", folder)
    assert [len((tmp_path / f"q_{part}.lst").read_text().splitlines()) for part in ("train", "test", "val")] == [1, 1, 1]
    run("--list", "--recursive", "--chunks", 4, tmp_path / "c", folder)
    assert [len((tmp_path / f"c_{i}.lst").read_text().splitlines()) for i in range(4)] == [2, 2, 2, 0]


def test_records_have_the_order_of_the_list_with_any_number_of_threads(folder, tmp_path):
    (tmp_path / "p.lst").write_text("7\t1\t2\ta/1.png\n3\t5\t6\tb/0.jpg\n")
    contents = []
    for threads in (1, 3):
        result = run("--num-thread", threads, "--encoding", ".png", "--quality", 3, "--pack-label", tmp_path / "p", folder)
        assert result.exit_code == 0 and "p.rec: 2 records" in result.output
        contents.append((tmp_path / "p.rec").read_bytes() + (tmp_path / "p.idx").read_bytes())
    assert contents[0] == contents[1]
    with MXIndexedRecordIO(tmp_path / "p.idx", tmp_path / "p.rec", "r") as records:
        assert records.keys == [7, 3]
        header, data = unpack(records.read_idx(7))
        assert header.label.tolist() == [1, 2] and header.id == 7
        assert np.array_equal(decode(data), picture(1))
    it = mx.io.ImageRecordIter(path_imgrec=tmp_path / "p.rec", path_imgidx=tmp_path / "p.idx", data_shape=(3, 40, 50),
                               batch_size=2, label_width=2)
    assert next(it).label[0].asnumpy().tolist() == [[1, 2], [5, 6]]
    assert not [f for f in os.listdir(tmp_path) if f.endswith(".part")]


def first(path):
    with MXIndexedRecordIO(path.with_suffix(".idx"), path, "r") as records:
        return unpack(records.read())


@pytest.mark.parametrize("flags, shape", [
    (["--resize", 20], (20, 25, 3)), (["--center-crop"], (40, 40, 3)), (["--resize", 20, "--center-crop"], (20, 20, 3)),
    (["--color", "0"], (40, 50, 1)), ([], (40, 50, 3)),
])
def test_images_are_resized_cropped_and_converted(folder, tmp_path, flags, shape):
    (tmp_path / "p.lst").write_text("0\t1\ta/1.png\n")
    run(*flags, tmp_path / "p", folder)
    header, data = first(tmp_path / "p.rec")
    assert header == (0, 1.0, 0, 0)
    assert decode(data, shape[2]).shape == shape and data[:2] == b"\xff\xd8"


def test_color_as_stored_and_pass_through(folder, tmp_path):
    grey = encode(picture(1, channels=1), 1, ".png")
    (folder / "grey.png").write_bytes(grey)
    (folder / "alpha.png").write_bytes(encode(np.dstack([picture(2), picture(3)[:, :, 0]]), 1, ".png"))
    for name, channels in (("grey.png", 1), ("alpha.png", 4)):
        (tmp_path / "p.lst").write_text(f"0\t1\t{name}\n")
        run("--color", "-1", "--encoding", ".png", "--quality", 1, tmp_path / "p", folder)
        assert np.array_equal(decode(first(tmp_path / "p.rec")[1], channels), decode((folder / name).read_bytes(), channels))
    (tmp_path / "p.lst").write_text("0\t1\tgrey.png\n")
    run("--pass-through", tmp_path / "p", folder)
    assert first(tmp_path / "p.rec")[1] == grey
    (tmp_path / "p.lst").write_text("0\t1\talpha.png\n")
    assert run("--color", "-1", tmp_path / "p", folder).exit_code == 0, "JPEG has no alpha: it is dropped"


@pytest.mark.parametrize("flags", [[], ["--pass-through"]])
def test_damaged_images_are_reported_and_the_others_are_packed(folder, tmp_path, flags):
    (folder / "half.jpg").write_bytes((folder / "b/0.jpg").read_bytes()[:500])
    (folder / "text.jpg").write_text("Dear reader")
    (tmp_path / "p.lst").write_text("0\t0\ta/1.png\n1\t1\thalf.jpg\n2\t2\ttext.jpg\n3\t3\tmissing.jpg\n4\t4\tb/0.jpg\n"
                                  "5\tb/0.jpg\n-1\t0\tb/0.jpg\n99999999999999999999\t0\tb/0.jpg\n6\t0\tb\0.jpg\n")
    result = run(*flags, "--num-thread", 3, tmp_path / "p", folder)
    assert result.exit_code == 1
    for text in ("left out half.jpg: the JPEG image of 500 bytes is damaged",
                 "left out text.jpg: these 11 bytes are not an image", "left out missing.jpg: cannot be read: No such file",
                 "left out b/0.jpg: the list has no label for it", "left out b/0.jpg: its ID -1 is out of range",
                 "its ID 99,999,999,999,999,999,999 is out of range", "cannot be read: embedded null byte",
                 "7 of 9 images of p.lst are damaged and were left out"):
        assert text in result.output
    with MXIndexedRecordIO(tmp_path / "p.idx", tmp_path / "p.rec", "r") as records:
        assert records.keys == [0, 4] and unpack(records.read_idx(4))[0].label == 4


@pytest.mark.parametrize("flags, shape", [([], (50, 40, 3)), (["--color", 0], (50, 40, 1)), (["--color", -1], (40, 50, 3)),
                                          (["--pass-through"], (40, 50, 3))])
def test_a_photograph_of_a_turned_camera_is_packed_as_opencv_reads_it(tmp_path, flags, shape):
    stored = encode(picture(0), 90, ".jpg")
    mark = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"
    (tmp_path / "a.jpg").write_bytes(stored[:2] + b"\xff\xe1" + (len(mark) + 2).to_bytes(2, "big") + mark + stored[2:])
    (tmp_path / "p.lst").write_text("0\t0\ta.jpg\n")
    assert run(*flags, tmp_path / "p", tmp_path).exit_code == 0
    with MXIndexedRecordIO(tmp_path / "p.idx", tmp_path / "p.rec", "r") as records:
        assert decode(unpack(records.read_idx(0))[1], shape[2]).shape == shape


def test_a_run_that_fails_leaves_the_old_files(folder, tmp_path):
    (tmp_path / "p.rec").write_text("old")
    (tmp_path / "p.lst").write_text("0\t0\ta/1.png\nnonsense\n")
    result = run(tmp_path / "p", folder)
    assert result.exit_code == 1 and "p.lst: line 2 is not `id<TAB>label<TAB>path`" in " ".join(result.output.split())
    assert (tmp_path / "p.rec").read_text() == "old" and not [f for f in os.listdir(tmp_path) if f.endswith(".part")]


@pytest.mark.parametrize("arguments, text", [
    (["--list", "{tmp}/p", "{root}"], "no images to list"), (["{tmp}/p", "{root}"], "exists. Write one with --list"),
    (["--list", "--recursive", "--train-ratio", "0.8", "--test-ratio", "0.3", "{tmp}/p", "{root}"], "test_ratio=0.3"),
    (["{tmp}/p", "{tmp}/nowhere"], "does not exist"),
])
def test_bad_input_is_named(folder, tmp_path, arguments, text):
    result = run(*[a.format(tmp=tmp_path, root=folder) for a in arguments])
    assert result.exit_code in (1, 2) and text in " ".join(result.output.split()), result.output


def test_without_a_terminal_it_prints_plain_lines(folder, tmp_path):
    (tmp_path / "p.lst").write_text("0\t0\ta/1.png\n")
    command = [sys.executable, "-m", "tritium", "im2rec", str(tmp_path / "p"), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "" and done.stdout.count("\n") == 1 and "1 records" in done.stdout


def contents(folder):
    """Return name -> bytes of the files in a folder."""
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}


def pack_one(prefix, folder):
    """A list of one image, packed."""
    prefix.with_suffix(".lst").write_text("5\t1\ta/1.png\n")
    assert run(prefix, folder).exit_code == 0


@pytest.mark.parametrize("flags", [[], ["--pass-through"], ["--resize", 256]], ids=str)
@pytest.mark.parametrize("missing, text", [("cv2", "im2rec: images need OpenCV."),
                                           ("simplejpeg", "im2rec: JPEG images need simplejpeg.")])
def test_without_its_libraries_it_fails_before_it_writes(folder, tmp_path, monkeypatch, flags, missing, text):
    pack_one(tmp_path / "p", folder)
    before = contents(tmp_path)
    monkeypatch.setitem(sys.modules, missing, None)
    decoding.opencv.cache_clear()
    decoding.simplejpeg.cache_clear()
    result = run(*flags, tmp_path / "p", folder)
    assert result.exit_code == 1 and contents(tmp_path) == before
    said = " ".join(result.output.split())
    assert f'{text} Install it with pip install "tritium[image]".' in said and "damaged" not in said
    assert run("--list", "--recursive", tmp_path / "q", folder).exit_code == 0, "a list needs neither"


@pytest.mark.parametrize("lines, text", [
    ("0\t1\tmissing.png\n1\t1\ta/notes.txt\n", "p.lst: none of its 2 images can be packed: missing.png: cannot be read: No such "
     "file or directory; a/notes.txt: these 8 bytes are not an image"),
    ("", "p.lst: lists no images"), ("\n \n", "p.lst: lists no images")])
def test_records_are_not_replaced_by_an_empty_file(folder, tmp_path, lines, text):
    pack_one(tmp_path / "p", folder)
    (tmp_path / "p.lst").write_text(lines)
    before = contents(tmp_path)
    result = run(tmp_path / "p", folder)
    said = " ".join(result.output.split())
    assert result.exit_code == 1 and text in said and f"{tmp_path}/p.rec and its index are unchanged." in said
    assert contents(tmp_path) == before
    for name in ("p.rec", "p.idx"):
        (tmp_path / name).unlink()
    assert run(tmp_path / "p", folder).exit_code == (1 if "missing" in lines else 0)
    assert (tmp_path / "p.rec").exists() == (tmp_path / "p.idx").exists() == ("missing" not in lines), "MXNet packs an empty list"


def test_a_list_is_not_replaced_by_an_empty_one(folder, tmp_path):
    for name in ("p_0.lst", "p_1.lst", "p_2.lst"):
        (tmp_path / name).write_text("0\t1\ta/1.png\n")
    before = contents(tmp_path)
    result = run("--list", "--chunks", 3, "--exts", ".JPG", tmp_path / "p", folder / "b")
    said = " ".join(result.output.split())
    assert result.exit_code == 1 and contents(tmp_path) == before
    assert f"{tmp_path}/p_2.lst: this list has lines now and would be empty" in said
    (tmp_path / "p_2.lst").unlink()
    assert run("--list", "--chunks", 3, "--exts", ".JPG", tmp_path / "p", folder / "b").exit_code == 0
    assert [len((tmp_path / f"p_{i}.lst").read_text().splitlines()) for i in range(3)] == [1, 1, 0]


@pytest.mark.parametrize("seed", range(20))
def test_afterwards_there_is_the_old_file_or_a_complete_new_one(folder, tmp_path, monkeypatch, seed):
    """Random lists of good and bad images over an old file or none; the disk may be full at any byte."""
    random.seed(seed)
    old = random.random() < 0.7
    if old:
        pack_one(tmp_path / "p", folder)
    good = ["a/0.png", "a/1.png", "b/0.jpg"]
    names = [random.choice(good if random.random() < 0.4 else ["missing.png", "a/notes.txt"]) for _ in range(random.randrange(6))]
    rows = list(enumerate(names))
    (tmp_path / "p.lst").write_text("".join(f"{i}\t{i}\t{name}\n" for i, name in rows))
    before, full_at, write = contents(tmp_path), random.choice([None, 0, 1]), appender.open_local

    def open_full(path, opener):
        file = write(path, opener)
        return file if full_at is None or not path.endswith(".part") else FullDisk(file, full_at)

    monkeypatch.setattr(appender, "open_local", open_full)
    result = run("--pass-through", tmp_path / "p", folder)
    after, kept = contents(tmp_path), [(i, name) for i, name in rows if name in good]
    assert set(after) - {"p.rec", "p.idx", "p.lst"} == set()
    if full_at is not None and kept:
        assert result.exit_code == 1 and after == before and "No space left" in result.output
    elif kept or not (old or rows):
        with MXIndexedRecordIO(tmp_path / "p.idx", tmp_path / "p.rec", "r") as records:
            assert records.keys == [i for i, _ in kept]
            for i, name in kept:
                assert records.read_idx(i) == pack(IRHeader(0, float(i), i, 0), (folder / name).read_bytes())
    else:
        assert result.exit_code == 1 and after == before


class FullDisk:
    """A file that takes so many bytes."""

    def __init__(self, file, room):
        self.file, self.room = file, room

    def write(self, data):
        if not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = self.file.write(data[:self.room])
        self.room -= written
        return written

    def __getattr__(self, name):
        return getattr(self.file, name)
