"""Record files with random damage, read in a child process so that a crash is seen. Oracle: the records without changed bytes.

The images are PNGs, whose checksums reveal every changed pixel. JPEGs need only not crash.
"""

import logging
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import tritium as mx
from support.image_files import picture
from tritium import recordio
from tritium.cli.inspect import inspect_file
from tritium.errors import MXNetError
from tritium.io.image.codec import encode
from tritium.io.records.framing import MAGIC_BYTES, frame
from tritium.io.records.record_file import RecordFile

COUNT, HEIGHT, WIDTH = 9, 11, 13
LABEL = [4, 5, 9, 9, 1, 0.1, 0.2, 0.7, 0.8]  # of an image with one object
WHERE = re.compile(r"\.rec: record (\d+ at byte [\d,]+|with key)|became shorter|no image can be read|no image has")


def payloads(form):
    """Return labelled records of images; one contains a magic number, so that it is split."""
    pictures = [encode(picture(i, HEIGHT, WIDTH), 90 if form == ".jpg" else 1, form) for i in range(COUNT)]
    packed = [recordio.pack(recordio.IRHeader(0, LABEL, i, 0), data) for i, data in enumerate(pictures)]
    packed[COUNT // 2] += bytes(-len(packed[COUNT // 2]) % 4) + MAGIC_BYTES + b"tail"
    return packed


def damaged(rng, data, offsets):
    """Return data with one to three random changes."""
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        at = rng.randrange(len(data)) if data else 0
        head = min(rng.choice(offsets), max(len(data) - 8, 0))
        size = rng.choice((1, 2, 3, 4, 5, 8, 64, 300, 512))
        junk = rng.choice((bytes(size), b"\xff" * size, rng.randbytes(size), MAGIC_BYTES * (size // 4 + 1)))
        kind = rng.randrange(13)
        if kind == 0 and data:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del data[at:]
        elif kind == 2:
            del data[at:at + size]
        elif kind == 3:
            data[at:at] = junk
        elif kind == 4:
            data[at:at + size] = junk
        elif kind == 5:
            data[at:at] = data[rng.randrange(len(data) + 1):][:size]
        elif kind == 6:
            data += junk
        elif kind == 7:
            data[head] ^= 1 << rng.randrange(8)  # the magic
        elif kind == 8:
            data[head + 4:head + 8] = rng.randbytes(4)  # length and kind
        elif kind == 9:
            data[head + 7:head + 8] = bytes([rng.randrange(8) << 5])  # the kind of part
        elif kind == 10:
            data[head + 8:head + 12] = rng.choice((b"\xff" * 4, rng.randbytes(4)))  # how many labels
        elif kind == 11:
            data[at // 4 * 4:at // 4 * 4 + 4] = MAGIC_BYTES
        else:
            data[:] = data[head:] + data[:head]
    return bytes(data)


def check(seed, folder, form):
    """Read one damaged file with every reader."""
    rng = random.Random(seed)
    records = payloads(form)
    frames = [frame(r) for r in records]
    offsets = np.cumsum([0, *map(len, frames)])[:-1].tolist()
    data = damaged(rng, b"".join(frames), offsets)
    path = Path(folder) / "f.rec"
    path.write_bytes(data)
    path.with_suffix(".idx").write_text("".join(f"{i}\t{o}\n" for i, o in enumerate(offsets)))
    pixels = {picture(i, HEIGHT, WIDTH).transpose(2, 0, 1).tobytes(): i for i in range(COUNT)}
    whole = [i for i, f in enumerate(frames) for _ in range(data.count(f))]  # the numbers of the undamaged records

    def refused(call):
        """Return call(), or None if it raises an error with the expected text."""
        try:
            return call()
        except MXNetError as e:
            assert WHERE.search(str(e)) or not data or "has no rows" in str(e) or "where no record" in str(e), f"{seed}: {e}"
            return None

    def epoch(it):
        rows = [row for b in it for row in b.data[0].asnumpy()[:len(b.data[0]) - b.pad]]
        if form == ".png":
            assert all(row.tobytes() in pixels for row in rows), f"{seed}: pixels that were never written"
            kept = [pixels[row.tobytes()] for row in rows]
            for i in set(whole):
                assert kept.count(i) >= whole.count(i), \
                    f"{seed}: {type(it).__name__}: record {i} is undamaged and was not returned: {kept}, skipped {it.skipped}"
        return rows

    shape = {"data_shape": (3, HEIGHT, WIDTH), "batch_size": 4, "path_imgrec": path}
    fast = {"dtype": "uint8", "preprocess_threads": 1, "round_batch": False, "prefetch_buffer": 1}
    for kind, more in ((mx.io.ImageRecordIter, {"label_width": 9, **fast}), (mx.io.ImageDetRecordIter, fast),
                       (mx.image.ImageIter, {"label_width": 9, "dtype": "uint8"})):
        it = refused(lambda kind=kind, more=more: kind(**shape, **more, on_error="skip"))
        if it is not None:
            rows = refused(lambda it=it: epoch(it))
            assert rows is None or len(rows) + len(it.skipped) == len(it._file if hasattr(it, "_file") else it.imgrec)
            it.close()
    it = refused(lambda: mx.io.ImageRecordIter(**shape, **fast, label_width=9))
    if it is not None:
        refused(lambda: list(it))
        it.close()
    read = []
    refused(lambda: read.extend(iter(recordio.MXRecordIO(path, "r").read, None)))
    same = next((i for i, (a, b) in enumerate(zip(data, b"".join(frames))) if a != b), len(data))
    before = sum(o + len(f) <= same for o, f in zip(offsets, frames))
    assert read[:before] == records[:before], f"{seed}: records before the damage are read in order"
    refused(lambda: [f.read_idx(i) for f in [recordio.MXIndexedRecordIO(path.with_suffix(".idx"), path, "r")] for i in f.keys])
    found = RecordFile(path, tolerant=True)
    assert sum(found.span(i) for i in range(len(found))) + sum(d.stop - d.start for d in found.damage) >= len(data) - 3
    found.close()
    info = inspect_file(path)
    assert info.problems or data == b"".join(frames) or len(read) == info.facts["records"]


def fuzz(first, last):
    """Check the seeds [first, last), printing each before it starts."""
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, last):
            print(seed, flush=True)
            check(seed, folder, ".jpg" if seed % 5 == 0 else ".png")


CHILD = """
import sys
sys.path[:0] = sys.argv[3:]
from test_damage import fuzz
fuzz(int(sys.argv[1]), int(sys.argv[2]))
"""


def run_child(first, last):
    here = Path(__file__).parent
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", CHILD, str(first), str(last), str(here), str(here.parent)],
                          capture_output=True, text=True, timeout=1500)
    seeds = done.stdout.split()
    assert done.returncode == 0, f"after seed {seeds[-1] if seeds else None}: exit code {done.returncode}\n{done.stderr[-3000:]}"
    assert len(seeds) == last - first


def test_damaged_files_raise_readable_errors():
    run_child(0, 150)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_many_damaged_files_raise_readable_errors():
    run_child(1000, 6000)
