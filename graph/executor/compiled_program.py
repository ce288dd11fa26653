"""CompiledProgram: a program cut into segments, its kernels compiled, ready to be pushed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any

from ... import engine
from ...context import Context
from ...engine.base import Engine
from ...engine.gpu import cuda
from ...kernels.cpu.c_compile import compile_wanted
from ...ndarray import NDArray
from ...ndarray.core.chunk import Chunk
from ...ndarray.dispatch.copy import copy_all
from ...ndarray.dispatch.invoke import ReportOnceVar
from ..memory.plan import MemoryPlan
from ..passes.device_placement import CrossDeviceCopyOp
from ..program import Program, Step
from .cuda_graph import CapturedSegment
from .segment import Copies, CrossDeviceCopy, Draws, Segment, Shared

if TYPE_CHECKING:
    from ...kernels.gpu.job import CompileJob


def cut(program: Program, arrays: Mapping[int, NDArray], contexts: Sequence[Context], chunks: Sequence[Chunk], name: str,
        bulk: int, capture: bool) -> tuple[list[Segment], list[Segment]]:
    """Cut a program into the segments of its forward and of its backward pass.

    arrays:   by value. contexts, chunks: the contexts and the arenas of the program.
    bulk:     the most steps in a segment; 0: any number.
    capture:  True to capture what a GPU can replay; such segments have any number of steps.
    """

    def kind(step: Step) -> tuple[int, type[Segment]]:
        if isinstance(step.op, CrossDeviceCopyOp):
            return step.ctx, CrossDeviceCopy
        captured = capture and contexts[step.ctx].is_gpu and step.op.can_be_captured(step.params, program.input_specs(step))
        return step.ctx, CapturedSegment if captured else Segment

    def cut_pass(steps: Sequence[Step], part: str) -> list[Segment]:
        segments, at, shared = [], 0, Shared((*program.forward, *program.backward))
        for (ctx, cls), equal in groupby(steps, kind):
            run = list(equal)
            most = 1 if cls is CrossDeviceCopy else bulk if bulk and cls is Segment else len(run)
            for own in (run[k:k + most] for k in range(0, len(run), most)):
                span = f"{name} {part} {at}-{at + len(own) - 1}"
                segments.append(cls(own, arrays, program, chunks[ctx].var, contexts[ctx], span, shared))
                at += len(own)
        return segments

    forward, backward = cut_pass(program.forward, "forward"), cut_pass(program.backward, "backward")
    for ctx in contexts:
        for before, after in pairwise([s for s in (*forward, *backward) if s.ctx == ctx]):
            order = ReportOnceVar()  # so that the engine runs one before the other even if they share no array
            before.mutable.append(order)
            after.const.append(order)
    return forward, backward


def kernels_of(segments: Iterable[Segment], target: int) -> list[CompileJob]:
    """Return the kernels that captured segments will launch, for a compute capability (times ten). Nothing is launched."""
    from ...kernels.gpu.record import FakeRun, record  # only a process with a GPU needs it

    with record(target) as recorder:
        for segment in segments:
            if isinstance(segment, CapturedSegment):
                for call in Segment._bound(segment):
                    call(FakeRun())
    return recorder.jobs


def compile_ahead(segments: Sequence[Segment]) -> int:
    """Compile the kernels of all segments at once, in a pool of processes; return the number of GPU kernels compiled.

    So no run waits for a compiler, no capture contains one, and the choice of kernels does not depend on the time it takes.
    Raises OperatorError for a kernel that does not compile.
    """
    compile_wanted()
    devices = {s.ctx.device_id for s in segments if isinstance(s, CapturedSegment)}
    if not devices or not cuda.is_real():
        return 0
    from ...kernels.gpu.compile import prepare  # only a process with a GPU needs it
    from ...kernels.gpu.driver import driver

    return sum(prepare(kernels_of([s for s in segments if s.ctx.device_id == d], driver().capability(d))) for d in devices)


class CompiledProgram:
    """A program in segments, prepared for the current engine.

    name:    of its copies, in errors and in the profile.
    chunks:  its arenas, kept alive.
    states:  (own array, the caller's) of each auxiliary state, for a program that must not change the caller's.
    """

    def __init__(self, name: str, program: Program, plan: MemoryPlan, forward: list[Segment], backward: list[Segment],
                 chunks: Sequence[Chunk], states: Sequence[tuple[NDArray, NDArray]] = ()):
        self.program, self.plan, self.forward, self.backward, self.states = program, plan, forward, backward, states
        self.name, self.chunks = name, chunks
        self.on: Engine | None = None
        self.oprs: dict[int, Any] = {}  # by the segment's id
        compile_ahead((*forward, *backward))

    def push(self, segments: Sequence[Segment], after: Callable[[Segment], None] | None = None, again: Draws | None = None,
             before: Copies = (), behind: Copies = ()) -> None:
        """Push segments in order, and call after(segment) once each is pushed.

        again:           as in Segment.push.
        before, behind:  what is copied before and after: on the host by the first and the last segment, to queue fewer tasks.
        """
        if (before or behind) and not (segments and segments[0].copies and segments[-1].copies):
            copy_all(self.name, before)
            self._push(segments, after, again, (), ())
            copy_all(self.name, behind)
        else:
            self._push(segments, after, again, before, behind)

    def _push(self, segments: Sequence[Segment], after: Callable[[Segment], None] | None, again: Draws | None,
              before: Copies, behind: Copies) -> None:
        on = engine.current()
        if on is not self.on:
            self.release()
            self.on = on
            self.oprs = {id(s): s.prepare(on) for s in (*self.forward, *self.backward)}
        last = len(segments) - 1
        for k, segment in enumerate(segments):
            segment.failed = False
            segment.push(on, self.oprs[id(segment)], again, () if k else before, behind if k == last else ())
            if after is not None:
                after(segment)

    def drawn(self) -> Draws:
        """Return the random numbers of the last forward pass."""
        drawn: dict[str, list[tuple[int, int]]] = {}
        for segment in self.forward:
            for call, numbers in segment.drawn:
                drawn.setdefault(call, []).append(numbers)
        return {call: iter(numbers) for call, numbers in drawn.items()}

    def release(self) -> None:
        """Give the prepared operators back to their engine."""
        for opr in self.oprs.values():
            if opr is not None and self.on is not None:
                self.on.delete_operator(opr)
        self.oprs = {}
