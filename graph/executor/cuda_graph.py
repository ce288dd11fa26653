"""CUDA graphs: the launches of a segment are recorded once and then replayed with one call.

A replay repeats the recorded launches to the bit: the same kernels, addresses and numbers. So all that changes between runs
lies in memory: arrays keep their addresses, workspace is kept, and the seed and offset of each draw of random numbers are
written to the device before every replay. Steps that cannot be repeated like this (a layer computed on the host, a user's own
code) are in other segments, which run without capture.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...context import GPU_SYNC
from ...engine import RunContext
from ...engine.gpu import cuda, transfer
from ...engine.memory import storage
from ...engine.profiler import objects
from ...errors import OperatorError
from ...kernels.gpu.launch import launches_logged, log_launches
from ...kernels.kernel import BoundKernel, Run
from .segment import Segment


@dataclass(frozen=True, slots=True)
class _Check:
    """An array that must be 0 after a run. at: the number of its kernel. blocks: the memory that must stay for it."""

    at: int
    failed: Any
    message: str
    blocks: list[storage.Block]


class _ReplayContext(RunContext):
    """A RunContext that keeps its scratch memory: a replay uses that of the recording.

    What one kernel used is free for the next one.

    checks:       of this run, to be made when it is over. at: the number of the kernel that runs.
    reads_values: True once a kernel has read values on the host, or written them, which no replay repeats.
    """

    __slots__ = ("_free", "_taken", "at", "checks", "reads_values")

    def __init__(self, ctx: Any):
        super().__init__(ctx)
        self._free: list[storage.Block] = []
        self._taken: list[storage.Block] = []
        self.checks: list[_Check] = []
        self.at, self.reads_values = 0, False

    def scratch(self, nbytes: int) -> storage.Block:
        fits = [b for b in self._free if nbytes <= b.nbytes]
        block = min(fits, key=lambda b: b.nbytes) if fits else storage.alloc(nbytes, self.ctx)
        if fits:
            self._free.remove(block)
        self._taken.append(block)
        return block

    def to_host(self, array: Any) -> np.ndarray:
        self.reads_values = True
        return super().to_host(array)

    def from_host(self, array: Any, values: np.ndarray) -> None:
        self.reads_values = True
        super().from_host(array, values)

    def refuse(self, failed: Any, message: str) -> None:
        """Check `failed` when the run is over. Its memory, and the kernel's other workspaces, go to no other kernel."""
        self.checks.append(_Check(self.at, failed, message, self._taken))
        self._taken = []

    def take_back(self, checks: Sequence[_Check]) -> None:
        """Let other kernels have the workspaces of checks that are not made again."""
        self._free += [block for check in checks for block in check.blocks]

    def next(self) -> None:
        """Free the workspaces of the kernel that was launched last."""
        self._free += self._taken
        self._taken.clear()


class CapturedSegment(Segment):
    """A segment whose first run launches its kernels one by one, and whose later runs are replays."""

    __slots__ = ("_cannot_capture", "_checks", "_context", "_graph", "_held", "_log")

    def __init__(self, *args: Any):
        super().__init__(*args)
        self._graph: cuda.Graph | None = None
        self._held: Any = None  # [draws, 2] on the device: seed and offset of each step that draws random numbers
        self._context = _ReplayContext(self.ctx)
        self._cannot_capture = GPU_SYNC and cuda.is_real()  # a capture cannot be waited for
        self._log: list[Callable[[], None]] | None = None  # launches of the first run; empty on a real GPU
        self._checks: list[_Check] = []  # of each replay
        if self.random:  # memory on the device for their seeds and offsets
            block = storage.alloc(16 * len(self.random), self.ctx)
            self._held = storage.view(block, 0, (len(self.random), 2), np.int64)
            for i, (at, _) in enumerate(self.random):
                self.draws[at] = storage.view(block, 16 * i, (2,), np.int64), 0

    @property
    def is_captured(self) -> bool:
        """True if runs are replays."""
        return self._graph is not None

    def run(self, rc: Run, draws: Mapping[int, tuple[int, int]] | None = None, versions: tuple[int, ...] = ()) -> None:
        self._context.stream = rc.stream
        if draws:
            transfer.from_host(self._held, np.array([draws[at] for at, _ in self.random], np.uint64).view(np.int64))
        if self._log is None:  # this run compiles, loads and allocates, none of which may happen in a capture
            with log_launches() as log:
                checks = self._checks = self._launch()
            self._log = log
            self._cannot_capture |= self._context.reads_values
        elif self._one_by_one():
            checks = self._launch()
        else:
            assert self._graph is not None
            self._graph.replay()
            checks = self._checks
        for check in checks:
            if transfer.to_host(check.failed).any():
                self.failed = True
                raise OperatorError(f"{self.calls[check.at][3]}: {check.message}")

    def _launch(self) -> list[_Check]:
        """Launch the kernels one by one. Returns: the checks to be made when they are done."""
        self._context.checks = []
        super().run(self._context)
        return self._context.checks

    def _one_by_one(self) -> bool:
        """Return whether kernels are launched: for a profile, which has the time of each, and where nothing can be captured."""
        if objects.active_recorder is not None:
            return True
        return self._graph is None and (self._cannot_capture or not self._capture(self._log or []))

    def _bound(self) -> list[BoundKernel]:
        def in_context(at: int, call: BoundKernel, writes: bool) -> BoundKernel:
            def launch(run: Any) -> None:
                before, run.at = launches_logged(), at
                call(run)
                run.next()
                if writes and not cuda.is_real() and launches_logged() == before:
                    self._cannot_capture = True  # it computed something that the log does not show

            return launch

        return [in_context(at, call, any(a is not None and a.size for a in c[2]))
                for at, (call, c) in enumerate(zip(super()._bound(), self.calls))]

    def _capture(self, log: list[Callable[[], None]]) -> bool:
        """Record the launches of a run; return whether that succeeded."""

        def launch_again() -> None:
            for launch in log:
                launch()

        def launch_all() -> None:
            self._context.take_back(self._checks)
            launched_on, self._context.stream = self._context.stream, cuda.stream(self.ctx.device_id, "capture")
            try:
                self._checks = self._launch()
            finally:
                self._context.stream = launched_on

        graph = cuda.Graph(self.ctx.device_id, self.name)
        try:
            graph.capture(launch_all if cuda.is_real() else launch_again)
        except Exception as failure:
            self._cannot_capture = True
            warnings.warn(f"{self.name}: cannot be captured: {failure}. Its kernels are launched one by one.", stacklevel=2)
            return False
        self._graph = graph
        return True
