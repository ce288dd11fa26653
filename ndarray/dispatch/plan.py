"""DispatchPlan: everything about a use of an operator that follows from its parameters and layouts, found once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import engine
from ...cache import Cache
from ...context import Context
from ...dtype import to_integer
from ...engine.gpu import cuda
from ...errors import ContextError, DTypeError, OperatorError, ShapeError, describe
from ...kernels.configs import float32_matmul
from ...kernels.cpu.errstate import prepared
from ...kernels.gpu.prepared import PreparedCall
from ...kernels.kernel import NOTHING, Kernel
from ...kernels.op import Gradient, Op, Req, compiled_static, is_known
from ...kernels.params import Params
from ..core.chunk import Layout, layout_of
from .masks import gives_mask

INLINE_BYTES = 16384  # CPU work that touches fewer bytes costs less than handing it to another thread
SHORT = 300_000  # nanoseconds of a shortest run up to which that holds too: handing work over takes some 40 us
#: Runs after which it is known whether they are short: the first one prepares much, and a loaded machine makes some long.
MEASURED = 4
BRIEF = 30_000  # nanoseconds for which the engine's lock may be held

_UNKNOWN: Any = object()

#: Plans by operator, static parameters and layouts; and, by the spelling of a call, its plan and parameters.
CACHE: Cache[Any, Any] = Cache(8192)


class DispatchPlan:
    """One operator at given layouts, static parameters and context.

    ins, outs:  layouts of the inputs (auxiliary states last) and of all outputs.
    mutated:    the numbers of the inputs that the operator changes (auxiliary states).
    visible:    the number of outputs that the user gets.
    instant:    True if the kernel may run in the calling thread. Like `prop` it becomes true when a run was short.
    enqueues:   True if the kernel only enqueues work on a real GPU.
    shortest:   nanoseconds of the shortest run, while that is not known to be short. measured: how many runs that took into
                account.
    small:      True if its arrays are so small that it may run in the calling thread while others are in flight, too.
    brief:      True if a run in the calling thread was so short that it may run while the engine's lock is held.
    timed:      True while it is not known to be brief, and may be.
    float32:    how its GPU kernels multiply float32 matrices, as `float32_matmul.other` says it.
    tiny:       True if it is brief and computes one tiny result, and nothing else.
    direct:     a NumPy function of the one or two input arrays that computes the one output, if that is tiny; else None.
    """

    __slots__ = ("_kernels", "brief", "ctx", "direct", "draws", "enqueues", "float32", "gradient", "inplace", "ins", "instant",
                 "kernel", "measured", "mutated", "name", "op", "outs", "p", "prop", "run_context", "shortest", "small",
                 "target", "timed", "tiny", "train", "visible")

    def __init__(self, op: Op, p: Params, ins: tuple[Layout, ...], outs: tuple[Layout, ...], ctx: Context, train: bool):
        self.op, self.name, self.p, self.ins, self.outs, self.ctx, self.train = op, op.name, p, ins, outs, ctx, train
        self.target = "gpu" if ctx.is_gpu else "cpu"
        self.float32 = float32_matmul.other() if ctx.is_gpu and op.multiplies else ""
        self.mutated = tuple(range(len(op.arguments(p)), len(ins))) if op.changes_states(p, train) else ()
        self.visible = op.visible_outputs(p)
        self.draws = op.random_count(p, [i.spec for i in ins], [o.spec for o in outs])
        self.inplace = frozenset(op.inplace(p))
        self.small = small = self.target == "cpu" and sum(a.nbytes for a in (*ins, *outs)) <= INLINE_BYTES
        self.enqueues = self.target == "gpu" and op.nonblocking and cuda.is_real()
        self.prop = "inline" if small else None
        self.instant = small and op.nonblocking
        self.brief = self.tiny = self.instant and len(outs) == 1 and outs[0].tiny and not self.mutated
        self.run_context = engine.RunContext(ctx) if small else None
        self.measured = 0
        self.shortest = 0 if small or self.target == "gpu" or not op.nonblocking else math.inf
        alone = self.target == "cpu" and op.nonblocking and not self.mutated and self.visible == len(outs)
        self.timed = alone and not self.brief
        self._kernels: dict[tuple[Req, ...], Kernel] = {}
        self.kernel = self.kernel_for((Req.WRITE,) * len(outs))
        direct = self.direct_call() if 1 <= len(ins) <= 2 else None
        self.direct = None if direct is None else direct[0]
        self.gradient: Any = _UNKNOWN

    def gradient_of(self, p: Params) -> Gradient | None:
        """Return op.gradient_of(p): the same for all values of run-time scalars. A user's operator is asked each time."""
        if self.gradient is not _UNKNOWN:
            return self.gradient
        gradient = self.op.gradient_of(p)
        if self.op.nonblocking:
            self.gradient = gradient
        return gradient

    def ran(self, nanoseconds: int) -> None:
        """Note how long a run took. Short ones are run in the calling thread from then on."""
        self.shortest = min(self.shortest, nanoseconds)
        self.measured += 1
        if self.shortest <= SHORT:
            self.shortest, self.prop, self.instant = 0, "inline", True

    def ran_here(self, nanoseconds: int) -> None:
        """Note how long a run in the calling thread took, while that is of interest. A loaded machine makes some runs long."""
        if nanoseconds <= BRIEF:
            self.timed, self.brief = False, True
            self.tiny = len(self.outs) == 1 and self.outs[0].tiny

    def kernel_for(self, reqs: tuple[Req, ...]) -> Kernel:
        """Return the compiled kernel for these write requests."""
        kernel = self._kernels.get(reqs)
        if kernel is None:
            ins, outs = tuple(i.spec for i in self.ins), tuple(o.spec for o in self.outs)
            with float32_matmul.restored(self.float32):
                kernel = compiled_static(self.op, self.p, ins, outs, reqs, self.target, self.train)
            if self.target == "gpu" and self.op.nonblocking and kernel.at is None and kernel is not NOTHING:
                kernel.at = PreparedCall(kernel.run, ins, outs, reqs)
            self._kernels[reqs] = kernel
        return kernel

    def direct_call(self, number: int | float | None = None
                    ) -> tuple[Callable[..., np.ndarray], np.ndarray | None, np.ndarray | None] | None:
        """Return a NumPy function of the operands that computes the one, tiny output, and the operands; None if there is not one.

        number:   the value of the operator's scalar, if it has one.
        Returns:  (function, left, right): an operand is None where the function takes the input, and an array of the number.
        """
        if not self.tiny or self.draws:
            return None
        out, dtype = self.outs[0], self.outs[0].dtype
        if not out.shape or any(a.dtype != dtype for a in self.ins):
            return None
        found = self.op.numpy_function(self.p, [a.spec for a in self.ins], out.spec)
        wanted = [*range(len(self.ins)), *([] if number is None else [None])]
        if found is None or sorted(found[1], key=str) != wanted:
            return None
        function, places = found
        value = None
        if number is not None:
            try:
                value = prepared.leaf(np.asarray, to_integer(number, dtype) if dtype.kind in "iu" else number, dtype)
            except OverflowError:
                return None
        trial = prepared.leaf(function, *(value if i is None else np.ones(self.ins[i].shape, dtype) for i in places))
        if places == (1, 0) or trial.dtype != dtype or trial.shape != out.shape:
            return None
        return function, value if places[0] is None else None, value if places[-1] is None else None


def plan_of(op: Op, p: Params, ins: Sequence[Layout], train: bool, ctx: Context | None = None) -> DispatchPlan:
    """Return the plan of op on inputs of these layouts. ctx: where an operator without inputs runs.

    Raises: ShapeError, DTypeError, ContextError, OperatorError for inputs that op does not take.
    """
    how = float32_matmul.other()
    key = (op, p.static, train, how, *ins) if ins else (op, p.static, train, how, ctx)
    plan = CACHE.get(key)
    if plan is None:
        plan = CACHE[key] = _plan(op, p, ins, train, ctx)
    return plan


def backward_plan(op: Op, p: Params, ins: Sequence[Layout], outs: Sequence[Layout], train: bool) -> DispatchPlan:
    """Return the plan of op, a derivative, whose outputs have the layouts of the inputs that they are derivatives of."""
    key = (op, p.static, train, float32_matmul.other(), *ins, None, *outs)
    plan = CACHE.get(key)
    if plan is None:
        plan = CACHE[key] = DispatchPlan(op, p, tuple(ins), tuple(outs), outs[0].ctx, train)
    return plan


def _plan(op: Op, p: Params, ins: Sequence[Layout], train: bool, ctx: Context | None) -> DispatchPlan:
    names = (*op.arguments(p), *op.auxiliaries(p))
    if len(ins) != len(names):
        raise OperatorError(f"{op.name}: takes {len(names)} arrays ({', '.join(names) or 'none'}), {len(ins)} given.")
    if ins:
        ctx = ins[0].ctx.work
        for name, a in zip(names, ins):
            if a.ctx.work != ctx:
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
