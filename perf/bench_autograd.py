"""The cost of training without a graph: small recorded operators with their backward, a step of an MLP, chains of large arrays.

    python perf/bench_autograd.py [--mxnet PYTHON] [--torch PYTHON] [--case TEXT] [--pairs 3]

JSON lines: median and spread of seconds per call; peers run in the same minute, in pairs with ours, and a line says how
many times as fast we are. Use OMP_NUM_THREADS=2 TRITIUM_NUM_WORKERS=2 for two threads each.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import common
import numpy

ROUNDS = 5
Work = Callable[[], Any]


def tritium() -> tuple[Any, Any]:
    import tritium as mx

    return mx, None


def mxnet() -> tuple[Any, Any]:
    import mxnet as mx  # type: ignore[import-not-found]

    return mx, None


def torch() -> tuple[Any, Any]:
    import torch  # type: ignore[import-not-found]

    torch.set_num_threads(2)
    return None, torch


PACKAGES = {f.__name__: f for f in (tritium, mxnet, torch)}


def _small(F: Any, x: Any, w: Any) -> Any:
    """Twenty operators: four times a sum, a product, tanh, relu and exp."""
    for _ in range(4):
        x = F.relu(F.tanh(F.exp((x + w) * w)))
    return x


def _chain(F: Any, x: Any) -> Any:
    """Six elementwise operators."""
    return F.tanh(F.exp(-(x * x)) * 0.5 + x)


def works_of_mxnet(mx: Any) -> dict[str, tuple[Work, int]]:
    """Return the cases for MXNet or Tritium: what to call, and how often for a round."""
    nd, autograd = mx.nd, mx.autograd
    draw = numpy.random.RandomState(0)
    works: dict[str, tuple[Work, int]] = {}

    def variable(values: Any) -> Any:
        a = nd.array(values.astype("float32"))
        a.attach_grad()
        return a

    def step(function: Callable[..., Any], *arrays: Any) -> Work:
        def work() -> None:
            with autograd.record():
                y = function(nd, *arrays)
            y.backward()
            arrays[0].grad.wait_to_read()
        return work

    def plain(function: Callable[..., Any], *arrays: Any) -> Work:
        return lambda: function(nd, *arrays).wait_to_read()

    for shape in ((32,), (32, 32)):
        x, w = variable(draw.uniform(-1, 1, shape)), variable(draw.uniform(-1, 1, shape))
        works[f"20 small operators {list(shape)}, not recorded"] = plain(_small, x.detach(), w.detach()), 100
        works[f"20 small operators {list(shape)}"] = step(_small, x, w), 50
    for n, calls in ((10**5, 20), (4 * 10**6, 2)):
        x = variable(draw.uniform(-1, 1, n))
        works[f"chain of 6, {n:,}"] = plain(_chain, x.detach()), calls
        works[f"chain of 6, {n:,}, with gradient"] = step(_chain, x), calls

    data, label = nd.array(draw.uniform(0, 1, (64, 784)).astype("float32")), nd.array(draw.randint(0, 10, 64).astype("float32"))
    weights = [variable(0.05 * draw.uniform(-1, 1, shape)) for shape in ((256, 784), (256,), (10, 256), (10,))]

    def mlp() -> None:
        with autograd.record():
            h = nd.relu(nd.FullyConnected(data, weights[0], weights[1], num_hidden=256))
            y = nd.FullyConnected(h, weights[2], weights[3], num_hidden=10)
            loss = -nd.pick(nd.log_softmax(y), label).mean()
        loss.backward()
        for p in weights:
            nd.sgd_update(p, p.grad, lr=0.01, wd=0.0, out=p)
        weights[0].wait_to_read()

    works["MLP 64x784-256-10, step of SGD"] = mlp, 20
    return works


def works_of_torch(torch: Any) -> dict[str, tuple[Work, int]]:
    """Return the same cases for torch."""
    draw = numpy.random.RandomState(0)
    works: dict[str, tuple[Work, int]] = {}

    def variable(values: Any) -> Any:
        return torch.tensor(values.astype("float32"), requires_grad=True)

    def step(function: Callable[..., Any], *arrays: Any) -> Work:
        def work() -> None:
            y = function(torch, *arrays)
            for a in arrays:
                a.grad = None
            y.backward(torch.ones_like(y))
        return work

    def plain(function: Callable[..., Any], *arrays: Any) -> Work:
        return lambda: function(torch, *arrays)

    for shape in ((32,), (32, 32)):
        x, w = variable(draw.uniform(-1, 1, shape)), variable(draw.uniform(-1, 1, shape))
        works[f"20 small operators {list(shape)}, not recorded"] = plain(_small, x.detach(), w.detach()), 100
        works[f"20 small operators {list(shape)}"] = step(_small, x, w), 50
    for n, calls in ((10**5, 20), (4 * 10**6, 2)):
        x = variable(draw.uniform(-1, 1, n))
        works[f"chain of 6, {n:,}"] = plain(_chain, x.detach()), calls
        works[f"chain of 6, {n:,}, with gradient"] = step(_chain, x), calls

    data, label = torch.tensor(draw.uniform(0, 1, (64, 784)).astype("float32")), torch.tensor(draw.randint(0, 10, 64))
    weights = [variable(0.05 * draw.uniform(-1, 1, shape)) for shape in ((256, 784), (256,), (10, 256), (10,))]
    linear, log_softmax = torch.nn.functional.linear, torch.nn.functional.log_softmax

    def mlp() -> None:
        y = linear(torch.relu(linear(data, weights[0], weights[1])), weights[2], weights[3])
        loss = -log_softmax(y, 1).gather(1, label[:, None]).mean()
        for p in weights:
            p.grad = None
        loss.backward()
        with torch.no_grad():
            for p in weights:
                p.sub_(p.grad, alpha=0.01)

    works["MLP 64x784-256-10, step of SGD"] = mlp, 20
    return works


def measure(package: str, text: str) -> list[dict[str, Any]]:
    """Print and return one line per case whose name contains text, of one package in this process."""
    mx, torch = PACKAGES[package]()
    works = works_of_torch(torch) if mx is None else works_of_mxnet(mx)
    return [common.emit("autograd", common.rounds_of(work, calls=calls, rounds=ROUNDS), case=case, package=package)
            for case, (work, calls) in works.items() if text in case]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mxnet", metavar="PYTHON", help="an interpreter that has MXNet")
    parser.add_argument("--torch", metavar="PYTHON", help="an interpreter that has torch")
    parser.add_argument("--case", default="", help="only cases whose name contains this text")
    parser.add_argument("--package", choices=PACKAGES, help="measure this package in this process, and nothing else")
    parser.add_argument("--pairs", type=int, default=3, help="how often ours and each peer's are measured in turn")
    given = parser.parse_args()
    if given.package:
        measure(given.package, given.case)
        return
    common.say({"bench": "autograd", **common.machine()})
    peers = {name: python for name, python in (("mxnet", given.mxnet), ("torch", given.torch)) if python}
    ours: list[list[dict[str, Any]]] = []
    theirs: dict[str, list[list[dict[str, Any]]]] = {name: [] for name in peers}
    for _ in range(given.pairs):
        ours.append(measure("tritium", given.case))
        for name, python in peers.items():
            theirs[name].append(common.run_peer(python, __file__, "--package", name, "--case", given.case))
    for runs in theirs.values():
        if all(runs):
            for i, line in enumerate(ours[0]):
                common.ratio("autograd", [r[i] for r in ours], [r[i] for r in runs], case=line["case"])


if __name__ == "__main__":
    main()
