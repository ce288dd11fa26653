"""ImageRecordIter over a loopback server: prefetching in few requests, equal bits, faults, outages. Oracle: the local file."""

import hashlib

import pytest
import tritium as mx
from support.image_files import write_pictures, write_records
from tritium.errors import FileError, UnreachableError
from tritium.io.records.record_file import RecordFile
from tritium.recordio import MXRecordIO

pytest.importorskip("aiohttp")
ROWS = 40


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    path = tmp_path_factory.mktemp("records") / "a.rec"
    offsets = RecordFile(write(path)).offsets.tolist()
    path.with_suffix(".idx").write_text("".join(f"{i}\t{o}\n" for i, o in enumerate(offsets)))
    return path


def write(path):
    write_pictures(path, ROWS, 24, 30)
    return path


@pytest.fixture
def remote(local, server):
    """The parameters of the same file on the server."""
    index = local.with_suffix(".idx").read_bytes()
    return {"path_imgrec": server("/a.rec", local.read_bytes()), "path_imgidx": server("/a.idx", index)}


def iterator(where, **kw):
    return mx.io.ImageRecordIter(**{"data_shape": (3, 20, 20), "batch_size": 8, "rand_crop": True, "shuffle": True, "seed": 4,
                                    "preprocess_threads": 2, **where, **kw})


def digests(it):
    got = [hashlib.sha256(b.data[0].asnumpy().tobytes() + b.label[0].asnumpy().tobytes()).hexdigest() for b in it]
    it.reset()
    return got


def test_a_remote_epoch_equals_the_local_one_with_few_requests(local, remote, server):
    with iterator({"path_imgrec": local}) as it:
        want = [digests(it), digests(it)]
    server.delay = 0.002
    with iterator(remote) as it:
        opened = len(server.ranges)
        assert digests(it) == want[0]
        assert len(server.ranges) - opened <= 2 * ROWS // 8, "a batch's records are adjacent, so one request fetches them"
        server.faults = 3
        assert digests(it) == want[1]


def test_bytes_are_requested_ahead_and_no_loading_thread_waits_for_them(remote, server):
    """With one decoding thread, the next batches are requested while the server holds back the first one."""
    it = iterator(remote, preprocess_threads=1, prefetch_buffer=2)
    server.gate.clear()
    it._fill_queue()
    server.wait_until(lambda: server.waiting >= 4)  # one for each of prefetch_buffer + 2 batches
    done = []
    it._loader.workers.put(lambda: done.append(True))
    it._loader.workers.put(lambda: (server.changed.acquire(), server.changed.notify_all(), server.changed.release()))
    server.wait_until(lambda: done)  # the decoding thread is free
    server.gate.set()
    assert sorted(i for b in it for i in b.index[:8 - b.pad].tolist()) == list(range(ROWS))
    it.close()


def test_an_outage_is_not_a_bad_record_and_can_be_resumed(local, remote, server):
    with iterator({"path_imgrec": local}) as it:
        want = digests(it)
    for on_error in ("raise", "skip", "substitute"):
        with iterator(remote, on_error=on_error, prefetch_buffer=0) as it:
            got = [hashlib.sha256(b.data[0].asnumpy().tobytes() + b.label[0].asnumpy().tobytes()).hexdigest() for b in [next(it)]]
            next(it), next(it)
            state = it.state_dict()
            server.down = True
            it.load_state_dict(state)
            with pytest.raises(UnreachableError, match=r"/a\.rec: cannot be read: .*503"):
                next(it)
            server.down = False
            it.load_state_dict(state)
            assert got + digests(it) == [want[0], *want[3:]] and it.skipped == {}


def test_a_record_whose_rest_cannot_be_fetched_is_not_a_bad_record(remote, monkeypatch):
    """Only the first bytes of a long record are prefetched; an outage while the rest is read does not make it a bad record."""
    with iterator(remote, on_error="skip") as it:
        def read(number, fetched):
            raise UnreachableError("a.rec: cannot be read")

        monkeypatch.setattr(it._file, "read", read)
        with pytest.raises(UnreachableError, match=r"^a\.rec: cannot be read$"):
            next(it)
        assert it._loader.bad_records == {} and it.skipped == {}


def test_a_bad_record_is_named_by_its_url(server, tmp_path):
    write_records(tmp_path / "b.rec", [b"no image"] * 3)
    url = server("/b.rec", (tmp_path / "b.rec").read_bytes())
    with pytest.raises(FileError, match=r"http://127\.0\.0\.1:\d+/b\.rec: record \d at byte \d+ \(id \d\): these 8 bytes"):
        next(iterator({"path_imgrec": url}))
    with pytest.raises(UnreachableError, match=r"/none\.rec: cannot be read: FileNotFoundError"):
        iterator({"path_imgrec": url.replace("/b", "/none")})


def test_mxrecordio_reads_urls(local, remote):
    with MXRecordIO(remote["path_imgrec"], "r") as distant, MXRecordIO(local, "r") as near:
        records = list(iter(near.read, None))
        assert list(iter(distant.read, None)) == records
        distant.reset()
        assert distant.read() == records[0]
