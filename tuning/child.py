"""The timing process: an illegal access, a crash or an endless loop costs one configuration, not the run.

It reads a request, collects the same tasks as its parent, and answers each line of JSON with a line of JSON. It has not timed a
real GPU yet: it was written on a machine without one.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from .. import engine
from ..context import Context
from ..engine.gpu import cuda, transfer
from ..engine.memory import storage
from ..engine.run_context import RunContext
from ..kernels.configs import active as active_configs
from ..kernels.configs.key import Config
from ..kernels.gpu.copy import fill
from ..kernels.kernel import DeviceArray
from ..kernels.op import Req
from ..kernels.tolerance import tolerance
from .collect import TuningRequest, collect
from .tasks import TuningTask

SHORTEST = 1e-3  # seconds: shorter kernels are called several times in a row
FLUSH = 256 << 20  # bytes written between two timings of a GPU, to empty its L2 cache
SEED = 7


class Bench:
    """The arrays of one task, and its kernels, by configuration."""

    def __init__(self, run: RunContext, task: TuningTask):
        self.run, self.task = run, task
        rng = np.random.default_rng(SEED)
        self.ins = [device_array(run, sample(rng, s.shape, s.dtype), s.dtype) for s in task.ins]
        self.outs = [device_array(run, np.zeros(s.shape, s.dtype), s.dtype) for s in task.outs]
        self.options = task.kernel_options((SEED, 0))
        self.kernels: dict[str, Callable[..., None]] = {}
        self.repeats: dict[str, Callable[[], None]] = {}
        self.calls = 0
        self.graphs = True  # CUDA graphs are used until one cannot be captured

    def _kernel(self, config: Config) -> Callable[..., None]:
        name = json.dumps(config, sort_keys=True)
        if name not in self.kernels:
            t = self.task
            kernel = t.op.kernel(t.params, t.ins, t.outs, t.reqs, t.target, t.train)
            kernel(self.run, self.ins, self.outs, **self.options)
            self._wait()
            self.kernels[name] = kernel
        return self.kernels[name]

    def seconds(self, config: Config) -> float:
        """Time config once: seconds per call. Before the first timing of a configuration it is called once."""
        with active_configs.forced(self.task.chosen, config):
            kernel = self._kernel(config)
            if not self.calls:
                once = self._timed(lambda: kernel(self.run, self.ins, self.outs, **self.options))
                self.calls = max(1, min(10_000, math.ceil(SHORTEST / max(once, 1e-7))))
            return self._timed(self._repeat(config, kernel)) / self.calls

    def _repeat(self, config: Config, kernel: Callable[..., None]) -> Callable[[], None]:
        """Return a function that makes `calls` calls: on a GPU the replay of a CUDA graph, so that the host's time does not
        count; without a graph, the calls themselves."""
        name = json.dumps(config, sort_keys=True)
        if name not in self.repeats:
            def repeat() -> None:
                for _ in range(self.calls):
                    kernel(self.run, self.ins, self.outs, **self.options)

            self.repeats[name] = repeat
            if self.run.stream is not None and self.graphs:
                graph = cuda.Graph(self.run.ctx.device_id, "tune")
                try:
                    graph.capture(repeat)
                    self.repeats[name] = graph.replay
                except Exception:  # then all launches of this task, the default's too, are timed one by one
                    self.graphs = False
                    self.repeats = {name: repeat}
        return self.repeats[name]

    def _timed(self, work: Callable[[], None]) -> float:
        if self.run.stream is not None:
            fill(self.run, self.run.workspace((FLUSH,), np.dtype("uint8")), 0)
            self._wait()
        start = time.perf_counter()
        work()
        self._wait()
        return time.perf_counter() - start

    def _wait(self) -> None:
        if self.run.stream is not None:
            self.run.stream.synchronize()

    def differs(self, config: Config, default: Config) -> str:
        """Compare config's outputs with the default's; return the fault, or "".

        Other blocks add in another order, so a difference is measured against the output's largest value.
        """
        want, got = self._outputs(default), self._outputs(config)
        for i, (w, g) in enumerate(zip(want, got)):
            rtol, atol = tolerance(w.dtype)
            w, g = w.astype("float64"), g.astype("float64")
            scale = np.max(np.abs(w), initial=0, where=np.isfinite(w))
            worst = np.max(np.abs(g - w), initial=0, where=np.isfinite(w))
            if not np.array_equal(np.isfinite(g), np.isfinite(w)) or worst > atol + 10 * rtol * scale:
                return f"output {i} differs by {worst:.3g} where its largest value is {scale:.3g}"
        return ""

    def _outputs(self, config: Config) -> list[np.ndarray]:
        kept = [(o, s) for o, s, r in zip(self.outs, self.task.outs, self.task.reqs) if r != Req.NULL]
        for o, s in kept:
            assign(o, np.zeros(s.shape, s.dtype))
        with active_configs.forced(self.task.chosen, config):
            self._kernel(config)
            for o, s in kept:
                assign(o, np.zeros(s.shape, s.dtype))
            self._kernel(config)(self.run, self.ins, self.outs, **self.options)
        self._wait()
        return [np.array(o if isinstance(o, np.ndarray) else transfer.to_host(o)) for o, _ in kept]


def device_array(run: RunContext, values: np.ndarray, dtype: np.dtype) -> Any:
    """Return values as an array on run's device."""
    array = storage.array(values.shape, dtype, run.ctx)
    assign(array, values)
    return array


def assign(array: DeviceArray, values: np.ndarray) -> None:
    """Write values to an array on any device."""
    if isinstance(array, np.ndarray):
        array[...] = values
    else:
        transfer.from_host(array, values)


def sample(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Random inputs: normal, since a GPU's clock depends on the values; zeros and ones for integers."""
    if dtype.kind in "iub":
        return rng.integers(0, 2, shape).astype(dtype)
    return rng.standard_normal(shape, dtype=np.float32).astype(dtype)


def rooflines(run: RunContext, dtypes: list[str]) -> dict[str, float]:
    """Measure this machine's "bytes_per_s" (read and written, by a large copy) and "flops DTYPE" (of a large product)."""
    limits = {}
    if run.stream is None:
        def seconds(work: Callable[..., object], parts: int, *arrays: np.ndarray) -> float:
            pieces = list(zip(*(np.split(a, parts) for a in arrays)))
            return best_of(lambda: run.parallel(lambda i: work(*pieces[i]), parts))

        a, b = np.ones(16 << 20, np.float32), np.zeros(16 << 20, np.float32)
        limits["bytes_per_s"] = 2 * a.nbytes / min(seconds(np.copyto, p, b, a) for p in (1, 2, 16))
        n = 1024
        for name in sorted({"float64" if d == "float64" else "float32" for d in dtypes}):
            x, y, z = (np.ones((n, n), name) for _ in range(3))
            multiply = partial(_multiply, y)
            limits[f"flops {name}"] = 2.0 * n**3 / min(seconds(multiply, p, x, z) for p in (1, 2, 4, 8))
        return limits
    a, b = (run.workspace((1 << 28,), np.dtype("uint8")) for _ in range(2))
    limits["bytes_per_s"] = 2 * (1 << 28) / best_of(lambda: (transfer.copy(b, a), run.stream.synchronize()))
    return limits


def _multiply(y: np.ndarray, x: np.ndarray, out: np.ndarray) -> None:
    np.matmul(x, y, out=out)


def best_of(work: Callable[[], object], rounds: int = 10, enough: float = 0.3) -> float:
    """The shortest of up to `rounds` runs, in seconds, after a warm-up; at least three, until they take `enough` seconds."""
    work()
    seconds: list[float] = []
    while len(seconds) < rounds and (len(seconds) < 3 or sum(seconds) < enough):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


class TimingServer:
    """Answers orders for tasks, which have one target."""

    def __init__(self, tasks: Sequence[TuningTask], target: str):
        self.tasks, self.ctx = tasks, Context(target, 0)
        self.at, self.bench = -1, None

    def answer(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """Answer one order, inside an engine function, so that kernels get a real RunContext."""
        box: list[dict[str, Any]] = []
        engine.current().push_sync(lambda run: box.append(self._do(run, order)), self.ctx, [], [], name="tune")
        engine.current().wait_for_all()
        return box[0]

    def _do(self, run: RunContext, order: Mapping[str, Any]) -> dict[str, Any]:
        try:
            if order["do"] == "rooflines":
                return {"rooflines": rooflines(run, order["dtypes"])}
            task = self.tasks[order["task"]]
            assert str(task.key) == order["key"], f"task {order['task']} is {task.key} here and {order['key']} there"
            if self.at != order["task"] or self.bench is None:
                self.bench = None
                self.at, self.bench = order["task"], Bench(run, task)
            self.bench.run = run
            if order["do"] == "time":
                return {"seconds": self.bench.seconds(order["config"])}
            return {"differs": self.bench.differs(order["config"], dict(task.default))}
        except Exception as e:  # the parent drops the configuration and goes on
            return {"error": f"{type(e).__name__}: {e}"[:500]}


def main() -> None:
    """Answer orders from standard input until it ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # so that no library's output is taken for an answer
    request = TuningRequest.from_json(json.loads(sys.stdin.readline()))
    server = TimingServer([i.task for i in collect(request).items], request.target)
    print(json.dumps({"ready": len(server.tasks)}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(server.answer(json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
