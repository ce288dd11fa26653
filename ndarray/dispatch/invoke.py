"""invoke: run one operator on arrays."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import numpy as np

from ...context import Context, current_context, gpu
from ...engine import Var, current
from ...engine.failure import Failure
from ...engine.memory import resource
from ...errors import MXNetError, OperatorError, ShapeError, describe
from ...kernels.kernel import Kernel
from ...kernels.op import Op, Req
from ...kernels.params import Params
from ..autograd.tape import OpNode, any_taped, computed, state, written
from ..core.array_core import ArrayCore, allocate
from ..core.chunk import Chunk, Layout, layout_of
from .copy import allocate_like_host, copy_to
from .plan import DispatchPlan, backward_plan, plan_of

if TYPE_CHECKING:
    from ..core.ndarray import NDArray


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
           req: Req = Req.WRITE, ctx: Context | None = None) -> list[NDArray]:
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
             req: Req = Req.WRITE) -> list[NDArray]:
    """Queue the operator of plan, as `invoke` does. p: its parameters, which may have other scalars than plan.p."""
    taped = state.recording and any_taped(inputs, plan.name)
    copies: Sequence[tuple[Any, Any]] = ()
    if out is None and req is Req.WRITE:
        outputs = [allocate(o) for o in plan.outs]
        if plan.visible < len(outputs):
            outputs[plan.visible:] = [ArrayCore.array_class(o, chunk=Chunk.new(o.nbytes, o.ctx, ReportOnceVar()))
                                      for o in plan.outs[plan.visible:]]
        if not plan.instant or not _run_inline(plan, inputs, outputs, p.scalars):
            execute(plan, plan.kernel, inputs, outputs, p.scalars)
    else:
        outputs, kernel, copies = _place(plan, inputs, out, req)
        execute(plan, kernel, inputs, outputs, p.scalars)
    if taped:
        record(plan, p, inputs, outputs)
    for result, target in copies:
        copy_to(result, target)
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
    if not plan.instant:
        return run_plan(plan, inputs, p)[0]
    taped = state.recording and any_taped(inputs, plan.name)
    output = allocate(plan.outs[0])
    if not _run_inline(plan, inputs, (output,), p.scalars):
        execute(plan, plan.kernel, inputs, (output,), p.scalars)
    if taped:
        record(plan, p, inputs, (output,))
    return output


def record(plan: DispatchPlan, p: Params, inputs: Sequence[ArrayCore], outputs: Sequence[ArrayCore]) -> None:
    """Add the operator of plan, which computed outputs from inputs, to the tape."""
    node = OpNode(plan, p, plan.gradient_of(p), inputs, outputs)
    for i, o in enumerate(outputs):
        o._grad_edge = (node, i)


def overwritten(a: ArrayCore, b: ArrayCore) -> bool:
    """Return True if memory of a or b was written in place while recording, so that the tape must check it."""
    return any(x._chunk_or_none is not None and x._chunk_or_none.overwrites for x in (a, b))


def execute(plan: DispatchPlan, kernel: Kernel, inputs: Sequence[ArrayCore], outputs: Sequence[ArrayCore | None],
            scalars: tuple, random: tuple[int, int] | None = None) -> None:
    """Push a function that runs kernel on the arrays. An output may be None where its request is NULL.

    random: the seed and the offset of its random numbers, if they are not to be reserved now.
    """
    const: Any = ()
    if len(outputs) == 1 and len(inputs) < 3 and not plan.mutated and outputs[0] is not None:
        target = outputs[0].chunk.var
        mutable: Any = (target,)
        if inputs:
            var = inputs[0].chunk.var
            if var is not target:
                const = (var,)
            if len(inputs) == 2:
                other = inputs[1].chunk.var
                if other is not var and other is not target:
                    const = (*const, other)
    else:
        mutable = list(dict.fromkeys([o.chunk.var for o in outputs if o is not None]
                                     + [inputs[i].chunk.var for i in plan.mutated]))
        const = [v for v in dict.fromkeys(a.chunk.var for a in inputs) if v not in mutable]
    more: dict[str, Any] = {"scalars": scalars} if scalars else {}
    if plan.draws:
        more["random"] = resource.get_random(plan.draws, plan.ctx) if random is None else random
    compute = kernel.run

    def run(rc: Any) -> None:
        if not plan.shortest:
            compute(rc, _device_arrays(inputs), _device_arrays(outputs), **more)
            return
        start = perf_counter_ns()
        compute(rc, _device_arrays(inputs), _device_arrays(outputs), **more)
        plan.ran(perf_counter_ns() - start)

    on = current()
    prop = plan.prop if plan.small or on.is_idle() else None
    # a user's operator may block, so it has no key
    on.push_sync(run, plan.ctx, const, mutable, prop=prop, name=plan.name, cost_key=plan if plan.op.nonblocking else None)


def _run_inline(plan: DispatchPlan, inputs: Sequence[ArrayCore], outputs: Sequence[ArrayCore], scalars: tuple) -> bool:
    """Compute small new outputs in this thread, if the inputs are free. Return False if that must be pushed.

    An error of the kernel is pushed, so that the next wait raises it.
    """
    const: tuple = ()
    for a in inputs:
        var = a._var
        if var is not None and var not in const:
            const = (*const, var)
    on = current()
    if not (plan.small or on.is_idle()):
        return False
    rc = plan.run_context or on.run_context(plan.ctx)
    try:
        if not on.try_run_inline(plan.kernel.run, const, rc, _device_arrays(inputs), _device_arrays(outputs),
                                 *((scalars,) if scalars else ())):
            return False
    except Exception as e:
        execute(plan, Kernel(partial(_raise, e)), inputs, outputs, ())
        return True
    for a in inputs:  # noqa: SIM110 - an array that had no var before and has one now may have been written meanwhile
        if a._var is not None and a._var not in const:
            return False
    return True


def _raise(error: Exception, *_: Any) -> None:
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
    for i, layout in enumerate(plan.outs):
        if i >= len(wanted):
            targets.append(allocate(layout))
            reqs.append(Req.WRITE)
            continue
        o = wanted[i]
        held = o.layout if o.ctx.work is o.ctx else layout_of(o.shape, o.layout.dtype, o.ctx.work)
        if not held.same(layout):
            raise ShapeError(f"{plan.name}: out is {describe(o)}, the result is {describe(layout)}.")
        written(o, plan.name)
        o.layout = layout  # which may be a mask where the old one was not, or the reverse
        request = req
        for j, a in enumerate(inputs):
            if a.chunk.block is not o.chunk.block or j in plan.mutated or not _overlap(a, o):
                continue
            if state.recording:
                _refuse_overwrite(plan, inputs, j)
            if a.offset == o.offset and a.layout.same(o.layout) and (j, i) in plan.inplace:
                request = Req.INPLACE if req is Req.WRITE else req
            elif req == Req.ADD:
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
