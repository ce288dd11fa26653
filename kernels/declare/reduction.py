"""@reduction: an operator that computes a value per element of its input and folds the values over axes.

    @reduction(combine="add", finish=lambda total, count: total / count)
    def mean(x: Array):
        return x
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NoReturn

import numpy as np

from ...dtype import float32, is_float, is_half
from ...errors import OperatorError, ShapeError
from ..cpu.rows_kernel import rows_in_c
from ..ir import lang
from ..ir.body import LONGEST_ROW, Body, bind_scalars
from ..ir.differentiate import derive
from ..ir.expr import (
    LOAD,
    Expr,
    as_expr,
    caller,
    cast,
    const,
    load,
    loads,
    node,
    param,
    reduce,
    resolve_weak_dtype,
    substitute,
    typed,
)
from ..ir.lang import where
from ..ir.rows import by_row
from ..kernel import Kernel, Reshaped
from ..op import Expression, Gradient, Need, Refusal, Req, Reqs, Shape, Shapes, Spec, Specs
from ..params import Param, Params
from .simple_op import SimpleOp, array_names, declare
from .traced import TracedOp, printed

_ROW_KINDS = {"add": "sum", "maximum": "max"}


class ReductionOp(SimpleOp):
    """A body per element, folded over axes; what `@reduction` returns. Half precision folds in float32 and rounds once.

    Parameters of all: axis (None or (): every axis), keepdims, exclude (fold the axes that are not named).
    A full reduction gives shape (1,), as in MXNet.
    """

    _AXIS = (
        Param("axis", "shape", None, doc="axes to fold; None or (): all"),
        Param("keepdims", "bool", False, doc="folded axes stay, with size 1"),
        Param("exclude", "bool", False, doc="fold the axes that are not named"),
    )

    def __init__(self, body: Callable[..., Any], *, finish: Callable[..., Any] | None = None, **options: Any):
        super().__init__(body, **options)
        self.finish = finish
        self.params = (*self._AXIS, *(d for d in self.params if d.name not in ("axis", "keepdims", "exclude")))

    def axes(self, p: Params, rank: int) -> tuple[int, ...]:
        """Return the axes that are folded, ascending. Raises ShapeError for one that does not exist."""
        if not p.axis:
            return tuple(range(rank))
        out = set()
        for a in p.axis:
            if not -rank <= a < rank:
                raise ShapeError(f"{self.name}: axis {a} does not exist in an array of {rank} axes.")
            out.add(a % rank)
        if len(out) != len(p.axis):
            raise ShapeError(f"{self.name}: axis={tuple(p.axis)} names an axis of {rank} twice.")
        return tuple(a for a in range(rank) if (a in out) != p.exclude)

    def kept(self, p: Params, shape: Shape) -> Shape:
        """Return the output's shape with the folded axes kept as 1."""
        folded = self.axes(p, len(shape))
        return tuple(1 if i in folded else n for i, n in enumerate(shape))

    def body_parameters(self, p: Params) -> dict[str, Any]:
        return {d.name: param(d.name) if d.kind == "scalar" else p[d.name] for d in self.params if d not in self._AXIS}

    def count(self, p: Params, shape: Shape) -> int:
        """Return how many elements of an array of this shape are folded into one; at least 1."""
        return max(math.prod(shape), 1) // max(math.prod(self.kept(p, shape)), 1)

    def infer_shape(self, p: Params, inputs: Shapes, outputs: Shapes | None = None) -> tuple[Shapes, Shapes]:
        (shape,) = inputs
        if shape is None:
            return [None], [None]
        if p.keepdims:
            return [shape], [self.kept(p, shape)]
        folded = self.axes(p, len(shape))
        return [shape], [tuple(n for i, n in enumerate(shape) if i not in folded) or (1,)]

    def inplace(self, p: Params) -> tuple[tuple[int, int], ...]:
        return ()

    def expression(self, p: Params, dtypes: Sequence[np.dtype]) -> Expression | None:  # type: ignore[override]
        return None  # no part of an elementwise run

    def fusible_body(self, p: Params, ins: Specs, outs: Specs) -> Body | Refusal:
        """A fold at the end of a group; or, over the last axis alone, a value per row that the rest of the group may read."""
        (x,), (y,) = ins, outs
        e = TracedOp.expression(self, p, [x.dtype])
        kept = self.kept(p, x.shape)
        if any(d.kind == "scalar" for d in self.params):
            return Refusal(f"{self.name} takes a number at run time")
        count = self.count(p, x.shape)
        if kept == x.shape and x.size:  # one element each: nothing to fold, but the last step is still to do
            root = e.outputs[0] if self.finish is None else as_expr(self.finish(e.outputs[0], count))
            return Body((root,), (x.shape,), (kept,), x.shape)
        if not isinstance(self.combine, str):
            return Refusal(f"{self.name} folds by a function of its own")
        kind = _ROW_KINDS.get(self.combine)
        if kind is not None and len(kept) > 1 and kept == by_row(x.shape) and x.shape[-1] <= LONGEST_ROW \
                and is_float(x.dtype) and x.size:
            folded = reduce(kind, e.outputs[0])
            root = folded if self.finish is None else as_expr(self.finish(folded, count))
            return Body((root,), (x.shape,), (kept,), x.shape, rows=True)
        if self.finish is not None and not is_float(y.dtype):
            return Refusal(f"{self.name} of integers has a last step after it")
        wide = float32 if is_half(y.dtype) else y.dtype
        finish = None if self.finish is None else as_expr(self.finish(load(0, wide), count))
        return Body(e.outputs, (x.shape,), (kept,), x.shape, self.combine, finish=finish)

    def draw_refusal(self, p: Params) -> str:
        return (f"{self.name}: the body of a reduction draws random numbers ({{place}}). Use simple_op with shape=, whose "
                f"elements are folded, too.")

    def _for_device(self, device: str, body: Any) -> NoReturn:
        raise OperatorError(f"{self.name}.{device}: is a reduction, which is declared by its formula alone.")

    def inline(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise OperatorError(f"{self.name}: a reduction cannot be called inside an elementwise body ({caller()}).")

    def kernel(self, p: Params, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool = False) -> Kernel:
        (x,), (y,) = ins, outs
        kept = self.kept(p, x.shape)
        count = self.count(p, x.shape)
        body = TracedOp.expression(self, p, [x.dtype])
        if self.finish is None:
            inner = printed(body, ins, [Spec(kept, y.dtype)], reqs, target, self.name)
            return inner if kept == y.shape else _seen_as(inner, kept)
        wide = typed(body.outputs[0]) if lang.is_whole(*body.outputs) else float32 if is_half(y.dtype) else y.dtype
        end = as_expr(self.finish(load(0, wide), count))

        def finished() -> Kernel:
            fold = printed(body, ins, [Spec(kept, wide)], [Req.WRITE], target, self.name).run
            close = printed(Expression((end,)), [Spec(kept, wide)], [Spec(kept, y.dtype)], reqs, target,
                            f"{self.name}_finish").run

            def kernel(run: Any, inputs: Any, outputs: Any, scalars: tuple = ()) -> None:
                folded = run.workspace(kept, wide)
                fold(run, inputs, [folded], scalars=scalars)
                close(run, [folded], [outputs[0].reshape(kept)])

            return Kernel(kernel)

        in_c = rows_in_c(body, ins, [Spec(kept, y.dtype)], reqs, finished, [end]) if target == "cpu" else None
        return in_c or finished()

    def make_gradient(self, p: Params) -> Gradient | None:
        if not self.differentiable:
            return None
        body = self._gradient_body
        if body is None:
            return _derived_spread(self, p)
        arrays, keywords = array_names(body)
        needs = self._needs(arrays, p)
        return Gradient(ReductionGradOp(self, needs, body, keywords), needs, (0,))


def _seen_as(inner: Kernel, shape: Shape) -> Kernel:
    """Return inner for an output of another shape."""
    return Reshaped(inner, lambda inputs, outputs: (inputs, [outputs[0].reshape(shape)]))


class FoldOp(ReductionOp):
    """A fold that the derivative of a reduction reads: over `of(x)`, where x is the result of the reduction's body."""

    def __init__(self, forward: ReductionOp, combine: str, of: Callable[[Expr], Expr]):
        super().__init__(forward.body, combine=combine, name=f"_{forward.name}_{combine}")
        self.forward, self.of, self.params = forward, of, forward.params

    def axes(self, p: Params, rank: int) -> tuple[int, ...]:
        return self.forward.axes(p, rank)

    def trace(self, p: Params, inputs: Sequence[Expr]) -> tuple[Expr, ...]:
        (each,) = self.forward.trace(p, inputs)
        return (self.of(each),)


class ReductionGradOp(TracedOp):
    """The derivative of a reduction: dy, y and folds arrive spread along the folded axes.

    body:   (what `needs` names, then the folds, *, keywords) -> the derivative by one element.
    folds:  computed again from the input before the derivative is, in float32 where the input is half precision.
    """

    broadcast = True

    def __init__(self, forward: ReductionOp, needs: tuple[Need, ...], body: Callable[..., Any],
                 keywords: Sequence[str], folds: Sequence[FoldOp] = ()):
        super().__init__()
        self.name, self.is_users = f"_backward_{forward.name}", forward.is_users
        self.forward, self.needs, self.body, self.keywords, self.folds = forward, needs, body, keywords, tuple(folds)
        self.params = forward.params
        self.input_names = tuple(f"{kind}{i}" for kind, i in needs)

    def expression(self, p: Params, dtypes: Sequence[np.dtype]) -> Expression | None:  # type: ignore[override]
        return None  # its inputs have other shapes here than in the graph

    def fusible_body(self, p: Params, ins: Specs, outs: Specs) -> Body | Refusal:
        if self.folds:
            return Refusal(f"{self.name} folds its input again")
        full = outs[0].shape
        kept = self.forward.kept(p, full)
        root = self.root(p, [s.dtype for s in ins], self.forward.count(p, full))
        return Body(bind_scalars((root,), p), tuple(full if kind == "x" else kept for kind, _ in self.needs), (full,), full)

    def root(self, p: Params, dtypes: Sequence[np.dtype], count: int) -> Expr:
        """Return the derivative by one element. dtypes: of the arrays read, with folds; count: the number of folded elements."""
        values = {**p, **self.forward.body_parameters(p), "count": count}
        return as_expr(self.body(*(load(i, d) for i, d in enumerate(dtypes)), **{k: values[k] for k in self.keywords}))

    def kernel(self, p: Params, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool = False) -> Kernel:
        (dx,) = outs
        kept = self.forward.kept(p, dx.shape)
        wide = Spec(kept, float32 if is_half(dx.dtype) else dx.dtype)
        specs = [*(Spec(dx.shape if kind == "x" else kept, s.dtype) for s, (kind, _) in zip(ins, self.needs)),
                 *(wide for _ in self.folds)]
        root = self.root(p, [s.dtype for s in specs], self.forward.count(p, dx.shape))
        e = Expression((root,), scalars=tuple(d.name for d in self.params if d.kind == "scalar"))
        inner = printed(e, specs, outs, reqs, target, self.name).run
        folds = [f.kernel(p, [dx], [wide], [Req.WRITE], target, train) for f in self.folds]
        at = self.needs.index(("x", 0)) if folds else 0

        def kernel(run: Any, arrays: Any, outputs: Any, scalars: tuple = ()) -> None:
            held = [run.workspace(wide.shape, wide.dtype) for _ in folds]
            for fold, space in zip(folds, held):
                fold(run, [arrays[at]], [space], scalars=scalars)
            inner(run, [*(a.reshape(s.shape) for a, s in zip(arrays, specs)), *held], outputs, scalars=scalars)

        return Kernel(kernel)

    @cached_property
    def broadcasting(self) -> SimpleOp:
        """Return this derivative as an operator whose inputs broadcast, so that it can be differentiated itself."""
        known = {d.name: d for d in self.params}
        params = [known.get(k, Param(k, "int")) for k in self.keywords]
        names = [*self.input_names, *(f"fold{i}" for i in range(len(self.folds)))]
        return SimpleOp(_with_names(self.body, names, self.keywords), name=f"_spread_{self.forward.name}", broadcast=True,
                        params=params)


def _with_names(body: Callable[..., Any], arrays: Sequence[str], keywords: Sequence[str]) -> Callable[..., Any]:
    """Return body with a signature that names its arguments."""
    def named(*given: Any, **values: Any) -> Any:
        return body(*given, **values)

    kinds = inspect.Parameter
    named.__signature__ = inspect.Signature([  # type: ignore[attr-defined]
        *(kinds(a, kinds.POSITIONAL_ONLY) for a in arrays), *(kinds(k, kinds.KEYWORD_ONLY) for k in keywords)])
    return named


def _derived_spread(op: ReductionOp, p: Params) -> Gradient | None:
    """The derivative of a reduction, worked out from its body, how it is folded, and what finishes it.

    Of equal extremes each gets the whole derivative. A product without one factor is that of the others, also at zero.
    """
    if not isinstance(op.combine, str):
        raise OperatorError(f"{op.name}: the derivative of a fold by a function of its own is not derived. Declare it with "
                            f"@{op.name}.gradient, or say differentiable=False.")
    product = op.combine == "mul"
    folds = [FoldOp(op, "mul", lambda b: where(b == 0, 1, b)), FoldOp(op, "add", lambda b: where(b == 0, 1, 0))] if product \
        else [FoldOp(op, op.combine, lambda b: b)]
    keywords = ["count", *(d.name for d in op.params if d not in op._AXIS)]
    places = [("dy", 0), ("x", 0), *(("fold", i) for i in range(len(folds)))]

    def by_element(read: dict[Need, Expr], count: int, values: dict[str, Any]) -> Expr | None:
        dy = read["dy", 0]
        x, *folded = (read.get(place, node(LOAD, (), -1 - k, dy.dtype)) for k, place in enumerate(places[1:]))
        each = as_expr(op.body(x, **values))
        each = each if each.dtype is not None else resolve_weak_dtype(each, typed(x))
        whole = where(folded[1] > 0, 0, folded[0]) if product else folded[0]
        if op.finish is not None:
            leaf = node(LOAD, (), -9, typed(whole))
            (slope,) = derive([cast(as_expr(op.finish(leaf, count)), typed(dy))], [dy], [leaf])
            if slope is None:
                return None
            dy = substitute([slope], {id(leaf): whole})[0]
        if op.combine in ("maximum", "minimum"):
            dy = where(each == whole, dy, 0)
        elif product:
            others = folded[1] - cast(each == 0, typed(folded[1]))  # how many of the other factors are zero
            dy = where(others == 0, dy * folded[0] / where(each == 0, 1, each), 0)
        return derive([each], [cast(dy, typed(each))], [x])[0]

    probe = by_element({place: load(i, float32) for i, place in enumerate(places)}, 2,
                       op.body_parameters(p))
    if probe is None:
        return None
    read = [places[i] for i in loads([probe])]
    if ("fold", 0) in read or ("fold", 1) in read:
        read = [place for place in places if place in read or place[0] != "fold"]  # a fold is computed from x
    read = read if ("dy", 0) in read else [("dy", 0), *read]

    def body(*arrays: Expr, count: int, **values: Any) -> Expr:
        found = by_element(dict(zip(read, arrays)), count, values)
        return const(0) if found is None else found

    needs = tuple(place for place in read if place[0] != "fold")
    return Gradient(ReductionGradOp(op, needs, body, keywords, [folds[i] for kind, i in read if kind == "fold"]), needs, (0,))


def reduction(body: Callable[..., Any] | None = None, *, combine: Any, **options: Any) -> Any:
    """Declare a reduction: the body gives what each element contributes, combine folds them.

    combine:  "add", "mul", "maximum", "minimum", or an associative and commutative function of two traced values, with
    identity: the value that changes no other. Its derivative is not derived.
    finish:   finish(folded, count) -> the result from the folded value; count is how many elements were folded.
    Other options as in simple_op. A gradient body gets dy (and y) spread along the folded axes, x as it is, and may ask
    for the keyword `count`.
    """
    return declare(ReductionOp, body, {**options, "combine": combine})
