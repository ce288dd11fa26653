"""FusedOp: several operators as one kernel. Fusing puts the body of one operator where another loads its result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...cache import Cache
from ...dtype import is_half
from ..cpu.c_kernel import SAVED, cpu_kernel, least_bound, select_c_function
from ..cpu.c_printer import CFunction
from ..cpu.c_row_function import RowFunction
from ..cpu.rows_kernel import rows_in_c, select_row_function
from ..declare.traced import TracedOp
from ..ir.body import Body
from ..ir.coalesce import full_shape
from ..ir.expr import Expr, cast, load, resolve_weak_dtype
from ..kernel import BoundKernel, Kernel
from ..op import Expression, Refusal, Req, Reqs, Shape, Spec, Specs, compiled
from ..params import Params


class FusedOp(TracedOp):
    """Several operators in one kernel; its inputs broadcast. The dtypes are those it was built for."""

    broadcast = True
    least: float = SAVED  # nanoseconds that a run in C must save

    def __init__(self, name: str, expression: Expression, n_inputs: int, output_names: Sequence[str],
                 ins: Sequence[Shape] | None = None, outs: Sequence[Shape] | None = None,
                 finishes: Sequence[Expr | None] = ()):
        super().__init__()
        self.finishes = tuple(finishes)
        self.finished = any(f is not None for f in self.finishes)
        self.name, self.roots = name, expression.outputs
        self.combine = expression.combine
        self.input_names = tuple(f"x{i}" for i in range(n_inputs))
        self.output_names = tuple(output_names)
        self.ins, self.outs = ins, outs
        full = full_shape(ins) if ins is not None else None
        self._inplace = tuple(
            (i, o) for i in range(n_inputs) for o in range(len(self.output_names))
            if (ins is None or ins[i] == full) and (outs is None or outs[o] == full))

    def fusible_body(self, p: Params, ins: Specs, outs: Specs) -> Body | Refusal:
        return Refusal(f"{self.name} ends in a reduction") if self.finished else super().fusible_body(p, ins, outs)

    def views(self, p: Params, ins: Sequence[Shape], outs: Sequence[Shape]) -> tuple[Sequence[Shape], Sequence[Shape]]:
        return (ins, outs) if self.ins is None or self.outs is None else (self.ins, self.outs)

    def trace(self, p: Params, inputs: Sequence[Expr]) -> tuple[Expr, ...]:
        return self.roots

    def inplace(self, p: Params) -> tuple[tuple[int, int], ...]:
        return self._inplace

    def kernel(self, p: Params, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool = False) -> Kernel:
        if self.ins is None or self.outs is None:
            return self._plain(p, ins, outs, reqs, target, train)
        seen = [Spec(v, s.dtype) for v, s in zip(self.ins, ins)], [Spec(v, s.dtype) for v, s in zip(self.outs, outs)]
        inner = self._with_finishes(p, *seen, reqs, target, train) if self.finished else \
            self._plain(p, *seen, reqs, target, train)
        turned_in = [(i, v) for i, (v, s) in enumerate(zip(self.ins, ins)) if v != s.shape]
        turned_out = [(o, v) for o, (v, s) in enumerate(zip(self.outs, outs)) if v != s.shape and reqs[o] != Req.NULL]
        if target == "gpu" or (not turned_in and not turned_out):  # a GPU kernel sees addresses alone
            return inner

        def bind(inputs: Sequence[Any], outputs: Sequence[Any]) -> BoundKernel:
            inputs, outputs = list(inputs), list(outputs)
            for i, v in turned_in:
                inputs[i] = inputs[i].reshape(v)
            for o, v in turned_out:
                outputs[o] = outputs[o].reshape(v)
            return inner.bind(inputs, outputs)

        return Kernel(bind=bind, ahead=inner.ahead)

    def c_code(self, p: Params, ins: Specs, outs: Specs, reqs: Reqs) -> CFunction | str:
        """Return the C function that computes one use of the operator on the CPU, or the reason why there is none."""
        if self.finished:
            return "an output is summed"
        return select_c_function(self.expression(p, [s.dtype for s in ins]), *self._seen(ins, outs), reqs,
                                 least_bound(self.least, (*ins, *outs)))

    def rows_code(self, p: Params, ins: Specs, outs: Specs, reqs: Reqs) -> RowFunction | str:
        """Return the C function of one use that sums elements, or the reason why there is none."""
        e = self.expression(p, [s.dtype for s in ins])
        return select_row_function(e, *self._seen(ins, outs), reqs, self.finishes)

    def _seen(self, ins: Specs, outs: Specs) -> tuple[list[Spec], list[Spec]]:
        """Return the arrays in the shapes under which they broadcast and fold."""
        return ([Spec(v, s.dtype) for v, s in zip(self.ins or [s.shape for s in ins], ins)],
                [Spec(v, s.dtype) for v, s in zip(self.outs or [s.shape for s in outs], outs)])

    def _plain(self, p: Params, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> Kernel:
        if target == "gpu":
            return super().kernel(p, ins, outs, reqs, target, train)
        return cpu_kernel(self.expression(p, [s.dtype for s in ins]), ins, outs, reqs, self.name, self.least)

    def _with_finishes(self, p: Params, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> Kernel:
        """Return the kernel that writes folds with a finishing step to scratch memory and then applies that step."""
        e = self.expression(p, [s.dtype for s in ins])

        def in_two_steps() -> Kernel:
            held = {o: Spec(outs[o].shape, load(0, outs[o].dtype).dtype or outs[o].dtype)
                    for o, f in enumerate(self.finishes) if f is not None and reqs[o] != Req.NULL}
            inner = super(FusedOp, self).kernel(p, ins, [held.get(o, s) for o, s in enumerate(outs)],
                                                [Req.WRITE if o in held else r for o, r in enumerate(reqs)], target, train)
            ends = {o: compiled(_finish(f), Params({}), (held[o],), (outs[o],), (reqs[o],), target, train)
                    for o, f in enumerate(self.finishes) if f is not None and o in held}

            def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any], **more: Any) -> None:
                scratch = {o: run.workspace(s.shape, s.dtype) for o, s in held.items()}
                inner(run, inputs, [scratch.get(o, a) for o, a in enumerate(outputs)], **more)
                for o, end in ends.items():
                    end(run, [scratch[o]], [outputs[o]])

            return Kernel(kernel)

        in_c = rows_in_c(e, ins, outs, reqs, in_two_steps, self.finishes) if target == "cpu" else None
        return in_c or in_two_steps()


_ends: Cache[int, FusedOp] = Cache()  # by the id of the expression, which the operator keeps


def _finish(root: Expr) -> FusedOp:
    return _ends.get_or_make(id(root), lambda: fused_op(Expression((root,)), 1, name="finish"))


def fused_op(expression: Expression, n_inputs: int, names: Sequence[str] | None = None, *, name: str = "fused",
             ins: Sequence[Shape] | None = None, outs: Sequence[Shape] | None = None,
             finishes: Sequence[Expr | None] = ()) -> FusedOp:
    """Return an operator that computes expression in one kernel.

    expression:  its load i reads input i; no run-time scalars (see bind_scalars).
    names:       names of the outputs.
    ins, outs:   the shapes under which the arrays broadcast and fold, where they are not their own.
    finishes:    the finishing step of each output that is a fold, as an expression of load 0; None without one.
    """
    names = names or [f"output{i}" for i in range(len(expression.outputs))]
    return FusedOp(name, expression, n_inputs, names, ins, outs, finishes)


def stored(root: Expr, dtype: np.dtype) -> Expr:
    """root as it would be read back from an array of dtype: fused and unfused agree to the bit."""
    value = root if root.dtype is not None else resolve_weak_dtype(root, dtype)
    if value.dtype == dtype:
        return value
    rounded = cast(value, dtype)
    assert rounded.dtype == dtype or is_half(dtype)
    return rounded

