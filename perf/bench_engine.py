"""The engine's own cost: seconds per pushed function that does nothing, next to other runtimes.

    python perf/bench_engine.py [--dask PYTHON] [--mxnet PYTHON] [--torch PYTHON] [--workers N] [--repeats R] [--quick]

It prints one JSON line per measurement: median, interquartile range and best of R repeats, after a warm-up. PYTHON is an
interpreter with the peer installed; the peer is measured in the same run.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection

import common
import numpy as np
from tritium.context import Context, cpu
from tritium.engine import NaiveEngine, Opr, RunContext, ThreadedEngine
from tritium.engine.arguments import check_vars
from tritium.engine.deps import Task, Var
from tritium.engine.failure import capture_call_site
from tritium.engine.gpu import streams
from tritium.engine.memory import storage
from tritium.engine.profiler import api as profiler
from tritium.engine.worker_pool import limit_blas

CTX = cpu()

_PEER = """
import json, statistics, sys, time
def figures(fn, n, repeats):
    out = []
    for r in range(repeats + 1):
        start = time.perf_counter()
        fn(n)
        out.append((time.perf_counter() - start) / n)
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
    """The function that is pushed."""


def measure(name: str, fn: Callable[[int], float | None], n: int, repeats: int, **fields: str) -> float:
    """Print the seconds per operation of fn(n), which may return the seconds itself. Returns: the least."""
    figures = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        seconds = fn(n)
        figures.append((time.perf_counter() - start if seconds is None else seconds) / n)
    common.emit(name, figures[1:], **fields)
    return min(figures[1:])


def engine_figures(label: str, engine: NaiveEngine | ThreadedEngine, n: int, repeats: int) -> None:
    chain, many = engine.new_variable(), [engine.new_variable() for _ in range(100)]
    opr = engine.new_operator(nothing, [], [chain], name="prepared", synchronous=True)

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


def prepared_figures(label: str, engine: NaiveEngine | ThreadedEngine, n: int, repeats: int) -> None:
    """CPU time of a prepared operator over that of push_sync, pushed and run inline, by the number of variables: below 1 at each.

    Both run in this thread. They take turns in many short rounds, and the least of each counts.
    """
    for size in (0, 1, 2, 3, 10, 30, 100):
        variables = [engine.new_variable() for _ in range(size)]
        const, mutable = tuple(variables[1:]), tuple(variables[:1])
        opr = engine.new_operator(nothing, const, mutable, prop="inline", name="prepared", synchronous=True)

        def pushed(const: tuple[Var, ...] = const, mutable: tuple[Var, ...] = mutable) -> float:
            start = time.thread_time()
            for _ in range(n):
                engine.push_sync(nothing, CTX, const, mutable, prop="inline", name="prepared")
            return time.thread_time() - start

        def prepared(opr: Opr = opr) -> float:
            start = time.thread_time()
            for _ in range(n):
                engine.push(opr, CTX)
            return time.thread_time() - start
        rounds = [(prepared(), pushed()) for _ in range(20 * repeats)]
        least = [min(column) for column in zip(*rounds)]
        common.emit(f"{label}: prepared / push_sync, {size} variables", [least[0] / least[1]], "ratio")


def pending_figures(workers: int, sizes: list[int], repeats: int) -> None:
    """CPU time per operation, pushed and run, while many wait for one; it should not grow with their number. The least of several
    counts, since other programs can only add to it."""
    smallest: dict[tuple[str, int], float] = {}
    for name in ("one var", "100 vars"):
        for size in sizes:
            engine = ThreadedEngine(workers)
            variables = [engine.new_variable() for _ in range(1 if name == "one var" else 100)]
            gate_var = engine.new_variable()

            def fn(n: int, engine: ThreadedEngine = engine, variables: list = variables, gate_var=gate_var) -> float:
                gate = threading.Event()
                engine.push_sync(lambda run: gate.wait(), CTX, (), (gate_var,))
                start = time.process_time()
                for i in range(n):
                    engine.push_sync(nothing, CTX, (gate_var,), (variables[i % len(variables)],), name="nothing")
                gate.set()
                engine.wait_for_all()
                return time.process_time() - start
            smallest[name, size] = measure(f"threaded({workers}): {size:,} pending on {name}", fn, size,
                                           min(3 * repeats, max(3, 300_000 // size)), clock="CPU")
            engine.stop()
        common.emit(f"pending on {name}: {sizes[-1]:,} / {sizes[0]:,}",
                    [smallest[name, sizes[-1]] / smallest[name, sizes[0]]], "ratio")


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
    """Two NumPy functions of about 5 ms that release the GIL: the gain of running both at once over one after the other.

    Measured with an engine of two workers against one of one worker, and for the machine's limit, with bare threads and with
    processes. Two virtual cores may be one real core, and other programs take their share of both.
    """
    loops = _loops(quick)
    work = [_matmuls(quick, loops), _matmuls(quick, loops)]
    engines = [ThreadedEngine(1), ThreadedEngine(2)]
    variables = [[e.new_variable(), e.new_variable()] for e in engines]

    def pushed(i: int) -> Callable[[], None]:
        def run() -> None:
            for v, fn in zip(variables[i], work):
                engines[i].push_sync(lambda run, fn=fn: fn(), CTX, (), (v,), name="matmul")
            engines[i].wait_for_all()
        return run

    def serial() -> None:
        for fn in work:
            fn()
    with _Threads(work) as threads, _Processes(quick, loops) as processes:
        runs = {"one worker": pushed(0), "two workers": pushed(1), "no engine, serial": serial,
                "no engine, two threads": threads.both, "no engine, two processes": processes.both}
        rounds = [{name: _seconds(run) for name, run in runs.items()} for _ in range(6 * repeats + 3)][3:]
    for name in runs:
        common.emit(f"overlap: {name}", [r[name] for r in rounds])
    for name, one, two in (("one worker / two workers", "one worker", "two workers"),
                           ("serial / two threads", "no engine, serial", "no engine, two threads"),
                           ("serial / two processes", "no engine, serial", "no engine, two processes")):
        common.emit(f"overlap: {name}", [r[one] / r[two] for r in rounds], "ratio")
        common.emit(f"overlap: {name}, of the least", [min(r[one] for r in rounds) / min(r[two] for r in rounds)], "ratio")
    for e in engines:
        e.stop()


def _seconds(fn: Callable[[], None]) -> float:
    start = time.perf_counter()
    fn()
    return time.perf_counter() - start


def _matmuls(quick: bool, loops: int) -> Callable[[], None]:
    """Return a function that computes `loops` matrix products on one thread."""
    a = np.random.default_rng(0).random((60, 60) if quick else (400, 400))
    out = np.empty_like(a)

    def work() -> None:
        for _ in range(loops):
            np.matmul(a, a, out=out)
    return work


def _loops(quick: bool) -> int:
    """The number of matrix products that take 5 ms."""
    limit_blas()
    return max(1, round(5e-3 / min(_seconds(_matmuls(quick, 1)) for _ in range(20))))


class _Threads:
    """Two bare threads, each waiting on a lock: the least cost of a pool."""

    def __init__(self, work: list[Callable[[], None]]):
        self._go = [threading.Lock() for _ in work]
        self._done = [threading.Lock() for _ in work]
        for lock in (*self._go, *self._done):
            lock.acquire()
        self._over = False
        self._threads = [threading.Thread(target=self._run, args=(i, fn)) for i, fn in enumerate(work)]

    def _run(self, i: int, fn: Callable[[], None]) -> None:
        while self._go[i].acquire() and not self._over:
            fn()
            self._done[i].release()

    def both(self) -> None:
        for lock in self._go:
            lock.release()
        for lock in self._done:
            lock.acquire()

    def __enter__(self) -> _Threads:
        for t in self._threads:
            t.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        for lock in self._go:
            lock.release()
        for t in self._threads:
            t.join()


class _Processes:
    """Two processes that share only a pipe with this one."""

    def __init__(self, quick: bool, loops: int):
        self._work = quick, loops

    def both(self) -> None:
        for p in self._pipes:
            p.send(True)
        for p in self._pipes:
            p.recv()

    def __enter__(self) -> _Processes:
        context = multiprocessing.get_context("spawn")
        ends = [context.Pipe() for _ in range(2)]
        self._pipes = [mine for mine, _ in ends]
        self._processes = [context.Process(target=_child, args=(theirs, *self._work)) for _, theirs in ends]
        for process in self._processes:
            process.start()
        for p in self._pipes:
            p.recv()
        return self

    def __exit__(self, *_: object) -> None:
        for p in self._pipes:
            p.send(False)
        for process in self._processes:
            process.join()


def _child(pipe: Connection, quick: bool, loops: int) -> None:
    limit_blas()
    work = _matmuls(quick, loops)
    pipe.send(None)
    while pipe.recv():
        work()
        pipe.send(None)


class _Hookless(ThreadedEngine):
    """The engine without profiler hooks, to measure their cost while the profiler is off."""

    def push_sync(self, fn: Callable[[RunContext], object], exec_ctx: Context, const_vars: Sequence[Var],
                  mutable_vars: Sequence[Var], *, prop: str | None = None, priority: int = 0, name: str = "") -> None:
        const, mutable = tuple(const_vars), tuple(mutable_vars)
        check_vars(const, mutable, name)
        pool = self._pools.get((exec_ctx.device_type, exec_ctx.device_id, prop)) or self._find_pool(exec_ctx, prop, name)
        task = Task(fn, const, mutable, pool, priority, next(self._seq), name, capture_call_site(), False, prop == "inline")
        if self._bulks:
            self._push(task)
        else:
            self._submit(task)

    def execute(self, task: Task, run: RunContext, inline: bool = False) -> None:
        try:
            if self._uses_gpu:
                streams.before(task.const_vars, task.mutable_vars, run.stream)
            if task.wants_complete:
                self._begin(task, run)
            else:
                task.fn(run)  # type: ignore[misc]
                if run.stream is not None:
                    streams.after(task.const_vars, task.mutable_vars, run.stream, task.name)
                self._finish(task)
        except BaseException as e:
            self._fail(task, e)
            self._finish(task)


def profiler_figures(workers: int, n: int, repeats: int) -> None:
    """The same pushes without hooks, with the profiler off, and with it on, in turn: the least CPU time of many rounds."""
    engines = {"hookless": _Hookless(workers), "off": ThreadedEngine(workers)}
    engines["on"] = engines["off"]
    many = [engines["off"].new_variable() for _ in range(100)]

    def once(kind: str) -> float:
        engine = engines[kind]
        if kind == "on":
            profiler.set_config(filename=os.path.join(tempfile.gettempdir(), "profile.json"))
            profiler.set_state("run", engine=engine)
        start = time.process_time()
        for i in range(n):
            engine.push_sync(nothing, CTX, (), (many[i % 100],), name="nothing")
        engine.wait_for_all()
        seconds = (time.process_time() - start) / n
        if kind == "on":
            profiler.set_state("stop")
            profiler.dumps(reset=True)
        return seconds
    rounds = [{kind: once(kind) for kind in engines} for _ in range(10 * repeats + 1)][1:]
    least = {kind: min(r[kind] for r in rounds) for kind in engines}
    common.emit("profiler: off / no hooks", [least["off"] / least["hookless"]], "ratio")
    common.emit("profiler: on / off", [least["on"] / least["off"]], "ratio")
    for e in set(engines.values()):
        e.stop()


def peer_figures(python: str, script: str, n: int, repeats: int, workers: int = 1) -> None:
    done = subprocess.run([python, "-c", f"N, R, W = {n}, {repeats}, {workers}\n{script}"], capture_output=True, text=True)
    if done.returncode:
        common.say({"peer": python, "error": done.stderr.strip().splitlines()[-1:]})
        return
    for name, figures in json.loads(done.stdout.splitlines()[-1]).items():
        common.emit(name, figures)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dask", metavar="PYTHON")
    parser.add_argument("--mxnet", metavar="PYTHON")
    parser.add_argument("--torch", metavar="PYTHON")
    parser.add_argument("--workers", type=int, default=min(4, os.cpu_count() or 1))
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument("--quick", action="store_true", help="few operations: only checks that it runs")
    args = parser.parse_args()
    n, repeats = (500, 2) if args.quick else (10_000, args.repeats)

    common.say({"bench": "engine", **common.machine(), "load": os.getloadavg()[0]})
    engine_figures("naive", NaiveEngine(), n, repeats)
    prepared_figures("naive", NaiveEngine(), n // 50, repeats)
    for workers in sorted({1, args.workers}):
        engine = ThreadedEngine(workers)
        engine_figures(f"threaded({workers})", engine, n, repeats)
        prepared_figures(f"threaded({workers})", engine, n // 50, repeats)
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
