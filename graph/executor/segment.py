"""Segments: consecutive steps prepared as one engine operation; and what several of them share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import perf_counter_ns
from typing import Any

from ... import engine
from ...context import Context
from ...engine.memory import resource, storage
from ...errors import MXNetError
from ...kernels.kernel import BoundKernel
from ...kernels.op import Spec, compiled
from ...ndarray import NDArray
from ...ndarray.core.chunk import Chunk, layout_of
from ...ndarray.dispatch.copy import host, store_host
from ...ndarray.dispatch.hidden_outputs import ReportOnceVar
from ..memory.plan import MemoryPlan
from ..program import Program, Step

#: Nanoseconds a segment may take in the thread that pushes it. Waking a worker, and taking turns with it at Python's lock,
#: costs some 40 us a segment: on a graph of tiny arrays a quarter of the time.
SHORT = 300_000

#: By the step's name and operator, the random numbers (seed and offset) that it took in a pass, in order.
Draws = Mapping[str, Iterator[tuple[int, int]]]


class Arena:
    """The memory executors that share it run in, one at a time: one arena, replaced by a larger one when needed."""

    def __init__(self, ctx: Context):
        self.ctx = ctx
        self.chunk: Chunk | None = None
        self.others: dict[Context, Arena] = {}
        self.holds: object = None  # the forward pass whose values lie in the arena

    def take(self, nbytes: int) -> Chunk:
        """A chunk of at least nbytes."""
        if self.chunk is None or self.chunk.block.nbytes < nbytes:
            var = ReportOnceVar()
            self.chunk = Chunk(storage.alloc(max(nbytes, 1), self.ctx, var), var, self.ctx)
        return self.chunk

    def on(self, ctx: Context) -> Arena:
        """The pool for another context that belongs to this one; itself for its own."""
        return self if ctx == self.ctx else self.others.setdefault(ctx, Arena(ctx))


class CrossDeviceCopy:
    """A copy from one context to another, an engine operation of its own."""

    __slots__ = ("const", "ctx", "drawn", "failed", "mutable", "name", "produced", "read", "source", "target")

    def __init__(self, source: NDArray, target: NDArray):
        self.source, self.target, self.failed, self.ctx = source, target, False, target.context
        self.name = f"copy from {source.context} to {target.context}"
        self.const, self.mutable = [source.chunk.var], [target.chunk.var]
        self.produced: list[tuple[str, NDArray]] = []
        self.read: list[tuple[str, NDArray]] = []
        self.drawn: list[tuple[str, tuple[int, int]]] = []

    def prepare(self, on: Any) -> None:
        """Nothing to prepare: each copy is pushed by itself."""

    def push(self, on: Any, opr: Any, again: Draws | None = None) -> None:
        """Queue the copy."""
        on.push_sync(lambda _: store_host(self.target, host(self.source)), self.ctx, self.const, self.mutable, name=self.name)


class Segment:
    """Consecutive steps that are one engine operation.

    own: whether every step is Tritium's own kernel on the CPU, so that it computes and ends; a user's code may block.
    """

    __slots__ = ("calls", "const", "ctx", "drawn", "draws", "failed", "mutable", "name", "own", "produced", "random", "read",
                 "ready", "took")

    def __init__(self, steps: Sequence[Step], arrays: Mapping[int, NDArray], program: Program, arena: Any, ctx: Context,
                 name: str):
        self.calls: list[tuple[Any, list[Any], list[Any], str]] = []
        self.ready: list[BoundKernel] | None = None
        self.random: list[tuple[int, int]] = []  # (call, how many numbers)
        self.draws: dict[int, tuple[int, int]] = {}  # call -> (seed, offset) of the run under way; runs do not overlap
        self.drawn: list[tuple[str, tuple[int, int]]] = []  # (call, seed and offset) of the run pushed last
        self.produced: list[tuple[str, NDArray]] = []
        self.read: list[tuple[str, NDArray]] = []
        self.name, self.ctx = name, ctx
        self.failed = self.own = False
        self.took: float = math.inf  # nanoseconds of the shortest run so far
        mutable: dict[Any, None] = {arena: None}
        const: dict[Any, None] = {}
        for at, step in enumerate(steps):
            ins, outs = program.input_specs(step), program.output_specs(step)
            kernel = compiled(step.op, step.params, ins, outs, step.reqs, "gpu" if ctx.is_gpu else "cpu", program.train)
            sources = [_shaped(arrays[v], step.input_views.get(k)) for k, v in enumerate(step.inputs)]
            targets = [arrays[v] if v >= 0 else None for v in step.outputs]
            self.calls.append((kernel, sources, targets, f"{step.name} ({step.op.name})"))
            draws = step.op.num_random(step.params, outs)
            if draws:
                self.random.append((at, draws))
            n = len(sources) - step.auxiliaries
            const.update(dict.fromkeys(a.chunk.var for a in sources[:n]))
            mutable.update(dict.fromkeys(a.chunk.var for a in (*targets, *sources[n:]) if a is not None))
            names = (*step.op.arguments(step.params), *step.op.auxiliaries(step.params))
            self.read += [(f"{step.name}_{n}", arrays[v]) for n, v in zip(names, step.inputs)]
            self.produced += [(program.values[v].name, arrays[v]) for v in step.outputs if v >= 0]
        self.mutable = list(mutable)
        self.const = [v for v in const if v not in mutable]

    def run(self, rc: Any, draws: Mapping[int, tuple[int, int]] | None = None) -> None:
        """Call every kernel, on the thread and stream the engine chose."""
        ready = self.ready
        if ready is None:
            ready = self.ready = self._bound()
        if draws is not None:
            self.draws.update(draws)
        at, start = 0, perf_counter_ns()
        try:
            for at, call in enumerate(ready):  # noqa: B007
                call(rc)
            self.took = min(self.took, perf_counter_ns() - start)
        except MXNetError as failure:
            self.failed = True
            raise type(failure)(f"{self.calls[at][3]}: {failure}") from failure
        except Exception as failure:
            self.failed = True
            raise MXNetError(f"{self.calls[at][3]}: {type(failure).__name__}: {failure}") from failure

    def _bound(self) -> list[BoundKernel]:
        """The kernels, bound to their arrays."""
        draws, random = self.draws, {at for at, _ in self.random}
        made: list[BoundKernel] = []
        for at, (kernel, sources, targets, _) in enumerate(self.calls):
            ins, outs = [a.device_array() for a in sources], [None if o is None else o.device_array() for o in targets]
            made.append(_drawing(kernel, ins, outs, draws, at) if at in random else kernel.bind(ins, outs))
        return made

    def prepare(self, on: Any) -> Any:
        """The engine operator that runs the segment. The segment does not keep it: that would be a cycle."""

        def run(rc: Any, on_complete: Callable[..., None]) -> None:
            self.run(rc)
            on_complete()

        return on.new_operator(run, self.const, self.mutable, name=self.name)

    def push(self, on: Any, opr: Any, again: Draws | None = None) -> None:
        """Queue the segment; random numbers are drawn now, so results depend on the order of pushes alone.

        again: what an earlier pass drew, to be taken instead.
        One of own kernels that was short before runs here, if nothing it needs is still under way.
        """
        short = self.own and self.took <= SHORT
        if not self.random:
            on.push(opr, self.ctx, inline=short)
            return
        draws = {at: next(again[self.calls[at][3]]) if again is not None else resource.get_random(n, self.ctx)
                 for at, n in self.random}
        self.drawn = [(self.calls[at][3], numbers) for at, numbers in draws.items()]
        on.push_sync(lambda rc: self.run(rc, draws), self.ctx, self.const, self.mutable, prop="inline" if short else None,
                     name=self.name)


def _shaped(array: NDArray, spec: Spec | None) -> NDArray:
    """array under another shape, if one is given."""
    return array if spec is None else NDArray(layout_of(spec.shape, spec.dtype, array.ctx), None, array.chunk, array.offset)


def _drawing(kernel: Any, ins: list[Any], outs: list[Any], draws: Mapping[int, tuple[int, int]], at: int) -> BoundKernel:
    """The call of a kernel that takes random numbers; which ones, it finds in draws."""
    return lambda run: kernel(run, ins, outs, random=draws[at])


Part = Segment | CrossDeviceCopy


class CompiledProgram:
    """One program, planned, cut into segments, and prepared for the engine of the moment.

    states:  (own array, the caller's) of each auxiliary state, for a program that must leave the caller's as they are.
    """

    def __init__(self, program: Program, plan: MemoryPlan, forward: list[Part], backward: list[Part], chunks: list[Chunk],
                 states: Sequence[tuple[NDArray, NDArray]] = ()):
        self.states = states
        self.program, self.plan, self.forward, self.backward, self.chunks = program, plan, forward, backward, chunks
        self.on: Any = None
        self.oprs: dict[int, Any] = {}

    def push(self, segments: Sequence[Part], after: Callable[[Part], None] | None = None, again: Draws | None = None) -> None:
        """Queue segments in order; after(segment) is called once each is queued. again: random numbers, as in Segment.push."""
        on = engine.current()
        if on is not self.on:
            self.release()
            self.on = on
            self.oprs = {id(s): s.prepare(on) for s in (*self.forward, *self.backward)}
        for segment in segments:
            segment.failed = False
            segment.push(on, self.oprs[id(segment)], again)
            if after is not None:
                after(segment)

    def drawn(self) -> Draws:
        """What the last forward pass drew."""
        found: dict[str, list[tuple[int, int]]] = {}
        for segment in self.forward:
            for call, numbers in segment.drawn:
                found.setdefault(call, []).append(numbers)
        return {call: iter(numbers) for call, numbers in found.items()}

    def release(self) -> None:
        """Give the prepared operators back to their engine."""
        for opr in self.oprs.values():
            if opr is not None:
                self.on.delete_operator(opr)
        self.oprs = {}
