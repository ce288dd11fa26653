"""A hundred operators at three sizes, beside MXNet, torch, or another state of Tritium, on the CPU with two threads each.

    python perf/bench_ops.py [--mxnet PYTHON] [--torch PYTHON] [--base FOLDER] [--only NAME ...] [--size small]

JSON lines: seconds per call of each operator, size and package, and how many times as fast as each peer and as the best of them;
then the geometric means by group, by family of groups, and by size. Each call waits for its result. Each package is a process of
its own. They take turns within each operator and size, so that a busy machine slows all alike; ratios are those of the medians of
the turns; beside another state of Tritium those of the best turns, and of processor time, which counts the work of all threads
and not how they waited for processors. Names that end in "step" are a forward and a backward. A package takes part where it has
the same function.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import common
from operator_cases import SIZES, TABLE, six

#: Seconds of a turn; the fewest and the most turns; seconds that all turns of a package take, about.
TURN, TURNS, TAKEN = 0.004, (5, 15), 0.2
DIES = ("ROIAlign", "ROIAlign step")  # these calls end a process of MXNet 1.9.1
PAUSE = 0.02  # seconds between turns: the threads of torch were seen to spin for 10 ms after their work
#: Seconds of calls before the timed ones of a turn: threads that slept were seen to wake beside each other on one processor.
WARM = 0.01
FAMILIES = {
    "chains": ("chain in a graph", "chain imperative"),
    "softmax, norms, pooling": ("softmax", "normalisation", "pooling"),
    "indexing and layout": ("indexing", "shape"),
    "updates, losses, dropout": ("update", "loss", "dropout"),
}

Package = tuple[Any, Callable[[Any], Any], Callable[[], None], Callable[[Any], Any]]


def tritium() -> Package:
    import tritium as mx

    _help(mx)
    return mx.nd, mx.nd.array, mx.nd.waitall, lambda y: y.wait_to_read()


def mxnet() -> Package:
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    import mxnet as mx  # type: ignore[import-not-found]

    class Functions:
        """mx.nd, and the functions that MXNet keeps elsewhere."""

        def __getattr__(self, name: str) -> Any:
            for prefix, module in (("_contrib_", mx.nd.contrib), ("_image_", mx.nd.image), ("_np_", mx.nd._internal)):
                if name.startswith(prefix) and hasattr(module, name.removeprefix(prefix)):
                    return getattr(module, name.removeprefix(prefix))
            return getattr(mx.nd if hasattr(mx.nd, name) else mx.nd._internal, name)

    _help(mx)
    return Functions(), mx.nd.array, mx.nd.waitall, lambda y: y.wait_to_read()


def _kept() -> Callable[[Any, Callable[[], Any]], Any]:
    """Return a function that makes what belongs to a key once."""
    made: dict[Any, Any] = {}

    def once(key: Any, make: Callable[[], Any]) -> Any:
        if key not in made:
            made[key] = make()
        return made[key]

    return once


def _help(mx: Any) -> None:
    """Give mx.nd what the cases call: a forward and a backward, a bound graph, and arrays that are made once."""
    once = _kept()

    def step(function: Callable[..., Any], *arrays: Any, wanted: int = 1) -> Any:
        for x in arrays[:wanted]:
            if x.grad is None:
                x.attach_grad()
        with mx.autograd.record():
            y = function(*arrays)
        (y[0] if isinstance(y, (list, tuple)) else y).backward()
        return arrays[wanted - 1].grad

    def chain(x: Any) -> Any:
        bound = once(("chain", x.shape), lambda: (six(mx.sym, mx.sym.Variable("x")) * 2).bind(mx.cpu(), {"x": x}))
        return bound.forward()[0]

    def multi(arrays: Any) -> Any:
        mx.nd.multi_sgd_mom_update(*arrays, lrs=[0.01] * 20, wds=[0.0] * 20, momentum=0.9, num_weights=20, out=arrays[::3])
        return arrays[0]

    mx.nd._bench_step, mx.nd._bench_chain, mx.nd._bench_multi = step, chain, multi
    mx.nd._bench_ones = lambda *shape: once(shape, lambda: mx.nd.ones(shape))
    mx.nd._bench_some = lambda x: once(("some", len(x)), lambda: mx.nd.array([7 * i % len(x) for i in range(len(x))]))
    mx.nd._bench_grid = lambda x: once(("grid", x.shape), lambda: mx.nd.ones((x.shape[0], 2, *x.shape[2:])) * 0.3)
    mx.nd._bench_bytes = lambda x: once(("bytes", x.shape), lambda: mx.nd.ones(x.shape, dtype="int8"))
    mx.nd._bench_sums = lambda x: once(("sums", x.shape), lambda: mx.nd.ones(x.shape, dtype="int32") * 1000)


def torch() -> Package:
    import torch  # type: ignore[import-not-found]

    torch.set_num_threads(2)
    once = _kept()

    def step(function: Callable[..., Any], *arrays: Any, wanted: int = 1) -> Any:
        for x in arrays[:wanted]:
            x.requires_grad_(True)
            x.grad = None
        y = function(*arrays)
        y.backward(once(("ones", y.shape), lambda: torch.ones_like(y)))
        return arrays[wanted - 1].grad

    def update(kind: str, weights: Any, gradients: Any, **given: Any) -> None:
        def make() -> Any:
            for w, g in zip(weights, gradients):
                w.requires_grad_(True)
                w.grad = g
            return getattr(torch.optim, kind)(list(weights), lr=0.01, fused=True, **given)

        once((kind, id(weights[0])), make).step()

    def chain(x: Any) -> Any:
        return once("chain", lambda: torch.compile(lambda x: six(torch, x) * 2))(x)

    torch._bench_step, torch._bench_update, torch._bench_chain = step, update, chain
    torch._bench_ones = lambda *shape: once(shape, lambda: torch.ones(shape))
    torch._bench_some = lambda x: once(("some", len(x)), lambda: torch.tensor([7 * i % len(x) for i in range(len(x))]))
    torch._bench_numbers = lambda t: once(("numbers", t.shape), lambda: t.long())
    return torch, torch.tensor, lambda: None, lambda y: y


def numpy() -> Package:
    """NumPy's own products, with BLAS on two threads."""
    os.environ["OPENBLAS_NUM_THREADS"] = "2"
    import numpy as np

    functions = SimpleNamespace(dot=lambda x, y, transpose_b=False: np.dot(x, y.T if transpose_b else y), batch_dot=np.matmul)
    return functions, np.asarray, lambda: None, lambda y: y


PACKAGES = {f.__name__: f for f in (tritium, mxnet, torch, numpy)}


def chosen(only: list[str], sizes: list[str]) -> Iterator[tuple[tuple[str, str, str], Any]]:
    """Yield (group, operator, size) and the row of the table. only: operators and groups; sizes: names; none: all."""
    for row in TABLE:
        if not only or row[0] in only or row[1] in only:
            for size, n in SIZES.items():
                if (not sizes or size in sizes) and row[2](n):
                    yield (row[0], row[1], size), row


# ---- one package, in a process of its own -------------------------------------------------------------------------------
def serve(package: str, only: list[str], sizes: list[str]) -> None:
    """Answer orders from standard input: "next", or a number of calls to time. Answers are JSON."""
    F, array, finish, wait = PACKAGES[package]()
    import numpy as np

    every = chosen(only, sizes)
    call: Callable[[], None] = lambda: None

    def prepare() -> dict[str, Any]:
        nonlocal call
        (_, name, size), (*_, shapes, ours, torchs) = next(every)
        function, n = torchs if package == "torch" else ours, SIZES[size]
        rng = np.random.default_rng(0)
        if function is None or (package == "mxnet" and name in DIES):
            return {"error": "no such function"}
        arrays = [array(rng.uniform(0.1, 1, s).astype("float32")) for s in shapes(n)]
        call = lambda: wait(function(F, *arrays))
        call()
        (once,) = common.rounds_of(call, calls=1, rounds=1, warmup=1, finish=finish)
        most = max(3, min(400, (1 << 22) // n))
        return {"calls": max(1, min(most, int(TURN / once))), "once": once}

    for order in sys.stdin:
        try:
            if order.strip() == "next":
                answer = prepare()
            else:
                until = time.perf_counter() + WARM
                while time.perf_counter() < until:
                    call()
                finish()
                begun = time.process_time()
                (seconds,) = common.rounds_of(call, calls=int(order), rounds=1, warmup=0, finish=finish)
                answer = {"seconds": seconds, "cpu_seconds": (time.process_time() - begun) / int(order)}
        except Exception as e:
            answer = {"error": f"{type(e).__name__}: {e}"[:200]}
        print(json.dumps(answer), flush=True)


class Worker:
    """A process that serves one package."""

    def __init__(self, python: str, package: str, arguments: list[str], folder: str | None):
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        if folder is not None:
            environment["PYTHONPATH"] = folder
        self.process = subprocess.Popen([python, __file__, "--serve", package, *arguments], text=True, env=environment,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def ask(self, order: str) -> dict[str, Any]:
        """Return the answer to an order. A process that ended answers with an error."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None and stdout is not None
        try:
            stdin.write(order + "\n")
            stdin.flush()
            return json.loads(stdout.readline())
        except (OSError, ValueError):
            return {"error": "the process ended"}


def compare(workers: dict[str, Worker], only: list[str], sizes: list[str]) -> None:
    """Let the workers take turns in each case. Print times, ratios to the first one, and their means."""
    means: dict[tuple[str, str], list[float]] = {}
    for (group, name, size), _ in chosen(only, sizes):
        names = {"group": group, "op": name, "size": size}
        found = {package: worker.ask("next") for package, worker in workers.items()}
        taking = {package: f for package, f in found.items() if "error" not in f}
        for package, f in found.items():
            if f.get("error", "no such function") != "no such function":
                common.say({"bench": "ops", **names, "package": package, "error": f["error"]})
        if "tritium" not in taking:
            continue
        turns: dict[str, list[dict[str, float]]] = {package: [] for package in taking}
        each = max(TURN, *(f["once"] for f in taking.values()))
        for _ in range(max(TURNS[0], min(TURNS[1], int(TAKEN / each)))):
            for package in taking:
                time.sleep(PAUSE)
                turns[package].append(workers[package].ask(str(taking[package]["calls"])))
        times = {package: [t["seconds"] for t in many] for package, many in turns.items()}
        for package, seconds in times.items():
            common.emit("ops", seconds, **names, package=package)
        ratios = {p: statistics.median(t) / statistics.median(times["tritium"]) for p, t in times.items() if p != "tritium"}
        if "base" in ratios:
            ratios["base"] = min(times["base"]) / min(times["tritium"])
            cpu = [min(t["cpu_seconds"] for t in turns[p]) for p in ("base", "tritium")]
            common.say({"bench": "ops", **names, "times_as_fast_as": "base", "ratio_of_cpu": _short(cpu[0] / max(cpu[1], 1e-9))})
        if peers := {p: r for p, r in ratios.items() if p != "base"}:
            ratios["best peer"] = min(peers.values())
        for package, ratio in ratios.items():
            common.say({"bench": "ops", **names, "times_as_fast_as": package, "ratio": _short(ratio)})
            for family in (group, *(f for f, groups in FAMILIES.items() if group in groups)):
                for of in (family, f"{family}, {size}"):
                    means.setdefault((of, package), []).append(ratio)
    for (of, package), ratios_of in means.items():
        mean = math.exp(sum(map(math.log, ratios_of)) / len(ratios_of))
        common.say({"bench": "ops", "group": of, "geometric_mean_times_as_fast_as": package, "ratio": _short(mean),
                    "least": _short(min(ratios_of)), "cases": len(ratios_of)})


def _short(x: float) -> float:
    return float(f"{x:.3g}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mxnet", metavar="PYTHON", help="an interpreter that has MXNet")
    parser.add_argument("--torch", metavar="PYTHON", help="an interpreter that has torch")
    parser.add_argument("--base", metavar="FOLDER", help="a folder with another state of Tritium, in a folder called tritium")
    parser.add_argument("--serve", choices=PACKAGES, help="answer orders, for another process of this script")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="operators and groups")
    parser.add_argument("--size", nargs="+", default=[], choices=SIZES)
    given = parser.parse_args()
    if given.serve:
        serve(given.serve, given.only, given.size)
        return
    common.say({"bench": "ops", **common.machine()})
    arguments = [word for name in ("only", "size") if getattr(given, name) for word in (f"--{name}", *getattr(given, name))]
    ours = str(Path(__file__).resolve().parents[2])
    workers = {"tritium": Worker(sys.executable, "tritium", arguments, os.environ.get("PYTHONPATH", ours))}
    for package in ("mxnet", "torch"):
        if getattr(given, package):
            workers[package] = Worker(getattr(given, package), package, arguments, None)
    if given.base:
        if not (Path(given.base) / "tritium" / "__init__.py").is_file():
            raise SystemExit(f"bench_ops: {given.base} has no folder tritium. Name the folder around another state of it.")
        workers["base"] = Worker(sys.executable, "tritium", arguments, given.base)
    compare(workers, given.only, given.size)


if __name__ == "__main__":
    main()
