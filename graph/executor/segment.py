"""Segments: consecutive steps that run as one engine operation."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from threading import get_ident
from time import perf_counter_ns
from typing import Any

from ...context import Context
from ...engine import Engine, Opr, Var
from ...engine.gpu import cuda
from ...engine.memory import resource
from ...engine.profiler import objects
from ...engine.profiler.recorder import Recorder
from ...errors import MXNetError
from ...kernels.cpu.c_team import Phases
from ...kernels.cpu.c_template import address
from ...kernels.kernel import BoundKernel, InTurn, Kernel, Prepared, Run
from ...kernels.op import Spec, compiled
from ...ndarray import NDArray
from ...ndarray.core.chunk import layout_of
from ...ndarray.dispatch.copy import COPIED, host, store_host
from ...ndarray.dispatch.plan import MEASURED
from ..program import KEPT, Program, Step
from . import by_images
from .loads import Copies, Loads, Targets, copy

#: A segment runs in the thread that pushes it if its shortest run took at most so many nanoseconds. Waking a worker and
#: switching threads costs some 40 us, a quarter of the time of a graph of tiny arrays.
SHORT = 300_000

#: Nanoseconds between two pieces from which on a profile shows them apart: a helper may have computed for another caller.
APART = 2_000

#: Stands for the number of a kernel where a run copies what it is given.
LOADS = -1

#: Steps that read an array, from which on it is prepared once for all of them, as a packed weight: a layer in training has two.
MANY_READERS = 4

#: {name of a step and its operator: the (seed, offset) of its random numbers in each of its calls}
Draws = Mapping[str, Iterator[tuple[int, int]]]


class Shared:
    """Data that the kernels of one pass make once for all steps that read the same array, as a packed weight.

    readers: the number of steps of the program that read each value. made: by context, as `Kernel.share` fills it.
    sources: the variables of what values that stay (program.KEPT) were made from.
    """

    __slots__ = ("made", "readers", "sources")

    def __init__(self, steps: Iterable[Step]):
        self.readers = Counter(v for s in steps for v in s.inputs)
        self.made: defaultdict[Context, dict[Any, Any]] = defaultdict(dict)
        self.sources: dict[int, list[Var]] = {}


class Segment:
    """Consecutive steps of one context, prepared as one engine operation.

    const, mutable:  the variables it reads and writes.
    copies:          whether it makes copies before and behind it by itself, so that they queue no task.
    computes_only:   True if no kernel in it can block, as a user's code or a GPU may.
    random:          [(step, number of random numbers it draws)].
    draws:           {step: (seed, offset)} of the current run; runs do not overlap. drawn: those of the last push.
    read, produced:  arrays by name, for a monitor.
    shortest:        nanoseconds of the shortest run so far. measured: how many runs that took into account.
    kept:            variables of the arrays from which its kernels keep something. made: their versions when that was made.
    always:          those of const that every run reads; the others are read where what is kept is made.
    ready:           what a run calls: (function, the first and the last of the kernels that it is). Consecutive kernels in C
                     are one function. phases: the kernel of each of its phases. prepares: what makes the things that are
                     kept, (function, kernel).
    loads:           the long copies with which a run began that had any; other runs leave them out.
    targets:         of the copies with which the last run began that had any.
    shared:          what it shares with the other segments of its pass, which are bound and run in order.
    """

    __slots__ = ("always", "calls", "computes_only", "const", "copies", "ctx", "drawn", "draws", "failed", "kept", "loads",
                 "made", "measured", "mutable", "name", "phases", "prepares", "produced", "random", "read", "ready", "shared",
                 "shares", "shortest", "targets")

    def __init__(self, steps: Sequence[Step], arrays: Mapping[int, NDArray], program: Program, arena_var: Var, ctx: Context,
                 name: str, shared: Shared):
        self.calls: list[tuple[Kernel, list[NDArray], list[NDArray | None], str]] = []
        self.ready: list[tuple[BoundKernel, int, int]] | None = None
        self.prepares: list[tuple[BoundKernel, int]] = []
        self.phases: list[list[int]] = []
        self.random: list[tuple[int, int]] = []
        self.draws: dict[int, tuple[int, int]] = {}
        self.drawn: list[tuple[str, tuple[int, int]]] = []
        self.produced: list[tuple[str, NDArray]] = []
        self.read: list[tuple[str, NDArray]] = []
        self.name, self.ctx, self.failed, self.shared = name, ctx, False, shared
        self.shares: list[bool] = []
        self.copies = type(self) is Segment and not ctx.is_gpu
        self.computes_only = not ctx.is_gpu and all(s.op.can_be_captured(s.params, program.input_specs(s)) for s in steps)
        self.shortest: float = math.inf
        self.measured = 0
        self.loads: Loads | None = None
        self.targets: Targets | None = None
        self.kept: list[Var] = []
        self.made: tuple[int, ...] | None = None
        self.always: list[Var] = []
        mutable: dict[Any, None] = {arena_var: None}
        const: dict[Any, None] = {}
        for at, step in enumerate(steps):
            ins, outs = program.input_specs(step), program.output_specs(step)
            kernel = compiled(step.op, step.params, ins, outs, step.reqs, "gpu" if ctx.is_gpu else "cpu", program.train)
            if kernel.ahead is not None:
                kernel.ahead()
            sources = [_view(arrays[v], step.input_views.get(k)) for k, v in enumerate(step.inputs)]
            targets = [arrays[v] if v >= 0 else None for v in step.outputs]
            self.calls.append((kernel, sources, targets, f"{step.name} ({step.op.name})"))
            self.shares.append(kernel.shares >= 0 and shared.readers[step.inputs[kernel.shares]] >= MANY_READERS)
            made_from = [var for i in kernel.keeps for var in shared.sources.get(step.inputs[i], [sources[i].chunk.var])]
            self.kept += made_from
            stays = {v for v in (*step.inputs, *step.outputs) if v >= 0 and program.values[v].kind == KEPT}
            shared.sources |= {v: made_from for v in step.outputs if v in stays}
            n_random = step.op.random_count(step.params, ins, outs)
            if n_random:
                self.random.append((at, n_random))
            n = len(sources) - step.auxiliaries
            const.update(dict.fromkeys(a.chunk.var for a, v in zip(sources[:n], step.inputs) if v not in stays))
            mutable.update(dict.fromkeys(a.chunk.var for a, v in zip(targets, step.outputs) if a is not None and v not in stays))
            mutable.update(dict.fromkeys(a.chunk.var for a in sources[n:]))
            names = (*step.op.arguments(step.params), *step.op.auxiliaries(step.params))
            self.read += [(f"{step.name}_{n}", arrays[v]) for n, v in zip(names, step.inputs)]
            self.produced += [(program.values[v].name, arrays[v]) for v in step.outputs if v >= 0]
        self.mutable = list(mutable)
        self.const = [v for v in const if v not in mutable]

    def run(self, rc: Run, draws: Mapping[int, tuple[int, int]] | None = None, versions: tuple[int, ...] = ()) -> None:
        """Run the kernels. versions: of the variables in `kept`, when this run was pushed."""
        ready = self.ready
        if ready is None:
            ready, self.made = self._joined(getattr(rc, "threads", 1)), None
            self.ready = ready
        begun = isinstance(first := ready[0][0], Phases) and first.begun if ready else False
        if draws is not None:
            self.draws.update(draws)
        at, last, start = 0, 0, perf_counter_ns()
        try:
            if versions != self.made:
                self.made = None
                for prepare, at in self.prepares:
                    last = at
                    prepare(rc)
                self.made = versions
            recorder = objects.active_recorder
            for i, (call, at, last) in enumerate(ready):  # noqa: B007
                if recorder is None:
                    call(rc)
                else:
                    self._record(rc, recorder, i, (get_ident(), start))
            if not begun:
                self.shortest = min(self.shortest, perf_counter_ns() - start)
                self.measured += 1
        except MXNetError as failure:
            self.failed = True
            raise type(failure)(f"{self._named(at, last)}: {failure}") from failure
        except Exception as failure:
            self.failed = True
            raise MXNetError(f"{self._named(at, last)}: {type(failure).__name__}: {failure}") from failure
        finally:
            if self.loads is not None and self.loads.works:
                self._leave_out(1)

    def _record(self, rc: Run, recorder: Recorder, i: int, run: tuple[int, int]) -> None:
        """Run what `ready` has at i, and note which thread computed what when. run: this run's thread and start."""
        assert self.ready is not None
        (call, at, _), start = self.ready[i], perf_counter_ns()
        if self.ctx.is_gpu:
            before = cuda.mark(rc.stream)
            call(rc)
            recorder.device_part(self.calls[at][3], run, self.ctx.device_id, before, cuda.mark(rc.stream))
            return
        pieces = call.logged(rc) if isinstance(call, Phases) else call(rc)
        if not pieces:
            recorder.part(self._named(at, at), run, get_ident(), start, perf_counter_ns())
            return
        ordered = sorted(pieces, key=lambda p: (p.thread, p.begin))
        first = 0
        for k, (piece, then) in enumerate(zip(ordered, [*ordered[1:], None]), 1):
            if then is None or (then.thread, then.phase) != (piece.thread, piece.phase) or then.begin > piece.end + APART:
                number = self.phases[i][piece.phase]
                name = self._named(number, number)
                recorder.part(name, run, -piece.thread or get_ident(), ordered[first].begin, piece.end, k - first)
                first = k

    def _named(self, at: int, last: int) -> str:
        """Return the names of the kernels from one to another, for an error."""
        first, end = ("copy of the inputs" if k == LOADS else self.calls[k][3] for k in (at, last))
        return first if at == last else f"{first} to {end}"

    def _joined(self, threads: int) -> list[tuple[BoundKernel, int, int]]:
        """Return what a run on so many threads calls."""
        self.prepares, self.phases = [], []
        joined: list[tuple[BoundKernel, int, int]] = []
        all_bound = self._bound()
        self.always = self._read_always(all_bound)
        parts = [(part, at) for at, bound in enumerate(all_bound) for part in self._parts(bound, at)]
        if self.loads is not None and self.loads.works:
            parts.insert(0, (self.loads.phases, LOADS))
        for in_c, some in groupby(parts, lambda p: isinstance(p[0], Phases)):
            run = list(some)
            if in_c:
                run = self._by_images(run, threads)
                self.phases.append([at for p, at in run if isinstance(p, Phases) for _ in range(p.count)])
                joined.append((Phases.join([p for p, _ in run if isinstance(p, Phases)]), run[0][1], run[-1][1]))
            else:
                self.phases += [[] for _ in run]
                joined += [(part, at, at) for part, at in run]
        return joined

    def _by_images(self, run: list[tuple[Any, int]], threads: int) -> list[tuple[Any, int]]:
        """Return functions in C (function, kernel), of which some run for a few images at a time."""
        layers = [self._layer(phases, at) for phases, at in run]
        for first, end, chunk in reversed(by_images.cut(layers, threads)):
            images = layers[first].images
            run[first:end] = [(phases.of_images(i, min(i + chunk, images)), at)
                              for i in range(0, images, chunk) for phases, at in run[first:end]]
        return run

    def _layer(self, phases: Phases, at: int) -> by_images.Layer:
        step = None if at == LOADS else phases.only()
        if step is None or step.images < 2:
            return by_images.Layer(0, 0, ())
        _, sources, targets, _ = self.calls[at]
        spans = [by_images.Span(address(a.device_array()), a.layout.nbytes, a.shape[:1] == (step.images,), written)
                 for written, arrays in ((False, sources), (True, targets)) for a in arrays if a is not None and a.size]
        return by_images.Layer(step.images, step.pieces, spans)

    def _read_always(self, all_bound: Sequence[BoundKernel]) -> list[Var]:
        """Return the variables of `const` that every run reads. Kernels that keep something read it where that is made."""
        if self._makes_each_time():
            return self.const
        read = {a.chunk.var for bound, (kernel, sources, _, _) in zip(all_bound, self.calls)
                for i, a in enumerate(sources) if not (isinstance(bound, Prepared) and i in kernel.keeps)}
        kept = {v for v in self.kept if v not in read}
        return [v for v in self.const if v not in kept]

    def _makes_each_time(self) -> bool:
        """Return whether what the kernels keep is made in each run: it is made of arrays that the run changes."""
        return not set(self.kept).isdisjoint(self.mutable)

    def _parts(self, bound: BoundKernel, at: int) -> Iterator[BoundKernel]:
        """Return the functions that a bound kernel calls."""
        if isinstance(bound, InTurn):
            for call in bound.calls:
                yield from self._parts(call, at)
        elif not isinstance(bound, Prepared):
            yield bound
        elif self._makes_each_time():
            yield from (bound.prepare, *self._parts(bound.run, at))
        else:
            self.prepares.append((bound.prepare, at))
            yield from self._parts(bound.run, at)

    def _bound(self) -> list[BoundKernel]:
        """Return the kernels bound to their arrays."""
        random = {at for at, _ in self.random}
        ready: list[BoundKernel] = []
        for at, (kernel, sources, targets, _) in enumerate(self.calls):
            ins, outs = [a.device_array() for a in sources], [None if o is None else o.device_array() for o in targets]
            if at in random:
                bound = _bind_random(kernel, ins, outs, self.draws, at)
            elif self.shares[at] and kernel.share is not None:
                bound = kernel.share(ins, outs, self.shared.made[self.ctx])
            else:
                bound = kernel.keep(ins, outs)
            ready.append(bound)
        return ready

    def prepare(self, on: Engine) -> Opr | None:
        """Return the engine operator that runs the segment. The segment does not keep it: that would be a cycle."""
        return on.new_operator(self.run, self.const, self.mutable, name=self.name, synchronous=True,
                               cost_key=object() if self.computes_only else None)

    def push(self, on: Engine, opr: Opr, again: Draws | None = None, before: Copies = (), behind: Copies = ()) -> None:
        """Push the segment. Random numbers are reserved now, so that results depend on the order of pushes alone.

        again:           the random numbers of an earlier pass, to be used again.
        before, behind:  what the same task copies before and after it runs.
        """
        inline = self.computes_only and self.shortest <= SHORT
        versions = tuple([v.version for v in self.kept])
        targets = self._targets(before) if before else None
        settled = versions == self.made and (targets is None or self._takes(targets))
        begin = self._begin if self.computes_only and not inline and settled and self.measured >= MEASURED else None
        if not inline and not self.random and not self.kept and not before and not behind:
            on.push(opr, self.ctx, begin=begin)
            return
        draws = self._draw(again) if self.random else None
        const, mutable = self.always if settled else self.const, self.mutable
        if targets is not None:
            mutable = targets.mutable
            inline = inline and targets.nbytes <= COPIED
        if behind:
            mutable = list(dict.fromkeys([*mutable, *[target.chunk.var for _, target in behind]]))
            inline = inline and sum([target.layout.nbytes for _, target in behind]) <= COPIED
        if before or behind:
            const = [v for v in const if v not in mutable]
            for source, _ in (*before, *behind):
                if (var := source.chunk.var) not in const and var not in mutable:
                    const.append(var)
        begun, failed = False, None

        def run(rc: Run) -> None:
            if failed is not None:
                raise failed
            if not begun and targets is not None:
                self._load(before, targets, settled)
            self.run(rc, draws, versions)
            copy(behind)

        def begin_after_copies() -> None:
            nonlocal begun
            begun = True
            if targets is not None:
                self._load(before, targets, settled)
            self._begin()

        if inline:
            try:
                if on.try_run_inline(run, const, mutable, on.run_context(self.ctx)):
                    return
            except Exception as e:  # the next wait raises it
                failed = e
        if self.random:
            begin = None
        on.push_sync(run, self.ctx, const, mutable, prop="inline" if inline else None, name=self.name,
                     cost_key=opr.cost_key, begin=begin and begin_after_copies)

    def _draw(self, again: Draws | None) -> dict[int, tuple[int, int]]:
        """Reserve the random numbers of a run, or take those of an earlier pass."""
        draws = {at: next(again[self.calls[at][3]]) if again is not None else resource.get_random(n, self.ctx)
                 for at, n in self.random}
        self.drawn = [(self.calls[at][3], numbers) for at, numbers in draws.items()]
        return draws

    def _targets(self, copies: Copies) -> Targets:
        """Return the targets of what a run copies first: from pass to pass they are mostly the same."""
        if self.targets is None or not self.targets.are_of(copies):
            self.targets = Targets(copies, self.mutable)
        return self.targets

    def _takes(self, targets: Targets) -> bool:
        """Return whether the first phase can copy the long ones as it is."""
        return not targets.long or (self.loads is not None and self.loads.key == targets.key)

    def _load(self, copies: Copies, targets: Targets, settled: bool) -> None:
        """Copy what the next run reads. Long copies are left to its first phase. settled: that has been made."""
        if targets.long:
            if not settled and not self._takes(targets):
                self.loads, self.ready = Loads(targets), None
            if self.loads is not None and self.loads.works and self.loads.key == targets.key:
                copies = self.loads.give(copies)
                self._leave_out(0)
        copy(copies)

    def _leave_out(self, phases: int) -> None:
        """Leave out the first phases in later runs: those of the long copies, with which the first function in C begins."""
        if self.ready is not None:
            first, _, _ = self.ready[0]
            assert isinstance(first, Phases)
            first.leave_out(phases)

    def _begin(self) -> None:
        """Let the functions in C at its beginning begin: `run`, which must follow, takes part in them."""
        if self.ready and isinstance(call := self.ready[0][0], Phases) and objects.active_recorder is None:
            call.begin()


class CrossDeviceCopy(Segment):
    """One step that copies an array to another context."""

    __slots__ = ("source", "target")

    def __init__(self, steps: Sequence[Step], arrays: Mapping[int, NDArray], program: Program, arena_var: Var, ctx: Context,
                 name: str, shared: Shared):
        super().__init__((), arrays, program, arena_var, ctx, name, shared)
        self.source, self.target = arrays[steps[0].inputs[0]], arrays[steps[0].outputs[0]]
        self.name = f"copy from {self.source.context} to {self.target.context}"
        self.const, self.mutable = [self.source.chunk.var], [self.target.chunk.var]

    def prepare(self, on: Engine) -> None:
        """Nothing to prepare: each copy is pushed by itself."""

    def push(self, on: Engine, opr: Opr, again: Draws | None = None, before: Copies = (), behind: Copies = ()) -> None:
        """Push the copy."""
        on.push_sync(lambda _: store_host(self.target, host(self.source)), self.ctx, self.const, self.mutable, name=self.name)


def _view(array: NDArray, spec: Spec | None) -> NDArray:
    """Return array under another shape, if one is given."""
    return array if spec is None else NDArray(layout_of(spec.shape, spec.dtype, array.ctx), None, array.chunk, array.offset)


def _bind_random(kernel: Kernel, ins: list[Any], outs: list[Any], draws: Mapping[int, tuple[int, int]], at: int) -> BoundKernel:
    """Bind a kernel that draws random numbers; each run takes (seed, offset) from draws."""
    return lambda run: kernel.run(run, ins, outs, random=draws[at])
