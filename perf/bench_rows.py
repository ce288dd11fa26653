"""Reading records and rows: RecordIO in order and by key, opening and rebuilding an index, CSV, LibSVM, NDArrayIter.

    python perf/bench_rows.py [--mxnet PYTHON] [--pairs N] [--only PART_OF_A_NAME]

JSON lines: seconds of processor time per record or row, of all threads of the process, median and spread; MXNet runs in
pairs with ours, on the same files. Epochs follow each other without a pause, and a round ends where the next begins: what
threads read ahead of an epoch is counted, in the round before it.
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import common

ROUNDS, EPOCHS = 5, 2  # and epochs of a round
RECORDS = {100: 60_000, 10_000: 4_000, 100_000: 600}  # bytes of a record: how many
CSV_ROWS, LIBSVM_ROWS, ARRAY_ROWS = 20_000, 20_000, 60_000


def write_files(folder: Path) -> None:
    """The files that both read."""
    from tritium.recordio import MXIndexedRecordIO

    rng = random.Random(0)
    for size, count in RECORDS.items():
        payload = rng.randbytes(size)
        with MXIndexedRecordIO(folder / f"{size}.idx", folder / f"{size}.rec", "w") as file:
            for key in range(count):
                file.write_idx(key, payload)
    with open(folder / "a.csv", "w") as file:
        for _ in range(CSV_ROWS):
            file.write(",".join(f"{rng.gauss(0, 1):.6g}" for _ in range(28)) + "\n")
    with open(folder / "a.libsvm", "w") as file:
        for _ in range(LIBSVM_ROWS):
            file.write(f"{rng.choice((-1, 1))} " + " ".join(f"{i}:{rng.gauss(0, 1):.6g}" for i in range(13)) + "\n")


def works(package: str, folder: Path) -> dict[str, tuple[Callable[[], Any], int]]:
    """Name of a measurement: the function it runs, and the number of records or rows that it reads."""
    if package == "tritium":
        import tritium as mx
    else:
        import mxnet as mx  # type: ignore[import-not-found]
    import numpy

    found: dict[str, tuple[Callable[[], Any], int]] = {}
    for size, count in reversed(RECORDS.items()):  # the smallest last: its index is opened again below
        name, index = str(folder / f"{size}.rec"), str(folder / f"{size}.idx")

        def in_order(name: str = name) -> None:
            file = mx.recordio.MXRecordIO(name, "r")
            while file.read() is not None:
                pass
            file.close()

        by_key = mx.recordio.MXIndexedRecordIO(index, name, "r")
        keys = list(range(count))
        random.Random(1).shuffle(keys)

        def at_random(file: Any = by_key, keys: list[int] = keys) -> None:
            for key in keys:
                file.read_idx(key)

        found[f"records of {size} B in order"] = in_order, count
        found[f"records of {size} B at random"] = at_random, count

    def open_and_read() -> None:
        file = mx.recordio.MXIndexedRecordIO(index, name, "r")
        file.read_idx(RECORDS[100] - 1)
        file.close()

    found["open an index"] = (lambda: mx.recordio.MXIndexedRecordIO(index, name, "r").close()), RECORDS[100]
    found["open an index, read a record"] = open_and_read, RECORDS[100]
    if package == "tritium":
        found["rebuild an index, per byte"] = (lambda: mx.recordio.find_records(folder / "100000.rec")), 600 * 100_008

    def batches(make: Callable[[], Any]) -> Callable[[], None]:
        iterator = make()

        def epoch() -> None:
            for batch in iterator:
                batch.data[0].wait_to_read()
            iterator.reset()

        return epoch

    found["CSV rows"] = batches(lambda: mx.io.CSVIter(data_csv=str(folder / "a.csv"), data_shape=(28,), batch_size=100)), CSV_ROWS
    found["LibSVM rows"] = batches(lambda: mx.io.LibSVMIter(data_libsvm=str(folder / "a.libsvm"), data_shape=(13,),
                                                            batch_size=100)), LIBSVM_ROWS
    values = numpy.random.default_rng(0).standard_normal((ARRAY_ROWS, 28), dtype=numpy.float32)
    found["NDArrayIter rows, shuffled"] = batches(lambda: mx.io.NDArrayIter(mx.nd.array(values), batch_size=100,
                                                                            shuffle=True)), ARRAY_ROWS
    return found


def measure(package: str, folder: Path, only: str) -> list[dict[str, Any]]:
    """Print and return one line per measurement with `only` in its name, of one package in this process."""
    lines = []
    for case, (work, count) in works(package, folder).items():
        if only not in case:
            continue
        work()
        gc.collect()
        marks = [time.process_time()]
        for _ in range(ROUNDS):
            for _ in range(EPOCHS):
                work()
            marks.append(time.process_time())
        seconds = [(after - before) / EPOCHS / count for before, after in pairwise(marks)]
        lines.append(common.emit("rows", seconds, case=case, package=package))
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mxnet", metavar="PYTHON", help="an interpreter that has MXNet")
    parser.add_argument("--package", choices=("tritium", "mxnet"), help="measure this package in this process, and nothing else")
    parser.add_argument("--folder", type=Path, help="where the files are; they are made in a temporary folder otherwise")
    parser.add_argument("--only", default="", help="only names that contain this: records, index, CSV, LibSVM, NDArrayIter")
    parser.add_argument("--pairs", type=int, default=3, help="how often ours and MXNet are measured in turn")
    given = parser.parse_args()
    if given.package:
        measure(given.package, given.folder, given.only)
        return
    common.say({"bench": "rows", **common.machine()})
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_files(folder)
        ours, theirs = [], []
        for _ in range(given.pairs):
            same = ("--folder", name, "--only", given.only)
            ours.append(common.run_peer(sys.executable, __file__, "--package", "tritium", *same))
            if given.mxnet:
                theirs.append(common.run_peer(given.mxnet, __file__, "--package", "mxnet", *same))
        for line in theirs[0] if theirs else []:
            case = line["case"]
            common.ratio("rows", [m for run in ours for m in run if m["case"] == case],
                         [m for run in theirs for m in run if m["case"] == case], case=case)


if __name__ == "__main__":
    main()
