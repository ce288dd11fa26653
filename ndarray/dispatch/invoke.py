"""invoke: run one operator on arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import numpy as np

from ...context import Context, current_context, gpu
from ...engine import Engine, Var, current
from ...engine.failure import Failure
from ...engine.memory import resource, storage
from ...engine.profiler import objects
from ...engine.profiler.recorder import layer
from ...errors import MXNetError, OperatorError, ShapeError, describe
from ...kernels.cpu.c_template import address
from ...kernels.cpu.errstate import prepared
from ...kernels.kernel import Kernel
from ...kernels.op import Op, Req
from ...kernels.params import Params
from ..autograd.tape import OpNode, any_taped, computed, state, written
from ..core.array_core import ArrayCore, allocate
from ..core.chunk import Chunk, Layout, layout_of
from .copy import allocate_like_host, copy_to
from .plan import MEASURED, DispatchPlan, backward_plan, plan_of

if TYPE_CHECKING:
    from ..core.ndarray import NDArray

_WRITE, _INPLACE, _ADD = Req.WRITE, Req.INPLACE, Req.ADD  # to look one up in its class takes 0.1 us


class ReportOnceVar(Var):
    """A variable that nobody waits for. Its error is passed on to its readers until it was reported to the user once."""

    __slots__ = ("_failure",)

    @property
    def failure(self) -> Failure | None:  # type: ignore[override]
        failure = self._failure
        return None if failure is None or failure.seen else failure

    @failure.setter
    def failure(self, value: Failure | None) -> None:
        self._failure = value


def invoke(op: Op, inputs: Sequence[ArrayCore], p: Params, out: ArrayCore | Sequence[ArrayCore] | None = None,
           req: Req = _WRITE, ctx: Context | None = None) -> list[NDArray]:
    """Queue op on inputs and return its outputs, whose values are computed later.

    inputs:  arguments, then auxiliary states, all on one context.
    out:     an array (or list of them) to write to instead of new ones, as req says.
    ctx:     where to run an operator without inputs; None: the current context.
    Returns: the visible outputs.
    Raises:  ShapeError, DTypeError, ContextError at once; an error of the kernel is raised by the next wait.
    """
    if not inputs and ctx is None:
        ctx = current_context()
    return run_plan(plan_of(op, p, [a.layout for a in inputs], state.training, ctx), inputs, p, out, req)


def run_plan(plan: DispatchPlan, inputs: Sequence[ArrayCore], p: Params, out: ArrayCore | Sequence[ArrayCore] | None = None,
             req: Req = _WRITE) -> list[NDArray]:
    """Queue the operator of plan, as `invoke` does. p: its parameters, which may have other scalars than plan.p."""
    if out is None and req is _WRITE and len(plan.outs) == 1:
        return [run_new(plan, inputs, p)]
    taped = state.recording and any_taped(inputs, plan.name)
    copies: Sequence[tuple[Any, Any]] = ()
    if out is None and req is _WRITE:
        outputs = _into_new(plan, inputs, p.scalars)
    else:
        outputs, kernel, copies = _place(plan, inputs, out, req)
        execute(plan, kernel, inputs, outputs, p.scalars)
    if taped:
        record(plan, p, inputs, outputs)
    for result, target in copies:
        copy_to(result, target)
        if taped:
            target._grad_edge = result._grad_edge
    if taped and out is not None:
        for o in [out] if isinstance(out, ArrayCore) else out:
            computed(o, *o._grad_edge)
    if copies:
        replaced = {id(result): target for result, target in copies}
        outputs = [replaced.get(id(o), o) for o in outputs]
    return outputs if plan.visible == len(outputs) else outputs[:plan.visible]


def run_new(plan: DispatchPlan, inputs: Sequence[ArrayCore], p: Params) -> NDArray:
    """Queue the operator of plan, which has one output, into a new array and return that."""
    taped = state.recording and any_taped(inputs, plan.name)
    random = resource.get_random(plan.draws, plan.ctx) if plan.draws else None
    output = None
    if plan.brief:
        on = current()
        if plan.tiny or plan.small or on.is_idle():
            output = on.try_call_inline(inputs, _tiny_result if plan.tiny else _brief_result, on, plan, inputs, p.scalars, random)
    if output is None:
        output = _into_new(plan, inputs, p.scalars, random)[0]
    if taped:
        record(plan, p, inputs, (output,))
    return output


def _into_new(plan: DispatchPlan, inputs: Sequence[ArrayCore], scalars: tuple, random: tuple[int, int] | None = None
              ) -> list[NDArray]:
    """Queue the operator of plan into new arrays and return them, hidden ones too.

    random: as for `execute`.
    """
    on = current()
    if plan.draws and random is None:
        random = resource.get_random(plan.draws, plan.ctx)
    if plan.enqueues:
        made = _enqueue_into_new(on, plan, inputs, scalars, random)
        if made is not None:
            return made
    here = plan.instant and (plan.small or on.is_idle())
    if here and plan.brief:
        made = on.try_call_inline(inputs, _brief_results, on, plan, inputs, scalars, random)
        if made is not None:
            return made
    outputs = [allocate(o, here) for o in plan.outs]
    if not here:
        _hide(plan, outputs)
    if not here or random is not None or plan.mutated or not _run_into_new(on, plan, inputs, outputs, scalars):
        execute(plan, plan.kernel, inputs, outputs, scalars, random, here)
    return outputs


def _hide(plan: DispatchPlan, outputs: list[NDArray]) -> None:
    """Replace the hidden ones among new outputs by arrays for whose variables nobody waits."""
    if plan.visible < len(outputs):
        outputs[plan.visible:] = [ArrayCore.array_class(o, chunk=Chunk.new(o.nbytes, o.ctx, ReportOnceVar()))
                                  for o in plan.outs[plan.visible:]]


def _brief_result(on: Engine, plan: DispatchPlan, inputs: Sequence[ArrayCore], scalars: tuple,
                  random: tuple[int, int] | None) -> NDArray | None:
    """Return the one output, computed; None if memory of an input may still be to be allocated. For `try_call_inline`.

    By `_brief_results` it takes 0.7 us longer: 4.6 us, of two arrays of 4,224 numbers their sum.
    """
    places = [a._address for a in inputs]
    if 0 in places and 0 in (places := _known_places(inputs)):
        return None
    kernel, run, output = plan.kernel, plan.run_context or on.run_context(plan.ctx), allocate(plan.outs[0], True)
    if kernel.at is None or random is not None or storage.access_checker is not None or \
            not kernel.at(run, [*places, output._address or output.address()], scalars, True):
        _run(run, kernel, _device_arrays(inputs), _device_arrays((output,)), scalars, random)
    return output


def _brief_results(on: Engine, plan: DispatchPlan, inputs: Sequence[ArrayCore], scalars: tuple,
                   random: tuple[int, int] | None) -> list[NDArray] | None:
    """Return new outputs, computed; None if memory of an input may still be to be allocated. For `try_call_inline`."""
    if 0 in [a._address for a in inputs] and 0 in _known_places(inputs):
        return None
    outputs = [allocate(o, True) for o in plan.outs]
    _compute(plan.run_context or on.run_context(plan.ctx), plan.kernel, inputs, outputs, scalars, True, random)
    return outputs


def _known_places(inputs: Sequence[ArrayCore]) -> list[int]:
    """Return the addresses of arrays, 0 for those whose memory may still be to be allocated."""
    return [a._address or (a.address() if a._view is not None else 0) for a in inputs]


def _tiny_result(on: Engine, plan: DispatchPlan, inputs: Sequence[ArrayCore], scalars: tuple, random: tuple[int, int] | None
                 ) -> NDArray | None:
    """Return what the kernel of plan computes; None if memory of an input is still to be allocated, or accesses are checked."""
    if storage.access_checker is not None:
        return None
    layout, kernel, run = plan.outs[0], plan.kernel, plan.run_context or on.run_context(plan.ctx)
    if kernel.at is not None and plan.direct is None and random is None:
        places = [a._address for a in inputs]
        if 0 in places:
            places = _known_places(inputs)
        if 0 not in places:
            out = np.empty(layout.shape, layout.dtype)
            if kernel.into is not None:
                at = kernel.into(places, out)
            else:
                at = address(out)
                at = at if kernel.at(run, [*places, at], scalars, True) else 0
            if at:
                output = ArrayCore.array_class(layout, out)
                output._address = at
                return output
    views = [a._view for a in inputs if a._view is not None]
    if len(views) < len(inputs):
        return None
    if plan.direct is not None:
        return ArrayCore.array_class(layout, prepared.leaf(plan.direct, *views))
    out = np.empty(layout.shape, layout.dtype)
    _run(run, kernel, views, [out], scalars, random)
    return ArrayCore.array_class(layout, out)


def _enqueue_into_new(on: Engine, plan: DispatchPlan, inputs: Sequence[ArrayCore], scalars: tuple,
                      random: tuple[int, int] | None) -> list[NDArray] | None:
    """Enqueue the operator from this thread, if all that it follows is enqueued. None if not; an error is left to `execute`."""
    writes = list(dict.fromkeys([inputs[i].chunk.var for i in plan.mutated])) if plan.mutated else ()
    reads = [v for v in dict.fromkeys([a.chunk.var for a in inputs]) if v not in writes]
    try:
        return on.try_enqueue(plan.ctx, plan.name, _compute_into_new, reads, writes, plan, inputs, scalars, random)
    except Exception:
        return None


def _compute_into_new(run: Any, plan: DispatchPlan, inputs: Sequence[ArrayCore], scalars: tuple,
                      random: tuple[int, int] | None) -> list[NDArray]:
    """Run the kernel of plan into new arrays and return them. Called by `try_enqueue`."""
    outputs = [allocate(o, True) for o in plan.outs]
    _compute(run, plan.kernel, inputs, outputs, scalars, True, random)
    return outputs


def _run_into_new(on: Engine, plan: DispatchPlan, inputs: Sequence[ArrayCore], outputs: Sequence[ArrayCore], scalars: tuple
                  ) -> bool:
    """Compute new outputs in this thread, if the inputs are free, and return True. An error is left to `execute`."""
    const = [v for a in inputs if (v := a._var) is not None]
    start = perf_counter_ns() if plan.timed else 0
    try:
        if not on.try_run_inline(_compute, const, (), plan.run_context or on.run_context(plan.ctx), plan.kernel, inputs, outputs,
                                 scalars, True):
            return False
    except Exception:
        return False
    if start:
        plan.ran_here(perf_counter_ns() - start)
    if len(const) == len(inputs):
        return True
    # an array that had no variable before, and has one now, may have been written meanwhile
    return len(const) == len([a for a in inputs if a._var is not None])


def record(plan: DispatchPlan, p: Params, inputs: Sequence[ArrayCore], outputs: Sequence[ArrayCore]) -> None:
    """Add the operator of plan, which computed outputs from inputs, to the tape."""
    node = OpNode(plan, p, plan.gradient_of(p), inputs, outputs)
    if objects.active_recorder is not None:
        node.layer = layer.get()
    for i, o in enumerate(outputs[:plan.visible]):
        o._grad_edge = (node, i)


def overwritten(a: ArrayCore, b: ArrayCore) -> bool:
    """Return True if memory of a or b was written in place while recording, so that the tape must check it."""
    return any(x._chunk_or_none is not None and x._chunk_or_none.overwrites for x in (a, b))


def execute(plan: DispatchPlan, kernel: Kernel, inputs: Sequence[ArrayCore], outputs: Sequence[Any], scalars: tuple,
            random: tuple[int, int] | None = None, new: bool = False) -> None:
    """Run kernel on the arrays here, if it is short and they are free; else push it. An output may be None where its request is
    NULL.

    random: the seed and the offset of its random numbers, if they are not to be reserved now.
    new:    outputs is a list of new arrays, which nobody else knows; the hidden ones are replaced if it is pushed.
    """
    if plan.draws and random is None:
        random = resource.get_random(plan.draws, plan.ctx)
    on = current()
    const, mutable = _variables(plan, inputs, () if new else outputs)
    short = plan.small or on.is_idle()
    if short and plan.instant:
        try:
            if on.try_run_inline(_compute, const, mutable, plan.run_context or on.run_context(plan.ctx), kernel, inputs, outputs,
                                 scalars, new, random):
                return
        except Exception as e:
            kernel = Kernel(partial(_raise, e))  # so that the next wait raises it
    elif plan.enqueues:
        try:
            made = on.try_enqueue(plan.ctx, plan.name, _enqueued, const, mutable, kernel, inputs, outputs, scalars, random)
            if made is not None:
                return
        except Exception as e:
            kernel = Kernel(partial(_raise, e))

    if new:
        _hide(plan, outputs)  # type: ignore[arg-type]
        const, mutable = _variables(plan, inputs, outputs)
    begun: list[Callable[[Any], None]] = []
    may_begin = kernel.begin is not None and short and plan.measured >= MEASURED and plan.prop is None and not scalars and \
        random is None

    def begin() -> None:
        if storage.access_checker is None and objects.active_recorder is None:
            try:
                places = [0 if a is None else a._address or a.address() for a in (*inputs, *outputs)]
                end = None if 0 in places or kernel.begin is None else kernel.begin(places)
            except MXNetError:  # of memory: the run meets it again
                return
            if end is not None:
                begun.append(end)

    def run(rc: Any) -> None:
        if begun:
            begun.pop()(rc)
            return
        if not plan.shortest:
            _compute(rc, kernel, inputs, outputs, scalars, False, random)
            return
        start = perf_counter_ns()
        _compute(rc, kernel, inputs, outputs, scalars, False, random)
        plan.ran(perf_counter_ns() - start)

    # a user's operator may block, so it has no key
    on.push_sync(run, plan.ctx, const, mutable, prop=plan.prop if short else None, name=plan.name,
                 cost_key=plan if plan.op.nonblocking else None, begin=begin if may_begin else None)


def _variables(plan: DispatchPlan, inputs: Sequence[ArrayCore], outputs: Sequence[ArrayCore | None]
               ) -> tuple[Sequence[Var], Sequence[Var]]:
    """Return the variables that the operator reads, and those that it mutates."""
    if len(outputs) == 1 and len(inputs) < 3 and not plan.mutated and outputs[0] is not None:
        target = outputs[0]._var or outputs[0].chunk.var
        const: tuple[Var, ...] = ()
        for a in inputs:
            var = a._var or a.chunk.var
            if var is not target and var not in const:
                const = (*const, var)
        return const, (target,)
    mutable = dict.fromkeys([o._var or o.chunk.var for o in outputs if o is not None])
    read = [a._var or a.chunk.var for a in inputs]
    for i in plan.mutated:
        mutable[read[i]] = None
    return [v for v in dict.fromkeys(read) if v not in mutable], list(mutable)


def _compute(run: Any, kernel: Kernel, inputs: Sequence[ArrayCore], outputs: Sequence[ArrayCore | None], scalars: tuple,
             new: bool, random: tuple[int, int] | None = None) -> None:
    """Run kernel on the arrays: by their addresses if it is in C. new: the outputs lie apart from all other arrays."""
    at = kernel.at
    if at is not None and random is None and storage.access_checker is None:
        places = [0 if a is None else a._address or a.address() for a in (*inputs, *outputs)]
        if 0 not in places and at(run, places, scalars, new):
            return
    _run(run, kernel, _device_arrays(inputs), _device_arrays(outputs), scalars, random)


def _run(run: Any, kernel: Kernel, inputs: Sequence[Any], outputs: Sequence[Any], scalars: tuple, random: tuple[int, int] | None
         ) -> None:
    """Run kernel on memory of its device."""
    more: dict[str, Any] = {"scalars": scalars} if scalars else {}
    if random is not None:
        more["random"] = random
    kernel.run(run, inputs, outputs, **more)


def _enqueued(run: Any, kernel: Kernel, inputs: Sequence[ArrayCore], outputs: Sequence[ArrayCore | None], scalars: tuple,
              random: tuple[int, int] | None) -> Sequence[NDArray]:
    """Run kernel on the arrays; it makes none. Called by `try_enqueue`."""
    _compute(run, kernel, inputs, outputs, scalars, False, random)
    return ()


def _raise(error: Exception, *_: Any, **more: Any) -> None:
    raise error


def _device_arrays(arrays: Sequence[ArrayCore | None]) -> list[Any]:
    return [None if a is None else a._view if a._view is not None else a.device_array() for a in arrays]


def invoke_backward(op: Op, p: Params, inputs: Sequence[ArrayCore], layouts: Sequence[Layout], train: bool) -> list[NDArray]:
    """Queue op, a derivative, on inputs and return its results, which have these layouts."""
    outputs = [allocate(layout) for layout in layouts]
    plan = backward_plan(op, p, [a.layout for a in inputs], layouts, train)
    execute(plan, plan.kernel, inputs, outputs, p.scalars)
    return outputs


def run_on_gpu(op: Op, p: Params, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray],
               random: tuple[int, int] | None = None) -> list[np.ndarray]:
    """Run op once on gpu(0), interpreted or real, and return its results, for `op.check()` (kernels/declare/check_op.py).

    outputs: give the shapes and dtypes of the results. random: the seed and the offset of its random numbers.
    Raises ContextError without a GPU.
    """
    ctx = gpu(0)
    arrays = [allocate_like_host(a, ctx) for a in inputs]
    layouts = [layout_of(a.shape, a.dtype, ctx) for a in outputs]
    results = [allocate(layout) for layout in layouts]
    plan = backward_plan(op, p, [a.layout for a in arrays], layouts, random is not None)
    execute(plan, plan.kernel, arrays, results, p.scalars, random)
    return [a.asnumpy() for a in results]


def _place(plan: DispatchPlan, inputs: Sequence[ArrayCore], out: ArrayCore | Sequence[ArrayCore] | None,
           req: Req) -> tuple[list[Any], Any, list[tuple[Any, Any]]]:
    """Return the arrays to write to, the kernel for their requests, and the (result, out) copies to make after it."""
    wanted = [] if out is None else [out] if isinstance(out, ArrayCore) else list(out)
    if wanted and len(wanted) not in (plan.visible, len(plan.outs)):
        raise OperatorError(f"{plan.name}: out has {len(wanted)} arrays, the operator has {plan.visible} outputs.")
    targets: list[Any] = []
    reqs: list[Req] = []
    copies: list[tuple[Any, Any]] = []
    everyone = range(len(inputs))
    reader = {a._var: j for a, j in zip(inputs, everyone)} if len(wanted) > 1 else {}
    for i, layout in enumerate(plan.outs):
        if i >= len(wanted):
            targets.append(allocate(layout))
            reqs.append(_WRITE)
            continue
        o = wanted[i]
        if o.layout is not layout:
            held = o.layout if o.ctx.work is o.ctx else layout_of(o.shape, o.layout.dtype, o.ctx.work)
            if not held.same(layout):
                raise ShapeError(f"{plan.name}: out is {describe(o)}, the result is {describe(layout)}.")
        written(o, plan.name)
        o.layout = layout  # which may be a mask where the old one was not, or the reverse
        request, var = req, o._var  # arrays on the same memory have the same variable
        for j in everyone if len(reader) < len(inputs) else (reader[var],) if var in reader else ():
            a = inputs[j]
            if a is not o and (var is None or a._var is not var or not _overlap(a, o)):
                continue
            if j in plan.mutated:
                continue
            if state.recording:
                _refuse_overwrite(plan, inputs, j)
            if a.offset == o.offset and a.layout.same(layout) and (j, i) in plan.inplace:
                request = _INPLACE if req is _WRITE else req
            elif req == _ADD:
                raise OperatorError(f"{plan.name}: out overlaps input {j} and cannot be added to. Copy the input.")
            else:
                copies.append((allocate(layout), o))
                request = req
                break
        targets.append(copies[-1][0] if copies and copies[-1][1] is o else o)
        reqs.append(request)
    return targets, plan.kernel_for(tuple(reqs)), copies


def _refuse_overwrite(plan: DispatchPlan, inputs: Sequence[ArrayCore], j: int) -> None:
    """Raise MXNetError if the gradient of the recorded operator reads input j, which the output overwrites."""
    if any(a._grad_edge is not None for a in inputs):
        gradient = plan.op.gradient_of(plan.p)
        if gradient is not None and ("x", j) in gradient.needs:
            raise MXNetError(f"{plan.name}: the gradient needs input {j}, which out overwrites. "
                             f"Write to another array, or outside autograd.record().")


def _overlap(a: ArrayCore, b: ArrayCore) -> bool:
    return a.offset < b.offset + b.layout.nbytes and b.offset < a.offset + a.layout.nbytes
