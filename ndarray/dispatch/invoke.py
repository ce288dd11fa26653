"""invoke: run one operator. Everything that depends on shapes alone is worked out once and kept as a DispatchPlan."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ... import engine
from ...context import Context, current_context
from ...engine.memory import resource
from ...errors import ContextError, DTypeError, MXNetError, OperatorError, ShapeError, describe
from ...kernels.kernel import Kernel
from ...kernels.op import Op, Req, compiled_static, is_known
from ...kernels.params import Params
from ..autograd.tape import OpNode, any_taped, computed, state, written
from ..core.array_core import allocate
from ..core.chunk import Layout, layout_of
from .hidden_outputs import allocate_hidden
from .masks import gives_mask

_INLINE = 16384  # bytes: CPU work that touches fewer costs less than handing it to another thread
_LIMIT = 4096  # plans kept; a program with ever new shapes must not grow for ever


class DispatchPlan:
    """One operator at given shapes, dtypes, parameters and context.

    mutated:  input numbers the operator changes (auxiliary states).
    visible:  how many outputs the user gets.
    """

    __slots__ = (
        "_kernels",
        "ctx",
        "draws",
        "inplace",
        "ins",
        "instant",
        "kernel",
        "mutated",
        "name",
        "op",
        "outs",
        "p",
        "prop",
        "run",
        "target",
        "train",
        "visible",
    )

    def __init__(self, op: Op, p: Params, ins: tuple[Layout, ...], outs: tuple[Layout, ...], ctx: Context, train: bool):
        self.op, self.name, self.p, self.ins, self.outs, self.ctx, self.train = op, op.name, p, ins, outs, ctx, train
        self.target = "gpu" if ctx.is_gpu else "cpu"
        self.mutated = tuple(range(len(op.arguments(p)), len(ins))) if op.changes_states(p, train) else ()
        self.visible = op.visible_outputs(p)
        self.draws = op.num_random(p, [o.spec for o in outs])
        self.inplace = frozenset(op.inplace(p))
        small = self.target == "cpu" and sum(a.nbytes for a in (*ins, *outs)) <= _INLINE
        self.prop = "inline" if small else None
        self.instant = small and op.nonblocking and not self.draws and not self.mutated
        self.run = engine.RunContext(ctx)
        self._kernels: dict[tuple[Req, ...], Kernel] = {}
        self.kernel = self.kernel_for((Req.WRITE,) * len(outs))

    def kernel_for(self, reqs: tuple[Req, ...]) -> Kernel:
        """The compiled kernel for these write requests."""
        kernel = self._kernels.get(reqs)
        if kernel is None:
            kernel = self._kernels[reqs] = compiled_static(
                self.op, self.p, tuple(i.spec for i in self.ins), tuple(o.spec for o in self.outs), reqs, self.target,
                self.train)
        return kernel


_plans: dict[tuple, DispatchPlan] = {}
_backward_plans: dict[tuple, DispatchPlan] = {}


def invoke(op: Op, inputs: Sequence[Any], p: Params, out: Any = None, req: Req = Req.WRITE,
           ctx: Context | None = None) -> list[Any]:
    """Queue op on inputs and return its outputs at once, the values to come.

    inputs:  arguments, then auxiliary states, all on one context.
    out:     an array (or list of them) to write to instead of fresh ones, as req says.
    ctx:     where to run an operator without inputs; None: the current context.
    Returns: the visible outputs.
    Raises:  ShapeError, DTypeError, ContextError at once; what the kernel raises, at the next wait.
    """
    train = state.training
    if len(inputs) == 2:
        key = (op, p.static, train, inputs[0].layout, inputs[1].layout)
    elif inputs:
        key = (op, p.static, train, *[a.layout for a in inputs])
    else:
        ctx = ctx or current_context()
        key = (op, p.static, train, ctx)
    plan = _plans.get(key)
    if plan is None:
        plan = _make_plan(op, p, [a.layout for a in inputs], train, ctx)
        if len(_plans) >= _LIMIT:
            _plans.clear()
        _plans[key] = plan
    taped = state.recording and any_taped(inputs, op.name)
    if out is None and req is Req.WRITE:
        outputs = [allocate(o) for o in plan.outs]
        if plan.visible < len(outputs):
            outputs[plan.visible:] = [allocate_hidden(o) for o in plan.outs[plan.visible:]]
        if not plan.instant or not _at_once(plan, inputs, outputs, p.scalars):
            execute(plan, plan.kernel, inputs, outputs, p.scalars)
        copies = ()
    else:
        targets, kernel, copies = _place(plan, inputs, out, req)
        outputs = targets
        execute(plan, kernel, inputs, targets, p.scalars)
    if taped:
        node = OpNode(op, p, op.gradient_of(p), inputs, outputs, train, plan.mutated)
        for i, o in enumerate(outputs):
            o._grad_edge = (node, i)
    for made, wanted in copies:
        execute_copy(made, wanted)
        wanted._grad_edge = made._grad_edge
    if taped and out is not None:
        for o in out if isinstance(out, (list, tuple)) else [out]:
            computed(o, *o._grad_edge)
    if copies:
        replaced = {id(made): wanted for made, wanted in copies}
        outputs = [replaced.get(id(o), o) for o in outputs]
    return outputs if plan.visible == len(outputs) else outputs[:plan.visible]


def execute(plan: DispatchPlan, kernel: Kernel, inputs: Sequence[Any], outputs: Sequence[Any], scalars: tuple) -> None:
    """Push one engine function that runs kernel on the arrays; an output may be None where the request is NULL."""
    const: Any = ()
    if len(outputs) == 1 and len(inputs) < 3 and not plan.mutated and outputs[0] is not None:
        written = outputs[0].chunk.var
        mutable: Any = (written,)
        if inputs:
            var = inputs[0].chunk.var
            if var is not written:
                const = (var,)
            if len(inputs) == 2:
                other = inputs[1].chunk.var
                if other is not var and other is not written:
                    const = (*const, other)
    else:
        mutable = list(dict.fromkeys([o.chunk.var for o in outputs if o is not None]
                                     + [inputs[i].chunk.var for i in plan.mutated]))
        skip = set(mutable)
        const = [v for v in dict.fromkeys(a.chunk.var for a in inputs) if v not in skip]
    more: dict[str, Any] = {"scalars": scalars} if scalars else {}
    if plan.draws:
        more["random"] = resource.get_random(plan.draws, plan.ctx)
    compute = kernel.run

    def run(rc: Any) -> None:
        compute(rc, _arrays(inputs), _arrays(outputs), **more)

    # a user's operator may block, so it has no key
    engine.current().push_sync(run, plan.ctx, const, mutable, prop=plan.prop, name=plan.name,
                               cost_key=plan if plan.op.nonblocking else None)


def _at_once(plan: DispatchPlan, inputs: Sequence[Any], outputs: Sequence[Any], scalars: tuple) -> bool:
    """Compute small fresh outputs in this thread, if the inputs are free. Return False if that must be pushed.

    An error of the kernel is pushed, so that the next wait raises it.
    """
    const: tuple = ()
    for a in inputs:
        var = a._var
        if var is not None and var not in const:
            const = (*const, var)
    try:
        if not engine.current().try_run_inline(plan.kernel.run, const, plan.run, _arrays(inputs), _arrays(outputs),
                                               *((scalars,) if scalars else ())):
            return False
    except Exception as e:
        execute(plan, Kernel(partial(_raise, e)), inputs, outputs, ())
        return True
    # an array that had no var and has one by now may have been written meanwhile
    return len(const) == len(inputs) or all(a._var is None or a._var in const for a in inputs)


def _raise(error: Exception, *_: Any) -> None:
    raise error


def _arrays(arrays: Sequence[Any]) -> list[Any]:
    return [None if a is None else a._view if a._view is not None else a.device_array() for a in arrays]


def backward_plan(op: Op, p: Params, ins: Sequence[Layout], outs: Sequence[Layout], train: bool) -> DispatchPlan:
    """The DispatchPlan of a derivative, whose outputs have the layouts of what they are derivatives of."""
    key = (op, p.static, train, *ins, None, *outs)
    plan = _backward_plans.get(key)
    if plan is None:
        plan = DispatchPlan(op, p, tuple(ins), tuple(outs), outs[0].ctx, train)
        if len(_backward_plans) >= _LIMIT:
            _backward_plans.clear()
        _backward_plans[key] = plan
    return plan


def invoke_backward(op: Op, p: Params, inputs: Sequence[Any], layouts: Sequence[Layout], train: bool) -> list[Any]:
    """Run op, a derivative, on inputs and return its results, which have these layouts."""
    outputs = [allocate(layout) for layout in layouts]
    plan = backward_plan(op, p, [a.layout for a in inputs], layouts, train)
    execute(plan, plan.kernel, inputs, outputs, p.scalars)
    return outputs


def execute_copy(src: Any, dst: Any) -> None:
    """dst = src: same shape, dtype and context."""
    const = [] if src.chunk.var is dst.chunk.var else [src.chunk.var]

    def run(_: Any) -> None:
        dst.device_array()[...] = src.device_array()

    small = dst.layout.target == "cpu" and dst.layout.nbytes <= _INLINE
    engine.current().push_sync(run, dst.ctx, const, [dst.chunk.var], prop="inline" if small else None, name="copy")


def _make_plan(op: Op, p: Params, ins: Sequence[Layout], train: bool, ctx: Context | None) -> DispatchPlan:
    names = (*op.arguments(p), *op.auxiliaries(p))
    if len(ins) != len(names):
        raise OperatorError(f"{op.name}: takes {len(names)} arrays ({', '.join(names) or 'none'}), {len(ins)} given.")
    if ins:
        ctx = ins[0].ctx
        for name, a in zip(names, ins):
            if a.ctx != ctx:
                raise ContextError(f"{op.name}: inputs live on different contexts: {names[0]} {describe(ins[0])}, "
                                   f"{name} {describe(a)}. Bring them together with as_in_context.")
    assert ctx is not None
    in_shapes, out_shapes = op.infer_shape(p, [a.shape for a in ins])
    for name, a, s in zip(names, ins, in_shapes):
        if s is not None and tuple(s) != a.shape:
            raise ShapeError(f"{op.name}: {name} is {describe(a)}, but must have shape {tuple(s)}.")
    in_dtypes, out_dtypes = op.infer_dtype(p, [a.dtype for a in ins])
    for name, a, d in zip(names, ins, in_dtypes):
        if d is not None and d != a.dtype:
            raise DTypeError(f"{op.name}: {name} is {describe(a)}, but must be {d}. Convert it with astype.")
    outs = []
    for name, shape, dtype in zip(op.outputs(p), out_shapes, out_dtypes):
        if shape is None or not is_known(shape) or dtype is None:
            raise ShapeError(f"{op.name}: the {'dtype' if dtype is None else 'shape'} of {name} does not follow from "
                             f"{', '.join(map(describe, ins)) or 'the parameters'}.")
        outs.append(layout_of(tuple(shape), dtype, ctx, gives_mask(op, ins)))
    return DispatchPlan(op, p, tuple(ins), tuple(outs), ctx, train)


def _place(plan: DispatchPlan, inputs: Sequence[Any], out: Any, req: Req) -> tuple[list[Any], Any, list[tuple[Any, Any]]]:
    """Where outputs go when the caller says: arrays, the kernel for the requests, and (made, wanted) copies after."""
    given = list(out) if isinstance(out, (list, tuple)) else [] if out is None else [out]
    if given and len(given) not in (plan.visible, len(plan.outs)):
        raise OperatorError(f"{plan.name}: out has {len(given)} arrays, the operator has {plan.visible} outputs.")
    targets: list[Any] = []
    reqs: list[Req] = []
    copies: list[tuple[Any, Any]] = []
    for i, want in enumerate(plan.outs):
        if i >= len(given):
            targets.append(allocate(want))
            reqs.append(Req.WRITE)
            continue
        o = given[i]
        if not o.layout.same(want):
            raise ShapeError(f"{plan.name}: out is {describe(o)}, the result is {describe(want)}.")
        written(o, plan.name)
        o.layout = want  # a mask from now on, or none any more
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
                copies.append((allocate(want), o))
                request = req
                break
        targets.append(copies[-1][0] if copies and copies[-1][1] is o else o)
        reqs.append(request)
    return targets, plan.kernel_for(tuple(reqs)), copies


def _refuse_overwrite(plan: DispatchPlan, inputs: Sequence[Any], j: int) -> None:
    """Raise if the gradient of what is being recorded reads input j, which is about to be overwritten."""
    if any(a._grad_edge is not None for a in inputs):
        gradient = plan.op.gradient_of(plan.p)
        if gradient is not None and ("x", j) in gradient.needs:
            raise MXNetError(f"{plan.name}: the gradient needs input {j}, which out overwrites. "
                             f"Write to another array, or outside autograd.record().")


def _overlap(a: Any, b: Any) -> bool:
    return a.offset < b.offset + b.layout.nbytes and b.offset < a.offset + a.layout.nbytes
