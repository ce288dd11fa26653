"""Correction of wrong indexes, alone and in RecordFile. Oracle: the payloads that were written, and a slow search for headers."""

import logging
import random
import struct
import warnings
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tritium.errors import FileError
from tritium.io.records import record_file
from tritium.io.records.framing import MAGIC_BYTES, frame
from tritium.io.records.record_file import RecordFile, read_index, reconcile


@pytest.mark.parametrize("listed, meant", [
    ([0, 12, 24, 36], [0, 12, 24, 36]),
    ([0, 16, 24, 36], [0, 12, 24, 36]),  # between its neighbours
    ([0, 16, 20, 36], [0, 12, 24, 36]),
    ([8, 12, 24, 999], [0, 12, 24, 36]),  # at either end
    ([0, 12, 12, 36], [0, 12, 24, 36]),  # repeated
    ([36, 4, 12, 0], [36, 24, 12, 0]),  # unordered: the only record that is left
    ([0, 16, 36], [0, -1, 36]),  # two records are between, one line is wrong
    ([0, 12, 4], [0, 12, -1]),
    ([12, 4, 36], [12, 24, 36]),  # some records, not all
    ([0, 0, 0], [0, -1, -1]),
    ([24, 12, 8, 0, 4], [24, 12, -1, 0, -1]),
    ([4, 8, 16, 20, -3], [0, 12, 24, 36, -1]),  # more lines than records
    ([4, 24, 0, 8, 36], [12, 24, 0, -1, 36]),  # two runs claim one record
])
def test_reconcile_finds_the_records_of_wrong_lines(listed, meant):
    heads = np.array([0, 12, 24, 36] if len(listed) != 5 or listed[0] == 4 else [0, 12, 24, 36, 48, 60])
    assert reconcile(np.array(listed), heads).tolist() == meant


@given(st.integers(1, 12), st.randoms())
def test_a_complete_index_gives_every_record_once_whichever_lines_are_wrong(n, rng):
    heads = np.cumsum([0] + [rng.choice((8, 12, 40)) for _ in range(n - 1)])
    listed = heads.copy()
    for _ in range(rng.randrange(n + 1)):
        listed[rng.randrange(n)] = rng.choice([rng.randrange(0, 500, 4), -4, 10**12, *heads.tolist()])
    if rng.random() < 0.3:
        rng.shuffle(listed)
    meant = reconcile(listed, heads)
    assert sorted(meant.tolist()) == heads.tolist()
    first = {o: i for i, o in reversed(list(enumerate(listed.tolist())))}
    assert all(meant[i] == o for o, i in first.items() if o in heads.tolist()), "right lines are not changed"


def _slow_heads(data):
    """Find the records of a good file by looking at every fourth byte."""
    return [at for at in range(0, len(data) - 7, 4) if data[at:at + 4] == MAGIC_BYTES
            and struct.unpack_from("<I", data, at + 4)[0] >> 29 in (0, 1)]


def _files(folder, rng, n):
    """Write a good record file; return payloads, offsets and the index as lines."""
    inside = b"", b"", MAGIC_BYTES, b"x" * 3 + MAGIC_BYTES
    payloads = [bytes([i]) * rng.choice((0, 1, 5, 16, 31)) + rng.choice(inside) + bytes([i]) for i in range(n)]
    data = b"".join(map(frame, payloads))
    (folder / "a.rec").write_bytes(data)
    heads = _slow_heads(data)
    assert len(heads) == n
    return payloads, data, heads


def _read(file):
    """Return every payload that can be read, and the errors of the others."""
    given, errors = [], []
    for number in random.Random(len(file)).sample(range(len(file)), len(file)):
        try:
            given.append(file.read(number))
        except FileError as e:
            errors.append(str(e))
    return sorted(given), errors


def _wrong_lines(rng, data, heads, n):
    """Return the offsets of an index, some of them wrong."""
    listed = list(heads)
    for _ in range(rng.choice((1, 1, 2, n))):
        anywhere = rng.randrange(0, max(len(data) - 8, 1), 4)
        listed[rng.randrange(n)] = rng.choice([anywhere] * 6 + [rng.choice(heads), -4, 10**15, 2])
    return listed


def _write_index(folder, rng, listed):
    lines = [f"{key}\t{offset}" for key, offset in enumerate(listed)]
    if rng.random() < 0.2:
        rng.shuffle(lines)
    (folder / "a.idx").write_text(rng.choice(("\n", "\r\n")).join(lines) + rng.choice(("", "\n")))


@pytest.fixture(scope="module", autouse=True)
def few_checked():
    """Check few lines at opening, so that most wrong lines are found when they are used."""
    before, record_file._SAMPLED = record_file._SAMPLED, 2
    yield
    record_file._SAMPLED = before


class _LogCollector(logging.Handler):
    """Collects log messages."""

    def __init__(self):
        super().__init__()
        self.messages = []

    def emit(self, record):
        self.messages.append(record.getMessage())

    def __enter__(self):
        logging.getLogger("tritium.io").addHandler(self)
        return self.messages

    def __exit__(self, *exc):
        logging.getLogger("tritium.io").removeHandler(self)


@settings(max_examples=60)
@given(st.integers(1, 15), st.randoms(use_true_random=False))
def test_wrong_offsets_lose_no_record_and_are_counted(tmp_path_factory, n, rng):
    folder = tmp_path_factory.mktemp("r")
    payloads, data, heads = _files(folder, rng, n)
    _write_index(folder, rng, _wrong_lines(rng, data, heads, n))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        file = RecordFile(folder / "a.rec", folder / "a.idx", tolerant=True)
        with _LogCollector() as logged:
            assert _read(file) == (sorted(payloads), [])
        fresh = RecordFile(folder / "a.rec", folder / "a.idx", tolerant=True)
        assert file.identity() == fresh.identity(), "a state saved now fits a file that is opened again"
        fresh.close()
    listed = read_index(folder / "a.idx")[1].tolist()
    if set(listed) != set(heads) or len(listed) > len(set(listed)):
        assert caught or logged, "the wrong lines are reported"
    file.close()


@settings(max_examples=60)
@given(st.integers(1, 15), st.randoms(use_true_random=False))
def test_without_skip_a_wrong_offset_is_reported_with_file_key_and_byte(tmp_path_factory, n, rng):
    folder = tmp_path_factory.mktemp("r")
    payloads, data, heads = _files(folder, rng, n)
    listed = _wrong_lines(rng, data, heads, n)
    _write_index(folder, rng, listed)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        file = RecordFile(folder / "a.rec", folder / "a.idx")
    given, errors = _read(file)
    assert set(given) <= set(payloads), "every payload was written"
    for message in (*(str(w.message) for w in caught), *errors):
        if "are repeated" not in message:
            key, byte = message.split("a.idx: key ")[1].split(" points at byte ")
            assert listed[int(key)] == int(byte.split(", where no record ")[0].replace(",", "")) not in heads
    assert len(given) == n or caught or errors
    file.close()


@settings(max_examples=60)
@given(st.integers(2, 15), st.randoms(use_true_random=False))
def test_with_a_damaged_index_no_record_is_lost_that_is_found_without_it(tmp_path_factory, n, rng):
    folder = tmp_path_factory.mktemp("r")
    _, data, heads = _files(folder, rng, n)
    _write_index(folder, rng, _wrong_lines(rng, data, heads, n))
    hurt, came_from = bytearray(data), list(range(len(data)))
    for _ in range(rng.randrange(1, 4)):
        at, size = rng.choice([rng.randrange(len(hurt)), rng.choice(heads) + rng.randrange(8)]) % len(hurt), rng.randrange(1, 9)
        kind = rng.randrange(4)
        if kind == 0:
            hurt[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del hurt[at:], came_from[at:]
        elif kind == 2:
            del hurt[at:at + size], came_from[at:at + size]
        else:
            hurt[at:at], came_from[at:at] = rng.randbytes(size), [None] * size
        if len(hurt) < 8:
            return
    (folder / "a.rec").write_bytes(hurt)
    alike = [at for at in read_index(folder / "a.idx")[1].tolist() if 0 <= at <= len(hurt) - 8 and came_from[at] not in heads
             and hurt[at:at + 4] == MAGIC_BYTES and hurt[at + 7] >> 5 in (0, 1)]
    with warnings.catch_warnings(), _LogCollector():
        warnings.simplefilter("ignore")
        with_index, without = (RecordFile(folder / "a.rec", index, tolerant=True) for index in (folder / "a.idx", None))
        lost = Counter(_read(without)[0]) - Counter(_read(with_index)[0])
        assert lost.total() <= len(alike), "at most one for each line that points at data that look like a header"
    with_index.close()
    without.close()


def test_some_records_with_a_wrong_line_among_them(tmp_path, caplog):
    """A corrected index lists no additional records; an ambiguous line raises an error that says so."""
    payloads = [bytes([i]) * 12 for i in range(8)]
    (tmp_path / "a.rec").write_bytes(b"".join(map(frame, payloads)))
    # there are four records between c and e, and d means one of them
    (tmp_path / "a.idx").write_text("a\t0\nb\t28\nc\t40\nd\t84\ne\t140\n")
    records = RecordFile(tmp_path / "a.rec", tmp_path / "a.idx", tolerant=True)
    with _LogCollector() as logged:
        given, errors = _read(records)
    assert given == [payloads[i] for i in (0, 1, 2, 7)] and len(records) == 5
    assert [e.split("no record")[0] for e in errors] == [
        f"{tmp_path}/a.rec: record 3 at byte 84 has no magic number at byte 84 (0x0000000c, not 0xced7230a): the file is "
        f"damaged; {tmp_path}/a.idx: key d points at byte 84, where "]
    assert logged == [f"{tmp_path}/a.idx: 2 of its 5 lines point where no record begins; the records of 1 of them were found "
                      f"in {tmp_path}/a.rec."]


def test_a_damaged_record_keeps_its_number_when_another_line_is_corrected(tmp_path):
    """Otherwise another record would take the number of a record whose error was already reported."""
    payloads = [bytes([i]) * 12 for i in range(6)]
    data = bytearray(b"".join(map(frame, payloads)))
    data[20 + 6] ^= 64  # the length of record 1
    (tmp_path / "a.rec").write_bytes(data)
    (tmp_path / "a.idx").write_text("0\t0\n1\t20\n2\t40\n3\t52\n5\t100\n4\t68\n")  # lines 3 and 4 point into records
    records = RecordFile(tmp_path / "a.rec", tmp_path / "a.idx", tolerant=True)
    with pytest.raises(FileError, match="record 1 at byte 20 is cut short"):
        records.read(1)
    with _LogCollector() as logged:
        assert sorted(records.read(i) for i in (0, 2, 3, 4, 5)) == [payloads[i] for i in (0, 2, 3, 4, 5)]
    with pytest.raises(FileError, match="record 1 at byte 20 is cut short"):
        records.read(1)
    assert "2 of its 6 lines point where no record begins; the records of 2 of them were found" in logged[0]


def test_data_that_look_like_a_header_are_recognised_by_the_index_line_before(tmp_path):
    """After inserted bytes, the line of record 3 points at a magic number in the data of record 2."""
    payloads = [bytes(12), bytes(12), bytes(9) + MAGIC_BYTES + bytes(3), b"last"]
    data = b"".join(map(frame, payloads))
    (tmp_path / "a.rec").write_bytes(data[:30] + bytes(7) + data[30:])
    (tmp_path / "a.idx").write_text("0\t0\n1\t20\n2\t40\n3\t64\n")
    records = RecordFile(tmp_path / "a.rec", tmp_path / "a.idx", tolerant=True)
    with _LogCollector():
        assert records.read(3) == b"last" and records.read(2) == payloads[2]


def test_an_index_that_was_deleted_before_it_is_read_again(tmp_path):
    (tmp_path / "a.rec").write_bytes(b"".join(frame(bytes(12)) for _ in range(8)))
    for tolerant in (True, False):
        (tmp_path / "a.idx").write_text("0\t0\n1\t28\n2\t40\n")
        records = RecordFile(tmp_path / "a.rec", tmp_path / "a.idx", tolerant=tolerant)
        (tmp_path / "a.idx").unlink()
        with pytest.raises(FileError, match=r"a\.idx: a line that has changed points at byte 28, where no record begins"):
            records.read(1)
        assert records.read(2) == bytes(12)


def test_the_index_of_another_file_is_reported_and_not_used(tmp_path, monkeypatch):
    monkeypatch.setattr(record_file, "_SAMPLED", 64)
    payloads = [bytes([i]) * 20 for i in range(9)]
    (tmp_path / "a.rec").write_bytes(b"".join(map(frame, payloads)))
    (tmp_path / "a.idx").write_text("".join(f"{i}\t{i * 16}\n" for i in range(9)))
    with pytest.warns(UserWarning, match=r"a\.idx: key 1 points at byte 16, where no record begins; the records are searched in"):
        assert _read(RecordFile(tmp_path / "a.rec", tmp_path / "a.idx")) == (payloads, [])


def test_a_wrong_line_found_at_opening_is_reported_with_the_number_of_such_lines(tmp_path, monkeypatch):
    monkeypatch.setattr(record_file, "_SAMPLED", 64)
    payloads = [bytes([i]) * 20 for i in range(9)]
    (tmp_path / "a.rec").write_bytes(b"".join(map(frame, payloads)))
    (tmp_path / "a.idx").write_text("".join(f"{i}\t{28 * i + (8 if i in (4, 7) else 0)}\n" for i in range(9)))
    with pytest.warns(UserWarning, match=r"a\.idx: key 4 points at byte 120, where no record begins; 2 lines are wrong, "
                                         r"and the records of 2 of them were found in .*a\.rec\."):
        assert _read(RecordFile(tmp_path / "a.rec", tmp_path / "a.idx")) == (payloads, [])
