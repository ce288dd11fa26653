"""Derivatives of expression graphs: a reverse walk over the table's derivative column."""

from __future__ import annotations

from collections.abc import Sequence

from ...dtype import is_float
from . import lang
from .expr import (
    CAST,
    CONST,
    DRAW,
    LOAD,
    PARAM,
    REDUCE,
    ROW_INDEX,
    Expr,
    as_expr,
    cast,
    cost,
    loads,
    prim,
    substitute,
    topological,
)
from .indexed import ACC, FOLD, GATHER, INDEX, LOOP, SIZE
from .primitives import PRIMITIVES

LEAVES = (GATHER, FOLD, INDEX, SIZE, LOOP, ACC)  # of index formulas: what depends on them is up to indexed_gradient.py


def derive(outputs: Sequence[Expr], dys: Sequence[Expr], wrt: Sequence[Expr]) -> list[Expr | None]:
    """For each node of wrt, Σᵢ dysᵢ ∂outputsᵢ/∂node; None where nothing depends on it.

    Source: reverse accumulation; Griewank and Walther, Evaluating Derivatives, 2008, ch. 3.
    """
    adjoint: dict[int, Expr] = {}

    def add(x: Expr, d: Expr | None) -> None:
        if d is None:
            return
        if x.dtype is not None:
            if not is_float(x.dtype) and d.dtype is not None and is_float(d.dtype):
                d = lang.where(d - d == 0, d, 0)  # an integer is never infinite or NaN: what divided by zero passes nothing on
            d = cast(as_expr(d), x.dtype)
        adjoint[id(x)] = prim("add", adjoint[id(x)], d) if id(x) in adjoint else d

    for y, dy in zip(outputs, dys):
        add(y, dy)
    for x in reversed(topological(outputs)):
        dx = adjoint.get(id(x))
        if dx is None or x.op in (LOAD, PARAM, CONST, DRAW, ROW_INDEX, *LEAVES):
            continue
        if x.op == CAST:
            if x.dtype is None or is_float(x.dtype) or (x.args[0].dtype is not None and not is_float(x.args[0].dtype)):
                add(x.args[0], dx)  # a float that becomes an integer is truncated, and so flat
        elif x.op == REDUCE:
            (a,) = x.args
            whole = lang.row_sum(dx)  # every element of a row reads the sum, or the maximum, and each reading counts
            if x.value == "max":  # shared by those that attain it, which may be one value, seen all along the row
                attains = prim("eq", a, x)
                whole = lang.where(attains, whole / lang.row_sum(attains), 0)
            add(a, whole)
        else:
            rule = PRIMITIVES[x.op].derivative
            assert rule is not None, f"{x.op} has no derivative, and zero would be a guess"
            for a, d in zip(x.args, rule(lang, dx, x, *x.args)):
                if a.op != CONST and a.op != PARAM:
                    add(a, d)
    return [adjoint.get(id(w)) for w in wrt]


def in_terms_of_output(derivatives: Sequence[Expr], y: Expr, load_y: Expr, inputs: Sequence[Expr]) -> list[Expr]:
    """The derivatives written with the output's value, where that is cheaper: backward then keeps y and no input.

    tanh, sigmoid, exp, sqrt … contain their own result in their derivative; relu's condition x ≥ 0 does not.
    y: the output's expression; load_y: what reads the stored output; inputs: the loads of the inputs.
    """
    if y.op in (LOAD, CONST, CAST, DRAW):
        return list(derivatives)
    rewritten = substitute(derivatives, {id(y): cast(load_y, y.dtype) if y.dtype is not None else load_y})
    wanted = {i.value for i in inputs}
    before, after = wanted & set(loads(derivatives)), wanted & set(loads(rewritten))
    if len(after) < len(before) and not after and cost(rewritten) <= cost(derivatives):
        return rewritten
    return list(derivatives)
