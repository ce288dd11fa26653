"""Reading records and rows: RecordIO in order and by key, opening and rebuilding an index, CSV, LibSVM, NDArrayIter.

    python perf/bench_rows.py [--mxnet PYTHON] [--pairs N]

JSON lines: seconds of processor time per record or row (all threads of the process, so that read-ahead is not free),
median and spread; MXNet runs in pairs with ours, on the same files.
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common

ROUNDS = 5
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
    """Name of a measurement: what it runs, and how many records or rows that reads."""
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
    found["open an index"] = (lambda: mx.recordio.MXIndexedRecordIO(index, name, "r").close()), RECORDS[100]
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


def measure(package: str, folder: Path) -> list[dict[str, Any]]:
    """Print and return one line per measurement, of one package in this process."""
    lines = []
    for case, (work, count) in works(package, folder).items():
        work()
        seconds = []
        for _ in range(ROUNDS):
            gc.collect()
            start = time.process_time()
            work()
            seconds.append((time.process_time() - start) / count)
        lines.append(common.emit("rows", seconds, case=case, package=package))
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mxnet", metavar="PYTHON", help="an interpreter that has MXNet")
    parser.add_argument("--package", choices=("tritium", "mxnet"), help="measure this package in this process, and nothing else")
    parser.add_argument("--folder", type=Path, help="where the files are; they are made in a temporary folder otherwise")
    parser.add_argument("--pairs", type=int, default=3, help="how often ours and MXNet are measured in turn")
    given = parser.parse_args()
    if given.package:
        measure(given.package, given.folder)
        return
    common.say({"bench": "rows", **common.machine()})
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_files(folder)
        ours, theirs = [], []
        for _ in range(given.pairs):
            ours.append(common.run_peer(sys.executable, __file__, "--package", "tritium", "--folder", name))
            if given.mxnet:
                theirs.append(common.run_peer(given.mxnet, __file__, "--package", "mxnet", "--folder", name))
        for line in theirs[0] if theirs else []:
            case = line["case"]
            common.ratio("rows", [m for run in ours for m in run if m["case"] == case],
                         [m for run in theirs for m in run if m["case"] == case], case=case)


if __name__ == "__main__":
    main()
