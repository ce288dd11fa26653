"""Body: what an operator computes as a part of a fused kernel, and how its arrays lie against the kernel's full shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...dtype import is_float
from ..op import Expression, Formula, Refusal, Shape, Specs
from ..params import Params
from .coalesce import full_shape
from .expr import PARAM, Expr, const, goes_by_rows, substitute, topological
from .rows import by_row, lies_along, padded, row_total

LONGEST_ROW = 16384  # elements of a row that one fused kernel holds


@dataclass(frozen=True, slots=True)
class Body:
    """An operator inside a fused kernel.

    roots:    one per output, as expressions of the raw loads of the inputs; run-time scalars are bound.
    ins:      the shape under which each input broadcasts to the full shape: its own, or its own with axes of size 1.
    outs:     the same for the outputs; where an output has 1 and the full shape more, the root is folded by combine.
    shape:    the full shape.
    combine:  how roots are folded; "" where none is.
    rows:     whether the roots hold sums, maxima or indices along the last axis of the full shape.
    finish:   an expression of load 0 that makes the result from the fold, where the fold is not the result itself.
    """

    roots: tuple[Expr, ...]
    ins: tuple[Shape, ...]
    outs: tuple[Shape, ...]
    shape: Shape
    combine: str = ""
    rows: bool = False
    finish: Expr | None = None

    def folds(self, output: int) -> bool:
        """Return whether this output is a reduction, whose value no other part of the same kernel can read."""
        lacks = self.outs[output] != self.shape
        return bool(self.combine) and lacks and not (self.rows and self.outs[output] == by_row(self.shape))


def expression_body(name: str, p: Params, e: Expression, views: Sequence[Shape], shapes: Sequence[Shape], outs: Specs
                    ) -> Body | Refusal:
    """Return the body of an expression. views, shapes: what inputs and outputs are seen as, to broadcast to the full shape."""
    try:
        full = full_shape(views)
    except AssertionError:
        return Refusal(f"{name}'s inputs do not broadcast")
    rows = e.kind == "row"
    if not isinstance(e.combine, str):
        return Refusal(f"{name} folds by a function of its own")
    if rows and full[-1:] > (LONGEST_ROW,):
        return Refusal(f"{name}'s rows are longer than {LONGEST_ROW}")
    roots = bind_scalars(e.outputs, p)
    if all(s == full for s in shapes):
        return Body(roots, tuple(views), tuple(shapes), full, rows=rows)
    shapes = tuple(padded(s, len(full)) for s in shapes)
    if any(a not in (1, b) for s in shapes for a, b in zip(s, full)):
        return Refusal(f"{name}'s outputs have another shape than its inputs")
    if not rows and e.combine == "add" and 1 < full[-1] <= LONGEST_ROW and all(is_float(s.dtype) for s in outs):
        per_row = [k for k, s in enumerate(shapes) if s == by_row(full)]  # then it can be read, as a fold cannot
        if per_row and 0 not in full:
            along = lies_along(views, full)
            roots = tuple(row_total(r, along, full[-1]) if k in per_row else r for k, r in enumerate(roots))
            rows = True
    return Body(roots, tuple(views), shapes, full, e.combine, rows)


def formula_body(name: str, p: Params, formula: Formula) -> Body | Refusal:
    """Return the body of a formula."""
    full = full_shape(formula.ins)
    rows = goes_by_rows(formula.roots)
    outs = tuple(padded(s, len(full)) for s in formula.outs)
    if any(a not in (1, b) for s in outs for a, b in zip(s, full)):
        return Refusal(f"{name}'s outputs have another shape than its inputs")
    if rows and (full[-1] > LONGEST_ROW or 0 in full):
        return Refusal(f"{name}'s rows are longer than {LONGEST_ROW}")
    return Body(bind_scalars(formula.roots, p), formula.ins, outs, full, "add" if any(s != full for s in outs) else "", rows)


def bind_scalars(roots: Sequence[Expr], p: Params) -> tuple[Expr, ...]:
    """Return roots with every run-time scalar replaced by its value in p."""
    found = {id(x): const(p[x.value], x.dtype) for x in topological(roots) if x.op == PARAM}
    return tuple(substitute(roots, found))
