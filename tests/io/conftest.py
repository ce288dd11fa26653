"""A loopback HTTP server that can be slow, faulty, down, or paused."""

import http.server
import re
import threading

import pytest
from tritium.io.records import files


class Serve:
    """`serve(path, content)` stores a file and returns its URL.

    faults:  so many of every seven requests fail with 503.   down: all fail.   delay: seconds before each answer.
    short:   so many answers end in the middle.   whole: so many ignore the requested range.
    gate:    an event that answers with a body wait for.
    ranges:  the requested byte ranges.   waiting: requests that wait at the gate; `changed` signals changes.
    """

    def __init__(self):
        self.contents, self.port = {}, 0
        self.faults, self.down, self.delay, self.short, self.whole = 0, False, 0.0, 0, 0
        self.gate = threading.Event()
        self.gate.set()
        self.ranges, self.waiting, self.count = [], 0, 0
        self.changed = threading.Condition()

    def __call__(self, path, content):
        self.contents[path] = content
        return f"http://127.0.0.1:{self.port}{path}"

    def wait_until(self, condition):
        """Wait until condition() holds, checking it whenever a request begins or ends."""
        with self.changed:
            assert self.changed.wait_for(condition, timeout=250), "the expected event did not happen"

    def answer(self, handler, body):
        with self.changed:
            self.count += 1
            fails = self.down or self.count % 7 < self.faults
        threading.Event().wait(self.delay)
        content = self.contents.get(handler.path)
        if fails or content is None:
            handler.send_error(404 if content is None else 503)
            return
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", handler.headers.get("Range", ""))
        start, stop = (int(wanted[1]), min(int(wanted[2]) + 1, len(content))) if wanted else (0, len(content))
        with self.changed:
            if wanted and body:
                self.ranges.append((start, stop))
            if wanted and body and self.whole:
                self.whole -= 1
                wanted, start, stop = None, 0, len(content)
            length = stop - start
            if body and self.short:
                self.short -= 1
                stop = start + length // 2
            self.waiting += body
            self.changed.notify_all()
        if body:
            self.gate.wait(60)
        with self.changed:
            self.waiting -= body
            self.changed.notify_all()
        handler.send_response(206 if wanted else 200)
        if wanted:
            handler.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(content)}")
        handler.send_header("Accept-Ranges", "bytes")
        handler.send_header("Content-Length", str(length))
        handler.end_headers()
        if body:
            handler.wfile.write(content[start:stop])


@pytest.fixture
def server(monkeypatch):
    """A Serve on a free port, whose clients retry without a pause."""
    serve = Serve()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self):
            serve.answer(self, body=False)

        def do_GET(self):
            serve.answer(self, body=True)

        def log_message(self, *args):
            pass

    monkeypatch.setattr(files, "_PAUSE", 0.0)
    http_server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    serve.port = http_server.server_port
    thread = threading.Thread(target=http_server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield serve
    serve.gate.set()
    http_server.shutdown()
    thread.join()
    http_server.server_close()
