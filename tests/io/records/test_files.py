"""ByteSource: local files by position, and remote ones over a loopback HTTP server that is slow and fails."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from tritium.errors import FileError, UnreachableError
from tritium.io.records import files
from tritium.io.records.files import ByteSource, expand
from tritium.io.records.record_file import RecordFile
from tritium.io.records.recordio import MXRecordIO

DATA = bytes(range(256)) * 40


def test_local_bytes_by_position_from_many_threads(tmp_path):
    (tmp_path / "a").write_bytes(DATA)
    with ByteSource(tmp_path / "a") as source, ThreadPoolExecutor(8) as pool:
        ranges = [(i, i + i % 97) for i in range(0, len(DATA) - 100, 11)]
        assert list(pool.map(lambda r: source.read(*r), ranges)) == [DATA[a:b] for a, b in ranges]
        assert source.read_many(ranges) == [DATA[a:b] for a, b in ranges]
        with pytest.raises(FileError, match=r"bytes 10,000 to 20,000 are outside the file of 10,240 bytes"):
            source.read(10_000, 20_000)
        source.check()
        os.truncate(tmp_path / "a", 50)
        with pytest.raises(FileError, match=r"50 of the bytes 0 to 100 are left"):
            source.read(0, 100)
        with pytest.raises(FileError, match=r"had 10,240 bytes when it was opened and has 50 now"):
            source.check()


@pytest.mark.parametrize("make, message", [
    (lambda path: path.mkdir(), r"x: is a folder, a pipe or a device, and not a file"),
    (os.mkfifo, r"x: is a folder, a pipe or a device, and not a file"),
    (lambda path: None, r"x: cannot be opened: No such file"),
])
def test_folders_pipes_and_devices_are_refused_at_once(tmp_path, make, message):
    make(tmp_path / "x")
    with pytest.raises(FileError, match=message):
        ByteSource(tmp_path / "x")


def test_an_invalid_file_name_is_refused():
    for opened in (lambda: ByteSource("a\0b"), lambda: MXRecordIO("a\0b", "r")):
        with pytest.raises(FileError, match="cannot be opened: embedded null byte"):
            opened()


def test_requests_to_a_slow_and_faulty_server_are_repeated(server):
    pytest.importorskip("aiohttp")
    url = server("/a", DATA)
    server.faults, server.delay = 2, 0.002
    with ByteSource(url) as source:
        assert source.size == len(DATA)
        ranges = [(i, i + 100) for i in range(0, len(DATA) - 100, 997)]
        assert source.read_many(ranges) == [DATA[a:b] for a, b in ranges]


def test_adjacent_ranges_are_requested_as_one(server, monkeypatch):
    pytest.importorskip("aiohttp")
    monkeypatch.setattr(files, "_MAX_GAP", 50)
    monkeypatch.setattr(files, "_MAX_MERGED", 1000)
    with ByteSource(server("/a", DATA)) as source:
        ranges = [(300, 400), (0, 100), (150, 250), (320, 330), (5000, 5600), (5600, 6100), (9000, 9000), (9000, 9001)]
        assert source.read_many(ranges) == [DATA[a:b] for a, b in ranges]
    assert sorted(server.ranges) == [(0, 400), (5000, 5600), (5600, 6100), (9000, 9001)]


@pytest.mark.parametrize("fault", ["short", "whole"])
def test_answers_of_the_wrong_length_are_not_used(server, fault):
    pytest.importorskip("aiohttp")
    with ByteSource(server("/a", DATA)) as source:
        setattr(server, fault, 2)
        assert source.read(100, 900) == DATA[100:900], "asked again"
        setattr(server, fault, 99)
        with pytest.raises(UnreachableError, match=r"/a: cannot be read: .*\(4 attempts\)"):
            source.read(100, 900)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_child_has_its_own_connection(server):
    pytest.importorskip("aiohttp")
    with ByteSource(server("/a", DATA)) as source:
        source.read(0, 10)
        child = os.fork()
        if child == 0:
            os._exit(0 if source.read(5, 500) == DATA[5:500] else 1)
        assert os.waitpid(child, 0)[1] == 0 and source.read(7, 70) == DATA[7:70]


def test_records_are_read_from_a_server(server, tmp_path):
    pytest.importorskip("aiohttp")
    with MXRecordIO(tmp_path / "a.rec", "w") as file:
        for i in range(20):
            file.write(bytes([i]) * (i * 10))
    server.faults = 1
    records = RecordFile(server("/a.rec", (tmp_path / "a.rec").read_bytes()))
    assert [records.read(i) for i in range(20)] == [bytes([i]) * (i * 10) for i in range(20)]


def test_an_unreachable_server_and_a_missing_file_are_named(server):
    pytest.importorskip("aiohttp")
    url = server("/a", DATA)
    with ByteSource(url) as source:
        server.down = True
        with pytest.raises(FileError, match=r"http://127\.0\.0\.1:\d+/a: cannot be read: .*503.*\(4 attempts\)"):
            source.read(0, 10)
    server.down = False
    with pytest.raises(FileError, match=r"/none: cannot be read: FileNotFoundError: .*\(1 attempt\)"):
        ByteSource(url.replace("/a", "/none"))


def test_files_that_cannot_be_opened_are_named(tmp_path):
    with pytest.raises(FileError, match=r"none: cannot be opened: No such file or directory"):
        ByteSource(tmp_path / "none")
    with pytest.raises(FileError, match=r"nosuch://a: fsspec cannot open it"):
        ByteSource("nosuch://a")


def test_a_folder_means_its_files(tmp_path):
    for name in ("b", "a", ".c"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "sub").mkdir()
    assert expand(tmp_path) == [str(tmp_path / "a"), str(tmp_path / "b")]
    assert expand(tmp_path / "a") == [str(tmp_path / "a")]
    with pytest.raises(FileError, match="the folder contains no files"):
        expand(tmp_path / "sub")
