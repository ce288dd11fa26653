"""Parts of formulas that change few elements: the one of each row at an index, or those of some rows. The NumPy kernel copies
the others, or leaves them where they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..ir.expr import CAST, CONST, ROW_INDEX, Expr, node, topological
from ..ir.primitives import PRIMITIVES
from ..ir.rows import varying

AT_INDEX, FILL_ROWS = "at_index", "fill_rows"  # nodes: (x, index) with value (primitive, number); (x, rows) with value number
SHORT = 64  # elements of a row up to which every index is compared


def few_elements(roots: Sequence[Expr], along: Sequence[bool]) -> list[Expr]:
    """Return roots with where(row_index() == k, f(x, number), x) and where(c, number, x) as nodes of their own, for k and c
    that are the same along a row.

    along: which loads have the axis of the rows.
    """
    differs = varying(roots, along)
    new: dict[int, Expr] = {}
    for x in topological(roots):
        args = tuple([new[id(a)] for a in x.args])
        new[id(x)] = x if all(a is b for a, b in zip(args, x.args)) else node(x.op, args, x.value, x.dtype)
        if x.op != "where" or not differs[id(x.args[2])]:
            continue
        condition, then, other = x.args
        index = _index(condition, differs)
        if then.op == CONST and not differs[id(condition)]:
            new[id(x)] = node(FILL_ROWS, (args[2], args[0]), then.value, x.dtype)
        elif (index is not None and _ufunc(then) is not None and len(then.args) == 2 and then.args[0] is other
              and then.args[1].op == CONST):
            new[id(x)] = node(AT_INDEX, (args[2], new[id(index)]), (then.op, then.args[1].value), x.dtype)
    return [new[id(r)] for r in roots]


def _ufunc(x: Expr) -> np.ufunc | None:
    found = PRIMITIVES[x.op].numpy if x.op in PRIMITIVES else None
    return found if isinstance(found, np.ufunc) else None


def _index(condition: Expr, differs: dict[int, bool]) -> Expr | None:
    """Return k of row_index() == k."""
    if condition.op != "eq":
        return None
    for a, b in (condition.args, condition.args[::-1]):
        if (a.op == ROW_INDEX or (a.op == CAST and a.args[0].op == ROW_INDEX)) and not differs[id(b)]:
            return b
    return None


def at_index(function: np.ufunc, x: np.ndarray, index: Any, number: float, out: np.ndarray, axis: int, every: np.ndarray
             ) -> None:
    """out = x, which may be out, with function(x, number) at the index of each row, if it is one.

    index: 1 along axis; every: all indices, along axis.
    """
    if every.size <= SHORT and function in (np.add, np.subtract) and math.isfinite(number):
        chosen = np.equal(index, every)
        function(x, chosen if number == 1 else np.multiply(chosen, number, dtype=out.dtype), out=out)
        return
    if x is not out:
        np.copyto(out, x)
    rows = (*out.shape[:axis], *out.shape[axis + 1:])
    k = np.broadcast_to(index, (*out.shape[:axis], 1, *out.shape[axis + 1:])).reshape(rows)
    whole = k.astype(np.int64)
    places = np.nonzero((k >= 0) & (k < out.shape[axis]) & (whole == k))
    at = (*places[:axis], whole[places], *places[axis:])
    out[at] = function(out[at], number)


def fill_rows(x: np.ndarray, rows: Any, number: float, out: np.ndarray) -> None:
    """out = x, which may be out, with number in the rows that are wanted."""
    if x is not out:
        np.copyto(out, x)
    if np.any(rows):
        np.copyto(out, number, where=rows, casting="unsafe")
