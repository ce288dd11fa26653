"""Capture: on a GPU, the launches of a segment are recorded once and then made with one call.

A replay repeats what was recorded to the bit: the same kernels, addresses and numbers. So whatever may change between runs
lies in memory: arrays stay where they are, scratch memory is kept, and the seed and offset of each draw of random numbers
are written to the device before every replay. What cannot be repeated so (a layer computed on the host, a user's own code)
is a segment of its own, and runs as it always did.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...engine.gpu import cuda
from ...engine.memory import storage
from ...kernels.gpu.launch import launches_logged, log_launches
from ...kernels.kernel import BoundKernel
from .segment import Segment


class _Kept:
    """A RunContext whose scratch memory is kept: a replay works in the memory the recording worked in.

    One kernel's scratch is free for the next one.
    """

    __slots__ = ("_free", "_taken", "ctx", "stream")

    def __init__(self, ctx: Any):
        self.ctx, self.stream = ctx, None
        self._free: list[storage.Block] = []
        self._taken: list[storage.Block] = []

    def parallel(self, fn: Any, n: int) -> None:
        for i in range(n):
            fn(i)

    def workspace(self, shape: tuple[int, ...], dtype: Any) -> Any:
        dtype = np.dtype(dtype)
        nbytes = max(1, int(np.prod(shape, dtype=np.int64)) * dtype.itemsize)
        fits = [b for b in self._free if nbytes <= b.nbytes]
        block = min(fits, key=lambda b: b.nbytes) if fits else storage.alloc(nbytes, self.ctx)
        if fits:
            self._free.remove(block)
        self._taken.append(block)
        return storage.view(block, 0, shape, dtype)

    def next(self) -> None:
        """The kernel that took scratch has been launched."""
        self._free += self._taken
        self._taken.clear()


class CapturedSegment(Segment):
    """A segment whose first run goes launch by launch, and whose later ones are replays."""

    __slots__ = ("_graph", "_held", "_kept", "_log", "_plain")

    def __init__(self, *args: Any):
        super().__init__(*args)
        self._graph: cuda.Graph | None = None
        self._held: Any = None  # [draws, 2] on the device: seed and offset of each step that draws random numbers
        self._kept = _Kept(self.ctx)
        self._plain = False  # it cannot be captured after all
        self._log: list[Callable[[], None]] | None = None  # of the first run; empty on a real GPU
        if self.random:
            self._hold()

    @property
    def is_captured(self) -> bool:
        """Whether runs are replays."""
        return self._graph is not None

    def run(self, rc: Any, draws: Mapping[int, tuple[int, int]] | None = None) -> None:
        self._kept.stream = rc.stream
        if draws:
            cuda.from_host(self._held, np.array([draws[at] for at, _ in self.random], np.uint64).view(np.int64))
        if self._log is None:  # compiles, loads and takes memory, none of which may happen in a capture
            with log_launches() as log:
                super().run(self._kept)
            self._log = log
        elif self._graph is None and (self._plain or not self._capture(self._log)):
            super().run(self._kept)
        else:
            assert self._graph is not None
            self._graph.replay()

    def _hold(self) -> None:
        """Device memory for the random numbers' seeds."""
        block = storage.alloc(16 * len(self.random), self.ctx)
        self._held = storage.view(block, 0, (len(self.random), 2), np.int64)
        for i, (at, _) in enumerate(self.random):
            self.draws[at] = storage.view(block, 16 * i, (2,), np.int64), 0

    def _bound(self) -> list[BoundKernel]:
        def kept(call: BoundKernel, writes: bool) -> BoundKernel:
            def launch(run: Any) -> None:
                before = launches_logged()
                call(run)
                run.next()
                if writes and not cuda.is_real() and launches_logged() == before:
                    self._plain = True  # it works in a way that the log does not see

            return launch

        return [kept(call, any(a is not None and a.size for a in c[2])) for call, c in zip(super()._bound(), self.calls)]

    def _capture(self, log: list[Callable[[], None]]) -> bool:
        """Record what a run enqueues; whether that went well."""

        def again() -> None:
            for launch in log:
                launch()

        graph = cuda.Graph(self.ctx.device_id, self.name)
        try:
            graph.capture((lambda: super(CapturedSegment, self).run(self._kept)) if cuda.is_real() else again)
        except Exception as failure:
            self._plain = True
            warnings.warn(f"{self.name}: cannot be captured: {failure}. Its kernels are launched one by one.", stacklevel=2)
            return False
        self._graph = graph
        return True
