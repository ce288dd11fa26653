"""Executor: a symbol with arrays. It is compiled once, and each pass pushes a few engine operations."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ...context import Context
from ...engine.memory import storage
from ...errors import GraphError, ShapeError, describe, nearest
from ...kernels.configs import float32_matmul
from ...kernels.op import Spec
from ...ndarray import NDArray, zeros
from ...ndarray.autograd.tape import detached
from ...ndarray.core.array_core import allocate
from ...ndarray.core.chunk import Chunk, layout_of
from ...ndarray.core.sparse import BaseSparseNDArray
from ...ndarray.dispatch.invoke import ReportOnceVar
from ...show import Shown, details, frame, picture, table, title
from ..compile import compile_program
from ..memory.plan import MemoryPlan
from ..options import Options, current
from ..passes.fuse import fused_operators
from ..program import ARG, AUX, GRAD, HEAD, INNER, KEPT, OUTPUT, ZERO, Program, Value, lower
from ..show.explain import Explanation, explain
from .compiled_program import CompiledProgram, cut
from .segment import Copies, Segment

if TYPE_CHECKING:
    from ..symbol.symbol import Symbol


Array = NDArray | np.ndarray


class Arena:
    """The memory that executors share and run in one at a time, on each context; a larger chunk replaces it when needed.

    ctx: the context of its executors. holds: the compiled program whose forward pass left its values in the arena.
    """

    def __init__(self, ctx: Context):
        self.ctx = ctx
        self.chunks: dict[Context, Chunk] = {}
        self.holds: CompiledProgram | None = None

    def take(self, ctx: Context, nbytes: int) -> Chunk:
        """Return a chunk of at least nbytes on a context."""
        if ctx not in self.chunks or self.chunks[ctx].block.nbytes < nbytes:
            var = ReportOnceVar()
            self.chunks[ctx] = Chunk(storage.alloc(max(nbytes, 1), ctx, var), var, ctx)
        return self.chunks[ctx]


class Plans:
    """The compiled programs that executors of equal layouts and write requests share.

    outputs:   (number, value) of each output, from the graph before any pass; None until they are known.
    compiled:  the programs by mode.
    """

    def __init__(self) -> None:
        self.outputs: list[tuple[int, Value]] | None = None
        self.compiled: dict[Any, tuple[Program, MemoryPlan]] = {}


@dataclass(frozen=True, slots=True, eq=False)
class Binding:
    """A symbol and the arrays bound to it.

    specs:              of all outputs of all nodes, in topological order.
    ctx:                the context of the nodes that node_ctx does not name.
    args, grads, auxes: arrays by name, in the symbol's order.
    sparse:             the caller's sparse arguments, which each forward pass writes to those of args.
    stypes:             the storage type of each output.
    grad_copies:        the caller's arrays for gradients whose shape, dtype, context or storage type is not that of grads.
    grad_req:           by argument.
    memory_budget:      bytes that the plan of training may take; None: no limit.
    plans:              what was compiled for equal specs and requests.
    """

    symbol: Symbol
    specs: list[list[Spec]]
    ctx: Context
    node_ctx: Mapping[str, Context]
    args: dict[str, NDArray]
    grads: dict[str, NDArray]
    auxes: dict[str, NDArray]
    grad_req: dict[str, str]
    memory_budget: int | None = None
    grad_copies: Mapping[str, Any] = field(default_factory=dict)
    sparse: Mapping[str, BaseSparseNDArray] = field(default_factory=dict)
    stypes: Sequence[str] = ()
    options: Options = field(default_factory=current)
    plans: Plans = field(default_factory=Plans)


class Executor(Shown):
    """A symbol bound to arrays. Made by `Symbol.bind` and `Symbol.simple_bind`.

    outputs:                        the arrays that forward writes, the same ones each time; sparse ones are made of them.
    arg_dict, grad_dict, aux_dict:  arrays by name; a gradient is None where grad_req is "null".
    """

    def __init__(self, binding: Binding, shared: Executor | None = None, arena: Arena | None = None):
        """shared: an executor whose arena this one uses too, if it is on the same context. arena: or the arena itself."""
        self._binding, self._symbol = binding, binding.symbol
        self.aux_dict, self._grads = binding.auxes, binding.grads
        self.arg_dict: dict[str, Any] = {**binding.args, **binding.sparse} if binding.sparse else binding.args
        self.grad_dict = {n: binding.grad_copies.get(n, binding.grads.get(n)) for n in binding.args}
        arena = shared.arena if shared is not None else arena
        self.arena = arena if arena is not None and arena.ctx == binding.ctx else Arena(binding.ctx)
        self._grad_req = {n: r for n, r in binding.grad_req.items() if n in binding.grads}
        self._contexts = list(dict.fromkeys([binding.ctx, *binding.node_ctx.values()]))
        self._places = {n: self._contexts.index(c) for n, c in binding.node_ctx.items() if c != binding.ctx}
        self._programs: dict[tuple[bool, bool, bool], CompiledProgram] = {}
        self._monitor: Callable[[str, NDArray], None] | None = None
        self._monitor_all = False
        self._last: CompiledProgram | None = None  # the training program whose forward pass ran last
        self._inferred: CompiledProgram | None = None  # or that of inference
        self._head_arrays: dict[int, NDArray] = {}
        if binding.plans.outputs is None:
            program = lower(binding.symbol._outputs, binding.specs, False, self._places)
            binding.plans.outputs = [(v, program.values[v]) for v in program.heads]
        self._head_numbers = [v for v, _ in binding.plans.outputs]
        self._head_values = [value for _, value in binding.plans.outputs]
        self._outputs: list[NDArray] | None = None
        self._capacity: list[int] | None = None  # bytes of each output, once they are allocated

    def _facts(self) -> Mapping[str, Any]:
        given = {n: tuple(a.shape) for n, a in self.arg_dict.items()}
        return {"outputs": self._symbol.list_outputs(), "context": self._binding.ctx, "arguments": given,
                "states": list(self.aux_dict), "gradients": sum(r != "null" for r in self._binding.grad_req.values())}

    # ---- arrays ---------------------------------------------------------------------------------------------------
    @property
    def arg_arrays(self) -> list[NDArray]:
        """Arguments, in the symbol's order."""
        return list(self.arg_dict.values())

    @property
    def grad_arrays(self) -> list[NDArray | None]:
        """Gradients, in argument order; None for an argument without one."""
        return list(self.grad_dict.values())

    @property
    def aux_arrays(self) -> list[NDArray]:
        """Auxiliary states, in the symbol's order."""
        return list(self.aux_dict.values())

    @property
    def outputs(self) -> list[Any]:
        """The arrays that forward writes; those of another storage type are made of their values now, which waits for them."""
        dense = self._dense_outputs()
        stypes = self._binding.stypes
        return [a if s == "default" else a.tostype(s) for a, s in zip(dense, stypes)] if stypes else dense

    def _dense_outputs(self) -> list[NDArray]:
        return self._outputs if self._outputs is not None else self._make_outputs([v.spec.nbytes for v in self._head_values])

    def _make_outputs(self, capacity: Sequence[int]) -> list[NDArray]:
        """Allocate the outputs, once. capacity: bytes of each."""
        made: dict[int, NDArray] = {}
        self._capacity = list(capacity)
        for v, value, nbytes in zip(self._head_numbers, self._head_values, capacity):
            if v not in made:
                own = {ARG: self._binding.args, AUX: self.aux_dict}.get(value.kind)
                made[v] = _array(value.spec, self._contexts[value.ctx], nbytes) if own is None else own[value.name]
        self._outputs = [made[v] for v in self._head_numbers]
        return self._outputs

    @property
    def output_dict(self) -> dict[str, NDArray]:
        """Outputs by name."""
        return dict(zip(self._symbol.list_outputs(), self.outputs))

    # MXNet's private names, which programs read
    _arg_dict = property(lambda self: self.arg_dict)
    _grad_dict = property(lambda self: self.grad_dict)
    _aux_dict = property(lambda self: self.aux_dict)
    _output_dict = property(lambda self: self.output_dict)
    _ctx = property(lambda self: self._binding.ctx)

    def get_optimized_symbol(self) -> Symbol:
        """Return the symbol that was bound. Passes change programs, not symbols: `explain()` shows their result."""
        return self._symbol

    def copy_params_from(self, arg_params: Mapping[str, Array], aux_params: Mapping[str, Array] | None = None,
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
        """Push the forward pass and return the outputs at once.

        kwargs: arrays to copy into arguments first.
        """
        for name, array in kwargs.items():
            if name not in self.arg_dict:
                raise GraphError(f"forward: no argument is called {name!r}.{nearest(name, self.arg_dict)}")
            _assign(self.arg_dict[name], array, f"forward: {name}")
        self._read_sparse()
        program = self._compile(bool(is_train))
        self._push_forward(program, bool(is_train))
        return self.outputs

    def _read_sparse(self) -> None:
        for name, array in self._binding.sparse.items():
            self._binding.args[name][:] = array.tostype("default")

    def _push_forward(self, program: CompiledProgram, train: bool, before: Copies = (), behind: Copies = ()) -> None:
        program.push(program.forward, self._show if self._monitor is not None else None, None, before, behind)
        self._last, self._inferred = (program, None) if train else (None, program)
        self.arena.holds = self._last

    def load_and_forward(self, train: bool, given: Copies) -> None:
        """Copy arrays into arguments, and push the forward pass: on the host as one task.

        given: (array, argument), of equal layouts.
        """
        if self._binding.sparse:
            self._read_sparse()
        self._push_forward(self._compile(train), train, given)

    def call(self, train: bool, given: Copies) -> list[NDArray]:
        """Copy arrays into arguments, push the forward pass, and return copies of the outputs, which later passes leave alone.

        given: (array, argument), of equal layouts.
        """
        program = self._compile(train)
        outputs = self._dense_outputs()
        copies = [allocate(o.layout) for o in outputs]
        # the task gets arrays of its own: those of the caller may hold the tape's node, which must go when they do
        self._push_forward(program, train, given, [(o, detached(c)) for o, c in zip(outputs, copies)])
        return copies

    def backward(self, out_grads: Array | Sequence[Array | None] | None = None, is_train: bool = True) -> None:
        """Push the backward pass: gradients go to `grad_dict` as grad_req says.

        out_grads: derivatives by the outputs, one array or a list; loss layers need none. Further arrays are ignored.
        is_train:  ignored: the gradient is that of the forward pass that ran, in training or not.
        The values of a forward pass serve one backward pass, and inference keeps none. Where there are none, forward runs (again)
        first, on the arguments as they are then, in memory of its own.
        """
        self.backward_to(out_grads, ())

    def backward_to(self, out_grads: Array | Sequence[Array | None] | None, behind: Copies) -> None:
        """Push the backward pass as `backward` does, and copies (gradient, array of an equal layout) behind it."""
        if self._inferred is None and self._last is None:
            self.forward(is_train=True)
        ran = self._inferred or self._last
        assert ran is not None
        failed = next((s for s in ran.forward if s.failed), None)
        if failed is not None:
            raise GraphError(f"backward: the forward pass failed ({failed.name}). Run forward again first.")
        kept = ran is self._last and self.arena.holds is ran
        program = ran if kept else self._compile(ran is self._last, monitored=False, aside=True)
        heads = [out_grads] if isinstance(out_grads, (NDArray, np.ndarray)) else list(out_grads or [])
        given: list[tuple[NDArray, NDArray]] = []  # head gradients that the first task copies
        for number in program.program.head_grads:
            value = self._head_values[number]
            array = heads[number] if number < len(heads) else None
            if array is None:
                raise GraphError(f"backward: output {value.name} needs a head gradient: {describe(value.spec)}. "
                                 f"Pass out_grads=[...]; only loss layers need none.")
            own = self._head_arrays[number]
            if isinstance(array, NDArray) and array.layout.same(own.layout):
                given.append((array, own))
            else:
                _assign(own, array, f"backward: head gradient of {value.name}")
        for name in program.program.zero_grads:
            self._grads[name][:] = 0
        copies = self._binding.grad_copies
        for name, array in copies.items():
            if self._grad_req[name] == "add":
                dense = array.tostype("default")
                self._grads[name][:] = dense.reshape(self._grads[name].shape)
        if program is not ran:
            self._read_sparse()
            for own, state in program.states:
                own[:] = state
            program.push(program.forward, again=ran.drawn())
        program.push(program.backward, before=given, behind=behind)
        for name, array in copies.items():
            array[:] = self._grads[name].reshape(array.shape)
        self.arena.holds = None

    def set_monitor_callback(self, callback: Callable[[str, NDArray], None] | None, monitor_all: bool = False) -> None:
        """Call callback(name, array) for the outputs of each node during forward, which then runs unfused. None: stop that.

        monitor_all: also for the inputs of each node, before it runs, as `node_input`; arguments included.
        """
        self._monitor, self._monitor_all = callback, monitor_all

    def _show(self, segment: Segment) -> None:
        for name, array in (*(segment.read if self._monitor_all else ()), *segment.produced):
            if self._monitor is not None:
                self._monitor(name, array)

    # ---- inspection -------------------------------------------------------------------------------------------------
    def memory_plan(self) -> MemoryPlan:
        """Return the plan of training if there are gradients, else of inference; str(plan) is a table."""
        return self._main().plan

    @property
    def fused_operators(self) -> int:
        """The number of operators of the graph that run in fused kernels."""
        return fused_operators(self._main().program)

    def _repr_html_(self) -> str:
        """Return its arrays, its kernels and the picture of its memory, for notebooks."""
        arrays = [(n, "x".join(map(str, a.shape)) or "()", a.layout.dtype.name, self._binding.grad_req.get(n, ""))
                  for n, a in (*self.arg_dict.items(), *self.aux_dict.items())]
        plan = self.memory_plan()
        return frame(title(f"Executor on {self._binding.ctx}", ", ".join(self._symbol.list_outputs())),
                     details(f"{len(arrays)} arrays", table(("name", "shape", "dtype", "gradient"), arrays)),
                     details("Kernels", self.explain()._repr_html_(), open=True),
                     details(f"Memory: an arena of {plan.arena_bytes:,} bytes", picture(plan._repr_svg_())))

    def explain(self) -> Explanation:
        """Return a report: every kernel, the operators fused into it, and why the next operator is not; print it."""
        return explain(self._main().program)

    def debug_str(self) -> str:
        """Return the compiled program and its memory; as in MXNet, `split("\\n")[-3]` of it is `Total N MB allocated`."""
        main = self._main()
        return (f"{main.program}\n{main.plan}\nTotal {main.plan.planned_bytes >> 20} MB allocated\n"
                f"Total {len(main.chunks)} TempSpace resource requested\n")

    def reshape(self, partial_shaping: bool = False, allow_up_sizing: bool = False, **kwargs: Any) -> Executor:
        """Return an executor for other input shapes. It shares the arena and all arrays whose shape stays.

        Raises ShapeError if an array that was not named changes shape (unless partial_shaping), or grows (unless
        allow_up_sizing).
        """
        from .bind import rebind  # it makes executors, so it imports this module

        return rebind(self._symbol, self, partial_shaping, allow_up_sizing, kwargs)

    # ---- compiling ----------------------------------------------------------------------------------------------------
    def _main(self) -> CompiledProgram:
        return self._compile(bool(self._grad_req), monitored=False)

    def _compile(self, train: bool, monitored: bool | None = None, aside: bool = False) -> CompiledProgram:
        """Return the program of a mode, compiling it at its first use.

        aside: inference and its derivative, with outputs and states of its own, so that the caller's stay as they are.
        """
        mode = (train, self._monitor is not None if monitored is None else monitored, aside)
        if mode not in self._programs:
            self._programs[mode] = self._build(*mode)
        return self._programs[mode]

    def _build(self, train: bool, monitored: bool, aside: bool) -> CompiledProgram:
        binding, options = self._binding, self._binding.options
        capacity = [v.spec.nbytes for v in self._head_values] if aside else self._capacity
        key = train, monitored, aside, None if capacity is None else tuple(capacity)
        plans = binding.plans.compiled
        if key not in plans:
            plans[key] = compile_program(
                binding.symbol._outputs, binding.specs, train, self._grad_req, options, backward=aside, places=self._places,
                targets=tuple("gpu" if c.is_gpu else "cpu" for c in self._contexts), monitored=monitored,
                budget=binding.memory_budget if train or aside else None, capacity=capacity)
        program, plan = plans[key]
        if self._outputs is None:
            self._make_outputs([plan.capacity.get(v, program.values[v].spec.nbytes) for v in program.heads])
        for check in options.checks:
            check(program, plan)
        chunks = [self.arena.take(c, n) for c, n in zip(self._contexts, plan.arenas)]
        arrays = self._arrays(program, plan, chunks, aside)
        bulk = 1 if monitored else options.bulk_train if train or aside else options.bulk_infer
        with float32_matmul.restored(options.float32):
            name = str(binding.symbol.name or "graph")
            forward, backward = cut(program, arrays, self._contexts, chunks, name, bulk, options.capture and not monitored)
        states = [(arrays[v], self.aux_dict[n]) for n, v in program.auxes.items()] if aside else ()
        compiled = CompiledProgram(name, program, plan, forward, backward, chunks, states)
        weakref.finalize(self, compiled.release).atexit = False
        return compiled

    def _arrays(self, program: Program, plan: MemoryPlan, chunks: Sequence[Chunk], aside: bool) -> dict[int, NDArray]:
        arrays: dict[int, NDArray] = {}
        for number, v in enumerate(program.heads):
            if v not in arrays:
                value = program.values[v]
                arrays[v] = _array(value.spec, self._contexts[value.ctx]) if aside else self._dense_outputs()[number]
        for number, v in program.head_grads.items():
            if number not in self._head_arrays:
                self._head_arrays[number] = _array(program.values[v].spec, self._contexts[program.values[v].ctx])
            arrays[v] = self._head_arrays[number]
        own = {ARG: self._binding.args, GRAD: self._grads} | ({} if aside else {AUX: self.aux_dict})
        for v, value in enumerate(program.values):
            if value.kind in own:
                arrays[v] = own[value.kind][value.name]
            elif value.kind in (AUX, KEPT):
                arrays[v] = _array(value.spec, self._contexts[value.ctx])
            elif value.kind == ZERO:
                arrays[v] = zeros(value.spec.shape, self._contexts[value.ctx], value.spec.dtype)
            elif v in plan.in_output:
                arrays[v] = _on_chunk(value.spec, arrays[plan.in_output[v]].chunk, plan.offsets[v])
            elif value.kind == INNER and plan.offsets[v] >= 0:
                arrays[v] = _on_chunk(value.spec, chunks[value.ctx], plan.offsets[v])
            else:
                assert v in arrays or value.kind in (INNER, HEAD, OUTPUT), value
        return arrays


def _array(spec: Spec, ctx: Context, nbytes: int = 0) -> NDArray:
    return _on_chunk(spec, Chunk.new(max(spec.nbytes, nbytes, 1), ctx))


def _on_chunk(spec: Spec, chunk: Chunk, offset: int = 0) -> NDArray:
    return NDArray(layout_of(spec.shape, spec.dtype, chunk.ctx), chunk=chunk, offset=offset)


def _assign(own: NDArray, source: Any, name: str) -> None:
    shape = tuple(getattr(source, "shape", np.shape(source)))
    if shape != own.shape:
        raise ShapeError(f"{name} is {describe(own)}, the given array {describe(source) if hasattr(source, 'shape') else shape}. "
                         f"Reshape it, or bind with its shape.")
    own[:] = source
