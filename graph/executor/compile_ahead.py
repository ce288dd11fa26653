"""Prepare: the GPU kernels of a bound graph are found without running it, and compiled all at once before its first run.

So no run waits for a compiler, none is captured with one in it, and which kernel runs never depends on how long compiling
took.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ...engine.gpu import cuda
from ...kernels.cpu.c_compile import compile_wanted
from .cuda_graph import CapturedSegment
from .segment import Part, Segment

if TYPE_CHECKING:
    from ...kernels.gpu.job import CompileJob


def kernels_of(parts: Iterable[Part], target: int) -> list[CompileJob]:
    """What the captured segments will launch, each kernel once, for a compute capability (times ten). Nothing is launched."""
    from ...kernels.gpu.record import FakeRun, record  # only a process with a GPU needs it

    with record(target) as recorder:
        for part in parts:
            if isinstance(part, CapturedSegment):
                for call in Segment._bound(part):
                    call(FakeRun())
    return recorder.jobs


def compile_ahead(parts: Sequence[Part]) -> int:
    """Compile what the store lacks, in a pool of processes; how many kernels. An interpreted GPU needs none.

    Raises OperatorError for a kernel that does not compile.
    """
    compile_wanted()
    devices = {p.ctx.device_id for p in parts if isinstance(p, CapturedSegment)}
    if not devices or not cuda.is_real():
        return 0
    from ...kernels.gpu.compile import prepare  # only a process with a GPU needs it
    from ...kernels.gpu.driver import driver

    return sum(prepare(kernels_of([p for p in parts if p.ctx.device_id == d], driver().capability(d))) for d in devices)
