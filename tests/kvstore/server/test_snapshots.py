"""Snapshots: whatever byte of a write is the last before the process dies, the newest complete snapshot is read afterwards."""

from __future__ import annotations

import resource

import numpy as np
import pytest
from tritium.errors import FileError
from tritium.kvstore.server.values import SnapshotFiles

LAYOUT, N = ("s:w", (5,), "float32"), 5


def files(folder):
    return SnapshotFiles(folder, "1.0", LAYOUT, 4 * N)


def content(i):
    """(version, applied, value, states) of the i-th snapshot: values, and sizes of states and headers, differ."""
    return 10 ** i, dict.fromkeys(range(i % 3), i), np.arange(i, i + N, dtype="f").view(np.uint8), bytes([i]) * (7 * i % 5)


def read(folder):
    found = files(folder).read()
    return None if found is None else (*found[:2], bytes(found[2]), found[3])


def expected(i):
    version, applied, raw, states = content(i)
    return version, applied, raw.tobytes(), states


def test_the_newest_snapshot_is_read(tmp_path):
    assert read(tmp_path) is None
    own = files(tmp_path)
    for i in range(1, 8):
        own.write(*content(i))
        assert read(tmp_path) == expected(i)
    assert len(list(tmp_path.iterdir())) == 2
    assert all(p.stat().st_mode & 0o777 == 0o600 for p in tmp_path.iterdir())


def test_a_restarted_server_keeps_the_newest_snapshot_until_the_next_is_complete(tmp_path):
    for i in range(1, 6):
        own = files(tmp_path)
        own.read()
        own.write(*content(i))
        assert read(tmp_path) == expected(i)


@pytest.mark.parametrize("before", range(2, 5))
def test_a_write_that_ends_at_any_byte_leaves_the_snapshot_before(tmp_path, before):
    own = files(tmp_path)
    for i in range(1, before + 1):
        own.write(*content(i))
    target = tmp_path / f"1.0.{(before + 1) % 2}.snapshot"
    old = target.read_bytes()
    own.write(*content(before + 1))
    new = target.read_bytes()
    for written in range(len(new) + 1):
        target.write_bytes(new[:written] + old[written:])
        complete = new[:written] + old[written:] == new
        assert read(tmp_path) == expected(before + complete)
    target.write_bytes(new)
    assert read(tmp_path) == expected(before + 1)


def test_a_failed_write_does_not_reach_the_newest_snapshot(tmp_path):
    """As on a full disk. It is repeated over the same file."""
    own = files(tmp_path)
    for i in (1, 2):
        own.write(*content(i))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for _ in range(3):
        resource.setrlimit(resource.RLIMIT_FSIZE, (30, hard))
        try:
            with pytest.raises(OSError, match="File too large"):
                own.write(*content(3))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert read(tmp_path) == expected(2)
    own.write(*content(4))
    assert read(tmp_path) == expected(4)


def test_one_damaged_file_is_ignored_and_two_are_an_error(tmp_path):
    own = files(tmp_path)
    for i in (1, 2):
        own.write(*content(i))
    for i, left in ((2, 1), (1, None)):
        path = tmp_path / f"1.0.{i % 2}.snapshot"
        path.write_bytes(path.read_bytes()[:-1] + b"\xff")
        if left is not None:
            assert read(tmp_path) == expected(left)
    with pytest.raises(FileError, match="a damaged snapshot: it is cut short, or its checksum is wrong"):
        read(tmp_path)
