"""Forty operators at three sizes, beside MXNet and torch on the CPU with two threads each.

    python perf/bench_ops.py [--mxnet PYTHON] [--torch PYTHON] [--only NAME] [--pairs 3]

JSON lines: seconds per call of each operator and package; then how many times as fast as each peer, by operator; then
the geometric mean by group. Each call waits for its result. Peers run in turn with ours.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import common

SIZES = {"small": 1 << 10, "medium": 1 << 17, "large": 1 << 22}  # elements of the largest array
ROUNDS = 5

Shapes = Callable[[int], list[tuple[int, ...]]]


def flat(n: int) -> list[tuple[int, ...]]:
    return [(n,)]


def two(n: int) -> list[tuple[int, ...]]:
    return [(n,), (n,)]


def square(n: int) -> list[tuple[int, ...]]:
    return [(1 << (n.bit_length() // 2), n >> (n.bit_length() // 2))]


def row(n: int) -> list[tuple[int, ...]]:
    (s,) = square(n)
    return [s, (1, s[1])]


def column(n: int) -> list[tuple[int, ...]]:
    (s,) = square(n)
    return [s, (s[0], 1)]


def matrices(n: int) -> list[tuple[int, ...]]:
    k = int(math.sqrt(n)) // (4 if n > 1 << 20 else 1)
    return [(k, k), (k, k)]


def images(n: int) -> list[tuple[int, ...]]:
    side = {SIZES["small"]: 4, SIZES["medium"]: 16, SIZES["large"]: 32}[n]
    return [(max(1, n // (16 * side * side)), 16, side, side)]


def normed(n: int) -> list[tuple[int, ...]]:
    return [*square(n), *[(square(n)[0][1],)] * 2]


#: group, operator, shapes, with MXNet's names (F is mx.nd), in torch (F is torch)
TABLE: list[tuple[str, str, Shapes, Callable[..., Any], Callable[..., Any]]] = [
    ("elementwise", "exp", flat, lambda F, x: F.exp(x), lambda F, x: F.exp(x)),
    ("elementwise", "log", flat, lambda F, x: F.log(x), lambda F, x: F.log(x)),
    ("elementwise", "tanh", flat, lambda F, x: F.tanh(x), lambda F, x: F.tanh(x)),
    ("elementwise", "sigmoid", flat, lambda F, x: F.sigmoid(x), lambda F, x: F.sigmoid(x)),
    ("elementwise", "relu", flat, lambda F, x: F.relu(x), lambda F, x: F.relu(x)),
    ("elementwise", "sqrt", flat, lambda F, x: F.sqrt(x), lambda F, x: F.sqrt(x)),
    ("elementwise", "square", flat, lambda F, x: F.square(x), lambda F, x: F.square(x)),
    ("elementwise", "abs", flat, lambda F, x: F.abs(x), lambda F, x: F.abs(x)),
    ("elementwise", "erf", flat, lambda F, x: F.erf(x), lambda F, x: F.erf(x)),
    ("elementwise", "sin", flat, lambda F, x: F.sin(x), lambda F, x: F.sin(x)),
    ("elementwise", "clip", flat, lambda F, x: F.clip(x, 0.3, 0.8), lambda F, x: F.clamp(x, 0.3, 0.8)),
    ("elementwise", "smooth_l1", flat, lambda F, x: F.smooth_l1(x, scalar=1.0),
     lambda F, x: F.nn.functional.smooth_l1_loss(x, F.zeros_like(x), reduction="none")),
    ("elementwise", "add", two, lambda F, x, y: x + y, lambda F, x, y: x + y),
    ("elementwise", "mul", two, lambda F, x, y: x * y, lambda F, x, y: x * y),
    ("elementwise", "div", two, lambda F, x, y: x / y, lambda F, x, y: x / y),
    ("elementwise", "add scalar", flat, lambda F, x: x + 1.5, lambda F, x: x + 1.5),
    ("elementwise", "greater", two, lambda F, x, y: x > y, lambda F, x, y: (x > y).float()),
    ("elementwise", "where", two, lambda F, x, y: F.where(x, x, y), lambda F, x, y: F.where(x != 0, x, y)),
    ("broadcast", "add row", row, lambda F, x, y: F.broadcast_add(x, y), lambda F, x, y: x + y),
    ("broadcast", "mul column", column, lambda F, x, y: F.broadcast_mul(x, y), lambda F, x, y: x * y),
    ("broadcast", "maximum row", row, lambda F, x, y: F.broadcast_maximum(x, y), lambda F, x, y: F.maximum(x, y)),
    ("reduction", "sum", square, lambda F, x: F.sum(x), lambda F, x: F.sum(x)),
    ("reduction", "sum axis 0", square, lambda F, x: F.sum(x, axis=0), lambda F, x: F.sum(x, 0)),
    ("reduction", "sum axis 1", square, lambda F, x: F.sum(x, axis=1), lambda F, x: F.sum(x, 1)),
    ("reduction", "mean axis 1", square, lambda F, x: F.mean(x, axis=1), lambda F, x: F.mean(x, 1)),
    ("reduction", "max axis 1", square, lambda F, x: F.max(x, axis=1), lambda F, x: F.amax(x, 1)),
    ("softmax", "softmax", square, lambda F, x: F.softmax(x), lambda F, x: F.softmax(x, -1)),
    ("softmax", "log_softmax", square, lambda F, x: F.log_softmax(x), lambda F, x: F.log_softmax(x, -1)),
    ("normalisation", "LayerNorm", normed, lambda F, x, g, b: F.LayerNorm(x, g, b),
     lambda F, x, g, b: F.nn.functional.layer_norm(x, g.shape, g, b)),
    ("normalisation", "L2Normalization", square, lambda F, x: F.L2Normalization(x),
     lambda F, x: F.nn.functional.normalize(x)),
    ("indexing", "take", square, lambda F, x: F.take(x, F._bench_index[x.shape[0]]),
     lambda F, x: F.index_select(x, 0, F._bench_index[x.shape[0]])),
    ("indexing", "slice_axis", square, lambda F, x: F.slice_axis(x, axis=1, begin=1, end=-1),
     lambda F, x: x[:, 1:-1].contiguous()),
    ("indexing", "argmax", square, lambda F, x: F.argmax(x, axis=1), lambda F, x: F.argmax(x, 1)),
    ("indexing", "concat", square, lambda F, x: F.concat(x, x, dim=1), lambda F, x: F.cat((x, x), 1)),
    ("shape", "transpose", square, lambda F, x: F.transpose(x), lambda F, x: x.t().contiguous()),
    ("shape", "tile", square, lambda F, x: F.tile(x, (2, 1)), lambda F, x: x.repeat(2, 1)),
    ("dot", "dot", matrices, lambda F, x, y: F.dot(x, y), lambda F, x, y: x @ y),
    ("dot", "dot transposed", matrices, lambda F, x, y: F.dot(x, y, transpose_b=True), lambda F, x, y: x @ y.t()),
    ("pooling", "max pooling", images, lambda F, x: F.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="max"),
     lambda F, x: F.nn.functional.max_pool2d(x, 2)),
    ("fused chain", "chain of 6", flat, lambda F, x: F._bench_chain(x),
     lambda F, x: F.tanh(F.exp(-(x * x)) * 0.5 + x) * 2),
]


def tritium() -> tuple[Any, Any, Callable[[], None], Callable[[Any], Any]]:
    import tritium as mx
    from tritium.kernels.ir import lang

    @mx.simple_op(name="_bench_chain", replace=True)
    def chain(x: Any) -> Any:
        return lang.tanh(lang.exp(-(x * x)) * 0.5 + x) * 2

    mx.nd._bench_index = {}
    return mx.nd, mx.nd.array, mx.nd.waitall, lambda y: y.wait_to_read()


def mxnet() -> tuple[Any, Any, Callable[[], None], Callable[[Any], Any]]:
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    import mxnet as mx  # type: ignore[import-not-found]

    mx.nd._bench_index = {}
    mx.nd._bench_chain = lambda x: mx.nd.tanh(mx.nd.exp(-(x * x)) * 0.5 + x) * 2
    return mx.nd, mx.nd.array, mx.nd.waitall, lambda y: y.wait_to_read()


def torch() -> tuple[Any, Any, Callable[[], None], Callable[[Any], Any]]:
    import torch  # type: ignore[import-not-found]

    torch.set_num_threads(2)
    torch._bench_index = {}
    return torch, torch.tensor, lambda: None, lambda y: y


def numpy() -> tuple[Any, Any, Callable[[], None], Callable[[Any], Any]]:
    """NumPy's own products, with BLAS on two threads: the upper bound for `dot`."""
    os.environ["OPENBLAS_NUM_THREADS"] = "2"
    import numpy as np

    return SimpleNamespace(dot=lambda x, y, transpose_b=False: np.dot(x, y.T if transpose_b else y)), np.asarray, \
        lambda: None, lambda y: y


PACKAGES = {f.__name__: f for f in (tritium, mxnet, torch, numpy)}


def measure(package: str, only: str | None) -> list[dict[str, Any]]:
    """Print and return one line per operator and size, of one package in this process."""
    F, array, finish, wait = PACKAGES[package]()
    import numpy as np

    rng = np.random.default_rng(0)
    lines = []
    for group, name, shapes, ours, torchs in TABLE:
        if only and only not in (name, group):
            continue
        function = torchs if package == "torch" else ours
        for size, n in SIZES.items():
            arrays = [array(rng.uniform(0.1, 1, s).astype("float32")) for s in shapes(n)]
            if name == "take":
                index = rng.integers(0, arrays[0].shape[0], arrays[0].shape[0])
                F._bench_index[arrays[0].shape[0]] = array(index if package == "torch" else index.astype("float32"))
            calls = max(3, min(400, (1 << 22) // n))
            try:
                seconds = common.rounds_of(lambda f=function, a=arrays: wait(f(F, *a)), calls=calls, rounds=ROUNDS, finish=finish)
            except Exception as e:
                common.say({"bench": "ops", "group": group, "op": name, "size": size, "package": package, "error": str(e)[:200]})
                continue
            lines.append(common.emit("ops", seconds, group=group, op=name, size=size, package=package))
    return lines


def summarise(ours: list[list[dict[str, Any]]], peers: list[list[dict[str, Any]]]) -> None:
    """Ratios by operator and size over the pairs of runs, and their geometric means by group."""

    def key(line: dict[str, Any]) -> tuple[str, str, str]:
        return line["group"], line["op"], line["size"]

    by_group: dict[str, list[float]] = {}
    for k in map(key, ours[0]):
        a = [line for run in ours for line in run if key(line) == k]
        b = [line for run in peers for line in run if key(line) == k and "error" not in line]
        if b:
            found = common.ratio("ops", a, b, group=k[0], op=k[1], size=k[2])
            by_group.setdefault(k[0], []).append(found["ratio"])
    package = peers[0][0]["package"] if peers and peers[0] else "?"
    for group, ratios in by_group.items():
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        common.say({"bench": "ops", "group": group, "geometric_mean_times_as_fast_as": package, "ratio": round(mean, 3),
                    "cases": len(ratios)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mxnet", metavar="PYTHON", help="an interpreter that has MXNet")
    parser.add_argument("--torch", metavar="PYTHON", help="an interpreter that has torch")
    parser.add_argument("--package", choices=PACKAGES, help="measure this package in this process, and nothing else")
    parser.add_argument("--only", help="one operator or group")
    parser.add_argument("--pairs", type=int, default=3, help="how often ours and each peer's are measured in turn")
    given = parser.parse_args()
    if given.package:
        measure(given.package, given.only)
        return
    common.say({"bench": "ops", **common.machine()})
    peers = {name: python for name, python in (("mxnet", given.mxnet), ("torch", given.torch)) if python}
    runs: dict[str, list[list[dict[str, Any]]]] = {name: [] for name in ("tritium", *peers)}
    extra = ["--only", given.only] if given.only else []
    for _ in range(given.pairs):
        for name, python in {"tritium": sys.executable, **peers}.items():
            runs[name].append(common.run_peer(python, __file__, "--package", name, *extra, timeout=900))
        if given.only in (None, "dot"):
            runs.setdefault("numpy", []).append(common.run_peer(sys.executable, __file__, "--package", "numpy", "--only", "dot"))
    for name in [n for n in runs if n != "tritium"]:
        summarise([[line for line in run if "error" not in line] for run in runs["tritium"]], runs[name])


if __name__ == "__main__":
    main()
