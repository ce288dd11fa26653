"""RecordIO: bytes against a writer that follows the format's description, damage, rebuilt indexes, headers."""

import copy
import os
import random
import struct
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tritium.errors import FileError, MissingLibraryError
from tritium.io.image.codec import opencv
from tritium.io.records import framing, recordio
from tritium.io.records.recordio import IRHeader, MXIndexedRecordIO, MXRecordIO, find_records, pack, unpack

MAGIC = bytes.fromhex("0a23d7ce")
# pieces that often give magic numbers, at multiples of four and beside them
pieces = st.lists(st.sampled_from([MAGIC, b"a", b"bc", b"wxyz", bytes(4), MAGIC[:3]]), max_size=9).map(b"".join)


def slow_frame(payload):
    """Frame one record word by word: the oracle."""
    parts, part, whole = [], b"", len(payload) // 4 * 4
    for i in range(0, whole, 4):
        if payload[i:i + 4] == MAGIC:
            parts.append(part)
            part = b""
        else:
            part += payload[i:i + 4]
    parts.append(part + payload[whole:])
    out = b""
    for i, part in enumerate(parts):
        cflag = 0 if len(parts) == 1 else 1 if i == 0 else 3 if i == len(parts) - 1 else 2
        out += MAGIC + struct.pack("<I", cflag * 2**29 + len(part)) + part + b"\0" * (-len(part) % 4)
    return out


def write(path, records):
    with MXRecordIO(path, "w") as file:
        for record in records:
            file.write(record)


def read(path):
    with MXRecordIO(path, "r") as file:
        return list(iter(file.read, None))


@given(st.lists(pieces, max_size=5))
@settings(max_examples=200, deadline=None)
def test_written_records_have_the_format_and_are_read_back(tmp_path_factory, records):
    path = tmp_path_factory.getbasetemp() / "any.rec"
    write(path, records)
    assert path.read_bytes() == b"".join(map(slow_frame, records))
    assert read(path) == records
    starts = np.cumsum([0, *(len(slow_frame(r)) for r in records)])
    assert find_records(path).tolist() == starts[:-1].tolist()


@given(pieces.filter(bool), st.data())
@settings(max_examples=200, deadline=None)
def test_a_truncated_file_gives_its_complete_records_or_an_error(tmp_path_factory, record, data):
    path = tmp_path_factory.getbasetemp() / "cut.rec"
    whole = [b"first", record]
    framed = b"".join(map(slow_frame, whole))
    cut = data.draw(st.integers(0, len(framed)))
    path.write_bytes(framed[:cut])
    complete = {0: [], len(slow_frame(b"first")): whole[:1], len(framed): whole}
    if cut in complete:
        assert read(path) == complete[cut]
        assert len(find_records(path)) == len(complete[cut])
    else:
        for reader in (read, find_records):
            with pytest.raises(FileError, match=r"cut\.rec: .*byte"):
                reader(path)


@pytest.mark.parametrize("content, text", [
    (b"PNG\r\n\x1a\n" * 4, r"bad\.rec: record 0 at byte 0 has no magic number at byte 0 .*this is not a RecordIO file"),
    (slow_frame(b"abcd") + b"garbage!", r"record 1 at byte 12 has no magic number at byte 12 .*the file is damaged"),
    (MAGIC + struct.pack("<I", 2**29 - 1) + b"abcd", r"record 0 at byte 0 is cut short: .* 4 are left"),
    (MAGIC + struct.pack("<I", 7) + b"abcd", r"record 0 at byte 0 is cut short: it takes 7 more bytes at byte 8, 4 are left"),
    (MAGIC + struct.pack("<I", 2 << 29), r"begins with a part of kind 2"),
    (MAGIC + struct.pack("<I", 5 << 29), r"begins with a part of kind 5"),
    (MAGIC + struct.pack("<I", 1 << 29), r"is cut short: its last part is missing"),
    (MAGIC + struct.pack("<I", 1 << 29) + slow_frame(b"abcd"), r"is split, and at byte 8 a part of kind 0 follows"),
    (b"\x0a\x23", r"its header takes 8 bytes, 2 are left"),
])
def test_damage_is_named(tmp_path, content, text):
    path = tmp_path / "bad.rec"
    path.write_bytes(content)
    with pytest.raises(FileError, match=text):
        read(path)
    with pytest.raises(FileError, match=r"bad\.rec: "):
        find_records(path)


def test_a_record_that_the_format_cannot_hold_is_refused(monkeypatch):
    monkeypatch.setattr(framing, "MAX_PART", 10)
    assert len(recordio.frame(bytes(10))) == 20
    with pytest.raises(FileError, match=r"a record of 11 bytes is too long: the format holds 10\. Split it"):
        recordio.frame(bytes(11))


def test_records_that_cross_the_pieces_of_a_search_are_found(tmp_path, monkeypatch):
    path = tmp_path / "long.rec"
    records = [bytes([i]) * (i % 11) + MAGIC * (i % 3) for i in range(60)]
    write(path, records)
    expected = find_records(path).tolist()
    for size in (4, 8, 12, 64):
        monkeypatch.setattr(framing, "SCAN_BYTES", size)
        assert find_records(path).tolist() == expected


def test_reset_and_flags(tmp_path):
    path = tmp_path / "a.rec"
    write(path, [b"one", b"two"])
    file = MXRecordIO(path, "r")
    assert (file.read(), file.tell()) == (b"one", 12)
    file.reset()
    assert file.read() == b"one"
    with pytest.raises(FileError, match=r"opened with flag 'r'\. Open it with 'w'"):
        file.write(b"x")
    other = copy.copy(file)  # uses __getstate__, as pickling does
    assert other.read() == b"one"
    other.close()
    file.close()
    with pytest.raises(FileError, match="is closed"):
        copy.copy(file).read()
    with pytest.raises(FileError, match="is closed"):
        file.read()


@pytest.mark.parametrize("name, flag, text", [
    ("a.rec", "a", "flag 'a' is not 'r' or 'w'"), ("none.rec", "r", r"none\.rec: cannot be opened: No such file"),
])
def test_files_that_cannot_be_opened_are_named(tmp_path, name, flag, text):
    write(tmp_path / "a.rec", [b"one"])
    with pytest.raises(FileError, match=text):
        MXRecordIO(tmp_path / name, flag)


def test_records_by_key(tmp_path):
    rec, idx = tmp_path / "a.rec", tmp_path / "a.idx"
    with MXIndexedRecordIO(idx, rec, "w") as file:
        for key in (7, 3, 5):
            file.write_idx(key, b"record" + bytes([key]))
    assert idx.read_text() == "7\t0\n3\t16\n5\t32\n"
    with MXIndexedRecordIO(idx, rec, "r") as file:
        assert file.keys == [7, 3, 5]
        assert [file.read_idx(k)[-1] for k in (5, 7, 3)] == [5, 7, 3]
        with pytest.raises(FileError, match=r"a\.rec: no record has key 4\. The index has 3 keys"):
            file.read_idx(4)


def test_a_missing_index_is_rebuilt_with_a_warning(tmp_path):
    rec = tmp_path / "a.rec"
    records = [b"x" * n + MAGIC for n in range(9)]
    write(rec, records)
    with pytest.warns(UserWarning, match=r"none\.idx: the index does not exist; rebuilt from .*a\.rec: 9 records, keys 0 to 8"):
        file = MXIndexedRecordIO(tmp_path / "none.idx", rec, "r")
    assert [file.read_idx(i) for i in reversed(range(9))] == records[::-1]
    file.close()


@pytest.mark.parametrize("index, text", [
    ("0\t0\nnonsense\n", r"a\.idx: line 2 is not `key<TAB>offset`: 'nonsense'\. Delete the index"),
    ("0\t0\n1\t400\n", r"line 2: key 1 points at byte 400 of .*a\.rec, where no record can begin \(it has 24 bytes\)"),
    ("0\t2\n", r"line 1: key 0 points at byte 2"),
    ("0\t-4\n", r"line 1: key 0 points at byte -4"),
])
def test_a_stale_index_is_named(tmp_path, index, text):
    write(tmp_path / "a.rec", [b"abcd", b"efgh"])
    (tmp_path / "a.idx").write_text(index)
    with pytest.raises(FileError, match=text):
        MXIndexedRecordIO(tmp_path / "a.idx", tmp_path / "a.rec", "r")


def test_an_index_that_points_into_a_record_gives_an_error_and_no_garbage(tmp_path):
    write(tmp_path / "a.rec", [b"abcd", b"efgh"])
    (tmp_path / "a.idx").write_text("0\t8\n")
    with MXIndexedRecordIO(tmp_path / "a.idx", tmp_path / "a.rec", "r") as file:
        with pytest.raises(FileError, match=r"record with key 0 at byte 8 has no magic number"):
            file.read_idx(0)


def test_a_repeated_key_is_reported(tmp_path):
    write(tmp_path / "a.rec", [b"abcd", b"efgh"])
    (tmp_path / "a.idx").write_text("0\t0\r\n0\t12\r\n")
    with pytest.warns(UserWarning, match=r"line 2: key 0 is repeated; the last line counts"):
        file = MXIndexedRecordIO(tmp_path / "a.idx", tmp_path / "a.rec", "r")
    assert file.read_idx(0) == b"efgh"
    file.close()


def test_header_bytes():
    assert pack(IRHeader(9, 3.0, 5, 6), b"data") == bytes.fromhex("00000000 00004040 0500000000000000 0600000000000000") + b"data"
    assert unpack(pack(IRHeader(0, 4, 2574, 0), b"s")) == (IRHeader(0, 4.0, 2574, 0), b"s")
    header, data = unpack(pack(IRHeader(0, [1, 2.5, -3], 1, 2), b"tail"))
    assert (header.flag, header.id, header.id2, data) == (3, 1, 2, b"tail")
    assert header.label.dtype == np.float32 and header.label.tolist() == [1, 2.5, -3]


@pytest.mark.parametrize("record, text", [
    (b"short", "a record of 5 bytes is shorter than the header of 24"),
    (struct.pack("<IfQQ", 2**31, 0, 7, 0) + b"abc", "record 7 has 2,147,483,648 labels, but 3 bytes follow"),
])
def test_a_record_without_a_header_is_refused(record, text):
    with pytest.raises(FileError, match=text):
        unpack(record)


def test_without_opencv_images_say_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    opencv.cache_clear()
    with pytest.raises(MissingLibraryError, match=r'images need OpenCV\. Install it with pip install "tritium\[image\]"'):
        recordio.unpack_img(pack(IRHeader(0, 1, 0, 0), b"jpeg"))
    with pytest.raises(MissingLibraryError, match="pack_img: images need OpenCV"):
        recordio.pack_img(IRHeader(0, 1, 0, 0), np.zeros((2, 2, 3), np.uint8))


def test_a_damaged_image_is_refused_instead_of_filled_with_grey():
    header, pixels = IRHeader(0, 1, 5, 0), np.dstack([np.add.outer(np.arange(60), np.arange(80)).astype(np.uint8)] * 3)
    for form in (".jpg", ".png"):
        whole = recordio.pack_img(header, pixels, 9, form)
        for iscolor, shape in ((-1, (60, 80, 3)), (0, (60, 80)), (1, (60, 80, 3))):
            assert recordio.unpack_img(whole, iscolor)[1].shape == shape
            for cut in (24, 30, len(whole) // 2, len(whole) - 13):
                with pytest.raises(FileError, match=r"^unpack_img: record 5: .*(damaged|cut short|empty|not an image)"):
                    recordio.unpack_img(whole[:cut], iscolor)


@pytest.mark.parametrize("text, want", [
    ("0\t0\n1\t12\n2\t24\n", [0, 1, 2]),
    ("0\t0\r\n1\t12\r\n2\t24\r\n", [0, 1, 2]),
    ("0\t0\n\n1\t12\n2\t24", [0, 1, 2]),
    ("7\t24\n3\t0\n5\t12\n", [7, 3, 5]),
    ("12345678901234567890123\t0\n1\t12\n", [12345678901234567890123, 1]),
    ("-1\t0\n+2\t12\n", [-1, 2]),
])
def test_plain_and_other_indexes_give_equal_keys(tmp_path, text, want):
    write(tmp_path / "a.rec", [b"abcd"] * 3)
    (tmp_path / "a.idx").write_bytes(text.encode())
    with MXIndexedRecordIO(tmp_path / "a.idx", tmp_path / "a.rec", "r") as file:
        assert file.keys == want
        assert [file.read_idx(key) for key in want] == [b"abcd"] * len(want)


@pytest.mark.parametrize("keys", [range(5), [0, 1, 2, 3, 5], [4, 1, 2, 3, 0]])
def test_a_key_may_be_any_equal_number(tmp_path, keys):
    with MXIndexedRecordIO(tmp_path / "a.idx", tmp_path / "a.rec", "w") as file:
        for key in keys:
            file.write_idx(key, b"%d" % key)
    with MXIndexedRecordIO(tmp_path / "a.idx", tmp_path / "a.rec", "r") as file:
        assert [file.read_idx(k) for k in (2, np.int64(2), np.uint8(2), 2.0)] == [b"2"] * 4
        assert file.read_idx(True) == b"1"
        for key in (-1, len(keys) + 1, np.int64(-2), "2", None, 2.5):
            with pytest.raises(FileError, match=r"no record has key .*\. The index has 5 keys"):
                file.read_idx(key)
        assert file.keys == list(keys) and list(file.idx) == list(keys)
        assert [file.idx[k] for k in keys] == [0, 12, 24, 36, 48]
        file.reset()
        assert file.read_idx(3) == b"3" and file.keys == list(keys)
    with pytest.raises(FileError, match=r"a\.rec: the file is closed"):
        file.read_idx(3)


@pytest.mark.parametrize("text", ["0\n3\t4\t5\n", "\t0\n", "0\t\n", "0\t0\n1\n", "0 0\n"])
def test_malformed_index_lines_are_named(tmp_path, text):
    write(tmp_path / "a.rec", [b"abcd"] * 3)
    (tmp_path / "a.idx").write_bytes(text.encode())
    with pytest.raises(FileError, match=r"a\.idx: line \d is not `key<TAB>offset`"):
        MXIndexedRecordIO(tmp_path / "a.idx", tmp_path / "a.rec", "r")


@given(st.lists(st.integers(0, 900).map(bytes), min_size=1, max_size=40), st.randoms())
def test_reading_ahead_by_any_size_gives_the_same_records(tmp_path_factory, records, random):
    path = tmp_path_factory.mktemp("w") / "a.rec"
    with MXIndexedRecordIO(path.with_suffix(".idx"), path, "w") as file:
        for key, record in enumerate(records):
            file.write_idx(key, record + MAGIC * random.randrange(2))
    want = read(path)
    before = recordio._AHEAD, recordio._SMALL, recordio._mapped
    try:
        recordio._AHEAD, recordio._SMALL = random.choice([1, 50, 4100, 8192]), random.choice([1, 60, 10**6])
        recordio._mapped = random.choice([before[2], lambda descriptor: None])
        assert read(path) == want
        with MXRecordIO(path, "r") as file:
            got = []
            while (record := file.read()) is not None:
                got.append(record)
                if random.random() < 0.2:
                    file.reset()
                    for _ in got:
                        file.read()
        assert got == want
        with MXIndexedRecordIO(path.with_suffix(".idx"), path, "r") as file:
            for key in random.choices(range(len(want)), k=len(want)):
                assert file.read_idx(key) == want[key]
                assert file.tell() == (file.idx[key + 1] if key + 1 < len(want) else path.stat().st_size)
                if random.random() < 0.5:
                    assert file.read() == (want[key + 1] if key + 1 < len(want) else None)
    finally:
        recordio._AHEAD, recordio._SMALL, recordio._mapped = before


def test_a_forked_child_reads_from_its_own_position(tmp_path, monkeypatch):
    monkeypatch.setattr(recordio, "_AHEAD", 4096)  # filled several times, in either process
    records = [bytes([i]) * 248 for i in range(100)]  # 256 with its header: at equal offsets in every page
    write(tmp_path / "a.rec", records)
    with MXRecordIO(tmp_path / "a.rec", "r") as file:
        assert [file.read(), file.read()] == records[:2]
        pid = os.fork()
        if not pid:
            os._exit(0 if list(iter(file.read, None)) == records[2:] else 1)
        assert os.waitpid(pid, 0)[1] == 0
        assert list(iter(file.read, None)) == records[2:]


def test_a_file_that_becomes_shorter_raises_an_error_and_does_not_crash(tmp_path, monkeypatch):
    monkeypatch.setattr(recordio, "_AHEAD", 4096)  # bytes that were read ahead are still returned
    path = tmp_path / "a.rec"
    write(path, [bytes(9000)] * 50)
    (tmp_path / "a.idx").write_text("".join(f"{i}\t{i * 9008}\n" for i in range(50)))
    with MXRecordIO(path, "r") as file, MXIndexedRecordIO(tmp_path / "a.idx", path, "r") as keyed:
        file.read()
        os.truncate(path, 9008)
        with pytest.raises(FileError, match=r"record 1 at byte 9,008 is gone: the file became shorter while it was read"):
            file.read()
        with pytest.raises(FileError, match=r"record with key 40 at byte 360,320 is gone"):
            keyed.read_idx(40)
        assert len(keyed.read_idx(0)) == 9000
        with pytest.raises(FileError, match=r"record \d+ at byte 9,008 is gone"):  # not the one with key 40
            keyed.read()


def slow_records(data):
    """Return the records before the first damage, read part by part, and True if there is damage."""
    records, at = [], 0
    while at < len(data):
        parts, kind = [], 0
        while not parts or kind not in (0, 3):
            magic, word = struct.unpack_from("<II", data, at) if at + 8 <= len(data) else (None, 0)
            kind, start = word >> 29, at + 8
            stop = start + (word & (1 << 29) - 1)
            at = stop + -(stop - start) % 4
            if magic != recordio.MAGIC or at > len(data) or kind not in ((2, 3) if parts else (0, 1)):
                return records, True
            parts.append(data[start:stop])
        records.append(MAGIC.join(parts))
    return records, False


def damage_at_random(rng, data, heads):
    """Return data with up to three random changes."""
    data = bytearray(data)
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        at, size, head = rng.randrange(len(data) + 1), rng.choice((1, 2, 3, 4, 5, 8, 40)), rng.choice(heads)
        junk = rng.choice((bytes(size), b"\xff" * size, rng.randbytes(size), MAGIC * (size // 4 + 1)))
        kind = rng.randrange(8)
        if kind == 0:
            del data[at:]
        elif kind == 1:
            del data[at:at + size]
        elif kind == 2:
            data[at:at] = junk
        elif kind == 3:
            data[at:at + size] = junk
        elif kind == 4:
            data[at // 4 * 4:at // 4 * 4 + 4] = MAGIC
        elif kind == 5:
            data[head:head + 1] = b"\0"
        elif kind == 6:
            data[head + 4:head + 8] = rng.randbytes(4)
        else:
            data[head + 7:head + 8] = bytes([rng.randrange(8) << 5])
    return bytes(data)


def test_damaged_files_are_read_up_to_the_damage_and_no_further(tmp_path, monkeypatch):
    """With any read-ahead size, with and without a memory map; a failed read fails again."""
    path, mapped = tmp_path / "a.rec", recordio._mapped
    some = MAGIC, b"", b"a", b"ab", b"abc", bytes(40), bytes(range(250))
    for seed in range(400):
        rng = random.Random(seed)
        frames = [framing.frame(b"".join(rng.choices(some, k=rng.randrange(4)))) for _ in range(rng.randrange(1, 30))]
        heads = [sum(map(len, frames[:i])) for i in range(len(frames))]
        foreign = b"", b"text\n" * 9, MAGIC, MAGIC * 2, bytes(99)
        data = damage_at_random(rng, b"".join(frames), heads) if seed % 40 else rng.choice(foreign)
        path.write_bytes(data)
        monkeypatch.setattr(recordio, "_AHEAD", rng.choice((1, 50, 4096, 8192)))
        monkeypatch.setattr(recordio, "_SMALL", rng.choice((0, 60, 1 << 15)))
        monkeypatch.setattr(recordio, "_mapped", rng.choice((mapped, lambda descriptor: None)))
        want, wrong = slow_records(data)
        with MXRecordIO(path, "r") as file:
            assert [file.read() for _ in want] == want, seed
            for _ in range(2):
                if wrong:
                    with pytest.raises(FileError, match=rf"a\.rec: record {len(want)} at byte {file.tell():,} "):
                        file.read()
                else:
                    assert file.read() is None, seed


def test_a_key_without_a_record_is_reported_with_both_files(tmp_path):
    write(tmp_path / "a.rec", [bytes(20)] * 3)
    (tmp_path / "a.idx").write_text("0\t0\n1\t36\n2\t56\n")
    with MXIndexedRecordIO(tmp_path / "a.idx", tmp_path / "a.rec", "r") as file:
        with pytest.raises(FileError) as caught:
            file.read_idx(1)
        assert str(caught.value) == (f"{tmp_path}/a.rec: record with key 1 at byte 36 has no magic number at byte 36 "
                                     f"(0x00000000, not 0xced7230a): the file is damaged. "
                                     f"{tmp_path}/a.idx lists this offset.")
        assert file.read_idx(2) == bytes(20) and file.read() is None
