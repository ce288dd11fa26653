"""RecordFile: records by number, also after damage. Oracle: the payloads that were written."""

import random
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tritium import recordio
from tritium.errors import FileError
from tritium.io.records import framing, record_file
from tritium.io.records.record_file import RecordFile

MAGIC = struct.pack("<I", recordio.MAGIC)


def write(path, payloads):
    offsets = []
    with recordio.MXRecordIO(path, "w") as records:
        for payload in payloads:
            offsets.append(records.tell())
            records.write(payload)
    return offsets


payload_lists = st.lists(st.lists(st.one_of(st.binary(max_size=9), st.just(MAGIC)), max_size=4).map(b"".join), max_size=12)


@given(payload_lists, st.sampled_from([4, 12, 1 << 24]))
def test_reads_what_was_written_by_number(tmp_path_factory, payloads, piece):
    path = tmp_path_factory.mktemp("r") / "a.rec"
    offsets = write(path, payloads)
    before, framing.SCAN_BYTES = framing.SCAN_BYTES, piece
    try:
        with_records = RecordFile(path)
    finally:
        framing.SCAN_BYTES = before
    assert with_records.offsets.tolist() == offsets and with_records.damage == []
    order = random.Random(1).sample(range(len(payloads)), len(payloads))
    assert [with_records.read(i) for i in order] == [payloads[i] for i in order]


@settings(max_examples=60)
@given(st.integers(0, 9), st.sampled_from(["magic", "length", "cflag"]))
def test_after_damage_to_a_header_every_other_record_is_found(tmp_path_factory, victim, what):
    path = tmp_path_factory.mktemp("r") / "a.rec"
    payloads = [bytes([i]) * (20 + i) for i in range(10)]
    offsets = write(path, payloads)
    data = bytearray(path.read_bytes())
    at = offsets[victim]
    if what == "magic":
        data[at] ^= 1
    else:
        struct.pack_into("<I", data, at + 4, 1 << 20 if what == "length" else 5 << 29 | 20 + victim)
    path.write_bytes(data)
    records = RecordFile(path, tolerant=True)
    assert [records.read(i) for i in range(len(records))] == payloads[:victim] + payloads[victim + 1:]
    assert len(records.damage) == 1 and records.damage[0].start == at
    with pytest.raises(FileError, match=rf"a\.rec: record {victim} at byte {at:,} .*on_error='skip' to continue at the next"):
        RecordFile(path)


def test_a_part_missing_from_a_split_record(tmp_path):
    path = tmp_path / "a.rec"
    offsets = write(path, [b"one.", b"abcd" + MAGIC + b"efgh" + MAGIC + b"ijkl", b"two."])
    data = path.read_bytes()
    for cut in (0, 2):  # each part takes 12 bytes; a missing middle part cannot be detected
        at = offsets[1] + 12 * cut
        path.write_bytes(data[:at] + data[at + 12:])
        records = RecordFile(path, tolerant=True)
        assert [records.read(i) for i in range(len(records))] == [b"one.", b"two."]
        assert records.damage[0].start == offsets[1] and records.damage[-1].stop == offsets[2] - 12


@pytest.mark.parametrize("missing", [1, 2, 3, 4, 5, 11])
def test_records_after_missing_bytes_are_found(tmp_path, missing):
    path = tmp_path / "a.rec"
    payloads = [bytes([i]) * 30 for i in range(9)]
    offsets = write(path, payloads)
    data = bytearray(path.read_bytes())
    for victim in (6, 2):
        del data[offsets[victim] + 10:offsets[victim] + 10 + missing]
    path.write_bytes(data)
    records = RecordFile(path, tolerant=True)
    assert [records.read(i) for i in range(len(records))] == [p for i, p in enumerate(payloads) if i not in (2, 6)]
    lost = [(d.start, d.stop - d.start) for d in records.damage]
    assert lost == [(offsets[2], 40 - missing), (offsets[6] - missing, 40 - missing)]


def test_records_between_two_shifts_are_found(tmp_path):
    path = tmp_path / "a.rec"
    payloads = [bytes([i]) * 30 for i in range(9)]
    offsets = write(path, payloads)
    data = path.read_bytes()
    cut = offsets[5] + 10
    # records 3 and 4 are shifted by 3, records 6 to 8 by 2
    path.write_bytes(data[:offsets[3]] + b"xyz" + data[offsets[3]:cut] + data[cut + 1:])
    records = RecordFile(path, tolerant=True)
    assert [records.read(i) for i in range(len(records))] == [p for i, p in enumerate(payloads) if i != 5]


def test_records_inside_damage_are_found(tmp_path):
    """Bytes are inserted, then missing, and a later record contains what looks like the header of a long record."""
    path = tmp_path / "a.rec"
    payloads = [bytes([i]) * 40 for i in range(8)]
    payloads[5] = b"abc" + MAGIC + struct.pack("<I", 130) + bytes(81)  # after the shift, this magic is at a multiple of 4
    framed = [framing.frame(p) for p in payloads]
    framed[1] = bytes(4) + framed[1][:-3]
    path.write_bytes(b"".join(framed))
    records = RecordFile(path, tolerant=True)
    given = []
    for i in range(len(records)):
        try:
            given.append(records.read(i))
        except FileError:
            pass
    assert [p for p in payloads[2:] if p not in given] == []


def test_a_file_cut_anywhere_keeps_the_records_before_the_cut(tmp_path):
    path = tmp_path / "a.rec"
    payloads = [b"x" * n for n in (5, 0, 12, 7)]
    offsets = [*write(path, payloads), path.stat().st_size]
    data = path.read_bytes()
    for cut in range(len(data)):
        path.write_bytes(data[:cut])
        whole = sum(end <= cut for end in offsets[1:])
        records = RecordFile(path, tolerant=True)
        assert [records.read(i) for i in range(len(records))] == payloads[:whole]
        assert bool(records.damage) == (cut not in offsets)


@pytest.mark.parametrize("text, message", [
    (None, "does not exist"), ("0\t0\nx\t", "is not lines of"), ("0\tzero\n", "is not lines of"), ("", "is not lines of"),
    ("0\t4000\n", "key 0 points at byte 4,000, where no record can begin in 24 bytes"), ("0\t9" + 30 * "9", "is not lines of"),
    ("0\t2\n", "key 0 points at byte 2, where no"), ("x\t8\n", "key x points at byte 8, where no record begins"),
])
def test_an_unusable_index_is_reported_and_rebuilt(tmp_path, text, message):
    offsets = write(tmp_path / "a.rec", [b"one", b"two"])
    if text is not None:
        (tmp_path / "a.idx").write_text(text)
    with pytest.warns(UserWarning, match=rf"a\.idx: {message}.*; the records are searched in .*a\.rec instead"):
        records = RecordFile(tmp_path / "a.rec", tmp_path / "a.idx")
    assert records.offsets.tolist() == offsets


def test_an_unsorted_index_is_sorted_and_only_its_records_count(tmp_path):
    offsets = write(tmp_path / "a.rec", [b"zero", b"one", b"two"])
    (tmp_path / "a.idx").write_bytes(f"7\t{offsets[2]}\r\n3\t{offsets[0]}\r\n".encode())
    records = RecordFile(tmp_path / "a.rec", tmp_path / "a.idx")
    assert [records.read(i) for i in range(len(records))] == [b"zero", b"two"]
    (tmp_path / "a.idx").write_text(f"0\t0\n0\t0\n1\t{offsets[1]}\n")
    with pytest.warns(UserWarning, match="1 of its offsets are repeated"):
        assert len(RecordFile(tmp_path / "a.rec", tmp_path / "a.idx")) == 2


def test_no_more_bytes_are_read_than_the_record_takes(tmp_path, monkeypatch):
    payloads = [b"a" * 3000, b"b" * 500 + MAGIC + b"c" * 700, b"d"]
    offsets = write(tmp_path / "a.rec", [*payloads[:2], b"x" * 9000, payloads[2]])
    (tmp_path / "a.idx").write_text("".join(f"{i}\t{offsets[i]}\n" for i in (0, 1, 3)))
    monkeypatch.setattr(record_file, "_WINDOW", 64)
    records = RecordFile(tmp_path / "a.rec", tmp_path / "a.idx")
    read, asked = records.source.read, []
    monkeypatch.setattr(records.source, "read", lambda start, stop: asked.append(stop - start) or read(start, stop))
    assert [records.read(i) for i in range(3)] == payloads
    assert sum(asked) < 5000


def test_damage_found_while_reading_names_file_record_and_byte(tmp_path):
    path = tmp_path / "a.rec"
    offsets = write(path, [b"one.", b"two."])
    (tmp_path / "a.idx").write_text("".join(f"{i}\t{o}\n" for i, o in enumerate(offsets)))
    records = RecordFile(path, tmp_path / "a.idx")
    data = bytearray(path.read_bytes())
    data[offsets[1]] ^= 255
    path.write_bytes(data)
    with pytest.raises(FileError, match=rf"a\.rec: record 1 at byte {offsets[1]} has no magic number at byte {offsets[1]}"):
        records.read(1)
    path.write_bytes(data[:-2])
    with pytest.raises(FileError, match=r"a\.rec: became shorter while it was read"):
        records.read(1)
    with pytest.raises(FileError, match=r"had 24 bytes when it was opened and has 22 now"):
        records.source.check()
