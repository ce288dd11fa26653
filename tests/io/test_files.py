"""ByteSource: local files by position, and remote ones over a loopback HTTP server that is slow and fails."""

import http.server
import os
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from tritium.errors import FileError
from tritium.io import files
from tritium.io.files import ByteSource, expand
from tritium.io.record_file import RecordFile
from tritium.io.recordio import MXRecordIO

DATA = bytes(range(256)) * 40


@pytest.fixture
def server(monkeypatch):
    """A server of one file in memory: `serve(path, content)`; `serve.faults` requests in every seven fail."""
    contents, count, lock = {}, [0], threading.Lock()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self):
            self.answer(body=False)

        def do_GET(self):
            self.answer(body=True)

        def answer(self, body):
            with lock:
                count[0] += 1
                fails = serve.down or count[0] % 7 < serve.faults
            threading.Event().wait(serve.delay)
            content = contents.get(self.path)
            if fails or content is None:
                self.send_error(404 if content is None else 503)
                return
            wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            start, stop = (int(wanted[1]), min(int(wanted[2]) + 1, len(content))) if wanted else (0, len(content))
            self.send_response(206 if wanted else 200)
            if wanted:
                self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(content)}")
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("Content-Length", str(stop - start))
            self.end_headers()
            if body:
                self.wfile.write(content[start:stop])

        def log_message(self, *args):
            pass

    def serve(path, content):
        contents[path] = content
        return f"http://127.0.0.1:{http_server.server_port}{path}"

    serve.faults, serve.down, serve.delay = 0, False, 0.0
    monkeypatch.setattr(files, "_PAUSE", 0.0)
    http_server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http_server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield serve
    http_server.shutdown()
    thread.join()
    http_server.server_close()


def test_local_bytes_by_position_from_many_threads(tmp_path):
    (tmp_path / "a").write_bytes(DATA)
    with ByteSource(tmp_path / "a") as source, ThreadPoolExecutor(8) as pool:
        ranges = [(i, i + i % 97) for i in range(0, len(DATA) - 100, 11)]
        assert list(pool.map(lambda r: source.read(*r), ranges)) == [DATA[a:b] for a, b in ranges]
        assert source.read_many(ranges) == [DATA[a:b] for a, b in ranges]
        with pytest.raises(FileError, match=r"bytes 10,000 to 20,000 are not in a file of 10,240 bytes"):
            source.read(10_000, 20_000)
        source.check()
        os.truncate(tmp_path / "a", 50)
        with pytest.raises(FileError, match=r"bytes 0 to 100 were asked for, 50 came"):
            source.read(0, 100)
        with pytest.raises(FileError, match=r"had 10,240 bytes when it was opened and has 50 now"):
            source.check()


def test_a_slow_server_that_fails_now_and_then_is_asked_again(server):
    pytest.importorskip("aiohttp")
    url = server("/a", DATA)
    server.faults, server.delay = 2, 0.002
    with ByteSource(url) as source:
        assert source.size == len(DATA)
        ranges = [(i, i + 100) for i in range(0, len(DATA) - 100, 997)]
        assert source.read_many(ranges) == [DATA[a:b] for a, b in ranges]


def test_records_come_from_a_server(server, tmp_path):
    pytest.importorskip("aiohttp")
    with MXRecordIO(tmp_path / "a.rec", "w") as file:
        for i in range(20):
            file.write(bytes([i]) * (i * 10))
    server.faults = 1
    records = RecordFile(server("/a.rec", (tmp_path / "a.rec").read_bytes()))
    assert [records.read(i) for i in range(20)] == [bytes([i]) * (i * 10) for i in range(20)]


def test_a_server_that_stays_away_and_a_missing_file_are_named(server):
    pytest.importorskip("aiohttp")
    url = server("/a", DATA)
    with ByteSource(url) as source:
        server.down = True
        with pytest.raises(FileError, match=r"http://127\.0\.0\.1:\d+/a: cannot be read: .*503.*\(asked 4 times\)"):
            source.read(0, 10)
    server.down = False
    with pytest.raises(FileError, match=r"/none: cannot be read: FileNotFoundError: .*\(asked 1 time\)"):
        ByteSource(url.replace("/a", "/none"))


def test_what_cannot_be_opened(tmp_path):
    with pytest.raises(FileError, match=r"none: cannot be opened: No such file or directory"):
        ByteSource(tmp_path / "none")
    with pytest.raises(FileError, match=r"nosuch://a: fsspec cannot open it"):
        ByteSource("nosuch://a")


def test_folders_are_their_files(tmp_path):
    for name in ("b", "a", ".c"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "sub").mkdir()
    assert expand(tmp_path) == [str(tmp_path / "a"), str(tmp_path / "b")]
    assert expand(tmp_path / "a") == [str(tmp_path / "a")]
    with pytest.raises(FileError, match="the folder holds no file"):
        expand(tmp_path / "sub")
