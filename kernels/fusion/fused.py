"""FusedOp: several operators as one kernel. Fusing is putting one graph's result where another loads it.

A Body is what an operator contributes to a fused kernel: its expression, and how its arrays lie against the kernel's full
shape. Elementwise operators, `where`, reductions and what their derivatives spread, softmax and LayerNorm over the last
axis, and the last step of BatchNorm have one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from ...dtype import float32, is_float, is_half
from ..cpu.c_kernel import cpu_kernel, select_c_function
from ..cpu.c_printer import CFunction
from ..declare.dispatch_op import DispatchOp
from ..declare.reduction import ReductionGradOp, ReductionOp
from ..declare.traced import TracedOp
from ..ir.coalesce import full_shape
from ..ir.expr import LOAD, PARAM, REDUCE, Expr, as_expr, cast, const, load, reduce, resolve_weak_dtype, substitute, topological
from ..ir.rows import by_row, lies_along, padded, row_total
from ..kernel import BoundKernel, Kernel
from ..op import Expression, Formula, Op, Req, Shape, Spec, compiled
from ..params import Params

LONGEST_ROW = 16384  # elements of a row that one fused kernel holds
_ROW_KINDS = {"add": "sum", "maximum": "max"}


@dataclass(frozen=True, slots=True)
class Body:
    """An operator inside a fused kernel.

    roots:    one per output, as expressions of the raw loads of the inputs; run-time scalars are bound.
    ins:      the shape under which each input broadcasts to the full shape: its own, or its own with axes of size 1.
    outs:     the same for the outputs; where an output has 1 and the full shape more, the root is folded by combine.
    shape:    the full shape.
    combine:  how; "" where nothing is folded.
    rows:     whether the roots hold sums or maxima over the last axis of the full shape.
    finish:   what becomes of a fold at its end, as an expression of load 0, where that is not the result yet.
    """

    roots: tuple[Expr, ...]
    ins: tuple[Shape, ...]
    outs: tuple[Shape, ...]
    shape: Shape
    combine: str = ""
    rows: bool = False
    finish: Expr | None = None

    def folds(self, output: int) -> bool:
        """Whether this output is a fold, whose value no other part of the same kernel can read."""
        lacks = self.outs[output] != self.shape
        return bool(self.combine) and lacks and not (self.rows and self.outs[output] == by_row(self.shape))


def body_of(op: Op, p: Params, ins: Sequence[Spec], outs: Sequence[Spec]) -> Body | str:
    """The Body of one use of op, or why it has none: a phrase for `executor.explain()`."""
    if isinstance(op, DispatchOp):
        op = op.choose(p)
    if isinstance(op, ReductionOp):
        return _reduction_body(op, p, ins[0], outs[0])
    if isinstance(op, ReductionGradOp):
        if op.folds:
            return f"{op.name} folds its input again"
        full = outs[0].shape
        kept = op.forward.kept(p, full)
        count = max(outs[0].size, 1) // max(Spec(kept, outs[0].dtype).size, 1)
        root = Expression((op.root(p, [s.dtype for s in ins], count),))
        return Body(bind_scalars(root, p), tuple(full if kind == "x" else kept for kind, _ in op.needs), (full,), full)
    if not ins or not outs:
        return f"{op.name} has no inputs"
    formula = op.formula(p, ins, outs)
    if formula is not None:
        return _formula_body(op, p, formula)
    e = op.expression(p, [s.dtype for s in ins])
    if e is None:
        return f"{op.name} is no formula over single elements"
    if isinstance(op, FusedOp) and op.finished:
        return f"{op.name} ends in a fold"
    if e.states or len(e.outputs) != len(outs) or op.num_random(p, outs):
        return f"{op.name} keeps a state or draws random numbers"
    views = tuple(s.shape for s in ins)
    shapes = tuple(s.shape for s in outs)
    if isinstance(op, NormaliseOp):
        views = op.views(p, views)
    elif isinstance(op, FusedOp) and op.ins is not None and op.outs is not None:
        views, shapes = tuple(op.ins), tuple(op.outs)
    try:
        full = full_shape(views)
    except AssertionError:
        return f"{op.name}'s inputs do not broadcast"
    rows = e.kind == "row"
    if rows and full[-1:] > (LONGEST_ROW,):
        return f"{op.name}'s rows are longer than {LONGEST_ROW}"
    if all(s == full for s in shapes):
        return Body(bind_scalars(e, p), views, shapes, full, rows=rows)
    shapes = tuple(padded(s, len(full)) for s in shapes)
    if any(a not in (1, b) for s in shapes for a, b in zip(s, full)):
        return f"{op.name}'s outputs have another shape than its inputs"
    roots = bind_scalars(e, p)
    if not rows and e.combine == "add" and 1 < full[-1] <= LONGEST_ROW and all(is_float(s.dtype) for s in outs):
        per_row = [k for k, s in enumerate(shapes) if s == by_row(full)]  # then it can be read, as a fold cannot
        if per_row and 0 not in full:
            along = lies_along(views, full)
            roots = tuple(row_total(r, along, full[-1]) if k in per_row else r for k, r in enumerate(roots))
            rows = True
    return Body(roots, views, shapes, full, e.combine, rows)


def _reduction_body(op: ReductionOp, p: Params, x: Spec, y: Spec) -> Body | str:
    """A fold at the end of a run; or, over the last axis alone, a value per row that the rest of the run may read."""
    e = TracedOp.expression(op, p, [x.dtype])
    kept = op.kept(p, x.shape)
    if any(d.kind == "scalar" for d in op.params):
        return f"{op.name} takes a number at run time"
    count = max(x.size, 1) // max(Spec(kept, x.dtype).size, 1)
    if kept == x.shape and x.size:  # one element each: nothing to fold, but the last step is still to do
        root = e.outputs[0] if op.finish is None else as_expr(op.finish(e.outputs[0], count))
        return Body((root,), (x.shape,), (kept,), x.shape)
    kind = _ROW_KINDS.get(op.combine)
    if kind is not None and len(kept) > 1 and kept == by_row(x.shape) and x.shape[-1] <= LONGEST_ROW \
            and is_float(x.dtype) and x.size:
        folded = reduce(kind, e.outputs[0])
        root = folded if op.finish is None else as_expr(op.finish(folded, count))
        return Body((root,), (x.shape,), (kept,), x.shape, rows=True)
    if op.finish is not None and not is_float(y.dtype):
        return f"{op.name} of whole numbers has a last step after its fold"
    wide = float32 if is_half(y.dtype) else y.dtype
    finish = None if op.finish is None else as_expr(op.finish(load(0, wide), count))
    return Body(e.outputs, (x.shape,), (kept,), x.shape, op.combine, finish=finish)


def _formula_body(op: Op, p: Params, formula: Formula) -> Body | str:
    full = full_shape(formula.ins)
    rows = any(x.op == REDUCE for x in topological(formula.roots))
    outs = tuple(padded(s, len(full)) for s in formula.outs)
    if any(a not in (1, b) for s in outs for a, b in zip(s, full)):
        return f"{op.name}'s outputs have another shape than its inputs"
    if rows and (full[-1] > LONGEST_ROW or 0 in full):
        return f"{op.name}'s rows are longer than {LONGEST_ROW}"
    roots = bind_scalars(Expression(formula.roots), p)
    return Body(roots, formula.ins, outs, full, "add" if any(s != full for s in outs) else "", rows)


class NormaliseOp(TracedOp):
    """BatchNorm's last step, from the statistics it has: y = (data - mean) · inverse · gamma + beta, per channel.

    Its parameters are BatchNorm's; the formula is the one BatchNorm computes with, so that the bits agree.
    """

    broadcast = True
    name = "_normalise"
    input_names = ("data", "gamma", "beta", "mean", "inverse")
    doc = "The normalised values of a BatchNorm whose statistics are known."

    def trace(self, p: Params, inputs: Sequence[Expr]) -> tuple[Expr, ...]:
        x, gamma, beta, mean, inverse = inputs
        scale = inverse if p.fix_gamma else inverse * gamma
        return (x * scale + (beta - mean * scale),)

    def views(self, p: Params, shapes: Sequence[Shape]) -> tuple[Shape, ...]:
        """The statistics as [1, channels, 1, ...]."""
        x = shapes[0]
        axis = p.axis % len(x)
        one = tuple(n if i == axis else 1 for i, n in enumerate(x))
        return (x, one, one, one, one)

    def inplace(self, p: Params) -> tuple[tuple[int, int], ...]:
        return ((0, 0),)

    def kernel(self, p: Params, ins: Sequence[Spec], outs: Sequence[Spec], reqs: Sequence[Req], target: str,
               train: bool = False) -> Kernel:
        views = self.views(p, [s.shape for s in ins])
        return super().kernel(p, [Spec(v, s.dtype) for v, s in zip(views, ins)], outs, reqs, target, train)


@cache
def normalise() -> NormaliseOp:
    """The one NormaliseOp."""
    return NormaliseOp()


class FusedOp(TracedOp):
    """Several operators in one kernel; its inputs broadcast. The dtypes are those it was built for."""

    broadcast = True

    def __init__(self, name: str, expression: Expression, n_inputs: int, output_names: Sequence[str],
                 ins: Sequence[Shape] | None = None, outs: Sequence[Shape] | None = None,
                 finishes: Sequence[Expr | None] = ()):
        super().__init__()
        self.finishes = tuple(finishes)
        self.finished = any(f is not None for f in self.finishes)
        self.name, self.roots = name, expression.outputs
        self.combine = expression.combine
        self.input_names = tuple(f"x{i}" for i in range(n_inputs))
        self._output_names = tuple(output_names)
        self.ins, self.outs = ins, outs
        full = full_shape(ins) if ins is not None else None
        self._inplace = tuple(
            (i, o) for i in range(n_inputs) for o in range(len(self._output_names))
            if (ins is None or ins[i] == full) and (outs is None or outs[o] == full))

    def outputs(self, p: Params) -> tuple[str, ...]:
        return self._output_names

    def trace(self, p: Params, inputs: Sequence[Expr]) -> tuple[Expr, ...]:
        return self.roots

    def inplace(self, p: Params) -> tuple[tuple[int, int], ...]:
        return self._inplace

    def kernel(self, p: Params, ins: Sequence[Spec], outs: Sequence[Spec], reqs: Sequence[Req], target: str,
               train: bool = False) -> Kernel:
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

        return Kernel(bind=bind)

    def c_code(self, p: Params, ins: Sequence[Spec], outs: Sequence[Spec], reqs: Sequence[Req]) -> CFunction | str:
        """The C function that computes one use of it on the CPU, or why NumPy does: a phrase."""
        if self.finished:
            return "an output is summed"
        seen_in = [Spec(v, s.dtype) for v, s in zip(self.ins or [s.shape for s in ins], ins)]
        seen_out = [Spec(v, s.dtype) for v, s in zip(self.outs or [s.shape for s in outs], outs)]
        return select_c_function(self.expression(p, [s.dtype for s in ins]), seen_in, seen_out, reqs)

    def _plain(self, p: Params, ins: Sequence[Spec], outs: Sequence[Spec], reqs: Sequence[Req], target: str,
               train: bool) -> Kernel:
        if target == "gpu":
            return super().kernel(p, ins, outs, reqs, target, train)
        return cpu_kernel(self.expression(p, [s.dtype for s in ins]), ins, outs, reqs, self.name)

    def _with_finishes(self, p: Params, ins: Sequence[Spec], outs: Sequence[Spec], reqs: Sequence[Req], target: str,
                       train: bool) -> Kernel:
        """The kernel, whose folds that have a last step go to scratch, and then through it."""
        held = {o: Spec(outs[o].shape, load(0, outs[o].dtype).dtype or outs[o].dtype)
                for o, f in enumerate(self.finishes) if f is not None and reqs[o] != Req.NULL}
        inner = super().kernel(p, ins, [held.get(o, s) for o, s in enumerate(outs)],
                               [Req.WRITE if o in held else r for o, r in enumerate(reqs)], target, train)
        ends = {o: compiled(_finish(f), Params({}), (held[o],), (outs[o],), (reqs[o],), target, train)
                for o, f in enumerate(self.finishes) if f is not None and o in held}

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any], **more: Any) -> None:
            scratch = {o: run.workspace(s.shape, s.dtype) for o, s in held.items()}
            inner(run, inputs, [scratch.get(o, a) for o, a in enumerate(outputs)], **more)
            for o, end in ends.items():
                end(run, [scratch[o]], [outputs[o]])

        return Kernel(kernel)


_ends: dict[int, FusedOp] = {}  # by the id of the expression, which the operator keeps


def _finish(root: Expr) -> FusedOp:
    if id(root) not in _ends:
        _ends[id(root)] = fused_op(Expression((root,)), 1, name="finish")
    return _ends[id(root)]


def fused_op(expression: Expression, n_inputs: int, names: Sequence[str] | None = None, *, name: str = "fused",
             ins: Sequence[Shape] | None = None, outs: Sequence[Shape] | None = None,
             finishes: Sequence[Expr | None] = ()) -> FusedOp:
    """An operator that computes expression in one kernel.

    expression:  its load i reads input i; no run-time scalars (see bind_scalars).
    names:       names of the outputs.
    ins, outs:   the shapes under which the arrays broadcast and fold, where they are not their own.
    finishes:    for outputs that are folds, what becomes of them at the end; None: nothing.
    """
    names = names or [f"output{i}" for i in range(len(expression.outputs))]
    return FusedOp(name, expression, n_inputs, names, ins, outs, finishes)


def bind_scalars(expression: Expression, p: Params) -> tuple[Expr, ...]:
    """The roots of expression with every run-time scalar replaced by its value in p."""
    found = {}
    for x in topological(expression.outputs):
        if x.op == PARAM:
            found[id(x)] = const(p[x.value], x.dtype)
    return tuple(substitute(expression.outputs, found))


def connect(roots: Sequence[Expr], inputs: Sequence[Expr]) -> list[Expr]:
    """roots with load i replaced by inputs[i].

    inputs: either loads of the fused operator (raw: `expr.node(LOAD, ...)`), or results of other parts, which are
    rounded to the dtype they would have been stored in (see stored).
    """
    return substitute(roots, {id(x): inputs[x.value] for x in topological(roots) if x.op == LOAD})


def stored(root: Expr, dtype: Any) -> Expr:
    """root as it would be read back from an array of dtype: fused and unfused agree to the bit."""
    value = root if root.dtype is not None else resolve_weak_dtype(root, dtype)
    if value.dtype == dtype:
        return value
    rounded = cast(value, dtype)
    assert rounded.dtype == dtype or is_half(dtype)
    return rounded

