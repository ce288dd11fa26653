"""RecordIter over damaged files with "raise", "skip" and "substitute". Oracle: the plan's records, read one at a time."""

import logging
import random
import struct
import warnings

import numpy as np
import pytest
from tritium.errors import FileError
from tritium.io.iterator import DataDesc
from tritium.io.iterators.record_iter import RecordIter
from tritium.io.plan import BatchPlan
from tritium.io.records.framing import MAGIC_BYTES, frame
from tritium.io.records.record_file import RecordFile


def _damaged_file(folder, rng, n):
    """Write n records, damaged in up to three places, sometimes with an index; return the payloads and which are undamaged."""
    inside = b"", b"abc", MAGIC_BYTES, bytes(60), b"wxyz" + MAGIC_BYTES * 2 + b"z"
    payloads = [struct.pack("<I", i) + rng.choice(inside) for i in range(n)]
    frames = [frame(p) for p in payloads]
    heads = [sum(map(len, frames[:i])) for i in range(n)]
    data = bytearray(b"".join(frames))
    for _ in range(rng.randrange(4)):
        at, size = rng.choice([rng.randrange(len(data)), rng.choice(heads) % len(data)]), rng.choice((1, 3, 4, 8, 100))
        kind = rng.randrange(5)
        if kind == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1 and at > 8:
            del data[at:]
        elif kind == 2:
            data[at:at] = rng.randbytes(size)
        elif kind == 3 and len(data) > 120:
            del data[at:at + size]
        else:
            word = rng.choice((0, 5, 1 << 29, 3 << 29, 7 << 29, (1 << 29) - 1))
            data[at // 4 * 4 + 4:at // 4 * 4 + 8] = struct.pack("<I", word)
    (folder / "a.rec").write_bytes(data)
    with_index = rng.random() < 0.5
    (folder / "a.idx").write_text("".join(f"{i}\t{h}\n" for i, h in enumerate(heads)))
    return folder / "a.idx" if with_index else None, payloads, [i for i, f in enumerate(frames) if data.count(f) == 1]


def _check(seed, folder, on_error):
    rng = random.Random(seed)
    index, payloads, whole = _damaged_file(folder, rng, rng.choice((1, 2, 3, 5, 13, 70)))
    known = {p: i for i, p in enumerate(payloads)}
    try:
        file = RecordFile(folder / "a.rec", index, tolerant=on_error != "raise")
    except FileError as e:
        assert on_error == "raise" and "a.rec: record" in str(e), seed
        return
    if not len(file):
        assert not whole, seed
        return

    def load(record, numbers, rows, fetched=None):
        found = known.get(file.read(record, fetched))
        if found is None:
            raise FileError(f"{file.where(record)} is one that nobody wrote.")
        rows[0][...] = found

    truth = []  # the number of each record's payload, or None
    for record in range(len(file)):
        try:
            truth.append(known.get(file.read(record)))
        except FileError:
            truth.append(None)
    size, parts = rng.choice((1, 2, 3, 7, 50)), rng.choice((1, 1, 2, 3))
    given, skipped, refused = [], {}, False
    for part in range(parts):
        plan = BatchPlan(len(file), size, num_parts=parts, part_index=part, shuffle=rng.random() < 0.5, seed=seed)
        it = RecordIter(file, plan, load, DataDesc("data", (size, 1), np.float32), DataDesc("label", (size,), np.float32),
                        draws=1, seed=1, threads=rng.choice((1, 2, 3)), prefetch=rng.choice((0, 1, 3)), on_error=on_error)
        for number in range(it.num_batches):
            records, pad = plan.numbers(0, 0, number).tolist(), plan.pad(0, number)
            good = [truth[r] for r in records[:size - pad] if truth[r] is not None]
            bad = {r for r in records if truth[r] is None}
            try:
                batch = it.next()
            except FileError as e:
                assert bad and "a.rec: record" in str(e), seed
                assert on_error == "raise" or not plan.size or all(truth[plan.first + i] is None for i in range(plan.size)), seed
                refused = True
                continue
            rows = batch.data[0].asnumpy()[:, 0].astype(int).tolist()
            counted = rows[:size - batch.pad]
            if on_error == "skip":
                assert counted == good, seed
            elif on_error == "raise":
                assert not bad and rows == [truth[r] for r in records] and batch.pad == pad, seed
            else:
                assert batch.pad == pad and set(rows) <= set(truth), seed
                assert [row for row, r in zip(rows, records) if r not in bad] == [truth[r] for r in records if r not in bad], seed
            assert bad.intersection(records[:size - pad]) <= set(it.skipped), seed
            given += counted
        skipped |= it.skipped
        it._clear()
        it._loader.close()
    file.close()
    if on_error != "raise" and not refused:
        assert set(whole) <= set(given), f"{seed}: whole records were not given"
        assert on_error == "substitute" or len(given) + len(skipped) == len(file), seed


@pytest.mark.parametrize("on_error", ["raise", "skip", "substitute"])
def test_damaged_files_give_their_good_records_and_report_the_others(tmp_path, on_error):
    logging.getLogger("tritium.io").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for seed in range(60):
                _check(seed, tmp_path, on_error)
    finally:
        logging.getLogger("tritium.io").setLevel(logging.NOTSET)
