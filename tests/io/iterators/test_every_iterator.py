"""Tests that every iterator must pass: parts, pads, states, threads, kept batches, early ends, forks, errors.

Oracle: labels. Row i of every source has the label i, so a batch shows which rows it holds.
"""

import gc
import hashlib
import json
import os
import struct
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import tritium as mx
from support.image_files import picture, write_records
from tritium.io.image.codec import encode

ROWS, BATCH = 23, 4


def write_sources(folder):
    """Write every kind of file, with ROWS rows each."""
    pictures = [encode(picture(i, 10, 12), 1, ".png") for i in range(ROWS)]
    write_records(folder / "a.rec", pictures)
    write_records(folder / "det.rec", pictures, [[2, 5, i, 0.1, 0.1, 0.6, 0.7] for i in range(ROWS)])
    (folder / "a.csv").write_text("".join(f"{i},{i * i}\n" for i in range(ROWS)))
    (folder / "l.csv").write_text("".join(f"{i}\n" for i in range(ROWS)))
    (folder / "a.libsvm").write_text("".join(f"{i} 0:{i} 2:{i * i}\n" for i in range(ROWS)))
    images = np.arange(ROWS * 12, dtype=np.uint8).reshape(ROWS, 3, 4)
    (folder / "images").write_bytes(struct.pack(">4I", 0x803, *images.shape) + images.tobytes())
    (folder / "labels").write_bytes(struct.pack(">2I", 0x801, ROWS) + bytes(range(ROWS)))


def _ndarray(folder, **kw):
    return mx.io.NDArrayIter(np.arange(ROWS * 2.0).reshape(ROWS, 2), np.arange(ROWS), BATCH, shuffle=True, seed=3, **kw)


def _record(folder, **kw):
    return mx.io.ImageRecordIter(path_imgrec=folder / "a.rec", data_shape=(3, 8, 8), batch_size=BATCH, shuffle=True, seed=2,
                                 rand_crop=True, rand_mirror=True, **kw)


def _det_record(folder, **kw):
    return mx.io.ImageDetRecordIter(path_imgrec=folder / "det.rec", data_shape=(3, 8, 8), batch_size=BATCH, shuffle=True, seed=2,
                                    rand_crop_prob=0.5, rand_mirror_prob=0.5, **kw)


def _image(folder, **kw):
    return mx.image.ImageIter(BATCH, (3, 8, 8), path_imgrec=folder / "a.rec", shuffle=True, seed=2, rand_crop=True, **kw)


def _det_image(folder, **kw):
    return mx.image.ImageDetIter(BATCH, (3, 8, 8), path_imgrec=folder / "det.rec", shuffle=True, seed=2, rand_crop=0.5,
                                 rand_mirror=True, **kw)


MAKERS = {
    "NDArrayIter": _ndarray,
    "CSVIter": lambda d, **kw: mx.io.CSVIter(d / "a.csv", (2,), BATCH, label_csv=d / "l.csv", **kw),
    "LibSVMIter": lambda d, **kw: mx.io.LibSVMIter(d / "a.libsvm", (3,), BATCH, **kw),
    "MNISTIter": lambda d, **kw: mx.io.MNISTIter(d / "images", d / "labels", BATCH, seed=2, **kw),
    "ImageRecordIter": _record,
    "ImageDetRecordIter": _det_record,
    "ImageIter": _image,
    "ImageDetIter": _det_image,
    "PrefetchingIter": lambda d, **kw: mx.io.PrefetchingIter(_record(d, **kw)),
    "ResizeIter": lambda d, **kw: mx.io.ResizeIter(_record(d, **kw), 7),
}
IN_PARTS = [name for name in MAKERS if name not in ("NDArrayIter", "PrefetchingIter", "ResizeIter")]
THREADED = ["ImageRecordIter", "ImageDetRecordIter"]


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sources")
    write_sources(folder)
    return folder


def rows_of(name, batch):
    """Return the row numbers of a batch."""
    label = batch.label[0].asnumpy()
    if name == "ImageDetRecordIter":
        return label[:, 4 + 2].astype(int).tolist()  # the class, after the image's shape and the numbers before the objects
    return (label[:, 0, 0] if name == "ImageDetIter" else label).astype(int).tolist()


def bits(batch):
    return hashlib.sha256(b"".join(a.asnumpy().tobytes() for a in (*batch.data, *batch.label)) + bytes([batch.pad])).hexdigest()


def stream(it):
    """Yield the batches' bits, epoch after epoch."""
    while True:
        yield "reset"
        for batch in it:
            yield bits(batch)
        it.reset()


def take(iterator, count):
    return [next(iterator) for _ in range(count)]


@pytest.mark.parametrize("name", MAKERS)
def test_pads_are_exact_in_every_epoch(sources, name):
    it = MAKERS[name](sources)
    if name in ("PrefetchingIter", "ResizeIter"):
        inner = it.iters[0] if name == "PrefetchingIter" else it.data_iter
        inner.plan.carries = False
    for epoch in range(4):
        seen = [row for batch in it for row in rows_of(name, batch)[:BATCH - batch.pad]]
        if name == "MNISTIter":
            assert len(set(seen)) == len(seen) == ROWS // BATCH * BATCH, "an incomplete batch is skipped, as in MXNet"
        elif name == "ResizeIter":
            assert len(seen) == ROWS + BATCH and sorted(set(seen)) == list(range(ROWS)), "one batch more than an epoch"
        elif epoch and name in ("CSVIter", "LibSVMIter", *THREADED):
            assert len(set(seen)) == len(seen) >= ROWS - BATCH, "round_batch: without the rows that filled up the last batch"
        else:
            assert sorted(seen) == list(range(ROWS))
        it.reset()


@pytest.mark.parametrize("parts", [1, 2, 3, 7, 100, 101])
@pytest.mark.parametrize("name", IN_PARTS)
def test_parts_are_a_disjoint_union_in_equally_many_batches(sources, name, parts):
    counts, seen = set(), []
    for part in range(parts):
        it = MAKERS[name](sources, num_parts=parts, part_index=part)
        batches = [(rows_of(name, b), b.pad) for b in it]
        counts.add(len(batches))
        seen += [row for rows, pad in batches for row in rows[:BATCH - pad]]
        if hasattr(it, "close"):
            it.close()
    assert len(counts) == 1
    leaves_a_rest = name == "MNISTIter" and parts <= ROWS // BATCH
    assert len(set(seen)) == len(seen) and (leaves_a_rest or sorted(seen) == list(range(ROWS)))


@pytest.mark.parametrize("name", THREADED)
def test_the_number_of_threads_changes_nothing(sources, name):
    assert len({tuple(take(stream(MAKERS[name](sources, preprocess_threads=n)), 20)) for n in (1, 2, 7)}) == 1


GO_ON = """
import json, os, signal, sys
sys.path[:0] = json.loads(sys.argv[1])
from pathlib import Path
from test_every_iterator import MAKERS, THREADED, stream, take
folder, threads = Path(sys.argv[2]), int(sys.argv[3])
states = json.loads(sys.argv[4]) if len(sys.argv) > 4 else {}
out = {}
for name, make in MAKERS.items():
    it = make(folder, **({"preprocess_threads": threads} if name in THREADED else {}))
    if states:
        it.load_state_dict(states[name])
        out[name] = take(stream(it), 12)
    else:
        batches = stream(it)
        take(batches, 9)
        out[name] = it.state_dict()
print(json.dumps(out), flush=True)
if not states:
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_killed_and_resumed_in_a_new_process_every_iterator_continues(sources):
    paths = json.dumps([str(Path(__file__).parent), str(Path(__file__).parents[2])])
    command = [sys.executable, "-c", GO_ON, paths, str(sources)]
    killed = subprocess.run([*command, "2"], capture_output=True, text=True)
    assert killed.returncode == -9, killed.stderr
    assert all(len(json.dumps(state)) < 700 for state in json.loads(killed.stdout).values()), "a state is a few numbers"
    resumed = subprocess.run([*command, "1", killed.stdout], capture_output=True, text=True)
    assert resumed.returncode == 0, resumed.stderr
    for name, make in MAKERS.items():
        whole = stream(make(sources))
        take(whole, 9)
        assert json.loads(resumed.stdout)[name][1:] == take(whole, 11), name


@pytest.mark.parametrize("name", MAKERS)
def test_an_invalid_state_is_refused_and_changes_nothing(sources, name):
    it, same = MAKERS[name](sources), MAKERS[name](sources)
    for one in (it, same):
        take(stream(one), 4)
    state = it.state_dict()
    spoiled = [None, [], {}, {**state, "more": 1}]
    spoiled += [{**state, key: value} for key in state for value in (None, ["x"], {}, "x", -(10**9), 10**30, float("nan"))]
    spoiled += [{k: v for k, v in state.items() if k != key} for key in state]
    for other in spoiled:
        if other != state:
            with pytest.raises(mx.errors.ParameterError, match=r"\.load_state_dict: "):
                it.load_state_dict(other)
    assert take(stream(it), 9) == take(stream(same), 9)


@pytest.mark.parametrize("name", MAKERS)
def test_batches_that_are_kept_are_never_overwritten(sources, name):
    it = MAKERS[name](sources)
    kept = []
    for _ in range(3):
        kept += [(batch, bits(batch)) for batch in it]
        it.reset()
    assert all(bits(batch) == before for batch, before in kept)


@pytest.mark.parametrize("how", ["dropped", "raised"])
@pytest.mark.parametrize("name", MAKERS)
def test_an_iterator_that_ends_early_leaves_no_thread_and_no_file(tmp_path, name, how):
    write_sources(tmp_path)  # separate files, so that no iterator of another test has them open
    before = set(threading.enumerate())
    it = MAKERS[name](tmp_path)
    next(it)
    if how == "raised":
        with pytest.raises(ZeroDivisionError):
            for _ in it:
                1 / 0
    started = set(threading.enumerate()) - before
    del it
    gc.collect()
    mx.nd.waitall()
    for thread in started:
        if thread.name.startswith(("Image", "Prefetching", "Resize")):
            thread.join(250)
            assert not thread.is_alive(), thread.name
    assert open_files(tmp_path) == 0


def open_files(folder):
    """Return the number of descriptors of files in a folder."""
    count = 0
    for number in os.listdir("/proc/self/fd"):
        try:
            count += os.readlink(f"/proc/self/fd/{number}").startswith(str(folder))
        except OSError:
            pass
    return count


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.parametrize("name", MAKERS)
def test_a_forked_child_and_its_parent_both_read_on(sources, name):
    it = MAKERS[name](sources)
    next(it)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, "".join(take(stream(it), 12)).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        from_child = answer.read()
    assert os.waitpid(child, 0)[1] == 0
    assert from_child == "".join(take(stream(it), 12))
