"""Monitor: looks at arrays while a network trains."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from ..ndarray import NDArray


class Monitor:
    """Every `interval` batches, a statistic of the arrays whose names match `pattern`: outputs of all nodes, and arguments.

    stat_func:    from an NDArray to what is shown; by default |x| (the 2-norm) over the square root of its size.
    sort:         order the lines by name.
    monitor_all:  look at what nodes read, states and gradients as well.
    Use: install it (`Module.fit(monitor=...)` does), `tic()` before a batch, `toc()` after it.
    """

    def __init__(self, interval: int, stat_func: Callable[[NDArray], Any] | None = None, pattern: str = ".*",
                 sort: bool = False, monitor_all: bool = False):
        self.interval = interval
        self.stat_func = stat_func or _rms
        self.re_prog = re.compile(pattern)
        self.sort = sort
        self.monitor_all = monitor_all
        self.step = 0
        self.activated = False
        self.queue: list[tuple[int, str, Any]] = []
        self.exes: list[Any] = []

    def install(self, exe: Any) -> None:
        """Watch an executor."""
        self.exes.append(exe)

    def tic(self) -> None:
        """Begin a batch; collects if this is an interval's first."""
        if self.step % self.interval == 0:
            self.queue, self.activated = [], True
            for exe in self.exes:  # only now: an executor that is watched runs node by node
                exe.set_monitor_callback(self._see, self.monitor_all)
        self.step += 1

    def _see(self, name: str, array: NDArray) -> None:
        if self.activated and self.re_prog.match(name):
            self.queue.append((self.step, name, self.stat_func(array)))

    def toc(self) -> list[tuple[int, str, str]]:
        """End a batch: (step, name, statistic) of every array that was looked at; waits for them."""
        if not self.activated:
            return []
        self.activated = False
        for exe in self.exes:
            exe.set_monitor_callback(None)
            shown = dict(exe.arg_dict)
            if self.monitor_all:
                shown |= exe.aux_dict
                shown |= {f"{name}_grad": g for name, g in exe.grad_dict.items() if g is not None}
            self.queue += [(self.step, n, self.stat_func(a)) for n, a in shown.items() if self.re_prog.match(n)]
        if self.sort:
            self.queue.sort(key=lambda q: q[1])
        return [(step, name, _text(value)) for step, name, value in self.queue]

    def toc_print(self) -> None:
        """toc, logged."""
        for step, name, text in self.toc():
            logging.info("Batch: %7d %-30s %s", step, name, text)


def _rms(x: NDArray) -> np.float32:
    values = x.asnumpy().astype(np.float64)
    return np.float32(np.linalg.norm(values) / np.sqrt(max(values.size, 1)))


def _text(value: Any) -> str:
    values = value if isinstance(value, (list, tuple)) else [value]
    return "".join(f"{_shown(v)}\t" for v in values)


def _shown(value: Any) -> str:
    if not isinstance(value, NDArray):
        return str(value)
    return str(value.asscalar() if value.shape == (1,) else value.asnumpy())
