"""where: select from two arrays, by element or by row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....errors import ShapeError
from ...declare.simple_op import Array, SimpleOp
from ...declare.traced import TracedOp, printed
from ...ir.expr import Expr
from ...ir.lang import where
from ...kernel import Kernel
from ...op import Dtypes, Formula, Gradient, Reqs, Shape, Shapes, Spec, Specs, register
from ...params import Params


def row_view(condition: Shape, rank: int) -> Shape:
    """Return the shape of condition for broadcasting with arrays of rank axes: one value per element, or per row."""
    return (*condition, *(1,) * (rank - 1)) if len(condition) == 1 else condition


class _ByRow(TracedOp):
    """Base class: a condition with one axis has a value for each row. It broadcasts from the left, so `expression` is None."""

    condition: int  # the input that is the condition

    def expression(self, p: Params, dtypes: Sequence[np.dtype]) -> None:
        return None

    def kernel(self, p: Params, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool = False) -> Kernel:
        body, at, specs = super().expression(p, [s.dtype for s in ins]), self.condition, list(ins)
        shape = specs[at].shape
        view = row_view(shape, max(len(s.shape) for s in (*ins, *outs)))
        specs[at] = Spec(view, specs[at].dtype)
        inner = printed(body, specs, outs, reqs, target, self.name)
        if view == shape:
            return inner

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any], scalars: tuple = ()) -> None:
            arrays = list(inputs)
            arrays[at] = arrays[at].reshape(view)
            inner(run, arrays, outputs)

        return Kernel(kernel)


class WhereOp(_ByRow, SimpleOp):
    """The operator `where`."""

    condition = 0
    linear = True

    def infer_shape(self, p: Params, inputs: Shapes, outputs: Shapes | None = None) -> tuple[Shapes, Shapes]:
        c, x, y = inputs
        if c is None or x is None or y is None:
            known = x if x is not None else y if y is not None else (outputs or [None])[0]
            return [c, *(known if s is None else s for s in (x, y))], [known]
        rank = max(len(x), len(y))
        if len(c) == 1 and rank > 1:
            rows = max(s[0] for s in (x, y) if len(s) == rank)
            if c[0] != rows and -1 not in (c[0], rows):
                raise ShapeError(f"{self.name}: condition {c} must have the shape of x {x}, or one value for each of "
                                 f"its {rows} rows.")
            return list(inputs), [super().infer_shape(p, [(1,) * rank, x, y], outputs)[1][0]]
        return super().infer_shape(p, inputs, outputs)

    def formula(self, p: Params, ins: Specs, outs: Specs) -> Formula | None:
        e = TracedOp.expression(self, p, [s.dtype for s in ins])
        condition = row_view(ins[0].shape, len(outs[0].shape))
        return Formula(e.outputs, (condition, ins[1].shape, ins[2].shape), (outs[0].shape,))

    def make_gradient(self, p: Params) -> Gradient | None:
        return Gradient(_BACKWARD, (("dy", 0), ("x", 0)), (1, 2))


class _WhereBackward(_ByRow):
    """The derivatives by x and y: dy where the element was selected, zero elsewhere."""

    name, broadcast, input_names, condition = "_backward_where", True, ("dy", "condition"), 1
    output_names = ("dx", "dy")

    def infer_shape(self, p: Params, inputs: Shapes, outputs: Shapes | None = None) -> tuple[Shapes, Shapes]:
        given = list(outputs or (None, None))
        return list(inputs), [inputs[0] if s is None else s for s in given]

    def infer_dtype(self, p: Params, inputs: Dtypes, outputs: Dtypes | None = None) -> tuple[Dtypes, Dtypes]:
        return list(inputs), [inputs[0]] * 2

    def trace(self, p: Params, inputs: Sequence[Expr]) -> tuple[Expr, ...]:
        dy, c = inputs
        return where(c != 0, dy, 0), where(c != 0, 0, dy)

    def formula(self, p: Params, ins: Specs, outs: Specs) -> Formula | None:
        if any(s.shape != ins[0].shape for s in outs):
            return None  # x or y was broadcast
        e = TracedOp.expression(self, p, [s.dtype for s in ins])
        return Formula(e.outputs, (ins[0].shape, row_view(ins[1].shape, len(ins[0].shape))), tuple(s.shape for s in outs))

    def make_gradient(self, p: Params) -> Gradient | None:
        return Gradient(WHERE, (("x", 1), ("dy", 0), ("dy", 1)), (0,))


def _body(condition: Array, x: Array, y: Array) -> Array:
    """x where condition is not 0, else y.

    condition: of x's shape, any dtype; or one axis with a value for each row of x. x and y have derivatives.
    """
    return where(condition != 0, x, y)


_BACKWARD = _WhereBackward()
WHERE = WhereOp(_body, name="where", free=("condition",), broadcast=True)
register(WHERE)
