"""Photographs to batches: ImageRecordIter beside MXNet's, torch's DataLoader and the bare decoder; memory; overlap.

    python perf/bench_io.py [--mxnet PYTHON] [--torch PYTHON] [--photos N] [--bursts N] [--only images|stages|memory|overlap]

JPEGs of about 500 x 375 at quality 90; decode, random part resized to 224, mirrored, normalised, float32, batches of 32.
Each reader is a process that stands still between its turns; the turns go round, so that all meet the same load. A line
gives images per second of the clock and per second of processor time (the reader's process and its children), and the
ratios are medians over turns made one after another. torch needs Pillow or OpenCV in its interpreter. Beside two demands
stands what the machine and the decoder alone allow: the decoder's own gain by a second thread, and what float32 costs more.
"""

from __future__ import annotations

import argparse
import gc
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import bench_train
import common

BATCH, SIZE = 32, 224
WARM, TIMED = 8, 24  # batches of a turn: the first ones only fill the prefetch queue
MEAN, STD = (123.68, 116.28, 103.53), (58.395, 57.12, 57.375)
DEMANDS = [  # (ours, the other, at least this many times as fast)
    ("tritium 1", "mxnet 1", 1.15), ("tritium 2", "mxnet 2", 1.15), ("tritium 2", "torch+Pillow 2", 1.9),
    ("tritium 2", "torch+cv2 2", 1.25), ("tritium 2", "simplejpeg 2", 0.62), ("tritium 2", "tritium 1", 1.75),
    ("tritium uint8 2", "tritium 2", 1.08),
]
CEILINGS = {("tritium 2", "tritium 1"): ("simplejpeg 2", "simplejpeg 1")}  # another pair of the same turns bounds a demand


def write_photos(folder: Path, count: int) -> None:
    """JPEG files, their record file, out of scikit-learn's two photographs: other parts, sizes and noise each."""
    import cv2
    import numpy as np
    from sklearn.datasets import load_sample_images
    from tritium.recordio import MXIndexedRecordIO, pack

    rng, photos = np.random.default_rng(0), load_sample_images().images
    total = 0
    with MXIndexedRecordIO(folder / "photos.idx", folder / "photos.rec", "w") as records:
        for i in range(count):
            photo = photos[i % 2]
            height, width = (int(rng.integers(edge * 6 // 10, edge + 1)) for edge in photo.shape[:2])
            y, x = int(rng.integers(photo.shape[0] - height + 1)), int(rng.integers(photo.shape[1] - width + 1))
            size = int(rng.integers(480, 521)), int(rng.integers(355, 396))
            pixels = cv2.resize(photo[y:y + height, x:x + width], size) + rng.normal(0, 9, (size[1], size[0], 3))
            data = cv2.imencode(".jpg", pixels.clip(0, 255).astype(np.uint8)[:, :, ::-1], [cv2.IMWRITE_JPEG_QUALITY, 90])[1]
            (folder / f"{i:05d}.jpg").write_bytes(data.tobytes())
            records.write_idx(i, pack((0, float(i % 10), i, 0), data.tobytes()))
            total += len(data)
    common.say({"bench": "io", "photos": count, "mean_bytes": total // count})


# ---- readers: endless batches -----------------------------------------------------------------------------------------
def of_iterator(make: Callable[[], Any]) -> Iterator[Any]:
    it = make()
    while True:
        for batch in it:
            batch.data[0].wait_to_read()
            yield batch
        it.reset()


def record_parameters(folder: Path) -> dict[str, Any]:
    normalise = {f"{name}_{c}": v for name, values in (("mean", MEAN), ("std", STD)) for c, v in zip("rgb", values)}
    return {"path_imgrec": str(folder / "photos.rec"), "data_shape": (3, SIZE, SIZE), "batch_size": BATCH, "shuffle": True,
            "random_resized_crop": True, "min_random_area": 0.08, "max_random_area": 1.0, "min_aspect_ratio": 0.75,
            "max_aspect_ratio": 4 / 3, "rand_mirror": True, **normalise}


def tritium(folder: Path, threads: int, dtype: str = "float32") -> Iterator[Any]:
    import tritium as mx

    return of_iterator(lambda: mx.io.ImageRecordIter(**record_parameters(folder), preprocess_threads=threads, dtype=dtype))


def mxnet(folder: Path, threads: int) -> Iterator[Any]:
    os.environ["OMP_NUM_THREADS"] = str(threads)
    import mxnet as mx  # type: ignore[import-not-found]

    return of_iterator(lambda: mx.io.ImageRecordIter(**record_parameters(folder), preprocess_threads=threads, ctx="cpu",
                                                     verbose=False))


def torch(folder: Path, workers: int, decoder: str) -> Iterator[Any]:
    import random

    import torch as t  # type: ignore[import-not-found]

    files = sorted(str(f) for f in folder.glob("*.jpg"))
    mean, std = (t.tensor(v).reshape(3, 1, 1) for v in (MEAN, STD))

    class Photos(t.utils.data.Dataset):
        def __len__(self):
            return len(files)

        def __getitem__(self, i):
            if decoder == "cv2":
                import cv2
                import numpy as np

                cv2.setNumThreads(0)
                image = cv2.cvtColor(cv2.imdecode(np.fromfile(files[i], np.uint8), cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)
                x, y, w, h = place(image.shape[1], image.shape[0])
                pixels = cv2.resize(image[y:y + h, x:x + w], (SIZE, SIZE))
            else:
                import numpy as np
                from PIL import Image  # type: ignore[import-not-found]

                with Image.open(files[i]) as opened:
                    image = opened.convert("RGB")
                x, y, w, h = place(*image.size)
                pixels = np.asarray(image.resize((SIZE, SIZE), Image.Resampling.BILINEAR, (x, y, x + w, y + h)))
            data = t.from_numpy(pixels.copy()).permute(2, 0, 1).float().sub_(mean).div_(std)
            return (data.flip(2) if random.random() < 0.5 else data), i % 10

    def place(width: int, height: int) -> tuple[int, int, int, int]:
        while True:
            area, aspect = random.uniform(0.08, 1) * width * height, random.uniform(0.75, 4 / 3)
            w, h = round((area * aspect) ** 0.5), round((area / aspect) ** 0.5)
            if w <= width and h <= height:
                return random.randint(0, width - w), random.randint(0, height - h), w, h

    loader = t.utils.data.DataLoader(Photos(), BATCH, shuffle=True, num_workers=workers, drop_last=True, persistent_workers=True)
    while True:
        yield from loader


def simplejpeg(folder: Path, threads: int) -> Iterator[Any]:
    """The decoder and nothing else."""
    from concurrent.futures import ThreadPoolExecutor
    from functools import partial

    import simplejpeg as decoder

    data = [f.read_bytes() for f in sorted(folder.glob("*.jpg"))]
    at = 0
    with ThreadPoolExecutor(threads) as pool:
        decode = partial(decoder.decode_jpeg, colorspace="RGB")
        while True:
            yield sum(1 for _ in pool.map(decode, [data[(at + i) % len(data)] for i in range(BATCH)]))
            at += BATCH


READERS: dict[str, Callable[[Path], Iterator[Any]]] = {
    "tritium 1": lambda f: tritium(f, 1), "tritium 2": lambda f: tritium(f, 2),
    "tritium uint8 2": lambda f: tritium(f, 2, "uint8"), "simplejpeg 1": lambda f: simplejpeg(f, 1),
    "simplejpeg 2": lambda f: simplejpeg(f, 2),
    "mxnet 1": lambda f: mxnet(f, 1), "mxnet 2": lambda f: mxnet(f, 2),
    "torch+Pillow 2": lambda f: torch(f, 2, "Pillow"), "torch+cv2 2": lambda f: torch(f, 2, "cv2"),
}


def processor_seconds(pid: int) -> float:
    """Processor time of a process and its living children."""
    total = 0.0
    for one in [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]:
        fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def serve(name: str, folder: Path) -> None:
    """As the process of one reader: a turn for every line that comes in."""
    batches = READERS[name](folder)
    for _ in sys.stdin:
        for _ in range(WARM):
            next(batches)
        start, used = time.perf_counter(), processor_seconds(os.getpid())
        for _ in range(TIMED):
            next(batches)
        seconds, processor = time.perf_counter() - start, processor_seconds(os.getpid()) - used
        settle()
        print(f"turn {BATCH * TIMED / seconds} {BATCH * TIMED / processor}", flush=True)


def settle() -> None:
    """Wait, at most 2 s, until this process has stopped prefetching: it would slow the next reader."""
    used, end = -1.0, time.perf_counter() + 2
    while (now := processor_seconds(os.getpid())) > used and time.perf_counter() < end:
        used = now
        time.sleep(0.05)


def images(folder: Path, pythons: dict[str, str | None], bursts: int) -> None:
    """All readers in turn; then the demands."""
    children: dict[str, subprocess.Popen[str]] = {}
    for name in READERS:
        python = pythons.get(name.split("+")[0].split()[0], sys.executable)
        if python:
            children[name] = subprocess.Popen([python, __file__, "--reader", name, str(folder)], stdin=subprocess.PIPE,
                                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    rates: dict[str, list[tuple[float, float]]] = {name: [] for name in children}
    for burst in range(bursts + 1):
        for name, child in list(children.items()):
            line = turn(child)
            if line is None:
                common.say({"bench": "io", "reader": name, "error": "it ended"})
                del children[name]
            elif burst:  # the first turn starts the reader
                rates[name].append(line)
    for child in children.values():
        child.kill()
    for name, got in rates.items():
        if got:
            wall, processor = ([g[i] for g in got] for i in (0, 1))
            common.say({"bench": "io", "reader": name, "images_per_s": round(statistics.median(wall)), "best": round(max(wall)),
                        "images_per_processor_s": round(statistics.median(processor)), "turns": len(got)})
    for ours, other, least in DEMANDS:
        if rates.get(ours) and rates.get(other):
            bound = CEILINGS.get((ours, other))
            common.say({"bench": "io", "ratio": f"{ours} / {other}", "at_least": least, **compared(rates[ours], rates[other]),
                        **({" / ".join(bound): compared(*(rates[name] for name in bound))} if bound else {})})


def compared(ours: list[tuple[float, float]], other: list[tuple[float, float]]) -> dict[str, float]:
    """The speed of the first relative to the second, by the clock and by processor time."""
    wall, processor = ([a[i] / b[i] for a, b in zip(ours, other)] for i in (0, 1))
    return {"clock": round(statistics.median(wall), 3),
            "best_of_best": round(max(r[0] for r in ours) / max(r[0] for r in other), 3),
            "processor": round(statistics.median(processor), 3)}


def turn(child: subprocess.Popen[str]) -> tuple[float, float] | None:
    assert child.stdin is not None and child.stdout is not None
    try:
        child.stdin.write("\n")
        child.stdin.flush()
    except BrokenPipeError:
        return None
    for line in child.stdout:
        if line.startswith("turn "):
            wall, processor = line.split()[1:]
            return float(wall), float(processor)
    return None


# ---- stages, memory and overlap -----------------------------------------------------------------------------------------
def stages(folder: Path) -> None:
    """Microseconds of one image on one thread, by stage; the extra cost of float32 bounds the gain of uint8."""
    import numpy as np
    import tritium as mx
    from tritium.io.image.codec import decode
    from tritium.recordio import unpack

    its = {dtype: mx.io.ImageRecordIter(**record_parameters(folder), dtype=dtype) for dtype in ("float32", "uint8")}
    loads = {dtype: it._loader.load for dtype, it in its.items()}
    rows = {dtype: np.zeros((BATCH, 3, SIZE, SIZE), dtype) for dtype in its}
    numbers = np.random.default_rng(0).random(80).tolist()
    seconds: dict[str, list[float]] = {}
    for i in range(300):
        start = time.perf_counter()

        def lap(stage: str) -> None:
            nonlocal start
            now = time.perf_counter()
            seconds.setdefault(stage, []).append(now - start)
            start = time.perf_counter()

        data = unpack(loads["uint8"].file.read(i))[1]
        lap("read")
        decode(data, upright=True)
        lap("decode")
        for dtype, load in loads.items():
            pixels = decode(data, upright=True)  # again: it lies in the caches as it would
            draw = iter(numbers).__next__
            start = time.perf_counter()
            part = load.augment(pixels, draw, skip_last_resize=True)
            lap("augment")
            load.write_row(part, rows[dtype][i % BATCH], draw)
            lap(f"row {dtype}")
    us = {stage: statistics.median(s) * 1e6 for stage, s in seconds.items()}
    whole = us["read"] + us["decode"] + us["augment"] + us["row uint8"]
    common.say({"bench": "io", "stages": {stage: round(t, 1) for stage, t in us.items()},
                "uint8_can_be": round((whole + us["row float32"] - us["row uint8"]) / whole, 3)})


def held() -> tuple[float, int, int]:
    """Resident MiB, threads, open files of this process."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 2**20, threading.active_count(), len(os.listdir("/proc/self/fd"))


def memory(folder: Path) -> None:
    """Memory, threads and files left by 20 epochs and 50 iterators, opened and closed or dropped."""
    import tritium as mx

    parameters = {**record_parameters(folder), "data_shape": (3, 64, 64), "preprocess_threads": 2}
    it = mx.io.ImageRecordIter(**parameters)
    after = []
    for _ in range(20):
        for batch in it:
            batch.data[0].wait_to_read()
        it.reset()
        after.append(held()[0])
    it.close()
    del it, batch
    common.say({"bench": "io", "memory": "20 epochs", "MiB_after": [round(m, 1) for m in after],
                "growth": round(after[-1] / after[1] - 1, 4), "at_most": 0.05})
    start = None
    for i in range(52):
        it = mx.io.ImageRecordIter(**parameters)
        next(it)
        if i % 2:
            it.close()
        del it
        mx.nd.waitall()
        time.sleep(0.02)  # dropped threads end by themselves
        start = held() if i == 1 else start
    end = held()
    assert start is not None
    common.say({"bench": "io", "memory": "50 opened", "growth": round(end[0] / start[0] - 1, 4), "at_most": 0.05,
                "threads": [start[1], end[1]], "files": [start[2], end[2]]})


def overlap(folder: Path) -> None:
    """Loading alone, training alone, both: at most 1.15 times the slower. One thread decodes, one trains.

    "apart" is both at once in two processes that share only the machine: the upper bound.

    ResNet-20 as bench_train has it, on images cut to 32 x 32; and two convolutions: long kernels, short ones.
    """
    os.environ["TRITIUM_NUM_WORKERS"] = "1"
    import tritium as mx

    overlap_of(folder, "ResNet-20", bench_train.resnet20(mx), 32, 10)
    overlap_of(folder, "two convolutions", two_convolutions(mx, 7, 4), 224, 25)
    overlap_of(folder, "two convolutions", two_convolutions(mx, 3, 2), 64, 40)


def two_convolutions(mx: Any, kernel: int, stride: int) -> Any:
    """A network, the first layer of this kernel and stride."""
    x = mx.sym.Convolution(mx.sym.Variable("data"), num_filter=32, kernel=(kernel, kernel), stride=(stride, stride))
    x = mx.sym.Pooling(mx.sym.Activation(x, act_type="relu"), kernel=(2, 2), stride=(2, 2), pool_type="max")
    x = mx.sym.Convolution(x, num_filter=48, kernel=(3, 3))
    x = mx.sym.Pooling(mx.sym.Activation(x, act_type="relu"), kernel=(2, 2), stride=(2, 2), pool_type="max")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.Flatten(x), num_hidden=10), name="softmax")


def overlap_of(folder: Path, network: str, net: Any, edge: int, batches: int, rounds: int = 5) -> None:
    """One network, on images of this edge."""
    import tritium as mx

    it = mx.io.ImageRecordIter(**{**record_parameters(folder), "data_shape": (3, edge, edge), "preprocess_threads": 1})
    module = mx.mod.Module(net)
    module.bind(it.provide_data, it.provide_label)
    module.init_params(mx.init.Xavier())
    module.init_optimizer(optimizer="sgd", optimizer_params={"learning_rate": 0.001})
    kept = next(it)

    def step(batch: Any) -> None:
        module.forward_backward(batch)
        module.update()

    def load() -> None:
        for _ in range(batches):
            next(endless)

    def train() -> None:
        for _ in range(batches):
            step(kept)
        mx.nd.waitall()

    def both() -> None:
        for _ in range(batches):
            step(next(endless))
        it.reset()  # prefetched batches are not needed: `load` reads none of them, and no thread may wait for them
        mx.nd.waitall()

    trained = beside(train)

    def apart() -> None:
        trained.send(b"now")
        load()
        trained.recv(3)

    seconds: dict[str, list[float]] = {"loading": [], "training": [], "both": [], "apart": []}
    processor: dict[str, list[float]] = {name: [] for name in ("loading", "training", "both")}  # of this process
    decoder: list[dict[str, float]] = []
    for turn_number in range(rounds + 1):
        for name, work in (("loading", load), ("training", train), ("both", both), ("apart", apart)):
            endless = of_iterator(lambda: it)
            it.reset()  # nothing is read ahead when the clock starts
            mx.nd.waitall()
            before, start, used = of_decoders(), time.perf_counter(), time.process_time()
            work()
            if turn_number:
                seconds[name].append(time.perf_counter() - start)
                if name == "both":
                    ran, waited = (b - a for a, b in zip(before, of_decoders()))
                    decoder.append({"runs": ran, "waits_for_a_core": waited, "stands_still": seconds[name][-1] - ran - waited})
                if name in processor:
                    processor[name].append(time.process_time() - used)
    trained.close()
    ratios = {name: [b / max(a, t) for a, t, b in zip(seconds["loading"], seconds["training"], seconds[name])]
              for name in ("both", "apart")}
    best = {name: min(s) for name, s in seconds.items()}
    common.say({"bench": "io", "network": network, "edge": edge,
                "overlap": {k: round(statistics.median(v), 3) for k, v in seconds.items()},
                "at_most": 1.15,
                **{f"{name}_by_the_slower": round(statistics.median(r), 3) for name, r in ratios.items()},
                "of_best": round(best["both"] / max(best["loading"], best["training"]), 3),
                "processor": {k: round(statistics.median(v), 3) for k, v in processor.items()},
                "decoder": {k: round(statistics.median(d[k] for d in decoder), 3) for k in decoder[0]}})


def beside(work: Callable[[], None]) -> socket.socket:
    """A fork of this process that does work for every message, and answers. It ends with the socket."""
    ours, its = socket.socketpair()
    if not os.fork():
        ours.close()
        while its.recv(3):
            work()
            its.send(b"did")
        os._exit(0)
    its.close()
    return ours


def of_decoders() -> tuple[float, float]:
    """Seconds that the threads of iterators ran, and that they could have run but had no core."""
    ran = waited = 0
    for thread in threading.enumerate():
        if thread.name.startswith("ImageRecordIter-"):
            one, other = Path(f"/proc/self/task/{thread.native_id}/schedstat").read_text().split()[:2]
            ran, waited = ran + int(one), waited + int(other)
    return ran / 1e9, waited / 1e9


#: Each in a process of its own: how many threads compute is settled once.
MEASURES = {"stages": stages, "memory": memory, "overlap": overlap}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mxnet", metavar="PYTHON", help="an interpreter that has MXNet")
    parser.add_argument("--torch", metavar="PYTHON", help="an interpreter that has torch, with Pillow or OpenCV")
    parser.add_argument("--photos", type=int, default=2000)
    parser.add_argument("--bursts", type=int, default=5, help="turns of every reader")
    parser.add_argument("--only", choices=["images", *MEASURES], action="append")
    parser.add_argument("--reader", nargs=2, metavar=("NAME", "FOLDER"), help=argparse.SUPPRESS)
    parser.add_argument("--measure", choices=MEASURES, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help="where the photographs are, or will be kept; otherwise a temporary folder")
    given = parser.parse_args()
    if given.reader:
        serve(given.reader[0], Path(given.reader[1]))
        return
    if given.measure:
        MEASURES[given.measure](given.folder)
        return
    common.say({"bench": "io", **common.machine(), "load": round(os.getloadavg()[0], 1)})
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "photos.idx").exists():
            write_photos(folder, given.photos)
        only = given.only or ["images", *MEASURES]
        if "images" in only:
            images(folder, {"mxnet": given.mxnet, "torch": given.torch}, given.bursts)
        for name in MEASURES:
            if name in only:
                common.run_peer(sys.executable, __file__, "--measure", name, "--folder", str(folder))


if __name__ == "__main__":
    main()
