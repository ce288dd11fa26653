"""Appender: the file holds complete pieces only, also when the disk is full. Oracle: the joined pieces."""

import contextlib
import os

import numpy as np
import pytest
from tritium.errors import FileError
from tritium.io.image.codec import encode
from tritium.io.image.im2rec import pack_list
from tritium.io.records import appender
from tritium.io.records.appender import Appender
from tritium.recordio import MXIndexedRecordIO, MXRecordIO, pack

resource = pytest.importorskip("resource")


@contextlib.contextmanager
def room_for(nbytes):
    """Limit the files of this process to nbytes, which a writer sees as a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_pieces_are_joined(tmp_path, monkeypatch):
    monkeypatch.setattr(appender, "_FLUSH_BYTES", 64)
    file, pieces = Appender(str(tmp_path / "f"), "piece"), [os.urandom(n) for n in range(40)]
    for piece in pieces:
        if file.append(piece):
            file.flush()
    file.flush()
    file.close()
    assert (tmp_path / "f").read_bytes() == b"".join(pieces)


def test_a_full_disk_keeps_complete_pieces_and_the_error_names_them(tmp_path):
    path = tmp_path / "f"
    file = Appender(str(path), "piece")
    file.append(b"a" * 100)
    file.append(b"b" * 100)
    file.flush()
    file.append(b"c" * 200)
    file.append(b"d" * 200)
    with room_for(350), pytest.raises(FileError) as e:
        file.flush()
    assert str(e.value) == (f"{path}: piece 2 at byte 200 cannot be written: File too large. The 2 before it are in the file, "
                            f"the 2 from it on are not.")
    assert path.read_bytes() == b"a" * 100 + b"b" * 100


def test_a_forked_child_does_not_write_its_parents_buffer(tmp_path):
    file = Appender(str(tmp_path / "f"), "piece")
    file.append(b"once")
    child = os.fork()
    if not child:
        try:
            file.flush()
            file.close()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    file.flush()
    file.close()
    assert (tmp_path / "f").read_bytes() == b"once"


@pytest.mark.parametrize("ahead", [1, 700, 1 << 20], ids=["every record", "a few", "at close"])
def test_records_on_a_full_disk_end_with_a_complete_record(tmp_path, monkeypatch, ahead):
    monkeypatch.setattr(appender, "_FLUSH_BYTES", ahead)
    rec, idx = tmp_path / "f.rec", tmp_path / "f.idx"
    records = [pack((0, float(i), i, 0), bytes([i]) * 150) for i in range(40)]
    file = MXIndexedRecordIO(idx, rec, "w")
    with room_for(3000), pytest.raises(FileError, match=r"f\.rec: record \d+ at byte [\d,]+ cannot be written: File too large"):
        for i, record in enumerate(records):
            file.write_idx(i, record)
        file.close()
    file.close()  # again, without an error
    with pytest.raises(FileError, match="the file is closed"):
        file.write(b"more")
    kept = idx.read_text().splitlines()
    with MXRecordIO(rec, "r") as whole:
        got = list(iter(whole.read, None))
    assert got == records[:len(got)] and len(got) == len(kept) == {1: 16, 700: 16, 1 << 20: 0}[ahead]
    if kept:
        with MXIndexedRecordIO(idx, rec, "r") as again:
            assert [again.read_idx(i) for i in again.keys] == got


def test_an_index_on_a_full_disk_ends_with_a_complete_line(tmp_path):
    file = MXIndexedRecordIO(tmp_path / "f.idx", tmp_path / "f.rec", "w", key_type=str)
    file.write_idx("k" * 400, b"small")
    with room_for(300), pytest.raises(FileError, match=r"f\.idx: line 0 at byte 0 cannot be written: File too large"):
        file.close()
    assert (tmp_path / "f.idx").read_bytes() == b""
    with MXRecordIO(tmp_path / "f.rec", "r") as whole:
        assert whole.read() == b"small"


def test_im2rec_on_a_full_disk_leaves_no_file_and_blames_no_image(tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    (tmp_path / "a.png").write_bytes(encode(noise, 3, ".png"))
    (tmp_path / "a.lst").write_text("0\t1\ta.png\n")
    with room_for(1000), pytest.raises(FileError, match="record 0 at byte 0 cannot be written: File too large"):
        pack_list(tmp_path / "a.lst", tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.lst", "a.png"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no such device here")
def test_a_device_that_cannot_be_truncated(tmp_path):
    file = MXRecordIO("/dev/full", "w")
    file.write(b"x")
    with pytest.raises(FileError, match="/dev/full: record 0 at byte 0 cannot be written: No space left on device"):
        file.close()
