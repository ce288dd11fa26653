"""Executor: a symbol with arrays. Compiled once to a flat list of kernel calls; each pass pushes a few engine operations."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ...context import Context
from ...errors import GraphError, ShapeError, describe, nearest
from ...kernels.op import Spec
from ...ndarray import NDArray, zeros
from ...ndarray.core.chunk import Chunk, layout_of
from ...ndarray.dispatch.hidden_outputs import ReportOnceVar
from ..compile import CompileRequest, compile_program
from ..memory.plan import MemoryPlan
from ..options import Options, current
from ..passes.device_placement import CrossDeviceCopyOp
from ..passes.fuse import fused_operators
from ..program import ARG, AUX, GRAD, HEAD, INNER, OUTPUT, ZERO, Program, Step, lower
from ..show.explain import Explanation, explain
from ..symbol.node import Entry
from .compile_ahead import compile_ahead
from .cuda_graph import CapturedSegment, capturable
from .segment import Arena, CompiledProgram, CrossDeviceCopy, Part, Segment

#: Called with (program, plan) for every plan an executor makes; the tests' plan checker stands here.
on_plan: list[Callable[[Program, MemoryPlan], None]] = []


class Executor:
    """A symbol bound to arrays. Made by `Symbol.bind` and `Symbol.simple_bind`.

    outputs:                        the arrays forward writes, the same ones each time.
    arg_dict, grad_dict, aux_dict:  arrays by name; a gradient is missing where grad_req is "null".
    """

    def __init__(self, heads: Sequence[Entry], specs: list[list[Spec]], ctx: Context, args: dict[str, NDArray],
                 grads: dict[str, NDArray], grad_req: dict[str, str], auxes: dict[str, NDArray], symbol: Any,
                 arena: Arena | None = None, options: Options | None = None, memory_budget: int | None = None,
                 where: Mapping[str, Context] | None = None):
        self._heads, self._specs, self._ctx, self._symbol = tuple(heads), specs, ctx, symbol
        self.arg_dict, self.grad_dict, self.aux_dict = args, grads, auxes
        self._grad_req = {n: r for n, r in grad_req.items() if n in grads}
        self._options = options or current()
        self._budget = memory_budget
        self._where = dict(where or {})  # node -> context, where it is not ctx for all
        self._contexts = list(dict.fromkeys([ctx, *self._where.values()]))
        self._places = {n: self._contexts.index(c) for n, c in self._where.items() if c != ctx}
        self.arena = arena if arena is not None and arena.ctx == ctx else Arena(ctx)
        self._programs: dict[tuple[bool, bool, bool], CompiledProgram] = {}
        self._monitor: Callable[[str, NDArray], None] | None = None
        self._monitor_all = False
        self._last: CompiledProgram | None = None  # the training program whose forward pass ran last
        self._inferred: CompiledProgram | None = None  # or that of inference
        self._head_arrays: dict[int, NDArray] = {}
        plain = lower(self._heads, specs, False, self._places)
        self._head_values = [plain.values[v] for v in plain.heads]
        self._heads_at = plain.heads
        self._outputs: list[NDArray] | None = None
        self._capacity: list[int] | None = None  # bytes of each output, once they are made

    # ---- arrays ---------------------------------------------------------------------------------------------------
    @property
    def arg_arrays(self) -> list[NDArray]:
        """Arguments, in the symbol's order."""
        return list(self.arg_dict.values())

    @property
    def grad_arrays(self) -> list[NDArray | None]:
        """Gradients, in argument order; None where there is none."""
        return [self.grad_dict.get(n) for n in self.arg_dict]

    @property
    def aux_arrays(self) -> list[NDArray]:
        """Auxiliary states, in the symbol's order."""
        return list(self.aux_dict.values())

    @property
    def outputs(self) -> list[NDArray]:
        """The arrays that forward writes."""
        return self._outputs if self._outputs is not None else self._make_outputs([v.spec.nbytes for v in self._head_values])

    def _make_outputs(self, capacity: Sequence[int]) -> list[NDArray]:
        """Allocate the outputs, once. capacity: bytes of each."""
        made: dict[int, NDArray] = {}
        self._capacity = list(capacity)
        for v, value, nbytes in zip(self._heads_at, self._head_values, capacity):
            if v not in made:
                given = self.arg_dict if value.kind == ARG else self.aux_dict
                made[v] = given[value.name] if value.kind in (ARG, AUX) else _array(value.spec, self._contexts[value.ctx], nbytes)
        self._outputs = [made[v] for v in self._heads_at]
        return self._outputs

    @property
    def output_dict(self) -> dict[str, NDArray]:
        """Outputs by name."""
        return dict(zip(self._symbol.list_outputs(), self.outputs))

    def copy_params_from(self, arg_params: Mapping[str, Any], aux_params: Mapping[str, Any] | None = None,
                         allow_extra_params: bool = False) -> None:
        """Copy arrays into the arguments and states of the same names.

        Raises GraphError for a name the symbol lacks, unless allow_extra_params; ShapeError if shapes differ.
        """
        for what, given, own in (("argument", arg_params, self.arg_dict), ("auxiliary state", aux_params or {}, self.aux_dict)):
            for name, array in given.items():
                if name in own:
                    _assign(own[name], array, f"copy_params_from: {name}")
                elif not allow_extra_params:
                    raise GraphError(f"copy_params_from: the symbol has no {what} {name!r}.{nearest(name, own)} "
                                     f"Pass allow_extra_params=True to ignore extra ones.")

    # ---- passes ---------------------------------------------------------------------------------------------------
    def forward(self, is_train: bool = False, **kwargs: Any) -> list[NDArray]:
        """Queue the forward pass and return the outputs at once.

        kwargs: arrays to copy into arguments first.
        """
        for name, array in kwargs.items():
            if name not in self.arg_dict:
                raise GraphError(f"forward: no argument is called {name!r}.{nearest(name, self.arg_dict)}")
            _assign(self.arg_dict[name], array, f"forward: {name}")
        program = self._compile(bool(is_train))
        program.push(program.forward, self._show if self._monitor is not None else None)
        self._last, self._inferred = (program, None) if is_train else (None, program)
        self.arena.holds = self._last
        return self.outputs

    def backward(self, out_grads: Any = None, is_train: bool = True) -> None:
        """Queue the backward pass: gradients go to `grad_dict` as grad_req says.

        out_grads: derivatives by the outputs, one array or a list; loss layers need none.
        is_train:  does not matter: the gradient is that of the forward pass that ran, in training or not.
        Inference keeps nothing: after it forward runs once more, as it ran, in memory of its own.
        """
        ran = self._inferred or self._last
        if ran is None or (ran is self._last and self.arena.holds is not ran):
            raise GraphError("backward: forward(is_train=True) must run first, each time, and no other pass in between.")
        failed = next((s for s in ran.forward if s.failed), None)
        if failed is not None:
            raise GraphError(f"backward: the forward pass failed ({failed.name}). Run forward again first.")
        program = ran if ran is self._last else self._compile(False, monitored=False, aside=True)
        given = [out_grads] if isinstance(out_grads, (NDArray, np.ndarray)) else list(out_grads or [])
        if len(given) > len(self.outputs):
            raise GraphError(f"backward: {len(given)} head gradients for {len(self.outputs)} outputs.")
        for number in program.program.head_grads:
            value = self._head_values[number]
            array = given[number] if number < len(given) else None
            if array is None:
                raise GraphError(f"backward: output {value.name} needs a head gradient: {_shown(value.spec)}. "
                                 f"Pass out_grads=[...]; only loss layers need none.")
            _assign(self._head_arrays[number], array, f"backward: head gradient of {value.name}")
        for name in program.program.zero_grads:
            self.grad_dict[name][:] = 0
        if program is not ran:
            for own, state in program.states:
                own[:] = state
            program.push(program.forward, again=ran.drawn())
        program.push(program.backward)
        self._last = self.arena.holds = None

    def set_monitor_callback(self, callback: Callable[[str, NDArray], None] | None, monitor_all: bool = False) -> None:
        """Call callback(name, array) for every node's outputs during forward: node by node, unfused. None: no more.

        monitor_all: also for what each node reads, before it runs, as `node_input`, the arguments among it.
        """
        self._monitor, self._monitor_all = callback, monitor_all

    def _show(self, segment: Part) -> None:
        for name, array in (*(segment.read if self._monitor_all else ()), *segment.produced):
            if self._monitor is not None:
                self._monitor(name, array)

    # ---- seeing what was compiled -----------------------------------------------------------------------------------
    def memory_plan(self) -> MemoryPlan:
        """The plan of the training program if there are gradients, else of inference; str(plan) is a table."""
        return self._main().plan

    @property
    def fused_operators(self) -> int:
        """How many operators of the graph were merged into fused kernels."""
        return fused_operators(self._main().program)

    def explain(self) -> Explanation:
        """Every kernel, what was fused into it, and what kept the next operator out; print it."""
        return explain(self._main().program)

    def debug_str(self) -> str:
        """The compiled program and its memory; the last line is `Total N MB allocated`."""
        main = self._main()
        return f"{main.program}\n{main.plan}\nTotal {main.plan.planned_bytes >> 20} MB allocated\n"

    def reshape(self, partial_shaping: bool = False, allow_up_sizing: bool = False, **kwargs: Any) -> Executor:
        """An executor for other input shapes, which shares every array whose shape stays, and the arena.

        Raises ShapeError if an array that was not named changes shape (unless partial_shaping), or grows (unless
        allow_up_sizing).
        """
        return self._symbol._rebind(self, partial_shaping, allow_up_sizing, kwargs)

    # ---- compiling ----------------------------------------------------------------------------------------------------
    def _main(self) -> CompiledProgram:
        return self._compile(bool(self._grad_req), monitored=False)

    def _compile(self, train: bool, monitored: bool | None = None, aside: bool = False) -> CompiledProgram:
        """The program for a mode, made when it is first asked for.

        aside: inference and its derivative, with outputs and states of its own, so that the caller's stay as they are.
        """
        monitored = self._monitor is not None if monitored is None else monitored
        found = self._programs.get((train, monitored, aside))
        if found is None:
            found = self._programs[train, monitored, aside] = self._build(train, monitored, aside)
        return found

    def _build(self, train: bool, monitored: bool, aside: bool) -> CompiledProgram:
        how = self._options
        targets = tuple("gpu" if c.is_gpu else "cpu" for c in self._contexts)
        request = CompileRequest(self._heads, self._specs, train, self._grad_req, targets, self._places,
                          self._budget if train or aside else None, monitored,
                          [v.spec.nbytes for v in self._head_values] if aside else self._capacity, aside)
        program, plan = compile_program(request, how)
        if self._outputs is None:
            self._make_outputs([plan.capacity.get(v, program.values[v].spec.nbytes) for v in program.heads])
        for check in on_plan:
            check(program, plan)
        chunks = [self.arena.on(c).take(n) for c, n in zip(self._contexts, plan.arenas)]
        arrays = self._arrays(program, plan, chunks, aside)
        bulk = 1 if monitored else how.bulk_train if train or aside else how.bulk_infer
        name = str(self._symbol.name or "graph")

        def kind(step: Step) -> tuple[int, type]:
            """Steps of one kind may be in one segment: on one context, and all captured or none."""
            if isinstance(step.op, CrossDeviceCopyOp):
                return step.ctx, CrossDeviceCopy
            captured = how.capture and not monitored and self._contexts[step.ctx].is_gpu and capturable(step.op, step.params)
            return step.ctx, CapturedSegment if captured else Segment

        def cut(first: int, last: int, what: str) -> list[Segment | CrossDeviceCopy]:
            made: list[Segment | CrossDeviceCopy] = []
            kinds = [kind(s) for s in program.steps[first:last]]
            a = first
            while a < last:
                step, (_, part), z = program.steps[a], kinds[a - first], a + 1
                if part is CrossDeviceCopy:
                    made.append(CrossDeviceCopy(arrays[step.inputs[0]], arrays[step.outputs[0]]))
                    a = z
                    continue
                while z < last and kinds[z - first] == kinds[a - first] and (part is CapturedSegment or not bulk or z - a < bulk):
                    z += 1
                steps, ctx = program.steps[a:z], self._contexts[step.ctx]
                segment = part(steps, arrays, program, chunks[step.ctx].var, ctx, f"{name} {what} {a - first}-{z - first - 1}")
                segment.own = not ctx.is_gpu and all(capturable(s.op, s.params) for s in steps)
                made.append(segment)
                a = z
            return made

        forward = cut(0, program.n_forward, "forward")
        backward = cut(program.n_forward, len(program.steps), "backward")
        for ctx in self._contexts:
            parts = [s for s in (*forward, *backward) if s.ctx == ctx]
            for before, after in pairwise(parts):
                token = ReportOnceVar()
                before.mutable.append(token)
                after.const.append(token)
        compile_ahead((*forward, *backward))
        states = [(arrays[v], self.aux_dict[n]) for n, v in program.auxes.items()] if aside else ()
        made = CompiledProgram(program, plan, forward, backward, chunks, states)
        weakref.finalize(self, made.release).atexit = False
        return made

    def _arrays(self, program: Program, plan: MemoryPlan, chunks: Sequence[Chunk], aside: bool) -> dict[int, NDArray]:
        arrays: dict[int, NDArray] = {}
        for number, v in enumerate(program.heads):
            if v not in arrays:
                value = program.values[v]
                arrays[v] = _array(value.spec, self._contexts[value.ctx]) if aside else self.outputs[number]
        for number, v in program.head_grads.items():
            if number not in self._head_arrays:
                self._head_arrays[number] = _array(program.values[v].spec, self._contexts[program.values[v].ctx])
            arrays[v] = self._head_arrays[number]
        for v, value in enumerate(program.values):
            if value.kind == ARG:
                arrays[v] = self.arg_dict[value.name]
            elif value.kind == AUX:
                arrays[v] = _array(value.spec, self._contexts[value.ctx]) if aside else self.aux_dict[value.name]
            elif value.kind == GRAD:
                arrays[v] = self.grad_dict[value.name]
            elif value.kind == ZERO:
                arrays[v] = zeros(value.spec.shape, self._contexts[value.ctx], value.spec.dtype)
            elif v in plan.in_output:
                host = arrays[plan.in_output[v]]
                arrays[v] = _on_chunk(value.spec, host.chunk, plan.offsets[v])
            elif value.kind == INNER and plan.offsets[v] >= 0:
                arrays[v] = _on_chunk(value.spec, chunks[value.ctx], plan.offsets[v])
            else:
                assert v in arrays or value.kind in (INNER, HEAD, OUTPUT), value
        return arrays


def _array(spec: Spec, ctx: Context, nbytes: int = 0) -> NDArray:
    return _on_chunk(spec, Chunk.new(max(spec.nbytes, nbytes, 1), ctx))


def _on_chunk(spec: Spec, chunk: Chunk, offset: int = 0) -> NDArray:
    return NDArray(layout_of(spec.shape, spec.dtype, chunk.ctx), chunk=chunk, offset=offset)


def _assign(own: NDArray, given: Any, what: str) -> None:
    shape = tuple(getattr(given, "shape", np.shape(given)))
    if shape != own.shape:
        raise ShapeError(f"{what} is {describe(own)}, the given array {describe(given) if hasattr(given, 'shape') else shape}. "
                         f"Reshape it, or bind with its shape.")
    own[:] = given


def _shown(spec: Spec) -> str:
    return f"{spec.dtype}[{','.join(map(str, spec.shape))}]"
