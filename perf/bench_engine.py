"""What the engine itself costs: microseconds per pushed function that does nothing, next to other runtimes.

    python perf/bench_engine.py [--dask PYTHON] [--mxnet PYTHON] [--torch PYTHON] [--workers N] [--repeats R] [--quick]

One JSON line per figure: name, median, spread (interquartile range) and unit over R repeats, after a warm-up.
PYTHON is an interpreter that has the peer; it is measured in the same run, one repeat of each in turn where it matters.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from tritium.context import cpu
from tritium.engine import NaiveEngine, RunContext, ThreadedEngine, profiler, storage, streams
from tritium.engine.deps import Task

CTX = cpu()

_PEER = """
import json, statistics, sys, time
def figures(fn, n, repeats):
    out = []
    for r in range(repeats + 1):
        start = time.perf_counter()
        fn(n)
        out.append((time.perf_counter() - start) / n * 1e6)
    return out[1:]
"""
_MXNET = _PEER + """
import numpy
numpy.bool = bool
import mxnet as mx
a, b = mx.nd.ones((2, 2)), mx.nd.ones((2, 2))
def imperative(n):
    for _ in range(n):
        c = a + b
    mx.nd.waitall()
def round_trip(n):
    for _ in range(n):
        (a + b).wait_to_read()
print(json.dumps({"mxnet a+b 2x2": figures(imperative, N, R), "mxnet a+b 2x2, waited for": figures(round_trip, N, R)}))
"""
_TORCH = _PEER + """
import torch
torch.set_num_threads(1)
a, b = torch.ones(2, 2), torch.ones(2, 2)
def add(n):
    for _ in range(n):
        c = a + b
print(json.dumps({"torch a+b 2x2": figures(add, N, R)}))
"""


_DASK = _PEER + """
import dask, dask.threaded
from concurrent.futures import ThreadPoolExecutor
def nothing(*a):
    pass
def independent(n):
    tasks = {f"t{i}": (nothing,) for i in range(n)}
    dask.threaded.get({"end": (nothing, list(tasks)), **tasks}, "end", pool=POOL)
def chained(n):
    dask.threaded.get({"t0": (nothing,), **{f"t{i}": (nothing, f"t{i-1}") for i in range(1, n)}}, f"t{n-1}", pool=POOL)
POOL = ThreadPoolExecutor(W)
print(json.dumps({f"dask threaded({W}): independent, end to end": figures(independent, N, R),
                  f"dask threaded({W}): chained, end to end": figures(chained, N, R)}))
"""


def nothing(run: object) -> None:
    """The function whose surroundings are measured."""


def report(name: str, figures: list[float], unit: str = "us/op") -> None:
    quarters = statistics.quantiles(figures, n=4) if len(figures) > 1 else [figures[0]] * 3
    print(json.dumps({"name": name, "median": round(statistics.median(figures), 3),
                      "spread": round(quarters[2] - quarters[0], 3), "unit": unit, "repeats": len(figures)}), flush=True)


def measure(name: str, fn: Callable[[int], float | None], n: int, repeats: int) -> None:
    """Time fn(n), or take the seconds that it returns; per operation."""
    figures = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        seconds = fn(n)
        figures.append((time.perf_counter() - start if seconds is None else seconds) / n * 1e6)
    report(name, figures[1:])


def engine_figures(label: str, engine: NaiveEngine | ThreadedEngine, n: int, repeats: int) -> None:
    chain, many = engine.new_variable(), [engine.new_variable() for _ in range(100)]
    opr = engine.new_operator(lambda run, on_complete: on_complete(), [], [chain], name="prepared")

    def push_only(n: int) -> float:
        start = time.perf_counter()
        for i in range(n):
            engine.push_sync(nothing, CTX, (), (many[i % 100],), name="nothing")
        pushed = time.perf_counter() - start
        engine.wait_for_all()
        return pushed

    def independent(n: int) -> None:
        for i in range(n):
            engine.push_sync(nothing, CTX, (), (many[i % 100],), name="nothing")
        engine.wait_for_all()

    def chained(n: int) -> None:
        for _ in range(n):
            engine.push_sync(nothing, CTX, (), (chain,), name="nothing")
        engine.wait_for_all()

    def inline(n: int) -> None:
        for _ in range(n):
            engine.push_sync(nothing, CTX, (), (chain,), prop="inline", name="nothing")
        engine.wait_for_all()

    def prepared(n: int) -> None:
        for _ in range(n):
            engine.push(opr, CTX)
        engine.wait_for_all()

    def three_vars(n: int) -> None:
        for i in range(n):
            engine.push_sync(nothing, CTX, (many[i % 50], many[(i + 7) % 50]), (many[50 + i % 50],), name="nothing")
        engine.wait_for_all()

    def bulk(n: int) -> None:
        with engine.bulk(16):
            for _ in range(n):
                engine.push_sync(nothing, CTX, (), (chain,), name="nothing")
        engine.wait_for_all()

    def round_trip(n: int) -> None:
        for _ in range(n):
            engine.push_sync(nothing, CTX, (), (chain,), name="nothing")
            engine.wait_for_var(chain)

    def round_trip_inline(n: int) -> None:
        for _ in range(n):
            engine.push_sync(nothing, CTX, (), (chain,), prop="inline", name="nothing")
            engine.wait_for_var(chain)

    for name, fn in (("push alone", push_only), ("independent, end to end", independent),
                     ("chained, end to end", chained), ("reads 2 mutates 1, end to end", three_vars),
                     ("inline, end to end", inline), ("prepared, end to end", prepared), ("bulk(16), end to end", bulk)):
        measure(f"{label}: {name}", fn, n, repeats)
    for name, fn in (("round trip", round_trip), ("round trip, inline", round_trip_inline)):
        measure(f"{label}: {name}", fn, n // 10, repeats)


def pending_figures(workers: int, sizes: list[int], repeats: int) -> None:
    """Cost per operation, pushed and run, when so many wait for one: should not grow."""
    for size in sizes:
        for name in ("one var", "100 vars"):
            engine = ThreadedEngine(workers)
            variables = [engine.new_variable() for _ in range(1 if name == "one var" else 100)]
            gate_var = engine.new_variable()

            def fn(n: int, engine: ThreadedEngine = engine, variables: list = variables, gate_var=gate_var) -> None:
                gate = threading.Event()
                engine.push_sync(lambda run: gate.wait(), CTX, (), (gate_var,))
                for i in range(n):
                    engine.push_sync(nothing, CTX, (gate_var,), (variables[i % len(variables)],), name="nothing")
                gate.set()
                engine.wait_for_all()
            measure(f"threaded({workers}): {size:,} pending on {name}", fn, size, 3 if size > 100_000 else repeats)
            engine.stop()


def futures_figures(workers: int, n: int, repeats: int) -> None:
    with ThreadPoolExecutor(workers) as pool:
        def independent(n: int) -> None:
            for f in [pool.submit(nothing, None) for _ in range(n)]:
                f.result()

        def round_trip(n: int) -> None:
            for _ in range(n):
                pool.submit(nothing, None).result()
        measure(f"concurrent.futures({workers}): independent, end to end", independent, n, repeats)
        measure(f"concurrent.futures({workers}): round trip", round_trip, n // 10, repeats)


def overlap_figures(repeats: int, quick: bool) -> None:
    """Two NumPy functions of some 5 ms that release the GIL, with one worker and with two, in pairs: how much sooner."""
    side = 60 if quick else 400
    a = np.random.default_rng(0).random((side, side))
    outs = [np.empty_like(a), np.empty_like(a)]
    engines = [ThreadedEngine(1), ThreadedEngine(2)]
    variables = [[e.new_variable(), e.new_variable()] for e in engines]
    start = time.perf_counter()
    np.matmul(a, a, out=outs[0])
    loops = max(1, round(0.005 / (time.perf_counter() - start)))

    def work(out: np.ndarray) -> None:
        for _ in range(loops):
            np.matmul(a, a, out=out)

    def both(i: int) -> float:
        start = time.perf_counter()
        for v, out in zip(variables[i], outs):
            engines[i].push_sync(lambda run, out=out: work(out), CTX, (), (v,), name="matmul")
        engines[i].wait_for_all()
        return time.perf_counter() - start
    both(0), both(1)
    pairs = [(both(0), both(1)) for _ in range(3 * repeats)]
    report("overlap: two functions, one worker", [one * 1e3 for one, _ in pairs], "ms")
    report("overlap: two functions, two workers", [two * 1e3 for _, two in pairs], "ms")
    report("overlap: one worker's time / two workers'", [one / two for one, two in pairs], "times")
    for e in engines:
        e.stop()


class _Hookless(ThreadedEngine):
    """The engine without a place for a profiler: what looking for one costs when it is off."""

    def execute(self, task: Task, run: RunContext, inline: bool = False) -> None:
        try:
            if self._on_gpu:
                streams.before(task, run.stream)
            if task.wants_complete:
                self._begin(task, run)
            else:
                task.fn(run)  # type: ignore[misc]
                if run.stream is not None:
                    streams.after(task, run.stream)
                self._finish(task)
        except BaseException as e:
            self._fail(task, e)
            self._finish(task)


def profiler_figures(workers: int, n: int, repeats: int) -> None:
    """The same pushes without hooks, with the profiler off, and on, in turn."""
    engines = {"hookless": _Hookless(workers), "off": ThreadedEngine(workers)}
    engines["on"] = engines["off"]
    many = [engines["off"].new_variable() for _ in range(100)]

    def once(kind: str) -> float:
        engine = engines[kind]
        if kind == "on":
            profiler.set_state("run", engine=engine)
        start = time.perf_counter()
        for i in range(n):
            engine.push_sync(nothing, CTX, (), (many[i % 100],), name="nothing")
        engine.wait_for_all()
        took = (time.perf_counter() - start) / n * 1e6
        if kind == "on":
            profiler.set_state("stop")
            profiler.dumps(reset=True)
        return took
    rounds = [{kind: once(kind) for kind in engines} for _ in range(2 * repeats + 1)][1:]
    report("profiler: off / no hooks", [r["off"] / r["hookless"] for r in rounds], "times")
    report("profiler: on / off", [r["on"] / r["off"] for r in rounds], "times")
    for e in set(engines.values()):
        e.stop()


def peer_figures(python: str, script: str, n: int, repeats: int, workers: int = 1) -> None:
    done = subprocess.run([python, "-c", f"N, R, W = {n}, {repeats}, {workers}\n{script}"], capture_output=True, text=True)
    if done.returncode:
        print(json.dumps({"name": python, "error": done.stderr.strip().splitlines()[-1:]}), flush=True)
        return
    for name, figures in json.loads(done.stdout.splitlines()[-1]).items():
        report(name, figures)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dask", metavar="PYTHON")
    parser.add_argument("--mxnet", metavar="PYTHON")
    parser.add_argument("--torch", metavar="PYTHON")
    parser.add_argument("--workers", type=int, default=min(4, os.cpu_count() or 1))
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument("--quick", action="store_true", help="few operations: whether it runs, not how fast")
    args = parser.parse_args()
    n, repeats = (500, 2) if args.quick else (10_000, args.repeats)

    print(json.dumps({"machine": platform.processor() or platform.machine(), "cores": os.cpu_count(),
                      "python": platform.python_version(), "load": os.getloadavg()[0]}), flush=True)
    engine_figures("naive", NaiveEngine(), n, repeats)
    for workers in sorted({1, args.workers}):
        engine = ThreadedEngine(workers)
        engine_figures(f"threaded({workers})", engine, n, repeats)
        engine.stop()
        futures_figures(workers, n, repeats)
    pending_figures(args.workers, [100, 1000] if args.quick else [1_000, 10_000, 100_000, 1_000_000], repeats)
    overlap_figures(repeats, args.quick)
    profiler_figures(args.workers, n, repeats)

    def allocate(n: int) -> None:
        for _ in range(n):
            storage.alloc(1000, CTX)
    measure("storage: alloc and drop 1000 bytes", allocate, n, repeats)
    if args.dask:
        peer_figures(args.dask, _DASK, n // 10, repeats, args.workers)
    if args.mxnet:
        peer_figures(args.mxnet, _MXNET, n // 2, repeats)
    if args.torch:
        peer_figures(args.torch, _TORCH, n, repeats)


if __name__ == "__main__":
    main()
