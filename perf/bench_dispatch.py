"""The cost of one small operation from Python: a+b on 2x2, chains, conversion to NumPy and back; and its lower bound.

    python perf/bench_dispatch.py [--mxnet PYTHON] [--torch PYTHON]

JSON lines: median and spread of seconds per call; peers run in the same minute, in pairs with ours, and a line says how
many times as fast we are. Queued work is finished inside the measured time, per round.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import common
import numpy

ROUNDS = 7


def tritium() -> tuple[Any, Callable[[Any], Any], Callable[[], None]]:
    from tritium import ndarray as nd

    return nd.array, lambda a: a.asnumpy(), nd.waitall


def mxnet() -> tuple[Any, Callable[[Any], Any], Callable[[], None]]:
    import mxnet  # type: ignore[import-not-found]

    return mxnet.nd.array, lambda a: a.asnumpy(), mxnet.nd.waitall


def torch() -> tuple[Any, Callable[[Any], Any], Callable[[], None]]:
    import torch  # type: ignore[import-not-found]

    return lambda values: torch.tensor(values, dtype=torch.float32), lambda a: a.numpy().copy(), lambda: None


PACKAGES = {f.__name__: f for f in (tritium, mxnet, torch)}
ADDS = 1000


class _Object:
    """The least an array can be: an object with a slot for its values."""

    __slots__ = ("values",)

    def __init__(self, values: Any):
        self.values = values

    def __add__(self, other: _Object) -> _Object:
        return _Object(numpy.add(self.values, other.values))


def floor() -> list[dict[str, Any]]:
    """Print the cost of the same in Python and NumPy: np.add alone, and inside the smallest class with a `+`."""
    a = numpy.ones((2, 2), numpy.float32)
    x = _Object(a)
    return [common.emit("dispatch", common.rounds_of(work, calls=20_000, rounds=ROUNDS), case=case, package="numpy")
            for case, work in (("np.add(a, a)", lambda: numpy.add(a, a)), ("a+b, barest class", lambda: x + x))]


def measure(package: str) -> list[dict[str, Any]]:
    """Print and return one line per measurement, of one package in this process."""
    array, to_numpy, finish = PACKAGES[package]()
    a, b = array([[1.0, 2.0], [3.0, 4.0]]), array([[0.5, 0.5], [0.5, 0.5]])
    values = to_numpy(a)

    def chain() -> Any:
        x = a
        for _ in range(5):
            x = (x + b) * 0.5
        return x

    def adds() -> Any:
        x = a
        for _ in range(ADDS):
            x = x + b
        x.wait_to_read() if hasattr(x, "wait_to_read") else None

    works: dict[str, tuple[Callable[[], Any], int]] = {
        "a+b": (lambda: a + b, 2000),
        "chain of 10": (chain, 200),
        f"{ADDS:,} adds, one wait": (adds, 5),
        "asnumpy round trip": (lambda: to_numpy(array(values) + b), 1000),
    }
    return [
        common.emit("dispatch", common.rounds_of(work, calls=calls, rounds=ROUNDS, finish=finish), case=case,
                    package=package)
        for case, (work, calls) in works.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mxnet", metavar="PYTHON", help="an interpreter that has MXNet")
    parser.add_argument("--torch", metavar="PYTHON", help="an interpreter that has torch")
    parser.add_argument("--package", choices=PACKAGES, help="measure this package in this process, and nothing else")
    parser.add_argument("--pairs", type=int, default=3, help="how often ours and each peer's are measured in turn")
    given = parser.parse_args()
    if given.package:
        measure(given.package)
        return
    common.say({"bench": "dispatch", **common.machine()})
    floor()
    peers = {name: python for name, python in (("mxnet", given.mxnet), ("torch", given.torch)) if python}
    ours: list[list[dict[str, Any]]] = []
    theirs: dict[str, list[list[dict[str, Any]]]] = {name: [] for name in peers}
    for _ in range(given.pairs):
        ours.append(measure("tritium"))
        for name, python in peers.items():
            theirs[name].append(common.run_peer(python, __file__, "--package", name))
    for runs in theirs.values():
        if all(runs):
            for i, line in enumerate(ours[0]):
                common.ratio("dispatch", [r[i] for r in ours], [r[i] for r in runs], case=line["case"])


if __name__ == "__main__":
    main()
