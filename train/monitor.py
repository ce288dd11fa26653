"""Monitor: logs statistics of a network's arrays during training."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from ..ndarray import NDArray
from ..show import Shown


class Monitor(Shown):
    """A statistic of all arguments and node outputs whose names match `pattern`, every `interval` batches.

    stat_func:    a function of an NDArray; by default its 2-norm over the square root of its size.
    sort:         sort the lines by name.
    monitor_all:  also show inputs of nodes, auxiliary states and gradients.
    Use: install it (`Module.fit(monitor=...)` does), then call `tic()` before a batch and `toc()` after it.
    """

    def __init__(self, interval: int, stat_func: Callable[[NDArray], Any] | None = None, pattern: str = ".*",
                 sort: bool = False, monitor_all: bool = False):
        self.interval, self.sort, self.monitor_all = interval, sort, monitor_all
        self.stat_func = stat_func or _rms
        self.re_prog = re.compile(pattern)
        self.step, self.activated = 0, False
        self.queue: list[tuple[int, str, Any]] = []
        self.exes: list[Any] = []

    def install(self, exe: Any) -> None:
        """Observe an executor."""
        self.exes.append(exe)

    def tic(self) -> None:
        """Begin a batch. The first batch of every interval is observed."""
        if self.step % self.interval == 0:
            self.queue, self.activated = [], True
            for exe in self.exes:  # for this batch alone: an observed executor runs node by node
                exe.set_monitor_callback(self._record, self.monitor_all)
        self.step += 1

    def _record(self, name: str, array: NDArray) -> None:
        if self.activated and self.re_prog.match(name):
            self.queue.append((self.step, name, self.stat_func(array)))

    def toc(self) -> list[tuple[int, str, str]]:
        """End a batch. Waits for the arrays, and returns (step, name, statistic) of each."""
        if not self.activated:
            return []
        self.activated = False
        for exe in self.exes:
            exe.set_monitor_callback(None)
            arrays = dict(exe.arg_dict)
            if self.monitor_all:
                arrays |= exe.aux_dict
                arrays |= {f"{name}_grad": g for name, g in exe.grad_dict.items() if g is not None}
            self.queue += [(self.step, n, self.stat_func(a)) for n, a in arrays.items() if self.re_prog.match(n)]
        if self.sort:
            self.queue.sort(key=lambda q: q[1])
        return [(step, name, _text(value)) for step, name, value in self.queue]

    def toc_print(self) -> None:
        """Call toc, and log its lines."""
        for step, name, text in self.toc():
            logging.info("Batch: %7d %-30s %s", step, name, text)


def _rms(x: NDArray) -> np.float32:
    values = x.asnumpy().astype(np.float64)
    return np.float32(np.linalg.norm(values) / np.sqrt(max(values.size, 1)))


def _text(value: Any) -> str:
    values = value if isinstance(value, (list, tuple)) else [value]
    hosts = (v if not isinstance(v, NDArray) else v.asscalar() if v.shape == (1,) else v.asnumpy() for v in values)
    return "".join(f"{v}\t" for v in hosts)
